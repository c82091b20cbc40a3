/* What the plugin and the compile options tell of a compile: the parts of its key, and which ranks it is for. */
#include "guard/compile.h"

#include <stdio.h>
#include <stdlib.h>

#include "pjrt/options.h"

xl_error *guard_take(guard_plugin *p, PJRT_Error *err, const char *call)
{
    if (!err)
        return NULL;
    PJRT_Error_Message_Args m = { .struct_size = sizeof m, .error = err };
    PJRT_Error_GetCode_Args c = { .struct_size = sizeof c, .error = err };
    p->table->PJRT_Error_Message(&m);
    PJRT_Error *bad = p->table->PJRT_Error_GetCode(&c);
    xl_error *out = xl_error_new(bad || c.code <= 0 || c.code > 16 ? XL_CODE_UNKNOWN : (xl_code)c.code, "%s: %.*s",
                                 call, (int)m.message_size, m.message);
    p->table->PJRT_Error_Destroy(
        &(PJRT_Error_Destroy_Args){ .struct_size = sizeof(PJRT_Error_Destroy_Args), .error = err });
    return out;
}

xl_error *guard_platform(guard_plugin *p, PJRT_Client *client, xl_buf *topology, xl_buf *versions)
{
    xl_error *err = NULL;
    PJRT_Client_PlatformName_Args name = { .struct_size = sizeof name, .client = client };
    PJRT_Client_PlatformVersion_Args version = { .struct_size = sizeof version, .client = client };
    PJRT_Client_Devices_Args devices = { .struct_size = sizeof devices, .client = client };
    XL_DO(guard_take(p, p->real->PJRT_Client_PlatformName(&name), "PJRT_Client_PlatformName"));
    XL_DO(guard_take(p, p->real->PJRT_Client_PlatformVersion(&version), "PJRT_Client_PlatformVersion"));
    XL_DO(guard_take(p, p->real->PJRT_Client_Devices(&devices), "PJRT_Client_Devices"));
    xl_buf_printf(topology, "platform=%.*s devices=%zu", (int)name.platform_name_size, name.platform_name,
                  devices.num_devices);
    if (devices.num_devices) {
        PJRT_Device_GetDescription_Args d = { .struct_size = sizeof d, .device = devices.devices[0] };
        XL_DO(guard_take(p, p->real->PJRT_Device_GetDescription(&d), "PJRT_Device_GetDescription"));
        PJRT_DeviceDescription_Kind_Args k = { .struct_size = sizeof k, .device_description = d.device_description };
        XL_DO(guard_take(p, p->real->PJRT_DeviceDescription_Kind(&k), "PJRT_DeviceDescription_Kind"));
        xl_buf_puts(topology, " kind=");
        for (size_t i = 0; i < k.device_kind_size; i++)
            xl_buf_putc(topology, k.device_kind[i] == ' ' ? '_' : k.device_kind[i]);
    }
    xl_buf_puts(versions, "platform_version=");
    for (size_t i = 0; i < version.platform_version_size; i++) {
        char c = version.platform_version[i];
        xl_buf_putc(versions, c == ' ' || c == '\n' || c == '\t' ? '_' : c);
    }
    FILE *driver = fopen("/proc/driver/nvidia/version", "re");
    char line[256];
    if (driver) {
        if (fgets(line, sizeof line, driver)) {
            line[strcspn(line, "\n")] = 0;
            for (char *c = line; *c; c++)
                if (*c == ' ' || *c == '\t')
                    *c = '_';
            xl_buf_printf(versions, " driver=%s", line);
        }
        fclose(driver);
    }
out:
    return err;
}

/* A list of one number again and again means what the number alone means; its length is the program's business (how
 * many arguments). */
static xl_str alone(xl_str path, xl_str list)
{
    if (memmem(path.p, path.n, "allow_spmd_sharding_propagation_to_", 35) == NULL || list.n < 3)
        return list;
    for (size_t i = 1; i + 1 < list.n; i++)
        if (list.p[i] != list.p[1] && list.p[i] != ',' && list.p[i] != ' ')
            return list;
    return (xl_str){ list.p + 1, 1 };
}

xl_error *guard_option_words(xl_arena *a, xl_str bytes, xl_buf *out, bool *early_exit, int64_t *devices,
                             const xl_option **assignment)
{
    xl_error *err = NULL;
    xl_option *root, *none;
    xl_option_change *change;
    size_t n;
    XL_DO(xl_options_parse(a, bytes, &root));
    XL_DO(xl_options_parse(a, XL_STR(""), &none));
    *early_exit = xl_options_int(root, "executable_build_options.debug_options.xla_early_exit_with_layouts", 0) != 0;
    *devices = xl_options_int(root, "executable_build_options.num_replicas", 1) *
               xl_options_int(root, "executable_build_options.num_partitions", 1);
    *assignment = xl_options_find(root, "executable_build_options.device_assignment");
    xl_options_diff(a, none, root, &change, &n);
    for (size_t i = 0; i < n; i++) {
        if (change[i].quiet)
            continue;
        xl_buf_printf(out, "%s%.*s=", out->n ? " " : "", XL_FMT(change[i].path));
        xl_str after = alone(change[i].path, change[i].after);
        for (size_t k = 0; k < after.n; k++) {
            char c = after.p[k];
            xl_buf_putc(out, c == ' ' || c == '\n' || c == '\t' ? '_' : c);
        }
    }
out:
    return err;
}

/* ---- whose devices ---- */
static bool assigned(const xl_option *o, int id)
{
    for (size_t i = 0; o && (o->kind == XL_OPTION_MSG || o->kind == XL_OPTION_LIST) && i < o->n; i++) {
        const xl_option *k = &o->child[i];
        if (k->name && k->kind == XL_OPTION_INTS && !strcmp(k->name, "replica_device_ids"))
            for (size_t j = 0; j < k->n; j++)
                if ((int64_t)k->list[j] == id)
                    return true;
        if (assigned(k, id))
            return true;
    }
    return false;
}

void guard_put_devices(const xl_option *o, xl_buf *out)
{
    for (size_t i = 0; o && (o->kind == XL_OPTION_MSG || o->kind == XL_OPTION_LIST) && i < o->n; i++) {
        const xl_option *k = &o->child[i];
        if (k->name && k->kind == XL_OPTION_INTS && !strcmp(k->name, "replica_device_ids"))
            for (size_t j = 0; j < k->n; j++)
                xl_buf_printf(out, "%s%lld", out->n ? "," : "", (long long)k->list[j]);
        guard_put_devices(k, out);
    }
}

static xl_error *add_rank(guard_ranks *r, int rank)
{
    uint32_t at = 0;
    while (at < r->n && r->rank[at] < rank)
        at++;
    if (at < r->n && r->rank[at] == rank)
        return NULL;
    if (r->n == r->cap) {
        uint32_t cap = r->cap ? 2 * r->cap : 8;
        int *more = realloc(r->rank, cap * sizeof *more);
        if (!more)
            return XL_ERR(EXHAUSTED, "out of memory");
        r->rank = more;
        r->cap = cap;
    }
    memmove(r->rank + at + 1, r->rank + at, (r->n - at) * sizeof *r->rank);
    r->rank[at] = rank;
    r->n++;
    return NULL;
}

xl_error *guard_ranks_of(guard_plugin *p, PJRT_Client *client, const xl_option *assignment, int64_t devices,
                         guard_ranks *out)
{
    xl_error *err = NULL;
    PJRT_Client_AddressableDevices_Args here = { .struct_size = sizeof here, .client = client };
    PJRT_Client_Devices_Args all = { .struct_size = sizeof all, .client = client };
    PJRT_Client_ProcessIndex_Args me = { .struct_size = sizeof me, .client = client };
    XL_DO(guard_take(p, p->real->PJRT_Client_AddressableDevices(&here), "PJRT_Client_AddressableDevices"));
    XL_DO(guard_take(p, p->real->PJRT_Client_Devices(&all), "PJRT_Client_Devices"));
    if (all.num_devices <= here.num_addressable_devices ||
        (!assignment && devices <= (int64_t)here.num_addressable_devices))
        return NULL;
    XL_DO(guard_take(p, p->real->PJRT_Client_ProcessIndex(&me), "PJRT_Client_ProcessIndex"));
    out->me = me.process_index;
    for (size_t i = 0; i < all.num_devices; i++) {
        PJRT_Device_GetDescription_Args d = { .struct_size = sizeof d, .device = all.devices[i] };
        XL_DO(guard_take(p, p->real->PJRT_Device_GetDescription(&d), "PJRT_Device_GetDescription"));
        PJRT_DeviceDescription_Id_Args id = { .struct_size = sizeof id, .device_description = d.device_description };
        PJRT_DeviceDescription_ProcessIndex_Args whose = { .struct_size = sizeof whose,
                                                           .device_description = d.device_description };
        XL_DO(guard_take(p, p->real->PJRT_DeviceDescription_Id(&id), "PJRT_DeviceDescription_Id"));
        XL_DO(
            guard_take(p, p->real->PJRT_DeviceDescription_ProcessIndex(&whose), "PJRT_DeviceDescription_ProcessIndex"));
        if (!assignment || assigned(assignment, id.id))
            XL_DO(add_rank(out, whose.process_index));
    }
out:
    return err;
}
