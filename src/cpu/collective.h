/* src/cpu/collective.h
 * Where the devices of one execution meet. Each device of an execution is a thread with a slot here. A collective is one meeting of its group:
 * who comes publishes its buffers and sleeps; who comes last does the work for all of them, with the pool's help, and wakes them. A
 * meeting fails, for everybody, as soon as it cannot take place: a member waits elsewhere for one of us, has ended, or does not
 * come within XLANE_CPU_COLLECTIVE_TIMEOUT seconds (30 unless set). Nobody waits for ever.
 *
 * There are usually more devices than cores. Only as many run as there are cores; the others queue, and one that begins to wait hands its core
 * to the first in the queue, so that devices do not push each other out of the caches. */
#ifndef XL_CPU_COLLECTIVE_H
#define XL_CPU_COLLECTIVE_H

#include "cpu/plan.h"

/* The members of a meeting in the order of their group, and what each brought: in[k] and out[k] are member k's operands and results. pool: the cores
 * that have nothing else to do, or NULL. */
typedef struct { uint32_t n; xl_pool *pool; void *const *const *in, *const *const *out; } xl_group_view;
typedef xl_error *xl_meet_fn(const xl_step *s, xl_frame *f, const xl_group_view *g);

/* As many devices run at a time as the pool has threads. */
xl_error *xl_meet_new(uint32_t ndevice, xl_pool *pool, xl_meet **out) XL_MUST_USE;
void xl_meet_free(xl_meet *m);
void xl_meet_enter(xl_meet *m, uint32_t me);               /* before anything else: returns when there is a core */
/* Device `me` comes to `step` with in and out; returns when all n members have and the last of them has called fn. */
xl_error *xl_meet_at(xl_meet *m, uint32_t me, const uint32_t *member, uint32_t n, const xl_step *step, xl_frame *f, void *const *in, void *const *out, xl_meet_fn *fn) XL_MUST_USE;
/* Device `me` runs no more: err NULL when it came to the end of its program, else why it stopped (borrowed). */
void xl_meet_leave(xl_meet *m, uint32_t me, const xl_error *err);
void xl_meet_absent(xl_meet *m, uint32_t device, const xl_error *err); /* it never started: fails the others */
/* Bytes that went into collectives of this execution, all devices together, counted as the bytes of the results (of the operands for a
 * reduce_scatter). */
void xl_meet_count(xl_meet *m, uint64_t bytes);
uint64_t xl_meet_bytes(const xl_meet *m);

#endif
