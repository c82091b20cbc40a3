#include "base/proto.h"

static xl_error *cut(const xl_proto *r, const char *what)
{
    return XL_ERR(INVALID, "byte %zu: %s", (size_t)(r->p - r->start), what);
}

static xl_error *varint(xl_proto *r, uint64_t *out)
{
    uint64_t v = 0;
    for (unsigned shift = 0; shift < 70; shift += 7) {
        if (r->p == r->end)
            return cut(r, "the data ends inside a number");
        uint8_t c = (uint8_t)*r->p++;
        if (shift == 63 && c > 1)
            return cut(r, "a number of more than 64 bits");
        v |= (uint64_t)(c & 127) << shift;
        if (c < 128) {
            *out = v;
            return NULL;
        }
    }
    return cut(r, "a number of more than 64 bits");
}

xl_error *xl_proto_varint(xl_proto *r, uint64_t *out, bool *more)
{
    *more = r->p != r->end;
    *out = 0;
    return *more ? varint(r, out) : NULL;
}

static xl_error *fixed(xl_proto *r, size_t n, uint64_t *out)
{
    if ((size_t)(r->end - r->p) < n)
        return cut(r, "the data ends inside a number");
    *out = 0;
    for (size_t i = 0; i < n; i++)
        *out |= (uint64_t)(uint8_t)r->p[i] << (8 * i);
    r->p += n;
    return NULL;
}

xl_error *xl_proto_next(xl_proto *r, xl_proto_field *f, bool *more)
{
    xl_error *err = NULL;
    uint64_t tag = 0, size = 0;
    *more = false;
    *f = (xl_proto_field){ .at = (size_t)(r->p - r->start) };
    if (r->p == r->end)
        goto out;
    XL_DO(varint(r, &tag));
    if (tag >> 3 == 0 || tag >> 3 > 0x1fffffff) {
        err = XL_ERR(INVALID, "byte %zu: no field has the number %llu", f->at, (unsigned long long)(tag >> 3));
        goto out;
    }
    f->number = (uint32_t)(tag >> 3);
    f->wire = (xl_wire)(tag & 7);
    switch (f->wire) {
    case XL_WIRE_VARINT: XL_DO(varint(r, &f->value)); break;
    case XL_WIRE_I64: XL_DO(fixed(r, 8, &f->value)); break;
    case XL_WIRE_I32: XL_DO(fixed(r, 4, &f->value)); break;
    case XL_WIRE_BYTES:
        XL_DO(varint(r, &size));
        if (size > (size_t)(r->end - r->p)) {
            err = XL_ERR(INVALID, "byte %zu: field %u claims %llu bytes, %zu are left", f->at, f->number,
                         (unsigned long long)size, (size_t)(r->end - r->p));
            goto out;
        }
        f->bytes = (xl_str){ r->p, (size_t)size };
        r->p += size;
        break;
    default:
        err = XL_ERR(INVALID, "byte %zu: field %u has the wire type %u, which protobuf gave up", f->at, f->number,
                     (unsigned)f->wire);
        goto out;
    }
    *more = true;
out:
    return err;
}

void xl_proto_put_raw(xl_buf *b, uint64_t v)
{
    for (; v > 127; v >>= 7)
        xl_buf_putc(b, (char)(v | 128));
    xl_buf_putc(b, (char)v);
}

void xl_proto_put_int(xl_buf *b, uint32_t number, int64_t v)
{
    xl_proto_put_raw(b, (uint64_t)number << 3 | XL_WIRE_VARINT);
    xl_proto_put_raw(b, (uint64_t)v);
}

void xl_proto_put_bits(xl_buf *b, uint32_t number, xl_wire wire, uint64_t bits)
{
    xl_proto_put_raw(b, (uint64_t)number << 3 | wire);
    for (size_t i = 0; i < (wire == XL_WIRE_I64 ? 8u : 4u); i++)
        xl_buf_putc(b, (char)(bits >> (8 * i)));
}

void xl_proto_put_bytes(xl_buf *b, uint32_t number, xl_str s)
{
    xl_proto_put_raw(b, (uint64_t)number << 3 | XL_WIRE_BYTES);
    xl_proto_put_raw(b, s.n);
    xl_buf_str(b, s);
}
