/* src/ir/intern.h: the hidden part of a module. */
#ifndef XL_IR_INTERN_H
#define XL_IR_INTERN_H

#include "ir/ir.h"

struct xl_intern {
    const xl_type **type;                                  /* open addressing, captype a power of two */
    uint32_t ntype, captype;
};

#endif
