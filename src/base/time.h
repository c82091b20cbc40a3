/* src/base/time.h: what time it is, and how long something took. */
#ifndef XL_BASE_TIME_H
#define XL_BASE_TIME_H

#include "base/str.h"

enum { XL_TIME_ISO = 32 };

double xl_now(void);        /* seconds from some moment, never backwards: for durations */
double xl_now_cpu(void);    /* CPU seconds of this process so far, all threads: says the same on a busy machine */
double xl_now_wall(void);   /* seconds since 1970 */
double xl_process_age(void); /* seconds since this process was started, to a hundredth; 0 where /proc does not say */
const char *xl_time_iso(double wall, char out[XL_TIME_ISO]);  /* 2026-01-31T12:00:00Z */
double xl_time_read(const char *iso);                         /* seconds since 1970; 0: not of that form */
const char *xl_time_name(double wall, char out[XL_TIME_ISO]); /* 20260131-120000: sorts, and is fit for a file name */
void xl_sleep(double seconds);

#endif
