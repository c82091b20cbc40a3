/* xlane profile-steps: a trace of some steps of a running program, asked for from outside. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/file.h"
#include "base/time.h"
#include "cli/cli.h"
#include "lane/run.h"

static struct {
    const char *steps, *out;
    double timeout;
} opt = { .timeout = 600 };
static const xl_opt opts[] = {
    { "steps", XL_OPT_STR, &opt.steps, "A:B",
      "from step A to step B, as `xlane top` counts them; steps that are past are replaced by later ones" },
    { "out", XL_OPT_STR, &opt.out, "FILE", "where the trace goes (RUN/trace.json)" },
    { "timeout", XL_OPT_SECONDS, &opt.timeout, "SECONDS", "give up waiting for the steps after this long (600)" },
    { 0 },
};

static double num(const xl_node *n) { return n && (n->kind == XL_NODE_INT || n->kind == XL_NODE_FLOAT) ? n->f : 0; }

static bool alive(int64_t pid) { return pid > 1 && (kill((pid_t)pid, 0) == 0 || errno == EPERM); }

/* ---- the trace -----------------------------------------------------------------------------------------------------
 * Chrome's trace event format: a process for each rank; in it a lane of steps, one of programs, one of the host. */
enum { STEPS = 1, DEVICE, HOST, COMPILES };

static void name(xl_json *j, int64_t pid, int lane, const char *what, xl_str is)
{
    xl_json_map(j);
    xl_json_put_text(j, "ph", "M");
    xl_json_put_int(j, "pid", pid);
    xl_json_put_int(j, "tid", lane);
    xl_json_put_text(j, "name", what);
    xl_json_key(j, "args");
    xl_json_map(j);
    xl_json_put_str(j, "name", is);
    xl_json_end(j);
    xl_json_end(j);
}

static void put(xl_json *j, int64_t pid, int lane, xl_str what, double from, double to)
{
    xl_json_map(j);
    xl_json_put_text(j, "ph", "X");
    xl_json_put_int(j, "pid", pid);
    xl_json_put_int(j, "tid", lane);
    xl_json_put_str(j, "name", what);
    xl_json_put_num(j, "ts", from * 1e6);
    xl_json_put_num(j, "dur", to > from ? (to - from) * 1e6 : 0);
    xl_json_end(j);
}

static double at(const xl_node *s, size_t k) { return s->n > k ? num(s->kid[k]) : 0; }

/* One process. Gives how many steps it has. */
static size_t process(xl_arena *a, xl_json *j, const xl_node *p, xl_node *const *event, size_t nevent)
{
    const xl_node *slices = xl_node_get(p, "slices");
    int64_t pid = (int64_t)num(xl_node_get(p, "pid"));
    size_t n = slices && slices->kind == XL_NODE_LIST ? slices->n : 0, steps = 0;
    double busy = 0, begin = n ? at(slices->kid[0], 2) : 0, end = begin;
    static const char *const lanes[] = { "", "steps", "programs on the device", "host", "compiles" };
    name(j, pid, 0, "process_name",
         xl_strf(a, "rank %.0f (process %lld)", num(xl_node_get(p, "rank")), (long long)pid));
    for (int k = STEPS; k <= COMPILES; k++)
        name(j, pid, k, "thread_name", xl_str_of(lanes[k]));
    for (size_t i = 0; i < n; i++) {
        const xl_node *s = slices->kid[i];
        if (s->kind != XL_NODE_LIST || s->n != 5 || s->kid[0]->kind != XL_NODE_STR)
            continue;
        xl_str module = s->kid[0]->s;
        double start = at(s, 2), back = at(s, 3), done = at(s, 4);
        if (num(s->kid[1]) > 0) { /* a step lasts until the next one begins, the last until it is done */
            double until = done;
            for (size_t k = i + 1; k < n; k++)
                if (slices->kid[k]->n == 5 && num(slices->kid[k]->kid[1]) > 0) {
                    until = at(slices->kid[k], 2);
                    break;
                }
            put(j, pid, STEPS, xl_strf(a, "step %.0f", num(s->kid[1])), start, until);
            steps++;
        }
        if (busy > 0 && start > busy)
            put(j, pid, HOST, XL_STR("host gap"), busy, start);
        put(j, pid, HOST, xl_strf(a, "call %.*s", XL_FMT(module)), start, back);
        put(j, pid, DEVICE, module, start > busy ? start : busy, done); /* programs of a device run in turn */
        busy = done > busy ? done : busy;
        if (back > busy)
            busy = back;
        end = busy;
    }
    for (size_t i = 0; i < nevent; i++) {
        double t = num(xl_node_get(event[i], "t")), took = num(xl_node_get(event[i], "seconds"));
        if (xl_node_is(event[i], "event", "compile") && (int64_t)num(xl_node_get(event[i], "pid")) == pid &&
            t >= begin && t - took <= end)
            put(j, pid, COMPILES, xl_strf(a, "compile %.*s", XL_FMT(xl_node_text(event[i], "module"))), t - took, t);
    }
    return steps;
}

/* ---- asking and waiting --------------------------------------------------------------------------------------------
 * */
static xl_error *profile_of(xl_arena *a, const char *dir, xl_str file, xl_node **out)
{
    xl_error *err = NULL;
    xl_str bytes;
    char *path = xl_path_join(a, dir, xl_str_c(a, file));
    XL_DO(xl_file_read_plain(a, path, 64 << 20, &bytes));
    err = xl_json_read(a, path, bytes, out);
out:
    return err;
}

/* The processes of the run that a guard is in and that still live. */
static size_t living(xl_node *const *event, size_t n)
{
    size_t count = 0;
    for (size_t i = 0; i < n; i++)
        if (xl_node_is(event[i], "event", "client"))
            count += alive((int64_t)num(xl_node_get(event[i], "pid")));
    return count;
}

static xl_error *gather(xl_arena *a, const char *dir, const char *request, xl_node ***out, size_t *n)
{
    xl_error *err = NULL;
    xl_str *file;
    size_t nfile, cap = 0;
    *n = 0;
    XL_DO(xl_dir_list(a, dir, &file, &nfile));
    for (size_t i = 0; i < nfile; i++) {
        xl_node *p = NULL;
        if (!xl_str_starts(file[i], XL_STR("profile-")) || !xl_str_ends(file[i], XL_STR(".json")))
            continue;
        XL_DO(profile_of(a, dir, file[i], &p));
        if (!request || xl_str_is(xl_node_text(p, "request"), request))
            XL_PUSH(a, *out, *n, cap, p);
    }
out:
    return err;
}

static xl_error *ask(const xl_cli *cli, const char *dir, char *request, size_t room)
{
    xl_error *err = NULL;
    xl_arena *a = cli->arena;
    xl_str rest = xl_str_of(opt.steps), first = xl_str_cut(&rest, ':');
    int64_t from, to;
    xl_node **event = NULL, **done = NULL;
    size_t n = 0, have = 0, live = 0;
    char *path = xl_path_join(a, dir, "profile.request");
    double until = xl_now() + opt.timeout;
    if (!xl_str_i64(first, &from) || !xl_str_i64(rest, &to) || from < 1 || to < from)
        return xl_cli_misuse(cli, "--steps=%s: it is A:B, the first and the last step, from 1", opt.steps);
    snprintf(request, room, "%lld:%lld %.0f-%d", (long long)from, (long long)to, xl_now_wall(), (int)getpid());
    XL_DO(xl_run_events(a, dir, &event, &n));
    live = living(event, n);
    if (!live) {
        err = XL_ERR(PRECONDITION,
                     "no process of %s runs that the guard is in; start one with its steps asked for: "
                     "XLANE_PROFILE_STEPS=%s xlane run -- CMD, then `xlane profile-steps RUN`",
                     dir, opt.steps);
        goto out;
    }
    XL_DO(xl_file_write_quick(path, xl_str_of(request)));
    while (have < live && xl_now() < until) {
        xl_sleep(0.2);
        XL_DO(gather(a, dir, request, &done, &have));
        live = living(event, n);
        live = live > have ? live : have;
    }
    if (!have)
        err = XL_ERR(DEADLINE, "no process of %s came to the end of these steps%s; `xlane top` shows where it is", dir,
                     live ? "" : " before it ended");
out:
    xl_error_free(xl_file_remove(path));
    return err;
}

/* XProf looks for plugins/profile/<run>/<host>.xplane.pb below its folder. */
static xl_error *for_xprof(xl_arena *a, const char *dir, int64_t pid, bool *any)
{
    xl_error *err = NULL;
    char *from = xl_path_join(a, dir, xl_strf(a, "profile-%lld.xplane.pb", (long long)pid).p);
    char *to = xl_path_join(a, dir, "xprof/plugins/profile/steps");
    if (!xl_file_stat(from, NULL))
        return NULL;
    XL_DO(xl_dir_make_private(to));
    if (rename(from, xl_path_join(a, to, xl_strf(a, "process-%lld.xplane.pb", (long long)pid).p)))
        err = xl_file_error(errno, "renaming", from);
    *any = true;
out:
    return err;
}

static xl_error *profile_steps(const xl_cli *cli, int argc, char **argv)
{
    xl_error *err = NULL;
    xl_arena *a = cli->arena;
    char *dir, request[64] = "";
    xl_node **event = NULL, **p = NULL;
    size_t n = 0, np = 0, steps = 0;
    xl_buf b = { 0 }, say = { 0 };
    bool xspace = false;
    xl_json j = { .out = &b };
    (void)argc;
    XL_DO(xl_run_find(a, argv[0], &dir));
    if (opt.steps)
        XL_DO(ask(cli, dir, request, sizeof request));
    XL_DO(gather(a, dir, *request ? request : NULL, &p, &np));
    XL_DO(xl_run_events(a, dir, &event, &n));
    if (!np) {
        err = XL_ERR(NOT_FOUND,
                     "%s has no profiled steps; --steps=A:B asks a running process for them, and a new one has "
                     "them with XLANE_PROFILE_STEPS=A:B xlane run -- CMD",
                     dir);
        goto out;
    }
    xl_json_map(&j);
    xl_json_put_text(&j, "displayTimeUnit", "ms");
    xl_json_key(&j, "traceEvents");
    xl_json_list(&j);
    for (size_t i = 0; i < np; i++)
        steps += process(a, &j, p[i], event, n);
    xl_json_end(&j);
    xl_json_end(&j);
    const char *out = opt.out ? opt.out : xl_path_join(a, dir, "trace.json");
    XL_TRY(xl_file_write_mode(out, xl_buf_view(&b), 0600), "writing the trace");
    for (size_t i = 0; i < np; i++)
        XL_DO(for_xprof(a, dir, (int64_t)num(xl_node_get(p[i], "pid")), &xspace));
    xspace = xspace || xl_file_stat(xl_path_join(a, dir, "xprof/plugins/profile/steps"), NULL);
    const xl_node *has = xl_node_get(p[0], "profiler");
    xl_str trouble = xl_node_text(p[0], "trouble"), plugin = xl_node_text(p[0], "plugin");
    if (cli->json) {
        xl_json o = { .out = &say, .pretty = true };
        xl_json_map(&o);
        xl_json_put_text(&o, "trace", out);
        xl_json_put_int(&o, "processes", (int64_t)np);
        xl_json_put_int(&o, "steps", (int64_t)steps);
        xl_json_put_bool(&o, "plugin_has_profiler", has && has->b);
        xl_json_put_text(&o, "xprof", xspace ? xl_path_join(a, dir, "xprof") : NULL);
        if (trouble.n)
            xl_json_put_str(&o, "trouble", trouble);
        xl_json_end(&o);
    } else {
        xl_buf_printf(&say, "%zu steps of %zu process%s: %s (open it at ui.perfetto.dev or chrome://tracing)\n", steps,
                      np, np == 1 ? "" : "es", out);
        if (trouble.n)
            xl_buf_printf(&say, "the plugin's own profiler failed: %.*s\n", XL_FMT(trouble));
        if (xspace)
            xl_buf_printf(&say, "the plugin's own profile: xprof %s/xprof\n", dir);
        else if (!has || !has->b)
            xl_buf_printf(&say,
                          "%.*s has no profiler extension: this is the guard's timeline, a slice for each program\n",
                          XL_FMT(plugin));
    }
    err = xl_cli_put(&say);
out:
    xl_buf_fini(&b);
    xl_buf_fini(&say);
    return err;
}

XL_VERB(profile_steps) = {
    .name = "profile-steps",
    .args = "[--steps=A:B] RUN",
    .help = "trace some steps of a running program, without changing it",
    .more =
        "Asks the guard in each process of the run to record steps A to B, and waits for them. The trace (Chrome's "
        "format, for\n"
        "Perfetto) has a slice for each step, program, call, compile and host gap, and a process for each rank. If "
        "the plugin\n"
        "has PJRT's profiler extension, its own profile is saved too, for XProf. To record a program from its start, "
        "run it with\n"
        "XLANE_PROFILE_STEPS=A:B xlane run …; then this verb without --steps writes the trace.",
    .example = "xlane profile-steps last --steps=100:110\n"
               "XLANE_PROFILE_STEPS=20:30 xlane run -- python train.py; xlane profile-steps last",
    .opts = opts,
    .min = 1,
    .max = 1,
    .run = profile_steps,
};
