/* src/lane/memory_csv.h
 * memory.csv of a run folder: the memory in use on each physical device, one line per sample. The guard and the
 * training loop write it; readers find columns by the names in its first line, so files of other versions can be read
 * as well. */
#ifndef XL_LANE_MEMORY_CSV_H
#define XL_LANE_MEMORY_CSV_H

#include "base/arena.h"
#include "base/error.h"
#include "base/journal.h"
#include "base/str.h"

/* Figures of a sample in bytes; -1 where the plugin gives none. */
typedef struct {
    double t;                                              /* seconds since the run began */
    xl_str rank, device;                                   /* as they are written */
    int64_t step, in_use, peak, limit, largest, since;     /* since: the peak since the line before */
} xl_memory_row;

/* Opens the file in the folder `dir` for adding; `shared` as in xl_journal_open. */
xl_error *xl_memory_csv_create(xl_journal *j, const char *dir, bool shared) XL_MUST_USE;
/* Adds a line; rank and device are the numbers given, not those of `r`. */
void xl_memory_csv_put(xl_buf *b, int rank, int pid, int64_t device, const xl_memory_row *r);

enum { XL_MEMORY_CSV_COLUMNS_MAX = 16 };
typedef struct { xl_str text; int8_t column[XL_MEMORY_CSV_COLUMNS_MAX]; } xl_memory_csv;
/* Reads the file whole into the arena. One that is not there, or is too large, has no rows. */
xl_memory_csv xl_memory_csv_open(xl_arena *a, const char *dir);
/* The next sample; lines without a time or the bytes in use are passed over. */
bool xl_memory_csv_next(xl_memory_csv *c, xl_memory_row *r);

#endif
