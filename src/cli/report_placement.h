/* src/cli/report_placement.h: the section of the report about the placement of tensors. */
#ifndef XL_CLI_REPORT_PLACEMENT_H
#define XL_CLI_REPORT_PLACEMENT_H

#include "lane/placement.h"

/* True if an optimizer's moment is placed like its parameter, so that it is not shown again. */
bool xl_placement_as_parameter(const xl_placements *l, const xl_placement *t);
/* Writes nothing if the run had one device. */
void xl_placement_html(xl_arena *a, const char *dir, xl_buf *b);

#endif
