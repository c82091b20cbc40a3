/* src/cpu/run/bell.h
 * An event counter on which threads sleep (a futex). It may be in memory that several processes share (`shared`); a
 * thread of one process then wakes those of another directly. Zeroed memory is a bell.
 *
 * A consumer reads the counter, looks for work, and if there is none waits for the counter to change. A producer first
 * makes its work visible, then rings. */
#ifndef XL_CPU_BELL_H
#define XL_CPU_BELL_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct {
    _Atomic unsigned epoch;                                /* changes when there is news */
    _Atomic unsigned sleepers;
} xl_bell;

#define XL_BELL_SPIN 10e-6 /* seconds: about what it costs to sleep and to be woken */

unsigned xl_bell_news(xl_bell *b);
/* Until there is news since `seen`, or for `ms` milliseconds (-1: for as long as it takes). The first `spin` seconds
 * are spent looking, without sleeping: worth it where whoever rings has a core of its own. True: it slept. */
bool xl_bell_wait(xl_bell *b, unsigned seen, double spin, int64_t ms, bool shared);
/* Looks at *word for up to `spin` seconds, while it is `seen`. Returns what it is now. */
unsigned xl_bell_look(const _Atomic unsigned *word, unsigned seen, double spin);
/* Wakes up to n of those who sleep. */
void xl_bell_ring(xl_bell *b, size_t n, bool shared);
void xl_cpu_pause(void);                                   /* one turn of a loop that spins */

#endif
