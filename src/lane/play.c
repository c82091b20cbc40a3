#include "lane/play.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/time.h"
#include "pjrt/options.h"

xl_error *xl_play_devices(xl_arena *a, xl_str options, int64_t *replicas, int64_t *partitions)
{
    xl_option *root;
    xl_error *err = xl_options_parse(a, options, &root);
    if (err)
        return err;
    *replicas = xl_options_int(root, "executable_build_options.num_replicas", 1);
    *partitions = xl_options_int(root, "executable_build_options.num_partitions", 1);
    if (*replicas < 1 || *partitions < 1 || *replicas > 65536 || *partitions > 65536)
        return XL_ERR(INVALID, "compile options for %lld replicas of %lld partitions", (long long)*replicas,
                      (long long)*partitions);
    return NULL;
}

xl_error *xl_play_open(xl_arena *a, const char *plugin, int64_t devices, xl_play *out)
{
    xl_error *err = NULL;
    xl_plugin_choice choice;
    xl_plugin *p;
    *out = (xl_play){ .devices = devices };
    XL_DO(xl_plugin_find(a, &(xl_plugin_wish){ .named = plugin }, &choice));
    char n[32];
    snprintf(n, sizeof n, "%lld", (long long)devices);
    setenv("XLANE_CPU_DEVICES", n, 1);                     /* other plugins show what there is */
    XL_DO(xl_plugin_open(choice.path, &p));
    XL_TRY(xl_client_open(p, NULL, &out->client), "starting %s", choice.path);
    out->path = choice.path;
    if ((int64_t)xl_client_nlocal(out->client) < devices)
        err = XL_ERR(UNAVAILABLE, "%s has %zu devices, the program is for %lld; --plugin=cpu shows as many as it takes",
                     choice.path, xl_client_nlocal(out->client), (long long)devices);
out:
    if (err)
        xl_play_close(out);
    return err;
}

void xl_play_close(xl_play *p)
{
    xl_client_close(p->client);
    p->client = NULL;
}

static bool all_here(const xl_client *c, const xl_option *o)
{
    for (size_t i = 0; o && (o->kind == XL_OPTION_MSG || o->kind == XL_OPTION_LIST) && i < o->n; i++) {
        const xl_option *k = &o->child[i];
        if (k->name && k->kind == XL_OPTION_INTS && !strcmp(k->name, "replica_device_ids"))
            for (size_t j = 0; j < k->n; j++) {
                const xl_device *d = xl_client_device(c, (int)k->list[j]);
                if (!d || !d->local)
                    return false;
            }
        if (!all_here(c, k))
            return false;
    }
    return true;
}

xl_error *xl_play_compile(const xl_play *p, xl_arena *a, xl_str code, xl_format format, xl_str options, xl_played *out)
{
    xl_error *err = NULL;
    xl_buf other = { 0 };
    xl_option *root;
    *out = (xl_played){ .needs = -1 };
    XL_DO(xl_options_parse(a, options, &root));
    if (!all_here(p->client, xl_options_find(root, "executable_build_options.device_assignment"))) {
        xl_options_drop(root, "executable_build_options.device_ordinal");
        xl_options_drop(root, "executable_build_options.device_assignment");
        xl_options_write(root, &other);
        options = xl_buf_view(&other);
    }
    double t = xl_now();
    XL_DO(xl_program_compile(p->client, code, format, options, &out->prog));
    out->seconds = xl_now() - t;
    XL_DO(xl_program_devices(out->prog, a, &out->dev, &out->ndevice));
    XL_DO(xl_executable_noutputs(xl_program_executable(out->prog), &out->nout));
    xl_program_memory m;
    xl_error *untold = xl_executable_memory(xl_program_executable(out->prog), &m);
    out->needs = untold ? -1 : m.needs;
    xl_error_free(untold);
out:
    xl_buf_fini(&other);
    if (err)
        xl_played_free(out);
    return err;
}

void xl_played_free(xl_played *p)
{
    xl_program_free(p->prog);
    p->prog = NULL;
}

void xl_play_drop(xl_cap_part *part, size_t n)
{
    for (size_t i = 0; part && i < n; i++) {
        free((void *)part[i].bytes);
        free((void *)part[i].dims.p);
        part[i] = (xl_cap_part){ 0 };
    }
}

static xl_error *bring(const xl_buffer *b, xl_cap_part *out)
{
    xl_error *err = NULL;
    xl_dims dims;
    size_t size;
    *out = (xl_cap_part){ 0 };
    XL_DO(xl_buffer_elem(b, &out->elem));
    XL_DO(xl_buffer_dims(b, &dims));
    if (!xl_elem_size(out->elem, dims, &size))
        return XL_ERR(UNIMPLEMENTED, "an output of a type that has no bytes");
    int64_t *d = malloc((dims.n + 1) * sizeof *d);
    char *bytes = malloc(size + 1);
    if (!d || !bytes) {
        free(d);
        free(bytes);
        return XL_ERR(EXHAUSTED, "no memory for an output of %zu bytes", size);
    }
    for (size_t i = 0; i < dims.n; i++)
        d[i] = dims.p[i];
    *out = (xl_cap_part){ .elem = out->elem, .dims = { d, dims.n }, .size = size, .bytes = bytes };
    err = xl_buffer_to_host(b, bytes, size, NULL);
out:
    return err;
}

xl_error *xl_play_run(const xl_played *p, const xl_cap_part *in, uint32_t narg, const int64_t *keep, size_t nkeep,
                      xl_cap_part *out, double *seconds)
{
    xl_error *err = NULL;
    size_t n = p->ndevice;
    xl_buffer **arg = calloc(n * narg + 1, sizeof *arg), **res = calloc(n * p->nout + 1, sizeof *res);
    xl_buffer ***args = calloc(n + 1, sizeof *args), ***outs = calloc(n + 1, sizeof *outs);
    xl_fence **done = calloc(n + 1, sizeof *done);
    if (!arg || !res || !args || !outs || !done) {
        err = XL_ERR(EXHAUSTED, "out of memory");
        goto out;
    }
    for (size_t d = 0; d < n; d++) {
        args[d] = arg + d * narg;
        outs[d] = res + d * p->nout;
        for (uint32_t i = 0; i < narg; i++) {
            const xl_cap_part *t = &in[d * narg + i];
            XL_TRY(xl_buffer_from_host(p->dev[d], t->elem, t->dims, t->bytes, NULL, &args[d][i]), "argument %u", i);
        }
    }
    double start = xl_now();
    XL_DO(xl_program_execute(p->prog, &(xl_exec){ .ndevice = n, .narg = narg,
                                                  .arg = (xl_buffer *const *const *)args, .out = outs, .keep = keep,
                                                  .nkeep = nkeep, .done = done }));
    for (size_t d = 0; d < n; d++)
        if (done[d]) {
            xl_error *late = xl_fence_await(done[d]);
            if (err)
                xl_error_free(late);
            else
                err = late;
        }
    if (err)
        goto out;
    if (seconds)
        *seconds = xl_now() - start;
    for (size_t i = 0; i < n * p->nout; i++)
        XL_TRY(bring(res[i], &out[i]), "output %zu", i % p->nout);
out:
    for (size_t i = 0; arg && i < n * narg; i++)
        xl_buffer_free(arg[i]);
    for (size_t i = 0; res && i < n * p->nout; i++)
        xl_buffer_free(res[i]);
    if (done)
        for (size_t d = 0; d < n; d++)
            xl_fence_free(done[d]);
    free(arg);
    free(res);
    free(args);
    free(outs);
    free(done);
    if (err)
        xl_play_drop(out, n * p->nout);
    return err;
}

xl_error *xl_play_inputs(const xl_play *p, xl_arena *a, const xl_capture *c, const xl_cap_part **in, xl_forward *f)
{
    xl_error *err = NULL;
    xl_played *program = xl_new(a, xl_played, c->nprogram);
    xl_cap_part **out = xl_new(a, xl_cap_part *, c->nstep);
    *f = (xl_forward){ .steps = c->nstep - 1 };
    for (uint32_t s = 0; s < c->nstep; s++) {
        const xl_cap_step *x = &c->step[s];
        xl_cap_part *arg = xl_new(a, xl_cap_part, (size_t)x->ndevice * x->narg + 1);
        for (size_t i = 0; i < (size_t)x->ndevice * x->narg; i++) {
            const xl_cap_input *y = &x->in[i];
            arg[i] = y->part;
            if (y->from >= 0) {
                const xl_cap_step *from = &c->step[y->from];
                arg[i] = out[y->from][i / x->narg * from->nout + y->out];
            }
        }
        *in = arg;
        if (s + 1 == c->nstep)
            break;
        xl_played *g = &program[x->program];
        const xl_cap_program *cp = &c->program[x->program];
        if (!g->prog)
            XL_TRY(xl_play_compile(p, a, cp->code, cp->hlo ? XL_FORMAT_HLO : XL_FORMAT_MLIR, cp->options, g),
                   "compiling %.*s", XL_FMT(cp->module));
        if (g->ndevice != x->ndevice || g->nout != x->nout) {
            err = XL_ERR(INVALID, "%.*s has %zu outputs on %zu devices here, in the capture %u on %u",
                         XL_FMT(cp->module), g->nout, g->ndevice, x->nout, x->ndevice);
            goto out;
        }
        out[s] = xl_new(a, xl_cap_part, (size_t)x->ndevice * x->nout + 1);
        XL_TRY(xl_play_run(g, arg, x->narg, x->keep, x->nkeep, out[s], NULL), "execution %llu of %.*s",
               (unsigned long long)x->number, XL_FMT(cp->module));
        for (size_t i = 0; i < (size_t)x->ndevice * x->nout; i++) {
            const xl_cap_part *want = &x->out[i], *have = &out[s][i];
            if (!want->bytes)
                continue;
            f->compared++;
            f->equal += want->size == have->size && !memcmp(want->bytes, have->bytes, want->size);
        }
    }
out:
    for (uint32_t i = 0; i < c->nprogram; i++)
        xl_played_free(&program[i]);
    return err;
}

/* ---- several processes -------------------------------------------------------------------------------------------
 * */
/* The row of a device in an execution over all of them: replica by replica, in each the partitions. */
static int64_t row_of(const xl_option *root, int64_t replicas, int64_t partitions, int device)
{
    const xl_option *all = xl_options_find(root, "executable_build_options.device_assignment.computation_devices");
    if (!all || all->kind != XL_OPTION_LIST || all->n != (size_t)partitions)
        return device < replicas * partitions ? device : -1;
    for (size_t p = 0; p < all->n; p++)
        for (size_t i = 0; i < all->child[p].n && all->child[p].kind == XL_OPTION_MSG; i++) {
            const xl_option *ids = &all->child[p].child[i];
            for (size_t k = 0; ids->kind == XL_OPTION_INTS && k < ids->n; k++)
                if ((int64_t)ids->list[k] == device && k < (size_t)replicas)
                    return (int64_t)k * partitions + (int64_t)p;
        }
    return -1;
}

static const xl_capture *of_rank(const xl_capture *c, uint32_t i) { return i ? &c->other[i - 1] : c; }

xl_error *xl_play_join(xl_arena *a, xl_capture *c, xl_capture *other, uint32_t n)
{
    xl_error *err = NULL;
    c->other = other;
    c->nother = n;
    xl_cap_step *joined = xl_new(a, xl_cap_step, c->nstep + 1);
    xl_cap_program *program = xl_new(a, xl_cap_program, c->nprogram + 1);
    memcpy(program, c->program, c->nprogram * sizeof *program);
    for (uint32_t k = 0; k < c->nstep; k++) {
        const xl_cap_step *mine = &c->step[k];
        const xl_cap_program *g = &c->program[mine->program];
        xl_option *root;
        int64_t replicas, partitions;
        XL_DO(xl_play_devices(a, g->options, &replicas, &partitions));
        XL_DO(xl_options_parse(a, g->options, &root));
        uint32_t all = (uint32_t)(replicas * partitions), found = 0;
        xl_cap_step *s = &joined[k];
        *s = *mine;
        s->ndevice = all;
        s->in = xl_new(a, xl_cap_input, (size_t)all * s->narg + 1);
        s->out = xl_new(a, xl_cap_part, (size_t)all * s->nout + 1);
        int *device = xl_new(a, int, all + 1);
        bool *have = xl_new(a, bool, all + 1);
        for (uint32_t r = 0; r <= n; r++) {
            const xl_capture *o = of_rank(c, r);
            const xl_cap_step *t = k < o->nstep && o->nstep == c->nstep ? &o->step[k] : NULL;
            const xl_cap_program *h = t ? &o->program[t->program] : NULL;
            if (!t || t->number != mine->number || t->narg != mine->narg || t->nout != mine->nout ||
                !xl_str_eq(h->module, g->module) || h->ndevice != t->ndevice) {
                err = XL_ERR(PRECONDITION,
                             "ranks %d and %d did not capture the same execution of %.*s; --capture=step:N does so on "
                             "every rank",
                             c->rank, o->rank, XL_FMT(g->module));
                goto out;
            }
            for (uint32_t d = 0; d < t->ndevice; d++) {
                int64_t row = row_of(root, replicas, partitions, h->device[d]);
                if (row < 0 || row >= all || have[row])
                    continue;
                have[row] = true;
                found++;
                device[row] = h->device[d];
                memcpy(s->in + (size_t)row * s->narg, t->in + (size_t)d * s->narg, s->narg * sizeof *s->in);
                memcpy(s->out + (size_t)row * s->nout, t->out + (size_t)d * s->nout, s->nout * sizeof *s->out);
            }
        }
        if (found != all) {
            err = XL_ERR(PRECONDITION, "the captures of %u ranks have %u of the %u devices of %.*s", n + 1, found, all,
                         XL_FMT(g->module));
            goto out;
        }
        program[s->program].device = device;
        program[s->program].ndevice = all;
    }
    c->step = joined;
    c->program = program;
out:
    return err;
}

void xl_forward_text(const xl_forward *f, xl_buf *out)
{
    if (!f->steps)
        xl_buf_puts(out, "its inputs are exact copies");
    else if (!f->compared)
        xl_buf_printf(out, "its inputs were computed forward over %u executions, unverified: no result of those was "
                           "recorded",
                      f->steps);
    else if (f->equal == f->compared)
        xl_buf_printf(out, "its inputs were computed forward over %u executions, verified: the %u results recorded on "
                           "the way are equal bit for bit",
                      f->steps, f->compared);
    else
        xl_buf_printf(out, "its inputs were computed forward over %u executions, NOT verified: of %u results recorded "
                           "on the way %u differ",
                      f->steps, f->compared, f->compared - f->equal);
}
