/* src/base/proto.h
 * The protobuf wire format, one field at a time. The reader never looks outside its bytes and allocates nothing; what
 * it hands out is borrowed from the input. Messages within messages are read by making a reader of the field's bytes,
 * so the caller decides how deep to go. Any thread. */
#ifndef XL_BASE_PROTO_H
#define XL_BASE_PROTO_H

#include "base/str.h"

typedef enum { XL_WIRE_VARINT = 0, XL_WIRE_I64 = 1, XL_WIRE_BYTES = 2, XL_WIRE_I32 = 5 } xl_wire;

typedef struct { const char *start, *p, *end; } xl_proto;
typedef struct {
    uint32_t number;
    xl_wire wire;
    uint64_t value;      /* VARINT, I64, I32: the bits */
    xl_str bytes;        /* BYTES */
    size_t at;           /* offset of the field in the reader's input, for messages */
} xl_proto_field;

static inline xl_proto xl_proto_of(xl_str s) { return (xl_proto){ s.p, s.p, s.p ? s.p + s.n : NULL }; }
/* The next field, or *more = false at the end. An error names the byte. */
xl_error *xl_proto_next(xl_proto *r, xl_proto_field *f, bool *more) XL_MUST_USE;
/* One varint of a packed list; *more = false at its end. */
xl_error *xl_proto_varint(xl_proto *r, uint64_t *out, bool *more) XL_MUST_USE;

static inline double xl_proto_f64(uint64_t bits) { double d; memcpy(&d, &bits, sizeof d); return d; }
static inline float xl_proto_f32(uint64_t bits)
{
    uint32_t u = (uint32_t)bits;
    float f;
    memcpy(&f, &u, sizeof f);
    return f;
}

/* Writing appends to the buffer. Signed numbers go as their two's complement, as int32 and int64 do. */
void xl_proto_put_raw(xl_buf *b, uint64_t v);                                  /* a varint without a tag */
void xl_proto_put_int(xl_buf *b, uint32_t number, int64_t v);
void xl_proto_put_bits(xl_buf *b, uint32_t number, xl_wire wire, uint64_t bits); /* I64 or I32 */
void xl_proto_put_bytes(xl_buf *b, uint32_t number, xl_str s);                 /* strings, messages, packed lists */

#endif
