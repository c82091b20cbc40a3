/* Which products go into their sums; and every way in which the kernels do it, bit for bit. */
#include "cpu/plan/contract.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/test.h"
#include "cpu/plan/lower.h"
#include "cpu/plan/plan.h"
#include "cpu/run/feature.h"
#include "ir/read.h"

static xl_module *read(const char *text)
{
    xl_module *m;
    CHECK_OK(xl_read_text(xl_str_of(text), NULL, &m));
    CHECK_OK(xl_lower(m, false));
    xl_contract(m);
    return m;
}

static uint32_t count(const xl_region *r, xl_opcode code)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < r->nop; i++) {
        n += r->op[i]->code == code;
        for (uint32_t k = 0; k < r->op[i]->nregion; k++)
            n += count(r->op[i]->region[k], code);
    }
    return n;
}

/* How many products go into sums in a program over x, y, z and w of `type` with these lines, which returns %r. */
static uint32_t fused(const char *type, const char *lines)
{
    char text[2048], t[32];
    (void)snprintf(t, sizeof t, "tensor<5x%s>", type);
    int n = snprintf(text, sizeof text,
                     "func.func public @main(%%x: %s, %%y: %s, %%z: %s, %%w: %s) -> %s {\n", t, t, t, t, t);
    for (; *lines; lines++)
        n += *lines == '\n' ? snprintf(text + n, sizeof text - (size_t)n, " : %s\n", t)
                            : snprintf(text + n, sizeof text - (size_t)n, "%c", *lines);
    (void)snprintf(text + n, sizeof text - (size_t)n, "return %%r : %s }", t);
    xl_module *m = read(text);
    uint32_t found = count(xl_module_entry(m)->body, XL_OP_PRODUCT_SUM);
    xl_module_free(m);
    return found;
}

/* The dimensions of the last sum of a program that makes sums of a 2x3x5x7, in their order; "" where it is another's.
 * */
static void summed(const char *lines, const char *want)
{
    char text[2048], got[64] = "";
    (void)snprintf(text, sizeof text, "func.func public @main(%%x: tensor<2x3x5x7xf32>) -> tensor<7xf32> {\n"
                                      "%%z = stablehlo.constant dense<0.0> : tensor<f32>\n%s"
                                      "return %%r : tensor<7xf32> }", lines);
    xl_module *m = read(text);
    xl_region *body = xl_module_entry(m)->body;
    const xl_op *r = body->op[body->nop - 2];
    xl_dims d = xl_op_dims(r, XL_SLOT(REDUCE, dimensions));
    for (size_t i = 0; r->in[0].id == body->arg[0].id && i < d.n; i++)
        (void)snprintf(got + strlen(got), sizeof got - strlen(got), "%d", (int)d.p[i]);
    CHECK_STR(got, want);
    xl_module_free(m);
}

TEST(a_sum_of_a_sum_is_one)
{
    summed("%s = stablehlo.reduce(%x init: %z) applies stablehlo.add across dimensions = [1] : "
           "(tensor<2x3x5x7xf32>, tensor<f32>) -> tensor<2x5x7xf32>\n"
           "%r = stablehlo.reduce(%s init: %z) applies stablehlo.add across dimensions = [0, 1] : "
           "(tensor<2x5x7xf32>, tensor<f32>) -> tensor<7xf32>\n", "012");
    summed("%s = stablehlo.reduce(%x init: %z) applies stablehlo.add across dimensions = [2] : "
           "(tensor<2x3x5x7xf32>, tensor<f32>) -> tensor<2x3x7xf32>\n"
           "%t = stablehlo.reduce(%s init: %z) applies stablehlo.add across dimensions = [0] : "
           "(tensor<2x3x7xf32>, tensor<f32>) -> tensor<3x7xf32>\n"
           "%r = stablehlo.reduce(%t init: %z) applies stablehlo.add across dimensions = [0] : "
           "(tensor<3x7xf32>, tensor<f32>) -> tensor<7xf32>\n", "012");
    /* dimensions of one element between them, as JAX's gradients have */
    summed("%s = stablehlo.reduce(%x init: %z) applies stablehlo.add across dimensions = [1] : "
           "(tensor<2x3x5x7xf32>, tensor<f32>) -> tensor<2x5x7xf32>\n"
           "%t = stablehlo.reshape %s : (tensor<2x5x7xf32>) -> tensor<2x1x5x7x1xf32>\n"
           "%r = stablehlo.reduce(%t init: %z) applies stablehlo.add across dimensions = [0, 1, 2, 4] : "
           "(tensor<2x1x5x7x1xf32>, tensor<f32>) -> tensor<7xf32>\n", "012");
    summed("%s = stablehlo.reduce(%x init: %z) applies stablehlo.add across dimensions = [1, 3] : "
           "(tensor<2x3x5x7xf32>, tensor<f32>) -> tensor<2x5xf32>\n"
           "%t = stablehlo.reshape %s : (tensor<2x5xf32>) -> tensor<10x1xf32>\n"
           "%u = stablehlo.reduce(%t init: %z) applies stablehlo.add across dimensions = [0, 1] : "
           "(tensor<10x1xf32>, tensor<f32>) -> tensor<f32>\n"
           "%r = stablehlo.broadcast_in_dim %u, dims = [] : (tensor<f32>) -> tensor<7xf32>\n", "");
    /* a maximum is no sum, and a sum from 1 counts it each time */
    summed("%s = stablehlo.reduce(%x init: %z) applies stablehlo.maximum across dimensions = [1] : "
           "(tensor<2x3x5x7xf32>, tensor<f32>) -> tensor<2x5x7xf32>\n"
           "%r = stablehlo.reduce(%s init: %z) applies stablehlo.add across dimensions = [0, 1] : "
           "(tensor<2x5x7xf32>, tensor<f32>) -> tensor<7xf32>\n", "");
    summed("%o = stablehlo.constant dense<1.0> : tensor<f32>\n"
           "%s = stablehlo.reduce(%x init: %o) applies stablehlo.add across dimensions = [1] : "
           "(tensor<2x3x5x7xf32>, tensor<f32>) -> tensor<2x5x7xf32>\n"
           "%r = stablehlo.reduce(%s init: %z) applies stablehlo.add across dimensions = [0, 1] : "
           "(tensor<2x5x7xf32>, tensor<f32>) -> tensor<7xf32>\n", "");
}

TEST(a_product_that_only_its_sum_reads)
{
    CHECK(fused("f32", "%p = stablehlo.multiply %x, %y\n%r = stablehlo.add %p, %z\n") == 1);
    CHECK(fused("f64", "%p = stablehlo.multiply %x, %y\n%r = stablehlo.subtract %z, %p\n") == 1);
    CHECK(fused("f32", "%p = stablehlo.multiply %x, %x\n%r = stablehlo.subtract %p, %x\n") == 1);
    /* of two products one, and one after the other */
    CHECK(fused("f32", "%p = stablehlo.multiply %x, %y\n%q = stablehlo.multiply %z, %w\n"
                       "%r = stablehlo.subtract %p, %q\n") == 1);
    CHECK(fused("f32", "%p = stablehlo.multiply %x, %y\n%q = stablehlo.add %p, %z\n%s = stablehlo.multiply %q, %x\n"
                       "%r = stablehlo.add %w, %s\n") == 2);
    /* the second one, if the first has another reader */
    CHECK(fused("f32", "%p = stablehlo.multiply %x, %y\n%q = stablehlo.multiply %z, %w\n%s = stablehlo.add %p, %q\n"
                       "%r = stablehlo.maximum %s, %p\n") == 1);
}

TEST(no_product_with_another_reader)
{
    CHECK(fused("f32", "%p = stablehlo.multiply %x, %y\n%s = stablehlo.add %p, %z\n%r = stablehlo.maximum %s, %p\n") ==
          0);
    CHECK(fused("f32", "%p = stablehlo.multiply %x, %y\n%s = stablehlo.add %p, %z\n%q = stablehlo.add %p, %w\n"
                       "%r = stablehlo.maximum %s, %q\n") == 0);
    CHECK(fused("f32", "%p = stablehlo.multiply %x, %y\n%r = stablehlo.add %p, %p\n") == 0);
}

TEST(no_product_less_itself)
{
    CHECK(fused("f32", "%p = stablehlo.multiply %x, %y\n%q = stablehlo.multiply %y, %x\n"
                       "%r = stablehlo.subtract %p, %q\n") == 0);
    CHECK(fused("f32", "%a = stablehlo.tanh %x\n%b = stablehlo.tanh %x\n%p = stablehlo.multiply %a, %y\n"
                       "%q = stablehlo.multiply %b, %y\n%r = stablehlo.subtract %p, %q\n") == 0);
    CHECK(fused("f32", "%a = stablehlo.tanh %x\n%b = stablehlo.tanh %z\n%p = stablehlo.multiply %a, %y\n"
                       "%q = stablehlo.multiply %b, %y\n%r = stablehlo.subtract %p, %q\n") == 1);
}

TEST(no_product_of_another_type)
{
    CHECK(fused("bf16", "%p = stablehlo.multiply %x, %y\n%r = stablehlo.add %p, %z\n") == 0);
    CHECK(fused("i32", "%p = stablehlo.multiply %x, %y\n%r = stablehlo.add %p, %z\n") == 0);
    CHECK(fused("complex<f32>", "%p = stablehlo.multiply %x, %y\n%r = stablehlo.add %p, %z\n") == 0);
}

/* In a loop: the product that it makes itself, and none from outside, which every round reads. */
TEST(products_of_a_loop)
{
    xl_module *m = read(
        "func.func public @main(%x: tensor<3xf32>) -> tensor<3xf32> {\n"
        "%p = stablehlo.multiply %x, %x : tensor<3xf32>\n%c0 = stablehlo.constant dense<0> : tensor<i32>\n"
        "%r:2 = stablehlo.while(%i = %c0, %y = %x) : tensor<i32>, tensor<3xf32>\n"
        " cond { %n = stablehlo.constant dense<3> : tensor<i32>\n"
        "  %lt = stablehlo.compare LT, %i, %n, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>\n"
        "  stablehlo.return %lt : tensor<i1> }\n"
        " do { %one = stablehlo.constant dense<1> : tensor<i32>\n  %j = stablehlo.add %i, %one : tensor<i32>\n"
        "  %s = stablehlo.add %y, %p : tensor<3xf32>\n  %q = stablehlo.multiply %s, %x : tensor<3xf32>\n"
        "  %t = stablehlo.subtract %q, %y : tensor<3xf32>\n"
        "  stablehlo.return %j, %t : tensor<i32>, tensor<3xf32> }\n"
        "return %r#1 : tensor<3xf32> }");
    CHECK(count(xl_module_entry(m)->body, XL_OP_MULTIPLY) == 1);
    CHECK(count(xl_module_entry(m)->body, XL_OP_PRODUCT_SUM) == 1);
    xl_module_free(m);
}

/* ---- the bits ---------------------------------------------------------------------------------------------------- */
/* ARRAY: an argument; MADE: the negative of one; ROW: a number for each row; NUMBER: one for all; FIRST: the first one
 * of the three. */
enum { ARRAY, MADE, ROW, NUMBER, FIRST, KINDS, ROWS_MAX = 4, COLS_MAX = 200, COUNT_MAX = ROWS_MAX * COLS_MAX };

static void *argument[3][3];                               /* array, rows, number; of x, y, z */
static double value(uint32_t k, int kind, size_t i, size_t cols, bool wide)
{
    int which = kind == ROW ? 1 : kind == NUMBER ? 2 : 0;
    size_t at = kind == ROW ? i / cols : kind == NUMBER ? 0 : i;
    double v = wide ? ((double *)argument[k][which])[at] : (double)((float *)argument[k][which])[at];
    return kind == MADE ? -v : v;
}

static void bits(const int *kind, xl_product_form form, int64_t rows, int64_t cols, bool wide, bool plain)
{
    static const char *const sum[] = { "stablehlo.add %p, %v2", "stablehlo.subtract %p, %v2",
                                       "stablehlo.subtract %v2, %p" };
    char text[4096], t[32], r[32], s[32];
    const char *e = wide ? "f64" : "f32";
    size_t n = 0, count = (size_t)(rows * cols);
    (void)snprintf(t, sizeof t, "tensor<%lldx%lldx%s>", (long long)rows, (long long)cols, e);
    (void)snprintf(r, sizeof r, "tensor<%lldx%s>", (long long)rows, e);
    (void)snprintf(s, sizeof s, "tensor<%s>", e);
#define ADD(...) n += (size_t)snprintf(text + n, sizeof text - n, __VA_ARGS__)
    ADD("func.func public @main(");
    for (int k = 0; k < 3; k++)
        ADD("%s%%a%d: %s, %%r%d: %s, %%s%d: %s", k ? ", " : "", k, t, k, r, k, s);
    ADD(") -> %s {\n", t);
    for (int k = 0; k < 3; k++) {
        if (kind[k] == ROW || kind[k] == NUMBER)
            ADD("%%v%d = stablehlo.broadcast_in_dim %%%s%d, dims = [%s] : (%s) -> %s\n", k, kind[k] == ROW ? "r" : "s",
                k, kind[k] == ROW ? "0" : "", kind[k] == ROW ? r : s, t);
        else if (kind[k] == MADE)
            ADD("%%v%d = stablehlo.negate %%a%d : %s\n", k, k, t);
        else
            ADD("%%z%d = stablehlo.constant dense<0.0> : %s\n%%v%d = stablehlo.reshape %%%s%d : (%s) -> %s\n", k, t, k,
                kind[k] == FIRST ? "v" : "a", kind[k] == FIRST ? 0 : k, t, t);
    }
    ADD("%%p = stablehlo.multiply %%v0, %%v1 : %s\n%%y = %s : %s\nreturn %%y : %s }", t, sum[form], t, t);
#undef ADD
    setenv("XLANE_CPU_PLAN", plain ? "plain" : "planned", 1);
    xl_module *m = read(text);
    xl_plan *p;
    CHECK_OK(xl_plan_new(m, 1, &p));
    _Alignas(64) static char temp[1 << 16], out[COUNT_MAX * sizeof(double)];
    CHECK(p->temp_bytes <= sizeof temp);
    void *arg[9];
    for (int k = 0; k < 9; k++)
        arg[k] = argument[k / 3][k % 3];
    xl_frame f = { 0 };
    CHECK_OK(xl_plan_run(p, &f, arg, (void *[]){ out }, temp));
    for (size_t i = 0; i < count; i++) {
        double v[3];
        for (uint32_t k = 0; k < 3; k++)
            v[k] = value(kind[k] == FIRST ? 0 : k, kind[k] == FIRST ? kind[0] : kind[k], i, (size_t)cols, wide);
        double x = form == XL_LESS_PRODUCT ? -v[0] : v[0], z = form == XL_PRODUCT_LESS ? -v[2] : v[2];
        double want = wide ? fma(x, v[1], z) : (double)fmaf((float)x, (float)v[1], (float)z);
        double got = wide ? ((double *)(void *)out)[i] : (double)((float *)(void *)out)[i];
        if (memcmp(&got, &want, sizeof got) != 0)
            FAIL("form %d of %d %d %d, %lldx%lld %s %s, element %zu: %a, not %a", (int)form, kind[0], kind[1], kind[2],
                 (long long)rows, (long long)cols, e, plain ? "plain" : "planned", i, got, want);
    }
    xl_plan_free(p);
    unsetenv("XLANE_CPU_PLAN");
}

static void all(bool plain, bool every)
{
    static const int64_t size[][2] = { { 1, 1 }, { 2, 3 }, { 4, 200 } };
    for (int w = 0; w < 2; w++) {
        for (int k = 0; k < 9; k++) {
            argument[k / 3][k % 3] = aligned_alloc(64, COUNT_MAX * sizeof(double));
            for (size_t i = 0; i < COUNT_MAX; i++) {
                double v = sin((double)(i * 9 + (size_t)k + 1)) * (k % 2 ? 3 : 0.7);
                if (w)
                    ((double *)argument[k / 3][k % 3])[i] = v;
                else
                    ((float *)argument[k / 3][k % 3])[i] = (float)v;
            }
        }
        for (int c = 0; c < KINDS * KINDS * KINDS * XL_PRODUCT_FORMS; c++) {
            int kind[3] = { c % KINDS, c / KINDS % KINDS, c / KINDS / KINDS % KINDS };
            if (kind[0] == FIRST || (!every && c % 7))
                continue;
            for (size_t s = 0; s < sizeof size / sizeof *size; s++)
                bits(kind, (xl_product_form)(c / (KINDS * KINDS * KINDS)), size[s][0], size[s][1], w, plain);
        }
        for (int k = 0; k < 9; k++)
            free(argument[k / 3][k % 3]);
    }
}

TEST(every_form_rounds_once)
{
    static const uint32_t masks[] = { ~0u, ~(uint32_t)XL_CPU_AVX512, ~(uint32_t)(XL_CPU_AVX512 | XL_CPU_AVX2) };
    for (size_t i = 0; i < sizeof masks / sizeof *masks; i++) {
        xl_cpu_features_mask(masks[i]);
        all(false, true);
    }
    xl_cpu_features_mask(~0u);
    all(true, false);
}
