#include "train/blocks.h"

#include <math.h>
#include <stdio.h>

#include "pass/cudnn.h"
#include "pass/triton.h"
#include "train/spread.h"

/* The shape of a value that every layer has one of. */
static xl_dims stacked(const xl_blocks *b, xl_dims dims, int64_t out[XL_DIMS_MAX])
{
    out[0] = b->rows;
    memcpy(out + 1, dims.p, dims.n * sizeof *out);
    return (xl_dims){ out, dims.n + 1 };
}

static xl_tensor of_this_layer(const xl_blocks *b, xl_tensor all, xl_dims dims)
{
    if (b->turn.id != UINT32_MAX)
        return xl_row(b->g, all, b->turn);
    return xl_reshape_dims(b->g, xl_slice(b->g, all, 0, b->row, b->row + 1), dims);
}

/* Is the unit a loop of a GPU's program? Its matrices are then put side by side before the loop (see side_by_side). */
static bool joined_before(const xl_blocks *b)
{
    return b->g->gpu && !b->stepping && (b->making ? b->c->scan && b->rows > 1 : b->turn.id != UINT32_MAX);
}

/* Call it where parameters are made, after the last of a block: of all layers at once, the n matrices from `first` on,
 * counted from the last one made. In a loop every turn would put its own side by side, in the forward pass and in the
 * backward pass, and would take the gradient apart again. */
static void side_by_side(xl_blocks *b, int first, int n)
{
    if (joined_before(b) && !b->g->err && b->nmade < XL_MADE_MAX) {
        b->made[b->nmade] = xl_concat(b->g, b->made + b->nmade - first, n, 2);
        b->nmade++;
    }
}

/* x times each of n matrices [k, size[i]]. A GPU does it as one product with all of them side by side: fewer, larger
 * products, and in the backward pass one for x instead of a sum of n. */
static xl_tensor projection(xl_blocks *b, xl_tensor x, const xl_tensor *w, int n)
{
    return xl_matmul(b->g, x, joined_before(b) ? xl_row(b->g, b->made[b->at++], b->turn) : xl_concat(b->g, w, n, 1));
}

static void projections(xl_blocks *b, xl_tensor x, const xl_tensor *w, int n, xl_tensor *out)
{
    xl_graph *g = b->g;
    if (!g->gpu || b->stepping) {
        for (int i = 0; i < n; i++)
            out[i] = xl_matmul(g, x, w[i]);
        return;
    }
    xl_tensor all = projection(b, x, w, n);
    int64_t at = 0;
    for (int i = 0; i < n && !g->err; i++) {
        int64_t size = xl_dim(g, w[i], 1);
        out[i] = xl_slice(g, all, 2, at, at + size);
        at += size;
    }
}

/* In the first pass over a unit its parameters are made; in the second, inside the scan, the same calls in the same
 * order read them. That keeps one description of a block. */
xl_tensor xl_block_param(xl_blocks *b, const char *name, xl_dims dims, const char *init)
{
    char full[160];
    int64_t d[XL_DIMS_MAX];
    if (b->g->err)
        return XL_NO_TENSOR;
    if (!b->making)
        return of_this_layer(b, b->made[b->at++], dims);
    if (b->nmade == XL_MADE_MAX)
        return xl_graph_fail(b->g, "a unit with more than %d parameters", XL_MADE_MAX);
    snprintf(full, sizeof full, "%s.%s", b->prefix, name);
    b->made[b->nmade++] = xl_param_rows(b->g, full, stacked(b, dims, d), init);
    return XL_NO_TENSOR;
}

xl_tensor xl_block_state(xl_blocks *b, const char *name, xl_dtype type, xl_dims dims)
{
    char full[160];
    int64_t d[XL_DIMS_MAX];
    if (b->g->err)
        return XL_NO_TENSOR;
    if (!b->making)
        return of_this_layer(b, b->state[b->state_at], dims);
    if (b->nstate == XL_STATE_MAX)
        return xl_graph_fail(b->g, "a unit with more than %d states", XL_STATE_MAX);
    snprintf(full, sizeof full, "%s.state.%s", b->prefix, name);
    b->state[b->nstate++] = xl_input_dims(b->g, full, type, stacked(b, dims, d));
    return XL_NO_TENSOR;
}

void xl_block_leave(xl_blocks *b, xl_tensor value)
{
    xl_graph *g = b->g;
    if (b->making || g->err)
        return;
    xl_tensor *all = &b->state[b->state_at++],
              row = b->turn.id != UINT32_MAX ? b->turn : xl_const_of(g, XL_I32, XL_NO_DIMS, (double)b->row);
    *all = xl_tensor_of(xl_em_put_row(&g->e, xl_val_of(*all), xl_val_of(value), xl_val_of(row)));
}

xl_tensor xl_block_settle(xl_blocks *b, xl_tensor x)
{
    if (!xl_has(xl_val_of(b->delta)))
        return x;
    x = xl_add(b->g, x, b->delta);
    b->delta = XL_NO_TENSOR;
    return x;
}

xl_tensor xl_block_norm(xl_blocks *b, xl_tensor *x, xl_tensor gain)
{
    xl_graph *g = b->g;
    if (!g->triton || b->stepping || g->err)
        return xl_rmsnorm(g, *x, gain);
    xl_value sum = xl_val_of(*x), n = xl_triton_norm(&g->e, &sum, xl_val_of(b->delta), xl_val_of(gain), XL_RMSNORM_EPS);
    b->delta = XL_NO_TENSOR;
    *x = xl_tensor_of(sum);
    return xl_tensor_of(n);
}

/* x + y, at once or by the norm of the next block. */
static xl_tensor residual(xl_blocks *b, xl_tensor x, xl_tensor y)
{
    if (!b->g->triton || b->stepping)
        return xl_add(b->g, x, y);
    b->delta = y;
    return x;
}

#define PARAM(name, init, ...) xl_block_param(b, name, XL_DIMS(__VA_ARGS__), init)

static const char *scaled(char out[32], double by)
{
    snprintf(out, 32, "normal %.9g", by);
    return out;
}

/* ---- attention --------------------------------------------------------------------------------------------------- */
/* Rotary positions: pairs (i, i + half) turn by position * base^(-i/half). */
static void turns(xl_blocks *b, int64_t half, xl_tensor *c, xl_tensor *s)
{
    xl_graph *g = b->g;
    xl_tensor i = xl_iota_of(g, XL_F32, XL_DIMS(half), 0);
    xl_tensor freq = xl_exp(g, xl_scale(g, i, -log(b->c->rope_base) / (double)half));
    xl_tensor pos = xl_reshape_dims(g, xl_cast_to(g, b->positions, XL_F32), XL_DIMS(b->batch, b->time, 1, 1));
    xl_tensor angle = xl_mul(g, pos, freq);
    *c = xl_cos(g, angle);
    *s = xl_sin(g, angle);
}

void xl_block_turns(xl_blocks *b) { turns(b, b->c->dim / b->c->heads / 2, &b->cos, &b->sin); }

/* x [batch, time, heads, size]. */
static xl_tensor rope(xl_blocks *b, xl_tensor x)
{
    xl_graph *g = b->g;
    int64_t size = xl_dim(g, x, 3), half = size / 2;
    xl_dtype d = g->err ? XL_F32 : xl_graph_type(g, x)->dtype;
    xl_tensor c = b->cos, s = b->sin;
    if (!xl_has(xl_val_of(c)))
        turns(b, half, &c, &s);
    xl_tensor f = xl_cast_to(g, x, XL_F32), p = xl_slice(g, f, 3, 0, half), q = xl_slice(g, f, 3, half, size);
    xl_tensor turned[2] = { xl_sub(g, xl_mul(g, p, c), xl_mul(g, q, s)), xl_add(g, xl_mul(g, q, c), xl_mul(g, p, s)) };
    return xl_cast_to(g, xl_concat(g, turned, 2, 3), d);
}

/* The same for q and k, side by side with v in x: one kernel turns them and takes the three apart. */
static void turned(xl_blocks *b, xl_tensor x, int64_t heads, int64_t groups, xl_tensor *q, xl_tensor *k, xl_tensor *v)
{
    xl_value out[3] = { XL_NO_VALUE, XL_NO_VALUE, XL_NO_VALUE };
    if (!b->g->err)
        xl_triton_rope(&b->g->e, xl_val_of(x), xl_val_of(b->cos), xl_val_of(b->sin), heads, groups, out);
    *q = xl_tensor_of(out[0]);
    *k = xl_tensor_of(out[1]);
    *v = xl_tensor_of(out[2]);
}

/* Scores and their softmax as ops. q [batch, time, heads, size], k and v [batch, time, groups, size]; the result is as
 * q. */
static xl_tensor plain(xl_blocks *b, xl_tensor q, xl_tensor k, xl_tensor v)
{
    xl_graph *g = b->g;
    int64_t B = b->batch, T = b->time, W = xl_dim(g, k, 1), H = xl_dim(g, q, 2), S = xl_dim(g, q, 3),
            G = xl_dim(g, k, 2), R = g->err ? 1 : H / G;
    /* heads of one group share keys and values: they are rows of one product */
    q = xl_transpose_dims(g, xl_reshape_dims(g, q, XL_DIMS(B, T, G, R, S)), XL_DIMS(0, 2, 3, 1, 4));
    q = xl_reshape_dims(g, q, XL_DIMS(B, G, R * T, S));
    k = xl_transpose_dims(g, k, XL_DIMS(0, 2, 1, 3));
    v = xl_transpose_dims(g, v, XL_DIMS(0, 2, 1, 3));
    xl_dims bg = XL_DIMS(0, 1);
    xl_tensor scores = xl_scale(g, xl_dot_dims(g, q, k, bg, bg, XL_DIMS(3), XL_DIMS(3), XL_F32), 1 / sqrt((double)S));
    scores = xl_reshape_dims(g, scores, XL_DIMS(B, G, R, T, W));
    xl_tensor mask = xl_reshape_dims(g, b->mask, XL_DIMS(B, 1, 1, T, W));
    scores = xl_where(g, mask, scores, xl_const_of(g, XL_F32, XL_NO_DIMS, -1e30));
    xl_tensor p = xl_cast_to(g, xl_softmax(g, scores), g->compute);
    p = xl_reshape_dims(g, p, XL_DIMS(B, G, R * T, W));
    xl_tensor o = xl_reshape_dims(g, xl_matmul(g, p, v), XL_DIMS(B, G, R, T, S));
    return xl_reshape_dims(g, xl_transpose_dims(g, o, XL_DIMS(0, 3, 1, 2, 4)), XL_DIMS(B, T, H, S));
}

xl_tensor xl_attention_fused(xl_graph *g, xl_tensor q, xl_tensor k, xl_tensor v, bool deterministic)
{
    static const char *const custom[] = { XL_CUDNN_ATTENTION, XL_CUDNN_ATTENTION_BACK };
    if (g->err)
        return XL_NO_TENSOR;
    xl_graph_foreign(g, "model.attention cudnn (plain runs everywhere)", custom, 2);
    return xl_tensor_of(xl_cudnn_attention(&g->e, xl_val_of(q), xl_val_of(k), xl_val_of(v),
                                           (xl_cudnn_how){ 1 / sqrt((double)xl_dim(g, q, 3)), deterministic }));
}

/* Keys or values of all places so far, this token's put among them. */
static xl_tensor cached(xl_blocks *b, const char *name, xl_dtype d, xl_dims dims, xl_tensor row)
{
    xl_graph *g = b->g;
    xl_tensor all = xl_block_state(b, name, d, dims);
    if (g->err)
        return XL_NO_TENSOR;
    xl_value zero = xl_em_scalar(&g->e, XL_I32, 0), at[4] = { zero, xl_val_of(b->place), zero, zero };
    all = xl_tensor_of(xl_em_dynamic_update(&g->e, xl_val_of(all), xl_val_of(row), at));
    xl_block_leave(b, all);
    return all;
}

static xl_tensor attention(xl_blocks *b, xl_tensor x)
{
    xl_graph *g = b->g;
    const xl_model *c = b->c;
    char s1[32], s2[32];
    int64_t B = b->batch, T = b->time, D = c->dim, H = c->heads, G = c->kv_heads ? c->kv_heads : H, S = D / H;
    xl_tensor gain = PARAM("norm", "ones", D);
    xl_tensor wq = PARAM("wq", scaled(s1, 1 / sqrt((double)D)), D, H * S), wk = PARAM("wk", s1, D, G * S),
              wv = PARAM("wv", s1, D, G * S);
    xl_tensor wo = PARAM("wo", scaled(s2, 0.5 / sqrt((double)(H * S))), H * S, D);
    if (b->making) {
        side_by_side(b, 4, 3);
        for (int i = 0; b->stepping && i < 2; i++)
            xl_block_state(b, i ? "v" : "k", g->compute, XL_DIMS(B, b->window, G, S));
        return x;
    }
    xl_tensor n = xl_block_norm(b, &x, gain);
    xl_tensor q, k, v, qkv[3] = { 0 }, w[3] = { wq, wk, wv };
    if (g->triton && !b->stepping && xl_has(xl_val_of(b->cos))) {
        turned(b, projection(b, n, w, 3), H, G, &q, &k, &v);
    } else {
        projections(b, n, w, 3, qkv);
        q = rope(b, xl_reshape_dims(g, qkv[0], XL_DIMS(B, T, H, S)));
        k = rope(b, xl_reshape_dims(g, qkv[1], XL_DIMS(B, T, G, S)));
        v = xl_reshape_dims(g, qkv[2], XL_DIMS(B, T, G, S));
    }
    if (b->stepping) {
        k = cached(b, "k", g->compute, XL_DIMS(B, b->window, G, S), k);
        v = cached(b, "v", g->compute, XL_DIMS(B, b->window, G, S), v);
    }
    xl_tensor o = !strcmp(c->attention, "cudnn") && !b->stepping ? xl_attention_fused(g, q, k, v, !c->nondeterministic)
                                                                 : plain(b, q, k, v);
    o = xl_reshape_dims(g, o, XL_DIMS(B, T, H * S));
    return residual(b, x, xl_matmul(g, o, wo));
}

static int64_t ffn_size(const xl_model *c) { return c->ffn ? c->ffn : (c->dim * 8 / 3 + 31) / 32 * 32; }

static xl_tensor swiglu(xl_blocks *b, xl_tensor x)
{
    xl_graph *g = b->g;
    char s1[32], s2[32];
    int64_t D = b->c->dim, F = ffn_size(b->c);
    xl_tensor gain = PARAM("ffn_norm", "ones", D);
    xl_tensor gate = PARAM("gate", scaled(s1, 1 / sqrt((double)D)), D, F), up = PARAM("up", s1, D, F);
    xl_tensor down = PARAM("down", scaled(s2, 0.5 / sqrt((double)F)), F, D);
    if (b->making) {
        side_by_side(b, 3, 2);
        return x;
    }
    xl_tensor n = xl_block_norm(b, &x, gain);
    xl_tensor part[2] = { 0 };
    projections(b, n, (xl_tensor[]){ gate, up }, 2, part);
    xl_tensor h = xl_mul(g, xl_silu(g, part[0]), part[1]);
    return residual(b, x, xl_matmul(g, h, down));
}

/* ---- state space ------------------------------------------------------------------------------------------------- */
/* A short causal convolution over time, one filter per channel, that does not look across documents. */
static xl_tensor short_conv(xl_blocks *b, xl_tensor x, xl_tensor w, int64_t width)
{
    xl_graph *g = b->g;
    xl_tensor sum = XL_NO_TENSOR;
    if (b->stepping) {                                       /* the last inputs, oldest first, and this one */
        xl_tensor seen[2] = { xl_block_state(b, "conv", XL_F32, XL_DIMS(1, width - 1, xl_dim(g, x, 2))), x },
                  all = xl_concat(g, seen, 2, 1);
        xl_block_leave(b, xl_slice(g, all, 1, 1, width));
        for (int64_t i = 0; i < width; i++) {
            xl_tensor part = xl_mul(g, xl_slice(g, all, 1, width - 1 - i, width - i), xl_slice(g, w, 0, i, i + 1));
            sum = i ? xl_add(g, sum, part) : part;
        }
        return sum;
    }
    for (int64_t i = 0; i < width; i++) {
        xl_tensor tap = xl_slice(g, w, 0, i, i + 1), at = i ? xl_shift(g, x, 1, i, 0) : x;
        if (i) {                                             /* only from the same document */
            xl_tensor same = xl_compare(g, b->segments, "==", xl_shift(g, b->segments, 1, i, -1));
            at = xl_where(g, xl_reshape_dims(g, same, XL_DIMS(b->batch, b->time, 1)), at,
                          xl_const_of(g, XL_F32, XL_NO_DIMS, 0));
        }
        xl_tensor part = xl_mul(g, at, tap);
        sum = i ? xl_add(g, sum, part) : part;
    }
    return sum;
}

/* h_t = a_t h_(t-1) + B_t (d_t x_t), y_t = C_t h_t, with a_t = exp(-d_t A) per head. In chunks of length Q: inside a
 * chunk the whole map from x to y is a masked product of C, B and the decays; between chunks the states travel by a
 * product with the decays of whole chunks. All in f32. Documents lie in a row one after the other; what crosses from
 * one to the next is masked out in each of the three products. */
typedef struct {
    xl_tensor bc, u, dt, la;
    int64_t H, P, N;
} space; /* [B,T,2N], [B,T,H*P], [B,T,H], log a_t [B,T,H] */

static xl_tensor chunked(xl_blocks *b, const space *s)
{
    xl_graph *g = b->g;
    int64_t B = b->batch, T = b->time, H = s->H, P = s->P, N = s->N, Q = b->c->chunk < T ? b->c->chunk : T;
    xl_tensor bc = s->bc, u = s->u, dt = s->dt, la = s->la;
    while (T % Q)
        Q--;
    int64_t C = T / Q;
    xl_tensor Bm = xl_reshape_dims(g, xl_slice(g, bc, 2, 0, N), XL_DIMS(B, C, Q, N)),
              Cm = xl_reshape_dims(g, xl_slice(g, bc, 2, N, 2 * N), XL_DIMS(B, C, Q, N));
    xl_tensor seg = xl_reshape_dims(g, b->segments, XL_DIMS(B, C, Q));
    xl_tensor xd = xl_mul(g, xl_reshape_dims(g, u, XL_DIMS(B, T, H, P)), xl_reshape_dims(g, dt, XL_DIMS(B, T, H, 1)));
    xd = xl_transpose_dims(g, xl_reshape_dims(g, xd, XL_DIMS(B, C, Q, H, P)), XL_DIMS(0, 1, 3, 2, 4)); /* [B,C,H,Q,P] */
    la = xl_transpose_dims(g, xl_reshape_dims(g, la, XL_DIMS(B, C, Q, H)), XL_DIMS(0, 1, 3, 2));       /* [B,C,H,Q] */
    xl_tensor cum = xl_cumsum(g, la, 3);
    xl_tensor last = xl_slice(g, cum, 3, Q - 1, Q); /* [B,C,H,1] */
    xl_tensor zero = xl_const_of(g, XL_F32, XL_NO_DIMS, 0);
    /* inside a chunk: from s to t <= s decays by exp(cum_t - cum_s) */
    xl_tensor it = xl_iota_of(g, XL_I32, XL_DIMS(Q, Q), 0), is = xl_iota_of(g, XL_I32, XL_DIMS(Q, Q), 1);
    xl_tensor low = xl_and(g, xl_compare(g, it, ">=", is),
                           xl_compare(g, xl_reshape_dims(g, seg, XL_DIMS(B, C, 1, Q, 1)),
                                      "==", xl_reshape_dims(g, seg, XL_DIMS(B, C, 1, 1, Q))));
    xl_tensor diff =
        xl_sub(g, xl_reshape_dims(g, cum, XL_DIMS(B, C, H, Q, 1)), xl_reshape_dims(g, cum, XL_DIMS(B, C, H, 1, Q)));
    xl_tensor L = xl_where(g, low, xl_exp(g, xl_where(g, low, diff, zero)), zero); /* [B,C,H,Q,Q] */
    xl_dims bc2 = XL_DIMS(0, 1);
    xl_tensor CB = xl_dot_dims(g, Cm, Bm, bc2, bc2, XL_DIMS(3), XL_DIMS(3), XL_F32); /* [B,C,Q,Q] */
    xl_tensor M = xl_mul(g, L, xl_reshape_dims(g, CB, XL_DIMS(B, C, 1, Q, Q)));
    xl_tensor y = xl_matmul(g, M, xd); /* [B,C,H,Q,P] */
    if (C > 1) {
        /* what each chunk leaves behind: sum over s of exp(last - cum_s) B_s x_s, [B,C,H,N,P] */
        xl_tensor first_seg = xl_slice(g, seg, 2, 0, 1), last_seg = xl_slice(g, seg, 2, Q - 1, Q); /* [B,C,1] */
        xl_tensor stays = xl_reshape_dims(g, xl_compare(g, seg, "==", last_seg), XL_DIMS(B, C, 1, Q));
        xl_tensor left = xl_where(g, stays, xl_exp(g, xl_sub(g, last, cum)), zero);
        xl_tensor xw = xl_mul(g, xd, xl_reshape_dims(g, left, XL_DIMS(B, C, H, Q, 1)));
        xl_tensor st = xl_dot_dims(g, Bm, xw, bc2, bc2, XL_DIMS(2), XL_DIMS(3), XL_F32); /* [B,C,N,H,P] */
        st = xl_reshape_dims(g, st, XL_DIMS(B, C, N * H * P));
        /* the state before chunk i is the sum over j < i of exp(total_(j+1) + ... + total_(i-1)) times what j left */
        xl_tensor tot =
            xl_transpose_dims(g, xl_reshape_dims(g, last, XL_DIMS(B, C, H)), XL_DIMS(0, 2, 1)); /* [B,H,C] */
        xl_tensor run = xl_cumsum(g, tot, 2), before = xl_sub(g, run, tot);
        xl_tensor ic = xl_iota_of(g, XL_I32, XL_DIMS(C, C), 0), jc = xl_iota_of(g, XL_I32, XL_DIMS(C, C), 1),
                  past = xl_compare(g, ic, ">", jc);
        past = xl_and(g, past,
                      xl_compare(g, xl_reshape_dims(g, first_seg, XL_DIMS(B, 1, C, 1)),
                                 "==", xl_reshape_dims(g, last_seg, XL_DIMS(B, 1, 1, C))));
        xl_tensor gap =
            xl_sub(g, xl_reshape_dims(g, before, XL_DIMS(B, H, C, 1)), xl_reshape_dims(g, run, XL_DIMS(B, H, 1, C)));
        xl_tensor W = xl_where(g, past, xl_exp(g, xl_where(g, past, gap, zero)), zero); /* [B,H,C,C] */
        st = xl_transpose_dims(g, xl_reshape_dims(g, st, XL_DIMS(B, C, N, H, P)), XL_DIMS(0, 3, 1, 2, 4));
        xl_tensor in = xl_matmul(g, W, xl_reshape_dims(g, st, XL_DIMS(B, H, C, N * P))); /* [B,H,C,N*P] */
        in = xl_transpose_dims(g, xl_reshape_dims(g, in, XL_DIMS(B, H, C, N, P)),
                               XL_DIMS(0, 2, 1, 3, 4)); /* [B,C,H,N,P] */
        /* read at t with decay exp(cum_t) */
        xl_tensor comes = xl_reshape_dims(g, xl_compare(g, seg, "==", first_seg), XL_DIMS(B, C, 1, Q));
        xl_tensor seen = xl_where(g, comes, xl_exp(g, cum), zero);
        xl_tensor Ch =
            xl_mul(g, xl_reshape_dims(g, Cm, XL_DIMS(B, C, 1, Q, N)), xl_reshape_dims(g, seen, XL_DIMS(B, C, H, Q, 1)));
        y = xl_add(g, y, xl_matmul(g, Ch, in));
    }
    return xl_reshape_dims(g, xl_transpose_dims(g, y, XL_DIMS(0, 1, 3, 2, 4)), XL_DIMS(B, T, H, P));
}

/* The same for one token, from the state. */
static xl_tensor stepped(xl_blocks *b, const space *s)
{
    xl_graph *g = b->g;
    int64_t H = s->H, P = s->P, N = s->N;
    xl_tensor h = xl_block_state(b, "h", XL_F32, XL_DIMS(1, H, N, P)),
              a = xl_reshape_dims(g, xl_exp(g, s->la), XL_DIMS(1, H, 1, 1));
    xl_tensor in = xl_reshape_dims(g, xl_slice(g, s->bc, 2, 0, N), XL_DIMS(1, 1, N, 1)),
              out = xl_reshape_dims(g, xl_slice(g, s->bc, 2, N, 2 * N), XL_DIMS(1, 1, N, 1));
    xl_tensor x =
        xl_mul(g, xl_reshape_dims(g, s->u, XL_DIMS(1, H, 1, P)), xl_reshape_dims(g, s->dt, XL_DIMS(1, H, 1, 1)));
    h = xl_add(g, xl_mul(g, a, h), xl_mul(g, in, x));
    xl_block_leave(b, h);
    return xl_reshape_dims(g, xl_sum(g, xl_mul(g, out, h), "[2]"), XL_DIMS(1, 1, H, P));
}

static xl_tensor state_space(xl_blocks *b, xl_tensor x)
{
    xl_graph *g = b->g;
    const xl_model *c = b->c;
    char s1[32], s2[32];
    int64_t B = b->batch, T = b->time, D = c->dim, E = 2 * D, H = c->heads, P = E / H, N = c->state;
    xl_tensor gain = PARAM("norm", "ones", D);
    scaled(s1, 1 / sqrt((double)D));
    xl_tensor win = PARAM("win", s1, D, 2, E), wbc = PARAM("wbc", s1, D, 2 * N), wdt = PARAM("wdt", s1, D, H);
    xl_tensor conv = PARAM("conv", "normal 0.5", 4, E), dt_bias = PARAM("dt_bias", "const -2", H),
              a_log = PARAM("a_log", "const 0", H);
    xl_tensor skip = PARAM("skip", "ones", H), onorm = PARAM("out_norm", "ones", E);
    xl_tensor wout = PARAM("wout", scaled(s2, 0.5 / sqrt((double)E)), E, D);
    if (b->making) {
        if (b->stepping) {
            xl_block_state(b, "conv", XL_F32, XL_DIMS(1, 3, E));
            xl_block_state(b, "h", XL_F32, XL_DIMS(1, H, N, P));
        }
        return x;
    }
    /* both halves of the way in are one product, along an axis of their own: channels can be split over devices */
    xl_tensor n = xl_block_norm(b, &x, gain), zx = xl_dot_dims(g, xl_cast_to(g, n, g->compute), win, XL_NO_DIMS,
                                                               XL_NO_DIMS, XL_DIMS(2), XL_DIMS(0), g->compute);
    xl_tensor z = xl_reshape_dims(g, xl_slice(g, zx, 2, 0, 1), XL_DIMS(B, T, E)),
              u = xl_cast_to(g, xl_reshape_dims(g, xl_slice(g, zx, 2, 1, 2), XL_DIMS(B, T, E)), XL_F32);
    u = xl_silu(g, short_conv(b, u, xl_cast_to(g, conv, XL_F32), 4));
    xl_tensor bc = xl_cast_to(g, xl_matmul(g, n, wbc), XL_F32);
    xl_tensor dt = xl_softplus(g, xl_add(g, xl_cast_to(g, xl_matmul(g, n, wdt), XL_F32), dt_bias));       /* [B,T,H] */
    xl_tensor la = xl_neg(g, xl_mul(g, dt, xl_exp(g, a_log)));                                            /* log a_t */
    space s = { bc, u, dt, la, H, P, N };
    xl_tensor y = b->stepping ? stepped(b, &s) : chunked(b, &s);
    y = xl_add(g, y, xl_mul(g, xl_reshape_dims(g, u, XL_DIMS(B, T, H, P)), xl_reshape_dims(g, skip, XL_DIMS(H, 1))));
    y = xl_mul(g, xl_reshape_dims(g, y, XL_DIMS(B, T, E)), xl_silu(g, xl_cast_to(g, z, XL_F32)));
    return xl_add(g, x, xl_matmul(g, xl_cast_to(g, xl_rmsnorm(g, y, onorm), g->compute), wout));
}

/* ---- recurrence -------------------------------------------------------------------------------------------------- */
/* h_t = a_t h_(t-1) + sqrt(1 - a_t^2) (i_t x_t), a_t = exp(-8 softplus(lambda) r_t), r and i gates of the input. All
 * turns at once by doubling: log T elementwise steps. */
static xl_tensor recurrence(xl_blocks *b, xl_tensor x)
{
    xl_graph *g = b->g;
    char s1[32], s2[32];
    int64_t D = b->c->dim, T = b->time;
    xl_tensor gain = PARAM("norm", "ones", D);
    scaled(s1, 1 / sqrt((double)D));
    xl_tensor wx = PARAM("wx", s1, D, D), wg = PARAM("wg", s1, D, D), wr = PARAM("wr", s1, D, D),
              wi = PARAM("wi", s1, D, D);
    xl_tensor conv = PARAM("conv", "normal 0.5", 4, D), lambda = PARAM("lambda", "const -3", D);
    xl_tensor wo = PARAM("wo", scaled(s2, 0.5 / sqrt((double)D)), D, D);
    if (b->making) {
        if (b->stepping) {
            xl_block_state(b, "conv", XL_F32, XL_DIMS(1, 3, D));
            xl_block_state(b, "h", XL_F32, XL_DIMS(1, 1, D));
        }
        return x;
    }
    xl_tensor n = xl_block_norm(b, &x, gain), u = xl_cast_to(g, xl_matmul(g, n, wx), XL_F32);
    u = short_conv(b, u, xl_cast_to(g, conv, XL_F32), 4);
    xl_tensor r = xl_sigmoid(g, xl_cast_to(g, xl_matmul(g, n, wr), XL_F32)),
              i = xl_sigmoid(g, xl_cast_to(g, xl_matmul(g, n, wi), XL_F32));
    xl_tensor la = xl_mul(g, r, xl_scale(g, xl_softplus(g, lambda), -8)), a = xl_exp(g, la);
    xl_tensor room = xl_sqrt(g, xl_offset(g, xl_neg(g, xl_exp(g, xl_scale(g, la, 2))), 1 + 1e-6));
    xl_tensor h = xl_mul(g, xl_mul(g, room, i), u);
    if (b->stepping) {
        h = xl_add(g, h, xl_mul(g, a, xl_block_state(b, "h", XL_F32, XL_DIMS(1, 1, D))));
        xl_block_leave(b, h);
    } else
        a = xl_mul(g, a, b->fresh);                          /* nothing from another document */
    for (int64_t by = 1; by < T && !g->err; by *= 2) {
        h = xl_add(g, h, xl_mul(g, a, xl_shift(g, h, 1, by, 0)));
        if (by * 2 < T)
            a = xl_mul(g, a, xl_shift(g, a, 1, by, 0));
    }
    xl_tensor out = xl_mul(g, h, xl_gelu(g, xl_cast_to(g, xl_matmul(g, n, wg), XL_F32)));
    return xl_add(g, x, xl_matmul(g, xl_cast_to(g, out, g->compute), wo));
}

/* ---- experts ----------------------------------------------------------------------------------------------------- */
/* Each token goes to its top_k experts, if there is room: an expert has `slots` places, given in the order of the
 * tokens. Tokens are brought to the places by a gather and back by another; shapes depend on nothing but the
 * configuration. */
static xl_tensor experts(xl_blocks *b, xl_tensor x)
{
    xl_graph *g = b->g;
    const xl_model *c = b->c;
    char s1[32], s2[32];
    int64_t B = b->batch, T = b->time, D = c->dim, X = c->experts, K = c->top_k, F = ffn_size(c), n = B * T;
    int64_t slots = (int64_t)ceil((double)(n * K) / (double)X * c->capacity);
    slots = slots < 1 ? 1 : slots > n ? n : slots;
    xl_tensor gain = PARAM("ffn_norm", "ones", D);
    xl_tensor router = PARAM("router", scaled(s1, 1 / sqrt((double)D)), D, X);
    xl_tensor gate = PARAM("gate", s1, X, D, F), up = PARAM("up", s1, X, D, F),
              down = PARAM("down", scaled(s2, 0.5 / sqrt((double)F)), X, F, D);
    if (b->making)
        return x;
    xl_tensor h = xl_reshape_dims(g, xl_block_norm(b, &x, gain), XL_DIMS(n, D));
    xl_tensor probs = xl_softmax(g, xl_matmul(g, xl_cast_to(g, h, XL_F32), xl_cast_to(g, router, XL_F32))); /* [n,X] */
    xl_tensor ids = xl_iota_of(g, XL_I32, XL_DIMS(n, X), 1), zero = xl_const_of(g, XL_F32, XL_NO_DIMS, 0),
              one = xl_const_of(g, XL_F32, XL_NO_DIMS, 1);
    xl_tensor left = probs, valid = xl_reshape_dims(g, b->valid, XL_DIMS(n, 1));
    xl_tensor used = xl_const_of(g, XL_F32, XL_DIMS(1, X), 0), place[16], weight[16], fits[16], share = XL_NO_TENSOR,
              sum = XL_NO_TENSOR;
    for (int64_t k = 0; k < K; k++) {
        /* the largest that is left; of equal ones the first */
        xl_tensor top = xl_keep(g, xl_max(g, xl_stop_gradient(g, left), "[1]"), left, "[1]");
        xl_tensor is = xl_compare(g, xl_stop_gradient(g, left), ">=", top);
        xl_tensor big = xl_cast_to(g, xl_where(g, is, ids, xl_const_of(g, XL_I32, XL_NO_DIMS, (double)X)), XL_F32);
        xl_tensor pick = xl_neg(g, xl_max(g, xl_neg(g, big), "[1]"));                                          /* [n] */
        xl_tensor hot = xl_where(
            g, xl_compare(g, xl_cast_to(g, ids, XL_F32), "==", xl_reshape_dims(g, pick, XL_DIMS(n, 1))), one, zero);
        weight[k] = xl_sum(g, xl_mul(g, probs, hot), "[1]");                                                   /* [n] */
        sum = k ? xl_add(g, sum, weight[k]) : weight[k];
        left = xl_where(g, xl_compare(g, hot, ">", zero), xl_const_of(g, XL_F32, XL_NO_DIMS, -1), left);
        hot = xl_mul(g, hot, valid);                                             /* padding takes no place */
        xl_tensor order = xl_add(g, xl_sub(g, xl_cumsum(g, hot, 0), hot), used); /* how many came before */
        xl_tensor pos = xl_sum(g, xl_mul(g, order, hot), "[1]"), went = xl_sum(g, hot, "[1]");
        used = xl_add(g, used, xl_keep(g, xl_sum(g, hot, "[0]"), hot, "[0]"));
        share = k ? xl_add(g, share, xl_sum(g, hot, "[0]")) : xl_sum(g, hot, "[0]");
        fits[k] =
            xl_mul(g, went,
                   xl_where(g, xl_compare(g, pos, "<", xl_const_of(g, XL_F32, XL_NO_DIMS, (double)slots)), one, zero));
        xl_tensor at = xl_add(g, xl_scale(g, pick, (double)slots), pos);
        /* what does not fit goes to one place more, that is thrown away */
        place[k] = xl_cast_to(
            g,
            xl_where(g, xl_compare(g, fits[k], ">", zero), at, xl_const_of(g, XL_F32, XL_NO_DIMS, (double)(X * slots))),
            XL_I32);
    }
    if (g->err)
        return XL_NO_TENSOR;
    /* which token sits at each place: a scatter of token numbers, which has no gradient and needs none */
    xl_tensor who[16], where[16];
    for (int64_t k = 0; k < K; k++) {
        who[k] = xl_iota_of(g, XL_I32, XL_DIMS(n), 0);
        where[k] = place[k];
    }
    xl_tensor all_who = xl_concat(g, who, (int)K, 0),
              all_where = xl_reshape_dims(g, xl_concat(g, where, (int)K, 0), XL_DIMS(n * K, 1));
    if (g->err)
        return XL_NO_TENSOR;
    xl_value seats = xl_em_splat(&g->e, xl_type_tensor(g->m, XL_I32, XL_DIMS(X * slots + 1)), (double)n);
    static const int64_t zero_dim = 0;
    xl_b_scatter_dims sd = { .inserted = { &zero_dim, 1 }, .map = { &zero_dim, 1 }, .vector_dim = 1 };
    seats = xl_b_scatter(&g->e, seats, xl_val_of(all_where), xl_val_of(all_who), &sd, XL_OP_MINIMUM);
    xl_tensor seat = xl_slice(g, xl_tensor_of(seats), 0, 0, X * slots);
    /* an empty seat reads a row of zeros behind the last token */
    xl_tensor padded[2] = { h, xl_const_of(g, g->err ? XL_F32 : xl_graph_type(g, h)->dtype, XL_DIMS(1, D), 0) };
    xl_tensor in = xl_reshape_dims(g, xl_gather_rows(g, xl_concat(g, padded, 2, 0), seat), XL_DIMS(X, slots, D));
    in = xl_spread_act(g, "experts", in);
    xl_tensor act = xl_mul(g, xl_silu(g, xl_matmul(g, in, gate)), xl_matmul(g, in, up));
    xl_tensor out = xl_reshape_dims(g, xl_matmul(g, act, down), XL_DIMS(X * slots, D));
    xl_tensor back[2] = { out, xl_const_of(g, g->err ? XL_F32 : xl_graph_type(g, out)->dtype, XL_DIMS(1, D), 0) };
    out = xl_concat(g, back, 2, 0);
    xl_tensor y = XL_NO_TENSOR, dropped = XL_NO_TENSOR;
    for (int64_t k = 0; k < K; k++) {
        xl_tensor w = xl_mul(g, xl_div(g, weight[k], sum), fits[k]);
        xl_tensor part =
            xl_mul(g, xl_cast_to(g, xl_gather_rows(g, out, place[k]), XL_F32), xl_reshape_dims(g, w, XL_DIMS(n, 1)));
        y = k ? xl_add(g, y, part) : part;
        xl_tensor lost = xl_sub(g, xl_sum(g, b->valid, NULL), xl_sum(g, fits[k], NULL));
        dropped = k ? xl_add(g, dropped, lost) : lost;
    }
    /* balance: X times the sum over experts of (share of tokens) times (mean probability); 1 when even */
    xl_tensor count = xl_maximum(g, xl_sum(g, b->valid, NULL), one);
    xl_tensor mean_p = xl_div(g, xl_sum(g, xl_mul(g, probs, valid), "[0]"), count);
    xl_tensor frac = xl_div(g, share, xl_scale(g, count, (double)K));
    b->balance =
        xl_add(g, b->balance, xl_scale(g, xl_sum(g, xl_mul(g, xl_stop_gradient(g, frac), mean_p), NULL), (double)X));
    b->dropped = xl_add(g, b->dropped, dropped);
    return xl_add(g, x,
                  xl_cast_to(g, xl_reshape_dims(g, y, XL_DIMS(B, T, D)), g->err ? XL_F32 : xl_graph_type(g, x)->dtype));
}

xl_tensor xl_block_build(xl_blocks *b, char kind, xl_tensor x)
{
    switch (kind) {
    case 'A': return swiglu(b, attention(b, x));
    case 'M': return state_space(b, x);
    case 'E': return experts(b, attention(b, x));
    case 'R': return swiglu(b, recurrence(b, x));
    case 'D': return swiglu(b, x);
    default: return xl_graph_fail(b->g, "no block is called '%c'; there are A, M, E, R, D", kind);
    }
}
