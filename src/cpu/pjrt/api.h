/* src/cpu/pjrt/api.h
 * The plugin's objects behind PJRT's handles. Objects that several handles may share are reference counted; any thread
 * may call any entry point. Nothing here aborts: a failed allocation is RESOURCE_EXHAUSTED. */
#ifndef XL_CPU_API_H
#define XL_CPU_API_H

#include <pthread.h>
#include <stdatomic.h>

#include "cpu/plan/plan.h"
#include "cpu/kernel/ffi.h"
#include "pass/shard.h"
#include "pjrt/abi.h"

#define API(ret, name, since) ret xl_##name(name##_Args *args);
#include "pjrt/api.def"
extern PJRT_Layouts_Extension xl_layouts_extension;
extern PJRT_MemoryDescriptions_Extension xl_memory_descriptions_extension;
extern PJRT_Shardings_Extension xl_shardings_extension;
extern PJRT_FFI_Extension xl_ffi_extension;
extern PJRT_Xla_Transform_Extension xl_transform_extension;
struct PJRT_ExecuteContext { xl_ffi_context user; };

PJRT_Error *xl_api_error(xl_error *err);                   /* takes err; NULL gives NULL */
PJRT_Error *xl_api_fail(xl_code code, const char *fmt, ...) XL_PRINTF(2, 3) XL_NOT_NULL;
PJRT_Error *xl_api_none(const char *name);

/* JAX's own rules for this platform (jax_rules.py), if the process is a Python with JAX in it; else nothing. */
void xl_python_setup(const char *platform);
bool xl_python_logs_passes(void);                          /* jaxlib was asked to log them */

/* ---- HLO (transform.c) ------------------------------------------------------------------------------------------ */
/* The number of the host callback that writes HLO: jaxlib's. */
void xl_hlo_writer_set(uint64_t number);
bool xl_hlo_writer(void);                                  /* there is one */
/* An HloModuleProto of a program in MLIR. */
xl_error *xl_hlo_write(xl_str program, xl_buf *out) XL_MUST_USE;
/* Hands the module to what was registered to rewrite HLO. If something changed, *out is another module, the caller's,
 * and `hlo` that module as it came; otherwise they are NULL and empty. */
xl_error *xl_transform(xl_module *m, xl_module **out, xl_buf *hlo) XL_MUST_USE;

/* ---- devices ---------------------------------------------------------------------------------------------------- */
typedef struct xl_user { const void *key; void *value; void (*drop)(void *); struct xl_user *next; } xl_user;

enum {
    XL_SPACE_DEVICE,
    XL_SPACE_HOST,
    XL_SPACES
}; /* a device's memories: its own, and pinned_host, which is the same here */
extern const char *const xl_space_kind[XL_SPACES];

typedef struct {
    PJRT_Memory base;
    PJRT_Device *device;
    int id, space;
    char text[64];
    xl_user *user;
} xl_memory_space;

struct PJRT_DeviceDescription {
    int id, process;
    char text[64], kind[32];
    PJRT_NamedValue attr[2];
    int64_t coords[1];
};
struct PJRT_Device {
    PJRT_Client *client;
    PJRT_DeviceDescription desc;
    xl_memory_space memory[XL_SPACES];
    PJRT_Memory *memory_list[XL_SPACES];
    PJRT_Device *self[1];
    _Atomic int64_t in_use, peak, allocs, largest;
    size_t grain;                                          /* 0: allocations are not rounded up */
    int64_t limit;                                         /* 0: none was set; then total is what the machine has */
    int64_t total;
};
struct PJRT_TopologyDescription {
    size_t n;
    PJRT_DeviceDescription *desc;
    PJRT_DeviceDescription **list;
    bool owned;
};
struct PJRT_Client {
    size_t n, first, nlocal; /* devices of all processes; this one's are nlocal from `first` on */
    PJRT_Device *device;
    PJRT_Device **list;
    PJRT_Memory **memories;
    int process;                                           /* this one */
    struct xl_mail *mail;                                  /* to other processes; NULL if there are none */
    xl_pool *pool;
    struct xl_fibers *fibers;
    PJRT_TopologyDescription topology;
    pthread_mutex_t lock;
    char version[128];
    uint64_t rng[2];
};

/* ---- events ----------------------------------------------------------------------------------------------------- */
/* Starts pending, or ready when `ready`. One reference belongs to the handle; a pending event has another with its
 * maker. Events that start ready are all the same one, which is never freed. */
PJRT_Event *xl_event_new(bool ready);                      /* NULL: no memory */
void xl_event_set(PJRT_Event *e, xl_code code, const char *message); /* makes it ready; XL_OK for no error */
PJRT_Event *xl_event_ref(PJRT_Event *e);
void xl_event_unref(PJRT_Event *e);

/* ---- layouts ---------------------------------------------------------------------------------------------------- */
struct PJRT_Layouts_MemoryLayout {
    uint32_t rank;
    bool plain;                                            /* row-major */
    int64_t minor_to_major[XL_RANK_MAX];
    struct PJRT_Layouts_MemoryLayout *next;
};
enum { XL_LAYOUT_TEXT = 8 + 4 * XL_RANK_MAX };
/* The shared object for this order (NULL: row-major), which is never freed. Returns NULL if there is no memory. */
const PJRT_Layouts_MemoryLayout *xl_layout_of(size_t rank, const int64_t *minor_to_major);
xl_error *xl_layout_read(const PJRT_Buffer_MemoryLayout *l, size_t rank,
                         const PJRT_Layouts_MemoryLayout **out) XL_MUST_USE;
/* Of an array with these (logical) dimensions, in bytes. */
void xl_layout_strides(const PJRT_Layouts_MemoryLayout *l, const int64_t *dims, size_t elem, int64_t *stride);
bool xl_layout_same(const PJRT_Layouts_MemoryLayout *a, const PJRT_Layouts_MemoryLayout *b, const int64_t *dims);
void xl_layout_text(const PJRT_Layouts_MemoryLayout *l, char *text); /* "{1,0}", into XL_LAYOUT_TEXT bytes */
/* Drops the layouts that an HLO module has for its arguments and results. They are what shape inference left there, not
 * a wish: XLA's clients put their own default in their place, and PyTorch/XLA gives the result of one program to the
 * next whatever the two say. */
void xl_layouts_forget(xl_module *m);
/* Rewrites the entry function: arguments and results become row-major arrays of their dimensions' order in memory, as
 * its attributes mhlo.layout_mode say. list[0] and list[1] get the layouts of results and arguments, to be freed. */
xl_error *xl_layouts_apply(xl_module *m, const PJRT_Layouts_MemoryLayout **list[2]) XL_MUST_USE;

/* ---- buffers ---------------------------------------------------------------------------------------------------- */
typedef struct {                                           /* the memory behind one or more buffers */
    atomic_int ref;
    void *data;
    size_t bytes;
    PJRT_Device *device;                                   /* whose memory it counts as */
    bool foreign;                                          /* somebody else's: never written, not freed here */
    bool within;                                           /* data is of one piece with this */
    PJRT_Event *done;                                      /* foreign: set when it is released */
    void (*on_delete)(void *, void *);
    void *on_delete_arg;
} xl_store;

struct PJRT_Buffer {
    PJRT_Client *client;
    PJRT_Device *device;
    int space;
    PJRT_Buffer_Type type;
    xl_dtype dtype;
    size_t rank, bytes;
    int64_t *dims;
    pthread_mutex_t lock;
    xl_store *store;                                       /* NULL once deleted or donated */
    int external;
    xl_code error;                                         /* of an error buffer */
    char *message;
    int64_t inline_dims[8];
    const PJRT_Layouts_MemoryLayout *layout;
};

xl_error *xl_store_new(PJRT_Device *d, size_t bytes, xl_store **out) XL_MUST_USE;
xl_store *xl_store_ref(xl_store *s);
void xl_store_unref(xl_store *s);
/* layout NULL: row-major */
xl_error *xl_buffer_new(PJRT_Device *d, xl_dtype dtype, bool token, size_t rank, const int64_t *dims,
                        const PJRT_Layouts_MemoryLayout *layout, xl_store *s, PJRT_Buffer **out) XL_MUST_USE;
void xl_cpu_buffer_free(PJRT_Buffer *b);
PJRT_Buffer_Type xl_api_type(xl_dtype d);
xl_dtype xl_api_dtype(PJRT_Buffer_Type t);
/* Reserves n bytes of the device's limit, or fails. What the host has then given is counted: xl_device_took. */
xl_error *xl_device_take(PJRT_Device *d, size_t n) XL_MUST_USE;
void xl_device_took(PJRT_Device *d, size_t n);
void xl_device_give(PJRT_Device *d, size_t n);

/* ---- executables ------------------------------------------------------------------------------------------------ */
typedef struct {
    atomic_int ref;
    xl_plan *plan;
    char *name;
    uint32_t nreplica, npartition;
    int64_t *assignment;                                   /* replica-major device ids; NULL: not given */
    uint8_t *loose;                                        /* per argument: its sharding may be chosen */
    uint32_t nloose;
    bool portable, loaded;                                 /* loaded: made elsewhere, with calls of its own */
    xl_buf options, program;                               /* as they came */
    xl_buf rewritten;                                      /* HLO that a pass of the frontend made */
    char fingerprint[65];
    PJRT_Buffer_Type *out_types;
    int64_t *out_dims;
    size_t *out_ranks;
    const char **kinds[2];                                 /* memories of outputs and parameters */
    size_t *kind_sizes[2];
    uint8_t *out_space;
    PJRT_NamedValue cost[6];
    xl_buf gathered; /* what the partitioner gathered operands for; the last of cost */
    xl_buf text;                                           /* the optimised program, made when asked */
    bool text_is_hlo;                                      /* HloModuleProtoWithConfig, not MLIR */
    const PJRT_Layouts_MemoryLayout **layouts[2];                /* of outputs and parameters */
    char **shardings[2]; /* OpSharding messages of outputs and parameters; NULL on one device */
    size_t *sharding_sizes[2];
    uint32_t nsharding[2];
    pthread_mutex_t lock;
    void *_Atomic *spare; /* per device: temp memory of its last run, kept for the next */
} xl_compiled;
/* Reads a CompileOptionsProto into the fields above. */
xl_error *xl_compiled_options(xl_compiled *e, xl_str bytes) XL_MUST_USE;
/* From a program as it came to what is planned, with layouts as the program has them. *shards is filled in. */
xl_error *xl_compiled_ready(const xl_compiled *e, xl_module *m, xl_shard_info *shards) XL_MUST_USE;

/* Frontends compile in one thread and use the handle in another. The compiling thread stores `e` last and
 * readers load it first, so a reader sees all of the executable, however it got the handle. */
struct PJRT_Executable { xl_compiled *_Atomic e; };
struct PJRT_LoadedExecutable {
    xl_compiled *_Atomic e;
    PJRT_Client *client;
    size_t n;                                              /* devices of this process */
    PJRT_Device **devices;                                 /* in the order of the assignment */
    PJRT_LogicalDeviceIds *ids;
    uint32_t *process; /* of every device of the program, where other processes have some; else NULL */
    uint64_t hash;                                         /* of which those devices are */
    atomic_bool deleted;
};
/* A handle from outside, before anything else of it is looked at. */
static inline PJRT_LoadedExecutable *xl_loaded(PJRT_LoadedExecutable *l)
{
    (void)atomic_load(&l->e);
    return l;
}

#endif
