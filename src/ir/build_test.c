#include "base/test.h"

#include <math.h>

#include "ir/build.h"
#include "ir/scalar.h"
#include "ir/verify.h"

#define D(...) ((xl_dims){ (int64_t[]){ __VA_ARGS__ }, sizeof((int64_t[]){ __VA_ARGS__ }) / 8 })

TEST(a_small_network)
{
    xl_module *m = xl_module_new();
    xl_b b = xl_b_func(m, XL_STR("main"));
    xl_value x = xl_b_arg(&b, xl_type_tensor(m, XL_F32, D(8, 512))),
             w = xl_b_arg(&b, xl_type_tensor(m, XL_F32, D(512, 10)));
    xl_value y = xl_b_unary(&b, XL_OP_TANH, xl_b_matmul(&b, x, w));
    xl_value top = xl_b_max(&b, y, D(1));
    xl_value e =
        xl_b_unary(&b, XL_OP_EXPONENTIAL, xl_b_binary(&b, XL_OP_SUBTRACT, y, xl_b_broadcast(&b, top, D(8, 10), D(0))));
    xl_value loss = xl_b_sum(&b, xl_b_unary(&b, XL_OP_LOG, xl_b_sum(&b, e, D(1))), D(0));
    xl_value half = xl_b_convert(&b, loss, XL_BF16);
    xl_b_return(&b, &half, 1);
    CHECK_OK(xl_b_error(&b));
    CHECK_INT(xl_b_type(&b, y)->dims[1], 10);
    CHECK_INT(xl_b_type(&b, half)->rank, 0);
    CHECK_OK(xl_verify(m));
    xl_module_free(m);
}

TEST(the_first_mistake_sticks)
{
    xl_module *m = xl_module_new();
    xl_b b = xl_b_func(m, XL_STR("main"));
    b.loc = xl_loc_file(m, XL_STR("train.py"), 41, 1);
    xl_value x = xl_b_arg(&b, xl_type_tensor(m, XL_F32, D(8, 512))),
             w = xl_b_arg(&b, xl_type_tensor(m, XL_F32, D(511, 10)));
    xl_value y = xl_b_matmul(&b, x, w), z = xl_b_sum(&b, y, D(0, 1));
    xl_b_return(&b, &z, 1);
    CHECK_ERR(xl_b_error(&b),
              "stablehlo.dot_general: contracting sizes differ, 512 (lhs dim 1) and 511 (rhs dim 0) at train.py:41");
    xl_module_free(m);
}

TEST(loops_gathers_and_scatters)
{
    xl_module *m = xl_module_new();
    const xl_type *i32 = xl_type_scalar(m, XL_I32), *t = xl_type_tensor(m, XL_F32, D(100, 16)),
                  *ids = xl_type_tensor(m, XL_I32, D(4, 1));
    xl_b b = xl_b_func(m, XL_STR("main"));
    xl_value table = xl_b_arg(&b, t), index = xl_b_arg(&b, ids);
    xl_value rows = xl_b_gather(
        &b, table, index,
        &(xl_b_gather_dims){ .offset = D(1), .collapsed = D(0), .map = D(0), .sizes = D(1, 16), .vector_dim = 1 });
    CHECK_INT(xl_b_type(&b, rows)->dims[0], 4);
    xl_value back =
        xl_b_scatter(&b, table, index, rows,
                     &(xl_b_scatter_dims){ .window = D(1), .inserted = D(0), .map = D(0), .vector_dim = 1 }, XL_OP_ADD);
    xl_value zero = xl_b_scalar(&b, XL_I32, 0);
    xl_op *loop = xl_b_begin(&b, XL_OP_WHILE, (xl_value[]){ zero, back }, 2, NULL, 2, 2);
    CHECK(loop != NULL);
    xl_b cond = xl_b_region(&b, loop, 0), body = xl_b_region(&b, loop, 1);
    xl_value i = xl_b_arg(&cond, i32);
    xl_b_arg(&cond, t);
    xl_value go = xl_b_compare(&cond, XL_COMPARISON_DIRECTION_LT, i, xl_b_scalar(&cond, XL_I32, 10));
    xl_b_return(&cond, &go, 1);
    i = xl_b_arg(&body, i32);
    xl_value v = xl_b_arg(&body, t);
    xl_value next[] = { xl_b_binary(&body, XL_OP_ADD, i, xl_b_scalar(&body, XL_I32, 1)),
                        xl_b_binary(&body, XL_OP_ADD, v, v) };
    xl_b_return(&body, next, 2);
    CHECK(xl_b_end(&b, loop));
    xl_value cut = xl_b_dynamic_slice(&b, loop->out[1], (xl_value[]){ loop->out[0], zero }, D(2, 16));
    xl_value padded = xl_b_pad(&b, cut, xl_b_scalar(&b, XL_F32, 0), D(1, 0), D(1, 0), (xl_dims){ 0 });
    xl_value both[] = { padded, xl_b_slice(&b, back, D(0, 0), D(10, 16), D(3, 1)) };
    xl_value all = xl_b_concat(&b, both, 2, 0);
    CHECK_INT(xl_b_type(&b, all)->dims[0], 8);
    xl_b_return(&b, &all, 1);
    CHECK_OK(xl_b_error(&b));
    CHECK_OK(xl_verify(m));
    xl_module_free(m);
}

TEST(numbers_of_every_type)
{
    unsigned char p[16];
    for (int d = XL_DT_NONE + 1; d < XL_DT_COUNT; d++) {
        if (d == XL_TF32)
            continue;
        for (double v = 1; v <= 2; v++) {
            if (d == XL_I1 || ((d == XL_I2) && v == 2))
                continue;
            xl_scalar_put((xl_dtype)d, v, p);
            CHECK(xl_scalar_get((xl_dtype)d, p) == v);
        }
        if (xl_dtype_class((xl_dtype)d) == XL_CLASS_FLOAT && xl_dtypes[d].bits <= 16 && d != XL_F8E8M0FNU)
            for (uint32_t code = 0; code < 1u << xl_dtypes[d].bits; code++) { /* every code goes there and back */
                unsigned char q[2] = { (unsigned char)code, (unsigned char)(code >> 8) };
                double v = xl_scalar_get((xl_dtype)d, q);
                if (isnan(v))
                    continue;
                xl_scalar_put((xl_dtype)d, v, p);
                CHECK(p[0] == q[0] && (xl_dtypes[d].bits <= 8 || p[1] == q[1]));
            }
    }
    xl_scalar_put(XL_F8E4M3FN, 448, p);
    CHECK_INT(p[0], 0x7e);
    xl_scalar_put(XL_BF16, 3.0e38 * 2, p);
    CHECK(isinf(xl_scalar_get(XL_BF16, p)));
    xl_scalar_put(XL_I32, -INFINITY, p);
    CHECK(xl_scalar_get(XL_I32, p) == INT32_MIN);
    xl_scalar_put(XL_I8, 300, p);
    CHECK(xl_scalar_get(XL_I8, p) == 127);
}
