/* Calls into the frontend while a program runs. On one device, and inside a manual region, each device makes its own
 * call.
 * Otherwise the program means a single call: the partitioner has recorded which device makes it (`xlane.device`), its
 * operands are whole, and if it has results, the devices meet there. */
#include "cpu/kernel/callback.h"

#include <stdatomic.h>
#include <stdlib.h>

#include "base/thread.h"
#include "cpu/meet/meeting.h"

typedef struct {
    uint64_t number;
    int64_t device;
    uint32_t skip_in, skip_out;
} host; /* device -1: each. skip: tokens in front */

static xl_host_fn *_Atomic frontend;

void xl_host_set(xl_host_fn *fn) { atomic_store(&frontend, fn); }

bool xl_host_is(const xl_op *op)
{
    xl_str name = op->code == XL_OP_CUSTOM_CALL ? xl_op_str(op, XL_SLOT(CUSTOM_CALL, call_target_name)) : (xl_str){ 0 };
    return xl_str_is(name, "xlane_python_callback") || xl_str_is(name, "xlane_partitioned_python_callback");
}

xl_error *xl_host_call(uint64_t number, const xl_host_array *arrays)
{
    xl_host_fn *fn = atomic_load(&frontend);
    enum { SIZE = 16384 };
    if (!fn)
        return XL_ERR(PRECONDITION,
                      "host callback %llu: no frontend of this process offers host callbacks: run the program from JAX",
                      (unsigned long long)number);
    char *error = calloc(1, SIZE);
    if (!error)
        return XL_ERR(EXHAUSTED, "no memory to call back");
    xl_error *err = fn(number, arrays, error, SIZE) ? XL_ERR(INTERNAL, "host callback: %s", error) : NULL;
    free(error);
    return err;
}

xl_error *xl_host_run(const xl_frame *f, void (*fn)(void *arg), void *arg)
{
    xl_thread t;
    if (!f->meet) {
        fn(arg);
        return NULL;
    }
    xl_error *err = xl_thread_start(&t, "xlane-callback", fn, arg);
    if (!err)
        xl_thread_join(&t);
    return xl_error_wrap(err, "calling back");
}

typedef struct { uint64_t number; const xl_host_array *arrays; xl_error *err; } call;
static void run_call(void *arg)
{
    call *c = arg;
    c->err = xl_host_call(c->number, c->arrays);
}

static xl_error *call_host(const xl_step *s, const xl_frame *f, void *const *in, void *const *out)
{
    const host *h = s->data;
    uint32_t n = 0;
    xl_host_array *arrays = calloc((size_t)s->nin + s->nout + 1, sizeof *arrays);
    if (!arrays)
        return XL_ERR(EXHAUSTED, "no memory to call back");
    for (uint32_t i = h->skip_in; i < s->nin; i++)
        arrays[n++] = (xl_host_array){ in[i], xl_in_shape(s, i)->rank, xl_in_shape(s, i)->dims };
    for (uint32_t i = h->skip_out; i < s->nout; i++)
        arrays[n++] = (xl_host_array){ out[i], xl_out_shape(s, i)->rank, xl_out_shape(s, i)->dims };
    call c = { h->number, arrays, NULL };
    xl_error *err = xl_host_run(f, run_call, &c);
    free(arrays);
    return err ? err : c.err;
}

static xl_error *run_each(const xl_step *s, xl_frame *f)
{
    const host *h = s->data;
    void **p = malloc(((size_t)s->nin + s->nout + 1) * sizeof *p);
    if (!p)
        return XL_ERR(EXHAUSTED, "no memory to call back");
    for (uint32_t i = 0; i < s->nin + s->nout; i++)
        p[i] = f->ptr[s->buf[i]];
    xl_error *err = h->device < 0 || (uint32_t)h->device == f->partition ? call_host(s, f, p, p + s->nin) : NULL;
    free(p);
    return err;
}

/* The results go to the devices of this process, and to the other processes that have some: a byte that says who
 * called, then the results. */
static xl_error *meet_once(const xl_step *s, xl_frame *f, const xl_group_view *g)
{
    const host *h = s->data;
    uint32_t at = (uint32_t)h->device < g->n ? (uint32_t)h->device : 0;
    bool ours = g->out[at] != NULL;
    size_t total = 1, *bytes = NULL, place = 1;
    const void **theirs = NULL;
    const char *from = NULL;
    char *mine = NULL, *kept = NULL;                       /* kept: mine where no other process is sent it */
    xl_error *err = NULL;
    for (uint32_t i = h->skip_out; i < s->nout; i++)
        total += xl_out_shape(s, i)->bytes;
    mine = g->parts > 1 ? xl_meet_room(g, total) : (kept = calloc(1, total));
    if (!mine || !(bytes = calloc(g->parts + 1, sizeof *bytes)) || !(theirs = calloc(g->parts + 1, sizeof *theirs))) {
        err = XL_ERR(EXHAUSTED, "no memory for %zu bytes of a callback's results", total);
        goto out;
    }
    if (ours)
        XL_DO(call_host(s, f, g->in[at], g->out[at]));
    mine[0] = ours;
    for (uint32_t i = h->skip_out; ours && i < s->nout; place += xl_out_shape(s, i++)->bytes)
        memcpy(mine + place, g->out[at][i], xl_out_shape(s, i)->bytes);
    from = ours ? mine : NULL;
    for (uint32_t p = 0; p < g->parts; p++)
        bytes[p] = total;
    if (g->parts > 1)
        XL_DO(xl_meet_exchange(g, theirs, bytes));
    for (uint32_t p = 0; p < g->parts && g->parts > 1; p++)
        if (!from && p != g->part && theirs[p] && *(const char *)theirs[p])
            from = theirs[p];
    if (!from) {
        err = XL_ERR(INTERNAL, "no process has the device of a host callback");
        goto out;
    }
    for (uint32_t k = 0; k < g->n; k++) {
        place = 1;
        for (uint32_t i = h->skip_out; k != at && g->out[k] && i < s->nout; place += xl_out_shape(s, i++)->bytes)
            memcpy(g->out[k][i], from + place, xl_out_shape(s, i)->bytes);
    }
out:
    free(kept);
    free(bytes);
    free(theirs);
    return err;
}

static xl_error *run_once(const xl_step *s, xl_frame *f)
{
    if (!f->meet)
        return run_each(s, f);
    uint32_t n = f->npartition;
    void **p = malloc(((size_t)s->nin + s->nout + 1) * sizeof *p + n * sizeof(uint32_t));
    if (!p)
        return XL_ERR(EXHAUSTED, "no memory to call back");
    uint32_t *id = (uint32_t *)(p + s->nin + s->nout + 1);
    for (uint32_t i = 0; i < s->nin + s->nout; i++)
        p[i] = f->ptr[s->buf[i]];
    for (uint32_t k = 0; k < n; k++)
        id[k] = f->replica * n + k;
    xl_error *err = xl_meet_at(f->meet, xl_meet_number(f), id, n, s, f, p, p + s->nin, meet_once);
    free(p);
    return err;
}

xl_error *xl_plan_host(xl_planner *p, const xl_op *op)
{
    const xl_attr *cfg = XL_ATTR(op, CUSTOM_CALL, backend_config),
                  *device = xl_dict_get(op->extra, XL_STR("xlane.device"));
    if (!cfg || cfg->kind != XL_AT_DICT)
        cfg = xl_dict_get(op->extra, XL_STR("mhlo.backend_config"));
    const xl_attr *number = cfg && cfg->kind == XL_AT_DICT ? xl_dict_get(cfg, XL_STR("number")) : NULL;
    if (!number || number->kind != XL_AT_INT)
        return xl_plan_unsupported(p, op, "a host callback without a number in its configuration: trace it with JAX");
    host *h = xl_new(p->a, host, 1);
    *h = (host){ .number = (uint64_t)number->i, .device = device && device->kind == XL_AT_INT ? device->i : -1 };
    while (h->skip_in < op->nin && xl_in_type(p->f, op, h->skip_in)->kind == XL_TY_TOKEN)
        h->skip_in++;
    while (h->skip_out < op->nout && xl_out_type(p->f, op, h->skip_out)->kind == XL_TY_TOKEN)
        h->skip_out++;
    bool together = h->device >= 0 && op->nout > h->skip_out && p->plan->ndevice > 1;
    if (together)
        p->plan->collective = true;
    p->plan->host = true;
    return xl_plan_step(p, op, together ? run_once : run_each, h, 0);
}
