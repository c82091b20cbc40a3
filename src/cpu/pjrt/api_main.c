/* The table that GetPjrtApi returns. */
#include "cpu/pjrt/api.h"

__attribute__((visibility("default"))) const PJRT_Api *GetPjrtApi(void);

const PJRT_Api *GetPjrtApi(void)
{
    static PJRT_Api api = {
        .struct_size = sizeof(PJRT_Api),
        .extension_start = &xl_layouts_extension.base,
        .pjrt_api_version = { .struct_size = PJRT_SIZE(PJRT_Api_Version, minor_version),
                              .major_version = PJRT_API_MAJOR,
                              .minor_version = PJRT_API_MINOR },
#define API(ret, name, since) .name = xl_##name,
#include "pjrt/api.def"
    };
    xl_layouts_extension.base.next = &xl_memory_descriptions_extension.base;
    xl_memory_descriptions_extension.base.next = &xl_shardings_extension.base;
    xl_shardings_extension.base.next = &xl_ffi_extension.base;
    xl_ffi_extension.base.next = &xl_transform_extension.base;
    return &api;
}
