/* src/pass/mesh.h
 * A named mesh and shardings by axis name, for programs that are built here: checked before anything is compiled, and written into the module as
 * sdy attributes, which every XLA plugin of today and our own CPU device read.
 *     xl_mesh_def mesh;
 *     XL_DO(xl_mesh_parse(arena, XL_STR("data=2, model=4"), 8, &mesh));
 *     xl_mesh_define(m, &mesh);
 *     XL_DO(xl_mesh_shard_arg(m, f, 0, &mesh, XL_STR("tokens"), XL_STR("data, -")));
 * One thread at a time; the strings live as long as the module. */
#ifndef XL_PASS_MESH_H
#define XL_PASS_MESH_H

#include "ir/ir.h"

typedef struct { xl_mesh_axis axis[8]; uint32_t naxis; } xl_mesh_def;

/* "data=2, model=4" for ndevice devices: an axis named twice, a size below one, a product that is not ndevice is an error that says so. */
xl_error *xl_mesh_parse(xl_arena *a, xl_str text, int64_t ndevice, xl_mesh_def *out) XL_MUST_USE;
int64_t xl_mesh_size(const xl_mesh_def *mesh);
/* The module gets the mesh, under the name "mesh". */
void xl_mesh_define(xl_module *m, const xl_mesh_def *mesh);
/* Dimensions in order, separated by commas: an axis, several joined by +, or - for whole: "data, -, model+expert". `what` names the tensor in
 * messages: an axis that the mesh does not have or that is used twice, and a dimension that does not divide (with the next size that does). */
xl_error *xl_mesh_sharding(xl_module *m, const xl_mesh_def *mesh, const xl_type *t, xl_str what, xl_str dims, const xl_attr **out) XL_MUST_USE;
xl_error *xl_mesh_shard_arg(xl_module *m, xl_func *f, uint32_t arg, const xl_mesh_def *mesh, xl_str what, xl_str dims) XL_MUST_USE;
xl_error *xl_mesh_shard_result(xl_module *m, xl_func *f, uint32_t result, const xl_mesh_def *mesh, xl_str what, xl_str dims) XL_MUST_USE;

#endif
