#include "cpu/meet/meeting.h"
#include "base/time.h"
#include "cpu/meet/far.h"
#include "cpu/run/pool.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "cpu/run/env.h"

/* RUNNING is at work or queued for a thread; WAITING is in a meeting that others have yet to come to; MEETING in one
 * that is taking place; AWAITING conducts one and waits for other processes; FAR belongs to one of those. */
typedef enum { RUNNING, WAITING, MEETING, AWAITING, ENDED, FAR } state;
typedef struct {
    state state;
    bool at_work;                                          /* a thread runs it */
    bool away, due;                                        /* parked; to be queued as soon as it is parked */
    int64_t since;                                         /* when it was last resumed, or came to a meeting */
    const xl_step *step;                                   /* WAITING: where */
    const uint32_t *member;
    uint32_t n;
    void *const *in, *const *out;
    bool (*ready)(void *);                                 /* AWAITING: until this says so */
    void *ready_ctx;
    xl_fiber *fiber;
    xl_meet *meet;
} slot;
struct xl_meet {
    pthread_mutex_t lock;
    uint32_t n;
    uint32_t head, queued;                                 /* those who can go on, in a ring */
    _Atomic uint32_t ready, left; /* queued, to be read without the lock; devices whose task has not ended */
    atomic_bool failed;
    char why[1024];
    int64_t timeout_ms;
    _Atomic int64_t looked;                                /* when somebody last looked for devices that are late */
    xl_pool *pool;
    xl_fibers *fibers;
    const xl_meet_task *task;
    _Atomic uint32_t awaiting;                             /* how many are */
    const xl_meet_far *far;
    double entered;                                        /* when this process did, with far */
    atomic_bool met_far;
    uint32_t run;                                          /* of its devices, counted alike in every process */
    _Atomic uint64_t bytes;
    xl_meet_times times;
    uint32_t *queue;
    slot slot[];
};

static int64_t timeout_ms(void)
{
    return (int64_t)(xl_env_get(XL_ENV_COLLECTIVE_TIMEOUT, 30) * 1000);
}

static int64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static int64_t now_ms(void) { return now_ns() / 1000000; }

xl_error *xl_meet_new(uint32_t n, xl_pool *pool, const xl_meet_far *far, xl_meet **out)
{
    xl_meet *m = calloc(1, sizeof *m + n * (sizeof *m->slot + sizeof *m->queue));
    *out = m;
    if (!m)
        return XL_ERR(EXHAUSTED, "no memory for the devices of an execution to meet");
    m->n = n;
    m->queue = (uint32_t *)(void *)(m->slot + n);
    m->pool = pool;
    m->timeout_ms = timeout_ms();
    if ((m->far = far)) {
        for (uint32_t d = 0; d < n; d++)
            if (far->process[d] != xl_mail_me(far->mail))
                m->slot[d].state = FAR;
        m->run = xl_mail_run(far->mail, far->devices);
        m->entered = xl_now();
        xl_mail_doing(far->mail, false, "in %s", far->program);
    }
    pthread_mutex_init(&m->lock, NULL);
    return NULL;
}

void xl_meet_free(xl_meet *m)
{
    if (!m)
        return;
    pthread_mutex_destroy(&m->lock);
    free(m);
}

static bool has(const uint32_t *list, uint32_t n, uint32_t x)
{
    for (uint32_t i = 0; i < n; i++)
        if (list[i] == x)
            return true;
    return false;
}

/* Under the lock: d can go on, now or as soon as it is parked. */
static void let_go(xl_meet *m, uint32_t d)
{
    slot *s = &m->slot[d];
    if (!s->away) {
        s->due = true;
        return;
    }
    s->away = false;
    m->queue[(m->head + m->queued++) % m->n] = d;
    atomic_fetch_add(&m->ready, 1);
}

static void fail(xl_meet *m)
{
    m->failed = true;
    for (uint32_t i = 0; i < m->n; i++)
        if (m->slot[i].state == WAITING)
            let_go(m, i);
    xl_pool_tell(m->pool, m->n);                           /* who awaits other processes looks again */
}

static void say(xl_meet *m, uint32_t me, uint32_t other, double waited)
{
    char here[200], there[200];
    const slot *o = &m->slot[other];
    xl_meet_where(m->slot[me].step, here, sizeof here);
    if (o->state == WAITING)
        xl_meet_where(o->step, there, sizeof there);
    const char *hint = "every device of a group must run the same collectives in the same order: look for a condition "
                       "that differs between them";
    if (o->state == WAITING && o->step == m->slot[me].step)
        snprintf(m->why, sizeof m->why, "device %u and device %u came to %s with different replica groups: %s", me,
                 other, here, hint);
    else if (o->state == WAITING)
        snprintf(m->why, sizeof m->why, "device %u is in %s, device %u of its group in %s: %s", me, here, other, there,
                 hint);
    else if (o->state == ENDED)
        snprintf(m->why, sizeof m->why, "device %u is in %s, device %u of its group has ended its program: %s", me,
                 here, other, hint);
    else
        snprintf(m->why, sizeof m->why,
                 "device %u waited %.1f s in %s for device %u, which is still at work elsewhere "
                 "(XLANE_CPU_COLLECTIVE_TIMEOUT sets the limit): %s",
                 me, waited, here, other, hint);
}

static bool nobody_works(const xl_meet *m)
{
    for (uint32_t d = 0; d < m->n; d++)
        if (m->slot[d].state == RUNNING || m->slot[d].state == MEETING || m->slot[d].state == AWAITING)
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
        if (o->state == FAR)
            continue;
        if (o->state == WAITING && o->step == s->step && o->n == s->n &&
            !memcmp(o->member, s->member, s->n * sizeof *s->member))
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

/* Under the lock, and not more often than is of use: fails when a device is late: one that was at work for the limit
 * while another waits for it. Who is only queueing for a thread is not at fault; a limit for each device together is
 * enough for that too. */
static int64_t period(const xl_meet *m) { return m->timeout_ms / 8 < 1000 ? m->timeout_ms / 8 : 1000; }
static bool time_to_look(const xl_meet *m, int64_t now) { return !m->failed && now - m->looked >= period(m); }

static void look(xl_meet *m, int64_t now)
{
    if (!time_to_look(m, now))
        return;
    m->looked = now;
    for (uint32_t d = 0; d < m->n && !m->failed; d++) {
        const slot *s = &m->slot[d];
        if (s->state != WAITING || now - s->since < m->timeout_ms)
            continue;
        for (uint32_t i = 0; i < s->n && !m->failed; i++) {
            const slot *o = &m->slot[s->member[i]];
            if (o->state != RUNNING)
                continue;
            if ((o->at_work && now - o->since >= m->timeout_ms) ||
                now - s->since >= m->timeout_ms * ((int64_t)m->n + 1)) {
                say(m, d, s->member[i], (double)(now - s->since) / 1000);
                fail(m);
            }
        }
    }
}

static void look_once(xl_meet *m, int64_t now)
{
    if (!time_to_look(m, now))
        return;
    pthread_mutex_lock(&m->lock);
    look(m, now);
    pthread_mutex_unlock(&m->lock);
}

static xl_error *stopped(const xl_meet *m) { return m->failed ? XL_ERR(ABORTED, "%s", m->why) : NULL; }

xl_error *xl_meet_turn(const xl_frame *f)
{
    xl_meet *m = f->meet;
    slot *s = &m->slot[xl_meet_number(f)];
    int64_t now = now_ms();
    look_once(m, now);
    if (m->ready &&
        now - s->since >=
            period(m)) { /* a loop without an end must not keep the others from coming to where they miss us */
        pthread_mutex_lock(&m->lock);
        s->due = true;
        pthread_mutex_unlock(&m->lock);
        xl_fiber_park(s->fiber);
    }
    return stopped(m);
}

/* The fiber of device `me` waits until ready(ctx) or the execution has failed. */
static void park(xl_meet *m, uint32_t me, bool (*ready)(void *), void *ctx)
{
    slot *s = &m->slot[me];
    pthread_mutex_lock(&m->lock);
    s->ready = ready;
    s->ready_ctx = ctx;
    s->state = AWAITING;
    atomic_fetch_add(&m->awaiting, 1);
    pthread_mutex_unlock(&m->lock);
    xl_fiber_park(s->fiber);
}

enum { FEW = 64 };

/* Not under the lock: nobody touches what the members of a meeting have brought until it is over. */
static xl_error *meet_now(xl_meet *m, const slot *s, xl_pool *pool, xl_frame *f, xl_meet_fn *fn)
{
    void *const *few[2 * FEW], *const **view = s->n <= FEW ? few : malloc(2 * s->n * sizeof *view);
    xl_group_view g = { .n = s->n, .pool = pool, .in = view, .out = view ? view + s->n : NULL, .parts = 1 };
    bool far = false;
    if (!view)
        return XL_ERR(EXHAUSTED, "no memory for a collective");
    for (uint32_t k = 0; k < s->n; k++) {                  /* NULL for those of other processes */
        view[k] = m->slot[s->member[k]].in;
        view[s->n + k] = m->slot[s->member[k]].out;
        far = far || m->slot[s->member[k]].state == FAR;
    }
    xl_far_host host = { .m = m, .me = (uint32_t)(s - m->slot), .park = park, .stopped = stopped, .far = m->far,
                         .run = m->run, .entered = m->entered };
    host.first = far && !atomic_exchange(&m->met_far, true);
    xl_error *err = far ? xl_far_meet(&host, s->member, s->step, f, view, &g, fn) : fn(s->step, f, &g);
    if (view != few)
        free(view);
    return err;
}

xl_error *xl_meet_at(xl_meet *m, uint32_t me, const uint32_t *member, uint32_t n, const xl_step *step, xl_frame *f,
                     void *const *in, void *const *out, xl_meet_fn *fn)
{
    xl_error *err = NULL;
    slot *s = &m->slot[me];
    pthread_mutex_lock(&m->lock);
    int64_t now = now_ms();
    look(m, now);
    s->since = now;
    s->step = step;
    s->member = member;
    s->n = n;
    s->in = in;
    s->out = out;
    s->state = WAITING;
    if (!m->failed && complete(m, me)) {
        for (uint32_t i = 0; i < n; i++)
            if (m->slot[member[i]].state != FAR)
                m->slot[member[i]].state = MEETING;
        m->times.meetings++;
        pthread_mutex_unlock(&m->lock);
        err = meet_now(m, s, m->pool, f, fn);
        pthread_mutex_lock(&m->lock);
        for (uint32_t i = 0; i < n; i++) {
            if (m->slot[member[i]].state == FAR)
                continue;
            m->slot[member[i]].state = RUNNING;
            if (member[i] != me)
                let_go(m, member[i]);
        }
        s->since = now_ms();
        if (err && !m->failed) {
            snprintf(m->why, sizeof m->why, "%s", xl_error_message(err));
            fail(m);
        }
        pthread_mutex_unlock(&m->lock);
        xl_pool_tell(m->pool, n - 1);
    } else {
        bool waits = !m->failed;
        if (!waits) {
            s->state = RUNNING;
            s->due = false;
        }
        pthread_mutex_unlock(&m->lock);
        if (waits)
            xl_fiber_park(s->fiber);
    }
    return err ? err : stopped(m);
}

/* Those for whom other processes have come. */
static void look_far(xl_meet *m)
{
    if (!atomic_load(&m->awaiting))
        return;
    pthread_mutex_lock(&m->lock);
    for (uint32_t d = 0; d < m->n; d++) {
        slot *s = &m->slot[d];
        if (s->state == AWAITING && s->away && (m->failed || s->ready(s->ready_ctx))) {
            s->state = MEETING;
            atomic_fetch_sub(&m->awaiting, 1);
            let_go(m, d);
        }
    }
    pthread_mutex_unlock(&m->lock);
}

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
    pthread_mutex_unlock(&m->lock);
}

/* ---- who runs them ---- */
static void body(void *arg)
{
    slot *s = arg;
    s->meet->task->run(s->meet->task->ctx, (uint32_t)(s - s->meet->slot));
}

/* Takes a device that can go on, or says that there is none. */
static slot *next(xl_meet *m)
{
    slot *s = NULL;
    if (!atomic_load(&m->ready))
        return NULL;
    pthread_mutex_lock(&m->lock);
    if (m->queued) {
        s = &m->slot[m->queue[m->head]];
        m->head = (m->head + 1) % m->n;
        m->queued--;
        atomic_fetch_sub(&m->ready, 1);
        s->state = RUNNING;
        s->at_work = true;
        s->since = now_ms();
    }
    pthread_mutex_unlock(&m->lock);
    return s;
}

static void ended(xl_meet *m, slot *s)
{
    if (s->fiber)
        xl_fiber_give(m->fibers, s->fiber);
    m->task->end(m->task->ctx, (uint32_t)(s - m->slot));
    if (atomic_fetch_sub(&m->left, 1) == 1)
        xl_pool_tell(m->pool, INT32_MAX);
}

/* Until it waits for others or has ended. */
static void go_on(xl_meet *m, slot *s)
{
    if (!s->fiber && !(s->fiber = xl_fiber_take(m->fibers, body, s))) {
        xl_error *err = XL_ERR(EXHAUSTED, "no memory for the stack of a device");
        xl_meet_leave(m, (uint32_t)(s - m->slot), err);
        xl_error_free(err);
        ended(m, s);
        return;
    }
    if (xl_fiber_resume(s->fiber)) {
        ended(m, s);
        return;
    }
    pthread_mutex_lock(&m->lock);
    s->at_work = false;
    s->away = true;
    if (s->due)
        let_go(m, (uint32_t)(s - m->slot));
    s->due = false;
    pthread_mutex_unlock(&m->lock);
}

static void work(void *ctx, size_t begin, size_t end)
{
    xl_meet *m = ctx;
    xl_mail *mail = m->far ? m->far->mail : NULL;
    int64_t at = now_ns(), busy = 0, idle = 0;
    (void)begin, (void)end;
    while (atomic_load(&m->left)) {
        unsigned seen = mail ? xl_mail_news(mail) : xl_pool_news(m->pool);
        bool helped = false;
        look_far(m);
        slot *s = next(m);
        if (s) {
            go_on(m, s);
        } else if (atomic_load(&m->left)) {
            int64_t most = m->timeout_ms < 1000 ? m->timeout_ms : 1000;
            if (!mail)
                helped = xl_pool_rest(m->pool, seen, most);
            else if (!(helped = xl_pool_help(m->pool)))
                xl_mail_rest(mail, seen, most);
            look_once(m, now_ms());
        }
        int64_t now = now_ns();
        *(s || helped ? &busy : &idle) += now - at;
        at = now;
    }
    pthread_mutex_lock(&m->lock);
    m->times.busy_ns += busy;
    m->times.idle_ns += idle;
    pthread_mutex_unlock(&m->lock);
}

void xl_meet_run(xl_meet *m, xl_fibers *fibers, const xl_meet_task *task)
{
    m->fibers = fibers;
    m->task = task;
    uint32_t left = 0;
    for (uint32_t d = 0; d < m->n; d++)
        left += m->slot[d].state != FAR;
    atomic_store(&m->left, left);
    for (uint32_t d = 0; d < m->n; d++) {
        if (m->slot[d].state == FAR)
            continue;
        m->slot[d].meet = m;
        m->slot[d].away = true;
        let_go(m, d);
    }
    xl_pool_crew(m->pool, left, work, m);                  /* a thread each; the others help with their loops */
    if (m->far && m->failed)
        xl_far_stop(m->far, m->n, m->run, m->why);
    if (m->far)
        xl_mail_doing(m->far->mail, false, "past %s, outside of a program", m->far->program);
}

void xl_meet_count(xl_meet *m, uint64_t bytes) { atomic_fetch_add_explicit(&m->bytes, bytes, memory_order_relaxed); }
uint64_t xl_meet_bytes(const xl_meet *m) { return atomic_load(&((xl_meet *)(uintptr_t)m)->bytes); }
xl_meet_times xl_meet_spent(const xl_meet *m) { return m->times; }
