/* Attaching to plugins, the replaced entries, and errors of our own. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/time.h"
#include "guard/guard.h"
#include "lane/identity.h"

static guard_state state;

guard_state *guard_current(void) { return &state; }
static xl_mutex attach_lock = XL_MUTEX_INIT;

/* ---- errors -------------------------------------------------------------------------------------------------------
 * Both sides may free and ask them, the frontend through the table and an XLA plugin through the vtable. */
typedef struct {
    PJRT_Error base;
    PJRT_Error_Code code;
    size_t n;
    char text[];
} own_error;

static void own_destroy(PJRT_Error *e) { free(e); }
static void own_message(const PJRT_Error *e, const char **text, size_t *n)
{
    *text = ((const own_error *)e)->text;
    *n = ((const own_error *)e)->n;
}
static PJRT_Error_Code own_code(const PJRT_Error *e) { return ((const own_error *)e)->code; }
static void own_payloads(const PJRT_Error *e, PJRT_Error_PayloadVisitor visitor, void *arg)
{
    (void)e;
    (void)visitor;
    (void)arg;
}
static const PJRT_Error_FunctionTable own_vtable = {
    .struct_size = sizeof own_vtable,
    .instance_size = sizeof(own_error),
    .destroy = own_destroy,
    .message = own_message,
    .get_code = own_code,
    .for_each_payload = own_payloads,
};

PJRT_Error *guard_error(PJRT_Error_Code code, xl_str text)
{
    own_error *e = malloc(sizeof *e + text.n + 1);
    if (!e)
        return NULL;
    e->base.vtable = &own_vtable;
    e->code = code;
    e->n = text.n;
    memcpy(e->text, text.p, text.n);
    e->text[text.n] = 0;
    return &e->base;
}

static bool is_own(const PJRT_Error *e) { return e && e->vtable == &own_vtable; }

/* ---- who the plugin is ------------------------------------------------------------------------------------------- */
static void identify(guard_plugin *p, void *symbol)
{
    Dl_info where;
    char file[128];
    if (dladdr(symbol, &where) && where.dli_fname)
        snprintf(p->path, sizeof p->path, "%s", where.dli_fname);
    xl_identity_file(p->path, file, sizeof file);
    snprintf(p->identity, sizeof p->identity, "file=%s api=%d.%d", file, p->real->pjrt_api_version.major_version,
             p->real->pjrt_api_version.minor_version);
}

static void take_flags(guard_plugin *p)
{
    xl_identity_flags(p->flags, sizeof p->flags);
    xl_identity_all_flags(p->all_flags, sizeof p->all_flags);
}

/* ---- the hooks --------------------------------------------------------------------------------------------------- */
static PJRT_Error *on_Plugin_Initialize(guard_plugin *p, PJRT_Plugin_Initialize_Args *a)
{
    take_flags(p);
    return p->real->PJRT_Plugin_Initialize(a);
}

static void on_Error_Destroy(guard_plugin *p, PJRT_Error_Destroy_Args *a)
{
    if (is_own(a->error))
        free(a->error);
    else
        p->real->PJRT_Error_Destroy(a);
}

static void on_Error_Message(guard_plugin *p, PJRT_Error_Message_Args *a)
{
    guard_state *g = p->g;
    if (is_own(a->error))
        own_message(a->error, &a->message, &a->message_size);
    else {
        p->real->PJRT_Error_Message(a);
        guard_spmd_error(g, (xl_str){ a->message, a->message_size });
    }
}

static PJRT_Error *on_Error_GetCode(guard_plugin *p, PJRT_Error_GetCode_Args *a)
{
    if (!is_own(a->error))
        return p->real->PJRT_Error_GetCode(a);
    a->code = own_code(a->error);
    return NULL;
}

static PJRT_Error *on_Error_ForEachPayload(guard_plugin *p, PJRT_Error_ForEachPayload_Args *a)
{
    return is_own(a->error) ? NULL : p->real->PJRT_Error_ForEachPayload(a);
}

static PJRT_Error *on_Client_Create(guard_plugin *p, PJRT_Client_Create_Args *a)
{
    guard_state *g = p->g;
    if (!atomic_exchange(&p->initialised, true))
        take_flags(p);
    for (size_t i = 0; i < a->num_options; i++) {
        const PJRT_NamedValue *v = &a->create_options[i];
        if (v->name_size == 7 && !memcmp(v->name, "node_id", 7) && v->type == PJRT_NamedValue_kInt64)
            xl_run_set_rank(g->run, (int)v->int64_value);
    }
    double t = xl_now();
    flight *f = guard_takeoff(g, "client creation", p->path, t);
    PJRT_Error *err = p->real->PJRT_Client_Create(a);
    guard_land(f);
    if (!err) {
        guard_store_add(g, a);
        xl_mutex_lock(&g->client_lock);
        g->client_plugin = p;
        g->client = a->client;
        xl_mutex_unlock(&g->client_lock);
    }
    xl_event e;
    xl_event_begin(g->run, &e, "client");
    xl_json_put_text(&e.j, "plugin", p->path);
    xl_json_put_bool(&e.j, "ok", !err);
    xl_json_put_num(&e.j, "seconds", xl_now() - t);
    xl_json_put_text(&e.j, "flags", p->flags);
    if (err) {
        PJRT_Error_Message_Args m = { .struct_size = sizeof m, .error = err };
        p->real->PJRT_Error_Message(&m);
        xl_json_put_str(&e.j, "error", (xl_str){ m.message, m.message_size });
    }
    xl_event_end(g->run, &e);
    if (!err)
        guard_ahead_start(p, a->client);
    return err;
}

static PJRT_Error *on_Client_Destroy(guard_plugin *p, PJRT_Client_Destroy_Args *a)
{
    guard_state *g = p->g;
    guard_ahead_stop(g, a->client);
    guard_record_end(g, false);
    xl_mutex_lock(&g->client_lock);
    if (g->client == a->client)
        g->client = NULL;
    xl_mutex_unlock(&g->client_lock);
    guard_store_drop(g, a->client);
    guard_memory_forget(p, a->client);
    bool written = guard_write_metrics(g);
    xl_event e; /* Python ends by SIGINT itself, after this and without exit() */
    xl_event_begin(g->run, &e, "client_end");
    xl_json_put_bool(&e.j, "counters", written);
    xl_event_end(g->run, &e);
    return p->real->PJRT_Client_Destroy(a);
}

static PJRT_Error *on_Client_Compile(guard_plugin *p, PJRT_Client_Compile_Args *a) { return guard_compile(p, a); }

static PJRT_Error *on_Device_MemoryStats(guard_plugin *p, PJRT_Device_MemoryStats_Args *a)
{
    return guard_memory_stats(p, a);
}
static PJRT_Error *on_Device_ClearMemoryStats(guard_plugin *p, PJRT_Device_ClearMemoryStats_Args *a)
{
    return guard_memory_clear(p, a);
}

static PJRT_Error *on_Executable_DeserializeAndLoad(guard_plugin *p, PJRT_Executable_DeserializeAndLoad_Args *a)
{
    double t = xl_now();
    PJRT_Error *err = p->real->PJRT_Executable_DeserializeAndLoad(a);
    if (!err)
        guard_loaded(p, a, xl_now() - t);
    return err;
}

static PJRT_Error *on_LoadedExecutable_Execute(guard_plugin *p, PJRT_LoadedExecutable_Execute_Args *a)
{
    return guard_execute(p, a);
}

static PJRT_Error *on_LoadedExecutable_Destroy(guard_plugin *p, PJRT_LoadedExecutable_Destroy_Args *a)
{
    guard_state *g = p->g;
    guard_exec_drop(g, a->executable);
    if (guard_recording(g))
        guard_record_dropped(a->executable);
    return p->real->PJRT_LoadedExecutable_Destroy(a);
}

const uint8_t guard_type_bytes[GUARD_TYPES] = {
    0, 1, 1, 2, 4, 8, 1, 2, 4, 8, 2, 4, 8, 2, 8, 16, 1, 1, 1, 1, 1, 1, 1, 0, 1, 1, 1, 1, 1, 1, 1, 1, 1,
};

static PJRT_Error *on_Client_BufferFromHostBuffer(guard_plugin *p, PJRT_Client_BufferFromHostBuffer_Args *a)
{
    guard_state *g = p->g;
    uint64_t bytes = (unsigned)a->type < GUARD_TYPES ? guard_type_bytes[a->type] : 1;
    for (size_t i = 0; i < a->num_dims; i++)
        bytes *= (uint64_t)a->dims[i];
    xl_metrics_count(g->metrics, NULL, XL_M_InboundData, bytes);
    xl_metrics_count(g->metrics, NULL, XL_M_TransferToDevice, 1);
    int none = 0;
    if (atomic_load_explicit(&g->tensor, memory_order_relaxed) ||
        !atomic_compare_exchange_strong(&g->tensor, &none, 1))
        return p->real->PJRT_Client_BufferFromHostBuffer(a);
    g->tensor_spmd = guard_spmd();
    g->tensor_time = xl_run_time(g->run);
    atomic_store_explicit(&g->tensor, 2, memory_order_release);
    double t = xl_now();
    PJRT_Error *err = p->real->PJRT_Client_BufferFromHostBuffer(a);
    xl_event e;
    xl_event_begin(g->run, &e, "first_buffer"); /* XLA's GPU client takes the card's memory here: see `xlane run` */
    xl_json_put_text(&e.j, "plugin", p->path);
    xl_json_put_num(&e.j, "seconds", xl_now() - t);
    xl_event_end(g->run, &e);
    return err;
}

static PJRT_Error *on_Buffer_ReadyEvent(guard_plugin *p, PJRT_Buffer_ReadyEvent_Args *a)
{
    guard_awaited(p->g, a->buffer);
    return p->real->PJRT_Buffer_ReadyEvent(a);
}

static PJRT_Error *on_Buffer_ToHostBuffer(guard_plugin *p, PJRT_Buffer_ToHostBuffer_Args *a)
{
    guard_state *g = p->g;
    if (a->dst) {
        guard_read(g, a->src, a->dst_size);
        guard_spmd_read(a->src);
    }
    PJRT_Error *err = p->real->PJRT_Buffer_ToHostBuffer(a);
    if (a->dst && !err) {
        guard_copied_number(p, a);
        if (guard_recording(g))
            guard_record_copied(p, a);
    }
    return err;
}

static PJRT_Error *on_Buffer_CopyRawToHost(guard_plugin *p, PJRT_Buffer_CopyRawToHost_Args *a)
{
    guard_state *g = p->g;
    guard_read(g, a->buffer, (uint64_t)a->transfer_size);
    guard_spmd_read(a->buffer);
    return p->real->PJRT_Buffer_CopyRawToHost(a);
}

static PJRT_Error *on_Buffer_Destroy(guard_plugin *p, PJRT_Buffer_Destroy_Args *a)
{
    guard_state *g = p->g;
    guard_spmd_destroyed(g, a->buffer);
    if (guard_recording(g))
        guard_record_destroyed(a->buffer);
    return p->real->PJRT_Buffer_Destroy(a);
}

static uint64_t size_of(guard_plugin *p, PJRT_Buffer *b)
{
    PJRT_Buffer_OnDeviceSizeInBytes_Args s = { .struct_size = sizeof s, .buffer = b };
    PJRT_Error *err = p->real->PJRT_Buffer_OnDeviceSizeInBytes(&s);
    if (!err)
        return s.on_device_size_in_bytes;
    p->real->PJRT_Error_Destroy(
        &(PJRT_Error_Destroy_Args){ .struct_size = sizeof(PJRT_Error_Destroy_Args), .error = err });
    return 0;
}

static PJRT_Error *on_Buffer_UnsafePointer(guard_plugin *p, PJRT_Buffer_UnsafePointer_Args *a)
{
    guard_state *g = p->g;
    uint64_t bytes = size_of(p, a->buffer);
    guard_read(g, a->buffer, bytes);
    guard_spmd_read(a->buffer);
    PJRT_Error *err = p->real->PJRT_Buffer_UnsafePointer(a);
    if (!err)
        guard_shared_number(p, a->buffer, (const void *)a->buffer_pointer, bytes);
    if (!err && guard_recording(g))
        guard_record_shared(p, a->buffer, (const void *)a->buffer_pointer, bytes);
    return err;
}

static PJRT_Error *on_Buffer_OpaqueDeviceMemoryDataPointer(guard_plugin *p,
                                                           PJRT_Buffer_OpaqueDeviceMemoryDataPointer_Args *a)
{
    guard_state *g = p->g;
    uint64_t bytes = size_of(p, a->buffer);
    guard_read(g, a->buffer, bytes);
    guard_spmd_read(a->buffer);
    PJRT_Error *err = p->real->PJRT_Buffer_OpaqueDeviceMemoryDataPointer(a);
    if (!err)
        guard_shared_number(p, a->buffer, a->device_memory_ptr, bytes);
    if (!err && guard_recording(g))
        guard_record_shared(p, a->buffer, a->device_memory_ptr, bytes);
    return err;
}

/* From here on a program may be compiled to something else than itself, and the cache's key does not say to what. */
static PJRT_Error *on_register_transform(guard_plugin *p, PJRT_Register_Xla_Transform_Args *a)
{
    atomic_store(&p->g->rewrites, true);
    return p->transform->register_xla_transform(a);
}

/* ---- one set of entries per plugin ---- */
#define SETS(M) M(0) M(1) M(2) M(3)
#define HOOK_OF(k, name)                                                                                               \
    static PJRT_Error *hook_##k##_##name(PJRT_##name##_Args *a) { return on_##name(&state.plugin[k], a); }
#define HOOKV_OF(k, name) static void hook_##k##_##name(PJRT_##name##_Args *a) { on_##name(&state.plugin[k], a); }
#define HOOK(name) HOOK_OF(0, name)
#define HOOKV(name) HOOKV_OF(0, name)
#include "guard/hooks.def"
#define HOOK(name) HOOK_OF(1, name)
#define HOOKV(name) HOOKV_OF(1, name)
#include "guard/hooks.def"
#define HOOK(name) HOOK_OF(2, name)
#define HOOKV(name) HOOKV_OF(2, name)
#include "guard/hooks.def"
#define HOOK(name) HOOK_OF(3, name)
#define HOOKV(name) HOOKV_OF(3, name)
#include "guard/hooks.def"

#define GET_OF(k) static const PJRT_Api *get_##k(void) { return state.plugin[k].table; }
SETS(GET_OF)
_Static_assert(GUARD_PLUGINS == 4, "a set of hooks for each plugin");

#define PUT(k, name)                                                                               \
    if (PJRT_HAS(t, PJRT_##name) && t->PJRT_##name)                                                \
        t->PJRT_##name = hook_##k##_##name;

static void put_hooks(PJRT_Api *t, uint32_t k)
{
    switch (k) {
#define HOOK(name) PUT(0, name)
#define HOOKV(name) PUT(0, name)
    case 0:
#include "guard/hooks.def"
        break;
#define HOOK(name) PUT(1, name)
#define HOOKV(name) PUT(1, name)
    case 1:
#include "guard/hooks.def"
        break;
#define HOOK(name) PUT(2, name)
#define HOOKV(name) PUT(2, name)
    case 2:
#include "guard/hooks.def"
        break;
#define HOOK(name) PUT(3, name)
#define HOOKV(name) PUT(3, name)
    case 3:
#include "guard/hooks.def"
        break;
    default: break;
    }
}

#define REGISTER_OF(k)                                                               \
    static PJRT_Error *register_##k(PJRT_Register_Xla_Transform_Args *a)             \
    {                                                                                \
        return on_register_transform(&state.plugin[k], a);                           \
    }
SETS(REGISTER_OF)
static PJRT_Register_Xla_Transform *const registers[GUARD_PLUGINS] = { register_0, register_1, register_2, register_3 };

/* The first extension of a type counts: ours goes in front of the plugin's. */
static void put_transform(guard_plugin *p, PJRT_Api *t, uint32_t k)
{
    const PJRT_Extension_Base *e = p->real->extension_start;
    for (int i = 0; e && i < 1000 && e->type != PJRT_Extension_Type_XlaTransform; i++)
        e = e->next;
    if (!e || e->type != PJRT_Extension_Type_XlaTransform ||
        e->struct_size < PJRT_SIZE(PJRT_Xla_Transform_Extension, register_xla_transform))
        return;
    PJRT_Xla_Transform_Extension *ours = calloc(1, e->struct_size > sizeof *ours ? e->struct_size : sizeof *ours);
    if (!ours)
        return;
    memcpy(ours, e, e->struct_size);
    p->transform = (const PJRT_Xla_Transform_Extension *)e;
    ours->register_xla_transform = registers[k];
    ours->base.next = t->extension_start;
    t->extension_start = &ours->base;
}

static PJRT_GetPjrtApi *const getters[GUARD_PLUGINS] = { get_0, get_1, get_2, get_3 };

static PJRT_GetPjrtApi *attach(guard_state *g, PJRT_GetPjrtApi *theirs, const PJRT_Api *real)
{
    if (!real || real->struct_size < PJRT_SIZE(PJRT_Api, PJRT_LoadedExecutable_Execute) ||
        real->pjrt_api_version.major_version != PJRT_API_MAJOR ||
        real->pjrt_api_version.minor_version < PJRT_API_MINOR_FLOOR)
        return NULL;                                       /* another table than we know: hands off */
    guard_start();
    for (uint32_t i = 0; i < g->nplugin; i++)
        if (g->plugin[i].real == real)
            return getters[i];
    if (g->nplugin == GUARD_PLUGINS || !g->run || !g->metrics)
        return NULL;
    guard_plugin *p = &g->plugin[g->nplugin];
    PJRT_Api *t = calloc(1, real->struct_size > sizeof *t ? real->struct_size : sizeof *t);
    if (!t)
        return NULL;
    memcpy(t, real, real->struct_size);
    p->g = g;
    p->real = real;
    p->table = t;
    void *symbol;
    memcpy(&symbol, &theirs, sizeof symbol);
    identify(p, symbol);
    take_flags(p);
    put_hooks(t, g->nplugin);
    put_transform(p, t, g->nplugin);
    xl_event e;
    xl_event_begin(g->run, &e, "attach");
    xl_json_put_text(&e.j, "plugin", p->path);
    xl_json_put_text(&e.j, "identity", p->identity);
    xl_json_put_text(&e.j, "flags", p->flags);
    xl_json_put_text(&e.j, "cache", g->cache ? xl_cache_dir(g->cache) : "off");
    xl_event_end(g->run, &e);
    return getters[g->nplugin++];
}

/* The preload asks with the plugin's own GetPjrtApi and hands ours to the frontend. NULL: the plugin's own stays. */
__attribute__((visibility("default"))) void *xlane_guard_attach(void *get_pjrt_api);
void *xlane_guard_attach(void *get_pjrt_api)
{
    guard_state *g = guard_current();
    PJRT_GetPjrtApi *theirs, *ours;
    static _Thread_local bool inside;
    if (inside) /* a plugin that opens another one: the outer one is guarded */
        return NULL;
    memcpy(&theirs, &get_pjrt_api, sizeof theirs);
    inside = true;
    const PJRT_Api *real = theirs();
    inside = false;
    xl_mutex_lock(&attach_lock);
    ours = attach(g, theirs, real);
    xl_mutex_unlock(&attach_lock);
    void *p;
    memcpy(&p, &ours, sizeof p);
    return p;
}

/* Named as the plugin itself: the real one is in XLANE_GUARD_PLUGIN. */
__attribute__((visibility("default"))) const PJRT_Api *GetPjrtApi(void);
const PJRT_Api *GetPjrtApi(void)
{
    const char *path = getenv("XLANE_GUARD_PLUGIN"), *off = getenv("XLANE_GUARD");
    if (!path || !*path) {
        fprintf(stderr,
                "xlane: the guard was loaded as a plugin, but XLANE_GUARD_PLUGIN does not say which plugin to guard; "
                "set it to the plugin's path\n");
        return NULL;
    }
    void *lib = dlopen(path, RTLD_LAZY | RTLD_LOCAL), *symbol = lib ? dlsym(lib, "GetPjrtApi") : NULL;
    if (!symbol) {
        const char *why = dlerror();
        fprintf(stderr, "xlane: the guarded plugin %s did not load: %s; `xlane probe --plugin %s` says more\n", path,
                why ? why : "no GetPjrtApi", path);
        return NULL;
    }
    PJRT_GetPjrtApi *theirs, *ours;
    memcpy(&theirs, &symbol, sizeof theirs);
    if (off && !strcmp(off, "off"))
        return theirs();
    void *p = xlane_guard_attach(symbol);                  /* with the preload at work too, it is attached once */
    memcpy(&ours, &p, sizeof ours);
    return ours ? ours() : theirs();
}
