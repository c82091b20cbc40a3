/* The checker finds plans that were changed after they were made, whatever was changed. */
#include "cpu/plan/check.h"

#include "base/test.h"
#include "cpu/plan/lower.h"
#include "ir/read.h"

/* A net with two products, a tanh, a loop that writes rows, a branch and a donated argument. */
static const char program[] =
    "func.func public @main(%x: tensor<32x64xf32>, %a: tensor<64x64xf32>, %w: tensor<64x64xf32> {tf.aliasing_output = "
    "0 : i32}) -> (tensor<64x64xf32>, tensor<4x64xf32>, tensor<32x64xf32>) {\n"
    "%h = stablehlo.dot_general %x, %a, contracting_dims = [1] x [0] : (tensor<32x64xf32>, tensor<64x64xf32>) -> "
    "tensor<32x64xf32>\n"
    "%t = stablehlo.tanh %h : tensor<32x64xf32>\n"
    "%y = stablehlo.dot_general %t, %w, contracting_dims = [1] x [0] : (tensor<32x64xf32>, tensor<64x64xf32>) -> "
    "tensor<32x64xf32>\n"
    "%d = stablehlo.subtract %y, %t : tensor<32x64xf32>\n"
    "%g = stablehlo.dot_general %t, %d, contracting_dims = [0] x [0] : (tensor<32x64xf32>, tensor<32x64xf32>) -> "
    "tensor<64x64xf32>\n"
    "%u = stablehlo.subtract %w, %g : tensor<64x64xf32>\n"
    "%z = stablehlo.constant dense<0.0> : tensor<4x64xf32>\n%c0 = stablehlo.constant dense<0> : tensor<i32>\n"
    "%r:2 = stablehlo.while(%i = %c0, %rows = %z) : tensor<i32>, tensor<4x64xf32>\n"
    " cond { %n = stablehlo.constant dense<4> : tensor<i32>\n"
    "  %lt = stablehlo.compare LT, %i, %n, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>\n"
    "  stablehlo.return %lt : tensor<i1> }\n"
    " do { %zero = stablehlo.constant dense<0> : tensor<i32>\n"
    "  %s = stablehlo.dynamic_slice %d, %i, %zero, sizes = [1, 64] : (tensor<32x64xf32>, tensor<i32>, tensor<i32>) -> "
    "tensor<1x64xf32>\n"
    "  %e = stablehlo.exponential %s : tensor<1x64xf32>\n"
    "  %next = stablehlo.dynamic_update_slice %rows, %e, %i, %zero : (tensor<4x64xf32>, tensor<1x64xf32>, tensor<i32>, "
    "tensor<i32>) -> tensor<4x64xf32>\n"
    "  %one = stablehlo.constant dense<1> : tensor<i32>\n  %j = stablehlo.add %i, %one : tensor<i32>\n"
    "  stablehlo.return %j, %next : tensor<i32>, tensor<4x64xf32> }\n"
    "%rev = stablehlo.reverse %d, dims = [0] : tensor<32x64xf32>\n"
    "%q = stablehlo.slice %r#1 [0:1, 0:1] : (tensor<4x64xf32>) -> tensor<1x1xf32>\n"
    "%q1 = stablehlo.reshape %q : (tensor<1x1xf32>) -> tensor<f32>\n"
    "%p = stablehlo.compare GT, %q1, %q1, FLOAT : (tensor<f32>, tensor<f32>) -> tensor<i1>\n"
    "%o = \"stablehlo.if\"(%p) ({ %k = stablehlo.add %rev, %t : tensor<32x64xf32>\n"
    " stablehlo.return %k : tensor<32x64xf32> }, {\n"
    " %k = stablehlo.reverse %rev, dims = [1] : tensor<32x64xf32>\n"
    " stablehlo.return %k : tensor<32x64xf32> }) : (tensor<i1>) -> tensor<32x64xf32>\n"
    "return %u, %r#1, %o : tensor<64x64xf32>, tensor<4x64xf32>, tensor<32x64xf32> }";

static uint32_t at, kind;                                  /* which of the changes, of which kind */
static bool changed;

/* The step numbered `at` of all blocks. */
static bool nth(xl_block *b, uint32_t *n, xl_step **s)
{
    for (uint32_t i = 0; i < b->nstep; i++) {
        if ((*n)++ == at) {
            *s = &b->step[i];
            return true;
        }
        for (uint32_t k = 0; b->step[i].sub && b->step[i].op && k < b->step[i].op->nregion; k++)
            if (nth(b->step[i].sub[k], n, s))
                return true;
    }
    return false;
}

static void change(xl_planner *p)
{
    xl_plan *pl = p->plan;
    uint32_t n = 0;
    xl_step *s = NULL;
    changed = false;
    if (kind == 0) {                                       /* two temporaries that lived apart lie in one place */
        uint32_t i = at / pl->nbuf, k = at % pl->nbuf;
        if (i >= pl->nbuf || i == k || pl->buf[i].kind != XL_BUF_TEMP || pl->buf[k].kind != XL_BUF_TEMP ||
            !pl->buf[i].bytes || !pl->buf[k].bytes || pl->buf[i].host || pl->buf[k].host)
            return;
        bool together = pl->buf[i].def <= pl->buf[k].end && pl->buf[k].def <= pl->buf[i].end &&
                        pl->buf[i].def <= pl->buf[i].end && pl->buf[k].def <= pl->buf[k].end;
        changed = together && (pl->buf[i].end > pl->buf[k].def && pl->buf[k].end > pl->buf[i].def);
        if (changed)
            pl->buf[i].offset = pl->buf[k].offset;
        return;
    }
    if (!nth(pl->body, &n, &s))
        return;
    if (kind == 1 && s->nin > 1 && s->buf[0] != s->buf[1] && pl->buf[s->buf[0]].bytes == pl->buf[s->buf[1]].bytes &&
        pl->buf[s->buf[0]].bytes > 4) { /* operands exchanged */
        uint32_t *b = (uint32_t *)(uintptr_t)s->buf, t = b[0];
        b[0] = b[1];
        b[1] = t;
        changed = true;
    }
    if (kind == 2 && s->nout && pl->buf[s->buf[s->nin]].kind != XL_BUF_PART) { /* nothing is done */
        changed = true;
        *s = (xl_step){ .name = s->name };
    }
    if (kind == 3 && s->nout && s->ops && s->nres) {       /* the result goes to an argument */
        ((uint32_t *)(uintptr_t)s->buf)[s->nin] = 0;
        changed = true;
    }
}

/* Both operands of the convolution are views of one argument. */
static const char twice[] =
    "func.func public @main(%a: tensor<256xf32>) -> tensor<1x16x13x13xf32> {\n"
    "%x = stablehlo.reshape %a : (tensor<256xf32>) -> tensor<1x1x16x16xf32>\n"
    "%k = stablehlo.reshape %a : (tensor<256xf32>) -> tensor<16x1x4x4xf32>\n"
    "%y = stablehlo.convolution(%x, %k) dim_numbers = [b, f, 0, 1]x[o, i, 0, 1]->[b, f, 0, 1], window = {}\n"
    "  {batch_group_count = 1 : i64, feature_group_count = 1 : i64}\n"
    "  : (tensor<1x1x16x16xf32>, tensor<16x1x4x4xf32>) -> tensor<1x16x13x13xf32>\n"
    "return %y : tensor<1x16x13x13xf32> }";

/* The group reads rows of the transposed copy, and its first column from the argument. */
static const char copied[] =
    "func.func public @main(%a: tensor<200x160xf32>) -> tensor<160xf32> {\n"
    "%t = stablehlo.transpose %a, dims = [1, 0] : (tensor<200x160xf32>) -> tensor<160x200xf32>\n"
    "%z = stablehlo.constant dense<0.0> : tensor<f32>\n"
    "%s = stablehlo.reduce(%t init: %z) applies stablehlo.add across dimensions = [1]\n"
    "  : (tensor<160x200xf32>, tensor<f32>) -> tensor<160xf32>\n"
    "%c = stablehlo.slice %t [0:160, 0:1] : (tensor<160x200xf32>) -> tensor<160x1xf32>\n"
    "%r = stablehlo.reshape %c : (tensor<160x1xf32>) -> tensor<160xf32>\n"
    "%y = stablehlo.subtract %s, %r : tensor<160xf32>\n"
    "return %y : tensor<160xf32> }";

/* Nothing but rounding errors are left of these sums, whose signs another order of terms changes. */
static const char signs[] =
    "func.func public @main(%x: tensor<128x300xf32>) -> tensor<128xf32> {\n"
    "%z = stablehlo.constant dense<0.0> : tensor<f32>\n%n = stablehlo.constant dense<3.3333334e-03> : tensor<128xf32>\n"
    "%m = stablehlo.negate %x : tensor<128x300xf32>\n"
    "%s = stablehlo.reduce(%m init: %z) applies stablehlo.add across dimensions = [1] : (tensor<128x300xf32>, "
    "tensor<f32>) -> tensor<128xf32>\n"
    "%a = stablehlo.multiply %s, %n : tensor<128xf32>\n"
    "%b = stablehlo.broadcast_in_dim %a, dims = [0] : (tensor<128xf32>) -> tensor<128x300xf32>\n"
    "%c = stablehlo.add %x, %b : tensor<128x300xf32>\n"
    "%d = stablehlo.reduce(%c init: %z) applies stablehlo.add across dimensions = [1] : (tensor<128x300xf32>, "
    "tensor<f32>) -> tensor<128xf32>\n"
    "%y = stablehlo.sign %d : tensor<128xf32>\n"
    "return %y : tensor<128xf32> }";

static xl_error *planned(const char *text)
{
    xl_module *m;
    xl_plan *p;
    CHECK_OK(xl_read_text(xl_str_of(text), NULL, &m));
    CHECK_OK(xl_lower(m, false));
    xl_error *err = xl_plan_new(m, 1, &p);
    if (err)
        xl_module_free(m);
    else
        xl_plan_free(p);
    return err;
}

TEST(a_plan_as_it_was_made)
{
    setenv("XLANE_CPU_CHECK", "1", 1);
    xl_check_hook = NULL;
    CHECK_OK(planned(program));
    CHECK_OK(planned(twice));
    CHECK_OK(planned(copied));
    CHECK_OK(planned(signs));
}

static void every(uint32_t k, uint32_t most, uint32_t step)
{
    uint32_t found = 0;
    setenv("XLANE_CPU_CHECK", "1", 1);
    xl_check_hook = change;
    for (kind = k, at = 0; at < most; at += step) {
        xl_error *err = planned(program);
        if (changed && (!err || !strstr(xl_error_message(err), "plan check")))
            FAIL("change %u of kind %u was not found: %s", at, kind, err ? xl_error_message(err) : "no error");
        if (!changed && err)
            FAIL("nothing was changed: %s", xl_error_message(err));
        found += changed;
        xl_error_free(err);
    }
    xl_check_hook = NULL;
    if (!found)
        FAIL("no change of kind %u was made", kind);
}
TEST(memory_used_twice) { every(0, 2000, (uint32_t)xl_test_amount(1, 1, 17)); }
TEST(operands_exchanged) { every(1, 60, (uint32_t)xl_test_amount(1, 1, 3)); }
TEST(steps_left_out) { every(2, 60, (uint32_t)xl_test_amount(1, 1, 3)); }
TEST(results_in_an_argument) { every(3, 60, (uint32_t)xl_test_amount(1, 1, 3)); }
