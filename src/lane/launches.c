/* Guarded launches in the catalog. The program of a foreign process is only known once it compiles, so a launch is
 * identified by its command line, with secrets removed. */
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/secret.h"
#include "base/version.h"
#include "lane/catalog.h"
#include "lane/memory_csv.h"
#include "lane/run.h"
#include "lane/verdict.h"
#include "pjrt/plugin.h"

/* "platform=xlane devices=2 kind=xlane_cpu" as "2 x xlane_cpu". */
static xl_str hardware_of(xl_arena *a, xl_str topology)
{
    xl_str devices = XL_STR("?"), kind = XL_STR("?");
    while (topology.n) {
        xl_str value = xl_str_cut(&topology, ' '), key = xl_str_cut(&value, '=');
        if (xl_str_is(key, "devices"))
            devices = value;
        if (xl_str_is(key, "kind"))
            kind = value;
    }
    return xl_strf(a, "%.*s x %.*s", XL_FMT(devices), XL_FMT(kind));
}

/* The peak of the fullest device and its limit, over the processes of this attempt. */
static void observe(xl_arena *a, const char *dir, double since, xl_catalog_entry *e)
{
    xl_memory_csv c = xl_memory_csv_open(a, dir);
    for (xl_memory_row r; xl_memory_csv_next(&c, &r);) {
        if (r.t < since)
            continue;
        e->observed = r.peak > e->observed ? r.peak : e->observed;
        e->limit = r.limit > e->limit ? r.limit : e->limit;
    }
}

bool xl_catalog_of_run(xl_arena *a, const char *dir, size_t first_event, const xl_catalog_launch *l,
                       xl_catalog_entry *out)
{
    xl_node **e = NULL;
    size_t n = 0;
    const xl_node *attach = NULL;
    xl_run_verdict v = { 0 };
    xl_buf detail = { 0 };
    xl_error_free(xl_run_events(a, dir, &e, &n));
    xl_error_free(xl_run_judge(a, dir, &v));
    *out = xl_catalog_blank();
    for (size_t i = first_event; i < n && !attach; i++)
        attach = xl_node_is(e[i], "event", "attach") ? e[i] : NULL;
    const xl_node *step = xl_run_step_compile(&v, first_event);
    if (!step)
        return false;
    const xl_node *bytes = xl_node_get(step, "compiled_bytes"), *seconds = xl_node_get(step, "seconds"),
                  *predicted = xl_node_get(step, "predicted_bytes"), /* of `xlane train` */
                  *t = xl_node_get(attach, "t");
    xl_str plugin = xl_node_text(attach, "plugin"), command = xl_secret_command(a, l->argc, l->argv);
    xl_str build = plugin.n ? xl_plugin_build_id(a, xl_str_c(a, plugin)) : XL_STR("");
    out->what = XL_STR("run");
    out->outcome = XL_OUTCOME_RAN;
    out->compiled = bytes ? bytes->i : -1;
    out->predicted = predicted ? predicted->i : -1;
    out->seconds = seconds ? seconds->f : -1;
    observe(a, dir, t ? t->f : 0, out);
    out->sig =
        (xl_signature){ .code = xl_node_text(step, "program"),
                        .hardware = hardware_of(a, xl_node_text(step, "topology")),
                        .model = xl_strf(a, "%.*s of %.*s", XL_FMT(xl_node_text(step, "module")), XL_FMT(command)),
                        .parallelism = xl_node_text(step, "topology"),
                        .features = xl_strf(a, "profile %s; %s", l->profile && *l->profile ? l->profile : "none",
                                            l->flags && *l->flags ? l->flags : "no flags"),
                        .bundle = xl_strf(a, "xlane %s, %.*s %.*s", XL_VERSION, XL_FMT(xl_path_base(plugin)),
                                          XL_FMT(build)) };
    xl_json j = { .out = &detail };
    xl_json_map(&j);
    xl_json_put_str(&j, "command", command);
    xl_json_put_text(&j, "folder", l->folder);
    xl_json_put_text(&j, "flags", l->flags);
    xl_json_put_text(&j, "profile", l->profile);
    xl_json_put_str(&j, "plugin", plugin);
    xl_json_put_str(&j, "build", build);
    xl_json_put_text(&j, "run", dir);
    xl_json_end(&j);
    out->detail = xl_str_dup(a, xl_buf_view(&detail));
    xl_buf_fini(&detail);
    return true;
}

xl_known xl_catalog_known_launch(xl_arena *a, const xl_catalog_entry *e, size_t n, const xl_catalog_launch *l,
                                 const xl_catalog_entry **why)
{
    xl_str command = xl_secret_command(a, l->argc, l->argv);
    if (why)
        *why = NULL;
    for (size_t i = n; i-- > 0;) {
        xl_node *d = NULL;
        if (!xl_str_is(e[i].what, "run") || !e[i].detail.n || e[i].outcome == XL_OUTCOME_KILLED)
            continue;
        xl_error *bad = xl_json_read(a, "catalog", e[i].detail, &d);
        bool same = !bad && xl_str_eq(xl_node_text(d, "command"), command) &&
                    xl_str_is(xl_node_text(d, "folder"), l->folder ? l->folder : "") &&
                    xl_str_is(xl_node_text(d, "flags"), l->flags ? l->flags : "") &&
                    xl_str_is(xl_node_text(d, "profile"), l->profile ? l->profile : "");
        xl_error_free(bad);
        if (!same ||
            !xl_str_eq(xl_plugin_build_id(a, xl_str_c(a, xl_node_text(d, "plugin"))), xl_node_text(d, "build")))
            continue;
        if (why)
            *why = &e[i];
        return e[i].outcome == XL_OUTCOME_FAILED ? XL_KNOWN_BAD : XL_KNOWN_GOOD;
    }
    return XL_UNSEEN;
}
