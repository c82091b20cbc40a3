/* The runtime's side of the XLA FFI. As in XLA's CPU backend, there is no stream and no prepare or initialize stage.
 * Tasks for the thread pool run immediately, in the thread that schedules them. */
#include "cpu/kernel/ffi.h"

#include <stdatomic.h>
#include <stdlib.h>

#include "base/thread.h"
#include "cpu/kernel/callback.h"

struct XLA_FFI_Error { int code; char text[]; };
struct XLA_FFI_Future { xl_mutex lock; xl_cond ready; bool done; XLA_FFI_Error *error; };

/* ---- errors ------------------------------------------------------------------------------------------------------ */
static XLA_FFI_Error no_memory = { XL_CODE_EXHAUSTED };     /* without a text */

static XLA_FFI_Error *fail(int code, const char *text)
{
    size_t n = strlen(text) + 1;
    XLA_FFI_Error *e = malloc(sizeof *e + n);
    if (!e)
        return &no_memory;
    e->code = code;
    memcpy(e->text, text, n);
    return e;
}
static void drop(XLA_FFI_Error *e)
{
    if (e != &no_memory)
        free(e);
}
static XLA_FFI_Error *error_create(XLA_FFI_Error_Create_Args *a)
{
    return fail(a->errc > 0 && a->errc <= XL_CODE_UNAUTHENTICATED ? a->errc : XL_CODE_UNKNOWN,
                a->message ? a->message : "");
}
static void error_details(XLA_FFI_Error_GetDetails_Args *a)
{
    a->message = a->error == &no_memory ? "no memory" : a->error->text;
    if (XLA_FFI_HAS(a, errc))
        a->errc = a->error->code;
}
static void error_destroy(XLA_FFI_Error_Destroy_Args *a) { drop(a->error); }
static xl_error *taken(XLA_FFI_Error *e, const char *name)
{
    if (!e)
        return NULL;
    xl_error *err = xl_error_new((xl_code)e->code, "custom call %s: %s", name, e == &no_memory ? "no memory" : e->text);
    drop(e);
    return err;
}

/* ---- what is registered -------------------------------------------------------------------------------------------
 * */
typedef struct { char *name; XLA_FFI_Handler_Bundle b; } handler;
typedef struct { char *name; int64_t id; void (*deleter)(void *); } type;
static xl_mutex lock = XL_MUTEX_INIT;
static handler *handlers;
static type *types;
static size_t nhandler, ntype;
enum { FIRST_TYPE = 0x786c0001 }; /* far from the ids that XLA gives, which may be those of types registered here too */

static bool find_handler(xl_str name, XLA_FFI_Handler_Bundle *out)
{
    bool there = false;
    xl_mutex_lock(&lock);
    for (size_t i = 0; i < nhandler && !there; i++)
        if ((there = xl_str_is(name, handlers[i].name)))
            *out = handlers[i].b;
    xl_mutex_unlock(&lock);
    return there;
}
static bool find_deleter(int64_t id, void (**out)(void *))
{
    bool there = false;
    xl_mutex_lock(&lock);
    for (size_t i = 0; i < ntype && !there; i++)
        if ((there = types[i].id == id))
            *out = types[i].deleter;
    xl_mutex_unlock(&lock);
    return there;
}

/* With the lock held: room for another in a table, and a name for it. */
static void *grown(void *table, size_t n, size_t elem, xl_str name, char **copy)
{
    void *t = realloc(table, (n + 1) * elem);
    *copy = t ? strndup(name.p, name.n) : NULL;
    return t;
}

static const XLA_FFI_Api api;
/* Which version of the interface a handler was compiled for. */
static xl_error *check_version(xl_str name, XLA_FFI_Handler *fn)
{
    XLA_FFI_Metadata m = { .struct_size = sizeof m, .api_version = { .struct_size = sizeof m.api_version } };
    XLA_FFI_Metadata_Extension ext = { { sizeof ext, XLA_FFI_Extension_Metadata, NULL }, &m };
    XLA_FFI_CallFrame frame = { .struct_size = XLA_FFI_SIZE(XLA_FFI_CallFrame, attrs),
                                .extension_start = &ext.extension_base,
                                .api = &api,
                                .stage = XLA_FFI_ExecutionStage_EXECUTE };
    xl_error *err = taken(fn(&frame), "metadata");
    if (err)
        return xl_error_wrap(err, "registering the custom call %.*s", XL_FMT(name));
    if (m.api_version.major_version != XLA_FFI_API_MAJOR || m.api_version.minor_version > XLA_FFI_API_MINOR)
        return XL_ERR(
            UNIMPLEMENTED,
            "the custom call %.*s was compiled for version %d.%d of the XLA FFI, this device has %d.%d: compile "
            "it with the headers of an older jaxlib",
            XL_FMT(name), m.api_version.major_version, m.api_version.minor_version, XLA_FFI_API_MAJOR,
            XLA_FFI_API_MINOR);
    return NULL;
}

xl_error *xl_ffi_register(xl_str name, const XLA_FFI_Handler_Bundle *b)
{
    XLA_FFI_Handler_Bundle had;
    char *copy;
    if (!b->execute)
        return XL_ERR(INVALID, "the custom call %.*s has no function to execute", XL_FMT(name));
    xl_error *err = check_version(name, b->execute);
    if (err)
        return err;
    if (find_handler(name, &had))
        return !memcmp(&had, b, sizeof had)
                   ? NULL
                   : XL_ERR(EXISTS, "the custom call %.*s is registered already, with other functions", XL_FMT(name));
    xl_mutex_lock(&lock);
    handler *t = grown(handlers, nhandler, sizeof *t, name, &copy);
    if (t)
        handlers = t;
    if (copy)
        handlers[nhandler++] = (handler){ copy, *b };
    xl_mutex_unlock(&lock);
    return copy ? NULL : XL_ERR(EXHAUSTED, "no memory to register the custom call %.*s", XL_FMT(name));
}

xl_error *xl_ffi_type(xl_str name, int64_t *id, void (*deleter)(void *))
{
    char *copy = NULL;
    xl_error *err = NULL;
    type *had = NULL;
    xl_mutex_lock(&lock);
    for (size_t i = 0; i < ntype && !had; i++)
        if (xl_str_is(name, types[i].name) || types[i].id == *id)
            had = &types[i];
    if (had && (!xl_str_is(name, had->name) || (*id && *id != had->id)))
        err = XL_ERR(EXISTS, "the FFI type %.*s: the name or its id is that of another type", XL_FMT(name));
    if (had || err)
        goto out;
    type *t = grown(types, ntype, sizeof *t, name, &copy);
    if (t)
        types = t;
    if (!copy) {
        err = XL_ERR(EXHAUSTED, "no memory to register the FFI type %.*s", XL_FMT(name));
        goto out;
    }
    types[ntype] = (type){ copy, *id ? *id : FIRST_TYPE + (int64_t)ntype, deleter };
    had = &types[ntype++];
out:
    if (!err)
        *id = had->id;
    xl_mutex_unlock(&lock);
    return err;
}

/* ---- a call -------------------------------------------------------------------------------------------------------
 * */
typedef struct { int64_t type; void *data; void (*deleter)(void *); bool set; } state;
typedef struct {
    const char *name;
    XLA_FFI_Handler *execute;
    XLA_FFI_Attrs attrs;
    state state;                                           /* of the stage instantiate */
    XLA_FFI_DataType *dtype;                               /* operands, then results */
    const uint8_t **order;                                 /* likewise: dimensions from the slowest; NULL: row-major */
    int32_t *from;                                         /* per result: the operand whose memory it is, or -1 */
    bool copies;
} ffi_call;
struct XLA_FFI_InvokeContext { ffi_call *call; const xl_frame *frame; XLA_FFI_ExecutionStage stage; };

static XLA_FFI_Error *handler_register(XLA_FFI_Handler_Register_Args *a)
{
    xl_error *err = xl_ffi_register((xl_str){ a->name.ptr, a->name.len }, &a->bundle);
    XLA_FFI_Error *e = err ? fail((int)xl_error_code(err), xl_error_message(err)) : NULL;
    xl_error_free(err);
    return e;
}
static XLA_FFI_Error *type_register(XLA_FFI_Type_Register_Args *a)
{
    xl_error *err = xl_ffi_type((xl_str){ a->name.ptr, a->name.len }, &a->type_id->type_id,
                                a->type_info ? a->type_info->deleter : NULL);
    XLA_FFI_Error *e = err ? fail((int)xl_error_code(err), xl_error_message(err)) : NULL;
    xl_error_free(err);
    return e;
}
static XLA_FFI_Error *stream_get(XLA_FFI_Stream_Get_Args *a)
{
    (void)a;
    return fail(XL_CODE_UNIMPLEMENTED, "XLA FFI GPU context is not available");
}
static XLA_FFI_Error *context_get(XLA_FFI_InvokeContext_Get_Args *a)
{
    const xl_ffi_context *c = a->ctx->frame ? a->ctx->frame->context : NULL;
    for (uint32_t i = 0; c && i < c->n; i++)
        if (c->item[i].type == a->type_id->type_id) {
            a->data = c->item[i].data;
            return NULL;
        }
    return fail(XL_CODE_NOT_FOUND, "the execution was given no user data of this type");
}
/* Arguments of another age, in which the stage is not said and is `instantiate`. */
static bool is_old(const XLA_FFI_State_Args *a)
{
    return a->struct_size == XLA_FFI_SIZE(XLA_FFI_State_Args_Old, state);
}
static XLA_FFI_Error *state_set(XLA_FFI_State_Args *a)
{
    const XLA_FFI_State_Args_Old *old = (const void *)a;
    int64_t id = is_old(a) ? old->type_id->type_id : a->type_id->type_id;
    state *s = &a->ctx->call->state, to = { id, is_old(a) ? old->state : a->state, NULL, true };
    if (a->ctx->stage != XLA_FFI_ExecutionStage_INSTANTIATE ||
        (!is_old(a) && a->stage != XLA_FFI_ExecutionStage_INSTANTIATE))
        return fail(XL_CODE_PRECONDITION, "state can only be set when the call is instantiated");
    if (!find_deleter(id, &to.deleter))
        return fail(XL_CODE_NOT_FOUND, "the type of the state is not registered for this platform");
    if (s->set)
        return fail(XL_CODE_PRECONDITION, "the state is set already");
    *s = to;
    return NULL;
}
static XLA_FFI_Error *state_get(XLA_FFI_State_Args *a)
{
    XLA_FFI_State_Args_Old *old = (void *)a;
    const state *s = &a->ctx->call->state;
    if (!s->set || (!is_old(a) && a->stage != XLA_FFI_ExecutionStage_INSTANTIATE))
        return fail(XL_CODE_NOT_FOUND, "the state is not set");
    if (s->type != (is_old(a) ? old->type_id->type_id : a->type_id->type_id))
        return fail(XL_CODE_INVALID, "the state is of another type");
    *(is_old(a) ? &old->state : &a->state) = s->data;
    return NULL;
}
static XLA_FFI_Error *memory_allocate(XLA_FFI_DeviceMemory_Allocate_Args *a)
{
    size_t align = a->alignment > XL_ALIGN ? a->alignment : XL_ALIGN;
    return posix_memalign(&a->data, align, a->size ? a->size : 1) ? fail(XL_CODE_EXHAUSTED, "no memory to allocate")
                                                                  : NULL;
}
static XLA_FFI_Error *memory_free(XLA_FFI_DeviceMemory_Free_Args *a)
{
    free(a->data);
    return NULL;
}
static XLA_FFI_Error *pool_schedule(XLA_FFI_ThreadPool_Schedule_Args *a)
{
    a->task(a->data);
    return NULL;
}
static XLA_FFI_Error *pool_threads(XLA_FFI_ThreadPool_NumThreads_Args *a)
{
    *a->num_threads = 1;
    return NULL;
}
static XLA_FFI_Error *future_create(XLA_FFI_Future_Create_Args *a)
{
    a->future = calloc(1, sizeof *a->future);
    if (!a->future)
        return &no_memory;
    xl_mutex_init(&a->future->lock);
    xl_cond_init(&a->future->ready);
    return NULL;
}
static void future_end(XLA_FFI_Future *f, XLA_FFI_Error *error)
{
    xl_mutex_lock(&f->lock);
    f->done = true;
    f->error = error;
    xl_cond_wake_all(&f->ready);
    xl_mutex_unlock(&f->lock);
}
static XLA_FFI_Error *future_available(XLA_FFI_Future_SetAvailable_Args *a)
{
    future_end(a->future, NULL);
    return NULL;
}
static XLA_FFI_Error *future_error(XLA_FFI_Future_SetError_Args *a)
{
    if (!a->error)
        return fail(XL_CODE_INVALID, "a future's error must not be NULL");
    future_end(a->future, a->error);
    return NULL;
}
static XLA_FFI_Error *future_wait(XLA_FFI_Future *f)
{
    xl_mutex_lock(&f->lock);
    while (!f->done)
        xl_cond_wait(&f->ready, &f->lock);
    xl_mutex_unlock(&f->lock);
    XLA_FFI_Error *e = f->error;
    xl_cond_fini(&f->ready);
    xl_mutex_fini(&f->lock);
    free(f);
    return e;
}
static XLA_FFI_Error *run_id(XLA_FFI_RunId_Get_Args *a)
{
    a->run_id = a->ctx->frame ? a->ctx->frame->run : 0;
    return NULL;
}
static XLA_FFI_Error *ordinal(XLA_FFI_DeviceOrdinal_Get_Args *a)
{
    a->device_ordinal = a->ctx->frame ? a->ctx->frame->ordinal : -1;
    return NULL;
}
static XLA_FFI_Error *extension(XLA_FFI_InvokeContext_FindExtension_Args *a)
{
    a->extension = NULL;
    return NULL;
}
/* Options of one execution, which no frontend of ours passes: none. */
static XLA_FFI_Error *custom_options(XLA_FFI_CustomOptions_Get_Args *a)
{
    static const XLA_FFI_Attrs empty = { .struct_size = sizeof empty };
    a->attrs = &empty;
    return NULL;
}
static const XLA_FFI_Api api = {
    .struct_size = sizeof(XLA_FFI_Api),
    .api_version = { sizeof(XLA_FFI_Api_Version), NULL, XLA_FFI_API_MAJOR, XLA_FFI_API_MINOR },
    .Error_Create = error_create,
    .Error_GetDetails = error_details,
    .Error_Destroy = error_destroy,
    .Handler_Register = handler_register,
    .Stream_Get = stream_get,
    .Type_Register = type_register,
    .InvokeContext_Get = context_get,
    .State_Set = state_set, .State_Get = state_get,
    .DeviceMemory_Allocate = memory_allocate, .DeviceMemory_Free = memory_free,
    .ThreadPool_Schedule = pool_schedule, .ThreadPool_NumThreads = pool_threads,
    .Future_Create = future_create,
    .Future_SetAvailable = future_available,
    .Future_SetError = future_error,
    .RunId_Get = run_id,
    .DeviceOrdinal_Get = ordinal,
    .InvokeContext_FindExtension = extension,
    .CustomOptions_Get = custom_options,
};

static xl_error *invoke(ffi_call *c, XLA_FFI_Handler *fn, XLA_FFI_CallFrame *frame, const xl_frame *f)
{
    XLA_FFI_InvokeContext ctx = { c, f, frame->stage };
    frame->struct_size = XLA_FFI_SIZE(XLA_FFI_CallFrame, attrs); /* as XLA counts it: handlers compare */
    frame->api = &api;
    frame->ctx = &ctx;
    frame->args.struct_size = sizeof frame->args;
    frame->rets.struct_size = sizeof frame->rets;
    frame->attrs = c->attrs;
    XLA_FFI_Error *e = fn(frame), *late = frame->future ? future_wait(frame->future) : NULL;
    if (e && late)
        drop(late);
    return taken(e ? e : late, c->name);
}

/* From row-major order to that of the call, or back. */
static void reorder(char *to, const char *from, const xl_extent *x, const uint8_t *order, bool back)
{
    int64_t stride[XL_RANK_MAX], at[XL_RANK_MAX] = { 0 }, off = 0, s = 1;
    for (uint32_t d = x->rank; d-- > 0; s *= x->dims[d])
        stride[d] = s;
    for (int64_t i = 0; i < x->count; i++) {
        size_t p = (size_t)i * x->elem, q = (size_t)off * x->elem;
        XL_KNOWN(to != NULL);                              /* what has elements has room */
        memcpy(to + (back ? q : p), from + (back ? p : q), x->elem);
        for (uint32_t k = x->rank; k-- > 0; ) {
            uint8_t d = order[k];
            off += stride[d];
            if (++at[d] < x->dims[d])
                break;
            off -= at[d] * stride[d];
            at[d] = 0;
        }
    }
}

typedef struct { const xl_step *s; xl_frame *f; xl_error *err; } job;
static void run_job(void *arg)
{
    job *j = arg;
    const xl_step *s = j->s;
    ffi_call *c = (ffi_call *)(uintptr_t)s->data;
    uint32_t n = s->nin + s->nout;
    size_t room = 0;
    for (uint32_t i = 0; c->copies && i < n; i++)
        room += (s->shape[i].bytes + XL_ALIGN) & ~(size_t)(XL_ALIGN - 1);
    struct { XLA_FFI_Buffer *b; void **p; int *kind; char *mem; } m = { malloc((n + 1) * sizeof *m.b),
                                                                        malloc((n + 1) * sizeof *m.p),
                                                                        calloc(n + 1, sizeof *m.kind), NULL };
    bool ok = m.b && m.p && m.kind && (!room || !posix_memalign((void **)&m.mem, XL_ALIGN, room));
    char *free_at = m.mem;
    XLA_FFI_CallFrame frame = { .stage = XLA_FFI_ExecutionStage_EXECUTE };
    if (!ok) {
        j->err = XL_ERR(EXHAUSTED, "no memory for the custom call %s", c->name);
        goto out;
    }
    for (uint32_t i = 0; i < n; i++) {
        const xl_extent *x = &s->shape[i];
        void *data = j->f->ptr[s->buf[i]];
        if (c->order[i]) {
            if (i < s->nin)
                reorder(free_at, data, x, c->order[i], false);
            data = free_at;
            free_at += (x->bytes + XL_ALIGN) & ~(size_t)(XL_ALIGN - 1);
        }
        m.b[i] = (XLA_FFI_Buffer){ .struct_size = sizeof *m.b,
                                   .dtype = c->dtype[i],
                                   .data = data,
                                   .rank = x->rank,
                                   .dims = (int64_t *)(uintptr_t)x->dims };
        m.p[i] = &m.b[i];
        m.kind[i] = XLA_FFI_ArgType_BUFFER;
    }
    for (uint32_t k = 0; k < s->nout; k++)
        if (c->from[k] >= 0) {                             /* the operand's value, in the result's memory */
            XLA_FFI_Buffer *in = &m.b[c->from[k]], *out = &m.b[s->nin + k];
            if (in->data != out->data)
                memcpy(out->data, in->data, xl_out_shape(s, k)->bytes);
            in->data = out->data;
        }
    frame.args = (XLA_FFI_Args){ .size = s->nin, .types = m.kind, .args = m.p };
    frame.rets = (XLA_FFI_Rets){ .size = s->nout, .types = m.kind + s->nin, .rets = m.p + s->nin };
    j->err = invoke(c, c->execute, &frame, j->f);
    for (uint32_t k = 0; k < s->nout && !j->err; k++)
        if (c->order[s->nin + k])
            reorder(xl_out(s, j->f, k), m.b[s->nin + k].data, xl_out_shape(s, k), c->order[s->nin + k], true);
out:
    free(m.b);
    free(m.p);
    free(m.kind);
    free(m.mem);
}
static xl_error *run_ffi(const xl_step *s, xl_frame *f)
{
    job j = { s, f, NULL };
    xl_error *err = xl_host_run(f, run_job, &j);
    return err ? err : j.err;
}

/* ---- jax.experimental.buffer_callback: a function of the frontend's, by its number --------------------------------
 * */
#define BUFFER_CALLBACK "xlane_buffer_callback"
static XLA_FFI_Error *buffer_callback(XLA_FFI_CallFrame *f)
{
    size_t n = 0, in = (size_t)f->args.size, all = in + (size_t)f->rets.size;
    const uint64_t *number = NULL;
    for (int64_t i = 0; i < f->attrs.size; i++)
        if (f->attrs.types[i] == XLA_FFI_AttrType_SCALAR &&
            xl_str_is((xl_str){ f->attrs.names[i]->ptr, f->attrs.names[i]->len }, "number"))
            number = ((const XLA_FFI_Scalar *)f->attrs.attrs[i])->value;
    if (!number)
        return fail(XL_CODE_INVALID, "a host callback without a number: trace it with JAX");
    xl_host_array *arrays = calloc(all + 1, sizeof *arrays);
    if (!arrays)
        return &no_memory;
    for (; n < all; n++) {
        const XLA_FFI_Buffer *b = n < in ? f->args.args[n] : f->rets.rets[n - in];
        arrays[n] = (xl_host_array){ b->data, (uint64_t)b->rank, b->dims };
    }
    xl_error *err = xl_host_call(*number, arrays);
    XLA_FFI_Error *e = err ? fail((int)xl_error_code(err), xl_error_message(err)) : NULL;
    xl_error_free(err);
    free(arrays);
    return e;
}

/* ---- planning -----------------------------------------------------------------------------------------------------
 * */
static const struct { uint8_t dtype, primitive; } elems[] = {
    { XL_I1, XLA_FFI_DataType_PRED },
    { XL_I2, XLA_FFI_DataType_S2 },
    { XL_I4, XLA_FFI_DataType_S4 },
    { XL_I8, XLA_FFI_DataType_S8 },
    { XL_I16, XLA_FFI_DataType_S16 },
    { XL_I32, XLA_FFI_DataType_S32 },
    { XL_I64, XLA_FFI_DataType_S64 },
    { XL_U2, XLA_FFI_DataType_U2 },
    { XL_U4, XLA_FFI_DataType_U4 },
    { XL_U8, XLA_FFI_DataType_U8 },
    { XL_U16, XLA_FFI_DataType_U16 },
    { XL_U32, XLA_FFI_DataType_U32 },
    { XL_U64, XLA_FFI_DataType_U64 },
    { XL_F4E2M1FN, XLA_FFI_DataType_F4E2M1FN },
    { XL_F8E3M4, XLA_FFI_DataType_F8E3M4 },
    { XL_F8E4M3, XLA_FFI_DataType_F8E4M3 },
    { XL_F8E4M3FN, XLA_FFI_DataType_F8E4M3FN },
    { XL_F8E4M3FNUZ, XLA_FFI_DataType_F8E4M3FNUZ },
    { XL_F8E4M3B11FNUZ, XLA_FFI_DataType_F8E4M3B11FNUZ },
    { XL_F8E5M2, XLA_FFI_DataType_F8E5M2 },
    { XL_F8E5M2FNUZ, XLA_FFI_DataType_F8E5M2FNUZ },
    { XL_F8E8M0FNU, XLA_FFI_DataType_F8E8M0FNU },
    { XL_BF16, XLA_FFI_DataType_BF16 },
    { XL_F16, XLA_FFI_DataType_F16 },
    { XL_F32, XLA_FFI_DataType_F32 },
    { XL_F64, XLA_FFI_DataType_F64 },
    { XL_C64, XLA_FFI_DataType_C64 },
    { XL_C128, XLA_FFI_DataType_C128 },
};
static XLA_FFI_DataType primitive(xl_dtype d)
{
    for (size_t i = 0; i < sizeof elems / sizeof *elems; i++)
        if (elems[i].dtype == d)
            return elems[i].primitive;
    return XLA_FFI_DataType_INVALID;
}

static XLA_FFI_ByteSpan *span(xl_arena *a, xl_str s)
{
    XLA_FFI_ByteSpan *b = xl_new(a, XLA_FFI_ByteSpan, 1);
    *b = (XLA_FFI_ByteSpan){ xl_str_c(a, s), s.n };
    return b;
}

static bool give_attrs(xl_arena *a, const xl_attr *dict, XLA_FFI_Attrs *to);
/* What XLA's runtime makes of an attribute; false where it makes nothing of it. */
static bool give_attr(xl_arena *a, const xl_attr *x, int *kind, void **out)
{
    XLA_FFI_Scalar *s = xl_new(a, XLA_FFI_Scalar, 1);
    XLA_FFI_Array *v = xl_new(a, XLA_FFI_Array, 1);
    XLA_FFI_Attrs *d = xl_new(a, XLA_FFI_Attrs, 1);
    size_t e = xl_dtype_bytes(x->dtype);
    bool whole = xl_dtype_class(x->dtype) == XL_CLASS_INT || xl_dtype_class(x->dtype) == XL_CLASS_UINT,
         number = (whole && xl_dtypes[x->dtype].bits >= 8) || x->dtype == XL_F32 || x->dtype == XL_F64;
    char *to;
    switch (x->kind) {
    case XL_AT_BOOL: case XL_AT_INT: case XL_AT_FLOAT:
        *s = (XLA_FFI_Scalar){ x->kind == XL_AT_BOOL ? XLA_FFI_DataType_PRED : primitive(x->dtype),
                               xl_new(a, uint64_t, 1) };
        *(uint64_t *)s->value =
            x->kind == XL_AT_FLOAT ? x->u : (uint64_t)x->i; /* both architectures: low bytes first */
        *kind = XLA_FFI_AttrType_SCALAR;
        *out = s;
        return s->dtype && (x->kind == XL_AT_BOOL || number);
    case XL_AT_STR:
        *kind = XLA_FFI_AttrType_STRING;
        *out = span(a, x->str);
        return true;
    case XL_AT_INTS:
        *v = (XLA_FFI_Array){ primitive(x->dtype), x->n, to = xl_new(a, char, x->n * e + 1) };
        for (uint32_t i = 0; i < x->n; i++)
            memcpy(to + i * e, &x->ints[i], e);
        *kind = XLA_FFI_AttrType_ARRAY;
        *out = v;
        return v->dtype && number;
    case XL_AT_DENSE: {
        int64_t n = 0;
        if (!xl_type_count(x->type, &n))
            return false;
        e = xl_dtype_bytes(x->type->dtype);
        *v = (XLA_FFI_Array){ primitive(x->type->dtype), (size_t)n, to = xl_new(a, char, (size_t)n * e + 1) };
        for (size_t i = 0; i < (size_t)n; i++)
            memcpy(to + i * e, x->data.p + (x->splat ? 0 : i * e), e);
        *kind = XLA_FFI_AttrType_ARRAY;
        *out = v;
        return v->dtype != XLA_FFI_DataType_INVALID;
    }
    case XL_AT_DICT:
        *kind = XLA_FFI_AttrType_DICTIONARY;
        *out = d;
        return give_attrs(a, x, d);
    default: return false;
    }
}
static bool give_attrs(xl_arena *a, const xl_attr *dict, XLA_FFI_Attrs *to)
{
    uint32_t n = dict && dict->kind == XL_AT_DICT ? dict->n : 0;
    *to = (XLA_FFI_Attrs){ .struct_size = sizeof *to,
                           .size = n,
                           .types = xl_new(a, int, n + 1),
                           .names = xl_new(a, XLA_FFI_ByteSpan *, n + 1),
                           .attrs = xl_new(a, void *, n + 1) };
    for (uint32_t i = 0; i < n; i++) {
        to->names[i] = span(a, dict->key[i]);
        if (!give_attr(a, dict->item[i], &to->types[i], &to->attrs[i]))
            return false;
    }
    return true;
}

static const uint8_t *order_of(xl_arena *a, const xl_attr *layouts, uint32_t i, const xl_type *t)
{
    const xl_attr *l = layouts && i < layouts->n ? layouts->item[i] : NULL;
    if (t->kind != XL_TY_TENSOR || !l || l->kind != XL_AT_DENSE || l->type->rank != 1 || l->type->dims[0] != t->rank)
        return NULL;
    uint8_t *order = xl_new(a, uint8_t, t->rank + 1);
    bool plain = true;
    for (uint32_t k = 0; k < t->rank; k++) {
        order[t->rank - 1 - k] = (uint8_t)xl_dense_int(l, k);
        plain = plain && order[t->rank - 1 - k] == t->rank - 1 - k;
    }
    return plain ? NULL : order;
}

static bool same_order(const uint8_t *a, const uint8_t *b, uint32_t rank)
{
    return a && b ? !memcmp(a, b, rank) : !a && !b;
}

static void end_state(void *call)
{
    const ffi_call *c = call;
    if (c->state.set && c->state.deleter)
        c->state.deleter(c->state.data);
}

xl_error *xl_plan_ffi(xl_planner *p, const xl_op *op, xl_str name, bool *known)
{
    XLA_FFI_Handler_Bundle b;
    bool ours = xl_str_is(name, BUFFER_CALLBACK);
    *known = ours || find_handler(name, &b);
    if (!*known)
        return NULL;
    if (ours) {
        b = (XLA_FFI_Handler_Bundle){ .execute = buffer_callback };
        p->plan->host = true;
    }
    const xl_attr *cfg = XL_ATTR(op, CUSTOM_CALL, backend_config),
                  *aliases = XL_ATTR(op, CUSTOM_CALL, output_operand_aliases);
    if (!cfg || cfg->kind != XL_AT_DICT)                   /* JAX puts it beside the op's own attributes */
        cfg = xl_dict_get(op->extra, XL_STR("mhlo.backend_config"));
    if (XL_ATTR(op, CUSTOM_CALL, backend_config) && !cfg && xl_op_str(op, XL_SLOT(CUSTOM_CALL, backend_config)).n)
        return xl_plan_unsupported(p, op, "its configuration is a text: what is registered are calls of the typed FFI");
    ffi_call *c = xl_new(p->a, ffi_call, 1);
    uint32_t n = op->nin + op->nout, inplace = 0;
    *c = (ffi_call){ .name = xl_str_c(p->a, name),
                     .execute = b.execute,
                     .dtype = xl_new(p->a, XLA_FFI_DataType, n + 1),
                     .order = xl_new(p->a, const uint8_t *, n + 1),
                     .from = xl_new(p->a, int32_t, op->nout + 1) };
    if (!give_attrs(p->a, cfg, &c->attrs))
        return xl_plan_unsupported(p, op, "an attribute is of a kind that the XLA FFI does not know");
    for (uint32_t i = 0; i < n; i++) {
        const xl_type *t = i < op->nin ? xl_in_type(p->f, op, i) : xl_out_type(p->f, op, i - op->nin);
        if (t->kind == XL_TY_TUPLE)
            return xl_plan_unsupported(p, op, "tuples are not passed to custom calls");
        c->dtype[i] = t->kind == XL_TY_TOKEN ? XLA_FFI_DataType_TOKEN : primitive(t->dtype);
        c->order[i] = i < op->nin ? order_of(p->a, XL_ATTR(op, CUSTOM_CALL, operand_layouts), i, t)
                                  : order_of(p->a, XL_ATTR(op, CUSTOM_CALL, result_layouts), i - op->nin, t);
        c->copies = c->copies || c->order[i];
    }
    for (uint32_t k = 0; k < op->nout; k++)
        c->from[k] = -1;
    for (uint32_t i = 0; aliases && i < aliases->n; i++) {
        const xl_attr *from = xl_dict_get(aliases->item[i], XL_STR("operand_index")),
                      *to = xl_dict_get(aliases->item[i], XL_STR("output_tuple_indices"));
        int64_t k = to && to->kind == XL_AT_INTS && to->n ? to->ints[0] : 0;
        if (k >= op->nout || !same_order(c->order[from->i], c->order[op->nin + k],
                                         xl_out_type(p->f, op, (uint32_t)k)->rank))
            continue;
        c->from[k] = (int32_t)from->i;
        bool once = op->nout == 1 && from->i < 32;         /* of several, one might lie in another's operand */
        for (uint32_t j = 0; j < op->nin; j++)
            once = once && (j == from->i || op->in[j].id != op->in[from->i].id);
        inplace = once ? 1u << from->i : 0;
    }
    if (b.instantiate) {
        XLA_FFI_CallFrame frame = { .stage = XLA_FFI_ExecutionStage_INSTANTIATE };
        xl_plan_at_end(p->plan, end_state, c);
        xl_error *err = invoke(c, b.instantiate, &frame, NULL);
        if (err)
            return err;
    }
    return xl_plan_step(p, op, run_ffi, c, inplace);
}
