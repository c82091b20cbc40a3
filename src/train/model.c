#include "train/model.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>

#include "pass/cudnn.h"
#include "pass/triton.h"
#include "pass/grad.h"
#include "train/blocks.h"
#include "train/sized.h"
#include "train/spread.h"

static const xl_model defaults = { .size = sizeof(xl_model),
                                   .pattern = "AMER*2",
                                   .vocab = 256,
                                   .dim = 128,
                                   .heads = 4,
                                   .kv_heads = 0,
                                   .ffn = 0,
                                   .state = 32,
                                   .chunk = 32,
                                   .experts = 4,
                                   .top_k = 2,
                                   .capacity = 1.25,
                                   .balance = 0.01,
                                   .rope_base = 10000,
                                   .scan = true,
                                   .compute = "f32",
                                   .attention = "auto",
                                   .kernels = "auto" };

void xl_model_fill(xl_model *out, size_t size) { xl_sized_fill(out, size, &defaults, sizeof defaults); }

xl_error *xl_pattern_parse(const char *pattern, xl_pattern_unit *out, int *n)
{
    const char *s = pattern ? pattern : "";
    *n = 0;
    while (*s) {
        xl_pattern_unit u = { .times = 1 };
        bool paren = *s == '(';
        s += paren;
        while (isalpha((unsigned char)*s)) {
            if (!strchr("AMERD", *s))
                return XL_ERR(INVALID, "pattern \"%s\": no block is called '%c'; there are A, M, E, R, D", pattern, *s);
            if (u.n == (int)sizeof u.block - 1)
                return XL_ERR(INVALID, "pattern \"%s\": a unit of more than %d blocks", pattern, u.n);
            u.block[u.n++] = *s++;
        }
        if (paren && *s++ != ')')
            return XL_ERR(INVALID, "pattern \"%s\": a parenthesis is not closed", pattern);
        if (*s == '*') {
            char *end;
            u.times = strtoll(s + 1, &end, 10);
            if (end == s + 1 || u.times < 1 || u.times > 10000)
                return XL_ERR(INVALID, "pattern \"%s\": after * comes a number from 1 to 10000", pattern);
            s = end;
        }
        if (!u.n || (*s && !isalpha((unsigned char)*s) && *s != '('))
            return XL_ERR(INVALID, "pattern \"%s\" is not understood at \"%s\"; write one such as A*12 or AMER*3",
                          pattern, s);
        if (*n == XL_UNITS_MAX)
            return XL_ERR(INVALID, "pattern \"%s\": more than %d units", pattern, XL_UNITS_MAX);
        out[(*n)++] = u;
    }
    return *n ? NULL : XL_ERR(INVALID, "the pattern is empty; write one such as A*12 or AMER*3");
}

xl_error *xl_model_check(const xl_model *c)
{
    xl_pattern_unit u[XL_UNITS_MAX];
    int n;
    xl_error *err = xl_pattern_parse(c->pattern, u, &n);
    if (err)
        return err;
    if (c->vocab < 2 || c->dim < 2 || c->heads < 1 || c->state < 1 || c->chunk < 1 || c->ffn < 0)
        return XL_ERR(INVALID,
                      "model: vocab %lld, dim %lld, heads %lld, state %lld, chunk %lld, ffn %lld: each must be "
                      "positive, ffn may be 0",
                      (long long)c->vocab, (long long)c->dim, (long long)c->heads, (long long)c->state,
                      (long long)c->chunk, (long long)c->ffn);
    if (c->dim % c->heads || (c->dim / c->heads) % 2)
        return XL_ERR(
            INVALID,
            "model: dim %lld over %lld heads; a head needs an even number of channels: make dim %lld, or change heads",
            (long long)c->dim, (long long)c->heads, (long long)((c->dim / (2 * c->heads) + 1) * 2 * c->heads));
    if (c->kv_heads < 0 || (c->kv_heads && c->heads % c->kv_heads))
        return XL_ERR(
            INVALID,
            "model: %lld heads do not divide into %lld groups; kv_heads is a divisor of heads, or 0 for as many",
            (long long)c->heads, (long long)c->kv_heads);
    if (c->top_k < 1 || c->top_k > c->experts || c->top_k > 16 || !(c->capacity > 0))
        return XL_ERR(
            INVALID,
            "model: top_k %lld of %lld experts; it takes 1 to 16 and at most all of them, and a capacity above 0",
            (long long)c->top_k, (long long)c->experts);
    if (c->micro < 0)
        return XL_ERR(INVALID, "model: micro %lld; it takes the number of turns for a batch, 1 or more",
                      (long long)c->micro);
    if (!c->attention || !c->compute || !c->kernels)
        return XL_ERR(INVALID, "model: start from xl_model_default(), which sets attention, kernels and compute");
    if (strcmp(c->kernels, "auto") && strcmp(c->kernels, "plain") && strcmp(c->kernels, "triton"))
        return XL_ERR(INVALID, "model: kernels \"%s\" is none of auto, plain, triton", c->kernels);
    const char *narrow = strcmp(c->kernels, "triton")
                             ? NULL
                             : xl_triton_refuses(strcmp(c->compute, "bf16") ? XL_F32 : XL_BF16, c->dim);
    if (narrow)
        return XL_ERR(INVALID, "model: kernels triton: %s; this is %s with a width of %lld. kernels: plain has no such "
                               "limits", narrow, c->compute, (long long)c->dim);
    if (strcmp(c->attention, "auto") && strcmp(c->attention, "plain") && strcmp(c->attention, "cudnn"))
        return XL_ERR(INVALID, "model: attention \"%s\" is none of auto, plain, cudnn", c->attention);
    const char *no = strcmp(c->attention, "cudnn")
                         ? NULL
                         : xl_cudnn_refuses(strcmp(c->compute, "bf16") ? XL_F32 : XL_BF16, c->dim / c->heads);
    if (no)
        return XL_ERR(INVALID,
                      "model: attention cudnn: %s; this is %s with heads of %lld. attention: plain has no such limits",
                      no, c->compute, (long long)(c->dim / c->heads));
    return NULL;
}

typedef struct { xl_blocks *b; const xl_pattern_unit *u; xl_tensor *made; const char *prefix; } unit_run;

static xl_tensor run_unit(xl_blocks *b, const xl_pattern_unit *u, const char *unit, xl_tensor x)
{
    char prefix[96];
    for (int i = 0; i < u->n; i++) {
        snprintf(prefix, sizeof prefix, "%s.%d%c", unit, i, u->block[i]);
        b->prefix = prefix;
        if (b->c->remat && !b->making && b->turn.id == UINT32_MAX) {
            xl_remat_begin(b->g);
            x = xl_block_settle(b, xl_block_build(b, u->block[i], x));
            xl_remat_end(b->g);
        } else
            x = xl_block_build(b, u->block[i], x);
        if (!b->making)
            x = xl_spread_act(b->g, "residual", x);
    }
    return x;
}

/* Where norms add what the block before leaves to be added, that goes round a scan beside x: the first norm of a turn
 * adds it. There are no states then. */
static bool has_delta(const xl_blocks *b) { return b->g->triton && !b->stepping; }

static void scan_body(xl_graph *g, xl_tensor turn, xl_tensor *carry, void *arg)
{
    (void)g;
    unit_run *r = arg;
    xl_blocks *b = r->b;
    b->turn = turn;
    b->at = 0;
    b->balance = carry[1];
    b->dropped = carry[2];
    b->state = carry + 3;
    b->state_at = 0;
    if (has_delta(b))
        b->delta = carry[3];
    carry[0] = run_unit(b, r->u, r->prefix, carry[0]);
    carry[1] = b->balance;
    carry[2] = b->dropped;
    if (has_delta(b))
        carry[3] = b->delta;
}

static void context(xl_blocks *b)
{
    xl_graph *g = b->g;
    int64_t B = b->batch, T = b->time;
    xl_tensor row = xl_reshape_dims(g, b->segments, XL_DIMS(B, T, 1)),
              col = xl_reshape_dims(g, b->segments, XL_DIMS(B, 1, T));
    xl_tensor it = xl_iota_of(g, XL_I32, XL_DIMS(T, T), 0), is = xl_iota_of(g, XL_I32, XL_DIMS(T, T), 1);
    xl_tensor same = xl_compare(g, row, "==", col);
    b->mask = xl_and(g, same, xl_broadcast_dims(g, xl_compare(g, it, ">=", is), XL_DIMS(B, T, T)));
    xl_tensor zero = xl_const_of(g, XL_F32, XL_NO_DIMS, 0), one = xl_const_of(g, XL_F32, XL_NO_DIMS, 1);
    xl_tensor first = xl_compare(g, b->segments, "==", xl_shift(g, b->segments, 1, 1, -1));
    b->fresh = xl_reshape_dims(g, xl_where(g, first, xl_broadcast_dims(g, one, XL_DIMS(B, T)), zero), XL_DIMS(B, T, 1));
    b->valid = xl_where(g, xl_compare(g, b->segments, ">", xl_const_of(g, XL_I32, XL_NO_DIMS, 0)),
                        xl_broadcast_dims(g, one, XL_DIMS(B, T)), zero);
}

typedef struct {
    int experts, scanned, repeated;
    xl_tensor *state;
    int nstate;
} walk; /* state: of all units, as they come out */

static void make(xl_blocks *b, const xl_pattern_unit *u, const char *name, xl_tensor *made)
{
    b->made = made;
    b->nmade = b->nstate = 0;
    b->rows = u->times;
    b->making = true;
    run_unit(b, u, name, XL_NO_TENSOR);
    b->making = false;
}

/* All units in turn. A repeated one is a scan; states go round with it. made: the parameters of each unit, or NULL to
 * make them. */
static xl_tensor layers(xl_blocks *b, const xl_pattern_unit *unit, int n, xl_tensor x, xl_tensor *const *made_before,
                        walk *did)
{
    xl_graph *g = b->g;
    for (int i = 0; i < n && !g->err; i++) {
        char name[16];
        xl_tensor fresh[XL_MADE_MAX], *made = made_before ? made_before[i] : fresh, carry[3 + XL_STATE_MAX];
        snprintf(name, sizeof name, "u%d", i);
        b->state = carry + 3;
        if (made_before)
            b->made = made;
        else
            make(b, &unit[i], name, made);
        for (int k = 0; k < unit[i].n; k++)
            did->experts += unit[i].block[k] == 'E' ? (int)unit[i].times : 0;
        did->repeated += unit[i].times > 1;
        if (b->c->scan && unit[i].times > 1) {
            const bool delta = has_delta(b);
            carry[0] = x;
            carry[1] = b->balance;
            carry[2] = b->dropped;
            if (delta)
                carry[3] = xl_has(xl_val_of(b->delta)) ? b->delta : xl_scale(g, x, 0);
            unit_run r = { b, &unit[i], made, name };
            xl_scan(g, unit[i].times, carry, 3 + (delta ? 1 : b->nstate), scan_body, &r);
            x = carry[0];
            b->delta = delta ? carry[3] : XL_NO_TENSOR;
            b->balance = carry[1];
            b->dropped = carry[2];
            b->turn = XL_NO_TENSOR;
            did->scanned++;
        } else
            for (b->row = 0; b->row < unit[i].times && !g->err; b->row++) {
                b->at = b->state_at = 0;
                x = run_unit(b, &unit[i], name, x);
            }
        for (int k = 0; k < b->nstate; k++) {
            if (did->nstate == XL_STATES_MAX)
                return xl_graph_fail(g, "more than %d states", XL_STATES_MAX);
            did->state[did->nstate++] = carry[3 + k];
        }
    }
    return x;
}

typedef struct { xl_tensor tokens, targets, segments, positions; } rows_in;
typedef struct { xl_tensor nll, valid, balance, dropped, logits, mean; } rows_out; /* mean: where it is known already */
typedef struct {
    xl_blocks b;
    const xl_pattern_unit *unit;
    int n;
    xl_tensor table, gain, head, **made;
    walk did;
    rows_in in;
} whole;

/* Logits of more than this are made, and used up, part after part. */
static const int64_t LOGITS_BYTES_MAX = (int64_t)2 << 30;
enum { LOGITS_PARTS_MAX = 64 };

static int64_t loss_parts(int64_t batch, int64_t time, int64_t vocab, size_t size)
{
    int64_t n = 1, bytes = batch * time * vocab * (int64_t)size;
    while (n < batch && n < LOGITS_PARTS_MAX && (batch % n || bytes / n > LOGITS_BYTES_MAX))
        n++;
    return batch % n ? 1 : n;
}

/* The kernel is told what each row counts in the mean, and makes the gradient on the way. Of several parts one is over,
 * with the two products of its gradient, before the next one begins: they are written here as the backward pass writes
 * them, and XLA makes one of equal ones. */
static rows_out loss_in_parts(whole *w, const rows_in *in, xl_tensor normed)
{
    xl_blocks *b = &w->b;
    xl_graph *g = b->g;
    xl_tensor one = xl_const_of(g, XL_F32, XL_NO_DIMS, 1), mean = XL_NO_TENSOR,
              weight = xl_div(g, b->valid, xl_maximum(g, xl_sum(g, b->valid, NULL), one)), nll[LOGITS_PARTS_MAX],
              logits[LOGITS_PARTS_MAX];
    const int64_t n = loss_parts(b->batch, b->time, b->c->vocab, xl_dtype_bytes(g->compute)), rows = b->batch / n;
    xl_value before[2];
    for (int64_t k = 0; k < n && !g->err; k++) {
        xl_tensor all[3] = { normed, in->targets, weight }, part[3];
        for (int i = 0; i < 3; i++)
            part[i] = n == 1 ? all[i] : xl_slice(g, all[i], 0, k * rows, (k + 1) * rows);
        if (k && !g->err)
            part[0] = xl_tensor_of(xl_triton_after(&g->e, xl_val_of(normed), k * rows, (k + 1) * rows, before, 2));
        xl_tensor narrow = xl_matmul(g, part[0], w->head);
        xl_value each, weighted;
        if (g->err)
            break;
        xl_triton_loss(&g->e, xl_val_of(narrow), xl_val_of(part[1]), xl_val_of(part[2]), &each, &weighted);
        xl_value d = xl_value_op(g->f, each)->out[0];
        before[0] = xl_em_dot(&g->e, d, xl_val_of(w->head), XL_NO_DIMS, XL_NO_DIMS, XL_DIMS(2), XL_DIMS(1), g->compute);
        before[1] = xl_em_dot(&g->e, xl_val_of(part[0]), d, XL_NO_DIMS, XL_NO_DIMS, XL_DIMS(0, 1), XL_DIMS(0, 1),
                              g->compute);
        nll[k] = xl_tensor_of(each);
        logits[k] = xl_cast_to(g, narrow, XL_F32);
        xl_tensor sum = xl_sum(g, xl_tensor_of(weighted), NULL);
        mean = k ? xl_add(g, mean, sum) : sum;
    }
    if (g->err)
        return (rows_out){ 0 };
    return (rows_out){ n == 1 ? nll[0] : xl_concat(g, nll, (int)n, 0),
                       b->valid,
                       b->balance,
                       b->dropped,
                       n == 1 ? logits[0] : xl_concat(g, logits, (int)n, 0),
                       mean };
}

/* The model over some rows of the batch. */
static rows_out forward(whole *w, const rows_in *in, int64_t batch)
{
    xl_blocks *b = &w->b;
    xl_graph *g = b->g;
    b->batch = batch;
    b->segments = in->segments;
    b->positions = in->positions;
    context(b);
    if (g->gpu)                          /* XLA would compute them in every turn of a loop */
        xl_block_turns(b);
    b->balance = b->dropped = xl_const_of(g, XL_F32, XL_NO_DIMS, 0);
    xl_tensor x = xl_spread_act(g, "residual", xl_lookup(g, w->table, in->tokens));
    x = layers(b, w->unit, w->n, x, w->made, &w->did);
    xl_tensor normed = xl_block_norm(b, &x, w->gain);
    if (!g->triton || b->c->micro > 1 || g->err) {
        xl_tensor logits = xl_spread_act(g, "logits", xl_cast_to(g, xl_matmul(g, normed, w->head), XL_F32));
        return (rows_out){ xl_cross_entropy(g, logits, in->targets), b->valid, b->balance, b->dropped, logits,
                           XL_NO_TENSOR };
    }
    return loss_in_parts(w, in, normed);
}

/* Rows r, r + n, r + 2n, ... for turn r: a batch that is split over devices stays where it is. */
static xl_tensor dealt(xl_graph *g, xl_tensor x, int64_t n, int64_t batch, int64_t time)
{
    return xl_transpose_dims(g, xl_reshape_dims(g, x, XL_DIMS(batch / n, n, time)), XL_DIMS(1, 0, 2));
}

static void micro_body(xl_graph *g, xl_tensor turn, xl_tensor *carry, void *arg)
{
    whole *w = arg;
    const rows_in in = { xl_row(g, w->in.tokens, turn), xl_row(g, w->in.targets, turn), xl_row(g, w->in.segments, turn),
                         xl_row(g, w->in.positions, turn) };
    w->did = (walk){ 0 };
    rows_out o = forward(w, &in, w->b.batch);
    carry[0] = xl_add(g, carry[0], xl_sum(g, xl_mul(g, o.nll, o.valid), "[1]"));
    carry[1] = xl_add(g, carry[1], xl_sum(g, o.valid, "[1]"));
    carry[2] = xl_add(g, carry[2], o.balance);
    carry[3] = xl_add(g, carry[3], o.dropped);
}

/* Turn after turn: sums of the loss and of its weights go round; what a turn made is gone when it ends, and made again
 * in the backward pass. */
static rows_out in_turns(whole *w, int64_t batch, int64_t time)
{
    xl_graph *g = w->b.g;
    int64_t n = w->b.c->micro;
    xl_tensor zero = xl_const_of(g, XL_F32, XL_NO_DIMS, 0), rows = xl_const_of(g, XL_F32, XL_DIMS(batch / n), 0),
              carry[4] = { rows, rows, zero, zero };
    w->b.batch = batch / n;
    w->made = xl_new(&g->m->arena, xl_tensor *, w->n);       /* parameters are made outside of loops */
    for (int i = 0; i < w->n && !g->err; i++) {
        char name[16];
        snprintf(name, sizeof name, "u%d", i);
        w->made[i] = xl_new(&g->m->arena, xl_tensor, XL_MADE_MAX);
        make(&w->b, &w->unit[i], name, w->made[i]);
    }
    w->in = (rows_in){ dealt(g, w->in.tokens, n, batch, time), dealt(g, w->in.targets, n, batch, time),
                       dealt(g, w->in.segments, n, batch, time), dealt(g, w->in.positions, n, batch, time) };
    xl_scan(g, n, carry, 4, micro_body, w);
    if (!g->err) {                      /* what a turn made is not kept for the backward pass */
        xl_op *loop = xl_value_op(g->f, xl_val_of(carry[0]));
        loop->extra = xl_dict_with(g->m, loop->extra, XL_STR(XL_GRAD_LEAN), xl_attr_i64(g->m, 1));
    }
    xl_tensor one = xl_const_of(g, XL_F32, XL_NO_DIMS, 1);
    return (rows_out){ xl_div(g, carry[0], xl_maximum(g, carry[1], one)), carry[1],
                       xl_scale(g, carry[2], 1.0 / (double)n), carry[3], XL_NO_TENSOR, XL_NO_TENSOR };
}

static const char *const triton_calls[] = { XL_TRITON_CALL };

xl_tensor xl_model_build(xl_graph *g, const xl_model *c, int64_t batch, int64_t time, const char **why)
{
    xl_pattern_unit unit[XL_UNITS_MAX];
    int n = 0;
    xl_model known = defaults;
    xl_error *err = xl_sized_read("xl_model_default", c, &known, sizeof known);
    c = &known;
    if (!err)
        err = xl_model_check(c);
    if (!err)
        err = xl_pattern_parse(c->pattern, unit, &n);
    if (!err && c->micro > 1 && batch % c->micro)
        err = XL_ERR(INVALID, "a batch of %lld in %lld turns (model.micro): it does not divide; a batch of %lld does",
                     (long long)batch, (long long)c->micro,
                     (long long)(batch / c->micro ? batch / c->micro * c->micro : c->micro));
    if (err) {
        xl_graph_fail(g, "%s", xl_error_message(err));
        xl_error_free(err);
        return XL_NO_TENSOR;
    }
    static const xl_spread plain;        /* a mesh without a configuration: the model's own rules */
    const xl_spread *was = g->spread;
    if (g->mesh.naxis && !was)
        g->spread = &plain;
    xl_graph_compute(g, c->compute);
    g->triton = !strcmp(c->kernels, "triton");
    if (g->triton)
        xl_graph_foreign(g, "model.kernels triton (plain runs everywhere)", triton_calls, 1);
    xl_dims bt = XL_DIMS(batch, time);
    whole w = { .b = { .g = g, .c = c, .batch = batch, .time = time, .turn = XL_NO_TENSOR, .delta = XL_NO_TENSOR,
                       .cos = XL_NO_TENSOR },
                .unit = unit,
                .n = n };
    w.in.tokens = xl_input_dims(g, "tokens", XL_I32, bt);
    w.in.targets = xl_input_dims(g, "targets", XL_I32, bt);
    w.in.segments = xl_input_dims(g, "segments", XL_I32, bt);
    w.in.positions = xl_input_dims(g, "positions", XL_I32, bt);
    w.table = xl_param_dims(g, "embed", XL_DIMS(c->vocab, c->dim), "normal 0.02");
    w.gain = xl_param_dims(g, "norm", XL_DIMS(c->dim), "ones");
    w.head = c->tie ? xl_transpose_dims(g, w.table, XL_DIMS(1, 0))
                    : xl_param_dims(g, "head", XL_DIMS(c->dim, c->vocab), "normal 0.02");
    rows_out o = c->micro > 1 ? in_turns(&w, batch, time) : forward(&w, &w.in, batch);
    g->layers_loop = w.did.scanned && c->micro <= 1; /* turns for the batch are there to save memory */
    if (why)
        *why = w.did.scanned == w.did.repeated ? "" : "scan is off in the configuration";
    xl_tensor ce = xl_has(xl_val_of(o.mean)) ? o.mean : xl_masked_mean(g, o.nll, o.valid);
    xl_metric_rows(g, "nll", "mean", o.nll, o.valid);
    xl_metric_rows(g, "tokens", "sum", o.valid, XL_NONE);
    if (w.did.experts) {
        xl_tensor bal = xl_scale(g, o.balance, 1.0 / w.did.experts);
        xl_metric(g, "balance", "mean", bal);
        xl_metric(g, "dropped", "sum", o.dropped);
        xl_loss(g, xl_add(g, ce, xl_scale(g, bal, c->balance)));
    } else
        xl_loss(g, ce);
    g->spread = was;
    return o.logits;
}

int xl_model_step(xl_graph *g, const xl_model *c, int64_t window, xl_tensor *logits, xl_tensor state[XL_STATES_MAX])
{
    xl_pattern_unit unit[XL_UNITS_MAX];
    int n = 0;
    walk did = { .state = state };
    xl_error *err = xl_model_check(c);
    if (!err)
        err = xl_pattern_parse(c->pattern, unit, &n);
    if (err) {
        xl_graph_fail(g, "%s", xl_error_message(err));
        xl_error_free(err);
        return 0;
    }
    xl_graph_compute(g, c->compute);
    xl_blocks b = { .g = g,
                    .c = c,
                    .batch = 1,
                    .time = 1,
                    .turn = XL_NO_TENSOR,
                    .delta = XL_NO_TENSOR,
                    .cos = XL_NO_TENSOR,
                    .stepping = true,
                    .window = window };
    xl_tensor token = xl_input_dims(g, "token", XL_I32, XL_DIMS(1, 1));
    b.place = xl_input_dims(g, "place", XL_I32, XL_NO_DIMS);
    b.positions = xl_reshape_dims(g, b.place, XL_DIMS(1, 1));
    b.mask = xl_compare(g, xl_iota_of(g, XL_I32, XL_DIMS(1, 1, window), 2), "<=", b.place);
    b.valid = xl_const_of(g, XL_F32, XL_DIMS(1, 1), 1);
    b.balance = b.dropped = xl_const_of(g, XL_F32, XL_NO_DIMS, 0);
    xl_tensor table = xl_param_dims(g, "embed", XL_DIMS(c->vocab, c->dim), "normal 0.02");
    xl_tensor gain = xl_param_dims(g, "norm", XL_DIMS(c->dim), "ones");
    xl_tensor head = c->tie ? xl_transpose_dims(g, table, XL_DIMS(1, 0))
                            : xl_param_dims(g, "head", XL_DIMS(c->dim, c->vocab), "normal 0.02");
    xl_tensor x = layers(&b, unit, n, xl_lookup(g, table, token), NULL, &did);
    *logits = xl_reshape_dims(g, xl_cast_to(g, xl_matmul(g, xl_rmsnorm(g, x, gain), head), XL_F32), XL_DIMS(c->vocab));
    return g->err ? 0 : did.nstate;
}

int64_t xl_graph_params(const xl_graph *g)
{
    int64_t total = 0;
    for (uint32_t i = 0; i < g->nparam; i++) {
        int64_t n = 0;
        xl_type_count(g->param[i].type, &n);
        total += n;
    }
    return total;
}

double xl_model_flops(const xl_model *c, int64_t params, int64_t batch, int64_t time)
{
    xl_pattern_unit unit[XL_UNITS_MAX];
    int n = 0;
    double tokens = (double)batch * (double)time, attention = 0, idle = 0;
    xl_error *err = xl_pattern_parse(c->pattern, unit, &n);
    xl_error_free(err);
    int64_t ffn = c->ffn ? c->ffn : (c->dim * 8 / 3 + 31) / 32 * 32;
    for (int i = 0; i < n; i++)
        for (int k = 0; k < unit[i].n; k++) {
            char b = unit[i].block[k];
            double times = (double)unit[i].times;
            if (b == 'A' || b == 'E')
                attention += times * 12 * (double)time *
                             (double)c->dim; /* scores and their use, both ways, over all positions */
            if (b == 'E')
                idle += times * 3.0 * (double)(c->dim * ffn) * (double)(c->experts - c->top_k);
        }
    double active =
        (double)params - (c->tie ? 0 : (double)(c->vocab * c->dim)) - idle; /* looking a row up is no product */
    return tokens * (6 * active + attention);
}
