/* src/cpu/kernel/ffi_abi.h
 * The XLA FFI C API as this project uses it: version 0.5, written from facts about the interface (names, types,
 * offsets). It is the C ABI between a runtime and the custom calls that users write, with xla/ffi/api/ffi.h or without,
 * so nothing here may be renamed, reordered or resized. Every struct begins with its size as its writer knows it;
 * XLA_FFI_HAS says whether a field lies inside. Functions compiled for 0.1 to 0.5 can be called; those for 0.2 and
 * older pass the arguments of State_Set and State_Get without a stage. */
#ifndef XL_CPU_FFI_ABI_H
#define XL_CPU_FFI_ABI_H

#include <stddef.h>
#include <stdint.h>

#define XLA_FFI_API_MAJOR 0
#define XLA_FFI_API_MINOR 5

#define XLA_FFI_SIZE(T, last) (offsetof(T, last) + sizeof(((T *)0)->last))
#define XLA_FFI_HAS(p, field) ((p)->struct_size >= XLA_FFI_SIZE(__typeof__(*(p)), field))
#define XLA_FFI_HEAD size_t struct_size; XLA_FFI_InternalExtension *extension_start

typedef struct XLA_FFI_InternalExtension XLA_FFI_InternalExtension;
enum { XLA_FFI_Extension_Metadata = 1 };
struct XLA_FFI_InternalExtension { size_t struct_size; int type; XLA_FFI_InternalExtension *next; };

typedef struct { XLA_FFI_HEAD; int major_version, minor_version; } XLA_FFI_Api_Version;
typedef struct XLA_FFI_Api XLA_FFI_Api;
typedef struct XLA_FFI_Error XLA_FFI_Error;                /* ours */
typedef struct XLA_FFI_Future XLA_FFI_Future;              /* ours */
typedef struct XLA_FFI_InvokeContext XLA_FFI_InvokeContext; /* ours; ExecutionContext before 0.4 */

typedef enum {                                             /* PrimitiveType of xla_data.proto */
    XLA_FFI_DataType_INVALID = 0, XLA_FFI_DataType_PRED = 1, XLA_FFI_DataType_S8 = 2, XLA_FFI_DataType_S16 = 3,
    XLA_FFI_DataType_S32 = 4, XLA_FFI_DataType_S64 = 5, XLA_FFI_DataType_U8 = 6, XLA_FFI_DataType_U16 = 7,
    XLA_FFI_DataType_U32 = 8, XLA_FFI_DataType_U64 = 9, XLA_FFI_DataType_F16 = 10, XLA_FFI_DataType_F32 = 11,
    XLA_FFI_DataType_F64 = 12, XLA_FFI_DataType_C64 = 15, XLA_FFI_DataType_BF16 = 16, XLA_FFI_DataType_TOKEN = 17,
    XLA_FFI_DataType_C128 = 18, XLA_FFI_DataType_F8E5M2 = 19, XLA_FFI_DataType_F8E4M3FN = 20, XLA_FFI_DataType_S4 = 21,
    XLA_FFI_DataType_U4 = 22, XLA_FFI_DataType_F8E4M3B11FNUZ = 23, XLA_FFI_DataType_F8E5M2FNUZ = 24,
    XLA_FFI_DataType_F8E4M3FNUZ = 25, XLA_FFI_DataType_S2 = 26, XLA_FFI_DataType_U2 = 27, XLA_FFI_DataType_F8E4M3 = 28,
    XLA_FFI_DataType_F8E3M4 = 29, XLA_FFI_DataType_F4E2M1FN = 32, XLA_FFI_DataType_F8E8M0FNU = 33,
} XLA_FFI_DataType;

typedef struct { XLA_FFI_HEAD; XLA_FFI_DataType dtype; void *data; int64_t rank; int64_t *dims; } XLA_FFI_Buffer;
enum { XLA_FFI_ArgType_BUFFER = 1, XLA_FFI_RetType_BUFFER = 1 };
enum { XLA_FFI_AttrType_ARRAY = 1, XLA_FFI_AttrType_DICTIONARY, XLA_FFI_AttrType_SCALAR, XLA_FFI_AttrType_STRING };
typedef struct { const char *ptr; size_t len; } XLA_FFI_ByteSpan;
typedef struct { XLA_FFI_DataType dtype; void *value; } XLA_FFI_Scalar;
typedef struct { XLA_FFI_DataType dtype; size_t size; void *data; } XLA_FFI_Array;
typedef struct { int64_t type_id; } XLA_FFI_TypeId;
typedef struct { XLA_FFI_HEAD; void (*deleter)(void *object); } XLA_FFI_TypeInfo;

typedef enum {
    XLA_FFI_ExecutionStage_INSTANTIATE, XLA_FFI_ExecutionStage_PREPARE, XLA_FFI_ExecutionStage_INITIALIZE,
    XLA_FFI_ExecutionStage_EXECUTE, XLA_FFI_ExecutionStage_RECORD,
} XLA_FFI_ExecutionStage;

/* Operands, results and attributes: `size` pointers each, to what the type beside says. Attributes are sorted by name;
 * an attribute is an Array, an Attrs, a Scalar or a ByteSpan. */
typedef struct { XLA_FFI_HEAD; int64_t size; int *types; void **args; } XLA_FFI_Args;
typedef struct { XLA_FFI_HEAD; int64_t size; int *types; void **rets; } XLA_FFI_Rets;
typedef struct { XLA_FFI_HEAD; int64_t size; int *types; XLA_FFI_ByteSpan **names; void **attrs; } XLA_FFI_Attrs;
typedef struct {
    XLA_FFI_HEAD; const XLA_FFI_Api *api; XLA_FFI_InvokeContext *ctx; XLA_FFI_ExecutionStage stage; XLA_FFI_Args args;
    XLA_FFI_Rets rets; XLA_FFI_Attrs attrs;
    XLA_FFI_Future *future;                                /* out: the call ends when it does */
} XLA_FFI_CallFrame;
typedef XLA_FFI_Error *XLA_FFI_Handler(XLA_FFI_CallFrame *frame);

typedef struct {
    size_t struct_size; XLA_FFI_Api_Version api_version; uint32_t traits; XLA_FFI_TypeId state_type_id;
} XLA_FFI_Metadata;
typedef struct { XLA_FFI_InternalExtension extension_base; XLA_FFI_Metadata *metadata; } XLA_FFI_Metadata_Extension;

/* Arguments of the functions of the table. */
typedef struct { XLA_FFI_HEAD; const char *message; int errc; } XLA_FFI_Error_Create_Args;
typedef struct {
    XLA_FFI_HEAD; XLA_FFI_Error *error; const char *message; int errc; /* errc: since 0.4 */
} XLA_FFI_Error_GetDetails_Args;
typedef struct { XLA_FFI_HEAD; XLA_FFI_Error *error; } XLA_FFI_Error_Destroy_Args;
typedef struct { XLA_FFI_Handler *instantiate, *prepare, *initialize, *execute; } XLA_FFI_Handler_Bundle;
typedef struct {                                           /* traits follow, at a place that depends on the version */
    XLA_FFI_HEAD; XLA_FFI_ByteSpan name, platform; XLA_FFI_Handler_Bundle bundle;
} XLA_FFI_Handler_Register_Args;
typedef struct { XLA_FFI_HEAD; XLA_FFI_InvokeContext *ctx; void *stream; } XLA_FFI_Stream_Get_Args;
typedef struct {
    XLA_FFI_HEAD; XLA_FFI_ByteSpan name; XLA_FFI_TypeId *type_id; const XLA_FFI_TypeInfo *type_info;
} XLA_FFI_Type_Register_Args;
typedef struct {
    XLA_FFI_HEAD; XLA_FFI_InvokeContext *ctx; XLA_FFI_TypeId *type_id; void *data;
} XLA_FFI_InvokeContext_Get_Args;
typedef struct {
    XLA_FFI_HEAD; XLA_FFI_InvokeContext *ctx; XLA_FFI_ExecutionStage stage; XLA_FFI_TypeId *type_id; void *state;
} XLA_FFI_State_Args;
typedef struct {                                           /* 0.2 and older: of the stage INSTANTIATE */
    XLA_FFI_HEAD; XLA_FFI_InvokeContext *ctx; XLA_FFI_TypeId *type_id; void *state;
} XLA_FFI_State_Args_Old;
typedef struct {
    XLA_FFI_HEAD; XLA_FFI_InvokeContext *ctx; size_t size, alignment; void *data;
} XLA_FFI_DeviceMemory_Allocate_Args;
typedef struct { XLA_FFI_HEAD; XLA_FFI_InvokeContext *ctx; size_t size; void *data; } XLA_FFI_DeviceMemory_Free_Args;
typedef void XLA_FFI_Task(void *data);
typedef struct {
    XLA_FFI_HEAD; XLA_FFI_InvokeContext *ctx; XLA_FFI_Task *task; void *data;
} XLA_FFI_ThreadPool_Schedule_Args;
typedef struct { XLA_FFI_HEAD; XLA_FFI_InvokeContext *ctx; int64_t *num_threads; } XLA_FFI_ThreadPool_NumThreads_Args;
typedef struct { XLA_FFI_HEAD; XLA_FFI_Future *future; } XLA_FFI_Future_Create_Args;
typedef struct { XLA_FFI_HEAD; XLA_FFI_Future *future; } XLA_FFI_Future_SetAvailable_Args;
typedef struct { XLA_FFI_HEAD; XLA_FFI_Future *future; XLA_FFI_Error *error; } XLA_FFI_Future_SetError_Args;
typedef struct { XLA_FFI_HEAD; XLA_FFI_InvokeContext *ctx; int64_t run_id; } XLA_FFI_RunId_Get_Args;
typedef struct { XLA_FFI_HEAD; XLA_FFI_InvokeContext *ctx; int32_t device_ordinal; } XLA_FFI_DeviceOrdinal_Get_Args;
typedef struct {
    XLA_FFI_HEAD; XLA_FFI_InvokeContext *ctx; int64_t extension_type; const void *extension;
} XLA_FFI_InvokeContext_FindExtension_Args;
typedef struct { XLA_FFI_HEAD; XLA_FFI_InvokeContext *ctx; const XLA_FFI_Attrs *attrs; } XLA_FFI_CustomOptions_Get_Args;

struct XLA_FFI_Api {
    XLA_FFI_HEAD; XLA_FFI_Api_Version api_version; const void *internal_api;
    XLA_FFI_Error *(*Error_Create)(XLA_FFI_Error_Create_Args *);
    void (*Error_GetDetails)(XLA_FFI_Error_GetDetails_Args *);
    void (*Error_Destroy)(XLA_FFI_Error_Destroy_Args *);
    XLA_FFI_Error *(*Handler_Register)(XLA_FFI_Handler_Register_Args *);
    XLA_FFI_Error *(*Stream_Get)(XLA_FFI_Stream_Get_Args *);
    XLA_FFI_Error *(*Type_Register)(XLA_FFI_Type_Register_Args *);
    XLA_FFI_Error *(*InvokeContext_Get)(XLA_FFI_InvokeContext_Get_Args *);
    XLA_FFI_Error *(*State_Set)(XLA_FFI_State_Args *);
    XLA_FFI_Error *(*State_Get)(XLA_FFI_State_Args *);
    XLA_FFI_Error *(*DeviceMemory_Allocate)(XLA_FFI_DeviceMemory_Allocate_Args *);
    XLA_FFI_Error *(*DeviceMemory_Free)(XLA_FFI_DeviceMemory_Free_Args *);
    XLA_FFI_Error *(*ThreadPool_Schedule)(XLA_FFI_ThreadPool_Schedule_Args *);
    XLA_FFI_Error *(*ThreadPool_NumThreads)(XLA_FFI_ThreadPool_NumThreads_Args *);
    XLA_FFI_Error *(*Future_Create)(XLA_FFI_Future_Create_Args *);
    XLA_FFI_Error *(*Future_SetAvailable)(XLA_FFI_Future_SetAvailable_Args *);
    XLA_FFI_Error *(*Future_SetError)(XLA_FFI_Future_SetError_Args *);
    XLA_FFI_Error *(*RunId_Get)(XLA_FFI_RunId_Get_Args *);
    XLA_FFI_Error *(*DeviceOrdinal_Get)(XLA_FFI_DeviceOrdinal_Get_Args *);
    XLA_FFI_Error *(*InvokeContext_FindExtension)(XLA_FFI_InvokeContext_FindExtension_Args *);
    XLA_FFI_Error *(*CustomOptions_Get)(XLA_FFI_CustomOptions_Get_Args *);
};

#endif
