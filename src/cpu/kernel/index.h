/* src/cpu/kernel/index.h
 * Indices as programs pass them: integers of any type. */
#ifndef XL_CPU_INDEX_H
#define XL_CPU_INDEX_H

#include "cpu/kernel/dtype.h"
#include "ir/ir.h"

/* Element i of an array of d; what no int64_t holds is the largest. */
static inline int64_t xl_read_index(const void *p, xl_dtype d, int64_t i)
{
    switch (d) {
    case XL_I1: case XL_U8: return ((const uint8_t *)p)[i];
    case XL_I2: return xl_i2_load(((const uint8_t *)p)[i]);
    case XL_I4: return xl_i4_load(((const uint8_t *)p)[i]);
    case XL_U2: return xl_ui2_load(((const uint8_t *)p)[i]);
    case XL_U4: return xl_ui4_load(((const uint8_t *)p)[i]);
    case XL_I8: return ((const int8_t *)p)[i];
    case XL_I16: return ((const int16_t *)p)[i];
    case XL_I32: return ((const int32_t *)p)[i];
    case XL_U16: return ((const uint16_t *)p)[i];
    case XL_U32: return ((const uint32_t *)p)[i];
    case XL_U64: {
        uint64_t v = ((const uint64_t *)p)[i];
        return v > INT64_MAX ? INT64_MAX : (int64_t)v;
    }
    default: return ((const int64_t *)p)[i];
    }
}

#endif
