#include "cpu/run/bell.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/time.h"

void xl_cpu_pause(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("isb");
#else
    atomic_signal_fence(memory_order_seq_cst);
#endif
}

unsigned xl_bell_news(xl_bell *b) { return atomic_load_explicit(&b->epoch, memory_order_acquire); }

/* The clock is looked at now and then: a pause takes 5 to 50 ns, depending on the CPU. */
unsigned xl_bell_look(const _Atomic unsigned *word, unsigned seen, double spin)
{
    enum { LOOKS = 64 };
    unsigned now = atomic_load_explicit(word, memory_order_acquire);
    if (now != seen || spin <= 0)
        return now;
    double end = xl_now() + spin;
    do {
        for (int i = 0; i < LOOKS && now == seen; i++) {
            xl_cpu_pause();
            now = atomic_load_explicit(word, memory_order_acquire);
        }
    } while (now == seen && xl_now() < end);
    return now;
}

bool xl_bell_wait(xl_bell *b, unsigned seen, double spin, int64_t ms, bool shared)
{
    struct timespec most = { .tv_sec = (time_t)(ms / 1000), .tv_nsec = (long)(ms % 1000) * 1000000 };
    if (xl_bell_look(&b->epoch, seen, spin) != seen)
        return false;
    atomic_fetch_add(&b->sleepers, 1); /* before the kernel compares, so who rings sees it or we see the epoch */
    syscall(SYS_futex, (void *)&b->epoch, shared ? FUTEX_WAIT : FUTEX_WAIT_PRIVATE, seen, ms < 0 ? NULL : &most, NULL,
            0);
    atomic_fetch_sub(&b->sleepers, 1);
    return true;
}

void xl_bell_ring(xl_bell *b, size_t n, bool shared)
{
    atomic_fetch_add(&b->epoch, 1);
    if (n && atomic_load(&b->sleepers))
        syscall(SYS_futex, (void *)&b->epoch, shared ? FUTEX_WAKE : FUTEX_WAKE_PRIVATE,
                n < INT32_MAX ? (int)n : INT32_MAX, NULL, NULL, 0);
}
