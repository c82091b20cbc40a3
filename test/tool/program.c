/* Whole programs on the embedded device, planned against plain: the same program is planned as users get it and op by
 * op (XLANE_CPU_PLAN=plain), both are run on the same data, and the results compared. program random SEED FIRST COUNT
 * programs FIRST to FIRST + COUNT - 1 of SEED (program_gen.h); what fails is reduced and printed program check FILE...
 * programs in any format program print SEED NUMBER         the text of a random program program dump SEED NUMBER DIR
 * its text, its arguments, its results and how far these may be off, as files
 *
 * What may differ. A value is exact unless an op before it may be computed in another order (sums, products of
 * matrices) or by another polynomial: then its bits are those of the plain program. What other values may be off is
 * measured: the plain program is run again with every operand and result of such an op moved by its rounding error, at
 * random, three times (more where that leaves a difference). The planned result must be as near to the plain one as a
 * multiple of the furthest of these, looked at in pieces of 64 elements. So a sum that cancels may be off by more than
 * one that does not, and nothing is a constant that a mistake could hide behind. Where a comparison tips over in one of
 * them by chance, other data decides: a mistake of the planner is there with all data.
 *
 * Besides: 1, 2 and 5 threads give the same bits (but for the sign of a NaN, which IEEE 754 leaves open and the CPU
 * takes from either operand), whatever lay in the temporary memory; arguments that are not donated are as they were;
 * nothing is written beside a buffer. Each program runs in a child process, so that one that crashes
 * is found like the others. With XLANE_WORK_MAX=N programs of more than N operations are left out, and counted: under
 * emulation each operation takes as long as hundreds. */
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/file.h"
#include "cpu/plan/contract.h"
#include "cpu/plan/lower.h"
#include "cpu/plan/plan.h"
#include "ir/num.h"
#include "ir/read.h"
#include "program_gen.h"

enum { ZONE = 256, NOISE_RUNS = 3, NOISE_RUNS_MAX = 48, PIECE = 64, WHY = 400 };
#define FACTOR 0x1p-8f
static const size_t threads[] = { 1, 2, 5 };
enum { NTHREADS = 3 };

typedef struct {
    bool bad, crashed, exact; /* exact: no rounding is to blame */
    bool unsupported, noisy, gradient, large;
    uint32_t output;
    char why[WHY];
} verdict;

#define BAD(v, ...) ((v)->bad = true, (void)snprintf((v)->why, WHY, __VA_ARGS__))

/* ---- plans ------------------------------------------------------------------------------------------------------- */
static xl_error *plan_of(xl_module *m, bool plain, xl_plan **out)
{
    xl_error *err = NULL;
    setenv("XLANE_CPU_PLAN", plain ? "plain" : "planned", 1);
    setenv("XLANE_CPU_CHECK", "1", 0);
    XL_DO(xl_verify(m));
    XL_DO(xl_lower(m, false));
    xl_contract(m);
    if (!plain) /* as pjrt/api_exec.c has it */
        XL_DO(xl_pipeline_run(m, &(xl_pipeline_opts){ .device = true }));
    XL_DO(xl_plan_new(m, 1, out));
    return NULL;
out:
    xl_module_free(m);
    return err;
}

static xl_error *plan_text(xl_str text, bool plain, xl_plan **out)
{
    xl_module *m;
    xl_error *err = xl_read(text, NULL, &m);
    return err ? err : plan_of(m, plain, out);
}

/* ---- memory with something around it ----------------------------------------------------------------------------- */
typedef struct {
    char *base, *p;
    size_t bytes;
} room;

static room room_new(size_t bytes, int fill)
{
    room r = { .bytes = bytes };
    size_t all = (2 * ZONE + bytes + 63) / 64 * 64;
    r.base = aligned_alloc(64, all);
    if (!r.base)
        abort();
    memset(r.base, 0xc5, all);
    r.p = r.base + ZONE;
    memset(r.p, fill, bytes);
    return r;
}
static void room_free(room *r)
{
    free(r->base);
    r->base = NULL;
}
static bool room_whole(const room *r)
{
    for (size_t i = 0; i < ZONE; i++)
        if ((unsigned char)r->base[i] != 0xc5 ||
            (i + r->bytes + ZONE < (2 * ZONE + r->bytes) && (unsigned char)r->p[r->bytes + i] != 0xc5))
            return false;
    return true;
}

typedef struct {
    room *r;
    uint32_t n;
} rooms;
static void rooms_free(rooms *x)
{
    for (uint32_t i = 0; i < x->n; i++)
        room_free(&x->r[i]);
    free(x->r);
    *x = (rooms){ 0 };
}

static xl_pool *pool_of(size_t n)
{
    static xl_pool *pool[8];
    if (n > 1 && !pool[n])
        pool[n] = xl_pool_new(n);
    return pool[n];
}

/* Runs the plan; the results are rooms of their own. */
static xl_error *run_plan(const xl_plan *p, const rooms *in, size_t nthread, int fill, rooms *out, verdict *v)
{
    void **arg = calloc(p->narg + 1, sizeof *arg), **res = calloc(p->nout + 1, sizeof *res);
    rooms copy = { calloc(p->narg + 1, sizeof(room)), p->narg };
    *out = (rooms){ calloc(p->nout + 1, sizeof(room)), p->nout };
    for (uint32_t i = 0; i < p->narg; i++) {
        copy.r[i] = room_new(p->arg[i].bytes, 0);
        memcpy(copy.r[i].p, in->r[i].p, p->arg[i].bytes);
        arg[i] = copy.r[i].p;
    }
    for (uint32_t i = 0; i < p->nout; i++) {
        out->r[i] = room_new(p->out[i].bytes, fill);
        res[i] = p->out_donor[i] >= 0 ? arg[p->out_donor[i]] : out->r[i].p;
    }
    room temp = room_new(p->temp_bytes, fill);
    uint64_t rng[2] = { 1 };
    xl_frame f = { .pool = pool_of(nthread), .nreplica = 1, .npartition = 1, .rng = rng };
    xl_error *err = xl_plan_run(p, &f, arg, res, temp.p);
    for (uint32_t i = 0; i < p->nout && !err; i++)
        if (p->out_donor[i] >= 0)
            memcpy(out->r[i].p, res[i], p->out[i].bytes);
    for (uint32_t i = 0; i < p->narg && !err; i++) {
        bool given = p->arg_donated[i];
        if (!room_whole(&copy.r[i]))
            BAD(v, "something was written beside argument %u", i), v->exact = true;
        if (!given && memcmp(copy.r[i].p, in->r[i].p, p->arg[i].bytes))
            BAD(v, "argument %u was written to", i), v->exact = true;
    }
    for (uint32_t i = 0; i < p->nout && !err; i++)
        if (!room_whole(&out->r[i]))
            BAD(v, "something was written beside result %u", i), v->exact = true;
    if (!err && !room_whole(&temp))
        BAD(v, "something was written beside the temporary memory"), v->exact = true;
    room_free(&temp);
    rooms_free(&copy);
    free(arg);
    free(res);
    return err;
}

/* ---- data -------------------------------------------------------------------------------------------------------- */
static double uniform(uint64_t *s) { return (double)(chance_next(s) >> 11) * 0x1p-53; }
static double normal(uint64_t *s)
{
    double x = 0;
    for (int i = 0; i < 4; i++)
        x += uniform(s);
    return (x - 2) * 1.7320508;
}

static rooms data_of(const xl_module *m, uint64_t seed)
{
    const xl_func *f = xl_module_entry(m);
    rooms in = { calloc(f->body->narg + 1, sizeof(room)), f->body->narg };
    uint64_t s = seed * 77 + 5;
    for (uint32_t i = 0; i < f->body->narg; i++) {
        const xl_type *t = xl_value_type(f, f->body->arg[i]);
        const xl_attr *bound = f->arg_attr ? xl_dict_get(f->arg_attr[i], XL_STR("xlane.below")) : NULL;
        size_t elem = xl_dtype_bytes(t->dtype);
        int64_t n = count_of((xl_dims){ t->dims, t->rank });
        in.r[i] = room_new((size_t)n * elem, 0);
        uint64_t style =
            chance_next(&s) % 100; /* most are ordinary numbers; some have zeros and ties, a few are extreme */
        bool extreme = seed % 8 == 7 && style < 40;
        for (int64_t k = 0; k < n; k++) {
            double x = style < 70   ? normal(&s)
                       : style < 80 ? uniform(&s)
                       : style < 92 ? (double)(int64_t)(chance_next(&s) % 7) - 3
                                    : (double)(chance_next(&s) % 2);
            if (extreme && chance_next(&s) % 8 == 0) {
                static const double odd[] = { INFINITY, -INFINITY, NAN, -0.0,  0.0,     1e-41,
                                              -1e-310,  3e38,      6e4, -1e30, 1.5e-45, 65519 };
                x = odd[chance_next(&s) % (sizeof odd / sizeof *odd)];
            }
            char *p = in.r[i].p + (size_t)k * elem;
            if (is_float(t->dtype))
                xl_num_store(t->dtype, p, xl_num_round(t->dtype, x));
            else if (t->dtype == XL_I1)
                *p = chance_next(&s) & 1;
            else if (bound) /* mostly inside, sometimes one too far */
                xl_num_store(t->dtype, p,
                             chance_next(&s) % 64 == 0 ? (uint64_t)bound->i : chance_next(&s) % (uint64_t)bound->i);
            else if (is_int(t->dtype))
                xl_num_store(t->dtype, p, style < 70 ? chance_next(&s) % 9 - 2 : chance_next(&s));
            else
                for (size_t b = 0; b < elem; b += 4) /* complex */
                    xl_num_store(XL_F32, p + b, elem == 16 ? 0 : xl_num_round(XL_F32, x));
        }
    }
    return in;
}

/* ---- what is exact, and how far the rest is off -------------------------------------------------------------------
 */
static bool narrow(xl_dtype d) { return is_float(d) && d != XL_F32 && d != XL_F64; }
static double eps_of(xl_dtype d)
{
    switch (d) {
    case XL_F64: return 0x1p-53;
    case XL_F32:
    case XL_C64: return 0x1p-24;
    case XL_F16: return 0x1p-11;
    case XL_BF16: return 0x1p-8;
    case XL_C128: return 0x1p-53;
    default: return 0x1p-3;
    }
}

static bool adds(const xl_region *r) /* anything but picking one of two */
{
    for (uint32_t i = 0; i < r->nop; i++)
        switch (r->op[i]->code) {
        case XL_OP_ADD:
        case XL_OP_MULTIPLY:
        case XL_OP_SUBTRACT:
        case XL_OP_DIVIDE: return true;
        default: break;
        }
    return false;
}

/* SUMS: operands may be added in another order. CURVE: a function that is approximated. PRODUCT: another compiler may
 * round it with the sum that reads it, or not. */
typedef enum { EXACT, CURVE, SUMS, PRODUCT } kind;
static bool foreign;                                       /* results are for comparison with another compiler's */

static kind kind_of(const xl_func *f, const xl_op *op)
{
    if (!op->nout)
        return EXACT;
    bool real = xl_cot_float(xl_out_type(f, op, 0));
    switch (op->code) {
    case XL_OP_DOT_GENERAL:
    case XL_OP_DOT:
    case XL_OP_CONVOLUTION: return real ? SUMS : EXACT;
    case XL_OP_REDUCE:
    case XL_OP_REDUCE_WINDOW:
    case XL_OP_SCATTER:
    case XL_OP_SELECT_AND_SCATTER:
    case XL_OP_CHLO_SCAN: return real && adds(op->region[op->nregion - 1]) ? SUMS : EXACT;
    case XL_OP_FFT:
    case XL_OP_CHOLESKY:
    case XL_OP_TRIANGULAR_SOLVE:
    case XL_OP_BATCH_NORM_TRAINING:
    case XL_OP_BATCH_NORM_GRAD:
    case XL_OP_BATCH_NORM_INFERENCE:
    case XL_OP_CHLO_RAGGED_DOT: return real ? SUMS : EXACT;
    case XL_OP_CUSTOM_CALL:
    case XL_OP_COMPOSITE:
    case XL_OP_CALL:
    case XL_OP_ALL_REDUCE: return SUMS;
    case XL_OP_EXPONENTIAL:
    case XL_OP_EXPONENTIAL_MINUS_ONE:
    case XL_OP_LOG:
    case XL_OP_LOG_PLUS_ONE:
    case XL_OP_LOGISTIC:
    case XL_OP_TANH:
    case XL_OP_SINE:
    case XL_OP_COSINE:
    case XL_OP_TAN:
    case XL_OP_CBRT:
    case XL_OP_RSQRT:
    case XL_OP_POWER:
    case XL_OP_ATAN2: return CURVE;
    default: break;
    }
    if (real && op->code >= XL_OP_CHLO_ACOS && op->code <= XL_OP_CHLO_ZETA)
        return CURVE;
    if (real && xl_dtype_class(xl_out_type(f, op, 0)->dtype) == XL_CLASS_COMPLEX &&
        (op->code == XL_OP_MULTIPLY || op->code == XL_OP_DIVIDE))
        return CURVE;
    if (foreign && real && op->code == XL_OP_MULTIPLY)
        return PRODUCT;
    return EXACT;
}

static bool rounds(const xl_func *f, const xl_region *r)
{
    for (uint32_t i = 0; i < r->nop; i++) {
        if (kind_of(f, r->op[i]) != EXACT)
            return true;
        for (uint32_t k = 0; k < r->op[i]->nregion; k++)
            if (rounds(f, r->op[i]->region[k]))
                return true;
    }
    return false;
}

static bool touches(const bool *off, const xl_op *op)
{
    for (uint32_t i = 0; i < op->nin; i++)
        if (off[op->in[i].id])
            return true;
    for (uint32_t k = 0; k < op->nregion; k++)
        for (uint32_t i = 0; i < op->region[k]->nop; i++)
            if (touches(off, op->region[k]->op[i]))
                return true;
    return false;
}

/* Per value of the body: something before it is rounded in one way or another. */
static bool *inexact(const xl_func *f)
{
    bool *off = calloc(f->nval, sizeof *off);
    for (uint32_t i = 0; i < f->body->nop; i++) {
        const xl_op *op = f->body->op[i];
        bool is = kind_of(f, op) != EXACT || touches(off, op);
        if (op->code == XL_OP_WHILE || op->code == XL_OP_IF || op->code == XL_OP_CASE)
            for (uint32_t k = 0; k < op->nregion; k++)
                is |= rounds(f, op->region[k]);
        for (uint32_t k = 0; k < op->nout; k++)
            off[op->out[k].id] = is;
    }
    return off;
}

/* The program with noise: results, and operands of sums, times one and a rounding error that an argument of its own
 * gives. Another argument holds a factor for what is summed and its reciprocal for the sum, both 1 in most runs: with a
 * small one, a sum overflows only if its value does, not because of the order of its terms. */
typedef struct {
    xl_func *f;
    xl_value noise, factor;
    int64_t length;
    uint32_t count;
} shaker;

static xl_value shaken(shaker *x, xl_b *b, xl_value v, double times)
{
    const xl_type *t = xl_b_type(b, v);
    int64_t n = count_of((xl_dims){ t->dims, t->rank }), at = x->count++ * 131 % 997;
    if (!xl_cot_float(t) || xl_dtype_class(t->dtype) != XL_CLASS_FLOAT || !n)
        return v;
    xl_dims dims = { t->dims, t->rank };
    xl_dtype d = narrow(t->dtype) ? XL_F32 : t->dtype;
    xl_value e = xl_b_slice(b, x->noise, XL_DIMS(at), XL_DIMS(at + n), XL_NO_DIMS);
    e = xl_b_convert(b, xl_b_reshape(b, e, dims), d);
    const xl_type *td = xl_b_type(b, e);
    e = xl_b_binary(b, XL_OP_ADD, xl_b_binary(b, XL_OP_MULTIPLY, e, xl_b_splat(b, td, eps_of(t->dtype) * times)),
                    xl_b_splat(b, td, 1));
    return xl_b_convert(b, xl_b_binary(b, XL_OP_MULTIPLY, xl_b_convert(b, v, d), e), t->dtype);
}

static xl_value times_factor(shaker *x, xl_b *b, xl_value v, int64_t which)
{
    const xl_type *t = xl_b_type(b, v);
    xl_value by = xl_b_slice(b, x->factor, XL_DIMS(which), XL_DIMS(which + 1), XL_NO_DIMS);
    by = xl_b_convert(b, xl_b_reshape(b, by, XL_NO_DIMS), t->dtype);
    return xl_b_binary(b, XL_OP_MULTIPLY, v, xl_b_broadcast(b, by, (xl_dims){ t->dims, t->rank }, XL_NO_DIMS));
}

/* The operands of which every term of the sum has one as a factor; 0: not a sum that is scaled. */
static uint32_t factors(const xl_func *f, const xl_op *op, kind k)
{
    if (k != SUMS || !op->nout || (xl_out_type(f, op, 0)->dtype != XL_F32 && xl_out_type(f, op, 0)->dtype != XL_F64))
        return 0;
    for (uint32_t i = 0; i < op->nin; i++)
        if (xl_in_type(f, op, i)->dtype != xl_out_type(f, op, 0)->dtype)
            return 0;
    switch (op->code) {
    case XL_OP_DOT_GENERAL:
    case XL_OP_DOT:
    case XL_OP_CONVOLUTION: return 1;
    case XL_OP_REDUCE:
    case XL_OP_REDUCE_WINDOW: return op->nin == 2 ? 2 : 0; /* with what the sum starts from */
    default: return 0;
    }
}

static double terms(const xl_func *f, const xl_op *op) /* of a sum */
{
    double in = 1, out = 1;
    for (uint32_t i = 0; i < op->nin && i < 2; i++) {
        double n = (double)count_of((xl_dims){ xl_in_type(f, op, i)->dims, xl_in_type(f, op, i)->rank });
        in = n > in ? n : in;
    }
    if (op->code == XL_OP_DOT_GENERAL) {
        xl_dims c = xl_op_dims(op, XL_SLOT(DOT_GENERAL, lhs_contracting_dimensions));
        in = 1;
        for (size_t i = 0; i < c.n; i++)
            in *= (double)xl_in_type(f, op, 0)->dims[c.p[i]];
        return in;
    }
    if (op->nout)
        out = (double)count_of((xl_dims){ xl_out_type(f, op, 0)->dims, xl_out_type(f, op, 0)->rank });
    return out > 0 && in > out && op->code == XL_OP_REDUCE ? in / out : in < 4096 ? in : 4096;
}

static void shake_region(shaker *x, xl_region *r, xl_value *now)
{
    xl_func *f = x->f;
    uint32_t n = r->nop;
    xl_op **op = malloc((n + 1) * sizeof *op);
    memcpy(op, r->op, n * sizeof *op);
    r->nop = 0;
    xl_b b = xl_b_at(f, r);
    for (uint32_t i = 0; i < n; i++) {
        kind k = kind_of(f, op[i]);
        uint32_t scale = factors(f, op[i], k);
        for (uint32_t j = 0; j < op[i]->nin; j++) {
            op[i]->in[j] = now[op[i]->in[j].id];
            if (j < scale)
                op[i]->in[j] = times_factor(x, &b, op[i]->in[j], 0);
            if (k == SUMS && !(op[i]->code == XL_OP_REDUCE && j >= op[i]->nin / 2))
                op[i]->in[j] = shaken(x, &b, op[i]->in[j], 2);
        }
        for (uint32_t j = 0; j < op[i]->nregion; j++)
            if (op[i]->code == XL_OP_WHILE || op[i]->code == XL_OP_IF || op[i]->code == XL_OP_CASE)
                shake_region(x, op[i]->region[j], now);
        xl_region_append(f, r, op[i]);
        for (uint32_t j = 0; j < op[i]->nout && k != EXACT; j++)
            now[op[i]->out[j].id] = shaken(x, &b, scale ? times_factor(x, &b, op[i]->out[j], 1) : op[i]->out[j],
                                           k == CURVE                                ? 4
                                           : k == PRODUCT                            ? 1
                                           : narrow(xl_out_type(f, op[i], j)->dtype) ? 1
                                                                                     : 2 + sqrt(terms(f, op[i])) / 4);
    }
    free(op);
    xl_error_free(xl_b_error(&b));
}

static void longest(const xl_func *f, const xl_region *r, int64_t *most)
{
    for (uint32_t i = 0; i < f->nval; i++)
        if (f->val[i].type->kind == XL_TY_TENSOR) {
            int64_t n = count_of((xl_dims){ f->val[i].type->dims, f->val[i].type->rank });
            *most = n > *most ? n : *most;
        }
    (void)r;
}

static xl_error *plan_shaken(xl_str text, int64_t *length, xl_plan **out)
{
    xl_module *m;
    xl_error *err = xl_read(text, NULL, &m);
    if (err)
        return err;
    xl_func *f = xl_module_entry(m);
    shaker x = { f };
    longest(f, f->body, &x.length);
    *length = x.length += 1000;
    x.noise = xl_region_add_arg(f, f->body, xl_type_tensor(m, XL_F32, (xl_dims){ &x.length, 1 }), (xl_loc){ 0 });
    x.factor = xl_region_add_arg(f, f->body, xl_type_tensor(m, XL_F32, XL_DIMS(2)), (xl_loc){ 0 });
    const xl_attr **attr = xl_new(&m->arena, const xl_attr *, f->body->narg);
    f->arg_attr = attr; /* nothing is donated */
    xl_value *now = malloc(f->nval * sizeof *now);
    for (uint32_t i = 0; i < f->nval; i++)
        now[i] = (xl_value){ i };
    shake_region(&x, f->body, now);
    free(now);
    xl_func_set_type(f);
    return plan_of(m, true, out);
}

/* ---- comparing ----------------------------------------------------------------------------------------------------
 */
static double value_at(xl_dtype d, const char *p, int64_t i)
{
    size_t e = xl_dtype_bytes(d);
    uint64_t bits = xl_num_load(d, p + (size_t)i * e);
    if (is_float(d))
        return xl_num_value(d, bits);
    return xl_dtype_class(d) == XL_CLASS_INT ? (double)(int64_t)(bits << (64 - 8 * e)) / ldexp(1, (int)(64 - 8 * e))
                                             : (double)bits;
}

typedef struct {
    double *dev; /* as wide as f64: a difference of 1e54 between products of 1e69 is a rounding error */
    bool *tips; /* per element: how far it was moved; whether it became another kind of number */
    bool inf, nan;                                         /* plain has such elements, with noise or without */
} slack;

static double tolerance(const slack *s, xl_dtype d, double want, int64_t i, int64_t n)
{
    double most = 0;
    int64_t from = i / PIECE * PIECE, to = from + PIECE < n ? from + PIECE : n;
    for (int64_t k = from; s && k < to; k++)
        most = s->dev[k] > most ? s->dev[k] : most;
    return (n < PIECE ? 64 : 24) * most + 4 * eps_of(d) * fabs(want);
}

static bool tipped(const slack *s, int64_t i, int64_t n)
{
    int64_t from = i / PIECE * PIECE, to = from + PIECE < n ? from + PIECE : n;
    for (int64_t k = from; s && k < to; k++)
        if (s->tips[k])
            return true;
    return false;
}

/* How many elements are further apart than they may be; at: the worst. */
static int64_t differs(const xl_extent *sh, const char *want, const char *got, bool exact, const slack *s, int64_t *at)
{
    int64_t bad = 0;
    double worst = 0;
    if (!memcmp(want, got, sh->bytes))
        return 0;
    xl_dtype d = sh->dtype;
    int64_t n = sh->count;
    size_t e = sh->elem;
    if (xl_dtype_class(d) == XL_CLASS_COMPLEX)
        d = d == XL_C64 ? XL_F32 : XL_F64, n *= 2, e /= 2;
    for (int64_t i = 0; i < n; i++) {
        if (!memcmp(want + (size_t)i * e, got + (size_t)i * e, e))
            continue;
        double a = value_at(d, want, i), b = value_at(d, got, i), far = fabs(a - b);
        if (isnan(a) && isnan(b))
            continue;
        if (!exact) {
            if (tipped(s, i, n))
                continue;
            /* products that overflow both ways are NaN if summed in f32, and infinite if summed in f64: where that
             * happens plain has both among these elements, one rounding aside */
            if (!isfinite(a) && !isfinite(b) && isnan(a) != isnan(b) && s && s->inf && s->nan)
                continue;
            if (isfinite(a) && isfinite(b) && far <= tolerance(s, d, a, i, n))
                continue;
        }
        bad++;
        if (bad == 1 || !(far <= worst))
            worst = far, *at = i;
    }
    return bad;
}

static void measure(const xl_plan *plain, const xl_plan *noisy, uint64_t runs, int64_t length, const rooms *in,
                    const rooms *ref, slack *s, verdict *v)
{
    rooms more = { calloc(in->n + 2, sizeof(room)), in->n + 2 };
    memcpy(more.r, in->r, in->n * sizeof(room));
    for (uint32_t o = 0; o < plain->nout; o++)
        s[o] = (slack){ .dev = calloc((size_t)plain->out[o].count * 2 + 1, sizeof(double)),
                        .tips = calloc((size_t)plain->out[o].count * 2 + 1, sizeof(bool)) };
    for (uint64_t r = 0; r <= runs; r++) {                 /* the last without noise, and with a factor */
        uint64_t state = r + 1;
        rooms out;
        more.r[in->n] = room_new((size_t)length * sizeof(float), 0);
        more.r[in->n + 1] = room_new(2 * sizeof(float), 0);
        for (int64_t i = 0; i < length; i++)
            ((float *)(void *)more.r[in->n].p)[i] = r == runs ? 0 : chance_next(&state) & 1 ? 1 : -1;
        float *factor = (float *)(void *)more.r[in->n + 1].p;
        factor[0] = r == runs ? FACTOR : 1;
        factor[1] = 1 / factor[0];
        xl_error *err = run_plan(noisy, &more, 1, 0, &out, v);
        if (err)
            BAD(v, "with noise: %s", xl_error_message(err));
        for (uint32_t o = 0; o < plain->nout && !err; o++) {
            xl_dtype d = plain->out[o].dtype;
            int64_t n = plain->out[o].count;
            if (xl_dtype_class(d) == XL_CLASS_COMPLEX)
                d = d == XL_C64 ? XL_F32 : XL_F64, n *= 2;
            for (int64_t i = 0; i < n; i++) {
                double a = value_at(d, ref->r[o].p, i), b = value_at(d, out.r[o].p, i), far = fabs(a - b);
                if (r == runs && (isfinite(a) || !isfinite(b)))
                    continue;
                s[o].inf = s[o].inf || isinf(a) || isinf(b);
                s[o].nan = s[o].nan || isnan(a) || isnan(b);
                if (!is_float(d) ? a != b : isfinite(a) != isfinite(b) || isnan(a) != isnan(b) || (isinf(a) && a != b))
                    s[o].tips[i] = true;
                else if (isfinite(far) && far > s[o].dev[i])
                    s[o].dev[i] = far;
            }
        }
        xl_error_free(err);
        rooms_free(&out);
        room_free(&more.r[in->n]);
        room_free(&more.r[in->n + 1]);
    }
    free(more.r);
}

static void dump(const char *dir, const char *what, uint32_t i, const void *p, size_t n)
{
    char path[600];
    snprintf(path, sizeof path, "%s/%s%u.bin", dir, what, i);
    FILE *f = fopen(path, "wb");
    if (!f || fwrite(p, 1, n, f) != n || fclose(f))
        abort();
}

static bool too_large(const xl_plan *plain)
{
    const char *most = getenv("XLANE_WORK_MAX");
    return most && plain->flops + 20 * plain->transcendentals > strtod(most, NULL);
}

/* The program on data of this seed. runs: with noise; dir: where to leave everything, or NULL. */
static verdict check_once(xl_str text, uint64_t data_seed, uint64_t runs, const char *dir)
{
    verdict v = { 0 };
    xl_module *m = NULL;
    xl_plan *plain = NULL, *planned = NULL, *noisy = NULL;
    rooms in = { 0 }, ref = { 0 }, got[NTHREADS] = { 0 };
    slack *s = NULL;
    bool *off = NULL;
    xl_error *err = xl_read(text, NULL, &m), *other = NULL;
    if (err) {
        BAD(&v, "reading: %s", xl_error_message(err));
        goto out;
    }
    err = plan_text(text, true, &plain);
    v.large = !err && too_large(plain);
    if (v.large)
        goto out;
    other = plan_text(text, false, &planned);
    if (err || other) {
        if (!err != !other)
            BAD(&v, "planned: %s; plain: %s", other ? xl_error_message(other) : "ok",
                err ? xl_error_message(err) : "ok"),
                v.exact = true;
        else
            snprintf(v.why, WHY, "%s", xl_error_message(err)), v.unsupported = true;
        goto out;
    }
    in = data_of(m, data_seed);
    err = run_plan(plain, &in, 1, 0, &ref, &v);
    for (uint32_t i = 0; i < NTHREADS && !err && !v.bad; i++) {
        err = run_plan(planned, &in, threads[i], (const int[]){ 0xff, 0x55, 0x7f }[i], &got[i], &v);
        for (uint32_t o = 0; o < planned->nout && !err && i && !v.bad; o++)
            if (differs(&planned->out[o], got[0].r[o].p, got[i].r[o].p, true, NULL, &(int64_t){ 0 }))
                BAD(&v, "result %u: %zu threads and %zu do not give the same bits", o, threads[0], threads[i]),
                    v.exact = true, v.output = o;
    }
    if (err)
        BAD(&v, "running: %s", xl_error_message(err)), v.exact = true;
    if (v.bad)
        goto out;
    const xl_func *f = xl_module_entry(m);
    off = inexact(f);
    const xl_op *ret = xl_region_end(f->body);
    for (int pass = dir ? 1 : 0; pass < 2; pass++) {
        bool close = true;
        if (pass) {
            int64_t length = 0;
            v.noisy = true;
            err = plan_shaken(text, &length, &noisy);
            if (err) {
                BAD(&v, "with noise: %s", xl_error_message(err));
                goto out;
            }
            s = calloc(plain->nout + 1, sizeof *s);
            measure(plain, noisy, runs, length, &in, &ref, s, &v);
        }
        for (uint32_t o = 0; o < planned->nout && !v.bad; o++) {
            bool exact = ret->nin == planned->nout && !off[ret->in[o].id];
            int64_t at = 0, n = differs(&plain->out[o], ref.r[o].p, got[0].r[o].p, exact, s ? &s[o] : NULL, &at);
            if (n && !exact && !pass) {
                close = false;
            } else if (n) {
                xl_dtype d = plain->out[o].dtype;
                v.output = o, v.exact = exact;
                BAD(&v, "result %u: %lld of %lld elements differ, element %lld is %.9g, plain %.9g%s%.3g", o,
                    (long long)n, (long long)plain->out[o].count, (long long)at, value_at(d, got[0].r[o].p, at),
                    value_at(d, ref.r[o].p, at), exact ? "; no difference is allowed, not " : "; allowed are ",
                    exact ? 0 : tolerance(&s[o], d, value_at(d, ref.r[o].p, at), at, plain->out[o].count));
            }
        }
        if (v.bad || close)
            break;
    }
    if (dir) {
        for (uint32_t i = 0; i < in.n; i++)
            dump(dir, "arg", i, in.r[i].p, in.r[i].bytes);
        for (uint32_t o = 0; o < planned->nout; o++) {
            dump(dir, "out", o, got[0].r[o].p, planned->out[o].bytes);
            float *tol = calloc((size_t)plain->out[o].count + 1, sizeof *tol);
            for (int64_t i = 0; i < plain->out[o].count; i++) /* negative: anything may be there */
                tol[i] = tipped(&s[o], i, plain->out[o].count)
                             ? -1
                             : (float)tolerance(&s[o], plain->out[o].dtype,
                                                value_at(plain->out[o].dtype, ref.r[o].p, i), i, plain->out[o].count);
            dump(dir, "tol", o, tol, (size_t)plain->out[o].count * sizeof *tol);
            free(tol);
        }
    }
out:
    xl_error_free(err);
    xl_error_free(other);
    for (uint32_t o = 0; s && o < plain->nout; o++)
        free(s[o].dev), free(s[o].tips);
    free(s);
    free(off);
    rooms_free(&in);
    rooms_free(&ref);
    for (int i = 0; i < NTHREADS; i++)
        rooms_free(&got[i]);
    xl_plan_free(plain);
    xl_plan_free(planned);
    xl_plan_free(noisy);
    xl_module_free(m);
    return v;
}

/* A difference that rounding could explain must be there with other data as well, and beyond what more runs with noise
 * show: a small term that rounds a large one up or down does so in one run of a thousand, and what is left when the
 * large one cancels is then off by far more than in the others. */
static verdict check(xl_str text, uint64_t data_seed)
{
    verdict v = check_once(text, data_seed, NOISE_RUNS, NULL);
    if (!v.bad || v.exact)
        return v;
    verdict a = check_once(text, data_seed + 8, NOISE_RUNS_MAX, NULL); /* of the same style */
    if (a.bad)
        return a;
    verdict b = check_once(text, data_seed + 16, NOISE_RUNS_MAX, NULL);
    if (b.bad)
        return b;
    v.bad = false;
    return v;
}

/* ---- in a child ----------------------------------------------------------------------------------------------------
 */
/* A program that computes for minutes, or waits for half an hour, will not end. */
static void limit(void)
{
    struct itimerval t = { .it_value.tv_sec = getenv("XLANE_EMULATED") ? 1000 : 100 };
    setitimer(ITIMER_PROF, &t, NULL);
    alarm(1800);
}

static verdict *shared_verdict(void)
{
    verdict *v = mmap(NULL, sizeof *v, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (v == MAP_FAILED)
        abort();
    return v;
}

static verdict check_apart(xl_str text, uint64_t data_seed)
{
    verdict *v = shared_verdict(), r;
    int status = 0;
    fflush(stdout);
    pid_t pid = fork();
    if (!pid) {
        limit();
        if (!freopen("/dev/null", "w", stderr))
            _exit(3);
        *v = check(text, data_seed);
        _exit(0);
    }
    waitpid(pid, &status, 0);
    r = *v;
    if (status) {
        r = (verdict){ .crashed = true, .exact = true };
        BAD(&r, WIFSIGNALED(status) ? "it crashed with signal %d" : "it ended with status %d",
            WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
    }
    munmap(v, sizeof *v);
    return r;
}

/* ---- making a failing program small -------------------------------------------------------------------------------
 */
/* A copy of the text with one thing changed; false if it cannot be. */
typedef struct {
    enum { ONLY_RESULT, RESULT_IS, OP_IS_ARG, OP_IS_OPERAND, NO_DONOR, UNROLL } what;
    uint32_t a, b;
} change;

static bool change_text(xl_str text, change c, xl_buf *out)
{
    xl_module *m;
    bool ok = false;
    if (xl_read(text, NULL, &m))
        return false;
    xl_func *f = xl_module_entry(m);
    xl_region *r = f->body;
    xl_op *ret = xl_region_end(r);
    f->res_attr = NULL;
    if (c.what == ONLY_RESULT) {
        if (c.a >= ret->nin || ret->nin == 1)
            goto out;
        ret->in[0] = ret->in[c.a], ret->nin = 1;
    } else if (c.what == RESULT_IS) {
        if (c.a + 1 >= r->nop || !r->op[c.a]->nout || r->op[c.a]->code == XL_OP_CONSTANT)
            goto out;
        ret->in[0] = r->op[c.a]->out[0], ret->nin = 1;
        r->op[c.a + 1] = ret, r->nop = c.a + 2;
    } else if (c.what == NO_DONOR) {
        if (!f->arg_attr || c.a >= r->narg || !xl_dict_get(f->arg_attr[c.a], XL_STR("tf.aliasing_output")))
            goto out;
        f->arg_attr[c.a] = xl_dict_with(m, f->arg_attr[c.a], XL_STR("tf.aliasing_output"), NULL);
    } else {
        if (c.a + 1 >= r->nop)
            goto out;
        xl_op *op = r->op[c.a];
        if (!op->nout || op->code == XL_OP_CONSTANT || op->code == XL_OP_IOTA)
            goto out;
        xl_value to[64];
        if (op->nout > 64)
            goto out;
        if (c.what == OP_IS_ARG) {
            const xl_attr **attr = xl_new(&m->arena, const xl_attr *, r->narg + op->nout);
            if (f->arg_attr)
                memcpy(attr, f->arg_attr, r->narg * sizeof *attr);
            for (uint32_t i = 0; i < op->nout; i++)
                to[i] = xl_region_add_arg(f, r, xl_out_type(f, op, i), (xl_loc){ 0 });
            f->arg_attr = attr;
        } else {
            uint32_t k = c.b;
            if (op->nout != 1 || k >= op->nin || xl_in_type(f, op, k) != xl_out_type(f, op, 0))
                goto out;
            to[0] = op->in[k];
        }
        xl_subst s = xl_subst_new(f);
        for (uint32_t i = 0; i < op->nout; i++)
            xl_subst_set(&s, op->out[i], to[i]);
        memmove(r->op + c.a, r->op + c.a + 1, (r->nop - c.a - 1) * sizeof *r->op);
        r->nop--;
        for (uint32_t i = 0; i < r->nop; i++) { /* and in the regions */
            xl_op *stack[64];
            uint32_t n = 0;
            stack[n++] = r->op[i];
            while (n) {
                xl_op *o = stack[--n];
                xl_subst_op(&s, o);
                for (uint32_t k = 0; k < o->nregion; k++)
                    for (uint32_t j = 0; j < o->region[k]->nop; j++)
                        if (n < 64)
                            stack[n++] = o->region[k]->op[j];
            }
        }
    }
    xl_func_set_type(f);
    f->res_attr = xl_new(&m->arena, const xl_attr *, ret->nin);
    if (c.what == ONLY_RESULT || c.what == RESULT_IS) /* donors name results */
        for (uint32_t i = 0; f->arg_attr && i < r->narg; i++) {
            const xl_attr *a = xl_dict_get(f->arg_attr[i], XL_STR("tf.aliasing_output"));
            if (a)
                f->arg_attr[i] = xl_dict_with(m, f->arg_attr[i], XL_STR("tf.aliasing_output"),
                                              c.what == ONLY_RESULT && a->i == c.a ? xl_attr_int(m, XL_I32, 0) : NULL);
        }
    xl_error *err = xl_pass_dce(m, NULL);
    if (!err)
        err = xl_verify(m);
    ok = !err;
    xl_error_free(err);
    if (ok)
        xl_print_module(m, NULL, out);
out:
    xl_module_free(m);
    return ok;
}

static uint32_t ops_of(xl_str text)
{
    xl_module *m;
    if (xl_read(text, NULL, &m))
        return 0;
    uint32_t n = xl_module_entry(m)->body->nop;
    xl_module_free(m);
    return n;
}

/* Arguments that nobody reads are left out. */
static void drop_args(xl_buf *text)
{
    xl_module *m;
    if (xl_read((xl_str){ text->p, text->n }, NULL, &m))
        return;
    xl_func *f = xl_module_entry(m);
    bool *used = calloc(f->nval, sizeof *used);
    xl_op *stack[4096];
    for (uint32_t i = 0; i < f->body->nop; i++) {
        uint32_t n = 0;
        stack[n++] = f->body->op[i];
        while (n) {
            xl_op *o = stack[--n];
            for (uint32_t k = 0; k < o->nin; k++)
                used[o->in[k].id] = true;
            for (uint32_t k = 0; k < o->nregion; k++)
                for (uint32_t j = 0; j < o->region[k]->nop && n < 4096; j++)
                    stack[n++] = o->region[k]->op[j];
        }
    }
    uint32_t n = 0;
    for (uint32_t i = 0; i < f->body->narg; i++)
        if (used[f->body->arg[i].id]) {
            f->val[f->body->arg[i].id].index = n;
            if (f->arg_attr)
                f->arg_attr[n] = f->arg_attr[i];
            f->body->arg[n++] = f->body->arg[i];
        }
    f->body->narg = n;
    free(used);
    xl_func_set_type(f);
    text->n = 0;
    xl_print_module(m, NULL, text);
    xl_module_free(m);
}

static bool still_bad(xl_str text, uint64_t seed, const verdict *as)
{
    verdict v = check_apart(text, seed);
    return v.bad && v.crashed == as->crashed;
}

static void reduce(xl_buf *text, uint64_t seed, const verdict *as)
{
    uint32_t tries = 0, tries_max = getenv("XLANE_EMULATED") ? 60 : 1500;
    for (bool better = true; better && tries < tries_max;) {
        better = false;
        for (int what = ONLY_RESULT; what <= NO_DONOR; what++) {
            uint32_t n = ops_of((xl_str){ text->p, text->n }) + 24;
            for (uint32_t a = what == RESULT_IS ? 0 : n; (what == RESULT_IS ? a < n : a-- > 0) && tries < tries_max;) {
                for (uint32_t b = 0; b < (what == OP_IS_OPERAND ? 3 : 1); b++) {
                    xl_buf next = { 0 };
                    if (change_text((xl_str){ text->p, text->n }, (change){ what, a, b }, &next) && next.n && ++tries &&
                        (next.n != text->n || memcmp(next.p, text->p, next.n)) &&
                        still_bad((xl_str){ next.p, next.n }, seed, as)) {
                        xl_buf_fini(text);
                        *text = next;
                        better = true;
                        if (what == RESULT_IS)
                            goto next_what;
                    } else {
                        xl_buf_fini(&next);
                    }
                }
                if (what == RESULT_IS)
                    a++;
            }
next_what:;
        }
        drop_args(text);
    }
}

/* ---- commands ------------------------------------------------------------------------------------------------------
 */
static uint64_t seed_of(uint64_t seed, uint64_t number) { return seed * 1000003 + number; }

static xl_error *text_of(uint64_t seed, uint64_t number, xl_buf *out)
{
    xl_module *m;
    xl_error *err = generate(seed_of(seed, number), &m);
    if (err)
        return err;
    xl_print_module(m, NULL, out);
    xl_module_free(m);
    return NULL;
}

typedef struct {
    uint64_t at, done, unsupported, noisy, large, failed, broken;
    verdict v;
    char kept[512];
} progress;

/* Reports the failure of a program, small. */
static void report(const char *name, xl_str text, uint64_t data_seed, const verdict *v)
{
    xl_buf small = { 0 };
    char path[600];
    xl_buf_str(&small, text);
    printf("FAIL %s: %s\n", name, v->why);
    fflush(stdout);
    if (!getenv("XLANE_NO_REDUCE"))
        reduce(&small, data_seed, v);
    verdict last = check_apart((xl_str){ small.p, small.n }, data_seed);
    const char *dir = getenv("XLANE_FOUND");
    snprintf(path, sizeof path, "%s/%s.mlir", dir ? dir : "/tmp", name);
    FILE *f = fopen(path, "w");
    if (f) {
        fwrite(small.p, 1, small.n, f);
        fclose(f);
    }
    printf("  reduced to %u ops (data %llu): %s\n  %s\n", ops_of((xl_str){ small.p, small.n }),
           (unsigned long long)data_seed, last.why, path);
    if (small.n < 6000)
        fwrite(small.p, 1, small.n, stdout);
    fflush(stdout);
    xl_buf_fini(&small);
}

static int random_programs(uint64_t seed, uint64_t first, uint64_t count)
{
    progress *p = mmap(NULL, sizeof *p, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    uint64_t end = first + count, bad = 0,
             many = getenv("XLANE_FAIL_MAX") ? strtoull(getenv("XLANE_FAIL_MAX"), NULL, 10) : 5;
    if (p == MAP_FAILED)
        abort();
    p->at = first;
    while (p->at < end && bad < many) {
        int status = 0;
        fflush(stdout);
        p->failed = 0;
        pid_t pid = fork();
        if (!pid) {
            for (; p->at < end; p->at++) {
                xl_buf text = { 0 };
                limit();
                xl_error *err = text_of(seed, p->at, &text);
                if (err) {
                    snprintf(p->v.why, WHY, "the generator: %s", xl_error_message(err));
                    p->failed = 2;
                    _exit(0);
                }
                p->v = check((xl_str){ text.p, text.n }, p->at);
                if (p->v.bad) {
                    p->failed = 1;
                    _exit(0);
                }
                p->unsupported += p->v.unsupported;
                p->noisy += p->v.noisy;
                if (p->v.unsupported && getenv("XLANE_SHOW"))
                    printf("program %llu: %s\n", (unsigned long long)p->at, p->v.why);
                p->large += p->v.large;
                p->done += !p->v.large;
                xl_buf_fini(&text);
            }
            fflush(stdout);
            _exit(0);
        }
        waitpid(pid, &status, 0);
        if (p->at >= end && !status)
            break;
        if (status) {
            p->v = (verdict){ .crashed = true, .exact = true };
            BAD(&p->v, WIFSIGNALED(status) ? "it crashed with signal %d" : "it ended with status %d",
                WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
        }
        xl_buf text = { 0 };
        char name[64];
        snprintf(name, sizeof name, "random-%llu-%llu", (unsigned long long)seed, (unsigned long long)p->at);
        xl_error *err = p->failed == 2 ? NULL : text_of(seed, p->at, &text);
        if (p->failed == 2 || err)
            printf("FAIL %s: %s\n", name, p->v.why);
        else
            report(name, (xl_str){ text.p, text.n }, p->at, &p->v);
        xl_error_free(err);
        xl_buf_fini(&text);
        bad++;
        p->at++;
    }
    if (bad)
        printf("%llu programs failed of seed %llu, %llu to %llu\n", (unsigned long long)bad, (unsigned long long)seed,
               (unsigned long long)first, (unsigned long long)p->at);
    else
        printf(
            "ok random programs: %llu of seed %llu from %llu, planned and plain; %llu compared under noise, %llu not "
            "supported",
            (unsigned long long)p->done, (unsigned long long)seed, (unsigned long long)first,
            (unsigned long long)p->noisy, (unsigned long long)p->unsupported);
    if (!bad && p->large)
        printf("; %llu left out, which compute for longer than XLANE_WORK_MAX", (unsigned long long)p->large);
    if (!bad)
        printf("\n");
    return bad ? 1 : 0;
}

static int check_files(int n, char **file)
{
    int bad = 0, done = 0;
    for (int i = 0; i < n; i++) {
        xl_arena a = { 0 };
        xl_str text;
        xl_buf as_text = { 0 };
        xl_module *m = NULL;
        xl_error *err = xl_file_read(&a, file[i], &text);
        if (!err)
            err = xl_read(text, NULL, &m);
        if (err) {
            printf("FAIL %s: %s\n", file[i], xl_error_message(err));
            xl_error_free(err);
            bad++;
            xl_arena_fini(&a);
            continue;
        }
        xl_print_module(m, NULL, &as_text);
        xl_module_free(m);
        text = (xl_str){ as_text.p, as_text.n };
        const char *base = strrchr(file[i], '/');
        for (uint64_t s = 1; s <= 3; s++) {
            verdict v = check_apart(text, s);
            if (v.unsupported)
                printf("not run %s: %s\n", file[i], v.why);
            if (v.bad) {
                report(base ? base + 1 : file[i], text, s, &v);
                bad++;
            }
            done += s == 1 && !v.unsupported;
            if (v.bad || v.unsupported)
                break;
        }
        xl_buf_fini(&as_text);
        xl_arena_fini(&a);
        fflush(stdout);
    }
    if (!bad)
        printf("ok programs: %d of %d, planned and plain\n", done, n);
    return bad ? 1 : 0;
}

int main(int argc, char **argv)
{
    const char *verb = argc > 1 ? argv[1] : "";
    if (!strcmp(verb, "random") && argc == 5)
        return random_programs(strtoull(argv[2], NULL, 10), strtoull(argv[3], NULL, 10), strtoull(argv[4], NULL, 10));
    if (!strcmp(verb, "check") && argc > 2)
        return check_files(argc - 2, argv + 2);
    if ((!strcmp(verb, "print") && argc == 4) || (!strcmp(verb, "dump") && argc == 5)) {
        xl_buf text = { 0 };
        uint64_t number = strtoull(argv[3], NULL, 10);
        xl_error *err = text_of(strtoull(argv[2], NULL, 10), number, &text);
        if (err) {
            fprintf(stderr, "%s\n", xl_error_message(err));
            return 1;
        }
        if (argc == 4) {
            fwrite(text.p, 1, text.n, stdout);
            return 0;
        }
        char path[600];
        foreign = true;
        snprintf(path, sizeof path, "%s/program.mlir", argv[4]);
        mkdir(argv[4], 0777);
        FILE *f = fopen(path, "w");
        if (!f || fwrite(text.p, 1, text.n, f) != text.n || fclose(f))
            return 1;
        verdict v = check_once((xl_str){ text.p, text.n }, number, NOISE_RUNS, argv[4]);
        printf("%s\n", v.bad ? v.why : v.unsupported ? "not supported" : "ok");
        return v.bad;
    }
    fprintf(stderr,
            "usage: program random SEED FIRST COUNT | check FILE... | print SEED NUMBER | dump SEED NUMBER DIR\n");
    return 2;
}
