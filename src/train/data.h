/* src/train/data.h
 * Token batches, a function of the seed and the position alone. Formats:
 *   bytes     any file; a token is a byte
 *   lines     a text file; each line is a document
 *   nanogpt   16-bit tokens and nothing else (train.bin)
 *   llmc      the same behind a header of 256 numbers (magic 20240520)
 * Documents (lines, or sequences that the token `end` ends) are padded into the smallest bucket that holds them, or
 * packed into rows, with segments that say which tokens belong together; 0 is padding. Everything else is a stream, cut
 * into windows that are shuffled anew each epoch.
 * A batch is a function of the seed and its number, so a checkpoint saves only the number. A thread reads a few batches
 * ahead. */
#ifndef XL_TRAIN_DATA_H
#define XL_TRAIN_DATA_H

#include "train/config.h"

typedef struct {
    int bucket;
    int64_t batch, time;
    int32_t *tokens, *targets, *segments, *positions;    /* batch * time each */
    int64_t ntoken;                                      /* that count in the loss */
} xl_batch;

typedef struct xl_data xl_data;
/* The part of the data to train on, or to evaluate on. */
xl_error *xl_data_open(const xl_config *c, bool valid, xl_data **out) XL_MUST_USE;
void xl_data_close(xl_data *d);
/* Starts the thread; the next batch is number `at`. */
xl_error *xl_data_start(xl_data *d, int64_t at) XL_MUST_USE;
/* The next batch; borrowed until the next call. */
xl_error *xl_data_next(xl_data *d, const xl_batch **out) XL_MUST_USE;
int xl_data_buckets(const xl_data *d, const int64_t **times);
const char *xl_data_about(const xl_data *d);             /* "1.1 MB of bytes, 8193 windows", for people */
int64_t xl_data_units(const xl_data *d);                 /* number of windows or documents */
const char *xl_data_units_word(const xl_data *d);        /* "windows" */
/* Identifies the file, for comparison when a run is resumed: "size N, sample DIGEST; modified TIME". The sample is
 * taken from all parts of the file. */
xl_str xl_data_identity(xl_arena *a, const xl_data *d);
int64_t xl_data_cut(const xl_data *d);                   /* documents that were longer than the largest bucket */

#endif
