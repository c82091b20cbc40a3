/* src/base/thread.h
 * A thin layer over POSIX threads: start and join, a mutex, a condition variable, once. Atomics are those of
 * <stdatomic.h>. A static mutex starts as XL_MUTEX_INIT. Call xl_cond_wait in a loop that tests the condition. */
#ifndef XL_BASE_THREAD_H
#define XL_BASE_THREAD_H

#include <pthread.h>
#include <stdatomic.h>

#include "base/error.h"

typedef struct { pthread_t t; } xl_thread;
typedef struct { pthread_mutex_t m; } xl_mutex;
typedef struct { pthread_cond_t c; } xl_cond;
typedef pthread_once_t xl_once;

#define XL_MUTEX_INIT { PTHREAD_MUTEX_INITIALIZER }
#define XL_COND_INIT { PTHREAD_COND_INITIALIZER }
#define XL_ONCE_INIT PTHREAD_ONCE_INIT

/* Debuggers show the first 15 bytes of `name`. The thread blocks all signals: the program's own threads handle them. */
xl_error *xl_thread_start(xl_thread *t, const char *name, void (*fn)(void *arg), void *arg) XL_MUST_USE;
void xl_thread_join(xl_thread *t);
int xl_thread_cores(void); /* how many this process may use (its affinity), at least 1 */

static inline void xl_mutex_init(xl_mutex *m) { pthread_mutex_init(&m->m, NULL); }
static inline void xl_mutex_fini(xl_mutex *m) { pthread_mutex_destroy(&m->m); }
static inline void xl_mutex_lock(xl_mutex *m) { pthread_mutex_lock(&m->m); }
static inline void xl_mutex_unlock(xl_mutex *m) { pthread_mutex_unlock(&m->m); }
static inline void xl_cond_init(xl_cond *c) { pthread_cond_init(&c->c, NULL); }
static inline void xl_cond_fini(xl_cond *c) { pthread_cond_destroy(&c->c); }
static inline void xl_cond_wait(xl_cond *c, xl_mutex *m) { pthread_cond_wait(&c->c, &m->m); }
static inline void xl_cond_wake(xl_cond *c) { pthread_cond_signal(&c->c); }
static inline void xl_cond_wake_all(xl_cond *c) { pthread_cond_broadcast(&c->c); }
static inline void xl_once_run(xl_once *o, void (*fn)(void)) { pthread_once(o, fn); }

#endif
