#include "train/stop.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/log.h"
#include "base/thread.h"
#include "base/time.h"

static const double look_s = 0.02, agree_s = 300;

struct xl_stop {
    xl_job *job;
    const volatile sig_atomic_t *asked;
    xl_mutex lock;
    xl_cond agreed;
    int64_t begun, last; /* last: where all stop; -1: not known */
    bool frozen;         /* no step begins until `last` is known */
    _Atomic int signal;
    atomic_bool closing;
    xl_thread thread;
};

/* Says once how far this rank has come; nothing begins beyond it before all have said theirs. */
static void say_where(xl_stop *s)
{
    char key[64], text[32];
    xl_mutex_lock(&s->lock);
    s->frozen = true;
    int n = snprintf(text, sizeof text, "%lld", (long long)s->begun);
    xl_mutex_unlock(&s->lock);
    snprintf(key, sizeof key, "stop-%lld", (long long)xl_job_me(s->job));
    xl_error_free(xl_job_put(s->job, key, (xl_str){ text, (size_t)n })); /* EXISTS: it was said already */
}

static xl_error *number(xl_job *job, const char *key, double seconds, int64_t *out)
{
    xl_buf b = { 0 };
    xl_error *err = xl_job_get(job, key, seconds, &b);
    if (!err && !xl_str_i64(xl_buf_view(&b), out))
        err = XL_ERR(INTERNAL, "%s is no number", key);
    xl_buf_fini(&b);
    return err;
}

static void agree(xl_stop *s)
{
    int64_t last = 0, sig = 0;
    xl_error *err = number(s->job, "stop", 10, &sig);
    say_where(s);
    for (int64_t i = 0; i < xl_job_ranks(s->job) && !err; i++) {
        char key[64];
        int64_t at = 0;
        snprintf(key, sizeof key, "stop-%lld", (long long)i);
        err = xl_error_wrap(number(s->job, key, agree_s, &at), "rank %lld has not said how far it has come",
                            (long long)i);
        last = at > last ? at : last;
    }
    if (err && xl_error_code(err) != XL_CODE_CANCELLED)
        XL_LOG(WARN, "stopping at once: %s", xl_error_message(err));
    xl_mutex_lock(&s->lock);
    s->last = err ? s->begun : last;
    s->signal = sig ? (int)sig : SIGTERM;
    xl_cond_wake_all(&s->agreed);
    xl_mutex_unlock(&s->lock);
    xl_error_free(err);
}

static void listen(void *arg)
{
    xl_stop *s = arg;
    bool told = false;
    while (!atomic_load(&s->closing)) {
        if (*s->asked && !told) {
            char text[16];
            int n = snprintf(text, sizeof text, "%d", (int)*s->asked);
            xl_error_free(xl_job_put(s->job, "stop", (xl_str){ text, (size_t)n }));
            told = true;
        }
        if (xl_job_has(s->job, "stop")) {
            agree(s);
            return;
        }
        xl_sleep(look_s);
    }
}

xl_error *xl_stop_open(xl_job *job, const volatile sig_atomic_t *asked, int64_t step, xl_stop **out)
{
    *out = NULL;
    xl_stop *s = calloc(1, sizeof *s);
    if (!s)
        return XL_ERR(EXHAUSTED, "out of memory");
    s->job = job;
    s->asked = asked;
    s->begun = step;
    s->last = -1;
    xl_mutex_init(&s->lock);
    xl_cond_init(&s->agreed);
    xl_error *err = xl_thread_start(&s->thread, "xlane-stop", listen, s);
    if (err)
        free(s);
    else
        *out = s;
    return err;
}

bool xl_stop_begin(xl_stop *s, int64_t step)
{
    xl_mutex_lock(&s->lock);
    while (s->frozen && s->last < 0)
        xl_cond_wait(&s->agreed, &s->lock);
    bool may = !s->frozen || step <= s->last;
    if (may)
        s->begun = step;
    xl_mutex_unlock(&s->lock);
    return may;
}

int xl_stop_signal(const xl_stop *s) { return s ? s->signal : 0; }

void xl_stop_close(xl_stop *s)
{
    if (!s)
        return;
    say_where(s); /* for those that stop now: this one is as far as it gets */
    atomic_store(&s->closing, true);
    xl_thread_join(&s->thread);
    xl_mutex_fini(&s->lock);
    xl_cond_fini(&s->agreed);
    free(s);
}
