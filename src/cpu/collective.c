#include "cpu/collective.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

/* RUNNING has a core or is queued for one; WAITING is in a meeting that others have yet to come to; MEETING in one that is taking place. */
typedef enum { RUNNING, WAITING, MEETING, ENDED } state;
typedef struct {
    state state;
    bool core;                                             /* has one */
    int64_t since;                                         /* when it got it */
    const xl_step *step;                                   /* WAITING: where */
    const uint32_t *member;
    uint32_t n;
    void *const *in, *const *out;
    pthread_cond_t wake;
} slot;
struct xl_meet {
    pthread_mutex_t lock;
    uint32_t n;
    uint32_t free, head, queued;                           /* cores; those who want one, in a ring */
    bool failed;
    char why[1024];
    int64_t timeout_ms;
    xl_pool *pool;
    _Atomic uint64_t bytes;
    uint32_t *queue;
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

static int64_t now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

xl_error *xl_meet_new(uint32_t n, xl_pool *pool, xl_meet **out)
{
    xl_meet *m = calloc(1, sizeof *m + n * (sizeof *m->slot + sizeof *m->queue));
    *out = m;
    if (!m)
        return XL_ERR(EXHAUSTED, "no memory for the devices of an execution to meet");
    m->n = n;
    m->queue = (uint32_t *)(void *)(m->slot + n);
    m->pool = pool;
    m->free = (uint32_t)xl_pool_size(pool);
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

static bool nobody_works(const xl_meet *m)
{
    for (uint32_t d = 0; d < m->n; d++)
        if (m->slot[d].state == RUNNING || m->slot[d].state == MEETING)
            return false;
    return true;
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
        /* It waits for us elsewhere, or nobody is left who could come: neither can go on. */
        if (o->state == ENDED || (o->state == WAITING && (has(o->member, o->n, me) || nobody_works(m)))) {
            say(m, me, d, 0);
            fail(m);
            return false;
        }
    }
    return all;
}

/* Under the lock: a core for d, now or when it is d's turn. */
static void want_core(xl_meet *m, uint32_t d)
{
    if (m->free) {
        m->free--;
        m->slot[d].core = true;
        m->slot[d].since = now_ms();
        pthread_cond_signal(&m->slot[d].wake);
    } else {
        m->queue[(m->head + m->queued++) % m->n] = d;
    }
}

static void give_core(xl_meet *m, uint32_t me)
{
    if (!m->slot[me].core)
        return;
    m->slot[me].core = false;
    m->free++;
    if (m->queued) {
        uint32_t d = m->queue[m->head];
        m->head = (m->head + 1) % m->n;
        m->queued--;
        want_core(m, d);
    }
}

void xl_meet_enter(xl_meet *m, uint32_t me)
{
    pthread_mutex_lock(&m->lock);
    want_core(m, me);
    while (!m->slot[me].core)
        pthread_cond_wait(&m->slot[me].wake, &m->lock);
    pthread_mutex_unlock(&m->lock);
}

/* Under the lock: the limit has passed. Whoever is missing may only be queueing for a core, which is no fault of its own; a limit for each
 * device together is enough for that too. */
static void too_long(xl_meet *m, uint32_t me, int64_t began)
{
    const slot *s = &m->slot[me];
    int64_t now = now_ms();
    for (uint32_t i = 0; i < s->n; i++) {
        const slot *o = &m->slot[s->member[i]];
        if (o->state == WAITING && o->step == s->step)
            continue;
        if ((o->core && now - o->since >= m->timeout_ms) || now - began >= m->timeout_ms * ((int64_t)m->n + 1)) {
            say(m, me, s->member[i], (double)(now - began) / 1000);
            fail(m);
        }
        return;
    }
}

static struct timespec at_ms(int64_t t) { return (struct timespec){ .tv_sec = (time_t)(t / 1000), .tv_nsec = (long)(t % 1000) * 1000000 }; }

/* Under the lock: until the last member has done the work and there is a core, or somebody has failed. */
static void wait_for_others(xl_meet *m, uint32_t me)
{
    slot *s = &m->slot[me];
    int64_t began = now_ms(), look = began + m->timeout_ms;
    give_core(m, me);
    while (!s->core && !(m->failed && s->state == WAITING)) {
        struct timespec until = at_ms(look);
        if (pthread_cond_timedwait(&s->wake, &m->lock, &until) == ETIMEDOUT) {
            if (s->state == WAITING && !m->failed)
                too_long(m, me, began);
            look = now_ms() + (m->timeout_ms < 1000 ? m->timeout_ms : 1000);
        }
    }
}

enum { FEW = 64 };

/* Not under the lock: nobody touches what the members of a meeting have brought until it is over. */
static xl_error *meet_now(const xl_meet *m, const slot *s, xl_pool *pool, xl_frame *f, xl_meet_fn *fn)
{
    void *const *few[2 * FEW], *const **view = s->n <= FEW ? few : malloc(2 * s->n * sizeof *view);
    xl_group_view g = { .n = s->n, .pool = pool, .in = view, .out = view ? view + s->n : NULL };
    if (!view)
        return XL_ERR(EXHAUSTED, "no memory for a collective");
    for (uint32_t k = 0; k < s->n; k++) {
        view[k] = m->slot[s->member[k]].in;
        view[s->n + k] = m->slot[s->member[k]].out;
    }
    xl_error *err = fn(s->step, f, &g);
    if (view != few)
        free(view);
    return err;
}

xl_error *xl_meet_at(xl_meet *m, uint32_t me, const uint32_t *member, uint32_t n, const xl_step *step, xl_frame *f, void *const *in, void *const *out, xl_meet_fn *fn)
{
    xl_error *err = NULL;
    slot *s = &m->slot[me];
    pthread_mutex_lock(&m->lock);
    s->step = step;
    s->member = member;
    s->n = n;
    s->in = in;
    s->out = out;
    s->state = WAITING;
    if (!m->failed && complete(m, me)) {
        for (uint32_t i = 0; i < n; i++)
            m->slot[member[i]].state = MEETING;
        xl_pool *pool = m->free ? m->pool : NULL;
        pthread_mutex_unlock(&m->lock);
        err = meet_now(m, s, pool, f, fn);
        pthread_mutex_lock(&m->lock);
        if (err && !m->failed) {
            snprintf(m->why, sizeof m->why, "%s", xl_error_message(err));
            fail(m);
        }
        for (uint32_t i = 0; i < n; i++) {
            m->slot[member[i]].state = RUNNING;
            if (member[i] != me)
                want_core(m, member[i]);
        }
    } else if (!m->failed) {
        wait_for_others(m, me);
    }
    s->state = RUNNING;
    if (!err && m->failed)
        err = XL_ERR(ABORTED, "%s", m->why);
    pthread_mutex_unlock(&m->lock);
    return err;
}

void xl_meet_leave(xl_meet *m, uint32_t me, const xl_error *err)
{
    pthread_mutex_lock(&m->lock);
    m->slot[me].state = ENDED;
    give_core(m, me);
    if (err && !m->failed) {
        snprintf(m->why, sizeof m->why, "device %u stopped: %s", me, xl_error_message(err));
        fail(m);
    }
    for (uint32_t d = 0; d < m->n && !m->failed; d++)
        if (m->slot[d].state == WAITING && has(m->slot[d].member, m->slot[d].n, me)) {
            say(m, d, me, 0);
            fail(m);
        }
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
