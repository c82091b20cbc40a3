/* A plugin over another: the embedded device's table, copied, with one entry replaced. XLANE_WRAPPED names the library.
 * */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "pjrt/abi.h"

static PJRT_Api real, mine;

static void change(PJRT_Api *api);

__attribute__((visibility("default"))) const PJRT_Api *GetPjrtApi(void);
const PJRT_Api *GetPjrtApi(void)
{
    const char *path = getenv("XLANE_WRAPPED");
    void *lib = path ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : NULL;
    const PJRT_Api *(*get)(void) = NULL;
    if (lib)
        *(void **)&get = dlsym(lib, "GetPjrtApi");
    if (!get)
        return NULL;
    const PJRT_Api *a = get();
    memcpy(&real, a, a->struct_size < sizeof real ? a->struct_size : sizeof real);
    mine = real;
    change(&mine);
    return &mine;
}
