/* xlane.h: define, differentiate and train a model from C (or C++), on any PJRT device.
 *
 * A graph is built op by op; shapes are inferred at once. Errors are sticky: after the first mistake every call does
 * nothing, and the call that asks for a result reports that mistake with its line in your code. Types are short
 * strings, "f32[32,784]" or "i32[]". Operands of different shapes are broadcast as in numpy.
 *
 *     xl_graph *g = xl_graph_new("line");
 *     xl_tensor x = xl_input(g, "x", "f32[32]"), y = xl_input(g, "y", "f32[32]");
 *     xl_tensor w = xl_param(g, "w", "f32[]", "zeros"), b = xl_param(g, "b", "f32[]", "zeros");
 *     xl_tensor d = xl_sub(g, xl_add(g, xl_mul(g, w, x), b), y);
 *     xl_loss(g, xl_mean(g, xl_square(g, d), NULL));
 *
 * A lane is an open plugin with its devices. A trainer keeps parameters and optimizer state there and runs one compiled
 * step per graph.
 * Functions that can fail return an xl_error *; NULL is success. One thread at a time per graph, lane or trainer. */
#ifndef XLANE_H
#define XLANE_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define XL_API __attribute__((visibility("default")))
#define XL_CHECKED XL_API __attribute__((warn_unused_result))
#else
#define XL_API
#define XL_CHECKED
#endif

/* The version of this header, and of the library that the program runs with. */
#define XLANE_VERSION "0.2.0"
XL_API const char *xl_version(void);

typedef struct xl_error xl_error;
XL_API const char *xl_error_message(const xl_error *err);  /* one line; "ok" for NULL */
XL_API void xl_error_free(xl_error *err);

/* ---- graphs ------------------------------------------------------------------------------------------------------ */
typedef struct xl_graph xl_graph;
typedef struct { uint32_t id; } xl_tensor;                 /* a value of one graph */

XL_API xl_graph *xl_graph_new(const char *name);           /* NULL: no memory */
XL_API void xl_graph_free(xl_graph *g);                    /* NULL is fine, as for every free and close */
XL_API const xl_error *xl_graph_error(const xl_graph *g);  /* the first mistake, borrowed; NULL: none so far */
/* Matrix products use this type ("bf16"); parameters stay f32. Call it before the first parameter. */
XL_API void xl_graph_compute(xl_graph *g, const char *dtype);
XL_API const char *xl_shape(xl_graph *g, xl_tensor t);     /* "f32[32,10]", borrowed until the graph goes */
XL_API int64_t xl_dim(xl_graph *g, xl_tensor t, int i);    /* -1 is the last one */

/* SPMD: the devices as a mesh with named axes, "data=2, model=4"; the sizes multiply to the number of devices of the
 * lane. Call it before the first tensor of the graph, and before the process puts its first tensor on a device; a call
 * that comes too late is an error that names both moments. */
XL_API void xl_graph_mesh(xl_graph *g, const char *mesh);
/* How a tensor is split, dimension by dimension: an axis, several joined by +, or - for whole: "data, -, model". An
 * input or parameter is stored like that (its optimizer state too); anything else is constrained to it, and the
 * constrained tensor comes back. */
XL_API xl_tensor xl_sharded(xl_graph *g, xl_tensor t, const char *dims);

XL_API xl_tensor xl_input(xl_graph *g, const char *name, const char *type);
/* init: "zeros", "ones", "normal S", "uniform S" (from -S to S), "const C". Trained, and saved under its name. */
XL_API xl_tensor xl_param(xl_graph *g, const char *name, const char *type, const char *init);
XL_API xl_tensor xl_const(xl_graph *g, const char *type, double value);   /* the same value everywhere */
XL_API xl_tensor xl_iota(xl_graph *g, const char *type, int dim);         /* 0, 1, 2, ... along dim */

/* The loss, and metrics: numbers that every step returns. `how` says how a metric is reduced over the whole batch, on
 * all devices: "mean", "sum", "max", or "local" (of one device only; it can be read, but never logged as a global one).
 * On a mesh it can name the axes it is reduced over, "mean over data" (else: all that split the batch), and comes with
 * the number of devices that took part; if that is not what the mesh has, reading it is an error. */
XL_API void xl_loss(xl_graph *g, xl_tensor scalar);
XL_API void xl_metric(xl_graph *g, const char *name, const char *how, xl_tensor scalar);
/* The same for values by row, [batch, ...], which are reduced here; weights of the same shape, or XL_NONE. A local
 * metric has one number per device. */
#ifdef __cplusplus
#define XL_NONE (xl_tensor{ UINT32_MAX })
#else
#define XL_NONE ((xl_tensor){ UINT32_MAX })
#endif
XL_API void xl_metric_rows(xl_graph *g, const char *name, const char *how, xl_tensor rows, xl_tensor weight);

/* Elementwise. */
XL_API xl_tensor xl_add(xl_graph *g, xl_tensor a, xl_tensor b);
XL_API xl_tensor xl_sub(xl_graph *g, xl_tensor a, xl_tensor b);
XL_API xl_tensor xl_mul(xl_graph *g, xl_tensor a, xl_tensor b);
XL_API xl_tensor xl_div(xl_graph *g, xl_tensor a, xl_tensor b);
XL_API xl_tensor xl_pow(xl_graph *g, xl_tensor a, xl_tensor b);
XL_API xl_tensor xl_maximum(xl_graph *g, xl_tensor a, xl_tensor b);
XL_API xl_tensor xl_minimum(xl_graph *g, xl_tensor a, xl_tensor b);
XL_API xl_tensor xl_scale(xl_graph *g, xl_tensor a, double by);           /* a * by */
XL_API xl_tensor xl_offset(xl_graph *g, xl_tensor a, double by);          /* a + by */
XL_API xl_tensor xl_neg(xl_graph *g, xl_tensor a);
XL_API xl_tensor xl_abs(xl_graph *g, xl_tensor a);
XL_API xl_tensor xl_exp(xl_graph *g, xl_tensor a);
XL_API xl_tensor xl_ln(xl_graph *g, xl_tensor a);
XL_API xl_tensor xl_sin(xl_graph *g, xl_tensor a);
XL_API xl_tensor xl_cos(xl_graph *g, xl_tensor a);
XL_API xl_tensor xl_tanh(xl_graph *g, xl_tensor a);
XL_API xl_tensor xl_sqrt(xl_graph *g, xl_tensor a);
XL_API xl_tensor xl_rsqrt(xl_graph *g, xl_tensor a);
XL_API xl_tensor xl_square(xl_graph *g, xl_tensor a);
XL_API xl_tensor xl_sigmoid(xl_graph *g, xl_tensor a);
XL_API xl_tensor xl_relu(xl_graph *g, xl_tensor a);
XL_API xl_tensor xl_silu(xl_graph *g, xl_tensor a);
XL_API xl_tensor xl_gelu(xl_graph *g, xl_tensor a);                       /* the tanh form */
XL_API xl_tensor xl_softplus(xl_graph *g, xl_tensor a);
/* op: "<", "<=", ">", ">=", "==", "!=". Gives i1. */
XL_API xl_tensor xl_compare(xl_graph *g, xl_tensor a, const char *op, xl_tensor b);
XL_API xl_tensor xl_and(xl_graph *g, xl_tensor a, xl_tensor b);
XL_API xl_tensor xl_where(xl_graph *g, xl_tensor cond, xl_tensor yes, xl_tensor no);
XL_API xl_tensor xl_cast(xl_graph *g, xl_tensor a, const char *dtype);
XL_API xl_tensor xl_stop_gradient(xl_graph *g, xl_tensor a);

/* Shapes: lists are strings too, "[32,-1]". In a list of sizes -1 is inferred; in a list of axes it counts from the
 * end. */
XL_API xl_tensor xl_reshape(xl_graph *g, xl_tensor a, const char *dims);
XL_API xl_tensor xl_transpose(xl_graph *g, xl_tensor a, const char *axes);     /* new order of the axes */
XL_API xl_tensor xl_broadcast(xl_graph *g, xl_tensor a, const char *dims);
XL_API xl_tensor xl_slice(xl_graph *g, xl_tensor a, int axis, int64_t from, int64_t to);
XL_API xl_tensor xl_concat(xl_graph *g, const xl_tensor *list, int n, int axis);
XL_API xl_tensor xl_shift(xl_graph *g, xl_tensor a, int axis, int64_t by,
                          double fill); /* along axis, by places to the right */

/* Reductions; axes NULL: all. keep: xl_keep(...) gives the reduced axes back with size one. */
XL_API xl_tensor xl_sum(xl_graph *g, xl_tensor a, const char *axes);
XL_API xl_tensor xl_mean(xl_graph *g, xl_tensor a, const char *axes);
XL_API xl_tensor xl_max(xl_graph *g, xl_tensor a, const char *axes);
XL_API xl_tensor xl_keep(xl_graph *g, xl_tensor reduced, xl_tensor like, const char *axes);
XL_API xl_tensor xl_cumsum(xl_graph *g, xl_tensor a, int axis);

/* a[..., m, k] b[k, n], or with equal leading dimensions a[..., m, k] b[..., k, n]. */
XL_API xl_tensor xl_matmul(xl_graph *g, xl_tensor a, xl_tensor b);
XL_API xl_tensor xl_lookup(xl_graph *g, xl_tensor table, xl_tensor ids);       /* rows of table[n, d] */

/* Parts of networks. Normalisations, softmax and losses compute in f32 whatever comes in. */
XL_API xl_tensor xl_softmax(xl_graph *g, xl_tensor a);                         /* over the last axis */
XL_API xl_tensor xl_rmsnorm(xl_graph *g, xl_tensor x, xl_tensor gain);
XL_API xl_tensor xl_layernorm(xl_graph *g, xl_tensor x, xl_tensor gain, xl_tensor bias);
/* -log softmax(logits)[label], one number per label; logits[..., n], labels[...] integers. */
XL_API xl_tensor xl_cross_entropy(xl_graph *g, xl_tensor logits, xl_tensor labels);
XL_API xl_tensor xl_masked_mean(xl_graph *g, xl_tensor a, xl_tensor mask);     /* sum(a * mask) / max(1, sum(mask)) */

/* Runs `body` n times; each iteration gets the carry of the one before, and carry[k] keeps its type. One compiled body,
 * whatever n is. `turn` is the i32 number of the iteration; xl_row reads row `turn` of a tensor. On return carry holds
 * the last values. For the backward pass the loop keeps its carry and the results of matrix products; the rest is
 * recomputed. */
typedef void xl_scan_body(xl_graph *g, xl_tensor turn, xl_tensor *carry, void *arg);
XL_API void xl_scan(xl_graph *g, int64_t n, xl_tensor *carry, int ncarry, xl_scan_body *body, void *arg);
XL_API xl_tensor xl_row(xl_graph *g, xl_tensor a, xl_tensor turn);
/* Ops between the two calls are recomputed in the backward pass instead of kept. */
XL_API void xl_remat_begin(xl_graph *g);
XL_API void xl_remat_end(xl_graph *g);

/* d loss / d wrt[i] as tensors of the graph, for your own use; training does not need it. */
XL_API void xl_gradient(xl_graph *g, xl_tensor loss, const xl_tensor *wrt, int n, xl_tensor *out);
/* The program as StableHLO text: a function of the inputs and parameters that returns `out`. The string is malloc'd. */
XL_CHECKED xl_error *xl_graph_text(xl_graph *g, const xl_tensor *out, int n, char **text);

/* ---- hybrid language models -------------------------------------------------------------------------------------- */
/* A model is a pattern of blocks:
 *   A  causal attention (rotary positions, grouped heads, masks by document), then SwiGLU
 *   M  a selective state space, in chunks so that it is matrix work
 *   E  causal attention, then top-k experts with a capacity: static shapes, a balance loss, dropped tokens counted
 *   R  a gated linear recurrence, then SwiGLU
 * "A*12" is twelve A; "AMER*3" the four in turn, three times; "AA(ME)*2" two A and then ME twice. Start from
 * xl_model_default. */
typedef struct {
    size_t size;                                 /* of this struct in your program; set by xl_model_default */
    const char *pattern;
    int64_t vocab, dim, heads, kv_heads, ffn;    /* kv_heads 0: as heads; ffn 0: 8/3 dim, rounded up to 32 */
    int64_t state, chunk;                        /* M: size of a head's state; length of a chunk */
    int64_t experts, top_k;                      /* E */
    double capacity, balance; /* E: places per token and expert beyond the even share; weight of the balance loss */
    double rope_base;
    int scan;                                    /* one compiled body for a repeated unit, whatever its depth */
    int remat;                                   /* without scan: blocks are recomputed in the backward pass */
    int64_t micro; /* batches per step, accumulated in a loop that keeps the activations of one; 0 or 1: no loop */
    int tie;                                     /* the last product uses the table of the first look-up, as in GPT-2 */
    const char *compute;                         /* "f32" or "bf16" */
    /* "plain", or "cudnn": cuDNN's fused attention, for CUDA and bf16, where every row is one document. "auto" is plain
     * here; a configuration's auto is cudnn where device, model and data allow it. */
    const char *attention;
    int nondeterministic; /* cudnn: allow a backward pass whose bits may differ from run to run */
    /* "plain", or "triton": norms and the loss by kernels of our own, for CUDA and bf16. "auto" as for attention. */
    const char *kernels;
} xl_model;
XL_API void xl_model_fill(xl_model *out, size_t size);
static inline xl_model xl_model_default(void)
{
    xl_model m;
    xl_model_fill(&m, sizeof m);
    return m;
}
/* Makes the inputs tokens, targets, segments (0: padding, which neither sees nor counts; else the number of the
 * document) and positions (within the document), all i32[batch, time]; the parameters; the loss and the metrics. Gives
 * the logits f32[batch, time, vocab]; none with micro, whose loop does not keep them. `why` (may be NULL) gets why a
 * repeated unit is not scanned, or "". */
XL_API xl_tensor xl_model_build(xl_graph *g, const xl_model *c, int64_t batch, int64_t time, const char **why);

/* ---- functions exported by JAX ----------------------------------------------------------------------------------- */
/* What jax.export(...)(...).serialize() gave, or its StableHLO artifact alone. The receipt is one line: who made it,
 * for which platforms, which custom calls it needs; a lane that lacks them refuses before it compiles. */
typedef struct xl_exported xl_exported;
XL_CHECKED xl_error *xl_exported_open(const char *path, xl_exported **out);
XL_API void xl_exported_close(xl_exported *e);
XL_API const char *xl_exported_receipt(const xl_exported *e);
/* Its results for these arguments, as tensors of the graph: it can be differentiated like anything else. `platform`
 * ("cpu", "cuda", "tpu") picks the branch of a function exported for several; else NULL. */
XL_API void xl_call(xl_graph *g, const xl_exported *e, const char *platform, const xl_tensor *in, int n, xl_tensor *out,
                    int nout);

/* ---- lanes and training ------------------------------------------------------------------------------------------ */
typedef struct xl_lane xl_lane;
/* plugin: a path, "cpu", "cuda", "tpu", or NULL for the best one on this machine (XLANE_PLUGIN decides if set). */
XL_CHECKED xl_error *xl_lane_open(const char *plugin, xl_lane **out);
XL_API void xl_lane_close(xl_lane *l);
XL_API const char *xl_lane_name(const xl_lane *l);         /* "xlane cpu: NEON ...", for people */

/* Every value here is a tensor on the device: changing one never recompiles. Start from xl_adamw_default. */
typedef struct {
    size_t size;                  /* as in xl_model */
    double lr, min_lr;            /* of the schedule's top and its end */
    const char *schedule;         /* "constant", "linear", "cosine" */
    int64_t warmup, steps;
    double beta1, beta2, eps, decay, clip; /* decay acts on parameters of two dimensions and more; clip 0: none */
} xl_adamw;
XL_API void xl_adamw_fill(xl_adamw *out, size_t size);
static inline xl_adamw xl_adamw_default(void)
{
    xl_adamw o;
    xl_adamw_fill(&o, sizeof o);
    return o;
}

typedef struct xl_trainer xl_trainer;
typedef struct { const char *name; const void *data; size_t bytes; } xl_feed; /* dense, row by row */

/* Parameters are drawn from the seed. The graph must have a loss; it stays yours, and must outlive the trainer. */
XL_CHECKED xl_error *xl_trainer_new(xl_lane *l, xl_graph *g, const xl_adamw *opt, uint64_t seed, xl_trainer **out);
XL_API void xl_trainer_free(xl_trainer *t);
/* One update; returns once the step is enqueued. `feed` names every input. */
XL_CHECKED xl_error *xl_trainer_step(xl_trainer *t, const xl_feed *feed, int n);
/* The same with another graph over the same parameters: another bucket of shapes. Compiled when first used. */
XL_CHECKED xl_error *xl_trainer_step_with(xl_trainer *t, xl_graph *g, const xl_feed *feed, int n);
/* Loss and metrics of the last step ("loss", "grad_norm", "lr", "skipped", "step", or one of yours); waits for it. */
XL_CHECKED xl_error *xl_trainer_read(xl_trainer *t, const char *metric, double *out);
XL_CHECKED xl_error *xl_trainer_read_local(xl_trainer *t, const char *metric, double *out,
                                           int n); /* of a local one, on a mesh: one per device */
/* The metrics of a graph on data, without an update. */
XL_CHECKED xl_error *xl_trainer_eval(xl_trainer *t, xl_graph *g, const xl_feed *feed, int n, const char *metric,
                                     double *out);
XL_CHECKED xl_error *xl_trainer_get(xl_trainer *t, const char *param, void *data, size_t bytes);
XL_CHECKED xl_error *xl_trainer_set(xl_trainer *t, const char *param, const void *data, size_t bytes);
/* A safetensors file with parameters, optimizer state and step, written atomically (temporary file, then rename).
 * Loading replaces the values of the live buffers. */
XL_CHECKED xl_error *xl_trainer_save(xl_trainer *t, const char *path);
XL_CHECKED xl_error *xl_trainer_load(xl_trainer *t, const char *path);

/* ---- where in your code ------------------------------------------------------------------------------------------ */
XL_API xl_graph *xl_graph_at(xl_graph *g, const char *file, int line);
#ifndef XL_NO_LOCATIONS
#define XL_HERE(g) xl_graph_at((g), __FILE__, __LINE__)
#define xl_graph_mesh(g, ...) (xl_graph_mesh)(XL_HERE(g), __VA_ARGS__)
#define xl_sharded(g, ...) (xl_sharded)(XL_HERE(g), __VA_ARGS__)
#define xl_input(g, ...) (xl_input)(XL_HERE(g), __VA_ARGS__)
#define xl_param(g, ...) (xl_param)(XL_HERE(g), __VA_ARGS__)
#define xl_const(g, ...) (xl_const)(XL_HERE(g), __VA_ARGS__)
#define xl_iota(g, ...) (xl_iota)(XL_HERE(g), __VA_ARGS__)
#define xl_loss(g, ...) (xl_loss)(XL_HERE(g), __VA_ARGS__)
#define xl_metric(g, ...) (xl_metric)(XL_HERE(g), __VA_ARGS__)
#define xl_metric_rows(g, ...) (xl_metric_rows)(XL_HERE(g), __VA_ARGS__)
#define xl_add(g, ...) (xl_add)(XL_HERE(g), __VA_ARGS__)
#define xl_sub(g, ...) (xl_sub)(XL_HERE(g), __VA_ARGS__)
#define xl_mul(g, ...) (xl_mul)(XL_HERE(g), __VA_ARGS__)
#define xl_div(g, ...) (xl_div)(XL_HERE(g), __VA_ARGS__)
#define xl_pow(g, ...) (xl_pow)(XL_HERE(g), __VA_ARGS__)
#define xl_maximum(g, ...) (xl_maximum)(XL_HERE(g), __VA_ARGS__)
#define xl_minimum(g, ...) (xl_minimum)(XL_HERE(g), __VA_ARGS__)
#define xl_scale(g, ...) (xl_scale)(XL_HERE(g), __VA_ARGS__)
#define xl_offset(g, ...) (xl_offset)(XL_HERE(g), __VA_ARGS__)
#define xl_neg(g, ...) (xl_neg)(XL_HERE(g), __VA_ARGS__)
#define xl_abs(g, ...) (xl_abs)(XL_HERE(g), __VA_ARGS__)
#define xl_exp(g, ...) (xl_exp)(XL_HERE(g), __VA_ARGS__)
#define xl_ln(g, ...) (xl_ln)(XL_HERE(g), __VA_ARGS__)
#define xl_sin(g, ...) (xl_sin)(XL_HERE(g), __VA_ARGS__)
#define xl_cos(g, ...) (xl_cos)(XL_HERE(g), __VA_ARGS__)
#define xl_tanh(g, ...) (xl_tanh)(XL_HERE(g), __VA_ARGS__)
#define xl_sqrt(g, ...) (xl_sqrt)(XL_HERE(g), __VA_ARGS__)
#define xl_rsqrt(g, ...) (xl_rsqrt)(XL_HERE(g), __VA_ARGS__)
#define xl_square(g, ...) (xl_square)(XL_HERE(g), __VA_ARGS__)
#define xl_sigmoid(g, ...) (xl_sigmoid)(XL_HERE(g), __VA_ARGS__)
#define xl_relu(g, ...) (xl_relu)(XL_HERE(g), __VA_ARGS__)
#define xl_silu(g, ...) (xl_silu)(XL_HERE(g), __VA_ARGS__)
#define xl_gelu(g, ...) (xl_gelu)(XL_HERE(g), __VA_ARGS__)
#define xl_softplus(g, ...) (xl_softplus)(XL_HERE(g), __VA_ARGS__)
#define xl_compare(g, ...) (xl_compare)(XL_HERE(g), __VA_ARGS__)
#define xl_and(g, ...) (xl_and)(XL_HERE(g), __VA_ARGS__)
#define xl_where(g, ...) (xl_where)(XL_HERE(g), __VA_ARGS__)
#define xl_cast(g, ...) (xl_cast)(XL_HERE(g), __VA_ARGS__)
#define xl_stop_gradient(g, ...) (xl_stop_gradient)(XL_HERE(g), __VA_ARGS__)
#define xl_reshape(g, ...) (xl_reshape)(XL_HERE(g), __VA_ARGS__)
#define xl_transpose(g, ...) (xl_transpose)(XL_HERE(g), __VA_ARGS__)
#define xl_broadcast(g, ...) (xl_broadcast)(XL_HERE(g), __VA_ARGS__)
#define xl_slice(g, ...) (xl_slice)(XL_HERE(g), __VA_ARGS__)
#define xl_concat(g, ...) (xl_concat)(XL_HERE(g), __VA_ARGS__)
#define xl_shift(g, ...) (xl_shift)(XL_HERE(g), __VA_ARGS__)
#define xl_sum(g, ...) (xl_sum)(XL_HERE(g), __VA_ARGS__)
#define xl_mean(g, ...) (xl_mean)(XL_HERE(g), __VA_ARGS__)
#define xl_max(g, ...) (xl_max)(XL_HERE(g), __VA_ARGS__)
#define xl_keep(g, ...) (xl_keep)(XL_HERE(g), __VA_ARGS__)
#define xl_cumsum(g, ...) (xl_cumsum)(XL_HERE(g), __VA_ARGS__)
#define xl_matmul(g, ...) (xl_matmul)(XL_HERE(g), __VA_ARGS__)
#define xl_lookup(g, ...) (xl_lookup)(XL_HERE(g), __VA_ARGS__)
#define xl_softmax(g, ...) (xl_softmax)(XL_HERE(g), __VA_ARGS__)
#define xl_rmsnorm(g, ...) (xl_rmsnorm)(XL_HERE(g), __VA_ARGS__)
#define xl_layernorm(g, ...) (xl_layernorm)(XL_HERE(g), __VA_ARGS__)
#define xl_cross_entropy(g, ...) (xl_cross_entropy)(XL_HERE(g), __VA_ARGS__)
#define xl_masked_mean(g, ...) (xl_masked_mean)(XL_HERE(g), __VA_ARGS__)
#define xl_scan(g, ...) (xl_scan)(XL_HERE(g), __VA_ARGS__)
#define xl_row(g, ...) (xl_row)(XL_HERE(g), __VA_ARGS__)
#define xl_call(g, ...) (xl_call)(XL_HERE(g), __VA_ARGS__)
#define xl_gradient(g, ...) (xl_gradient)(XL_HERE(g), __VA_ARGS__)
#endif

#ifdef __cplusplus
}
#endif
#endif
