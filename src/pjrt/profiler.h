/* src/pjrt/profiler.h
 * PJRT's profiler extension, with the layout of its header. Errors of its calls are read and freed through its own
 * table. */
#ifndef XL_PJRT_PROFILER_H
#define XL_PJRT_PROFILER_H

#include <stddef.h>

#include "pjrt/abi.h"

typedef struct {
    size_t struct_size;
    void *priv, *error;
    const char *message;                                   /* error_message fills these in; error_destroy has none */
    size_t message_size;
} PJRT_Profiler_Error_Args;
#define PJRT_PROFILER_DESTROY_SIZE offsetof(PJRT_Profiler_Error_Args, message)
typedef struct {
    size_t struct_size;
    const char *options;
    size_t options_size;
    void *profiler;
} PJRT_Profiler_Create_Args;
typedef struct { size_t struct_size; void *profiler; } PJRT_Profiler_Plain_Args; /* destroy, start, stop */
typedef struct { size_t struct_size; void *profiler; uint8_t *buffer; size_t size; } PJRT_Profiler_Collect_Args;
typedef struct {
    size_t struct_size;
    void *priv;
    void (*error_destroy)(PJRT_Profiler_Error_Args *);
    void (*error_message)(PJRT_Profiler_Error_Args *);
    void *(*error_get_code)(void *);
    void *(*create)(PJRT_Profiler_Create_Args *);
    void *(*destroy)(PJRT_Profiler_Plain_Args *);
    void *(*start)(PJRT_Profiler_Plain_Args *);
    void *(*stop)(PJRT_Profiler_Plain_Args *);
    void *(*collect_data)(PJRT_Profiler_Collect_Args *);
} PJRT_Profiler_Api;
typedef struct { PJRT_Extension_Base base; const PJRT_Profiler_Api *api; } PJRT_Profiler_Layer;

#endif
