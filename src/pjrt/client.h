/* src/pjrt/client.h
 * A client is one running plugin with its devices; buffers live on its devices, and programs run on them. It works with
 * plugins older and newer than this project's header: a function that a plugin lacks is an UNIMPLEMENTED error that
 * names the call and the plugin's version.
 * Any thread may use a client and its objects; open, close and free are for one thread each. Free buffers, fences and
 * programs before their client is closed. Devices, memories and strings are borrowed until then. */
#ifndef XL_PJRT_CLIENT_H
#define XL_PJRT_CLIENT_H

#include "pjrt/plugin.h"

typedef struct xl_client xl_client;
typedef struct xl_buffer xl_buffer;
typedef struct xl_fence xl_fence;

/* Element types; the numbers are PJRT's. */
typedef enum {
    XL_ELEM_INVALID = 0,
#define ELEM(name, number, bytes, text) XL_ELEM_##name = number,
#include "pjrt/elem.def"
} xl_elem;
const char *xl_elem_text(xl_elem e);         /* "f32", as StableHLO writes it; "?" for a number we do not know */
xl_elem xl_elem_parse(xl_str text);          /* XL_ELEM_INVALID if there is none */
size_t xl_elem_bytes(xl_elem e);             /* of one element in host memory */
/* Bytes of a dense array in host memory; false if there is no such number. */
bool xl_elem_size(xl_elem e, xl_dims dims, size_t *out);

/* A key-value store shared by the processes of a job. Keys and values are bytes. All three are needed, from any
 * thread. `get` waits up to `timeout_ms` and fails with DEADLINE; `try_get` fails at once with NOT_FOUND. */
typedef struct {
    void *ctx;
    xl_error *(*get)(void *ctx, xl_str key, int timeout_ms, xl_buf *value);
    xl_error *(*try_get)(void *ctx, xl_str key, xl_buf *value);
    xl_error *(*put)(void *ctx, xl_str key, xl_str value);
} xl_kv;

typedef struct {
    const xl_named *option;                  /* what the plugin documents: node_id, num_nodes, memory_fraction, … */
    size_t noption;
    const xl_kv *kv;                         /* NULL: one process. Must outlive the client */
} xl_client_opts;

typedef struct xl_memory {
    int id;
    xl_str kind;                             /* "device", "pinned_host" */
    struct PJRT_Memory *handle;
} xl_memory;

typedef struct xl_device {
    int id;                                  /* global */
    int process;                             /* the process that can use it */
    int hardware;                            /* number on its host; -1 where the plugin gives none */
    bool local;                              /* addressable from this process */
    xl_str kind;                             /* "TPU v6 lite" */
    xl_str text;                             /* for people */
    const xl_memory *memory;                 /* its default; NULL where the plugin has no notion of them */
    struct PJRT_Device *handle;
    const xl_client *client;
} xl_device;

/* Starts the plugin (its one-time setup included). opts may be NULL. On success the caller owns *out. */
xl_error *xl_client_open(xl_plugin *p, const xl_client_opts *opts, xl_client **out) XL_MUST_USE;
void xl_client_close(xl_client *c);
xl_plugin *xl_client_plugin(const xl_client *c);
xl_str xl_client_platform(const xl_client *c);           /* "tpu", "cuda", "xlane" */
xl_str xl_client_version(const xl_client *c);
const xl_device *xl_client_devices(const xl_client *c, size_t *n);  /* all of the job, in the plugin's order */
const xl_device *xl_client_local(const xl_client *c, size_t i);     /* the i-th addressable one; NULL past the last */
size_t xl_client_nlocal(const xl_client *c);
const xl_device *xl_client_device(const xl_client *c, int id);      /* NULL if there is none */

/* Physical memory of one device, in bytes; -1 where the plugin does not say. */
typedef struct {
    int64_t in_use, peak_in_use, allocs, largest_alloc, limit, reserved, peak_reserved, reservable_limit, largest_free,
        pool, peak_pool, peak_allocated;
} xl_device_memory;
xl_error *xl_device_memory_read(const xl_device *d, xl_device_memory *out) XL_MUST_USE;
xl_error *xl_device_memory_reset_peak(const xl_device *d) XL_MUST_USE;

/* ---- Buffers ---- */
/* What the plugin may do with the host's bytes. With DURING_CALL the caller may reuse them on return; with the
 * others once `done` is ready. */
typedef enum { XL_HOST_DURING_CALL, XL_HOST_UNTIL_DONE, XL_HOST_ZERO_COPY } xl_host_rule;
typedef struct {
    xl_host_rule rule;
    const int64_t *strides; /* bytes, one per dimension, may be zero or negative; NULL: dense, row by row */
    const int64_t *minor_to_major;           /* layout on the device; NULL: the plugin's default */
    const xl_memory *memory;                 /* NULL: the device's default */
    xl_fence **done;                         /* wanted with UNTIL_DONE and ZERO_COPY, else NULL */
} xl_host_opts;
/* Copies `data` to `d`. opts may be NULL. The caller owns *out. */
xl_error *xl_buffer_from_host(const xl_device *d, xl_elem elem, xl_dims dims, const void *data,
                              const xl_host_opts *opts, xl_buffer **out) XL_MUST_USE;
/* Copies to `dst`, dense and row by row; `size` must be the exact number of bytes. Waits, unless `done` is given. */
xl_error *xl_buffer_to_host(const xl_buffer *b, void *dst, size_t size, xl_fence **done) XL_MUST_USE;
xl_error *xl_buffer_elem(const xl_buffer *b, xl_elem *out) XL_MUST_USE;
xl_error *xl_buffer_dims(const xl_buffer *b, xl_dims *out) XL_MUST_USE;      /* borrowed until the buffer is freed */
xl_error *xl_buffer_device(const xl_buffer *b, const xl_device **out) XL_MUST_USE;
xl_error *xl_buffer_bytes(const xl_buffer *b, size_t *out) XL_MUST_USE;      /* on the device */
xl_error *xl_buffer_layout(const xl_buffer *b, int64_t *minor_to_major,
                           size_t cap) XL_MUST_USE;                          /* order of the dimensions in memory */
xl_error *xl_buffer_is_deleted(const xl_buffer *b, bool *out) XL_MUST_USE;   /* donated or deleted */
void xl_buffer_free(xl_buffer *b);

/* ---- Fences: when work on a device is done (PJRT calls them events) ---- */
xl_error *xl_fence_await(xl_fence *e) XL_MUST_USE;              /* waits; the error is that of the work */
xl_error *xl_fence_is_ready(const xl_fence *e, bool *out) XL_MUST_USE;
/* Calls fn once, perhaps before this returns, perhaps from a thread of the plugin; fn owns the error. The event may be
 * freed at once. */
xl_error *xl_fence_on_ready(xl_fence *e, void (*fn)(xl_error *err, void *arg), void *arg) XL_MUST_USE;
void xl_fence_free(xl_fence *e);

#endif
