#include "cpu/plan/slices.h"

#include <stdatomic.h>

#include "cpu/plan/place.h"

/* PASSED: bytes that the steps of a run pass on, below which caches hold them anyway; SLICE: those of a slice, above
 * which they leave the second-level cache; STEPS: of a run, at most; FEW: slices for each thread from which their
 * number need not be a multiple of the threads. */
enum { PASSED = 1 << 15, SLICE = 1 << 19, STEPS = 16, FEW = 4 };

typedef struct { xl_block *block; uint32_t first, n; int64_t slices; } run;
struct xl_slice_runs { run *run; uint32_t n, cap; };
typedef struct { const xl_step *step; uint32_t n; int64_t slices; } joined;

static int64_t common(int64_t a, int64_t b)
{
    while (b) {
        int64_t rest = a % b;
        a = b, b = rest;
    }
    return a;
}

static uint32_t nbuf(const xl_step *s) { return s->nin + s->nout; }

/* Bytes of buffer k of the step that belong to a slice of n; 0: slices share it. */
static size_t share(const xl_step *s, uint32_t k, int64_t n)
{
    return s->slices->stride[k] * (size_t)(s->slices->units / n);
}

/* May slices of s and t be at work at the same time? What one of them writes, all must divide alike. */
static bool apart(const xl_step *s, const xl_step *t, int64_t n)
{
    for (uint32_t i = 0; i < nbuf(s); i++)
        for (uint32_t k = 0; k < nbuf(t); k++)
            if (s->buf[i] == t->buf[k] && (i >= s->nin || k >= t->nin) &&
                (!share(s, i, n) || share(s, i, n) != share(t, k, n)))
                return false;
    return true;
}

static bool may_slice(const xl_planner *p, const xl_step *s)
{
    if (!s->slices || s->slices->units < 2 || !apart(s, s, 1))
        return false;
    for (uint32_t k = 0; k < nbuf(s); k++)
        if (p->plan->buf[s->buf[k]].kind == XL_BUF_PART)
            return false;
    return true;
}

/* A run is worth it if steps of it read what others of it have written, and that fits. */
static bool worth(const run *r)
{
    size_t passed = 0, slice = 0;
    const xl_step *s = r->block->step + r->first;
    for (uint32_t i = 0; i < r->n; i++)
        for (uint32_t k = s[i].nin; k < nbuf(&s[i]); k++) {
            bool read = false;
            for (uint32_t j = i + 1; j < r->n && !read; j++)
                for (uint32_t q = 0; q < s[j].nin && !read; q++)
                    read = s[j].buf[q] == s[i].buf[k];
            passed += read ? s[i].shape[k].bytes : 0;
            slice += share(&s[i], k, r->slices);
        }
    return passed >= PASSED && slice <= SLICE;
}

static void find(xl_planner *p, xl_block *b, xl_slice_runs *out)
{
    for (uint32_t i = 0; i < b->nstep; i++)
        for (uint32_t k = 0; b->step[i].op && k < b->step[i].op->nregion && b->step[i].sub; k++)
            if (b->step[i].sub[k])
                find(p, b->step[i].sub[k], out);
    for (uint32_t i = 0; b->lanes == 1 && i < b->nstep; ) {
        run r = { b, i, 0, 0 };
        for (bool fits = true; fits && r.n < STEPS && i < b->nstep; ) {
            const xl_step *s = &b->step[i];
            int64_t n = may_slice(p, s) ? common(r.slices, s->slices->units) : 0;
            fits = n > 1;
            for (uint32_t k = 0; fits && k < r.n; k++)     /* a smaller number of slices is as good for the others */
                fits = apart(&b->step[r.first + k], s, n);
            if (fits)
                r.slices = n, r.n++, i++;
        }
        if (r.n > 1 && worth(&r))
            XL_PUSH(p->a, out->run, out->n, out->cap, r);
        i += r.n == 0;
    }
}

xl_slice_runs *xl_slices_find(xl_planner *p)
{
    xl_slice_runs *out = xl_new(p->a, xl_slice_runs, 1);
    if (!p->plain)
        find(p, p->plan->body, out);
    return out;
}

/* ---- memory ----------------------------------------------------------------------------------------------------- */
/* Where a buffer lies: which allocation, and from where in it. */
typedef struct { int64_t in; size_t at; } place;
enum { TEMPORARIES = -1 };
static place place_of(const xl_plan *pl, uint32_t buf)
{
    const xl_plan_buf *b = &pl->buf[buf];
    if (b->kind == XL_BUF_TEMP && !b->host)
        return (place){ TEMPORARIES, b->offset };
    const xl_plan_buf *o = b->kind == XL_BUF_TEMP ? &pl->buf[b->host - 1] : b;
    if (o->kind == XL_BUF_OUT && pl->out_donor[o->index] < 0)
        return (place){ (int64_t)(pl->narg + o->index), b->kind == XL_BUF_TEMP ? b->offset : 0 };
    if (o->kind == XL_BUF_OUT)
        return (place){ pl->out_donor[o->index], 0 };
    if (o->kind == XL_BUF_ARG)
        return (place){ o->index, 0 };
    return (place){ (int64_t)(pl->narg + pl->nout) + buf, 0 }; /* a constant */
}

static bool overlap(const xl_plan *pl, uint32_t a, uint32_t b)
{
    place x = place_of(pl, a), y = place_of(pl, b);
    return a != b && x.in == y.in && x.at < y.at + pl->buf[b].bytes && y.at < x.at + pl->buf[a].bytes;
}

/* Does either of them write to memory that the other one has under another number? */
static bool collide(const xl_plan *pl, const xl_step *s, const xl_step *t)
{
    for (uint32_t i = 0; i < nbuf(s); i++)
        for (uint32_t k = 0; k < nbuf(t); k++)
            if ((i >= s->nin || k >= t->nin) && overlap(pl, s->buf[i], t->buf[k]))
                return true;
    return false;
}

void xl_slices_place(xl_planner *p, xl_slice_runs *runs, int64_t npos)
{
    xl_plan *pl = p->plan;
    xl_place_buffers(p->a, pl, npos);
    if (!runs->n)
        return;
    size_t least = pl->temp_bytes;
    xl_plan_buf *was = xl_new(p->a, xl_plan_buf, pl->nbuf);
    memcpy(was, pl->buf, pl->nbuf * sizeof *was);
    for (uint32_t i = 0; i < runs->n; i++) {
        const run *r = &runs->run[i];
        const xl_step *s = r->block->step + r->first;
        for (uint32_t j = 0; j < r->n; j++)
            for (uint32_t k = 0; k < nbuf(&s[j]); k++) {
                xl_plan_buf *b = &pl->buf[s[j].buf[k]];
                if (b->kind == XL_BUF_CONST || b->kind == XL_BUF_ARG)
                    continue;
                if (b->def > s[0].pos)
                    b->def = s[0].pos;
                if (b->end < s[r->n - 1].pos)
                    b->end = s[r->n - 1].pos;
            }
    }
    xl_place_buffers(p->a, pl, npos);
    if (pl->temp_bytes > least) {
        memcpy(pl->buf, was, pl->nbuf * sizeof *was);
        pl->temp_bytes = least;
    }
    uint32_t n = 0;
    for (uint32_t i = 0; i < runs->n; i++) {
        run r = runs->run[i];
        const xl_step *s = r.block->step + r.first;
        uint32_t most = 0;
        for (bool fits = true; fits && most < r.n; most += fits)
            for (uint32_t j = 0; j <= most && fits; j++)
                fits = !collide(pl, &s[j], &s[most]);
        r.n = most;
        if (r.n > 1 && worth(&r))
            runs->run[n++] = r;
    }
    runs->n = n;
}

/* ---- running ---------------------------------------------------------------------------------------------------- */
typedef struct { const joined *j; xl_frame *f; _Atomic(xl_error *) err; } job;

static void run_slices(void *ctx, size_t begin, size_t end)
{
    job *w = ctx;
    for (size_t i = begin; i < end; i++)
        for (uint32_t k = 0; k < w->j->n && !atomic_load(&w->err); k++) {
            const xl_step *s = &w->j->step[k];
            size_t each = (size_t)(s->slices->units / w->j->slices);
            xl_error *err = s->slices->run(s, w->f, i * each, (i + 1) * each), *none = NULL;
            if (err && !atomic_compare_exchange_strong(&w->err, &none, err))
                xl_error_free(err);
        }
}

static xl_error *run_joined(const xl_step *s, xl_frame *f)
{
    const joined *j = s->data;
    size_t n = (size_t)j->slices, threads = xl_pool_size(f->pool);
    if (n % threads == 0 || n >= FEW * threads) {
        job w = { .j = j, .f = f };
        xl_pool_for(f->pool, n, 1, run_slices, &w);
        return atomic_load(&w.err);
    }
    for (uint32_t k = 0; k < j->n; k++) {                  /* each shared by all threads */
        xl_error *err = j->step[k].run(&j->step[k], f);
        if (err)
            return err;
    }
    return NULL;
}

void xl_slices_join(xl_planner *p, const xl_slice_runs *runs)
{
    for (uint32_t i = 0; i < runs->n; i++) {
        const run *r = &runs->run[i];
        xl_step *at = r->block->step + r->first, *copy = xl_new(p->a, xl_step, r->n);
        memcpy(copy, at, r->n * sizeof *copy);
        joined *j = xl_new(p->a, joined, 1);
        *j = (joined){ copy, r->n, r->slices };
        xl_str name = xl_strf(p->a, "%u steps in %lld slices, from %s on", r->n, (long long)r->slices, copy->name);
        at[0] = (xl_step){ .run = run_joined, .name = name.p, .data = j, .pos = copy->pos };
        for (uint32_t k = 1; k < r->n; k++)
            at[k].run = NULL;
    }
    for (uint32_t i = 0; i < runs->n; i++) {               /* close the gaps, once per block */
        xl_block *b = runs->run[i].block;
        uint32_t n = 0;
        for (uint32_t k = 0; k < b->nstep; k++)
            if (b->step[k].run)
                b->step[n++] = b->step[k];
        b->nstep = n;
    }
}
