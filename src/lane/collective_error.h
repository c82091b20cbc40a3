/* src/lane/collective_error.h
 * Why a collective failed: its group, the order in which devices reached it, or the layout of their operands. None of
 * the three facts explains such a failure alone, so they are reported together: the shape of the program, when SPMD was
 * enabled and the first tensor created, and how the arguments are laid out. */
#ifndef XL_LANE_COLLECTIVE_ERROR_H
#define XL_LANE_COLLECTIVE_ERROR_H

#include "lane/placement.h"
#include "lane/run.h"

typedef enum { XL_TROUBLE_NONE, XL_TROUBLE_GROUP, XL_TROUBLE_ORDER, XL_TROUBLE_LAYOUT } xl_collective_trouble;
/* From the words of an error, whoever wrote it. */
xl_collective_trouble xl_collective_trouble_of(xl_str error);

typedef struct {
    const char *module;
    int64_t devices, step;
    xl_str mesh;                             /* empty: none, or not known */
    const xl_crossings *crossing;            /* NULL: not known */
    bool always;                             /* a frontend without a switch: shardings come with each array */
    double spmd, tensor, compiled, failed;   /* seconds of one clock; below 0: did not happen, or nobody saw it */
    xl_str layout;                           /* a sentence: alike everywhere, or what differs */
} xl_collective_facts;
/* The event "collective"; `text`, if given, gets its sentences. */
void xl_collective_tell(xl_run *r, xl_collective_trouble t, xl_str error, const xl_collective_facts *f, xl_buf *text);

#endif
