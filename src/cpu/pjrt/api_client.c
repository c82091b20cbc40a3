/* The plugin, its client, devices, memories and topologies. Environment variables set the number of devices and their
 * memory (base/variables.def). */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "base/hash.h"
#include "base/thread.h"
#include "base/version.h"
#include "cpu/run/feature.h"
#include "cpu/pjrt/api.h"
#include "cpu/run/env.h"
#include "cpu/run/fiber.h"
#include "cpu/pjrt/client_ranks.h"
#include "cpu/pjrt/spare.h"

static const char platform[] = "xlane";
enum { DEVICES_MAX = 4096 };

#define NAMED(n, kind, field, v, size)                                                                                 \
    {                                                                                                                  \
        .struct_size = PJRT_SIZE(PJRT_NamedValue, value_size), .name = n, .name_size = sizeof(n) - 1,                  \
        .type = PJRT_NamedValue_##kind, .field = v, .value_size = size                                                 \
    }

/* ---- plugin ----------------------------------------------------------------------------------------------------- */
PJRT_Error *xl_PJRT_Plugin_Initialize(PJRT_Plugin_Initialize_Args *args) { (void)args; return NULL; }
PJRT_Error *xl_PJRT_Plugin_Attributes(PJRT_Plugin_Attributes_Args *args)
{
    static const int64_t current[3] = { 1, 17, 0 }, minimum[3] = { 0, 9, 0 }, sdy[3] = { 0, 0, 2 };
    static const PJRT_NamedValue attr[] = {
        NAMED("xla_version", kInt64, int64_value, 2, 1),
        NAMED("stablehlo_current_version", kInt64List, int64_array_value, current, 3),
        NAMED("stablehlo_minimum_version", kInt64List, int64_array_value, minimum, 3),
        NAMED("sdy_current_version", kInt64List, int64_array_value, sdy, 3),
    };
    args->attributes = attr;
    args->num_attributes = sizeof attr / sizeof *attr;
    return NULL;
}

/* ---- descriptions ----------------------------------------------------------------------------------------------- */
static void describe(PJRT_DeviceDescription *d, int id)
{
    d->id = id;
    snprintf(d->text, sizeof d->text, "xlane:%d", id);
    snprintf(d->kind, sizeof d->kind, "xlane cpu");
    d->coords[0] = id;
    d->attr[0] = (PJRT_NamedValue)NAMED("coords", kInt64List, int64_array_value, d->coords, 1);
}

PJRT_Error *xl_PJRT_DeviceDescription_Id(PJRT_DeviceDescription_Id_Args *args)
{
    args->id = args->device_description->id;
    return NULL;
}
PJRT_Error *xl_PJRT_DeviceDescription_ProcessIndex(PJRT_DeviceDescription_ProcessIndex_Args *args)
{
    args->process_index = args->device_description->process;
    return NULL;
}
PJRT_Error *xl_PJRT_DeviceDescription_Attributes(PJRT_DeviceDescription_Attributes_Args *args)
{
    args->attributes = args->device_description->attr;
    args->num_attributes = 1;
    return NULL;
}
PJRT_Error *xl_PJRT_DeviceDescription_Kind(PJRT_DeviceDescription_Kind_Args *args)
{
    args->device_kind = args->device_description->kind;
    args->device_kind_size = strlen(args->device_kind);
    return NULL;
}
PJRT_Error *xl_PJRT_DeviceDescription_DebugString(PJRT_DeviceDescription_DebugString_Args *args)
{
    args->debug_string = args->device_description->text;
    args->debug_string_size = strlen(args->debug_string);
    return NULL;
}
PJRT_Error *xl_PJRT_DeviceDescription_ToString(PJRT_DeviceDescription_ToString_Args *args)
{
    args->to_string = args->device_description->text;
    args->to_string_size = strlen(args->to_string);
    return NULL;
}

/* ---- memories --------------------------------------------------------------------------------------------------- */
static pthread_mutex_t user_lock = PTHREAD_MUTEX_INITIALIZER;

static void *memory_get(PJRT_Memory *m, const void *key)
{
    void *v = NULL;
    pthread_mutex_lock(&user_lock);
    for (xl_user *u = ((xl_memory_space *)m)->user; u; u = u->next)
        if (u->key == key)
            v = u->value;
    pthread_mutex_unlock(&user_lock);
    return v;
}
static void memory_set(PJRT_Memory *m, const void *key, void *value, void (*drop)(void *))
{
    xl_user *u, old = { 0 };
    pthread_mutex_lock(&user_lock);
    for (u = ((xl_memory_space *)m)->user; u && u->key != key; u = u->next)
        ;
    if (u) {
        old = *u;
        u->value = value;
        u->drop = drop;
    } else if ((u = malloc(sizeof *u))) {
        *u = (xl_user){ key, value, drop, ((xl_memory_space *)m)->user };
        ((xl_memory_space *)m)->user = u;
    }
    pthread_mutex_unlock(&user_lock);
    if (old.drop && old.value)
        old.drop(old.value);
}
static const PJRT_Memory_FunctionTable memory_table = {
    .struct_size = PJRT_SIZE(PJRT_Memory_FunctionTable, set_user_data),
    .instance_struct_size = sizeof(xl_memory_space),
    .get_user_data = memory_get,
    .set_user_data = memory_set,
};

const char *const xl_space_kind[XL_SPACES] = { "device", "pinned_host" };
PJRT_Error *xl_PJRT_Memory_Id(PJRT_Memory_Id_Args *args)
{
    args->id = ((xl_memory_space *)args->memory)->id;
    return NULL;
}
PJRT_Error *xl_PJRT_Memory_Kind(PJRT_Memory_Kind_Args *args)
{
    args->kind = xl_space_kind[((xl_memory_space *)args->memory)->space];
    args->kind_size = strlen(args->kind);
    return NULL;
}
PJRT_Error *xl_PJRT_Memory_Kind_Id(PJRT_Memory_Kind_Id_Args *args)
{
    args->kind_id = 1 + ((xl_memory_space *)args->memory)->space;
    return NULL;
}
PJRT_Error *xl_PJRT_Memory_DebugString(PJRT_Memory_DebugString_Args *args)
{
    args->debug_string = ((xl_memory_space *)args->memory)->text;
    args->debug_string_size = strlen(args->debug_string);
    return NULL;
}
PJRT_Error *xl_PJRT_Memory_ToString(PJRT_Memory_ToString_Args *args)
{
    args->to_string = ((xl_memory_space *)args->memory)->text;
    args->to_string_size = strlen(args->to_string);
    return NULL;
}
PJRT_Error *xl_PJRT_Memory_AddressableByDevices(PJRT_Memory_AddressableByDevices_Args *args)
{
    args->devices = ((xl_memory_space *)args->memory)->device->self;
    args->num_devices = 1;
    return NULL;
}

/* ---- devices ---------------------------------------------------------------------------------------------------- */
PJRT_Error *xl_PJRT_Device_GetDescription(PJRT_Device_GetDescription_Args *args)
{
    args->device_description = &args->device->desc;
    return NULL;
}
PJRT_Error *xl_PJRT_Device_IsAddressable(PJRT_Device_IsAddressable_Args *args)
{
    args->is_addressable = args->device->desc.process == args->device->client->process;
    return NULL;
}
PJRT_Error *xl_PJRT_Device_LocalHardwareId(PJRT_Device_LocalHardwareId_Args *args)
{
    const PJRT_Client *c = args->device->client;
    args->local_hardware_id = args->device->desc.process == c->process ? args->device->desc.id - (int)c->first : -1;
    return NULL;
}
PJRT_Error *xl_PJRT_Device_AddressableMemories(PJRT_Device_AddressableMemories_Args *args)
{
    args->memories = args->device->memory_list;
    args->num_memories = XL_SPACES;
    return NULL;
}
PJRT_Error *xl_PJRT_Device_DefaultMemory(PJRT_Device_DefaultMemory_Args *args)
{
    args->memory = &args->device->memory[XL_SPACE_DEVICE].base;
    return NULL;
}
/* Without a limit of their own, devices share what the machine has left. */
static bool reservable(const PJRT_Device *d, int64_t *out)
{
    FILE *f = d->limit ? NULL : fopen("/proc/meminfo", "re");
    char line[128];
    long long kib = 0;
    bool known = d->limit != 0;
    *out = d->limit;
    while (f && !known && fgets(line, sizeof line, f))
        known = sscanf(line, "MemAvailable: %lld", &kib) == 1;
    if (f) {
        fclose(f);
        *out = kib * 1024 / (int64_t)d->client->nlocal + atomic_load(&d->in_use);
    }
    return known;
}
PJRT_Error *xl_PJRT_Device_MemoryStats(PJRT_Device_MemoryStats_Args *args)
{
    PJRT_Device *d = args->device;
    int64_t most;
    bool is_known = reservable(d, &most);
    args->bytes_in_use = atomic_load(&d->in_use);
#define STAT(field, value, known)                                            \
    do {                                                                     \
        if (PJRT_HAS(args, field##_is_set)) {                                \
            args->field = (value);                                           \
            args->field##_is_set = (known);                                  \
        }                                                                    \
    } while (0)
    STAT(peak_bytes_in_use, atomic_load(&d->peak), true);
    STAT(num_allocs, atomic_load(&d->allocs), true);
    STAT(largest_alloc_size, atomic_load(&d->largest), true);
    STAT(bytes_limit, d->limit ? d->limit : d->total, true);
    STAT(bytes_reserved, 0, false);
    STAT(peak_bytes_reserved, 0, false);
    STAT(bytes_reservable_limit, most, is_known);
    STAT(largest_free_block_bytes, 0, false);
    STAT(pool_bytes, 0, false);
    STAT(peak_pool_bytes, 0, false);
    STAT(peak_allocated_bytes, 0, false);
    return NULL;
}
PJRT_Error *xl_PJRT_Device_ClearMemoryStats(PJRT_Device_ClearMemoryStats_Args *args)
{
    atomic_store(&args->device->peak, atomic_load(&args->device->in_use));
    return NULL;
}
static void no_attributes(PJRT_Device_Attributes *a) { (void)a; }
PJRT_Error *xl_PJRT_Device_GetAttributes(PJRT_Device_GetAttributes_Args *args)
{
    args->attributes = args->device->desc.attr;
    args->num_attributes = 0;
    args->device_attributes = NULL;
    args->attributes_deleter = no_attributes;
    return NULL;
}

/* Devices hand out memory in tiles or pages; ours need not, and does when asked to. */
static size_t grained(const PJRT_Device *d, size_t n)
{
    return d->grain ? (n + d->grain - 1) / d->grain * d->grain : n;
}
xl_error *xl_device_take(PJRT_Device *d, size_t n)
{
    n = grained(d, n);
    int64_t now = atomic_fetch_add(&d->in_use, (int64_t)n) + (int64_t)n;
    if (d->limit && now > d->limit) {
        atomic_fetch_sub(&d->in_use, (int64_t)n);
        return XL_ERR(
            EXHAUSTED,
            "RESOURCE_EXHAUSTED: E0100: RuntimeBufferAllocationFailure: Error allocating device buffer: attempting to "
            "allocate "
            "%.2fM. That was not possible. There are %.2fM free on device %s: free buffers, or raise XLANE_CPU_HBM",
            (double)n / 1048576, (double)(d->limit - (now - (int64_t)n)) / 1048576, d->desc.text);
    }
    return NULL;
}
void xl_device_took(PJRT_Device *d, size_t n)
{
    n = grained(d, n);
    int64_t now = atomic_load(&d->in_use), peak = atomic_load(&d->peak), largest = atomic_load(&d->largest);
    while (now > peak && !atomic_compare_exchange_weak(&d->peak, &peak, now))
        ;
    while ((int64_t)n > largest && !atomic_compare_exchange_weak(&d->largest, &largest, (int64_t)n))
        ;
    atomic_fetch_add(&d->allocs, 1);
}
void xl_device_give(PJRT_Device *d, size_t n) { atomic_fetch_sub(&d->in_use, (int64_t)grained(d, n)); }

/* ---- client ----------------------------------------------------------------------------------------------------- */
static void client_free(PJRT_Client *c)
{
    if (!c)
        return;
    for (size_t i = 0; c->device && i < c->n * XL_SPACES; i++) {
        for (xl_user *u = c->device[i / XL_SPACES].memory[i % XL_SPACES].user, *next; u; u = next) {
            next = u->next;
            if (u->drop && u->value)
                u->drop(u->value);
            free(u);
        }
    }
    if (c->mail)
        xl_mail_serve(c->mail, NULL);
    xl_mail_close(c->mail);
    xl_pool_free(c->pool);
    xl_fibers_free(c->fibers);
    free(c->device);
    free(c->list);
    free(c->memories);
    free(c->topology.list);
    pthread_mutex_destroy(&c->lock);
    free(c);
}

/* Threads of several processes on one host share its cores. */
static size_t pool_size(const xl_mail *mail)
{
    size_t cores = (size_t)xl_thread_cores(), share = mail ? xl_mail_neighbours(mail) : 1;
    return share == 1 || xl_env_get(XL_ENV_THREADS, 0) ? 0 : cores > share ? cores / share : 1;
}

PJRT_Error *xl_PJRT_Client_Create(PJRT_Client_Create_Args *args)
{
    xl_error *err = xl_env_check();
    uint64_t n = (uint64_t)xl_env_get(XL_ENV_DEVICES, 1), limit = (uint64_t)xl_env_get(XL_ENV_HBM, 0),
             grain = (uint64_t)xl_env_get(XL_ENV_GRAIN, 0);
    /* the oracle runs generic kernels; fused like the others', or sums would differ where the program magnifies that */
    xl_cpu_features_mask(xl_env_get(XL_ENV_PLAN, XL_ENV_PLANNED) == XL_ENV_PLAIN ? XL_CPU_FMA : ~0u);
    for (size_t i = 0; i < args->num_options && !err; i++) {
        const PJRT_NamedValue *v = &args->create_options[i];
        xl_str name = { v->name, v->name_size };
        if (xl_str_is(name, "cpu_device_count") && v->type == PJRT_NamedValue_kInt64) {
            if (v->int64_value < 1 || v->int64_value > DEVICES_MAX)
                err = XL_ERR(INVALID, "cpu_device_count: not a number from 1 to %d", DEVICES_MAX);
            else
                n = (uint64_t)v->int64_value;
        }
    }
    xl_client_ranks ranks;
    xl_mail *mail = NULL;
    if (!err)
        err = xl_client_ranks_read(args, &ranks);
    if (!err)
        err = xl_client_ranks_join(args, &ranks, (uint32_t)n, &mail);
    if (err)
        return xl_api_error(err);
    PJRT_Client *c = calloc(1, sizeof *c);
    if (!c) {
        xl_mail_close(mail);
        return xl_api_fail(XL_CODE_EXHAUSTED, "no memory for a client");
    }
    pthread_mutex_init(&c->lock, NULL);
    c->mail = mail;
    c->process = (int)ranks.me;
    c->nlocal = n;
    for (uint32_t p = 0; mail && p < (uint32_t)ranks.n; p++) {
        c->first += p < (uint32_t)ranks.me ? xl_mail_devices(mail, p) : 0;
        n += p == (uint32_t)ranks.me ? 0 : xl_mail_devices(mail, p);
    }
    c->n = n;
    c->device = calloc(n, sizeof *c->device);
    c->list = calloc(n, sizeof *c->list);
    c->memories = calloc(n * XL_SPACES, sizeof *c->memories);
    c->topology.list = calloc(n, sizeof *c->topology.list);
    c->pool = xl_pool_new(pool_size(mail));
    c->fibers = xl_fibers_new();
    if (!c->fibers || !c->device || !c->list || !c->memories || !c->topology.list) {
        client_free(c);
        return xl_api_fail(XL_CODE_EXHAUSTED, "no memory for %llu devices", (unsigned long long)n);
    }
    if (mail)
        xl_mail_serve(mail, c->pool);
    uint32_t process = 0;
    size_t end = mail ? xl_mail_devices(mail, 0) : n;      /* of that process's devices */
    long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGE_SIZE);
    for (size_t i = 0; i < n; i++) {
        PJRT_Device *d = &c->device[i];
        d->client = c;
        while (i >= end)
            end += xl_mail_devices(mail, ++process);
        describe(&d->desc, (int)i);
        d->desc.process = (int)process;
        for (int k = 0; k < XL_SPACES; k++) {
            xl_memory_space *m = &d->memory[k];
            *m = (xl_memory_space){ { &memory_table }, d, k * (int)n + (int)i, k, "", NULL };
            snprintf(m->text, sizeof m->text, "xlane %s memory %d", xl_space_kind[k], (int)i);
            c->memories[i * XL_SPACES + (size_t)k] = d->memory_list[k] = &m->base;
        }
        d->self[0] = d;
        d->limit = (int64_t)limit;
        d->grain = (size_t)grain;
        d->total = pages > 0 && page > 0 ? (int64_t)pages * page : INT64_MAX;
        c->list[i] = d;
        c->topology.list[i] = &d->desc;
    }
    c->topology.n = n;
    snprintf(c->version, sizeof c->version, "xlane cpu %s", XL_VERSION);
    if ((err = xl_random(c->rng, sizeof c->rng)))
        xl_error_free(err);                                /* a poorer seed for the rng op is no reason to fail */
    args->client = c;
    xl_python_setup(platform);
    return NULL;
}
PJRT_Error *xl_PJRT_Client_Destroy(PJRT_Client_Destroy_Args *args)
{
    client_free(args->client);
    xl_spare_clear();
    return NULL;
}
PJRT_Error *xl_PJRT_Client_PlatformName(PJRT_Client_PlatformName_Args *args)
{
    args->platform_name = platform;
    args->platform_name_size = sizeof platform - 1;
    return NULL;
}
PJRT_Error *xl_PJRT_Client_PlatformVersion(PJRT_Client_PlatformVersion_Args *args)
{
    args->platform_version = args->client->version;
    args->platform_version_size = strlen(args->client->version);
    return NULL;
}
PJRT_Error *xl_PJRT_Client_ProcessIndex(PJRT_Client_ProcessIndex_Args *args)
{
    args->process_index = args->client->process;
    return NULL;
}
PJRT_Error *xl_PJRT_Client_Devices(PJRT_Client_Devices_Args *args)
{
    args->devices = args->client->list;
    args->num_devices = args->client->n;
    return NULL;
}
PJRT_Error *xl_PJRT_Client_AddressableDevices(PJRT_Client_AddressableDevices_Args *args)
{
    args->addressable_devices = args->client->list + args->client->first;
    args->num_addressable_devices = args->client->nlocal;
    return NULL;
}
PJRT_Error *xl_PJRT_Client_AddressableMemories(PJRT_Client_AddressableMemories_Args *args)
{
    args->addressable_memories = args->client->memories + args->client->first * XL_SPACES;
    args->num_addressable_memories = args->client->nlocal * XL_SPACES;
    return NULL;
}
static PJRT_Error *lookup(PJRT_Client *c, int id, PJRT_Device **out)
{
    if (id < 0 || (size_t)id >= c->n)
        return xl_api_fail(XL_CODE_INVALID, "there is no device %d: this client has devices 0 to %zu", id, c->n - 1);
    *out = &c->device[id];
    return NULL;
}
PJRT_Error *xl_PJRT_Client_LookupDevice(PJRT_Client_LookupDevice_Args *args)
{
    return lookup(args->client, args->id, &args->device);
}
PJRT_Error *xl_PJRT_Client_LookupAddressableDevice(PJRT_Client_LookupAddressableDevice_Args *args)
{
    PJRT_Client *c = args->client;
    if (args->local_hardware_id < 0 || (size_t)args->local_hardware_id >= c->nlocal)
        return xl_api_fail(XL_CODE_INVALID, "there is no device %d in this process, which has %zu",
                           args->local_hardware_id, c->nlocal);
    return lookup(c, (int)c->first + args->local_hardware_id, &args->addressable_device);
}
PJRT_Error *xl_PJRT_Client_DefaultDeviceAssignment(PJRT_Client_DefaultDeviceAssignment_Args *args)
{
    int n = args->num_replicas * args->num_partitions;
    if (args->num_replicas < 1 || args->num_partitions < 1 || (size_t)n > args->client->n ||
        (size_t)n > args->default_assignment_size)
        return xl_api_fail(XL_CODE_INVALID, "%d replicas of %d partitions do not fit %zu devices", args->num_replicas,
                           args->num_partitions, args->client->n);
    for (int i = 0; i < n; i++)
        args->default_assignment[i] = i;
    return NULL;
}
PJRT_Error *xl_PJRT_Client_TopologyDescription(PJRT_Client_TopologyDescription_Args *args)
{
    args->topology = &args->client->topology;
    return NULL;
}
PJRT_Error *xl_PJRT_Client_UpdateGlobalProcessInfo(PJRT_Client_UpdateGlobalProcessInfo_Args *args)
{
    (void)args;
    return NULL;
}
PJRT_Error *xl_PJRT_Client_DmaMap(PJRT_Client_DmaMap_Args *args) { (void)args; return NULL; }
PJRT_Error *xl_PJRT_Client_DmaUnmap(PJRT_Client_DmaUnmap_Args *args) { (void)args; return NULL; }
/* ---- topologies ------------------------------------------------------------------------------------------------- */
static PJRT_Error *topology_new(size_t n, PJRT_TopologyDescription **out)
{
    PJRT_TopologyDescription *t = calloc(1, sizeof *t);
    if (t) {
        t->desc = calloc(n, sizeof *t->desc);
        t->list = calloc(n, sizeof *t->list);
    }
    if (!t || !t->desc || !t->list) {
        if (t) {
            free(t->desc);
            free(t->list);
        }
        free(t);
        return xl_api_fail(XL_CODE_EXHAUSTED, "no memory for a topology");
    }
    t->owned = true;
    t->n = n;
    for (size_t i = 0; i < n; i++) {
        describe(&t->desc[i], (int)i);
        t->list[i] = &t->desc[i];
    }
    *out = t;
    return NULL;
}
/* The name is the number of devices: "8", "xlane:8"; empty for the number the environment gives. */
PJRT_Error *xl_PJRT_TopologyDescription_Create(PJRT_TopologyDescription_Create_Args *args)
{
    uint64_t n = (uint64_t)xl_env_get(XL_ENV_DEVICES, 1);
    xl_error *err = xl_env_check();
    if (err)
        return xl_api_error(err);
    xl_str name = { args->topology_name, args->topology_name_size };
    if (xl_str_starts(name, XL_STR("xlane:")))
        name = (xl_str){ name.p + 6, name.n - 6 };
    int64_t v;
    if (name.n) {
        if (!xl_str_i64(name, &v) || v < 1 || v > DEVICES_MAX)
            return xl_api_fail(XL_CODE_INVALID, "topology '%.*s': expected a number of devices, as in \"xlane:8\"",
                               XL_FMT(name));
        n = (uint64_t)v;
    }
    return topology_new(n, &args->topology);
}
PJRT_Error *xl_PJRT_TopologyDescription_Destroy(PJRT_TopologyDescription_Destroy_Args *args)
{
    PJRT_TopologyDescription *t = args->topology;
    if (t && t->owned) {
        free(t->desc);
        free(t->list);
        free(t);
    }
    return NULL;
}
PJRT_Error *xl_PJRT_TopologyDescription_PlatformName(PJRT_TopologyDescription_PlatformName_Args *args)
{
    args->platform_name = platform;
    args->platform_name_size = sizeof platform - 1;
    return NULL;
}
PJRT_Error *xl_PJRT_TopologyDescription_PlatformVersion(PJRT_TopologyDescription_PlatformVersion_Args *args)
{
    args->platform_version = "xlane cpu " XL_VERSION;
    args->platform_version_size = sizeof "xlane cpu " XL_VERSION - 1;
    return NULL;
}
PJRT_Error *xl_PJRT_TopologyDescription_GetDeviceDescriptions(PJRT_TopologyDescription_GetDeviceDescriptions_Args *args)
{
    args->descriptions = args->topology->list;
    args->num_descriptions = args->topology->n;
    return NULL;
}
PJRT_Error *xl_PJRT_TopologyDescription_Attributes(PJRT_TopologyDescription_Attributes_Args *args)
{
    args->attributes = NULL;
    args->num_attributes = 0;
    return NULL;
}
struct PJRT_SerializedTopology { char text[32]; };
static void serialized_topology_free(PJRT_SerializedTopology *t) { free(t); }
PJRT_Error *xl_PJRT_TopologyDescription_Serialize(PJRT_TopologyDescription_Serialize_Args *args)
{
    PJRT_SerializedTopology *t = calloc(1, sizeof *t);
    if (!t)
        return xl_api_fail(XL_CODE_EXHAUSTED, "no memory");
    args->serialized_bytes_size = (size_t)snprintf(t->text, sizeof t->text, "xlane:%zu", args->topology->n);
    args->serialized_bytes = t->text;
    args->serialized_topology = t;
    args->serialized_topology_deleter = serialized_topology_free;
    return NULL;
}
PJRT_Error *xl_PJRT_TopologyDescription_Deserialize(PJRT_TopologyDescription_Deserialize_Args *args)
{
    xl_str s = { args->serialized_topology, args->serialized_topology_size };
    int64_t n;
    if (!xl_str_starts(s, XL_STR("xlane:")) || !xl_str_i64((xl_str){ s.p + 6, s.n - 6 }, &n) || n < 1 ||
        n > DEVICES_MAX)
        return xl_api_fail(XL_CODE_INVALID, "not a topology of this plugin");
    return topology_new((size_t)n, &args->topology);
}
PJRT_Error *xl_PJRT_TopologyDescription_Fingerprint(PJRT_TopologyDescription_Fingerprint_Args *args)
{
    args->fingerprint = 0x786c616e65ULL << 24 ^ args->topology->n;
    return NULL;
}
PJRT_Error *xl_PJRT_TopologyDescription_GetMemorySpaceKindIds(PJRT_TopologyDescription_GetMemorySpaceKindIds_Args *args)
{
    static const int ids[XL_SPACES] = { 1, 2 };
    args->memory_space_kind_ids = ids;
    args->num_memory_space_kind_ids = XL_SPACES;
    return NULL;
}

/* ---- extension: memories of described devices ------------------------------------------------------------------- */
struct PJRT_MemoryDescription { int space; };
static PJRT_Error *memory_descriptions(PJRT_DeviceDescription_MemoryDescriptions_Args *args)
{
    static const PJRT_MemoryDescription all[XL_SPACES] = { { XL_SPACE_DEVICE }, { XL_SPACE_HOST } };
    static const PJRT_MemoryDescription *const list[XL_SPACES] = { &all[0], &all[1] };
    args->memory_descriptions = list;
    args->num_memory_descriptions = XL_SPACES;
    args->default_memory_index = 0;
    return NULL;
}
static PJRT_Error *memory_kind(PJRT_MemoryDescription_Kind_Args *args)
{
    args->kind = xl_space_kind[args->memory_description->space];
    args->kind_size = strlen(args->kind);
    args->kind_id = 1 + args->memory_description->space;
    return NULL;
}
PJRT_MemoryDescriptions_Extension xl_memory_descriptions_extension = {
    .base = { PJRT_SIZE(PJRT_MemoryDescriptions_Extension, PJRT_MemoryDescription_Kind),
              PJRT_Extension_Type_MemoryDescriptions, NULL },
    .PJRT_DeviceDescription_MemoryDescriptions = memory_descriptions,
    .PJRT_MemoryDescription_Kind = memory_kind,
};

/* ---- what a CPU has no use for ---------------------------------------------------------------------------------- */
#define NONE(name) PJRT_Error *xl_##name(name##_Args *args) { (void)args; return xl_api_none(#name); }
NONE(PJRT_CopyToDeviceStream_Destroy)
NONE(PJRT_CopyToDeviceStream_AddChunk)
NONE(PJRT_CopyToDeviceStream_TotalBytes)
NONE(PJRT_CopyToDeviceStream_GranuleSize)
NONE(PJRT_CopyToDeviceStream_CurrentBytes)
NONE(PJRT_Client_CreateAliasBuffer)
NONE(PJRT_Client_FulfillAliasBuffer)
NONE(PJRT_AsyncHostToDeviceTransferManager_TransferLiteral)
NONE(PJRT_AsyncHostToDeviceTransferManager_AddMetadata)
NONE(PJRT_Device_PoisonExecution)
NONE(PJRT_Device_CreateAsyncTrackingEvent)
NONE(PJRT_AsyncTrackingEvent_Destroy)
NONE(PJRT_TopologyDescription_MakeCanonicalShapeForMemorySpace)
