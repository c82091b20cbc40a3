/* src/ir/hlo/hlo_fields.h
 * Field numbers and element types of HLO's protos, for code that reads or writes a part of one. */
#ifndef XL_IR_HLO_FIELDS_H
#define XL_IR_HLO_FIELDS_H

#include <stdint.h>

enum {
#define FIELD(message, name, number) XL_HLO_##message##_##name = (number),
#include "ir/hlo/hlo_fields.def"
};

enum { XL_HLO_TUPLE = 13, XL_HLO_TOKEN = 17 };             /* of PrimitiveType: not of arrays */
enum { XL_HLO_SHARDED_REPLICATED = 0, XL_HLO_SHARDED_MAXIMAL, XL_HLO_SHARDED_TUPLE, XL_HLO_SHARDED_OTHER,
       XL_HLO_SHARDED_MANUAL, XL_HLO_SHARDED_UNKNOWN, XL_HLO_SHARDED_UNREDUCED }; /* OpSharding.Type */
enum { XL_HLO_SPACE_HOST = 5 };                            /* LayoutProto.memory_space of memory of the host */

/* Bytes of an element of this PrimitiveType: 0 for a tuple or a token, 1 for one that is not known. */
uint32_t xl_hlo_elem_bytes(uint64_t primitive);

#endif
