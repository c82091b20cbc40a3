/* src/cpu/run/env.h
 * The environment variables XLANE_CPU_* (base/variables.def). A client and every compile check them all first, so that
 * a misspelt name or value is an error and never ignored. Any thread may call. */
#ifndef XL_CPU_ENV_H
#define XL_CPU_ENV_H

#include "base/error.h"

#define XL_ENV_SIZE_MAX ((uint64_t)INT64_MAX)

typedef enum {
#define ENV(name, ...) XL_ENV_##name,
#include "base/variables.def"
    XL_ENV_COUNT
} xl_env;
enum { XL_ENV_PLANNED, XL_ENV_PLAIN };                     /* words of PLAN */
enum { XL_ENV_ISA_GENERIC, XL_ENV_ISA_AVX2, XL_ENV_ISA_AVX512, XL_ENV_ISA_ALL };

/* Every variable whose name begins with XLANE_CPU_ is known and has a value that it may have, or none. */
xl_error *xl_env_check(void) XL_MUST_USE;
/* Its value: the number, 0 or 1 for a flag, the word's place in the list. `otherwise` where it is not set, or is not
 * valid. */
double xl_env_get(xl_env v, double otherwise);

#endif
