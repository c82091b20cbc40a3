#include "lane/rehearse.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/proc.h"
#include "base/thread.h"
#include "base/time.h"
#include "ir/read.h"
#include "lane/trial.h"
#include "pjrt/options.h"

static const char *const words[] = { "fits", "too-large", "refused", "unknown-topology", "no-plugin", "ended" };
const char *xl_rehearsal_word(xl_rehearsal_verdict v) { return words[v]; }

/* ---- messages ---------------------------------------------------------------------------------------------------- */
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
    if (!message.p)
        return *used = *limit = -1, false;
    const char *p = message.p, *end = message.p + message.n;
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

/* ---- JSON ---- */
#define MEMORY(M)                                                                                                      \
    M(code)                                                                                                            \
    M(arguments) M(outputs) M(aliased) M(temporary) M(host_code) M(host_arguments) M(host_outputs) M(host_aliased)     \
        M(host_temporary) M(peak) M(total) M(needs)

void xl_rehearsal_json(xl_json *j, const xl_rehearsal *r)
{
    xl_json_map(j);
    xl_json_put_text(j, "verdict", xl_rehearsal_word(r->verdict));
    xl_json_put_text(j, "standing", r->run_seconds >= 0 ? "ran" : "rehearsed");
    xl_json_put_str(j, "plugin", r->plugin);
    xl_json_put_str(j, "topology", r->topology);
    xl_json_put_str(j, "kind", r->kind);
    xl_json_put_int(j, "devices", r->devices);
    xl_json_put_int(j, "partitions", r->partitions);
    xl_json_put_num(j, "compile_seconds", r->seconds);
    if (r->cpu_seconds >= 0)
        xl_json_put_num(j, "compile_cpu_seconds", r->cpu_seconds);
    if (r->run_seconds >= 0)
        xl_json_put_num(j, "run_seconds", r->run_seconds);
    if (r->not_run.n)
        xl_json_put_str(j, "not_run", r->not_run);
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
            xl_json_put_str(j, "over", r->collective[i].over);
            xl_json_put_int(j, "count", r->collective[i].count);
            xl_json_put_int(j, "bytes", r->collective[i].bytes);
            xl_json_put_bool(j, "loops_counted_once", r->collective[i].loops);
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
    xl_rehearsal r = {
        .seconds = -1, .cpu_seconds = -1, .run_seconds = -1, .flops = -1, .bytes = -1, .used = -1, .limit = -1
    };
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
    XL_DO(xl_node_get_float(n, "compile_cpu_seconds", &out->cpu_seconds));
    XL_DO(xl_node_get_float(n, "run_seconds", &out->run_seconds));
    XL_DO(xl_node_get_str(n, "not_run", &out->not_run));
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
            const xl_node *loops = xl_node_get(list->kid[i], "loops_counted_once");
            XL_DO(xl_node_get_str(list->kid[i], "op", &out->collective[i].name));
            XL_DO(xl_node_get_str(list->kid[i], "over", &out->collective[i].over));
            out->collective[i].loops = loops && loops->kind == XL_NODE_BOOL && loops->b;
            XL_DO(xl_node_get_int(list->kid[i], "count", 0, INT64_MAX, &out->collective[i].count));
            XL_DO(xl_node_get_int(list->kid[i], "bytes", 0, INT64_MAX, &out->collective[i].bytes));
        }
    }
out:
    return err;
}

/* ---- in the child ---- */
typedef struct { const xl_rehearse_opts *o; int terminal; } job;
typedef struct { const job *j; double start; atomic_bool done; } ticker;

static const char *target(const xl_rehearse_opts *o) { return o->topology ? o->topology : "the devices here"; }

static void tick(void *arg)
{
    ticker *t = arg;
    bool tty = isatty(t->j->terminal);
    for (int n = 1; !t->done; n++) {
        xl_sleep(0.1);
        if (t->done || (tty ? n % 5 : n % 100)) /* a log gets a line every ten seconds */
            continue;
        dprintf(t->j->terminal,
                tty ? "\rxlane: compiling %s for %s: %.0f s\033[K" : "xlane: compiling %s for %s: %.0f s\n",
                t->j->o->progress, target(t->j->o), xl_now() - t->start);
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

static void look(xl_arena *a, const xl_executable *e, const xl_mesh *mesh, xl_rehearsal *r)
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
        r->scanned = xl_collectives_scan(a, code, format, mesh, r->partitions, &r->collective, &r->ncollective);
    xl_error_free(err);
}

/* What a program is compiled for: a topology, or the devices of a client. */
typedef struct { xl_plugin *p; xl_topology *t; xl_client *c; } aim;

static xl_error *take_aim(xl_arena *a, const xl_rehearse_opts *o, aim *to, xl_rehearsal *r)
{
    xl_error *err = NULL;
    const xl_device *device = NULL;
    size_t n = 0;
    r->verdict = XL_REHEARSAL_NO_PLUGIN;
    XL_DO(xl_plugin_load(o->plugin, &to->p));
    XL_DO(xl_plugin_init(to->p));
    if (o->topology) {
        r->verdict = XL_REHEARSAL_NO_TOPOLOGY;
        XL_DO(xl_topology_create(to->p, xl_str_of(o->topology), NULL, 0, &to->t));
        XL_DO(xl_topology_devices(to->t, a, &device, &n));
    } else {
        XL_DO(xl_client_open(to->p, NULL, &to->c));
        n = xl_client_nlocal(to->c);
        device = xl_client_local(to->c, 0);
    }
    r->devices = (int64_t)n;
    if (n && device)
        r->kind = device->kind;
    if (r->partitions > r->devices) {
        r->verdict = XL_REHEARSAL_REFUSED;
        err = XL_ERR(PRECONDITION, "the program is for %lld devices, %s has %lld", (long long)r->partitions,
                     o->topology ? o->topology : "this machine", (long long)r->devices);
    }
out:
    return err;
}

/* On the device that is here. That it cannot be run says nothing of the compile. */
static void execute(xl_arena *a, const xl_rehearse_opts *o, xl_client *c, const xl_program *prog, xl_rehearsal *r)
{
    xl_module *m = NULL;
    const xl_func *f = NULL;
    xl_error *err = o->partitions > 1 || o->replicas > 1
                        ? XL_ERR(UNIMPLEMENTED, "it is for several devices; programs of one are run")
                        : xl_read(o->code, NULL, &m);
    if (!err) {
        f = xl_module_entry(m);
        err = f && f->body ? xl_trial_run(c, prog, f, 1, 1, o->outputs, &r->run_seconds)
                           : XL_ERR(INVALID, "it has no entry function");
    }
    if (err) {
        r->run_seconds = -1;
        r->not_run = xl_str_dup(a, xl_str_of(xl_error_message(err)));
    }
    xl_error_free(err);
    xl_module_free(m);
}

static void compile(xl_arena *a, const job *j, xl_rehearsal *r)
{
    const xl_rehearse_opts *o = j->o;
    aim to = { 0 };
    xl_executable *e = NULL;
    xl_program *prog = NULL;
    xl_buf opts = { 0 };
    ticker tick_state = { .j = j, .start = xl_now() };
    xl_thread thread;
    bool ticking = false;
    xl_error *err = take_aim(a, o, &to, r);
    if (err)
        goto out;
    if (o->progress && j->terminal >= 0) {
        xl_error *no = xl_thread_start(&thread, "progress", tick, &tick_state);
        ticking = !no;
        xl_error_free(no);
    }
    bool spread = o->partitions > 1;
    xl_options_build(&opts, &(xl_options){ .replicas = o->replicas,
                                           .partitions = o->partitions,
                                           .spmd = spread,
                                           .shardy = spread && o->shardy });
    double start = xl_now(), cpu = xl_now_cpu();
    r->verdict = XL_REHEARSAL_REFUSED;
    err = to.t ? xl_executable_compile(to.t, o->code, o->format, xl_buf_view(&opts), &e)
               : xl_program_compile(to.c, o->code, o->format, xl_buf_view(&opts), &prog);
    r->seconds = xl_now() - start;
    r->cpu_seconds = xl_now_cpu() - cpu;
    if (!err) {
        r->verdict = XL_REHEARSAL_FITS;
        look(a, to.t ? e : xl_program_executable(prog), o->mesh, r);
        if (prog && o->outputs)
            execute(a, o, to.c, prog, r);
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
    setenv("ALLOW_MULTIPLE_LIBTPU_LOAD", "1",
           1); /* a training run may hold the lock; a compile does not touch the device */
    setenv("TPU_SKIP_MDS_QUERY", "1", 0);
    r.plugin = xl_str_of(j->o->plugin);
    r.topology = xl_str_of(target(j->o));
    r.partitions = j->o->partitions ? j->o->partitions : 1;
    compile(&a, j, &r);
    xl_rehearsal_json(&(xl_json){ .out = &b }, &r);
    return xl_proc_write(fd, b.p, b.n) ? 0 : 1; /* the plugin's own end is not waited for: _exit follows */
}

static xl_str advice(const xl_rehearsal *r)
{
    switch (r->verdict) {
    case XL_REHEARSAL_FITS: return XL_STR("");
    case XL_REHEARSAL_TOO_LARGE:
        return XL_STR(
            "a smaller batch, remat, or more devices; with a config, --search finds the largest batch that fits");
    case XL_REHEARSAL_NO_TOPOLOGY:
        return XL_STR("TPU names are KIND:AxB or KIND:AxBxC, as v6e:2x2 or v5e:4x4; xlane:N is N embedded devices");
    case XL_REHEARSAL_NO_PLUGIN:
        return XL_STR("libtpu is for x86-64 Linux, and needs no TPU to rehearse: pip install libtpu there, or name the "
                      "file with --plugin; on "
                      "another machine the x86-64 build of xlane runs it under box64 or qemu-user (docs/rehearse.md)");
    case XL_REHEARSAL_REFUSED:
        if (r->partitions > r->devices)
            return XL_STR("a larger topology, or a mesh with fewer devices");
        return XL_STR("the compiler refuses the program: the message names the op; it would refuse it on the TPU too");
    case XL_REHEARSAL_ENDED:
        return XL_STR(
            "the compiler's last words are above; an unknown flag in XLA_FLAGS or LIBTPU_INIT_ARGS ends it, too");
    }
    return XL_STR("");
}

/* Of what a compiler said before it died: from the first line that names a failure, else the end. Stack traces follow,
 * and say nothing. */
static xl_str last_words(xl_str s)
{
    enum { MOST = 1200 };
    static const char *const mark[] = { "Unknown flag",
                                        "Unknown command line flag",
                                        "ERROR: Illegal value",
                                        "Check failed",
                                        "RET_CHECK failure",
                                        "LLVM ERROR",
                                        "Assertion",
                                        "F1",
                                        "F0" };
    for (size_t i = 0; i < sizeof mark / sizeof *mark; i++) {
        const char *at = s.n ? memmem(s.p, s.n, mark[i], strlen(mark[i])) : NULL;
        while (at && mark[i][0] == 'F' && at > s.p && at[-1] != '\n')
            at = memmem(at + 1, s.n - (size_t)(at + 1 - s.p), mark[i], strlen(mark[i]));
        while (at && at > s.p && at[-1] != '\n')
            at--;
        if (at) {
            size_t n = s.n - (size_t)(at - s.p);
            return (xl_str){ at, n > MOST ? MOST : n };
        }
    }
    return s.n > MOST ? (xl_str){ s.p + s.n - MOST, MOST } : s;
}

xl_error *xl_rehearse(xl_arena *a, const xl_rehearse_opts *o, xl_rehearsal *out)
{
    xl_error *err = NULL;
    xl_proc_result res;
    xl_node *node = NULL;
    job j = { o, -1 };
    *out = blank();
    out->plugin = xl_str_dup(a, xl_str_of(o->plugin));
    out->topology = xl_str_dup(a, xl_str_of(target(o)));
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
        xl_str said = last_words(res.err);
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
