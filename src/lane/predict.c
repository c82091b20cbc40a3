/* A walk over each region in program order with a running sum. Regions of one op are alternatives or turns of one loop, so the op's
 * peak is that of the largest of them; what a region reads from outside lives as long as the op. */
#include "lane/predict.h"

#include "ir/print.h"
#include "ir/read.h"
#include "pass/pass.h"
#include "pjrt/options.h"

const char *xl_predict_word(xl_predict_rule r) { return r == XL_RULE_PLAIN ? "plain" : "fused"; }

typedef struct {
    const xl_func *f;
    xl_predict_rule rule;
    uint32_t *last;         /* per value: the op of its own region after which it is gone */
    bool *held;             /* takes memory of its own */
    uint32_t *uses;         /* per value: how many operands it is */
    int64_t constants;
} walk;

static int64_t bytes_of(const walk *w, xl_value v)
{
    int64_t b = 0;
    const xl_type *t = xl_value_type(w->f, v);
    if (t->kind != XL_TY_TENSOR || !xl_type_bytes(t, &b))
        return 0;
    return (b + 63) / 64 * 64;
}

static bool is_elementwise(const xl_op *op)
{
    return (xl_ops[op->code].flags & XL_OP_ELEMWISE) != 0;
}

/* Cheap enough to be computed again wherever it is read. */
static bool is_view(const xl_op *op)
{
    switch (op->code) {
    case XL_OP_RESHAPE: case XL_OP_BROADCAST_IN_DIM: case XL_OP_IOTA: case XL_OP_SLICE:
        return true;
    default:
        return false;
    }
}

static bool forwards(const xl_op *op) { return op->code == XL_OP_OPTIMIZATION_BARRIER; }

static void find_last(walk *w, const xl_region *r)
{
    for (uint32_t i = 0; i < r->nop; i++) {
        const xl_op *op = r->op[i];
        for (uint32_t k = 0; k < op->nregion; k++)
            find_last(w, op->region[k]);
        op = r->op[i];
        for (uint32_t k = 0; k < op->nin; k++) {
            w->last[op->in[k].id] = i;
            w->uses[op->in[k].id]++;
        }
    }
}

/* Uses inside a region count as uses by the op that has it, and so up to the region where the value was made. */
static void find_outer(walk *w, const xl_region *r, const xl_region *home, uint32_t at)
{
    for (uint32_t i = 0; i < r->nop; i++) {
        const xl_op *op = r->op[i];
        for (uint32_t k = 0; k < op->nin; k++) {
            const xl_val *v = &w->f->val[op->in[k].id];
            const xl_region *made = v->def ? v->def->parent : v->region;
            if (made == home)
                w->last[op->in[k].id] = at;
        }
        for (uint32_t k = 0; k < op->nregion; k++)
            find_outer(w, op->region[k], home, at);
    }
}

static void find_all_outer(walk *w, const xl_region *r)
{
    for (uint32_t i = 0; i < r->nop; i++)
        for (uint32_t k = 0; k < r->op[i]->nregion; k++) {
            find_outer(w, r->op[i]->region[k], r, i);
            find_all_outer(w, r->op[i]->region[k]);
        }
}

/* Which results take memory at all. Under the fused rule a value is held when something reads it that cannot compute it on the fly. */
static void find_held(walk *w, const xl_region *r)
{
    for (uint32_t i = 0; i < r->nop; i++) {
        const xl_op *op = r->op[i];
        for (uint32_t k = 0; k < op->nin; k++) {
            const xl_op *def = w->f->val[op->in[k].id].def;
            if (!def || def->code == XL_OP_CONSTANT)
                continue;
            bool once = is_view(def) || w->uses[op->in[k].id] == 1; /* several readers stand in several kernels, mostly */
            bool light = w->rule == XL_RULE_FUSED && (is_elementwise(def) || is_view(def)) && once &&
                         (is_elementwise(op) || is_view(op) || op->code == XL_OP_REDUCE) && def->parent == op->parent;
            if (!light)
                w->held[op->in[k].id] = true;
        }
        for (uint32_t k = 0; k < op->nregion; k++)
            find_held(w, op->region[k]);
    }
}

static int64_t peak(walk *w, const xl_region *r);

/* A loop keeps its carry twice over where its body cannot write it in place; nearly all can, so once. */
static int64_t inside(walk *w, const xl_op *op)
{
    int64_t most = 0;
    for (uint32_t k = 0; k < op->nregion; k++) {
        if (op->code == XL_OP_REDUCE || op->code == XL_OP_SCATTER || op->code == XL_OP_SORT || op->code == XL_OP_REDUCE_WINDOW)
            continue;               /* scalars at work */
        int64_t p = peak(w, op->region[k]);
        most = p > most ? p : most;
    }
    return most;
}

static int64_t peak(walk *w, const xl_region *r)
{
    int64_t live = 0, most = 0;
    for (uint32_t i = 0; i < r->nop; i++) {
        const xl_op *op = r->op[i];
        int64_t dying = 0, fresh = 0;
        if (op->code == XL_OP_CONSTANT) {
            const xl_attr *v = XL_ATTR(op, CONSTANT, value);
            w->constants += v && v->kind == XL_AT_DENSE && !v->splat ? bytes_of(w, op->out[0]) : 0;
            continue;
        }
        for (uint32_t k = 0; k < op->nin; k++) {
            bool again = false;
            const xl_op *def = w->f->val[op->in[k].id].def;
            for (uint32_t j = 0; j < k; j++)
                again = again || op->in[j].id == op->in[k].id;
            if (!again && def && def->parent == r && w->last[op->in[k].id] == i && w->held[op->in[k].id])
                dying += bytes_of(w, op->in[k]);
        }
        for (uint32_t k = 0; k < op->nout; k++)
            if (w->held[op->out[k].id])
                fresh += bytes_of(w, op->out[k]);
        bool reuse = is_elementwise(op) || forwards(op) || op->code == XL_OP_WHILE || op->code == XL_OP_RESHAPE || op->code == XL_OP_DYNAMIC_UPDATE_SLICE ||
                     op->code == XL_OP_SCATTER;
        int64_t now = live + (reuse && dying >= fresh ? 0 : reuse ? fresh - dying : fresh) + inside(w, op);
        most = now > most ? now : most;
        live += fresh - dying;
        for (uint32_t k = 0; k < op->nout; k++)         /* nobody reads it: gone at once */
            if (w->held[op->out[k].id] && w->last[op->out[k].id] < i)
                live -= bytes_of(w, op->out[k]);
    }
    return most;
}

static bool donated(const xl_func *f, uint32_t i)
{
    const xl_attr *d = f->arg_attr ? f->arg_attr[i] : NULL;
    return d && (xl_dict_get(d, XL_STR("tf.aliasing_output")) || xl_dict_get(d, XL_STR("jax.buffer_donor")));
}

xl_error *xl_predict(const xl_module *original, xl_predict_rule rule, xl_prediction *out)
{
    xl_error *err = NULL;
    xl_arena a = { 0 };
    xl_buf text = { 0 };
    xl_module *m = NULL;
    *out = (xl_prediction){ 0 };
    xl_print_module(original, NULL, &text);
    if (text.failed) {
        err = XL_ERR(EXHAUSTED, "no memory for a copy of the program");
        goto out;
    }
    XL_TRY(xl_read_text(xl_buf_view(&text), NULL, &m), "predicting memory");
    XL_TRY(xl_pipeline_run(m, NULL), "predicting memory");
    const xl_func *f = xl_module_entry(m);
    if (!f || !f->body) {
        err = XL_ERR(INVALID, "the program has no entry function");
        goto out;
    }
    walk w = { .f = f, .rule = rule, .last = xl_new(&a, uint32_t, f->nval + 1), .held = xl_new(&a, bool, f->nval + 1), .uses = xl_new(&a, uint32_t, f->nval + 1) };
    find_last(&w, f->body);
    find_all_outer(&w, f->body);
    find_held(&w, f->body);
    for (uint32_t i = 0; i < f->body->narg; i++)
        out->arguments += bytes_of(&w, f->body->arg[i]);
    const xl_op *end = xl_region_end(f->body);
    bool *taken = xl_new(&a, bool, f->body->narg + 1);
    for (uint32_t k = 0; end && k < end->nin; k++) {
        int64_t b = bytes_of(&w, end->in[k]);
        out->outputs += b;
        for (uint32_t i = 0; i < f->body->narg; i++)
            if (!taken[i] && donated(f, i) && bytes_of(&w, f->body->arg[i]) == b) {
                taken[i] = true;
                out->aliased += b;
                break;
            }
    }
    /* Results are written where they are wanted: their memory is the outputs', not temporary. */
    for (uint32_t k = 0; end && k < end->nin; k++)
        w.held[end->in[k].id] = false;
    out->temporary = peak(&w, f->body);
    out->constants = w.constants;
    out->total = out->arguments + out->outputs - out->aliased + out->temporary + out->constants;
out:
    xl_module_free(m);
    xl_buf_fini(&text);
    xl_arena_fini(&a);
    return err;
}

xl_error *xl_predict_measure(xl_client *c, xl_predict_rule *out)
{
    /* Two branches of elementwise work that meet: written to memory they need a quarter of a million numbers at least. */
    static const char text[] =
        "func.func @main(%x: tensor<262144xf32>) -> tensor<262144xf32> {\n"
        "  %a = stablehlo.exponential %x : tensor<262144xf32>\n  %b = stablehlo.cosine %x : tensor<262144xf32>\n"
        "  %c = stablehlo.multiply %a, %x : tensor<262144xf32>\n  %d = stablehlo.add %b, %x : tensor<262144xf32>\n"
        "  %e = stablehlo.multiply %c, %d : tensor<262144xf32>\n  %f = stablehlo.subtract %e, %a : tensor<262144xf32>\n"
        "  %g = stablehlo.add %f, %b : tensor<262144xf32>\n  return %g : tensor<262144xf32>\n}\n";
    xl_error *err = NULL;
    xl_program *p = NULL;
    xl_buf opts = { 0 };
    xl_program_memory m;
    *out = XL_RULE_FUSED;
    xl_options_build(&opts, &(xl_options){ .replicas = 1, .partitions = 1 });
    XL_TRY(xl_program_compile(c, XL_STR(text), XL_FORMAT_MLIR, xl_buf_view(&opts), &p), "measuring what the device keeps in memory");
    XL_TRY(xl_executable_memory(xl_program_executable(p), &m), "measuring what the device keeps in memory");
    *out = m.temporary >= 262144 * 4 ? XL_RULE_PLAIN : XL_RULE_FUSED;
out:
    xl_program_free(p);
    xl_buf_fini(&opts);
    return err;
}
