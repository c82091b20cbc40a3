/* src/train/ckpt.h
 * Checkpoints of a trainer: parameters under their names, moments as "adamw.m.NAME" and "adamw.v.NAME", the counters,
 * and in the metadata where the run stood. Taking one waits for the device and copies to the host; writing happens in a
 * thread. The ranks of a job write one together, each the slices that it holds; it is loaded by any number of ranks. */
#ifndef XL_TRAIN_CKPT_H
#define XL_TRAIN_CKPT_H

#include "train/trainer.h"

typedef struct { int64_t batches; uint64_t seed; } xl_progress;  /* of the data: how many batches were used */

/* The name of state tensor i (of 3n + 1) in a checkpoint. */
xl_str xl_state_name(xl_arena *a, const xl_trainer *t, uint32_t i);
/* Gives a name to a tensor set of the trainer: shared by save and load. */
xl_error *xl_ckpt_save(xl_trainer *t, const char *path, const xl_progress *where) XL_MUST_USE;
/* Into the live buffers, one after the other: each new one lies where the old one lay. A tensor that is missing or of
 * another shape is named, and nothing is changed; after a file that cannot be read to its end the trainer refuses to go
 * on until it is loaded again. `path` is a file, or the folder of a checkpoint of several ranks. where may be NULL. */
xl_error *xl_ckpt_load(xl_trainer *t, const char *path, xl_progress *where) XL_MUST_USE;

/* Saves in the background, one at a time. A checkpoint `step-N.safetensors` is written beside, synced and renamed, then
 * committed by a marker `step-N.ok` with its size and the digest of its header. What is older than the newest `keep`
 * that are whole goes; whole means read again and compared with its digests, so a damaged one is never kept in a good
 * one's place. Left-over temporary files go when it is opened: the folder must be this process's or this job's alone.
 * `last`: the step of the newest whole one that is there; -1: none.
 * The ranks of a job (`job`, or NULL) make the same calls in the same order. Theirs is a folder `step-N` with a file of
 * each rank, R-of-M.safetensors, and index.json with the size and header digest of each; it is step-N.tmp until all
 * files are synced. An error of one rank is that of all. */
typedef struct xl_saver xl_saver;
xl_error *xl_saver_open(const char *dir, int64_t keep, int64_t last, xl_job *job, xl_saver **out) XL_MUST_USE;
/* Waits for the one before. The error, if there is one, is that of the one before: training goes on without it. */
xl_error *xl_saver_save(xl_saver *s, xl_trainer *t, int64_t step, const xl_progress *where) XL_MUST_USE;
/* In place of xl_saver_save, by a rank that cannot now: the others do not wait for it. */
void xl_saver_refuse(xl_saver *s, const xl_error *why);
xl_error *xl_saver_wait(xl_saver *s) XL_MUST_USE;
xl_error *xl_saver_close(xl_saver *s) XL_MUST_USE;            /* waits */
int64_t xl_saver_last(xl_saver *s);                           /* the step of the last that was committed; -1: none */

typedef struct {
    int64_t step;
    char *path;
    uint64_t bytes;
    bool committed;                                           /* its marker is there */
    bool folder;                                              /* of several ranks */
    const char *bad;                                          /* NULL: whole; else what is wrong */
} xl_ckpt_info;
/* All of a folder, the oldest first, each read in full. A marker without its file is one that is missing. */
xl_error *xl_ckpt_list(xl_arena *a, const char *dir, xl_ckpt_info **out, size_t *n) XL_MUST_USE;
/* The newest that is whole; NULL if there never was one. Newer ones that are not are added to `passed` (may be NULL), a
 * line each.
 * Where there are some and none is whole: DATA_LOSS, which names them. */
xl_error *xl_ckpt_newest(xl_arena *a, const char *dir, char **path, int64_t *step, xl_buf *passed) XL_MUST_USE;

#endif
