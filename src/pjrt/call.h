/* src/pjrt/call.h
 * How the files of pjrt/ call a plugin: never beyond the end of its table, never a NULL entry, and every PJRT_Error
 * becomes an xl_error that names the call. Not included outside pjrt/. */
#ifndef XL_PJRT_CALL_H
#define XL_PJRT_CALL_H

#include "pjrt/abi.h"
#include "pjrt/plugin.h"

struct xl_plugin {
    const PJRT_Api *api;
    char *path;
    const char *file;          /* the last part of path, for messages */
    bool ready;                /* PJRT_Plugin_Initialize has run */
    struct xl_plugin *next;
};

/* PJRT_CALL(p, PJRT_Client_Devices, &args) is an xl_error *. */
#define PJRT_CALL(p, fn, args) \
    (PJRT_CAN(p, fn) ? xl_plugin_error((p), #fn, (p)->api->fn(args)) : xl_plugin_lacks((p), #fn))
#define PJRT_CAN(p, fn) (PJRT_HAS((p)->api, fn) && (p)->api->fn)
/* PJRT_DESTROY(p, Event, event, handle): the end of an object that the plugin gave. */
#define PJRT_DESTROY(p, type, field, handle) \
    xl_error_free(PJRT_CALL(p, PJRT_##type##_Destroy, \
                            (&(PJRT_##type##_Destroy_Args){ .struct_size = sizeof(PJRT_##type##_Destroy_Args), \
                                                            .field = (handle) })))

/* Takes over `e`, whatever its age and maker; NULL stays NULL. */
xl_error *xl_plugin_error(const xl_plugin *p, const char *fn, PJRT_Error *e) XL_MUST_USE;
xl_error *xl_plugin_lacks(const xl_plugin *p, const char *fn) XL_MUST_USE;
/* Zeroed memory of this size for what owns `handle`; NULL, and in *err why, if the plugin gave no handle to this `what`
 * or there is no memory. */
void *xl_plugin_gave(const xl_plugin *p, const void *handle, const char *what, size_t size, xl_error **err);
PJRT_NamedValue *xl_named_to_pjrt(xl_arena *a, const xl_named *v, size_t n);
const xl_named *xl_named_from_pjrt(xl_arena *a, const PJRT_NamedValue *v, size_t n); /* copies */
xl_str xl_pjrt_str(xl_arena *a, const char *p, size_t n);                            /* copies; NULL is empty */

#endif
