#include "cli/launch.h"

#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "cli/program.h"
#include "ir/compare/hash.h"
#include "ir/read.h"
#include "lane/contract.h"
#include "lane/run.h"
#include "lane/verdict.h"
#include "train/calibrate.h"
#include "train/loop.h"

static int count_of(const xl_module *m, const char *key)
{
    const xl_attr *v = xl_dict_get(m->extra, xl_str_of(key));
    return v && v->kind == XL_AT_INT && v->i > 0 && v->i < 1 << 20 ? (int)v->i : 1;
}

static const xl_mesh *copy_mesh(xl_arena *a, const xl_module *m)
{
    const xl_mesh *from = m->nmesh ? m->mesh[0].mesh : NULL;
    if (!from || from->nids)            /* devices in an order of their own: groups are then told by their size */
        return NULL;
    xl_mesh_axis *axis = xl_new(a, xl_mesh_axis, from->naxis);
    xl_mesh *to = xl_new(a, xl_mesh, 1);
    for (uint32_t i = 0; i < from->naxis; i++)
        axis[i] = (xl_mesh_axis){ xl_str_dup(a, from->axis[i].name), from->axis[i].size };
    *to = (xl_mesh){ .axis = axis, .naxis = from->naxis };
    return to;
}

/* Fills in what the program itself says; one that our reader does not take may still be the compiler's to judge. */
static void describe(xl_arena *a, xl_launch *l)
{
    xl_module *m = NULL;
    char hex[XL_DIGEST_HEX];
    xl_error *err = xl_read(l->code, NULL, &m);
    l->format = xl_syntax_of(l->code) == XL_SYNTAX_HLO ? XL_FORMAT_HLO : XL_FORMAT_MLIR;
    l->replicas = l->partitions = 1;
    xl_digest d;
    if (!err) {
        l->replicas = count_of(m, "mhlo.num_replicas");
        l->partitions = count_of(m, "mhlo.num_partitions");
        l->shardy = m->nmesh > 0;
        l->mesh = copy_mesh(a, m);
        if (l->partitions == 1 && l->shardy)    /* a mesh says it as well */
            for (uint32_t i = 0; i < m->mesh[0].mesh->naxis; i++)
                l->partitions *= (int)m->mesh[0].mesh->axis[i].size;
        d = xl_module_hash(m);
        xl_module_free(m);
    } else {
        d = xl_hash_of(l->code);
    }
    xl_error_free(err);
    l->sig.code = xl_str_dup(a, xl_str_of(xl_digest_hex(&d, hex)));
    l->sig.parallelism = xl_strf(a, "replicas %d partitions %d", l->replicas, l->partitions);
}

/* A program that a run compiled. */
typedef struct { xl_str name, hash; } recorded;

/* Each once, in the order of their compiles. */
static xl_error *recorded_of(xl_arena *a, const char *dir, recorded **out, size_t *n)
{
    xl_error *err = NULL;
    xl_node **event = NULL;
    size_t nevent = 0, cap = 0;
    *out = NULL;
    *n = 0;
    XL_DO(xl_run_events(a, dir, &event, &nevent));
    for (size_t i = 0; i < nevent; i++) {
        const xl_node *what = xl_node_get(event[i], "event"), *name = xl_node_get(event[i], "module"),
                      *hash = xl_node_get(event[i], "program");
        bool again = false;
        if (!what || !xl_str_is(what->s, "compile") || !name || !hash)
            continue;
        for (size_t k = 0; k < *n; k++)
            again = again || xl_str_eq((*out)[k].hash, hash->s);
        if (!again)
            XL_PUSH(a, *out, *n, cap, ((recorded){ name->s, hash->s }));
    }
out:
    return err;
}

static xl_error *none_of(xl_arena *a, const char *dir, const char *module, const recorded *r, size_t n)
{
    xl_buf names = { 0 };
    for (size_t i = 0; i < n; i++)
        if (!names.n || !strstr(names.p, xl_str_c(a, r[i].name)))
            xl_buf_printf(&names, "%s%.*s", names.n ? ", " : "", XL_FMT(r[i].name));
    const char *other = xl_run_newest(a, dir, XL_RUN_PROGRAMS);
    xl_error *err = NULL;
    if (module && names.n)
        err = XL_ERR(NOT_FOUND, "%s compiled no module called %s; it has %s", dir, module, names.p);
    else if (xl_run_loaded(a, dir))
        err = XL_ERR(NOT_FOUND, "%s has no recorded programs: the frontend's own cache answered, which has none to "
                                "record; run it once without that cache (" XL_FRONTEND_CACHE_OFF ")",
                     dir);
    else
        err =
            XL_ERR(NOT_FOUND, "%s has no recorded programs; run it under `xlane run -- CMD`, which records them", dir);
    if (other && !names.n)
        err = xl_error_next(err, "the newest run here that has some is %s", other);
    xl_buf_fini(&names);
    return err;
}

static xl_error *of_run(const xl_cli *cli, const char *dir, const char *module, xl_launch *l)
{
    xl_error *err = NULL;
    xl_arena *a = cli->arena;
    recorded *r = NULL;
    size_t n = 0, others = 0;
    XL_DO(recorded_of(a, dir, &r, &n));
    xl_run_verdict v;
    XL_DO(xl_run_judge(a, dir, &v));
    const xl_node *step = xl_run_step_compile(&v, 0), *program = step ? xl_node_get(step, "program") : NULL;
    const xl_node *result = step ? xl_node_get(step, "result") : NULL;
    bool failed = result && xl_str_is(result->s, "failed"), known = false;
    for (size_t i = 0; i < n; i++) {
        xl_str code;
        if (module && !xl_str_is(r[i].name, module))
            continue;
        xl_error *gone = xl_recorded_load(a, dir, xl_str_c(a, r[i].hash), &code);
        xl_error_free(gone);
        if (gone)
            continue;
        others++;
        /* With a name the newest, without one the step's, else the largest. */
        bool mine = !module && program && xl_str_eq(r[i].hash, program->s);
        if (!l->code.p || module || mine || (!known && code.n > l->code.n)) {
            known |= mine && (failed || v.steps);
            l->code = code;
            l->name = xl_str_c(a, r[i].name);
        }
    }
    if (!l->code.p) {
        err = none_of(a, dir, module, r, n);
        goto out;
    }
    describe(a, l);
    l->about = xl_strf(a, "%s of run %s%s", l->name, dir,
                       others < 2 || module ? ""
                       : known && failed    ? ", which failed to compile (--module names another)"
                       : known              ? ", which runs again and again (--module names another)"
                                            : ", the largest it compiled (--module names another)")
                   .p;
    l->sig.model = xl_strf(a, "module %s", l->name);
out:
    return err;
}

static int by_size(const void *x, const void *y)
{
    const xl_launch *a = x, *b = y;
    return a->code.n != b->code.n ? (a->code.n < b->code.n) - (a->code.n > b->code.n) : strcmp(a->name, b->name);
}

static xl_error *all_of_run(const xl_cli *cli, const char *dir, const char *module, xl_launch **out, size_t *n)
{
    xl_error *err = NULL;
    xl_arena *a = cli->arena;
    recorded *r = NULL;
    size_t nr = 0;
    XL_DO(recorded_of(a, dir, &r, &nr));
    *out = xl_new(a, xl_launch, nr + 1);
    for (size_t i = 0; i < nr; i++) {
        xl_launch *l = &(*out)[*n];
        size_t alike = 0;
        xl_error *gone =
            module && !xl_str_is(r[i].name, module) ? NULL : xl_recorded_load(a, dir, xl_str_c(a, r[i].hash), &l->code);
        xl_error_free(gone);
        if (!l->code.p)
            continue;
        for (size_t k = 0; k < nr; k++)
            alike += xl_str_eq(r[k].name, r[i].name);
        l->name = alike > 1 ? xl_strf(a, "%.*s %.6s", XL_FMT(r[i].name), r[i].hash.p).p : xl_str_c(a, r[i].name);
        l->about = xl_strf(a, "%s of run %s", l->name, dir).p;
        l->sig.model = xl_strf(a, "module %.*s", XL_FMT(r[i].name));
        describe(a, l);
        (*n)++;
    }
    if (!*n)
        err = none_of(a, dir, module, r, nr);
    else
        qsort(*out, *n, sizeof **out, by_size);
out:
    return err;
}

/* Of a run of `xlane train`, which keeps no programs, the configuration that its step is made from; NULL: it is none.
 * */
static const char *trained_config(xl_arena *a, const char *what)
{
    char *dir;
    xl_error *err = xl_run_find(a, what, &dir);
    if (err || !xl_run_trained(a, dir)) {
        xl_error_free(err);
        return NULL;
    }
    char *conf = xl_path_join(a, dir, "config.yaml");
    return xl_file_stat(conf, NULL) ? conf : NULL;
}

xl_error *xl_launch_all(const xl_cli *cli, const char *what, int nword, char *const *words, const char *module,
                        xl_launch **out, size_t *n)
{
    xl_file_info info;
    xl_str name = xl_str_of(what);
    char *dir;
    bool config = xl_str_ends(name, XL_STR(".yaml")) || xl_str_ends(name, XL_STR(".yml")) ||
                  trained_config(cli->arena, what);
    *n = 0;
    if (config || nword || (xl_file_stat(what, &info) && !info.dir)) {
        *out = xl_new(cli->arena, xl_launch, 1);
        *n = 1;
        return xl_launch_find(cli, what, nword, words, module, *out);
    }
    xl_error *err = xl_run_find(cli->arena, what, &dir);
    return err ? xl_error_wrap(err, "%s is neither a file nor a run", what) : all_of_run(cli, dir, module, out, n);
}

xl_error *xl_launch_find(const xl_cli *cli, const char *what, int nword, char *const *words, const char *module,
                         xl_launch *l)
{
    xl_error *err = NULL;
    xl_arena *a = cli->arena;
    xl_file_info info;
    xl_str name = xl_str_of(what);
    char *dir;
    *l = (xl_launch){ .words = words, .nword = nword };
    if (xl_str_ends(name, XL_STR(".yaml")) || xl_str_ends(name, XL_STR(".yml"))) {
        l->conf = what;
        err = xl_launch_batch(cli, l, 0);
        goto out;
    }
    if (!(xl_file_stat(what, &info) && !info.dir) && (l->conf = trained_config(a, what))) {
        if (module)
            err = xl_cli_misuse(cli, "--module chooses a program of a recorded run; %s is of `xlane train`", what);
        else
            err = xl_launch_batch(cli, l, 0);
        goto out;
    }
    if (nword) {
        err = xl_cli_misuse(cli, "'%s': settings (key=value) belong to a config, and %s is none", words[0], what);
        goto out;
    }
    if (xl_file_stat(what, &info) && !info.dir) {
        if (module) {
            err = xl_cli_misuse(cli, "--module chooses a program of a recorded run; %s is one program", what);
            goto out;
        }
        XL_DO(xl_cli_bytes(cli, what, &l->code));
        if (!xl_cli_like_program(l->code)) {               /* one that only the compiler reads may still be one */
            xl_module *m = NULL;
            err = xl_cli_parse(what, l->code, &m);
            xl_module_free(m);
            if (err)
                goto out;
        }
        l->name = xl_str_c(a, xl_path_base(name));
        l->about = what;
        l->sig.model = xl_strf(a, "file %s", l->name);
        describe(a, l);
        goto out;
    }
    XL_TRY(xl_run_find(a, what, &dir), "%s is neither a file nor a run", what);
    err = of_run(cli, dir, module, l);
out:
    return err;
}

/* The step of the largest bucket: the one that decides whether a config fits. */
xl_error *xl_launch_batch(const xl_cli *cli, xl_launch *l, int64_t batch)
{
    xl_error *err = NULL;
    xl_arena *a = cli->arena;
    xl_config c;
    if (!l->conf)
        return XL_ERR(INVALID, "%s has its batch built in", l->name);
    XL_DO(xl_cli_config(cli, l->conf, l->words, l->nword, &c));
    if (batch > 0)
        c.data.batch = batch;
    if (!l->batch_step)
        XL_TRY(xl_config_batch_step(&c, &l->batch_step), "%s", l->conf);
    if (c.data.nbucket) {
        c.data.time = c.data.buckets[c.data.nbucket - 1];
        c.data.nbucket = 0;
    }
    xl_buf_fini(&l->text);
    l->text = (xl_buf){ 0 };
    XL_TRY(xl_train_print(&c, "step", &l->text), "%s", l->conf);
    l->code = xl_buf_view(&l->text);
    describe(a, l);
    l->batch = c.data.batch;
    l->name = xl_strf(a, "%.*s (batch %lld)", XL_FMT(xl_path_base(xl_str_of(l->conf))), (long long)l->batch).p;
    l->about = xl_strf(a, "the training step of %s: %s, batch %lld, length %lld", l->conf, c.model.pattern,
                       (long long)l->batch, (long long)c.data.time)
                   .p;
    xl_config_signature(a, &c, &l->sig);
out:
    return err;
}

static void misused(const xl_cli *cli, const xl_error *err)
{
    if (xl_error_code(err) == XL_CODE_INVALID || xl_error_code(err) == XL_CODE_RANGE)
        xl_cli_exit(cli, XL_EXIT_MISUSED);
}

xl_error *xl_cli_config(const xl_cli *cli, const char *file, char *const *words, int nword, xl_config *out)
{
    xl_error *err = xl_config_read(cli->arena, file, words, nword, out);
    misused(cli, err);
    if (file && xl_error_code(err) == XL_CODE_NOT_FOUND)
        return xl_error_next(err, "name a configuration that is there, or give its settings alone: xlane train "
                                  "data.train=book.txt (docs/train.md lists them)");
    return err;
}

xl_error *xl_cli_run_config(const xl_cli *cli, const char *dir, char *const *words, int nword, xl_config *out)
{
    xl_error *err = xl_run_config(cli->arena, dir, words, nword, out);
    misused(cli, err);
    return err;
}

void xl_launch_fini(xl_launch *l) { xl_buf_fini(&l->text); }
