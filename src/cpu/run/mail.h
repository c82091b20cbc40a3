/* src/cpu/run/mail.h
 * Messages between the processes that share a client's devices. They find each other through the
 * frontend's key-value store, and each pair has one TCP connection. On one host a message goes through a ring in shared
 * memory (/proc/PID/fd), from which its receiver takes it; a large one by reference: the sender copies it once into a
 * memfd that all receivers map. Messages for which the ring has no room use the connection, and so do heartbeats. One
 * thread per client receives from connections. Any thread may send and take; one thread opens and closes.
 *
 * A process that dies closes its connections, which is noticed at once; one that is stopped or unreachable misses its
 * heartbeats. Every wait has a time limit. */
#ifndef XL_CPU_MAIL_H
#define XL_CPU_MAIL_H

#include "base/str.h"
#include "cpu/run/pool.h"

typedef struct xl_mail xl_mail;

typedef struct {
    void *ctx;
    xl_error *(*put)(void *ctx, const char *key, const char *value); /* an error when the key has a value already */
    xl_error *(*get)(void *ctx, const char *key, int64_t ms,
                     xl_buf *value); /* waits up to ms for it; DEADLINE when it does not come */
} xl_mail_store;

typedef struct {
    uint32_t me, n, devices;                               /* this process, all of them, devices of this one */
    uint32_t epoch; /* which client of the process it is, counted alike in all of them */
    xl_mail_store store;                                   /* used while opening only */
} xl_mail_opts;

/* Which exchange a message belongs to. Messages of one channel between two processes are taken in the order they were
 * sent. */
typedef struct { uint64_t devices, group; uint32_t run; } xl_channel;
/* What the sender was doing: a receiver that does something else has another program. */
typedef struct {
    uint64_t what;
    uint32_t phase, entered_us;
    char text[80];
} xl_mail_tag; /* entered_us: how long ago the sender entered the program */

xl_error *xl_mail_open(const xl_mail_opts *opts, xl_mail **out) XL_MUST_USE;
/* Threads of the pool may wait for messages: they rest here, and sleep no longer than until something comes, here or in
 * the pool (what xl_pool_news and xl_pool_rest are there). NULL before the pool is freed. */
void xl_mail_serve(xl_mail *m, xl_pool *pool);
unsigned xl_mail_news(xl_mail *m);
void xl_mail_rest(xl_mail *m, unsigned seen, int64_t ms);
void xl_mail_close(xl_mail *m);
uint32_t xl_mail_me(const xl_mail *m);
uint32_t xl_mail_count(const xl_mail *m);
uint32_t xl_mail_devices(const xl_mail *m, uint32_t process);
uint32_t xl_mail_neighbours(const xl_mail *m);             /* processes of this host, this one included */
bool xl_mail_shares(const xl_mail *m, uint32_t process);   /* whether references reach it */
const char *xl_mail_name(const xl_mail *m, uint32_t process); /* "process 2 (host h, pid 17)" */

/* A message being written; where `shared`, one that goes by reference. Dropped when all to whom it was sent have let it
 * go. */
typedef struct xl_parcel xl_parcel;
xl_parcel *xl_parcel_new(xl_mail *m, size_t bytes, bool shared); /* NULL: no memory */
void *xl_parcel_data(xl_parcel *p);
bool xl_parcel_shared(const xl_parcel *p);
void xl_parcel_drop(xl_mail *m, xl_parcel *p);
/* bytes of it from `from` on, or a reference to all of it where it is shared and the process shares memory with us. */
xl_error *xl_mail_send(xl_mail *m, uint32_t to, const xl_channel *c, const xl_mail_tag *tag, xl_parcel *p, size_t from,
                       size_t bytes) XL_MUST_USE;
/* This process has stopped a run: those who wait for it there should stop too. */
void xl_mail_stop(xl_mail *m, uint32_t to, const xl_channel *c, const char *why);

typedef struct {
    const xl_mail_tag *tag;
    const char *data;
    size_t bytes;
    bool whole;
    double came;
    void *own;
} xl_letter; /* whole: by reference */
/* NEVER: none can come any more, the process has gone, has stopped the run, or is in a later one; taking it says why.
 */
typedef enum { XL_MAIL_WAIT, XL_MAIL_HERE, XL_MAIL_NEVER } xl_mail_state;
xl_mail_state xl_mail_ready(xl_mail *m, uint32_t from, const xl_channel *c);
xl_error *xl_mail_take(xl_mail *m, uint32_t from, const xl_channel *c, xl_letter *out) XL_MUST_USE; /* not while WAIT */
void xl_letter_drop(xl_mail *m, xl_letter *l);

/* Forgets what came for earlier runs on these devices; returns the number of the run that begins. */
uint32_t xl_mail_run(xl_mail *m, uint64_t devices);
/* When each of n processes entered a program, this one included, by this one's clock. A process that is again and again
 * the last, and late by a good part of the time between two executions, is named once. */
void xl_mail_entered(xl_mail *m, const char *program, const uint32_t *process, const double *when, uint32_t n);
/* What this process is doing, for the heartbeats; `waits`: it is for others, and holds nobody up by itself. */
void xl_mail_doing(xl_mail *m, bool waits, const char *fmt, ...) XL_PRINTF(3, 4);
bool xl_mail_waits(xl_mail *m, uint32_t process); /* so it says, and has been heard lately */
/* What is known of a process that others wait for: "alive, in jit_step", "no sign of life for 12 s". */
void xl_mail_tell(xl_mail *m, uint32_t process, char *text, size_t size);

#endif
