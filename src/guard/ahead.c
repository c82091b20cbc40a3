/* Loading ahead: what this command loaded or compiled the last time is read from the cache and loaded into the plugin
 * by a thread of ours while the frontend still traces. A compile that asks for one of them finds it ready; what nobody
 * asked for goes again. The list of a command is an entry of the cache like any other, in a segment of its own: sealed,
 * bounded, written whole. */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "base/file.h"
#include "base/time.h"
#include "guard/guard.h"
#include "pjrt/options.h"

enum { PROGRAMS = 64 };
static const size_t most_bytes = (size_t)512 << 20;        /* of blobs, of one command */
static const double patience = 60;                         /* seconds until what nobody asked for is let go */

typedef struct {
    xl_digest digest;                                      /* of the cache key */
    xl_str options;                                        /* as the frontend gave them; ours to free */
    enum { WAITING, LOADING, READY, GONE } state;
    PJRT_LoadedExecutable *loaded;
} program;

static struct {
    xl_mutex lock;
    xl_cond changed;
    xl_thread thread;
    pid_t pid;                                             /* who started the thread: a forked child has none */
    bool running, stop;
    guard_plugin *p;
    _Atomic(PJRT_Client *) client;                         /* NULL: no list for this process */
    xl_cache *lists;
    xl_cache_key key;                                      /* of this command's list */
    char command[XL_DIGEST_HEX];                           /* digest of its arguments and folder */
    xl_buf topology, versions;
    program item[PROGRAMS];                                /* what the last process of this command used */
    uint32_t n;
    program used[PROGRAMS];                                /* what this one uses, in its order */
    uint32_t nused;
    bool unwritten;
} A = { .lock = XL_MUTEX_INIT, .changed = XL_COND_INIT };

static bool ours(void) { return A.client && A.pid == getpid(); }

typedef struct { xl_str x, y; bool same; } pair;

static xl_error *compare(xl_arena *a, void *ctx)
{
    xl_error *err = NULL;
    pair *p = ctx;
    xl_option *x, *y;
    xl_option_change *change;
    size_t n;
    XL_DO(xl_options_parse(a, p->x, &x));
    XL_DO(xl_options_parse(a, p->y, &y));
    xl_options_diff(a, x, y, &change, &n);
    p->same = n == 0;
out:
    return err;
}

/* The bytes of the same options come in another order in another process. The key has only those that change the code;
 * all must agree here. */
static bool alike(xl_str x, xl_str y)
{
    pair p = { x, y, xl_str_eq(x, y) };
    if (!p.same)
        xl_error_free(xl_arena_call(compare, &p));
    return p.same;
}

/* ---- the list: for each program its digest, the size of its options in four bytes, and the options ---- */
static bool keep(program *list, uint32_t *n, const char *digest, xl_str options)
{
    char *copy = *n < PROGRAMS ? malloc(options.n + 1) : NULL;
    if (!copy)
        return false;
    program *x = &list[(*n)++];
    *x = (program){ .options = { copy, options.n } };
    memcpy(copy, options.p, options.n);
    memcpy(x->digest.b, digest, XL_DIGEST_SIZE);
    return true;
}

static void read_list(xl_str bytes)
{
    while (bytes.n >= XL_DIGEST_SIZE + 4) {
        const unsigned char *b = (const unsigned char *)bytes.p + XL_DIGEST_SIZE;
        size_t size = b[0] | (size_t)b[1] << 8 | (size_t)b[2] << 16 | (size_t)b[3] << 24,
               rest = bytes.n - XL_DIGEST_SIZE - 4;
        if (size > rest || !keep(A.item, &A.n, bytes.p, (xl_str){ bytes.p + XL_DIGEST_SIZE + 4, size }))
            return;
        bytes = (xl_str){ bytes.p + XL_DIGEST_SIZE + 4 + size, rest - size };
    }
}

static void recall(guard_state *g)
{
    xl_cache_found found;
    if (!xl_cache_has(A.lists, &A.key))
        return;
    xl_error *err = xl_cache_get(A.lists, &A.key, &found);
    if (err) {
        guard_fault(g, "reading what to load ahead", err);
        return;
    }
    if (found.hit)
        read_list((xl_str){ found.blob, found.size });
    free(found.blob);
}

void guard_ahead_write(guard_state *g, bool end)
{
    if (!ours())
        return;
    xl_buf b = { 0 };
    xl_mutex_lock(&A.lock);
    bool same =
        end ? A.nused == A.n : A.nused <= A.n; /* nothing new, or as far as we have come: the list stays as it is */
    for (uint32_t i = 0; i < A.nused; i++) {
        const program *x = &A.used[i];
        size_t n = x->options.n;
        same = same && xl_digest_eq(&x->digest, &A.item[i].digest) && alike(x->options, A.item[i].options);
        xl_buf_add(&b, x->digest.b, XL_DIGEST_SIZE);
        xl_buf_add(&b, (unsigned char[]){ n & 255, n >> 8 & 255, n >> 16 & 255, n >> 24 & 255 }, 4);
        xl_buf_str(&b, x->options);
    }
    bool write = A.unwritten && !same && !b.failed;
    A.unwritten = A.unwritten && !write; /* what is the same so far may have become shorter by the end */
    xl_mutex_unlock(&A.lock);
    xl_error *err = write ? xl_cache_put(A.lists, &A.key, b.p, b.n, 0) : NULL;
    if (err)
        guard_fault(g, "writing what to load ahead", err);
    xl_buf_fini(&b);
}

void guard_ahead_note(PJRT_Client *client, const xl_digest *digest, xl_str options)
{
    if (!ours() || A.client != client)
        return;
    xl_mutex_lock(&A.lock);
    bool known = false;
    for (uint32_t i = 0; i < A.nused && !known; i++)
        known = xl_digest_eq(&A.used[i].digest, digest);
    if (!known && keep(A.used, &A.nused, (const char *)digest->b, options))
        A.unwritten = true;
    xl_mutex_unlock(&A.lock);
}

/* ---- the thread
 * -------------------------------------------------------------------------------------------------------------------
 * */
static void let_go(PJRT_LoadedExecutable *x)
{
    PJRT_LoadedExecutable_Destroy_Args d = { .struct_size = sizeof d, .executable = x };
    xl_error_free(guard_take(A.p, A.p->real->PJRT_LoadedExecutable_Destroy(&d), "PJRT_LoadedExecutable_Destroy"));
}

typedef struct { xl_cache_key key; xl_cache_found found; xl_error *err; } lookup;

static void look_up(void *arg)
{
    lookup *l = arg;
    guard_state *g = A.p->g;
    if (xl_cache_has(g->cache, &l->key))
        l->err = xl_cache_get(g->cache, &l->key, &l->found);
}

/* Without the lock: a compile that wants this one waits for it, all others go on. */
static PJRT_LoadedExecutable *load(const program *x, size_t *bytes)
{
    lookup l = { .key = { .digest = x->digest } };
    PJRT_LoadedExecutable *out = NULL;
    xl_file_apart(look_up, &l);
    *bytes += l.found.size;
    if (!l.err && l.found.hit && *bytes <= most_bytes)
        l.err = guard_load(A.p, A.client, &l.found, x->options, &out);
    xl_error_free(l.err);                                  /* whoever asks for it tries again, and tells */
    free(l.found.blob);
    return out;
}

static uint32_t count(int state)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < A.n; i++)
        n += (int)A.item[i].state == state;
    return n;
}

static void run(void *unused)
{
    guard_state *g = A.p->g;
    double began = xl_now();
    size_t bytes = 0;
    uint32_t loaded = 0;
    (void)unused;
    xl_mutex_lock(&A.lock);
    for (uint32_t i = 0; i < A.n && !A.stop && bytes <= most_bytes; i++) {
        program *x = &A.item[i];
        if (x->state != WAITING)
            continue;
        x->state = LOADING;
        xl_mutex_unlock(&A.lock);
        PJRT_LoadedExecutable *got = load(x, &bytes);
        xl_mutex_lock(&A.lock);
        x->loaded = got;
        x->state = got ? READY : GONE;
        loaded += got != NULL;
        xl_cond_wake_all(&A.changed);
    }
    xl_event e;
    xl_event_begin(g->run, &e, "ahead");
    xl_json_put_int(&e.j, "programs", loaded);
    xl_json_put_num(&e.j, "seconds", xl_now() - began);
    xl_event_end(g->run, &e);
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += (time_t)patience;
    while (!A.stop && count(READY) && !pthread_cond_timedwait(&A.changed.c, &A.lock.m, &until))
        ;
    for (uint32_t i = 0; i < A.n; i++) {
        program *x = &A.item[i];
        if (x->state == READY)
            let_go(x->loaded);
        x->state = GONE;
    }
    xl_mutex_unlock(&A.lock);
}

PJRT_LoadedExecutable *guard_ahead_take(PJRT_Client *client, const xl_digest *digest, xl_str options)
{
    PJRT_LoadedExecutable *out = NULL;
    if (!ours() || A.client != client)
        return NULL;
    xl_mutex_lock(&A.lock);
    for (uint32_t i = 0; i < A.n; i++) {
        program *x = &A.item[i];
        if (!xl_digest_eq(&x->digest, digest) || !alike(x->options, options))
            continue;
        while (x->state == LOADING)
            xl_cond_wait(&A.changed, &A.lock);
        if (x->state == READY)
            out = x->loaded;
        x->state = GONE;                                   /* not begun yet: the caller does it */
        xl_cond_wake_all(&A.changed);
        break;
    }
    xl_mutex_unlock(&A.lock);
    return out;
}

/* ---- a client comes and goes ---- */
static void command_line(char *digest)
{
    char out[1 << 15], cwd[4096];
    size_t room = sizeof out;
    size_t n = 0;
    FILE *f = fopen("/proc/self/cmdline", "re");
    if (f) {
        n = fread(out, 1, room / 2, f);
        fclose(f);
    }
    snprintf(out + n, room - n, "in %s", getcwd(cwd, sizeof cwd) ? cwd : "?");
    xl_digest d = xl_hash_of((xl_str){ out, n + strlen(out + n) });
    xl_digest_hex(&d, digest);                              /* arguments may be secrets, and the manifest can be read */
}

static void stop(void)
{
    if (A.pid != getpid())
        return;
    xl_mutex_lock(&A.lock);
    bool join = A.running;
    A.running = false;
    A.stop = true;
    xl_cond_wake_all(&A.changed);
    xl_mutex_unlock(&A.lock);
    if (join)
        xl_thread_join(&A.thread);
}

/* The first client of a process that has a cache; a second one beside it loads when it asks. */
void guard_ahead_start(guard_plugin *p, PJRT_Client *client)
{
    guard_state *g = p->g;
    static _Atomic bool taken;
    const char *off = getenv("XLANE_AHEAD");
    if (!g->cache || (off && !strcmp(off, "off")) || atomic_exchange(&taken, true))
        return;
    xl_error *err = guard_platform(p, client, &A.topology, &A.versions);
    if (!err)
        err = xl_cache_segment(g->cache, XL_CACHE_AHEAD, 16 << 20, &A.lists);
    if (err)
        guard_fault(g, "loading ahead", err);
    if (!A.lists || A.topology.failed || A.versions.failed)
        return;
    command_line(A.command);
    A.key.module = XL_STR("programs of a command");
    xl_cache_key_add(&A.key, "command", xl_str_of(A.command));
    xl_cache_key_add(&A.key, "flags", xl_str_of(p->flags));
    xl_cache_key_add(&A.key, "profile", xl_str_of(g->profile));
    xl_cache_key_add(&A.key, "plugin", xl_str_of(p->identity));
    xl_cache_key_add(&A.key, "versions", xl_buf_view(&A.versions));
    xl_cache_key_add(&A.key, "topology", xl_buf_view(&A.topology));
    xl_cache_key_seal(&A.key);
    A.p = p;
    A.pid = getpid();
    A.client = client;
    recall(g);
    if (A.n) {
        err = xl_thread_start(&A.thread, "xlane-ahead", run, NULL);
        A.running = !err;
        if (err)
            guard_fault(g, "loading ahead", err);
        else
            atexit(stop); /* after the plugin's own handlers were set, so before them */
    }
}

void guard_ahead_stop(guard_state *g, PJRT_Client *client)
{
    if (!ours() || A.client != client)
        return;
    stop();
    guard_ahead_write(g, true);
    A.client = NULL;
}
