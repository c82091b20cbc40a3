/* src/train/ckpt.h
 * Checkpoints of a trainer: parameters under their names, moments as "adamw.m.NAME" and "adamw.v.NAME", the counters,
 * and the progress of the run in the metadata. Saving waits for the device and copies to the host; a thread writes the
 * file. The ranks of a job write one checkpoint together, each its own slices; any number of ranks can load it. */
#ifndef XL_TRAIN_CKPT_H
#define XL_TRAIN_CKPT_H

#include "train/trainer.h"

typedef struct { int64_t batches; uint64_t seed; } xl_progress;  /* of the data: number of batches used */

/* The name of state tensor i (of 3n + 1) in a checkpoint. */
xl_str xl_state_name(xl_arena *a, const xl_trainer *t, uint32_t i);
/* Gives a name to a tensor set of the trainer: shared by save and load. */
xl_error *xl_ckpt_save(xl_trainer *t, const char *path, const xl_progress *where) XL_MUST_USE;
/* Loads into the live buffers, one after the other, each new one in place of the old. If a tensor is missing or has
 * another shape, the error names it and nothing is changed. After a file that could not be read completely, the trainer
 * refuses to continue until a load succeeds. `path` is a file, or the folder of a checkpoint of several ranks. where
 * may be NULL. */
xl_error *xl_ckpt_load(xl_trainer *t, const char *path, xl_progress *where) XL_MUST_USE;

/* Saves in the background, one at a time. A checkpoint `step-N.safetensors` is written beside, synced and renamed, then
 * committed by a marker `step-N.ok` with its size and the digest of its header. Checkpoints older than the
 * newest `keep` intact ones are removed; intact means read again and compared with its digests, so a damaged one never
 * replaces a good one. Opening removes left-over temporary files: no other process or job may use the folder.
 * `last`: the step of the newest intact one in the folder; -1: none.
 * The ranks of a job (`job`, or NULL) make the same calls in the same order. Their checkpoint is a folder `step-N` with
 * a file per rank, R-of-M.safetensors, and index.json with the size and header digest of each; it is called step-N.tmp
 * until all files are synced. An error of one rank is returned on all. */
typedef struct xl_saver xl_saver;
xl_error *xl_saver_open(const char *dir, int64_t keep, int64_t last, xl_job *job, xl_saver **out) XL_MUST_USE;
/* Waits for the previous save and returns its error, if any; training may continue. */
xl_error *xl_saver_save(xl_saver *s, xl_trainer *t, int64_t step, const xl_progress *where) XL_MUST_USE;
/* Instead of xl_saver_save, by a rank that cannot save now, so that the others do not wait for it. */
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
    const char *bad;                                          /* NULL: intact; else what is wrong */
} xl_ckpt_info;
/* All checkpoints of a folder, the oldest first, each read in full. A marker without its file counts as missing. */
xl_error *xl_ckpt_list(xl_arena *a, const char *dir, xl_ckpt_info **out, size_t *n) XL_MUST_USE;
/* The newest intact checkpoint of the run in `dir`; NULL if it never saved one. Newer damaged ones are logged, and
 * listed in `passed` (may be NULL), a line each. If the run has or had some and none is intact: DATA_LOSS, which
 * names them. */
xl_error *xl_ckpt_newest(xl_arena *a, const char *dir, char **path, int64_t *step, xl_buf *passed) XL_MUST_USE;
/* That error with what to do in a line of its own; others as they are. */
xl_error *xl_ckpt_lost(xl_arena *a, const char *dir, xl_error *err) XL_MUST_USE;
/* For a command that cannot do without: none is an error too, and each ends with xl_ckpt_remedy. */
xl_error *xl_ckpt_needed(xl_arena *a, const char *dir, char **path, int64_t *step) XL_MUST_USE;
const char *xl_ckpt_folder(xl_arena *a, const char *dir);     /* of the run in `dir` */
/* What to do with a run that has lost its checkpoints (`lost`), or has not saved one yet. */
const char *xl_ckpt_remedy(xl_arena *a, const char *dir, bool lost);

#endif
