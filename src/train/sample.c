/* Drawing text from a checkpoint, a token at a time. One compiled program takes a token and the states of fixed shape
 * that the tokens before it left (keys and values, what recurrences remember), which stay on the device. When the
 * window is full its first half goes, and the rest goes through again. With `recompute` one program takes the whole
 * window each time, and everything behind the last token is padding that no position can see: the same
 * tokens, slowly. */
#include <math.h>
#include <stdlib.h>

#include "base/file.h"
#include "train/loop.h"
#include "train/step.h"

static uint64_t mix(uint64_t *s)
{
    uint64_t z = (*s += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

typedef struct { float p; int id; } choice;

static int falling(const void *x, const void *y)
{
    const choice *a = x, *b = y;
    return a->p > b->p ? -1 : a->p < b->p ? 1 : a->id - b->id;
}

/* The smallest set of tokens with at least top_p of the probability, then one of them. */
static int draw(const float *logits, int n, const xl_sample_opts *o, uint64_t *seed, choice *c)
{
    int best = 0;
    for (int i = 1; i < n; i++)
        if (logits[i] > logits[best])
            best = i;
    if (!(o->temperature > 0))
        return best;
    double sum = 0, kept = 0;
    for (int i = 0; i < n; i++) {
        c[i] = (choice){ expf((logits[i] - logits[best]) / (float)o->temperature), i };
        sum += c[i].p;
    }
    qsort(c, (size_t)n, sizeof *c, falling);
    int m = 0;
    while (m < n && kept < o->top_p * sum)
        kept += c[m++].p;
    double u = (double)(mix(seed) >> 11) * 0x1p-53 * kept;
    for (int i = 0; i < m; i++)
        if ((u -= c[i].p) < 0)
            return c[i].id;
    return c[0].id;
}

typedef struct {
    xl_arena *a;
    xl_setup s;
    xl_graph *g;                         /* of the program; the setup's, or our own */
    xl_graph *own;
    xl_program *prog;
    xl_array **in, **out;                /* parameters, inputs; logits, states */
    xl_array_type *type;
    uint32_t nin, nout, first;           /* first: the first of the inputs */
    int64_t T, V;
    int32_t *tok, *seg, *pos;
    int64_t n, done;                     /* tokens in the window; how many the states have seen */
    float *logits;
} sampler;

static xl_error *put_input(sampler *m, uint32_t i, const void *data)
{
    xl_array_free(m->in[m->first + i]);
    m->in[m->first + i] = NULL;
    return xl_lane_put(m->s.lane, m->g->input[i].type, &m->g->input[i].spec, data, &m->in[m->first + i]);
}

/* As if nothing had been seen. */
static xl_error *forget(sampler *m)
{
    xl_error *err = NULL;
    int64_t most = 0, bytes;
    for (uint32_t i = 2; i < m->g->ninput; i++)
        if (xl_type_bytes(m->g->input[i].type, &bytes) && bytes > most)
            most = bytes;
    void *zeros = calloc(1, (size_t)most + 1);
    if (!zeros)
        return XL_ERR(EXHAUSTED, "no memory for a state of %lld bytes", (long long)most);
    for (uint32_t i = 2; i < m->g->ninput && !err; i++)
        err = put_input(m, i, zeros);
    m->done = 0;
    free(zeros);
    return err;
}

static xl_error *execute(sampler *m)
{
    xl_error *err = xl_array_execute(&m->s.lane->place, m->prog, m->in, m->nin, m->type, m->nout, m->out);
    if (err)
        return err;
    for (uint32_t i = 1; i < m->nout; i++) {             /* what came out goes in next time */
        xl_array_free(m->in[m->first + 1 + i]);
        m->in[m->first + 1 + i] = m->out[i];
        m->out[i] = NULL;
    }
    return NULL;
}

static xl_error *read_logits(sampler *m)
{
    xl_error *err = xl_array_get(m->out[0], m->logits, (size_t)m->V * sizeof *m->logits, NULL);
    xl_array_free(m->out[0]);
    m->out[0] = NULL;
    return err;
}

/* The logits after the last token of the window. */
static xl_error *step_on(sampler *m)
{
    xl_error *err = NULL;
    for (; m->done < m->n && !err; m->done++) {
        int32_t at = (int32_t)m->done;
        xl_array_free(m->out[0]);
        m->out[0] = NULL;
        err = put_input(m, 0, &m->tok[at]);
        if (!err)
            err = put_input(m, 1, &at);
        if (!err)
            err = execute(m);
    }
    return err ? err : read_logits(m);
}

static xl_error *whole_window(sampler *m)
{
    xl_error *err = NULL;
    for (int64_t i = 0; i < m->T; i++) {
        m->seg[i] = i < m->n;
        m->pos[i] = i < m->n ? (int32_t)i : 0;
        m->tok[i] = i < m->n ? m->tok[i] : 0;
    }
    int32_t last = (int32_t)m->n - 1;
    const void *src[] = { m->tok, m->tok, m->seg, m->pos, &last };
    for (uint32_t i = 0; i < m->g->ninput && !err; i++)
        err = put_input(m, i, src[i]);
    if (!err)
        err = execute(m);
    return err ? err : read_logits(m);
}

/* The program: of one token, or of the window with the row of the last token picked. */
static xl_error *prepare(sampler *m, const xl_model *c, bool recompute)
{
    xl_error *err = NULL;
    xl_func *f;
    xl_tensor *out = xl_new(m->a, xl_tensor, XL_STATES_MAX + 1);
    int n = 0;
    if (recompute) {
        m->g = m->s.g[0];
        xl_tensor at = xl_input_dims(m->g, "at", XL_I32, XL_NO_DIMS);
        out[0] = xl_row(m->g, xl_reshape_dims(m->g, m->s.logits[0], XL_DIMS(m->T, m->V)), at);
    } else {
        m->g = m->own = xl_graph_new("sample");
        if (!m->own)
            return XL_ERR(EXHAUSTED, "no memory for a graph");
        if (m->s.mesh.naxis && xl_graph_mesh_def(m->own, &m->s.mesh))
            m->own->spread = &m->s.spread;
        n = xl_model_step(m->own, c, m->T, &out[0], out + 1);
    }
    if (m->g->err)
        return XL_ERR(INTERNAL, "%s", xl_error_message(m->g->err));
    m->nout = (uint32_t)n + 1;
    m->first = m->s.t->n;
    m->nin = m->first + m->g->ninput + (m->s.t->parts != NULL);
    m->in = xl_new(m->a, xl_array *, m->nin);
    m->out = xl_new(m->a, xl_array *, m->nout);
    m->type = xl_new(m->a, xl_array_type, m->nout);
    memcpy(m->in, m->s.t->buf, m->first * sizeof *m->in);
    if (m->s.t->parts)
        m->in[m->nin - 1] = m->s.t->parts;
    int64_t *vocab = xl_new(m->a, int64_t, 1);
    *vocab = m->V;
    m->type[0] = (xl_array_type){ xl_elem_of(XL_F32), { vocab, 1 }, NULL };
    XL_DO(xl_forward_build(m->g, m->s.t->name, m->s.t->n, out, m->nout, &f));
    for (uint32_t i = 1; i < m->nout; i++) {
        const xl_type *t = m->g->input[1 + i].type;
        m->type[i] = (xl_array_type){ xl_elem_of(t->dtype), xl_type_dims(t), NULL };
        xl_func_donate(f, m->first + 1 + i, i);
    }
    XL_DO(xl_lane_compile(m->s.lane, m->g, f, "sample", &m->prog));
    if (!recompute)
        err = forget(m);
out:
    return err;
}

static xl_error *append(sampler *m, int token)
{
    xl_error *err = NULL;
    if (m->n == m->T) {
        int64_t half = m->T - m->T / 2;
        memmove(m->tok, m->tok + m->T / 2, (size_t)half * sizeof *m->tok);
        m->n = half;
        if (m->own)
            err = forget(m);
    }
    m->tok[m->n++] = token;
    return err;
}

static void close_sampler(sampler *m)
{
    for (uint32_t i = 0; m->in && i < m->g->ninput; i++)
        xl_array_free(m->in[m->first + i]);
    for (uint32_t i = 0; m->out && i < m->nout; i++)
        xl_array_free(m->out[i]);
    xl_program_free(m->prog);
    xl_setup_fini(&m->s);
    xl_graph_free(m->own);
}

xl_error *xl_train_sample(xl_arena *a, const xl_config *config, const char *dir, const xl_sample_opts *o,
                          void (*put)(void *ctx, int token), void *ctx)
{
    xl_error *err = NULL;
    xl_config c = *config;
    c.model.capacity =
        (double)c.model.experts / (double)c.model.top_k; /* no token is dropped for others that come with it */
    sampler m = { .a = a, .V = c.model.vocab, .T = c.data.nbucket ? c.data.buckets[c.data.nbucket - 1] : c.data.time };
    char *path;
    int64_t step;
    m.tok = xl_new(a, int32_t, (size_t)m.T), m.seg = xl_new(a, int32_t, (size_t)m.T),
    m.pos = xl_new(a, int32_t, (size_t)m.T);
    m.logits = xl_new(a, float, (size_t)m.V);
    choice *order = xl_new(a, choice, (size_t)m.V);
    uint64_t seed = o->seed;
    XL_DO(xl_ckpt_needed(a, dir, &path, &step));
    m.s.small = true;
    XL_DO(xl_setup_graphs(&c, &m.T, 1, 1, &m.s));
    XL_DO(xl_setup_device(&c, &m.s));
    XL_DO(xl_trainer_new(m.s.lane, m.s.g[0], &c.opt, (uint64_t)c.seed, &m.s.t));
    XL_DO(xl_ckpt_load(m.s.t, path, NULL));
    XL_DO(prepare(&m, &c.model, o->recompute));
    for (size_t i = 0; i < o->nprompt; i++) {
        if (o->prompt[i] < 0 || o->prompt[i] >= m.V) {
            err =
                XL_ERR(RANGE, "token %d of the prompt is beyond the vocabulary of %lld", o->prompt[i], (long long)m.V);
            goto out;
        }
        XL_DO(append(&m, o->prompt[i]));
    }
    for (int64_t k = 0; k < o->tokens; k++) {
        XL_DO(o->recompute ? whole_window(&m) : step_on(&m));
        int next = draw(m.logits, (int)m.V, o, &seed, order);
        put(ctx, next);
        XL_DO(append(&m, next));
    }
out:
    close_sampler(&m);
    return err;
}
