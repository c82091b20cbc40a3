/* src/cpu/feature.h
 * What this CPU can do, as far as a kernel asks. Found once; tests take bits away to reach the other kernels. */
#ifndef XL_CPU_FEATURE_H
#define XL_CPU_FEATURE_H

#include <stdint.h>

enum {
    XL_CPU_NEON = 1 << 0,
    XL_CPU_NEON_BF16 = 1 << 1,
    XL_CPU_NEON_I8MM = 1 << 2,
    XL_CPU_AVX2 = 1 << 8,           /* with FMA and F16C */
    XL_CPU_AVX512 = 1 << 9,         /* F, VL, DQ, BW */
    XL_CPU_AVX512_BF16 = 1 << 10,
    XL_CPU_AVX512_VNNI = 1 << 11,
    XL_CPU_AMX_BF16 = 1 << 12,      /* and the kernel lets us use the tiles */
};

uint32_t xl_cpu_features(void);
/* From now on only the features in `mask` are reported. For tests, between kernels; ~0 takes nothing away. */
void xl_cpu_features_mask(uint32_t mask);

#endif
