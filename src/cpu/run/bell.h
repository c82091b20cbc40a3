/* src/cpu/run/bell.h
 * A word that threads sleep on until there is news. It may lie in memory that several processes share (`shared`): then
 * a thread of one wakes those of another, with no thread in between. Zeroed memory is a bell.
 *
 * Who waits reads the number of the latest news, looks for work, and waits with that number if there is none; who has
 * work makes it visible first, then rings. */
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

enum { XL_BELL_SPINS = 1500 };                             /* some 10 to 30 us */

unsigned xl_bell_news(xl_bell *b);
/* Until there is news since `seen`, or for `ms` milliseconds (-1: for as long as it takes). The first `spins` looks are
 * made without sleeping: worth it where whoever rings has a core of its own. */
void xl_bell_wait(xl_bell *b, unsigned seen, int spins, int64_t ms, bool shared);
/* Wakes up to n of those who sleep. */
void xl_bell_ring(xl_bell *b, size_t n, bool shared);
void xl_cpu_pause(void);                                   /* one turn of a loop that spins */

#endif
