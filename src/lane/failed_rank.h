/* lane/failed_rank.h
 * Which rank of a job failed first, as the launcher of `xlane run -n` recorded it, and the exception that ended a
 * program. */
#ifndef XL_LANE_FAILED_RANK_H
#define XL_LANE_FAILED_RANK_H

#include "base/node.h"

/* "rank 1 of 3 failed first: it exited with 7", with the words of its program where the guard has them; of the last
 * attempt. Empty: no rank failed, or the ranks were started by somebody else. The events are in time order. */
xl_str xl_failed_rank(xl_arena *a, xl_node *const *event, size_t n);

/* What is known of how a run failed, a sentence without an end, or empty: of its ranks as above; else the exception
 * that ended its program or a process of it, "its program failed with KeyError: 'x' at train.py:7"; of the last
 * attempt. */
xl_str xl_failed_words(xl_arena *a, xl_node *const *event, size_t n);

#endif
