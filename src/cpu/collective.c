#include "cpu/collective.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

typedef enum { RUNNING, WAITING, ENDED } state;
typedef struct {
    state state;
    const xl_step *step;                                   /* WAITING: where */
    const uint32_t *member;
    uint32_t n;
    void *const *in, *const *out;
    pthread_cond_t wake;
} slot;
struct xl_meet {
    pthread_mutex_t lock;
    uint32_t n;
    bool failed;
    char why[1024];
    int64_t timeout_ms;
    _Atomic uint64_t bytes;
    slot slot[];
};

static int64_t timeout_ms(void)
{
    const char *v = getenv("XLANE_CPU_COLLECTIVE_TIMEOUT");
    double s = 30;
    if (v && *v && (!xl_str_f64(xl_str_of(v), &s) || !(s > 0) || s > 86400))
        s = 30;
    return (int64_t)(s * 1000);
}

xl_error *xl_meet_new(uint32_t n, xl_meet **out)
{
    xl_meet *m = calloc(1, sizeof *m + n * sizeof *m->slot);
    *out = m;
    if (!m)
        return XL_ERR(EXHAUSTED, "no memory for the devices of an execution to meet");
    m->n = n;
    m->timeout_ms = timeout_ms();
    pthread_mutex_init(&m->lock, NULL);
    pthread_condattr_t attr;
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    for (uint32_t i = 0; i < n; i++)
        pthread_cond_init(&m->slot[i].wake, &attr);
    pthread_condattr_destroy(&attr);
    return NULL;
}

void xl_meet_free(xl_meet *m)
{
    if (!m)
        return;
    for (uint32_t i = 0; i < m->n; i++)
        pthread_cond_destroy(&m->slot[i].wake);
    pthread_mutex_destroy(&m->lock);
    free(m);
}

static void where(const xl_step *s, char *text, size_t size)
{
    size_t at = (size_t)snprintf(text, size, "%s", s->name);
    for (uint32_t i = 0; i < s->nin && i < 2 && at < size - 32; i++) {
        at += (size_t)snprintf(text + at, size - at, "%s", i ? ", " : " of ");
        for (uint32_t k = 0; k < s->shape[i].rank && at < size - 32; k++)
            at += (size_t)snprintf(text + at, size - at, "%lldx", (long long)s->shape[i].dims[k]);
        at += (size_t)snprintf(text + at, size - at, "%s", xl_dtypes[s->shape[i].dtype].text);
    }
}

static bool has(const uint32_t *list, uint32_t n, uint32_t x)
{
    for (uint32_t i = 0; i < n; i++)
        if (list[i] == x)
            return true;
    return false;
}

static void fail(xl_meet *m)
{
    m->failed = true;
    for (uint32_t i = 0; i < m->n; i++)
        pthread_cond_signal(&m->slot[i].wake);
}

static void say(xl_meet *m, uint32_t me, uint32_t other, double waited)
{
    char here[200], there[200];
    const slot *o = &m->slot[other];
    where(m->slot[me].step, here, sizeof here);
    if (o->state == WAITING)
        where(o->step, there, sizeof there);
    const char *hint = "every device of a group must run the same collectives in the same order: look for a condition that differs between them";
    if (o->state == WAITING && o->step == m->slot[me].step)
        snprintf(m->why, sizeof m->why, "device %u and device %u came to %s with different replica groups: %s", me, other, here, hint);
    else if (o->state == WAITING)
        snprintf(m->why, sizeof m->why, "device %u is in %s, device %u of its group in %s: %s", me, here, other, there, hint);
    else if (o->state == ENDED)
        snprintf(m->why, sizeof m->why, "device %u is in %s, device %u of its group has ended its program: %s", me, here, other, hint);
    else
        snprintf(m->why, sizeof m->why, "device %u waited %.1f s in %s for device %u, which is still at work elsewhere (XLANE_CPU_COLLECTIVE_TIMEOUT sets the limit): %s", me, waited,
                 here, other, hint);
}

/* Under the lock: whether all have come; sets failed when they cannot. */
static bool complete(xl_meet *m, uint32_t me)
{
    const slot *s = &m->slot[me];
    bool all = true;
    for (uint32_t i = 0; i < s->n; i++) {
        uint32_t d = s->member[i];
        const slot *o = &m->slot[d];
        if (o->state == WAITING && o->step == s->step && o->n == s->n && !memcmp(o->member, s->member, s->n * sizeof *s->member))
            continue;
        all = false;
        /* It waits for us elsewhere: neither can go on. */
        if (o->state == ENDED || (o->state == WAITING && has(o->member, o->n, me))) {
            say(m, me, d, 0);
            fail(m);
            return false;
        }
    }
    return all;
}

xl_error *xl_meet_barrier(xl_meet *m, uint32_t me, const uint32_t *member, uint32_t n, const xl_step *step, void *const *in, void *const *out)
{
    xl_error *err = NULL;
    slot *s = &m->slot[me];
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += m->timeout_ms / 1000;
    until.tv_nsec += m->timeout_ms % 1000 * 1000000;
    if (until.tv_nsec >= 1000000000) {
        until.tv_sec++;
        until.tv_nsec -= 1000000000;
    }
    pthread_mutex_lock(&m->lock);
    s->step = step;
    s->member = member;
    s->n = n;
    s->in = in;
    s->out = out;
    s->state = WAITING;
    if (!m->failed && complete(m, me))
        for (uint32_t i = 0; i < n; i++) {
            m->slot[member[i]].state = RUNNING;
            if (member[i] != me)
                pthread_cond_signal(&m->slot[member[i]].wake);
        }
    while (!m->failed && s->state == WAITING)
        if (pthread_cond_timedwait(&s->wake, &m->lock, &until) == ETIMEDOUT && !m->failed && s->state == WAITING) {
            for (uint32_t i = 0; i < n; i++) {
                const slot *o = &m->slot[member[i]];
                if (o->state != WAITING || o->step != step) {
                    say(m, me, member[i], (double)m->timeout_ms / 1000);
                    break;
                }
            }
            fail(m);
        }
    if (m->failed)
        err = XL_ERR(ABORTED, "%s", m->why);
    pthread_mutex_unlock(&m->lock);
    return err;
}

void *const *xl_meet_in(const xl_meet *m, uint32_t d) { return m->slot[d].in; }
void *const *xl_meet_out(const xl_meet *m, uint32_t d) { return m->slot[d].out; }

void xl_meet_leave(xl_meet *m, uint32_t me, const xl_error *err)
{
    pthread_mutex_lock(&m->lock);
    m->slot[me].state = ENDED;
    if (err && !m->failed) {
        snprintf(m->why, sizeof m->why, "device %u stopped: %s", me, xl_error_message(err));
        fail(m);
    }
    for (uint32_t d = 0; d < m->n && !m->failed; d++)
        if (m->slot[d].state == WAITING && has(m->slot[d].member, m->slot[d].n, me)) {
            say(m, d, me, 0);
            fail(m);
        }
    for (uint32_t d = 0; m->failed && d < m->n; d++)
        pthread_cond_signal(&m->slot[d].wake);
    /* After a failure somebody may still be reading our buffers: stay until nobody runs. */
    for (uint32_t d = 0; m->failed && d < m->n; d++)
        while (m->slot[d].state != ENDED)
            pthread_cond_wait(&m->slot[me].wake, &m->lock);
    pthread_mutex_unlock(&m->lock);
}

void xl_meet_absent(xl_meet *m, uint32_t device, const xl_error *err)
{
    pthread_mutex_lock(&m->lock);
    m->slot[device].state = ENDED;
    if (!m->failed)
        snprintf(m->why, sizeof m->why, "device %u could not be started: %s", device, xl_error_message(err));
    fail(m);
    pthread_mutex_unlock(&m->lock);
}

void xl_meet_count(xl_meet *m, uint64_t bytes) { atomic_fetch_add_explicit(&m->bytes, bytes, memory_order_relaxed); }
uint64_t xl_meet_bytes(const xl_meet *m) { return atomic_load(&((xl_meet *)(uintptr_t)m)->bytes); }
