/* src/lane/capture.h
 * A capture (step.xlcap): one execution of a program with everything needed to repeat it: the program, its compile
 * options, the inputs of every device, its outputs, and the run it came from. If the inputs themselves could not be
 * kept, the capture contains the previous executions, back to one with known inputs; the last step is the captured one.
 *
 * The file: "XLCAP001", the manifest's length (8 bytes, little-endian), the manifest's digest (32 bytes), the manifest
 * (JSON), zeros up to a multiple of 64, then the blobs, for which the manifest has offset, length and digest.
 * The reader accepts any bytes: counts and sizes are checked against the file, and an error says what is wrong. Any
 * thread may read, but each capture is for one thread at a time. */
#ifndef XL_LANE_CAPTURE_H
#define XL_LANE_CAPTURE_H

#include "base/hash.h"
#include "base/json.h"
#include "pjrt/program.h"

enum { XL_CAPTURE_RANK = 16 };

typedef struct {                                           /* one device's part of a tensor */
    xl_elem elem;                                          /* XL_ELEM_INVALID: nothing is known of it */
    xl_dims dims;
    uint64_t size;
    const char *bytes;                                     /* dense, row by row; NULL: not kept */
    bool has_digest;
    xl_digest digest;
} xl_cap_part;

typedef struct {
    int64_t from;                                          /* an earlier step of the capture; -1: the bytes are here */
    uint32_t out;                                          /* which of that step's outputs, on the same device */
    xl_cap_part part;
} xl_cap_input;

typedef struct {
    uint32_t program;
    uint64_t number;                                       /* execution count of its program, from 1 */
    uint32_t ndevice, narg, nout;
    xl_cap_input *in;                                      /* [ndevice][narg] */
    xl_cap_part *out;                                      /* [ndevice][nout] */
    const int64_t *keep;                                   /* arguments that the frontend forbade to donate */
    size_t nkeep;
} xl_cap_step;

typedef struct {
    xl_str module, code, options;
    bool hlo;                                              /* an HloModuleProto */
    int *device;                                           /* ids of this process's devices, in the order of rows */
    uint32_t ndevice;
} xl_cap_program;

typedef struct xl_capture {
    xl_str trigger;                                        /* "nonfinite", "step:7", "signal", "slow" */
    xl_str why;                                            /* a sentence */
    xl_str plugin, identity, flags;
    const xl_node *run; /* run.json of the run, bundle included; NULL: not recorded */
    int rank, ranks;
    xl_cap_program *program;
    uint32_t nprogram;
    xl_cap_step *step;
    uint32_t nstep;
    void *map;                                             /* the file, for xl_capture_close */
    size_t mapped;
    struct xl_capture *other;                              /* of the other ranks, where those were joined to it */
    uint32_t nother;
} xl_capture;

/* Writes beside `path`, syncs, renames; mode 0600. Digests are computed where bytes are. *size: of the file. */
xl_error *xl_capture_write(xl_arena *a, const char *path, const xl_capture *c, uint64_t *size) XL_MUST_USE;
/* Strings and tables are the arena's, bytes the file's until close. Every digest is checked. */
xl_error *xl_capture_read(xl_arena *a, const char *path, xl_capture *out) XL_MUST_USE;
xl_error *xl_capture_parse(xl_arena *a, const char *name, xl_str bytes, xl_capture *out) XL_MUST_USE;
void xl_capture_close(xl_capture *c);
bool xl_capture_is(xl_str bytes);                          /* does it begin as one? */

/* Of n bytes of elements: how many are NaN and how many infinite; *first: the first that is NaN, or else infinite. */
typedef struct { uint64_t count, nan, inf, first_nan, first_inf; double min, max; } xl_finite;
xl_finite xl_finite_of(xl_elem elem, const void *bytes, uint64_t n);
bool xl_elem_is_float(xl_elem elem);                       /* complex too */

/* How two tensors of one type differ. ulp: in units of the last place of the element type; integers: the difference. */
typedef struct { uint64_t count, differ, first; double max_ulp, max_abs, scale; } xl_difference;
xl_difference xl_difference_of(xl_elem elem, const void *a, const void *b, uint64_t n);

#endif
