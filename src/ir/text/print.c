/* Modules, functions and ops as text. Ops whose short form is simple have it; the others are generic. */
#include "ir/text/print.h"

#include <stdio.h>
#include <stdlib.h>

#include "ir/text/form.h"
#include "ir/text/print_part.h"

typedef struct {
    xl_buf *b;
    const xl_module *m;
    const xl_func *f;
    bool locations, no_callers, shorten;
    uint32_t *number;                                      /* per value; NULL: names as they are, for messages */
    uint32_t nresult, narg;
    int indent;
} printer;

static void value(printer *w, xl_value v)
{
    const xl_val *d = &w->f->val[v.id];
    if (!w->number) {
        if (d->name.n)
            xl_buf_printf(w->b, "%%%.*s", XL_FMT(d->name));
        else
            xl_buf_printf(w->b, "%%%u", v.id);
        if (d->def && d->def->nout > 1)
            xl_buf_printf(w->b, "#%u", d->index);
        return;
    }
    xl_buf_printf(w->b, d->def ? "%%%u" : "%%arg%u", w->number[v.id]);
    if (d->def && d->def->nout > 1)
        xl_buf_printf(w->b, "#%u", d->index);
}

static void values(printer *w, const xl_value *v, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        xl_buf_puts(w->b, i ? ", " : "");
        value(w, v[i]);
    }
}

static void cut(xl_buf *b, size_t n)                       /* back to n bytes: what was begun came to nothing */
{
    if (b->n > n)
        b->p[b->n = n] = 0;
}

static void line(printer *w)
{
    xl_buf_putc(w->b, '\n');
    for (int i = 0; i < w->indent; i++)
        xl_buf_puts(w->b, "  ");
}

static void location(printer *w, xl_loc loc)
{
    if (!w->locations)
        return;
    if (xl_loc_get(w->m, loc)->kind == XL_LOC_UNKNOWN)
        xl_buf_puts(w->b, " loc(unknown)");
    else
        xl_buf_printf(w->b, " loc(#loc%u)", loc.id);
}

static void location_ref(printer *w, xl_loc loc)
{
    if (xl_loc_get(w->m, loc)->kind == XL_LOC_UNKNOWN)
        xl_buf_puts(w->b, "unknown");
    else
        xl_buf_printf(w->b, "#loc%u", loc.id);
}

static void location_def(printer *w, uint32_t id, const xl_loc_info *l)
{
    xl_buf *b = w->b;
    xl_buf_printf(b, "#loc%u = loc(", id);
    switch (l->kind) {
    case XL_LOC_FILE:
        xl_print_string(b, l->str);
        xl_buf_printf(b, ":%u:%u", l->line, l->col);
        if (l->end_line)
            xl_buf_printf(b, " to %u:%u", l->end_line, l->end_col);
        break;
    case XL_LOC_NAME:
        xl_print_string(b, l->str);
        if (xl_loc_get(w->m, l->a)->kind != XL_LOC_UNKNOWN)
            xl_buf_printf(b, "(#loc%u)", l->a.id);
        break;
    case XL_LOC_CALL:
        if (w->no_callers) {
            location_ref(w, l->a);
            break;
        }
        xl_buf_puts(b, "callsite(");
        location_ref(w, l->a);
        xl_buf_puts(b, " at ");
        location_ref(w, l->b);
        xl_buf_putc(b, ')');
        break;
    default:
        xl_buf_puts(b, "fused");
        if (l->meta) {
            xl_buf_putc(b, '<');
            xl_print_attr(l->meta, b);
            xl_buf_putc(b, '>');
        }
        xl_buf_putc(b, '[');
        for (uint32_t i = 0; i < l->n; i++) {
            xl_buf_puts(b, i ? ", " : "");
            location_ref(w, l->list[i]);
        }
        xl_buf_putc(b, ']');
    }
    xl_buf_puts(b, ")\n");
}

/* One alias for each (written out, they would fill pages), what it is made of before it: MLIR looks only back. Their
 * nesting has no bound, so the way is kept in an array: seen[id] is 1 + the child to look at next, `up` where we came
 * from. */
static void location_defs(printer *w)
{
    uint32_t n = w->m->nloc;
    uint32_t *seen = calloc((size_t)n + 1, sizeof *seen), *up = calloc((size_t)n + 1, sizeof *up);
    if (!seen || !up)
        w->b->failed = true;
    for (uint32_t root = 1; seen && up && root < n; root++) {
        if (seen[root])
            continue;
        seen[root] = 1;
        for (uint32_t id = root; id;) {
            const xl_loc_info l = *xl_loc_get(w->m, (xl_loc){ id });
            uint32_t k = seen[id] - 1, child = 0;
            bool more = l.kind == XL_LOC_FUSED  ? k < l.n
                        : l.kind == XL_LOC_CALL ? k < 2
                                                : l.kind == XL_LOC_NAME && k < 1;
            if (more) {
                child = l.kind == XL_LOC_FUSED ? l.list[k].id : k == 0 ? l.a.id : l.b.id;
                seen[id]++;
                if (child && child < n && !seen[child]) {
                    seen[child] = 1;
                    up[child] = id;
                    id = child;
                }
                continue;
            }
            if (l.kind != XL_LOC_UNKNOWN)
                location_def(w, id, &l);
            id = up[id];
        }
    }
    free(seen);
    free(up);
}

/* ---- inherent attributes ---------------------------------------------------------------------------------------- */
typedef struct { printer *w; bool some; } dict;

static void entry(dict *d, const char *key)
{
    xl_buf_puts(d->w->b, d->some ? ", " : "");
    xl_buf_puts(d->w->b, key);
    d->some = true;
}

static const xl_attr *slot_of(const xl_op *op, const char *name)
{
    int at = xl_slot_find((xl_opcode)op->code, xl_str_of(name));
    return at >= 0 ? op->attr[at] : NULL;
}

/* , name = [..] inside a struct; empty lists are left out */
static void struct_dims(printer *w, const xl_op *op, const char *name, bool *some)
{
    const xl_attr *a = slot_of(op, name);
    if (!a || (a->kind == XL_AT_INTS && a->n == 0))
        return;
    xl_buf_printf(w->b, "%s%s = ", *some ? ", " : "", name);
    if (a->kind == XL_AT_INTS)
        xl_print_ints(w->b, (xl_dims){ a->ints, a->n });
    else
        xl_buf_printf(w->b, "%lld", (long long)a->i);
    *some = true;
}

static void conv_part(printer *w, const xl_op *op, const char *part, const char *first, const char *second, char c0,
                      char c1)
{
    char name[64];
    snprintf(name, sizeof name, "%s_%s_dimension", part, first);
    const xl_attr *a = slot_of(op, name);
    snprintf(name, sizeof name, "%s_%s_dimension", part, second);
    const xl_attr *f = slot_of(op, name);
    snprintf(name, sizeof name, "%s_spatial_dimensions", part);
    const xl_attr *s = slot_of(op, name);
    int64_t rank = (s ? (int64_t)s->n : 0) + 2;
    xl_buf_putc(w->b, '[');
    for (int64_t i = 0; i < rank; i++) {
        xl_buf_puts(w->b, i ? ", " : "");
        if (a && a->i == i) {
            xl_buf_putc(w->b, c0);
        } else if (f && f->i == i) {
            xl_buf_putc(w->b, c1);
        } else {
            uint32_t k = 0;
            while (s && k < s->n && s->ints[k] != i)
                k++;
            xl_buf_printf(w->b, "%u", k);
        }
    }
    xl_buf_putc(w->b, ']');
}

/* Do the numbers name each dimension once? Only then can they be drawn. */
static bool conv_plain(const xl_op *op)
{
    static const char *const part[3][3] = {
        { "input_batch_dimension", "input_feature_dimension", "input_spatial_dimensions" },
        { "kernel_input_feature_dimension", "kernel_output_feature_dimension", "kernel_spatial_dimensions" },
        { "output_batch_dimension", "output_feature_dimension", "output_spatial_dimensions" }
    };
    for (int k = 0; k < 3; k++) {
        const xl_attr *a = slot_of(op, part[k][0]), *f = slot_of(op, part[k][1]), *s = slot_of(op, part[k][2]);
        uint32_t rank = (s ? s->n : 0) + 2;
        uint64_t seen = 0;
        if (!a || !f || rank > 34)                         /* the reader takes 32 spatial dimensions */
            return false;
        for (uint32_t i = 0; i < rank; i++) {
            int64_t d = i == 0 ? a->i : i == 1 ? f->i : s->ints[i - 2];
            if (d < 0 || d >= rank || (seen >> d & 1))
                return false;
            seen |= UINT64_C(1) << d;
        }
    }
    return true;
}

static void conv_raw(printer *w, const xl_op *op)
{
    bool some = false;
    xl_buf_puts(w->b, "raw ");
    const xl_attr_row *row = &xl_attr_rows[xl_ops[op->code].row0];
    for (uint32_t i = 0, n = xl_op_nattr((xl_opcode)op->code); i < n; i++)
        if (strstr(row[i].name, "_dimension"))
            struct_dims(w, op, row[i].name, &some);
}

static void conv_numbers(printer *w, const xl_op *op)
{
    conv_part(w, op, "input", "batch", "feature", 'b', 'f');
    xl_buf_putc(w->b, 'x');
    conv_part(w, op, "kernel", "input_feature", "output_feature", 'i', 'o');
    xl_buf_puts(w->b, "->");
    conv_part(w, op, "output", "batch", "feature", 'b', 'f');
}

static const char *const dot_fields[] = { "lhs_batching_dimensions", "rhs_batching_dimensions",
                                          "lhs_contracting_dimensions", "rhs_contracting_dimensions", NULL };
static const char *const gather_fields[] = { "offset_dims",
                                             "collapsed_slice_dims",
                                             "operand_batching_dims",
                                             "start_indices_batching_dims",
                                             "start_index_map",
                                             "index_vector_dim",
                                             NULL };
static const char *const scatter_fields[] = { "update_window_dims",
                                              "inserted_window_dims",
                                              "input_batching_dims",
                                              "scatter_indices_batching_dims",
                                              "scatter_dims_to_operand_dims",
                                              "index_vector_dim",
                                              NULL };
static const char *const algorithm_fields[] = { "lhs_precision_type",
                                                "rhs_precision_type",
                                                "accumulation_type",
                                                "lhs_component_count",
                                                "rhs_component_count",
                                                "num_primitive_operations",
                                                "allow_imprecise_accumulation",
                                                NULL };
static const char *const channel_fields[] = { "channel_id", "channel_type", NULL };

static bool among(const char *const *fields, const char *name)
{
    for (; *fields; fields++)
        if (strcmp(*fields, name) == 0)
            return true;
    return false;
}

static bool has_algorithm(const xl_op *op)
{
    return op->code == XL_OP_DOT_GENERAL && XL_ATTR(op, DOT_GENERAL, accumulation_type);
}

static void algorithm(printer *w, const xl_op *op)
{
    xl_buf_putc(w->b, '<');
    for (int i = 0; algorithm_fields[i]; i++) {
        const xl_attr *a = slot_of(op, algorithm_fields[i]);
        xl_buf_printf(w->b, "%s%s = ", i ? ", " : "", algorithm_fields[i]);
        if (a && a->kind == XL_AT_TYPE)
            xl_buf_puts(w->b, xl_dtypes[a->type->dtype].text);
        else if (i == 6)
            xl_buf_puts(w->b, a && a->i ? "true" : "false");
        else
            xl_buf_printf(w->b, "%lld", a ? (long long)a->i : 0LL);
    }
    xl_buf_putc(w->b, '>');
}

static bool is_conv(const xl_op *op) { return op->code == XL_OP_CONVOLUTION || op->code == XL_OP_DYNAMIC_CONV; }

/* The struct attribute whose fields ops.def has flat, if the op has one; *fields are those fields. */
static const char *folded(const xl_op *op, const char **name, const char *const **fields)
{
    switch (op->code) {
    case XL_OP_DOT_GENERAL: *name = "dot_dimension_numbers"; *fields = dot_fields; return "dot";
    case XL_OP_GATHER: case XL_OP_DYNAMIC_GATHER: *name = "dimension_numbers"; *fields = gather_fields; return "gather";
    case XL_OP_SCATTER: *name = "scatter_dimension_numbers"; *fields = scatter_fields; return "scatter";
    default: return NULL;
    }
}

static void pairs_as_dense(printer *w, const xl_attr *a)
{
    xl_buf_puts(w->b, "dense<");
    for (uint32_t i = 0; i + 1 < a->n; i += 2)
        xl_buf_printf(w->b, "%s[%lld, %lld]%s", i ? ", " : "[", (long long)a->ints[i], (long long)a->ints[i + 1],
                      i + 2 < a->n ? "" : "]");
    xl_buf_printf(w->b, "> : tensor<%ux2xi64>", a->n / 2);
}

static void slot_value(printer *w, const xl_op *op, const xl_attr_row *row, const xl_attr *a)
{
    if (row->want == XL_AK_PAIRS && a->kind == XL_AT_INTS) {
        pairs_as_dense(w, a);
    } else if (a->kind == XL_AT_ENUM && xl_str_starts(xl_str_of(xl_ops[op->code].text), XL_STR("chlo."))) {
        const char *text = xl_enum_text(a->which, a->i);
        xl_buf_printf(w->b, "#chlo<%s %s>", xl_enum_name(a->which), text ? text : "?");
    } else if (a->kind == XL_AT_ARRAY && op->code == XL_OP_CHLO_RAGGED_DOT) {
        xl_buf_putc(w->b, '[');
        for (uint32_t i = 0; i < a->n; i++) {
            xl_buf_puts(w->b, i ? ", " : "");
            slot_value(w, op, row, a->item[i]);
        }
        xl_buf_putc(w->b, ']');
    } else if (a->kind == XL_AT_DENSE) {
        xl_print_dense(w->b, a, w->shorten && row->want == XL_AK_DENSE);
    } else {
        xl_print_attr(a, w->b);
    }
}

/* The inherent attributes but those already said (a bit per slot), structs folded. */
static void inherent(printer *w, const xl_op *op, dict *d, uint32_t said)
{
    const xl_attr_row *row = &xl_attr_rows[xl_ops[op->code].row0];
    const char *name = NULL, *const *fields = NULL, *kind = folded(op, &name, &fields);
    bool some = false;
    if (kind && !(said >> 31)) {
        entry(d, name);
        xl_buf_printf(w->b, " = #stablehlo.%s<", kind);
        for (int i = 0; fields[i]; i++)
            struct_dims(w, op, fields[i], &some);
        xl_buf_putc(w->b, '>');
    }
    if (is_conv(op) && !(said >> 31)) {
        entry(d, "dimension_numbers = #stablehlo.conv<");
        if (conv_plain(op))
            conv_numbers(w, op);
        else
            conv_raw(w, op);
        xl_buf_putc(w->b, '>');
    }
    if (has_algorithm(op) && !(said >> 31)) {
        entry(d, "algorithm = #stablehlo.dot_algorithm");
        algorithm(w, op);
    }
    for (uint32_t i = 0, n = xl_op_nattr((xl_opcode)op->code); i < n; i++) {
        const xl_attr *a = op->attr[i];
        if (said >> i & 1)
            continue;
        if (!a && op->code == XL_OP_SLICE && i == XL_SLOT(SLICE, strides)) {
            entry(d, "strides = array<i64");
            for (size_t k = 0; k < xl_op_dims(op, XL_SLOT(SLICE, start_indices)).n; k++)
                xl_buf_puts(w->b, k ? ", 1" : ": 1");
            xl_buf_putc(w->b, '>');
            continue;
        }
        if (!a && op->code == XL_OP_CUSTOM_CALL &&
            (i == XL_SLOT(CUSTOM_CALL, operand_layouts) || i == XL_SLOT(CUSTOM_CALL, result_layouts)) &&
            (XL_ATTR(op, CUSTOM_CALL, operand_layouts) || XL_ATTR(op, CUSTOM_CALL, result_layouts))) {
            entry(d, row[i].name);                         /* one of the two may be empty, but not missing */
            xl_buf_puts(w->b, " = []");
            continue;
        }
        if (!a || (fields && among(fields, row[i].name)) ||
            (op->code == XL_OP_DOT_GENERAL && among(algorithm_fields, row[i].name)))
            continue;
        if (is_conv(op) && (strstr(row[i].name, "_dimension") != NULL))
            continue;
        if (among(channel_fields, row[i].name)) {
            if (strcmp(row[i].name, "channel_id") == 0) {
                const xl_attr *type = slot_of(op, "channel_type");
                entry(d, "channel_handle");
                xl_buf_printf(w->b, " = #stablehlo.channel_handle<handle = %lld, type = %lld>", (long long)a->i,
                              type ? (long long)type->i : 0LL);
            }
            continue;
        }
        entry(d, row[i].name);
        if (a->kind == XL_AT_BOOL &&
            (strcmp(row[i].name, "use_global_device_ids") == 0 || strcmp(row[i].name, "has_dynamic_root") == 0))
            continue;                                      /* a unit: being there says it */
        xl_buf_puts(w->b, " = ");
        slot_value(w, op, &row[i], a);
    }
}

/* ---- ops -------------------------------------------------------------------------------------------------------- */
static void region(printer *w, const xl_region *r, bool label);

static void function_type(printer *w, const xl_op *op)
{
    xl_buf_putc(w->b, '(');
    for (uint32_t i = 0; i < op->nin; i++) {
        xl_buf_puts(w->b, i ? ", " : "");
        xl_print_type(xl_in_type(w->f, op, i), w->b);
    }
    xl_buf_puts(w->b, ") -> ");
    bool plain = op->nout == 1 && xl_out_type(w->f, op, 0)->kind != XL_TY_FUNC;
    xl_buf_puts(w->b, plain ? "" : "(");
    for (uint32_t i = 0; i < op->nout; i++) {
        xl_buf_puts(w->b, i ? ", " : "");
        xl_print_type(xl_out_type(w->f, op, i), w->b);
    }
    xl_buf_puts(w->b, plain ? "" : ")");
}

/* {inherent that was not said, discardable} if there is any. */
static void rest_of_attrs(printer *w, const xl_op *op, uint32_t said)
{
    size_t mark = w->b->n;
    dict d = { w, false };
    xl_buf_puts(w->b, " {");
    inherent(w, op, &d, said);
    if (op->extra && op->extra->n) {
        xl_buf_puts(w->b, d.some ? ", " : "");
        xl_print_pairs(w->b, op->extra);
        d.some = true;
    }
    if (d.some)
        xl_buf_putc(w->b, '}');
    else
        cut(w->b, mark);
}

static bool all_same_type(const printer *w, const xl_op *op)
{
    const xl_type *t = xl_out_type(w->f, op, 0);
    for (uint32_t i = 0; i < op->nin; i++)
        if (xl_in_type(w->f, op, i) != t)
            return false;
    return true;
}

static void generic(printer *w, const xl_op *op)
{
    xl_print_string(w->b, xl_str_of(xl_op_text(op)));
    xl_buf_putc(w->b, '(');
    values(w, op->in, op->nin);
    xl_buf_putc(w->b, ')');
    size_t mark = w->b->n;
    dict d = { w, false };
    xl_buf_puts(w->b, " <{");
    inherent(w, op, &d, 0);
    if (d.some)
        xl_buf_puts(w->b, "}>");
    else
        cut(w->b, mark);
    if (op->nregion && w->number) {
        xl_buf_puts(w->b, " (");
        for (uint32_t i = 0; i < op->nregion; i++) {
            xl_buf_puts(w->b, i ? ", " : "");
            region(w, op->region[i], true);
        }
        xl_buf_putc(w->b, ')');
    }
    if (op->extra && op->extra->n) {
        xl_buf_puts(w->b, " {");
        xl_print_pairs(w->b, op->extra);
        xl_buf_putc(w->b, '}');
    }
    xl_buf_puts(w->b, " : ");
    function_type(w, op);
}

static const char *return_name(const xl_op *op)
{
    const xl_op *owner = op->parent ? op->parent->owner : NULL;
    if (!owner)
        return "func.return";
    return owner->code == XL_OP_SDY_MANUAL || owner->code == XL_OP_SDY_NAMED ? "sdy.return" : "stablehlo.return";
}

static void types_of(printer *w, const xl_op *op)
{
    for (uint32_t i = 0; i < op->nin; i++) {
        xl_buf_puts(w->b, i ? ", " : "");
        xl_print_type(xl_in_type(w->f, op, i), w->b);
    }
}

static void block_args(printer *w, const xl_region *r)
{
    xl_buf_putc(w->b, '(');
    for (uint32_t i = 0; i < r->narg; i++) {
        xl_buf_puts(w->b, i ? ", " : "");
        w->number[r->arg[i].id] = w->narg++;
        value(w, r->arg[i]);
        xl_buf_puts(w->b, ": ");
        xl_print_type(xl_value_type(w->f, r->arg[i]), w->b);
        location(w, w->f->val[r->arg[i].id].loc);
    }
    xl_buf_putc(w->b, ')');
}

static void sdy(printer *w, const xl_op *op)
{
    static const char *const direction[] = { "NONE", "FORWARD", "BACKWARD", "BOTH" };
    xl_buf *b = w->b;
    uint32_t said = (1u << xl_op_nattr((xl_opcode)op->code)) - 1;
    xl_buf_puts(b, xl_op_text(op));
    if (op->code == XL_OP_SDY_MANUAL || op->code == XL_OP_SDY_NAMED) {
        bool named = op->code == XL_OP_SDY_NAMED;
        const xl_attr *in = slot_of(op, "in_shardings"), *out = slot_of(op, "out_shardings");
        if (named) {
            xl_buf_putc(b, '<');
            xl_print_string(b, xl_op_str(op, XL_SLOT(SDY_NAMED, name)));
            xl_buf_putc(b, '>');
        }
        xl_buf_putc(b, '(');
        values(w, op->in, op->nin);
        xl_buf_putc(b, ')');
        if (in) {
            xl_buf_puts(b, " in_shardings=");
            xl_print_shardings(b, in);
        }
        if (out) {
            xl_buf_puts(b, " out_shardings=");
            xl_print_shardings(b, out);
        }
        if (!named) {
            const xl_attr *a = XL_ATTR(op, SDY_MANUAL, manual_axes);
            xl_buf_puts(b, " manual_axes={");
            for (uint32_t i = 0; a && i < a->n; i++) {
                xl_buf_puts(b, i ? ", " : "");
                xl_print_string(b, a->item[i]->str);
            }
            xl_buf_putc(b, '}');
        }
        if (op->nregion && w->number) {
            xl_buf_putc(b, ' ');
            block_args(w, op->region[0]);
            xl_buf_putc(b, ' ');
            region(w, op->region[0], false);
        }
        rest_of_attrs(w, op, said);
        xl_buf_puts(b, " : ");
        function_type(w, op);
        return;
    }
    static const char *const raw[] = { "gathering_axes", "slicing_axes", "params", "reduction_axes" };
    for (size_t i = 0; i < sizeof raw / sizeof *raw; i++) {
        const xl_attr *a = slot_of(op, raw[i]);
        if (a && a->kind == XL_AT_OPAQUE)
            xl_buf_printf(b, " %.*s", XL_FMT(a->str));
    }
    xl_buf_putc(b, ' ');
    values(w, op->in, op->nin);
    const xl_attr *s = slot_of(op, "sharding"), *out = slot_of(op, "out_sharding");
    if (s && s->kind == XL_AT_SHARDING) {
        xl_buf_putc(b, ' ');
        xl_print_sharding(b, s->sharding);
    }
    if (out && out->kind == XL_AT_SHARDING) {
        xl_buf_puts(b, " out_sharding=");
        xl_print_sharding(b, out->sharding);
    }
    if (op->code == XL_OP_SDY_GROUP)
        xl_buf_printf(b, " group_id=%lld", (long long)xl_op_int(op, XL_SLOT(SDY_GROUP, group_id)));
    if (op->code == XL_OP_SDY_BARRIER)
        xl_buf_printf(b, " allowed_direction=%s",
                      direction[xl_op_int(op, XL_SLOT(SDY_BARRIER, allowed_direction)) & 3]);
    rest_of_attrs(w, op, said);
    xl_buf_puts(b, " : ");
    types_of(w, op);
}

static void precision(printer *w, const xl_attr *a)
{
    xl_buf_puts(w->b, ", precision = [");
    for (uint32_t i = 0; i < a->n; i++) {
        const char *text = xl_enum_text(XL_ENUM_PRECISION, a->item[i]->i);
        xl_buf_printf(w->b, "%s%s", i ? ", " : "", text ? text : "?");
    }
    xl_buf_putc(w->b, ']');
}

static void dot_general(printer *w, const xl_op *op)
{
    xl_dims lb = xl_op_dims(op, XL_SLOT(DOT_GENERAL, lhs_batching_dimensions)),
            rb = xl_op_dims(op, XL_SLOT(DOT_GENERAL, rhs_batching_dimensions));
    const xl_attr *p = XL_ATTR(op, DOT_GENERAL, precision_config);
    xl_buf_puts(w->b, "stablehlo.dot_general ");
    values(w, op->in, op->nin);
    if (lb.n || rb.n) {
        xl_buf_puts(w->b, ", batching_dims = ");
        xl_print_ints(w->b, lb);
        xl_buf_puts(w->b, " x ");
        xl_print_ints(w->b, rb);
    }
    xl_buf_puts(w->b, ", contracting_dims = ");
    xl_print_ints(w->b, xl_op_dims(op, XL_SLOT(DOT_GENERAL, lhs_contracting_dimensions)));
    xl_buf_puts(w->b, " x ");
    xl_print_ints(w->b, xl_op_dims(op, XL_SLOT(DOT_GENERAL, rhs_contracting_dimensions)));
    if (p)
        precision(w, p);
    if (has_algorithm(op)) {
        xl_buf_puts(w->b, ", algorithm = ");
        algorithm(w, op);
    }
    rest_of_attrs(w, op, UINT32_MAX);
    xl_buf_puts(w->b, " : ");
    function_type(w, op);
}

static void slice(printer *w, const xl_op *op)
{
    xl_dims s = xl_op_dims(op, XL_SLOT(SLICE, start_indices)), l = xl_op_dims(op, XL_SLOT(SLICE, limit_indices)),
            t = xl_op_dims(op, XL_SLOT(SLICE, strides));
    xl_buf_puts(w->b, "stablehlo.slice ");
    values(w, op->in, op->nin);
    xl_buf_puts(w->b, " [");
    for (size_t i = 0; i < s.n; i++) {
        xl_buf_printf(w->b, "%s%lld:%lld", i ? ", " : "", (long long)s.p[i], (long long)xl_dims_at(l, i, 0));
        if (xl_dims_at(t, i, 1) != 1)
            xl_buf_printf(w->b, ":%lld", (long long)xl_dims_at(t, i, 1));
    }
    xl_buf_putc(w->b, ']');
    rest_of_attrs(w, op, UINT32_MAX);
    xl_buf_puts(w->b, " : ");
    function_type(w, op);
}

/* name V, V, key = value {..} : types, for what form.h lists. */
static void keyed(printer *w, const xl_op *op)
{
    uint32_t said = 0;
    bool comma = op->nin > 0;
    xl_buf_printf(w->b, "%s ", xl_op_text(op));
    values(w, op->in, op->nin);
    for (const xl_form_key *k = xl_form_keys; k->key; k++) {
        const xl_attr *a = k->op == op->code ? op->attr[k->slot] : NULL;
        if (k->op == op->code)
            said |= 1u << k->slot;
        if (!a)
            continue;
        xl_buf_printf(w->b, "%s%s = ", comma ? ", " : "", k->key);
        comma = true;
        if (a->kind == XL_AT_INTS)
            xl_print_ints(w->b, (xl_dims){ a->ints, a->n });
        else if (a->kind == XL_AT_INT)
            xl_buf_printf(w->b, "%lld", (long long)a->i);
        else if (a->kind == XL_AT_ENUM)
            xl_buf_puts(w->b, xl_enum_text(a->which, a->i) ? xl_enum_text(a->which, a->i) : "?");
        else
            xl_print_attr(a, w->b);
    }
    rest_of_attrs(w, op, said);
    xl_buf_puts(w->b, " : ");
    if (op->code == XL_OP_IOTA)
        xl_print_type(xl_out_type(w->f, op, 0), w->b);
    else
        function_type(w, op);
}

static bool has_keys(const xl_op *op)
{
    for (const xl_form_key *k = xl_form_keys; k->key; k++)
        if (k->op == op->code)
            return true;
    return false;
}

/* What follows the `=`. */
static void op_text(printer *w, const xl_op *op)
{
    const xl_op_info *info = &xl_ops[op->code];
    xl_buf *b = w->b;
    switch (op->code) {
    case XL_OP_RETURN:
        xl_buf_puts(b, return_name(op));
        if (op->nin) {
            xl_buf_putc(b, ' ');
            values(w, op->in, op->nin);
            rest_of_attrs(w, op, 0);
            xl_buf_puts(b, " : ");
            types_of(w, op);
        } else {
            rest_of_attrs(w, op, 0);
        }
        return;
    case XL_OP_CONSTANT: {
        const xl_attr *v = XL_ATTR(op, CONSTANT, value);
        if (!v || v->kind != XL_AT_DENSE || v->type != xl_out_type(w->f, op, 0))
            break;
        xl_buf_puts(b, info->text);
        rest_of_attrs(w, op, 1);
        xl_buf_putc(b, ' ');
        xl_print_dense(b, v, w->shorten);
        return;
    }
    case XL_OP_CALL: case XL_OP_CUSTOM_CALL: {
        uint32_t at = op->code == XL_OP_CALL ? XL_SLOT(CALL, callee) : XL_SLOT(CUSTOM_CALL, call_target_name);
        xl_buf_printf(b, "%s ", info->text);
        xl_print_symbol(b, xl_op_str(op, at));
        xl_buf_putc(b, '(');
        values(w, op->in, op->nin);
        xl_buf_putc(b, ')');
        rest_of_attrs(w, op, 1u << at);
        xl_buf_puts(b, " : ");
        function_type(w, op);
        return;
    }
    case XL_OP_COMPARE: {
        const xl_attr *d = XL_ATTR(op, COMPARE, comparison_direction), *t = XL_ATTR(op, COMPARE, compare_type);
        if (!d || d->kind != XL_AT_ENUM)
            break;
        xl_buf_printf(b, "%s %s, ", info->text, xl_enum_text(d->which, d->i));
        values(w, op->in, op->nin);
        if (t && t->kind == XL_AT_ENUM)
            xl_buf_printf(b, ", %s", xl_enum_text(t->which, t->i));
        rest_of_attrs(w, op, 3);
        xl_buf_puts(b, " : ");
        function_type(w, op);
        return;
    }
    case XL_OP_DOT_GENERAL: dot_general(w, op); return;
    case XL_OP_SLICE: slice(w, op); return;
    case XL_OP_SDY_CONSTRAINT:
    case XL_OP_SDY_RESHARD:
    case XL_OP_SDY_GROUP:
    case XL_OP_SDY_BARRIER:
    case XL_OP_SDY_MANUAL:
    case XL_OP_SDY_NAMED:
    case XL_OP_SDY_ALL_GATHER:
    case XL_OP_SDY_ALL_SLICE:
    case XL_OP_SDY_ALL_TO_ALL:
    case XL_OP_SDY_COLLECTIVE_PERMUTE:
    case XL_OP_SDY_ALL_REDUCE: sdy(w, op); return;
    default:
        if (has_keys(op)) {
            keyed(w, op);
            return;
        }
        bool chlo = info->text[0] == 'c';
        if ((info->flags & XL_OP_ELEMWISE) && !chlo && op->nout == 1 && all_same_type(w, op) &&
            op->code != XL_OP_SELECT && op->code != XL_OP_CLAMP && op->code != XL_OP_REDUCE_PRECISION) {
            xl_buf_printf(b, "%s ", info->text);
            values(w, op->in, op->nin);
            rest_of_attrs(w, op, 0);
            xl_buf_puts(b, " : ");
            xl_print_type(xl_out_type(w->f, op, 0), b);
            return;
        }
        if (op->code == XL_OP_RESHAPE || op->code == XL_OP_CONVERT || op->code == XL_OP_SELECT) {
            xl_buf_printf(b, "%s ", info->text);
            values(w, op->in, op->nin);
            rest_of_attrs(w, op, 0);
            xl_buf_puts(b, " : ");
            function_type(w, op);
            return;
        }
    }
    generic(w, op);
}

static void op_line(printer *w, const xl_op *op)
{
    if (op->nout)
        xl_buf_printf(w->b, op->nout > 1 ? "%%%u:%u = " : "%%%u = ", w->number[op->out[0].id], op->nout);
    op_text(w, op);
    location(w, op->loc);
}

static void region(printer *w, const xl_region *r, bool label)
{
    xl_buf_putc(w->b, '{');
    if (label && r->narg) {
        line(w);
        xl_buf_puts(w->b, "^bb0");
        block_args(w, r);
        xl_buf_putc(w->b, ':');
    }
    w->indent++;
    for (uint32_t i = 0; i < r->nop; i++) {
        const xl_op *op = r->op[i];
        if (op->nout) {                                    /* the number comes before what its regions define */
            for (uint32_t k = 0; k < op->nout; k++)
                w->number[op->out[k].id] = w->nresult;
            w->nresult++;
        }
        line(w);
        op_line(w, op);
    }
    w->indent--;
    line(w);
    xl_buf_putc(w->b, '}');
}

/* ---- functions and modules -------------------------------------------------------------------------------------- */
static void dict_after(printer *w, const char *before, const xl_attr *d)
{
    if (!d || !d->n)
        return;
    xl_buf_puts(w->b, before);
    xl_buf_putc(w->b, '{');
    xl_print_pairs(w->b, d);
    xl_buf_putc(w->b, '}');
}

static void function(printer *w, const xl_func *f)
{
    static const char *const word[] = { [XL_PUBLIC] = "public ", [XL_PRIVATE] = "private ", [XL_NESTED] = "nested " };
    xl_buf *b = w->b;
    uint32_t nin = f->type ? f->type->nin : 0, nout = f->type ? f->type->nelem - nin : 0;
    w->f = f;
    w->nresult = w->narg = 0;
    w->number = calloc((size_t)f->nval + 1, sizeof *w->number);
    if (!w->number) {
        b->failed = true;
        return;
    }
    line(w);
    xl_buf_printf(b, "func.func %s", word[f->visibility]);
    xl_print_symbol(b, f->name);
    xl_buf_putc(b, '(');
    for (uint32_t i = 0; i < nin; i++) {
        xl_buf_puts(b, i ? ", " : "");
        if (f->body && i < f->body->narg) {
            w->number[f->body->arg[i].id] = w->narg++;
            value(w, f->body->arg[i]);
            xl_buf_puts(b, ": ");
        }
        xl_print_type(f->type->elem[i], b);
        dict_after(w, " ", f->arg_attr ? f->arg_attr[i] : NULL);
        if (f->body && i < f->body->narg)
            location(w, f->val[f->body->arg[i].id].loc);
    }
    xl_buf_putc(b, ')');
    if (nout) {
        bool any = nout > 1 || f->type->elem[nin]->kind == XL_TY_FUNC || (f->res_attr && f->res_attr[0]);
        xl_buf_puts(b, any ? " -> (" : " -> ");
        for (uint32_t i = 0; i < nout; i++) {
            xl_buf_puts(b, i ? ", " : "");
            xl_print_type(f->type->elem[nin + i], b);
            dict_after(w, " ", f->res_attr ? f->res_attr[i] : NULL);
        }
        xl_buf_puts(b, any ? ")" : "");
    }
    dict_after(w, " attributes ", f->extra);
    if (f->body) {
        xl_buf_putc(b, ' ');
        region(w, f->body, false);
    }
    location(w, f->loc);
    free(w->number);
    w->number = NULL;
}

void xl_print_module(const xl_module *m, const xl_print_opts *opts, xl_buf *out)
{
    printer w = { .b = out,
                  .m = m,
                  .locations = opts && opts->locations,
                  .no_callers = opts && opts->no_callers,
                  .shorten = opts && opts->shorten };
    if (w.locations)
        location_defs(&w);
    xl_buf_puts(out, "module");
    if (m->name.n) {
        xl_buf_putc(out, ' ');
        xl_print_symbol(out, m->name);
    }
    dict_after(&w, " attributes ", m->extra);
    xl_buf_puts(out, " {");
    w.indent = 1;
    for (uint32_t i = 0; i < m->nmesh; i++) {
        line(&w);
        xl_buf_puts(out, "sdy.mesh ");
        xl_print_symbol(out, m->mesh[i].name);
        xl_buf_puts(out, " = ");
        xl_print_mesh(out, m->mesh[i].mesh);
        location(&w, m->mesh[i].loc);
    }
    for (uint32_t i = 0; i < m->nfunc; i++)
        function(&w, m->func[i]);
    xl_buf_puts(out, "\n}\n");
}

