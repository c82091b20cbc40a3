#include "cpu/crew.h"

#include <stdbool.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/thread.h"

typedef struct { xl_cond done; size_t left; } latch;       /* under the crew's lock */
typedef struct hand {
    xl_thread thread;
    xl_crew *crew;
    xl_cond wake;
    bool quit;
    void (*fn)(void *ctx, size_t k);
    void *ctx;
    size_t k;
    latch *latch;
    struct hand *next;
} hand;
struct xl_crew {
    xl_mutex lock;
    hand *idle;
    pid_t pid;
};

static void work(void *arg)
{
    hand *h = arg;
    xl_mutex_lock(&h->crew->lock);
    for (;;) {
        while (!h->fn && !h->quit)
            xl_cond_wait(&h->wake, &h->crew->lock);
        if (h->quit)
            break;
        xl_mutex_unlock(&h->crew->lock);
        h->fn(h->ctx, h->k);
        latch *l = h->latch;
        xl_mutex_lock(&h->crew->lock);
        h->fn = NULL;
        h->next = h->crew->idle;
        h->crew->idle = h;
        if (--l->left == 0)
            xl_cond_wake(&l->done);
    }
    xl_mutex_unlock(&h->crew->lock);
}

xl_crew *xl_crew_new(void)
{
    xl_crew *c = calloc(1, sizeof *c);
    if (!c)
        return NULL;
    xl_mutex_init(&c->lock);
    c->pid = getpid();
    return c;
}

void xl_crew_free(xl_crew *c)
{
    if (!c)
        return;
    bool ours = c->pid == getpid();
    for (hand *h = c->idle, *next; h; h = next) {
        next = h->next;
        if (ours) {
            xl_mutex_lock(&c->lock);
            h->quit = true;
            xl_cond_wake(&h->wake);
            xl_mutex_unlock(&c->lock);
            xl_thread_join(&h->thread);
            xl_cond_fini(&h->wake);
        }
        free(h);
    }
    xl_mutex_fini(&c->lock);
    free(c);
}

static xl_error *take(xl_crew *c, hand **out)
{
    hand *h = c->idle;
    if (h) {
        c->idle = h->next;
    } else {
        h = calloc(1, sizeof *h);
        if (!h)
            return XL_ERR(EXHAUSTED, "no memory for a device's thread");
        h->crew = c;
        xl_cond_init(&h->wake);
        xl_error *err = xl_thread_start(&h->thread, "xlane-device", work, h);
        if (err) {
            xl_cond_fini(&h->wake);
            free(h);
            return err;
        }
    }
    *out = h;
    return NULL;
}

xl_error *xl_crew_run(xl_crew *c, size_t n, void (*begin)(void *ctx, size_t started, const xl_error *why), void (*fn)(void *ctx, size_t k), void *ctx)
{
    xl_error *err = NULL;
    hand *mine = NULL, *h = NULL;
    latch l;
    xl_cond_init(&l.done);
    l.left = 0;
    xl_mutex_lock(&c->lock);
    if (c->pid != getpid()) {                              /* a forked child: those threads are the parent's */
        c->idle = NULL;
        c->pid = getpid();
    }
    while (l.left + 1 < n && !(err = take(c, &h))) {
        h->next = mine;
        mine = h;
        l.left++;
    }
    begin(ctx, l.left + 1, err);
    for (size_t k = 1; mine; k++) {
        h = mine;
        mine = h->next;
        h->ctx = ctx;
        h->k = k;
        h->latch = &l;
        h->fn = fn;
        xl_cond_wake(&h->wake);
    }
    xl_mutex_unlock(&c->lock);
    fn(ctx, 0);
    xl_mutex_lock(&c->lock);
    while (l.left)
        xl_cond_wait(&l.done, &c->lock);
    xl_mutex_unlock(&c->lock);
    xl_cond_fini(&l.done);
    return err;
}
