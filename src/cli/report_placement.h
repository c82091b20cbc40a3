/* src/cli/report_placement.h: who holds what in a run, for people: the section of the report. */
#ifndef XL_CLI_REPORT_PLACEMENT_H
#define XL_CLI_REPORT_PLACEMENT_H

#include "lane/placement.h"

/* An optimizer's moment that lies as its parameter need not be drawn again. */
bool xl_placement_as_parameter(const xl_placements *l, const xl_placement *t);
/* Nothing where the run had one device. */
void xl_placement_html(xl_arena *a, const char *dir, xl_buf *b);

#endif
