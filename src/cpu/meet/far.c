#include "cpu/meet/far.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/log.h"
#include "base/time.h"
#include "cpu/run/env.h"

enum { ALIGN = 64, SHARED_LEAST = 32 << 10, FEW = 16 };

struct xl_far_meeting {
    const xl_far_host *host;
    const xl_meet_far *far;
    uint32_t nproc, part;
    uint32_t *proc;                                        /* those with members, ascending */
    xl_channel c;
    xl_mail_tag tag;
    xl_parcel *room;                                       /* what fn gives to the others */
    xl_letter *letter;                                     /* of each process: the operands, then what fn exchanged */
    double since, next;                                    /* when the wait began; when the next word about it is due */
    bool said;
};

static uint64_t fnv(uint64_t h, const void *p, size_t n)
{
    for (size_t i = 0; i < n; i++)
        h = (h ^ ((const unsigned char *)p)[i]) * 0x100000001b3ULL;
    return h;
}

/* ---- waiting ---- */
static xl_mail_state come(struct xl_far_meeting *w, uint32_t k)
{
    return k == w->part ? XL_MAIL_HERE : xl_mail_ready(w->far->mail, w->proc[k], &w->c);
}

/* Over all of them: NEVER as soon as one cannot come, whatever the others do. */
static xl_mail_state all_come(struct xl_far_meeting *w, uint32_t *which)
{
    xl_mail_state all = XL_MAIL_HERE;
    for (uint32_t k = 0; k < w->nproc; k++) {
        xl_mail_state s = come(w, k);
        if (s == XL_MAIL_HERE || (s == XL_MAIL_WAIT && all == XL_MAIL_WAIT))
            continue;
        all = s;
        *which = k;
        if (s == XL_MAIL_NEVER)
            break;
    }
    return all;
}

static bool ready(void *ctx)
{
    struct xl_far_meeting *w = ctx;
    uint32_t k;
    return all_come(w, &k) != XL_MAIL_WAIT || xl_now() >= w->next;
}

/* Those that have not come, but for those that wait themselves, unless all do and it lasts: then the blame cannot be
 * told. */
static void name_late(struct xl_far_meeting *w, double waited, bool lasts)
{
    for (uint32_t k = 0; k < w->nproc; k++)
        if (come(w, k) == XL_MAIL_WAIT && (lasts || !xl_mail_waits(w->far->mail, w->proc[k]))) {
            char text[400];
            xl_mail_tell(w->far->mail, w->proc[k], text, sizeof text);
            XL_LOG(WARN, "process %u has waited %.0f s in %s of %s for %s: %s", w->proc[w->part], waited, w->tag.text,
                   w->far->program, xl_mail_name(w->far->mail, w->proc[k]), text);
            w->said = true;
        }
}

static xl_error *await_all(struct xl_far_meeting *w)
{
    double stuck = xl_env_get(XL_ENV_STUCK, 10), limit = xl_env_get(XL_ENV_RANK_TIMEOUT, 1800);
    w->since = xl_now();
    w->next = w->since + stuck;
    w->said = false;
    for (;;) {
        xl_error *err = w->host->stopped(w->host->m);
        if (err)
            return err;
        uint32_t k = 0;
        double waited = xl_now() - w->since;
        xl_mail_state s = all_come(w, &k);
        if (s == XL_MAIL_NEVER)
            return xl_mail_take(w->far->mail, w->proc[k], &w->c, &(xl_letter){ 0 });
        if (s == XL_MAIL_HERE) {
            if (w->said)
                XL_LOG(WARN, "process %u goes on after %.1f s in %s of %s", w->proc[w->part], waited, w->tag.text,
                       w->far->program);
            return NULL;
        }
        if (waited > limit) {
            char text[400];
            xl_mail_tell(w->far->mail, w->proc[k], text, sizeof text);
            return XL_ERR(DEADLINE, "waited %.0f s in %s for %s: %s; XLANE_CPU_RANK_TIMEOUT sets the limit", waited,
                          w->tag.text, xl_mail_name(w->far->mail, w->proc[k]), text);
        }
        if (xl_now() >= w->next) {
            bool before = w->said;
            name_late(w, waited, waited > 4 * stuck);
            w->next = xl_now() + (w->said == before && !before ? 1 : waited > 60 ? 60 : waited);
        }
        w->host->park(w->host->m, w->host->me, ready, w);
    }
}

/* One letter of every other process, which must be about what we are doing. */
static xl_error *take_all(struct xl_far_meeting *w, xl_letter *into)
{
    xl_mail *mail = w->far->mail;
    for (uint32_t k = 0; k < w->nproc; k++) {
        if (k == w->part)
            continue;
        xl_error *err = xl_mail_take(mail, w->proc[k], &w->c, &into[k]);
        if (err)
            return err;
        if (into[k].tag->what != w->tag.what || into[k].tag->phase != w->tag.phase)
            return XL_ERR(ABORTED,
                          "process %u is in %s, %s in %s: every process must run the same program; look for a "
                          "condition that differs between them",
                          w->proc[w->part], w->tag.text, xl_mail_name(mail, w->proc[k]), into[k].tag->text);
    }
    return NULL;
}

/* When the processes entered the program: what came, less how long ago its sender entered then. */
static void tell_entries(struct xl_far_meeting *w)
{
    double few[FEW], *when = w->nproc <= FEW ? few : malloc(w->nproc * sizeof *when);
    if (!when)
        return;
    for (uint32_t k = 0; k < w->nproc; k++)
        when[k] = k == w->part ? w->host->entered : w->letter[k].came - w->letter[k].tag->entered_us * 1e-6;
    xl_mail_entered(w->far->mail, w->far->program, w->proc, when, w->nproc);
    if (when != few)
        free(when);
}

static void drop_all(struct xl_far_meeting *w, xl_letter *l)
{
    for (uint32_t k = 0; k < w->nproc; k++)
        if (l[k].own)
            xl_letter_drop(w->far->mail, &l[k]);
}

/* ---- operands ---- */
static size_t aligned(size_t n) { return (n + ALIGN - 1) & ~(size_t)(ALIGN - 1); }

/* Bytes [*from, *to) of operand i that go to process k. */
static void range(const struct xl_far_meeting *w, const xl_step *s, uint32_t i, uint32_t k, bool whole, size_t *from,
                  size_t *to)
{
    *from = 0;
    *to = s->shape[i].bytes;
    if (whole || !xl_meet_sliced(s, w->nproc))
        return;
    xl_meet_slice((size_t)s->shape[i].count, k, w->nproc, from, to);
    *from *= s->shape[i].elem;
    *to *= s->shape[i].elem;
}

/* What one member's operands take in a message to process k. */
static size_t member_bytes(const struct xl_far_meeting *w, const xl_step *s, uint32_t k, bool whole)
{
    size_t n = 0, from, to;
    for (uint32_t i = 0; i < s->nin; i++) {
        range(w, s, i, k, whole, &from, &to);
        n += aligned(to - from);
    }
    return n;
}

/* To one that has gone nothing can be sent; why it went is said by what came from it, so the wait for it tells. */
static xl_error *give(struct xl_far_meeting *w, uint32_t k, xl_parcel *p, size_t bytes)
{
    xl_error *err = xl_mail_send(w->far->mail, w->proc[k], &w->c, &w->tag, p, 0, bytes);
    if (err && xl_error_code(err) == XL_CODE_UNAVAILABLE) {
        xl_error_free(err);
        err = NULL;
    }
    return err;
}

static xl_parcel *pack(struct xl_far_meeting *w, const xl_step *s, const uint32_t *member, const xl_group_view *g,
                       uint32_t k, bool shared)
{
    uint32_t mine = 0;
    for (uint32_t j = 0; j < g->n; j++)
        mine += w->far->process[member[j]] == w->proc[w->part];
    xl_parcel *p = xl_parcel_new(w->far->mail, mine * member_bytes(w, s, k, shared), shared);
    if (!p)
        return NULL;
    char *to = xl_parcel_data(p);
    for (uint32_t j = 0; j < g->n; j++)
        for (uint32_t i = 0; i < s->nin && g->out[j]; i++) {
            size_t a, b, own = 0, end = 0;                 /* nobody else reads our own slice */
            const char *from = g->in[j][i];
            range(w, s, i, k, shared, &a, &b);
            if (shared && xl_meet_sliced(s, w->nproc))
                range(w, s, i, w->part, false, &own, &end);
            memcpy(to, from + a, own > a ? own - a : 0);
            memcpy(to + (end > a ? end - a : 0), from + (end > a ? end : a), b - (end > a ? end : a));
            memset(to + (b - a), 0, aligned(b - a) - (b - a));  /* nothing that was not meant to leaves the process */
            to += aligned(b - a);
        }
    return p;
}

static xl_error *send_operands(struct xl_far_meeting *w, const xl_step *s, const uint32_t *member,
                               const xl_group_view *g)
{
    xl_mail *mail = w->far->mail;
    xl_error *err = NULL;
    xl_parcel *ref = NULL, *copy = NULL;
    bool sliced = xl_meet_sliced(s, w->nproc), large = member_bytes(w, s, 0, true) >= SHARED_LEAST;
    uint32_t mine = 0;
    for (uint32_t j = 0; j < g->n; j++)
        mine += g->out[j] != NULL;
    for (uint32_t k = 0; k < w->nproc && !err; k++) {
        if (k == w->part)
            continue;
        bool by_ref = large && xl_mail_shares(mail, w->proc[k]);
        if (by_ref && !ref) {
            ref = pack(w, s, member, g, k, true);
            by_ref = ref && xl_parcel_shared(ref);
        }
        if (!by_ref && copy && sliced) {
            xl_parcel_drop(mail, copy);
            copy = NULL;
        }
        if (!by_ref && !copy)
            copy = pack(w, s, member, g, k, false);
        xl_parcel *p = by_ref ? ref : copy;
        if (!p)
            err = XL_ERR(EXHAUSTED, "no memory for a collective's operands");
        else
            err = give(w, k, p, mine * member_bytes(w, s, k, by_ref));
    }
    xl_parcel_drop(mail, ref);
    xl_parcel_drop(mail, copy);
    return err;
}

/* The others' operands, where they lie in their letters. `ptr` has room for all of them. */
static xl_error *find_operands(struct xl_far_meeting *w, const xl_step *s, const uint32_t *member, void *const **in,
                               const xl_group_view *g, void **ptr)
{
    for (uint32_t k = 0; k < w->nproc; k++) {
        if (k == w->part)
            continue;
        const xl_letter *l = &w->letter[k];
        size_t at = 0, a, b;
        for (uint32_t j = 0; j < g->n; j++) {
            if (w->far->process[member[j]] != w->proc[k])
                continue;
            in[j] = ptr;
            for (uint32_t i = 0; i < s->nin; i++) {
                range(w, s, i, w->part, l->whole, &a, &b);
                *ptr++ = (void *)((uintptr_t)l->data + at - a); /* as if all of it were there */
                at += aligned(b - a);
            }
        }
        if (at != l->bytes)
            return XL_ERR(ABORTED, "%s sent %zu bytes to %s, %zu were expected: the two do not run the same program",
                          xl_mail_name(w->far->mail, w->proc[k]), l->bytes, w->tag.text, at);
    }
    return NULL;
}

/* ---- the meeting ---- */
void *xl_meet_room(const xl_group_view *g, size_t bytes)
{
    struct xl_far_meeting *w = g->far;
    bool shares = false;
    for (uint32_t k = 0; k < w->nproc; k++)
        shares = shares || (k != w->part && xl_mail_shares(w->far->mail, w->proc[k]));
    w->room = xl_parcel_new(w->far->mail, bytes, shares && bytes >= SHARED_LEAST);
    return w->room ? xl_parcel_data(w->room) : NULL;
}

xl_error *xl_meet_exchange(const xl_group_view *g, const void **theirs, const size_t *bytes_of)
{
    struct xl_far_meeting *w = g->far;
    xl_mail *mail = w->far->mail;
    xl_error *err = NULL;
    w->tag.phase = 1;
    for (uint32_t k = 0; k < w->nproc && !err; k++)
        if (k != w->part)
            err = give(w, k, w->room, bytes_of[w->part]);
    if (!err)
        err = await_all(w);
    if (!err)
        err = take_all(w, w->letter + w->nproc);
    for (uint32_t k = 0; k < w->nproc && !err; k++)
        if (k != w->part) {
            const xl_letter *l = &w->letter[w->nproc + k];
            if (l->bytes != bytes_of[k])
                err = XL_ERR(ABORTED, "%s sent %zu bytes of its results, %zu were expected",
                             xl_mail_name(mail, w->proc[k]), l->bytes, bytes_of[k]);
            theirs[k] = l->data;
        }
    return err;
}

xl_error *xl_far_meet(const xl_far_host *host, const uint32_t *member, const xl_step *step, xl_frame *f,
                      void *const **in, xl_group_view *g, xl_meet_fn *fn)
{
    xl_error *err = NULL;
    const xl_meet_far *far = host->far;
    uint32_t n = xl_mail_count(far->mail), shape[2] = { step->op->code, step->nin };
    struct xl_far_meeting w = { .host = host, .far = far };
    char *mem = calloc(1, n * (sizeof *w.proc + 2 * sizeof *w.letter) + (size_t)g->n * step->nin * sizeof(void *));
    if (!mem)
        return XL_ERR(EXHAUSTED, "no memory for a collective");
    w.letter = (xl_letter *)(void *)mem;
    void **ptr = (void **)(void *)(w.letter + 2 * n);
    w.proc = (uint32_t *)(void *)(ptr + (size_t)g->n * step->nin);
    for (uint32_t q = 0; q < n; q++) {
        bool has = false;
        for (uint32_t j = 0; j < g->n && !has; j++)
            has = far->process[member[j]] == q;
        if (has && q == xl_mail_me(far->mail))
            w.part = w.nproc;
        if (has)
            w.proc[w.nproc++] = q;
    }
    w.c = (xl_channel){ far->devices, fnv(0xcbf29ce484222325ULL, member, g->n * sizeof *member), host->run };
    w.tag.what = fnv(0xcbf29ce484222325ULL, shape, sizeof shape);
    for (uint32_t i = 0; i < step->nin; i++) {
        w.tag.what = fnv(w.tag.what, step->shape[i].dims, step->shape[i].rank * sizeof *step->shape[i].dims);
        w.tag.what = fnv(w.tag.what, &(uint32_t){ step->shape[i].dtype }, sizeof(uint32_t));
    }
    xl_meet_where(step, w.tag.text, sizeof w.tag.text);
    double ago = (xl_now() - host->entered) * 1e6;
    w.tag.entered_us = ago < UINT32_MAX ? (uint32_t)ago : UINT32_MAX;
    xl_mail_doing(far->mail, true, "in %s of %s", w.tag.text, far->program);
    g->part = w.part;
    g->parts = w.nproc;
    g->far = &w;
    XL_DO(send_operands(&w, step, member, g));
    XL_DO(await_all(&w));
    XL_DO(take_all(&w, w.letter));
    if (host->first)
        tell_entries(&w);
    XL_DO(find_operands(&w, step, member, in, g, ptr));
    err = fn(step, f, g);
out:
    drop_all(&w, w.letter);
    drop_all(&w, w.letter + w.nproc);
    xl_parcel_drop(far->mail, w.room);
    xl_mail_doing(far->mail, false, "past %s of %s", w.tag.text, far->program);
    free(mem);
    return err;
}

void xl_far_stop(const xl_meet_far *far, uint32_t ndevice, uint32_t run, const char *why)
{
    xl_channel c = { far->devices, 0, run };
    for (uint32_t q = 0; q < xl_mail_count(far->mail); q++) {
        bool has = false;
        for (uint32_t d = 0; d < ndevice && !has; d++)
            has = far->process[d] == q;
        if (has && q != xl_mail_me(far->mail))
            xl_mail_stop(far->mail, q, &c, why);
    }
}
