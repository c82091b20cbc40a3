#include "lane/upgrade.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/file.h"
#include "base/hash.h"
#include "base/home.h"
#include "base/time.h"
#include "base/version.h"
#include "lane/catalog.h"
#include "lane/retry.h"

static const struct {
    const char *word;
    double tolerance, floor;
} kinds[] = {
#define KIND(name, word, tolerance, floor) { word, tolerance, floor },
    XL_MOVES(KIND)
#undef KIND
};
const char *xl_move_word(xl_move_kind k) { return kinds[k].word; }

xl_tolerance xl_tolerance_default(void)
{
    xl_tolerance t;
    for (int k = 0; k < XL_MOVE_COUNT; k++)
        t.part[k] = kinds[k].tolerance;
    return t;
}

static bool share(xl_str s, double *out)
{
    bool percent = s.n && s.p[s.n - 1] == '%';
    if (percent)
        s.n--;
    if (!xl_str_f64(s, out) || !(*out >= 0) || isinf(*out))
        return false;
    *out /= percent ? 100 : 1;
    return true;
}

xl_error *xl_tolerance_parse(const char *text, xl_tolerance *t)
{
    double v;
    if (share(xl_str_of(text), &v)) {
        for (int k = XL_MOVE_MEMORY; k <= XL_MOVE_CODE; k++) /* what is measured has noise of its own */
            t->part[k] = v;
        return NULL;
    }
    for (xl_str rest = xl_str_of(text); rest.n;) {
        xl_str value = xl_str_cut(&rest, ','), key = xl_str_cut(&value, '=');
        int k = XL_MOVE_OUTPUTS;
        while (k < XL_MOVE_COUNT && !xl_str_is(key, kinds[k].word))
            k++;
        if (k == XL_MOVE_COUNT || !share(value, &t->part[k]))
            return XL_ERR(INVALID,
                          "'%s' is no tolerance: it is a share of all figures (10%%), or of some: "
                          "memory=5%%,code=50%% (outputs, memory, flops, bytes, collectives, code, cpu, time)",
                          text);
    }
    return NULL;
}

/* ---- one side ------------------------------------------------------------------------------------------------------
 * */
xl_error *xl_upgrade_side(xl_arena *a, const xl_rehearse_opts *o, xl_rehearsal *r)
{
    xl_error *err = xl_rehearse(a, o, r);
    if (err || r->verdict != XL_REHEARSAL_ENDED || !o->outputs)
        return err;
    /* It ended: while it compiled, or while it ran? */
    xl_rehearse_opts only = *o;
    xl_str rest = r->message, words = xl_str_cut(&rest, '\n');
    only.outputs = NULL;
    err = xl_rehearse(a, &only, r);
    if (!err && r->verdict == XL_REHEARSAL_FITS)
        r->not_run = xl_strf(a, "it compiled, and ended when it ran: %.*s", XL_FMT(words));
    return err;
}

/* Noise: within the tolerance, or less than what a clock can tell. */
static bool beyond(xl_move_kind k, double from, double to, double part)
{
    double least = fmin(from, to), most = fmax(from, to);
    return from >= 0 && to >= 0 && most - least > kinds[k].floor && most > least * (1 + part);
}

static bool differs(const xl_upgrade *u, xl_move_kind k, const xl_rehearsal *f, const xl_rehearsal *t)
{
    return k == XL_MOVE_CPU ? beyond(k, f->cpu_seconds, t->cpu_seconds, u->tolerance.part[k])
                            : beyond(k, f->run_seconds, t->run_seconds, u->tolerance.part[k]);
}

bool xl_upgrade_noisy(const xl_upgrade *u, const xl_upgrade_program *p)
{
    return (!p->noise[0] && differs(u, XL_MOVE_CPU, &p->from, &p->to)) ||
           (!p->noise[1] && differs(u, XL_MOVE_TIME, &p->from, &p->to));
}

static double better(double x, double y) { return x < 0 ? y : y < 0 ? x : fmin(x, y); }

void xl_upgrade_again(const xl_upgrade *u, xl_upgrade_program *p, const xl_rehearsal *from, const xl_rehearsal *to)
{
    bool cpu = p->to.cpu_seconds > p->from.cpu_seconds, run = p->to.run_seconds > p->from.run_seconds;
    p->noise[0] |= !differs(u, XL_MOVE_CPU, from, to) || cpu != (to->cpu_seconds > from->cpu_seconds);
    p->noise[1] |= !differs(u, XL_MOVE_TIME, from, to) || run != (to->run_seconds > from->run_seconds);
    p->from.cpu_seconds = better(p->from.cpu_seconds, from->cpu_seconds);
    p->from.run_seconds = better(p->from.run_seconds, from->run_seconds);
    p->to.cpu_seconds = better(p->to.cpu_seconds, to->cpu_seconds);
    p->to.run_seconds = better(p->to.run_seconds, to->run_seconds);
}

/* ---- comparing -----------------------------------------------------------------------------------------------------
 * */
typedef struct {
    xl_arena *a;
    xl_upgrade *u;
    size_t cap, program;
} list;

static xl_str figure(xl_arena *a, xl_move_kind k, bool count, double v)
{
    static const char *const unit[] = { "", " k", " M", " G", " T", " P" };
    int n = 0;
    if (v < 0)
        return XL_STR("not said");
    if (k == XL_MOVE_CPU)
        return xl_strf(a, "%.2f s", v);
    if (k == XL_MOVE_TIME)
        return v < 1 ? xl_strf(a, "%.3f ms", v * 1e3) : xl_strf(a, "%.3f s", v);
    if (k == XL_MOVE_FLOPS || count) {
        while (v >= 1000 && n < 5) {
            v /= 1000;
            n++;
        }
        return xl_strf(a, "%.4g%s", v, unit[n]);
    }
    return v < 1 << 20 ? xl_strf(a, "%.2f KiB", v / 1024) : xl_strf(a, "%.2f MiB", v / (1 << 20));
}

static xl_move *add(list *l, xl_move_kind kind, xl_str what, double from, double to)
{
    xl_move m = { .program = l->program, .kind = kind, .what = what, .from = from, .to = to };
    XL_PUSH(l->a, l->u->move, l->u->nmove, l->cap, m);
    return &l->u->move[l->u->nmove - 1];
}

/* A figure of both sides. `judged`: more of it beyond the tolerance is a regression; else it explains another one. */
static void compare(list *l, xl_move_kind k, xl_str what, bool count, double from, double to, bool judged)
{
    double part = l->u->tolerance.part[k];
    bool moved = kinds[k].floor > 0 ? beyond(k, from, to, part) : from != to && from >= 0 && to >= 0;
    if (!moved)
        return;
    xl_move *m = add(l, k, what, from, to);
    m->worse = to > from;
    m->regression = judged && to > from * (1 + part);
    m->text = xl_strf(l->a, "%.*s -> %.*s", XL_FMT(figure(l->a, k, count, from)), XL_FMT(figure(l->a, k, count, to)));
    if (from > 0) {
        double change = 100 * (to / from - 1);
        m->text = xl_strf(l->a, "%.*s, %+.*f %%", XL_FMT(m->text), fabs(change) < 10 ? 1 : 0, change);
    }
}

static xl_str why(xl_arena *a, const xl_rehearsal *r)
{
    xl_str m = r->message, line = xl_str_cut(&m, '\n');
    if (r->verdict == XL_REHEARSAL_FITS)
        return XL_STR("compiles");
    if (r->verdict == XL_REHEARSAL_NO_TOPOLOGY || r->verdict == XL_REHEARSAL_NO_PLUGIN)
        return xl_strf(a, "%s: %.*s", xl_rehearsal_word(r->verdict), XL_FMT(line));
    xl_failure f = xl_retry_classify(0, r->message, XL_PHASE_WINDOW);
    return xl_strf(a, "%s (%s: %s): %.*s", xl_rehearsal_word(r->verdict), f.cause, f.text, XL_FMT(line));
}

static const xl_collective *same(const xl_rehearsal *r, const xl_collective *c)
{
    for (size_t i = 0; i < r->ncollective; i++)
        if (xl_str_eq(r->collective[i].name, c->name) && xl_str_eq(r->collective[i].over, c->over))
            return &r->collective[i];
    return NULL;
}

static void collectives(list *l, const xl_rehearsal *f, const xl_rehearsal *t)
{
    if (!f->scanned || !t->scanned)
        return;
    for (size_t i = 0; i < f->ncollective + t->ncollective; i++) {
        bool new = i >= f->ncollective;
        const xl_collective *c = new ? &t->collective[i - f->ncollective] : &f->collective[i],
                            *o = same(new ? f : t, c);
        if (new &&o)
            continue; /* seen from the other side */
        const xl_collective *x = new ? NULL : c, *y = new ? c : o;
        xl_str name = xl_strf(l->a, "%.*s over %.*s", XL_FMT(c->name), XL_FMT(c->over));
        compare(l, XL_MOVE_COLLECTIVES, xl_strf(l->a, "bytes of %.*s", XL_FMT(name)), false, x ? (double)x->bytes : 0,
                y ? (double)y->bytes : 0, true);
        compare(l, XL_MOVE_COLLECTIVES, xl_strf(l->a, "number of %.*s", XL_FMT(name)), true, x ? (double)x->count : 0,
                y ? (double)y->count : 0, false);
    }
}

static void outputs(list *l, const xl_upgrade_program *p)
{
    const xl_trial_difference *d = &p->outputs;
    if (p->from.run_seconds >= 0 && p->to.run_seconds < 0 && p->to.not_run.n) {
        xl_move *m = add(l, XL_MOVE_OUTPUTS, XL_STR("outputs"), -1, -1);
        m->worse = m->regression = true;
        m->text = xl_strf(l->a, "it ran, and now: %.*s", XL_FMT(p->to.not_run));
    }
    if (!p->compared || !d->differ)
        return;
    double allowed = l->u->tolerance.part[XL_MOVE_OUTPUTS] > 0 ? l->u->tolerance.part[XL_MOVE_OUTPUTS] : d->allowed;
    xl_move *m = add(l, XL_MOVE_OUTPUTS, XL_STR("outputs"), 0, d->relative);
    m->worse = true;
    m->regression = d->relative > allowed;
    m->text =
        isinf(d->relative)
            ? xl_strf(l->a, "output %zu differs: NaN, infinity, shape or type on one side", d->at)
            : xl_strf(l->a, "%zu of %zu elements differ, in output %zu by up to %.2g of its largest (%.2g allowed)",
                      d->differ, d->elements, d->at, d->relative, allowed);
}

static void compare_program(list *l, const xl_upgrade_program *p)
{
    const xl_rehearsal *f = &p->from, *t = &p->to;
    bool was = f->verdict == XL_REHEARSAL_FITS, is = t->verdict == XL_REHEARSAL_FITS;
    if (!was || !is) {
        if (was || is || f->verdict != t->verdict) {
            xl_move *m = add(l, XL_MOVE_COMPILE, XL_STR("compile"), was, is);
            m->worse = was;
            m->regression = was;
            m->text = xl_strf(l->a, "%.*s -> %.*s", XL_FMT(why(l->a, f)), XL_FMT(why(l->a, t)));
        }
        return;
    }
#define BYTES(kind, field, words, judged)                                                                              \
    compare(l, XL_MOVE_##kind, XL_STR(words), false, (double)f->memory.field, (double)t->memory.field, judged)
    BYTES(MEMORY, needs, "memory needed", true);
    BYTES(MEMORY, peak, "peak memory", true);
    BYTES(MEMORY, arguments, "memory of arguments", false);
    BYTES(MEMORY, outputs, "memory of outputs", false);
    BYTES(MEMORY, aliased, "aliased memory", false);
    BYTES(MEMORY, temporary, "temporary memory", false);
    BYTES(CODE, code, "code", true);
    compare(l, XL_MOVE_FLOPS, XL_STR("flops"), true, f->flops, t->flops, true);
    compare(l, XL_MOVE_BYTES, XL_STR("bytes accessed"), false, f->bytes, t->bytes, true);
    collectives(l, f, t);
    if (!p->noise[0])
        compare(l, XL_MOVE_CPU, XL_STR("CPU time of the compile"), false, f->cpu_seconds, t->cpu_seconds, true);
    if (!p->noise[1])
        compare(l, XL_MOVE_TIME, XL_STR("time of a run"), false, f->run_seconds, t->run_seconds, true);
    outputs(l, p);
}

static double ratio(const xl_move *m)
{
    double least = fmin(m->from, m->to), most = fmax(m->from, m->to);
    return least > 0 ? most / least : most > 0 ? INFINITY : 1;
}

static int worst_first(const void *x, const void *y)
{
    const xl_move *a = x, *b = y;
    if (a->regression != b->regression)
        return a->regression ? -1 : 1;
    if (a->minor != b->minor)
        return a->minor ? 1 : -1;
    if (a->worse != b->worse)
        return a->worse ? -1 : 1;
    bool first = a->kind <= XL_MOVE_OUTPUTS, other = b->kind <= XL_MOVE_OUTPUTS;
    if (first != other || (first && a->kind != b->kind))
        return (int)a->kind - (int)b->kind;
    double r = ratio(a), s = ratio(b);
    return r != s                     ? (r > s ? -1 : 1)
           : a->program != b->program ? (a->program > b->program) - (a->program < b->program)
                                      : xl_str_cmp(a->what, b->what);
}

void xl_upgrade_compare(xl_arena *a, xl_upgrade *u)
{
    list l = { .a = a, .u = u };
    u->move = NULL;
    u->nmove = u->regressions = 0;
    for (l.program = 0; l.program < u->nprogram; l.program++)
        compare_program(&l, &u->program[l.program]);
    for (size_t i = 0; i < u->nmove; i++) {
        xl_move *m = &u->move[i];
        double largest = 0;
        if (m->kind <= XL_MOVE_OUTPUTS)
            continue;
        for (size_t k = 0; k < u->nmove; k++)
            if (xl_str_eq(u->move[k].what, m->what))
                largest = fmax(largest, fmax(u->move[k].from, u->move[k].to));
        for (size_t k = 0; k < u->nprogram; k++) { /* one that did not move counts too */
            const xl_rehearsal *r = &u->program[k].from;
            largest = m->kind == XL_MOVE_MEMORY  ? fmax(largest, (double)r->memory.needs)
                      : m->kind == XL_MOVE_CODE  ? fmax(largest, (double)r->memory.code)
                      : m->kind == XL_MOVE_FLOPS ? fmax(largest, r->flops)
                      : m->kind == XL_MOVE_BYTES ? fmax(largest, r->bytes)
                                                 : largest;
        }
        m->minor = fabs(m->to - m->from) < 0.01 * largest;
        m->regression = m->regression && !m->minor;
    }
    for (size_t i = 0; i < u->nmove; i++)
        u->regressions += u->move[i].regression;
    if (u->nmove)
        qsort(u->move, u->nmove, sizeof *u->move, worst_first);
}

/* ---- JSON ----------------------------------------------------------------------------------------------------------
 * */
static void side_json(xl_json *j, const char *key, const xl_stack *s)
{
    xl_json_key(j, key);
    xl_json_map(j);
    xl_json_put_text(j, "label", s->label);
    xl_json_put_text(j, "path", s->path);
    xl_json_put_text(j, "identity", s->identity);
    if (s->package.n) {
        xl_json_put_str(j, "package", s->package);
        xl_json_put_str(j, "version", s->version);
    }
    xl_json_end(j);
}

void xl_upgrade_json(xl_json *j, const xl_upgrade *u)
{
    xl_json_map(j);
    xl_json_put_text(j, "xlane", XL_VERSION);
    xl_json_put_num(j, "when", xl_now_wall());
    side_json(j, "from", &u->from);
    side_json(j, "to", &u->to);
    xl_json_put_text(j, "topology", u->topology);
    xl_hash h;
    char hex[XL_DIGEST_HEX];
    xl_hash_init(&h);
    for (size_t i = 0; i < u->nprogram; i++)
        xl_hash_str(&h, u->program[i].name);
    xl_digest names = xl_hash_final(&h);
    xl_json_put_text(j, "subject", xl_digest_hex(&names, hex)); /* which programs: their names */
    xl_json_key(j, "tolerance");
    xl_json_map(j);
    for (int k = XL_MOVE_OUTPUTS; k < XL_MOVE_COUNT; k++)
        xl_json_put_num(j, kinds[k].word, u->tolerance.part[k]);
    xl_json_end(j);
    xl_json_put_int(j, "regressions", (int64_t)u->regressions);
    xl_json_key(j, "moved");
    xl_json_list(j);
    for (size_t i = 0; i < u->nmove; i++) {
        const xl_move *m = &u->move[i];
        xl_json_map(j);
        xl_json_put_str(j, "program", u->program[m->program].name);
        xl_json_put_text(j, "kind", xl_move_word(m->kind));
        xl_json_put_str(j, "what", m->what);
        if (m->from >= 0 && m->kind > XL_MOVE_OUTPUTS) {
            xl_json_put_num(j, "from", m->from);
            xl_json_put_num(j, "to", m->to);
        }
        xl_json_put_str(j, "text", m->text);
        xl_json_put_bool(j, "worse", m->worse);
        xl_json_put_bool(j, "minor", m->minor);
        xl_json_put_bool(j, "regression", m->regression);
        xl_json_end(j);
    }
    xl_json_end(j);
    xl_json_key(j, "programs");
    xl_json_list(j);
    for (size_t i = 0; i < u->nprogram; i++) {
        const xl_upgrade_program *p = &u->program[i];
        xl_json_map(j);
        xl_json_put_str(j, "name", p->name);
        xl_json_key(j, "from");
        xl_rehearsal_json(j, &p->from);
        xl_json_key(j, "to");
        xl_rehearsal_json(j, &p->to);
        if (p->compared) {
            xl_json_put_int(j, "outputs", (int64_t)p->outputs.outputs);
            xl_json_put_int(j, "elements", (int64_t)p->outputs.elements);
            xl_json_put_int(j, "elements_that_differ", (int64_t)p->outputs.differ);
        }
        xl_json_end(j);
    }
    xl_json_end(j);
    xl_json_end(j);
}

/* NULL: there is no folder for it. */
static char *file_of(xl_arena *a, const char *dir)
{
    const char *of = dir ? dir : xl_home_state(a);
    return of ? xl_path_join(a, of, "upgrades.jsonl") : NULL;
}

xl_error *xl_upgrade_save(const char *dir, const xl_upgrade *u)
{
    xl_error *err = NULL;
    xl_arena a = { 0 };
    xl_buf b = { 0 };
    xl_upgrade_json(&(xl_json){ .out = &b }, u);
    if (!dir && !xl_home_state(&a)) {
        err = XL_ERR(UNAVAILABLE, "HOME is not set, so there is no folder for it; XLANE_STATE=DIR names one");
        goto out;
    }
    if (!dir)
        XL_DO(xl_dir_make_private(xl_home_state(&a)));
    err = xl_file_append(file_of(&a, dir), xl_buf_view(&b));
out:
    xl_buf_fini(&b);
    xl_arena_fini(&a);
    return err;
}

static bool same_pair(const xl_node *x, const xl_node *y)
{
    return xl_str_eq(xl_node_text(xl_node_get(x, "from"), "identity"),
                     xl_node_text(xl_node_get(y, "from"), "identity")) &&
           xl_str_eq(xl_node_text(xl_node_get(x, "to"), "identity"), xl_node_text(xl_node_get(y, "to"), "identity")) &&
           xl_str_eq(xl_node_text(x, "topology"), xl_node_text(y, "topology")) &&
           xl_str_eq(xl_node_text(x, "subject"), xl_node_text(y, "subject"));
}

xl_error *xl_upgrade_load(xl_arena *a, const char *dir, xl_node ***out, size_t *n)
{
    xl_error *err = NULL;
    xl_str text;
    char *path = file_of(a, dir);
    size_t cap = 0;
    *out = NULL;
    *n = 0;
    if (!path || !xl_file_stat(path, NULL))
        return NULL;
    XL_DO(xl_file_read_plain(a, path, 256 << 20, &text));
    while (text.n) {
        xl_str line = xl_str_cut(&text, '\n');
        xl_node *node = NULL;
        if (!line.n)
            continue;
        xl_error *torn = xl_json_read(a, path, line, &node);
        xl_error_free(torn); /* a line torn by a crash is passed over */
        if (torn || node->kind != XL_NODE_MAP)
            continue;
        size_t i = 0;
        while (i < *n && !same_pair((*out)[i], node))
            i++;
        if (i < *n)
            (*out)[i] = node; /* the newer one counts */
        else
            XL_PUSH(a, *out, *n, cap, node);
    }
out:
    return err;
}
