/* src/lane/job.h
 * The processes of a job that a launcher started: which of them this one is, their shared run folder, and a key-value
 * store in that folder through which they find each other. A key is a file, created once and whole; the file system
 * only has to be shared. Any thread; open and close are for one thread. */
#ifndef XL_LANE_JOB_H
#define XL_LANE_JOB_H

#include "pjrt/client.h"

/* What all processes of the job and no other job have in common (XLANE_JOB, or the launcher's own id), fit for a file
 * name; "" where nothing says so. */
const char *xl_job_name(xl_arena *a);
/* One run folder for all processes of the job: whoever is first makes it and leaves a link *link under the job's name
 * in `runs`; the others follow the link. Whoever leads removes the link at the end. */
xl_error *xl_job_folder(xl_arena *a, const char *runs, const char *name, const char *job, char **dir,
                        char **link) XL_MUST_USE;

typedef struct xl_job xl_job;
/* Joins the job in the run folder `dir`, as its variables say (base/ranks.h). *out is NULL for a process by itself. */
xl_error *xl_job_open(const char *dir, xl_job **out) XL_MUST_USE;
int64_t xl_job_ranks(const xl_job *j); /* 1 for NULL */
int64_t xl_job_me(const xl_job *j);    /* 0 for NULL: the one that leads */
/* EXISTS where the key has a value already. */
xl_error *xl_job_put(xl_job *j, const char *key, xl_str value) XL_MUST_USE;
/* Waits for it: DEADLINE after that many seconds, CANCELLED after xl_job_cancel. */
xl_error *xl_job_get(xl_job *j, const char *key, double seconds, xl_buf *value) XL_MUST_USE;
bool xl_job_has(xl_job *j, const char *key);
void xl_job_cancel(xl_job *j);     /* nobody waits for a key any more */
const xl_kv *xl_job_kv(xl_job *j); /* for a client; valid until close */
/* `whole`: all went well; then the leader waits a moment for the others and removes the store. NULL is fine. */
void xl_job_close(xl_job *j, bool whole);
/* Removes the stores that jobs have left in a run folder: for a launcher whose processes have ended. */
void xl_job_sweep(const char *dir);

#endif
