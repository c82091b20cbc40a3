/* Who holds what: every argument and result of a program, how it is split over the devices, and what crosses between them. */
#include <stdio.h>

#include "cli/program.h"
#include "ir/print.h"
#include "pass/pass.h"
#include "pass/shard.h"

static struct { int64_t devices; bool program; } opt;
static const xl_opt opts[] = {
    { "devices", XL_OPT_INT, &opt.devices, "N", "partitions to split it over (default: what the program says, or its mesh)" },
    { "program", XL_OPT_FLAG, &opt.program, NULL, "print the program that every device runs, instead" },
    { 0 } };

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

static int64_t parts(const xl_shard_info *s, const xl_axes *a)
{
    int64_t n = 1;
    for (uint32_t i = 0; i < a->n; i++)
        n *= s->size[a->atom[i]];
    return n;
}

static int64_t place(const xl_shard_info *s, const xl_axes *a, int64_t device)
{
    int64_t at = 0;
    for (uint32_t i = 0; i < a->n; i++)
        at = at * s->size[a->atom[i]] + device / s->stride[a->atom[i]] % s->size[a->atom[i]];
    return at;
}

/* The axes of the first mesh that are these digits; what is no whole axis shows as its size. */
static void names(const xl_module *m, const xl_shard_info *s, const xl_axes *a, xl_buf *b)
{
    const xl_mesh *mesh = NULL;
    for (uint32_t i = 0; i < m->nmesh && !mesh; i++)
        mesh = m->mesh[i].mesh->naxis && !m->mesh[i].mesh->nids ? m->mesh[i].mesh : NULL;
    if (!a->n)
        xl_buf_puts(b, "whole");
    for (uint32_t i = 0; i < a->n; ) {
        uint32_t took = 0;
        int64_t stride = s->npartition;
        for (uint32_t k = 0; mesh && k < mesh->naxis && !took; k++) {
            stride /= mesh->axis[k].size;
            int64_t n = 1;
            uint32_t j = i;
            while (j < a->n && n < mesh->axis[k].size)
                n *= s->size[a->atom[j++]];
            if (j > i && n == mesh->axis[k].size && s->stride[a->atom[j - 1]] == stride && n > 1) {
                xl_buf_printf(b, "%s%.*s", i ? "+" : "", XL_FMT(mesh->axis[k].name));
                took = j - i;
            }
        }
        if (!took) {
            xl_buf_printf(b, "%s/%lld", i ? "+" : "", (long long)s->size[a->atom[i]]);
            took = 1;
        }
        i += took;
    }
}

static double tensor(const xl_module *m, const xl_shard_info *s, const char *what, uint32_t i, xl_str label, const xl_type *global, const xl_axes *spec, xl_buf *b, double *waste)
{
    int64_t bytes = 0, tiles = 1;
    uint32_t rank = xl_shard_rank(global);
    if (!xl_type_bytes(global, &bytes))
        return 0;
    for (uint32_t d = 0; spec && d < rank; d++)
        tiles *= parts(s, &spec[d]);
    int64_t copies = s->npartition / tiles;
    xl_buf_printf(b, "%s %u%s%.*s: ", what, i, label.n ? " " : "", XL_FMT(label));
    for (uint32_t d = 0; d < rank; d++)
        xl_buf_printf(b, "%lldx", (long long)global->dims[d]);
    xl_buf_printf(b, "%s [", xl_dtypes[global->dtype].text);
    for (uint32_t d = 0; d < rank; d++) {
        xl_buf_puts(b, d ? ", " : "");
        names(m, s, &spec[d], b);
    }
    xl_buf_printf(b, "], %lld bytes on each device, %lld cop%s of each part\n", (long long)(bytes / tiles), (long long)copies, copies == 1 ? "y" : "ies");
    for (int64_t p = 0; tiles > 1 && p < s->npartition && p < DRAWN; p++) {
        xl_buf_printf(b, "  device %-3lld ", (long long)p);
        for (uint32_t d = 0; d < rank; d++) {
            int64_t n = parts(s, &spec[d]), len = global->dims[d] / n, at = place(s, &spec[d], p);
            if (n > 1 && n <= 16) {
                xl_buf_puts(b, " ");
                for (int64_t k = 0; k < n; k++)
                    xl_buf_puts(b, k == at ? "#" : ".");
            }
            xl_buf_printf(b, " %lld:%lld", (long long)(at * len), (long long)((at + 1) * len));
        }
        xl_buf_puts(b, "\n");
    }
    if (tiles > 1 && s->npartition > DRAWN)
        xl_buf_printf(b, "  ... and %lld more devices\n", (long long)(s->npartition - DRAWN));
    *waste += (double)(bytes / tiles) * (double)(copies - 1) / (double)copies;
    return (double)(bytes / tiles);
}

static void collectives(const xl_func *f, const xl_region *r, uint64_t *count, double *bytes)
{
    for (uint32_t i = 0; i < r->nop; i++) {
        const xl_op *op = r->op[i];
        int64_t n;
        if (xl_ops[op->code].flags & XL_OP_COLLECTIVE) {
            count[op->code]++;
            for (uint32_t k = 0; k < op->nout; k++)
                if (xl_type_bytes(op->code == XL_OP_REDUCE_SCATTER ? xl_in_type(f, op, k) : xl_out_type(f, op, k), &n))
                    bytes[op->code] += (double)n;
        }
        for (uint32_t k = 0; k < op->nregion; k++)
            collectives(f, op->region[k], count, bytes);
    }
}

static xl_error *sharding(const xl_cli *cli, int argc, char **argv)
{
    xl_error *err = NULL;
    xl_module *m = NULL;
    xl_buf b = { 0 };
    xl_shard_info s = { 0 };
    double held = 0, waste = 0;
    static uint64_t count[XL_OP_COUNT];
    static double bytes[XL_OP_COUNT];
    (void)argc;
    XL_DO(xl_cli_program(cli, argv[0], false, &m));
    XL_TRY(xl_pipeline_run(m, &(xl_pipeline_opts){ .only = "inline" }), "%s", argv[0]);
    xl_func *f = xl_module_entry(m);
    int64_t n = devices_of(m);
    if (!f || !f->body) {
        err = XL_ERR(INVALID, "%s has no entry function", argv[0]);
        goto out;
    }
    const xl_type **type = xl_new(cli->arena, const xl_type *, (size_t)f->body->narg + xl_region_end(f->body)->nin);
    xl_str *label = xl_new(cli->arena, xl_str, f->body->narg);
    for (uint32_t i = 0; i < f->body->narg; i++) {
        type[i] = xl_value_type(f, f->body->arg[i]);
        label[i] = xl_loc_label(m, f->val[f->body->arg[i].id].loc);
    }
    for (uint32_t i = 0; i < xl_region_end(f->body)->nin; i++)
        type[f->body->narg + i] = xl_in_type(f, xl_region_end(f->body), i);
    XL_TRY(xl_shard(m, n, 1, &s), "%s on %lld devices", argv[0], (long long)n);
    if (opt.program) {
        xl_print_module(m, &(xl_print_opts){ .shorten = true }, &b);
        err = xl_cli_put(&b);
        goto out;
    }
    for (uint32_t i = 0; i < s.narg; i++)
        held += tensor(m, &s, "argument", i, label[i], type[i], s.arg[i], &b, &waste);
    for (uint32_t i = 0; i < s.nout; i++)
        held += tensor(m, &s, "result", i, (xl_str){ 0 }, type[s.narg + i], s.out[i], &b, &waste);
    collectives(f, f->body, count, bytes);
    xl_buf_printf(&b, "%lld devices: arguments and results take %.0f bytes on each, of which %.0f also lie elsewhere\n", (long long)n, held, waste);
    for (uint32_t k = 0; k < XL_OP_COUNT; k++)
        if (count[k])
            xl_buf_printf(&b, "%-36s %6llu times, %12.0f bytes per device and run (loops counted once)\n", xl_ops[k].text, (unsigned long long)count[k], bytes[k]);
    if (s.gathered)
        xl_buf_printf(&b, "%u ops are computed whole on every device from gathered operands: XLANE_LOG=info names them\n", s.gathered);
    err = xl_cli_put(&b);
out:
    xl_buf_fini(&b);
    xl_module_free(m);
    return err;
}

const xl_verb xl_verb_sharding = {
    .name = "sharding",
    .args = "[--devices N] [--program] FILE",
    .help = "which device holds which slice of a program's tensors, and the collectives it needs",
    .more = "FILE is a StableHLO program with shardings (text, bytecode or HLO). It is partitioned as the CPU plugin would; nothing runs. For each\n"
            "argument and result: how each dimension is split, the slice of every device (# is its part), bytes, and copies.",
    .example = "xlane sharding step.mlir\nxlane sharding --program --devices 8 step.mlir",
    .opts = opts,
    .min = 1,
    .max = 1,
    .run = sharding,
};
