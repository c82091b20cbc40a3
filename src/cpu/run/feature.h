/* src/cpu/run/feature.h
 * The CPU features that kernels ask for. Detected once; tests mask bits to reach the other kernels. */
#ifndef XL_CPU_FEATURE_H
#define XL_CPU_FEATURE_H

#include <stdint.h>

enum {
    XL_CPU_NEON = 1 << 0,
    XL_CPU_NEON_BF16 = 1 << 1,
    XL_CPU_NEON_I8MM = 1 << 2,
    XL_CPU_FMA = 1 << 7,            /* of x86-64, for 16-byte vectors; on the others it is part of their vectors */
    XL_CPU_AVX2 = 1 << 8,           /* with FMA and F16C */
    XL_CPU_AVX512 = 1 << 9,         /* F, VL, DQ, BW */
    XL_CPU_AVX512_BF16 = 1 << 10,
    XL_CPU_AVX512_VNNI = 1 << 11,
    XL_CPU_AMX_BF16 = 1 << 12,      /* and the kernel lets us use the tiles */
    XL_CPU_NEVER = 1 << 30,         /* needed by kernels that this compiler could not build */
};

uint32_t xl_cpu_features(void);
/* From now on only the features in `mask` are reported. For tests, between kernels; ~0 takes nothing away. */
void xl_cpu_features_mask(uint32_t mask);

/* Kernels that are built once per instruction set: `name`_generic and, where there are more, `name`_avx2 and
 * `name`_avx512, each of a type with the features that it `needs`. XL_CPU_SETS(type, name) gives name_best(), the best
 * that this CPU can run. */
#if defined(__x86_64__)
#define XL_CPU_SETS(type, name)                                                                                        \
    extern const type name##_generic, name##_avx2, name##_avx512;                                                      \
    static const type *name##_best(void)                                                                               \
    {                                                                                                                  \
        uint32_t lacks = ~xl_cpu_features();                                                                           \
        return !(name##_avx512.needs & lacks) ? &name##_avx512                                                         \
               : !(name##_avx2.needs & lacks) ? &name##_avx2                                                           \
                                              : &name##_generic;                                                       \
    }
#else
#define XL_CPU_SETS(type, name)                                                               \
    extern const type name##_generic;                                                         \
    static const type *name##_best(void) { return &name##_generic; }
#endif

#endif
