/* Loading OpenBLAS. */
#include "cpu/kernel/openblas.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "cpu/run/feature.h"

#define CARRIED "libscipy_openblas.so"
#define ADVICE                                                                                                         \
    "put " CARRIED " (of the Python package scipy-openblas32) beside libxlane-cpu.so, install libopenblas0, or set "   \
                   "XLANE_LAPACK to either's path"

static struct { void *handle; const char *prefix; char name[512]; } blas;
static pthread_once_t once = PTHREAD_ONCE_INIT;

/* Its own names have a prefix in the build for Python's packages. */
static xl_openblas_fn *symbol(const char *name)
{
    char full[64];
    snprintf(full, sizeof full, "%s%s", blas.prefix, name);
    void *p = dlsym(blas.handle, full);
    xl_openblas_fn *fn;
    memcpy(&fn, &p, sizeof fn);
    return fn;
}

/* Does it multiply rightly on this CPU? Small whole numbers, so that every sum is exact: (AB)v against A(Bv). A library
 * picks its kernels by what the CPU says it has, and some have been seen to be wrong (the SME kernels of OpenBLAS
 * 0.3.34 under an emulator). */
#define MULTIPLIES(type, T)                                                                                            \
    static bool multiplies_##type(xl_openblas_fn *gemm)                                                                \
    {                                                                                                                  \
        enum { N = 130 };                                                                                              \
        static T a[N * N], b[N * N], c[N * N];                                                                         \
        T v[N], bv[N] = { 0 }, one = 1, none = 0;                                                                      \
        int n = N;                                                                                                     \
        for (int i = 0; i < N * N; i++)                                                                                \
            a[i] = (T)(i * 7 % 5 - 2), b[i] = (T)(i * 11 % 7 - 3);                                                     \
        for (int i = 0; i < N; i++)                                                                                    \
            v[i] = (T)(i % 3 - 1);                                                                                     \
        ((void (*)(const char *, const char *, const int *, const int *, const int *, const T *, const T *,            \
                   const int *, const T *, const int *, const T *, T *, const int *, size_t, size_t))gemm)(            \
            "N", "N", &n, &n, &n, &one, a, &n, b, &n, &none, c, &n, 1, 1);                                             \
        for (int i = 0; i < N * N; i++)                                                                                \
            bv[i % N] += b[i] * v[i / N];                                                                              \
        for (int i = 0; i < N; i++) {                                                                                  \
            T left = 0, right = 0;                                                                                     \
            for (int j = 0; j < N; j++)                                                                                \
                left += c[j * N + i] * v[j], right += a[j * N + i] * bv[j];                                            \
            if (left != right)                                                                                         \
                return false;                                                                                          \
        }                                                                                                              \
        return true;                                                                                                   \
    }
MULTIPLIES(s, float)
MULTIPLIES(d, double)

static bool take(const char *path, bool said)
{
    void *before = dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD);
    void *h = dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (!h) {
        const char *why = dlerror();
        if (said)
            snprintf(blas.name, sizeof blas.name, "XLANE_LAPACK: %s", why ? why : path);
        return false;
    }
    blas.handle = h;
    blas.prefix = dlsym(h, "scipy_dgesdd_") ? "scipy_" : "";
    if (!symbol("dgesdd_") || !symbol("dtrsm_")) {
        snprintf(blas.name, sizeof blas.name, "%s has no LAPACK", path);
        blas.handle = NULL;
        dlclose(h);
        return false;
    }
    /* Its threads would fight ours for the cores, and results would depend on their number. If somebody else in this
     * process uses it, it is theirs to say. */
    void (*threads)(int) = (void (*)(int))symbol("openblas_set_num_threads");
    if (threads && !before)
        threads(1);
    if (before)
        dlclose(before);
    char *(*core)(void) = (char *(*)(void))symbol("openblas_get_corename");
    const char *kernel = core ? core() : "unknown kernels";
    snprintf(blas.name, sizeof blas.name, "%s (%s)", path, kernel);
    if (!symbol("sgemm_") || !symbol("dgemm_") || !multiplies_s(symbol("sgemm_")) || !multiplies_d(symbol("dgemm_"))) {
        size_t n = strlen(blas.name);
        snprintf(blas.name + n, sizeof blas.name - n, " multiplies wrongly on this CPU (OPENBLAS_CORETYPE=%s may help)",
                 xl_cpu_features() & XL_CPU_AVX2 ? "Haswell" : "ARMV8");
        blas.handle = NULL;
        return true;                                           /* another of the same kind would be no better */
    }
    if ((xl_cpu_features() & XL_CPU_AVX2) &&
        (!core || !strcmp(kernel, "Prescott") || !strcmp(kernel, "Core2") || !strcmp(kernel, "Generic")))
        XL_LOG(WARN, "%s does not know this CPU and is slow here: set OPENBLAS_CORETYPE=Haswell or SkylakeX, or %s",
               blas.name, ADVICE);
    return true;
}

static void load(void)
{
    const char *said = getenv("XLANE_LAPACK");
    if (said && *said) {
        take(said, true);
        return;
    }
    /* the first is found by our own library's run path: beside it */
    if (!take(CARRIED, false) && !take("libopenblas.so.0", false) && !blas.name[0])
        snprintf(blas.name, sizeof blas.name, "there is no LAPACK library");
}

xl_error *xl_openblas_find(char type, const char *name, xl_openblas_fn **out)
{
    char full[32];
    snprintf(full, sizeof full, "%c%s_", type, name);
    pthread_once(&once, load);
    *out = blas.handle ? symbol(full) : NULL;
    if (*out)
        return NULL;
    if (blas.handle)
        return XL_ERR(UNIMPLEMENTED, "%s has no %s; " ADVICE, blas.name, full);
    return XL_ERR(UNIMPLEMENTED, "%s, which %s needs; " ADVICE, blas.name, full);
}
