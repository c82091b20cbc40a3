/* xlane nan: the first op that made a NaN. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/file.h"
#include "base/word.h"
#include "cli/capture.h"
#include "cli/program.h"
#include "ir/scalar.h"
#include "ir/text/print.h"
#include "lane/cut.h"
#include "lane/walk.h"

static struct { bool inf, twin; const char *plugin; } opt;
static const xl_opt opts[] = {
    { "inf", XL_OPT_FLAG, &opt.inf, NULL, "the first Inf (or NaN) made from finite operands" },
    { "plugin", XL_OPT_PLUGIN, &opt.plugin, "PATH",
      "execute the ops there instead of on the embedded device, each compiled on its own" },
    { "twin", XL_OPT_FLAG, &opt.twin, NULL,
      "compile the whole program on the plugin of the capture with a check of its values as further outputs, and "
      "narrow "
      "down by bisection; this is done anyway where an op cannot be executed alone" },
    { 0 },
};

enum { TRACED_MAX = 8, CHAIN_MAX = 10 };

typedef struct {
    const xl_cli *cli;
    xl_arena *a;
    const xl_walk *w;
    const xl_func *f;
    const xl_walk_step *step;
    uint32_t ndevice;
    const int *device;
    const xl_cap_part *in;                                 /* the arguments: [ndevice][narg] */
} teller;

static const char *where(const teller *t, const xl_op *op)
{
    xl_str file;
    uint32_t line, col;
    if (!xl_loc_line(t->f->m, op->loc, &file, &line, &col))
        return "no source line";
    return xl_strf(t->a, "%.*s:%u", XL_FMT(file), line).p;
}

static const char *name_of(const teller *t, uint32_t argument)
{
    xl_value v = t->f->body->arg[argument];
    xl_str name = xl_loc_label(t->f->m, t->f->val[v.id].loc);
    return name.n ? xl_strf(t->a, "argument %u (%.*s)", argument, XL_FMT(name)).p
                  : xl_strf(t->a, "argument %u", argument).p;
}

static void range(xl_buf *b, const xl_finite *f)
{
    if (!f->count)
        xl_buf_puts(b, "empty");
    else if (f->nan == f->count)
        xl_buf_puts(b, "all NaN");
    else
        xl_buf_printf(b, "from %.6g to %.6g", f->min, f->max);
    if (f->nan && f->nan < f->count)
        xl_buf_printf(b, ", %llu NaN", (unsigned long long)f->nan);
    if (f->inf)
        xl_buf_printf(b, ", %llu Inf", (unsigned long long)f->inf);
}

static const char *source(const teller *t, const xl_walk_value *v)
{
    if (v->by < 0)
        return name_of(t, (uint32_t)(-1 - v->by));
    const xl_op *op = t->step[v->by].op;
    return op->code == XL_OP_CONSTANT ? "a constant" : xl_strf(t->a, "%s %s", xl_op_text(op), where(t, op)).p;
}

static void within(const teller *t, xl_buf *b, const xl_walk_step *s)
{
    for (int64_t at = s->within, turn = s->turn; at >= 0; turn = t->step[at].turn, at = t->step[at].within) {
        const xl_op *op = t->step[at].op;
        if (op->code == XL_OP_WHILE)
            xl_buf_printf(b, "  in iteration %lld of the loop at %s\n", (long long)turn, where(t, op));
        else
            xl_buf_printf(b, "  in the branch taken at %s\n", where(t, op));
    }
}

/* The value of an operand at the element of the result, where the op is elementwise. */
static bool at_element(const xl_walk_value *v, uint32_t device, uint64_t elem, const xl_cap_part *like, double *out)
{
    const xl_cap_part *p = &v->part[device];
    xl_dtype d = xl_dtype_part(xl_dtype_find(xl_str_of(xl_elem_text(p->elem))));
    bool same = p->dims.n == like->dims.n, single = p->size == xl_elem_bytes(p->elem);
    for (size_t i = 0; same && i < p->dims.n; i++)
        same = p->dims.p[i] == like->dims.p[i];
    if (!p->bytes || (!same && !single))
        return false;
    *out = xl_scalar_get(d, p->bytes + (same ? elem : 0) * xl_dtype_bytes(d));
    return true;
}

/* What it is that came from there. */
static const char *kind_of(const teller *t, const xl_walk_origin *o)
{
    const xl_cap_part *p = o->step < 0 ? &t->in[o->device * t->f->body->narg + o->argument]
                                       : &t->step[o->step].out[o->out]->part[o->device];
    xl_dtype d = xl_dtype_part(xl_dtype_find(xl_str_of(xl_elem_text(p->elem))));
    return isnan(xl_scalar_get(d, p->bytes + o->elem * xl_dtype_bytes(d))) ? "NaN" : "Inf";
}

/* The operand to go back along: one that has an Inf or NaN, else a float, and no constant. */
static int telling(const teller *t, const xl_walk_value *v, uint32_t device)
{
    const xl_finite *f = &v->stat[device];
    return xl_walk_fixed(t->w, v) ? 0 : f->nan || f->inf ? 3 : xl_elem_is_float(v->part[device].elem) ? 2 : 1;
}

/* From an op back to the inputs. */
static void back(const teller *t, xl_buf *b, const xl_walk_step *s, uint32_t device)
{
    for (int n = 0; n < CHAIN_MAX; n++) {
        const xl_walk_value *v = NULL;
        int best = 0;
        for (uint32_t i = 0; i < s->nin; i++) {
            int rank = telling(t, s->in[i], device);
            if (rank > best) {
                best = rank;
                v = s->in[i];
            }
        }
        if (!v)
            return;
        xl_buf_printf(b, "  <- %s, ", source(t, v));
        range(b, &v->stat[device]);
        xl_buf_putc(b, '\n');
        if (v->by < 0)
            return;
        s = &t->step[v->by];
    }
    xl_buf_puts(b, "  <- …\n");
}

static void operands(const teller *t, xl_buf *b, const xl_walk_step *s, const xl_walk_origin *o)
{
    const xl_cap_part *like = &s->out[o->out]->part[o->device];
    bool each = xl_ops[s->op->code].flags & XL_OP_ELEMWISE || s->op->code == XL_OP_SELECT;
    for (uint32_t i = 0; i < s->nin; i++) {
        double v;
        xl_buf_printf(b, "  operand %u %s: ", i, xl_cli_shape(t->a, &s->in[i]->part[o->device]));
        if (each && at_element(s->in[i], o->device, o->elem, like, &v))
            xl_buf_printf(b, "%.9g there; ", v);
        range(b, &s->in[i]->stat[o->device]);
        xl_buf_printf(b, "; from %s\n", source(t, s->in[i]));
    }
}

/* PyTorch's autograd runs outside of Python, so the ops of its backward pass have no line: the nearest op back from
 * there that has one, in breadth, past constants. */
static const xl_op *nearest(const teller *t, const xl_walk_step *s)
{
    enum { SEEN = 256 };
    const xl_walk_step *queue[SEEN] = { s };
    xl_str file;
    uint32_t line, col;
    for (uint32_t at = 0, n = 1; at < n; at++)
        for (uint32_t i = 0; i < queue[at]->nin; i++) {
            const xl_walk_value *v = queue[at]->in[i];
            if (v->by < 0 || n == SEEN || xl_walk_fixed(t->w, v))
                continue;
            if (xl_loc_line(t->f->m, t->step[v->by].op->loc, &file, &line, &col))
                return t->step[v->by].op;
            queue[n++] = &t->step[v->by];
        }
    return NULL;
}

/* The line of a step's op, or that of the nearest; *near: NULL where it has one of its own. */
static bool line_near(const teller *t, const xl_walk_step *s, const xl_op **near, xl_str *file, uint32_t *line)
{
    uint32_t col;
    *near = NULL;
    if (xl_loc_line(t->f->m, s->op->loc, file, line, &col))
        return true;
    *near = nearest(t, s);
    return *near && xl_loc_line(t->f->m, (*near)->loc, file, line, &col);
}

static void tell_origin(const teller *t, xl_buf *b, const xl_walk_origin *o)
{
    const char *what = kind_of(t, o);
    const char *device = t->ndevice > 1 ? xl_strf(t->a, " on device %d", t->device[o->device]).p : "";
    if (o->step < 0) {
        xl_value v = t->f->body->arg[o->argument];
        xl_buf_printf(b, "%s came in with %s, element %s%s\n", what, name_of(t, o->argument),
                      xl_cli_element(t->a, xl_type_dims(xl_value_type(t->f, v)), o->elem), device);
        return;
    }
    const xl_walk_step *s = &t->step[o->step];
    const xl_cap_part *p = &s->out[o->out]->part[o->device];
    const xl_op *near;
    xl_str file;
    uint32_t line;
    xl_buf_printf(b, "first %s: %s, element %s of %s%s, %s", what, xl_op_text(s->op),
                  xl_cli_element(t->a, p->dims, o->elem), xl_cli_shape(t->a, p), device, where(t, s->op));
    if (line_near(t, s, &near, &file, &line) && near)
        xl_buf_printf(b, " of its own; nearest: %s, %s", xl_op_text(near), where(t, near));
    xl_buf_putc(b, '\n');
    within(t, b, s);
    operands(t, b, s, o);
    if (o->constant >= 0)
        xl_buf_printf(b, "  the %s is a constant of the program, which this op lets in\n", what);
}

/* Where the Inf came from that an op made the NaN of; *operand: UINT32_MAX where it had none. */
static xl_error *infinity(const teller *t, xl_walk *w, const xl_walk_origin *o, uint32_t *operand, xl_walk_origin *from)
{
    const xl_walk_step *s = &t->step[o->step];
    uint64_t elem = 0;
    bool there = false;                                    /* an operand has it where the NaN is */
    *operand = UINT32_MAX;
    for (uint32_t i = 0; i < s->nin && !there; i++) {
        const xl_walk_value *x = s->in[i];
        const xl_finite *f = &x->stat[o->device];
        double v;
        there = f->inf && at_element(x, o->device, o->elem, &s->out[o->out]->part[o->device], &v) && isinf(v);
        if (!f->inf || (*operand != UINT32_MAX && !there))
            continue;
        elem = x->part[o->device].size == xl_elem_bytes(x->part[o->device].elem) ? 0 : there ? o->elem : f->first_inf;
        *operand = i;
    }
    return *operand == UINT32_MAX ? NULL : xl_walk_trace(w, s->in[*operand], o->device, elem, true, from);
}

static void tell_infinity(const teller *t, xl_buf *b, uint32_t operand, const xl_walk_origin *from)
{
    int64_t constant = from->step >= 0 && t->step[from->step].nin == 0 ? from->step : from->constant;
    if (constant >= 0 && from->step == constant) {
        xl_buf_printf(b, "the Inf of operand %u is a constant of the program\n", operand);
    } else if (constant >= 0) {
        const xl_op *op = t->step[from->step].op;
        xl_buf_printf(b, "the Inf of operand %u is a constant of the program, let in by %s, %s\n", operand,
                      xl_op_text(op), where(t, op));
    } else {
        xl_buf_printf(b, "the Inf of operand %u: ", operand);
        tell_origin(t, b, from);
        if (from->step >= 0)
            back(t, b, &t->step[from->step], from->device);
    }
}

static void json_origin(const teller *t, xl_json *j, const xl_walk_origin *o)
{
    const xl_op *near;
    xl_str file;
    uint32_t line;
    xl_json_put_text(j, "kind", kind_of(t, o));
    xl_json_put_int(j, "element", (int64_t)o->elem);
    xl_json_put_int(j, "device", t->device[o->device]);
    if (o->step < 0) {
        xl_value v = t->f->body->arg[o->argument];
        xl_json_put_int(j, "argument", o->argument);
        xl_json_put_str(j, "name", xl_loc_label(t->f->m, t->f->val[v.id].loc));
        return;
    }
    const xl_walk_step *s = &t->step[o->step];
    xl_json_put_text(j, "op", xl_op_text(s->op));
    xl_json_put_bool(j, "constant", o->constant >= 0);
    if (line_near(t, s, &near, &file, &line)) {
        xl_json_put_str(j, "file", file);
        xl_json_put_int(j, "line", line);
    }
    if (near)
        xl_json_put_text(j, "nearest", xl_op_text(near));
    for (int64_t at = s->within, turn = s->turn; at >= 0; turn = t->step[at].turn, at = t->step[at].within)
        if (t->step[at].op->code == XL_OP_WHILE) {
            xl_json_put_int(j, "iteration", turn);
            break;
        }
    xl_json_key(j, "operands");
    xl_json_list(j);
    for (uint32_t i = 0; i < s->nin; i++) {
        const xl_finite *f = &s->in[i]->stat[o->device];
        xl_json_map(j);
        xl_json_put_num(j, "min", f->min);
        xl_json_put_num(j, "max", f->max);
        xl_json_put_int(j, "inf", (int64_t)f->inf);
        xl_json_put_text(j, "from", source(t, s->in[i]));
        xl_json_end(j);
    }
    xl_json_end(j);
    xl_json_put_int(j, "path", (int64_t)o->npath);
}

static bool calls_out(const xl_region *r)
{
    for (uint32_t i = 0; i < r->nop; i++) {
        if (r->op[i]->code == XL_OP_CUSTOM_CALL)
            return true;
        for (uint32_t k = 0; k < r->op[i]->nregion; k++)
            if (calls_out(r->op[i]->region[k]))
                return true;
    }
    return false;
}

/* ---- the twin: the whole program where it was captured, with checks as further outputs -----------------------------
 * */
enum { CHECKS = 24 };                                      /* at once: more would change how the program is compiled */

typedef struct { const xl_op *op, *before; uint32_t rounds, values; bool vanished, outputs; } twin;

/* Executes the program with a check of each of the values; *bad: the first that fails, n where none does. */
static xl_error *checked(const xl_play *p, xl_arena *a, xl_func *f, xl_str options, const xl_cap_step *s,
                         const xl_cap_part *in, const xl_value *v, uint32_t n, uint32_t *first, bool *still)
{
    xl_error *err = NULL;
    xl_buf text = { 0 };
    xl_played g = { 0 };
    xl_cap_part *out = NULL;
    size_t nout = 0;
    *first = n;
    *still = false;
    XL_DO(xl_cut(f, v, n, opt.inf ? XL_CUT_NOT_FINITE : XL_CUT_HAS_NAN, true, &text));
    XL_TRY(xl_play_compile(p, a, xl_buf_view(&text), XL_FORMAT_MLIR, options, &g), "compiling the program with checks");
    nout = g.ndevice * g.nout;
    out = xl_new(a, xl_cap_part, nout + 1);
    XL_TRY(xl_play_run(&g, in, s->narg, s->keep, s->nkeep, out, NULL), "executing the program with checks");
    for (size_t d = 0; d < g.ndevice; d++) {
        const xl_cap_part *row = out + d * g.nout;
        for (uint32_t i = 0; i < n; i++)
            if (row[g.nout - n + i].bytes[0] && i < *first)
                *first = i;
        for (size_t i = 0; i + n < g.nout; i++)
            if (xl_elem_is_float(row[i].elem)) {
                xl_finite x = xl_finite_of(row[i].elem, row[i].bytes, row[i].size);
                *still = *still || x.nan || (opt.inf && x.inf);
            }
    }
out:
    xl_play_drop(out, nout);
    xl_played_free(&g);
    xl_buf_fini(&text);
    return err;
}

static xl_error *run_twin(const xl_play *p, xl_arena *a, xl_func *f, xl_str options, const xl_cap_step *s,
                          const xl_cap_part *in, twin *t)
{
    xl_error *err = NULL;
    const xl_region *r = f->body;
    xl_value *all = xl_new(a, xl_value, f->nval + 1), pick[CHECKS];
    uint32_t n = 0, low = 0, high, which[CHECKS];
    for (uint32_t i = 0; i < r->nop; i++)
        for (uint32_t k = 0; k < r->op[i]->nout && r->op[i]->code != XL_OP_CONSTANT; k++) {
            const xl_type *y = xl_out_type(f, r->op[i], k);
            if (xl_type_is_tensor(y) && xl_dtype_class(y->dtype) == XL_CLASS_FLOAT)
                all[n++] = r->op[i]->out[k];
        }
    *t = (twin){ .values = n };
    for (high = n; high > low;) {                          /* the first bad one is in [low, high) */
        uint32_t count = high - low < CHECKS ? high - low : CHECKS, first;
        bool still;
        for (uint32_t i = 0; i < count; i++) {
            which[i] = low + (uint32_t)((uint64_t)(high - low) * (i + 1) / count) - 1;
            pick[i] = all[which[i]];
        }
        t->rounds++;
        XL_DO(checked(p, a, f, options, s, in, pick, count, &first, &still));
        if (first == count) {                              /* none here: it vanished, at once or while narrowing */
            t->vanished = t->rounds > 1 && !still;
            t->outputs = still;
            break;
        }
        uint32_t next = first ? which[first - 1] + 1 : low;
        if (which[first] == next || count == high - low) {
            t->op = f->val[pick[first].id].def;
            t->before = which[first] ? f->val[all[which[first] - 1].id].def : NULL;
            break;
        }
        high = which[first] + 1;
        low = next;
    }
out:
    return err;
}

static void tell_twin(const teller *t, xl_buf *b, const twin *w, const char *what, const char *plugin, uint64_t then)
{
    if (w->op)
        xl_buf_printf(b,
                      "first %s by the checks: %s, %s (in program order, of %u values, %u compiles on %s; inside of a "
                      "loop or kernel it is not looked at)\n",
                      what, xl_op_text(w->op), where(t, w->op), w->values, w->rounds, plugin);
    else if (w->outputs)
        xl_buf_printf(b, "the outputs have a %s and none of %u values has: it came in with an argument\n", what,
                      w->values);
    else if (then || w->vanished)
        xl_buf_printf(b,
                      "the %s vanishes when the program is compiled with checks on %s: it depends on how ops are fused "
                      "there\n",
                      what, plugin);
    else
        xl_buf_printf(b, "no %s: the checks of %u values found none on %s\n", what, w->values, plugin);
}

static uint64_t captured_bad(const xl_cap_step *s, bool nonfinite)
{
    uint64_t n = 0;
    for (size_t i = 0; i < (size_t)s->ndevice * s->nout; i++)
        if (s->out[i].bytes && xl_elem_is_float(s->out[i].elem)) {
            xl_finite f = xl_finite_of(s->out[i].elem, s->out[i].bytes, s->out[i].size);
            n += f.nan + (nonfinite ? f.inf : 0);
        }
    return n;
}

/* An output that is bad on a device, and how far back that may go. */
typedef struct { const xl_walk_value *v; uint32_t device; int64_t since; } bad_output;

static int by_since(const void *x, const void *y)
{
    const bad_output *a = x, *b = y;
    return a->since < b->since ? -1 : a->since > b->since;
}

/* The first of the origins of what the outputs have; of many outputs, of those that go back furthest. */
static xl_error *find(teller *t, xl_walk *w, xl_walk_origin *best, size_t *nbad, size_t *nresult)
{
    xl_error *err = NULL;
    size_t nstep;
    t->step = xl_walk_steps(w, &nstep);
    xl_walk_value *const *result = xl_walk_results(w, nresult);
    bad_output *out = xl_new(t->a, bad_output, *nresult * t->ndevice + 1);
    *best = (xl_walk_origin){ .step = INT64_MAX };
    *nbad = 0;
    for (size_t i = 0; i < *nresult; i++)
        for (uint32_t d = 0; result[i] && d < t->ndevice; d++) {
            const xl_finite *f = &result[i]->stat[d];
            if (f->nan || (opt.inf && f->inf))
                out[(*nbad)++] = (bad_output){ result[i], d, xl_walk_earliest(w, result[i], opt.inf) };
        }
    qsort(out, *nbad, sizeof *out, by_since);
    for (size_t i = 0; i < *nbad && i < TRACED_MAX; i++) {
        const xl_finite *f = &out[i].v->stat[out[i].device];
        xl_walk_origin o;
        XL_DO(xl_walk_trace(w, out[i].v, out[i].device, f->nan ? f->first_nan : f->first_inf, opt.inf, &o));
        if (o.step < best->step)
            *best = o;
    }
out:
    return err;
}

/* What a capture is looked at with. `other` is the plugin of the capture, where it is another one and starts here. */
typedef struct {
    const xl_cli *cli;
    const char *name, *what; /* CAPTURE as it was typed; "NaN", or with --inf "NaN or Inf" */
    xl_capture c;
    xl_play p, other;
    xl_module *m;
    xl_walk *w;
    const xl_cap_step *s;
    const xl_cap_program *g;
    const xl_cap_part *in;
    xl_forward forward;
} look;

static xl_error *open_look(look *l)
{
    xl_error *err = NULL;
    xl_arena *a = l->cli->arena;
    XL_DO(xl_cli_capture(l->cli, l->name, opt.plugin ? opt.plugin : "cpu", &l->c, &l->p));
    l->s = &l->c.step[l->c.nstep - 1];
    l->g = &l->c.program[l->s->program];
    XL_DO(xl_cli_parse(l->name, l->g->code, &l->m));
    char *captured = xl_str_c(a, l->c.plugin);
    bool same = xl_str_is(l->c.plugin, l->p.path), calls = false;
    for (uint32_t i = 0; i < l->m->nfunc; i++)
        calls = calls || (l->m->func[i]->body && calls_out(l->m->func[i]->body));
    if (!same && (l->c.nstep > 1 || calls || opt.twin) && xl_file_stat(captured, NULL)) {
        xl_error *no = xl_play_open(a, captured, l->p.devices, &l->other);
        if (no)
            fprintf(stderr, "xlane: the plugin of the capture does not start here, so everything is executed on %s: "
                            "%s\n",
                    l->p.path, xl_error_message(no));
        xl_error_free(no);
    }
    XL_DO(xl_play_inputs(l->other.client ? &l->other : &l->p, a, &l->c, &l->in, &l->forward));
    setenv("XLANE_CPU_PLAN", "plain", 1);                  /* from here on: the inputs are those of the planned form */
    XL_DO(xl_walk_ready(&l->p, a, l->g->options, &l->m));
out:
    return err;
}

static xl_error *open_walk(look *l)
{
    xl_walk_close(l->w);
    l->w = NULL;
    return xl_walk_open(l->cli->arena, &l->p, l->other.client ? &l->other : NULL, l->m, l->s->ndevice, l->in, &l->w);
}

static void close_look(look *l)
{
    xl_walk_close(l->w);
    xl_module_free(l->m);
    xl_play_close(&l->other);
    xl_play_close(&l->p);
    xl_capture_close(&l->c);
}

/* The program compiled whole, with checks. */
static xl_error *by_twin(look *l, teller *t, xl_buf *b)
{
    xl_error *err = NULL;
    twin by;
    const xl_play *there = l->other.client ? &l->other : &l->p;
    uint64_t before = captured_bad(l->s, opt.inf);
    if (l->s->ndevice > 1)
        return XL_ERR(
            UNIMPLEMENTED,
            "a program of %u devices is not compiled with checks: leave out --twin, or capture it on one device",
            l->s->ndevice);
    if (there == &l->p)
        unsetenv("XLANE_CPU_PLAN");
    XL_DO(run_twin(there, l->cli->arena, xl_module_entry(l->m), l->g->options, l->s, l->in, &by));
    if (l->cli->json) {
        xl_json j = { .out = b, .pretty = true };
        xl_str file;
        uint32_t line, col;
        xl_json_map(&j);
        xl_json_put_str(&j, "module", l->g->module);
        xl_json_put_bool(&j, "twin", true);
        xl_json_put_bool(&j, "found", by.op != NULL);
        xl_json_put_bool(&j, "vanished", !by.op && !by.outputs && (by.vanished || before));
        xl_json_put_int(&j, "compiles", by.rounds);
        if (by.op)
            xl_json_put_text(&j, "op", xl_op_text(by.op));
        if (by.op && xl_loc_line(l->m, by.op->loc, &file, &line, &col)) {
            xl_json_put_str(&j, "file", file);
            xl_json_put_int(&j, "line", line);
        }
        xl_json_end(&j);
    } else {
        xl_cli_about_capture(&l->c, b);
        tell_twin(t, b, &by, l->what, there->path, before);
    }
    err = xl_cli_put(b);
    if (!err && by.op)
        xl_cli_exit(l->cli, XL_EXIT_FAILED);
out:
    return err;
}

/* operand: which one of the op at `best` had the infinity that `inf` is the origin of; UINT32_MAX: none. */
typedef struct {
    xl_walk_origin best, inf;
    uint32_t operand;
    size_t nbad, nresult, nstep;
    uint64_t captured;
} origin;

static xl_error *trace(look *l, teller *t, origin *o)
{
    xl_error *err = NULL;
    *o = (origin){ .inf = { .step = -1 }, .operand = UINT32_MAX, .captured = captured_bad(l->s, opt.inf) };
    for (int turn = 0; turn < 2; turn++) {
        XL_DO(find(t, l->w, &o->best, &o->nbad, &o->nresult));
        if (o->nbad && o->best.step >= 0 && !opt.inf)
            XL_DO(infinity(t, l->w, &o->best, &o->operand, &o->inf));
        if (o->operand == UINT32_MAX || o->inf.step < 0 || !t->step[o->inf.step].op->nregion || turn)
            break;
        /* made inside of a loop or branch, which a walk after NaNs does not look into */
        XL_DO(open_walk(l));
        XL_DO(xl_walk_run(l->w, XL_WALK_NONFINITE, NULL, NULL));
        t->w = l->w;
    }
    (void)xl_walk_steps(l->w, &o->nstep);
out:
    return err;
}

static void put_json(const look *l, teller *t, const origin *o, xl_buf *b)
{
    xl_json j = { .out = b, .pretty = true };
    xl_str first;
    xl_json_map(&j);
    xl_json_put_str(&j, "module", l->g->module);
    xl_json_put_int(&j, "number", (int64_t)l->s->number);
    xl_json_put_bool(&j, "found", o->nbad > 0);
    xl_json_put_int(&j, "captured", (int64_t)o->captured);
    xl_json_put_int(&j, "outputs", (int64_t)o->nbad);
    xl_json_put_int(&j, "executed", (int64_t)o->nstep);
    xl_json_put_int(&j, "elsewhere", (int64_t)xl_walk_elsewhere(l->w, &first));
    if (o->nbad)
        json_origin(t, &j, &o->best);
    if (o->nbad && o->operand != UINT32_MAX) {
        xl_json_key(&j, "infinity");
        xl_json_map(&j);
        json_origin(t, &j, &o->inf);
        xl_json_end(&j);
    }
    xl_json_end(&j);
}

static void put_words(const look *l, teller *t, const origin *o, xl_buf *b)
{
    xl_str first;
    xl_cli_about_capture(&l->c, b);
    xl_buf_puts(b, "  ");
    xl_forward_text(&l->forward, b);
    xl_buf_putc(b, '\n');
    if (o->nbad) {
        tell_origin(t, b, &o->best);
        if (o->best.step >= 0) {
            back(t, b, &t->step[o->best.step], o->best.device);
            if (o->operand != UINT32_MAX)
                tell_infinity(t, b, o->operand, &o->inf);
        }
        xl_buf_printf(b, "%zu of %zu outputs%s ha%s a %s; this one went through %zu op%s to the first of them\n",
                      o->nbad, o->nresult * l->s->ndevice, l->s->ndevice > 1 ? " (counted for each device)" : "",
                      o->nbad == 1 ? "s" : "ve", l->what, o->best.npath, o->best.npath == 1 ? "" : "s");
    } else if (o->captured) {
        xl_buf_printf(b, "the capture's outputs have %llu %s, but none is made when the ops are executed one by one "
                         "on %s: it comes from how the plugin fuses or orders them",
                      (unsigned long long)o->captured, l->what, l->p.path);
        if (l->s->ndevice == 1) {
            xl_buf_printf(b, "; `xlane nan %s--twin ", opt.inf ? "--inf " : "");
            xl_buf_word(b, l->name);
            xl_buf_puts(b, "` looks for it there");
        }
        xl_buf_putc(b, '\n');
    } else {
        xl_buf_printf(b, "no %s: all outputs are %s\n", l->what,
                      opt.inf ? "finite" : "free of it; --inf looks for infinities");
    }
    size_t n = xl_walk_elsewhere(l->w, &first);
    if (n)
        xl_buf_printf(b, "%zu op%s that %s cannot execute (%.*s) ran on %s\n", n, n == 1 ? "" : "s", l->p.path,
                      XL_FMT(first), l->other.path);
}

static xl_error *nan_verb(const xl_cli *cli, int argc, char **argv)
{
    xl_error *err = NULL;
    look l = { .cli = cli, .name = argv[0], .what = opt.inf ? "NaN or Inf" : "NaN" };
    origin o;
    xl_buf b = { 0 };
    (void)argc;
    XL_DO(open_look(&l));
    XL_DO(open_walk(&l));
    xl_error *alone = opt.twin ? NULL : xl_walk_run(l.w, opt.inf ? XL_WALK_NONFINITE : XL_WALK_NAN, NULL, NULL);
    teller t = { .cli = cli,
                 .a = cli->arena,
                 .w = l.w,
                 .f = xl_walk_func(l.w),
                 .ndevice = l.s->ndevice,
                 .device = l.g->device,
                 .in = l.in };
    if (opt.twin || alone) {
        if (alone)
            fprintf(stderr, "xlane: not op by op: %s; the program is compiled whole, with checks\n",
                    xl_error_message(alone));
        xl_error_free(alone);
        err = by_twin(&l, &t, &b);
        goto out;
    }
    XL_DO(trace(&l, &t, &o));
    if (cli->json)
        put_json(&l, &t, &o, &b);
    else
        put_words(&l, &t, &o, &b);
    err = xl_cli_put(&b);
    if (!err && o.nbad)
        xl_cli_exit(cli, XL_EXIT_FAILED);
out:
    close_look(&l);
    xl_buf_fini(&b);
    return err;
}

XL_VERB(nan) = {
    .name = "nan",
    .args = "[--inf] [--plugin=PATH] CAPTURE",
    .help = "name the op of a captured step that made the first NaN",
    .more =
        "CAPTURE is a step.xlcap written by `xlane run --capture=…`, or the RUN that contains one. The step is "
        "executed op by op\n"
        "on the embedded device. Each NaN is traced from the outputs back to the op that produced it from operands "
        "without NaN;\n"
        "its source line, element, operands and loop iteration are printed. A NaN that does not reach an output is "
        "not reported.\n"
        "The exit status is 1 if a NaN was found.",
    .example = "xlane run --capture=nonfinite -- python train.py\nxlane nan last",
    .opts = opts,
    .min = 1,
    .max = 1,
    .run = nan_verb,
};
