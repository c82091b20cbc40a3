/* Memory layouts other than row-major, where a program or a frontend asks for one. The planner only knows row-major
 * arrays: an argument or result with another layout becomes, in the planned program, an array whose dimensions are in
 * memory order, with a transpose where it enters or leaves. Adjacent transposes cancel, so a result whose value already
 * has the requested layout costs nothing. */
#include <stdlib.h>

#include "cpu/pjrt/api.h"
#include "pass/pass.h"

/* ---- layouts ---------------------------------------------------------------------------------------------------- */
/* One object for each order that is in use, for all threads and for ever: nobody owns them. */
static PJRT_Layouts_MemoryLayout *known[XL_RANK_MAX + 1];
static pthread_mutex_t known_lock = PTHREAD_MUTEX_INITIALIZER;

const PJRT_Layouts_MemoryLayout *xl_layout_of(size_t rank, const int64_t *minor_to_major)
{
    int64_t plain[XL_RANK_MAX];
    for (size_t i = 0; i < rank; i++)
        plain[i] = (int64_t)(rank - 1 - i);
    const int64_t *order = minor_to_major ? minor_to_major : plain;
    pthread_mutex_lock(&known_lock);
    PJRT_Layouts_MemoryLayout *l = known[rank];
    while (l && memcmp(l->minor_to_major, order, rank * sizeof *order))
        l = l->next;
    if (!l && (l = calloc(1, sizeof *l))) {
        l->rank = (uint32_t)rank;
        for (size_t i = 0; i < rank; i++)
            l->minor_to_major[i] = order[i];
        l->plain = !memcmp(order, plain, rank * sizeof *order);
        l->next = known[rank];
        known[rank] = l;
    }
    pthread_mutex_unlock(&known_lock);
    return l;
}

/* minor_to_major names every dimension once. */
static bool is_order(const int64_t *minor_to_major, size_t n, size_t rank)
{
    uint64_t seen = 0;
    for (size_t i = 0; i < n; i++) {
        if (minor_to_major[i] < 0 || minor_to_major[i] >= (int64_t)rank || seen >> minor_to_major[i] & 1)
            return false;
        seen |= 1ULL << minor_to_major[i];
    }
    return n == rank;
}

xl_error *xl_layout_read(const PJRT_Buffer_MemoryLayout *l, size_t rank, const PJRT_Layouts_MemoryLayout **out)
{
    *out = NULL;
    if (l && (l->type != PJRT_Buffer_MemoryLayout_Type_Tiled || l->tiled.num_tiles))
        return XL_ERR(UNIMPLEMENTED, "layouts of tiles or strides are not supported: give an order of dimensions");
    if (l && !is_order(l->tiled.minor_to_major, l->tiled.minor_to_major_size, rank))
        return XL_ERR(INVALID, "the layout does not name each of the %zu dimensions once", rank);
    *out = xl_layout_of(rank, l ? l->tiled.minor_to_major : NULL);
    return *out ? NULL : XL_ERR(EXHAUSTED, "no memory for a layout");
}

void xl_layout_strides(const PJRT_Layouts_MemoryLayout *l, const int64_t *dims, size_t elem, int64_t *stride)
{
    int64_t at = (int64_t)elem;
    for (uint32_t i = 0; i < l->rank; i++) {
        stride[l->minor_to_major[i]] = at;
        at *= dims[l->minor_to_major[i]];
    }
}

bool xl_layout_same(const PJRT_Layouts_MemoryLayout *a, const PJRT_Layouts_MemoryLayout *b, const int64_t *dims)
{
    if (a == b)
        return true;
    uint32_t i = 0, k = 0;
    for (;; i++, k++) {                                    /* where a dimension of one element lies does not matter */
        while (i < a->rank && dims[a->minor_to_major[i]] == 1)
            i++;
        while (k < b->rank && dims[b->minor_to_major[k]] == 1)
            k++;
        if (i == a->rank || k == b->rank)
            return i == a->rank && k == b->rank;
        if (a->minor_to_major[i] != b->minor_to_major[k])
            return false;
    }
}

void xl_layout_text(const PJRT_Layouts_MemoryLayout *l, char *text)
{
    char *p = text;
    *p++ = '{';
    for (uint32_t i = 0; i < l->rank; i++) {
        if (i)
            *p++ = ',';
        if (l->minor_to_major[i] >= 10)
            *p++ = (char)('0' + l->minor_to_major[i] / 10);
        *p++ = (char)('0' + l->minor_to_major[i] % 10);
    }
    *p++ = '}';
    *p = 0;
}

/* ---- programs --------------------------------------------------------------------------------------------------- */
static int64_t major(const PJRT_Layouts_MemoryLayout *l, uint32_t i) { return l->minor_to_major[l->rank - 1 - i]; }

static const xl_type *in_memory(xl_module *m, const xl_type *t, const PJRT_Layouts_MemoryLayout *l)
{
    int64_t dims[XL_RANK_MAX];
    for (uint32_t i = 0; i < l->rank; i++)
        dims[i] = t->dims[major(l, i)];
    return xl_type_tensor(m, t->dtype, (xl_dims){ dims, l->rank });
}

/* "{0,1}": the dimensions from minor to major. */
static xl_error *parse(xl_str s, uint32_t rank, const PJRT_Layouts_MemoryLayout **out)
{
    int64_t order[XL_RANK_MAX];
    uint32_t n = 0;
    xl_str rest = s;
    bool ok = rest.n >= 2 && rest.p[0] == '{' && rest.p[rest.n - 1] == '}';
    if (ok)
        rest = (xl_str){ rest.p + 1, rest.n - 2 };
    for (size_t i = 0; i < rest.n; i++)
        if (rest.p[i] == ':')
            return XL_ERR(UNIMPLEMENTED, "the layout %.*s has tiles, this device serves an order of dimensions only",
                          XL_FMT(s));
    while (ok && rest.n) {
        int64_t v;
        ok = n < XL_RANK_MAX && xl_str_i64(xl_str_cut(&rest, ','), &v);
        if (ok)
            order[n++] = v;
    }
    if (!ok || !is_order(order, n, rank))
        return XL_ERR(INVALID, "the layout %.*s does not name each of the %u dimensions once", XL_FMT(s), rank);
    *out = xl_layout_of(rank, order);
    return *out ? NULL : XL_ERR(EXHAUSTED, "no memory for a layout");
}

/* The layout in which v costs least: what its transposes, constraints and arguments leave it in. */
static const PJRT_Layouts_MemoryLayout *natural(const xl_func *f, xl_value v,
                                                const PJRT_Layouts_MemoryLayout *const *args, int depth)
{
    const xl_type *t = xl_value_type(f, v);
    const xl_op *op = f->val[v.id].def;
    if (!op)
        return f->val[v.id].region == f->body ? args[f->val[v.id].index] : xl_layout_of(t->rank, NULL);
    if (op->code == XL_OP_TRANSPOSE && depth) {
        const PJRT_Layouts_MemoryLayout *l = natural(f, op->in[0], args, depth - 1);
        xl_dims perm = xl_op_dims(op, XL_SLOT(TRANSPOSE, permutation));
        int64_t order[XL_RANK_MAX], at[XL_RANK_MAX] = { 0 };
        for (uint32_t i = 0; l && i < t->rank; i++)
            at[perm.p[i]] = i;
        for (uint32_t i = 0; l && i < t->rank; i++)
            order[i] = at[l->minor_to_major[i]];
        return l ? xl_layout_of(t->rank, order) : NULL;
    }
    if (op->code == XL_OP_CUSTOM_CALL &&
        xl_str_is(xl_op_str(op, XL_SLOT(CUSTOM_CALL, call_target_name)), "LayoutConstraint")) {
        const xl_attr *a = op->attr[XL_SLOT(CUSTOM_CALL, result_layouts)];
        int64_t order[XL_RANK_MAX];
        const xl_attr *one = a && a->kind == XL_AT_ARRAY && a->n == 1 ? a->item[0] : NULL;
        if (one && one->kind == XL_AT_DENSE && one->data.n == t->rank * sizeof *order) {
            memcpy(order, one->data.p, one->data.n);
            if (is_order(order, t->rank, t->rank))
                return xl_layout_of(t->rank, order);
        }
    }
    if ((xl_ops[op->code].flags & XL_OP_ELEMWISE) && depth)
        for (uint32_t i = 0; i < op->nin; i++) {
            const xl_op *in = f->val[op->in[i].id].def;
            if (!in || (in->code != XL_OP_CONSTANT && in->code != XL_OP_BROADCAST_IN_DIM))
                return natural(f, op->in[i], args, depth - 1);
        }
    return xl_layout_of(t->rank, NULL);
}

static void replace(const xl_subst *s, xl_region *r)
{
    for (uint32_t i = 0; i < r->nop; i++) {
        xl_subst_op(s, r->op[i]);
        for (uint32_t k = 0; k < r->op[i]->nregion; k++)
            replace(s, r->op[i]->region[k]);
    }
}

void xl_layouts_forget(xl_module *m)
{
    xl_func *f = xl_module_entry(m);
    const xl_attr **list[2] = { f->arg_attr, f->res_attr };
    uint32_t n[2] = { f->type->nin, f->type->nelem - f->type->nin };
    for (int k = 0; k < 2; k++)
        for (uint32_t i = 0; list[k] && i < n[k]; i++)
            if (list[k][i])
                list[k][i] = xl_dict_with(m, list[k][i], XL_STR("mhlo.layout_mode"), NULL);
}

xl_error *xl_layouts_apply(xl_module *m, const PJRT_Layouts_MemoryLayout **list[2])
{
    xl_func *f = xl_module_entry(m);
    xl_region *r = f->body;
    xl_op *end = xl_region_end(r);
    xl_error *err = NULL;
    bool any = false;
    for (int k = 1; k >= 0; k--) {                         /* the arguments first: results may take theirs */
        uint32_t n = k ? r->narg : end->nin;
        const xl_attr *const *attr = k ? f->arg_attr : f->res_attr;
        list[k] = calloc((size_t)n + 1, sizeof **list);
        if (!list[k])
            return XL_ERR(EXHAUSTED, "no memory for layouts");
        for (uint32_t i = 0; i < n; i++) {
            xl_value v = k ? r->arg[i] : end->in[i];
            const xl_type *t = xl_value_type(f, v);
            const xl_attr *a = attr ? xl_dict_get(attr[i], XL_STR("mhlo.layout_mode")) : NULL;
            bool given = a && a->kind == XL_AT_STR && t->kind == XL_TY_TENSOR && t->rank <= XL_RANK_MAX;
            list[k][i] = xl_layout_of(t->kind == XL_TY_TENSOR && t->rank <= XL_RANK_MAX ? t->rank : 0, NULL);
            if (given && xl_str_is(a->str, "auto"))
                list[k][i] = k ? list[k][i] : natural(f, v, list[1], 16);
            else if (given && !xl_str_is(a->str, "default"))
                XL_TRY(parse(a->str, t->rank, &list[k][i]), "%s %u", k ? "argument" : "result", i);
            if (!list[k][i])
                return XL_ERR(EXHAUSTED, "no memory for layouts");
            any = any || !list[k][i]->plain;
        }
    }
    if (!any)
        return NULL;
    xl_op **old = r->op;
    uint32_t nold = r->nop;
    xl_subst s = xl_subst_new(f);
    r->op = xl_new(&m->arena, xl_op *, (size_t)nold + r->narg + end->nin);
    r->capop = nold + r->narg + end->nin;
    r->nop = 0;
    xl_b b = xl_b_at(f, r);
    const xl_type **in = xl_new(&m->arena, const xl_type *, r->narg);
    const xl_type **out = xl_new(&m->arena, const xl_type *, end->nin);
    for (uint32_t i = 0; i < r->narg; i++) {
        const PJRT_Layouts_MemoryLayout *l = list[1][i];
        if (!l->plain) {
            int64_t perm[XL_RANK_MAX];
            for (uint32_t k = 0; k < l->rank; k++)
                perm[major(l, k)] = k;
            f->val[r->arg[i].id].type = in_memory(m, xl_value_type(f, r->arg[i]), l);
            xl_subst_set(&s, r->arg[i], xl_b_transpose(&b, r->arg[i], (xl_dims){ perm, l->rank }));
        }
        in[i] = xl_value_type(f, r->arg[i]);
    }
    for (uint32_t i = 0; i + 1 < nold; i++)
        xl_region_append(f, r, old[i]);
    uint32_t first = 0;
    while (first < r->nop && r->op[first] != old[0])       /* the transposes keep the arguments they were made of */
        first++;
    xl_region rest = { .op = r->op + first, .nop = r->nop - first };
    replace(&s, &rest);
    xl_subst_op(&s, end);
    for (uint32_t i = 0; i < end->nin; i++) {
        const PJRT_Layouts_MemoryLayout *l = list[0][i];
        int64_t perm[XL_RANK_MAX];
        for (uint32_t k = 0; k < l->rank; k++)
            perm[k] = major(l, k);
        if (!l->plain)
            end->in[i] = xl_b_transpose(&b, end->in[i], (xl_dims){ perm, l->rank });
        out[i] = xl_value_type(f, end->in[i]);
    }
    xl_region_append(f, r, end);
    f->type = xl_type_func(m, in, r->narg, out, end->nin);
    err = xl_b_error(&b);
out:
    return err;
}

/* ---- extension -------------------------------------------------------------------------------------------------- */
struct PJRT_Layouts_SerializedLayout { char text[XL_LAYOUT_TEXT]; };

static PJRT_Error *layout_destroy(PJRT_Layouts_MemoryLayout_Destroy_Args *args)
{
    (void)args;
    return NULL;
}
static void serialized_layout_free(PJRT_Layouts_SerializedLayout *l) { free(l); }
static PJRT_Error *layout_serialize(PJRT_Layouts_MemoryLayout_Serialize_Args *args)
{
    PJRT_Layouts_SerializedLayout *s = calloc(1, sizeof *s);
    if (!s)
        return xl_api_fail(XL_CODE_EXHAUSTED, "no memory for a layout");
    xl_layout_text(args->layout, s->text);
    args->serialized_bytes = s->text;
    args->serialized_bytes_size = strlen(s->text);
    args->serialized_layout = s;
    args->serialized_layout_deleter = serialized_layout_free;
    return NULL;
}
static PJRT_Error *give(const PJRT_Layouts_MemoryLayout *l, PJRT_Layouts_MemoryLayout **out)
{
    *out = (PJRT_Layouts_MemoryLayout *)(uintptr_t)l;      /* PJRT has no const; nobody writes there */
    return l ? NULL : xl_api_fail(XL_CODE_EXHAUSTED, "no memory for a layout");
}
static PJRT_Error *row_major(size_t rank, PJRT_Layouts_MemoryLayout **out)
{
    if (rank > XL_RANK_MAX)
        return xl_api_fail(XL_CODE_INVALID, "an array of %zu dimensions: this device has at most %d; join some of them",
                           rank, XL_RANK_MAX);
    return give(xl_layout_of(rank, NULL), out);
}
static PJRT_Error *layout_client(PJRT_Layouts_PJRT_Client_GetDefaultLayout_Args *args)
{
    return row_major(args->num_dims, &args->layout);
}
static PJRT_Error *layout_buffer(PJRT_Layouts_PJRT_Buffer_MemoryLayout_Args *args)
{
    return give(args->buffer->layout, &args->layout);
}
static PJRT_Error *layout_topology(PJRT_Layouts_PJRT_Topology_GetDefaultLayout_Args *args)
{
    return row_major(args->num_dims, &args->layout);
}
static PJRT_Error *layout_outputs(PJRT_Layouts_PJRT_Executable_GetOutputLayouts_Args *args)
{
    const xl_compiled *e = args->executable->e;
    args->num_outputs = e->plan->nout;
    args->layouts = (PJRT_Layouts_MemoryLayout **)(uintptr_t)e->layouts[0];
    return NULL;
}
static PJRT_Error *layout_parameters(PJRT_Layouts_PJRT_Executable_GetParameterLayouts_Args *args)
{
    const xl_compiled *e = args->executable->e;
    args->num_parameters = e->plan->narg;
    args->layouts = (PJRT_Layouts_MemoryLayout **)(uintptr_t)e->layouts[1];
    return NULL;
}
PJRT_Layouts_Extension xl_layouts_extension = {
    .base = { PJRT_SIZE(PJRT_Layouts_Extension, PJRT_Layouts_PJRT_Executable_GetParameterLayouts),
              PJRT_Extension_Type_Layouts, NULL },
    .PJRT_Layouts_MemoryLayout_Destroy = layout_destroy,
    .PJRT_Layouts_MemoryLayout_Serialize = layout_serialize,
    .PJRT_Layouts_PJRT_Client_GetDefaultLayout = layout_client,
    .PJRT_Layouts_PJRT_Buffer_MemoryLayout = layout_buffer,
    .PJRT_Layouts_PJRT_Topology_GetDefaultLayout = layout_topology,
    .PJRT_Layouts_PJRT_Executable_GetOutputLayouts = layout_outputs,
    .PJRT_Layouts_PJRT_Executable_GetParameterLayouts = layout_parameters,
};
