/* Each pass on small programs: what is left must be the program written beside it. */
#include "base/test.h"
#include "ir/hash.h"
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
        "func.func public @main(%a: tensor<4xf32>) -> tensor<4xf32> { %0 = call @f(%a) : (tensor<4xf32>) -> tensor<4xf32>\n"
        " %1 = call @f(%0) : (tensor<4xf32>) -> tensor<4xf32>\n return %1 : tensor<4xf32> }\n"
        "func.func private @f(%x: tensor<4xf32>) -> tensor<4xf32> { %0 = call @g(%x) : (tensor<4xf32>) -> tensor<4xf32>\n %1 = stablehlo.sine %0 : tensor<4xf32>\n"
        " return %1 : tensor<4xf32> }\n"
        "func.func private @g(%x: tensor<4xf32>) -> tensor<4xf32> { %1 = stablehlo.tanh %x : tensor<4xf32>\n return %1 : tensor<4xf32> }",
        "func.func public @main(%a: tensor<4xf32>) -> tensor<4xf32> { %0 = stablehlo.tanh %a : tensor<4xf32>\n %1 = stablehlo.sine %0 : tensor<4xf32>\n"
        " %2 = stablehlo.tanh %1 : tensor<4xf32>\n %3 = stablehlo.sine %2 : tensor<4xf32>\n return %3 : tensor<4xf32> }");
    becomes("inline",                                      /* a result that is an argument */
        "func.func public @main(%a: tensor<f32>, %b: tensor<f32>) -> tensor<f32> { %0:2 = call @f(%a, %b) : (tensor<f32>, tensor<f32>) -> (tensor<f32>, tensor<f32>)\n"
        " %1 = stablehlo.subtract %0#0, %0#1 : tensor<f32>\n return %1 : tensor<f32> }\n"
        "func.func private @f(%x: tensor<f32>, %y: tensor<f32>) -> (tensor<f32>, tensor<f32>) { return %y, %x : tensor<f32>, tensor<f32> }",
        "func.func public @main(%a: tensor<f32>, %b: tensor<f32>) -> tensor<f32> { %1 = stablehlo.subtract %b, %a : tensor<f32>\n return %1 : tensor<f32> }");
}

TEST(calls_in_loops_are_inlined)
{
    becomes("inline",
        "func.func public @main(%a: tensor<i32>) -> tensor<i32> { %0 = stablehlo.while(%i = %a) : tensor<i32> cond {\n"
        " %c = stablehlo.constant dense<9> : tensor<i32>\n %1 = stablehlo.compare LT, %i, %c : (tensor<i32>, tensor<i32>) -> tensor<i1>\n stablehlo.return %1 : tensor<i1>\n"
        "} do { %1 = func.call @f(%i) : (tensor<i32>) -> tensor<i32>\n stablehlo.return %1 : tensor<i32> }\n return %0 : tensor<i32> }\n"
        "func.func private @f(%x: tensor<i32>) -> tensor<i32> { %0 = stablehlo.add %x, %x : tensor<i32>\n return %0 : tensor<i32> }",
        "func.func public @main(%a: tensor<i32>) -> tensor<i32> { %0 = stablehlo.while(%i = %a) : tensor<i32> cond {\n"
        " %c = stablehlo.constant dense<9> : tensor<i32>\n %1 = stablehlo.compare LT, %i, %c : (tensor<i32>, tensor<i32>) -> tensor<i1>\n stablehlo.return %1 : tensor<i1>\n"
        "} do { %1 = stablehlo.add %i, %i : tensor<i32>\n stablehlo.return %1 : tensor<i32> }\n return %0 : tensor<i32> }");
}

TEST(composites_are_inlined_or_kept)
{
    const char *text =
        "func.func public @main(%a: tensor<f32>) -> tensor<f32> { %0 = stablehlo.composite \"my.twice\" %a {decomposition = @f} : (tensor<f32>) -> tensor<f32>\n return %0 : tensor<f32> }\n"
        "func.func private @f(%x: tensor<f32>) -> tensor<f32> { %0 = stablehlo.add %x, %x : tensor<f32>\n return %0 : tensor<f32> }";
    becomes("inline", text, "func.func public @main(%a: tensor<f32>) -> tensor<f32> { %0 = stablehlo.add %a, %a : tensor<f32>\n return %0 : tensor<f32> }");
}

TEST(calls_that_double_are_refused)
{
    xl_buf b = { 0 };
    xl_buf_puts(&b, "func.func public @main(%a: tensor<f32>) -> tensor<f32> { %0 = call @f0(%a) : (tensor<f32>) -> tensor<f32>\n return %0 : tensor<f32> }\n");
    for (int i = 0; i < 40; i++)
        xl_buf_printf(&b, "func.func private @f%d(%%a: tensor<f32>) -> tensor<f32> { %%0 = call @f%d(%%a) : (tensor<f32>) -> tensor<f32>\n"
                          " %%1 = call @f%d(%%0) : (tensor<f32>) -> tensor<f32>\n return %%1 : tensor<f32> }\n", i, i + 1, i + 1);
    xl_buf_puts(&b, "func.func private @f40(%a: tensor<f32>) -> tensor<f32> { %0 = stablehlo.sine %a : tensor<f32>\n return %0 : tensor<f32> }\n");
    xl_module *m = read_text(b.p);
    CHECK_ERR(xl_pipeline_run(m, &(xl_pipeline_opts){ .only = "inline" }), "ops once its calls are inlined");
    xl_module_free(m);
    xl_buf_fini(&b);
}

TEST(what_nobody_reads_is_dropped)
{
    becomes("dce",
        "func.func public @main(%a: tensor<4xf32>) -> tensor<4xf32> { %0 = stablehlo.sine %a : tensor<4xf32>\n %1 = stablehlo.cosine %0 : tensor<4xf32>\n"
        " %2 = stablehlo.tanh %a : tensor<4xf32>\n return %2 : tensor<4xf32> }",
        "func.func public @main(%a: tensor<4xf32>) -> tensor<4xf32> { %2 = stablehlo.tanh %a : tensor<4xf32>\n return %2 : tensor<4xf32> }");
    const char *effect =
        "func.func public @main(%a: tensor<4xf32>) { %0 = stablehlo.sine %a : tensor<4xf32>\n"
        " stablehlo.custom_call @log(%0) {has_side_effect = true} : (tensor<4xf32>) -> ()\n return }";
    becomes("dce", effect, effect);
}

TEST(loops_carry_only_what_counts)
{
    becomes("dce",
        "func.func public @main(%a: tensor<i32>, %b: tensor<f32>) -> tensor<i32> { %s = stablehlo.sine %b : tensor<f32>\n"
        " %0:3 = stablehlo.while(%i = %a, %x = %s, %y = %b) : tensor<i32>, tensor<f32>, tensor<f32> cond {\n"
        " %c = stablehlo.constant dense<9> : tensor<i32>\n %1 = stablehlo.compare LT, %i, %c : (tensor<i32>, tensor<i32>) -> tensor<i1>\n stablehlo.return %1 : tensor<i1>\n"
        "} do { %1 = stablehlo.add %i, %i : tensor<i32>\n %2 = stablehlo.cosine %y : tensor<f32>\n stablehlo.return %1, %2, %y : tensor<i32>, tensor<f32>, tensor<f32> }\n"
        " return %0#0 : tensor<i32> }",
        "func.func public @main(%a: tensor<i32>, %b: tensor<f32>) -> tensor<i32> { %0 = stablehlo.while(%i = %a) : tensor<i32> cond {\n"
        " %c = stablehlo.constant dense<9> : tensor<i32>\n %1 = stablehlo.compare LT, %i, %c : (tensor<i32>, tensor<i32>) -> tensor<i1>\n stablehlo.return %1 : tensor<i1>\n"
        "} do { %1 = stablehlo.add %i, %i : tensor<i32>\n stablehlo.return %1 : tensor<i32> }\n return %0 : tensor<i32> }");
}
