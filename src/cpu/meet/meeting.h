/* src/cpu/meet/meeting.h
 * Where the devices of one execution meet, and which threads run them. Each device is a fiber with a slot here. As many
 * fibers are active as the pool has threads; a thread runs a fiber until it waits, then another that is ready. A thread
 * without a ready fiber helps with the loops of the active ones.
 * A collective is one meeting of its group: each member that arrives publishes its buffers and parks; the last one does
 * the work for all of them, with the help of idle threads, and releases them. A meeting fails for all members as soon
 * as it cannot complete: a member waits at another meeting, has ended, or has been running for
 * XLANE_CPU_COLLECTIVE_TIMEOUT seconds (30 by default) without arriving. Nothing waits forever.
 *
 * Devices of other processes also have slots, in which nothing runs. A group with such members meets here when the
 * members of this process have arrived; their operands are sent to the other processes, those of the other processes
 * are awaited (the fiber is parked), and each process computes the results of its own members. What is computed, and in
 * which order, does not depend on how the devices are distributed over processes. */
#ifndef XL_CPU_MEETING_H
#define XL_CPU_MEETING_H

#include "cpu/meet/members.h"
#include "cpu/plan/plan.h"
#include "cpu/run/fiber.h"

typedef struct {
    void *ctx;
    void (*run)(void *ctx, uint32_t device);               /* in a fiber; calls xl_meet_leave before it returns */
    void (*end)(void *ctx,
                uint32_t device); /* then, in a thread's own stack; also of a device for which there was no stack */
} xl_meet_task;

/* far: NULL when all devices are this process's. */
xl_error *xl_meet_new(uint32_t ndevice, xl_pool *pool, const xl_meet_far *far, xl_meet **out) XL_MUST_USE;
void xl_meet_free(xl_meet *m);
/* Runs the task for every device of this process; returns when all have ended. The calling thread takes part. */
void xl_meet_run(xl_meet *m, xl_fibers *fibers, const xl_meet_task *task);
/* Device `me` comes to `step` with in and out; returns when all n members have and the last of them has called fn. */
xl_error *xl_meet_at(xl_meet *m, uint32_t me, const uint32_t *member, uint32_t n, const xl_step *step, xl_frame *f,
                     void *const *in, void *const *out, xl_meet_fn *fn) XL_MUST_USE;
/* Device `me` runs no more: err NULL when it came to the end of its program, else why it stopped (borrowed). */
void xl_meet_leave(xl_meet *m, uint32_t me, const xl_error *err);
/* One iteration of a loop: an error if other devices have failed, or have waited for this one beyond the limit.
 * After long looping, queued devices run first. */
xl_error *xl_meet_turn(const xl_frame *f) XL_MUST_USE;
static inline uint32_t xl_meet_number(const xl_frame *f)
{
    return f->replica * f->npartition + f->partition;
} /* of the device */
/* Bytes that went into collectives of this execution, all devices together, counted as the bytes of the results (of the
 * operands for a reduce_scatter). */
void xl_meet_count(xl_meet *m, uint64_t bytes);
uint64_t xl_meet_bytes(const xl_meet *m);
typedef struct {
    uint64_t meetings;
    int64_t busy_ns, idle_ns;
} xl_meet_times; /* of all threads that took part, together */
xl_meet_times xl_meet_spent(const xl_meet *m);

#endif
