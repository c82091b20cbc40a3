/* lane/gaps.h
 * What the record of a run lacks: lines of events.jsonl that are damaged or were cut off, counters and an end that
 * could not be read or written. */
#ifndef XL_LANE_GAPS_H
#define XL_LANE_GAPS_H

#include "base/arena.h"
#include "base/str.h"

typedef struct {
    bool compiles;                                         /* some may be missing among the events */
    bool left;                                             /* every guarded process came to its own end, and said so */
    bool counters;                                         /* those at the end of one could not be written */
    uint64_t executes, processes;                          /* of all guarded processes, as far as that is known */
    xl_str text;                                           /* what is missing, a sentence; empty: nothing */
} xl_run_gaps;

xl_run_gaps xl_run_gaps_of(xl_arena *a, const char *dir);

bool xl_run_full(const char *dir);                          /* the disk that the folder is on has no room left now */

#endif
