/* guard/preload_main.c: the object that `xlane run` preloads. It needs nothing but libc, because whatever a preloaded
 * object needs enters the global scope ahead of the program's own libraries.
 *
 * It defines dlsym. Asked for "GetPjrtApi", it opens libxlane-guard.so (RTLD_LOCAL) and hands out the guard's answer
 * instead of the plugin's; for everything else it jumps to the real dlsym. A jump, not a call: dlsym(RTLD_NEXT, ...)
 * looks at the address it was called from, so ours must not appear on the stack. Hence the few lines of assembly.
 *
 * Asked for the entry of jaxlib's module, it runs the Python of preload_function.h and preload_jax.h. */
#include <dlfcn.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <stdbool.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "guard/preload_end.h"
#include "guard/preload_function.h"
#include "guard/preload_jax.h"

typedef void *dlsym_fn(void *handle, const char *name);
typedef void *attach_fn(void *get_pjrt_api);

#if defined(__x86_64__)
#define FIRST_VERSION "GLIBC_2.2.5"
#elif defined(__aarch64__)
#define FIRST_VERSION "GLIBC_2.17"
#else
#error "dlsym's first version on this architecture is not known here"
#endif

static _Atomic(dlsym_fn *) real_dlsym;
static _Atomic(attach_fn *) attach;
static atomic_int attach_tried;

/* What standard error is before the program's own code runs: the guard says nothing to a file that takes its number
 * later. */
static dev_t err_dev;
static ino_t err_ino;

__attribute__((constructor)) static void begin(void)
{
    struct stat st;
    if (fstat(2, &st) == 0) {
        err_dev = st.st_dev;
        err_ino = st.st_ino;
    }
}

__attribute__((visibility("default"))) void xlane_preload_stderr(dev_t *dev, ino_t *ino);
void xlane_preload_stderr(dev_t *dev, ino_t *ino)
{
    *dev = err_dev;
    *ino = err_ino;
}

static bool stderr_stands(void)
{
    struct stat st;
    return fstat(2, &st) == 0 && st.st_dev == err_dev && st.st_ino == err_ino;
}

static dlsym_fn *find_real(void)
{
    dlsym_fn *f = atomic_load_explicit(&real_dlsym, memory_order_acquire);
    if (!f) {
        void *p = dlvsym(RTLD_NEXT, "dlsym", FIRST_VERSION);
        memcpy(&f, &p, sizeof f);
        atomic_store_explicit(&real_dlsym, f, memory_order_release);
    }
    return f;
}

enum { LOADING = 1, LOADED };

/* The guard beside this object, or NULL: then the program runs as if we were not there. */
static attach_fn *find_attach(void)
{
    static _Thread_local bool loading;
    int none = 0;
    if (atomic_compare_exchange_strong(&attach_tried, &none, LOADING)) {
        loading = true;
        const char *path = getenv("XLANE_GUARD_LIBRARY");
        void *lib = path && *path ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : NULL;
        if (lib) {
            void *p = find_real()(lib, "xlane_guard_attach");
            attach_fn *f;
            memcpy(&f, &p, sizeof f);
            atomic_store_explicit(&attach, f, memory_order_release);
        } else if (stderr_stands()) {
            const char *why = dlerror();
            (void)!write(2, "xlane: the guard did not load: ", 31);
            (void)!write(2, why ? why : "?", why ? strlen(why) : 1);
            (void)!write(2, "\n", 1);
        }
        loading = false;
        atomic_store_explicit(&attach_tried, LOADED, memory_order_release);
    }
    /* Another thread is at it: its plugin is not the only one to be guarded. Not for ever, for this one may hold the
     * loader's lock. */
    for (int ms = 0; !loading && ms < 5000 && atomic_load_explicit(&attach_tried, memory_order_acquire) != LOADED; ms++)
        nanosleep(&(struct timespec){ .tv_nsec = 1000000 }, NULL);
    return atomic_load_explicit(&attach, memory_order_acquire);
}

static void *guarded_dlsym(void *handle, const char *name)
{
    void *theirs = find_real()(handle, name);
    attach_fn *a = theirs ? find_attach() : NULL;
    void *ours = a ? a(theirs) : NULL;
    return ours ? ours : theirs;
}

/* Python looks its modules' entries up while it holds its lock. */
static void tell_jax(void)
{
    static atomic_bool done;
    int (*run)(const char *, void *) = NULL;
    if (atomic_exchange(&done, true))
        return;
    void *p = find_real()(RTLD_DEFAULT, "PyRun_SimpleStringFlags");
    memcpy(&run, &p, sizeof run);
    const char *part[] = { guard_preload_function, guard_preload_values, guard_preload_call,  guard_preload_names,
                           guard_preload_reads,    guard_preload_compiler, guard_preload_started, guard_preload_end,
                           guard_preload_jax };
    for (size_t i = 0; run && i < sizeof part / sizeof *part; i++)
        if (run(part[i], NULL))
            break;
}

/* Where dlsym jumps to. Called from the assembly below with dlsym's own arguments. */
__attribute__((used, visibility("hidden"))) dlsym_fn *xlane_preload_pick(void *handle, const char *name);
dlsym_fn *xlane_preload_pick(void *handle, const char *name)
{
    (void)handle;
    if (name && name[0] == 'G' && strcmp(name, "GetPjrtApi") == 0) {
        const char *off = getenv("XLANE_GUARD");
        if (!off || strcmp(off, "off"))
            return guarded_dlsym;
    }
    if (name && name[0] == 'P' && (!strcmp(name, "PyInit__jax") || !strcmp(name, "PyInit_xla_extension")))
        tell_jax();
    return find_real();
}

#if defined(__x86_64__)
__asm__(".text\n.globl dlsym\n.type dlsym,@function\ndlsym:\n"
        "  push %rdi\n  push %rsi\n  sub $8, %rsp\n"
        "  call xlane_preload_pick\n"
        "  add $8, %rsp\n  pop %rsi\n  pop %rdi\n"
        "  jmp *%rax\n.size dlsym, .-dlsym\n");
#else
__asm__(".text\n.globl dlsym\n.type dlsym,%function\ndlsym:\n"
        "  stp x29, x30, [sp, -32]!\n  stp x0, x1, [sp, 16]\n  mov x29, sp\n"
        "  bl xlane_preload_pick\n"
        "  mov x16, x0\n  ldp x0, x1, [sp, 16]\n  ldp x29, x30, [sp], 32\n"
        "  br x16\n.size dlsym, .-dlsym\n");
#endif
