#include "lane/collective_error.h"

#include <ctype.h>
#include <stdlib.h>

static const char *const words[] = { "none", "group", "order", "layout" };
static const char *const next[] = {
    "",
    "compare the groups with the mesh (xlane sharding): every device of a group must name the same group, and the "
    "groups of an axis cover all devices",
    "every device of a group must run the same collectives in the same order: look for a condition or loop that "
    "depends on the device (axis_index, partition_id), and for a process that compiled "
    "another program (xlane explain)",
    "bring every operand of the collective in one layout: no layout of their own on split arguments, nothing put on a "
    "device before SPMD is on, the same program on every process",
};

static bool has(xl_str text, const char *const *list)
{
    for (; *list; list++)
        if (memmem(text.p, text.n, *list, strlen(*list)))
            return true;
    return false;
}

xl_collective_trouble xl_collective_trouble_of(xl_str error)
{
    static const char *const collective[] = {
        "all_reduce",     "all-reduce",     "allreduce",     "all_gather", "all-gather", "allgather",
        "reduce_scatter", "reduce-scatter", "reducescatter", "all_to_all", "all-to-all", "alltoall",
        "collective",     "cross-replica",  "crossreplica",  "rendezvous", NULL
    };
    static const char *const layout[] = { "layout", "minor_to_major", "minor-to-major", "tiling", NULL };
    static const char *const group[] = { "replica group", "replica_group", "different groups",
                                         "participant",   "group size",    NULL };
    static const char *const order[] = { "of its group", "waited", "same order", "deadlock", "timed out", "timeout",
                                         "deadline",     "stuck",  "rendezvous", "mismatch", NULL };
    char low[4096];
    size_t n = error.n < sizeof low ? error.n : sizeof low;
    for (size_t i = 0; i < n; i++)
        low[i] = (char)tolower((unsigned char)error.p[i]);
    xl_str t = { low, n };
    if (!has(t, collective))
        return XL_TROUBLE_NONE;
    return has(t, layout)  ? XL_TROUBLE_LAYOUT
           : has(t, group) ? XL_TROUBLE_GROUP
           : has(t, order) ? XL_TROUBLE_ORDER
                           : XL_TROUBLE_NONE;
}

static void shape(const xl_collective_facts *f, xl_buf *b)
{
    xl_buf_printf(b, "%lld devices%s%.*s", (long long)f->devices, f->mesh.n ? " as " : "", XL_FMT(f->mesh));
    if (!f->crossing || !f->crossing->n)
        xl_buf_puts(b, ", no collectives of its own: the plugin's partitioner puts them in");
    for (uint32_t i = 0; f->crossing && i < f->crossing->n && i < 6; i++) {
        const xl_crossing *c = &f->crossing->c[i];
        xl_str name = xl_str_of(xl_ops[c->op].text);
        xl_str_cut(&name, '.');
        xl_buf_printf(b, "%s%lld %.*s over %s", i ? ", " : "; ", (long long)c->count, XL_FMT(name), c->axes);
    }
}

static void timing(const xl_collective_facts *f, xl_buf *b)
{
    if (f->always)
        xl_buf_puts(b, "shardings come with each array, there is no switch that could be late");
    else if (f->spmd >= 0)
        xl_buf_printf(b, "SPMD on at %.3f s", f->spmd);
    else
        xl_buf_puts(b, "SPMD was not switched on by anything seen here");
    if (f->tensor >= 0)
        xl_buf_printf(b, ", the first tensor at %.3f s%s", f->tensor,
                      !f->always && f->spmd > f->tensor ? ", before SPMD: what existed by then has no sharding" : "");
    if (f->compiled >= 0)
        xl_buf_printf(b, ", compiled at %.3f s", f->compiled);
    xl_buf_printf(b, ", failed at %.3f s in step %lld", f->failed, (long long)f->step);
}

void xl_collective_tell(xl_run *r, xl_collective_trouble t, xl_str error, const xl_collective_facts *f, xl_buf *text)
{
    xl_event e;
    xl_buf a = { 0 }, b = { 0 }, all = { 0 };
    shape(f, &a);
    timing(f, &b);
    xl_buf_printf(&all, "a collective of %s failed by its %s. Program: %.*s. Timing: %.*s. Layout: %.*s. Next: %s",
                  f->module, words[t], XL_FMT(xl_buf_view(&a)), XL_FMT(xl_buf_view(&b)), XL_FMT(f->layout), next[t]);
    xl_event_begin(r, &e, "collective");
    xl_json_put_text(&e.j, "kind", words[t]);
    xl_json_put_text(&e.j, "module", f->module);
    xl_json_put_int(&e.j, "step", f->step);
    xl_json_put_str(&e.j, "shape", xl_buf_view(&a));
    xl_json_put_str(&e.j, "timing", xl_buf_view(&b));
    xl_json_put_str(&e.j, "layout", f->layout);
    xl_json_put_text(&e.j, "next", next[t]);
    xl_json_put_str(&e.j, "error", error);
    xl_json_put_str(&e.j, "text", xl_buf_view(&all));
    xl_event_end(r, &e);
    if (text)
        xl_buf_str(text, xl_buf_view(&all));
    xl_buf_fini(&a);
    xl_buf_fini(&b);
    xl_buf_fini(&all);
}
