/* src/cli/held.h: who holds what in a run, for people: the section of the report. */
#ifndef XL_CLI_HELD_H
#define XL_CLI_HELD_H

#include "lane/held.h"

/* An optimizer's moment that lies as its parameter need not be drawn again. */
bool xl_held_as_parameter(const xl_held_list *l, const xl_held *t);
/* Nothing where the run had one device. */
void xl_held_html(xl_arena *a, const char *dir, xl_buf *b);

#endif
