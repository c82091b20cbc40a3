#include "pass/mesh.h"

int64_t xl_mesh_size(const xl_mesh_def *mesh)
{
    int64_t n = 1;
    for (uint32_t i = 0; i < mesh->naxis; i++)
        n *= mesh->axis[i].size;
    return n;
}

int xl_mesh_find(const xl_mesh_def *mesh, xl_str name)
{
    for (uint32_t i = 0; i < mesh->naxis; i++)
        if (xl_str_eq(mesh->axis[i].name, name))
            return (int)i;
    return -1;
}

void xl_mesh_text(const xl_mesh_def *mesh, xl_buf *out)
{
    for (uint32_t i = 0; i < mesh->naxis; i++)
        xl_buf_printf(out, "%s%.*s=%lld", i ? ", " : "", XL_FMT(mesh->axis[i].name), (long long)mesh->axis[i].size);
}

xl_error *xl_mesh_parse(xl_arena *a, xl_str text, int64_t ndevice, xl_mesh_def *out)
{
    xl_str rest = text;
    *out = (xl_mesh_def){ .naxis = 0 };
    while (rest.n) {
        xl_str size = xl_str_cut(&rest, ','), name = xl_str_trim(xl_str_cut(&size, '='));
        int64_t n;
        if (!name.n || !xl_str_i64(xl_str_trim(size), &n))
            return XL_ERR(INVALID, "mesh \"%.*s\": give axes as name=size, separated by commas", XL_FMT(text));
        for (size_t i = 0; i < name.n; i++)
            if (memchr(",+-: \t\"", name.p[i], 7))
                return XL_ERR(INVALID, "mesh \"%.*s\": an axis name has letters, digits and _", XL_FMT(text));
        if (n < 1 || n > 65536)
            return XL_ERR(INVALID, "mesh \"%.*s\": axis \"%.*s\" has size %lld", XL_FMT(text), XL_FMT(name),
                          (long long)n);
        if (xl_mesh_find(out, name) >= 0)
            return XL_ERR(INVALID, "mesh \"%.*s\" has axis \"%.*s\" twice", XL_FMT(text), XL_FMT(name));
        if (out->naxis == XL_MESH_AXES)
            return XL_ERR(INVALID, "mesh \"%.*s\" has more than %d axes", XL_FMT(text), XL_MESH_AXES);
        out->axis[out->naxis++] = (xl_mesh_axis){ xl_str_dup(a, name), n };
        if (xl_mesh_size(out) > 1 << 20)
            return XL_ERR(INVALID, "mesh \"%.*s\" has more than a million devices", XL_FMT(text));
    }
    if (!out->naxis)
        return XL_ERR(INVALID, "the mesh has no axis: give for example data=%lld", (long long)(ndevice ? ndevice : 8));
    if (ndevice && xl_mesh_size(out) != ndevice)
        return XL_ERR(INVALID,
                      "mesh \"%.*s\" multiplies to %lld devices, there are %lld: make the product of its axes the "
                      "number of devices",
                      XL_FMT(text), (long long)xl_mesh_size(out), (long long)ndevice);
    return NULL;
}

/* ---- specs ------------------------------------------------------------------------------------------------------- */
xl_error *xl_mesh_spec_parse(const xl_mesh_def *mesh, xl_dims dims, xl_str what, xl_str text, xl_mesh_spec *out)
{
    bool used[XL_MESH_AXES] = { false };
    xl_str rest = text;
    *out = (xl_mesh_spec){ .rank = (uint32_t)dims.n };
    if (dims.n > XL_MESH_RANK)
        return XL_ERR(INVALID, "%.*s has %zu dimensions, more than %d", XL_FMT(what), dims.n, XL_MESH_RANK);
    for (uint32_t d = 0; d < dims.n; d++) {
        xl_str one = xl_str_trim(xl_str_cut(&rest, ',')), all = one;
        while (one.n && !xl_str_is(one, "-")) {
            xl_str name = xl_str_trim(xl_str_cut(&one, '+'));
            int i = xl_mesh_find(mesh, name);
            if (i < 0) {
                xl_buf b = { 0 };
                xl_mesh_text(mesh, &b);
                xl_error *err = XL_ERR(INVALID, "%.*s: the mesh has no axis \"%.*s\"; it has %.*s", XL_FMT(what),
                                       XL_FMT(name), XL_FMT(xl_buf_view(&b)));
                xl_buf_fini(&b);
                return err;
            }
            if (used[i])
                return XL_ERR(
                    INVALID,
                    "%.*s: axis \"%.*s\" is used twice in \"%.*s\": an axis can split one dimension of a tensor",
                    XL_FMT(what), XL_FMT(name), XL_FMT(text));
            used[i] = true;
            out->dim[d].axis[out->dim[d].n++] = (uint8_t)i;
        }
        int64_t parts = xl_mesh_parts(mesh, out, d);
        if (dims.p[d] % parts)
            return XL_ERR(INVALID,
                          "%.*s: dimension %u has size %lld, which %lld devices along \"%.*s\" cannot share evenly: "
                          "the next size that they can is %lld",
                          XL_FMT(what), d, (long long)dims.p[d], (long long)parts, XL_FMT(all),
                          (long long)((dims.p[d] + parts - 1) / parts * parts));
    }
    if (xl_str_trim(rest).n)
        return XL_ERR(INVALID, "%.*s: sharding \"%.*s\" has more dimensions than the tensor's %zu", XL_FMT(what),
                      XL_FMT(text), dims.n);
    return NULL;
}

void xl_mesh_spec_text(const xl_mesh_def *mesh, const xl_mesh_spec *s, xl_buf *out)
{
    for (uint32_t d = 0; d < s->rank; d++) {
        xl_buf_puts(out, d ? ", " : "");
        if (!s->dim[d].n)
            xl_buf_puts(out, "-");
        for (uint32_t k = 0; k < s->dim[d].n; k++)
            xl_buf_printf(out, "%s%.*s", k ? "+" : "", XL_FMT(mesh->axis[s->dim[d].axis[k]].name));
    }
}

xl_mesh_spec xl_mesh_each(const xl_mesh_def *mesh)
{
    xl_mesh_spec s = { .rank = mesh->naxis };
    for (uint32_t i = 0; i < mesh->naxis; i++) {
        s.dim[i].n = 1;
        s.dim[i].axis[0] = (uint8_t)i;
    }
    return s;
}

bool xl_mesh_spec_eq(const xl_mesh_spec *a, const xl_mesh_spec *b)
{
    if (a->rank != b->rank)
        return false;
    for (uint32_t d = 0; d < a->rank; d++)
        if (a->dim[d].n != b->dim[d].n || memcmp(a->dim[d].axis, b->dim[d].axis, a->dim[d].n))
            return false;
    return true;
}

int64_t xl_mesh_parts(const xl_mesh_def *mesh, const xl_mesh_spec *s, uint32_t d)
{
    int64_t n = 1;
    for (uint32_t k = 0; k < s->dim[d].n; k++)
        n *= mesh->axis[s->dim[d].axis[k]].size;
    return n;
}

int64_t xl_mesh_tiles(const xl_mesh_def *mesh, const xl_mesh_spec *s)
{
    int64_t n = 1;
    for (uint32_t d = 0; d < s->rank; d++)
        n *= xl_mesh_parts(mesh, s, d);
    return n;
}

bool xl_mesh_slice(const xl_mesh_def *mesh, const xl_mesh_spec *s, xl_dims dims, int64_t device, int64_t *lo,
                   int64_t *hi)
{
    int64_t at[XL_MESH_AXES] = { 0 };
    bool used[XL_MESH_AXES] = { false }, first = true;
    for (uint32_t i = mesh->naxis; i-- > 0; device /= mesh->axis[i].size)
        at[i] = device % mesh->axis[i].size;
    for (uint32_t d = 0; d < s->rank; d++) {
        int64_t part = 0, len = dims.p[d] / xl_mesh_parts(mesh, s, d);
        for (uint32_t k = 0; k < s->dim[d].n; k++) {
            uint8_t i = s->dim[d].axis[k];
            part = part * mesh->axis[i].size + at[i];
            used[i] = true;
        }
        lo[d] = part * len;
        hi[d] = lo[d] + len;
    }
    for (uint32_t i = 0; i < mesh->naxis; i++)
        first &= used[i] || !at[i];
    return first;
}

/* ---- in a module ------------------------------------------------------------------------------------------------- */
void xl_mesh_define(xl_module *m, const xl_mesh_def *mesh)
{
    xl_mesh *copy = xl_new(&m->arena, xl_mesh, 1);
    xl_mesh_axis *axis = xl_new(&m->arena, xl_mesh_axis, mesh->naxis);
    for (uint32_t i = 0; i < mesh->naxis; i++)
        axis[i] = (xl_mesh_axis){ xl_str_dup(&m->arena, mesh->axis[i].name), mesh->axis[i].size };
    *copy = (xl_mesh){ .axis = axis, .naxis = mesh->naxis };
    xl_mesh_sym sym = { .name = XL_STR("mesh"), .mesh = copy };
    XL_PUSH(&m->arena, m->mesh, m->nmesh, m->capmesh, sym);
}

const xl_attr *xl_mesh_attr(xl_module *m, const xl_mesh_def *mesh, const xl_mesh_spec *from)
{
    xl_dim_sharding *dim = xl_new(&m->arena, xl_dim_sharding, from->rank);
    for (uint32_t d = 0; d < from->rank; d++) {
        xl_axis_ref *ref = xl_new(&m->arena, xl_axis_ref, from->dim[d].n);
        for (uint32_t k = 0; k < from->dim[d].n; k++)
            ref[k].name = xl_str_dup(&m->arena, mesh->axis[from->dim[d].axis[k]].name);
        dim[d] = (xl_dim_sharding){ .axis = ref, .naxis = from->dim[d].n, .priority = -1 };
    }
    xl_sharding *s = xl_new(&m->arena, xl_sharding, 1);
    *s = (xl_sharding){ .mesh = XL_STR("mesh"), .rank = from->rank, .dim = dim };
    return xl_attr_sharding(m, s);
}

static const xl_attr **attrs(xl_module *m, const xl_attr **have, uint32_t n)
{
    return have ? have : xl_new(&m->arena, const xl_attr *, n);
}

void xl_mesh_shard_arg(xl_module *m, xl_func *f, uint32_t arg, const xl_mesh_def *mesh, const xl_mesh_spec *s)
{
    f->arg_attr = attrs(m, f->arg_attr, f->body->narg);
    f->arg_attr[arg] = xl_dict_with(m, f->arg_attr[arg], XL_STR("sdy.sharding"), xl_mesh_attr(m, mesh, s));
}

void xl_mesh_shard_result(xl_module *m, xl_func *f, uint32_t result, const xl_mesh_def *mesh, const xl_mesh_spec *s)
{
    f->res_attr = attrs(m, f->res_attr, xl_region_end(f->body)->nin);
    f->res_attr[result] = xl_dict_with(m, f->res_attr[result], XL_STR("sdy.sharding"), xl_mesh_attr(m, mesh, s));
}

/* ---- the older form ---------------------------------------------------------------------------------------------- */
void xl_mesh_mhlo(const xl_mesh_def *mesh, const xl_mesh_spec *s, xl_buf *out)
{
    uint8_t order[XL_MESH_AXES]; /* of the axes: as the dimensions use them, then the others */
    bool used[XL_MESH_AXES] = { false }, sorted = true;
    uint32_t n = 0;
    int64_t tiles = xl_mesh_tiles(mesh, s), size = xl_mesh_size(mesh);
    if (tiles == 1) {
        xl_buf_puts(out, "{replicated}");
        return;
    }
    xl_buf_puts(out, "{devices=[");
    for (uint32_t d = 0; d < s->rank; d++) {
        xl_buf_printf(out, d ? ",%lld" : "%lld", (long long)xl_mesh_parts(mesh, s, d));
        for (uint32_t k = 0; k < s->dim[d].n; k++)
            used[order[n++] = s->dim[d].axis[k]] = true;
    }
    if (tiles < size)
        xl_buf_printf(out, ",%lld", (long long)(size / tiles));
    for (uint32_t i = 0; i < mesh->naxis; i++)
        if (!used[i])
            order[n++] = (uint8_t)i;
    for (uint32_t i = 0; i < n; i++)
        sorted &= order[i] == i;
    if (sorted)
        xl_buf_printf(out, "]<=[%lld]", (long long)size);
    else {
        for (uint32_t i = 0; i < n; i++)
            xl_buf_printf(out, i ? ",%lld" : "]<=[%lld", (long long)mesh->axis[i].size);
        for (uint32_t i = 0; i < n; i++)
            xl_buf_printf(out, i ? ",%u" : "]T(%u", order[i]);
        xl_buf_puts(out, ")");
    }
    xl_buf_puts(out, tiles < size ? " last_tile_dim_replicate}" : "}");
}

static const xl_attr *older(xl_module *m, const xl_mesh_def *mesh, const xl_sharding *s)
{
    xl_mesh_spec spec = { .rank = s->rank };
    xl_buf b = { 0 };
    for (uint32_t d = 0; d < s->rank; d++)
        for (uint32_t k = 0; k < s->dim[d].naxis; k++)
            spec.dim[d].axis[spec.dim[d].n++] = (uint8_t)xl_mesh_find(mesh, s->dim[d].axis[k].name);
    xl_mesh_mhlo(mesh, &spec, &b);
    const xl_attr *a = xl_attr_str(m, xl_str_dup(&m->arena, xl_buf_view(&b)));
    xl_buf_fini(&b);
    return a;
}

static void older_dict(xl_module *m, const xl_mesh_def *mesh, const xl_attr **dict)
{
    const xl_attr *a = xl_dict_get(*dict, XL_STR("sdy.sharding"));
    if (a && a->kind == XL_AT_SHARDING)
        *dict = xl_dict_with(m, xl_dict_with(m, *dict, XL_STR("sdy.sharding"), NULL), XL_STR("mhlo.sharding"),
                             older(m, mesh, a->sharding));
}

static void older_region(xl_func *f, const xl_mesh_def *mesh, xl_region *r)
{
    xl_module *m = f->m;
    for (uint32_t i = 0; i < r->nop; i++) {
        xl_op *op = r->op[i];
        for (uint32_t k = 0; k < op->nregion; k++)
            older_region(f, mesh, op->region[k]);
        if (op->code != XL_OP_SDY_CONSTRAINT)
            continue;
        const xl_attr *s = XL_ATTR(op, SDY_CONSTRAINT, sharding);
        op->code = XL_OP_CUSTOM_CALL;
        op->attr = xl_new(&m->arena, const xl_attr *, xl_op_nattr(XL_OP_CUSTOM_CALL));
        op->attr[XL_SLOT(CUSTOM_CALL, call_target_name)] = xl_attr_str(m, XL_STR("Sharding"));
        op->extra = xl_dict_with(m, op->extra, XL_STR("mhlo.sharding"), older(m, mesh, s->sharding));
    }
}

void xl_mesh_to_mhlo(xl_func *f, const xl_mesh_def *mesh)
{
    for (uint32_t i = 0; f->arg_attr && i < f->body->narg; i++)
        older_dict(f->m, mesh, &f->arg_attr[i]);
    for (uint32_t i = 0; f->res_attr && i < xl_region_end(f->body)->nin; i++)
        older_dict(f->m, mesh, &f->res_attr[i]);
    older_region(f, mesh, f->body);
}
