/* Arbitrary bytes as a capture: the manifest gets a valid digest, so the code behind the digest is reached. An accepted
 * capture must be whole: every input has bytes or an earlier step. */
#include <stdlib.h>

#include "lane/capture.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    enum { HEAD = 48 };
    xl_arena a = { .limit = (size_t)256 << 20 };
    jmp_buf oom;
    xl_capture c;
    char *copy = malloc(size + 1);
    if (!copy)
        return 0;
    memcpy(copy, data, size);
    if (size >= HEAD) {
        uint64_t n;
        memcpy(&n, copy + 8, sizeof n);
        if (n <= size - HEAD) {
            xl_digest d = xl_hash_of((xl_str){ copy + HEAD, (size_t)n });
            memcpy(copy + 16, d.b, sizeof d.b);
        }
    }
    a.oom = &oom;
    if (!setjmp(oom)) {
        xl_error *err = xl_capture_parse(&a, "fuzz", (xl_str){ copy, size }, &c);
        for (uint32_t s = 0; !err && s < c.nstep; s++)
            for (size_t i = 0; i < (size_t)c.step[s].ndevice * c.step[s].narg; i++) {
                const xl_cap_input *x = &c.step[s].in[i];
                if (x->from < 0 ? !x->part.bytes : x->from >= s || x->out >= c.step[x->from].nout)
                    abort();
            }
        xl_error_free(err);
    }
    xl_arena_fini(&a);
    free(copy);
    return 0;
}
