/* Custom calls, by name: those that JAX and PyTorch/XLA emit for an unknown device, and registered ones. */
#include <stdlib.h>

#include "cpu/kernel/callback.h"
#include "cpu/kernel/ew.h"
#include "cpu/kernel/ffi.h"
#include "cpu/kernel/index.h"
#include "cpu/kernel/linalg.h"
#include "cpu/plan/planner.h"

/* Annotations: the value goes through. */
static const char *const same[] = { "Sharding",
                                    "SPMDFullToShardShape",
                                    "SPMDShardToFullShape",
                                    "annotate_device_placement",
                                    "MoveToHost",
                                    "MoveToDevice",
                                    "LayoutConstraint",
                                    "PinToDevice",
                                    "xla.sdy.FuncResultSharding",
                                    "xla.sdy.GlobalToLocalShape",
                                    "xla.sdy.LocalToGlobalShape",
                                    "AssumeGatherIndicesInBound" };

/* ---- ApproxTopK: operands and indices, then initial values; here the exact answer ------------------------------- */
typedef struct { int64_t dim; bool least; } approx;
typedef struct { double key; int64_t at; } item;
static int by_key(const void *a, const void *b)
{
    const item *x = a, *y = b;
    if (x->key != y->key)
        return x->key < y->key ? -1 : 1;
    return x->at < y->at ? -1 : x->at > y->at;
}
typedef struct { approx a; xl_ew load; } approx_data;

static xl_error *run_approx(const xl_step *s, xl_frame *f)
{
    const approx_data *d = s->data;
    const xl_extent *x = xl_in_shape(s, 0), *y = xl_out_shape(s, 0);
    int64_t len = x->dims[d->a.dim], k = y->dims[d->a.dim], inner = 1;
    for (uint32_t i = (uint32_t)d->a.dim + 1; i < x->rank; i++)
        inner *= x->dims[i];
    item *it = malloc((size_t)len * sizeof *it + 1);
    if (!it)
        return XL_ERR(EXHAUSTED, "no memory to sort");
    for (int64_t l = 0; len && l < x->count / len; l++) {
        int64_t o = l / inner, i = l % inner;
        for (int64_t j = 0; j < len; j++) {
            const void *in[1] = { (const char *)xl_in(s, f, 0) + (size_t)((o * len + j) * inner + i) * x->elem };
            double v;
            d->load.fn(&v, in, 1, d->load.ctx);
            it[j] = (item){ d->a.least ? v : -v, j };
        }
        qsort(it, (size_t)len, sizeof *it, by_key);
        for (uint32_t r = 0; r < s->nout; r++)
            for (int64_t j = 0; j < k; j++) {
                size_t e = s->shape[r].elem;
                memcpy((char *)xl_out(s, f, r) + (size_t)((o * k + j) * inner + i) * e,
                       (const char *)xl_in(s, f, r) + (size_t)((o * len + it[j].at) * inner + i) * e, e);
            }
    }
    free(it);
    return NULL;
}
static xl_error *plan_approx(xl_planner *p, const xl_op *op)
{
    const xl_attr *cfg = XL_ATTR(op, CUSTOM_CALL, backend_config),
                  *calls = XL_ATTR(op, CUSTOM_CALL, called_computations);
    if (!cfg || cfg->kind != XL_AT_DICT)                   /* JAX puts it beside the op's own attributes */
        cfg = xl_dict_get(op->extra, XL_STR("mhlo.backend_config"));
    const xl_attr *dim = cfg && cfg->kind == XL_AT_DICT ? xl_dict_get(cfg, XL_STR("reduction_dim")) : NULL;
    approx_data *d = xl_new(p->a, approx_data, 1);
    const xl_type *x = xl_in_type(p->f, op, 0);
    if (!dim || dim->kind != XL_AT_INT || dim->i < 0 || dim->i >= x->rank || op->nin < 2 * op->nout || op->nout == 0)
        return xl_plan_unsupported(p, op, "ApproxTopK without reduction_dim in its configuration");
    d->a.dim = dim->i;
    d->load = xl_ew_convert(p->a, x->dtype, XL_F64);
    if (calls && calls->n && calls->item[0]->kind == XL_AT_SYM) {
        const xl_func *g = xl_module_func(p->f->m, calls->item[0]->str);
        for (uint32_t i = 0; g && g->body && i < g->body->nop; i++)
            if (g->body->op[i]->code == XL_OP_COMPARE)
                d->a.least =
                    xl_op_int(g->body->op[i], XL_SLOT(COMPARE, comparison_direction)) == XL_COMPARISON_DIRECTION_LT;
    }
    return xl_plan_step(p, op, run_approx, d, 0);
}

/* ---- the swaps of rows that LU made, one after another, as a permutation ---------------------------------------- */
static xl_error *run_permutation(const xl_step *s, xl_frame *f)
{
    const xl_extent *x = xl_in_shape(s, 0), *y = xl_out_shape(s, 0);
    int64_t k = x->dims[x->rank - 1], m = y->dims[y->rank - 1];
    const int32_t *swap = xl_in(s, f, 0);
    int32_t *to = xl_out(s, f, 0);
    for (int64_t b = 0; m && b < y->count / m; b++, to += m, swap += k) {
        for (int64_t i = 0; i < m; i++)
            to[i] = (int32_t)i;
        for (int64_t i = 0; i < k; i++) {                  /* a row that is not there: as when JAX indexes an array */
            int64_t j = swap[i] < 0 ? swap[i] + m : swap[i], near = j < 0 ? 0 : j >= m ? m - 1 : j;
            int32_t was = to[i];
            to[i] = to[near];
            if (j == near)
                to[j] = was;
        }
    }
    return NULL;
}
static xl_error *plan_permutation(xl_planner *p, const xl_op *op)
{
    const xl_type *x = op->nin == 1 ? xl_in_type(p->f, op, 0) : NULL,
                  *y = op->nout == 1 ? xl_out_type(p->f, op, 0) : NULL;
    bool ok = x && y && x->rank && x->rank == y->rank && x->dtype == XL_I32 && y->dtype == XL_I32 &&
              x->dims[x->rank - 1] <= y->dims[y->rank - 1];
    for (uint32_t d = 0; ok && d + 1 < x->rank; d++)
        ok = x->dims[d] == y->dims[d];
    return ok ? xl_plan_step(p, op, run_permutation, NULL, 0)
              : xl_plan_unsupported(p, op, "its operand or result is no list of i32 for each matrix");
}

xl_error *xl_kernel_custom_call(xl_planner *p, const xl_op *op)
{
    xl_str name = xl_op_str(op, XL_SLOT(CUSTOM_CALL, call_target_name));
    for (size_t i = 0; i < sizeof same / sizeof *same; i++)
        if (xl_str_is(name, same[i]) && op->nin >= op->nout) {
            for (uint32_t k = 0; k < op->nout; k++) {
                if (!xl_type_eq(xl_in_type(p->f, op, k), xl_out_type(p->f, op, k)))
                    return xl_plan_unsupported(p, op,
                                               "an annotation that changes the shape: the program was not partitioned");
                xl_plan_alias(p, op->out[k], op->in[k]);
            }
            return NULL;
        }
    if (xl_host_is(op))
        return xl_plan_host(p, op);
    if (xl_str_is(name, "ApproxTopK"))
        return plan_approx(p, op);
    if (xl_str_is(name, "xlane_lu_pivots_to_permutation"))
        return plan_permutation(p, op);
    if (xl_str_is(name, "dce_sink") && op->nout == 0)      /* it only keeps its operand alive */
        return NULL;
    if (xl_str_is(name, "xlane_inspect_sharding") && op->nin == 1 &&
        op->nout == 1) { /* of a program that was not partitioned: there is nothing to tell */
        xl_plan_alias(p, op->out[0], op->in[0]);
        return NULL;
    }
    if (xl_str_is(name, "tridiagonal_solve_perturbed_ffi"))
        return xl_plan_tridiagonal(p, op, true);
    bool known;
    xl_error *err = xl_plan_lapack(p, op, name, &known);
    if (!known && !err)
        err = xl_plan_ffi(p, op, name, &known);
    if (known || err)
        return err;
    xl_str what =
        xl_strf(p->a,
                "no custom call '%.*s' on the xlane CPU device: use a lowering made of StableHLO ops, or register "
                "its code with jax.ffi.register_ffi_target for this platform",
                XL_FMT(name));
    return xl_plan_unsupported(p, op, what.p);
}
