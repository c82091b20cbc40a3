#include "cpu/run/env.h"

#include <stdlib.h>

#include "base/test.h"

static void refused(const char *name, const char *value, const char *with)
{
    setenv(name, value, 1);
    xl_error *err = xl_env_check();
    if (!err || !strstr(xl_error_message(err), name) || !strstr(xl_error_message(err), with))
        FAIL("%s=%s: %s", name, value, err ? xl_error_message(err) : "accepted");
    xl_error_free(err);
    unsetenv(name);
}
static void accepted(const char *name, const char *value, xl_env v, double want)
{
    setenv(name, value, 1);
    CHECK_OK(xl_env_check());
    CHECK(xl_env_get(v, -7) == want);
    unsetenv(name);
}

TEST(known_values)
{
    accepted("XLANE_CPU_PLAN", "plain", XL_ENV_PLAN, XL_ENV_PLAIN);
    accepted("XLANE_CPU_PLAN", "planned", XL_ENV_PLAN, XL_ENV_PLANNED);
    accepted("XLANE_CPU_PLAN", "", XL_ENV_PLAN, -7);
    accepted("XLANE_CPU_ISA", "avx512", XL_ENV_ISA, XL_ENV_ISA_AVX512);
    accepted("XLANE_CPU_HBM", "16MiB", XL_ENV_HBM, 16 << 20);
    accepted("XLANE_CPU_COLLECTIVE_TIMEOUT", "0.4", XL_ENV_COLLECTIVE_TIMEOUT, 0.4);
    accepted("XLANE_CPU_CHECK", "1", XL_ENV_CHECK, 1);
    accepted("XLANE_CPU_PLUGIN", "/any/where", XL_ENV_PLUGIN, 0);
}

TEST(unknown_values_and_names)
{
    refused("XLANE_CPU_PLAN", "off", "planned plain");
    refused("XLANE_CPU_PLAN", "plai", "planned plain");
    refused("XLANE_CPU_PLAN", "PLAIN", "planned plain");
    refused("XLANE_CPU_ISA", "amx", "generic avx2 avx512 all");
    refused("XLANE_CPU_CHECK", "yes", "0 or 1");
    refused("XLANE_CPU_PROFILE", "2", "0 or 1");
    refused("XLANE_CPU_THREADS", "many", "from 1 to 1024");
    refused("XLANE_CPU_THREADS", "0", "from 1 to 1024");
    refused("XLANE_CPU_DEVICES", "4097", "from 1 to 4096");
    refused("XLANE_CPU_COLLECTIVE_TIMEOUT", "0", "seconds");
    refused("XLANE_CPU_COLLECTIVE_TIMEOUT", "nan", "seconds");
    refused("XLANE_CPU_FUSE", "0", "XLANE_CPU_PLAN, XLANE_CPU_CHECK");
    refused("XLANE_CPU_THREAD", "2", "did you mean XLANE_CPU_THREADS?");
}
