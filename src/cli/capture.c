#include "cli/capture.h"

#include <stdlib.h>

#include "base/file.h"
#include "lane/run.h"

enum { RANKS_MAX = 4096 };

/* A program over several processes: each wrote the inputs of its own devices, step-RANK.xlcap. */
static xl_error *join(xl_arena *a, const char *file, xl_capture *c)
{
    xl_error *err = NULL;
    const char *slash = strrchr(file, '/'), *name = slash ? slash + 1 : file;
    xl_str mine = xl_strf(a, "step-%d.", c->rank);
    uint32_t n = 0;
    if (c->ranks < 2 || c->ranks > RANKS_MAX)
        return XL_ERR(INVALID, "%s is of %d ranks and has the inputs of fewer devices than its program; capture the "
                               "step again",
                      file, c->ranks);
    xl_capture *other = xl_new(a, xl_capture, (size_t)c->ranks);
    for (int r = 0; r < c->ranks; r++) {
        if (r == c->rank)
            continue;
        xl_str beside = xl_strf(a, "%.*sstep-%d.%s", (int)(name - file), file, r,
                                strlen(name) > mine.n ? name + mine.n : "xlcap");
        if (strncmp(name, mine.p, mine.n) || !xl_file_stat(beside.p, NULL)) {
            err = XL_ERR(NOT_FOUND, "%s has the inputs of rank %d of %d; those of rank %d are not beside it as %s: "
                                    "copy the files of all ranks into one folder",
                         file, c->rank, c->ranks, r, beside.p);
            goto out;
        }
        XL_DO(xl_capture_read(a, beside.p, &other[n++]));
    }
    err = xl_play_join(a, c, other, n);
    n = 0;                                                 /* they are the capture's now */
out:
    for (uint32_t i = 0; i < n; i++)
        xl_capture_close(&other[i]);
    return err;
}

/* Why the run has none, as far as it was recorded, and what makes one. */
static xl_error *no_capture(xl_arena *a, const char *dir)
{
    static const char next[] =
        "`xlane run --capture=nonfinite -- CMD` records the first step with a NaN or Inf, --capture=step:10 the tenth";
    const xl_node *environment = xl_node_get(xl_run_about(a, dir).json, "environment"),
                  *asked = xl_node_get(environment, "XLANE_CAPTURE");
    if (xl_run_trained(a, dir))
        return XL_ERR(
            NOT_FOUND,
            "%s holds no capture: `xlane train` makes none by itself; `xlane run --capture=nonfinite -- xlane "
            "train ... cache=none` records the first step with a NaN or Inf in a run folder of its own",
            dir);
    if (!asked)
        return XL_ERR(NOT_FOUND, "%s holds no capture: it ran without --capture; %s", dir, next);
    if (xl_run_loaded(a, dir))
        return XL_ERR(
            NOT_FOUND,
            "%s holds no capture: its programs came from the frontend's own cache, which has none to capture; "
            "run it again without that cache (" XL_FRONTEND_CACHE_OFF ")",
            dir);
    return XL_ERR(NOT_FOUND, "%s holds no capture: what --capture=%.*s waits for did not happen, or could not be "
                             "recorded, as it then said; %s",
                  dir, XL_FMT(asked->s), next);
}

xl_error *xl_cli_capture(const xl_cli *cli, const char *what, const char *plugin, xl_capture *c, xl_play *p)
{
    xl_error *err = NULL;
    xl_arena *a = cli->arena;
    xl_file_info info;
    const char *file = what;
    *c = (xl_capture){ 0 };
    if (!xl_file_stat(what, &info) || info.dir) {
        char *dir;
        XL_TRY(xl_run_find(a, what, &dir), "%s is neither a file nor a run", what);
        file = xl_path_join(a, dir, "step.xlcap");
        if (!xl_file_stat(file, NULL))
            file = xl_path_join(a, dir, "step-0.xlcap");
        if (!xl_file_stat(file, NULL))
            return no_capture(a, dir);
    }
    XL_DO(xl_capture_read(a, file, c));
    if (!p)
        goto out;
    const xl_cap_step *s = &c->step[c->nstep - 1];
    const xl_cap_program *g = &c->program[s->program];
    int64_t replicas, partitions;
    XL_TRY(xl_play_devices(a, g->options, &replicas, &partitions), "%s", file);
    if (replicas * partitions != s->ndevice)
        XL_DO(join(a, file, c));
    if (!plugin) {
        plugin = xl_str_c(a, c->plugin);
        if (!xl_file_stat(plugin, NULL)) {
            err = XL_ERR(NOT_FOUND, "the plugin that it was captured with, %s, is not here; name one with --plugin "
                                    "(cpu: the embedded device)",
                         plugin);
            goto out;
        }
    }
    err = xl_play_open(a, plugin, replicas * partitions, p);
out:
    if (err)
        xl_capture_close(c);
    return err;
}

void xl_cli_about_capture(const xl_capture *c, xl_buf *out)
{
    const xl_cap_step *s = &c->step[c->nstep - 1];
    xl_buf_printf(out, "execution %llu of %.*s, captured because %.*s\n", (unsigned long long)s->number,
                  XL_FMT(c->program[s->program].module), XL_FMT(c->why));
}

const char *xl_cli_shape(xl_arena *a, const xl_cap_part *t)
{
    xl_buf b = { 0 };
    xl_buf_printf(&b, "%s[", xl_elem_text(t->elem));
    for (size_t i = 0; i < t->dims.n; i++)
        xl_buf_printf(&b, "%s%lld", i ? "," : "", (long long)t->dims.p[i]);
    xl_buf_putc(&b, ']');
    const char *out = xl_str_c(a, xl_buf_view(&b));
    xl_buf_fini(&b);
    return out;
}

const char *xl_cli_element(xl_arena *a, xl_dims dims, uint64_t i)
{
    xl_buf b = { 0 };
    uint64_t at[XL_CAPTURE_RANK] = { 0 };
    for (size_t k = dims.n; k-- > 0;) {
        uint64_t n = dims.p[k] > 0 ? (uint64_t)dims.p[k] : 1;
        at[k] = i % n;
        i /= n;
    }
    xl_buf_putc(&b, '[');
    for (size_t k = 0; k < dims.n; k++)
        xl_buf_printf(&b, "%s%llu", k ? "," : "", (unsigned long long)at[k]);
    xl_buf_putc(&b, ']');
    const char *out = xl_str_c(a, xl_buf_view(&b));
    xl_buf_fini(&b);
    return out;
}
