/* src/lane/walk.h
 * Executes a program op by op and records where every value came from. Each op is compiled as a program of its own
 * (once, however often a loop executes it) and executed on the embedded device or any other plugin, on all devices of
 * the program at once. Loops and branches are executed whole, and stepped through only if a result in question came out
 * of them. Calls must be inlined; xl_walk_ready does that and partitions a program for several devices.
 * Everything belongs to the walk until xl_walk_close. One thread. */
#ifndef XL_LANE_WALK_H
#define XL_LANE_WALK_H

#include "ir/ir.h"
#include "lane/play.h"

typedef struct xl_walk_value xl_walk_value;
struct xl_walk_value {
    uint32_t ref, live;                                    /* live: uses of the bytes */
    int64_t by;                                            /* the step that made it; -1 - k: argument k */
    uint32_t out;                                          /* which of its results */
    xl_cap_part *part;                                     /* per device; bytes NULL once it is not needed any more */
    xl_finite *stat;                                       /* per device */
};

typedef struct {
    const xl_op *op;
    int64_t within;                                        /* the step of the loop or branch around it; -1: none */
    int64_t turn;                                          /* of that loop, from 0 */
    uint32_t nin, nout;
    xl_walk_value **in;                                    /* operands, then what its regions use from outside */
    xl_walk_value **out;                                   /* kept where something in them is not finite */
} xl_walk_step;

typedef struct xl_walk xl_walk;
/* Another device on which every op is executed too, with the same operands; the first result that differs by more than
 * `tolerance` times the largest element of the result ends the walk. */
typedef struct { const xl_play *play; double tolerance; } xl_walk_rival;
typedef struct {
    bool found;
    int64_t step;
    uint32_t out, device;
    xl_difference d;
    xl_cap_part mine, theirs;
    char *refused;                                         /* the other device's error, where that is what differs */
} xl_walk_apart;

/* The module that is walked: entry function alone, on the shapes of one device. Frees and replaces *m. */
xl_error *xl_walk_ready(const xl_play *p, xl_arena *a, xl_str options, xl_module **m) XL_MUST_USE;
/* `other` (may be NULL) executes ops that p cannot. in: [ndevice][narg]. */
xl_error *xl_walk_open(xl_arena *a, const xl_play *p, const xl_play *other, xl_module *m, uint32_t ndevice,
                       const xl_cap_part *in, xl_walk **out) XL_MUST_USE;
/* look: what makes it look into a loop or branch: NaN, or anything that is not finite. */
typedef enum { XL_WALK_NAN, XL_WALK_NONFINITE, XL_WALK_ALL } xl_walk_look;
xl_error *xl_walk_run(xl_walk *w, xl_walk_look look, const xl_walk_rival *rival, xl_walk_apart *apart) XL_MUST_USE;
void xl_walk_close(xl_walk *w);

const xl_func *xl_walk_func(const xl_walk *w);
const xl_walk_step *xl_walk_steps(const xl_walk *w, size_t *n);
xl_walk_value *const *xl_walk_results(const xl_walk *w, size_t *n);
size_t xl_walk_elsewhere(const xl_walk *w, xl_str *first); /* ops that `other` executed, and the first one's name */
bool xl_walk_fixed(const xl_walk *w, const xl_walk_value *v); /* is it made of constants alone? */

/* Where a NaN (or, nonfinite, a NaN or Inf) was made that element `elem` of `v` on `device` has: ops are executed again
 * with the NaNs of their operands replaced by one, to see which of them the result's came from. */
typedef struct {
    int64_t step;                                          /* -1: it came in */
    uint32_t argument;                                     /* then with this one, */
    uint32_t out, device;                                  /* else as this result */
    uint64_t elem;
    int64_t constant;                                      /* >= 0: it is this constant, which `step` lets in */
    int64_t *path;                                         /* steps from there to v, npath of them */
    size_t npath;
    bool exact;                                            /* false: operands were not kept, the nearest op is named */
} xl_walk_origin;
/* The first step from which a NaN (or, nonfinite, a NaN or Inf) may have come into `v`: of all ways back along operands
 * that have one, the longest. -1: one came in with an argument. */
int64_t xl_walk_earliest(xl_walk *w, const xl_walk_value *v, bool nonfinite);
xl_error *xl_walk_trace(xl_walk *w, const xl_walk_value *v, uint32_t device, uint64_t elem, bool nonfinite,
                        xl_walk_origin *out) XL_MUST_USE;

#endif
