/* src/pass/mesh.h
 * A named mesh and shardings by axis name, for programs built here: checked before anything is compiled, and written
 * into the module as sdy attributes, or as the older mhlo.sharding strings for plugins that do not read those.
 *     xl_mesh_def mesh;
 *     xl_mesh_spec spec;
 *     XL_DO(xl_mesh_parse(arena, XL_STR("data=2, model=4"), 8, &mesh));
 *     xl_mesh_define(m, &mesh);
 *     XL_DO(xl_mesh_spec_parse(&mesh, xl_type_dims(t), XL_STR("tokens"), XL_STR("data, -"), &spec));
 *     xl_mesh_shard_arg(m, f, 0, &mesh, &spec);
 * Device d's position in the mesh is the digits of d, the first axis being the most significant. One thread at a time;
 * what is written into a module lives as long as the module. */
#ifndef XL_PASS_MESH_H
#define XL_PASS_MESH_H

#include "ir/ir.h"

enum { XL_MESH_AXES = 8, XL_MESH_RANK = 16 };
typedef struct { xl_mesh_axis axis[XL_MESH_AXES]; uint32_t naxis; } xl_mesh_def;
/* Per dimension of a tensor the axes it is split over, major first; an axis occurs at most once. {0} of the right rank:
 * whole everywhere. */
typedef struct { uint32_t rank; struct { uint8_t n, axis[XL_MESH_AXES]; } dim[XL_MESH_RANK]; } xl_mesh_spec;

/* "data=2, model=4" for ndevice devices (0: any number): a repeated axis, a size below one, or a product other than
 * ndevice is an error that says so. */
xl_error *xl_mesh_parse(xl_arena *a, xl_str text, int64_t ndevice, xl_mesh_def *out) XL_MUST_USE;
int64_t xl_mesh_size(const xl_mesh_def *mesh);
int xl_mesh_find(const xl_mesh_def *mesh, xl_str axis);    /* -1: it has none of that name */
void xl_mesh_text(const xl_mesh_def *mesh, xl_buf *out);   /* "data=2, model=4" */

/* Dimensions in order, separated by commas: an axis, several joined by +, or - for whole: "data, -, model+expert".
 * `what` names the tensor in messages: an axis that the mesh does not have or that is used twice, and a dimension that
 * does not divide (with the next size that does). */
xl_error *xl_mesh_spec_parse(const xl_mesh_def *mesh, xl_dims dims, xl_str what, xl_str text,
                             xl_mesh_spec *out) XL_MUST_USE;
void xl_mesh_spec_text(const xl_mesh_def *mesh, const xl_mesh_spec *s, xl_buf *out);
xl_mesh_spec
xl_mesh_each(const xl_mesh_def *mesh); /* of a tensor of the mesh's own shape: one element on each device */
bool xl_mesh_spec_eq(const xl_mesh_spec *a, const xl_mesh_spec *b);
int64_t xl_mesh_parts(const xl_mesh_def *mesh, const xl_mesh_spec *s,
                      uint32_t dim); /* how many the dimension is cut into */
int64_t xl_mesh_tiles(const xl_mesh_def *mesh,
                      const xl_mesh_spec *s); /* of the tensor; the mesh holds size / tiles copies of each */
/* What device number d holds: lo..hi in each dimension. False: another device with a smaller number holds the same. */
bool xl_mesh_slice(const xl_mesh_def *mesh, const xl_mesh_spec *s, xl_dims dims, int64_t d, int64_t *lo, int64_t *hi);

/* The module gets the mesh, under the name "mesh". */
void xl_mesh_define(xl_module *m, const xl_mesh_def *mesh);
const xl_attr *xl_mesh_attr(xl_module *m, const xl_mesh_def *mesh, const xl_mesh_spec *s);
void xl_mesh_shard_arg(xl_module *m, xl_func *f, uint32_t arg, const xl_mesh_def *mesh, const xl_mesh_spec *s);
void xl_mesh_shard_result(xl_module *m, xl_func *f, uint32_t result, const xl_mesh_def *mesh, const xl_mesh_spec *s);
/* "{devices=[2,1,4]<=[8] last_tile_dim_replicate}", as XLA wrote it before Shardy. */
void xl_mesh_mhlo(const xl_mesh_def *mesh, const xl_mesh_spec *s, xl_buf *out);
/* The sdy annotations of f, which name `mesh`, become mhlo.sharding strings and custom calls. */
void xl_mesh_to_mhlo(xl_func *f, const xl_mesh_def *mesh);

#endif
