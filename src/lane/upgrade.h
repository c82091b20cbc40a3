/* src/lane/upgrade.h
 * Compares two versions of a plugin on the same programs: what changed, worst first, and which changes are regressions.
 * Each program was compiled by both (lane/rehearse.h), and run by both if the device is present. Results are stored as
 * lines of JSON with the run and in the state folder, where `matrix` finds them. Everything belongs to the arena. */
#ifndef XL_LANE_UPGRADE_H
#define XL_LANE_UPGRADE_H

#include "lane/rehearse.h"
#include "lane/stack.h"
#include "lane/trial.h"

/* What can move: its tolerance, which is how much worse it may get, as a share, and for what is measured the seconds
 * below which a difference is noise. Of what is measured, the tolerance is noise too. Of outputs it is the largest
 * difference over the largest magnitude; 0: what rounding may do. */
#define XL_MOVES(KIND)                                                                                                 \
    KIND(COMPILE, "compile", 0, 0)                                                                                     \
    KIND(OUTPUTS, "outputs", 0, 0)                                                                                     \
    KIND(MEMORY, "memory", 0.1, 0)                                                                                     \
    KIND(FLOPS, "flops", 0.1, 0)                                                                                       \
    KIND(BYTES, "bytes", 0.1, 0)                                                                                       \
    KIND(COLLECTIVES, "collectives", 0.1, 0)                                                                           \
    KIND(CODE, "code", 0.1, 0)                                                                                         \
    KIND(CPU, "cpu", 0.5, 0.5)                                                                                         \
    KIND(TIME, "time", 0.25, 1e-3)
typedef enum {
#define KIND(name, word, tolerance, measured) XL_MOVE_##name,
    XL_MOVES(KIND)
#undef KIND
        XL_MOVE_COUNT
} xl_move_kind;
const char *xl_move_word(xl_move_kind k); /* "memory" */

typedef struct {
    double part[XL_MOVE_COUNT];
} xl_tolerance;
xl_tolerance xl_tolerance_default(void);
/* "10%" or "0.1" for all figures that are not measured, or "memory=5%,code=50%" for some. */
xl_error *xl_tolerance_parse(const char *text, xl_tolerance *t) XL_MUST_USE;

typedef struct {
    xl_str name;
    xl_rehearsal from, to;
    bool noise[2]; /* CPU, TIME: another measurement did not confirm the difference */
    bool compared; /* both ran, and `outputs` says how their results differ */
    xl_trial_difference outputs;
} xl_upgrade_program;

typedef struct {
    size_t program;
    xl_move_kind kind;
    xl_str what;     /* "temporary memory" */
    double from, to; /* -1: that side does not say */
    xl_str text;     /* a line: "12.00 MiB -> 24.00 MiB, +100 %" */
    bool worse, regression;
    bool minor; /* under 1 % of what the largest program has of it */
} xl_move;

typedef struct {
    xl_stack from, to;
    const char *topology; /* NULL: the devices that are here */
    xl_tolerance tolerance;
    xl_upgrade_program *program;
    size_t nprogram;
    xl_move *move; /* worst first */
    size_t nmove, regressions;
} xl_upgrade;

/* Compiles l's program on one side and, where `outputs` is a path, runs it there. */
xl_error *xl_upgrade_side(xl_arena *a, const xl_rehearse_opts *o, xl_rehearsal *r) XL_MUST_USE;
/* Do the measured figures of a program differ by more than noise, so that they should be measured again? */
bool xl_upgrade_noisy(const xl_upgrade *u, const xl_upgrade_program *p);
/* Another measurement: the better times are kept, and a difference that it does not show is noise. */
void xl_upgrade_again(const xl_upgrade *u, xl_upgrade_program *p, const xl_rehearsal *from, const xl_rehearsal *to);
/* Fills in move, nmove and regressions. */
void xl_upgrade_compare(xl_arena *a, xl_upgrade *u);
void xl_upgrade_json(xl_json *j, const xl_upgrade *u);

/* Adds it to DIR/upgrades.jsonl; NULL dir: of the folder for state. */
xl_error *xl_upgrade_save(const char *dir, const xl_upgrade *u) XL_MUST_USE;
/* What such a file says, the newest of each pair of plugins, topology and set of programs: maps as xl_upgrade_json
 * writes them. No file: none. */
xl_error *xl_upgrade_load(xl_arena *a, const char *dir, xl_node ***out, size_t *n) XL_MUST_USE;

#endif
