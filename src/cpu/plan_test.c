#include <math.h>

#include "base/test.h"
#include "cpu/lower.h"
#include "cpu/plan.h"
#include "ir/read.h"

static xl_plan *plan_of(const char *text)
{
    xl_module *m;
    xl_plan *p;
    CHECK_OK(xl_read_text(xl_str_of(text), NULL, &m));
    CHECK_OK(xl_lower(m, false));
    CHECK_OK(xl_plan_new(m, 1, &p));
    return p;
}
static void run(const xl_plan *p, void *const *arg, void *const *out)
{
    _Alignas(64) static char temp[1 << 16];
    xl_frame f = { 0 };
    CHECK(p->temp_bytes <= sizeof temp);
    CHECK_OK(xl_plan_run(p, &f, arg, out, temp));
}

TEST(calls_are_inlined)
{
    xl_plan *p = plan_of("module { func.func private @f(%a: tensor<3xf32>) -> tensor<3xf32> { %0 = stablehlo.add %a, %a : tensor<3xf32> return %0 : tensor<3xf32> }\n"
                         "func.func public @main(%a: tensor<3xf32>) -> tensor<3xf32> { %0 = call @f(%a) : (tensor<3xf32>) -> tensor<3xf32>\n"
                         "%1 = call @f(%0) : (tensor<3xf32>) -> tensor<3xf32> return %1 : tensor<3xf32> } }");
    _Alignas(64) float x[3] = { 1, 2, 3 }, y[3];
    run(p, (void *[]){ x }, (void *[]){ y });
    CHECK(y[0] == 4 && y[1] == 8 && y[2] == 12);
    xl_plan_free(p);
}

TEST(a_loop_may_exchange_its_values)
{
    xl_plan *p = plan_of("func.func public @main(%a: tensor<2xi32>, %b: tensor<2xi32>) -> (tensor<2xi32>, tensor<2xi32>) {\n"
                         "%c0 = stablehlo.constant dense<0> : tensor<i32>\n"
                         "%r:3 = stablehlo.while(%i = %c0, %x = %a, %y = %b) : tensor<i32>, tensor<2xi32>, tensor<2xi32>\n"
                         " cond { %n = stablehlo.constant dense<3> : tensor<i32>\n"
                         "  %lt = stablehlo.compare LT, %i, %n, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>\n"
                         "  stablehlo.return %lt : tensor<i1> }\n"
                         " do { %one = stablehlo.constant dense<1> : tensor<i32>\n"
                         "  %j = stablehlo.add %i, %one : tensor<i32>\n"
                         "  stablehlo.return %j, %y, %x : tensor<i32>, tensor<2xi32>, tensor<2xi32> }\n"
                         "return %r#1, %r#2 : tensor<2xi32>, tensor<2xi32> }");
    _Alignas(64) int32_t a[2] = { 1, 2 }, b[2] = { 3, 4 }, x[2], y[2];
    run(p, (void *[]){ a, b }, (void *[]){ x, y });
    CHECK(x[0] == 3 && x[1] == 4 && y[0] == 1 && y[1] == 2);
    CHECK(a[0] == 1 && b[0] == 3);                         /* arguments are never written */
    xl_plan_free(p);
}

TEST(a_donated_argument_is_updated_in_place)
{
    xl_plan *p = plan_of("func.func public @main(%a: tensor<4xf32> {tf.aliasing_output = 0 : i32}, %b: tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>) {\n"
                         "%0 = stablehlo.add %a, %b : tensor<4xf32>\n%1 = stablehlo.multiply %a, %b : tensor<4xf32>\n"
                         "return %0, %1 : tensor<4xf32>, tensor<4xf32> }");
    _Alignas(64) float a[4] = { 1, 2, 3, 4 }, b[4] = { 5, 6, 7, 8 }, y[4];
    CHECK_INT(p->out_donor[0], 0);
    run(p, (void *[]){ a, b }, (void *[]){ a, y });        /* the output is the argument's memory */
    CHECK(a[0] == 6 && a[3] == 12 && y[0] == 5 && y[3] == 32);
    xl_plan_free(p);
}

/* How XLA writes HLO's erf and topk as StableHLO, and so how PyTorch/XLA sends them. */
TEST(custom_calls_of_mhlo_are_the_ops_they_name)
{
    xl_plan *p = plan_of("func.func public @main(%a: tensor<3xf32>) -> (tensor<3xf32>, tensor<2xf32>, tensor<2xi32>) {\n"
                         "%0 = stablehlo.custom_call @mhlo.erf(%a) {mhlo.attributes = {}, mhlo.version = 1 : i64} : (tensor<3xf32>) -> tensor<3xf32>\n"
                         "%1:2 = stablehlo.custom_call @mhlo.topk(%a) {mhlo.attributes = {k = 2 : i64, largest = true}} : (tensor<3xf32>) -> (tensor<2xf32>, tensor<2xi32>)\n"
                         "return %0, %1#0, %1#1 : tensor<3xf32>, tensor<2xf32>, tensor<2xi32> }");
    _Alignas(64) float x[3] = { 0.5f, -2, 3 }, y[3], top[2];
    _Alignas(64) int32_t at[2];
    run(p, (void *[]){ x }, (void *[]){ y, top, at });
    CHECK(fabsf(y[0] - 0.5204999f) < 1e-6f && fabsf(y[1] + 0.9953223f) < 1e-6f);
    CHECK(top[0] == 3 && top[1] == 0.5f && at[0] == 2 && at[1] == 0);
    xl_plan_free(p);
}

TEST(a_name_does_not_stand_for_other_types)
{
    xl_module *m;
    xl_plan *p;
    CHECK_OK(xl_read_text(XL_STR("func.func public @main(%a: tensor<4xf32>) -> tensor<9xf32> { %0 = stablehlo.custom_call @mhlo.erf(%a) : (tensor<4xf32>) -> "
                                 "tensor<9xf32> return %0 : tensor<9xf32> }"), NULL, &m));
    CHECK_OK(xl_lower(m, false));
    CHECK_ERR(xl_plan_new(m, 1, &p), "mhlo.erf");
    xl_module_free(m);
}

TEST(what_is_not_served_is_named)
{
    xl_module *m;
    xl_plan *p;
    CHECK_OK(xl_read_text(XL_STR("func.func public @main(%a: tensor<4xf32>) -> tensor<4xf32> { %0 = stablehlo.custom_call @nobody(%a) : (tensor<4xf32>) -> "
                                 "tensor<4xf32> return %0 : tensor<4xf32> }"), NULL, &m));
    CHECK_OK(xl_lower(m, false));
    CHECK_ERR(xl_plan_new(m, 1, &p), "nobody");
    xl_module_free(m);
}
