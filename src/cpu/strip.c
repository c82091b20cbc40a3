#include "cpu/strip.h"

#include "cpu/feature.h"

extern const xl_strip_set xl_strip_generic;
#if defined(__x86_64__)
extern const xl_strip_set xl_strip_avx512, xl_strip_avx2;
static const xl_strip_set *const sets[] = { &xl_strip_avx512, &xl_strip_avx2, &xl_strip_generic };
#else
static const xl_strip_set *const sets[] = { &xl_strip_generic };
#endif

const xl_strip_set *xl_strips(void)
{
    uint32_t have = xl_cpu_features();
    const xl_strip_set *const *s = sets;
    while ((*s)->needs & ~have)                            /* the last needs nothing */
        s++;
    return *s;
}
