/* The entry computation is traversed, then everything that it calls. A loop counts as many times as it iterates, if the
 * compiler has recorded that (XLA's CPU and GPU) or the loop's condition shows it (libtpu). */
#include "lane/collectives.h"

#include "ir/hlo/hlo_fields.h"
#include "ir/hlo/hlo_groups.h"
#include "lane/placement.h"

enum { DEPTH = 24, VISITS = 1 << 16, DEVICES = 1 << 16 };

typedef struct { xl_str bytes; int64_t id; } computation;
typedef struct {
    xl_arena *a;
    const xl_mesh *mesh;
    int64_t ndevice;
    computation *comp;
    size_t ncomp, capcomp;
    xl_collective *out;
    size_t n, cap;
    uint32_t visits;
    bool any;
} scan;

static bool next(xl_proto *r, xl_proto_field *f)
{
    bool more = false;
    xl_error *err = xl_proto_next(r, f, &more);
    xl_error_free(err);
    return !err && more;
}

static bool field(xl_str message, uint32_t number, xl_proto_field *f)
{
    xl_proto r = xl_proto_of(message);
    while (next(&r, f))
        if (f->number == number)
            return true;
    return false;
}

static int64_t number(xl_str message, uint32_t which)
{
    xl_proto_field f;
    return field(message, which, &f) && f.wire == XL_WIRE_VARINT ? (int64_t)f.value : 0;
}

typedef struct { int64_t *p; size_t n, cap; } ints;

/* A repeated number, packed or not. */
static void numbers(xl_arena *a, xl_str message, uint32_t which, ints *out)
{
    xl_proto r = xl_proto_of(message);
    xl_proto_field f;
    while (next(&r, &f) && out->n < DEVICES) {
        if (f.number != which)
            continue;
        if (f.wire == XL_WIRE_VARINT)
            XL_PUSH(a, out->p, out->n, out->cap, (int64_t)f.value);
        if (f.wire != XL_WIRE_BYTES)
            continue;
        xl_proto d = xl_proto_of(f.bytes);
        for (;;) {
            uint64_t v;
            bool more = false;
            xl_error *err = xl_proto_varint(&d, &v, &more);
            xl_error_free(err);
            if (err || !more || out->n >= DEVICES)
                break;
            XL_PUSH(a, out->p, out->n, out->cap, (int64_t)v);
        }
    }
}

/* ---- sizes ------------------------------------------------------------------------------------------------------- */
static int64_t shape_bytes(scan *s, xl_str shape, int depth)
{
    xl_proto r = xl_proto_of(shape);
    xl_proto_field f;
    int64_t inner = 0, count = 1;
    ints dims = { 0 };
    while (depth < 8 && next(&r, &f))
        if (f.number == XL_HLO_SHAPE_tuple_shapes && f.wire == XL_WIRE_BYTES)
            inner += shape_bytes(s, f.bytes, depth + 1);
    numbers(s->a, shape, XL_HLO_SHAPE_dimensions, &dims);
    for (size_t i = 0; i < dims.n; i++)
        if (dims.p[i] < 0 || __builtin_mul_overflow(count, dims.p[i], &count) || count > INT64_MAX / 64)
            count = 0;
    return inner ? inner : count * xl_hlo_elem_bytes((uint64_t)number(shape, XL_HLO_SHAPE_element_type));
}

/* A start's shape is a tuple of operands, results, and sometimes more. */
static int64_t started_bytes(scan *s, xl_str shape)
{
    xl_proto r = xl_proto_of(shape);
    xl_proto_field f;
    for (int k = 0; next(&r, &f);)
        if (f.number == XL_HLO_SHAPE_tuple_shapes && f.wire == XL_WIRE_BYTES && k++ == 1)
            return shape_bytes(s, f.bytes, 1);
    return shape_bytes(s, shape, 0);
}

/* ---- who takes part ---------------------------------------------------------------------------------------------- */
/* The first group, for all are alike; of a permutation its pairs, one after the other. */
static void group_of(scan *s, xl_str in, bool pairs, ints *out)
{
    xl_proto_field f;
    if (pairs) {
        xl_proto r = xl_proto_of(in);
        while (next(&r, &f) && out->n < DEVICES)
            if (f.number == XL_HLO_INST_source_target_pairs && f.wire == XL_WIRE_BYTES) {
                XL_PUSH(s->a, out->p, out->n, out->cap, number(f.bytes, XL_HLO_PAIR_source));
                XL_PUSH(s->a, out->p, out->n, out->cap, number(f.bytes, XL_HLO_PAIR_target));
            }
        return;
    }
    xl_hlo_groups g;
    xl_error *bad = xl_hlo_groups_read(s->a, in, &g);
    for (int64_t i = 0; !bad && g.ngroup && i < g.size && g.id[i] >= 0; i++)
        XL_PUSH(s->a, out->p, out->n, out->cap, g.id[i]);
    xl_error_free(bad);
}

/* ---- the walk ---------------------------------------------------------------------------------------------------- */
static void note(scan *s, xl_str in, xl_str op, int64_t times, bool loops)
{
    static const char *const known[] = {
        "all-reduce",           "all-gather",        "reduce-scatter", "all-to-all", "collective-permute",
        "collective-broadcast", "ragged-all-to-all", "send",           "recv"
    };
    xl_proto_field shape;
    ints who = { 0 };
    char over[64];
    if (xl_str_ends(op, XL_STR("-done")))
        return;
    bool start = xl_str_ends(op, XL_STR("-start"));
    if (start)
        op.n -= 6;
    size_t i = 0;
    while (i < sizeof known / sizeof *known && !xl_str_is(op, known[i]))
        i++;
    if (i == sizeof known / sizeof *known)
        return;
    bool pairs = i == 4;
    group_of(s, in, pairs, &who);
    int64_t size = pairs ? 2 : (int64_t)who.n;
    xl_group_axes(s->mesh, who.p, size ? (int64_t)who.n / size : 0, size, pairs, s->ndevice, over, sizeof over);
    int64_t bytes = !field(in, XL_HLO_INST_shape, &shape) ? 0
                    : start && (i == 1 || i == 4)         ? started_bytes(s, shape.bytes)
                                                          : shape_bytes(s, shape.bytes, 0);
    xl_collective *c = NULL;
    for (size_t k = 0; k < s->n && !c; k++)
        if (xl_str_is(s->out[k].name, known[i]) && xl_str_is(s->out[k].over, over))
            c = &s->out[k];
    if (!c) {
        XL_PUSH(s->a, s->out, s->n, s->cap,
                ((xl_collective){ .name = xl_str_of(known[i]), .over = xl_str_dup(s->a, xl_str_of(over)) }));
        c = &s->out[s->n - 1];
    }
    c->count += times;
    c->bytes += bytes * times;
    c->loops |= loops;
}

/* {"known_trip_count":{"n":"24"}, ...} in a loop's configuration; 0: not said. */
static int64_t turns_of(xl_str in)
{
    static const char key[] = "\"known_trip_count\":{\"n\":\"";
    xl_proto_field f;
    const char *at = field(in, XL_HLO_INST_backend_config, &f) && f.wire == XL_WIRE_BYTES && f.bytes.n
                         ? memmem(f.bytes.p, f.bytes.n, key, sizeof key - 1)
                         : NULL;
    int64_t n = 0;
    for (const char *p = at ? at + sizeof key - 1 : NULL;
         p && p < f.bytes.p + f.bytes.n && *p >= '0' && *p <= '9' && n < 1 << 24; p++)
        n = n * 10 + (*p - '0');
    return n;
}

static const computation *find(const scan *s, int64_t id)
{
    for (size_t k = 0; k < s->ncomp; k++)
        if (s->comp[k].id == id)
            return &s->comp[k];
    return NULL;
}

/* A loop that counts: its condition compares with one number, and knows no other. Frontends count from
 * nought, in ones. */
static void count_to(scan *s, int64_t id, ints *bound, bool *compares, int depth)
{
    const computation *c = find(s, id);
    xl_proto_field f, op, lit;
    if (!c || depth > 3)
        return;
    for (xl_proto r = xl_proto_of(c->bytes); next(&r, &f);) {
        if (f.number != XL_HLO_COMPUTATION_instructions || f.wire != XL_WIRE_BYTES ||
            !field(f.bytes, XL_HLO_INST_opcode, &op))
            continue;
        *compares |= xl_str_is(op.bytes, "compare");
        if (xl_str_is(op.bytes, "constant") && field(f.bytes, XL_HLO_INST_literal, &lit) && lit.wire == XL_WIRE_BYTES)
            for (uint32_t k = XL_HLO_LITERAL_s32s; k <= XL_HLO_LITERAL_u32s; k++)
                numbers(s->a, lit.bytes, k, bound);
        ints calls = { 0 };
        numbers(s->a, f.bytes, XL_HLO_INST_called_computation_ids, &calls);
        for (size_t i = 0; i < calls.n; i++)
            count_to(s, calls.p[i], bound, compares, depth + 1);
    }
}

static int64_t turns_by_condition(scan *s, int64_t condition)
{
    ints bound = { 0 };
    bool compares = false;
    count_to(s, condition, &bound, &compares, 0);
    return compares && bound.n == 1 && bound.p[0] > 0 && bound.p[0] < 1 << 24 ? bound.p[0] : 0;
}

static void visit(scan *s, xl_str comp, int64_t times, bool loops, int depth)
{
    xl_proto r = xl_proto_of(comp);
    xl_proto_field f, op;
    if (depth > DEPTH || s->visits++ > VISITS || times > INT32_MAX)
        return;
    while (next(&r, &f)) {
        if (f.number != XL_HLO_COMPUTATION_instructions || f.wire != XL_WIRE_BYTES ||
            !field(f.bytes, XL_HLO_INST_opcode, &op) || op.wire != XL_WIRE_BYTES)
            continue;
        s->any = s->any || op.bytes.n;
        note(s, f.bytes, op.bytes, times, loops);
        bool loop = xl_str_is(op.bytes, "while");
        int64_t turns = loop ? turns_of(f.bytes) : 1;
        ints calls = { 0 };
        numbers(s->a, f.bytes, XL_HLO_INST_called_computation_ids, &calls);
        if (!turns && calls.n == 2)
            turns = turns_by_condition(s, calls.p[1]);
        for (size_t i = 0; i < calls.n; i++) {
            const computation *c = find(s, calls.p[i]);
            if (c)
                visit(s, c->bytes, times * (turns ? turns : 1), loops || !turns, depth + 1);
        }
    }
}

static void scan_module(scan *s, xl_str module)
{
    xl_proto m = xl_proto_of(module);
    xl_proto_field f;
    int64_t entry = number(module, XL_HLO_MODULE_entry_computation_id);
    bool found = false;
    while (next(&m, &f))
        if (f.number == XL_HLO_MODULE_computations && f.wire == XL_WIRE_BYTES)
            XL_PUSH(s->a, s->comp, s->ncomp, s->capcomp,
                    ((computation){ f.bytes, number(f.bytes, XL_HLO_COMPUTATION_id) }));
    for (size_t i = 0; i < s->ncomp && !found; i++)
        if (entry && s->comp[i].id == entry) {
            found = true;
            visit(s, s->comp[i].bytes, 1, false, 0);
        }
    for (size_t i = 0, n = s->ncomp; i < n && !found; i++) {   /* no entry is named: each once */
        s->ncomp = 0;
        visit(s, s->comp[i].bytes, 1, false, 0);
    }
}

bool xl_collectives_scan(xl_arena *a, xl_str code, xl_str format, const xl_mesh *mesh, int64_t ndevice,
                         xl_collective **out, size_t *n)
{
    scan s = { .a = a, .mesh = mesh, .ndevice = ndevice };
    xl_proto_field f;
    if (xl_str_is(format, "hlo"))
        scan_module(&s, code);
    else if (xl_str_is(format, "hlo_with_config") && field(code, XL_HLO_WITH_CONFIG_hlo_module, &f) &&
             f.wire == XL_WIRE_BYTES)
        scan_module(&s, f.bytes);
    *out = s.out;
    *n = s.n;
    return s.any;
}
