/* src/pjrt/own.h
 * The definitions of the handles, for the files of pjrt/ alone. Each handle owns one object of the plugin. */
#ifndef XL_PJRT_OWN_H
#define XL_PJRT_OWN_H

#include "pjrt/abi.h"
#include "pjrt/client.h"

struct xl_client {
    xl_plugin *plugin;
    PJRT_Client *handle;
    xl_arena arena;            /* names, devices, memories */
    xl_str platform, version;
    int process;
    xl_device *device, **local;
    size_t ndevice, nlocal;
    xl_memory *memory;
    size_t nmemory;
};
struct xl_fence { const xl_plugin *plugin; PJRT_Event *handle; };
struct xl_buffer { const xl_client *client; PJRT_Buffer *handle; };

/* Wraps `handle`, which the plugin gave and must not be NULL. On failure it has been destroyed. */
xl_error *xl_fence_own(const xl_plugin *p, PJRT_Event *handle, xl_fence **out) XL_MUST_USE;
xl_error *xl_buffer_own(const xl_client *c, PJRT_Buffer *handle, xl_buffer **out) XL_MUST_USE;
/* Gives the event away if `done` is set, and waits for it otherwise. */
xl_error *xl_fence_settle(const xl_plugin *p, PJRT_Event *handle, xl_fence **done) XL_MUST_USE;
xl_error *xl_describe_device(const xl_plugin *p, xl_arena *a, PJRT_DeviceDescription *desc, xl_device *d) XL_MUST_USE;
const xl_device *xl_device_of(const xl_client *c, const PJRT_Device *handle);   /* NULL if not the client's */

#endif
