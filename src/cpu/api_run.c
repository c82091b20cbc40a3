/* LoadedExecutable_Execute: arguments checked and held, outputs made or taken over from donated arguments, the plan run.
 * Programs run in the calling thread (which the pool helps), those whose devices meet in a thread for each;
 * when they return, all events are ready. */
#include <stdio.h>
#include <stdlib.h>

#include "cpu/api.h"
#include "cpu/collective.h"
#include "cpu/crew.h"
#include "cpu/spare.h"

typedef struct {                                           /* one device's share of an execution */
    PJRT_LoadedExecutable *l;
    PJRT_Device *device;
    uint32_t replica, partition;
    PJRT_Buffer *const *args;
    size_t nargs;
    const PJRT_ExecuteOptions *opts;
    PJRT_Buffer **out;
    xl_meet *meet;
    xl_store **arg_store, **out_store;
    void **arg, **outp;
    bool *donate;
    xl_pool *pool;
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
        const xl_shape *want = &p->arg[i];
        if (!b)
            return XL_ERR(INVALID, "argument %u of %s is missing", i, s->l->e->name);
        bool token = xl_value_type(p->f, p->f->body->arg[i])->kind == XL_TY_TOKEN;
        bool fits = token || (b->dtype == want->dtype && b->rank == want->rank);
        for (uint32_t k = 0; fits && !token && k < want->rank; k++)
            fits = b->dims[k] == want->dims[k];
        if (!fits) {
            char have[256], need[256];
            size_t n = 0, m = 0;
            for (size_t k = 0; k < b->rank && n < 200; k++)
                n += (size_t)snprintf(have + n, sizeof have - n, "%lldx", (long long)b->dims[k]);
            snprintf(have + n, sizeof have - n, "%s", xl_dtypes[b->dtype].text);
            for (size_t k = 0; k < want->rank && m < 200; k++)
                m += (size_t)snprintf(need + m, sizeof need - m, "%lldx", (long long)want->dims[k]);
            snprintf(need + m, sizeof need - m, "%s", xl_dtypes[want->dtype].text);
            return XL_ERR(INVALID, "argument %u of %s is %s, the program was compiled for %s", i, s->l->e->name, have, need);
        }
        if (b->device != s->device)
            return XL_ERR(INVALID, "argument %u of %s lies on %s, the program runs on %s: copy it there", i, s->l->e->name, b->device->desc.text,
                          s->device->desc.text);
        pthread_mutex_lock(&b->lock);
        xl_store *st = b->store ? xl_store_ref(b->store) : NULL;
        bool shared = b->external > 0;
        xl_code code = b->error;
        pthread_mutex_unlock(&b->lock);
        s->arg_store[i] = st;
        if (!st || code)
            return XL_ERR(INVALID, "argument %u of %s %s", i, s->l->e->name, b->message ? b->message : "was deleted or donated");
        s->arg[i] = st->data;
        s->donate[i] = p->arg_donated[i] && !kept(s->opts, i) && !shared && !st->foreign;
    }
    return NULL;
}

static void leave(const share *s, const xl_error *err)
{
    if (s->meet)
        xl_meet_leave(s->meet, s->replica * s->l->e->npartition + s->partition, err);
}

static xl_error *run_share(share *s)
{
    xl_exec *e = s->l->e;
    const xl_plan *p = e->plan;
    xl_error *err = NULL;
    void *temp = NULL, *_Atomic *spare = &e->spare[s->replica * e->npartition + s->partition];
    bool took = false;
    size_t n = (size_t)p->narg + p->nout;
    void *small[256];
    size_t words = 2 * n + p->narg;                        /* stores, pointers, flags */
    void **mem = words <= 256 ? small : malloc(words * sizeof *mem);
    if (!mem) {
        err = XL_ERR(EXHAUSTED, "no memory to run %s", e->name);
        leave(s, err);
        return err;
    }
    memset(mem, 0, words * sizeof *mem);
    s->arg_store = (xl_store **)mem;
    s->out_store = s->arg_store + p->narg;
    s->arg = mem + n;
    s->outp = s->arg + p->narg;
    s->donate = (bool *)(mem + 2 * n);
    XL_DO(hold_args(s));
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
    took = true;
    temp = atomic_exchange(spare, NULL);
    if (!temp)
        temp = xl_spare_take(p->temp_bytes);
    if (!temp)
        temp = aligned_alloc(XL_ALIGN, ((p->temp_bytes + XL_ALIGN - 1) & ~(size_t)(XL_ALIGN - 1)) + XL_ALIGN);
    if (!temp) {
        err = XL_ERR(EXHAUSTED, "no host memory for the %zu bytes of temporaries of %s", p->temp_bytes, e->name);
        goto out;
    }
    uint64_t rng[2];
    pthread_mutex_lock(&s->l->client->lock);
    s->l->client->rng[0] += 0x9e3779b97f4a7c15ULL;
    memcpy(rng, s->l->client->rng, sizeof rng);
    pthread_mutex_unlock(&s->l->client->lock);
    xl_frame f = { .pool = s->pool, .replica = s->replica, .partition = s->partition, .nreplica = e->nreplica,
                   .npartition = e->npartition, .meet = s->meet, .rng = rng };
    XL_TRY(xl_plan_run(p, &f, s->arg, s->outp, temp), "running %s", e->name);
    const xl_op *end = xl_region_end(p->f->body);
    for (uint32_t k = 0; k < p->nout; k++) {
        bool token = xl_in_type(p->f, end, k)->kind == XL_TY_TOKEN;
        XL_DO(xl_buffer_new(s->device, p->out[k].dtype, token, p->out[k].rank, p->out[k].dims, s->out_store[k], &s->out[k]));
        s->out_store[k] = NULL;
    }
    for (uint32_t i = 0; i < p->narg; i++)                 /* donated: gone, whether or not the memory was of use */
        if (p->arg_donated[i] && !kept(s->opts, i)) {
            PJRT_Buffer_Delete_Args d = { .buffer = s->args[i] };
            (void)xl_PJRT_Buffer_Delete(&d);
        }
out:
    leave(s, err);
    if (took)
        xl_device_give(s->device, p->temp_bytes);
    temp = temp ? atomic_exchange(spare, temp) : NULL;
    if (temp && !xl_spare_give(temp, p->temp_bytes))
        free(temp);
    for (uint32_t i = 0; i < p->narg; i++)
        xl_store_unref(s->arg_store[i]);
    for (uint32_t k = 0; k < p->nout; k++)
        xl_store_unref(s->out_store[k]);
    if (err)
        for (uint32_t k = 0; k < p->nout; k++) {
            xl_cpu_buffer_free(s->out[k]);
            s->out[k] = NULL;
        }
    if (mem != small)
        free(mem);
    return err;
}

typedef struct { share *all; size_t n; xl_meet *meet; } together;

static uint32_t slot_of(const share *s) { return s->replica * s->l->e->npartition + s->partition; }

static void some_are_absent(void *ctx, size_t started, const xl_error *why)
{
    const together *t = ctx;
    for (size_t k = started; k < t->n; k++)
        xl_meet_absent(t->meet, slot_of(&t->all[k]), why);
}

static void run_device(void *ctx, size_t k)
{
    const together *t = ctx;
    xl_meet_enter(t->meet, slot_of(&t->all[k]));
    t->all[k].err = run_share(&t->all[k]);
}

/* Threads for one of n devices that run at the same time: its share of the cores. NULL: the one that it has. */
static xl_pool *pool_of(PJRT_Device *d, size_t n)
{
    PJRT_Client *c = d->client;
    size_t cores = xl_pool_size(c->pool) / n;
    xl_pool *p = NULL;
    if (cores < 2)
        return NULL;
    pthread_mutex_lock(&c->lock);
    for (size_t i = 0; i < XL_DEVICE_POOLS && !p; i++) {
        if (!d->pool[i])
            d->pool[i] = xl_pool_new(cores);
        if (d->pool[i] && xl_pool_size(d->pool[i]) == cores)
            p = d->pool[i];
    }
    pthread_mutex_unlock(&c->lock);
    return p;
}

/* Devices that meet run at once, each in a thread. The error that is told is the first device's to fail for a reason of its own, not one of those that
 * stopped because of it. */
static xl_error *run_together(share *all, size_t n)
{
    PJRT_Client *c = all[0].l->client;
    together t = { .all = all, .n = n };
    xl_error *err = xl_meet_new((uint32_t)n, c->pool, &t.meet);
    if (err)
        return err;
    for (size_t k = 0; k < n; k++) {
        all[k].meet = t.meet;
        all[k].pool = pool_of(all[k].device, n);
    }
    err = xl_crew_run(c->crew, n, some_are_absent, run_device, &t);
    for (size_t k = 0; k < n; k++) {
        if (all[k].err && (!err || (xl_error_code(err) == XL_CODE_ABORTED && xl_error_code(all[k].err) != XL_CODE_ABORTED))) {
            xl_error_free(err);
            err = all[k].err;
        } else {
            xl_error_free(all[k].err);
        }
    }
    const char *trace = getenv("XLANE_CPU_TRACE");
    if (!err && trace && *trace && strcmp(trace, "0"))
        fprintf(stderr, "xlane: %s: %llu bytes through collectives on %zu devices\n", all[0].l->e->name, (unsigned long long)xl_meet_bytes(t.meet), n);
    xl_meet_free(t.meet);
    return err;
}

PJRT_Error *xl_PJRT_LoadedExecutable_Execute(PJRT_LoadedExecutable_Execute_Args *args)
{
    PJRT_LoadedExecutable *l = args->executable;
    xl_error *err = NULL;
    if (atomic_load(&l->deleted))
        return xl_api_fail(XL_CODE_INVALID, "%s was deleted: it cannot run any more", l->e->name);
    bool one = PJRT_HAS(args, execute_device) && args->execute_device;
    if (one ? args->num_devices != 1 : args->num_devices != l->n)
        return xl_api_fail(XL_CODE_INVALID, "%s runs on %zu devices, arguments were given for %zu", l->e->name, one ? 1 : l->n, args->num_devices);
    size_t n = args->num_devices;
    share *all = calloc(n, sizeof *all);
    if (!all)
        return xl_api_fail(XL_CODE_EXHAUSTED, "no memory to run %s", l->e->name);
    for (size_t k = 0; k < n; k++) {
        size_t at = k;
        for (size_t i = 0; one && i < l->n; i++)
            if (l->devices[i] == args->execute_device)
                at = i;
        all[k] = (share){ .l = l, .device = one ? args->execute_device : l->devices[at], .args = args->argument_lists ? args->argument_lists[k] : NULL,
                          .nargs = args->num_args, .opts = args->options, .out = args->output_lists[k], .replica = (uint32_t)l->ids[at].replica,
                          .partition = (uint32_t)l->ids[at].partition };
        for (uint32_t i = 0; i < l->e->plan->nout; i++)
            all[k].out[i] = NULL;
    }
    if (l->e->plan->collective && n > 1) {
        err = run_together(all, n);
    } else {
        for (size_t k = 0; k < n && !err; k++) {
            all[k].pool = l->client->pool;
            err = run_share(&all[k]);
        }
    }
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
