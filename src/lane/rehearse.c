#include "lane/rehearse.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/proc.h"
#include "base/proto.h"
#include "base/thread.h"
#include "base/time.h"
#include "pjrt/options.h"

static const char *const words[] = { "fits", "too-large", "refused", "unknown-topology", "no-plugin", "ended" };
const char *xl_rehearsal_word(xl_rehearsal_verdict v) { return words[v]; }

/* ---- the optimised program ------------------------------------------------------------------------------------------ */
/* HloModuleProto and what lies in it, by field number. Newer XLA adds fields; these have been the same for years. */
enum { WITH_CONFIG_MODULE = 1, MODULE_COMPUTATIONS = 3, COMPUTATION_INSTRUCTIONS = 2, INSTRUCTION_OPCODE = 2, INSTRUCTION_SHAPE = 3,
       SHAPE_TYPE = 2, SHAPE_DIMS = 3, SHAPE_TUPLE = 4, SHAPE_DEPTH = 8 };

static int64_t type_bytes(uint64_t t)
{
    switch (t) {
    case 3: case 7: case 10: case 16: return 2;
    case 4: case 8: case 11: return 4;
    case 5: case 9: case 12: case 15: return 8;
    case 18: return 16;
    case 13: case 17: return 0; /* tuple, token */
    default: return 1;
    }
}

static int64_t shape_bytes(xl_str s, int depth)
{
    xl_proto r = xl_proto_of(s);
    xl_proto_field f;
    bool more;
    uint64_t type = 0;
    int64_t count = 1, inner = 0;
    while (!xl_proto_next(&r, &f, &more) && more) {
        if (f.number == SHAPE_TYPE)
            type = f.value;
        else if (f.number == SHAPE_TUPLE && f.wire == XL_WIRE_BYTES && depth < SHAPE_DEPTH)
            inner += shape_bytes(f.bytes, depth + 1);
        else if (f.number == SHAPE_DIMS && f.wire == XL_WIRE_VARINT)
            count = f.value && count > INT64_MAX / (1 << 12) / (int64_t)(f.value & INT32_MAX) ? 0 : count * (int64_t)(f.value & INT32_MAX);
        else if (f.number == SHAPE_DIMS && f.wire == XL_WIRE_BYTES) {
            xl_proto d = xl_proto_of(f.bytes);
            uint64_t v;
            bool has;
            while (!xl_proto_varint(&d, &v, &has) && has) {
                v &= INT32_MAX;
                count = v && count > INT64_MAX / (1 << 12) / (int64_t)v ? 0 : count * (int64_t)v;
            }
        }
    }
    return inner ? inner : count * type_bytes(type);
}

typedef struct { xl_arena *a; xl_collective *p; size_t n, cap; bool any; } found;

static void note(found *c, xl_str op, xl_str shape)
{
    static const char *const known[] = { "all-reduce", "all-gather", "reduce-scatter", "all-to-all", "collective-permute", "collective-broadcast",
                                         "ragged-all-to-all", "send", "recv" };
    if (xl_str_ends(op, XL_STR("-done")))
        return;
    bool start = xl_str_ends(op, XL_STR("-start"));
    if (start)
        op.n -= 6;
    size_t i = 0;
    while (i < sizeof known / sizeof *known && !xl_str_is(op, known[i]))
        i++;
    if (i == sizeof known / sizeof *known)
        return;
    /* The start of a pair returns its operand beside its result. */
    int64_t bytes = shape_bytes(shape, 0) / (start && (i == 1 || i == 4) ? 2 : 1);
    for (size_t k = 0; k < c->n; k++)
        if (xl_str_is(c->p[k].name, known[i])) {
            c->p[k].count++;
            c->p[k].bytes += bytes;
            return;
        }
    XL_PUSH(c->a, c->p, c->n, c->cap, ((xl_collective){ xl_str_of(known[i]), 1, bytes }));
}

static void scan_module(found *c, xl_str module)
{
    xl_proto m = xl_proto_of(module);
    xl_proto_field f, g, h;
    bool more;
    while (!xl_proto_next(&m, &f, &more) && more) {
        if (f.number != MODULE_COMPUTATIONS || f.wire != XL_WIRE_BYTES)
            continue;
        xl_proto comp = xl_proto_of(f.bytes);
        while (!xl_proto_next(&comp, &g, &more) && more) {
            if (g.number != COMPUTATION_INSTRUCTIONS || g.wire != XL_WIRE_BYTES)
                continue;
            xl_proto in = xl_proto_of(g.bytes);
            xl_str op = { 0 }, shape = { 0 };
            while (!xl_proto_next(&in, &h, &more) && more) {
                if (h.number == INSTRUCTION_OPCODE && h.wire == XL_WIRE_BYTES)
                    op = h.bytes;
                else if (h.number == INSTRUCTION_SHAPE && h.wire == XL_WIRE_BYTES)
                    shape = h.bytes;
            }
            c->any = c->any || op.n;
            note(c, op, shape);
        }
    }
}

bool xl_collectives_scan(xl_arena *a, xl_str code, xl_str format, xl_collective **out, size_t *n)
{
    found c = { .a = a };
    *out = NULL;
    *n = 0;
    if (xl_str_is(format, "hlo"))
        scan_module(&c, code);
    else if (xl_str_is(format, "hlo_with_config")) {
        xl_proto r = xl_proto_of(code);
        xl_proto_field f;
        bool more;
        xl_error *err = NULL;
        while (!(err = xl_proto_next(&r, &f, &more)) && more)
            if (f.number == WITH_CONFIG_MODULE && f.wire == XL_WIRE_BYTES)
                scan_module(&c, f.bytes);
        xl_error_free(err);
    }
    *out = c.p;
    *n = c.n;
    return c.any;
}

/* ---- messages ------------------------------------------------------------------------------------------------------- */
static bool human_bytes(xl_str *s, int64_t *out)
{
    char number[32];
    size_t n = 0;
    double v;
    while (n < s->n && n < sizeof number - 1 && ((s->p[n] >= '0' && s->p[n] <= '9') || s->p[n] == '.')) {
        number[n] = s->p[n];
        n++;
    }
    if (!n || n == s->n || !xl_str_f64((xl_str){ number, n }, &v))
        return false;
    switch (s->p[n]) {
    case 'K': v *= 1024; break;
    case 'M': v *= 1 << 20; break;
    case 'G': v *= 1 << 30; break;
    case 'T': v *= (double)((int64_t)1 << 40); break;
    default: break;
    }
    *out = v < 9e18 ? (int64_t)v : -1;
    while (n < s->n && s->p[n] != ' ')
        n++;
    *s = (xl_str){ s->p + n, s->n - n };
    return true;
}

bool xl_oom_figures(xl_str message, int64_t *used, int64_t *limit)
{
    static const char key[] = "Used ";
    const char *p = message.p, *end = message.p + message.n;
    if (!p)
        return *used = *limit = -1, false;
    while ((p = memmem(p, (size_t)(end - p), key, sizeof key - 1))) {
        p += sizeof key - 1;
        xl_str rest = { p, (size_t)(end - p) };
        if (human_bytes(&rest, used) && xl_str_starts(rest, XL_STR(" of "))) {
            rest = (xl_str){ rest.p + 4, rest.n - 4 };
            if (human_bytes(&rest, limit))
                return true;
        }
    }
    static const char than[] = ") exceeds available";
    p = memmem(message.p, message.n, than, sizeof than - 1);
    const char *open = p, *next = p ? memchr(p + 1, '(', (size_t)(end - p - 1)) : NULL;
    while (open && open > message.p && *open != '(')
        open--;
    if (next && *open == '(') {
        xl_str before = { open + 1, (size_t)(end - open - 1) }, after = { next + 1, (size_t)(end - next - 1) };
        if (human_bytes(&before, used) && human_bytes(&after, limit))
            return true;
    }
    *used = *limit = -1;
    return false;
}

static bool is_oom(xl_str m)
{
    return memmem(m.p, m.n, "E1000", 5) || memmem(m.p, m.n, "HbmOom", 6) || memmem(m.p, m.n, "Ran out of memory", 17);
}

/* ---- JSON ------------------------------------------------------------------------------------------------------------ */
#define MEMORY(M) M(code) M(arguments) M(outputs) M(aliased) M(temporary) M(host_code) M(host_arguments) M(host_outputs) \
    M(host_aliased) M(host_temporary) M(peak) M(total) M(needs)

void xl_rehearsal_json(xl_json *j, const xl_rehearsal *r)
{
    xl_json_map(j);
    xl_json_put_text(j, "verdict", xl_rehearsal_word(r->verdict));
    xl_json_put_text(j, "standing", "rehearsed");  /* never "ran" */
    xl_json_put_str(j, "plugin", r->plugin);
    xl_json_put_str(j, "topology", r->topology);
    xl_json_put_str(j, "kind", r->kind);
    xl_json_put_int(j, "devices", r->devices);
    xl_json_put_int(j, "partitions", r->partitions);
    xl_json_put_num(j, "compile_seconds", r->seconds);
    xl_json_key(j, "memory");
    xl_json_map(j);
#define M(name) if (r->memory.name >= 0) xl_json_put_int(j, #name, r->memory.name);
    MEMORY(M)
#undef M
    xl_json_end(j);
    if (r->used >= 0)
        xl_json_put_int(j, "used", r->used);
    if (r->limit >= 0)
        xl_json_put_int(j, "limit", r->limit);
    if (r->flops >= 0)
        xl_json_put_num(j, "flops", r->flops);
    if (r->bytes >= 0)
        xl_json_put_num(j, "bytes_accessed", r->bytes);
    if (r->scanned) {
        xl_json_key(j, "collectives");
        xl_json_list(j);
        for (size_t i = 0; i < r->ncollective; i++) {
            xl_json_map(j);
            xl_json_put_str(j, "op", r->collective[i].name);
            xl_json_put_int(j, "count", r->collective[i].count);
            xl_json_put_int(j, "bytes", r->collective[i].bytes);
            xl_json_end(j);
        }
        xl_json_end(j);
    }
    if (r->message.n)
        xl_json_put_str(j, "message", r->message);
    if (r->next.n)
        xl_json_put_str(j, "next", r->next);
    xl_json_end(j);
}

static xl_rehearsal blank(void)
{
    xl_rehearsal r = { .seconds = -1, .flops = -1, .bytes = -1, .used = -1, .limit = -1 };
#define M(name) r.memory.name = -1;
    MEMORY(M)
#undef M
    return r;
}

xl_error *xl_rehearsal_read(xl_arena *a, const xl_node *n, xl_rehearsal *out)
{
    xl_error *err = NULL;
    xl_str verdict = { 0 };
    size_t v = 0;
    *out = blank();
    XL_DO(xl_node_get_str(n, "verdict", &verdict));
    while (v < sizeof words / sizeof *words && !xl_str_is(verdict, words[v]))
        v++;
    if (v == sizeof words / sizeof *words) {
        err = xl_node_err(n, "it has no verdict of a rehearsal");
        goto out;
    }
    out->verdict = (xl_rehearsal_verdict)v;
    XL_DO(xl_node_get_str(n, "plugin", &out->plugin));
    XL_DO(xl_node_get_str(n, "topology", &out->topology));
    XL_DO(xl_node_get_str(n, "kind", &out->kind));
    XL_DO(xl_node_get_str(n, "message", &out->message));
    XL_DO(xl_node_get_str(n, "next", &out->next));
    XL_DO(xl_node_get_int(n, "devices", 0, INT32_MAX, &out->devices));
    XL_DO(xl_node_get_int(n, "partitions", 0, INT32_MAX, &out->partitions));
    XL_DO(xl_node_get_int(n, "used", 0, INT64_MAX, &out->used));
    XL_DO(xl_node_get_int(n, "limit", 0, INT64_MAX, &out->limit));
    XL_DO(xl_node_get_float(n, "compile_seconds", &out->seconds));
    XL_DO(xl_node_get_float(n, "flops", &out->flops));
    XL_DO(xl_node_get_float(n, "bytes_accessed", &out->bytes));
    const xl_node *memory = xl_node_get(n, "memory"), *list = xl_node_get(n, "collectives");
#define M(name) XL_DO(xl_node_get_int(memory, #name, 0, INT64_MAX, &out->memory.name));
    MEMORY(M)
#undef M
    out->scanned = list && list->kind == XL_NODE_LIST;
    if (out->scanned) {
        out->ncollective = list->n;
        out->collective = xl_new(a, xl_collective, list->n);
        for (size_t i = 0; i < list->n; i++) {
            XL_DO(xl_node_get_str(list->kid[i], "op", &out->collective[i].name));
            XL_DO(xl_node_get_int(list->kid[i], "count", 0, INT64_MAX, &out->collective[i].count));
            XL_DO(xl_node_get_int(list->kid[i], "bytes", 0, INT64_MAX, &out->collective[i].bytes));
        }
    }
out:
    return err;
}

/* ---- in the child ---------------------------------------------------------------------------------------------------- */
typedef struct { const xl_rehearse_opts *o; int terminal; } job;
typedef struct { const job *j; double start; atomic_bool done; } ticker;

static void tick(void *arg)
{
    ticker *t = arg;
    bool tty = isatty(t->j->terminal);
    for (int n = 1; !t->done; n++) {
        xl_sleep(0.1);
        if (t->done || (tty ? n % 5 : n % 100)) /* a log gets a line every ten seconds */
            continue;
        dprintf(t->j->terminal, tty ? "\rxlane: compiling %s for %s: %.0f s\033[K" : "xlane: compiling %s for %s: %.0f s\n", t->j->o->progress,
                t->j->o->topology, xl_now() - t->start);
    }
    if (tty)
        dprintf(t->j->terminal, "\r\033[K");
}

static void cut_message(xl_arena *a, xl_rehearsal *r, const char *text)
{
    xl_str s = xl_str_of(text);
    enum { MOST = 1500 };
    r->message = s.n > MOST ? xl_strf(a, "%.*s …", MOST, s.p) : xl_str_dup(a, s);
}

static void look(xl_arena *a, const xl_executable *e, xl_rehearsal *r)
{
    const xl_named *cost;
    size_t n;
    xl_str code, format;
    xl_error *err = xl_executable_memory(e, &r->memory);
    xl_error_free(err);
    err = xl_executable_cost(e, a, &cost, &n);
    for (size_t i = 0; !err && i < n; i++) {
        if (xl_str_is(cost[i].name, "flops"))
            r->flops = (double)cost[i].f;
        if (xl_str_is(cost[i].name, "bytes accessed"))
            r->bytes = (double)cost[i].f;
    }
    xl_error_free(err);
    err = xl_executable_optimized(e, a, &code, &format);
    if (!err)
        r->scanned = xl_collectives_scan(a, code, format, &r->collective, &r->ncollective);
    xl_error_free(err);
}

static void compile(xl_arena *a, const job *j, xl_rehearsal *r)
{
    const xl_rehearse_opts *o = j->o;
    xl_plugin *p = NULL;
    xl_topology *t = NULL;
    xl_executable *e = NULL;
    xl_buf opts = { 0 };
    const xl_device *device;
    size_t ndevice = 0;
    ticker tick_state = { .j = j, .start = xl_now() };
    xl_thread thread;
    bool ticking = false;
    r->verdict = XL_REHEARSAL_NO_PLUGIN;
    xl_error *err = xl_plugin_load(o->plugin, &p);
    if (!err)
        err = xl_plugin_init(p);
    if (err)
        goto out;
    r->verdict = XL_REHEARSAL_NO_TOPOLOGY;
    err = xl_topology_create(p, xl_str_of(o->topology), NULL, 0, &t);
    if (err)
        goto out;
    err = xl_topology_devices(t, a, &device, &ndevice);
    if (err)
        goto out;
    r->devices = (int64_t)ndevice;
    if (ndevice)
        r->kind = device[0].kind;
    if (r->partitions > r->devices) {
        err = XL_ERR(PRECONDITION, "the program is for %lld devices, %s has %lld", (long long)r->partitions, o->topology, (long long)r->devices);
        goto out;
    }
    if (o->progress && j->terminal >= 0) {
        xl_error *no = xl_thread_start(&thread, "progress", tick, &tick_state);
        ticking = !no;
        xl_error_free(no);
    }
    bool spread = o->partitions > 1;
    xl_options_build(&opts, &(xl_options){ .replicas = o->replicas, .partitions = o->partitions, .spmd = spread, .shardy = spread && o->shardy });
    double start = xl_now();
    r->verdict = XL_REHEARSAL_REFUSED;
    err = xl_executable_compile(t, o->code, o->format, xl_buf_view(&opts), &e);
    r->seconds = xl_now() - start;
    if (!err) {
        r->verdict = XL_REHEARSAL_FITS;
        look(a, e, r);
    }
out:
    if (ticking) {
        tick_state.done = true;
        xl_thread_join(&thread);
    }
    if (err) {
        xl_str m = xl_str_of(xl_error_message(err));
        cut_message(a, r, m.p);
        if (r->verdict == XL_REHEARSAL_REFUSED && is_oom(m)) {
            r->verdict = XL_REHEARSAL_TOO_LARGE;
            xl_oom_figures(m, &r->used, &r->limit);
        }
        xl_error_free(err);
    }
    xl_buf_fini(&opts);
}

static int child(void *arg, int fd)
{
    const job *j = arg;
    xl_arena a = { 0 };
    xl_buf b = { 0 };
    xl_rehearsal r = blank();
    setenv("ALLOW_MULTIPLE_LIBTPU_LOAD", "1", 1); /* a training run may hold the lock; a compile does not touch the device */
    setenv("TPU_SKIP_MDS_QUERY", "1", 0);
    r.plugin = xl_str_of(j->o->plugin);
    r.topology = xl_str_of(j->o->topology);
    r.partitions = j->o->partitions ? j->o->partitions : 1;
    compile(&a, j, &r);
    xl_rehearsal_json(&(xl_json){ .out = &b }, &r);
    return xl_proc_write(fd, b.p, b.n) ? 0 : 1; /* the plugin's own end is not waited for: _exit follows */
}

static xl_str advice(const xl_rehearsal *r)
{
    switch (r->verdict) {
    case XL_REHEARSAL_FITS: return XL_STR("");
    case XL_REHEARSAL_TOO_LARGE: return XL_STR("a smaller batch, remat, or more devices; with a config, --search finds the largest batch that fits");
    case XL_REHEARSAL_NO_TOPOLOGY:
        return XL_STR("TPU names are KIND:AxB[xC], as v5e:2x2, v5e:4x4, v5p:2x2x1, v6e:1x1, v6e:2x2, v6e:4x4, v6e:16x16, tpu7x:2x2x1; xlane:N for "
                      "the embedded device");
    case XL_REHEARSAL_NO_PLUGIN:
        return XL_STR("libtpu is for x86-64 Linux, and needs no TPU to rehearse: pip install libtpu there, or name the file with --plugin; on "
                      "another machine the x86-64 build of xlane runs it under qemu-user (docs/rehearse.md)");
    case XL_REHEARSAL_REFUSED: return XL_STR("the compiler refuses the program: the message names the op; it would refuse it on the TPU too");
    case XL_REHEARSAL_ENDED: return XL_STR("the compiler's last words are above; an unknown flag in XLA_FLAGS or LIBTPU_INIT_ARGS ends it, too");
    }
    return XL_STR("");
}

xl_error *xl_rehearse(xl_arena *a, const xl_rehearse_opts *o, xl_rehearsal *out)
{
    xl_error *err = NULL;
    xl_proc_result res;
    xl_node *node = NULL;
    job j = { o, -1 };
    *out = blank();
    out->plugin = xl_str_dup(a, xl_str_of(o->plugin));
    out->topology = xl_str_dup(a, xl_str_of(o->topology));
    out->partitions = o->partitions ? o->partitions : 1;
    xl_error *no = xl_plugin_inspect(o->plugin);
    if (no) {
        out->verdict = XL_REHEARSAL_NO_PLUGIN;
        cut_message(a, out, xl_error_message(no));
        xl_error_free(no);
        goto done;
    }
    if (o->progress)
        j.terminal = fcntl(2, F_DUPFD_CLOEXEC, 3); /* the child's own standard error goes into a pipe */
    XL_TRY(xl_proc_call(a, child, &j, (int)((o->timeout_s > 0 ? o->timeout_s : 3600) * 1e3), &res), "rehearsing");
    if (res.out.n && !xl_json_read(a, "rehearsal", res.out, &node))
        XL_DO(xl_rehearsal_read(a, node, out));
    else {
        xl_str said = res.err.n > 1200 ? (xl_str){ res.err.p + res.err.n - 1200, 1200 } : res.err;
        out->verdict = XL_REHEARSAL_ENDED;
        out->seconds = res.seconds;
        out->message = xl_strf(a, "the compiler %.*s; it said: %.*s", XL_FMT(xl_proc_words(a, &res)), XL_FMT(said));
    }
done:
    out->next = advice(out);
out:
    if (j.terminal >= 0)
        close(j.terminal);
    return err;
}
