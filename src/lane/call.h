/* src/lane/call.h
 * What a frontend tells of the call that a program is compiled for, and how two calls differ. A call is lines of
 * NAME<tab>KIND<tab>VALUE, as guard/preload_function.h writes them: `cleared` (how often JAX's caches were emptied),
 * `made` (how often its function was made anew), `form` (positional arguments, keywords), static arguments (`value`,
 * `object` with its hash, `anew` where objects compare by identity, `parts` where what they consist of does), static
 * fields of the others (`field`, `field-object`), the structure of the others (`tree`, named `passed x`), Python values
 * among the arguments of equinox.filter_jit (`Python float`), the names of arguments that a wrapper passes on under its
 * own (`leaves`: its name of a list, the number of the first, how many, and the path of each or `.`, where the paths
 * are known), those of a weak type (`weak`, named `weak x`; a row `weak types` says that they are known), Python values
 * of the function's surroundings (`taken`), and the sizes of lists and arrays there (`held`). Texts are in the arena.
 * */
#ifndef XL_LANE_CALL_H
#define XL_LANE_CALL_H

#include "base/str.h"

/* Why the same program was asked for again, as a word of cause.def, or NULL: nothing here tells. *how continues the
 * sentence "the same program, traced again". */
const char *xl_call_way(xl_arena *a, xl_str before, xl_str after, xl_str *how);
/* Whether arguments were passed by keyword in one and by position in the other. */
bool xl_call_form(xl_arena *a, xl_str before, xl_str after, xl_str *how);
/* Whether both calls passed arguments of the same structure; false where that is not known. */
bool xl_call_alike(xl_str before, xl_str after);
/* "static argument `lr` changed from 0.1 to 0.05; ...", at most three; or empty. */
xl_str xl_call_values(xl_arena *a, xl_str before, xl_str after);
/* The one value that changed from the number x to y, as "static argument `lr`" or "`cfg['lr']`"; else empty. */
xl_str xl_call_value(xl_arena *a, xl_str before, xl_str after, xl_str x, xl_str y);
/* A list or array of the function's surroundings that has another size, where no other value changed but with it: what,
 * as "the length of `replay` (a list)", and its sizes; false: there is none. */
bool xl_call_held(xl_arena *a, xl_str before, xl_str after, xl_str *what, xl_str *from, xl_str *to);

/* The only array of the function's surroundings of that shape ("64x16") in both calls, by its name; else empty. */
xl_str xl_call_array(xl_str before, xl_str after, xl_str shape);
/* Whether the function is another one, of the same code: made anew since then. */
bool xl_call_remade(xl_str before, xl_str after);

/* An argument that the program calls `label`, as the user calls it: "model.weight", or "argument 2 of step()"; `label`
 * itself where no wrapper gave it. */
xl_str xl_call_name(xl_arena *a, xl_str call, xl_str label);
xl_str xl_call_names(xl_arena *a, xl_str call);            /* the rows that that needs, for another process */

/* Whether the types of the argument of that name were weak in each call; false: not known. *kind: "a Python number" or
 * "a weakly typed array" where it was, empty: not known which. */
bool xl_call_weak(xl_arena *a, xl_str before, xl_str after, xl_str name, bool *was, bool *is, xl_str *kind);

#endif
