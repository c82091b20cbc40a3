/* Each pass on small programs: the result must be the program written beside it. */
#include "base/test.h"
#include "ir/compare/hash.h"
#include "ir/read.h"
#include "ir/verify.h"
#include "pass/pass.h"

static xl_module *read_text(const char *text)
{
    xl_module *m = NULL;
    CHECK_OK(xl_read_text(xl_str_of(text), NULL, &m));
    CHECK_OK(xl_verify(m));
    return m;
}

/* After `passes`, `before` is the same program as `after`. */
static void becomes(const char *passes, const char *before, const char *after)
{
    xl_module *m = read_text(before), *want = read_text(after);
    CHECK_OK(xl_pipeline_run(m, &(xl_pipeline_opts){ .only = passes, .verify = true }));
    xl_digest a = xl_module_hash(m), b = xl_module_hash(want);
    if (!xl_digest_eq(&a, &b))
        FAIL("after %s this is not what was expected:\n%s", passes, before);
    xl_module_free(m);
    xl_module_free(want);
}

TEST(calls_are_inlined)
{
    becomes("inline",
            "func.func public @main(%a: tensor<4xf32>) -> tensor<4xf32> { %0 = call @f(%a) : (tensor<4xf32>) -> "
            "tensor<4xf32>\n"
            " %1 = call @f(%0) : (tensor<4xf32>) -> tensor<4xf32>\n return %1 : tensor<4xf32> }\n"
            "func.func private @f(%x: tensor<4xf32>) -> tensor<4xf32> { %0 = call @g(%x) : (tensor<4xf32>) -> "
            "tensor<4xf32>\n"
            " %1 = stablehlo.sine %0 : tensor<4xf32>\n"
            " return %1 : tensor<4xf32> }\n"
            "func.func private @g(%x: tensor<4xf32>) -> tensor<4xf32> { %1 = stablehlo.tanh %x : tensor<4xf32>\n"
            " return %1 : tensor<4xf32> }",
            "func.func public @main(%a: tensor<4xf32>) -> tensor<4xf32> { %0 = stablehlo.tanh %a : tensor<4xf32>\n"
            " %1 = stablehlo.sine %0 : tensor<4xf32>\n"
            " %2 = stablehlo.tanh %1 : tensor<4xf32>\n"
            " %3 = stablehlo.sine %2 : tensor<4xf32>\n"
            " return %3 : tensor<4xf32> }");
    becomes("inline", /* a result that is an argument */
            "func.func public @main(%a: tensor<f32>, %b: tensor<f32>) -> tensor<f32> { %0:2 = call @f(%a, %b) : "
            "(tensor<f32>, tensor<f32>) -> (tensor<f32>, tensor<f32>)\n"
            " %1 = stablehlo.subtract %0#0, %0#1 : tensor<f32>\n return %1 : tensor<f32> }\n"
            "func.func private @f(%x: tensor<f32>, %y: tensor<f32>) -> (tensor<f32>, tensor<f32>) { return %y, %x : "
            "tensor<f32>, tensor<f32> }",
            "func.func public @main(%a: tensor<f32>, %b: tensor<f32>) -> tensor<f32> { %1 = stablehlo.subtract %b, %a "
            ": tensor<f32>\n"
            " return %1 : tensor<f32> }");
}

TEST(calls_are_inlined_without_options)
{
    xl_module *m = read_text("func.func public @main(%a: tensor<f32>) -> tensor<f32> {\n"
                             " %0 = call @f(%a) : (tensor<f32>) -> tensor<f32>\n return %0 : tensor<f32> }\n"
                             "func.func private @f(%x: tensor<f32>) -> tensor<f32> {\n"
                             " %0 = stablehlo.tanh %x : tensor<f32>\n return %0 : tensor<f32> }");
    CHECK_OK(xl_pass_inline(m, NULL));
    CHECK(m->nfunc == 1 && m->func[0]->body->op[0]->code == XL_OP_TANH);
    xl_module_free(m);
}

TEST(calls_in_loops_are_inlined)
{
    becomes(
        "inline",
        "func.func public @main(%a: tensor<i32>) -> tensor<i32> { %0 = stablehlo.while(%i = %a) : tensor<i32> cond {\n"
        " %c = stablehlo.constant dense<9> : tensor<i32>\n"
        " %1 = stablehlo.compare LT, %i, %c : (tensor<i32>, tensor<i32>) -> tensor<i1>\n"
        " stablehlo.return %1 : tensor<i1>\n"
        "} do { %1 = func.call @f(%i) : (tensor<i32>) -> tensor<i32>\n"
        " stablehlo.return %1 : tensor<i32> }\n"
        " return %0 : tensor<i32> }\n"
        "func.func private @f(%x: tensor<i32>) -> tensor<i32> { %0 = stablehlo.add %x, %x : tensor<i32>\n"
        " return %0 : tensor<i32> }",
        "func.func public @main(%a: tensor<i32>) -> tensor<i32> { %0 = stablehlo.while(%i = %a) : tensor<i32> cond {\n"
        " %c = stablehlo.constant dense<9> : tensor<i32>\n"
        " %1 = stablehlo.compare LT, %i, %c : (tensor<i32>, tensor<i32>) -> tensor<i1>\n"
        " stablehlo.return %1 : tensor<i1>\n"
        "} do { %1 = stablehlo.add %i, %i : tensor<i32>\n"
        " stablehlo.return %1 : tensor<i32> }\n"
        " return %0 : tensor<i32> }");
}

TEST(composites_are_inlined_or_kept)
{
    const char *text =
        "func.func public @main(%a: tensor<f32>) -> tensor<f32> { %0 = stablehlo.composite \"my.twice\" %a "
        "{decomposition = @f} : (tensor<f32>) -> tensor<f32>\n"
        " return %0 : tensor<f32> }\n"
        "func.func private @f(%x: tensor<f32>) -> tensor<f32> { %0 = stablehlo.add %x, %x : tensor<f32>\n"
        " return %0 : tensor<f32> }";
    becomes("inline", text,
            "func.func public @main(%a: tensor<f32>) -> tensor<f32> { %0 = stablehlo.add %a, %a : tensor<f32>\n"
            " return %0 : tensor<f32> }");
}

TEST(calls_that_double_are_refused)
{
    xl_buf b = { 0 };
    xl_buf_puts(
        &b,
        "func.func public @main(%a: tensor<f32>) -> tensor<f32> { %0 = call @f0(%a) : (tensor<f32>) -> tensor<f32>\n"
        " return %0 : tensor<f32> }\n");
    for (int i = 0; i < 40; i++)
        xl_buf_printf(&b,
                      "func.func private @f%d(%%a: tensor<f32>) -> tensor<f32> { %%0 = call @f%d(%%a) : (tensor<f32>) "
                      "-> tensor<f32>\n"
                      " %%1 = call @f%d(%%0) : (tensor<f32>) -> tensor<f32>\n"
                      " return %%1 : tensor<f32> }\n",
                      i, i + 1, i + 1);
    xl_buf_puts(&b, "func.func private @f40(%a: tensor<f32>) -> tensor<f32> { %0 = stablehlo.sine %a : tensor<f32>\n"
                    " return %0 : tensor<f32> }\n");
    xl_module *m = read_text(b.p);
    CHECK_ERR(xl_pipeline_run(m, &(xl_pipeline_opts){ .only = "inline" }), "times as many is refused");
    xl_module_free(m);
    xl_buf_fini(&b);
}

TEST(what_nobody_reads_is_dropped)
{
    becomes("dce",
            "func.func public @main(%a: tensor<4xf32>) -> tensor<4xf32> { %0 = stablehlo.sine %a : tensor<4xf32>\n"
            " %1 = stablehlo.cosine %0 : tensor<4xf32>\n"
            " %2 = stablehlo.tanh %a : tensor<4xf32>\n return %2 : tensor<4xf32> }",
            "func.func public @main(%a: tensor<4xf32>) -> tensor<4xf32> { %2 = stablehlo.tanh %a : tensor<4xf32>\n"
            " return %2 : tensor<4xf32> }");
    const char *effect =
        "func.func public @main(%a: tensor<4xf32>) { %0 = stablehlo.sine %a : tensor<4xf32>\n"
        " stablehlo.custom_call @log(%0) {has_side_effect = true} : (tensor<4xf32>) -> ()\n return }";
    becomes("dce", effect, effect);
}

TEST(loops_carry_only_what_counts)
{
    becomes("dce",
            "func.func public @main(%a: tensor<i32>, %b: tensor<f32>) -> tensor<i32> { %s = stablehlo.sine %b : "
            "tensor<f32>\n"
            " %0:3 = stablehlo.while(%i = %a, %x = %s, %y = %b) : tensor<i32>, tensor<f32>, tensor<f32> cond {\n"
            " %c = stablehlo.constant dense<9> : tensor<i32>\n"
            " %1 = stablehlo.compare LT, %i, %c : (tensor<i32>, tensor<i32>) -> tensor<i1>\n"
            " stablehlo.return %1 : tensor<i1>\n"
            "} do { %1 = stablehlo.add %i, %i : tensor<i32>\n"
            " %2 = stablehlo.cosine %y : tensor<f32>\n"
            " stablehlo.return %1, %2, %y : tensor<i32>, tensor<f32>, tensor<f32> }\n"
            " return %0#0 : tensor<i32> }",
            "func.func public @main(%a: tensor<i32>, %b: tensor<f32>) -> tensor<i32> { %0 = stablehlo.while(%i = %a) : "
            "tensor<i32> cond {\n"
            " %c = stablehlo.constant dense<9> : tensor<i32>\n"
            " %1 = stablehlo.compare LT, %i, %c : (tensor<i32>, tensor<i32>) -> tensor<i1>\n"
            " stablehlo.return %1 : tensor<i1>\n"
            "} do { %1 = stablehlo.add %i, %i : tensor<i32>\n"
            " stablehlo.return %1 : tensor<i32> }\n"
            " return %0 : tensor<i32> }");
}

/* One function of 4xf32 arguments, and what is left of its body. */
#define FN(body)                                                                                                       \
    "func.func public @main(%a: tensor<4xf32>, %b: tensor<4xf32>, %i: tensor<4xi32>, %p: tensor<i1>) -> "              \
    "tensor<4xf32> {\n" body "\n}"

TEST(one_way_to_say_a_thing)
{
    becomes(
        "canonical",
        "func.func public @main(%a: tensor<2x3xf32>, %b: tensor<3xf32>) -> tensor<2xf32> { %0 = stablehlo.dot %a, %b : "
        "(tensor<2x3xf32>, tensor<3xf32>) -> tensor<2xf32>\n"
        " return %0 : tensor<2xf32> }",
        "func.func public @main(%a: tensor<2x3xf32>, %b: tensor<3xf32>) -> tensor<2xf32> { %0 = stablehlo.dot_general "
        "%a, %b, contracting_dims = [1] x [0] : (tensor<2x3xf32>, tensor<3xf32>) -> tensor<2xf32>\n"
        " return %0 : tensor<2xf32> }");
    becomes("canonical",
            "func.func public @main(%a: tensor<3xf32>) -> tensor<2x3xf32> { %0 = stablehlo.broadcast %a, sizes = [2] : "
            "(tensor<3xf32>) -> tensor<2x3xf32>\n"
            " return %0 : tensor<2x3xf32> }",
            "func.func public @main(%a: tensor<3xf32>) -> tensor<2x3xf32> { %0 = stablehlo.broadcast_in_dim %a, dims = "
            "[1] : (tensor<3xf32>) -> tensor<2x3xf32>\n"
            " return %0 : tensor<2x3xf32> }");
    becomes("canonical",
            FN("%c = stablehlo.constant dense<2.0> : tensor<4xf32>\n"
               " %0 = stablehlo.multiply %c, %a : tensor<4xf32>\n"
               " return %0 : tensor<4xf32>"),
            FN("%c = stablehlo.constant dense<2.0> : tensor<4xf32>\n"
               " %0 = stablehlo.multiply %a, %c : tensor<4xf32>\n"
               " return %0 : tensor<4xf32>"));
}

TEST(what_does_nothing_goes)
{
    const char *nothing[] = {
        "%c = stablehlo.constant dense<-0.0> : tensor<4xf32>\n %0 = stablehlo.add %a, %c : tensor<4xf32>",
        "%c = stablehlo.constant dense<0.0> : tensor<4xf32>\n %0 = stablehlo.subtract %a, %c : tensor<4xf32>",
        "%c = stablehlo.constant dense<1.0> : tensor<4xf32>\n %0 = stablehlo.multiply %a, %c : tensor<4xf32>",
        "%c = stablehlo.constant dense<1.0> : tensor<4xf32>\n %0 = stablehlo.divide %a, %c : tensor<4xf32>",
        "%1 = stablehlo.negate %a : tensor<4xf32>\n %0 = stablehlo.negate %1 : tensor<4xf32>",
        "%0 = stablehlo.maximum %a, %a : tensor<4xf32>",
        "%0 = stablehlo.select %p, %a, %a : tensor<i1>, tensor<4xf32>",
        "%c = stablehlo.constant dense<true> : tensor<i1>\n"
        " %0 = stablehlo.select %c, %a, %b : tensor<i1>, tensor<4xf32>",
        "%0 = stablehlo.convert %a : tensor<4xf32>",
        "%1 = stablehlo.convert %a : (tensor<4xf32>) -> tensor<4xf64>\n"
        " %0 = stablehlo.convert %1 : (tensor<4xf64>) -> tensor<4xf32>",
        "%0 = stablehlo.reshape %a : (tensor<4xf32>) -> tensor<4xf32>",
        "%1 = stablehlo.reshape %a : (tensor<4xf32>) -> tensor<2x2xf32>\n"
        " %0 = stablehlo.reshape %1 : (tensor<2x2xf32>) -> tensor<4xf32>",
        "%0 = stablehlo.transpose %a, dims = [0] : (tensor<4xf32>) -> tensor<4xf32>",
        "%0 = stablehlo.broadcast_in_dim %a, dims = [0] : (tensor<4xf32>) -> tensor<4xf32>",
        "%0 = stablehlo.slice %a [0:4] : (tensor<4xf32>) -> tensor<4xf32>",
        "%c = stablehlo.constant dense<3.0> : tensor<f32>\n"
        " %0 = stablehlo.pad %a, %c, low = [0], high = [0], interior = [0] : (tensor<4xf32>, tensor<f32>) -> "
        "tensor<4xf32>",
        "%0 = stablehlo.concatenate %a, dim = 0 : (tensor<4xf32>) -> tensor<4xf32>",
        "%1 = stablehlo.complex %a, %b : tensor<4xcomplex<f32>>\n"
        " %0 = stablehlo.real %1 : (tensor<4xcomplex<f32>>) -> tensor<4xf32>",
        "%1 = stablehlo.tuple %b, %a : tuple<tensor<4xf32>, tensor<4xf32>>\n"
        " %0 = stablehlo.get_tuple_element %1[1] : (tuple<tensor<4xf32>, tensor<4xf32>>) -> tensor<4xf32>",
        "%c = stablehlo.constant dense<true> : tensor<i1>\n"
        " %0 = \"stablehlo.if\"(%c) ({ stablehlo.return %a : tensor<4xf32> }, { stablehlo.return %b : tensor<4xf32> }) "
        ": (tensor<i1>) -> tensor<4xf32>",
    };
    for (size_t i = 0; i < sizeof nothing / sizeof *nothing; i++) {
        xl_buf b = { 0 };
        xl_buf_puts(&b, "func.func public @main(%a: tensor<4xf32>, %b: tensor<4xf32>, %i: tensor<4xi32>, %p: "
                        "tensor<i1>) -> tensor<4xf32> {\n");
        xl_buf_puts(&b, nothing[i]);
        xl_buf_puts(&b, "\n return %0 : tensor<4xf32>\n}");
        becomes("simplify,dce", b.p, FN("return %a : tensor<4xf32>"));
        xl_buf_fini(&b);
    }
}

TEST(what_only_seems_to_do_nothing_stays)
{
    const char *stay[] = {
        FN("%c = stablehlo.constant dense<0.0> : tensor<4xf32>\n"
           " %0 = stablehlo.add %a, %c : tensor<4xf32>\n"
           " return %0 : tensor<4xf32>"), /* -0 + 0 is 0 */
        FN("%c = stablehlo.constant dense<-0.0> : tensor<4xf32>\n"
           " %0 = stablehlo.subtract %a, %c : tensor<4xf32>\n"
           " return %0 : tensor<4xf32>"),
        FN("%c = stablehlo.constant dense<0.0> : tensor<4xf32>\n"
           " %0 = stablehlo.multiply %a, %c : tensor<4xf32>\n"
           " return %0 : tensor<4xf32>"), /* NaN */
        FN("%1 = stablehlo.convert %a : (tensor<4xf32>) -> tensor<4xbf16>\n"
           " %0 = stablehlo.convert %1 : (tensor<4xbf16>) -> tensor<4xf32>\n"
           " return %0 : tensor<4xf32>"),
        FN("%0 = stablehlo.subtract %a, %a : tensor<4xf32>\n return %0 : tensor<4xf32>"),
        FN("%c = stablehlo.constant dense<1.0> : tensor<f32>\n"
           " %0 = stablehlo.exponential %a : tensor<4xf32>\n"
           " %1 = stablehlo.exponential %c : tensor<f32>\n"
           " %2 = stablehlo.broadcast_in_dim %1, dims = [] : (tensor<f32>) -> tensor<4xf32>\n"
           " %3 = stablehlo.add %0, %2 : tensor<4xf32>\n"
           " return %3 : tensor<4xf32>"),
        FN("%c = stablehlo.constant dense<0.0> : tensor<f32>\n"
           " %1 = stablehlo.divide %c, %c : tensor<f32>\n" /* NaN's bits */
           " %2 = stablehlo.broadcast_in_dim %1, dims = [] : (tensor<f32>) -> tensor<4xf32>\n"
           " return %2 : tensor<4xf32>"),
    };
    for (size_t i = 0; i < sizeof stay / sizeof *stay; i++)
        becomes("simplify,fold,dce", stay[i], stay[i]);
}

TEST(two_make_one)
{
    becomes("simplify,dce",
            "func.func public @main(%a: tensor<2x3x4xf32>) -> tensor<4x2x3xf32> { %0 = stablehlo.transpose %a, dims = "
            "[2, 1, 0] : (tensor<2x3x4xf32>) -> tensor<4x3x2xf32>\n"
            " %1 = stablehlo.transpose %0, dims = [0, 2, 1] : (tensor<4x3x2xf32>) -> tensor<4x2x3xf32>\n"
            " return %1 : tensor<4x2x3xf32> }",
            "func.func public @main(%a: tensor<2x3x4xf32>) -> tensor<4x2x3xf32> { %1 = stablehlo.transpose %a, dims = "
            "[2, 0, 1] : (tensor<2x3x4xf32>) -> tensor<4x2x3xf32>\n"
            " return %1 : tensor<4x2x3xf32> }");
    becomes("simplify,dce",
            "func.func public @main(%a: tensor<f32>) -> tensor<2x3xf32> { %0 = stablehlo.broadcast_in_dim %a, dims = "
            "[] : (tensor<f32>) -> tensor<3xf32>\n"
            " %1 = stablehlo.broadcast_in_dim %0, dims = [1] : (tensor<3xf32>) -> tensor<2x3xf32>\n"
            " return %1 : tensor<2x3xf32> }",
            "func.func public @main(%a: tensor<f32>) -> tensor<2x3xf32> { %1 = stablehlo.broadcast_in_dim %a, dims = "
            "[] : (tensor<f32>) -> tensor<2x3xf32>\n"
            " return %1 : tensor<2x3xf32> }");
}

TEST(constants_are_folded)
{
    static const struct { const char *type, *ops, *value;
    } c[] = {
        { "i32",
          "%x = stablehlo.constant dense<7> : tensor<i32>\n"
          " %y = stablehlo.constant dense<-2> : tensor<i32>\n"
          " %0 = stablehlo.divide %x, %y : tensor<i32>",
          "-3" },
        { "i32",
          "%x = stablehlo.constant dense<-7> : tensor<i32>\n"
          " %y = stablehlo.constant dense<2> : tensor<i32>\n"
          " %0 = stablehlo.remainder %x, %y : tensor<i32>",
          "-1" },
        { "i8", "%x = stablehlo.constant dense<100> : tensor<i8>\n %0 = stablehlo.add %x, %x : tensor<i8>", "-56" },
        { "ui8",
          "%x = stablehlo.constant dense<200> : tensor<ui8>\n"
          " %y = stablehlo.constant dense<3> : tensor<ui8>\n"
          " %0 = stablehlo.shift_right_logical %x, %y : tensor<ui8>",
          "25" },
        { "f32",
          "%x = stablehlo.constant dense<0.1> : tensor<f32>\n"
          " %y = stablehlo.constant dense<0.2> : tensor<f32>\n"
          " %0 = stablehlo.add %x, %y : tensor<f32>",
          "0.3" },
        { "f32",
          "%x = stablehlo.constant dense<2.0> : tensor<f32>\n"
          " %0 = stablehlo.sqrt %x : tensor<f32>",
          "1.41421354" },
        { "bf16",
          "%x = stablehlo.constant dense<256.0> : tensor<bf16>\n"
          " %y = stablehlo.constant dense<1.0> : tensor<bf16>\n"
          " %0 = stablehlo.add %x, %y : tensor<bf16>",
          "256.0" },
        { "i1",
          "%x = stablehlo.constant dense<3> : tensor<i32>\n %y = stablehlo.constant dense<4> : tensor<i32>\n"
          " %0 = stablehlo.compare LT, %x, %y : (tensor<i32>, tensor<i32>) -> tensor<i1>",
          "true" },
        { "i1",
          "%x = stablehlo.constant dense<255> : tensor<ui8>\n %y = stablehlo.constant dense<1> : tensor<ui8>\n"
          " %0 = stablehlo.compare LT, %x, %y : (tensor<ui8>, tensor<ui8>) -> tensor<i1>",
          "false" },
        { "i32",
          "%x = stablehlo.constant dense<-2.9> : tensor<f32>\n"
          " %0 = stablehlo.convert %x : (tensor<f32>) -> tensor<i32>",
          "-2" },
        { "3xf32",
          "%x = stablehlo.constant dense<[1.0, 2.0, 3.0]> : tensor<3xf32>\n"
          " %y = stablehlo.constant dense<2.0> : tensor<3xf32>\n"
          " %0 = stablehlo.multiply %x, %y : tensor<3xf32>",
          "[2.0, 4.0, 6.0]" },
        { "2x3xi32",
          "%x = stablehlo.constant dense<5> : tensor<i32>\n"
          " %0 = stablehlo.broadcast_in_dim %x, dims = [] : (tensor<i32>) -> tensor<2x3xi32>",
          "5" },
        { "2x2xi32",
          "%x = stablehlo.constant dense<[1, 2, 3, 4]> : tensor<4xi32>\n"
          " %0 = stablehlo.reshape %x : (tensor<4xi32>) -> tensor<2x2xi32>",
          "[[1, 2], [3, 4]]" },
        { "2xi32",
          "%p = stablehlo.constant dense<[true, false]> : tensor<2xi1>\n"
          " %x = stablehlo.constant dense<1> : tensor<2xi32>\n"
          " %y = stablehlo.constant dense<2> : tensor<2xi32>\n"
          " %0 = stablehlo.select %p, %x, %y : tensor<2xi1>, tensor<2xi32>",
          "[1, 2]" },
    };
    for (size_t i = 0; i < sizeof c / sizeof *c; i++) {
        xl_buf a = { 0 }, b = { 0 };
        xl_buf_printf(&a, "func.func public @main() -> tensor<%s> { ", c[i].type);
        xl_buf_str(&b, xl_buf_view(&a));
        xl_buf_puts(&a, c[i].ops);
        xl_buf_printf(&a, "\n return %%0 : tensor<%s> }", c[i].type);
        xl_buf_printf(&b,
                      "%%0 = stablehlo.constant dense<%s> : tensor<%s>\n"
                      " return %%0 : tensor<%s> }",
                      c[i].value, c[i].type, c[i].type);
        becomes("fold,dce", a.p, b.p);
        xl_buf_fini(&a);
        xl_buf_fini(&b);
    }
}

TEST(what_is_done_twice_is_done_once)
{
    becomes("cse,dce",
            FN("%0 = stablehlo.add %a, %b : tensor<4xf32>\n"
               " %1 = stablehlo.add %b, %a : tensor<4xf32>\n"
               " %2 = stablehlo.subtract %0, %1 : tensor<4xf32>\n"
               " return %2 : tensor<4xf32>"),
            FN("%0 = stablehlo.add %a, %b : tensor<4xf32>\n"
               " %2 = stablehlo.subtract %0, %0 : tensor<4xf32>\n"
               " return %2 : tensor<4xf32>"));
    const char *apart = FN("%0 = stablehlo.subtract %a, %b : tensor<4xf32>\n"
                           " %1 = stablehlo.subtract %b, %a : tensor<4xf32>\n"
                           " %2 = stablehlo.add %0, %1 : tensor<4xf32>\n"
                           " return %2 : tensor<4xf32>");
    becomes("cse,dce", apart, apart);
#define RED(n, op)                                                                                                     \
    "%r" n " = stablehlo.reduce(%a init: %z) applies stablehlo." op                                                    \
    " across dimensions = [0] : (tensor<4xf32>, tensor<f32>) -> tensor<f32>\n"
    const char *head = "func.func public @main(%a: tensor<4xf32>, %z: tensor<f32>) -> tensor<f32> {\n";
    xl_buf two = { 0 }, one = { 0 }, differ = { 0 };
    xl_buf_printf(&two, "%s%s", head,
                  RED("0", "add") RED("1", "add") "%2 = stablehlo.subtract %r0, %r1 : tensor<f32>\n"
                                                  " return %2 : tensor<f32> }");
    xl_buf_printf(&one, "%s%s", head,
                  RED("0", "add") "%2 = stablehlo.subtract %r0, %r0 : tensor<f32>\n"
                                  " return %2 : tensor<f32> }");
    xl_buf_printf(&differ, "%s%s", head,
                  RED("0", "add") RED("1", "multiply") "%2 = stablehlo.subtract %r0, %r1 : tensor<f32>\n"
                                                       " return %2 : tensor<f32> }");
    becomes("cse,dce", two.p, one.p);
    becomes("cse,dce", differ.p, differ.p);
    xl_buf_fini(&two);
    xl_buf_fini(&one);
    xl_buf_fini(&differ);
}
