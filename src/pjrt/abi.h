/* src/pjrt/abi.h
 * The PJRT C API as this project uses it: PJRT 0.114, written from facts about the interface (names, types, offsets)
 * and checked field by field in abi_check.c. It is the C ABI between XLA plugins (libtpu, the CUDA plugin, ours) and
 * XLA frontends, so nothing here may be renamed, reordered or resized; newer entries are added at the ends.
 *
 * The rules for versions, for everyone who includes this:
 * - Every args struct begins with its size as the caller knows it. Read or write a field only if it lies inside:
 * PJRT_HAS(args, field). An older caller's struct ends earlier, a newer one's later.
 * - The function table begins with its size as the plugin knows it. Call an entry only if it lies inside and is not
 * NULL: PJRT_HAS(api, PJRT_Client_Load) && api->PJRT_Client_Load.
 * - Tables older than 0.57 have another order: refuse them.
 * - Output fields are uninitialized before a call: a plugin sets every one, including each *_is_set flag.
 * Only pjrt/, guard/ and the plugin's entry file include this header; the rest of the code sees xl_ types. */
#ifndef XL_PJRT_ABI_H
#define XL_PJRT_ABI_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PJRT_API_MAJOR 0
#define PJRT_API_MINOR 114
#define PJRT_API_MINOR_FLOOR 57 /* the table's order changed there */

/* Is `field` within what the other side gave? `p` points to a struct that begins with struct_size. */
#define PJRT_HAS(p, field) ((p)->struct_size >= offsetof(__typeof__(*(p)), field) + sizeof((p)->field))
/* struct_size as PJRT counts it: up to the end of the last field, without the padding behind it. */
#define PJRT_SIZE(T, last) (offsetof(T, last) + sizeof(((T *)0)->last))
#define PJRT_HEAD size_t struct_size; PJRT_Extension_Base *extension_start

/* Opaque handles that belong to the plugin. */
typedef struct PJRT_Client PJRT_Client;
typedef struct PJRT_Device PJRT_Device;
typedef struct PJRT_DeviceDescription PJRT_DeviceDescription;
typedef struct PJRT_MemoryDescription PJRT_MemoryDescription;
typedef struct PJRT_Buffer PJRT_Buffer;
typedef struct PJRT_Event PJRT_Event;
typedef struct PJRT_AsyncTrackingEvent PJRT_AsyncTrackingEvent;
typedef struct PJRT_Executable PJRT_Executable;
typedef struct PJRT_LoadedExecutable PJRT_LoadedExecutable;
typedef struct PJRT_ExecuteContext PJRT_ExecuteContext;
typedef struct PJRT_TopologyDescription PJRT_TopologyDescription;
typedef struct PJRT_AsyncHostToDeviceTransferManager PJRT_AsyncHostToDeviceTransferManager;
typedef struct PJRT_CopyToDeviceStream PJRT_CopyToDeviceStream;
typedef struct PJRT_MultiSlice_Config PJRT_MultiSlice_Config;
typedef struct PJRT_FulfillAliasBufferCallback PJRT_FulfillAliasBufferCallback;
typedef struct PJRT_Device_Attributes PJRT_Device_Attributes;
typedef struct PJRT_SerializedExecutable PJRT_SerializedExecutable;
typedef struct PJRT_SerializedCompileOptions PJRT_SerializedCompileOptions;
typedef struct PJRT_SerializedTopology PJRT_SerializedTopology;
typedef struct PJRT_DeviceAssignmentSerialized PJRT_DeviceAssignmentSerialized;
typedef struct PJRT_Layouts_MemoryLayout PJRT_Layouts_MemoryLayout;
typedef struct PJRT_Layouts_SerializedLayout PJRT_Layouts_SerializedLayout;

/* Structs that both sides see; each is below. */
typedef struct PJRT_Api_Version PJRT_Api_Version;
typedef struct PJRT_Buffer_MemoryLayout PJRT_Buffer_MemoryLayout;
typedef struct PJRT_Buffer_MemoryLayout_Strides PJRT_Buffer_MemoryLayout_Strides;
typedef struct PJRT_Buffer_MemoryLayout_Tiled PJRT_Buffer_MemoryLayout_Tiled;
typedef struct PJRT_Chunk PJRT_Chunk;
typedef struct PJRT_Error PJRT_Error;
typedef struct PJRT_Error_FunctionTable PJRT_Error_FunctionTable;
typedef struct PJRT_ExecuteOptions PJRT_ExecuteOptions;
typedef struct PJRT_Extension_Base PJRT_Extension_Base;
typedef struct PJRT_FFI_Extension PJRT_FFI_Extension;
typedef struct PJRT_FFI_Type_Info PJRT_FFI_Type_Info;
typedef struct PJRT_FFI_UserData PJRT_FFI_UserData;
typedef struct PJRT_HloOutputCallbackInfo PJRT_HloOutputCallbackInfo;
typedef struct PJRT_Layouts_Extension PJRT_Layouts_Extension;
typedef struct PJRT_LoadOptions PJRT_LoadOptions;
typedef struct PJRT_LogicalDeviceIds PJRT_LogicalDeviceIds;
typedef struct PJRT_Memory PJRT_Memory;
typedef struct PJRT_MemoryDescriptions_Extension PJRT_MemoryDescriptions_Extension;
typedef struct PJRT_Memory_FunctionTable PJRT_Memory_FunctionTable;
typedef struct PJRT_NamedValue PJRT_NamedValue;
typedef struct PJRT_ProcessInfo PJRT_ProcessInfo;
typedef struct PJRT_Program PJRT_Program;
typedef struct PJRT_RecvCallbackInfo PJRT_RecvCallbackInfo;
typedef struct PJRT_SendCallbackInfo PJRT_SendCallbackInfo;
typedef struct PJRT_ShapeSpec PJRT_ShapeSpec;
typedef struct PJRT_Shardings_Extension PJRT_Shardings_Extension;
typedef struct PJRT_XlaTransform_Callbacks PJRT_XlaTransform_Callbacks;
typedef struct PJRT_XlaTransform_string PJRT_XlaTransform_string;
typedef struct PJRT_XlaTransform_version_and_error PJRT_XlaTransform_version_and_error;
typedef struct PJRT_Xla_Transform_Extension PJRT_Xla_Transform_Extension;

/* Arguments of the functions of the table, then of callbacks and extensions. */
#define API(ret, name, since) typedef struct name##_Args name##_Args; typedef ret name(name##_Args *args);
typedef struct PJRT_Api PJRT_Api;
#include "pjrt/api.def"
typedef struct PJRT_Buffer_CopyRawToHostFuture_Callback_Args PJRT_Buffer_CopyRawToHostFuture_Callback_Args;
typedef struct PJRT_Buffer_DonateWithControlDependency_Callback_Args
    PJRT_Buffer_DonateWithControlDependency_Callback_Args;
typedef struct PJRT_Clear_Xla_Transform_Args PJRT_Clear_Xla_Transform_Args;
typedef struct PJRT_DeviceDescription_MemoryDescriptions_Args PJRT_DeviceDescription_MemoryDescriptions_Args;
typedef struct PJRT_FFI_Register_Handler_Args PJRT_FFI_Register_Handler_Args;
typedef struct PJRT_FFI_Type_Register_Args PJRT_FFI_Type_Register_Args;
typedef struct PJRT_FFI_UserData_Add_Args PJRT_FFI_UserData_Add_Args;
typedef struct PJRT_KeyValueGetCallback_Args PJRT_KeyValueGetCallback_Args;
typedef struct PJRT_KeyValuePutCallback_Args PJRT_KeyValuePutCallback_Args;
typedef struct PJRT_KeyValueTryGetCallback_Args PJRT_KeyValueTryGetCallback_Args;
typedef struct PJRT_Layouts_MemoryLayout_Destroy_Args PJRT_Layouts_MemoryLayout_Destroy_Args;
typedef struct PJRT_Layouts_MemoryLayout_Serialize_Args PJRT_Layouts_MemoryLayout_Serialize_Args;
typedef struct PJRT_Layouts_PJRT_Buffer_MemoryLayout_Args PJRT_Layouts_PJRT_Buffer_MemoryLayout_Args;
typedef struct PJRT_Layouts_PJRT_Client_GetDefaultLayout_Args PJRT_Layouts_PJRT_Client_GetDefaultLayout_Args;
typedef struct PJRT_Layouts_PJRT_Executable_GetOutputLayouts_Args PJRT_Layouts_PJRT_Executable_GetOutputLayouts_Args;
typedef struct PJRT_Layouts_PJRT_Executable_GetParameterLayouts_Args
    PJRT_Layouts_PJRT_Executable_GetParameterLayouts_Args;
typedef struct PJRT_Layouts_PJRT_Topology_GetDefaultLayout_Args PJRT_Layouts_PJRT_Topology_GetDefaultLayout_Args;
typedef struct PJRT_MemoryDescription_Kind_Args PJRT_MemoryDescription_Kind_Args;
typedef struct PJRT_Register_Xla_Transform_Args PJRT_Register_Xla_Transform_Args;
typedef struct PJRT_Shardings_PJRT_Executable_OutputShardings_Args PJRT_Shardings_PJRT_Executable_OutputShardings_Args;
typedef struct PJRT_Shardings_PJRT_Executable_ParameterShardings_Args
    PJRT_Shardings_PJRT_Executable_ParameterShardings_Args;
typedef struct PJRT_XlaTransform_Args PJRT_XlaTransform_Args;

/* ---- Version and extensions ---------------------------------------------------------------------------------
 * The chain from PJRT_Api.extension_start is read before PJRT_Plugin_Initialize; the first of a type counts. */
typedef enum {
    PJRT_Extension_Type_Gpu_Custom_Call = 0, PJRT_Extension_Type_Profiler = 1,
    PJRT_Extension_Type_Custom_Partitioner = 2, PJRT_Extension_Type_Stream = 3, PJRT_Extension_Type_Layouts = 4,
    PJRT_Extension_Type_FFI = 5, PJRT_Extension_Type_MemoryDescriptions = 6, PJRT_Extension_Type_Triton = 7,
    PJRT_Extension_Type_RawBuffer = 8, PJRT_Extension_Type_PhaseCompile = 9, PJRT_Extension_Type_Example = 10,
    PJRT_Extension_Type_Unknown = 11, PJRT_Extension_Type_CrossHostTransfers = 12,
    PJRT_Extension_Type_ExecutableMetadata = 13, PJRT_Extension_Type_Callback = 14,
    PJRT_Extension_Type_HostAllocator = 15, PJRT_Extension_Type_TpuTopology = 16,
    PJRT_Extension_Type_TpuExecutable = 17, PJRT_Extension_Type_Megascale = 18, PJRT_Extension_Type_Shardings = 19,
    PJRT_Extension_Type_AbiVersion = 20, PJRT_Extension_Type_Collectives = 21, PJRT_Extension_Type_MultiSlice = 22,
    PJRT_Extension_Type_HostMemoryAllocator = 23, PJRT_Extension_Type_XlaTransform = 24,
} PJRT_Extension_Type;
struct PJRT_Extension_Base { size_t struct_size; PJRT_Extension_Type type; PJRT_Extension_Base *next; };
struct PJRT_Api_Version { PJRT_HEAD; int major_version; int minor_version; };

/* ---- Errors --------------------------------------------------------------------------------------------------------
 * NULL is success. From 0.107 an error begins with its vtable, and either side may free the other's through it. */
typedef enum {
    PJRT_Error_Code_OK = 0, PJRT_Error_Code_CANCELLED = 1, PJRT_Error_Code_UNKNOWN = 2,
    PJRT_Error_Code_INVALID_ARGUMENT = 3, PJRT_Error_Code_DEADLINE_EXCEEDED = 4, PJRT_Error_Code_NOT_FOUND = 5,
    PJRT_Error_Code_ALREADY_EXISTS = 6, PJRT_Error_Code_PERMISSION_DENIED = 7, PJRT_Error_Code_RESOURCE_EXHAUSTED = 8,
    PJRT_Error_Code_FAILED_PRECONDITION = 9, PJRT_Error_Code_ABORTED = 10, PJRT_Error_Code_OUT_OF_RANGE = 11,
    PJRT_Error_Code_UNIMPLEMENTED = 12, PJRT_Error_Code_INTERNAL = 13, PJRT_Error_Code_UNAVAILABLE = 14,
    PJRT_Error_Code_DATA_LOSS = 15, PJRT_Error_Code_UNAUTHENTICATED = 16,
} PJRT_Error_Code;
typedef void (*PJRT_Error_PayloadVisitor)(const char *key, size_t key_size, const char *value, size_t value_size,
                                          void *user_arg);
/* Made by a plugin, given to callbacks, so that they can return an error of the plugin's own. */
typedef PJRT_Error *(*PJRT_CallbackError)(PJRT_Error_Code code, const char *message, size_t message_size);
struct PJRT_Error_FunctionTable {
    size_t struct_size; size_t instance_size; PJRT_Extension_Base *extension_start; void (*destroy)(PJRT_Error *);
    void (*message)(const PJRT_Error *, const char **, size_t *); PJRT_Error_Code (*get_code)(const PJRT_Error *);
    void (*for_each_payload)(const PJRT_Error *, PJRT_Error_PayloadVisitor, void *);
};
struct PJRT_Error { const PJRT_Error_FunctionTable *vtable; };
struct PJRT_Error_Destroy_Args { PJRT_HEAD; PJRT_Error *error; };
struct PJRT_Error_Message_Args { PJRT_HEAD; const PJRT_Error *error; const char *message; size_t message_size; };
struct PJRT_Error_GetCode_Args { PJRT_HEAD; const PJRT_Error *error; PJRT_Error_Code code; };
struct PJRT_Error_ForEachPayload_Args {
    PJRT_HEAD; const PJRT_Error *error; PJRT_Error_PayloadVisitor visitor; void *user_arg;
};

/* ---- Named values and the plugin -----------------------------------------------------------------------------------
 * Options, attributes and properties. value_size: elements of a list, bytes of a string, 1 for a scalar. */
typedef enum {
    PJRT_NamedValue_kString = 0, PJRT_NamedValue_kInt64 = 1, PJRT_NamedValue_kInt64List = 2,
    PJRT_NamedValue_kFloat = 3, PJRT_NamedValue_kBool = 4,
} PJRT_NamedValue_Type;
struct PJRT_NamedValue {
    PJRT_HEAD; const char *name; size_t name_size; PJRT_NamedValue_Type type;
    union {
        const char *string_value;
        int64_t int64_value;
        const int64_t *int64_array_value;
        float float_value;
        bool bool_value;
    };
    size_t value_size;
};
struct PJRT_Plugin_Initialize_Args { PJRT_HEAD; };
struct PJRT_Plugin_Attributes_Args { PJRT_HEAD; const PJRT_NamedValue *attributes; size_t num_attributes; };

/* ---- Events --------------------------------------------------------------------------------------------------------
 * A callback may run before OnReady returns, on the caller's thread, and owns the error it is given. */
typedef void (*PJRT_Event_OnReadyCallback)(PJRT_Error *error, void *user_arg);
struct PJRT_Event_Destroy_Args { PJRT_HEAD; PJRT_Event *event; };
struct PJRT_Event_IsReady_Args { PJRT_HEAD; PJRT_Event *event; bool is_ready; };
struct PJRT_Event_Error_Args { PJRT_HEAD; PJRT_Event *event; };
struct PJRT_Event_Await_Args { PJRT_HEAD; PJRT_Event *event; };
struct PJRT_Event_OnReady_Args { PJRT_HEAD; PJRT_Event *event; PJRT_Event_OnReadyCallback callback; void *user_arg; };
struct PJRT_Event_Create_Args { PJRT_HEAD; PJRT_Event *event; };
struct PJRT_Event_Set_Args {
    PJRT_HEAD; PJRT_Event *event; PJRT_Error_Code error_code; const char *error_message; size_t error_message_size;
};
struct PJRT_AsyncTrackingEvent_Destroy_Args { PJRT_HEAD; PJRT_AsyncTrackingEvent *event; };

/* ---- Key-value store of a job --------------------------------------------------------------------------------------
 * Get blocks up to its limit, try-get does not. Values are bytes; the plugin copies them and calls the deleter. */
typedef void (*PJRT_KeyValueGetCallback_ValueDeleter)(char *value);
typedef void (*PJRT_KeyValueTryGetCallback_ValueDeleter)(char *value);
struct PJRT_KeyValueGetCallback_Args {
    PJRT_HEAD; const char *key; size_t key_size; int timeout_in_ms; PJRT_CallbackError *callback_error;
    void *user_arg; char *value; size_t value_size; PJRT_KeyValueGetCallback_ValueDeleter value_deleter_callback;
};
struct PJRT_KeyValueTryGetCallback_Args {
    PJRT_HEAD; const char *key; size_t key_size; PJRT_CallbackError *callback_error; void *user_arg; char *value;
    size_t value_size; PJRT_KeyValueTryGetCallback_ValueDeleter value_deleter_callback;
};
struct PJRT_KeyValuePutCallback_Args {
    PJRT_HEAD; const char *key; size_t key_size; const char *value; size_t value_size;
    PJRT_CallbackError *callback_error; void *user_arg;
};
typedef PJRT_Error *(*PJRT_KeyValueGetCallback)(PJRT_KeyValueGetCallback_Args *args);
typedef PJRT_Error *(*PJRT_KeyValueTryGetCallback)(PJRT_KeyValueTryGetCallback_Args *args);
typedef PJRT_Error *(*PJRT_KeyValuePutCallback)(PJRT_KeyValuePutCallback_Args *args);

/* ---- Element types and layouts -------------------------------------------------------------------------------------
 * Nobody may trust the struct_size of a layout: jaxlib leaves it unset. */
typedef enum {
    PJRT_Buffer_Type_INVALID = 0, PJRT_Buffer_Type_PRED = 1, PJRT_Buffer_Type_S8 = 2, PJRT_Buffer_Type_S16 = 3,
    PJRT_Buffer_Type_S32 = 4, PJRT_Buffer_Type_S64 = 5, PJRT_Buffer_Type_U8 = 6, PJRT_Buffer_Type_U16 = 7,
    PJRT_Buffer_Type_U32 = 8, PJRT_Buffer_Type_U64 = 9, PJRT_Buffer_Type_F16 = 10, PJRT_Buffer_Type_F32 = 11,
    PJRT_Buffer_Type_F64 = 12, PJRT_Buffer_Type_BF16 = 13, PJRT_Buffer_Type_C64 = 14, PJRT_Buffer_Type_C128 = 15,
    PJRT_Buffer_Type_F8E5M2 = 16, PJRT_Buffer_Type_F8E4M3FN = 17, PJRT_Buffer_Type_F8E4M3B11FNUZ = 18,
    PJRT_Buffer_Type_F8E5M2FNUZ = 19, PJRT_Buffer_Type_F8E4M3FNUZ = 20, PJRT_Buffer_Type_S4 = 21,
    PJRT_Buffer_Type_U4 = 22, PJRT_Buffer_Type_TOKEN = 23, PJRT_Buffer_Type_S2 = 24, PJRT_Buffer_Type_U2 = 25,
    PJRT_Buffer_Type_F8E4M3 = 26, PJRT_Buffer_Type_F8E3M4 = 27, PJRT_Buffer_Type_F8E8M0FNU = 28,
    PJRT_Buffer_Type_F4E2M1FN = 29, PJRT_Buffer_Type_S1 = 30, PJRT_Buffer_Type_U1 = 31,
    PJRT_Buffer_Type_F6E2M3FN = 32, PJRT_Buffer_Type_F6E3M2FN = 33,
} PJRT_Buffer_Type;
typedef enum {
    PJRT_Buffer_MemoryLayout_Type_Tiled = 0, PJRT_Buffer_MemoryLayout_Type_Strides = 1,
} PJRT_Buffer_MemoryLayout_Type;
struct PJRT_Buffer_MemoryLayout_Tiled {
    PJRT_HEAD; const int64_t *minor_to_major; size_t minor_to_major_size; const int64_t *tile_dims;
    const size_t *tile_dim_sizes; size_t num_tiles;
};
struct PJRT_Buffer_MemoryLayout_Strides { PJRT_HEAD; const int64_t *byte_strides; size_t num_byte_strides; };
struct PJRT_Buffer_MemoryLayout {
    PJRT_HEAD; union { PJRT_Buffer_MemoryLayout_Tiled tiled; PJRT_Buffer_MemoryLayout_Strides strides; };
    PJRT_Buffer_MemoryLayout_Type type;
};
struct PJRT_ShapeSpec { PJRT_HEAD; const int64_t *dims; size_t num_dims; PJRT_Buffer_Type element_type; };
typedef enum {
    PJRT_HostBufferSemantics_kImmutableOnlyDuringCall = 0,
    PJRT_HostBufferSemantics_kImmutableUntilTransferCompletes = 1, PJRT_HostBufferSemantics_kImmutableZeroCopy = 2,
    PJRT_HostBufferSemantics_kMutableZeroCopy = 3,
} PJRT_HostBufferSemantics;

/* ---- Programs, clients, processes ----------------------------------------------------------------------------------
 * Program formats: "mlir" (text or bytecode), "hlo" (HloModuleProto), out of a plugin also "hlo_with_config". */
struct PJRT_Program { PJRT_HEAD; char *code; size_t code_size; const char *format; size_t format_size; };
typedef enum {
    PJRT_ProcessState_kUnspecified = 0, PJRT_ProcessState_kUninitialized = 1, PJRT_ProcessState_kDisconnected = 2,
    PJRT_ProcessState_kConnected = 3, PJRT_ProcessState_kError = 4,
} PJRT_ProcessState;
struct PJRT_ProcessInfo {
    size_t struct_size; int task_id; uint64_t incarnation_id; PJRT_ProcessState state; int error_code;
    const char *error_message; size_t error_message_size;
};
struct PJRT_Client_Create_Args {
    PJRT_HEAD; const PJRT_NamedValue *create_options; size_t num_options; PJRT_KeyValueGetCallback kv_get_callback;
    void *kv_get_user_arg; PJRT_KeyValuePutCallback kv_put_callback; void *kv_put_user_arg; PJRT_Client *client;
    PJRT_KeyValueTryGetCallback kv_try_get_callback; void *kv_try_get_user_arg;
};
struct PJRT_Client_Destroy_Args { PJRT_HEAD; PJRT_Client *client; };
struct PJRT_Client_PlatformName_Args {
    PJRT_HEAD; PJRT_Client *client; const char *platform_name; size_t platform_name_size;
};
struct PJRT_Client_ProcessIndex_Args { PJRT_HEAD; PJRT_Client *client; int process_index; };
struct PJRT_Client_PlatformVersion_Args {
    PJRT_HEAD; PJRT_Client *client; const char *platform_version; size_t platform_version_size;
};
struct PJRT_Client_Devices_Args { PJRT_HEAD; PJRT_Client *client; PJRT_Device *const *devices; size_t num_devices; };
struct PJRT_Client_AddressableDevices_Args {
    PJRT_HEAD; PJRT_Client *client; PJRT_Device *const *addressable_devices; size_t num_addressable_devices;
};
struct PJRT_Client_LookupDevice_Args { PJRT_HEAD; PJRT_Client *client; int id; PJRT_Device *device; };
struct PJRT_Client_LookupAddressableDevice_Args {
    PJRT_HEAD; PJRT_Client *client; int local_hardware_id; PJRT_Device *addressable_device;
};
struct PJRT_Client_AddressableMemories_Args {
    PJRT_HEAD; PJRT_Client *client; PJRT_Memory *const *addressable_memories; size_t num_addressable_memories;
};
struct PJRT_Client_Compile_Args {
    PJRT_HEAD; PJRT_Client *client; const PJRT_Program *program; const char *compile_options;
    size_t compile_options_size; PJRT_LoadedExecutable *executable;
};
struct PJRT_Client_DefaultDeviceAssignment_Args {
    PJRT_HEAD; PJRT_Client *client; int num_replicas; int num_partitions; size_t default_assignment_size;
    int *default_assignment;
};
struct PJRT_Client_BufferFromHostBuffer_Args {
    PJRT_HEAD; PJRT_Client *client; const void *data; PJRT_Buffer_Type type; const int64_t *dims; size_t num_dims;
    const int64_t *byte_strides; size_t num_byte_strides; PJRT_HostBufferSemantics host_buffer_semantics;
    PJRT_Device *device; PJRT_Memory *memory; PJRT_Buffer_MemoryLayout *device_layout;
    PJRT_Event *done_with_host_buffer; PJRT_Buffer *buffer;
};
struct PJRT_Client_CreateViewOfDeviceBuffer_Args {
    PJRT_HEAD; PJRT_Client *client; void *device_buffer_ptr; const int64_t *dims; size_t num_dims;
    PJRT_Buffer_Type element_type; PJRT_Buffer_MemoryLayout *layout; PJRT_Device *device;
    void (*on_delete_callback)(void *, void *); void *on_delete_callback_arg; intptr_t stream; PJRT_Buffer *buffer;
    PJRT_Memory *memory;
};
struct PJRT_Client_TopologyDescription_Args { PJRT_HEAD; PJRT_Client *client; PJRT_TopologyDescription *topology; };
struct PJRT_Client_CreateBuffersForAsyncHostToDevice_Args {
    PJRT_HEAD; PJRT_Client *client; PJRT_ShapeSpec *shape_specs; size_t num_shape_specs;
    PJRT_Buffer_MemoryLayout **device_layouts; size_t num_device_layouts; PJRT_Memory *memory;
    PJRT_AsyncHostToDeviceTransferManager *transfer_manager;
};
struct PJRT_Client_DmaMap_Args { PJRT_HEAD; PJRT_Client *client; void *data; size_t size; };
struct PJRT_Client_DmaUnmap_Args { PJRT_HEAD; PJRT_Client *client; void *data; };
struct PJRT_Client_CreateUninitializedBuffer_Args {
    PJRT_HEAD; PJRT_Client *client; const int64_t *shape_dims; size_t shape_num_dims;
    PJRT_Buffer_Type shape_element_type; PJRT_Buffer_MemoryLayout *shape_layout; PJRT_Device *device;
    PJRT_Memory *memory; PJRT_Buffer *buffer;
};
struct PJRT_Client_UpdateGlobalProcessInfo_Args {
    PJRT_HEAD; PJRT_Client *client; PJRT_ProcessInfo *process_infos; size_t num_process_infos;
};
struct PJRT_Client_CreateAliasBuffer_Args {
    PJRT_HEAD; PJRT_Client *client; PJRT_Memory *memory; const int64_t *shape_dims; size_t shape_num_dims;
    PJRT_Buffer_Type shape_element_type; PJRT_Buffer_MemoryLayout *shape_layout; PJRT_Buffer *alias_buffer;
    PJRT_FulfillAliasBufferCallback *fulfill_alias_buffer_cb;
};
struct PJRT_Client_FulfillAliasBuffer_Args {
    PJRT_HEAD; PJRT_Client *client; PJRT_Buffer *buffer; PJRT_Error_Code status_code; const char *error_message;
    size_t error_message_size; PJRT_FulfillAliasBufferCallback *fulfill_alias_buffer_cb;
};
struct PJRT_Client_CreateErrorBuffer_Args {
    PJRT_HEAD; PJRT_Client *client; PJRT_Error_Code error_code; const char *error_message; size_t error_message_size;
    const int64_t *shape_dims; size_t shape_num_dims; PJRT_Buffer_Type shape_element_type;
    PJRT_Buffer_MemoryLayout *shape_layout; PJRT_Memory *memory; PJRT_Buffer *buffer; const PJRT_NamedValue *payload;
    size_t num_payload;
};
struct PJRT_Client_Load_Args {
    PJRT_HEAD; PJRT_Client *client; PJRT_Executable *executable; const char *compile_options;
    size_t compile_options_size; PJRT_LoadedExecutable *loaded_executable;
};

/* ---- Devices and memories ------------------------------------------------------------------------------------------
 * From 0.105 a memory begins with a vtable (which may be NULL) where others hang their own data. */
struct PJRT_Memory_FunctionTable {
    PJRT_HEAD; size_t instance_struct_size; void *(*get_user_data)(PJRT_Memory *, const void *);
    void (*set_user_data)(PJRT_Memory *, const void *, void *, void (*)(void *));
};
struct PJRT_Memory { const PJRT_Memory_FunctionTable *vtable; };
struct PJRT_DeviceDescription_Id_Args { PJRT_HEAD; PJRT_DeviceDescription *device_description; int id; };
struct PJRT_DeviceDescription_ProcessIndex_Args {
    PJRT_HEAD; PJRT_DeviceDescription *device_description; int process_index;
};
struct PJRT_DeviceDescription_Attributes_Args {
    PJRT_HEAD; PJRT_DeviceDescription *device_description; size_t num_attributes; const PJRT_NamedValue *attributes;
};
struct PJRT_DeviceDescription_Kind_Args {
    PJRT_HEAD; PJRT_DeviceDescription *device_description; const char *device_kind; size_t device_kind_size;
};
struct PJRT_DeviceDescription_DebugString_Args {
    PJRT_HEAD; PJRT_DeviceDescription *device_description; const char *debug_string; size_t debug_string_size;
};
struct PJRT_DeviceDescription_ToString_Args {
    PJRT_HEAD; PJRT_DeviceDescription *device_description; const char *to_string; size_t to_string_size;
};
struct PJRT_Device_GetDescription_Args {
    PJRT_HEAD; PJRT_Device *device; PJRT_DeviceDescription *device_description;
};
struct PJRT_Device_IsAddressable_Args { PJRT_HEAD; PJRT_Device *device; bool is_addressable; };
struct PJRT_Device_LocalHardwareId_Args { PJRT_HEAD; PJRT_Device *device; int local_hardware_id; };
struct PJRT_Device_AddressableMemories_Args {
    PJRT_HEAD; PJRT_Device *device; PJRT_Memory *const *memories; size_t num_memories;
};
struct PJRT_Device_DefaultMemory_Args { PJRT_HEAD; PJRT_Device *device; PJRT_Memory *memory; };
struct PJRT_Device_MemoryStats_Args {
    PJRT_HEAD; PJRT_Device *device; int64_t bytes_in_use; int64_t peak_bytes_in_use; bool peak_bytes_in_use_is_set;
    int64_t num_allocs; bool num_allocs_is_set; int64_t largest_alloc_size; bool largest_alloc_size_is_set;
    int64_t bytes_limit; bool bytes_limit_is_set; int64_t bytes_reserved; bool bytes_reserved_is_set;
    int64_t peak_bytes_reserved; bool peak_bytes_reserved_is_set; int64_t bytes_reservable_limit;
    bool bytes_reservable_limit_is_set; int64_t largest_free_block_bytes; bool largest_free_block_bytes_is_set;
    int64_t pool_bytes; bool pool_bytes_is_set; int64_t peak_pool_bytes; bool peak_pool_bytes_is_set;
    int64_t peak_allocated_bytes; bool peak_allocated_bytes_is_set;
};
struct PJRT_Device_PoisonExecution_Args {
    PJRT_HEAD; PJRT_Device *device; int32_t launch_id; PJRT_Error_Code error_code; const char *error_message;
    size_t error_message_size; bool poisoned; const PJRT_NamedValue *payload; size_t num_payload;
};
struct PJRT_Device_CreateAsyncTrackingEvent_Args {
    PJRT_HEAD; PJRT_Device *device; const char *description; size_t description_size; PJRT_AsyncTrackingEvent *event;
};
struct PJRT_Device_GetAttributes_Args {
    PJRT_HEAD; PJRT_Device *device; const PJRT_NamedValue *attributes; size_t num_attributes;
    PJRT_Device_Attributes *device_attributes; void (*attributes_deleter)(PJRT_Device_Attributes *);
};
struct PJRT_Device_ClearMemoryStats_Args { PJRT_HEAD; PJRT_Device *device; };
struct PJRT_Memory_Id_Args { PJRT_HEAD; PJRT_Memory *memory; int id; };
struct PJRT_Memory_Kind_Args { PJRT_HEAD; PJRT_Memory *memory; const char *kind; size_t kind_size; };
struct PJRT_Memory_DebugString_Args {
    PJRT_HEAD; PJRT_Memory *memory; const char *debug_string; size_t debug_string_size;
};
struct PJRT_Memory_ToString_Args { PJRT_HEAD; PJRT_Memory *memory; const char *to_string; size_t to_string_size; };
struct PJRT_Memory_AddressableByDevices_Args {
    PJRT_HEAD; PJRT_Memory *memory; PJRT_Device *const *devices; size_t num_devices;
};
struct PJRT_Memory_Kind_Id_Args { PJRT_HEAD; PJRT_Memory *memory; int kind_id; };

/* ---- Executables ---------------------------------------------------------------------------------------------------
 * Serialised things come with a holder and its deleter; the bytes live until the deleter ran. */
struct PJRT_LogicalDeviceIds { int replica; int partition; };
struct PJRT_LoadOptions {
    size_t struct_size; const int32_t *computation_origin; size_t computation_origin_size;
    PJRT_MultiSlice_Config *multi_slice_config;
};
struct PJRT_Executable_Destroy_Args { PJRT_HEAD; PJRT_Executable *executable; };
struct PJRT_Executable_Name_Args {
    PJRT_HEAD; PJRT_Executable *executable; const char *executable_name; size_t executable_name_size;
};
struct PJRT_Executable_NumReplicas_Args { PJRT_HEAD; PJRT_Executable *executable; size_t num_replicas; };
struct PJRT_Executable_NumPartitions_Args { PJRT_HEAD; PJRT_Executable *executable; size_t num_partitions; };
struct PJRT_Executable_NumOutputs_Args { PJRT_HEAD; PJRT_Executable *executable; size_t num_outputs; };
struct PJRT_Executable_SizeOfGeneratedCodeInBytes_Args {
    PJRT_HEAD; PJRT_Executable *executable; int64_t size_in_bytes;
};
struct PJRT_Executable_GetCostAnalysis_Args {
    PJRT_HEAD; PJRT_Executable *executable; size_t num_properties; const PJRT_NamedValue *properties;
};
struct PJRT_Executable_OutputMemoryKinds_Args {
    PJRT_HEAD; PJRT_Executable *executable; size_t num_outputs; const char *const *memory_kinds;
    const size_t *memory_kind_sizes;
};
struct PJRT_Executable_OptimizedProgram_Args { PJRT_HEAD; PJRT_Executable *executable; PJRT_Program *program; };
struct PJRT_Executable_Serialize_Args {
    PJRT_HEAD; const PJRT_Executable *executable; const char *serialized_bytes; size_t serialized_bytes_size;
    PJRT_SerializedExecutable *serialized_executable;
    void (*serialized_executable_deleter)(PJRT_SerializedExecutable *);
};
struct PJRT_Executable_DeserializeAndLoad_Args {
    PJRT_HEAD; PJRT_Client *client; const char *serialized_executable; size_t serialized_executable_size;
    PJRT_LoadedExecutable *loaded_executable; const char *overridden_serialized_compile_options;
    size_t overridden_serialized_compile_options_size; PJRT_LoadOptions *load_options;
};
struct PJRT_Executable_OutputElementTypes_Args {
    PJRT_HEAD; PJRT_Executable *executable; PJRT_Buffer_Type *output_types; size_t num_output_types;
};
struct PJRT_Executable_OutputDimensions_Args {
    PJRT_HEAD; PJRT_Executable *executable; size_t num_outputs; const int64_t *dims; const size_t *dim_sizes;
};
struct PJRT_Executable_Fingerprint_Args {
    PJRT_HEAD; PJRT_Executable *executable; const char *executable_fingerprint; size_t executable_fingerprint_size;
};
struct PJRT_Executable_GetCompiledMemoryStats_Args {
    PJRT_HEAD; PJRT_Executable *executable; int64_t generated_code_size_in_bytes; int64_t argument_size_in_bytes;
    int64_t output_size_in_bytes; int64_t alias_size_in_bytes; int64_t temp_size_in_bytes;
    int64_t host_generated_code_size_in_bytes; int64_t host_argument_size_in_bytes; int64_t host_output_size_in_bytes;
    int64_t host_alias_size_in_bytes; int64_t host_temp_size_in_bytes; int64_t peak_memory_in_bytes;
    int64_t total_size_in_bytes; int64_t total_allocation_bytes; int64_t indefinite_allocations;
    int64_t peak_unpadded_heap_bytes;
};
struct PJRT_Executable_GetCompileOptions_Args {
    PJRT_HEAD; PJRT_Executable *executable; const char *serialized_bytes; size_t serialized_bytes_size;
    PJRT_SerializedCompileOptions *serialized_compile_options;
    void (*serialized_compile_options_deleter)(PJRT_SerializedCompileOptions *);
};
struct PJRT_Executable_ParameterMemoryKinds_Args {
    PJRT_HEAD; PJRT_Executable *executable; size_t num_parameters; const char *const *memory_kinds;
    const size_t *memory_kind_sizes;
};
struct PJRT_LoadedExecutable_Destroy_Args { PJRT_HEAD; PJRT_LoadedExecutable *executable; };
struct PJRT_LoadedExecutable_GetExecutable_Args {
    PJRT_HEAD; PJRT_LoadedExecutable *loaded_executable; PJRT_Executable *executable;
};
struct PJRT_LoadedExecutable_AddressableDevices_Args {
    PJRT_HEAD; PJRT_LoadedExecutable *executable; PJRT_Device *const *addressable_devices;
    size_t num_addressable_devices;
};
struct PJRT_LoadedExecutable_Delete_Args { PJRT_HEAD; PJRT_LoadedExecutable *executable; };
struct PJRT_LoadedExecutable_IsDeleted_Args { PJRT_HEAD; PJRT_LoadedExecutable *executable; bool is_deleted; };
struct PJRT_LoadedExecutable_Fingerprint_Args {
    PJRT_HEAD; PJRT_LoadedExecutable *executable; const char *executable_fingerprint;
    size_t executable_fingerprint_size;
};
struct PJRT_LoadedExecutable_GetDeviceAssignment_Args {
    PJRT_HEAD; PJRT_LoadedExecutable *executable; const char *serialized_bytes; size_t serialized_bytes_size;
    PJRT_DeviceAssignmentSerialized *serialized_device_assignment;
    void (*serialized_device_assignment_deleter)(PJRT_DeviceAssignmentSerialized *);
};
struct PJRT_LoadedExecutable_AddressableDeviceLogicalIds_Args {
    PJRT_HEAD; PJRT_LoadedExecutable *executable; PJRT_LogicalDeviceIds *addressable_device_logical_ids;
    size_t num_addressable_device_logical_ids;
};
struct PJRT_ExecuteContext_Create_Args { PJRT_HEAD; PJRT_ExecuteContext *context; };
struct PJRT_ExecuteContext_Destroy_Args { PJRT_HEAD; PJRT_ExecuteContext *context; };

/* ---- Execution -----------------------------------------------------------------------------------------------------
 * Rows of argument_lists and output_lists follow the device assignment. Donation is the program's, minus
 * non_donatable_*. */
struct PJRT_Chunk { void *data; size_t size; void (*deleter)(void *, void *); void *deleter_arg; };
typedef PJRT_Error *(*PJRT_SendCallback)(PJRT_Chunk *chunk, PJRT_CallbackError *callback_error,
                                         size_t total_size_in_bytes, bool done, void *user_arg);
typedef void (*PJRT_RecvCallback)(PJRT_CopyToDeviceStream *stream, void *user_arg);
typedef void (*PJRT_HloOutputCallback)(void); /* passed on, never called here: its arguments are left open */
struct PJRT_SendCallbackInfo { int64_t channel_id; void *user_arg; PJRT_SendCallback send_callback; };
struct PJRT_RecvCallbackInfo { int64_t channel_id; void *user_arg; PJRT_RecvCallback recv_callback; };
struct PJRT_HloOutputCallbackInfo {
    void *user_arg; PJRT_HloOutputCallback callback; int64_t callback_id; size_t num_operands;
};
struct PJRT_ExecuteOptions {
    PJRT_HEAD; PJRT_SendCallbackInfo **send_callbacks; PJRT_RecvCallbackInfo **recv_callbacks; size_t num_send_ops;
    size_t num_recv_ops; int launch_id; const int64_t *non_donatable_input_indices;
    size_t num_non_donatable_input_indices; PJRT_ExecuteContext *context; const char *call_location; size_t num_tasks;
    int *task_ids; int64_t *incarnation_ids; PJRT_MultiSlice_Config *multi_slice_config;
    bool use_major_to_minor_data_layout_for_callbacks; PJRT_HloOutputCallbackInfo *hlo_output_callbacks;
    size_t num_hlo_output_callbacks;
};
struct PJRT_LoadedExecutable_Execute_Args {
    PJRT_HEAD; PJRT_LoadedExecutable *executable; PJRT_ExecuteOptions *options;
    PJRT_Buffer * const *const *argument_lists; size_t num_devices; size_t num_args;
    PJRT_Buffer **const *output_lists; PJRT_Event **device_complete_events; PJRT_Device *execute_device;
};
struct PJRT_CopyToDeviceStream_Destroy_Args { PJRT_HEAD; PJRT_CopyToDeviceStream *stream; };
struct PJRT_CopyToDeviceStream_AddChunk_Args {
    PJRT_HEAD; PJRT_CopyToDeviceStream *stream; PJRT_Chunk *chunk; PJRT_Event *transfer_complete;
};
struct PJRT_CopyToDeviceStream_TotalBytes_Args { PJRT_HEAD; PJRT_CopyToDeviceStream *stream; int64_t total_bytes; };
struct PJRT_CopyToDeviceStream_GranuleSize_Args {
    PJRT_HEAD; PJRT_CopyToDeviceStream *stream; int64_t granule_size_in_bytes;
};
struct PJRT_CopyToDeviceStream_CurrentBytes_Args {
    PJRT_HEAD; PJRT_CopyToDeviceStream *stream; int64_t current_bytes;
};

/* ---- Buffers -------------------------------------------------------------------------------------------------------
 * ToHostBuffer with a NULL dst asks for the size. */
struct PJRT_Buffer_CopyRawToHostFuture_Callback_Args {
    size_t struct_size; void *callback_data; PJRT_Error_Code error_code; const char *error_message;
    size_t error_message_size; void *dst;
};
struct PJRT_Buffer_DonateWithControlDependency_Callback_Args {
    size_t struct_size; void *callback_data; PJRT_Error_Code error_code; const char *error_message;
    size_t error_message_size;
};
struct PJRT_Buffer_Destroy_Args { PJRT_HEAD; PJRT_Buffer *buffer; };
struct PJRT_Buffer_ElementType_Args { PJRT_HEAD; PJRT_Buffer *buffer; PJRT_Buffer_Type type; };
struct PJRT_Buffer_Dimensions_Args { PJRT_HEAD; PJRT_Buffer *buffer; const int64_t *dims; size_t num_dims; };
struct PJRT_Buffer_UnpaddedDimensions_Args {
    PJRT_HEAD; PJRT_Buffer *buffer; const int64_t *unpadded_dims; size_t num_dims;
};
struct PJRT_Buffer_DynamicDimensionIndices_Args {
    PJRT_HEAD; PJRT_Buffer *buffer; const size_t *dynamic_dim_indices; size_t num_dynamic_dims;
};
struct PJRT_Buffer_GetMemoryLayout_Args { PJRT_HEAD; PJRT_Buffer *buffer; PJRT_Buffer_MemoryLayout layout; };
struct PJRT_Buffer_OnDeviceSizeInBytes_Args { PJRT_HEAD; PJRT_Buffer *buffer; size_t on_device_size_in_bytes; };
struct PJRT_Buffer_Device_Args { PJRT_HEAD; PJRT_Buffer *buffer; PJRT_Device *device; };
struct PJRT_Buffer_Memory_Args { PJRT_HEAD; PJRT_Buffer *buffer; PJRT_Memory *memory; };
struct PJRT_Buffer_Delete_Args { PJRT_HEAD; PJRT_Buffer *buffer; };
struct PJRT_Buffer_IsDeleted_Args { PJRT_HEAD; PJRT_Buffer *buffer; bool is_deleted; };
struct PJRT_Buffer_CopyToDevice_Args {
    PJRT_HEAD; PJRT_Buffer *buffer; PJRT_Device *dst_device; PJRT_Buffer *dst_buffer;
};
struct PJRT_Buffer_ToHostBuffer_Args {
    PJRT_HEAD; PJRT_Buffer *src; PJRT_Buffer_MemoryLayout *host_layout; void *dst; size_t dst_size; PJRT_Event *event;
};
struct PJRT_Buffer_IsOnCpu_Args { PJRT_HEAD; PJRT_Buffer *buffer; bool is_on_cpu; };
struct PJRT_Buffer_ReadyEvent_Args { PJRT_HEAD; PJRT_Buffer *buffer; PJRT_Event *event; };
struct PJRT_Buffer_UnsafePointer_Args { PJRT_HEAD; PJRT_Buffer *buffer; uintptr_t buffer_pointer; };
struct PJRT_Buffer_IncreaseExternalReferenceCount_Args { PJRT_HEAD; PJRT_Buffer *buffer; };
struct PJRT_Buffer_DecreaseExternalReferenceCount_Args { PJRT_HEAD; PJRT_Buffer *buffer; };
struct PJRT_Buffer_OpaqueDeviceMemoryDataPointer_Args { PJRT_HEAD; PJRT_Buffer *buffer; void *device_memory_ptr; };
struct PJRT_Buffer_CopyToMemory_Args {
    PJRT_HEAD; PJRT_Buffer *buffer; PJRT_Memory *dst_memory; PJRT_Buffer *dst_buffer;
};
struct PJRT_Buffer_CopyRawToHost_Args {
    PJRT_HEAD; PJRT_Buffer *buffer; void *dst; int64_t offset; int64_t transfer_size; PJRT_Event *event;
};
struct PJRT_Buffer_CopyRawToHostFuture_Args {
    PJRT_HEAD; PJRT_Buffer *buffer; int64_t offset; int64_t transfer_size; PJRT_Event *event; void *callback_data;
    void (*future_ready_callback)(PJRT_Buffer_CopyRawToHostFuture_Callback_Args *);
};
struct PJRT_Buffer_DonateWithControlDependency_Args {
    PJRT_HEAD; PJRT_Buffer *buffer; void *callback_data;
    void (*dependency_ready_callback)(PJRT_Buffer_DonateWithControlDependency_Callback_Args *);
    PJRT_Buffer *out_buffer;
};
struct PJRT_Buffer_Bitcast_Args {
    PJRT_HEAD; PJRT_Buffer *buffer; PJRT_Buffer_Type element_type; const int64_t *dims; size_t num_dims;
    PJRT_Buffer_MemoryLayout *device_layout; PJRT_Buffer *out_buffer;
};
struct PJRT_AsyncHostToDeviceTransferManager_Destroy_Args {
    PJRT_HEAD; PJRT_AsyncHostToDeviceTransferManager *transfer_manager;
};
struct PJRT_AsyncHostToDeviceTransferManager_TransferData_Args {
    PJRT_HEAD; PJRT_AsyncHostToDeviceTransferManager *transfer_manager; int buffer_index; const void *data;
    int64_t offset; int64_t transfer_size; bool is_last_transfer; PJRT_Event *done_with_h2d_transfer;
};
struct PJRT_AsyncHostToDeviceTransferManager_RetrieveBuffer_Args {
    PJRT_HEAD; PJRT_AsyncHostToDeviceTransferManager *transfer_manager; int buffer_index; PJRT_Buffer *buffer_out;
};
struct PJRT_AsyncHostToDeviceTransferManager_Device_Args {
    PJRT_HEAD; PJRT_AsyncHostToDeviceTransferManager *transfer_manager; PJRT_Device *device_out;
};
struct PJRT_AsyncHostToDeviceTransferManager_BufferCount_Args {
    PJRT_HEAD; PJRT_AsyncHostToDeviceTransferManager *transfer_manager; size_t buffer_count;
};
struct PJRT_AsyncHostToDeviceTransferManager_BufferSize_Args {
    PJRT_HEAD; PJRT_AsyncHostToDeviceTransferManager *transfer_manager; int buffer_index; size_t buffer_size;
};
struct PJRT_AsyncHostToDeviceTransferManager_SetBufferError_Args {
    PJRT_HEAD; PJRT_AsyncHostToDeviceTransferManager *transfer_manager; int buffer_index; PJRT_Error_Code error_code;
    const char *error_message; size_t error_message_size;
};
struct PJRT_AsyncHostToDeviceTransferManager_AddMetadata_Args {
    PJRT_HEAD; PJRT_AsyncHostToDeviceTransferManager *transfer_manager; const PJRT_NamedValue *transfer_metadata;
    size_t num_metadata;
};
struct PJRT_AsyncHostToDeviceTransferManager_TransferLiteral_Args {
    PJRT_HEAD; PJRT_AsyncHostToDeviceTransferManager *transfer_manager; int buffer_index; const void *data;
    const int64_t *shape_dims; size_t shape_num_dims; PJRT_Buffer_Type shape_element_type;
    PJRT_Buffer_MemoryLayout *shape_layout; PJRT_Event *done_with_h2d_transfer;
};

/* ---- Topologies and compiling without a client ---------------------------------------------------------------------
 * A topology made by name lets a plugin compile for devices that are not here. */
struct PJRT_TopologyDescription_Create_Args {
    PJRT_HEAD; const char *topology_name; size_t topology_name_size; const PJRT_NamedValue *create_options;
    size_t num_options; PJRT_TopologyDescription *topology;
};
struct PJRT_TopologyDescription_Destroy_Args { PJRT_HEAD; PJRT_TopologyDescription *topology; };
struct PJRT_TopologyDescription_PlatformName_Args {
    PJRT_HEAD; const PJRT_TopologyDescription *topology; const char *platform_name; size_t platform_name_size;
};
struct PJRT_TopologyDescription_PlatformVersion_Args {
    PJRT_HEAD; PJRT_TopologyDescription *topology; const char *platform_version; size_t platform_version_size;
};
struct PJRT_TopologyDescription_GetDeviceDescriptions_Args {
    PJRT_HEAD; const PJRT_TopologyDescription *topology; PJRT_DeviceDescription *const *descriptions;
    size_t num_descriptions;
};
struct PJRT_TopologyDescription_Serialize_Args {
    PJRT_HEAD; PJRT_TopologyDescription *topology; const char *serialized_bytes; size_t serialized_bytes_size;
    PJRT_SerializedTopology *serialized_topology; void (*serialized_topology_deleter)(PJRT_SerializedTopology *);
};
struct PJRT_TopologyDescription_Attributes_Args {
    PJRT_HEAD; PJRT_TopologyDescription *topology; const PJRT_NamedValue *attributes; size_t num_attributes;
};
struct PJRT_TopologyDescription_Deserialize_Args {
    PJRT_HEAD; const char *serialized_topology; size_t serialized_topology_size; PJRT_TopologyDescription *topology;
};
struct PJRT_TopologyDescription_Fingerprint_Args {
    PJRT_HEAD; const PJRT_TopologyDescription *topology; uint64_t fingerprint;
};
struct PJRT_TopologyDescription_MakeCanonicalShapeForMemorySpace_Args {
    PJRT_HEAD; const PJRT_TopologyDescription *topology; int memory_space_kind_id; const int64_t *dims;
    size_t num_dims; PJRT_Buffer_Type element_type; const PJRT_Buffer_MemoryLayout *layout;
    const char *serialized_shape; size_t serialized_shape_size; void (*serialized_shape_deleter)(const char *);
};
struct PJRT_TopologyDescription_GetMemorySpaceKindIds_Args {
    PJRT_HEAD; const PJRT_TopologyDescription *topology; const int *memory_space_kind_ids;
    size_t num_memory_space_kind_ids;
};
struct PJRT_Compile_Args {
    PJRT_HEAD; const PJRT_TopologyDescription *topology; const PJRT_Program *program; const char *compile_options;
    size_t compile_options_size; PJRT_Client *client; PJRT_Executable *executable;
};

/* ---- Extension 4: layouts ------------------------------------------------------------------------------------------
 * Layouts as XLA prints them, e.g. "{1,0:T(8,128)}". */
struct PJRT_Layouts_MemoryLayout_Destroy_Args { PJRT_HEAD; PJRT_Layouts_MemoryLayout *layout; };
struct PJRT_Layouts_MemoryLayout_Serialize_Args {
    PJRT_HEAD; PJRT_Layouts_MemoryLayout *layout; const char *serialized_bytes; size_t serialized_bytes_size;
    PJRT_Layouts_SerializedLayout *serialized_layout;
    void (*serialized_layout_deleter)(PJRT_Layouts_SerializedLayout *);
};
struct PJRT_Layouts_PJRT_Client_GetDefaultLayout_Args {
    PJRT_HEAD; PJRT_Client *client; PJRT_Buffer_Type type; const int64_t *dims; size_t num_dims;
    PJRT_Layouts_MemoryLayout *layout;
};
struct PJRT_Layouts_PJRT_Buffer_MemoryLayout_Args {
    PJRT_HEAD; PJRT_Buffer *buffer; PJRT_Layouts_MemoryLayout *layout;
};
struct PJRT_Layouts_PJRT_Topology_GetDefaultLayout_Args {
    PJRT_HEAD; PJRT_TopologyDescription *topology_description; PJRT_Buffer_Type type; const int64_t *dims;
    size_t num_dims; PJRT_Layouts_MemoryLayout *layout;
};
struct PJRT_Layouts_PJRT_Executable_GetOutputLayouts_Args {
    PJRT_HEAD; PJRT_Executable *executable; size_t num_outputs; PJRT_Layouts_MemoryLayout **layouts;
};
struct PJRT_Layouts_PJRT_Executable_GetParameterLayouts_Args {
    PJRT_HEAD; PJRT_Executable *executable; size_t num_parameters; PJRT_Layouts_MemoryLayout **layouts;
};
typedef PJRT_Error *PJRT_Layouts_MemoryLayout_Destroy(PJRT_Layouts_MemoryLayout_Destroy_Args *args);
typedef PJRT_Error *PJRT_Layouts_MemoryLayout_Serialize(PJRT_Layouts_MemoryLayout_Serialize_Args *args);
typedef PJRT_Error *PJRT_Layouts_PJRT_Client_GetDefaultLayout(PJRT_Layouts_PJRT_Client_GetDefaultLayout_Args *args);
typedef PJRT_Error *PJRT_Layouts_PJRT_Buffer_MemoryLayout(PJRT_Layouts_PJRT_Buffer_MemoryLayout_Args *args);
typedef PJRT_Error *PJRT_Layouts_PJRT_Topology_GetDefaultLayout(PJRT_Layouts_PJRT_Topology_GetDefaultLayout_Args *args);
typedef PJRT_Error *
PJRT_Layouts_PJRT_Executable_GetOutputLayouts(PJRT_Layouts_PJRT_Executable_GetOutputLayouts_Args *args);
typedef PJRT_Error *
PJRT_Layouts_PJRT_Executable_GetParameterLayouts(PJRT_Layouts_PJRT_Executable_GetParameterLayouts_Args *args);
struct PJRT_Layouts_Extension {
    PJRT_Extension_Base base; PJRT_Layouts_MemoryLayout_Destroy *PJRT_Layouts_MemoryLayout_Destroy;
    PJRT_Layouts_MemoryLayout_Serialize *PJRT_Layouts_MemoryLayout_Serialize;
    PJRT_Layouts_PJRT_Client_GetDefaultLayout *PJRT_Layouts_PJRT_Client_GetDefaultLayout;
    PJRT_Layouts_PJRT_Buffer_MemoryLayout *PJRT_Layouts_PJRT_Buffer_MemoryLayout;
    PJRT_Layouts_PJRT_Topology_GetDefaultLayout *PJRT_Layouts_PJRT_Topology_GetDefaultLayout;
    PJRT_Layouts_PJRT_Executable_GetOutputLayouts *PJRT_Layouts_PJRT_Executable_GetOutputLayouts;
    PJRT_Layouts_PJRT_Executable_GetParameterLayouts *PJRT_Layouts_PJRT_Executable_GetParameterLayouts;
};

/* ---- Extension 5: custom calls by the XLA FFI -----------------------------------------------------------------------
 * Its functions and types are for the life of the process; user data is of one execute context. */
struct PJRT_FFI_Type_Info { void (*deleter)(void *object); void (*serialize)(void); void (*deserialize)(void); };
struct PJRT_FFI_Type_Register_Args {
    PJRT_HEAD; const char *type_name; size_t type_name_size; int64_t type_id; PJRT_FFI_Type_Info *type_info;
};
struct PJRT_FFI_UserData { int64_t type_id; void *data; };
struct PJRT_FFI_UserData_Add_Args { PJRT_HEAD; PJRT_ExecuteContext *context; PJRT_FFI_UserData user_data; };
struct PJRT_FFI_Register_Handler_Args {
    size_t struct_size; const char *target_name; size_t target_name_size; void *handler; const char *platform_name;
    size_t platform_name_size; int traits;
};
typedef PJRT_Error *PJRT_FFI_Type_Register(PJRT_FFI_Type_Register_Args *args);
typedef PJRT_Error *PJRT_FFI_UserData_Add(PJRT_FFI_UserData_Add_Args *args);
typedef PJRT_Error *PJRT_FFI_Register_Handler(PJRT_FFI_Register_Handler_Args *args);
struct PJRT_FFI_Extension {
    PJRT_Extension_Base base; PJRT_FFI_Type_Register *type_register; PJRT_FFI_UserData_Add *user_data_add;
    PJRT_FFI_Register_Handler *register_handler;
};

/* ---- Extension 6: the memories of a device that is only described --------------------------------------------------
 * For topologies. */
struct PJRT_DeviceDescription_MemoryDescriptions_Args {
    PJRT_HEAD; PJRT_DeviceDescription *device_description; const PJRT_MemoryDescription *const *memory_descriptions;
    size_t num_memory_descriptions; size_t default_memory_index;
};
struct PJRT_MemoryDescription_Kind_Args {
    PJRT_HEAD; const PJRT_MemoryDescription *memory_description; const char *kind; size_t kind_size; int kind_id;
};
typedef PJRT_Error *PJRT_DeviceDescription_MemoryDescriptions(PJRT_DeviceDescription_MemoryDescriptions_Args *args);
typedef PJRT_Error *PJRT_MemoryDescription_Kind(PJRT_MemoryDescription_Kind_Args *args);
struct PJRT_MemoryDescriptions_Extension {
    PJRT_Extension_Base base; PJRT_DeviceDescription_MemoryDescriptions *PJRT_DeviceDescription_MemoryDescriptions;
    PJRT_MemoryDescription_Kind *PJRT_MemoryDescription_Kind;
};

/* ---- Extension 19: shardings ---------------------------------------------------------------------------------------
 * Serialised OpSharding protos, one per parameter or output; NULL for none. */
struct PJRT_Shardings_PJRT_Executable_ParameterShardings_Args {
    PJRT_HEAD; PJRT_Executable *executable; size_t num_parameters; const char *const *shardings;
    const size_t *sharding_sizes;
};
struct PJRT_Shardings_PJRT_Executable_OutputShardings_Args {
    PJRT_HEAD; PJRT_Executable *executable; size_t num_outputs; const char *const *shardings;
    const size_t *sharding_sizes;
};
typedef PJRT_Error *
PJRT_Shardings_PJRT_Executable_ParameterShardings(PJRT_Shardings_PJRT_Executable_ParameterShardings_Args *args);
typedef PJRT_Error *
PJRT_Shardings_PJRT_Executable_OutputShardings(PJRT_Shardings_PJRT_Executable_OutputShardings_Args *args);
struct PJRT_Shardings_Extension {
    PJRT_Extension_Base base;
    PJRT_Shardings_PJRT_Executable_ParameterShardings *PJRT_Shardings_PJRT_Executable_ParameterShardings;
    PJRT_Shardings_PJRT_Executable_OutputShardings *PJRT_Shardings_PJRT_Executable_OutputShardings;
};

/* ---- Extension 24: rewriting of HLO -------------------------------------------------------------------------------
 * A compile hands the program to every callback that was registered, as an HloModuleProto. Callbacks stay where they
 * are until the plugin calls dtor. What a callback makes lives until cleanup_fn, which the plugin calls with data. */
typedef enum {
    PJRT_XlaTransform_PipelineStage_kPreScheduler = 0, PJRT_XlaTransform_PipelineStage_kPostScheduler = 1,
} PJRT_XlaTransform_PipelineStage;
struct PJRT_XlaTransform_string { const char *data; size_t size; };
struct PJRT_XlaTransform_version_and_error {
    int64_t api_version; void *data; void (*cleanup_fn)(void *data); bool has_error; PJRT_Error_Code code;
    PJRT_XlaTransform_string error_msg;
};
struct PJRT_XlaTransform_Args {
    size_t struct_size; PJRT_XlaTransform_version_and_error header; PJRT_XlaTransform_string hlo_module;
    PJRT_XlaTransform_string transformed_hlo_module; bool changed;
};
struct PJRT_XlaTransform_Callbacks {
    int64_t version; void (*dtor)(PJRT_XlaTransform_Callbacks *data);
    void (*transform_hlo_module)(PJRT_XlaTransform_Callbacks *data, PJRT_XlaTransform_Args *args);
};
struct PJRT_Register_Xla_Transform_Args {
    size_t struct_size; const char *name; size_t name_size; PJRT_XlaTransform_PipelineStage stage;
    PJRT_XlaTransform_Callbacks *callbacks;
};
struct PJRT_Clear_Xla_Transform_Args {
    size_t struct_size; PJRT_XlaTransform_PipelineStage stage; const char *name; size_t name_size;
    PJRT_XlaTransform_Callbacks *callbacks; bool cleared;
};
typedef PJRT_Error *PJRT_Register_Xla_Transform(PJRT_Register_Xla_Transform_Args *args);
typedef PJRT_Error *PJRT_Clear_Xla_Transform(PJRT_Clear_Xla_Transform_Args *args);
struct PJRT_Xla_Transform_Extension {
    PJRT_Extension_Base base; PJRT_Register_Xla_Transform *register_xla_transform;
    PJRT_Clear_Xla_Transform *clear_xla_transform;
    void (*get_hlo_pass_pipeline_trace)(void), (*destroy_hlo_pass_pipeline_trace)(void); /* not called here */
};

/* ---- The table -----------------------------------------------------------------------------------------------
 * What dlsym("GetPjrtApi") leads to: one per plugin and process, never freed. */
struct PJRT_Api {
    PJRT_HEAD;
    PJRT_Api_Version pjrt_api_version;
#define API(ret, name, since) name *name;
#include "pjrt/api.def"
};
typedef const PJRT_Api *PJRT_GetPjrtApi(void);

#endif
