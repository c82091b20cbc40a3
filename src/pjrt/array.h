/* src/pjrt/array.h
 * A tensor of a program that runs on several devices: its global shape, its sharding, and one buffer per device. A
 * place is a list of devices with their mesh; one device without a mesh is the simple case. If some devices belong to
 * other processes, their parts are NULL here, and every process makes the same calls. Threads and lifetimes as in
 * client.h; the place must outlive its arrays. */
#ifndef XL_PJRT_ARRAY_H
#define XL_PJRT_ARRAY_H

#include "pass/mesh.h"
#include "pjrt/program.h"

typedef struct {
    const xl_device *const *dev;              /* in the order of the mesh: number d is dev[d] */
    size_t n;
    const xl_mesh_def *mesh;                  /* NULL: one device */
} xl_place;

typedef struct {
    const xl_place *place;
    xl_elem elem;
    uint32_t rank;
    int64_t dims[XL_MESH_RANK];               /* global */
    xl_mesh_spec spec;
    xl_buffer *part[]; /* place->n; NULL where the device is another process's */
} xl_array;

/* Every device gets its part of `data` (dense, row by row, of the global shape), which is the caller's again on return.
 * spec NULL: whole on every device. The caller owns *out. */
xl_error *xl_array_put(const xl_place *p, xl_elem elem, xl_dims dims, const xl_mesh_spec *spec, const void *data,
                       xl_array **out) XL_MUST_USE;
/* Reads the whole tensor: each part once, from the first local device that has it; at most one part is buffered
 * besides `dst`. It is an error if only devices of other processes have a part. With `done` it does not wait; this
 * is for tensors that are whole on every device. */
xl_error *xl_array_get(const xl_array *x, void *dst, size_t size, xl_fence **done) XL_MUST_USE;
/* Checks the real buffers: is each on its device, with the shape that the sharding requires? */
xl_error *xl_array_check(const xl_array *x) XL_MUST_USE;
size_t xl_array_local(const xl_array *x);     /* elements of one part */
/* Where part d begins in the whole, and its shape; XL_MESH_RANK entries each. */
void xl_array_part(const xl_array *x, size_t d, int64_t *lo, int64_t *shape);
bool xl_array_same_part(const xl_array *x, size_t d, size_t e); /* both devices hold the same slice */
size_t xl_place_first(const xl_place *p);                       /* the first device of this process */
void xl_array_free(xl_array *x);

/* What a program gives: its element type, global shape and sharding. */
typedef struct { xl_elem elem; xl_dims dims; const xl_mesh_spec *spec; } xl_array_type;
/* Starts the program on all devices of the place. Nothing is kept of `type`. */
xl_error *xl_array_execute(const xl_place *p, const xl_program *prog, xl_array *const *in, size_t nin,
                           const xl_array_type *type, size_t nout, xl_array **out) XL_MUST_USE;

#endif
