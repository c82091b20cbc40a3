/* Random whole programs, typed as they are made: a pool of values, and motifs that take some of them and add more.
 * Motifs are what training steps are made of (layers, norms, losses, loops) and what surprises planners (a value with
 * several readers, views of views, empty dimensions, narrow types). Dimensions come from a few per program, chosen
 * around the planner's thresholds, so that values meet. A program depends on its seed, and on the
 * order in which a compiler evaluates arguments. */
#ifndef XL_TEST_PROGRAM_GEN_H
#define XL_TEST_PROGRAM_GEN_H

#include <math.h>
#include <string.h>

#include "cpu/plan/plan.h"
#include "ir/text/print.h"
#include "ir/verify.h"
#include "pass/grad.h"
#include "pass/pass.h"

/* ---- chance ------------------------------------------------------------------------------------------------------ */
static uint64_t chance_next(uint64_t *s)
{
    uint64_t z = *s += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

enum { POOL_MAX = 400, ARGS_MAX = 24, DIMS_MAX = 6 };

typedef struct {
    xl_b b;
    xl_module *m;
    uint64_t state;
    xl_value v[POOL_MAX];
    uint32_t nv; /* what the program has computed so far */
    xl_value arg[ARGS_MAX];
    int64_t below[ARGS_MAX];
    uint32_t narg; /* below: bound of an index, 0: any number */
    int64_t dim[DIMS_MAX];
    uint32_t ndim; /* the program's dimensions */
    int64_t cap; /* elements of a value at most */
    xl_dtype real; /* its usual float */
    bool wild; /* nothing keeps values finite */
    bool grad; /* will be differentiated */
    uint32_t inside; /* loops and branches around */
} gen;

static uint64_t below(gen *g, uint64_t n) { return n ? chance_next(&g->state) % n : 0; }
static bool often(gen *g, uint64_t percent) { return below(g, 100) < percent; }
#define PICK(g, T, ...) (((const T[]){ __VA_ARGS__ })[below(g, sizeof((const T[]){ __VA_ARGS__ }) / sizeof(T))])

/* ---- types and pool ---------------------------------------------------------------------------------------------- */
static const xl_type *type_of(gen *g, xl_value v) { return xl_b_type(&g->b, v); }
static xl_dims dims_of(gen *g, xl_value v)
{
    const xl_type *t = type_of(g, v);
    return (xl_dims){ t->dims, t->rank };
}
static int64_t count_of(xl_dims d)
{
    int64_t n = 1;
    for (size_t i = 0; i < d.n; i++)
        n *= d.p[i];
    return n;
}
static bool same_dims(xl_dims a, xl_dims b) { return a.n == b.n && (!a.n || !memcmp(a.p, b.p, a.n * sizeof *a.p)); }
static bool is_float(xl_dtype d) { return xl_dtype_class(d) == XL_CLASS_FLOAT; }
static bool is_int(xl_dtype d) { return xl_dtype_class(d) == XL_CLASS_INT || xl_dtype_class(d) == XL_CLASS_UINT; }

static xl_value keep(gen *g, xl_value v)
{
    if (!xl_b_failed(&g->b) && g->nv < POOL_MAX)
        g->v[g->nv++] = v;
    return v;
}

static xl_value new_arg(gen *g, xl_dtype d, xl_dims dims, int64_t bound)
{
    xl_value v = xl_b_arg(&(xl_b){ g->b.f, g->b.f->body, g->b.loc, g->b.err }, xl_type_tensor(g->m, d, dims));
    g->arg[g->narg] = v;
    g->below[g->narg++] = bound;
    return v;
}

static xl_dtype any_float(gen *g)
{
    return often(g, 75) ? g->real : PICK(g, xl_dtype, XL_F32, XL_F32, XL_BF16, XL_F16, XL_F64);
}

static int64_t any_dim(gen *g) { return g->dim[below(g, g->ndim)]; }

static xl_dims any_shape(gen *g, int64_t *d, uint32_t rank)
{
    int64_t n = 1;
    for (uint32_t i = 0; i < rank; i++) {
        d[i] = any_dim(g);
        if (d[i] && n * d[i] > g->cap)
            d[i] = 1 + (int64_t)below(g, 3);
        n *= d[i] ? d[i] : 1;
    }
    return (xl_dims){ d, rank };
}

static xl_value like(gen *g, xl_dtype d, xl_dims dims);

/* A value for which `wanted` holds: recent ones more often. XL_NO_VALUE if there is none. */
typedef bool wanted_fn(gen *g, xl_value v);
static xl_value find(gen *g, wanted_fn *wanted)
{
    for (int i = 0; i < 12 && g->nv; i++) {
        uint32_t k = often(g, 60) ? g->nv - 1 - (uint32_t)below(g, g->nv < 4 ? g->nv : 4) : (uint32_t)below(g, g->nv);
        if (wanted(g, g->v[k]))
            return g->v[k];
    }
    for (uint32_t k = g->nv; k-- > 0;)
        if (wanted(g, g->v[k]))
            return g->v[k];
    return XL_NO_VALUE;
}
static bool want_float(gen *g, xl_value v) { return is_float(type_of(g, v)->dtype); }
static bool want_matrix(gen *g, xl_value v) { return want_float(g, v) && type_of(g, v)->rank >= 2; }
static bool want_ranked(gen *g, xl_value v) { return type_of(g, v)->rank >= 1; }
static bool want_float_ranked(gen *g, xl_value v) { return want_float(g, v) && type_of(g, v)->rank >= 1; }
static bool want_int(gen *g, xl_value v) { return is_int(type_of(g, v)->dtype); }

static xl_value some(gen *g, wanted_fn *wanted, uint32_t rank)
{
    int64_t d[DIMS_MAX];
    xl_value v = find(g, wanted);
    return xl_has(v) ? v : like(g, any_float(g), any_shape(g, d, rank));
}
static xl_value some_float(gen *g) { return some(g, want_float, 1 + (uint32_t)below(g, 3)); }
static xl_value some_matrix(gen *g) { return some(g, want_matrix, 2 + (uint32_t)below(g, 2)); }
static xl_value some_line(gen *g) { return some(g, want_float_ranked, 1 + (uint32_t)below(g, 3)); }

/* ---- shorthands -------------------------------------------------------------------------------------------------- */
#define U(op, x) xl_b_unary(&g->b, XL_OP_##op, x)
#define B(op, x, y) xl_b_binary(&g->b, XL_OP_##op, x, y)
static xl_value splat(gen *g, xl_value like, double v) { return xl_b_splat(&g->b, type_of(g, like), v); }
static xl_value scaled(gen *g, xl_value x, double v) { return v == 1 ? x : B(MULTIPLY, x, splat(g, x, v)); }
static xl_value plus(gen *g, xl_value x, double v) { return B(ADD, x, splat(g, x, v)); }
static xl_value compare(gen *g, int64_t dir, xl_value x, xl_value y) { return xl_b_compare(&g->b, dir, x, y); }
static xl_value positive(gen *g, xl_value x) { return compare(g, XL_COMPARISON_DIRECTION_GT, x, splat(g, x, 0)); }
/* Between -8 and 8, unless the program is a wild one. */
static xl_value tame(gen *g, xl_value x)
{
    if (g->wild)
        return x;
    xl_dtype d = type_of(g, x)->dtype;
    return xl_b_clamp(&g->b, xl_b_scalar(&g->b, d, -8), x, xl_b_scalar(&g->b, d, 8));
}
static xl_value spread(gen *g, xl_value x, xl_dims over, xl_dims to) /* x lacks the dimensions `over` of `to` */
{
    int64_t at[XL_RANK_MAX];
    uint32_t n = 0;
    for (size_t i = 0; i < to.n; i++) {
        bool gone = false;
        for (size_t k = 0; k < over.n; k++)
            gone |= over.p[k] == (int64_t)i;
        if (!gone)
            at[n++] = (int64_t)i;
    }
    return xl_b_broadcast(&g->b, x, to, (xl_dims){ at, n });
}
static double per(gen *g, xl_value x, xl_dims over)
{
    double n = 1;
    for (size_t i = 0; i < over.n; i++)
        n *= (double)type_of(g, x)->dims[over.p[i]];
    return n > 0 ? 1 / n : 1;
}
static xl_value mean(gen *g, xl_value x, xl_dims over)
{
    double n = per(g, x, over);
    return scaled(g, xl_b_sum(&g->b, x, over), n);
}
static xl_dims every_dim(gen *g, xl_value x, int64_t *d)
{
    for (int64_t i = 0; i < (int64_t)type_of(g, x)->rank; i++)
        d[i] = i;
    return (xl_dims){ d, type_of(g, x)->rank };
}
static xl_dims some_dims(gen *g, xl_value x, int64_t *d)
{
    uint32_t rank = type_of(g, x)->rank, n = 0;
    uint64_t kind = below(g, 4);
    for (uint32_t i = 0; i < rank; i++)
        if (kind == 0 ? i + 1 == rank : kind == 1 ? i == 0 : often(g, 50))
            d[n++] = i;
    return (xl_dims){ d, n };
}
static xl_value turned(gen *g, xl_value x) /* any permutation */
{
    int64_t p[XL_RANK_MAX];
    uint32_t n = type_of(g, x)->rank;
    for (uint32_t i = 0; i < n; i++)
        p[i] = i;
    for (uint32_t i = n; i-- > 1;) {
        uint32_t k = (uint32_t)below(g, i + 1);
        int64_t t = p[i];
        p[i] = p[k], p[k] = t;
    }
    return xl_b_transpose(&g->b, x, (xl_dims){ p, n });
}

/* A value of this type: one that is there, something made of one, an argument, or numbers. */
static xl_value like(gen *g, xl_dtype d, xl_dims dims)
{
    const xl_type *t = xl_type_tensor(g->m, d, dims);
    if (often(g, 75))
        for (int i = 0; i < 8 && g->nv; i++) {
            xl_value v = g->v[below(g, g->nv)];
            if (type_of(g, v) == t)
                return v;
        }
    if (often(g, 40))
        for (int i = 0; i < 8 && g->nv; i++) { /* the same elements under another shape or type */
            xl_value v = g->v[below(g, g->nv)];
            xl_dtype from = type_of(g, v)->dtype;
            if (count_of(dims_of(g, v)) == count_of(dims) && is_float(from) == is_float(d) &&
                (from == XL_I1) == (d == XL_I1))
                return xl_b_convert(&g->b, same_dims(dims_of(g, v), dims) ? v : xl_b_reshape(&g->b, v, dims), d);
        }
    if (dims.n && often(g, 35)) { /* the same along some dimensions */
        int64_t part[XL_RANK_MAX], at[XL_RANK_MAX];
        uint32_t n = 0;
        uint64_t kind = below(g, 4);
        for (size_t i = 0; i < dims.n; i++)
            if (kind == 0 ? false : kind == 1 ? i + 1 == dims.n : kind == 2 ? i + 1 < dims.n : often(g, 50)) {
                part[n] = often(g, 90) ? dims.p[i] : dims.p[i] ? 1 : 0;
                at[n++] = (int64_t)i;
            }
        if (n < dims.n)
            return xl_b_broadcast(&g->b, like(g, d, (xl_dims){ part, n }), dims, (xl_dims){ at, n });
    }
    if (g->narg < ARGS_MAX && often(g, g->narg < 8 ? 95 : 40))
        return keep(g, new_arg(g, d, dims, 0));
    if (d != XL_I1 && dims.n && often(g, 40))
        return xl_b_iota(&g->b, t, (int64_t)below(g, dims.n));
    return xl_b_splat(&g->b, t,
                      d == XL_I1 ? (double)below(g, 2) : (double)below(g, 5) * 0.25 + (is_int(d) ? 1 : 0.125));
}
static xl_value partner(gen *g, xl_value x) { return like(g, type_of(g, x)->dtype, dims_of(g, x)); }
/* Weights: an argument of their own. */
static xl_value weights(gen *g, xl_dtype d, xl_dims dims)
{
    if (g->narg < ARGS_MAX)
        return keep(g, new_arg(g, d, dims, 0));
    return like(g, d, dims);
}
static xl_value indices(gen *g, xl_dims dims, int64_t n)
{
    xl_dtype d = often(g, 80) ? XL_I32 : XL_I64;
    if (g->narg < ARGS_MAX)
        return new_arg(g, d, dims, n > 0 ? n : 1);
    return xl_b_splat(&g->b, xl_type_tensor(g->m, d, dims), n > 1 ? 1 : 0);
}

/* ---- elementwise ------------------------------------------------------------------------------------------------- */
static xl_value sigmoid(gen *g, xl_value x)
{
    if (often(g, 60))
        return U(LOGISTIC, x);
    return B(DIVIDE, splat(g, x, 1), plus(g, U(EXPONENTIAL, U(NEGATE, tame(g, x))), 1));
}
static xl_value softplus(gen *g, xl_value x)
{
    return B(ADD, B(MAXIMUM, x, splat(g, x, 0)), U(LOG_PLUS_ONE, U(EXPONENTIAL, U(NEGATE, U(ABS, x)))));
}
static xl_value activation(gen *g, xl_value x)
{
    switch (below(g, 20)) {
    case 0:
    case 1:
    case 2: return U(TANH, x);
    case 3: return sigmoid(g, x);
    case 4: return B(MAXIMUM, x, splat(g, x, 0));
    case 5:
        return B(MULTIPLY, scaled(g, x, 0.5),
                 plus(g, U(TANH, B(MULTIPLY, x, plus(g, scaled(g, B(MULTIPLY, x, x), 0.035677), 0.797885))), 1));
    case 6: return B(MULTIPLY, scaled(g, x, 0.5), plus(g, U(CHLO_ERF, scaled(g, x, 0.70710678)), 1));
    case 7: return B(MULTIPLY, x, sigmoid(g, x));
    case 8: return softplus(g, x);
    case 9: return xl_b_select(&g->b, positive(g, x), x, U(EXPONENTIAL_MINUS_ONE, B(MINIMUM, x, splat(g, x, 0))));
    case 10:
        return scaled(g,
                      xl_b_select(&g->b, positive(g, x), x,
                                  scaled(g, U(EXPONENTIAL_MINUS_ONE, B(MINIMUM, x, splat(g, x, 0))), 1.6733)),
                      1.0507);
    case 11: return xl_b_select(&g->b, positive(g, x), x, scaled(g, x, 0.01));
    case 12:
        return xl_b_clamp(&g->b, xl_b_scalar(&g->b, type_of(g, x)->dtype, -1), x,
                          xl_b_scalar(&g->b, type_of(g, x)->dtype, 1));
    case 13: {
        xl_value r = B(MAXIMUM, x, splat(g, x, 0));
        return B(MULTIPLY, r, r);
    }
    case 14: return U(SINE, x);
    case 15: return B(MULTIPLY, x, U(TANH, softplus(g, x)));
    case 16: return B(DIVIDE, x, plus(g, U(ABS, x), 1));
    case 17: return U(EXPONENTIAL, U(NEGATE, B(MULTIPLY, tame(g, x), tame(g, x))));
    case 18: return U(COSINE, x);
    default: return U(TANH, B(ADD, x, scaled(g, U(TANH, x), 0.5)));
    }
}
static xl_value nonzero(gen *g, xl_value x)
{
    return g->wild ? x : often(g, 50) ? plus(g, U(ABS, x), 0.5) : plus(g, B(MULTIPLY, x, x), 1);
}

static void m_unary(gen *g)
{
    xl_value x = some_float(g);
    switch (below(g, 18)) {
    case 0: x = U(EXPONENTIAL, tame(g, x)); break;
    case 1: x = U(LOG, nonzero(g, x)); break;
    case 2: x = U(SQRT, nonzero(g, x)); break;
    case 3: x = U(RSQRT, nonzero(g, x)); break;
    case 4: x = U(NEGATE, x); break;
    case 5: x = U(ABS, x); break;
    case 6: x = U(SIGN, x); break;
    case 7: x = U(FLOOR, scaled(g, x, 3)); break;
    case 8: x = U(ROUND_NEAREST_EVEN, scaled(g, x, 4)); break;
    case 9: x = U(CBRT, plus(g, x, 2)); break;
    case 10: x = xl_b_select(&g->b, U(IS_FINITE, x), x, splat(g, x, 1)); break;
    case 11: x = U(CEIL, x); break;
    case 12: x = plus(g, scaled(g, x, 2), -0.5); break;
    case 13: x = B(SUBTRACT, splat(g, x, 1), x); break;
    default: x = activation(g, x); break;
    }
    keep(g, x);
}

static void m_binary(gen *g)
{
    xl_value x = some_float(g), y = partner(g, x);
    switch (below(g, 14)) {
    case 0:
    case 1:
    case 2: x = B(ADD, x, y); break;
    case 3:
    case 4: x = B(SUBTRACT, x, y); break;
    case 5:
    case 6:
    case 7: x = B(MULTIPLY, x, y); break;
    case 8: x = B(DIVIDE, x, nonzero(g, y)); break;
    case 9: x = B(MAXIMUM, x, y); break;
    case 10: x = B(MINIMUM, x, y); break;
    case 11: x = B(POWER, nonzero(g, x), g->wild ? y : U(TANH, y)); break;
    case 12: x = B(ATAN2, x, plus(g, B(MULTIPLY, y, y), 1)); break;
    default: x = B(REMAINDER, x, nonzero(g, y)); break;
    }
    keep(g, x);
}

static xl_value truth(gen *g, xl_dims dims)
{
    if (often(g, 20))
        return like(g, XL_I1, dims);
    xl_dtype d = often(g, 80) ? any_float(g) : XL_I32;
    xl_value x = like(g, d, dims), y = like(g, d, dims);
    x = compare(g, (int64_t)below(g, 6), x, y);
    if (often(g, 30))
        x = often(g, 50)   ? B(AND, x, like(g, XL_I1, dims))
            : often(g, 50) ? B(OR, x, U(NOT, x))
                           : B(XOR, x, like(g, XL_I1, dims));
    return keep(g, x);
}

static void m_select(gen *g)
{
    xl_value x = some_float(g), y = partner(g, x);
    keep(g, xl_b_select(&g->b, truth(g, often(g, 90) ? dims_of(g, x) : (xl_dims){ NULL, 0 }), x, y));
}

static void m_clamp(gen *g)
{
    xl_value x = some_float(g);
    xl_dims d = often(g, 60) ? (xl_dims){ NULL, 0 } : dims_of(g, x);
    xl_dtype t = type_of(g, x)->dtype;
    keep(g, xl_b_clamp(&g->b, often(g, 50) ? like(g, t, d) : xl_b_splat(&g->b, xl_type_tensor(g->m, t, d), -0.5), x,
                       often(g, 50) ? like(g, t, d) : xl_b_splat(&g->b, xl_type_tensor(g->m, t, d), 1.5)));
}

static void m_int(gen *g)
{
    int64_t d[DIMS_MAX];
    xl_value x = often(g, 60) ? find(g, want_int) : XL_NO_VALUE;
    if (!xl_has(x))
        x = often(g, 60) ? keep(g, like(g, PICK(g, xl_dtype, XL_I32, XL_I32, XL_U32, XL_I8, XL_I64, XL_I16, XL_U8),
                                        any_shape(g, d, 1 + (uint32_t)below(g, 3))))
                         : xl_b_convert(&g->b, tame(g, some_float(g)), XL_I32);
    xl_value y = partner(g, x);
    switch (below(g, 12)) {
    case 0: x = B(ADD, x, y); break;
    case 1: x = B(MULTIPLY, x, y); break;
    case 2: x = B(AND, x, y); break;
    case 3: x = B(OR, x, y); break;
    case 4: x = B(XOR, x, y); break;
    case 5: x = B(SHIFT_LEFT, x, splat(g, x, (double)below(g, 9))); break;
    case 6: x = B(SHIFT_RIGHT_LOGICAL, x, splat(g, x, (double)below(g, 9))); break;
    case 7: x = B(SHIFT_RIGHT_ARITHMETIC, x, splat(g, x, (double)below(g, 9))); break;
    case 8: x = B(REMAINDER, x, splat(g, x, 7)); break;
    case 9: x = B(DIVIDE, x, splat(g, x, 3)); break;
    case 10: x = B(MAXIMUM, x, y); break;
    default: x = U(NOT, x); break;
    }
    keep(g, x);
    if (often(g, 50))
        keep(g, xl_b_convert(&g->b, B(REMAINDER, x, splat(g, x, 17)), any_float(g)));
}

static void m_convert(gen *g)
{
    xl_value x = some_float(g);
    keep(g, xl_b_convert(&g->b, x, PICK(g, xl_dtype, XL_F32, XL_BF16, XL_F16, XL_F64, XL_BF16)));
}

/* ---- reductions and norms ---------------------------------------------------------------------------------------- */
static void m_reduce(gen *g)
{
    int64_t d[XL_RANK_MAX];
    xl_value x = some_line(g);
    xl_dims over = some_dims(g, x, d);
    xl_dtype t = type_of(g, x)->dtype;
    switch (below(g, 9)) {
    case 0: x = xl_b_max(&g->b, x, over); break;
    case 1: x = xl_b_reduce(&g->b, x, xl_b_scalar(&g->b, t, INFINITY), over, XL_OP_MINIMUM); break;
    case 2:
        x = xl_b_reduce(&g->b, plus(g, scaled(g, U(TANH, x), 0.01), 1), xl_b_scalar(&g->b, t, 1), over, XL_OP_MULTIPLY);
        break;
    case 3: x = mean(g, B(MULTIPLY, x, x), over); break;
    case 4: x = xl_b_reduce(&g->b, truth(g, dims_of(g, x)), xl_b_scalar(&g->b, XL_I1, 0), over, XL_OP_OR); break;
    case 5: x = xl_b_sum(&g->b, xl_b_convert(&g->b, truth(g, dims_of(g, x)), XL_I32), over); break;
    case 6: {
        xl_value y = partner(g, x);
        keep(g, mean(g, x, over));
        x = mean(g, B(MULTIPLY, x, y), over);
        break;
    }
    default: x = mean(g, x, over); break;
    }
    keep(g, x);
}

static xl_value log_or_soft_max(gen *g, xl_value x, xl_dims over, bool logs)
{
    xl_dims all = dims_of(g, x);
    x = tame(g, x);
    xl_value m = xl_b_max(&g->b, x, over);
    if (often(g, 30))
        m = B(MAXIMUM, m, splat(g, m, -INFINITY));
    xl_value c = B(SUBTRACT, x, spread(g, m, over, all)), e = U(EXPONENTIAL, c), s = xl_b_sum(&g->b, e, over);
    return logs ? B(SUBTRACT, c, spread(g, U(LOG, s), over, all)) : B(DIVIDE, e, spread(g, s, over, all));
}

static xl_value norm(gen *g, xl_value x, xl_dims over, bool centred)
{
    xl_dims all = dims_of(g, x);
    xl_value c = x;
    if (centred)
        c = B(SUBTRACT, x, spread(g, mean(g, x, over), over, all));
    xl_value var = mean(g, B(MULTIPLY, c, c), over);
    xl_value inv =
        often(g, 60) ? U(RSQRT, plus(g, var, 1e-2)) : B(DIVIDE, splat(g, var, 1), U(SQRT, plus(g, var, 1e-2)));
    c = B(MULTIPLY, c, spread(g, inv, over, all));
    if (often(g, 60))
        c = B(MULTIPLY, c, partner(g, x));
    return often(g, 60) ? B(ADD, c, partner(g, x)) : c;
}

static xl_dims norm_dims(gen *g, xl_value x, int64_t *d)
{
    if (often(g, 70)) {
        d[0] = (int64_t)type_of(g, x)->rank - 1;
        return (xl_dims){ d, 1 };
    }
    return some_dims(g, x, d);
}

static void m_norm(gen *g)
{
    int64_t d[XL_RANK_MAX];
    xl_value x = some_line(g);
    xl_dims over = norm_dims(g, x, d);
    switch (below(g, 4)) {
    case 0: keep(g, log_or_soft_max(g, x, over, false)); break;
    case 1: keep(g, log_or_soft_max(g, x, over, true)); break;
    case 2: keep(g, norm(g, x, over, true)); break;
    default: keep(g, norm(g, x, over, false)); break;
    }
}

/* The row's element that a label names: by comparing with an iota, or by a gather; and PyTorch's way with a label to
 * ignore. */
static xl_value entropy(gen *g, xl_value x)
{
    xl_dims all = dims_of(g, x), rows = { all.p, all.n - 1 };
    int64_t last = (int64_t)all.n - 1, v = all.p[last];
    xl_value logs = log_or_soft_max(g, x, (xl_dims){ &last, 1 }, true), label = indices(g, rows, v);
    const xl_type *ti = xl_type_tensor(g->m, type_of(g, label)->dtype, all);
    int64_t up[XL_RANK_MAX];
    for (int64_t i = 0; i < last; i++)
        up[i] = i;
    xl_value iota = xl_b_iota(&g->b, ti, last),
             hot = compare(g, XL_COMPARISON_DIRECTION_EQ,
                           xl_b_broadcast(&g->b, label, all, (xl_dims){ up, (size_t)last }), iota);
    xl_value zero = splat(g, x, 0),
             pick = xl_b_select(&g->b, hot, often(g, 50) ? splat(g, x, -1) : U(NEGATE, logs), zero);
    if (often(g, 50))
        pick = B(MULTIPLY, xl_b_convert(&g->b, hot, type_of(g, x)->dtype), U(NEGATE, logs));
    xl_value loss = xl_b_sum(&g->b, pick, (xl_dims){ &last, 1 });
    if (often(g, 40)) { /* some labels do not count */
        xl_value counts = compare(g, XL_COMPARISON_DIRECTION_NE, label, splat(g, label, (double)(v - 1)));
        xl_value w = xl_b_convert(&g->b, counts, type_of(g, x)->dtype);
        int64_t d[XL_RANK_MAX];
        xl_value n = xl_b_sum(&g->b, w, every_dim(g, w, d));
        loss = xl_b_sum(&g->b, xl_b_select(&g->b, counts, loss, splat(g, loss, 0)), every_dim(g, loss, d));
        return B(DIVIDE, loss, B(MAXIMUM, n, splat(g, n, 1)));
    }
    return loss;
}
static void m_entropy(gen *g) { keep(g, entropy(g, some_line(g))); }

/* ---- products ---------------------------------------------------------------------------------------------------- */
static xl_value dot(gen *g, xl_value x, xl_value y, xl_dims xb, xl_dims yb, xl_dims xc, xl_dims yc)
{
    xl_dtype a = type_of(g, x)->dtype, b = type_of(g, y)->dtype;
    double k = 1;
    for (size_t i = 0; i < xc.n; i++)
        k *= (double)type_of(g, x)->dims[xc.p[i]];
    xl_dtype out = a != XL_F64 && b != XL_F64 && often(g, 20) ? XL_F32 : a;
    if (a != b) {
        y = xl_b_convert(&g->b, y, a);
    }
    xl_value z = xl_b_dot_general(&g->b, x, y, &(xl_b_dot_dims){ xb, yb, xc, yc, out, 0 });
    return k > 0 && is_float(a) ? scaled(g, z, 1 / sqrt(k)) : z;
}

static void m_matmul(gen *g)
{
    bool few = often(g, 10); /* a batch of none, or of one */
    xl_value x = few ? like(g, any_float(g), XL_DIMS(PICK(g, int64_t, 0, 0, 1), 1 + (int64_t)below(g, 9), any_dim(g)))
                     : some_matrix(g);
    const xl_type *t = type_of(g, x);
    uint32_t rank = t->rank, batch = (uint32_t)below(g, rank - 1);
    int64_t xb[XL_RANK_MAX], yb[XL_RANK_MAX], yd[XL_RANK_MAX], n = 1;
    if (few)
        batch = 1;
    else if (often(g, 40)) /* all leading dimensions of x are rows */
        batch = 0;
    int64_t at = batch + (int64_t)below(g, rank - batch), k = t->dims[at], yc = batch + (int64_t)below(g, 2);
    for (uint32_t i = 0; i < batch; i++)
        xb[i] = yb[i] = i, yd[i] = t->dims[i], n *= yd[i];
    int64_t cols = any_dim(g), rows = 1;
    for (uint32_t i = batch; i < rank; i++) /* a product over nothing has rows too */
        rows *= i == at ? 1 : t->dims[i];
    if (n * cols * rows > g->cap || n * k * cols > g->cap * 2 || rows * cols * k * n > (int64_t)1 << 22)
        cols = 1 + (int64_t)below(g, 4);
    yd[batch] = yc == batch ? k : cols;
    yd[batch + 1] = yc == batch ? cols : k;
    xl_value y =
        often(g, 60) ? weights(g, t->dtype, (xl_dims){ yd, batch + 2 }) : like(g, t->dtype, (xl_dims){ yd, batch + 2 });
    xl_value z =
        often(g, 85)
            ? dot(g, x, y, (xl_dims){ xb, batch }, (xl_dims){ yb, batch }, (xl_dims){ &at, 1 }, (xl_dims){ &yc, 1 })
            : dot(g, y, x, (xl_dims){ yb, batch }, (xl_dims){ xb, batch }, (xl_dims){ &yc, 1 }, (xl_dims){ &at, 1 });
    keep(g, z);
    if (often(g, 20) && type_of(g, z)->rank >= 2)
        keep(g, turned(g, z));
}

static xl_value dense(gen *g, xl_value x, int64_t to)
{
    const xl_type *t = type_of(g, x);
    int64_t last = (int64_t)t->rank - 1, zero = 0, wd[2] = { t->dims[last], to };
    xl_value z = dot(g, x, weights(g, t->dtype, (xl_dims){ wd, 2 }), XL_NO_DIMS, XL_NO_DIMS, (xl_dims){ &last, 1 },
                     (xl_dims){ &zero, 1 });
    if (often(g, 60)) {
        int64_t at = (int64_t)type_of(g, z)->rank - 1, n = to;
        z = B(ADD, z,
              xl_b_broadcast(&g->b, like(g, type_of(g, z)->dtype, (xl_dims){ &n, 1 }), dims_of(g, z),
                             (xl_dims){ &at, 1 }));
    }
    return z;
}

static int64_t width(gen *g, int64_t rows, int64_t k) /* of a layer from k features, over so many rows */
{
    int64_t w = any_dim(g);
    while (w > 1 && (rows * w > g->cap || k * w > g->cap || rows * k * w > (int64_t)1 << 22))
        w /= 2;
    return w;
}

static void m_mlp(gen *g)
{
    xl_value x = some_matrix(g);
    int64_t last = (int64_t)type_of(g, x)->rank - 1, k = type_of(g, x)->dims[last],
            rows = k ? count_of(dims_of(g, x)) / k : 1;
    if (k > 4096 || !k)
        return;
    uint64_t kind = below(g, 20);
    for (uint64_t i = 1 + below(g, 3); i-- > 0;) {
        xl_value h = dense(g, x, width(g, rows, type_of(g, x)->dims[last]));
        if (often(g, 40))
            keep(g, h);
        if (often(g, 25)) { /* gated */
            xl_value u = dense(g, x, type_of(g, h)->dims[last]);
            h = B(MULTIPLY, activation(g, h), xl_b_convert(&g->b, u, type_of(g, h)->dtype));
        } else {
            uint64_t s = g->state;
            if (kind < 10) /* mostly the same one in all layers */
                g->state = kind;
            h = activation(g, h);
            if (kind < 10)
                g->state = s;
        }
        if (same_dims(dims_of(g, h), dims_of(g, x)) && type_of(g, h) == type_of(g, x) && often(g, 50))
            h = B(ADD, h, x);
        x = keep(g, h);
    }
}

static void m_attention(gen *g)
{
    int64_t heads = PICK(g, int64_t, 1, 2, 3, 4), size = PICK(g, int64_t, 4, 8, 16, 5),
            batch = PICK(g, int64_t, 1, 2, 3, 8), time = any_dim(g);
    while (time > 4 && batch * heads * time * time > g->cap * 2)
        time /= 2;
    int64_t model = heads * size, xd[3] = { batch, time, model };
    xl_dtype t = any_float(g);
    xl_value x = like(g, t, (xl_dims){ xd, 3 }), q, k, v;
    bool fold = often(g, 50); /* batch and heads as one dimension, as PyTorch/XLA has it */
    if (often(g, 50)) { /* one product for all three */
        xl_value qkv = dense(g, x, 3 * model);
        t = type_of(g, qkv)->dtype;
        if (often(g, 50)) {
            qkv = xl_b_reshape(&g->b, qkv, XL_DIMS(batch, time, 3, heads, size));
            qkv = xl_b_transpose(&g->b, qkv, XL_DIMS(2, 0, 3, 1, 4));
            xl_value *part[3] = { &q, &k, &v };
            for (int64_t i = 0; i < 3; i++)
                *part[i] = xl_b_reshape(&g->b,
                                        xl_b_slice(&g->b, qkv, XL_DIMS(i, 0, 0, 0, 0),
                                                   XL_DIMS(i + 1, batch, heads, time, size), XL_NO_DIMS),
                                        XL_DIMS(batch, heads, time, size));
        } else {
            xl_value *part[3] = { &q, &k, &v };
            for (int64_t i = 0; i < 3; i++) {
                xl_value s =
                    xl_b_slice(&g->b, qkv, XL_DIMS(0, 0, i * model), XL_DIMS(batch, time, (i + 1) * model), XL_NO_DIMS);
                *part[i] = xl_b_transpose(&g->b, xl_b_reshape(&g->b, s, XL_DIMS(batch, time, heads, size)),
                                          XL_DIMS(0, 2, 1, 3));
            }
        }
    } else {
        xl_value *part[3] = { &q, &k, &v };
        for (int64_t i = 0; i < 3; i++) {
            xl_value s = xl_b_convert(&g->b, dense(g, x, model), t);
            *part[i] =
                xl_b_transpose(&g->b, xl_b_reshape(&g->b, s, XL_DIMS(batch, time, heads, size)), XL_DIMS(0, 2, 1, 3));
        }
    }
    if (often(g, 25)) { /* rotary */
        xl_value lo = xl_b_slice(&g->b, q, XL_DIMS(0, 0, 0, 0), XL_DIMS(batch, heads, time, size / 2), XL_NO_DIMS);
        xl_value hi = xl_b_slice(&g->b, q, XL_DIMS(0, 0, 0, size / 2), XL_DIMS(batch, heads, time, size), XL_NO_DIMS);
        xl_value turn = xl_b_concat(&g->b, (xl_value[]){ U(NEGATE, hi), lo }, 2, 3),
                 at = xl_b_iota(&g->b, type_of(g, q), 2);
        q = B(ADD, B(MULTIPLY, q, U(COSINE, at)), B(MULTIPLY, turn, U(SINE, at)));
    }
    xl_value s, o;
    if (fold) {
        q = xl_b_reshape(&g->b, q, XL_DIMS(batch * heads, time, size));
        k = xl_b_reshape(&g->b, xl_b_transpose(&g->b, k, XL_DIMS(0, 1, 3, 2)), XL_DIMS(batch * heads, size, time));
        v = xl_b_reshape(&g->b, v, XL_DIMS(batch * heads, time, size));
        s = dot(g, q, k, XL_DIMS(0), XL_DIMS(0), XL_DIMS(2), XL_DIMS(1));
        s = xl_b_reshape(&g->b, s, XL_DIMS(batch, heads, time, time));
    } else {
        s = dot(g, q, k, XL_DIMS(0, 1), XL_DIMS(0, 1), XL_DIMS(3), XL_DIMS(3));
    }
    if (often(g, 60)) { /* causal */
        const xl_type *ti = xl_type_tensor(g->m, XL_I32, XL_DIMS(time, time));
        xl_value see = compare(g, XL_COMPARISON_DIRECTION_GE, xl_b_iota(&g->b, ti, 0), xl_b_iota(&g->b, ti, 1));
        s = xl_b_select(&g->b, xl_b_broadcast(&g->b, see, dims_of(g, s), XL_DIMS(2, 3)), s, splat(g, s, -1e9));
    }
    s = xl_b_convert(&g->b, log_or_soft_max(g, s, XL_DIMS(3), false), t);
    if (often(g, 30))
        keep(g, s);
    if (fold) {
        s = xl_b_reshape(&g->b, s, XL_DIMS(batch * heads, time, time));
        o = xl_b_reshape(&g->b, dot(g, s, v, XL_DIMS(0), XL_DIMS(0), XL_DIMS(2), XL_DIMS(1)),
                         XL_DIMS(batch, heads, time, size));
    } else {
        o = dot(g, s, v, XL_DIMS(0, 1), XL_DIMS(0, 1), XL_DIMS(3), XL_DIMS(2));
    }
    o = xl_b_reshape(&g->b, xl_b_transpose(&g->b, o, XL_DIMS(0, 2, 1, 3)), XL_DIMS(batch, time, model));
    if (often(g, 60))
        o = dense(g, o, model);
    if (often(g, 50))
        o = B(ADD, xl_b_convert(&g->b, o, type_of(g, x)->dtype), x);
    keep(g, o);
    if (often(g, 40)) {
        xl_value flat = often(g, 50) ? xl_b_reshape(&g->b, o, XL_DIMS(batch * time, model)) : o;
        keep(g, entropy(g, dense(g, flat, PICK(g, int64_t, 5, 16, 64, 65))));
    }
}

typedef struct { uint32_t slot; int64_t value; } slot_value;

static void m_conv(gen *g)
{
    int64_t n = PICK(g, int64_t, 1, 2, 5, 8), c = PICK(g, int64_t, 1, 3, 4, 8, 17),
            o = PICK(g, int64_t, 1, 4, 8, 9, 32), groups = 1;
    int64_t h = PICK(g, int64_t, 3, 5, 8, 16, 17, 32), w = PICK(g, int64_t, 3, 4, 9, 16, 33),
            k = PICK(g, int64_t, 1, 2, 3, 3, 5), s = PICK(g, int64_t, 1, 1, 2);
    while (n * h * w * (c > o ? c : o) > g->cap && h > 3)
        h = h / 2 + 1, w = w / 2 + 1;
    if (often(g, 25))
        groups = c, o = c * PICK(g, int64_t, 1, 2);
    bool last = often(g, 60); /* channels last */
    int64_t low = (int64_t)below(g, (uint64_t)k + 1), high = k - 1 - low < 0 ? 0 : k - 1 - low;
    if (h + low + high < k || w + low + high < k)
        return;
    xl_dtype t = any_float(g);
    xl_value x = like(g, t, last ? XL_DIMS(n, h, w, c) : XL_DIMS(n, c, h, w));
    xl_value f = weights(g, t, last ? XL_DIMS(k, k, c / groups, o) : XL_DIMS(o, c / groups, k, k));
    int64_t oh = (h + low + high - k) / s + 1, ow = (w + low + high - k) / s + 1;
    const xl_type *to = xl_type_tensor(g->m, t, last ? XL_DIMS(n, oh, ow, o) : XL_DIMS(n, o, oh, ow));
    xl_op *op = xl_b_begin(&g->b, XL_OP_CONVOLUTION, (xl_value[]){ x, f }, 2, &to, 1, 0);
    if (!op)
        return;
#define SET(name, v) xl_b_set_int(&g->b, op, XL_SLOT(CONVOLUTION, name), v)
    SET(batch_group_count, 1), SET(feature_group_count, groups);
    SET(input_batch_dimension, 0), SET(input_feature_dimension, last ? 3 : 1);
    SET(output_batch_dimension, 0), SET(output_feature_dimension, last ? 3 : 1);
    SET(kernel_input_feature_dimension, last ? 2 : 1), SET(kernel_output_feature_dimension, last ? 3 : 0);
#undef SET
    xl_dims sp = last ? XL_DIMS(1, 2) : XL_DIMS(2, 3);
    xl_b_set_dims(&g->b, op, XL_SLOT(CONVOLUTION, input_spatial_dimensions), sp);
    xl_b_set_dims(&g->b, op, XL_SLOT(CONVOLUTION, output_spatial_dimensions), sp);
    xl_b_set_dims(&g->b, op, XL_SLOT(CONVOLUTION, kernel_spatial_dimensions), last ? XL_DIMS(0, 1) : XL_DIMS(2, 3));
    xl_b_set_dims(&g->b, op, XL_SLOT(CONVOLUTION, window_strides), XL_DIMS(s, s));
    xl_b_set_dims(&g->b, op, XL_SLOT(CONVOLUTION, padding), XL_DIMS(low, high, low, high));
    xl_value z = scaled(g, xl_b_end1(&g->b, op), 1 / sqrt((double)(k * k * c / groups)));
    keep(g, z);
    if (often(g, 60))
        z = keep(g, activation(g, often(g, 40) ? norm(g, z, last ? XL_DIMS(0, 1, 2) : XL_DIMS(0, 2, 3), true) : z));
    if (often(g, 20))
        keep(g, mean(g, z, sp));
}

/* A convolution as the gradient of a kernel has it: features first, images last, a window as large as an activation,
 * or larger, which leaves nothing. */
static void m_conv_kernel(gen *g)
{
    int64_t n = PICK(g, int64_t, 1, 2, 3, 8), c = PICK(g, int64_t, 1, 2, 5, 16), o = PICK(g, int64_t, 1, 4, 9),
            h = PICK(g, int64_t, 3, 5, 8, 16), k = h + PICK(g, int64_t, -2, -1, 0, 0, 1, 2), low = (int64_t)below(g, 2),
            out = h + 2 * low < k ? 0 : h + 2 * low - k + 1;
    while (c * h * h * (n > o ? n : o) > g->cap && c > 1)
        c /= 2;
    xl_dtype t = any_float(g);
    xl_value x = like(g, t, XL_DIMS(c, h, h, n)), f = weights(g, t, XL_DIMS(c, k, k, o));
    const xl_type *to = xl_type_tensor(g->m, t, XL_DIMS(out, out, n, o));
    xl_op *op = xl_b_begin(&g->b, XL_OP_CONVOLUTION, (xl_value[]){ x, f }, 2, &to, 1, 0);
    if (!op)
        return;
    static const slot_value number[] = {
        { XL_SLOT(CONVOLUTION, batch_group_count), 1 },        { XL_SLOT(CONVOLUTION, feature_group_count), 1 },
        { XL_SLOT(CONVOLUTION, input_batch_dimension), 3 },    { XL_SLOT(CONVOLUTION, input_feature_dimension), 0 },
        { XL_SLOT(CONVOLUTION, output_batch_dimension), 2 },   { XL_SLOT(CONVOLUTION, output_feature_dimension), 3 },
        { XL_SLOT(CONVOLUTION, kernel_input_feature_dimension), 0 },
        { XL_SLOT(CONVOLUTION, kernel_output_feature_dimension), 3 },
    };
    for (size_t i = 0; i < sizeof number / sizeof *number; i++)
        xl_b_set_int(&g->b, op, number[i].slot, number[i].value);
    xl_b_set_dims(&g->b, op, XL_SLOT(CONVOLUTION, input_spatial_dimensions), XL_DIMS(1, 2));
    xl_b_set_dims(&g->b, op, XL_SLOT(CONVOLUTION, output_spatial_dimensions), XL_DIMS(0, 1));
    xl_b_set_dims(&g->b, op, XL_SLOT(CONVOLUTION, kernel_spatial_dimensions), XL_DIMS(1, 2));
    xl_b_set_dims(&g->b, op, XL_SLOT(CONVOLUTION, padding), XL_DIMS(low, low, low, low));
    keep(g, scaled(g, xl_b_end1(&g->b, op), 1 / sqrt((double)(k * k * c))));
}

/* Sums or maxima over windows: pooling, and running sums. */
static void m_window(gen *g)
{
    xl_value x = some_line(g);
    const xl_type *t = type_of(g, x);
    int64_t win[XL_RANK_MAX], step[XL_RANK_MAX], pad[2 * XL_RANK_MAX], at = (int64_t)below(g, t->rank),
                                                                       out[XL_RANK_MAX];
    bool running = often(g, 30) && t->dims[at] > 0 && t->dims[at] < 300, max = !running && often(g, 50);
    if (!count_of(dims_of(g, x)))
        return;
    for (uint32_t i = 0; i < t->rank; i++) {
        win[i] = step[i] = 1, pad[2 * i] = pad[2 * i + 1] = 0;
        if (running ? i == at : i + 2 >= t->rank && t->dims[i] >= 2) {
            win[i] = running ? t->dims[i] : 2 + (int64_t)below(g, 2);
            step[i] = running ? 1 : 1 + (int64_t)below(g, 2);
            pad[2 * i] = win[i] - 1;
        }
        out[i] = (t->dims[i] + pad[2 * i] - win[i]) / step[i] + 1;
    }
    (void)out;
    xl_op *op = xl_b_begin(&g->b, XL_OP_REDUCE_WINDOW,
                           (xl_value[]){ x, xl_b_scalar(&g->b, t->dtype, max ? -INFINITY : 0) }, 2, NULL, 1, 1);
    if (!op)
        return;
    xl_b in = xl_b_region(&g->b, op, 0);
    const xl_type *s = xl_type_scalar(g->m, t->dtype);
    xl_value p = xl_b_arg(&in, s), q = xl_b_arg(&in, s), r = xl_b_binary(&in, max ? XL_OP_MAXIMUM : XL_OP_ADD, p, q);
    xl_b_return(&in, &r, 1);
    xl_b_set_dims(&g->b, op, XL_SLOT(REDUCE_WINDOW, window_dimensions), (xl_dims){ win, t->rank });
    xl_b_set_dims(&g->b, op, XL_SLOT(REDUCE_WINDOW, window_strides), (xl_dims){ step, t->rank });
    xl_b_set_dims(&g->b, op, XL_SLOT(REDUCE_WINDOW, padding), (xl_dims){ pad, 2 * t->rank });
    keep(g, xl_b_end1(&g->b, op));
}

/* ---- movement ---------------------------------------------------------------------------------------------------- */
static void m_move(gen *g)
{
    xl_value x = often(g, 80) ? some_line(g) : some(g, want_ranked, 2), y;
    const xl_type *t = type_of(g, x);
    int64_t lo[XL_RANK_MAX], hi[XL_RANK_MAX], st[XL_RANK_MAX], d[XL_RANK_MAX];
    uint32_t n = t->rank;
    switch (below(g, 10)) {
    case 0:
    case 1: x = xl_b_reverse(&g->b, x, some_dims(g, x, d)); break;
    case 2:
    case 3: x = turned(g, x); break;
    case 4: {
        int64_t at = (int64_t)below(g, n);
        if (2 * count_of(dims_of(g, x)) > 2 * g->cap)
            return;
        y = often(g, 70) ? partner(g, x) : x;
        x = xl_b_concat(&g->b, often(g, 50) ? (xl_value[]){ x, y } : (xl_value[]){ y, x }, 2, at);
        break;
    }
    case 5: {
        int64_t inner = 0, count = 1;
        for (uint32_t i = 0; i < n; i++) {
            lo[i] = (int64_t)below(g, 4) - 1, hi[i] = (int64_t)below(g, 4) - 1, st[i] = often(g, 15) ? 1 : 0;
            if (t->dims[i] < 3)
                lo[i] = lo[i] < 0 ? 0 : lo[i], hi[i] = hi[i] < 0 ? 0 : hi[i];
            inner = t->dims[i] + lo[i] + hi[i] + (t->dims[i] > 0 ? (t->dims[i] - 1) * st[i] : 0);
            count *= inner;
        }
        if (count > 3 * g->cap)
            return;
        x = xl_b_pad(&g->b, x, xl_b_scalar(&g->b, t->dtype, 0), (xl_dims){ lo, n }, (xl_dims){ hi, n },
                     (xl_dims){ st, n });
        break;
    }
    case 6:
    case 7:
        for (uint32_t i = 0; i < n; i++) {
            lo[i] = often(g, 50) ? 0 : (int64_t)below(g, (uint64_t)t->dims[i] + 1);
            hi[i] = often(g, 50) ? t->dims[i] : lo[i] + (int64_t)below(g, (uint64_t)(t->dims[i] - lo[i]) + 1);
            st[i] = often(g, 80) ? 1 : 1 + (int64_t)below(g, 3);
        }
        x = xl_b_slice(&g->b, x, (xl_dims){ lo, n }, (xl_dims){ hi, n }, (xl_dims){ st, n });
        break;
    case 8: { /* two dimensions as one, or one as two */
        uint32_t k = 0, at = (uint32_t)below(g, n);
        for (uint32_t i = 0; i < n; i++)
            if (n > 1 && i == at && i + 1 < n)
                d[k++] = t->dims[i] * t->dims[i + 1], i++;
            else if (i == at && t->dims[i] > 1 && t->dims[i] % 2 == 0)
                d[k++] = 2, d[k++] = t->dims[i] / 2;
            else
                d[k++] = t->dims[i];
        x = xl_b_reshape(&g->b, x, (xl_dims){ d, k });
        break;
    }
    default: {
        int64_t more = PICK(g, int64_t, 1, 2, 3);
        if (n >= DIMS_MAX - 1 || count_of(dims_of(g, x)) * more > g->cap)
            return;
        uint32_t at = (uint32_t)below(g, n + 1);
        for (uint32_t i = 0; i <= n; i++)
            d[i] = i == at ? more : t->dims[i < at ? i : i - 1];
        for (uint32_t i = 0, j = 0; i <= n; i++)
            if (i != at)
                lo[j++] = i;
        x = xl_b_broadcast(&g->b, x, (xl_dims){ d, n + 1 }, (xl_dims){ lo, n });
        break;
    }
    }
    keep(g, x);
}

/* A value that is read as it is and turned, flipped or cut, by others: what must not be overwritten. */
static void m_shared(gen *g)
{
    int64_t d[XL_RANK_MAX];
    xl_value x = some_matrix(g), y = often(g, 50) ? scaled(g, x, 2) : activation(g, x), z;
    keep(g, y);
    z = often(g, 60) ? xl_b_reverse(&g->b, y, some_dims(g, y, d)) : turned(g, y);
    keep(g, z);
    if (type_of(g, z) == type_of(g, y))
        keep(g, B(ADD, often(g, 50) ? xl_b_reverse(&g->b, x, some_dims(g, x, d)) : z, y));
    if (often(g, 50))
        keep(g, B(MULTIPLY, y, partner(g, y)));
}

static void m_gather(gen *g)
{
    xl_value x = some_matrix(g);
    const xl_type *t = type_of(g, x);
    int64_t rows = t->dims[0], k = any_dim(g), size[XL_RANK_MAX], off[XL_RANK_MAX], zero = 0, one = 1;
    if (!rows)
        return;
    int64_t each = count_of(dims_of(g, x)) / rows;
    while (k > 1 && k * each > g->cap)
        k /= 2;
    size[0] = 1;
    for (uint32_t i = 1; i < t->rank; i++)
        size[i] = t->dims[i], off[i - 1] = i;
    xl_value at = indices(g, XL_DIMS(k, 1), rows);
    xl_value z = xl_b_gather(&g->b, x, at,
                             &(xl_b_gather_dims){ .offset = { off, t->rank - 1 },
                                                  .collapsed = { &zero, 1 },
                                                  .map = { &zero, 1 },
                                                  .sizes = { size, t->rank },
                                                  .vector_dim = one });
    keep(g, z);
    if (often(g, 50)) { /* and back: rows are added where they came from */
        for (uint32_t i = 1; i < t->rank; i++)
            off[i - 1] = i;
        xl_value to = often(g, 50) ? x : splat(g, x, 0), up = often(g, 70) ? z : partner(g, z);
        xl_opcode how = !g->grad && often(g, 30) ? PICK(g, xl_opcode, XL_OP_MAXIMUM, XL_OP_MINIMUM) : XL_OP_ADD;
        keep(g, xl_b_scatter(&g->b, to, at, up,
                             &(xl_b_scatter_dims){ .window = { off, t->rank - 1 },
                                                   .inserted = { &zero, 1 },
                                                   .map = { &zero, 1 },
                                                   .vector_dim = one },
                             how));
    }
}

static void m_dynamic(gen *g)
{
    xl_value x = some_line(g), start[XL_RANK_MAX];
    const xl_type *t = type_of(g, x);
    int64_t size[XL_RANK_MAX];
    for (uint32_t i = 0; i < t->rank; i++) {
        size[i] = often(g, 40) ? t->dims[i] : t->dims[i] ? 1 + (int64_t)below(g, (uint64_t)t->dims[i]) : 0;
        start[i] = often(g, 30) && g->narg < ARGS_MAX
                       ? xl_b_convert(&g->b, indices(g, XL_NO_DIMS, t->dims[i] + 2), XL_I32)
                       : xl_b_scalar(&g->b, XL_I32, (double)below(g, (uint64_t)t->dims[i] + 2));
    }
    xl_value part = xl_b_dynamic_slice(&g->b, x, start, (xl_dims){ size, t->rank });
    keep(g, part);
    if (often(g, 60)) {
        xl_value up = often(g, 50) ? activation(g, part) : partner(g, part);
        keep(g, xl_b_dynamic_update_slice(&g->b, often(g, 70) ? x : partner(g, x), up, start));
    }
}

static void m_sort(gen *g)
{
    xl_value x = some_line(g);
    const xl_type *t = type_of(g, x);
    int64_t dim = (int64_t)t->rank - 1;
    bool pair = often(g, 50);
    if (t->dims[dim] > 2048 || g->wild)
        return;
    xl_value in[2] = {
        x, pair ? (often(g, 50) ? xl_b_iota(&g->b, xl_type_with_dtype(g->m, t, XL_I32), dim) : partner(g, x)) : x
    };
    const xl_type *out[2] = { t, type_of(g, in[1]) };
    xl_op *op = xl_b_begin(&g->b, XL_OP_SORT, in, pair ? 2 : 1, out, pair ? 2 : 1, 1);
    if (!op)
        return;
    xl_b r = xl_b_region(&g->b, op, 0);
    xl_value p = xl_b_arg(&r, xl_type_scalar(g->m, t->dtype)), q = xl_b_arg(&r, xl_type_scalar(g->m, t->dtype));
    for (int i = 0; pair && i < 2; i++)
        xl_b_arg(&r, xl_type_scalar(g->m, out[1]->dtype));
    xl_value c = xl_b_compare(&r, often(g, 50) ? XL_COMPARISON_DIRECTION_LT : XL_COMPARISON_DIRECTION_GT, p, q);
    xl_b_return(&r, &c, 1);
    xl_b_set_int(&g->b, op, XL_SLOT(SORT, dimension), dim);
    xl_b_set(&g->b, op, XL_SLOT(SORT, is_stable), xl_attr_bool(g->m, true));
    if (xl_b_end(&g->b, op))
        for (int i = 0; i < 1 + pair; i++)
            keep(g, op->out[i]);
}

/* Where the greatest element is: a reduction of two tensors. */
static void m_argmax(gen *g)
{
    xl_value x = some_line(g);
    const xl_type *t = type_of(g, x), *ti = xl_type_with_dtype(g->m, t, XL_I32);
    int64_t dim = (int64_t)below(g, t->rank);
    if (!count_of(dims_of(g, x)) || g->wild)
        return;
    xl_value in[4] = { x, xl_b_iota(&g->b, ti, dim), xl_b_scalar(&g->b, t->dtype, -INFINITY),
                       xl_b_scalar(&g->b, XL_I32, 0) };
    xl_op *op = xl_b_begin(&g->b, XL_OP_REDUCE, in, 4, NULL, 2, 1);
    if (!op)
        return;
    xl_b r = xl_b_region(&g->b, op, 0);
    const xl_type *s = xl_type_scalar(g->m, t->dtype), *si = xl_type_scalar(g->m, XL_I32);
    xl_value a = xl_b_arg(&r, s), ai = xl_b_arg(&r, si), b = xl_b_arg(&r, s), bi = xl_b_arg(&r, si);
    xl_value more = xl_b_compare(&r, XL_COMPARISON_DIRECTION_GT, a, b),
             same = xl_b_compare(&r, XL_COMPARISON_DIRECTION_EQ, a, b);
    xl_value first = xl_b_binary(&r, XL_OP_AND, same, xl_b_compare(&r, XL_COMPARISON_DIRECTION_LT, ai, bi));
    xl_value ret[2] = { xl_b_select(&r, more, a, b), xl_b_select(&r, xl_b_binary(&r, XL_OP_OR, more, first), ai, bi) };
    xl_b_return(&r, ret, 2);
    xl_b_set_dims(&g->b, op, XL_SLOT(REDUCE, dimensions), (xl_dims){ &dim, 1 });
    if (xl_b_end(&g->b, op)) {
        keep(g, op->out[0]);
        keep(g, op->out[1]);
    }
}

/* ---- control ----------------------------------------------------------------------------------------------------- */
/* An inner program: motifs over a pool of its own that begins with the given values. Gives a value of x's type. */
static xl_value inner(gen *g, xl_b at, const xl_value *x, uint32_t n, xl_value want, uint32_t motifs);

static void m_scan(gen *g)
{
    int64_t T = PICK(g, int64_t, 1, 2, 3, 5, 8), d[XL_RANK_MAX + 1], e[DIMS_MAX];
    if (g->inside)
        return;
    xl_value c = often(g, 60) ? some_float(g) : like(g, any_float(g), any_shape(g, e, 1 + (uint32_t)below(g, 2)));
    const xl_type *t = type_of(g, c);
    if (count_of(dims_of(g, c)) * T > 2 * g->cap || t->rank + 1 > DIMS_MAX)
        return;
    d[0] = T;
    for (uint32_t i = 0; i < t->rank; i++)
        d[i + 1] = t->dims[i];
    xl_dims all = { d, t->rank + 1 };
    xl_value xs = weights(g, t->dtype, all),
             init[3] = { xl_b_scalar(&g->b, XL_I32, 0), c, xl_b_splat(&g->b, xl_type_tensor(g->m, t->dtype, all), 0) };
    const xl_type *types[3] = { type_of(g, init[0]), t, type_of(g, init[2]) };
    xl_op *op = xl_b_begin(&g->b, XL_OP_WHILE, init, 3, types, 3, 2);
    if (!op)
        return;
    xl_b cond = xl_b_region(&g->b, op, 0), body = xl_b_region(&g->b, op, 1);
    xl_value a[3];
    for (int i = 0; i < 3; i++)
        a[i] = xl_b_arg(&cond, types[i]);
    xl_value more = xl_b_compare(&cond, XL_COMPARISON_DIRECTION_LT, a[0], xl_b_scalar(&cond, XL_I32, (double)T));
    xl_b_return(&cond, &more, 1);
    for (int i = 0; i < 3; i++)
        a[i] = xl_b_arg(&body, types[i]);
    xl_value start[XL_RANK_MAX + 1];
    int64_t one[XL_RANK_MAX + 1];
    for (uint32_t i = 0; i <= t->rank; i++)
        start[i] = i ? xl_b_scalar(&body, XL_I32, 0) : a[0], one[i] = i ? d[i] : 1;
    xl_value row = xl_b_reshape(&body, xl_b_dynamic_slice(&body, xs, start, (xl_dims){ one, all.n }),
                                (xl_dims){ t->dims, t->rank });
    xl_value next = inner(g, body, (xl_value[]){ row, a[1] }, 2, a[1], 2 + (uint32_t)below(g, 4));
    next = xl_b_unary(&body, XL_OP_TANH,
                      xl_b_binary(&body, XL_OP_ADD, next, xl_b_binary(&body, XL_OP_MULTIPLY, row, a[1])));
    xl_value put = xl_b_dynamic_update_slice(
        &body, a[2], xl_b_reshape(&body, often(g, 70) ? next : a[1], (xl_dims){ one, all.n }), start);
    xl_value ret[3] = { xl_b_binary(&body, XL_OP_ADD, a[0], xl_b_scalar(&body, XL_I32, 1)), next, put };
    xl_b_return(&body, ret, 3);
    if (xl_b_end(&g->b, op)) {
        keep(g, op->out[1]);
        keep(g, op->out[2]);
    }
}

static void m_cond(gen *g)
{
    if (g->inside)
        return;
    xl_value x = some_float(g), p = like(g, XL_I1, XL_NO_DIMS);
    const xl_type *t = type_of(g, x);
    bool many = often(g, 30);
    if (many)
        p = indices(g, XL_NO_DIMS, 4);
    if (many)
        p = xl_b_convert(&g->b, p, XL_I32);
    uint32_t n = many ? 3 : 2;
    xl_op *op = xl_b_begin(&g->b, many ? XL_OP_CASE : XL_OP_IF, &p, 1, &t, 1, n);
    if (!op)
        return;
    for (uint32_t i = 0; i < n; i++) {
        xl_b r = xl_b_region(&g->b, op, i);
        xl_value v = often(g, 20) ? x : inner(g, r, &x, 1, x, 1 + (uint32_t)below(g, 4));
        xl_b_return(&r, &v, 1);
    }
    keep(g, xl_b_end1(&g->b, op));
}

/* Windows that overlap are added where they begin: few, or so many that threads would share them. */
static void m_overlap(gen *g)
{
    int64_t wide = PICK(g, int64_t, 2, 17, 64, 128, 300), len = wide + PICK(g, int64_t, 1, 5, 100),
            zero = 0, one = 1, k = often(g, 40) && !g->inside && wide >= 64 ? (1 << 20) / wide + 8 : any_dim(g);
    if (k * wide > g->cap && k * wide < 1 << 20)
        k = 3;
    xl_dtype t = any_float(g);
    xl_value to = like(g, t, XL_DIMS(len)), line = like(g, t, XL_DIMS(wide)),
             at = indices(g, XL_DIMS(k, 1), len - wide + 1),
             up = xl_b_broadcast(&g->b, line, XL_DIMS(k, wide), XL_DIMS(1));
    xl_opcode how = !g->grad && often(g, 30) ? XL_OP_MAXIMUM : XL_OP_ADD;
    keep(g, scaled(g, xl_b_scatter(&g->b, to, at, up,
                                   &(xl_b_scatter_dims){ .window = { &one, 1 },
                                                         .inserted = XL_NO_DIMS,
                                                         .map = { &zero, 1 },
                                                         .vector_dim = one },
                                   how),
                   how == XL_OP_ADD ? 1 / sqrt((double)k + 1) : 1));
}

/* ---- programs ---------------------------------------------------------------------------------------------------- */
typedef struct {
    const char *name;
    void (*make)(gen *g);
    uint32_t weight;
} motif;
static const motif motifs[] = {
    { "unary", m_unary, 12 },   { "binary", m_binary, 16 }, { "select", m_select, 6 },
    { "clamp", m_clamp, 2 },    { "int", m_int, 4 },        { "convert", m_convert, 5 },
    { "reduce", m_reduce, 12 }, { "norm", m_norm, 9 },      { "entropy", m_entropy, 4 },
    { "matmul", m_matmul, 12 }, { "mlp", m_mlp, 9 },        { "attention", m_attention, 4 },
    { "conv", m_conv, 4 },      { "window", m_window, 3 },  { "move", m_move, 14 },
    { "shared", m_shared, 5 },  { "gather", m_gather, 4 },  { "dynamic", m_dynamic, 4 },
    { "sort", m_sort, 2 },      { "argmax", m_argmax, 2 },  { "scan", m_scan, 3 },
    { "cond", m_cond, 3 },      { "overlap", m_overlap, 1 }, { "conv_kernel", m_conv_kernel, 2 },
};
enum { MOTIFS = sizeof motifs / sizeof *motifs };

static void one_motif(gen *g)
{
    uint32_t all = 0;
    for (uint32_t i = 0; i < MOTIFS; i++)
        all += motifs[i].weight;
    uint64_t k = below(g, all);
    for (uint32_t i = 0; i < MOTIFS; i++)
        if (k < motifs[i].weight) {
            motifs[i].make(g);
            return;
        } else {
            k -= motifs[i].weight;
        }
}

static xl_value inner(gen *g, xl_b at, const xl_value *x, uint32_t n, xl_value want, uint32_t count)
{
    gen in = *g; /* the pool outside is seen, what is made here stays here */
    static void (*const small[])(gen *) = { m_unary,  m_binary, m_select, m_reduce, m_norm,
                                            m_matmul, m_move,   m_shared, m_clamp,  m_convert };
    in.b.r = at.r;
    in.inside++;
    for (uint32_t i = 0; i < n; i++)
        keep(&in, x[i]);
    uint32_t first = in.nv;
    for (uint32_t i = 0; i < count; i++)
        small[below(&in, sizeof small / sizeof *small)](&in);
    xl_value v = want;
    for (uint32_t i = in.nv; i-- > first && v.id == want.id;)
        if (xl_b_type(&in.b, in.v[i]) == xl_b_type(&in.b, want) && g->b.f->val[in.v[i].id].def)
            v = in.v[i];
    if (v.id == want.id)
        v = activation(&in, want);
    g->state = in.state;
    for (uint32_t i = g->narg; i < in.narg; i++) { /* arguments are the program's */
        g->arg[i] = in.arg[i];
        g->below[i] = in.below[i];
        if (!in.below[i])
            keep(g, in.arg[i]);
    }
    g->narg = in.narg;
    return v;
}

static void choose_sizes(gen *g)
{
    static const int64_t tiny[] = { 1, 2, 3, 4, 5, 7, 8, 16, 17, 33 },
                         middle[] = { 1, 2, 3, 8, 15, 16, 31, 32, 33, 63, 64, 65, 100, 127, 128 },
                         large[] = { 4, 8, 32, 33, 64, 65, 96, 127, 128, 129, 255, 256, 257, 300, 512 },
                         lines[] = { 255,  256,  257,   1023,  1024,  1025,  2047,  2048,  2049,  4095,
                                     4096, 4097, 16384, 32767, 32768, 32769, 65535, 65537, 100000 };
#define FROM(list) list[below(g, sizeof list / sizeof *list)]
    uint64_t kind = below(g, 100);
    g->ndim = 2 + (uint32_t)below(g, 3);
    g->cap = kind < 35   ? 2048
             : kind < 60 ? 1 << 14
             : kind < 88 ? 1 << 17
                         : (int64_t)PICK(g, int64_t, 40000, 70000, 140000);
    for (uint32_t i = 0; i < g->ndim; i++)
        g->dim[i] = kind < 35   ? FROM(tiny)
                    : kind < 60 ? FROM(middle)
                    : kind < 88 ? FROM(large)
                    : i == 0    ? FROM(lines)
                                : FROM(tiny);
#undef FROM
    if (often(g, 8))
        g->dim[below(g, g->ndim)] = 0;
    if (often(g, 15))
        g->dim[below(g, g->ndim)] = 1;
}

static void set_arg_attr(gen *g, uint32_t i, xl_str key, const xl_attr *a)
{
    xl_func *f = g->b.f;
    f->arg_attr[i] = xl_dict_with(g->m, f->arg_attr[i], key, a);
}

/* What an optimizer does: new parameters (and moments) of the old ones, whose memory they may take. */
static xl_value updated(gen *g, xl_value p, xl_value grad, xl_value *moment)
{
    *moment = XL_NO_VALUE;
    switch (below(g, 4)) {
    case 0: return B(SUBTRACT, p, scaled(g, grad, 0.1));
    case 1: return B(SUBTRACT, scaled(g, p, 0.99), scaled(g, U(SIGN, grad), 0.01));
    default: {
        if (g->narg >= ARGS_MAX)
            return B(SUBTRACT, p, grad);
        xl_value m = new_arg(g, type_of(g, p)->dtype, dims_of(g, p), 0);
        *moment = B(ADD, scaled(g, m, 0.9), scaled(g, often(g, 50) ? grad : B(MULTIPLY, grad, grad), 0.1));
        return B(SUBTRACT, p, scaled(g, B(DIVIDE, grad, plus(g, U(SQRT, U(ABS, *moment)), 1e-2)), 1e-2));
    }
    }
}

/* A model as people write them: layers of one width over many rows, from its input to a loss. */
static xl_value model(gen *g)
{
    int64_t rows = PICK(g, int64_t, 16, 32, 64, 65, 127, 128, 256, 512), first = PICK(g, int64_t, 4, 16, 33, 64),
            wide = PICK(g, int64_t, 16, 32, 64, 100, 128, 256, 257, 300, 512);
    while (rows * wide > (int64_t)1 << 17 || rows * wide * wide > (int64_t)1 << 24)
        rows /= 2;
    g->cap = 1 << 17;
    xl_dtype t = often(g, 75) ? XL_F32 : g->real;
    xl_value x = new_arg(g, t, XL_DIMS(rows, first), 0);
    uint64_t kind = below(g, 20);
    for (uint64_t i = 1 + below(g, 4); i-- > 0;) {
        xl_value in = x;
        uint64_t s = g->state;
        switch (below(g, 8)) {
        case 0: x = norm(g, x, XL_DIMS(1), often(g, 50)); break;
        case 1: { /* gated */
            xl_value u = dense(g, x, wide), w = dense(g, x, wide);
            x = B(MULTIPLY, activation(g, u), xl_b_convert(&g->b, w, type_of(g, u)->dtype));
            break;
        }
        case 2: { /* attention of the rows to each other */
            if (rows > 256)
                break;
            xl_value q = dense(g, x, 16), k = xl_b_convert(&g->b, dense(g, x, 16), type_of(g, q)->dtype),
                     p = dot(g, q, k, XL_NO_DIMS, XL_NO_DIMS, XL_DIMS(1), XL_DIMS(1));
            p = log_or_soft_max(g, p, XL_DIMS(1), false);
            x = dot(g, p, xl_b_convert(&g->b, x, type_of(g, p)->dtype), XL_NO_DIMS, XL_NO_DIMS, XL_DIMS(1), XL_DIMS(0));
            break;
        }
        default:
            x = dense(g, x, wide);
            s = g->state;
            if (kind < 12) /* mostly the same one in all layers */
                g->state = kind * 7919;
            x = activation(g, x);
            if (kind < 12)
                g->state = s;
            if (often(g, 20))
                x = activation(g, x);
            break;
        }
        x = xl_b_convert(&g->b, x, t);
        if (type_of(g, x) == type_of(g, in) && often(g, 40))
            x = B(ADD, x, in);
    }
    int64_t d[XL_RANK_MAX];
    if (often(g, 50)) {
        xl_value e = entropy(g, dense(g, x, PICK(g, int64_t, 5, 16, 64, 65, 256)));
        return mean(g, e, every_dim(g, e, d));
    }
    xl_value y = dense(g, x, PICK(g, int64_t, 1, 16, 64)),
             off = B(SUBTRACT, y, weights(g, type_of(g, y)->dtype, dims_of(g, y)));
    return mean(g, B(MULTIPLY, off, off), every_dim(g, off, d));
}

/* The program of this seed, verified; the caller owns it. */
static xl_error *generate(uint64_t seed, xl_module **out)
{
    xl_error *err = NULL;
    bool no_grad = false;
again:;
    gen g0 = { .state = seed * 0x2545f4914f6cdd1du + 1, .m = xl_module_new() }, *g = &g0;
    xl_value ret[40];
    uint32_t nret = 0;
    g->b = xl_b_func(g->m, XL_STR("main"));
    chance_next(&g->state);
    choose_sizes(g);
    g->real = often(g, 65) ? XL_F32 : PICK(g, xl_dtype, XL_BF16, XL_BF16, XL_F16, XL_F64);
    g->grad = often(g, 40);
    g->wild = !g->grad && often(g, 12);
    uint64_t n = often(g, 30) ? 1 + below(g, 3) : 3 + below(g, 16);
    int64_t d[DIMS_MAX];
    xl_value loss = XL_NO_VALUE;
    if (often(g, 25)) {
        g->grad = true, g->wild = false;
        loss = keep(g, xl_b_convert(&g->b, model(g), XL_F32));
        n = often(g, 70) ? 0 : below(g, 4);
    }
    for (uint64_t i = xl_has(loss) ? 0 : 1 + below(g, 3); i-- > 0;)
        keep(g, new_arg(g, any_float(g), any_shape(g, d, (uint32_t)below(g, 4)), 0));
    if (g->grad && !xl_has(loss) && often(g, 40))
        m_mlp(g);
    while (n-- > 0 && g->nv < POOL_MAX / 2 && !xl_b_failed(&g->b))
        one_motif(g);
    err = xl_b_error(&g->b);
    if (err)
        goto fail;
    if (g->grad && !no_grad) {
        for (uint64_t i = xl_has(loss) ? 0 : 1 + below(g, 3); i-- > 0;) {
            int64_t over[XL_RANK_MAX];
            xl_value x = i ? find(g, want_float) : g->v[g->nv - 1];
            if (!want_float(g, x))
                x = find(g, want_float);
            xl_value y = mean(g, often(g, 50) ? B(MULTIPLY, x, x) : activation(g, x), every_dim(g, x, over));
            y = xl_b_convert(&g->b, y, XL_F32);
            loss = xl_has(loss) ? B(ADD, loss, y) : y;
        }
        xl_value wrt[ARGS_MAX], grad[ARGS_MAX];
        uint32_t k = 0;
        for (uint32_t i = 0; i < g->narg; i++)
            if (want_float(g, g->arg[i]) && k < 8)
                wrt[k++] = g->arg[i];
        err = xl_b_error(&g->b);
        if (!err)
            err = xl_grad(g->b.f, loss, wrt, k, &(xl_grad_opts){ often(g, 50) ? XL_KEEP_CARRY : XL_KEEP_DOTS }, grad);
        if (err) { /* an op without a gradient: the program without */
            xl_error_free(err);
            err = NULL;
            xl_module_free(g->m);
            no_grad = true;
            goto again;
        }
        ret[nret++] = loss;
        bool step = often(g, 40);
        for (uint32_t i = 0; i < k; i++) {
            xl_value moment = XL_NO_VALUE;
            ret[nret++] = step && often(g, 90) ? updated(g, wrt[i], grad[i], &moment) : grad[i];
            if (xl_has(moment))
                ret[nret++] = moment;
        }
        xl_grad_strip(g->b.f);
    }
    for (uint32_t i = g->nv; i-- > 0 && nret < 3;) /* the last values, and some others */
        ret[nret++] = g->v[i];
    for (uint64_t i = often(g, 60) ? below(g, 4) : 0; i-- > 0;)
        ret[nret++] = g->v[below(g, g->nv)];
    xl_b_return(&g->b, ret, nret);
    err = xl_b_error(&g->b);
    if (err)
        goto fail;
    xl_func *f = g->b.f;
    f->arg_attr = xl_new(&g->m->arena, const xl_attr *, f->body->narg);
    f->res_attr = xl_new(&g->m->arena, const xl_attr *, nret);
    for (uint32_t i = 0; i < g->narg; i++)
        if (g->below[i])
            set_arg_attr(g, i, XL_STR("xlane.below"), xl_attr_i64(g->m, g->below[i]));
    bool taken[40] = { false };
    if (often(g, 50))
        for (uint32_t i = 0; i < g->narg; i++)
            for (uint32_t k = 0; k < nret; k++)
                if (!taken[k] && !g->below[i] && type_of(g, g->arg[i]) == type_of(g, ret[k]) && often(g, 60)) {
                    taken[k] = true;
                    set_arg_attr(g, i, XL_STR("tf.aliasing_output"), xl_attr_int(g->m, XL_I32, k));
                    break;
                }
    err = xl_pass_dce(g->m, NULL);
    if (!err)
        err = xl_verify(g->m);
    if (err)
        goto fail;
    *out = g->m;
    return NULL;
fail:
    xl_module_free(g->m);
    return err;
}

#endif
