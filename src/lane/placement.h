/* src/lane/placement.h
 * Which device holds what: the tensors of a program on several devices, with the slice and the bytes of each. Computed
 * from a program (what would be) or from the real buffers of a run (sharding.json in its folder); both are drawn in the
 * same way. Everything belongs to an arena. */
#ifndef XL_LANE_PLACEMENT_H
#define XL_LANE_PLACEMENT_H

#include "base/json.h"
#include "pass/shard.h"

enum { XL_PLACEMENT_RANK_MAX = 16 };
typedef struct { int device; int64_t lo[XL_PLACEMENT_RANK_MAX], hi[XL_PLACEMENT_RANK_MAX], bytes; } xl_placement_part;
typedef struct {
    xl_str name, dtype, split;               /* "argument 3 embed", "f32", "model, whole" */
    uint32_t rank, npart;
    int64_t dims[XL_PLACEMENT_RANK_MAX], bytes;       /* of the whole */
    xl_placement_part *part;
} xl_placement;
typedef struct {
    xl_str program, mesh;
    xl_placement *t;
    uint32_t n, cap, ndevice;
} xl_placements; /* program: its name, where that is known */

/* Collectives of one kind over the same axes: bytes of their operands, and what a ring would send (pass/shard.h).
 * `loops`: some stand in a loop whose turns are not known, and are counted once. */
typedef struct {
    xl_str type;
    int64_t count;
} xl_crossing_in; /* operands as one device has them ("8x16xf32"), and how many are like it */
typedef struct {
    xl_opcode op;
    char axes[64];
    int64_t count;
    double bytes, ring;
    bool loops;
    xl_crossing_in *in;
    uint32_t nin, capin;
} xl_crossing;
typedef struct { xl_crossing *c; uint32_t n, cap; } xl_crossings;

/* A tensor as the partitioner splits it. mesh NULL: parts of dimensions show as their number. */
void xl_placement_add(xl_arena *a, xl_placements *l, xl_str name, const xl_type *global, const xl_shard_info *s,
                 const xl_axes *spec, const xl_mesh *mesh);
/* The axes along which the devices of a group differ, if the group is all of them; else how many there are. id: rows of
 * `size` devices; pairs: they are sources and targets. mesh may be NULL. */
void xl_group_axes(const xl_mesh *mesh, const int64_t *id, int64_t rows, int64_t size, bool pairs, int64_t ndevice,
                   char *out, size_t room);
/* What crosses between the devices in one run of the partitioned function. */
void xl_crossings_of(xl_arena *a, const xl_func *f, int64_t ndevice, const xl_mesh *mesh, xl_crossings *out);

int64_t xl_placement_copies(const xl_placement *t);                    /* of each part */
int64_t xl_placement_on(const xl_placements *l, int device);       /* bytes */
int64_t xl_placement_waste(const xl_placements *l,
                      int device); /* of these, what would not be there if every part lay on one device only */
void xl_placement_draw(const xl_placement *t, uint32_t most, xl_buf *b); /* text; at most so many devices */
void xl_placement_json(const xl_placements *l, xl_json *j);        /* a map with mesh, devices and tensors */
xl_error *xl_placement_read(xl_arena *a, const char *path, xl_placements *out) XL_MUST_USE;
void xl_crossings_text(const xl_crossings *c, xl_buf *b);
void xl_crossings_json(const xl_crossings *c, xl_json *j);
/* What xl_shard_gathered wrote: ops that no rule splits the way their operands are split. */
void xl_gathered_text(xl_str lines, xl_buf *b);
void xl_gathered_json(xl_str lines, xl_json *j);             /* a list of maps: op, where, count, bytes */

#endif
