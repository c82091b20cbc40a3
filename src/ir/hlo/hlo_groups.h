/* src/ir/hlo/hlo_groups.h
 * The participants of a collective of an HLO program. Any thread. */
#ifndef XL_IR_HLO_GROUPS_H
#define XL_IR_HLO_GROUPS_H

#include "base/arena.h"
#include "base/proto.h"

/* ngroup rows of `size` devices; a shorter row ends in -1. No groups: all devices together. */
typedef struct { int64_t *id, ngroup, size; } xl_hlo_groups;

xl_error *xl_hlo_groups_read(xl_arena *a, xl_str instruction, xl_hlo_groups *out) XL_MUST_USE;

#endif
