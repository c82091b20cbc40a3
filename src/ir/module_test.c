#include "base/test.h"
#include "ir/ir.h"

TEST(the_table_is_whole)
{
    for (int c = 0; c < XL_OP_COUNT - 1; c++) {
        CHECK_INT(xl_opcode_find(xl_str_of(xl_ops[c].text)), c);
        for (uint32_t i = 0; i < xl_op_nattr((xl_opcode)c); i++) {
            const char *name = xl_attr_rows[xl_ops[c].row0 + i].name;
            CHECK_INT(xl_slot_find((xl_opcode)c, xl_str_of(name)), i);
            if (i)                                         /* the order is that of the formats */
                CHECK(strcmp(xl_attr_rows[xl_ops[c].row0 + i - 1].name, name) < 0);
        }
    }
    CHECK_INT(xl_opcode_find(XL_STR("stablehlo.nothing")), XL_OP_UNKNOWN);
    CHECK_INT(XL_SLOT(DOT_GENERAL, rhs_precision_type), 11);
    CHECK_INT(xl_op_nattr(XL_OP_DOT_GENERAL), 12);
    CHECK_INT(xl_op_nattr(XL_OP_ADD), 0);
}

TEST(types_are_interned)
{
    xl_module *m = xl_module_new(), *n = xl_module_new();
    int64_t d[] = { 2, 3 };
    const xl_type *t = xl_type_tensor(m, XL_F32, (xl_dims){ d, 2 });
    CHECK(t == xl_type_tensor(m, XL_F32, (xl_dims){ d, 2 }));
    CHECK(t != xl_type_tensor(m, XL_BF16, (xl_dims){ d, 2 }));
    for (int64_t i = 0; i < 1000; i++)
        xl_type_tensor(m, XL_F32, (xl_dims){ &i, 1 });
    CHECK(t == xl_type_tensor(m, XL_F32, (xl_dims){ d, 2 }));
    CHECK(xl_type_eq(t, xl_type_tensor(n, XL_F32, (xl_dims){ d, 2 })));
    const xl_type *tup = xl_type_tuple(m, &t, 1);
    CHECK(xl_type_eq(tup, xl_type_intern(n, tup)));
    int64_t bytes;
    CHECK(xl_type_bytes(t, &bytes) && bytes == 24);
    int64_t huge[] = { INT64_C(1) << 40, INT64_C(1) << 40 };
    CHECK(!xl_type_bytes(xl_type_tensor(m, XL_F32, (xl_dims){ huge, 2 }), &bytes));
    xl_module_free(m);
    xl_module_free(n);
}

TEST(defaults_become_absent)
{
    xl_module *m = xl_module_new();
    xl_func *f = xl_func_new(m, XL_STR("main"));
    const xl_type *t = xl_type_scalar(m, XL_F32);
    xl_value a = xl_region_add_arg(f, f->body, t, (xl_loc){ 0 });
    xl_op *op = xl_op_new(f, f->body, XL_OP_DOT_GENERAL, (xl_value[]){ a, a }, 2, &t, 1, 0, (xl_loc){ 0 });
    const xl_attr *def = xl_attr_enum(m, XL_ENUM_PRECISION, XL_PRECISION_DEFAULT);
    xl_op_set(op, XL_SLOT(DOT_GENERAL, precision_config), xl_attr_array(m, (const xl_attr *const[]){ def, def }, 2));
    xl_op_set(op, XL_SLOT(DOT_GENERAL, accumulation_type),
              xl_attr_type(m, xl_type_intern(m, &(xl_type){ .kind = XL_TY_NONE })));
    xl_op_normalize(m, op);
    for (uint32_t i = 0; i < xl_op_nattr(XL_OP_DOT_GENERAL); i++)
        CHECK(!op->attr[i]);
    xl_module_free(m);
}

TEST(dictionaries_are_sorted)
{
    xl_module *m = xl_module_new();
    const xl_attr *v[] = { xl_attr_i64(m, 1), xl_attr_i64(m, 2), xl_attr_i64(m, 3) };
    const xl_attr *d = xl_attr_dict(m, (xl_str[]){ XL_STR("b"), XL_STR("a"), XL_STR("b") }, v, 3);
    CHECK_INT(d->n, 2);
    CHECK(xl_dict_get(d, XL_STR("b")) == v[2] && xl_dict_get(d, XL_STR("a")) == v[1] && xl_str_is(d->key[0], "a"));
    CHECK(xl_attr_eq(d, xl_attr_import(m, d)));
    CHECK(!xl_dict_with(m, xl_dict_with(m, d, XL_STR("a"), NULL), XL_STR("b"), NULL));
    xl_module_free(m);
}

TEST(lines_are_found)
{
    xl_module *m = xl_module_new();
    xl_loc inner = xl_loc_file(m, XL_STR("train.py"), 41, 3);
    xl_loc call =
        xl_loc_add(m, &(xl_loc_info){ .kind = XL_LOC_CALL, .a = xl_loc_name(m, XL_STR("f"), inner), .b = { 0 } });
    xl_loc named = xl_loc_name(m, XL_STR("jit(step)/dot"), call);
    xl_str file;
    uint32_t line, col;
    CHECK(xl_loc_line(m, named, &file, &line, &col) && line == 41 && xl_str_is(file, "train.py"));
    CHECK(xl_str_is(xl_loc_label(m, named), "jit(step)/dot"));
    CHECK(!xl_loc_line(m, (xl_loc){ 0 }, &file, &line, &col));
    xl_module_free(m);
}
