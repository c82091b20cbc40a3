/* src/lane/matrix.h
 * The compatibility matrix: known breakages (matrix.def), each with a check that runs on the present lane. Checks that
 * open the plugin run in a child process. Every check ends with a state and a sentence; `unknown` always says what is
 * missing.
 * Call this while no other thread of ours runs (it forks). */
#ifndef XL_LANE_MATRIX_H
#define XL_LANE_MATRIX_H

#include "base/json.h"
#include "base/str.h"

typedef enum { XL_MATRIX_CLEAR, XL_MATRIX_ABSENT, XL_MATRIX_HIT, XL_MATRIX_UNKNOWN } xl_matrix_state;
const char *xl_matrix_word(xl_matrix_state s);   /* "clear", "not here", "affected", "unknown" */

/* The text of an unknown row whose check reads a recorded run, if none was named. */
#define XL_MATRIX_NO_RUN "it shows in a recorded run, and none was named: `xlane matrix check RUN`"

typedef struct {
    const char *name, *class, *surface, *symptom, *remedy, *how, *seen, *source;
    xl_matrix_state state;
    xl_str text;
} xl_matrix_row;

typedef struct {
    const char *plugin, *cache, *run;
} xl_matrix_wish; /* each may be NULL: the plugin that would be used; no cache; no run */

/* The rows; with `check`, their states too, and after them the regressions that `xlane upgrade` found of this plugin.
 * */
xl_error *xl_matrix(xl_arena *a, const xl_matrix_wish *w, bool check, xl_matrix_row **out, size_t *n) XL_MUST_USE;

#endif
