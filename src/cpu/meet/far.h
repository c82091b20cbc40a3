/* src/cpu/meet/far.h
 * A meeting (cpu/meet/meeting.h) whose group has members in other processes. Runs in the fiber of the last member to
 * arrive in this process. */
#ifndef XL_CPU_FAR_H
#define XL_CPU_FAR_H

#include "cpu/meet/meeting.h"

/* in and out have the entries of this process's members; those of the others' operands are filled in. */
xl_error *xl_far_meet(xl_meet *m, const xl_meet_far *far, uint32_t run, uint32_t me, const uint32_t *member,
                      const xl_step *step, xl_frame *f, void *const **in, xl_group_view *g, xl_meet_fn *fn) XL_MUST_USE;
/* Tells the other processes of an execution why this one has stopped. */
void xl_far_stop(const xl_meet_far *far, uint32_t ndevice, uint32_t run, const char *why);

/* The fiber of device `me` waits until ready(ctx) or the execution has failed. */
void xl_meet_park(xl_meet *m, uint32_t me, bool (*ready)(void *ctx), void *ctx);
double xl_meet_entered(xl_meet *m, bool *first); /* when the execution began; *first: asked for the first time */
xl_error *xl_meet_stopped(const xl_meet *m) XL_MUST_USE;
void xl_meet_where(const xl_step *s, char *text, size_t size);

#endif
