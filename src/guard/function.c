/* Which function of the user's is being compiled. A program carries the name of its function alone, and two functions
 * of one name (lambdas, `step` of a factory, one for training and one for evaluation) are two programs, not one that
 * changed. preload_jax.h asks Python, on the thread that compiles, and tells us around the call; the call itself may
 * come on another thread, so the two meet by the module's name. */
#include <stdio.h>

#include "base/file.h"
#include "guard/guard.h"

typedef struct { char module[128]; int id; guard_told say; bool taken; } told;

static xl_mutex lock = XL_MUTEX_INIT;
static told now[64];
static int last;

/* Of two compiles at once either may have taken the other's answer. If this one's is not taken and it ends, the other's
 * was taken for it, and this one's is left to the other. Under lock. */
static void give_back(told *mine)
{
    for (size_t i = 0; i < sizeof now / sizeof *now && !mine->taken; i++)
        if (now[i].id && now[i].taken && !strcmp(now[i].module, mine->module)) {
            now[i].say = mine->say;
            now[i].taken = false;
            mine->taken = true;
        }
    mine->id = 0;
}

/* What compiles from here on in this module is that function's ("": not known), which has that name ("": as the module
 * says), under that jax.config, called as `call` says (see lane/call.h), with jax_enable_x64 as `value` says (an
 * xl_x64), and of an xl_owner, until the number that this returns is given back: xlane_guard_function(NULL, NULL, NULL,
 * NULL, NULL, number, 0). */
__attribute__((visibility("default"))) int xlane_guard_function(const char *module, const char *function,
                                                                const char *name, const char *config, const char *call,
                                                                int value, int owner);
int xlane_guard_function(const char *module, const char *function, const char *name, const char *config,
                         const char *call, int value, int owner)
{
    int number = 0;
    xl_mutex_lock(&lock);
    for (size_t i = 0; i < sizeof now / sizeof *now && !number; i++) {
        if (!module && now[i].id == value)
            give_back(&now[i]);
        if (!module || now[i].id)
            continue;
        snprintf(now[i].module, sizeof now[i].module, "%s", module);
        snprintf(now[i].say.function, sizeof now[i].say.function, "%s", function);
        snprintf(now[i].say.name, sizeof now[i].say.name, "%s", name);
        snprintf(now[i].say.config, sizeof now[i].say.config, "%s", config);
        snprintf(now[i].say.call, sizeof now[i].say.call, "%s", call);
        now[i].say.x64 = value == XL_X64_OFF || value == XL_X64_ON ? (xl_x64)value : XL_X64_UNKNOWN;
        now[i].say.owner = owner > 0 && owner <= XL_OWNER_SEARCH ? (xl_owner)owner : XL_OWNER_UNKNOWN;
        now[i].taken = false;
        last = last == INT32_MAX ? 1 : last + 1;
        number = now[i].id = last;
    }
    xl_mutex_unlock(&lock);
    return number;
}

guard_told guard_function(xl_str module)
{
    told *found = NULL;
    guard_told out = { .x64 = XL_X64_UNKNOWN };
    xl_mutex_lock(&lock);
    for (size_t i = 0; i < sizeof now / sizeof *now; i++)
        if (now[i].id && xl_str_is(module, now[i].module) && (!found || (found->taken && !now[i].taken)))
            found = &now[i];                               /* of several threads' at once, each is taken once */
    if (found) {
        found->taken = true;
        out = found->say;
    }
    xl_mutex_unlock(&lock);
    return out;
}

/* The first function of a module's name has that name; the next ones have their place in it: "jit_step@train.py:31".
 * Under compile_lock. */
void guard_function_name(xl_str module, const char *function, char *out, size_t room)
{
    static struct { uint64_t module, function; } first[1024];
    static uint32_t n;
    uint64_t m = xl_hash64(module.p, module.n, 0), f = xl_hash64(function, strlen(function), 0);
    uint32_t i = 0;
    snprintf(out, room, "%.*s", XL_FMT(module));
    while (i < n && first[i].module != m)
        i++;
    if (!*function || i == sizeof first / sizeof *first)
        return;
    if (i == n) {
        first[n].module = m;
        first[n++].function = f;
    }
    if (first[i].function != f)
        snprintf(out, room, "%.*s@%.*s", XL_FMT(module), XL_FMT(xl_path_base(xl_str_of(function))));
}
