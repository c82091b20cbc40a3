/* The embedded device's two devices, as if each belonged to a process of its own: this one has the device of its rank,
 * which is the create option `node_id`. Compiling a program whose name has "spanning" in it is collective, as on
 * several GPUs: a rank that compiles waits for the other, through the frontend's key-value store, and the process ends
 * when that one does not come. */
#include <unistd.h>

#include "wrap.h"

static int rank;
static PJRT_KeyValueGetCallback kv_get;
static PJRT_KeyValuePutCallback kv_put;
static void *get_arg, *put_arg;

static PJRT_Error *no_error(PJRT_Error_Code code, const char *message, size_t n)
{
    (void)code, (void)message, (void)n;
    return NULL;
}
static PJRT_CallbackError make = no_error;

static PJRT_Error *create(PJRT_Client_Create_Args *a)
{
    for (size_t i = 0; i < a->num_options; i++)
        if (a->create_options[i].name_size == 7 && !memcmp(a->create_options[i].name, "node_id", 7))
            rank = (int)a->create_options[i].int64_value;
    kv_get = a->kv_get_callback;
    kv_put = a->kv_put_callback;
    get_arg = a->kv_get_user_arg;
    put_arg = a->kv_put_user_arg;
    PJRT_Client_Create_Args plain = *a;
    plain.num_options = 0;
    PJRT_Error *err = real.PJRT_Client_Create(&plain);
    a->client = plain.client;
    return err;
}

/* Not the embedded device's name: the guard knows that that one does not compile together. */
static PJRT_Error *platform_name(PJRT_Client_PlatformName_Args *a)
{
    a->platform_name = "spans";
    a->platform_name_size = 5;
    return NULL;
}

static PJRT_Error *process_index(PJRT_Client_ProcessIndex_Args *a)
{
    a->process_index = rank;
    return NULL;
}

static PJRT_Error *local_devices(PJRT_Client_AddressableDevices_Args *a)
{
    PJRT_Error *err = real.PJRT_Client_AddressableDevices(a);
    if (!err && a->num_addressable_devices == 2) {
        a->addressable_devices += rank;
        a->num_addressable_devices = 1;
    }
    return err;
}

static PJRT_Error *local_memories(PJRT_Client_AddressableMemories_Args *a)
{
    PJRT_Error *err = real.PJRT_Client_AddressableMemories(a);
    size_t each = err ? 0 : a->num_addressable_memories / 2; /* in the order of the devices */
    a->addressable_memories += (size_t)rank * each;
    a->num_addressable_memories = each;
    return err;
}

static PJRT_Error *whose(PJRT_DeviceDescription_ProcessIndex_Args *a)
{
    PJRT_DeviceDescription_Id_Args id = { .struct_size = sizeof id, .device_description = a->device_description };
    PJRT_Error *err = real.PJRT_DeviceDescription_Id(&id);
    a->process_index = id.id;
    return err;
}

static PJRT_Error *is_local(PJRT_Device_IsAddressable_Args *a)
{
    PJRT_Device_GetDescription_Args d = { .struct_size = sizeof d, .device = a->device };
    PJRT_Error *err = real.PJRT_Device_GetDescription(&d);
    PJRT_DeviceDescription_Id_Args id = { .struct_size = sizeof id, .device_description = d.device_description };
    err = err ? err : real.PJRT_DeviceDescription_Id(&id);
    a->is_addressable = id.id == rank;
    return err;
}

static PJRT_Error *its_devices(PJRT_LoadedExecutable_AddressableDevices_Args *a)
{
    PJRT_Error *err = real.PJRT_LoadedExecutable_AddressableDevices(a);
    if (!err && a->num_addressable_devices == 2) {
        a->addressable_devices += rank;
        a->num_addressable_devices = 1;
    }
    return err;
}

static PJRT_Error *compile(PJRT_Client_Compile_Args *a)
{
    static int round;
    if (kv_get && memmem(a->program->code, a->program->code_size, "spanning", 8)) {
        char key[64];
        snprintf(key, sizeof key, "spans/%d/%d", round, rank);
        kv_put(&(PJRT_KeyValuePutCallback_Args){ .struct_size = sizeof(PJRT_KeyValuePutCallback_Args),
                                                 .key = key,
                                                 .key_size = strlen(key),
                                                 .value = "x",
                                                 .value_size = 1,
                                                 .callback_error = &make,
                                                 .user_arg = put_arg });
        snprintf(key, sizeof key, "spans/%d/%d", round++, 1 - rank);
        PJRT_KeyValueGetCallback_Args g = { .struct_size = sizeof g,
                                            .key = key,
                                            .key_size = strlen(key),
                                            .timeout_in_ms = 20000,
                                            .callback_error = &make,
                                            .user_arg = get_arg };
        kv_get(&g);
        if (!g.value) {
            fprintf(stderr, "spans: the other rank does not compile\n");
            _exit(9);
        }
        g.value_deleter_callback(g.value);
    }
    return real.PJRT_Client_Compile(a);
}

static void change(PJRT_Api *api)
{
    api->PJRT_Client_Create = create;
    api->PJRT_Client_PlatformName = platform_name;
    api->PJRT_Client_ProcessIndex = process_index;
    api->PJRT_Client_AddressableDevices = local_devices;
    api->PJRT_Client_AddressableMemories = local_memories;
    api->PJRT_DeviceDescription_ProcessIndex = whose;
    api->PJRT_Device_IsAddressable = is_local;
    api->PJRT_LoadedExecutable_AddressableDevices = its_devices;
    api->PJRT_Client_Compile = compile;
}
