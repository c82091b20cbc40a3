/* src/cpu/plan/units.h
 * The units of a region that run as a whole (a group, or an op outside of groups), and the values that each reads. Made
 * after grouping, when `need` is known; used by remat.c and schedule.c. */
#ifndef XL_CPU_UNITS_H
#define XL_CPU_UNITS_H

#include "cpu/plan/group.h"

#define XL_NO_UNIT UINT32_MAX

typedef struct { xl_group *g; uint32_t first, n; } xl_unit; /* ops of the region */
typedef struct { uint32_t unit, next; } xl_reader;         /* next: index + 1, 0 ends; later units first */

typedef struct {
    xl_planner *p;
    xl_region *r;
    uint32_t nval;                                         /* when made: later values are nobody's but their group's */
    xl_unit *u; uint32_t n, cap;
    uint32_t *of;                                          /* per value: the unit that makes it, or XL_NO_UNIT */
    uint32_t *head;                                        /* per value: its readers, as indices + 1 */
    xl_reader *rd; uint32_t nrd, caprd;
    bool *returned;                                        /* per value: the region gives it out */
    bool *shared; /* per value: it shares memory with another under another shape */
} xl_units;

void xl_units_find(xl_units *x, xl_planner *p, xl_region *r);
/* Unit reads v. Once however often it is said. */
void xl_units_read(xl_units *x, xl_value v, uint32_t unit);
/* The last unit that reads v, or XL_NO_UNIT; and the last before it, or the unit that makes v. */
uint32_t xl_units_last(const xl_units *x, xl_value v);
uint32_t xl_units_before(const xl_units *x, xl_value v);
/* The value whose memory v's is: reshapes that are made share their operand's. */
xl_value xl_units_memory(const xl_units *x, xl_value v);
size_t xl_units_bytes(const xl_units *x, xl_value v);

#endif
