/* Drawing text from a checkpoint. One compiled program of a fixed window: the tokens so far lie at its front, the logits are read at
 * the last of them, and everything behind is padding that no position can see. When the window is full its first half goes. */
#include <math.h>
#include <stdlib.h>

#include "base/file.h"
#include "train/loop.h"

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

xl_error *xl_train_sample(xl_arena *a, const xl_config *c, const char *dir, const xl_sample_opts *o, void (*put)(void *ctx, int token), void *ctx)
{
    xl_error *err = NULL;
    xl_setup s = { 0 };
    xl_program *prog = NULL;
    xl_func *f;
    char *path;
    int64_t step, T = c->data.nbucket ? c->data.buckets[c->data.nbucket - 1] : c->data.time, n = 0, V = c->model.vocab;
    int32_t *tok = xl_new(a, int32_t, (size_t)T), *seg = xl_new(a, int32_t, (size_t)T), *pos = xl_new(a, int32_t, (size_t)T);
    float *logits = xl_new(a, float, (size_t)V);
    choice *order = xl_new(a, choice, (size_t)V);
    uint64_t seed = o->seed;
    xl_str *names;
    xl_array **in = NULL;
    XL_DO(xl_ckpt_newest(a, xl_path_join(a, dir, "checkpoints"), &path, &step));
    if (!path) {
        err = XL_ERR(NOT_FOUND, "%s has no checkpoint that can be read", dir);
        goto out;
    }
    s.small = true;
    XL_DO(xl_setup_graphs(c, &T, 1, 1, &s));
    xl_graph *g = s.g[0];
    xl_tensor at = xl_input_dims(g, "at", XL_I32, XL_NO_DIMS);
    xl_tensor row = xl_row(g, xl_reshape_dims(g, s.logits[0], XL_DIMS(T, V)), at);
    if (g->err) {
        err = XL_ERR(INTERNAL, "%s", xl_error_message(g->err));
        goto out;
    }
    XL_DO(xl_setup_device(c, &s));
    XL_DO(xl_trainer_new(s.lane, g, &c->opt, (uint64_t)c->seed, &s.t));
    XL_DO(xl_ckpt_load(s.t, path, NULL));
    names = s.t->name;
    XL_DO(xl_forward_build(g, names, s.t->n, &row, 1, &f));
    XL_DO(xl_lane_compile(s.lane, g, f, "sample", &prog));
    uint32_t nin = s.t->n + g->ninput + (s.t->parts != NULL);
    in = xl_new(a, xl_array *, nin);
    in[nin - 1] = s.t->parts;
    memcpy(in, s.t->buf, s.t->n * sizeof *in);
    for (const char *p = o->prompt && *o->prompt ? o->prompt : "\n"; *p; p++) {
        if ((unsigned char)*p >= V) {
            err = XL_ERR(RANGE, "byte %d of the prompt is beyond the vocabulary of %lld", (unsigned char)*p, (long long)V);
            goto out;
        }
        if (n == T) {
            memmove(tok, tok + T / 2, (size_t)(T - T / 2) * sizeof *tok);
            n = T - T / 2;
        }
        tok[n++] = (unsigned char)*p;
    }
    for (int64_t k = 0; k < o->tokens; k++) {
        if (n == T) {
            memmove(tok, tok + T / 2, (size_t)(T - T / 2) * sizeof *tok);
            n = T - T / 2;
        }
        for (int64_t i = 0; i < T; i++) {
            seg[i] = i < n;
            pos[i] = i < n ? (int32_t)i : 0;
            tok[i] = i < n ? tok[i] : 0;
        }
        int32_t last = (int32_t)n - 1;
        const void *src[] = { tok, tok, seg, pos, &last };
        xl_array *out[1] = { NULL };
        for (uint32_t i = 0; i < g->ninput && !err; i++)
            err = xl_lane_put(s.lane, g->input[i].type, &g->input[i].spec, src[i], &in[s.t->n + i]);
        if (!err)
            err = xl_array_execute(&s.lane->place, prog, in, nin, &(xl_array_type){ xl_elem_of(XL_F32), XL_DIMS(V), NULL }, 1, out);
        if (!err)
            err = xl_array_get(out[0], logits, (size_t)V * sizeof *logits, NULL);
        xl_array_free(out[0]);
        for (uint32_t i = 0; i < g->ninput; i++) {
            xl_array_free(in[s.t->n + i]);
            in[s.t->n + i] = NULL;
        }
        if (err)
            goto out;
        int next = draw(logits, (int)V, o, &seed, order);
        put(ctx, next);
        tok[n++] = next;
    }
out:
    xl_program_free(prog);
    xl_setup_fini(&s);
    return err;
}
