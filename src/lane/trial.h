/* src/lane/trial.h
 * Runs a program on random arguments: its time, its outputs, and how two such outputs differ. The arguments depend only
 * on the seed and the types, so that two plugins in two processes get the same. */
#ifndef XL_LANE_TRIAL_H
#define XL_LANE_TRIAL_H

#include "ir/ir.h"
#include "pjrt/program.h"

/* The element type and the bytes of argument i; an error where it has no fixed shape. */
xl_error *xl_trial_type(const xl_type *t, uint32_t i, xl_elem *elem, size_t *bytes) XL_MUST_USE;
/* Floating point between -1 and 1; integers 0 to 7, so that they serve as indices too; i1 either. `value` (may be NULL)
 * is what every element gets instead. */
void xl_trial_fill(const xl_type *t, const double *value, uint64_t *state, void *p, size_t bytes);

/* Runs `prog`, of one device, until `budget_s` are over, at least twice and at most fifty times; *best is the quickest.
 * The outputs of the last run go to the file `path`. */
xl_error *xl_trial_run(xl_client *c, const xl_program *prog, const xl_func *f, uint64_t seed, double budget_s,
                       const char *path, double *best) XL_MUST_USE;

typedef struct {
    size_t outputs, elements, differ; /* elements whose bits differ */
    size_t at;                        /* the output that differs most */
    double relative;                  /* there: largest difference over the largest magnitude; infinity: NaN or shape */
    double allowed;                   /* there: what rounding may do to its element type */
} xl_trial_difference;
/* Compares what two trials wrote. */
xl_error *xl_trial_compare(const char *path, const char *other, xl_trial_difference *out) XL_MUST_USE;

#endif
