#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/test.h"
#include "cpu/plan/lower.h"
#include "cpu/plan/plan.h"
#include "ir/read.h"
#include "ir/text/print.h"

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
    xl_plan *p = plan_of("module { func.func private @f(%a: tensor<3xf32>) -> tensor<3xf32> { %0 = stablehlo.add %a, "
                         "%a : tensor<3xf32> return %0 : tensor<3xf32> }\n"
                         "func.func public @main(%a: tensor<3xf32>) -> tensor<3xf32> { %0 = call @f(%a) : "
                         "(tensor<3xf32>) -> tensor<3xf32>\n"
                         "%1 = call @f(%0) : (tensor<3xf32>) -> tensor<3xf32> return %1 : tensor<3xf32> } }");
    _Alignas(64) float x[3] = { 1, 2, 3 }, y[3];
    run(p, (void *[]){ x }, (void *[]){ y });
    CHECK(y[0] == 4 && y[1] == 8 && y[2] == 12);
    xl_plan_free(p);
}

TEST(a_loop_may_exchange_its_values)
{
    xl_plan *p =
        plan_of("func.func public @main(%a: tensor<2xi32>, %b: tensor<2xi32>) -> (tensor<2xi32>, tensor<2xi32>) {\n"
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
    xl_plan *p = plan_of("func.func public @main(%a: tensor<4xf32> {tf.aliasing_output = 0 : i32}, %b: tensor<4xf32>) "
                         "-> (tensor<4xf32>, tensor<4xf32>) {\n"
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
    xl_plan *p =
        plan_of("func.func public @main(%a: tensor<3xf32>) -> (tensor<3xf32>, tensor<2xf32>, tensor<2xi32>) {\n"
                "%0 = stablehlo.custom_call @mhlo.erf(%a) {mhlo.attributes = {}, mhlo.version = 1 : i64} : "
                "(tensor<3xf32>) -> tensor<3xf32>\n"
                "%1:2 = stablehlo.custom_call @mhlo.topk(%a) {mhlo.attributes = {k = 2 : i64, largest = true}} : "
                "(tensor<3xf32>) -> (tensor<2xf32>, tensor<2xi32>)\n"
                "return %0, %1#0, %1#1 : tensor<3xf32>, tensor<2xf32>, tensor<2xi32> }");
    _Alignas(64) float x[3] = { 0.5f, -2, 3 }, y[3], top[2];
    _Alignas(64) int32_t at[2];
    run(p, (void *[]){ x }, (void *[]){ y, top, at });
    CHECK(fabsf(y[0] - 0.5204999f) < 1e-6f && fabsf(y[1] + 0.9953223f) < 1e-6f);
    CHECK(top[0] == 3 && top[1] == 0.5f && at[0] == 2 && at[1] == 0);
    xl_plan_free(p);
}

/* How PyTorch/XLA asks for eigenvalues: as StableHLO the results are one tuple. The triangle that is not named holds
 * another matrix. */
TEST(eigh_reads_the_triangle_it_is_told)
{
    static const char *const config[] = { "1,1,100,0.000001", "0,1,100,0.000001" };
    for (int upper = 0; upper < 2; upper++) {
        char text[1024];
        snprintf(
            text, sizeof text,
            "func.func public @main(%%a: tensor<2x2xf32>) -> (tensor<2x2xf32>, tensor<2xf32>) {\n"
            "%%0 = stablehlo.custom_call @Eigh(%%a) {backend_config = \"%s\"} : (tensor<2x2xf32>) -> "
            "tuple<tensor<2x2xf32>, tensor<2xf32>>\n"
            "%%1 = stablehlo.get_tuple_element %%0[0] : (tuple<tensor<2x2xf32>, tensor<2xf32>>) -> tensor<2x2xf32>\n"
            "%%2 = stablehlo.get_tuple_element %%0[1] : (tuple<tensor<2x2xf32>, tensor<2xf32>>) -> tensor<2xf32>\n"
            "return %%1, %%2 : tensor<2x2xf32>, tensor<2xf32> }",
            config[upper]);
        xl_plan *p = plan_of(text);
        _Alignas(64) float a[4] = { 2, 3, 1, 2 }, v[4], w[2], b = upper ? 3 : 1;
        run(p, (void *[]){ a }, (void *[]){ v, w });
        CHECK(fabsf(w[0] - (2 - b)) < 1e-5f && fabsf(w[1] - (2 + b)) < 1e-5f);
        CHECK(fabsf(v[0] + v[2]) < 1e-5f && fabsf(v[1] - v[3]) < 1e-5f && fabsf(fabsf(v[0]) - 0.70710678f) < 1e-5f);
        xl_plan_free(p);
    }
}

/* A program of one custom call has no plan; the message names the call. */
static void refuse(const char *text, const char *why)
{
    xl_module *m;
    xl_plan *p;
    CHECK_OK(xl_read_text(xl_str_of(text), NULL, &m));
    CHECK_OK(xl_lower(m, false));
    CHECK_ERR(xl_plan_new(m, 1, &p), why);
    xl_module_free(m);
}

TEST(a_name_does_not_stand_for_other_types)
{
    refuse("func.func public @main(%a: tensor<4xf32>) -> tensor<9xf32> { %0 = stablehlo.custom_call @mhlo.erf(%a) : "
           "(tensor<4xf32>) -> tensor<9xf32> return %0 : tensor<9xf32> }", "mhlo.erf");
}

TEST(what_is_not_served_is_named)
{
    refuse("func.func public @main(%a: tensor<4xf32>) -> tensor<4xf32> { %0 = stablehlo.custom_call @nobody(%a) : "
           "(tensor<4xf32>) -> tensor<4xf32> return %0 : tensor<4xf32> }", "nobody");
}

static void line(xl_buf *b, const char *fmt, int i, int k) /* %1$d is i, %2$d is k */
{
    char s[512];
    snprintf(s, sizeof s, fmt, i, k);
    xl_buf_str(b, xl_str_of(s));
}

enum { MAT = 128 * 128 * 4 };                              /* bytes of the matrices below */
#define M "tensor<128x128xf32>"
#define DOT "contracting_dims = [1] x [0] : (" M ", " M ") -> " M "\n"

TEST(cheap_values_are_made_again_not_kept)
{
    xl_buf b = { 0 };
    enum { L = 8 };
    xl_buf_str(&b, XL_STR("func.func public @main(%x: " M ") -> " M " {\n%h0 = stablehlo.dot_general %x, %x, " DOT));
    for (int i = 0; i < L; i++) {                          /* forward: two cheap values of one product */
        line(&b, "%%a%1$d = stablehlo.add %%h%2$d, %%h%2$d : " M "\n", i, i);
        line(&b, "%%c%1$d = stablehlo.multiply %%a%2$d, %%h%2$d : " M "\n", i, i);
        line(&b, "%%h%2$d = stablehlo.dot_general %%c%1$d, %%x, " DOT, i, i + 1);
    }
    line(&b, "%%g%1$d = stablehlo.dot_general %%h%1$d, %%x, " DOT, L, 0);
    for (int i = L; i-- > 0; ) {                           /* backward: both are read, long after */
        line(&b, "%%s%1$d = stablehlo.dot_general %%g%2$d, %%x, " DOT, i, i + 1);
        line(&b, "%%t%1$d = stablehlo.multiply %%s%1$d, %%a%1$d : " M "\n", i, 0);
        line(&b, "%%g%1$d = stablehlo.subtract %%t%1$d, %%c%1$d : " M "\n", i, 0);
    }
    xl_buf_str(&b, XL_STR("return %g0 : " M " }"));
    xl_buf_str(&b, (xl_str){ "", 1 });
    xl_plan *p = plan_of(b.p);
    CHECK(p->temp_bytes <= (L + 4) * (size_t)MAT);         /* the products alone; with both kept it is twice that */
    xl_plan_free(p);
    xl_buf_fini(&b);
}

TEST(updates_run_when_their_gradient_is_there)
{
    xl_buf b = { 0 };
    enum { L = 6 };
    xl_buf_str(&b, XL_STR("func.func public @main(%x: " M));
    for (int i = 0; i < L; i++)
        line(&b, ", %%p%1$d: " M " {tf.aliasing_output = %1$d : i32}", i, 0);
    xl_buf_str(&b, XL_STR(") -> ("));
    for (int i = 0; i < L; i++)
        xl_buf_str(&b, i ? XL_STR(", " M) : XL_STR(M));
    xl_buf_str(&b, XL_STR(") {\n"));
    for (int i = 0; i < L; i++)
        line(&b, "%%g%1$d = stablehlo.dot_general %%p%1$d, %%x, " DOT, i, 0);
    for (int i = 0; i < L; i++)
        line(&b, "%%q%1$d = stablehlo.subtract %%p%1$d, %%g%1$d : " M "\n", i, 0);
    xl_buf_str(&b, XL_STR("return %q0"));
    for (int i = 1; i < L; i++)
        line(&b, ", %%q%1$d", i, 0);
    xl_buf_str(&b, XL_STR(" : " M));
    for (int i = 1; i < L; i++)
        xl_buf_str(&b, XL_STR(", " M));
    xl_buf_str(&b, XL_STR(" }"));
    xl_buf_str(&b, (xl_str){ "", 1 });
    xl_plan *p = plan_of(b.p);
    CHECK(p->temp_bytes <= 2 * (size_t)MAT);
    xl_plan_free(p);
    xl_buf_fini(&b);
}

TEST(a_loop_reads_and_writes_rows_where_they_lie)
{
    xl_plan *p =
        plan_of("func.func public @main(%xs: tensor<4x3xf32>) -> (tensor<4x3xf32>, tensor<3xf32>) {\n"
                "%c0 = stablehlo.constant dense<0> : tensor<i32>\n"
                "%z = stablehlo.constant dense<0.0> : tensor<4x3xf32>\n"
                "%s = stablehlo.constant dense<1.0> : tensor<3xf32>\n"
                "%r:4 = stablehlo.while(%i = %c0, %x = %xs, %ys = %z, %h = %s) : tensor<i32>, tensor<4x3xf32>, "
                "tensor<4x3xf32>, tensor<3xf32>\n"
                " cond { %n = stablehlo.constant dense<4> : tensor<i32>\n"
                "  %lt = stablehlo.compare LT, %i, %n, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>\n"
                "  stablehlo.return %lt : tensor<i1> }\n"
                " do { %one = stablehlo.constant dense<1> : tensor<i32>\n"
                "  %zero = stablehlo.constant dense<0> : tensor<i32>\n"
                "  %t = stablehlo.dynamic_slice %x, %i, %zero, sizes = [1, 3] : (tensor<4x3xf32>, tensor<i32>, "
                "tensor<i32>) -> tensor<1x3xf32>\n"
                "  %t1 = stablehlo.reshape %t : (tensor<1x3xf32>) -> tensor<3xf32>\n"
                "  %h1 = stablehlo.add %h, %t1 : tensor<3xf32>\n"
                "  %row = stablehlo.broadcast_in_dim %h1, dims = [1] : (tensor<3xf32>) -> tensor<1x3xf32>\n"
                "  %y1 = stablehlo.dynamic_update_slice %ys, %row, %i, %zero : (tensor<4x3xf32>, tensor<1x3xf32>, "
                "tensor<i32>, tensor<i32>) -> tensor<4x3xf32>\n"
                "  %j = stablehlo.add %i, %one : tensor<i32>\n"
                "  stablehlo.return %j, %x, %y1, %h1 : tensor<i32>, tensor<4x3xf32>, tensor<4x3xf32>, tensor<3xf32> }\n"
                "return %r#2, %r#3 : tensor<4x3xf32>, tensor<3xf32> }");
    _Alignas(64) float x[12] = { 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12 }, y[12], h[3];
    run(p, (void *[]){ x }, (void *[]){ y, h });
    CHECK(y[0] == 2 && y[5] == 10 && y[9] == 23 && y[11] == 31 && h[0] == 23 && h[2] == 31 && x[0] == 1 && x[11] == 12);
    uint32_t parts = 0;
    for (uint32_t i = 0; i < p->nbuf; i++)
        parts += p->buf[i].kind == XL_BUF_PART;
    CHECK(parts == 2);                                     /* the row read and the row written are pointers */
    xl_plan_free(p);
}

TEST(an_output_is_worked_in_before_it_is_written)
{
    xl_plan *p = plan_of("func.func public @main(%x: " M ") -> " M " {\n%a = stablehlo.dot_general %x, %x, " DOT
                         "%b = stablehlo.dot_general %a, %x, " DOT "%y = stablehlo.dot_general %b, %x, " DOT
                         "return %y : " M " }");
    CHECK(p->temp_bytes <= (size_t)MAT);                   /* %a lies where %y will */
    xl_plan_free(p);
}

/* As a frontend sends it: the region says what is done in which direction; the decomposition beside it need not be
 * right. */
TEST(a_scan_is_the_loop_of_its_region)
{
    const char *fmt =
        "func.func private @impl(%%a: tensor<2x3xf32>, %%b: tensor<2xf32>) -> (tensor<2x3xf32>, tensor<2xf32>) { "
        "return %%a, %%b : tensor<2x3xf32>, tensor<2xf32> }\n"
        "func.func public @main(%%a: tensor<2x3xf32>, %%b: tensor<2xf32>) -> (tensor<2x3xf32>, tensor<2xf32>) {\n"
        "%%0:2 = \"stablehlo.composite\"(%%a, %%b) <{composite_attributes = {dimension = 1 : i64, is_reverse = %s, "
        "operandSegmentSizes = array<i32: 1, 1>, "
        "resultSegmentSizes = array<i32: 1, 1>}, decomposition = @impl, name = \"chlo.scan\", version = 1 : i32}> ({\n"
        "^bb0(%%x: tensor<2xf32>, %%c: tensor<2xf32>):\n"
        "%%s = stablehlo.subtract %%x, %%c : tensor<2xf32>\n"
        "stablehlo.return %%s, %%s : tensor<2xf32>, tensor<2xf32> })\n"
        ": (tensor<2x3xf32>, tensor<2xf32>) -> (tensor<2x3xf32>, tensor<2xf32>)\n"
        "return %%0#0, %%0#1 : tensor<2x3xf32>, tensor<2xf32> }";
    _Alignas(64) float x[6] = { 1, 2, 3, 10, 20, 30 }, c[2] = { 1, 2 }, y[6], last[2];
    char text[2048];
    snprintf(text, sizeof text, fmt, "false");
    xl_plan *p = plan_of(text);
    run(p, (void *[]){ x, c }, (void *[]){ y, last });
    CHECK(y[0] == 0 && y[1] == 2 && y[2] == 1 && y[3] == 8 && y[4] == 12 && y[5] == 18 && last[0] == 1 &&
          last[1] == 18);
    xl_plan_free(p);
    snprintf(text, sizeof text, fmt, "true");
    p = plan_of(text);
    run(p, (void *[]){ x, c }, (void *[]){ y, last });
    CHECK(y[2] == 2 && y[1] == 0 && y[0] == 1 && y[5] == 28 && y[4] == -8 && y[3] == 18 && last[0] == 1 &&
          last[1] == 18);
    xl_plan_free(p);
}

TEST(the_imaginary_part_of_a_real_is_zero)
{
    xl_plan *p = plan_of("func.func public @main(%a: tensor<3xf32>) -> tensor<3xf32> { %0 = stablehlo.imag %a : "
                         "(tensor<3xf32>) -> tensor<3xf32> return %0 : tensor<3xf32> }");
    _Alignas(64) float x[3] = { NAN, INFINITY, 1 }, y[3];
    run(p, (void *[]){ x }, (void *[]){ y });
    CHECK(y[0] == 0 && y[1] == 0 && y[2] == 0);
    xl_plan_free(p);
}

/* JAX's asynchronous collectives are the collectives of their names; who waits for one has its result at once. */
TEST(collectives_that_are_started)
{
    static const struct { const char *name, *config, *out, *want; bool adds;
    } cases[] = {
        { "all-reduce", "\\22replica_groups\\22: [[0, 1]], \\22use_global_device_ids\\22: true, \\22channel_id\\22: 1",
          "4x6", "stablehlo.all_reduce", true },
        { "all-gather", "\\22all_gather_dimension\\22: 1, \\22replica_groups\\22: [[0, 1]], "
                        "\\22use_global_device_ids\\22: true, \\22channel_id\\22: 1",
          "4x12", "all_gather_dim = 1", false },
        { "reduce-scatter", "\\22scatter_dimension\\22: 1, \\22replica_groups\\22: [[0, 1]], \\22tiled\\22: true, "
                            "\\22use_global_device_ids\\22: true, \\22channel_id\\22: 1",
          "4x3", "scatter_dimension = 1", true },
        { "all-to-all", "\\22split_dimension\\22: 1, \\22concat_dimension\\22: 0, \\22split_count\\22: 2, "
                        "\\22replica_groups\\22: [[0, 1]], \\22channel_id\\22: 1",
          "8x3", "split_dimension = 1", false },
        { "collective-permute", "\\22permutation\\22: [[0, 1], [1, 0]], \\22channel_id\\22: 1", "4x6",
          "source_target_pairs = dense<[[0, 1], [1, 0]]>", false },
    };
    for (size_t i = 0; i <= sizeof cases / sizeof *cases; i++) {
        bool bad = i == sizeof cases / sizeof *cases;      /* once more, without what the op needs */
        size_t k = bad ? 1 : i;
        xl_buf b = { 0 }, text = { 0 };
        xl_module *m;
        xl_buf_printf(
            &b,
            "func.func private @add(%%a: tensor<f32>, %%b: tensor<f32>) -> tensor<f32> {\n"
            "  %%s = stablehlo.add %%a, %%b : tensor<f32>\n"
            "  return %%s : tensor<f32>\n}\n"
            "func.func public @main(%%x: tensor<4x6xf32>) -> tensor<%sxf32> {\n"
            "  %%0 = stablehlo.custom_call @\"%s-start\"(%%x) {backend_config = \"\", %s mhlo.frontend_attributes = "
            "{async_collective_config = \"{%s}\"}} : (tensor<4x6xf32>) -> tensor<%sxf32>\n"
            "  %%1 = stablehlo.custom_call @\"%s-done\"(%%0) {backend_config = \"\"} : (tensor<%sxf32>) -> "
            "tensor<%sxf32>\n"
            "  return %%1 : tensor<%sxf32>\n}\n",
            cases[k].out, cases[k].name, cases[k].adds ? "called_computations = [@add]," : "",
            bad ? "\\22all_gather_dimension\\22: 1" : cases[k].config, cases[k].out, cases[k].name, cases[k].out,
            cases[k].out, cases[k].out);
        CHECK_OK(xl_read_text(xl_buf_view(&b), NULL, &m));
        if (bad) {
            CHECK_ERR(xl_lower(m, true), "its async_collective_config has no replica_groups that can be read");
        } else {
            CHECK_OK(xl_lower(m, true));
            xl_print_module(m, &(xl_print_opts){ 0 }, &text);
            CHECK(strstr(text.p, cases[k].want) && !strstr(text.p, "custom_call"));
            CHECK(cases[k].adds == (strstr(text.p, "stablehlo.return") != NULL));
        }
        xl_buf_fini(&text);
        xl_buf_fini(&b);
        xl_module_free(m);
    }
}

/* tanh(x x') x for twelve matrices; turned: the last product takes those of tanh in another order. */
static void matrices(bool turned)
{
    enum { A = 3, B = 4, N = 40, ALL = A * B * N * N };
    char text[2048];
    snprintf(text, sizeof text,
             "func.func public @main(%%x: tensor<3x4x40x40xf32>) -> tensor<%sx40x40xf32> {\n"
             "%%0 = stablehlo.dot_general %%x, %%x, batching_dims = [0, 1] x [0, 1], contracting_dims = [3] x [3] : "
             "(tensor<3x4x40x40xf32>, tensor<3x4x40x40xf32>) -> tensor<3x4x40x40xf32>\n"
             "%%1 = stablehlo.tanh %%0 : tensor<3x4x40x40xf32>\n"
             "%%2 = stablehlo.dot_general %%1, %%x, batching_dims = [%s] x [%s], contracting_dims = [3] x [2] : "
             "(tensor<3x4x40x40xf32>, tensor<3x4x40x40xf32>) -> tensor<%sx40x40xf32>\n"
             "return %%2 : tensor<%sx40x40xf32> }",
             turned ? "4x3" : "3x4", turned ? "1, 0" : "0, 1", turned ? "1, 0" : "0, 1", turned ? "4x3" : "3x4",
             turned ? "4x3" : "3x4");
    xl_plan *p = plan_of(text);
    size_t steps = 0;
    for (uint32_t i = 0; i < p->body->nstep; i++)
        steps += strstr(p->body->step[i].name, turned ? "2 steps in 12 slices" : "3 steps in 12 slices") != NULL;
    CHECK_INT(steps, 1);
    float *x = xl_data_alloc(ALL * sizeof *x), *y = xl_data_alloc(2 * ALL * sizeof *y), *again = y + ALL;
    void *temp = xl_data_alloc(p->temp_bytes + 64);
    CHECK(x && y && temp);
    for (int i = 0; i < ALL; i++)
        x[i] = (float)((i * 7919) % 2011) * 1e-3f - 1;
    for (size_t threads = 1; threads <= 5; threads++) {    /* five and two thirds of their slices: step by step */
        xl_pool *pool = xl_pool_new(threads);
        xl_frame f = { .pool = pool };
        CHECK_OK(xl_plan_run(p, &f, (void *[]){ x }, (void *[]){ threads == 1 ? y : again }, temp));
        CHECK(threads == 1 || !memcmp(y, again, ALL * sizeof *y));
        xl_pool_free(pool);
    }
    double far = 0;
    for (int b = 0; b < A * B; b++)
        for (int i = 0; i < N; i += 13) {
            double row[N] = { 0 };
            const float *m = x + b * N * N;
            for (int k = 0; k < N; k++) {
                double t = 0;
                for (int j = 0; j < N; j++)
                    t += (double)m[i * N + j] * m[k * N + j];
                for (int j = 0; j < N; j++)
                    row[j] += tanh(t) * m[k * N + j];
            }
            int at = turned ? b % B * A + b / B : b;
            for (int j = 0; j < N; j++)
                far = fmax(far, fabs(row[j] - y[(at * N + i) * N + j]));
        }
    CHECK(far < 1e-4);
    free(x);
    free(y);
    free(temp);
    xl_plan_free(p);
}
TEST(members_of_a_batch_go_through_several_steps_together) { matrices(false); }
TEST(members_in_another_order_do_not) { matrices(true); }
