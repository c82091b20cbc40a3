/* src/pjrt/program.h
 * Compiled programs. An xl_executable is the result of a compile, possibly for devices that are not present; an
 * xl_program is one loaded on a client's devices, ready to run. A topology describes devices; a plugin can compile for
 * a topology without having it. Threads and lifetimes as in client.h. */
#ifndef XL_PJRT_PROGRAM_H
#define XL_PJRT_PROGRAM_H

#include "pjrt/client.h"

typedef struct xl_executable xl_executable;
typedef struct xl_program xl_program;
typedef struct xl_topology xl_topology;

typedef enum {
    XL_FORMAT_MLIR,    /* StableHLO as text or as MLIR bytecode */
    XL_FORMAT_HLO,     /* HloModuleProto */
} xl_format;

/* Compiles for the client's devices. `options` is a serialised CompileOptionsProto (pjrt/options.h). */
xl_error *xl_program_compile(xl_client *c, xl_str code, xl_format format, xl_str options, xl_program **out) XL_MUST_USE;
/* Loads what xl_executable_serialize gave, in this or another process. `options` override those it was compiled with;
 * empty: none. */
xl_error *xl_program_deserialize(xl_client *c, xl_str bytes, xl_str options, xl_program **out) XL_MUST_USE;
void xl_program_free(xl_program *p);
const xl_executable *xl_program_executable(const xl_program *p);          /* borrowed */
/* Its addressable devices in the order of the rows of xl_exec. The array is the arena's. */
xl_error *xl_program_devices(const xl_program *p, xl_arena *a, const xl_device *const **out, size_t *n) XL_MUST_USE;

typedef struct {
    size_t ndevice, narg;
    xl_buffer *const *const *arg;     /* [ndevice][narg] */
    xl_buffer **const *out;           /* [ndevice][outputs]: filled in, owned by the caller */
    const int64_t *keep;              /* arguments the program would take over (donation) but must not this time */
    size_t nkeep;
    const xl_device *only;            /* a portable program on this one device; ndevice is 1 */
    int launch_id;                    /* the same on every process of one launch */
    const char *where;                /* file and line of the caller, for the plugin's profiles; NULL: none */
    xl_fence **done;                  /* [ndevice], owned by the caller; NULL: not wanted */
} xl_exec;
/* Starts the program and returns; the outputs become ready later. */
xl_error *xl_program_execute(const xl_program *p, const xl_exec *x) XL_MUST_USE;

/* ---- What an executable says about itself. Arrays and strings are the arena's. ---- */
xl_error *xl_executable_name(const xl_executable *e, xl_arena *a, xl_str *out) XL_MUST_USE;
xl_error *xl_executable_shape(const xl_executable *e, size_t *replicas, size_t *partitions) XL_MUST_USE;
xl_error *xl_executable_noutputs(const xl_executable *e, size_t *out) XL_MUST_USE;
typedef struct {
    xl_elem elem;
    xl_dims dims;
    xl_str memory;
} xl_output; /* memory is empty where the plugin does not say */
xl_error *xl_executable_outputs(const xl_executable *e, xl_arena *a, const xl_output **out, size_t *n) XL_MUST_USE;
xl_error *xl_executable_cost(const xl_executable *e, xl_arena *a, const xl_named **out, size_t *n) XL_MUST_USE;
/* Bytes; -1 where the plugin does not say. `needs` is code + arguments + outputs - aliased + temporaries. */
typedef struct {
    int64_t code, arguments, outputs, aliased, temporary, host_code, host_arguments, host_outputs, host_aliased,
        host_temporary, peak, total, needs;
} xl_program_memory;
xl_error *xl_executable_memory(const xl_executable *e, xl_program_memory *out) XL_MUST_USE;
xl_error *xl_executable_fingerprint(const xl_executable *e, xl_arena *a, xl_str *out) XL_MUST_USE;
/* The program as the plugin runs it: `format` becomes "hlo_with_config", "mlir" or what else the plugin says. */
xl_error *xl_executable_optimized(const xl_executable *e, xl_arena *a, xl_str *code, xl_str *format) XL_MUST_USE;
xl_error *xl_executable_serialize(const xl_executable *e, xl_buf *out) XL_MUST_USE;   /* appended */
void xl_executable_free(xl_executable *e);

/* ---- Topologies ---- */
/* By name, as the plugin spells it: "v6e:2x2". The plugin must be initialised by this (it is). */
xl_error *xl_topology_create(xl_plugin *p, xl_str name, const xl_named *option, size_t noption,
                             xl_topology **out) XL_MUST_USE;
xl_error *xl_topology_of(xl_client *c, xl_topology **out) XL_MUST_USE;       /* of the devices a client has */
xl_error *xl_topology_devices(const xl_topology *t, xl_arena *a, const xl_device **out,
                              size_t *n) XL_MUST_USE; /* handle is NULL */
void xl_topology_free(xl_topology *t);
/* Compiles ahead of time. */
xl_error *xl_executable_compile(const xl_topology *t, xl_str code, xl_format format, xl_str options,
                                xl_executable **out) XL_MUST_USE;

#endif
