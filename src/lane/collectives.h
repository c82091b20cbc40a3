/* src/lane/collectives.h
 * The collectives of a compiled program, read from its optimised form. Everything in a result belongs to the arena. */
#ifndef XL_LANE_COLLECTIVES_H
#define XL_LANE_COLLECTIVES_H

#include "ir/ir.h"

/* Of one kind over the same devices. `over`: axes of the mesh, or "groups of 4". Count and bytes (of the results) are
 * of one device and one run; `loops`: some stand in a loop whose turns the program does not say, and are
 * counted once. */
typedef struct { xl_str name, over; int64_t count, bytes; bool loops; } xl_collective;

/* format: "hlo" or "hlo_with_config". Read leniently: whatever is not understood is passed over. mesh may be NULL;
 * ndevice is what a collective without groups goes over. False where it is no HLO at all. */
bool xl_collectives_scan(xl_arena *a, xl_str code, xl_str format, const xl_mesh *mesh, int64_t ndevice,
                         xl_collective **out, size_t *n);

#endif
