/* HLO protos made by hand: a small one, and what a hostile one might hold. Real programs are in test/hlo.py. */
#include "base/proto.h"
#include "base/test.h"
#include "ir/read.h"

static xl_buf shape(int type, const int64_t *dims, size_t n)
{
    xl_buf b = { 0 };
    xl_proto_put_int(&b, 2, type);
    for (size_t i = 0; i < n; i++)
        xl_proto_put_int(&b, 3, dims[i]);
    return b;
}

static void inst(xl_buf *comp, int64_t id, const char *opcode, xl_buf *type, const int64_t *operand, size_t n,
                 xl_buf *more)
{
    xl_buf b = { 0 };
    xl_proto_put_bytes(&b, 1, xl_str_of(opcode));
    xl_proto_put_bytes(&b, 2, xl_str_of(opcode));
    xl_proto_put_bytes(&b, 3, xl_buf_view(type));
    xl_proto_put_int(&b, 35, id);
    for (size_t i = 0; i < n; i++)
        xl_proto_put_int(&b, 36, operand[i]);
    if (more)
        xl_buf_str(&b, xl_buf_view(more));
    xl_proto_put_bytes(comp, 2, xl_buf_view(&b));
    xl_buf_fini(&b);
    xl_buf_fini(type);
    if (more)
        xl_buf_fini(more);
}

static void finish(xl_buf *out, xl_buf *comp, int64_t id, int64_t root, const char *name)
{
    xl_proto_put_bytes(comp, 1, xl_str_of(name));
    xl_proto_put_int(comp, 5, id);
    xl_proto_put_int(comp, 6, root);
    xl_proto_put_bytes(out, 3, xl_buf_view(comp));
    xl_buf_fini(comp);
}

static void begin(xl_buf *out)
{
    xl_proto_put_bytes(out, 1, XL_STR("m"));
    xl_proto_put_int(out, 6, 1);
}

enum { F32 = 11 };
static const int64_t eight[] = { 8 };

TEST(sum_of_two_parameters)
{
    xl_buf out = { 0 }, c = { 0 }, t, more = { 0 };
    xl_module *m;
    begin(&out);
    t = shape(F32, eight, 1);
    inst(&c, 1, "parameter", &t, NULL, 0, NULL);
    t = shape(F32, eight, 1);
    xl_proto_put_int(&more, 9, 1);
    inst(&c, 2, "parameter", &t, NULL, 0, &more);
    t = shape(F32, eight, 1);
    inst(&c, 3, "add", &t, (const int64_t[]){ 1, 2 }, 2, NULL);
    finish(&out, &c, 1, 3, "entry");
    CHECK_OK(xl_read(xl_buf_view(&out), NULL, &m));
    xl_func *f = xl_module_entry(m);
    CHECK(f && xl_str_is(f->name, "main"));
    CHECK_INT(f->type->nin, 2);
    CHECK_INT(f->body->nop, 2);
    CHECK_INT(f->body->op[0]->code, XL_OP_ADD);
    xl_module_free(m);
    for (size_t n = 0; n < out.n; n++) {
        char *copy = malloc(n + 1);
        memcpy(copy, out.p, n);
        xl_error *err = xl_read_hlo((xl_str){ copy, n }, NULL, &m);
        CHECK(err);
        xl_error_free(err);
        free(copy);
    }
    xl_buf_fini(&out);
}

static xl_error *one_inst(const char *opcode, xl_buf type, const int64_t *operand, size_t n, xl_buf more)
{
    xl_buf out = { 0 }, c = { 0 };
    xl_module *m;
    begin(&out);
    inst(&c, 1, opcode, &type, operand, n, &more);
    finish(&out, &c, 1, 1, "entry");
    xl_error *err = xl_read_hlo(xl_buf_view(&out), NULL, &m);
    xl_module_free(m);
    xl_buf_fini(&out);
    return err;
}

TEST(a_constant_too_large_for_its_bytes)
{
    const int64_t huge[] = { 1 << 20, 1 << 20 };
    xl_buf t = shape(F32, huge, 2), lit = { 0 }, more = { 0 };
    xl_proto_put_bytes(&lit, 8, XL_STR("\0\0\0\0"));
    xl_proto_put_bytes(&more, 8, xl_buf_view(&lit));
    xl_buf_fini(&lit);
    CHECK_ERR(one_inst("constant", t, NULL, 0, more), "a constant of 1099511627776 elements");
}

TEST(an_operand_that_is_itself)
{
    CHECK_ERR(one_inst("negate", shape(F32, eight, 1), (const int64_t[]){ 1 }, 1, (xl_buf){ 0 }), "comes after it");
    CHECK_ERR(one_inst("warp", shape(F32, eight, 1), NULL, 0, (xl_buf){ 0 }), "'warp' has no counterpart");
    CHECK_ERR(one_inst("negate", shape(77, eight, 1), NULL, 0, (xl_buf){ 0 }), "element type 77");
}

/* Each computation fuses the next twice: sixty of them would make 2^60 instructions. */
TEST(computations_that_unfold)
{
    for (int cycle = 0; cycle < 2; cycle++) {
        xl_buf out = { 0 }, c = { 0 }, t, more;
        xl_module *m;
        begin(&out);
        for (int64_t k = 1; k <= 60; k++) {
            for (int64_t i = 1; i <= 2; i++) {
                more = (xl_buf){ 0 };
                xl_proto_put_int(&more, 38, k < 60 ? k + 1 : 1);
                t = shape(F32, eight, 1);
                if (k < 60 || cycle)
                    inst(&c, i, "fusion", &t, NULL, 0, &more);
                else {
                    more.n = 0;
                    xl_proto_put_int(&more, 14, 0);
                    inst(&c, i, "iota", &t, NULL, 0, &more);
                }
            }
            finish(&out, &c, k, 2, "c");
        }
        xl_error *err = xl_read_hlo(xl_buf_view(&out), NULL, &m);
        CHECK_ERR(err, cycle ? "contains itself" : "unfold to more than");
        xl_buf_fini(&out);
    }
}
