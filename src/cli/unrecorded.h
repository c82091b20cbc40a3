/* cli/unrecorded.h
 * Why a run has no compiles and no counters: for the commands that would tell of them. */
#ifndef XL_CLI_UNRECORDED_H
#define XL_CLI_UNRECORDED_H

#include "base/arena.h"
#include "base/str.h"

/* "its command ended with exit status 1 before it had loaded a PJRT plugin; ...": the reason, and what to do. For a run
 * of which no process is known to have loaded a plugin under the guard. */
xl_str xl_why_unrecorded(xl_arena *a, const char *dir);

#endif
