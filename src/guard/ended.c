/* The end of a program, as preload_end.h tells of it: the exception that ended it, if one did. And of a rank's: JAX's
 * shutdown waits for all ranks. One that has failed would wait there for others that wait for it in a collective, and
 * nothing would end; so the process ends itself, with the status that it has failed with. One that ended well is only
 * said to wait: others may still be saving. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/secret.h"
#include "base/time.h"
#include "guard/guard.h"

static const double FAILED_WAITS = 5, OTHERS_WAIT = 10;    /* seconds in the shutdown: until the end, until a word */

enum { PROGRAM_ENDED, SHUTDOWN_BEGINS, SHUTDOWN_IS_THROUGH };

static struct {
    int process, of, status;
    bool over;                                             /* the program; else it has called the shutdown itself */
    char words[256];
} last;
static _Atomic int waiting;                                /* the number of the shutdown that is waited in; 0: none */
static _Atomic int shutdowns;

static void wait_for_others(void *arg)
{
    int mine = (int)(intptr_t)arg;
    bool failed = last.over && last.status;
    double end = xl_now() + (failed ? FAILED_WAITS : OTHERS_WAIT);
    while (xl_now() < end) {
        xl_sleep(0.05);
        if (waiting != mine)
            return;
    }
    if (!failed) {
        guard_say(last.over ? "process %d of %d has ended its program and has waited %.0f s in JAX's shutdown for the "
                              "others; if one of them waits for it in a collective, none ends: every process must run "
                              "the same steps"
                            : "process %d of %d has waited %.0f s in jax.distributed.shutdown() for the others: every "
                              "process must call it",
                  last.process, last.of, OTHERS_WAIT);
        return;
    }
    guard_say("process %d of %d has ended its program (%s) and has waited %.0f s in JAX's shutdown for the others: it "
              "ends now, with status %d",
              last.process, last.of, last.words, FAILED_WAITS, last.status);
    guard_end(guard_current());
    if (waiting == mine)
        _exit(last.status);
}

static void hide_secrets(const char *words)
{
    xl_arena a = { .limit = 1 << 16 };
    size_t n = 0;
    for (xl_str rest = xl_str_of(words); rest.n && n < sizeof last.words;) {
        xl_str word = xl_secret_hide(&a, xl_str_cut(&rest, ' '));
        n += (size_t)snprintf(last.words + n, sizeof last.words - n, "%s%.*s", n ? " " : "", XL_FMT(word));
    }
    last.words[n ? sizeof last.words - 1 : 0] = 0;
    xl_arena_fini(&a);
}

static void put_end(xl_run *r, int process, int status, const char *where)
{
    xl_event e;
    xl_event_begin(r, &e, "program_end");
    xl_json_put_int(&e.j, "process", process);
    xl_json_put_int(&e.j, "status", status);
    xl_json_put_text(&e.j, "text", last.words);
    if (*where)
        xl_json_put_text(&e.j, "where", where);
    xl_event_end(r, &e);
}

/* Of a program that is no rank. It may have failed before it loaded a plugin: then nothing else is started for it. */
static void put_end_alone(guard_state *g, int status, const char *where)
{
    const char *dir = getenv("XLANE_RUN");
    xl_run *opened = NULL;
    if (!g->run)
        xl_error_free(xl_run_open(dir && *dir ? dir : NULL, &opened));
    if (g->run || opened)
        put_end(g->run ? g->run : opened, 0, status, where);
    xl_run_close(opened);
}

/* stage: one of the three above; of: processes, 1 where they are no ranks. status, words, where (PATH:LINE): of an
 * exception that nobody caught; 0: of none. */
__attribute__((visibility("default"))) void xlane_guard_ended(int stage, int process, int of, int status,
                                                              const char *words, const char *where, int over);
void xlane_guard_ended(int stage, int process, int of, int status, const char *words, const char *where, int over)
{
    guard_state *g = guard_current();
    if (stage == SHUTDOWN_IS_THROUGH) {
        waiting = 0;
        return;
    }
    hide_secrets(words);
    if (of < 2) {
        put_end_alone(g, status, where);
        return;
    }
    guard_start();
    if (!g->run || !g->metrics)
        return;
    last.process = process;
    last.of = of;
    last.status = status;
    last.over = over != 0;
    if (stage == PROGRAM_ENDED) {
        put_end(g->run, process, status, where);
        return;
    }
    xl_thread t;
    waiting = ++shutdowns;
    xl_error *err = xl_thread_start(&t, "xlane-ended", wait_for_others, (void *)(intptr_t)waiting);
    if (!err)
        pthread_detach(t.t);
    xl_error_free(err);
}
