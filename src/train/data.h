/* src/train/data.h
 * Token batches, the same for the same seed and position whatever happened before. Formats:
 *   bytes     any file; a token is a byte
 *   lines     a text file; each line is a document
 *   nanogpt   16-bit tokens and nothing else (train.bin)
 *   llmc      the same behind a header of 256 numbers (magic 20240520)
 * Documents (lines, or what `end` ends) are padded into the smallest bucket that holds them, or packed into rows, with
 * segments that say which tokens belong together; 0 is padding. Everything else is a stream, cut into windows that are
 * shuffled anew each epoch.
 * A batch is a function of (seed, its number): the state of a checkpoint is that number. A thread reads ahead, a few
 * batches. */
#ifndef XL_TRAIN_DATA_H
#define XL_TRAIN_DATA_H

#include "train/config.h"

typedef struct {
    int bucket;
    int64_t batch, time;
    int32_t *tokens, *targets, *segments, *positions;    /* batch * time each */
    int64_t ntoken;                                      /* that count */
} xl_batch;

typedef struct xl_data xl_data;
/* The part of the data to train on, or to evaluate on. */
xl_error *xl_data_open(const xl_config *c, bool valid, xl_data **out) XL_MUST_USE;
void xl_data_close(xl_data *d);
/* From here on batches come from number `at` on; starts the thread. */
xl_error *xl_data_start(xl_data *d, int64_t at) XL_MUST_USE;
/* The next batch; borrowed until the call after. */
xl_error *xl_data_next(xl_data *d, const xl_batch **out) XL_MUST_USE;
int xl_data_buckets(const xl_data *d, const int64_t **times);
const char *xl_data_about(const xl_data *d);             /* "1.1 MB of bytes, 8193 windows", for people */
int64_t xl_data_units(const xl_data *d);                 /* how many windows or documents there are */
const char *xl_data_units_word(const xl_data *d);        /* "windows" */
/* Which file it is: "size N, sample DIGEST; modified TIME", with samples from all over it. What a resumed
 * run compares. */
xl_str xl_data_identity(xl_arena *a, const xl_data *d);
int64_t xl_data_cut(const xl_data *d);                   /* documents that were longer than the largest bucket */

#endif
