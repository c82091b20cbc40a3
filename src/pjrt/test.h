/* src/pjrt/test.h
 * For tests: a plugin by its place in the build folder. The test programs lie in build/test/pjrt/. */
#ifndef XL_PJRT_TEST_H
#define XL_PJRT_TEST_H

#include <unistd.h>

#include "base/test.h"
#include "pjrt/client.h"

static inline xl_plugin *xl_test_plugin(const char *file)
{
    char path[4096];
    ssize_t n = readlink("/proc/self/exe", path, sizeof path - 1);
    CHECK(n > 0);
    path[n] = 0;
    for (int up = 0; up < 3; up++)
        *strrchr(path, '/') = 0;
    size_t at = strlen(path);
    snprintf(path + at, sizeof path - at, "/%s", file);
    xl_plugin *p = NULL;
    CHECK_OK(xl_plugin_load(path, &p));
    return p;
}

#endif
