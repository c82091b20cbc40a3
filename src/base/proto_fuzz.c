/* Any bytes: the fields of a message and of the messages within it, each inside its parent; written again, they are the
 * same. */
#include <stdlib.h>

#include "base/error.h"
#include "base/proto.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void walk(xl_str s, int depth)
{
    xl_proto r = xl_proto_of(s);
    xl_proto_field f, g;
    bool more, again;
    xl_error *err;
    while (!(err = xl_proto_next(&r, &f, &more)) && more) {
        xl_buf b = { 0 };
        if (f.at >= s.n)
            abort();
        if (f.wire == XL_WIRE_BYTES) {
            if (f.bytes.n && (f.bytes.p < s.p || f.bytes.p + f.bytes.n > s.p + s.n))
                abort();
            if (depth < 8)
                walk(f.bytes, depth + 1);
            xl_proto_put_bytes(&b, f.number, f.bytes);
        } else if (f.wire == XL_WIRE_VARINT) {
            xl_proto_put_int(&b, f.number, (int64_t)f.value);
        } else {
            xl_proto_put_bits(&b, f.number, f.wire, f.value);
        }
        xl_proto w = xl_proto_of(xl_buf_view(&b));
        if (xl_proto_next(&w, &g, &again) || !again || g.number != f.number || g.wire != f.wire || g.value != f.value ||
            !xl_str_eq(g.bytes, f.bytes))
            abort();
        xl_buf_fini(&b);
    }
    xl_error_free(err);
    uint64_t v;
    for (r = xl_proto_of(s); !(err = xl_proto_varint(&r, &v, &more)) && more;)
        if (r.p > r.end)
            abort();
    xl_error_free(err);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    walk((xl_str){ (const char *)data, size }, 0);
    return 0;
}
