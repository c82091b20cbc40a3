/* JAX starts a collective by a custom call (`all-reduce-start`) and waits for it by another (`all-reduce-done`). The
 * attributes of the collective are JSON in the call's frontend attributes. Here a collective is done when it is
 * started. */
#include "base/json.h"
#include "cpu/plan/lower.h"
#include "ir/verify.h"

typedef enum { NUMBER, GROUPS, PAIRS } value_kind;
typedef struct {
    xl_opcode code;
    const char *name;                                      /* of the custom call, without "-start" */
    bool reduces;                                          /* its first called computation is the op's region */
    struct { const char *key; uint32_t slot; value_kind kind; bool optional; } field[7];
} async;

#define CHANNEL(op) { "channel_id", XL_SLOT(op, channel_id), NUMBER, true }
#define GLOBAL(op)  { "use_global_device_ids", XL_SLOT(op, use_global_device_ids), NUMBER, true }
#define GROUP(op)   { "replica_groups", XL_SLOT(op, replica_groups), GROUPS, false }
#define INT(op, f)  { #f, XL_SLOT(op, f), NUMBER, false }
static const async known[] = {
    { XL_OP_ALL_REDUCE, "all-reduce", true, { GROUP(ALL_REDUCE), CHANNEL(ALL_REDUCE), GLOBAL(ALL_REDUCE) } },
    { XL_OP_ALL_GATHER,
      "all-gather",
      false,
      { { "all_gather_dimension", XL_SLOT(ALL_GATHER, all_gather_dim), NUMBER, false },
        GROUP(ALL_GATHER),
        CHANNEL(ALL_GATHER),
        GLOBAL(ALL_GATHER) } },
    { XL_OP_REDUCE_SCATTER,
      "reduce-scatter",
      true,
      { INT(REDUCE_SCATTER, scatter_dimension),
        GROUP(REDUCE_SCATTER),
        CHANNEL(REDUCE_SCATTER),
        GLOBAL(REDUCE_SCATTER) } },
    { XL_OP_ALL_TO_ALL,
      "all-to-all",
      false,
      { INT(ALL_TO_ALL, split_dimension),
        INT(ALL_TO_ALL, concat_dimension),
        INT(ALL_TO_ALL, split_count),
        GROUP(ALL_TO_ALL),
        CHANNEL(ALL_TO_ALL) } },
    { XL_OP_COLLECTIVE_PERMUTE,
      "collective-permute",
      false,
      { { "permutation", XL_SLOT(COLLECTIVE_PERMUTE, source_target_pairs), PAIRS, false },
        CHANNEL(COLLECTIVE_PERMUTE) } },
};

/* A list of lists of the same length, as the attribute of the op; NULL: it is none. */
static const xl_attr *table(xl_module *m, const xl_node *v, value_kind kind)
{
    size_t rows = v->kind == XL_NODE_LIST ? v->n : 0, cols = rows && v->kid[0]->kind == XL_NODE_LIST ? v->kid[0]->n : 0;
    if (!cols || (kind == PAIRS && cols != 2))
        return NULL;
    int64_t *ids = xl_new(&m->arena, int64_t, rows * cols);
    for (size_t i = 0; i < rows; i++) {
        if (v->kid[i]->kind != XL_NODE_LIST || v->kid[i]->n != cols)
            return NULL;
        for (size_t k = 0; k < cols; k++) {
            if (v->kid[i]->kid[k]->kind != XL_NODE_INT)
                return NULL;
            ids[i * cols + k] = v->kid[i]->kid[k]->i;
        }
    }
    if (kind == PAIRS)
        return xl_attr_dims(m, (xl_dims){ ids, rows * cols });
    const xl_type *t = xl_type_tensor(m, XL_I64, (xl_dims){ (int64_t[]){ (int64_t)rows, (int64_t)cols }, 2 });
    bool one = rows * cols == 1;
    return xl_attr_dense(m, t, (xl_str){ (const char *)ids, one ? sizeof *ids : rows * cols * sizeof *ids });
}

static const xl_attr *scalar(xl_module *m, const xl_node *v)
{
    return v->kind == XL_NODE_BOOL ? xl_attr_bool(m, v->b) : v->kind == XL_NODE_INT ? xl_attr_i64(m, v->i) : NULL;
}

/* The region of `op`, from the function that the call names. */
static bool reduction(xl_func *f, xl_op *op, const xl_attr *calls)
{
    const xl_func *g = calls && calls->n == 1 && calls->item[0]->kind == XL_AT_SYM
                           ? xl_module_func(f->m, calls->item[0]->str)
                           : NULL;
    xl_value ret;
    if (!g || !g->body || g->body->narg != 2 || !xl_region_end(g->body) || xl_region_end(g->body)->nin != 1)
        return false;
    xl_value *map = xl_new(&f->m->arena, xl_value, g->nval);
    for (uint32_t i = 0; i < 2; i++)
        map[g->body->arg[i].id] =
            xl_region_add_arg(f, op->region[0], xl_value_type(g, g->body->arg[i]), op->loc);
    xl_region_clone_into(f, op->region[0], g, g->body, map, &ret, 1);
    xl_op_new(f, op->region[0], XL_OP_RETURN, &ret, 1, NULL, 0, 0, op->loc);
    return true;
}

xl_error *xl_lower_async(xl_func *f, const xl_op *op, xl_op **out, bool *done)
{
    xl_error *err = NULL;
    xl_module *m = f->m;
    xl_str name = xl_op_str(op, XL_SLOT(CUSTOM_CALL, call_target_name)), rest = name;
    const async *a = NULL;
    xl_node *config = NULL;
    *out = NULL;
    *done = xl_str_ends(name, XL_STR("-done"));
    if (!*done && !xl_str_ends(name, XL_STR("-start")))
        return NULL;
    rest.n -= *done ? 5 : 6;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        a = xl_str_is(rest, known[i].name) ? &known[i] : a;
    if (!a || op->nin != 1 || op->nout != 1) {
        *done = false;
        return NULL;
    }
    if (*done)
        return NULL;
    const xl_attr *json = xl_dict_get(xl_dict_get(op->extra, XL_STR("mhlo.frontend_attributes")),
                                      XL_STR("async_collective_config"));
    if (!json || json->kind != XL_AT_STR)
        return XL_ERR(INVALID, "%.*s: without the frontend attribute async_collective_config", XL_FMT(name));
    XL_TRY(xl_json_read(&m->arena, "async_collective_config", json->str, &config), "%.*s", XL_FMT(name));
    const xl_type *t = xl_out_type(f, op, 0);
    xl_op *c = xl_op_new(f, NULL, a->code, op->in, 1, &t, 1, a->reduces, op->loc);
    for (size_t i = 0; i < sizeof a->field / sizeof *a->field && a->field[i].key; i++) {
        const xl_node *v = xl_node_get(config, a->field[i].key);
        if (!v && a->field[i].optional)
            continue;
        const xl_attr *attr = !v                             ? NULL
                              : a->field[i].kind == NUMBER ? scalar(m, v)
                                                           : table(m, v, a->field[i].kind);
        if (!attr)
            return XL_ERR(INVALID, "%.*s: its async_collective_config has no %s that can be read", XL_FMT(name),
                          a->field[i].key);
        xl_op_set(c, a->field[i].slot, attr);
    }
    if (a->reduces && !reduction(f, c, XL_ATTR(op, CUSTOM_CALL, called_computations)))
        return XL_ERR(INVALID, "%.*s: it does not name the function that adds", XL_FMT(name));
    XL_TRY(xl_verify_op(f, c), "%.*s", XL_FMT(name));
    *out = c;
out:
    return err;
}
