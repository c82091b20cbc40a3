/* src/cpu/meet/members.h
 * What the function of a collective sees of the meeting that calls it (cpu/meet/meeting.h): the members of the group,
 * what each brought, and, where some belong to other processes (cpu/meet/far.c), the way to those. */
#ifndef XL_CPU_MEMBERS_H
#define XL_CPU_MEMBERS_H

#include "cpu/plan/plan.h"
#include "cpu/run/mail.h"

/* The members of a meeting in the order of their group, and what each brought: in[k] and out[k] are member k's operands
 * and results; out[k] is NULL where that is another process's. `parts` processes have members, `part` is this one's
 * place among them (1 and 0 where there is no other). */
typedef struct {
    uint32_t n;
    xl_pool *pool;
    void *const *const *in, *const *const *out;
    uint32_t part, parts;
    struct xl_far_meeting *far;
} xl_group_view;
typedef xl_error *xl_meet_fn(const xl_step *s, xl_frame *f, const xl_group_view *g);

/* Where the devices of an execution are, when other processes have some of them. Borrowed. */
typedef struct {
    xl_mail *mail;
    const uint32_t *process;                               /* of each device */
    uint64_t devices;                                      /* a hash of which they are, the same in every process */
    const char *program;
} xl_meet_far;

/* Called inside fn if g->parts > 1: returns space for the data to send to every other process of the meeting (NULL:
 * no memory); then the exchange: theirs[q] has bytes_of[q] bytes from process q and is valid until fn returns. */
void *xl_meet_room(const xl_group_view *g, size_t bytes);
xl_error *xl_meet_exchange(const xl_group_view *g, const void **theirs, const size_t *bytes_of) XL_MUST_USE;
/* Elements [*from, *to) of `count` are what process `part` of `parts` folds of a large all_reduce; it is sent no
 * others. */
void xl_meet_slice(size_t count, uint32_t part, uint32_t parts, size_t *from, size_t *to);
bool xl_meet_sliced(const xl_step *s, uint32_t parts);     /* whether a step is done so */
/* Writes the step's name and operands, for messages. */
void xl_meet_where(const xl_step *s, char *text, size_t size);

#endif
