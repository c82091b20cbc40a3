/* src/base/ranks.h
 * How many processes a launcher has started, as its variables say: mpirun, srun, torchrun, Cloud TPU, or `xlane run
 * -n`. */
#ifndef XL_BASE_RANKS_H
#define XL_BASE_RANKS_H

#include "base/str.h"

typedef struct {
    int64_t n, me; /* processes, and which is this one; 1 and 0 when nobody says */
    const char *variable;                                  /* the one that says how many, or NULL */
    const char *launcher;
} xl_ranks;

xl_ranks xl_ranks_seen(void);
/* An error when a launcher started several processes and this one, which was told of `have`, would be alone among them.
 * XLANE_ALONE=1 says that this is meant. `remedy` says what to do. */
xl_error *xl_ranks_alone(int64_t have, const char *remedy) XL_MUST_USE;

#endif
