/* Who holds what: every tensor of a program, a configuration or a run, how it is split over the devices, and what
 * crosses between them. */
#include <stdio.h>
#include <stdlib.h>

#include "base/file.h"
#include "cli/report_placement.h"
#include "cli/program.h"
#include "ir/text/print.h"
#include "lane/predict.h"
#include "lane/run.h"
#include "pjrt/options.h"
#include "pass/pass.h"
#include "pass/shard.h"
#include "train/placements.h"

static struct { int64_t devices; bool program, short_form; } opt;
static const xl_opt opts[] = {
    { "devices", XL_OPT_SOME, &opt.devices, "N",
      "for a FILE: number of partitions (default: as the program says, or its mesh)" },
    { "program", XL_OPT_FLAG, &opt.program, NULL, "for a FILE: print the partitioned program instead" },
    { "short", XL_OPT_FLAG, &opt.short_form, NULL, "print only the totals, without drawing each tensor" },
    { 0 }
};

enum { DRAWN = 16 };                                       /* devices in a drawing */

static int64_t devices_of(const xl_module *m)
{
    const xl_attr *a = xl_dict_get(m->extra, XL_STR("mhlo.num_partitions"));
    if (opt.devices > 0)
        return opt.devices;
    if (a && a->kind == XL_AT_INT && a->i > 1)
        return a->i;
    for (uint32_t i = 0; i < m->nmesh; i++) {
        int64_t n = 1;
        for (uint32_t k = 0; k < m->mesh[i].mesh->naxis && n < (1 << 20); k++)
            n *= m->mesh[i].mesh->axis[k].size;
        if (n > 1)
            return n;
    }
    return 1;
}

static const xl_mesh *mesh_of(const xl_module *m)
{
    for (uint32_t i = 0; i < m->nmesh; i++)
        if (m->mesh[i].mesh->naxis && !m->mesh[i].mesh->nids)
            return m->mesh[i].mesh;
    return NULL;
}

static void size_text(xl_buf *b, double v)
{
    char size[32];
    xl_buf_puts(b, xl_size_words(v, size));
}

/* Bytes per device and what is held more than once; the tensors that cost the most by that. */
static void sums(xl_arena *a, const xl_placements *l, xl_buf *b)
{
    int64_t most = 0, waste = 0;
    uint32_t at = 0, show = l->ndevice < DRAWN ? l->ndevice : DRAWN;
    for (uint32_t d = 0; d < l->ndevice; d++)
        if (xl_placement_on(l, (int)d) > most)
            most = xl_placement_on(l, (int)d), at = d;
    waste = xl_placement_waste(l, (int)at);
    xl_buf_printf(b, "%u devices: these tensors take ", l->ndevice);
    size_text(b, (double)most);
    xl_buf_puts(b, " on the fullest, of which ");
    size_text(b, (double)waste);
    xl_buf_puts(b, " are there only because other devices hold the same\n");
    for (uint32_t d = 0; d < show && most; d++) {
        int64_t n = xl_placement_on(l, (int)d), w = xl_placement_waste(l, (int)d);
        int full = (int)(40 * n / most), own = (int)(40 * (n - w) / most);
        xl_buf_printf(b, "  device %-3u |", d);
        for (int i = 0; i < 40; i++)
            xl_buf_puts(b, i < own ? "#" : i < full ? "=" : " ");
        xl_buf_printf(b, "| %lld bytes, %lld also elsewhere\n", (long long)n, (long long)w);
    }
    if (l->ndevice > show)
        xl_buf_printf(b, "  ... and %u more devices (`xlane sharding --json` lists all)\n", l->ndevice - show);
    bool *said = xl_new(a, bool, l->n);
    for (int k = 0; k < 5 && waste; k++) {
        int64_t best = 0;
        uint32_t i = l->n;
        for (uint32_t t = 0; t < l->n; t++) {
            int64_t c = xl_placement_copies(&l->t[t]),
                    w = c > 1 && l->t[t].npart ? l->t[t].part[0].bytes / c * (c - 1) : 0;
            if (!said[t] && w > best)
                best = w, i = t;
        }
        if (i == l->n || best * 50 < waste)
            break;
        said[i] = true;
        xl_buf_printf(b, "%s%.*s [%.*s]: %lld bytes on each device, %lld copies of each part\n",
                      k ? "                " : "held in copies: ", XL_FMT(l->t[i].name), XL_FMT(l->t[i].split),
                      (long long)l->t[i].part[0].bytes, (long long)xl_placement_copies(&l->t[i]));
    }
}

static void tensors(const xl_placements *l, xl_buf *b)
{
    for (uint32_t i = 0; i < l->n && !opt.short_form; i++)
        xl_placement_draw(&l->t[i], xl_placement_as_parameter(l, &l->t[i]) ? 0 : DRAWN, b);
}

static bool too_large(const xl_sharding_plan *p) { return p->refused || (p->limit > 0 && p->needs > p->limit); }

static void verdict(const xl_sharding_plan *p, xl_buf *b)
{
    xl_buf_puts(b, "one device: about ");
    size_text(b, (double)p->predicted);
    xl_buf_puts(b, " by a walk over its program");
    if (p->needs >= 0) {
        xl_buf_puts(b, ", ");
        size_text(b, (double)p->needs);
        xl_buf_puts(b, " as compiled");
    }
    if (p->limit > 0) {
        xl_buf_puts(b, ", of ");
        size_text(b, (double)p->limit);
    }
    xl_buf_printf(b, "%s%s%s\n", p->device ? " (" : "", p->device ? p->device : "", p->device ? ")" : "");
    if (p->refused)
        xl_buf_printf(b, "does not fit: %s\n", p->refused);
    else if (too_large(p))
        xl_buf_puts(b, "does not fit\n");
    if (too_large(p))
        xl_buf_puts(
            b, "split what is held in copies (see above): under sharding: in a configuration, by its annotation in "
               "a program; or make batch or model smaller\n");
    else if (p->limit > 0 && p->needs >= 0)
        xl_buf_puts(b, "fits\n");
}

static void put_verdict(const xl_sharding_plan *p, bool asked, xl_json *j)
{
    xl_json_put_int(j, "predicted_bytes", p->predicted);
    if (p->needs >= 0)
        xl_json_put_int(j, "compiled_bytes", p->needs);
    if (p->limit > 0)
        xl_json_put_int(j, "bytes_limit", p->limit);
    if (asked)
        xl_json_put_bool(j, "fits", !too_large(p));
    if (p->refused)
        xl_json_put_text(j, "refused", p->refused);
}

/* With a limit to hold it against, the program is compiled by the embedded plugin for that many devices;
 * nothing runs. */
static xl_error *ask(const xl_cli *cli, xl_str code, int64_t n, bool shardy, xl_sharding_plan *p)
{
    xl_error *err = NULL;
    xl_plugin_choice choice;
    xl_plugin *plugin;
    xl_client *client = NULL;
    xl_program *prog = NULL;
    xl_buf options = { 0 };
    xl_device_memory m;
    char count[32];
    snprintf(count, sizeof count, "%lld", (long long)n);
    setenv("XLANE_CPU_DEVICES", count, 0);
    XL_DO(xl_plugin_find(cli->arena, &(xl_plugin_wish){ .named = "cpu" }, &choice));
    XL_DO(xl_plugin_open(choice.path, &plugin));
    XL_DO(xl_client_open(plugin, NULL, &client));
    XL_DO(xl_device_memory_read(xl_client_local(client, 0), &m));
    p->limit = m.limit;
    p->device = "the embedded device";
    xl_options_build(&options,
                     &(xl_options){ .replicas = 1, .partitions = (int)n, .spmd = n > 1, .shardy = n > 1 && shardy });
    err = xl_program_compile(client, code, XL_FORMAT_MLIR, xl_buf_view(&options), &prog);
    if (err && xl_error_code(err) == XL_CODE_EXHAUSTED) {
        p->refused = xl_str_c(cli->arena, xl_str_of(xl_error_message(err)));
        xl_error_free(err);
        err = NULL;
    } else if (!err) {
        xl_program_memory pm;
        XL_DO(xl_executable_memory(xl_program_executable(prog), &pm));
        p->needs = pm.needs;
    }
out:
    xl_program_free(prog);
    xl_client_close(client);
    xl_buf_fini(&options);
    return err;
}

static xl_error *of_program(const xl_cli *cli, const char *file)
{
    xl_error *err = NULL;
    xl_module *m = NULL;
    xl_buf b = { 0 };
    xl_shard_info s = { 0 };
    xl_placements l = { 0 };
    xl_crossings cross = { 0 };
    xl_sharding_plan p = { .needs = -1, .limit = -1 };
    xl_buf text = { 0 };
    XL_DO(xl_cli_program(cli, file, NULL, false, &m));
    XL_TRY(xl_pipeline_run(m, &(xl_pipeline_opts){ .only = "inline" }), "%s", file);
    xl_func *f = xl_module_entry(m);
    int64_t n = devices_of(m);
    if (!f || !f->body) {
        err = XL_ERR(INVALID, "%s has no entry function", file);
        goto out;
    }
    uint32_t narg = f->body->narg, nout = xl_region_end(f->body)->nin;
    const xl_type **type = xl_new(cli->arena, const xl_type *, (size_t)narg + nout);
    xl_str *label = xl_new(cli->arena, xl_str, narg);
    for (uint32_t i = 0; i < narg; i++) {
        type[i] = xl_value_type(f, f->body->arg[i]);
        label[i] = xl_loc_label(m, f->val[f->body->arg[i].id].loc);
    }
    for (uint32_t i = 0; i < nout; i++)
        type[narg + i] = xl_in_type(f, xl_region_end(f->body), i);
    const char *small = getenv("XLANE_CPU_HBM");
    bool shardy = m->nmesh > 0;
    if (small && *small)
        xl_print_module(m, NULL, &text);
    xl_prediction predicted;
    XL_TRY(xl_predict(m, XL_RULE_FUSED, &predicted), "%s", file);
    p.predicted = predicted.total;
    XL_TRY(xl_shard(m, n, 1, &s), "%s on %lld devices", file, (long long)n);
    if (opt.program) {
        xl_print_module(m, &(xl_print_opts){ .shorten = true }, &b);
        err = xl_cli_put(&b);
        goto out;
    }
    const xl_mesh *mesh = mesh_of(m);
    for (uint32_t i = 0; i < s.narg; i++)
        xl_placement_add(cli->arena, &l,
                    xl_strf(cli->arena, "argument %u%s%.*s", i, label[i].n ? " " : "", XL_FMT(label[i])), type[i], &s,
                    s.arg[i], mesh);
    for (uint32_t i = 0; i < s.nout; i++)
        xl_placement_add(cli->arena, &l, xl_strf(cli->arena, "result %u", i), type[narg + i], &s, s.out[i], mesh);
    xl_crossings_of(cli->arena, f, n, mesh, &cross);
    xl_shard_gathered(&s, &b);
    p.gathered = xl_str_dup(cli->arena, xl_buf_view(&b));
    b.n = 0;
    if (text.n)
        XL_DO(ask(cli, xl_buf_view(&text), n, shardy, &p));
    if (cli->json) {
        xl_json j = { .out = &b, .pretty = true };
        xl_json_map(&j);
        xl_json_key(&j, "held");
        xl_placement_json(&l, &j);
        xl_json_key(&j, "collectives");
        xl_crossings_json(&cross, &j);
        xl_json_key(&j, "gathered");
        xl_gathered_json(p.gathered, &j);
        put_verdict(&p, text.n > 0, &j);
        xl_json_end(&j);
    } else {
        tensors(&l, &b);
        sums(cli->arena, &l, &b);
        xl_crossings_text(&cross, &b);
        xl_gathered_text(p.gathered, &b);
        verdict(&p, &b);
    }
    err = xl_cli_put(&b);
    if (!err && too_large(&p))
        xl_cli_exit(cli, XL_EXIT_FAILED);
out:
    xl_buf_fini(&b);
    xl_buf_fini(&text);
    xl_module_free(m);
    return err;
}

/* A configuration, or a run with its own: `dir` NULL or the run's folder, whose real buffers are drawn where it has
 * kept them. */
static xl_error *of_config(const xl_cli *cli, const xl_config *c, const char *dir)
{
    xl_error *err = NULL;
    xl_buf b = { 0 };
    xl_sharding_plan p;
    xl_placements real = { 0 };
    XL_DO(xl_train_sharding(cli->arena, c, !dir, &p));
    if (dir) {
        char *path = xl_path_join(cli->arena, dir, "sharding.json");
        if (xl_file_stat(path, NULL))
            XL_DO(xl_placement_read(cli->arena, path, &real));
    }
    const xl_placements *l = real.n ? &real : &p.held;
    if (cli->json) {
        xl_json j = { .out = &b, .pretty = true };
        xl_json_map(&j);
        xl_json_put_text(&j, "from", real.n ? "the buffers of the run" : "the program");
        xl_json_key(&j, "held");
        xl_placement_json(l, &j);
        xl_json_key(&j, "collectives");
        xl_crossings_json(&p.crossing, &j);
        xl_json_key(&j, "gathered");
        xl_gathered_json(p.gathered, &j);
        put_verdict(&p, !dir, &j);
        xl_json_end(&j);
    } else {
        if (l->mesh.n)
            xl_buf_printf(&b, "mesh %.*s\n", XL_FMT(l->mesh));
        if (dir)
            xl_buf_printf(&b, "%s\n",
                          real.n ? "from the buffers of the run" : "from its program: the run kept no sharding.json");
        tensors(l, &b);
        sums(cli->arena, l, &b);
        xl_crossings_text(&p.crossing, &b);
        xl_gathered_text(p.gathered, &b);
        if (!dir)
            verdict(&p, &b);
    }
    err = xl_cli_put(&b);
    if (!err && !dir && too_large(&p))
        xl_cli_exit(cli, XL_EXIT_FAILED);
out:
    xl_buf_fini(&b);
    return err;
}

/* How many ranks made a client; what they hold is known to each alone, and not drawn. */
static int processes(xl_arena *a, const char *dir)
{
    xl_node **e = NULL;
    size_t n = 0;
    int64_t most = 0;
    xl_error_free(xl_run_events(a, dir, &e, &n));
    for (size_t i = 0; i < n; i++)
        if (xl_node_is(e[i], "event", "client") && xl_node_int(e[i], "rank", 0) > most)
            most = xl_node_int(e[i], "rank", 0);
    return (int)most + 1;
}

/* What the guard recorded: a file for each program that ran on several devices. */
static xl_error *of_guarded(const xl_cli *cli, const char *dir)
{
    xl_error *err = NULL;
    xl_str *names;
    size_t n, shown = 0;
    xl_buf b = { 0 };
    xl_json j = { .out = &b, .pretty = true };
    XL_DO(xl_dir_list(cli->arena, dir, &names, &n));
    if (cli->json)
        xl_json_list(&j);
    for (size_t i = 0; i < n; i++) {
        xl_placements l;
        if (!xl_str_starts(names[i], XL_STR("sharding-")) || !xl_str_ends(names[i], XL_STR(".json")))
            continue;
        XL_DO(xl_placement_read(cli->arena, xl_path_join(cli->arena, dir, xl_str_c(cli->arena, names[i])), &l));
        shown++;
        if (cli->json) {
            xl_placement_json(&l, &j);
            continue;
        }
        xl_buf_printf(&b, "%.*s%s%.*s, from the buffers of its first execution\n", XL_FMT(l.program),
                      l.mesh.n ? ", mesh " : "", XL_FMT(l.mesh));
        tensors(&l, &b);
        sums(cli->arena, &l, &b);
    }
    if (cli->json)
        xl_json_end(&j);
    else if (!shown && processes(cli->arena, dir) > 1)
        xl_buf_printf(&b,
                      "%s: buffers are recorded for runs of one process, and this one had %d; what its program says: "
                      "`xlane print %s > step.mlir`, then `xlane sharding step.mlir`\n",
                      dir, processes(cli->arena, dir), dir);
    else if (!shown)
        xl_buf_printf(&b, "%s: nothing ran on several devices under the guard\n", dir);
    err = xl_cli_put(&b);
out:
    xl_buf_fini(&b);
    return err;
}

static xl_error *sharding(const xl_cli *cli, int argc, char **argv)
{
    xl_error *err = NULL;
    xl_config c;
    char *dir = NULL;
    xl_str name = xl_str_of(argv[0]);
    xl_file_info st;
    bool is_file = strcmp(argv[0], "-") == 0 || (xl_file_stat(argv[0], &st) && !st.dir);
    if (xl_str_ends(name, XL_STR(".yaml")) || xl_str_ends(name, XL_STR(".yml"))) {
        XL_DO(xl_config_read(cli->arena, argv[0], argv + 1, argc - 1, &c));
        return of_config(cli, &c, NULL);
    }
    if (is_file)
        return argc > 1 ? xl_cli_misuse(cli, "%s is a program; words go with a configuration", argv[0])
                        : of_program(cli, argv[0]);
    XL_DO(xl_run_find(cli->arena, argv[0], &dir));
    if (!xl_file_stat(xl_path_join(cli->arena, dir, "config.yaml"), NULL))
        return argc > 1 ? xl_cli_misuse(cli, "'%s': settings (key=value) belong to a configuration or a run of `xlane "
                                             "train`, and %s is neither", argv[1], argv[0])
                        : of_guarded(cli, dir);
    XL_DO(xl_placement_config(cli->arena, dir, argv + 1, argc - 1, &c));
    err = of_config(cli, &c, dir);
out:
    return err;
}

XL_VERB(sharding) = {
    .name = "sharding",
    .args = "[--devices N] [--program] [--short] RUN|CONF.yaml|FILE [KEY=VALUE ...]",
    .help = "which device holds which slice of each tensor, what is replicated, and the collectives of a step",
    .more =
        "RUN is a training run or a guarded one: its real buffers are drawn. CONF.yaml is a training configuration: "
        "its step is\n"
        "partitioned and compiled for the device but not run; the exit status is 1 if it does not fit. FILE is a "
        "StableHLO\n"
        "program with shardings (text, bytecode or HLO), partitioned as the CPU plugin would; with XLANE_CPU_HBM set "
        "it is also\n"
        "compiled for devices of that size.\n"
        "For each tensor: how each dimension is split, the slice of every device (drawn as #), bytes, and copies; "
        "then the bytes\n"
        "of each device (# only there, = also elsewhere) and the collectives by kind and axis (docs/spmd.md).",
    .example = "xlane sharding conf.yaml\n"
               "xlane sharding conf.yaml mesh=data=8\n"
               "xlane sharding last\n"
               "xlane sharding --program --devices 8 step.mlir",
    .opts = opts,
    .min = 1,
    .max = 64,
    .run = sharding,
};
