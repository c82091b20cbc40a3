#include "cpu/run/feature.h"

#include <stdatomic.h>

#include "cpu/run/env.h"

#if defined(__aarch64__)
#include <sys/auxv.h>

static uint32_t probe(void)
{
    unsigned long hw2 = getauxval(AT_HWCAP2);
    return XL_CPU_NEON | (hw2 & 1ul << 14 ? XL_CPU_NEON_BF16 : 0) | (hw2 & 1ul << 13 ? XL_CPU_NEON_I8MM : 0);
}
#elif defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

static uint32_t probe(void)
{
    uint32_t f = 0, a, b, c, d;
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __get_cpuid(1, &a, &b, &c, &d) &&
        (c & 1u << 29))
        f |= XL_CPU_AVX2 | XL_CPU_FMA;
    if ((f & XL_CPU_AVX2) && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512bw"))
        f |= XL_CPU_AVX512;
    if ((f & XL_CPU_AVX512) && __get_cpuid_count(7, 0, &a, &b, &c, &d)) {
        if (c & 1u << 11)
            f |= XL_CPU_AVX512_VNNI;
        uint32_t amx = d;
        if (__get_cpuid_count(7, 1, &a, &b, &c, &d) && (a & 1u << 5))
            f |= XL_CPU_AVX512_BF16;
        /* tile state is off until the process asks for it: ARCH_REQ_XCOMP_PERM of XTILEDATA */
        if ((amx & 1u << 24) && (amx & 1u << 22) && (f & XL_CPU_AVX512_BF16) &&
            syscall(SYS_arch_prctl, 0x1023, 18) == 0)
            f |= XL_CPU_AMX_BF16;
    }
    return f;
}
#else
static uint32_t probe(void)
{
    return 0;
}
#endif

/* What XLANE_CPU_ISA leaves. */
static uint32_t chosen(void)
{
    switch ((int)xl_env_get(XL_ENV_ISA, XL_ENV_ISA_ALL)) {
    case XL_ENV_ISA_GENERIC: return 0;
    case XL_ENV_ISA_AVX2: return XL_CPU_AVX2 | XL_CPU_FMA;
    case XL_ENV_ISA_AVX512: return ~(uint32_t)XL_CPU_AMX_BF16;
    default: return ~0u;
    }
}

static atomic_uint found, allowed = ~0u;

uint32_t xl_cpu_features(void)
{
    uint32_t f = atomic_load_explicit(&found, memory_order_relaxed);
    if (!f) {
        f = (probe() & chosen()) | 1u << 31;                 /* so that zero means not yet looked */
        atomic_store_explicit(&found, f, memory_order_relaxed);
    }
    return f & atomic_load_explicit(&allowed, memory_order_relaxed) & ~(1u << 31);
}

void xl_cpu_features_mask(uint32_t mask)
{
    atomic_store_explicit(&allowed, mask, memory_order_relaxed);
}
