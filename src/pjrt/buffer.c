#include <stdlib.h>

#include "pjrt/call.h"
#include "pjrt/gate.h"
#include "pjrt/own.h"

static void destroy(const xl_client *c, PJRT_Buffer *handle)
{
    if (handle)
        PJRT_DESTROY(c->plugin, Buffer, buffer, handle);
}

xl_error *xl_buffer_own(const xl_client *c, PJRT_Buffer *handle, xl_buffer **out)
{
    xl_error *err = NULL;
    xl_buffer *b = *out = xl_plugin_gave(c->plugin, handle, "buffer", sizeof *b, &err);
    if (b)
        *b = (xl_buffer){ c, handle };
    else
        destroy(c, handle);
    return err;
}

void xl_buffer_free(xl_buffer *b)
{
    if (!b)
        return;
    destroy(b->client, b->handle);
    free(b);
}

xl_error *xl_buffer_from_host(const xl_device *d, xl_elem elem, xl_dims dims, const void *data,
                              const xl_host_opts *opts, xl_buffer **out)
{
    static const xl_host_opts plain = { XL_HOST_DURING_CALL, NULL, NULL, NULL, NULL };
    static const PJRT_HostBufferSemantics rules[] = {
        [XL_HOST_DURING_CALL] = PJRT_HostBufferSemantics_kImmutableOnlyDuringCall,
        [XL_HOST_UNTIL_DONE] = PJRT_HostBufferSemantics_kImmutableUntilTransferCompletes,
        [XL_HOST_ZERO_COPY] = PJRT_HostBufferSemantics_kImmutableZeroCopy,
    };
    xl_error *err = NULL;
    const xl_client *c = d->client;
    PJRT_Buffer_MemoryLayout layout = { .struct_size = sizeof layout };
    *out = NULL;
    if (!opts)
        opts = &plain;
    const xl_memory *memory = opts->memory ? opts->memory : d->memory;
    PJRT_Client_BufferFromHostBuffer_Args args = {
        .struct_size = sizeof args,
        .client = c->handle,
        .data = data,
        .type = (PJRT_Buffer_Type)elem,
        .dims = dims.p,
        .num_dims = dims.n,
        .byte_strides = opts->strides,
        .num_byte_strides = opts->strides ? dims.n : 0,
        .host_buffer_semantics = rules[opts->rule],
        .device = memory ? NULL : d->handle,
        .memory = memory ? memory->handle : NULL,
    };
    if (opts->minor_to_major) {
        layout.type = PJRT_Buffer_MemoryLayout_Type_Tiled;
        layout.tiled = (PJRT_Buffer_MemoryLayout_Tiled){ .struct_size = sizeof layout.tiled,
                                                         .minor_to_major = opts->minor_to_major,
                                                         .minor_to_major_size = dims.n };
        args.device_layout = &layout;
    }
    XL_DO(xl_gate_pass(XL_GATE_TENSOR, "putting a tensor on a device"));
    XL_DO(PJRT_CALL(c->plugin, PJRT_Client_BufferFromHostBuffer, &args));
    XL_DO(xl_buffer_own(c, args.buffer, out));
    /* DURING_CALL is over with the call, whatever the event says; for the others the caller keeps or waits. */
    if (opts->rule == XL_HOST_DURING_CALL && !opts->done) {
        xl_fence *e = NULL;
        XL_DO(xl_fence_own(c->plugin, args.done_with_host_buffer, &e));
        xl_fence_free(e);
    } else {
        XL_DO(xl_fence_settle(c->plugin, args.done_with_host_buffer, opts->done));
    }
out:
    if (err) {
        xl_buffer_free(*out);
        *out = NULL;
    }
    return err;
}

xl_error *xl_buffer_to_host(const xl_buffer *b, void *dst, size_t size, xl_fence **done)
{
    xl_error *err = NULL;
    const xl_plugin *p = b->client->plugin;
    xl_dims dims;
    xl_arena tmp = { 0 };
    XL_DO(xl_buffer_dims(b, &dims));
    int64_t *order = xl_new(&tmp, int64_t, dims.n);
    for (size_t i = 0; i < dims.n; i++)
        order[i] = (int64_t)(dims.n - 1 - i);
    PJRT_Buffer_MemoryLayout rows = { .struct_size = sizeof rows, .type = PJRT_Buffer_MemoryLayout_Type_Tiled };
    rows.tiled = (PJRT_Buffer_MemoryLayout_Tiled){ .struct_size = sizeof rows.tiled, .minor_to_major = order,
                                                   .minor_to_major_size = dims.n };
    PJRT_Buffer_ToHostBuffer_Args args = {
        .struct_size = sizeof args, .src = b->handle, .host_layout = &rows, .dst = dst, .dst_size = size
    };
    XL_DO(PJRT_CALL(p, PJRT_Buffer_ToHostBuffer, &args));
    err = xl_fence_settle(p, args.event, done);
out:
    xl_arena_fini(&tmp);
    return err;
}

xl_error *xl_buffer_elem(const xl_buffer *b, xl_elem *out)
{
    PJRT_Buffer_ElementType_Args args = { .struct_size = sizeof args, .buffer = b->handle };
    xl_error *err = PJRT_CALL(b->client->plugin, PJRT_Buffer_ElementType, &args);
    *out = err ? XL_ELEM_INVALID : (xl_elem)args.type;
    return err;
}

xl_error *xl_buffer_dims(const xl_buffer *b, xl_dims *out)
{
    PJRT_Buffer_Dimensions_Args args = { .struct_size = sizeof args, .buffer = b->handle };
    xl_error *err = PJRT_CALL(b->client->plugin, PJRT_Buffer_Dimensions, &args);
    *out = err ? (xl_dims){ NULL, 0 } : (xl_dims){ args.dims, args.num_dims };
    return err;
}

xl_error *xl_buffer_device(const xl_buffer *b, const xl_device **out)
{
    PJRT_Buffer_Device_Args args = { .struct_size = sizeof args, .buffer = b->handle };
    xl_error *err = PJRT_CALL(b->client->plugin, PJRT_Buffer_Device, &args);
    *out = err ? NULL : xl_device_of(b->client, args.device);
    return err;
}

xl_error *xl_buffer_layout(const xl_buffer *b, int64_t *minor_to_major, size_t cap)
{
    PJRT_Buffer_GetMemoryLayout_Args args = { .struct_size = sizeof args, .buffer = b->handle };
    xl_error *err = PJRT_CALL(b->client->plugin, PJRT_Buffer_GetMemoryLayout, &args);
    const PJRT_Buffer_MemoryLayout_Tiled *t = &args.layout.tiled;
    if (err)
        return err;
    if (args.layout.type != PJRT_Buffer_MemoryLayout_Type_Tiled || t->minor_to_major_size > cap)
        return XL_ERR(UNIMPLEMENTED, "the layout of a buffer is given by strides, or has %zu dimensions",
                      t->minor_to_major_size);
    if (t->minor_to_major_size)
        memcpy(minor_to_major, t->minor_to_major, t->minor_to_major_size * sizeof *minor_to_major);
    return NULL;
}

xl_error *xl_buffer_bytes(const xl_buffer *b, size_t *out)
{
    PJRT_Buffer_OnDeviceSizeInBytes_Args args = { .struct_size = sizeof args, .buffer = b->handle };
    xl_error *err = PJRT_CALL(b->client->plugin, PJRT_Buffer_OnDeviceSizeInBytes, &args);
    *out = err ? 0 : args.on_device_size_in_bytes;
    return err;
}

xl_error *xl_buffer_is_deleted(const xl_buffer *b, bool *out)
{
    PJRT_Buffer_IsDeleted_Args args = { .struct_size = sizeof args, .buffer = b->handle };
    xl_error *err = PJRT_CALL(b->client->plugin, PJRT_Buffer_IsDeleted, &args);
    *out = !err && args.is_deleted;
    return err;
}

