#include "train/data.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/hash.h"
#include "base/thread.h"

enum { AHEAD = 4, HEADER = 1024, MAGIC = 20240520 };

typedef struct { int64_t from, n; } doc;                 /* in tokens */

struct xl_data {
    xl_arena arena;
    const char *path;
    int fd;
    int width;                                           /* bytes of a token */
    int64_t skip;                                        /* bytes before the first */
    int64_t first, count;                                /* tokens of our part */
    int64_t vocab, batch;
    uint64_t seed;
    bool valid, pack;
    int64_t time[XL_BUCKETS_MAX];
    int ntime;
    doc *docs;                                           /* NULL: a stream */
    int64_t ndoc, capdoc, cut;
    int64_t units;                                       /* windows, or documents */
    const char *about;
    /* where we are in the order of documents; only the thread (or the start) moves it */
    int64_t epoch, at;
    int64_t *queue[XL_BUCKETS_MAX];
    int nqueue[XL_BUCKETS_MAX];
    /* the ring */
    xl_batch ring[AHEAD + 1];
    xl_mutex lock;
    xl_cond more, room;
    int64_t made, taken, number;
    xl_error *failed;
    bool stop, running;
    xl_thread thread;
};

/* ---- a permutation of 0 .. n-1 without a table: a Feistel network on the next power of four, walked until it is
 * inside ---- */
static uint64_t mix64(uint64_t z)
{
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

static int64_t shuffled(int64_t i, int64_t n, uint64_t key)
{
    int half = 1;
    while (((int64_t)1 << (2 * half)) < n)
        half++;
    uint64_t mask = ((uint64_t)1 << half) - 1, x = (uint64_t)i;
    do {
        uint64_t l = x >> half, r = x & mask;
        for (int k = 0; k < 4; k++) {
            uint64_t t = r;
            r = l ^ (mix64(r + key + (uint64_t)k * 0x9e3779b97f4a7c15u) & mask);
            l = t;
        }
        x = l << half | r;
    } while (x >= (uint64_t)n);
    return (int64_t)x;
}

/* ---- reading ----------------------------------------------------------------------------------------------------- */
static xl_error *read_tokens(xl_data *d, int64_t from, int64_t n, int32_t *out)
{
    /* the raw bytes go to the end of the output, then are widened from its front */
    char *raw = (char *)out + (size_t)n * (4 - (size_t)d->width);
    size_t want = (size_t)n * (size_t)d->width, have = 0;
    while (have < want) {
        ssize_t r =
            pread(d->fd, raw + have, want - have, (off_t)(d->skip + (d->first + from) * d->width) + (off_t)have);
        if (r < 0 && errno == EINTR)
            continue;
        if (r < 0)
            return XL_ERR(UNAVAILABLE, "reading %s: %s", d->path, strerror(errno));
        if (r == 0)
            return XL_ERR(DATA_LOSS, "%s has become shorter while it was in use; put it back and resume", d->path);
        have += (size_t)r;
    }
    for (int64_t i = 0; i < n; i++) {
        int32_t t;
        if (d->width == 1)
            t = (unsigned char)raw[i];
        else {
            uint16_t w;
            memcpy(&w, raw + 2 * i, 2);
            t = w;
        }
        if (t >= d->vocab)
            return XL_ERR(RANGE, "%s: token %lld is %d, beyond the vocabulary of %lld; set model.vocab", d->path,
                          (long long)(d->first + from + i), t, (long long)d->vocab);
        memcpy(out + i, &t, sizeof t);
    }
    return NULL;
}

static xl_error *find_docs(xl_data *d, int64_t end)
{
    xl_error *err = NULL;
    enum { PIECE = 1 << 16 };
    int32_t *buf = malloc(PIECE * sizeof *buf);
    int64_t start = 0;
    if (!buf)
        return XL_ERR(EXHAUSTED, "no memory to look for documents");
    for (int64_t at = 0; at < d->count; at += PIECE) {
        int64_t n = d->count - at < PIECE ? d->count - at : PIECE;
        XL_DO(read_tokens(d, at, n, buf));
        for (int64_t i = 0; i < n; i++)
            if (buf[i] == end || at + i + 1 == d->count) {
                doc x = { start, at + i + 1 - start };   /* with its end: that is what its last token predicts */
                start = at + i + 1;
                if (x.n < 2)
                    continue;
                d->cut += x.n - 1 > d->time[d->ntime - 1];
                XL_PUSH(&d->arena, d->docs, d->ndoc, d->capdoc, x);
            }
    }
out:
    free(buf);
    return err;
}

static xl_error *open_format(xl_data *d, const xl_config *c, const char **word, int64_t *total)
{
    struct stat st;
    const char *f = c->data.format ? c->data.format : "auto";
    int32_t head[2] = { 0, 0 };
    d->fd = open(d->path, O_RDONLY | O_CLOEXEC);
    if (d->fd < 0 || fstat(d->fd, &st))
        return XL_ERR(NOT_FOUND, "%s: %s; data.train and data.valid name the files", d->path, strerror(errno));
    if (!S_ISREG(st.st_mode))
        return XL_ERR(INVALID, "%s is not a file; data.train and data.valid name files", d->path);
    bool magic = pread(d->fd, head, sizeof head, 0) == (ssize_t)sizeof head && head[0] == MAGIC;
    bool bin = xl_str_ends(xl_str_of(d->path), XL_STR(".bin"));
    *word = strcmp(f, "auto") ? f : magic ? "llmc" : bin ? "nanogpt" : "bytes";
    d->width = 1;
    if (!strcmp(*word, "nanogpt") || !strcmp(*word, "llmc"))
        d->width = 2;
    else if (strcmp(*word, "bytes") && strcmp(*word, "lines"))
        return XL_ERR(INVALID, "data.format \"%s\" is none of auto, bytes, lines, nanogpt, llmc", f);
    if (!strcmp(*word, "llmc")) {
        if (!magic || head[1] != 1)
            return XL_ERR(INVALID, "%s does not begin as a token file of llm.c does (magic %d, version 1)", d->path,
                          MAGIC);
        d->skip = HEADER;
    }
    if (st.st_size <= d->skip)
        return XL_ERR(INVALID, "%s is empty; name a file that has text or tokens in it", d->path);
    if ((st.st_size - d->skip) % d->width)
        return XL_ERR(INVALID,
                      "%s has %lld bytes, which are not whole 16-bit tokens: it was cut off, or is no token file "
                      "(data.format says what it is)",
                      d->path, (long long)st.st_size);
    *total = (st.st_size - d->skip) / d->width;
    return NULL;
}

xl_error *xl_data_open(const xl_config *c, bool valid, xl_data **out)
{
    xl_error *err = NULL;
    xl_arena a = { 0 };
    xl_data *d = xl_new(&a, xl_data, 1);
    const char *word = "";
    int64_t total = 0;
    *out = NULL;
    d->fd = -1;
    d->arena = a;
    bool own = valid && c->data.valid;
    d->path = xl_str_c(&d->arena, xl_str_of(own ? c->data.valid : c->data.train));
    d->vocab = c->model.vocab;
    d->batch = c->data.batch;
    d->seed = (uint64_t)c->seed * 2 + valid;
    d->valid = valid;
    d->pack = c->data.pack;
    d->ntime = c->data.nbucket ? c->data.nbucket : 1;
    for (int i = 0; i < d->ntime; i++)
        d->time[i] = c->data.nbucket ? c->data.buckets[i] : c->data.time;
    xl_mutex_init(&d->lock);
    xl_cond_init(&d->more);
    xl_cond_init(&d->room);
    XL_DO(open_format(d, c, &word, &total));
    d->count = total;
    if (!c->data.valid) {                                /* the last tenth is kept for evaluation */
        int64_t keep = total / 10;
        d->first = valid ? total - keep : 0;
        d->count = valid ? keep : total - keep;
    }
    bool lines = !strcmp(word, "lines");
    int64_t need = d->time[d->ntime - 1] + 1;
    if (lines || c->data.end >= 0) {
        XL_DO(find_docs(d, lines ? '\n' : c->data.end));
        d->units = d->ndoc;
    } else
        d->units = (d->count - 1) / (need - 1);
    if (d->units < 1) {
        err = XL_ERR(INVALID, "%s has %lld tokens %s, not enough for one %s; %s", d->path, (long long)d->count,
                     valid ? "to evaluate on" : "to train on",
                     lines || c->data.end >= 0 ? "document of two tokens" : "window of data.time",
                     valid ? "name a larger file as data.valid, or set train.eval_every=0" : "name a larger file");
        goto out;
    }
    for (int k = 0; k < d->ntime; k++)
        d->queue[k] = xl_new(&d->arena, int64_t, (size_t)d->batch);
    for (int i = 0; i <= AHEAD; i++) {
        size_t n = (size_t)d->batch * (size_t)d->time[d->ntime - 1];
        int32_t *m = xl_arena_try(&d->arena, 4 * n * sizeof *m + 64);
        if (!m) {
            err = XL_ERR(EXHAUSTED, "no memory for batches of %lld x %lld", (long long)d->batch,
                         (long long)d->time[d->ntime - 1]);
            goto out;
        }
        d->ring[i].tokens = m;
        d->ring[i].targets = m + n;
        d->ring[i].segments = m + 2 * n;
        d->ring[i].positions = m + 3 * n;
    }
    d->about = xl_str_c(&d->arena, xl_strf(&d->arena, "%s, %s: %lld tokens, %lld %s", d->path, word,
                                           (long long)d->count, (long long)d->units, xl_data_units_word(d)));
    *out = d;
    return NULL;
out:
    xl_data_close(d);
    return err;
}

xl_str xl_data_identity(xl_arena *a, const xl_data *d)
{
    enum { SAMPLES = 64, SAMPLE = 4096 };
    struct stat st;
    char hex[XL_DIGEST_HEX], piece[SAMPLE];
    xl_hash h;
    if (fstat(d->fd, &st))
        return XL_STR("unknown");
    xl_hash_init(&h);
    for (int i = 0; i < SAMPLES; i++) {
        int64_t last = st.st_size > SAMPLE ? st.st_size - SAMPLE : 0;
        ssize_t n = pread(d->fd, piece, sizeof piece,
                          (off_t)(last / (SAMPLES - 1) * i + (i == SAMPLES - 1 ? last % (SAMPLES - 1) : 0)));
        xl_hash_str(&h, (xl_str){ piece, n > 0 ? (size_t)n : 0 });
    }
    xl_digest digest = xl_hash_final(&h);
    return xl_strf(a, "size %lld, sample %.16s; modified %lld.%09ld", (long long)st.st_size,
                   xl_digest_hex(&digest, hex), (long long)st.st_mtim.tv_sec, (long)st.st_mtim.tv_nsec);
}

void xl_data_close(xl_data *d)
{
    if (!d)
        return;
    if (d->running) {
        xl_mutex_lock(&d->lock);
        d->stop = true;
        xl_cond_wake_all(&d->room);
        xl_mutex_unlock(&d->lock);
        xl_thread_join(&d->thread);
    }
    if (d->fd >= 0)
        close(d->fd);
    xl_error_free(d->failed);
    xl_mutex_fini(&d->lock);
    xl_cond_fini(&d->more);
    xl_cond_fini(&d->room);
    xl_arena a = d->arena;
    xl_arena_fini(&a);
}

/* ---- batches ----------------------------------------------------------------------------------------------------- */
static int64_t next_unit(xl_data *d)                     /* in this epoch's order */
{
    if (d->at == d->units) {
        d->epoch++;
        d->at = 0;
    }
    return shuffled(d->at++, d->units, mix64(d->seed * 0x9e3779b97f4a7c15u + (uint64_t)d->epoch));
}

static int bucket_of(const xl_data *d, int64_t n)
{
    int k = 0;
    while (k < d->ntime - 1 && d->time[k] < n)
        k++;
    return k;
}

/* Writes a document (or a window) at `pos` of a row; gives how many places it took. */
static xl_error *place(xl_data *d, xl_batch *b, int64_t row, int64_t pos, doc x, int32_t segment, int64_t *took)
{
    int64_t n = x.n - 1 < b->time - pos ? x.n - 1 : b->time - pos, at = row * b->time + pos;
    int32_t *tmp = calloc((size_t)(n + 1), sizeof *tmp);
    *took = n;
    if (!tmp)
        return XL_ERR(EXHAUSTED, "no memory for a document of %lld tokens", (long long)n);
    xl_error *err = read_tokens(d, x.from, n + 1, tmp);
    for (int64_t i = 0; !err && i < n; i++) {
        b->tokens[at + i] = tmp[i];
        b->targets[at + i] = tmp[i + 1];
        b->segments[at + i] = segment;
        b->positions[at + i] = (int32_t)i;
    }
    free(tmp);
    b->ntoken += n;
    return err;
}

/* Makes the next batch; with `b` NULL only walks on, which is how a resumed run finds its place. */
static xl_error *make(xl_data *d, xl_batch *b)
{
    xl_error *err = NULL;
    int64_t took;
    if (b) {
        size_t n = (size_t)d->batch * (size_t)d->time[d->ntime - 1];
        memset(b->tokens, 0, 4 * n * sizeof *b->tokens);
        b->batch = d->batch;
        b->ntoken = 0;
    }
    if (!d->docs) {                                      /* buckets take turns: a stream has no length of its own */
        int k = (int)(d->number % d->ntime);
        if (b)
            b->bucket = k, b->time = d->time[k];
        for (int64_t r = 0; r < d->batch; r++) {
            int64_t u = next_unit(d);
            if (b)
                XL_DO(place(d, b, r, 0, (doc){ u * d->time[d->ntime - 1], d->time[k] + 1 }, 1, &took));
        }
    } else if (d->pack) {
        int k = d->ntime - 1;
        if (b)
            b->bucket = k, b->time = d->time[k];
        for (int64_t r = 0; r < d->batch; r++) {
            int64_t pos = 0;
            for (int32_t seg = 1; pos < d->time[k]; seg++) {
                doc x = d->docs[next_unit(d)];
                int64_t n = x.n - 1 < d->time[k] - pos ? x.n - 1 : d->time[k] - pos;
                if (b)
                    XL_DO(place(d, b, r, pos, x, seg, &took));
                pos += n;
            }
        }
    } else {
        int k;
        do {
            int64_t u = next_unit(d);
            k = bucket_of(d, d->docs[u].n - 1);
            d->queue[k][d->nqueue[k]++] = u;
        } while (d->nqueue[k] < d->batch);
        d->nqueue[k] = 0;
        if (b) {
            b->bucket = k;
            b->time = d->time[k];
            for (int64_t r = 0; r < d->batch; r++)
                XL_DO(place(d, b, r, 0, d->docs[d->queue[k][r]], 1, &took));
        }
    }
    d->number++;
out:
    return err;
}

static void produce(void *arg)
{
    xl_data *d = arg;
    xl_mutex_lock(&d->lock);
    while (!d->stop && !d->failed) {
        if (d->made - d->taken >= AHEAD) {
            xl_cond_wait(&d->room, &d->lock);
            continue;
        }
        xl_batch *b = &d->ring[d->made % (AHEAD + 1)];
        xl_mutex_unlock(&d->lock);
        xl_error *err = make(d, b);
        xl_mutex_lock(&d->lock);
        d->failed = err;
        d->made += !err;
        xl_cond_wake(&d->more);
    }
    xl_mutex_unlock(&d->lock);
}

xl_error *xl_data_start(xl_data *d, int64_t at)
{
    xl_error *err = NULL;
    while (d->number < at)
        XL_DO(make(d, NULL));
    XL_DO(xl_thread_start(&d->thread, "xlane-data", produce, d));
    d->running = true;
out:
    return err;
}

/* The batch handed out last stays whole: the ring has one place more than is read ahead. */
xl_error *xl_data_next(xl_data *d, const xl_batch **out)
{
    xl_error *err = NULL;
    xl_mutex_lock(&d->lock);
    while (d->made == d->taken && !d->failed)
        xl_cond_wait(&d->more, &d->lock);
    if (d->made > d->taken) {
        *out = &d->ring[d->taken++ % (AHEAD + 1)];
        xl_cond_wake(&d->room);
    } else
        err = xl_error_new(xl_error_code(d->failed), "%s", xl_error_message(d->failed));
    xl_mutex_unlock(&d->lock);
    return err;
}

int xl_data_buckets(const xl_data *d, const int64_t **times)
{
    *times = d->time;
    return d->ntime;
}

const char *xl_data_about(const xl_data *d) { return d->about; }
int64_t xl_data_units(const xl_data *d) { return d->units; }
const char *xl_data_units_word(const xl_data *d) { return d->docs ? "documents" : "windows"; }
int64_t xl_data_cut(const xl_data *d) { return d->cut; }
