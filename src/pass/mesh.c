#include "pass/mesh.h"

int64_t xl_mesh_size(const xl_mesh_def *mesh)
{
    int64_t n = 1;
    for (uint32_t i = 0; i < mesh->naxis; i++)
        n *= mesh->axis[i].size;
    return n;
}

static const xl_mesh_axis *find(const xl_mesh_def *mesh, xl_str name)
{
    for (uint32_t i = 0; i < mesh->naxis; i++)
        if (xl_str_eq(mesh->axis[i].name, name))
            return &mesh->axis[i];
    return NULL;
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
        if (n < 1 || n > 65536)
            return XL_ERR(INVALID, "mesh \"%.*s\": axis \"%.*s\" has size %lld", XL_FMT(text), XL_FMT(name), (long long)n);
        if (find(out, name))
            return XL_ERR(INVALID, "mesh \"%.*s\" has axis \"%.*s\" twice", XL_FMT(text), XL_FMT(name));
        if (out->naxis == sizeof out->axis / sizeof *out->axis)
            return XL_ERR(INVALID, "mesh \"%.*s\" has more than %zu axes", XL_FMT(text), sizeof out->axis / sizeof *out->axis);
        out->axis[out->naxis++] = (xl_mesh_axis){ xl_str_dup(a, name), n };
    }
    if (!out->naxis)
        return XL_ERR(INVALID, "the mesh has no axis: give for example data=%lld", (long long)ndevice);
    if (xl_mesh_size(out) != ndevice)
        return XL_ERR(INVALID, "mesh \"%.*s\" multiplies to %lld devices, there are %lld: make the product of its axes the number of devices", XL_FMT(text), (long long)xl_mesh_size(out),
                      (long long)ndevice);
    return NULL;
}

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

xl_error *xl_mesh_sharding(xl_module *m, const xl_mesh_def *mesh, const xl_type *t, xl_str what, xl_str dims, const xl_attr **out)
{
    xl_dim_sharding *dim = xl_new(&m->arena, xl_dim_sharding, t->rank);
    bool used[8] = { false };
    xl_str rest = dims;
    for (uint32_t d = 0; d < t->rank; d++) {
        xl_str one = xl_str_trim(xl_str_cut(&rest, ','));
        xl_axis_ref *ref = xl_new(&m->arena, xl_axis_ref, 8);
        int64_t parts = 1;
        dim[d] = (xl_dim_sharding){ .axis = ref, .priority = -1 };
        while (one.n && !xl_str_is(one, "-")) {
            xl_str name = xl_str_trim(xl_str_cut(&one, '+'));
            const xl_mesh_axis *a = find(mesh, name);
            if (!a)
                return XL_ERR(INVALID, "%.*s: the mesh has no axis \"%.*s\"", XL_FMT(what), XL_FMT(name));
            if (used[a - mesh->axis])
                return XL_ERR(INVALID, "%.*s: axis \"%.*s\" is used twice: an axis can split one dimension of a tensor", XL_FMT(what), XL_FMT(name));
            used[a - mesh->axis] = true;
            parts *= a->size;
            ref[dim[d].naxis++] = (xl_axis_ref){ .name = xl_str_dup(&m->arena, name) };
        }
        if (t->dims[d] % parts)
            return XL_ERR(INVALID, "%.*s: dimension %u has size %lld, which %lld devices along \"%.*s\" cannot share evenly: the next size that they can is %lld", XL_FMT(what), d,
                          (long long)t->dims[d], (long long)parts, XL_FMT(ref[0].name), (long long)((t->dims[d] + parts - 1) / parts * parts));
    }
    if (xl_str_trim(rest).n)
        return XL_ERR(INVALID, "%.*s: sharding \"%.*s\" has more dimensions than the tensor's %u", XL_FMT(what), XL_FMT(dims), t->rank);
    xl_sharding *s = xl_new(&m->arena, xl_sharding, 1);
    *s = (xl_sharding){ .mesh = XL_STR("mesh"), .rank = t->rank, .dim = dim };
    *out = xl_attr_sharding(m, s);
    return NULL;
}

static const xl_attr **attrs(xl_module *m, const xl_attr **have, uint32_t n)
{
    return have ? have : xl_new(&m->arena, const xl_attr *, n);
}

xl_error *xl_mesh_shard_arg(xl_module *m, xl_func *f, uint32_t arg, const xl_mesh_def *mesh, xl_str what, xl_str dims)
{
    const xl_attr *s;
    xl_error *err = xl_mesh_sharding(m, mesh, xl_value_type(f, f->body->arg[arg]), what, dims, &s);
    if (err)
        return err;
    f->arg_attr = attrs(m, f->arg_attr, f->body->narg);
    f->arg_attr[arg] = xl_dict_with(m, f->arg_attr[arg], XL_STR("sdy.sharding"), s);
    return NULL;
}

xl_error *xl_mesh_shard_result(xl_module *m, xl_func *f, uint32_t result, const xl_mesh_def *mesh, xl_str what, xl_str dims)
{
    const xl_op *end = xl_region_end(f->body);
    const xl_attr *s;
    xl_error *err = xl_mesh_sharding(m, mesh, xl_in_type(f, end, result), what, dims, &s);
    if (err)
        return err;
    f->res_attr = attrs(m, f->res_attr, end->nin);
    f->res_attr[result] = xl_dict_with(m, f->res_attr[result], XL_STR("sdy.sharding"), s);
    return NULL;
}
