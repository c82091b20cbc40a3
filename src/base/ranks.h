/* src/base/ranks.h
 * The number of processes that a launcher has started, from its environment variables: mpirun, srun, torchrun, Cloud
 * TPU, or `xlane run -n`. */
#ifndef XL_BASE_RANKS_H
#define XL_BASE_RANKS_H

#include "base/str.h"

typedef struct {
    int64_t n, me; /* processes, and the index of this one; 1 and 0 if unknown */
    const char *variable;                                  /* the variable that gives n, or NULL */
    const char *launcher;
} xl_ranks;

xl_ranks xl_ranks_seen(void);
/* An error if a launcher started several processes and this one, which knows of `have`, would run on its own. With
 * XLANE_ALONE=1 that is intended. `remedy` is the next step in the message. */
xl_error *xl_ranks_alone(int64_t have, const char *remedy) XL_MUST_USE;

#endif
