/* src/cpu/collective.h
 * Where the devices of one execution meet. Each device of an execution is a thread with a slot here; a collective is one or more
 * barriers over the slots of its group, between which the members read each other's buffers. A barrier ends when every member has come
 * to the same step, and fails, for all of them, as soon as it cannot: a member waits elsewhere for one of us, has ended, or does not
 * come within XLANE_CPU_COLLECTIVE_TIMEOUT seconds (30 unless set). Nobody waits for ever. */
#ifndef XL_CPU_COLLECTIVE_H
#define XL_CPU_COLLECTIVE_H

#include "cpu/plan.h"

xl_error *xl_meet_new(uint32_t ndevice, xl_meet **out) XL_MUST_USE;
void xl_meet_free(xl_meet *m);
/* Device `me` comes to `step` with in and out (borrowed until the last barrier of the step); returns when all n members have. Their in and
 * out can then be read with xl_meet_in and xl_meet_out. */
xl_error *xl_meet_barrier(xl_meet *m, uint32_t me, const uint32_t *member, uint32_t n, const xl_step *step, void *const *in, void *const *out) XL_MUST_USE;
void *const *xl_meet_in(const xl_meet *m, uint32_t device);
void *const *xl_meet_out(const xl_meet *m, uint32_t device);
/* Device `me` runs no more: err NULL when it came to the end of its program, else why it stopped (borrowed). Once one has
 * failed, this returns when all have left: until then others may be reading the buffers of this one. */
void xl_meet_leave(xl_meet *m, uint32_t me, const xl_error *err);
void xl_meet_absent(xl_meet *m, uint32_t device, const xl_error *err); /* it never started: fails the others */
/* Bytes that went into collectives of this execution, all devices together, counted as the bytes of the results (of the operands for a
 * reduce_scatter). */
void xl_meet_count(xl_meet *m, uint64_t bytes);
uint64_t xl_meet_bytes(const xl_meet *m);

#endif
