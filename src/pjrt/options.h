/* src/pjrt/options.h
 * XLA's compile options (CompileOptionsProto): written for our own compiles; read from a frontend's compile, to
 * describe how two of them differ and to hash one without fields that do not change the code. The reader accepts any
 * bytes: fields of a newer XLA are kept as they are; input that is not protobuf is one INVALID error with the byte
 * offset. Memory comes from the caller's arena, at most some tens of bytes per input byte. Any thread. */
#ifndef XL_PJRT_OPTIONS_H
#define XL_PJRT_OPTIONS_H

#include "base/str.h"
#include "pjrt/plugin.h"

/* ---- Writing ---- */
typedef struct {
    int replicas, partitions;        /* 0 counts as 1; plugins refuse options that leave them out */
    const int64_t *device;           /* [replicas][partitions] global device ids; NULL: the plugin's default */
    bool spmd;                       /* the program is to be partitioned by the plugin … */
    bool shardy;                     /* … and its shardings are sdy ones */
    bool portable;                   /* compiled for one device, any of them (xl_exec.only) */
    int64_t device_memory;           /* bytes the scheduler may use; 0: not set */
    const xl_named *option;          /* compiler options by name, as jit(compiler_options=…) gives them */
    size_t noption;
} xl_options;
void xl_options_build(xl_buf *out, const xl_options *o);
/* A DeviceAssignmentProto. device: [replicas][partitions] global ids; NULL: 0, 1, 2, ... */
void xl_options_assignment(xl_buf *out, const int64_t *device, int replicas, int partitions);

/* ---- Reading ---- */
typedef enum {
    XL_OPTION_RAW,       /* not in our table: `value` or `bytes` by its wire type */
    XL_OPTION_INT, XL_OPTION_BOOL, XL_OPTION_FLOAT, XL_OPTION_DOUBLE, XL_OPTION_STR, XL_OPTION_BYTES,
    XL_OPTION_INTS, XL_OPTION_BOOLS, XL_OPTION_STRS, XL_OPTION_BLOBS,
    XL_OPTION_MSG, XL_OPTION_LIST, XL_OPTION_MAP,
} xl_option_kind;

typedef struct xl_option {
    uint32_t number;
    xl_option_kind kind;
    uint32_t at;             /* which field of the input it was */
    uint8_t wire;            /* of a RAW one */
    bool quiet;              /* does not change the code */
    const char *name;        /* NULL for a RAW one */
    uint64_t value;          /* numbers: the bits as they came */
    xl_str bytes;            /* STR, BYTES, RAW; borrowed from the input */
    const uint64_t *list;    /* INTS, BOOLS */
    const xl_str *strs;      /* STRS, BLOBS */
    struct xl_option *child; /* MSG: its fields. LIST, MAP: one MSG each */
    size_t n;                /* how many of list, strs or child */
} xl_option;

/* `bytes` must outlive the tree, whose root is a MSG. */
xl_error *xl_options_parse(xl_arena *a, xl_str bytes, xl_option **root) XL_MUST_USE;
/* "executable_build_options.num_partitions"; NULL if it is not there. */
const xl_option *xl_options_find(const xl_option *root, const char *path);
bool xl_options_drop(xl_option *root, const char *path); /* false: it was not there */
int64_t xl_options_int(const xl_option *root, const char *path, int64_t otherwise);
/* The same options in one order and spelling: fields by number, maps by key, lists packed, QUIET ones left out. Equal
 * bytes mean equal code; it is itself a valid CompileOptionsProto. Sorts `root` in place. */
void xl_options_canonical(xl_option *root, xl_buf *out);
void xl_options_write(const xl_option *root, xl_buf *out); /* all of them, in order */

typedef struct { xl_str path, before, after; bool quiet; } xl_option_change;  /* empty: was not there, is no longer */
/* What differs, in the order of the field numbers. Both trees get sorted. */
void xl_options_diff(xl_arena *a, xl_option *before, xl_option *after, xl_option_change **out, size_t *n);

#endif
