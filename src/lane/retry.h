/* src/lane/retry.h
 * Decides whether a retry can help. Texts of failures are classified by a table (retry.def): the runtime's code, XLA's
 * E-codes, the message. If one text has several causes, the root cause counts: a coordination error hides what made
 * another rank fail.
 * Only startup and the first compile window are ever retried; later failures are final. Any thread. */
#ifndef XL_LANE_RETRY_H
#define XL_LANE_RETRY_H

#include "base/json.h"
#include "base/str.h"

typedef enum { XL_RETRY_HERE, XL_RETRY_SMALLER, XL_RETRY_ELSEWHERE, XL_RETRY_FIX, XL_RETRY_NEVER } xl_retry;
typedef enum {
    XL_AT_HOST,
    XL_AT_STARTUP,
    XL_AT_DEVICE,
    XL_AT_GRAPH,
    XL_AT_CACHE,
    XL_AT_UNKNOWN
} xl_boundary;                                                             /* which layer to look at (B4) */
typedef enum { XL_PHASE_STARTUP, XL_PHASE_WINDOW, XL_PHASE_RUN } xl_phase; /* WINDOW: the first compiles */

const char *xl_retry_word(xl_retry r);          /* "smaller" */
const char *xl_boundary_word(xl_boundary b);    /* "device" */
const char *xl_phase_word(xl_phase p);          /* "compile window" */

typedef struct {
    const char *cause;       /* "compile_hbm"; "unknown" */
    const char *text;        /* what it is, and the next step */
    xl_retry verdict;
    xl_boundary boundary;
    int code;                /* PJRT's, 0 where the text has none */
    char ecode[8];           /* "E1000"; empty */
    const char *masked_by;   /* a coordination error that stood over the cause; NULL */
    bool again;              /* a retry is allowed: the phase is early enough, and the verdict is HERE or SMALLER */
} xl_failure;

/* `code` 0: taken from the text. */
xl_failure xl_retry_classify(int code, xl_str text, xl_phase phase);
xl_failure xl_retry_signal(int sig);                     /* of a process that a signal ended; never retried by itself */
void xl_failure_json(xl_json *j, const xl_failure *f);   /* members of an open map */

/* How far a recorded run came: the events of its folder. Also the texts of its failures, one a line, into `texts`. */
xl_phase xl_run_phase(xl_arena *a, const char *dir, xl_buf *texts);
enum { XL_WINDOW_STEPS = 2 };                    /* the compile window ends once the step module has run this often */

#endif
