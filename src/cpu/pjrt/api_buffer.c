/* Buffers: a device's memory, copied from and to the host, shared, donated, released. */
#include <stdlib.h>

#include "cpu/pjrt/api.h"
#include "cpu/pjrt/spare.h"
#include "cpu/kernel/strided.h"

/* ---- types ------------------------------------------------------------------------------------------------------ */
#define TYPES(F)                                                                                                       \
    F(PRED, I1)                                                                                                        \
    F(S8, I8) F(S16, I16) F(S32, I32) F(S64, I64) F(U8, U8) F(U16, U16) F(U32, U32) F(U64, U64) F(F16, F16)            \
        F(F32, F32) F(F64, F64) F(BF16, BF16) F(C64, C64) F(C128, C128) F(F8E5M2, F8E5M2) F(F8E4M3FN, F8E4M3FN)        \
            F(F8E4M3B11FNUZ, F8E4M3B11FNUZ) F(F8E5M2FNUZ, F8E5M2FNUZ) F(F8E4M3FNUZ, F8E4M3FNUZ) F(S4, I4) F(U4, U4)    \
                F(S2, I2) F(U2, U2) F(F8E4M3, F8E4M3) F(F8E3M4, F8E3M4) F(F8E8M0FNU, F8E8M0FNU) F(F4E2M1FN, F4E2M1FN)  \
                    F(F6E2M3FN, F6E2M3FN) F(F6E3M2FN, F6E3M2FN)

PJRT_Buffer_Type xl_api_type(xl_dtype d)
{
    switch (d) {
#define CASE(P, X) case XL_##X: return PJRT_Buffer_Type_##P;
    TYPES(CASE)
#undef CASE
    default: return PJRT_Buffer_Type_INVALID;
    }
}
xl_dtype xl_api_dtype(PJRT_Buffer_Type t)
{
    switch (t) {
#define CASE(P, X) case PJRT_Buffer_Type_##P: return XL_##X;
    TYPES(CASE)
#undef CASE
    default: return XL_DT_NONE;
    }
}

/* ---- stores ----------------------------------------------------------------------------------------------------- */
/* Up to WITHIN bytes of data lie behind the store: a piece that malloc serves from what this thread freed before, as it
 * does for no call of calloc or aligned_alloc. */
enum { WITHIN = 768 };

static xl_store *small_store(size_t bytes)
{
    xl_store *s = malloc(sizeof *s + bytes + 2 * XL_ALIGN);
    if (s)
        *s = (xl_store){ .within = true,
                         .data = (void *)(((uintptr_t)(s + 1) + XL_ALIGN - 1) & ~(uintptr_t)(XL_ALIGN - 1)) };
    return s;
}

xl_error *xl_store_new(PJRT_Device *d, size_t bytes, xl_store **out)
{
    xl_error *err = xl_device_take(d, bytes);
    *out = NULL;
    if (err)
        return err;
    /* whole cache lines, one to spare: vector loops may read past the last element */
    xl_store *s = bytes <= WITHIN ? small_store(bytes) : calloc(1, sizeof *s);
    void *data = s && s->within ? s->data : s ? xl_spare_take(bytes) : NULL;
    if (s && !data)
        data = xl_data_alloc(bytes + XL_ALIGN);
    if (s && !data) {                                      /* before we say no, everything that was kept */
        xl_spare_clear();
        data = xl_data_alloc(bytes + XL_ALIGN);
    }
    if (!data) {
        free(s);
        xl_device_give(d, bytes);
        char need[32], all[32];
        return XL_ERR(EXHAUSTED, "no host memory for a buffer of %s: the host has %s in all",
                      xl_size_words((double)bytes, need), xl_size_words((double)d->total, all));
    }
    xl_device_took(d, bytes);
    atomic_init(&s->ref, 1);
    s->data = data;
    s->bytes = bytes;
    s->device = d;
    *out = s;
    return NULL;
}
xl_store *xl_store_ref(xl_store *s)
{
    atomic_fetch_add(&s->ref, 1);
    return s;
}
void xl_store_unref(xl_store *s)
{
    if (!s || atomic_fetch_sub(&s->ref, 1) != 1)
        return;
    if (!s->foreign && !s->within && !xl_spare_give(s->data, s->bytes))
        free(s->data);
    xl_device_give(s->device, s->bytes);
    if (s->on_delete)
        s->on_delete(s->data, s->on_delete_arg);
    if (s->done) {
        xl_event_set(s->done, XL_OK, NULL);
        xl_event_unref(s->done);
    }
    free(s);
}

/* ---- buffers ---------------------------------------------------------------------------------------------------- */
xl_error *xl_buffer_new(PJRT_Device *d, xl_dtype dtype, bool token, size_t rank, const int64_t *dims,
                        const PJRT_Layouts_MemoryLayout *layout, xl_store *s, PJRT_Buffer **out)
{
    PJRT_Buffer *b = malloc(sizeof *b);
    *out = NULL;
    if (!b)
        return XL_ERR(EXHAUSTED, "no memory for a buffer");
    *b = (PJRT_Buffer){ 0 };
    if (rank > XL_RANK_MAX) {
        free(b);
        return XL_ERR(UNIMPLEMENTED, "a buffer of %zu dimensions: this device goes up to %d", rank, XL_RANK_MAX);
    }
    b->dims = rank <= 8 ? b->inline_dims : malloc(rank * sizeof *dims);
    b->layout = layout ? layout : xl_layout_of(rank, NULL);
    if (!b->dims || !b->layout) {
        if (b->dims != b->inline_dims)
            free(b->dims);
        free(b);
        return XL_ERR(EXHAUSTED, "no memory for a buffer");
    }
    pthread_mutex_init(&b->lock, NULL);
    b->client = d->client;
    b->device = d;
    b->dtype = dtype;
    b->type = token ? PJRT_Buffer_Type_TOKEN : xl_api_type(dtype);
    b->rank = rank;
    b->bytes = xl_dtype_bytes(dtype);
    for (size_t i = 0; i < rank; i++) {
        b->dims[i] = dims[i];
        b->bytes *= (size_t)dims[i];
    }
    b->store = s;
    *out = b;
    return NULL;
}
void xl_cpu_buffer_free(PJRT_Buffer *b)
{
    if (!b)
        return;
    xl_store_unref(b->store);
    pthread_mutex_destroy(&b->lock);
    if (b->dims != b->inline_dims)
        free(b->dims);
    free(b->message);
    free(b);
}

/* The store, held; NULL and an error once the buffer is gone. */
static xl_store *hold(PJRT_Buffer *b, PJRT_Error **err)
{
    pthread_mutex_lock(&b->lock);
    xl_store *s = b->store ? xl_store_ref(b->store) : NULL;
    pthread_mutex_unlock(&b->lock);
    *err = NULL;
    if (b->error) {
        xl_store_unref(s);
        *err = xl_api_fail(b->error, "%s", b->message ? b->message : "the buffer holds an error");
        return NULL;
    }
    if (!s)
        *err = xl_api_fail(XL_CODE_INVALID, "the buffer was deleted or donated: it holds no data any more");
    return s;
}

static PJRT_Error *check_shape(PJRT_Buffer_Type type, const int64_t *dims, size_t rank, xl_dtype *dtype, size_t *bytes)
{
    *dtype = xl_api_dtype(type);
    if (*dtype == XL_DT_NONE)
        return xl_api_fail(XL_CODE_UNIMPLEMENTED, "buffers of element type %d are not supported by this device",
                           (int)type);
    if (rank > XL_RANK_MAX)
        return xl_api_fail(XL_CODE_UNIMPLEMENTED, "a buffer of %zu dimensions: this device goes up to %d", rank,
                           XL_RANK_MAX);
    size_t n = xl_dtype_bytes(*dtype);
    bool empty = false;
    for (size_t i = 0; i < rank; i++) {
        if (dims[i] < 0)
            return xl_api_fail(XL_CODE_INVALID, "dimension %zu of the buffer is %lld", i, (long long)dims[i]);
        empty = empty || dims[i] == 0;
    }
    for (size_t i = 0; i < rank && !empty; i++)
        if (__builtin_mul_overflow(n, (size_t)dims[i], &n) || n > SIZE_MAX / 4)
            return xl_api_fail(XL_CODE_EXHAUSTED, "a buffer of such size cannot be addressed");
    *bytes = empty ? 0 : n;
    return NULL;
}

static int space_of(const PJRT_Memory *m) { return m ? ((const xl_memory_space *)m)->space : XL_SPACE_DEVICE; }
static PJRT_Error *pick_device(PJRT_Client *c, PJRT_Device *device, PJRT_Memory *memory, PJRT_Device **out)
{
    *out = memory ? ((xl_memory_space *)memory)->device : device ? device : &c->device[c->first];
    if ((*out)->client != c)
        return xl_api_fail(XL_CODE_INVALID, "the device belongs to another client");
    if ((*out)->desc.process != c->process)
        return xl_api_fail(XL_CODE_INVALID,
                           "%s belongs to process %d, this is process %d: a process puts data on its own devices",
                           (*out)->desc.text, (*out)->desc.process, c->process);
    return NULL;
}

PJRT_Error *xl_PJRT_Client_BufferFromHostBuffer(PJRT_Client_BufferFromHostBuffer_Args *args)
{
    PJRT_Device *d;
    xl_dtype dtype;
    size_t bytes;
    xl_store *s = NULL;
    PJRT_Event *done = NULL;
    PJRT_Error *bad = pick_device(args->client, args->device, args->memory, &d);
    args->buffer = NULL;
    args->done_with_host_buffer = NULL;
    if (!bad)
        bad = check_shape(args->type, args->dims, args->num_dims, &dtype, &bytes);
    if (bad)
        return bad;
    const PJRT_Layouts_MemoryLayout *layout;
    xl_error *err = xl_layout_read(args->device_layout, args->num_dims, &layout);
    if (err)
        return xl_api_error(err);
    if (args->num_byte_strides && args->num_byte_strides != args->num_dims)
        return xl_api_fail(XL_CODE_INVALID, "%zu strides were given for %zu dimensions", args->num_byte_strides,
                           args->num_dims);
    int64_t own[XL_RANK_MAX] = { 0 }, host[XL_RANK_MAX] = { 0 };
    uint32_t rank = (uint32_t)args->num_dims;
    bool dense = true;
    xl_layout_strides(layout, args->dims, xl_dtype_bytes(dtype), own);
    xl_row_major(host, rank, args->dims, xl_dtype_bytes(dtype));
    for (uint32_t i = 0; i < rank; i++) {
        host[i] = args->num_byte_strides ? args->byte_strides[i] : host[i];
        dense = dense && (args->dims[i] == 1 || host[i] == own[i]);
    }
    dense = dense || bytes == 0;
    bool view = dense && bytes >= 4096 && (uintptr_t)args->data % 16 == 0 &&
                (args->host_buffer_semantics == PJRT_HostBufferSemantics_kImmutableZeroCopy ||
                 args->host_buffer_semantics == PJRT_HostBufferSemantics_kMutableZeroCopy);
    done = xl_event_new(!view);
    if (!done)
        return xl_api_fail(XL_CODE_EXHAUSTED, "no memory for an event");
    if (view) {
        err = xl_device_take(d, bytes);
        s = err ? NULL : calloc(1, sizeof *s);
        if (!s && !err) {
            xl_device_give(d, bytes);
            err = XL_ERR(EXHAUSTED, "no memory for a buffer");
        }
        if (s) {
            xl_device_took(d, bytes);
            atomic_init(&s->ref, 1);
            s->data = (void *)(uintptr_t)args->data;
            s->bytes = bytes;
            s->device = d;
            s->foreign = true;
            s->done = done;
        }
    } else {
        err = xl_store_new(d, bytes, &s);
        if (s && dense) {
            if (bytes)
                memcpy(s->data, args->data, bytes);
        } else if (s) {
            xl_strided copy;                               /* host data may be unaligned: move bytes, not elements */
            size_t elem = xl_dtype_bytes(dtype);
            bool aligned = (uintptr_t)args->data % elem == 0;
            for (uint32_t i = 0; i < rank; i++)
                aligned = aligned && host[i] % (int64_t)(elem > 8 ? 8 : elem) == 0;
            if (aligned) {
                xl_strided_init(&copy, elem, rank, args->dims, own, host);
            } else {
                int64_t dim[XL_RANK_MAX + 1], to[XL_RANK_MAX + 1], from[XL_RANK_MAX + 1];
                for (uint32_t i = 0; i < rank; i++)
                    dim[i] = args->dims[i], to[i] = own[i], from[i] = host[i];
                dim[rank] = (int64_t)elem, to[rank] = from[rank] = 1;
                if (rank == XL_RANK_MAX)
                    err = XL_ERR(UNIMPLEMENTED, "unaligned host data of this rank");
                else
                    xl_strided_init(&copy, 1, rank + 1, dim, to, from);
            }
            if (!err)
                xl_strided_run(&copy, s->data, args->data, args->client->pool);
        }
    }
    if (!err)
        err = xl_buffer_new(d, dtype, false, rank, args->dims, layout, s, &args->buffer);
    if (err) {
        if (s) {
            s->done = NULL;
            xl_store_unref(s);
        }
        xl_event_unref(done);
        if (view)
            xl_event_unref(done);
        return xl_api_error(err);
    }
    args->buffer->space = space_of(args->memory);
    args->done_with_host_buffer = done;
    return NULL;
}

PJRT_Error *xl_PJRT_Client_CreateViewOfDeviceBuffer(PJRT_Client_CreateViewOfDeviceBuffer_Args *args)
{
    PJRT_Device *d;
    xl_dtype dtype;
    size_t bytes;
    PJRT_Memory *m = PJRT_HAS(args, memory) ? args->memory : NULL;
    PJRT_Error *bad = pick_device(args->client, args->device, m, &d);
    if (!bad)
        bad = check_shape(args->element_type, args->dims, args->num_dims, &dtype, &bytes);
    if (bad)
        return bad;
    const PJRT_Layouts_MemoryLayout *layout;
    xl_error *err = xl_layout_read(args->layout, args->num_dims, &layout);
    if (err)
        return xl_api_error(err);
    xl_store *s = calloc(1, sizeof *s);
    err = s ? xl_device_take(d, 0) : XL_ERR(EXHAUSTED, "no memory for a buffer");
    if (!err) {
        atomic_init(&s->ref, 1);
        *s = (xl_store){ .data = args->device_buffer_ptr,
                         .device = d,
                         .foreign = true,
                         .on_delete = args->on_delete_callback,
                         .on_delete_arg = args->on_delete_callback_arg };
        atomic_init(&s->ref, 1);
        err = xl_buffer_new(d, dtype, false, args->num_dims, args->dims, layout, s, &args->buffer);
    }
    if (err)
        free(s);
    else
        args->buffer->space = space_of(m);
    return xl_api_error(err);
}

static PJRT_Error *uninitialized(PJRT_Client *c, PJRT_Device *device, PJRT_Memory *memory, PJRT_Buffer_Type type,
                                 const int64_t *dims, size_t rank, PJRT_Buffer **out)
{
    PJRT_Device *d;
    xl_dtype dtype;
    size_t bytes;
    xl_store *s = NULL;
    PJRT_Error *bad = pick_device(c, device, memory, &d);
    if (!bad)
        bad = check_shape(type, dims, rank, &dtype, &bytes);
    if (bad)
        return bad;
    xl_error *err = xl_store_new(d, bytes, &s);
    if (!err)
        err = xl_buffer_new(d, dtype, false, rank, dims, NULL, s, out);
    if (err) {
        xl_store_unref(s);
    } else {
        (*out)->space = space_of(memory);
        if (bytes)
            memset(s->data, 0, bytes);
    }
    return xl_api_error(err);
}
PJRT_Error *xl_PJRT_Client_CreateUninitializedBuffer(PJRT_Client_CreateUninitializedBuffer_Args *args)
{
    return uninitialized(args->client, args->device, args->memory, args->shape_element_type, args->shape_dims,
                         args->shape_num_dims, &args->buffer);
}
PJRT_Error *xl_PJRT_Client_CreateErrorBuffer(PJRT_Client_CreateErrorBuffer_Args *args)
{
    PJRT_Error *bad = uninitialized(args->client, NULL, args->memory, args->shape_element_type, args->shape_dims,
                                    args->shape_num_dims, &args->buffer);
    if (bad)
        return bad;
    args->buffer->error = args->error_code ? (xl_code)args->error_code : XL_CODE_INTERNAL;
    args->buffer->message =
        strndup(args->error_message ? args->error_message : "", args->error_message ? args->error_message_size : 0);
    return NULL;
}

PJRT_Error *xl_PJRT_Buffer_Destroy(PJRT_Buffer_Destroy_Args *args)
{
    xl_cpu_buffer_free(args->buffer);
    return NULL;
}
PJRT_Error *xl_PJRT_Buffer_ElementType(PJRT_Buffer_ElementType_Args *args)
{
    args->type = args->buffer->type;
    return NULL;
}
PJRT_Error *xl_PJRT_Buffer_Dimensions(PJRT_Buffer_Dimensions_Args *args)
{
    args->dims = args->buffer->dims;
    args->num_dims = args->buffer->rank;
    return NULL;
}
PJRT_Error *xl_PJRT_Buffer_UnpaddedDimensions(PJRT_Buffer_UnpaddedDimensions_Args *args)
{
    args->unpadded_dims = args->buffer->dims;
    args->num_dims = args->buffer->rank;
    return NULL;
}
PJRT_Error *xl_PJRT_Buffer_DynamicDimensionIndices(PJRT_Buffer_DynamicDimensionIndices_Args *args)
{
    args->dynamic_dim_indices = NULL;
    args->num_dynamic_dims = 0;
    return NULL;
}
PJRT_Error *xl_PJRT_Buffer_GetMemoryLayout(PJRT_Buffer_GetMemoryLayout_Args *args)
{
    memset(&args->layout, 0, sizeof args->layout);
    args->layout.struct_size = PJRT_SIZE(PJRT_Buffer_MemoryLayout, type);
    args->layout.type = PJRT_Buffer_MemoryLayout_Type_Tiled;
    args->layout.tiled.struct_size = PJRT_SIZE(PJRT_Buffer_MemoryLayout_Tiled, num_tiles);
    args->layout.tiled.minor_to_major = args->buffer->layout->minor_to_major;
    args->layout.tiled.minor_to_major_size = args->buffer->rank;
    return NULL;
}
PJRT_Error *xl_PJRT_Buffer_OnDeviceSizeInBytes(PJRT_Buffer_OnDeviceSizeInBytes_Args *args)
{
    args->on_device_size_in_bytes = args->buffer->bytes;
    return NULL;
}
PJRT_Error *xl_PJRT_Buffer_Device(PJRT_Buffer_Device_Args *args)
{
    args->device = args->buffer->device;
    return NULL;
}
PJRT_Error *xl_PJRT_Buffer_Memory(PJRT_Buffer_Memory_Args *args)
{
    args->memory = &args->buffer->device->memory[args->buffer->space].base;
    return NULL;
}
PJRT_Error *xl_PJRT_Buffer_Delete(PJRT_Buffer_Delete_Args *args)
{
    PJRT_Buffer *b = args->buffer;
    xl_store *s = NULL;
    pthread_mutex_lock(&b->lock);
    if (b->external == 0) {
        s = b->store;
        b->store = NULL;
    } else if (b->store) { /* somebody looks at the memory: it stays until they are done */
        s = NULL;
        b->error = XL_CODE_INVALID;
    }
    pthread_mutex_unlock(&b->lock);
    xl_store_unref(s);
    return NULL;
}
PJRT_Error *xl_PJRT_Buffer_IsDeleted(PJRT_Buffer_IsDeleted_Args *args)
{
    pthread_mutex_lock(&args->buffer->lock);
    args->is_deleted = !args->buffer->store || (args->buffer->error == XL_CODE_INVALID && !args->buffer->message);
    pthread_mutex_unlock(&args->buffer->lock);
    return NULL;
}
PJRT_Error *xl_PJRT_Buffer_IsOnCpu(PJRT_Buffer_IsOnCpu_Args *args)
{
    args->is_on_cpu = true;
    return NULL;
}
PJRT_Error *xl_PJRT_Buffer_ReadyEvent(PJRT_Buffer_ReadyEvent_Args *args)
{
    PJRT_Buffer *b = args->buffer;
    if (b->error && b->message) {
        args->event = xl_event_new(false);
        if (args->event) {
            xl_event_set(args->event, b->error, b->message);
            xl_event_unref(args->event);
        }
    } else {
        args->event = xl_event_new(true);
    }
    return args->event ? NULL : xl_api_fail(XL_CODE_EXHAUSTED, "no memory for an event");
}
PJRT_Error *xl_PJRT_Buffer_UnsafePointer(PJRT_Buffer_UnsafePointer_Args *args)
{
    PJRT_Error *err;
    xl_store *s = hold(args->buffer, &err);
    if (s)
        args->buffer_pointer = (uintptr_t)s->data;
    xl_store_unref(s);
    return err;
}
PJRT_Error *xl_PJRT_Buffer_OpaqueDeviceMemoryDataPointer(PJRT_Buffer_OpaqueDeviceMemoryDataPointer_Args *args)
{
    PJRT_Error *err;
    xl_store *s = hold(args->buffer, &err);
    if (s)
        args->device_memory_ptr = s->data;
    xl_store_unref(s);
    return err;
}
PJRT_Error *xl_PJRT_Buffer_IncreaseExternalReferenceCount(PJRT_Buffer_IncreaseExternalReferenceCount_Args *args)
{
    PJRT_Buffer *b = args->buffer;
    pthread_mutex_lock(&b->lock);
    bool gone = !b->store;
    if (!gone)
        b->external++;
    pthread_mutex_unlock(&b->lock);
    return gone ? xl_api_fail(XL_CODE_INVALID, "the buffer was deleted or donated: it holds no data any more") : NULL;
}
PJRT_Error *xl_PJRT_Buffer_DecreaseExternalReferenceCount(PJRT_Buffer_DecreaseExternalReferenceCount_Args *args)
{
    PJRT_Buffer *b = args->buffer;
    xl_store *s = NULL;
    pthread_mutex_lock(&b->lock);
    bool bad = b->external == 0;
    if (!bad && --b->external == 0 && b->error == XL_CODE_INVALID && !b->message) {
        s = b->store;                                      /* deleted meanwhile */
        b->store = NULL;
        b->error = XL_OK;
    }
    pthread_mutex_unlock(&b->lock);
    xl_store_unref(s);
    return bad ? xl_api_fail(XL_CODE_PRECONDITION, "the buffer has no external references") : NULL;
}

PJRT_Error *xl_PJRT_Buffer_ToHostBuffer(PJRT_Buffer_ToHostBuffer_Args *args)
{
    PJRT_Buffer *b = args->src;
    PJRT_Error *bad;
    args->event = NULL;
    if (!args->dst) {
        args->dst_size = b->bytes;
        return NULL;
    }
    if (args->dst_size < b->bytes)
        return xl_api_fail(XL_CODE_INVALID, "the host has room for %zu bytes, the buffer has %zu", args->dst_size,
                           b->bytes);
    xl_store *s = hold(b, &bad);
    if (!s)
        return bad;
    int64_t own[XL_RANK_MAX] = { 0 }, to[XL_RANK_MAX] = { 0 };
    size_t elem = xl_dtype_bytes(b->dtype);
    uint32_t rank = (uint32_t)b->rank;
    const PJRT_Buffer_MemoryLayout *l = args->host_layout;
    bool plain = false;
    xl_layout_strides(b->layout, b->dims, elem, own);
    if (l && l->type == PJRT_Buffer_MemoryLayout_Type_Strides && l->strides.num_byte_strides == rank) {
        memcpy(to, l->strides.byte_strides, rank * sizeof *to);
    } else {
        const PJRT_Layouts_MemoryLayout *host;
        xl_error *err = xl_layout_read(l, rank, &host);
        if (err) {
            xl_store_unref(s);
            return xl_api_error(err);
        }
        plain = xl_layout_same(b->layout, host, b->dims);
        xl_layout_strides(host, b->dims, elem, to);
    }
    if (plain && b->bytes) {
        memcpy(args->dst, s->data, b->bytes);
    } else if (b->bytes) {
        xl_strided copy;
        xl_strided_init(&copy, elem, rank, b->dims, to, own);
        xl_strided_run(&copy, args->dst, s->data, b->client->pool);
    }
    xl_store_unref(s);
    args->event = xl_event_new(true);
    return args->event ? NULL : xl_api_fail(XL_CODE_EXHAUSTED, "no memory for an event");
}

PJRT_Error *xl_PJRT_Buffer_CopyRawToHost(PJRT_Buffer_CopyRawToHost_Args *args)
{
    PJRT_Error *bad;
    PJRT_Buffer *b = args->buffer;
    if (args->offset < 0 || args->transfer_size < 0 || (size_t)args->offset > b->bytes ||
        (size_t)args->transfer_size > b->bytes - (size_t)args->offset)
        return xl_api_fail(XL_CODE_INVALID, "bytes %lld + %lld lie outside a buffer of %zu", (long long)args->offset,
                           (long long)args->transfer_size, b->bytes);
    xl_store *s = hold(b, &bad);
    if (!s)
        return bad;
    if (args->transfer_size)
        memcpy(args->dst, (const char *)s->data + args->offset, (size_t)args->transfer_size);
    xl_store_unref(s);
    args->event = xl_event_new(true);
    return args->event ? NULL : xl_api_fail(XL_CODE_EXHAUSTED, "no memory for an event");
}
PJRT_Error *xl_PJRT_Buffer_CopyRawToHostFuture(PJRT_Buffer_CopyRawToHostFuture_Args *args)
{
    (void)args;
    return xl_api_none("PJRT_Buffer_CopyRawToHostFuture");
}

static PJRT_Error *copy_to(PJRT_Buffer *b, PJRT_Device *d, int space, PJRT_Buffer **out)
{
    PJRT_Error *bad;
    xl_store *from = hold(b, &bad), *to = NULL;
    if (!from)
        return bad;
    xl_error *err = xl_store_new(d, b->bytes, &to);
    XL_KNOWN(err || to);
    if (!err && b->bytes)
        memcpy(to->data, from->data, b->bytes);
    if (!err)
        err = xl_buffer_new(d, b->dtype, b->type == PJRT_Buffer_Type_TOKEN, b->rank, b->dims, b->layout, to,
                            out);
    if (err)
        xl_store_unref(to);
    else
        (*out)->space = space;
    xl_store_unref(from);
    return xl_api_error(err);
}
PJRT_Error *xl_PJRT_Buffer_CopyToDevice(PJRT_Buffer_CopyToDevice_Args *args)
{
    return copy_to(args->buffer, args->dst_device, XL_SPACE_DEVICE, &args->dst_buffer);
}
PJRT_Error *xl_PJRT_Buffer_CopyToMemory(PJRT_Buffer_CopyToMemory_Args *args)
{
    return copy_to(args->buffer, ((xl_memory_space *)args->dst_memory)->device, space_of(args->dst_memory),
                   &args->dst_buffer);
}

PJRT_Error *xl_PJRT_Buffer_Bitcast(PJRT_Buffer_Bitcast_Args *args)
{
    PJRT_Error *bad;
    xl_dtype dtype;
    size_t bytes = 0;
    if ((bad = check_shape(args->element_type, args->dims, args->num_dims, &dtype, &bytes)))
        return bad;
    const PJRT_Layouts_MemoryLayout *layout;
    xl_error *err = xl_layout_read(args->device_layout, args->num_dims, &layout);
    if (err)
        return xl_api_error(err);
    if (bytes != args->buffer->bytes)
        return xl_api_fail(XL_CODE_INVALID, "%zu bytes cannot be seen as %zu", args->buffer->bytes, bytes);
    xl_store *s = hold(args->buffer, &bad);
    if (!s)
        return bad;
    err = xl_buffer_new(args->buffer->device, dtype, false, args->num_dims, args->dims, layout, s, &args->out_buffer);
    if (err)
        xl_store_unref(s);
    else
        args->out_buffer->space = args->buffer->space;
    return xl_api_error(err);
}
PJRT_Error *xl_PJRT_Buffer_DonateWithControlDependency(PJRT_Buffer_DonateWithControlDependency_Args *args)
{
    (void)args;
    return xl_api_none("PJRT_Buffer_DonateWithControlDependency");
}

/* ---- transfers in pieces ---------------------------------------------------------------------------------------- */
struct PJRT_AsyncHostToDeviceTransferManager { PJRT_Device *device; size_t n; PJRT_Buffer **buf; };

PJRT_Error *xl_PJRT_AsyncHostToDeviceTransferManager_Destroy(PJRT_AsyncHostToDeviceTransferManager_Destroy_Args *args)
{
    PJRT_AsyncHostToDeviceTransferManager *t = args->transfer_manager;
    for (size_t i = 0; t && i < t->n; i++)
        xl_cpu_buffer_free(t->buf[i]);
    if (t)
        free(t->buf);
    free(t);
    return NULL;
}
PJRT_Error *xl_PJRT_Client_CreateBuffersForAsyncHostToDevice(PJRT_Client_CreateBuffersForAsyncHostToDevice_Args *args)
{
    PJRT_AsyncHostToDeviceTransferManager *t = calloc(1, sizeof *t);
    PJRT_Error *bad = NULL;
    if (t)
        t->buf = calloc(args->num_shape_specs ? args->num_shape_specs : 1, sizeof *t->buf);
    if (!t || !t->buf) {
        free(t);
        return xl_api_fail(XL_CODE_EXHAUSTED, "no memory for a transfer");
    }
    bad = pick_device(args->client, NULL, args->memory, &t->device);
    for (size_t i = 0; i < args->num_shape_specs && !bad; i++) {
        const PJRT_ShapeSpec *s = &args->shape_specs[i];
        bad = uninitialized(args->client, t->device, args->memory, s->element_type, s->dims, s->num_dims, &t->buf[i]);
        t->n = i + 1;
    }
    if (bad) {
        PJRT_AsyncHostToDeviceTransferManager_Destroy_Args d = { .transfer_manager = t };
        xl_PJRT_AsyncHostToDeviceTransferManager_Destroy(&d);
        return bad;
    }
    args->transfer_manager = t;
    return NULL;
}
/* Buffer i of the transfer; NULL and an error where there is none. */
static PJRT_Buffer *transfer_buffer(PJRT_AsyncHostToDeviceTransferManager *t, int i, PJRT_Error **err)
{
    PJRT_Buffer *b = i >= 0 && (size_t)i < t->n ? t->buf[i] : NULL;
    *err = b ? NULL : xl_api_fail(XL_CODE_INVALID, "the transfer has no buffer %d (any more)", i);
    return b;
}
PJRT_Error *
xl_PJRT_AsyncHostToDeviceTransferManager_TransferData(PJRT_AsyncHostToDeviceTransferManager_TransferData_Args *args)
{
    PJRT_Error *bad;
    PJRT_Buffer *b = transfer_buffer(args->transfer_manager, args->buffer_index, &bad);
    if (!b)
        return bad;
    if (args->offset < 0 || args->transfer_size < 0 || (size_t)args->offset > b->bytes ||
        (size_t)args->transfer_size > b->bytes - (size_t)args->offset)
        return xl_api_fail(XL_CODE_INVALID, "bytes %lld + %lld lie outside a buffer of %zu", (long long)args->offset,
                           (long long)args->transfer_size, b->bytes);
    xl_store *s = hold(b, &bad);
    if (!s)
        return bad;
    if (args->transfer_size)
        memcpy((char *)s->data + args->offset, args->data, (size_t)args->transfer_size);
    xl_store_unref(s);
    args->done_with_h2d_transfer = xl_event_new(true);
    return args->done_with_h2d_transfer ? NULL : xl_api_fail(XL_CODE_EXHAUSTED, "no memory for an event");
}
PJRT_Error *
xl_PJRT_AsyncHostToDeviceTransferManager_RetrieveBuffer(PJRT_AsyncHostToDeviceTransferManager_RetrieveBuffer_Args *args)
{
    PJRT_Error *bad;
    PJRT_Buffer *b = transfer_buffer(args->transfer_manager, args->buffer_index, &bad);
    if (!b)
        return bad;
    xl_store *s = hold(b, &bad);                           /* two handles on one store: later pieces reach both */
    if (!s)
        return bad;
    xl_error *err = xl_buffer_new(b->device, b->dtype, false, b->rank, b->dims, b->layout, s, &args->buffer_out);
    if (err)
        xl_store_unref(s);
    else
        args->buffer_out->space = b->space;
    return xl_api_error(err);
}
PJRT_Error *xl_PJRT_AsyncHostToDeviceTransferManager_Device(PJRT_AsyncHostToDeviceTransferManager_Device_Args *args)
{
    args->device_out = args->transfer_manager->device;
    return NULL;
}
PJRT_Error *
xl_PJRT_AsyncHostToDeviceTransferManager_BufferCount(PJRT_AsyncHostToDeviceTransferManager_BufferCount_Args *args)
{
    args->buffer_count = args->transfer_manager->n;
    return NULL;
}
PJRT_Error *
xl_PJRT_AsyncHostToDeviceTransferManager_BufferSize(PJRT_AsyncHostToDeviceTransferManager_BufferSize_Args *args)
{
    PJRT_Error *bad;
    PJRT_Buffer *b = transfer_buffer(args->transfer_manager, args->buffer_index, &bad);
    if (b)
        args->buffer_size = b->bytes;
    return bad;
}
PJRT_Error *
xl_PJRT_AsyncHostToDeviceTransferManager_SetBufferError(PJRT_AsyncHostToDeviceTransferManager_SetBufferError_Args *args)
{
    PJRT_Error *bad;
    PJRT_Buffer *b = transfer_buffer(args->transfer_manager, args->buffer_index, &bad);
    if (!b)
        return bad;
    b->error = (xl_code)args->error_code;
    free(b->message);
    b->message =
        strndup(args->error_message ? args->error_message : "", args->error_message ? args->error_message_size : 0);
    return NULL;
}
