/* LoadedExecutable_Execute: checks and holds the arguments, creates the outputs or takes them over from donated
 * arguments, and runs the plan.
 * Programs run in the calling thread with help from the pool; programs whose devices meet run as fibers on all of the
 * pool's threads. All events are ready when the call returns. */
#include <stdio.h>
#include <stdlib.h>

#include "cpu/pjrt/api.h"
#include "cpu/meet/meeting.h"
#include "cpu/run/env.h"
#include "cpu/run/fiber.h"
#include "cpu/pjrt/spare.h"

typedef struct {                                           /* one device's share of an execution */
    PJRT_LoadedExecutable *l;
    PJRT_Device *device;
    uint32_t replica, partition;
    PJRT_Buffer *const *args;
    size_t nargs;
    const PJRT_ExecuteOptions *opts;
    int64_t run;
    PJRT_Buffer **out;
    xl_meet *meet;
    void **mem;                                            /* what follows lies in it */
    xl_store **arg_store, **out_store;
    void **arg, **outp;
    bool *donate;
    void *temp;
    bool took;                                             /* temp counts as the device's */
    xl_error *err;
} share;

static bool kept(const PJRT_ExecuteOptions *o, uint32_t i)
{
    for (size_t k = 0; o && k < o->num_non_donatable_input_indices; k++)
        if (o->non_donatable_input_indices[k] == (int64_t)i)
            return true;
    return false;
}

static xl_error *hold_args(share *s)
{
    const xl_plan *p = s->l->e->plan;
    if (s->nargs != p->narg)
        return XL_ERR(INVALID, "%s takes %u arguments, %zu were given", s->l->e->name, p->narg, s->nargs);
    for (uint32_t i = 0; i < p->narg; i++) {
        PJRT_Buffer *b = s->args[i];
        const xl_extent *want = &p->arg[i];                 /* its dimensions have the order of memory */
        const PJRT_Layouts_MemoryLayout *layout = s->l->e->layouts[1][i];
        int64_t dims[XL_RANK_MAX];
        if (!b)
            return XL_ERR(INVALID, "argument %u of %s is missing", i, s->l->e->name);
        bool token = xl_value_type(p->f, p->f->body->arg[i])->kind == XL_TY_TOKEN;
        bool fits = token || (b->dtype == want->dtype && b->rank == want->rank);
        for (uint32_t k = 0; fits && !token && k < want->rank; k++)
            fits = b->dims[layout->minor_to_major[want->rank - 1 - k]] == want->dims[k];
        if (!fits) {
            char have[256], need[256];
            size_t n = 0, m = 0;
            for (uint32_t k = 0; k < want->rank; k++)
                dims[layout->minor_to_major[want->rank - 1 - k]] = want->dims[k];
            for (size_t k = 0; k < b->rank && n < 200; k++)
                n += (size_t)snprintf(have + n, sizeof have - n, "%lldx", (long long)b->dims[k]);
            snprintf(have + n, sizeof have - n, "%s", xl_dtypes[b->dtype].text);
            for (size_t k = 0; k < want->rank && m < 200; k++)
                m += (size_t)snprintf(need + m, sizeof need - m, "%lldx", (long long)dims[k]);
            snprintf(need + m, sizeof need - m, "%s", xl_dtypes[want->dtype].text);
            return XL_ERR(INVALID, "argument %u of %s is %s, the program was compiled for %s", i, s->l->e->name, have,
                          need);
        }
        if (!token && !xl_layout_same(b->layout, layout, b->dims)) {
            char have[XL_LAYOUT_TEXT], need[XL_LAYOUT_TEXT];
            xl_layout_text(b->layout, have);
            xl_layout_text(layout, need);
            return XL_ERR(INVALID, "argument %u of %s has the layout %s, the program was compiled for %s", i,
                          s->l->e->name, have, need);
        }
        if (b->device != s->device)
            return XL_ERR(INVALID, "argument %u of %s lies on %s, the program runs on %s: copy it there", i,
                          s->l->e->name, b->device->desc.text, s->device->desc.text);
        pthread_mutex_lock(&b->lock);
        xl_store *st = b->store ? xl_store_ref(b->store) : NULL;
        bool shared = b->external > 0;
        xl_code code = b->error;
        pthread_mutex_unlock(&b->lock);
        s->arg_store[i] = st;
        if (!st || code)
            return XL_ERR(INVALID, "argument %u of %s %s", i, s->l->e->name,
                          b->message ? b->message : "was deleted or donated");
        s->arg[i] = st->data;
        s->donate[i] = p->arg_donated[i] && !kept(s->opts, i) && !shared && !st->foreign;
    }
    return NULL;
}

/* A buffer that is given away cannot be read in another place. One reference is the buffer's, one ours: a donated one
 * with more is looked for among the others. */
static xl_error *check_donated(const share *s)
{
    const xl_plan *p = s->l->e->plan;
    for (uint32_t i = 0; i < p->narg; i++)
        if (s->donate[i] && atomic_load(&s->arg_store[i]->ref) > 2)
            for (uint32_t k = 0; k < p->narg; k++)
                if (k != i && s->args[k] == s->args[i])
                    return XL_ERR(INVALID,
                                  "argument %u of %s is donated and is also argument %u: pass a copy, or do not donate",
                                  i, s->l->e->name, k);
    return NULL;
}

static uint32_t slot_of(const share *s) { return s->replica * s->l->e->npartition + s->partition; }
static size_t words_of(const xl_plan *p)
{
    return 2 * ((size_t)p->narg + p->nout) + p->narg;
} /* stores, pointers, flags */

/* mem, where it is not NULL, has words_of(plan) words. */
static xl_error *run_share(share *s, void **mem)
{
    xl_compiled *e = s->l->e;
    const xl_plan *p = e->plan;
    xl_error *err = NULL;
    size_t n = (size_t)p->narg + p->nout;
    s->mem = mem ? mem : malloc(words_of(p) * sizeof *mem);
    if (!s->mem)
        return XL_ERR(EXHAUSTED, "no memory to run %s", e->name);
    memset(s->mem, 0, words_of(p) * sizeof *s->mem);
    s->arg_store = (xl_store **)s->mem;
    s->out_store = s->arg_store + p->narg;
    s->arg = s->mem + n;
    s->outp = s->arg + p->narg;
    s->donate = (bool *)(s->mem + 2 * n);
    XL_DO(hold_args(s));
    XL_DO(check_donated(s));
    for (uint32_t k = 0; k < p->nout; k++) {
        int32_t d = p->out_donor[k];
        /* one reference is the buffer's, one ours: nobody else may be looking */
        if (d >= 0 && s->donate[d] && atomic_load(&s->arg_store[d]->ref) == 2)
            s->out_store[k] = xl_store_ref(s->arg_store[d]);
        else
            XL_DO(xl_store_new(s->device, p->out[k].bytes, &s->out_store[k]));
        s->outp[k] = s->out_store[k]->data;
    }
    XL_DO(xl_device_take(s->device, p->temp_bytes));
    s->took = true;
    s->temp = atomic_exchange(&e->spare[slot_of(s)], NULL);
    if (!s->temp)
        s->temp = xl_spare_take(p->temp_bytes);
    if (!s->temp)
        s->temp = xl_data_alloc(p->temp_bytes + XL_ALIGN);
    if (!s->temp) {
        char need[32], all[32];
        err = XL_ERR(EXHAUSTED, "no host memory for the %s of temporaries of %s: the host has %s in all",
                     xl_size_words((double)p->temp_bytes, need), e->name,
                     xl_size_words((double)s->device->total, all));
        goto out;
    }
    xl_device_took(s->device, p->temp_bytes);
    uint64_t rng[2];
    pthread_mutex_lock(&s->l->client->lock);
    s->l->client->rng[0] += 0x9e3779b97f4a7c15ULL;
    memcpy(rng, s->l->client->rng, sizeof rng);
    pthread_mutex_unlock(&s->l->client->lock);
    xl_frame f = { .pool = s->l->client->pool,
                   .replica = s->replica,
                   .partition = s->partition,
                   .nreplica = e->nreplica,
                   .npartition = e->npartition,
                   .meet = s->meet,
                   .rng = rng,
                   .run = s->run,
                   .ordinal = s->device->desc.id,
                   .context = s->opts && PJRT_HAS(s->opts, context) && s->opts->context ? &s->opts->context->user
                                                                                      : NULL };
    XL_TRY(xl_plan_run(p, &f, s->arg, s->outp, s->temp), "running %s", e->name);
out:
    return err;
}

static xl_error *make_results(share *s)
{
    const xl_plan *p = s->l->e->plan;
    const xl_op *end = xl_region_end(p->f->body);
    xl_error *err = NULL;
    for (uint32_t k = 0; k < p->nout; k++) {
        bool token = xl_in_type(p->f, end, k)->kind == XL_TY_TOKEN;
        const PJRT_Layouts_MemoryLayout *layout = s->l->e->layouts[0][k];
        int64_t dims[XL_RANK_MAX];
        for (uint32_t i = 0; i < p->out[k].rank; i++)
            dims[layout->minor_to_major[p->out[k].rank - 1 - i]] = p->out[k].dims[i];
        XL_DO(xl_buffer_new(s->device, p->out[k].dtype, token, p->out[k].rank, dims, layout, s->out_store[k],
                            &s->out[k]));
        s->out[k]->space = s->l->e->out_space[k];
        s->out_store[k] = NULL;
    }
    for (uint32_t i = 0; i < p->narg; i++)                 /* donated: gone, whether or not the memory was of use */
        if (p->arg_donated[i] && !kept(s->opts, i)) {
            PJRT_Buffer_Delete_Args d = { .buffer = s->args[i] };
            (void)xl_PJRT_Buffer_Delete(&d);
        }
out:
    return err;
}

/* What may call the frontend, which wants to be told when memory of its own is let go. */
static xl_error *end_share(share *s, xl_error *err, bool owns_mem)
{
    xl_compiled *e = s->l->e;
    const xl_plan *p = e->plan;
    if (!err)
        err = make_results(s);
    if (s->took)
        xl_device_give(s->device, p->temp_bytes);
    void *temp = s->temp ? atomic_exchange(&e->spare[slot_of(s)], s->temp) : NULL;
    if (temp && !xl_spare_give(temp, p->temp_bytes))
        free(temp);
    for (uint32_t i = 0; s->mem && i < p->narg; i++)
        xl_store_unref(s->arg_store[i]);
    for (uint32_t k = 0; s->mem && k < p->nout; k++)
        xl_store_unref(s->out_store[k]);
    for (uint32_t k = 0; err && k < p->nout; k++) {
        xl_cpu_buffer_free(s->out[k]);
        s->out[k] = NULL;
    }
    if (owns_mem)
        free(s->mem);
    return err;
}

static xl_error *run_alone(share *s)
{
    void *few[256];
    bool fits = words_of(s->l->e->plan) <= 256;
    return end_share(s, run_share(s, fits ? few : NULL), !fits);
}

static void run_device(void *ctx, uint32_t k)
{
    share *s = (share *)ctx + k;
    s->err = run_share(s, NULL);
    xl_meet_leave(s->meet, k, s->err);
}

static void end_device(void *ctx, uint32_t k)
{
    share *s = (share *)ctx + k;
    if (!s->mem && !s->err)
        s->err = XL_ERR(EXHAUSTED, "no memory for the stack of device %u", k);
    s->err = end_share(s, s->err, true);
}

/* Devices that meet, in the order of their numbers; a share of another process's device is empty. The error that is
 * told is the first device's to fail for a reason of its own, not one of those that stopped because of it. */
static xl_error *run_together(PJRT_LoadedExecutable *l, share *all, size_t n)
{
    PJRT_Client *c = l->client;
    xl_meet_task task = { all, run_device, end_device };
    xl_meet_far far = { c->mail, l->process, l->hash, l->e->name };
    xl_meet *meet;
    xl_error *err = xl_meet_new((uint32_t)n, c->pool, l->process ? &far : NULL, &meet);
    if (err)
        return err;
    for (size_t k = 0; k < n; k++)
        all[k].meet = meet;
    xl_meet_run(meet, c->fibers, &task);
    for (size_t k = 0; k < n; k++) {
        if (all[k].err &&
            (!err || (xl_error_code(err) == XL_CODE_ABORTED && xl_error_code(all[k].err) != XL_CODE_ABORTED))) {
            xl_error_free(err);
            err = all[k].err;
        } else {
            xl_error_free(all[k].err);
        }
    }
    xl_meet_times t = xl_meet_spent(meet);
    if (!err && xl_env_get(XL_ENV_TRACE, 0))
        fprintf(stderr,
                "xlane: %s: %llu bytes through collectives on %zu devices, %llu meetings, threads %.2f ms at work and "
                "%.2f ms without\n",
                l->e->name, (unsigned long long)xl_meet_bytes(meet), n, (unsigned long long)t.meetings,
                (double)t.busy_ns * 1e-6, (double)t.idle_ns * 1e-6);
    xl_meet_free(meet);
    return err;
}

PJRT_Error *xl_PJRT_LoadedExecutable_Execute(PJRT_LoadedExecutable_Execute_Args *args)
{
    PJRT_LoadedExecutable *l = xl_loaded(args->executable);
    xl_error *err = NULL;
    if (atomic_load(&l->deleted))
        return xl_api_fail(XL_CODE_INVALID, "%s was deleted: it cannot run any more", l->e->name);
    bool one = PJRT_HAS(args, execute_device) && args->execute_device;
    if (one ? args->num_devices != 1 : args->num_devices != l->n)
        return xl_api_fail(XL_CODE_INVALID, "%s runs on %zu devices, arguments were given for %zu", l->e->name,
                           one ? 1 : l->n, args->num_devices);
    size_t n = args->num_devices, total = (size_t)l->e->nreplica * l->e->npartition;
    share alone, *all = total > 1 ? calloc(total, sizeof *all) : &alone;
    if (!all)
        return xl_api_fail(XL_CODE_EXHAUSTED, "no memory to run %s", l->e->name);
    bool together = l->e->plan->collective && n == l->n && total > 1;
    static _Atomic int64_t runs;
    int64_t run = atomic_fetch_add(&runs, 1) + 1;
    for (size_t k = 0; k < n; k++) {
        size_t at = k;
        for (size_t i = 0; one && i < l->n; i++)
            if (l->devices[i] == args->execute_device)
                at = i;
        share *s = &all[together ? (size_t)l->ids[at].replica * l->e->npartition + (size_t)l->ids[at].partition : k];
        *s = (share){ .l = l,
                      .device = one ? args->execute_device : l->devices[at],
                      .args = args->argument_lists ? args->argument_lists[k] : NULL,
                      .nargs = args->num_args,
                      .opts = args->options,
                      .run = run,
                      .out = args->output_lists[k],
                      .replica = (uint32_t)l->ids[at].replica,
                      .partition = (uint32_t)l->ids[at].partition };
        for (uint32_t i = 0; i < l->e->plan->nout; i++)
            s->out[i] = NULL;
    }
    if (together)
        err = run_together(l, all, total);
    for (size_t k = 0; !together && k < n && !err; k++)
        err = run_alone(&all[k]);
    if (all != &alone)
        free(all);
    if (!err && args->device_complete_events)
        for (size_t d = 0; d < args->num_devices; d++)
            if (!(args->device_complete_events[d] = xl_event_new(true)) && !err)
                err = XL_ERR(EXHAUSTED, "no memory for an event");
    if (err)
        for (size_t d = 0; d < n; d++)
            for (uint32_t k = 0; k < l->e->plan->nout; k++) {
                xl_cpu_buffer_free(args->output_lists[d][k]);
                args->output_lists[d][k] = NULL;
            }
    return xl_api_error(err);
}
