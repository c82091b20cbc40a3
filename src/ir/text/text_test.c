#include <math.h>

#include "base/test.h"
#include "ir/compare/hash.h"
#include "ir/num.h"
#include "ir/text/print.h"
#include "ir/read.h"

static xl_error *read_text(const char *text, xl_module **m) { return xl_read_text(xl_str_of(text), NULL, m); }

/* Reads, prints, reads again: the same text and the same hash. */
static void round_trip(const char *text)
{
    xl_module *m = NULL, *n = NULL;
    xl_buf a = { 0 }, b = { 0 };
    CHECK_OK(read_text(text, &m));
    xl_print_module(m, &(xl_print_opts){ .locations = true }, &a);
    CHECK_OK(xl_read_text(xl_buf_view(&a), NULL, &n));
    xl_print_module(n, NULL, &b);
    a.n = 0;
    xl_print_module(m, NULL, &a);
    CHECK_STR(b.p, a.p);
    xl_digest x = xl_module_hash(m), y = xl_module_hash(n);
    CHECK(memcmp(&x, &y, sizeof x) == 0);
    xl_buf_fini(&a);
    xl_buf_fini(&b);
    xl_module_free(m);
    xl_module_free(n);
}

static void refuse(const char *text, const char *part)
{
    xl_module *m = NULL;
    CHECK_ERR(read_text(text, &m), part);
    CHECK(!m);
}

#define FUNC(body) "func.func @f(%a: tensor<4xf32>) -> tensor<4xf32> {\n" body "\n}\n"

TEST(pretty_and_generic_are_one_program)
{
    static const char *const form[] = {
        "func.func public @main(%x: tensor<2x3xf32>, %y: tensor<3x4xf32>) -> tensor<2x4xf32> {\n"
        "  %0 = stablehlo.dot_general %x, %y, contracting_dims = [1] x [0], precision = [DEFAULT, DEFAULT] : "
        "(tensor<2x3xf32>, tensor<3x4xf32>) -> tensor<2x4xf32>\n"
        "  // a comment\n  return %0 : tensor<2x4xf32>\n}",
        "\"builtin.module\"() ({\n"
        " \"func.func\"() <{function_type = (tensor<2x3xf32>, tensor<3x4xf32>) -> tensor<2x4xf32>, sym_name = "
        "\"main\"}> ({\n"
        "  ^bb0(%p: tensor<2x3xf32>, %q: tensor<3x4xf32>):\n"
        "  %r = \"stablehlo.dot_general\"(%p, %q) {dot_dimension_numbers = #stablehlo.dot<rhs_contracting_dimensions = "
        "[0],"
        " lhs_contracting_dimensions = [1]>, precision_config = []} : (tensor<2x3xf32>, tensor<3x4xf32>) -> "
        "tensor<2x4xf32>\n"
        "  \"func.return\"(%r) : (tensor<2x4xf32>) -> ()\n }) {sym_visibility = \"public\"} : () -> ()\n}) : () -> ()",
    };
    xl_digest d[2];
    for (int i = 0; i < 2; i++) {
        xl_module *m = NULL;
        CHECK_OK(read_text(form[i], &m));
        d[i] = xl_module_hash(m);
        xl_module_free(m);
        round_trip(form[i]);
    }
    CHECK(memcmp(&d[0], &d[1], sizeof d[0]) == 0);
}

TEST(types_of_all_kinds)
{
    round_trip("func.func @f(%a: tensor<?x4xf32, #stablehlo.bounds<3, ?>>, %t: !stablehlo.token, %u: tuple<tensor<i1>, "
               "tuple<>>, %c: tensor<0x3xcomplex<f64>>)"
               " -> tensor<?x4xf32, #stablehlo.bounds<3, ?>> {\n"
               " return %a : tensor<?x4xf32, #stablehlo.bounds<3, ?>>\n"
               "}");
    round_trip("!q = tensor<2x!quant.uniform<i8<-127:127>:f32:0, {0.5:1,2.5e-1}>>\n"
               "func.func private @g(!q, tensor<*xbf16>, memref<2xf8E4M3FN>)");
    round_trip("func.func private @g(tensor<2x!quant.uniform<u8:f32, 5.0e-01:3>>)");
    refuse("func.func private @g(tensor<2x!quant.uniform<i1:f32, 5.0e-01>>)", "integers");
}

TEST(resources_and_blobs)
{
    xl_module *m = NULL;
    CHECK_OK(read_text("module { func.func @f() {\n"
                       " %0 = stablehlo.constant dense_resource<k> : tensor<2xi16>\n"
                       " %1 = stablehlo.constant dense<\"0x01020304\"> : tensor<2xi16>\n"
                       " %2 = stablehlo.constant dense<\"0x05\"> : tensor<9xi1>\n return } }\n"
                       "{-# dialect_resources: { builtin: { k: \"0x0400000001020304\" } } #-}",
                       &m));
    xl_op **op = m->func[0]->body->op;
    CHECK(xl_attr_eq(op[0]->attr[0], op[1]->attr[0]));
    CHECK_INT(xl_dense_int(op[1]->attr[0], 1), 0x0403);
    CHECK(op[2]->attr[0]->splat && xl_dense_int(op[2]->attr[0], 8) == 1);
    xl_module_free(m);
}

TEST(locations_defined_after_use)
{
    xl_module *m = NULL;
    xl_str file;
    uint32_t line, col;
    CHECK_OK(read_text("module { func.func @f(%a: tensor<f32> loc(\"arg\")) { return loc(#l1) } loc(#l2) }\n"
                       "#l1 = loc(callsite(#l2 at unknown))\n"
                       "#l2 = loc(\"t.py\":41:3 to :9)",
                       &m));
    CHECK(xl_loc_line(m, m->func[0]->body->op[0]->loc, &file, &line, &col) && line == 41 && col == 3);
    CHECK(xl_str_is(xl_loc_label(m, m->func[0]->val[0].loc), "arg"));
    xl_module_free(m);
    refuse("module {} loc(#a)\n#a = loc(\"x\"(#b))\n#b = loc(\"y\"(#a))", "part of itself");
    refuse("module {} loc(#a)", "no alias");
}

TEST(shardings_are_read)
{
    xl_module *m = NULL;
    CHECK_OK(read_text("module { sdy.mesh @m = <[\"x\"=2, \"y\"=4]>\n"
                       " func.func @f(%a: tensor<4x8xf32> {sdy.sharding = #sdy.sharding<@m, [{\"x\", ?}p2, "
                       "{\"y\":(2)2}], replicated={\"y\":(1)2}>}) {\n"
                       " return } }",
                       &m));
    const xl_attr *a = xl_dict_get(m->func[0]->arg_attr[0], XL_STR("sdy.sharding"));
    CHECK(a && a->kind == XL_AT_SHARDING && a->sharding->rank == 2);
    CHECK(a->sharding->dim[0].open && a->sharding->dim[0].priority == 2 && !a->sharding->dim[1].open);
    CHECK(a->sharding->dim[1].axis[0].pre == 2 && a->sharding->nreplicated == 1);
    CHECK_INT(xl_module_mesh(m, XL_STR("m"))->axis[1].size, 4);
    xl_module_free(m);
}

TEST(channels_keep_only_their_id)
{
    xl_module *m = NULL;
    CHECK_OK(
        read_text(FUNC("%0 = \"stablehlo.collective_permute\"(%a) <{channel_handle = #stablehlo.channel_handle<handle "
                       "= 7, type = 1>, source_target_pairs = dense<[[0, 1]]> : tensor<1x2xi64>}>"
                       " : (tensor<4xf32>) -> tensor<4xf32>\nreturn %0 : tensor<4xf32>"),
                  &m));
    CHECK_INT(xl_op_int(m->func[0]->body->op[0], XL_SLOT(COLLECTIVE_PERMUTE, channel_id)), 7);
    CHECK_INT(xl_op_dims(m->func[0]->body->op[0], XL_SLOT(COLLECTIVE_PERMUTE, source_target_pairs)).p[1], 1);
    xl_module_free(m);
}

TEST(scopes_end_with_their_region)
{
    refuse(FUNC("%0 = \"x.y\"() ({ %1 = stablehlo.constant dense<1> : tensor<i32>\n"
                " \"x.z\"() : () -> () }) : () -> tensor<i32>\n"
                " \"x.z\"(%1) : (tensor<i32>) -> ()"),
           "%1 is used before");
    refuse(FUNC("return %b : tensor<4xf32>"), "line 2:8: return: %b is used before it is defined");
    refuse(FUNC("%0:2 = stablehlo.add %a, %a : tensor<4xf32>"), "2 results are named");
    refuse(FUNC("%0 = stablehlo.add %a, %a : tensor<5xf32>"), "another type");
}

TEST(hostile_input)
{
    refuse("", "no module");
    refuse("module {", "closing brace");
    refuse("module attributes {a = \"never closed} {}", "has no end");
    refuse("module attributes {a = \"\\q\"} {}", "escape");
    refuse("#a = #b\n#b = #a\nmodule {}", "no attribute alias");
    refuse("func.func @f() { return }\nfunc.func @f() { return }", "twice");
    refuse(FUNC("%0 = stablehlo.constant dense<[1, 2]> : tensor<1099511627776xi32>"), "fewer elements");
    refuse(FUNC("%0 = stablehlo.constant dense<[1, 2, 3]> : tensor<2xi32>"), "more elements");
    refuse(FUNC("%0 = stablehlo.constant dense<256> : tensor<2xi8>"), "does not fit");
    refuse(FUNC("%0 = stablehlo.constant dense<\"0x0102\"> : tensor<3xi8>"), "2 bytes");
    refuse(FUNC("%0 = arith.addf %a, %a : tensor<4xf32>"), "generic form");
    refuse(FUNC("%0 = stablehlo.constant dense<1> : tensor<99999999999999999999xi8>"), "64 bits");
    round_trip("func.func @f() -> tensor<1099511627776x1048576xi8> { %0 = stablehlo.constant dense<1> : "
               "tensor<1099511627776x1048576xi8>\n"
               " return %0 : tensor<1099511627776x1048576xi8> }");
    enum { DEEP = 100000 };
    static char text[3 * DEEP + 64];
    static const char *const open[] = { "[", "{a = ", "\"x\"() ({", "tuple<", "dense<[" };
    for (int k = 0; k < 5; k++) {
        size_t n = 0;
        n += (size_t)sprintf(text, "%s", k == 2 ? "func.func @f() {" : "module attributes {a = ");
        while (n + 16 < sizeof text)
            n += (size_t)sprintf(text + n, "%s", open[k]);
        xl_module *m = NULL;
        xl_error *e = read_text(text, &m);
        CHECK(e && !m);
        xl_error_free(e);
    }
    xl_module *m = NULL;
    xl_read_opts small = { .memory = 4096 };
    CHECK_ERR(xl_read_text(xl_str_of(FUNC("return %a : tensor<4xf32>")), &small, &m), "to be read");
}

TEST(numbers_round_once)
{
    static const struct { xl_dtype d; double v; uint64_t bits;
    } want[] = {
        { XL_F16, 65504, 0x7bff },    { XL_F16, 1e6, 0x7c00 },    { XL_F16, 6e-8, 1 },
        { XL_BF16, 1.0 / 3, 0x3eab }, { XL_F8E4M3FN, 448, 0x7e }, { XL_F8E4M3FN, 1e4, 0x7f },
        { XL_F8E5M2, -0.25, 0xb4 },   { XL_F8E4M3FNUZ, -0.0, 0 }, { XL_F4E2M1FN, 6, 7 },
        { XL_F8E8M0FNU, 2, 128 },
    };
    for (size_t i = 0; i < sizeof want / sizeof *want; i++)
        CHECK_INT(xl_num_round(want[i].d, want[i].v), want[i].bits);
    for (int d = XL_F4E2M1FN; d <= XL_F16; d++) /* every code of every narrow type comes back through its decimal */
        for (uint64_t u = 0; u < 1ull << xl_dtypes[d].bits; u++) {
            double v = xl_num_value((xl_dtype)d, u);
            if (!isfinite(v))
                continue;
            CHECK_INT(xl_num_round((xl_dtype)d, v), u);
        }
    for (uint64_t k = 0; k < 20000; k++) {
        uint64_t u = k * 0x9e3779b97f4a7c15ull;
        xl_buf b = { 0 };
        xl_num_print(XL_F64, u, &b);
        const char *p = b.p;
        double v;
        if (b.p[1] != 'x')
            CHECK(xl_num_scan(&p, &v) && xl_num_round(XL_F64, v) == u);
        xl_buf_fini(&b);
    }
}
