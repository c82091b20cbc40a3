#include "pjrt/client.h"

#include <pthread.h>
#include <stdlib.h>

#include "pjrt/call.h"
#include "pjrt/gate.h"
#include "pjrt/own.h"

static const struct { const char *text; size_t bytes; } elems[] = {
#define ELEM(name, number, bytes, text) [number] = { text, bytes },
#include "pjrt/elem.def"
};
enum { NELEM = sizeof elems / sizeof *elems };

const char *xl_elem_text(xl_elem e) { return (size_t)e < NELEM && elems[e].text ? elems[e].text : "?"; }
size_t xl_elem_bytes(xl_elem e) { return (size_t)e < NELEM ? elems[e].bytes : 0; }

xl_elem xl_elem_parse(xl_str text)
{
    for (size_t i = 1; i < NELEM; i++)
        if (elems[i].text && xl_str_is(text, elems[i].text))
            return (xl_elem)i;
    return XL_ELEM_INVALID;
}

bool xl_elem_size(xl_elem e, xl_dims dims, size_t *out)
{
    size_t n = xl_elem_bytes(e);
    for (size_t i = 0; i < dims.n; i++)
        if (dims.p[i] < 0 || __builtin_mul_overflow(n, (size_t)dims.p[i], &n))
            return false;
    *out = n;
    return true;
}

/* ---- Key-value callbacks: the plugin calls us ---- */

static void kv_free(char *value) { free(value); }

static PJRT_Error *kv_error(PJRT_CallbackError *make, xl_error *err)
{
    const char *text = xl_error_message(err);
    PJRT_Error *e = (*make)((PJRT_Error_Code)xl_error_code(err), text, strlen(text));
    xl_error_free(err);
    return e;
}

static PJRT_Error *kv_get(PJRT_KeyValueGetCallback_Args *args)
{
    const xl_kv *kv = args->user_arg;
    xl_buf value = { 0 };
    xl_error *err = kv->get(kv->ctx, (xl_str){ args->key, args->key_size }, args->timeout_in_ms, &value);
    if (err) {
        xl_buf_fini(&value);
        return kv_error(args->callback_error, err);
    }
    args->value = value.p;
    args->value_size = value.n;
    args->value_deleter_callback = kv_free;
    return NULL;
}

static PJRT_Error *kv_try_get(PJRT_KeyValueTryGetCallback_Args *args)
{
    const xl_kv *kv = args->user_arg;
    xl_buf value = { 0 };
    xl_error *err = kv->try_get(kv->ctx, (xl_str){ args->key, args->key_size }, &value);
    if (err) {
        xl_buf_fini(&value);
        return kv_error(args->callback_error, err);
    }
    args->value = value.p;
    args->value_size = value.n;
    args->value_deleter_callback = kv_free;
    return NULL;
}

static PJRT_Error *kv_put(PJRT_KeyValuePutCallback_Args *args)
{
    const xl_kv *kv = args->user_arg;
    xl_error *err = kv->put(kv->ctx, (xl_str){ args->key, args->key_size }, (xl_str){ args->value, args->value_size });
    return err ? kv_error(args->callback_error, err) : NULL;
}

/* ---- The client ---- */

xl_error *xl_describe_device(const xl_plugin *p, xl_arena *a, PJRT_DeviceDescription *desc, xl_device *d)
{
    xl_error *err = NULL;
    PJRT_DeviceDescription_Id_Args id = { .struct_size = sizeof id, .device_description = desc };
    XL_DO(PJRT_CALL(p, PJRT_DeviceDescription_Id, &id));
    d->id = id.id;
    PJRT_DeviceDescription_ProcessIndex_Args process = { .struct_size = sizeof process, .device_description = desc };
    XL_DO(PJRT_CALL(p, PJRT_DeviceDescription_ProcessIndex, &process));
    d->process = process.process_index;
    PJRT_DeviceDescription_Kind_Args kind = { .struct_size = sizeof kind, .device_description = desc };
    XL_DO(PJRT_CALL(p, PJRT_DeviceDescription_Kind, &kind));
    d->kind = xl_pjrt_str(a, kind.device_kind, kind.device_kind_size);
    PJRT_DeviceDescription_ToString_Args text = { .struct_size = sizeof text, .device_description = desc };
    XL_DO(PJRT_CALL(p, PJRT_DeviceDescription_ToString, &text));
    d->text = xl_pjrt_str(a, text.to_string, text.to_string_size);
out:
    return err;
}

static xl_error *describe(xl_client *c, PJRT_Device *handle, xl_device *d)
{
    xl_error *err = NULL;
    const xl_plugin *p = c->plugin;
    d->client = c;
    d->handle = handle;
    PJRT_Device_GetDescription_Args desc = { .struct_size = sizeof desc, .device = handle };
    XL_DO(PJRT_CALL(p, PJRT_Device_GetDescription, &desc));
    XL_DO(xl_describe_device(p, &c->arena, desc.device_description, d));
    PJRT_Device_LocalHardwareId_Args hw = { .struct_size = sizeof hw, .device = handle };
    err = PJRT_CALL(p, PJRT_Device_LocalHardwareId, &hw);
    d->hardware = err ? -1 : hw.local_hardware_id; /* only for people to read, so its absence is no reason to stop */
    xl_error_free(err);
    err = NULL;
out:
    return err;
}

/* UNIMPLEMENTED from a call we can do without is not an error. */
static xl_error *optional(xl_error *err, bool *have)
{
    *have = !err;
    if (xl_error_code(err) != XL_CODE_UNIMPLEMENTED)
        return err;
    xl_error_free(err);
    return NULL;
}

static xl_error *read_memories(xl_client *c)
{
    xl_error *err = NULL;
    bool have;
    PJRT_Client_AddressableMemories_Args all = { .struct_size = sizeof all, .client = c->handle };
    XL_DO(optional(PJRT_CALL(c->plugin, PJRT_Client_AddressableMemories, &all), &have));
    if (!have)
        goto out;
    c->memory = xl_new(&c->arena, xl_memory, all.num_addressable_memories);
    c->nmemory = all.num_addressable_memories;
    for (size_t i = 0; i < c->nmemory; i++) {
        xl_memory *m = &c->memory[i];
        m->handle = all.addressable_memories[i];
        PJRT_Memory_Kind_Args kind = { .struct_size = sizeof kind, .memory = m->handle };
        XL_DO(PJRT_CALL(c->plugin, PJRT_Memory_Kind, &kind));
        m->kind = xl_pjrt_str(&c->arena, kind.kind, kind.kind_size);
        PJRT_Memory_Id_Args id = { .struct_size = sizeof id, .memory = m->handle };
        XL_DO(PJRT_CALL(c->plugin, PJRT_Memory_Id, &id));
        m->id = id.id;
    }
    for (size_t i = 0; i < c->ndevice; i++) {
        if (!c->device[i].local)
            continue;
        PJRT_Device_DefaultMemory_Args def = { .struct_size = sizeof def, .device = c->device[i].handle };
        XL_DO(optional(PJRT_CALL(c->plugin, PJRT_Device_DefaultMemory, &def), &have));
        for (size_t k = 0; have && k < c->nmemory; k++)
            if (c->memory[k].handle == def.memory)
                c->device[i].memory = &c->memory[k];
    }
out:
    return err;
}

static xl_error *read_devices(xl_client *c)
{
    xl_error *err = NULL;
    PJRT_Client_Devices_Args all = { .struct_size = sizeof all, .client = c->handle };
    XL_DO(PJRT_CALL(c->plugin, PJRT_Client_Devices, &all));
    PJRT_Client_AddressableDevices_Args local = { .struct_size = sizeof local, .client = c->handle };
    XL_DO(PJRT_CALL(c->plugin, PJRT_Client_AddressableDevices, &local));
    c->device = xl_new(&c->arena, xl_device, all.num_devices);
    c->local = xl_new(&c->arena, xl_device *, local.num_addressable_devices);
    for (size_t i = 0; i < all.num_devices; i++, c->ndevice++)
        XL_TRY(describe(c, all.devices[i], &c->device[i]), "asking about device %zu", i);
    for (size_t i = 0; i < local.num_addressable_devices; i++)
        for (size_t k = 0; k < c->ndevice; k++)
            if (c->device[k].handle == local.addressable_devices[i]) {
                c->device[k].local = true;
                c->local[c->nlocal++] = &c->device[k];
            }
    if (c->nlocal != local.num_addressable_devices)
        err = XL_ERR(INTERNAL, "%s lists addressable devices that are not among its devices", c->plugin->file);
out:
    return err;
}

xl_error *xl_client_open(xl_plugin *p, const xl_client_opts *opts, xl_client **out)
{
    xl_error *err = NULL;
    xl_arena tmp = { 0 };
    *out = NULL;
    xl_client *c = calloc(1, sizeof *c);
    if (!c)
        return XL_ERR(EXHAUSTED, "out of memory");
    c->plugin = p;
    XL_DO(xl_gate_pass(XL_GATE_RUNTIME, "making a client"));
    XL_DO(xl_plugin_init(p));
    PJRT_Client_Create_Args create = { .struct_size = sizeof create };
    if (opts && opts->noption) {
        create.create_options = xl_named_to_pjrt(&tmp, opts->option, opts->noption);
        create.num_options = opts->noption;
    }
    if (opts && opts->kv) {
        create.kv_get_callback = kv_get;
        create.kv_put_callback = kv_put;
        create.kv_try_get_callback = kv_try_get;
        create.kv_get_user_arg = create.kv_put_user_arg = create.kv_try_get_user_arg = (void *)opts->kv;
    }
    XL_DO(PJRT_CALL(p, PJRT_Client_Create, &create));
    c->handle = create.client;
    PJRT_Client_PlatformName_Args name = { .struct_size = sizeof name, .client = c->handle };
    XL_DO(PJRT_CALL(p, PJRT_Client_PlatformName, &name));
    c->platform = xl_pjrt_str(&c->arena, name.platform_name, name.platform_name_size);
    PJRT_Client_PlatformVersion_Args version = { .struct_size = sizeof version, .client = c->handle };
    XL_DO(PJRT_CALL(p, PJRT_Client_PlatformVersion, &version));
    c->version = xl_pjrt_str(&c->arena, version.platform_version, version.platform_version_size);
    PJRT_Client_ProcessIndex_Args process = { .struct_size = sizeof process, .client = c->handle };
    XL_DO(PJRT_CALL(p, PJRT_Client_ProcessIndex, &process));
    c->process = process.process_index;
    XL_DO(read_devices(c));
    XL_DO(read_memories(c));
    *out = c;
    c = NULL;
out:
    xl_client_close(c);
    xl_arena_fini(&tmp);
    return err;
}

void xl_client_close(xl_client *c)
{
    if (!c)
        return;
    if (c->handle) {
        PJRT_DESTROY(c->plugin, Client, client, c->handle);
    }
    xl_arena_fini(&c->arena);
    free(c);
}

xl_plugin *xl_client_plugin(const xl_client *c) { return c->plugin; }
xl_str xl_client_platform(const xl_client *c) { return c->platform; }
xl_str xl_client_version(const xl_client *c) { return c->version; }
size_t xl_client_nlocal(const xl_client *c) { return c->nlocal; }
const xl_device *xl_client_local(const xl_client *c, size_t i) { return i < c->nlocal ? c->local[i] : NULL; }

const xl_device *xl_client_devices(const xl_client *c, size_t *n)
{
    *n = c->ndevice;
    return c->device;
}

const xl_device *xl_client_device(const xl_client *c, int id)
{
    for (size_t i = 0; i < c->ndevice; i++)
        if (c->device[i].id == id)
            return &c->device[i];
    return NULL;
}

const xl_device *xl_device_of(const xl_client *c, const PJRT_Device *handle)
{
    for (size_t i = 0; i < c->ndevice; i++)
        if (c->device[i].handle == handle)
            return &c->device[i];
    return NULL;
}

xl_error *xl_device_memory_read(const xl_device *d, xl_device_memory *out)
{
    xl_error *err = NULL;
    PJRT_Device_MemoryStats_Args s = { .struct_size = sizeof s, .device = d->handle };
    XL_DO(PJRT_CALL(d->client->plugin, PJRT_Device_MemoryStats, &s));
#define SET(name) (s.name##_is_set ? s.name : -1)
    *out = (xl_device_memory){ .in_use = s.bytes_in_use,
                               .peak_in_use = SET(peak_bytes_in_use),
                               .allocs = SET(num_allocs),
                               .largest_alloc = SET(largest_alloc_size),
                               .limit = SET(bytes_limit),
                               .reserved = SET(bytes_reserved),
                               .peak_reserved = SET(peak_bytes_reserved),
                               .reservable_limit = SET(bytes_reservable_limit),
                               .largest_free = SET(largest_free_block_bytes),
                               .pool = SET(pool_bytes),
                               .peak_pool = SET(peak_pool_bytes),
                               .peak_allocated = SET(peak_allocated_bytes) };
#undef SET
out:
    return err;
}

xl_error *xl_device_memory_reset_peak(const xl_device *d)
{
    PJRT_Device_ClearMemoryStats_Args args = { .struct_size = sizeof args, .device = d->handle };
    return PJRT_CALL(d->client->plugin, PJRT_Device_ClearMemoryStats, &args);
}

/* ---- Fences ---- */

xl_error *xl_fence_own(const xl_plugin *p, PJRT_Event *handle, xl_fence **out)
{
    xl_error *err = NULL;
    xl_fence *e = *out = xl_plugin_gave(p, handle, "event", sizeof *e, &err);
    if (e)
        *e = (xl_fence){ p, handle };
    else if (handle)
        PJRT_DESTROY(p, Event, event, handle);
    return err;
}

void xl_fence_free(xl_fence *e)
{
    if (e)
        PJRT_DESTROY(e->plugin, Event, event, e->handle);
    free(e);
}

xl_error *xl_fence_is_ready(const xl_fence *e, bool *out)
{
    PJRT_Event_IsReady_Args args = { .struct_size = sizeof args, .event = e->handle };
    xl_error *err = PJRT_CALL(e->plugin, PJRT_Event_IsReady, &args);
    *out = !err && args.is_ready;
    return err;
}

typedef struct { const xl_plugin *plugin; void (*fn)(xl_error *, void *); void *arg; } on_ready;

static void ready(PJRT_Error *error, void *user_arg)
{
    on_ready r = *(on_ready *)user_arg;
    free(user_arg);
    r.fn(xl_plugin_error(r.plugin, "the awaited work", error), r.arg);
}

xl_error *xl_fence_on_ready(xl_fence *e, void (*fn)(xl_error *err, void *arg), void *arg)
{
    on_ready *r = malloc(sizeof *r);
    if (!r)
        return XL_ERR(EXHAUSTED, "out of memory");
    *r = (on_ready){ e->plugin, fn, arg };
    PJRT_Event_OnReady_Args args = { .struct_size = sizeof args, .event = e->handle, .callback = ready, .user_arg = r };
    xl_error *err = PJRT_CALL(e->plugin, PJRT_Event_OnReady, &args);
    if (err)
        free(r);
    return err;
}

typedef struct { pthread_mutex_t lock; pthread_cond_t cond; bool done; xl_error *err; } waiter;

static void wake(xl_error *err, void *arg)
{
    waiter *w = arg;
    pthread_mutex_lock(&w->lock);
    w->done = true;
    w->err = err;
    pthread_cond_signal(&w->cond);
    pthread_mutex_unlock(&w->lock);
}

/* Frontends never call Event_Await, so plugins exist that have only OnReady. */
static xl_error *await_by_callback(xl_fence *e)
{
    xl_error *err = NULL;
    waiter w = { .lock = PTHREAD_MUTEX_INITIALIZER, .cond = PTHREAD_COND_INITIALIZER };
    XL_DO(xl_fence_on_ready(e, wake, &w));
    pthread_mutex_lock(&w.lock);
    while (!w.done)
        pthread_cond_wait(&w.cond, &w.lock);
    pthread_mutex_unlock(&w.lock);
    err = w.err;
out:
    pthread_cond_destroy(&w.cond);
    pthread_mutex_destroy(&w.lock);
    return err;
}

xl_error *xl_fence_await(xl_fence *e)
{
    bool is_ready;
    XL_KNOWN(e);                                           /* xl_fence_own gave no error */
    if (!PJRT_CAN(e->plugin, PJRT_Event_Await))
        return await_by_callback(e);
    PJRT_Event_Await_Args args = { .struct_size = sizeof args, .event = e->handle };
    xl_error *err = PJRT_CALL(e->plugin, PJRT_Event_Await, &args);
    /* UNIMPLEMENTED may be Await's answer or that of the work; the work's comes with a ready event. */
    if (xl_error_code(err) == XL_CODE_UNIMPLEMENTED) {
        xl_error *ask = xl_fence_is_ready(e, &is_ready);
        if (!ask && !is_ready) {
            xl_error_free(err);
            return await_by_callback(e);
        }
        xl_error_free(ask);
    }
    return err;
}

xl_error *xl_fence_settle(const xl_plugin *p, PJRT_Event *handle, xl_fence **done)
{
    xl_error *err = NULL;
    xl_fence *e = NULL;
    XL_DO(xl_fence_own(p, handle, &e));
    if (done) {
        *done = e;
        e = NULL;
    } else {
        err = xl_fence_await(e);
    }
out:
    xl_fence_free(e);
    return err;
}
