#include "train/sized.h"

#include <string.h>

#include "base/version.h"
#include "xlane/xlane.h"

const char *xl_version(void) { return XL_VERSION; }

enum { STRUCT_BYTES_MAX = 1 << 16 };

void xl_sized_fill(void *out, size_t size, const void *known, size_t n)
{
    memset(out, 0, size);
    memcpy(out, known, size < n ? size : n);
    memcpy(out, &size, sizeof size);
}

xl_error *xl_sized_read(const char *start, const void *in, void *known, size_t n)
{
    size_t size;
    memcpy(&size, in, sizeof size);
    if (size < sizeof size || size > STRUCT_BYTES_MAX)
        return XL_ERR(INVALID, "options of %zu bytes: they have no size; start from %s()", size, start);
    for (size_t i = n; i < size; i++)
        if (((const unsigned char *)in)[i])
            return XL_ERR(INVALID,
                          "the program sets an option that libxlane " XL_VERSION
                          " does not have (byte %zu of what %s() "
                          "gives): use the library of the program's version, or leave the option at its default",
                          i, start);
    memcpy(known, in, size < n ? size : n);
    memcpy(known, &n, sizeof n);
    return NULL;
}
