/* src/cpu/meet/far.h
 * A meeting (cpu/meet/meeting.h) whose group has members in other processes. Runs in the fiber of the last member to
 * arrive in this process. */
#ifndef XL_CPU_FAR_H
#define XL_CPU_FAR_H

#include "cpu/meet/members.h"

/* What the meeting lends: how its fiber waits, and what it knows of the execution. */
typedef struct {
    xl_meet *m;
    uint32_t me;                                           /* the device whose fiber this is */
    void (*park)(xl_meet *m, uint32_t me, bool (*ready)(void *ctx), void *ctx); /* until it is ready, or all failed */
    xl_error *(*stopped)(const xl_meet *m);                /* NULL while nothing has failed */
    const xl_meet_far *far;
    uint32_t run;                                          /* of its devices, the same count in every process */
    double entered;                                        /* when this process began the execution */
    bool first;                                            /* meeting of it with other processes */
} xl_far_host;

/* in and out have the entries of this process's members; entries for operands of other processes are filled in. */
xl_error *xl_far_meet(const xl_far_host *host, const uint32_t *member, const xl_step *step, xl_frame *f,
                      void *const **in, xl_group_view *g, xl_meet_fn *fn) XL_MUST_USE;
/* Tells the other processes of an execution why this one has stopped. */
void xl_far_stop(const xl_meet_far *far, uint32_t ndevice, uint32_t run, const char *why);

#endif
