#include "cpu/run/mail.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <inttypes.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/hash.h"
#include "base/log.h"
#include "base/thread.h"
#include "base/time.h"
#include "cpu/run/env.h"
#include "cpu/run/ring.h"

enum { MAGIC = 0x6c6d7832, TOKEN = 16, KEY = 64, SEGMENT_LEAST = 1 << 20, LIMIT_S = 300 };
static const double beat_s = 1;
typedef enum { HELLO = 1, MAIL, STOP, BEAT, BYE } kind;

/* On the wire and in memory alike: both sides are little-endian 64-bit machines. */
typedef struct {
    uint32_t magic, kind, run, from;
    uint64_t devices, group, bytes;
    uint64_t segment, size; /* by reference: 1 + the sender's descriptor, and the size of its memory */
    uint64_t number;        /* of the message among those to this process, from 1; 0: one that keeps no order */
    double sent;            /* by the wall clock, where it went through a ring; else 0 */
    xl_mail_tag tag;
} head;

typedef struct letter { struct letter *next; head h; char *data; double came; struct segment *seg; } letter;
typedef struct segment {
    int fd;
    uint32_t owner;
    size_t size;
    char *p;
    struct segment *next;
    bool busy;
} segment; /* its first bytes count references */
enum { SEGMENT_HEAD = 64 };

/* What the processes of a host have mapped of each other: messages to the owner, and what its threads sleep on. */
typedef struct {
    char token[2 * TOKEN];                                 /* to tell whether the memory is the one that was meant */
    _Alignas(64) xl_bell bell;
    xl_ring from[];                                        /* each process */
} inbox;

typedef struct {
    int fd;
    atomic_bool gone, bye;
    bool shares;
    uint32_t devices;
    int64_t pid;
    char host[128], net[96], shown[224];
    int inbox_fd;                                          /* its descriptor there */
    char inbox_token[2 * TOKEN + 1];
    inbox *inbox;                                          /* mapped; NULL where memory cannot be shared */
    xl_mutex send_lock;
    head in;                                               /* being received */
    size_t have;
    letter *into;
    uint64_t sent, came; /* numbers of the latest messages, to it and in order from it */
    letter *first, **last;
    letter *early;                                         /* those that came before others which take the other way */
    segment *mapped;
    double heard;                                          /* when something last came */
    uint32_t last_of; /* of the executions of this window: how often it was the last to enter */
    double behind;                                         /* and by how much in all, behind the one before it */
    bool late_warned, waits;
    char doing[160];
} peer;

struct xl_mail {
    uint32_t me, n;
    int wake, listener, inbox_fd;
    inbox *inbox;                                          /* NULL: no memory to share */
    xl_bell alone;                                         /* then */
    double spin;                                           /* of who waits for the others */
    xl_pool *_Atomic pool;                                 /* to be told that something came */
    xl_thread thread;
    bool started;
    atomic_bool closing;
    xl_mutex lock;                                         /* of letters, segments, runs and words about us */
    segment *mine;
    struct { uint64_t devices; uint32_t run; } *runs;
    size_t nrun;
    bool waits;
    char doing[160];
    uint32_t window;                                       /* executions counted so far */
    double window_began;
    struct xl_mail *next;                                  /* all of the process, for fork */
    peer peer[];
};

/* ---- fork: a child must not keep the connections of a parent that died ---- */
static xl_mutex all_lock = XL_MUTEX_INIT;
static xl_mail *all;
static void forked(void)
{
    for (xl_mail *m = all; m; m = m->next) {
        for (uint32_t q = 0; q < m->n; q++)
            if (m->peer[q].fd >= 0)
                close(m->peer[q].fd);
        if (m->listener >= 0)
            close(m->listener);
    }
    all = NULL;
}
static void watch_forks(void) { pthread_atfork(NULL, NULL, forked); }

/* ---- parcels and segments ---- */
struct xl_parcel { segment *seg; char *p; size_t bytes; };

static _Atomic uint32_t *refs_of(segment *s) { return (_Atomic uint32_t *)(void *)s->p; }

static segment *segment_new(uint32_t owner, size_t bytes)
{
    segment *s = calloc(1, sizeof *s);
    size_t size = SEGMENT_LEAST;
    while (size < bytes + SEGMENT_HEAD && size <= SIZE_MAX / 2)
        size *= 2;
    if (!s)
        return NULL;
    s->owner = owner;
    s->size = size;
    s->fd = memfd_create("xlane-mail", MFD_CLOEXEC);
    if (s->fd >= 0 && ftruncate(s->fd, (off_t)size) == 0)
        s->p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, s->fd, 0);
    if (!s->p || s->p == MAP_FAILED) {
        if (s->fd >= 0)
            close(s->fd);
        free(s);
        return NULL;
    }
    return s;
}

static void segments_free(segment *s)
{
    for (segment *next; s; s = next) {
        next = s->next;
        munmap(s->p, s->size);
        if (s->fd >= 0)
            close(s->fd);
        free(s);
    }
}

xl_parcel *xl_parcel_new(xl_mail *m, size_t bytes, bool shared)
{
    xl_parcel *p = calloc(1, sizeof *p);
    if (!p)
        return NULL;
    p->bytes = bytes;
    if (shared) {
        xl_mutex_lock(&m->lock);
        segment *best = NULL;
        for (segment *s = m->mine; s; s = s->next)
            if (!s->busy && !atomic_load(refs_of(s)) && s->size >= bytes + SEGMENT_HEAD &&
                (!best || s->size < best->size))
                best = s;
        if (!best && (best = segment_new(m->me, bytes))) {
            best->next = m->mine;
            m->mine = best;
        }
        if (best)
            best->busy = true;
        p->seg = best;
        xl_mutex_unlock(&m->lock);
    }
    if (p->seg)
        p->p = p->seg->p + SEGMENT_HEAD;
    else if (!(p->p = malloc(bytes ? bytes : 1))) {
        free(p);
        return NULL;
    }
    return p;
}

void *xl_parcel_data(xl_parcel *p) { return p->p; }
bool xl_parcel_shared(const xl_parcel *p) { return p->seg; }

void xl_parcel_drop(xl_mail *m, xl_parcel *p)
{
    if (!p)
        return;
    if (p->seg) {
        xl_mutex_lock(&m->lock);
        p->seg->busy = false;
        xl_mutex_unlock(&m->lock);
    } else {
        free(p->p);
    }
    free(p);
}

/* The sender's segment, mapped once and kept; under the lock. */
static segment *segment_map(xl_mail *m, peer *q, uint64_t fd, uint64_t size)
{
    char path[64];
    struct stat st;
    (void)m;
    for (segment *s = q->mapped; s; s = s->next)
        if ((uint64_t)s->owner == fd)
            return s->size == size ? s : NULL;
    segment *s = calloc(1, sizeof *s);
    if (!s)
        return NULL;
    snprintf(path, sizeof path, "/proc/%" PRId64 "/fd/%" PRIu64, q->pid, fd);
    int own = open(path, O_RDWR | O_CLOEXEC);
    if (own >= 0 && fstat(own, &st) == 0 && (uint64_t)st.st_size >= size && size > SEGMENT_HEAD)
        s->p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, own, 0);
    if (own >= 0)
        close(own);
    if (!s->p || s->p == MAP_FAILED) {
        free(s);
        return NULL;
    }
    s->fd = -1;
    s->owner = (uint32_t)fd;
    s->size = size;
    s->next = q->mapped;
    q->mapped = s;
    return s;
}

/* ---- sending ---- */
static void lost(xl_mail *m, uint32_t q) { m->peer[q].gone = true; }

static double limit_s(void) { return xl_env_get(XL_ENV_RANK_TIMEOUT, 1800); }

/* All of it, or an error; with `try`, nothing at all when the connection is busy. Under the send lock. */
static xl_error *put_bytes(xl_mail *m, uint32_t q, const void *p, size_t n, bool try)
{
    const char *at = p;
    double until = xl_now() + limit_s();
    bool begun = false;
    while (n) {
        ssize_t k = send(m->peer[q].fd, at, n, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (k > 0) {
            at += k;
            n -= (size_t)k;
            begun = true;
            continue;
        }
        if (k < 0 && errno == EINTR)
            continue;
        if (k < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
            if (try && !begun)
                return NULL;
            if (xl_now() > until || atomic_load(&m->closing))
                return XL_ERR(DEADLINE, "%s took nothing from its connection for %.0f s", m->peer[q].shown, limit_s());
            poll(&(struct pollfd){ .fd = m->peer[q].fd, .events = POLLOUT }, 1, 200);
            continue;
        }
        /* Not marked as gone yet: the receiving thread first takes what still came from it. */
        return XL_ERR(UNAVAILABLE, "%s has gone: %s", m->peer[q].shown, strerror(errno));
    }
    return NULL;
}

/* Through memory that q reads: whoever waits there is woken by us, and takes it from there. False: no such way, or it
 * is full. */
static bool put_ring(xl_mail *m, uint32_t q, head *h, const char *data)
{
    inbox *to = m->peer[q].inbox;
    if (!to)
        return false;
    h->sent = xl_now_wall();
    bool done = xl_ring_put(&to->from[m->me], h, sizeof *h, data, h->segment ? 0 : h->bytes);
    if (done)
        xl_bell_ring(&to->bell, SIZE_MAX, true);
    else
        h->sent = 0;
    return done;
}

static xl_error *post(xl_mail *m, uint32_t q, head *h, const char *data, bool try)
{
    peer *p = &m->peer[q];
    xl_error *err = NULL;
    h->magic = MAGIC;
    h->from = m->me;
    xl_mutex_lock(&p->send_lock);
    if (p->fd < 0 || p->gone)
        err = XL_ERR(UNAVAILABLE, "%s has gone", p->shown);
    bool numbered = !err && (h->kind == MAIL || h->kind == STOP);
    if (numbered)
        h->number = ++p->sent;
    if (!err && !(h->kind == MAIL && put_ring(m, q, h, data))) {
        err = put_bytes(m, q, h, sizeof *h, try);
        if (!err && data && h->bytes && !h->segment)
            err = put_bytes(m, q, data, h->bytes, false);
    }
    xl_mutex_unlock(&p->send_lock);
    return err;
}

xl_error *xl_mail_send(xl_mail *m, uint32_t to, const xl_channel *c, const xl_mail_tag *tag, xl_parcel *p, size_t from,
                       size_t bytes)
{
    head h = { .kind = MAIL, .run = c->run, .devices = c->devices, .group = c->group, .bytes = bytes, .tag = *tag };
    bool whole = p->seg && m->peer[to].shares;
    if (whole) {
        h.segment = (uint64_t)p->seg->fd + 1;
        h.size = p->seg->size;
        h.bytes = p->bytes;
        atomic_fetch_add(refs_of(p->seg), 1);
    }
    xl_error *err = post(m, to, &h, p->p + from, false);
    if (err && whole)
        atomic_fetch_sub(refs_of(p->seg), 1);
    return err;
}

void xl_mail_stop(xl_mail *m, uint32_t to, const xl_channel *c, const char *why)
{
    size_t n = strlen(why);
    head h = { .kind = STOP, .run = c->run, .devices = c->devices, .bytes = n < 2000 ? n : 2000 };
    xl_error_free(post(m, to, &h, why, false));
}

/* ---- receiving ---- */
static void letter_free(letter *l)
{
    if (!l)
        return;
    if (l->seg)
        atomic_fetch_sub(refs_of(l->seg), 1);
    else
        free(l->data);
    free(l);
}

/* Under the lock: a letter with room for what its head says; NULL when the head is one that we cannot follow. */
static letter *letter_new(xl_mail *m, uint32_t q, const head *h)
{
    peer *p = &m->peer[q];
    letter *l = calloc(1, sizeof *l);
    p->heard = xl_now();
    if (!l)
        return NULL;
    l->h = *h;
    l->h.tag.text[sizeof h->tag.text - 1] = 0;
    if (h->segment) {
        l->seg = segment_map(m, p, h->segment - 1, h->size);
        l->data = l->seg ? l->seg->p + SEGMENT_HEAD : NULL;
    } else {
        l->data = malloc(h->bytes + 1);
    }
    if (l->data && (!l->seg || h->bytes <= h->size - SEGMENT_HEAD)) {
        if (!l->seg)
            l->data[h->bytes] = 0;
        return l;
    }
    letter_free(l);
    return NULL;
}

static bool head_is_sane(const head *h, uint32_t q)
{
    return h->magic == MAGIC && h->from == q && h->kind >= MAIL && h->kind <= BYE && h->bytes <= (uint64_t)1 << 46;
}

/* Of a connection. */
static bool begin_letter(xl_mail *m, uint32_t q)
{
    peer *p = &m->peer[q];
    if (!head_is_sane(&p->in, q))
        return false;
    if (p->in.kind == BYE) {
        p->bye = true;
        return true;
    }
    xl_mutex_lock(&m->lock);
    p->into = letter_new(m, q, &p->in);
    xl_mutex_unlock(&m->lock);
    return p->into;
}

/* Under the lock. Messages take two ways, the connection and the ring: one that overtook others waits for them. */
static void hang(peer *p, letter *l)
{
    letter **at = &p->early;
    while (*at && (*at)->h.number < l->h.number)
        at = &(*at)->next;
    l->next = *at;
    *at = l;
    while (p->early && p->early->h.number <= p->came + 1) {
        l = p->early;
        p->early = l->next;
        l->next = NULL;
        p->came = l->h.number;
        *p->last = l;
        p->last = &l->next;
    }
}

/* Under the lock: what is in the ring from q. False when that is not what we write there. */
static bool drain(xl_mail *m, uint32_t q)
{
    peer *p = &m->peer[q];
    xl_ring *r = m->inbox ? &m->inbox->from[q] : NULL;
    for (size_t n; r && (n = xl_ring_has(r)); ) {
        head h;
        if (n == SIZE_MAX || n < sizeof h)
            return false;
        xl_ring_peek(r, 0, &h, sizeof h);
        size_t body = h.segment ? 0 : h.bytes;
        if (!head_is_sane(&h, q) || h.kind != MAIL || body > n - sizeof h)
            return false;
        letter *l = letter_new(m, q, &h);
        if (!l)
            return false;
        if (body)
            xl_ring_peek(r, sizeof h, l->data, body);
        xl_ring_skip(r, sizeof h + body);
        double ago = xl_now_wall() - h.sent;               /* it may have lain there while we were at work */
        l->came = xl_now() - (ago > 0 ? ago : 0);
        hang(p, l);
    }
    return true;
}

static void tell(xl_mail *m)
{
    xl_pool *pool = atomic_load(&m->pool);
    if (pool)
        xl_pool_tell(pool, INT32_MAX);
}

static void deliver(xl_mail *m, uint32_t q)
{
    peer *p = &m->peer[q];
    letter *l = p->into;
    p->into = NULL;
    p->have = 0;
    if (!l)
        return;
    l->came = xl_now();
    xl_mutex_lock(&m->lock);
    if (l->h.kind == BEAT) {
        snprintf(p->doing, sizeof p->doing, "%s", l->data);
        p->waits = l->h.run;
    } else {
        hang(p, l);
        l = NULL;
    }
    xl_mutex_unlock(&m->lock);
    if (l)
        letter_free(l);
    else
        tell(m);
}

/* What is there; false when the connection has ended. */
static bool receive(xl_mail *m, uint32_t q)
{
    peer *p = &m->peer[q];
    for (;;) {
        bool headed = p->have >= sizeof p->in;
        size_t body = headed && p->into && !p->into->seg ? p->in.bytes : 0;
        if (headed && p->have - sizeof p->in >= body) {
            deliver(m, q);
            continue;
        }
        char *to = headed ? p->into->data + (p->have - sizeof p->in) : (char *)&p->in + p->have;
        size_t want = headed ? body - (p->have - sizeof p->in) : sizeof p->in - p->have;
        ssize_t k = recv(p->fd, to, want, MSG_DONTWAIT);
        if (k < 0 && errno == EINTR)
            continue;
        if (k < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
            return true;
        if (k <= 0)
            return false;
        p->have += (size_t)k;
        if (!headed && p->have == sizeof p->in && !begin_letter(m, q))
            return false;
    }
}

static void beat(xl_mail *m)
{
    char text[160];
    xl_mutex_lock(&m->lock);
    snprintf(text, sizeof text, "%s", m->doing);
    uint32_t waits = m->waits;
    xl_mutex_unlock(&m->lock);
    for (uint32_t q = 0; q < m->n; q++)
        if (q != m->me && !m->peer[q].gone) {
            head h = { .magic = MAGIC, .kind = BEAT, .run = waits, .from = m->me, .bytes = strlen(text) };
            char whole[sizeof h + sizeof text];
            memcpy(whole, &h, sizeof h);
            memcpy(whole + sizeof h, text, h.bytes);
            if (pthread_mutex_trylock(&m->peer[q].send_lock.m))
                continue;                                  /* somebody is sending: sign of life enough */
            xl_error_free(put_bytes(m, q, whole, sizeof h + h.bytes, true));
            xl_mutex_unlock(&m->peer[q].send_lock);
        }
}

static void carry(void *arg)
{
    xl_mail *m = arg;
    struct pollfd *fd = calloc(m->n + 1, sizeof *fd);
    double next = xl_now() + beat_s;
    while (fd && !atomic_load(&m->closing)) {
        for (uint32_t q = 0; q < m->n; q++)
            fd[q] = (struct pollfd){ .fd = q == m->me || m->peer[q].gone ? -1 : m->peer[q].fd, .events = POLLIN };
        fd[m->n] = (struct pollfd){ .fd = m->wake, .events = POLLIN };
        double left = next - xl_now();
        poll(fd, m->n + 1, left > 0 ? (int)(left * 1000) + 1 : 0);
        for (uint32_t q = 0; q < m->n; q++)
            if (fd[q].revents && !receive(m, q)) {
                lost(m, q);
                tell(m);
            }
        if (xl_now() >= next) {
            beat(m);
            tell(m);                                       /* who waits looks at the time */
            next = xl_now() + beat_s;
        }
    }
    free(fd);
}

/* ---- taking ---- */
static bool same_run(const letter *l, const xl_channel *c) { return l->h.devices == c->devices && l->h.run == c->run; }

/* Under the lock: where the first letter of the channel hangs, or NULL. *later: it has gone on to a later run. */
static letter **find(peer *p, const xl_channel *c, bool *stop, bool *later)
{
    *stop = *later = false;
    for (letter **at = &p->first; *at; at = &(*at)->next) {
        letter *l = *at;
        if (l->h.kind == STOP && same_run(l, c)) {
            *stop = true;
            return at;
        }
        if (l->h.kind == MAIL && same_run(l, c) && l->h.group == c->group)
            return at;
        if (l->h.devices == c->devices && (int32_t)(l->h.run - c->run) > 0)
            *later = true;
    }
    return NULL;
}

xl_mail_state xl_mail_ready(xl_mail *m, uint32_t from, const xl_channel *c)
{
    bool stop, later;
    xl_mutex_lock(&m->lock);
    bool gone = m->peer[from].gone;                        /* first: what it wrote before it went is in the ring */
    if (!drain(m, from)) {
        m->peer[from].gone = true;
        gone = true;
    }
    bool here = find(&m->peer[from], c, &stop, &later);
    xl_mail_state s = here && !stop ? XL_MAIL_HERE : here || later || gone ? XL_MAIL_NEVER : XL_MAIL_WAIT;
    xl_mutex_unlock(&m->lock);
    return s;
}

static void unhang(peer *p, letter **at)
{
    letter *l = *at;
    *at = l->next;
    if (!*at)
        p->last = at;
    l->next = NULL;
}

xl_error *xl_mail_take(xl_mail *m, uint32_t from, const xl_channel *c, xl_letter *out)
{
    peer *p = &m->peer[from];
    bool stop, later;
    xl_error *err = NULL;
    xl_mutex_lock(&m->lock);
    letter **at = find(p, c, &stop, &later), *l = at ? *at : NULL;
    if (l && stop)
        err = XL_ERR(ABORTED, "%s stopped: %.*s", p->shown, (int)l->h.bytes, l->data);
    else if (l) {
        unhang(p, at);
        *out = (xl_letter){ &l->h.tag, l->data, l->h.bytes, l->seg, l->came, l };
    } else if (p->gone && !p->bye)
        err = XL_ERR(UNAVAILABLE, "%s has died: its connection closed%s%s", p->shown, *p->doing ? "; it last was " : "",
                     p->doing);
    else if (p->gone)
        err = XL_ERR(UNAVAILABLE, "%s has ended and closed its client%s%s", p->shown, *p->doing ? "; it last was " : "",
                     p->doing);
    else if (later)
        err = XL_ERR(ABORTED, "%s has ended this program and runs the next one: the two do not run the same program",
                     p->shown);
    else
        err = XL_ERR(INTERNAL, "nothing has come from %s", p->shown);
    xl_mutex_unlock(&m->lock);
    return err;
}

void xl_letter_drop(xl_mail *m, xl_letter *l)
{
    (void)m;
    letter_free(l->own);
    l->own = NULL;
}

uint32_t xl_mail_run(xl_mail *m, uint64_t devices)
{
    uint32_t run = 0;
    size_t i = 0;
    xl_mutex_lock(&m->lock);
    while (i < m->nrun && m->runs[i].devices != devices)
        i++;
    if (i == m->nrun) {
        void *more = realloc(m->runs, (m->nrun + 1) * sizeof *m->runs);
        if (more) {
            m->runs = more;
            m->runs[m->nrun].devices = devices;
            m->runs[m->nrun++].run = 0;
        }
    }
    if (i < m->nrun)
        run = ++m->runs[i].run;
    for (uint32_t q = 0; q < m->n; q++)
        for (letter **at = &m->peer[q].first; *at; )
            if ((*at)->h.devices == devices && (int32_t)((*at)->h.run - run) < 0) {
                letter *l = *at;
                unhang(&m->peer[q], at);
                letter_free(l);
            } else {
                at = &(*at)->next;
            }
    xl_mutex_unlock(&m->lock);
    return run;
}

void xl_mail_entered(xl_mail *m, const char *program, const uint32_t *process, const double *when, uint32_t n)
{
    enum { WINDOW = 20, MOSTLY = 16 };
    static const double least = 0.01, part = 0.2;          /* seconds; of the time between executions */
    uint32_t last = 0;
    double before = 0;
    char text[512] = "";
    for (uint32_t k = 1; k < n; k++)
        if (when[k] > when[last])
            last = k;
    for (uint32_t k = 0, first = 1; k < n; k++)
        if (k != last && (first || when[k] > before)) {
            before = when[k];
            first = 0;
        }
    xl_mutex_lock(&m->lock);
    if (!m->window++)
        m->window_began = xl_now();
    m->peer[process[last]].last_of++;
    m->peer[process[last]].behind += when[last] - before;
    double each = (xl_now() - m->window_began) / WINDOW;
    for (uint32_t q = 0; q < m->n && m->window > WINDOW; q++) {
        peer *p = &m->peer[q];
        double mean = p->last_of ? p->behind / p->last_of : 0;
        if (q != m->me && p->last_of >= MOSTLY && mean > least && mean > part * each && !p->late_warned) {
            p->late_warned = true;
            snprintf(text, sizeof text,
                     "%s is late to enter %s: the last in %u of %u executions, %.0f ms behind the others", p->shown,
                     program, p->last_of, (unsigned)WINDOW + 1, mean * 1000);
        }
    }
    if (m->window > WINDOW) {
        m->window = 0;
        for (uint32_t q = 0; q < m->n; q++) {
            m->peer[q].last_of = 0;
            m->peer[q].behind = 0;
        }
    }
    xl_mutex_unlock(&m->lock);
    if (*text)
        XL_LOG(WARN, "%s", text);
}

bool xl_mail_waits(xl_mail *m, uint32_t process)
{
    peer *p = &m->peer[process];
    xl_mutex_lock(&m->lock);
    bool yes = p->waits && xl_now() - p->heard < 3 * beat_s;
    xl_mutex_unlock(&m->lock);
    return yes;
}

void xl_mail_doing(xl_mail *m, bool waits, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    xl_mutex_lock(&m->lock);
    m->waits = waits;
    vsnprintf(m->doing, sizeof m->doing, fmt, ap);
    xl_mutex_unlock(&m->lock);
    va_end(ap);
}

void xl_mail_tell(xl_mail *m, uint32_t process, char *text, size_t size)
{
    peer *p = &m->peer[process];
    xl_mutex_lock(&m->lock);
    double silent = xl_now() - p->heard;
    if (silent > 3 * beat_s)
        snprintf(text, size, "no sign of life for %.0f s: it is stopped, or its host cannot be reached%s%s", silent,
                 *p->doing ? "; it last was " : "", p->doing);
    else
        snprintf(text, size, "it is alive%s%s", *p->doing ? ", " : "", p->doing);
    xl_mutex_unlock(&m->lock);
}

/* ---- joining ---- */
static void hex(char *out, const unsigned char *p, size_t n)
{
    for (size_t i = 0; i < n; i++)
        snprintf(out + 2 * i, 3, "%02x", p[i]);
}

/* Processes with the same answer reach each other by the loopback interface. */
static void network_name(char *out, size_t size)
{
    char boot[64] = "";
    struct stat st = { 0 };
    int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
    ssize_t n = fd >= 0 ? read(fd, boot, sizeof boot - 1) : -1;
    if (fd >= 0)
        close(fd);
    boot[n > 0 ? n : 0] = 0;
    boot[strcspn(boot, "\n ")] = 0;
    (void)!stat("/proc/self/ns/net", &st);
    snprintf(out, size, "%s:%llu", *boot ? boot : "-", (unsigned long long)st.st_ino);
}

/* Where other hosts reach this one: XLANE_CPU_ADDRESS, else the first interface that is up. */
static void own_address(char *out, size_t size)
{
    const char *v = getenv("XLANE_CPU_ADDRESS");
    struct ifaddrs *list = NULL;
    snprintf(out, size, "%s", v && *v ? v : "127.0.0.1");
    if ((v && *v) || getifaddrs(&list))
        return;
    for (struct ifaddrs *i = list; i; i = i->ifa_next)
        if (i->ifa_addr && i->ifa_addr->sa_family == AF_INET && (i->ifa_flags & IFF_UP) &&
            !(i->ifa_flags & IFF_LOOPBACK)) {
            inet_ntop(AF_INET, &((struct sockaddr_in *)(void *)i->ifa_addr)->sin_addr, out, (socklen_t)size);
            break;
        }
    freeifaddrs(list);
}

static xl_error *store_get(const xl_mail_opts *o, uint32_t q, const char *epoch, const char *what, double until,
                           double limit, xl_buf *out)
{
    char key[KEY];
    snprintf(key, sizeof key, "xlane/mail/%s/%u/%s", epoch, q, what);
    double left = until - xl_now();
    out->n = 0;
    xl_error *err = o->store.get(o->store.ctx, key, left > 0.001 ? (int64_t)(left * 1000) : 1, out);
    if (err) {
        xl_error *e = XL_ERR(
            DEADLINE,
            "process %u of %u did not join within %.0f s: is it running, and was it started with the same coordinator? "
            "XLANE_CPU_JOIN_TIMEOUT sets the limit (%s)",
            q, o->n, limit, xl_error_message(err));
        xl_error_free(err);
        return e;
    }
    xl_buf_putc(out, 0);
    return out->failed ? XL_ERR(EXHAUSTED, "no memory") : NULL;
}

static xl_error *store_put(const xl_mail_opts *o, const char *epoch, const char *what, const char *value)
{
    char key[KEY];
    snprintf(key, sizeof key, "xlane/mail/%s/%u/%s", epoch, o->me, what);
    xl_error *err = o->store.put(o->store.ctx, key, value);
    return err ? xl_error_wrap(err,
                               "process %u of %u cannot join; a process that was restarted alone cannot: restart all",
                               o->me, o->n)
               : NULL;
}

static xl_error *listen_at(xl_mail *m, bool one_network, char *address, size_t size, uint16_t *port)
{
    struct sockaddr_in a = { .sin_family = AF_INET,
                             .sin_addr.s_addr = htonl(one_network ? INADDR_LOOPBACK : INADDR_ANY) };
    socklen_t n = sizeof a;
    m->listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (m->listener < 0 || bind(m->listener, (struct sockaddr *)&a, sizeof a) || listen(m->listener, (int)m->n + 16) ||
        getsockname(m->listener, (struct sockaddr *)&a, &n))
        return XL_ERR(UNAVAILABLE, "no socket for the other processes to connect to: %s", strerror(errno));
    *port = ntohs(a.sin_port);
    if (one_network)
        snprintf(address, size, "127.0.0.1");
    else
        own_address(address, size);
    return NULL;
}

static void tune(int fd)
{
    int one = 1, room = 4 << 20;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &room, sizeof room);
    setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &room, sizeof room);
}

typedef struct { head h; char token[TOKEN * 2]; } hello;

static xl_error *connect_to(xl_mail *m, uint32_t q, const char *at, double until)
{
    char host[64], token[2 * TOKEN + 1];
    unsigned port;
    int fd = -1;
    if (sscanf(at, "%63s %u %32s", host, &port, token) != 3)
        return XL_ERR(INTERNAL, "process %u gave an address that cannot be read: %.60s", q, at);
    struct sockaddr_in a = { .sin_family = AF_INET, .sin_port = htons((uint16_t)port) };
    if (inet_pton(AF_INET, host, &a.sin_addr) != 1) {
        struct addrinfo hint = { .ai_family = AF_INET, .ai_socktype = SOCK_STREAM }, *got = NULL;
        if (getaddrinfo(host, NULL, &hint, &got) || !got)
            return XL_ERR(UNAVAILABLE, "%s: its address '%s' has no meaning here: set XLANE_CPU_ADDRESS there",
                          m->peer[q].shown, host);
        a.sin_addr = ((struct sockaddr_in *)(void *)got->ai_addr)->sin_addr;
        freeaddrinfo(got);
    }
    for (;;) {
        fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        int r = fd < 0 ? -1 : connect(fd, (struct sockaddr *)&a, sizeof a), e = errno;
        if (r && e == EINPROGRESS) {
            socklen_t n = sizeof e;
            e = ETIMEDOUT;
            if (poll(&(struct pollfd){ .fd = fd, .events = POLLOUT }, 1, 2000) == 1)
                getsockopt(fd, SOL_SOCKET, SO_ERROR, &e, &n);
            r = e ? -1 : 0;
        }
        if (!r)
            break;
        if (fd >= 0)
            close(fd);
        if (xl_now() > until)
            return XL_ERR(UNAVAILABLE,
                          "%s cannot be reached at %s:%u: %s; XLANE_CPU_ADDRESS says where a process is to be reached",
                          m->peer[q].shown, host, port, strerror(e));
        xl_sleep(0.05);
    }
    tune(fd);
    m->peer[q].fd = fd;
    hello hi = { .h = { .magic = MAGIC, .kind = HELLO, .from = m->me, .bytes = sizeof hi.token } };
    memcpy(hi.token, token, sizeof hi.token);
    return put_bytes(m, q, &hi, sizeof hi, false);
}

/* Connections of processes above us, whoever else knocks. */
static xl_error *accept_all(xl_mail *m, const char *token, double until, double limit)
{
    uint32_t want = m->n - 1 - m->me;
    while (want) {
        double left = until - xl_now();
        if (left <= 0) {
            for (uint32_t q = m->me + 1; q < m->n; q++)
                if (m->peer[q].fd < 0)
                    return XL_ERR(DEADLINE, "%s did not connect within %.0f s; XLANE_CPU_JOIN_TIMEOUT sets the limit",
                                  m->peer[q].shown, limit);
        }
        if (poll(&(struct pollfd){ .fd = m->listener, .events = POLLIN }, 1,
                 left < 1 ? (int)(left * 1000) + 1 : 1000) != 1)
            continue;
        int fd = accept4(m->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (fd < 0)
            continue;
        hello hi = { 0 };
        size_t have = 0;
        double soon = xl_now() + 5;
        while (have < sizeof hi && xl_now() < soon) {
            ssize_t k = recv(fd, (char *)&hi + have, sizeof hi - have, 0);
            if (k > 0)
                have += (size_t)k;
            else if (k < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR))
                poll(&(struct pollfd){ .fd = fd, .events = POLLIN }, 1, 100);
            else
                break;
        }
        uint32_t q = have == sizeof hi ? hi.h.from : m->n;
        if (q <= m->me || q >= m->n || m->peer[q].fd >= 0 || hi.h.magic != MAGIC || hi.h.kind != HELLO ||
            memcmp(hi.token, token, sizeof hi.token)) {
            close(fd);
            continue;
        }
        tune(fd);
        m->peer[q].fd = fd;
        want--;
    }
    return NULL;
}

static size_t inbox_bytes(uint32_t n) { return sizeof(inbox) + n * sizeof(xl_ring); }

static inbox *inbox_map(int fd, uint32_t n)
{
    void *p = fd < 0 ? MAP_FAILED : mmap(NULL, inbox_bytes(n), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    return p == MAP_FAILED ? NULL : p;
}

/* Without memory to share, connections do. */
static void inbox_new(xl_mail *m, const char *token)
{
    m->inbox_fd = memfd_create("xlane-mail-inbox", MFD_CLOEXEC);
    if (m->inbox_fd >= 0 && ftruncate(m->inbox_fd, (off_t)inbox_bytes(m->n)) == 0)
        m->inbox = inbox_map(m->inbox_fd, m->n);
    if (m->inbox)
        memcpy(m->inbox->token, token, sizeof m->inbox->token);
}

/* Whether q's memory can be mapped here: then its inbox says what it published. */
static bool can_share(xl_mail *m, peer *p)
{
    char path[64];
    struct stat st;
    if (!m->inbox || !xl_env_get(XL_ENV_SHARED_MEMORY, 1))
        return false;
    snprintf(path, sizeof path, "/proc/%" PRId64 "/fd/%d", p->pid, p->inbox_fd);
    int fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd >= 0 && fstat(fd, &st) == 0 && st.st_size == (off_t)inbox_bytes(m->n))
        p->inbox = inbox_map(fd, m->n);
    if (fd >= 0)
        close(fd);
    if (p->inbox && memcmp(p->inbox->token, p->inbox_token, sizeof p->inbox->token)) {
        munmap(p->inbox, inbox_bytes(m->n));
        p->inbox = NULL;
    }
    return p->inbox;
}

xl_error *xl_mail_open(const xl_mail_opts *o, xl_mail **out)
{
    static xl_once once = XL_ONCE_INIT;
    xl_error *err = NULL;
    xl_buf b = { 0 };
    unsigned char raw[TOKEN];
    char token[2 * TOKEN + 1], inbox_token[2 * TOKEN + 1], epoch[16], net[96], host[128] = "host", line[512],
                                                                               address[64];
    uint16_t port = 0;
    xl_mail *m = calloc(1, sizeof *m + o->n * sizeof *m->peer);
    *out = NULL;
    if (!m)
        return XL_ERR(EXHAUSTED, "no memory for %u processes", o->n);
    double limit = xl_env_get(XL_ENV_JOIN_TIMEOUT, LIMIT_S), until = xl_now() + limit;
    xl_once_run(&once, watch_forks);
    snprintf(epoch, sizeof epoch, "%u", o->epoch);
    m->me = o->me;
    m->n = o->n;
    m->listener = m->inbox_fd = -1;
    xl_mutex_init(&m->lock);
    for (uint32_t q = 0; q < m->n; q++) {
        peer *p = &m->peer[q];
        p->fd = -1;
        p->last = &p->first;
        xl_mutex_init(&p->send_lock);
        snprintf(p->shown, sizeof p->shown, "process %u of %u", q, m->n);
    }
    m->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    XL_DO(xl_random(raw, sizeof raw));
    hex(token, raw, sizeof raw);
    XL_DO(xl_random(raw, sizeof raw));
    hex(inbox_token, raw, sizeof raw);
    inbox_new(m, inbox_token);
    gethostname(host, sizeof host - 1);
    network_name(net, sizeof net);
    snprintf(line, sizeof line, "%u %lld %s %s %d %s", o->devices, (long long)getpid(), *host ? host : "host", net,
             m->inbox_fd, inbox_token);
    XL_DO(store_put(o, epoch, "who", line));
    bool one_network = true;
    for (uint32_t q = 0; q < m->n; q++) {
        peer *p = &m->peer[q];
        long long pid;
        char at[128];
        XL_DO(store_get(o, q, epoch, "who", until, limit, &b));
        if (sscanf(b.p, "%u %lld %127s %95s %d %32s", &p->devices, &pid, at, p->net, &p->inbox_fd, p->inbox_token) !=
            6) {
            err = XL_ERR(INTERNAL, "process %u sent an unreadable description of itself: %.80s", q, b.p);
            goto out;
        }
        p->pid = pid;
        one_network = one_network && !strcmp(p->net, net);
        snprintf(p->shown, sizeof p->shown, "process %u of %u (host %s, pid %lld)", q, m->n, at, pid);
        snprintf(p->host, sizeof p->host, "%s", at);
    }
    XL_DO(listen_at(m, one_network, address, sizeof address, &port));
    snprintf(line, sizeof line, "%s %u %s", address, port, token);
    XL_DO(store_put(o, epoch, "at", line));
    for (uint32_t q = 0; q < m->me; q++) {
        XL_DO(store_get(o, q, epoch, "at", until, limit, &b));
        XL_DO(connect_to(m, q, b.p, until));
    }
    XL_DO(accept_all(m, token, until, limit));
    m->spin = xl_mail_neighbours(m) <= (uint32_t)xl_thread_cores() ? XL_BELL_SPIN : 0;
    for (uint32_t q = 0; q < m->n; q++) {
        m->peer[q].shares = q != m->me && can_share(m, &m->peer[q]);
        m->peer[q].heard = xl_now();
    }
    XL_DO(xl_thread_start(&m->thread, "xlane-mail", carry, m));
    m->started = true;
    xl_mutex_lock(&all_lock);
    m->next = all;
    all = m;
    xl_mutex_unlock(&all_lock);
    *out = m;
out:
    xl_buf_fini(&b);
    if (err)
        xl_mail_close(m);
    return err;
}

void xl_mail_close(xl_mail *m)
{
    if (!m)
        return;
    for (uint32_t q = 0; q < m->n && m->started; q++)
        if (q != m->me && !m->peer[q].gone)
            xl_error_free(post(m, q, &(head){ .kind = BYE }, NULL, true));
    atomic_store(&m->closing, true);
    if (m->started) {
        (void)!write(m->wake, &(uint64_t){ 1 }, 8);
        xl_thread_join(&m->thread);
        xl_mutex_lock(&all_lock);
        for (xl_mail **at = &all; *at; at = &(*at)->next)
            if (*at == m) {
                *at = m->next;
                break;
            }
        xl_mutex_unlock(&all_lock);
    }
    for (uint32_t q = 0; q < m->n; q++) {
        peer *p = &m->peer[q];
        if (p->fd >= 0)
            close(p->fd);
        letter_free(p->into);
        for (letter *l = p->first, *next; l; l = next) {
            next = l->next;
            letter_free(l);
        }
        for (letter *l = p->early, *next; l; l = next) {
            next = l->next;
            letter_free(l);
        }
        if (p->inbox)
            munmap(p->inbox, inbox_bytes(m->n));
        segments_free(p->mapped);
        xl_mutex_fini(&p->send_lock);
    }
    segments_free(m->mine);
    if (m->listener >= 0)
        close(m->listener);
    if (m->inbox)
        munmap(m->inbox, inbox_bytes(m->n));
    if (m->inbox_fd >= 0)
        close(m->inbox_fd);
    if (m->wake >= 0)
        close(m->wake);
    free(m->runs);
    xl_mutex_fini(&m->lock);
    free(m);
}

static xl_bell *bell(xl_mail *m) { return m->inbox ? &m->inbox->bell : &m->alone; }
void xl_mail_serve(xl_mail *m, xl_pool *pool)
{
    xl_pool *before = atomic_exchange(&m->pool, pool);
    if (before)
        xl_pool_link(before, NULL);
    if (pool)
        xl_pool_link(pool, bell(m));
}

uint32_t xl_mail_me(const xl_mail *m) { return m->me; }

unsigned xl_mail_news(xl_mail *m) { return xl_bell_news(bell(m)); }
void xl_mail_rest(xl_mail *m, unsigned seen, int64_t ms) { xl_bell_wait(bell(m), seen, m->spin, ms, true); }

uint32_t xl_mail_count(const xl_mail *m) { return m->n; }
uint32_t xl_mail_devices(const xl_mail *m, uint32_t process) { return m->peer[process].devices; }
bool xl_mail_shares(const xl_mail *m, uint32_t process) { return m->peer[process].shares; }
const char *xl_mail_name(const xl_mail *m, uint32_t process) { return m->peer[process].shown; }
uint32_t xl_mail_neighbours(const xl_mail *m)
{
    uint32_t n = 1;
    for (uint32_t q = 0; q < m->n; q++)
        n += q != m->me && !strcmp(m->peer[q].host, m->peer[m->me].host);
    return n;
}
