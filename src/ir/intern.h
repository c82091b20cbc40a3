/* src/ir/intern.h: the hidden part of a module. */
#ifndef XL_IR_INTERN_H
#define XL_IR_INTERN_H

#include "base/table.h"
#include "ir/ir.h"

struct xl_intern {
    const xl_type **type;
    uint32_t ntype, captype;
    xl_table index;                                        /* types by their content */
};

#endif
