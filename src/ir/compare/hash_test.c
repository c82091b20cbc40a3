#include "base/test.h"
#include "ir/compare/hash.h"
#include "ir/read.h"

/* A small program with a call, a reduction and a mesh, in variants. */
typedef struct {
    const char *names, *mesh, *axis;
    bool swapped_funcs, unreachable, other_order, locations, donated, result_info;
    int64_t dim, direction;
    float constant;
    bool swapped_reduction;
} variant;

static const variant plain = {
    .names = "f", .mesh = "mesh", .axis = "x", .dim = 8, .direction = XL_COMPARISON_DIRECTION_LT, .constant = 1
};

static void helper(xl_module *m, const variant *v)
{
    const xl_type *s = xl_type_scalar(m, XL_F32);
    xl_func *f = xl_func_new(m, xl_str_of(v->names));
    f->visibility = XL_PRIVATE;
    xl_value a = xl_region_add_arg(f, f->body, s, (xl_loc){ 0 });
    xl_op *o = xl_op_new(f, f->body, XL_OP_NEGATE, &a, 1, &s, 1, 0, (xl_loc){ 0 });
    xl_op_new(f, f->body, XL_OP_RETURN, o->out, 1, NULL, 0, 0, (xl_loc){ 0 });
    xl_func_set_type(f);
}

static void entry(xl_module *m, const variant *v)
{
    xl_loc loc = v->locations ? xl_loc_file(m, XL_STR("train.py"), 41, 3) : (xl_loc){ 0 };
    const xl_type *t = xl_type_tensor(m, XL_F32, (xl_dims){ &v->dim, 1 }), *s = xl_type_scalar(m, XL_F32);
    const xl_type *p = xl_type_tensor(m, XL_I1, (xl_dims){ &v->dim, 1 });
    xl_func *f = xl_func_new(m, XL_STR("main"));
    xl_value a = xl_region_add_arg(f, f->body, t, loc), b = xl_region_add_arg(f, f->body, t, loc);
    xl_op *k = xl_op_new(f, f->body, XL_OP_CONSTANT, NULL, 0, &s, 1, 0, loc);
    k->attr[0] = xl_attr_dense(m, s, (xl_str){ (const char *)&v->constant, 4 });
    xl_op *x, *y;
    if (v->other_order) {
        y = xl_op_new(f, f->body, XL_OP_TANH, &b, 1, &t, 1, 0, loc);
        x = xl_op_new(f, f->body, XL_OP_SINE, &a, 1, &t, 1, 0, loc);
    } else {
        x = xl_op_new(f, f->body, XL_OP_SINE, &a, 1, &t, 1, 0, loc);
        y = xl_op_new(f, f->body, XL_OP_TANH, &b, 1, &t, 1, 0, loc);
    }
    xl_op *c = xl_op_new(f, f->body, XL_OP_COMPARE, (xl_value[]){ x->out[0], y->out[0] }, 2, &p, 1, 0, loc);
    xl_op_set(c, XL_SLOT(COMPARE, comparison_direction), xl_attr_enum(m, XL_ENUM_COMPARISON_DIRECTION, v->direction));
    xl_op *r = xl_op_new(f, f->body, XL_OP_REDUCE, (xl_value[]){ x->out[0], k->out[0] }, 2, &s, 1, 1, loc);
    xl_op_set(r, XL_SLOT(REDUCE, dimensions), xl_attr_dims(m, (xl_dims){ (int64_t[]){ 0 }, 1 }));
    xl_value ra = xl_region_add_arg(f, r->region[0], s, loc), rb = xl_region_add_arg(f, r->region[0], s, loc);
    xl_op *sub = xl_op_new(f, r->region[0], XL_OP_SUBTRACT,
                           v->swapped_reduction ? (xl_value[]){ rb, ra } : (xl_value[]){ ra, rb }, 2, &s, 1, 0, loc);
    xl_op_new(f, r->region[0], XL_OP_RETURN, sub->out, 1, NULL, 0, 0, loc);
    xl_op *call = xl_op_new(f, f->body, XL_OP_CALL, r->out, 1, &s, 1, 0, loc);
    xl_op_set(call, XL_SLOT(CALL, callee), xl_attr_sym(m, xl_str_of(v->names)));
    xl_op_new(f, f->body, XL_OP_RETURN, (xl_value[]){ c->out[0], call->out[0] }, 2, NULL, 0, 0, loc);
    xl_func_set_type(f);
    f->arg_attr = xl_new(&m->arena, const xl_attr *, 2);
    f->res_attr = xl_new(&m->arena, const xl_attr *, 2);
    xl_sharding *sh = xl_new(&m->arena, xl_sharding, 1);
    xl_dim_sharding *d = xl_new(&m->arena, xl_dim_sharding, 1);
    xl_axis_ref *ax = xl_new(&m->arena, xl_axis_ref, 1);
    *ax = (xl_axis_ref){ .name = xl_str_of(v->axis) };
    *d = (xl_dim_sharding){ .axis = ax, .naxis = 1, .priority = -1 };
    *sh = (xl_sharding){ .mesh = xl_str_of(v->mesh), .rank = 1, .dim = d };
    f->arg_attr[0] = xl_dict_with(m, NULL, XL_STR("sdy.sharding"), xl_attr_sharding(m, sh));
    if (v->donated)
        f->arg_attr[0] = xl_dict_with(m, f->arg_attr[0], XL_STR("jax.buffer_donor"), xl_attr_bool(m, true));
    if (v->result_info)
        f->res_attr[0] = xl_dict_with(m, NULL, XL_STR("jax.result_info"), xl_attr_str(m, XL_STR("result[0]")));
}

static xl_module *make(const variant *v)
{
    xl_module *m = xl_module_new();
    xl_mesh *mesh = xl_new(&m->arena, xl_mesh, 1);
    xl_mesh_axis *axis = xl_new(&m->arena, xl_mesh_axis, 1);
    *axis = (xl_mesh_axis){ xl_str_of(v->axis), 2 };
    *mesh = (xl_mesh){ .axis = axis, .naxis = 1 };
    XL_PUSH(&m->arena, m->mesh, m->nmesh, m->capmesh, ((xl_mesh_sym){ xl_str_of(v->mesh), mesh, { 0 } }));
    if (v->unreachable)
        helper(m, &(variant){ .names = "nobody" });
    if (v->swapped_funcs)
        helper(m, v);
    entry(m, v);
    if (!v->swapped_funcs)
        helper(m, v);
    return m;
}

static bool same(const variant *v)
{
    xl_module *a = make(&plain), *b = make(v);
    xl_digest x = xl_module_hash(a), y = xl_module_hash(b);
    xl_module_free(a);
    xl_module_free(b);
    return xl_digest_eq(&x, &y);
}

#define VARIANT(...)                                                                                                   \
    (&(variant){ .names = "f",                                                                                         \
                 .mesh = "mesh",                                                                                       \
                 .axis = "x",                                                                                          \
                 .dim = 8,                                                                                             \
                 .direction = XL_COMPARISON_DIRECTION_LT,                                                              \
                 .constant = 1,                                                                                        \
                 __VA_ARGS__ })

#pragma GCC diagnostic ignored "-Woverride-init"
TEST(what_does_not_count)
{
    CHECK(same(&plain));
    CHECK(same(VARIANT(.names = "another_name")));
    CHECK(same(VARIANT(.mesh = "empty_mesh")));
    CHECK(same(VARIANT(.swapped_funcs = true)));
    CHECK(same(VARIANT(.unreachable = true)));
    CHECK(same(VARIANT(.locations = true)));
    CHECK(same(VARIANT(.result_info = true)));
}

TEST(what_counts)
{
    CHECK(!same(VARIANT(.axis = "y")));
    CHECK(!same(VARIANT(.other_order = true)));
    CHECK(!same(VARIANT(.donated = true)));
    CHECK(!same(VARIANT(.dim = 9)));
    CHECK(!same(VARIANT(.direction = XL_COMPARISON_DIRECTION_LE)));
    CHECK(!same(VARIANT(.constant = 1.5f)));
    CHECK(!same(VARIANT(.swapped_reduction = true)));
}

TEST(ops_alike_have_one_number)
{
    xl_module *a = make(&plain), *b = make(VARIANT(.names = "g", .swapped_funcs = true, .locations = true)),
              *c = make(VARIANT(.swapped_reduction = true));
    xl_func *f = xl_module_entry(a), *g = xl_module_entry(b), *h = xl_module_entry(c);
    for (uint32_t i = 0; i < f->body->nop; i++) {
        CHECK(xl_op_hash(f, f->body->op[i]) == xl_op_hash(g, g->body->op[i]));
        bool reduce = f->body->op[i]->code == XL_OP_REDUCE;
        CHECK((xl_op_hash(f, f->body->op[i]) == xl_op_hash(h, h->body->op[i])) == !reduce);
    }
    xl_module_free(a);
    xl_module_free(b);
    xl_module_free(c);
}

static xl_digest of_text(const char *text)
{
    xl_module *m = NULL;
    CHECK_OK(xl_read_text(xl_str_of(text), NULL, &m));
    xl_digest d = xl_module_hash(m);
    xl_module_free(m);
    return d;
}

TEST(where_constants_stand_does_not_count)
{
#define MAIN(body) "func.func public @main(%a: tensor<f32>) -> tensor<f32> {\n" body "\n}"
    xl_digest a = of_text(MAIN("%0 = stablehlo.sine %a : tensor<f32>\n"
                               " %c = stablehlo.constant dense<2.0> : tensor<f32>\n"
                               " %1 = stablehlo.add %0, %c : tensor<f32>\n"
                               " %d = stablehlo.constant dense<2.0> : tensor<f32>\n"
                               " %2 = stablehlo.subtract %1, %d : tensor<f32>\n"
                               " return %2 : tensor<f32>"));
    xl_digest moved = of_text(MAIN("%c = stablehlo.constant dense<2.0> : tensor<f32>\n"
                                   " %0 = stablehlo.sine %a : tensor<f32>\n"
                                   " %1 = stablehlo.add %0, %c : tensor<f32>\n"
                                   " %2 = stablehlo.subtract %1, %c : tensor<f32>\n return %2 : tensor<f32>"));
    xl_digest other = of_text(MAIN("%c = stablehlo.constant dense<2.0> : tensor<f32>\n"
                                   " %d = stablehlo.constant dense<3.0> : tensor<f32>\n"
                                   " %0 = stablehlo.sine %a : tensor<f32>\n"
                                   " %1 = stablehlo.add %0, %c : tensor<f32>\n"
                                   " %2 = stablehlo.subtract %1, %d : tensor<f32>\n"
                                   " return %2 : tensor<f32>"));
    xl_digest swapped = of_text(MAIN("%c = stablehlo.constant dense<2.0> : tensor<f32>\n"
                                     " %d = stablehlo.constant dense<3.0> : tensor<f32>\n"
                                     " %0 = stablehlo.sine %a : tensor<f32>\n"
                                     " %1 = stablehlo.add %0, %d : tensor<f32>\n"
                                     " %2 = stablehlo.subtract %1, %c : tensor<f32>\n"
                                     " return %2 : tensor<f32>"));
    CHECK(xl_digest_eq(&a, &moved));
    CHECK(!xl_digest_eq(&a, &other));
    CHECK(!xl_digest_eq(&swapped, &other));
}
