#include <stdlib.h>

#include "base/test.h"
#include "cpu/kernel/ffi.h"
#include "cpu/plan/lower.h"
#include "ir/read.h"

/* Handlers as users write them in C. A frame with the metadata extension asks a handler for the version it was compiled
 * for. */
static int version = XLA_FFI_API_MINOR;
static bool asked_version(XLA_FFI_CallFrame *f)
{
    if (!f->extension_start || f->extension_start->type != XLA_FFI_Extension_Metadata)
        return false;
    XLA_FFI_Metadata *m = ((XLA_FFI_Metadata_Extension *)(void *)f->extension_start)->metadata;
    m->api_version.minor_version = version;
    return true;
}
static XLA_FFI_Error *error(const XLA_FFI_CallFrame *f, int code, const char *text)
{
    XLA_FFI_Error_Create_Args a = { .struct_size = sizeof a, .message = text, .errc = code };
    return f->api->Error_Create(&a);
}
static const void *attr(const XLA_FFI_CallFrame *f, const char *name, int kind)
{
    for (int64_t i = 0; i < f->attrs.size; i++)
        if (xl_str_is((xl_str){ f->attrs.names[i]->ptr, f->attrs.names[i]->len }, name))
            return f->attrs.types[i] == kind ? f->attrs.attrs[i] : NULL;
    return NULL;
}

static XLA_FFI_Error *scale(XLA_FFI_CallFrame *f)
{
    if (asked_version(f))
        return NULL;
    const XLA_FFI_Scalar *by = attr(f, "by", XLA_FFI_AttrType_SCALAR);
    const XLA_FFI_Array *plus = attr(f, "plus", XLA_FFI_AttrType_ARRAY);
    const XLA_FFI_ByteSpan *name = attr(f, "name", XLA_FFI_AttrType_STRING);
    const XLA_FFI_Attrs *deep = attr(f, "deep", XLA_FFI_AttrType_DICTIONARY);
    if (!by || by->dtype != XLA_FFI_DataType_F32 || !plus || plus->dtype != XLA_FFI_DataType_S32 || plus->size != 2 ||
        !name || !xl_str_is((xl_str){ name->ptr, name->len }, "double") || !deep || deep->size != 1)
        return error(f, XL_CODE_INVALID, "not the attributes");
    const XLA_FFI_Buffer *x = f->args.args[0], *y = f->rets.rets[0];
    for (int64_t i = 0; i < x->dims[0]; i++)
        ((float *)y->data)[i] = *(const float *)by->value * ((const float *)x->data)[i] +
                                (float)((const int32_t *)plus->data)[1];
    return NULL;
}
static XLA_FFI_Error *refuse(XLA_FFI_CallFrame *f)
{
    return asked_version(f) ? NULL : error(f, XL_CODE_RANGE, "too many");
}
/* Twice its first row as it lies in memory, in the operand's own. */
static XLA_FFI_Error *first(XLA_FFI_CallFrame *f)
{
    if (asked_version(f))
        return NULL;
    const XLA_FFI_Buffer *x = f->args.args[0], *y = f->rets.rets[0];
    if (x->data != y->data)
        return error(f, XL_CODE_INVALID, "not the same memory");
    for (int64_t i = 0; i < y->dims[0]; i++)
        ((float *)y->data)[i] *= 2;
    return NULL;
}

static XLA_FFI_TypeId counter_id;
static int ended;
static void end(void *p) { free(p), ended++; }
static XLA_FFI_Error *start(XLA_FFI_CallFrame *f)
{
    int *n = malloc(sizeof *n);
    if (!n)
        return error(f, XL_CODE_EXHAUSTED, "no memory");
    *n = 41;
    XLA_FFI_State_Args a = { .struct_size = sizeof a,
                             .ctx = f->ctx,
                             .stage = XLA_FFI_ExecutionStage_INSTANTIATE,
                             .type_id = &counter_id,
                             .state = n };
    return f->api->State_Set(&a);
}
static XLA_FFI_Error *count(XLA_FFI_CallFrame *f)
{
    if (asked_version(f))
        return NULL;
    XLA_FFI_State_Args_Old old = { .struct_size = XLA_FFI_SIZE(XLA_FFI_State_Args_Old, state),
                                   .ctx = f->ctx,
                                   .type_id = &counter_id };  /* as version 0.2 asks */
    XLA_FFI_Error *e = f->api->State_Get((XLA_FFI_State_Args *)(void *)&old);
    XLA_FFI_InvokeContext_Get_Args user = { .struct_size = sizeof user,
                                            .ctx = f->ctx,
                                            .type_id = &(XLA_FFI_TypeId){ 7 } };
    if (!e && !(e = f->api->InvokeContext_Get(&user)))
        *(int32_t *)((const XLA_FFI_Buffer *)f->rets.rets[0])->data = ++*(int *)old.state + *(int *)user.data;
    return e;
}
static XLA_FFI_Error *later(XLA_FFI_CallFrame *f)
{
    if (asked_version(f))
        return NULL;
    XLA_FFI_Future_Create_Args made = { .struct_size = sizeof made };
    XLA_FFI_Error *e = f->api->Future_Create(&made);
    if (e)
        return e;
    XLA_FFI_Future_SetError_Args bad = { .struct_size = sizeof bad,
                                         .future = f->future = made.future,
                                         .error = error(f, XL_CODE_ABORTED, "later") };
    return f->api->Future_SetError(&bad);
}

static void put(const char *name, XLA_FFI_Handler *fn)
{
    CHECK_OK(xl_ffi_register(xl_str_of(name), &(XLA_FFI_Handler_Bundle){ .execute = fn }));
}
static void has(xl_error *err, const char *words)
{
    CHECK(err && strstr(xl_error_message(err), words));
    xl_error_free(err);
}
static xl_error *plan(const char *body, xl_plan **p)
{
    xl_buf text = { 0 };
    xl_module *m;
    xl_buf_printf(&text, "func.func public @main(%%a: tensor<2x3xf32>, %%b: tensor<3xf32>) -> %s }", body);
    CHECK_OK(xl_read_text(xl_buf_view(&text), NULL, &m));
    xl_buf_fini(&text);
    CHECK_OK(xl_lower(m, false));
    *p = NULL;
    xl_error *err = xl_plan_new(m, 1, p);
    if (err)
        xl_module_free(m);
    return err;
}
static _Alignas(64) float a[6] = { 1, 2, 3, 4, 5, 6 }, b[3] = { 7, 8, 9 }, y[6];
static xl_error *run(const xl_plan *p)
{
    _Alignas(64) static char temp[1 << 12];
    int n = 1000;
    xl_ffi_context context = { 1, { { 7, &n } } };
    xl_frame f = { .context = &context };
    CHECK(p->temp_bytes <= sizeof temp);
    return xl_plan_run(p, &f, (void *[]){ a, b }, (void *[]){ y }, temp);
}

TEST(a_call_gets_its_operands_and_attributes)
{
    xl_plan *p;
    put("test_scale", scale);
    CHECK_OK(plan("tensor<3xf32> { %0 = stablehlo.custom_call @test_scale(%b) {api_version = 4 : i32, backend_config = "
                  "{by = 2.0 : f32, deep = {x = 1 : i64}, name = \"double\", plus = dense<[1, -3]> : tensor<2xi32>}} : "
                  "(tensor<3xf32>) -> tensor<3xf32> return %0 : tensor<3xf32>",
                  &p));
    CHECK_OK(run(p));
    CHECK(y[0] == 11 && y[1] == 13 && y[2] == 15);
    xl_plan_free(p);
    CHECK_OK(plan("tensor<3xf32> { %0 = stablehlo.custom_call @test_scale(%b) {api_version = 4 : i32, backend_config = "
                  "{by = 2.0 : f64}} : (tensor<3xf32>) -> tensor<3xf32> return %0 : tensor<3xf32>",
                  &p));
    has(run(p), "custom call test_scale: not the attributes");
    xl_plan_free(p);
}

TEST(what_goes_wrong_is_an_error)
{
    xl_plan *p;
    put("test_refuse", refuse);
    put("test_refuse", refuse);
    has(xl_ffi_register(XL_STR("test_refuse"), &(XLA_FFI_Handler_Bundle){ .execute = later }), "registered already");
    has(xl_ffi_register(XL_STR("test_nothing"), &(XLA_FFI_Handler_Bundle){ 0 }), "no function to execute");
    version = XLA_FFI_API_MINOR + 1;
    has(xl_ffi_register(XL_STR("test_new"), &(XLA_FFI_Handler_Bundle){ .execute = refuse }),
        "was compiled for version");
    version = 1;
    put("test_later", later);
    version = XLA_FFI_API_MINOR;
    static const char *const cases[][2] = { { "test_refuse", "too many" }, { "test_later", "later" } };
    for (size_t i = 0; i < 2; i++) {
        char body[256];
        snprintf(body, sizeof body,
                 "tensor<3xf32> { %%0 = stablehlo.custom_call @%s(%%b) : (tensor<3xf32>) -> tensor<3xf32> return %%0 : "
                 "tensor<3xf32>",
                 cases[i][0]);
        CHECK_OK(plan(body, &p));
        has(run(p), cases[i][1]);
        xl_plan_free(p);
    }
    has(plan(
            "tensor<3xf32> { %0 = stablehlo.custom_call @test_refuse(%b) {backend_config = \"x\"} : (tensor<3xf32>) -> "
            "tensor<3xf32> return %0 : tensor<3xf32>",
            &p),
        "its configuration is a text");
    has(plan(
            "tensor<3xf32> { %0 = stablehlo.custom_call @test_refuse(%b) {api_version = 4 : i32, backend_config = {x = "
            "1 : i4}} : (tensor<3xf32>) -> tensor<3xf32> return %0 : tensor<3xf32>",
            &p),
        "does not know");
}

TEST(layouts_and_aliases)
{
    xl_plan *p;
    put("test_first", first);
    CHECK_OK(
        plan("tensor<2x3xf32> { %0 = stablehlo.custom_call @test_first(%a) {operand_layouts = [dense<[0, 1]> : "
             "tensor<2xindex>], result_layouts = [dense<[0, 1]> : tensor<2xindex>], output_operand_aliases = "
             "[#stablehlo.output_operand_alias<output_tuple_indices = [], operand_index = 0, operand_tuple_indices "
             "= []>]} : (tensor<2x3xf32>) -> tensor<2x3xf32> return %0 : tensor<2x3xf32>",
             &p));
    CHECK_OK(run(p));                                      /* by columns, the first two are those of the first column */
    CHECK(y[0] == 2 && y[1] == 2 && y[2] == 3 && y[3] == 8 && y[4] == 5 && y[5] == 6);
    CHECK(a[0] == 1 && a[3] == 4);
    xl_plan_free(p);
}

TEST(state_ends_with_its_plan)
{
    xl_plan *p;
    int64_t id = 0;
    CHECK_OK(xl_ffi_type(XL_STR("counter"), &counter_id.type_id, end));
    CHECK(counter_id.type_id);
    CHECK_OK(xl_ffi_type(XL_STR("counter"), &id, end));
    CHECK_INT(id, counter_id.type_id);
    has(xl_ffi_type(XL_STR("another"), &id, end), "another type");
    CHECK_OK(xl_ffi_register(XL_STR("test_count"),
                             &(XLA_FFI_Handler_Bundle){ .instantiate = start, .execute = count }));
    CHECK_OK(plan("tensor<i32> { %0 = stablehlo.custom_call @test_count() {has_side_effect = true} : () -> tensor<i32> "
                  "return %0 : tensor<i32>",
                  &p));
    CHECK_OK(run(p));
    CHECK_OK(run(p));
    CHECK_INT(*(const int32_t *)(const void *)y, 1043);
    CHECK_INT(ended, 0);
    xl_plan_free(p);
    CHECK_INT(ended, 1);
}
