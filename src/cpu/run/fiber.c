/* POSIX contexts. The sanitizers want to be told of each switch. */
#include "cpu/run/fiber.h"

#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

#include "base/thread.h"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/common_interface_defs.h>
#elif defined(__SANITIZE_THREAD__)
#include <sanitizer/tsan_interface.h>
#endif

#define STACK ((size_t)8 << 20) /* as a thread's; only what is touched takes memory */

struct xl_fiber {
    ucontext_t self, back;                                 /* back: the thread that resumed it */
    char *stack;
    void (*fn)(void *arg);
    void *arg;
    bool done;
    xl_fiber *next;
#if defined(__SANITIZE_ADDRESS__)
    void *fake;
    const void *below;
    size_t size;
#elif defined(__SANITIZE_THREAD__)
    void *mine, *thread;
#endif
};
struct xl_fibers { xl_mutex lock; xl_fiber *idle; };

static void to_fiber(xl_fiber *f)
{
#if defined(__SANITIZE_ADDRESS__)
    void *fake;
    __sanitizer_start_switch_fiber(&fake, f->stack, STACK);
#elif defined(__SANITIZE_THREAD__)
    f->thread = __tsan_get_current_fiber();
    __tsan_switch_to_fiber(f->mine, 0);
#endif
    swapcontext(&f->back, &f->self);
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_finish_switch_fiber(fake, NULL, NULL);
#endif
}

static void from_fiber(xl_fiber *f)
{
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_start_switch_fiber(f->done ? NULL : &f->fake, f->below, f->size);
#elif defined(__SANITIZE_THREAD__)
    __tsan_switch_to_fiber(f->thread, 0);
#endif
    swapcontext(&f->self, &f->back);
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_finish_switch_fiber(f->fake, &f->below, &f->size);
#endif
}

static void enter(unsigned high, unsigned low)             /* a pointer, as makecontext passes no other than ints */
{
    xl_fiber *f = (xl_fiber *)(uintptr_t)((uint64_t)high << 32 | low);
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_finish_switch_fiber(NULL, &f->below, &f->size);
#endif
    f->fn(f->arg);
    f->done = true;
    from_fiber(f);
}

xl_fibers *xl_fibers_new(void)
{
    xl_fibers *all = calloc(1, sizeof *all);
    if (all)
        xl_mutex_init(&all->lock);
    return all;
}

static xl_fiber *make(void)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    xl_fiber *f = calloc(1, sizeof *f);
    char *mem = f ? mmap(NULL, STACK + page, PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK, -1, 0)
                  : MAP_FAILED;
    if (mem == MAP_FAILED || mprotect(mem, page, PROT_NONE) != 0) { /* below the stack: who runs over it is stopped */
        if (mem != MAP_FAILED)
            munmap(mem, STACK + page);
        free(f);
        return NULL;
    }
#ifdef MADV_NOHUGEPAGE
    madvise(mem, STACK + page, MADV_NOHUGEPAGE);
#endif
    f->stack = mem + page;
    return f;
}

static void unmake(xl_fiber *f)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    munmap(f->stack - page, STACK + page);
    free(f);
}

void xl_fibers_free(xl_fibers *all)
{
    if (!all)
        return;
    for (xl_fiber *f = all->idle, *next; f; f = next) {
        next = f->next;
        unmake(f);
    }
    xl_mutex_fini(&all->lock);
    free(all);
}

/* Not inlined: getcontext is one of those calls that return twice, as far as the compiler knows. */
static __attribute__((noinline)) void prepare(xl_fiber *f)
{
    uint64_t p = (uintptr_t)f;
    f->done = false;
    getcontext(&f->self);
    f->self.uc_stack.ss_sp = f->stack;
    f->self.uc_stack.ss_size = STACK;
    f->self.uc_link = NULL;
    makecontext(&f->self, (void (*)(void))enter, 2, (unsigned)(p >> 32), (unsigned)p);
#if defined(__SANITIZE_THREAD__)
    f->mine = __tsan_create_fiber(0);
#endif
}

xl_fiber *xl_fiber_take(xl_fibers *all, void (*fn)(void *arg), void *arg)
{
    xl_mutex_lock(&all->lock);
    xl_fiber *f = all->idle;
    if (f)
        all->idle = f->next;
    xl_mutex_unlock(&all->lock);
    if (!f && !(f = make()))
        return NULL;
    f->fn = fn;
    f->arg = arg;
    prepare(f);
    return f;
}

void xl_fiber_give(xl_fibers *all, xl_fiber *f)
{
#if defined(__SANITIZE_THREAD__)
    __tsan_destroy_fiber(f->mine);
#endif
    xl_mutex_lock(&all->lock);
    f->next = all->idle;
    all->idle = f;
    xl_mutex_unlock(&all->lock);
}

bool xl_fiber_resume(xl_fiber *f)
{
    to_fiber(f);
    return f->done;
}

void xl_fiber_park(xl_fiber *f) { from_fiber(f); }
