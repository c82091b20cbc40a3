/* src/cpu/run/pool.h
 * A thread pool for parallel loops. The calling thread takes part, so a pool of N has N - 1 threads of its own. Idle
 * threads spin for 10 us, and for up to 100 us while loops come so soon after each other, then sleep.
 * A loop is divided into chunks by n and grain alone, never by N or timing, so results do not depend on the number of
 * threads. A thread starts with the same part of a loop's chunks each time. Any thread may call xl_pool_for; several
 * loops may run at once, and idle threads help with any of them. A call from inside a chunk runs its chunks one after
 * another on the calling thread, and so does a call in a forked child, which has no threads. */
#ifndef XL_CPU_POOL_H
#define XL_CPU_POOL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cpu/run/bell.h"

typedef struct xl_pool xl_pool;
typedef void xl_pool_fn(void *ctx, size_t begin, size_t end);

/* n = 0 takes XLANE_CPU_THREADS, or else as many as this process may use cores. Threads that the system refuses are
 * done without; NULL only when there is no memory, and every function takes NULL for a pool of one. */
xl_pool *xl_pool_new(size_t n);
void xl_pool_free(xl_pool *p);
size_t xl_pool_size(const xl_pool *p);

/* Calls fn(ctx, i * grain, min(n, (i + 1) * grain)) for every chunk i, and returns when all are done. grain 0 counts as
 * 1. */
void xl_pool_for(xl_pool *p, size_t n, size_t grain, xl_pool_fn *fn, void *ctx);

/* Work of another kind than loops: fn(ctx, ..) in the calling thread and, as they come free, in up to most - 1 others,
 * each of them once. fn looks for work, does it (which may post loops), and returns when there will be no more. In
 * between: it reads the number of the latest news, looks, and if there is nothing calls xl_pool_rest, which helps with
 * somebody's loop (true) or sleeps until there is later news or for `ms` milliseconds. Producers call
 * xl_pool_tell(p, n) to wake up to n workers. */
void xl_pool_crew(xl_pool *p, size_t most, xl_pool_fn *fn, void *ctx);
unsigned xl_pool_news(const xl_pool *p);
void xl_pool_tell(xl_pool *p, size_t n);
bool xl_pool_rest(xl_pool *p, unsigned seen, int64_t ms);
/* For workers that sleep on a bell between processes instead: what they are told rings it too (NULL: no longer), and
 * what xl_pool_rest does before it sleeps. */
void xl_pool_link(xl_pool *p, xl_bell *also);
bool xl_pool_help(xl_pool *p);

/* Memory for arrays, for free(); 64-byte aligned, on x86-64 in large pages where there is much of it: rows of a matrix
 * that lie pages apart need few of them then. NULL when there is none. */
void *xl_data_alloc(size_t bytes);

/* Memory of the calling thread, 64-byte aligned, kept from call to call and freed when the thread ends. `slot` keeps
 * nested users apart; a slot's contents last until the thread asks for that slot again. NULL when there is none. */
void *xl_scratch(unsigned slot, size_t bytes);
enum {
    XL_SCRATCH_GEMM_A,
    XL_SCRATCH_GEMM_B,
    XL_SCRATCH_GEMM_C,
    XL_SCRATCH_GEMM_SUM,
    XL_SCRATCH_SKINNY,
    XL_SCRATCH_PLAN,
    XL_SCRATCH_CONV,
    XL_SCRATCH_SLOTS
};

#endif
