/* Any bytes as what PyTorch/XLA writes under PT_XLA_DEBUG_LEVEL. A place that is taken is text of it, and fits. */
#include <stdlib.h>
#include <string.h>

#include "guard/guard.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char place[32], *copy = malloc(size + 1);              /* a copy: reading past its end is seen */
    bool reads_value = false;
    if (!copy)
        return 0;
    memcpy(copy, data, size);
    memset(place, 1, sizeof place);
    place[0] = 0;
    guard_frame_parse((xl_str){ copy, size }, place, sizeof place, &reads_value);
    size_t n = strnlen(place, sizeof place);
    if (n == sizeof place || (n && !memmem(copy, size, place, n)))
        abort();
    free(copy);
    return 0;
}
