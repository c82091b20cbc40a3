/* src/train/stop.h
 * Stops the ranks of a training run together. A rank that is asked to stop tells the others through the job's store,
 * and all stop after the same step: the last that any of them had begun. Each rank answers on a thread of its own,
 * since its main thread may be waiting for a device that waits for the others. One thread calls these. */
#ifndef XL_TRAIN_STOP_H
#define XL_TRAIN_STOP_H

#include <signal.h>

#include "lane/job.h"

typedef struct xl_stop xl_stop;
/* `asked` is the signal that this rank was sent, 0: none. `step` is done. */
xl_error *xl_stop_open(xl_job *job, const volatile sig_atomic_t *asked, int64_t step, xl_stop **out) XL_MUST_USE;
/* Whether `step` may begin. Waits while the ranks agree. */
bool xl_stop_begin(xl_stop *s, int64_t step);
int xl_stop_signal(const xl_stop *s); /* the signal that ended the run, on any rank; 0: none */
void xl_stop_close(xl_stop *s);       /* no further step begins here; NULL is fine */

#endif
