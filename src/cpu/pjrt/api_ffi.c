/* Custom calls registered by a frontend through the FFI extension, and their data for one execution. */
#include <stdlib.h>

#include "cpu/pjrt/api.h"

PJRT_Error *xl_PJRT_ExecuteContext_Create(PJRT_ExecuteContext_Create_Args *args)
{
    args->context = calloc(1, sizeof *args->context);
    return args->context ? NULL : xl_api_fail(XL_CODE_EXHAUSTED, "no memory for an execute context");
}
PJRT_Error *xl_PJRT_ExecuteContext_Destroy(PJRT_ExecuteContext_Destroy_Args *args)
{
    free(args->context);
    return NULL;
}

static PJRT_Error *type_register(PJRT_FFI_Type_Register_Args *args)
{
    void (*deleter)(void *) = args->type_info ? args->type_info->deleter : NULL;
    return xl_api_error(xl_ffi_type((xl_str){ args->type_name, args->type_name_size }, &args->type_id, deleter));
}
/* The context is not used by an execution yet: nobody else looks. */
static PJRT_Error *user_data_add(PJRT_FFI_UserData_Add_Args *args)
{
    xl_ffi_context *c = &args->context->user;
    for (uint32_t i = 0; i < c->n; i++)
        if (c->item[i].type == args->user_data.type_id)
            return xl_api_fail(XL_CODE_EXISTS, "the execute context has data of this type already");
    if (c->n == sizeof c->item / sizeof *c->item)
        return xl_api_fail(XL_CODE_EXHAUSTED, "an execute context takes data of %u types", c->n);
    c->item[c->n].type = args->user_data.type_id;
    c->item[c->n++].data = args->user_data.data;
    return NULL;
}
static PJRT_Error *register_handler(PJRT_FFI_Register_Handler_Args *args)
{
    XLA_FFI_Handler_Bundle b = { .execute = (XLA_FFI_Handler *)(uintptr_t)args->handler };
    return xl_api_error(xl_ffi_register((xl_str){ args->target_name, args->target_name_size }, &b));
}

PJRT_FFI_Extension xl_ffi_extension = {
    .base = { PJRT_SIZE(PJRT_FFI_Extension, register_handler), PJRT_Extension_Type_FFI, NULL },
    .type_register = type_register,
    .user_data_add = user_data_add,
    .register_handler = register_handler,
};
