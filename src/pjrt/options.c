#include "pjrt/options.h"

#include <stdlib.h>

#include "base/proto.h"

/* ---- The table ---- */

typedef enum { NONE, ROOT, BUILD, ASSIGN, ROW, OVERRIDE, VALUE, TEXT, DEBUG } message;
enum { QUIET = 1 };

static const struct row { uint8_t message; uint16_t number; const char *name; uint8_t kind, sub, flags; } rows[] = {
#define FIELD(message, number, name, kind, sub, flags) { message, number, #name, XL_OPTION_##kind, sub, flags },
#include "pjrt/options.def"
};
enum { NROW = sizeof rows / sizeof *rows };
enum { /* BUILD_num_replicas */
#define FIELD(message, number, name, kind, sub, flags) message##_##name = number,
#include "pjrt/options.def"
};

static int by_row(const void *a, const void *b)
{
    const struct row *x = a, *y = b;
    return x->message != y->message ? x->message - y->message : x->number - y->number;
}

static const struct row *row_of(message m, uint32_t number)
{
    if (number > UINT16_MAX)
        return NULL;
    return bsearch(&(struct row){ .message = (uint8_t)m, .number = (uint16_t)number }, rows, NROW, sizeof *rows,
                   by_row);
}

/* ---- Reading ---- */

enum { FIELDS_MAX = 1 << 20 };

typedef struct { xl_arena *a; size_t count; } reader;

static bool wire_fits(xl_option_kind kind, xl_wire wire)
{
    switch (kind) {
    case XL_OPTION_INT:
    case XL_OPTION_BOOL: return wire == XL_WIRE_VARINT;
    case XL_OPTION_FLOAT: return wire == XL_WIRE_I32;
    case XL_OPTION_DOUBLE: return wire == XL_WIRE_I64;
    case XL_OPTION_INTS:
    case XL_OPTION_BOOLS: return wire == XL_WIRE_VARINT || wire == XL_WIRE_BYTES;
    default: return wire == XL_WIRE_BYTES;
    }
}

static xl_option *find_number(xl_option *m, uint32_t number)
{
    for (size_t i = 0; i < m->n; i++)
        if (m->child[i].number == number)
            return &m->child[i];
    return NULL;
}

static xl_error *read_numbers(reader *r, const xl_proto_field *f, xl_option *o, size_t *cap)
{
    xl_error *err = NULL;
    uint64_t *list = (uint64_t *)o->list;
    if (f->wire == XL_WIRE_VARINT) {
        XL_PUSH(r->a, list, o->n, *cap, f->value);
    } else {
        xl_proto in = xl_proto_of(f->bytes);
        for (;;) {
            uint64_t v;
            bool more;
            XL_DO(xl_proto_varint(&in, &v, &more));
            if (!more)
                break;
            XL_PUSH(r->a, list, o->n, *cap, v);
        }
    }
    o->list = list;
out:
    return err;
}

static xl_error *read_message(reader *r, xl_str bytes, message type, xl_option *m, size_t *cap);

static xl_error *read_field(reader *r, const xl_proto_field *f, const struct row *row, xl_option *o, size_t *cap)
{
    xl_error *err = NULL;
    xl_option item = { .kind = XL_OPTION_MSG, .name = row->name, .at = (uint32_t)r->count };
    size_t item_cap = 0;
    switch (o->kind) {
    case XL_OPTION_INTS:
    case XL_OPTION_BOOLS: err = read_numbers(r, f, o, cap); break;
    case XL_OPTION_STRS:
    case XL_OPTION_BLOBS: {
        xl_str *strs = (xl_str *)o->strs;
        XL_PUSH(r->a, strs, o->n, *cap, f->bytes);
        o->strs = strs;
        break;
    }
    case XL_OPTION_MSG:
        err = read_message(r, f->bytes, (message)row->sub, o, cap);
        break; /* again: merged, as protobuf says */
    case XL_OPTION_LIST:
    case XL_OPTION_MAP:
        XL_DO(read_message(r, f->bytes, (message)row->sub, &item, &item_cap));
        XL_PUSH(r->a, o->child, o->n, *cap, item);
        break;
    default:                                                    /* the last one counts, as protobuf says */
        o->value = f->value;
        o->bytes = f->bytes;
    }
out:
    return err;
}

static xl_error *read_message(reader *r, xl_str bytes, message type, xl_option *m, size_t *cap)
{
    xl_error *err = NULL;
    xl_proto in = xl_proto_of(bytes);
    size_t *room = NULL, nroom = 0, room_cap = 0; /* room[i]: how far the array of m->child[i] reaches */
    for (size_t i = 0; i < m->n; i++)
        XL_PUSH(r->a, room, nroom, room_cap, m->child[i].n);
    for (;;) {
        xl_proto_field f;
        bool more;
        XL_DO(xl_proto_next(&in, &f, &more));
        if (!more)
            break;
        if (++r->count > FIELDS_MAX) {
            err = XL_ERR(INVALID, "more than %d options", FIELDS_MAX);
            goto out;
        }
        const struct row *row = row_of(type, f.number);
        xl_option *o = row ? find_number(m, f.number) : NULL;
        if (row && !wire_fits((xl_option_kind)row->kind, f.wire)) {
            err =
                XL_ERR(INVALID, "byte %zu: %s has the wire type %d, which does not fit", f.at, row->name, (int)f.wire);
            goto out;
        }
        if (!o) {
            xl_option fresh = { .number = f.number,
                                .at = (uint32_t)r->count,
                                .kind = row ? (xl_option_kind)row->kind : XL_OPTION_RAW,
                                .wire = (uint8_t)f.wire,
                                .quiet = row && (row->flags & QUIET),
                                .name = row ? row->name : NULL };
            if (!row) {
                fresh.value = f.value;
                fresh.bytes = f.bytes;
            }
            XL_PUSH(r->a, m->child, m->n, *cap, fresh);
            XL_PUSH(r->a, room, nroom, room_cap, 0);
            o = &m->child[m->n - 1];
        }
        if (row)
            XL_TRY(read_field(r, &f, row, o, &room[o - m->child]), "%s", row->name);
    }
out:
    return err;
}

xl_error *xl_options_parse(xl_arena *a, xl_str bytes, xl_option **root)
{
    xl_error *err = NULL;
    reader r = { .a = a };
    size_t cap = 0;
    xl_option *m = xl_new(a, xl_option, 1);
    *root = NULL;
    m->kind = XL_OPTION_MSG;
    m->name = "compile options";
    XL_TRY(read_message(&r, bytes, ROOT, m, &cap), "compile options");
    *root = m;
out:
    return err;
}

static xl_option *child_named(const xl_option *m, xl_str name)
{
    for (size_t i = 0; m->kind == XL_OPTION_MSG && i < m->n; i++)
        if (m->child[i].name && xl_str_is(name, m->child[i].name))
            return &m->child[i];
    return NULL;
}

const xl_option *xl_options_find(const xl_option *root, const char *path)
{
    for (xl_str rest = xl_str_of(path); root && rest.n;)
        root = child_named(root, xl_str_cut(&rest, '.'));
    return root;
}

bool xl_options_drop(xl_option *root, const char *path)
{
    const char *dot = strrchr(path, '.');
    xl_str in = { path, dot ? (size_t)(dot - path) : 0 };
    while (root && in.n) {
        xl_str part = xl_str_cut(&in, '.');
        root = child_named(root, part);
    }
    xl_option *o = root ? child_named(root, xl_str_of(dot ? dot + 1 : path)) : NULL;
    if (!o)
        return false;
    root->n--;
    memmove(o, o + 1, (size_t)(&root->child[root->n] - o) * sizeof *o);
    return true;
}

int64_t xl_options_int(const xl_option *root, const char *path, int64_t otherwise)
{
    const xl_option *o = xl_options_find(root, path);
    return o && (o->kind == XL_OPTION_INT || o->kind == XL_OPTION_BOOL) ? (int64_t)o->value : otherwise;
}

/* ---- The canonical form ---- */

/* The key of a map's entry: its field 1. */
static xl_str key_of(const xl_option *entry)
{
    for (size_t i = 0; i < entry->n; i++)
        if (entry->child[i].number == 1)
            return entry->child[i].bytes;
    return (xl_str){ "", 0 };
}

/* Equal ones keep the order they came in: `at` breaks the tie, as qsort itself does not promise it. */
static int by_number(const void *a, const void *b)
{
    const xl_option *x = a, *y = b;
    return x->number != y->number ? (x->number > y->number) - (x->number < y->number)
                                  : (x->at > y->at) - (x->at < y->at);
}

static int by_key(const void *a, const void *b)
{
    const xl_option *x = a, *y = b;
    int order = xl_str_cmp(key_of(x), key_of(y));
    return order ? order : (x->at > y->at) - (x->at < y->at);
}

static void arrange(xl_option *o)
{
    if (o->kind == XL_OPTION_MSG && o->n)
        qsort(o->child, o->n, sizeof *o->child, by_number);
    else if (o->kind == XL_OPTION_MAP && o->n)
        qsort(o->child, o->n, sizeof *o->child, by_key);
    for (size_t i = 0; o->child && i < o->n; i++)
        arrange(&o->child[i]);
}

static void write_message(const xl_option *m, bool quiet_too, xl_buf *out);

static void write_field(const xl_option *o, bool quiet_too, xl_buf *out)
{
    xl_buf inner = { 0 };
    switch (o->kind) {
    case XL_OPTION_RAW:
        if (o->wire == XL_WIRE_VARINT)
            xl_proto_put_int(out, o->number, (int64_t)o->value);
        else if (o->wire == XL_WIRE_BYTES)
            xl_proto_put_bytes(out, o->number, o->bytes);
        else
            xl_proto_put_bits(out, o->number, (xl_wire)o->wire, o->value);
        break;
    case XL_OPTION_INT:
    case XL_OPTION_BOOL: xl_proto_put_int(out, o->number, (int64_t)o->value); break;
    case XL_OPTION_FLOAT: xl_proto_put_bits(out, o->number, XL_WIRE_I32, o->value); break;
    case XL_OPTION_DOUBLE: xl_proto_put_bits(out, o->number, XL_WIRE_I64, o->value); break;
    case XL_OPTION_STR:
    case XL_OPTION_BYTES: xl_proto_put_bytes(out, o->number, o->bytes); break;
    case XL_OPTION_INTS:
    case XL_OPTION_BOOLS:
        for (size_t i = 0; i < o->n; i++)
            xl_proto_put_raw(&inner, o->list[i]);
        xl_proto_put_bytes(out, o->number, xl_buf_view(&inner));
        break;
    case XL_OPTION_STRS:
    case XL_OPTION_BLOBS:
        for (size_t i = 0; i < o->n; i++)
            xl_proto_put_bytes(out, o->number, o->strs[i]);
        break;
    case XL_OPTION_MSG:
        write_message(o, quiet_too, &inner);
        xl_proto_put_bytes(out, o->number, xl_buf_view(&inner));
        break;
    case XL_OPTION_LIST:
    case XL_OPTION_MAP:
        for (size_t i = 0; i < o->n; i++) {
            xl_buf one = { 0 };
            write_message(&o->child[i], quiet_too, &one);
            xl_proto_put_bytes(out, o->number, xl_buf_view(&one));
            out->failed |= one.failed;
            xl_buf_fini(&one);
        }
        break;
    }
    out->failed |= inner.failed;
    xl_buf_fini(&inner);
}

static void write_message(const xl_option *m, bool quiet_too, xl_buf *out)
{
    for (size_t i = 0; i < m->n; i++)
        if (quiet_too || !m->child[i].quiet)
            write_field(&m->child[i], quiet_too, out);
}

void xl_options_canonical(xl_option *root, xl_buf *out)
{
    arrange(root);
    write_message(root, false, out);
}

void xl_options_write(const xl_option *root, xl_buf *out) { write_message(root, true, out); }

/* ---- Differences in words ---- */

typedef struct { xl_arena *a; xl_option_change *change; size_t n, cap; } differ;

static xl_str words(xl_arena *a, const xl_option *o)
{
    xl_buf b = { 0 };
    switch (o->kind) {
    case XL_OPTION_BOOL: xl_buf_puts(&b, o->value ? "true" : "false"); break;
    case XL_OPTION_INT: xl_buf_printf(&b, "%lld", (long long)o->value); break;
    case XL_OPTION_FLOAT: xl_buf_printf(&b, "%g", (double)xl_proto_f32(o->value)); break;
    case XL_OPTION_DOUBLE: xl_buf_printf(&b, "%g", xl_proto_f64(o->value)); break;
    case XL_OPTION_STR: xl_buf_printf(&b, "\"%.*s\"", (int)(o->bytes.n > 200 ? 200 : o->bytes.n), o->bytes.p); break;
    case XL_OPTION_INTS:
    case XL_OPTION_BOOLS:
        xl_buf_putc(&b, '[');
        for (size_t i = 0; i < o->n && i < 64; i++)
            xl_buf_printf(&b, "%s%lld", i ? ", " : "", (long long)o->list[i]);
        xl_buf_puts(&b, o->n > 64 ? ", …]" : "]");
        break;
    case XL_OPTION_STRS:
        for (size_t i = 0; i < o->n && i < 64; i++)
            xl_buf_printf(&b, "%s\"%.*s\"", i ? ", " : "", (int)(o->strs[i].n > 200 ? 200 : o->strs[i].n),
                          o->strs[i].p);
        break;
    case XL_OPTION_RAW:
        if (o->wire != XL_WIRE_BYTES) {
            xl_buf_printf(&b, "%lld", (long long)o->value);
            break;
        }
        /* fall through */
    case XL_OPTION_BYTES: xl_buf_printf(&b, "%zu bytes", o->bytes.n); break;
    case XL_OPTION_BLOBS:
    case XL_OPTION_MSG:
    case XL_OPTION_LIST:
    case XL_OPTION_MAP: xl_buf_printf(&b, "%zu of them", o->n); break;
    }
    xl_str s = xl_str_dup(a, xl_buf_view(&b));
    xl_buf_fini(&b);
    return s;
}

static bool same(const xl_option *x, const xl_option *y)
{
    xl_buf a = { 0 }, b = { 0 };
    write_field(x, true, &a);
    write_field(y, true, &b);
    bool eq = !a.failed && !b.failed && xl_str_eq(xl_buf_view(&a), xl_buf_view(&b));
    xl_buf_fini(&a);
    xl_buf_fini(&b);
    return eq;
}

static void diff_message(differ *d, xl_str path, const xl_option *x, const xl_option *y);

static void diff_leaf(differ *d, xl_str path, const xl_option *x, const xl_option *y)
{
    xl_option_change c = { path, x ? words(d->a, x) : (xl_str){ "", 0 }, y ? words(d->a, y) : (xl_str){ "", 0 },
                           (x ? x : y)->quiet };
    if (x && y && xl_str_eq(c.before, c.after))
        c.after = xl_strf(d->a, "%.*s, with other content", XL_FMT(c.after));
    XL_PUSH(d->a, d->change, d->n, d->cap, c);
}

static void diff_map(differ *d, xl_str path, const xl_option *x, const xl_option *y)
{
    size_t i = 0, k = 0;
    while (i < x->n || k < y->n) {
        int order = i == x->n ? 1 : k == y->n ? -1 : xl_str_cmp(key_of(&x->child[i]), key_of(&y->child[k]));
        xl_str key = key_of(order > 0 ? &y->child[k] : &x->child[i]);
        xl_str at = xl_strf(d->a, "%.*s[%.*s]", XL_FMT(path), XL_FMT(key));
        static const xl_option nothing = { .kind = XL_OPTION_MSG };
        if (order || !same(&x->child[i], &y->child[k]))
            diff_message(d, at, order > 0 ? &nothing : &x->child[i], order < 0 ? &nothing : &y->child[k]);
        i += order <= 0;
        k += order >= 0;
    }
}

static void diff_field(differ *d, xl_str path, const xl_option *x, const xl_option *y)
{
    static const xl_option nothing = { .kind = XL_OPTION_MSG }, nowhere = { .kind = XL_OPTION_MAP };
    const xl_option *o = x ? x : y;
    xl_str at = o->name ? xl_strf(d->a, "%.*s%s%s", XL_FMT(path), path.n ? "." : "", o->name)
                        : xl_strf(d->a, "%.*s%sfield %u", XL_FMT(path), path.n ? "." : "", o->number);
    if (x && y && same(x, y))
        return;
    if (o->kind == XL_OPTION_MSG)
        diff_message(d, at, x ? x : &nothing, y ? y : &nothing);
    else if (o->kind == XL_OPTION_MAP)
        diff_map(d, at, x ? x : &nowhere, y ? y : &nowhere);
    else if (o->kind == XL_OPTION_LIST && x && y && x->n == y->n)
        for (size_t i = 0; i < x->n; i++)
            diff_message(d, xl_strf(d->a, "%.*s[%zu]", XL_FMT(at), i), &x->child[i], &y->child[i]);
    else
        diff_leaf(d, at, x, y);
}

static void diff_message(differ *d, xl_str path, const xl_option *x, const xl_option *y)
{
    size_t i = 0, k = 0;
    while (i < x->n || k < y->n) {
        int order = i == x->n   ? 1
                    : k == y->n ? -1
                                : (x->child[i].number > y->child[k].number) - (x->child[i].number < y->child[k].number);
        diff_field(d, path, order > 0 ? NULL : &x->child[i], order < 0 ? NULL : &y->child[k]);
        i += order <= 0;
        k += order >= 0;
    }
}

void xl_options_diff(xl_arena *a, xl_option *before, xl_option *after, xl_option_change **out, size_t *n)
{
    differ d = { .a = a };
    arrange(before);
    arrange(after);
    diff_message(&d, (xl_str){ "", 0 }, before, after);
    *out = d.change;
    *n = d.n;
}

/* ---- Writing ---- */

static void put_override(xl_buf *out, const xl_named *v)
{
    xl_buf value = { 0 }, entry = { 0 };
    uint64_t bits;
    double d;
    switch (v->kind) {
    case XL_NAMED_BOOL: xl_proto_put_int(&value, VALUE_bool_field, v->b); break;
    case XL_NAMED_INT: xl_proto_put_int(&value, VALUE_int_field, v->i); break;
    case XL_NAMED_FLOAT:
        d = v->f;
        memcpy(&bits, &d, sizeof bits);
        xl_proto_put_bits(&value, VALUE_double_field, XL_WIRE_I64, bits);
        break;
    default: /* a list has no form here: plugins take such options as text */
        xl_proto_put_bytes(&value, VALUE_string_field, v->str);
    }
    xl_proto_put_bytes(&entry, OVERRIDE_key, v->name);
    xl_proto_put_bytes(&entry, OVERRIDE_value, xl_buf_view(&value));
    xl_proto_put_bytes(out, ROOT_env_option_overrides, xl_buf_view(&entry));
    out->failed |= value.failed | entry.failed;
    xl_buf_fini(&value);
    xl_buf_fini(&entry);
}

void xl_options_assignment(xl_buf *out, const int64_t *device, int replicas, int partitions)
{
    xl_proto_put_int(out, ASSIGN_replica_count, replicas);
    xl_proto_put_int(out, ASSIGN_computation_count, partitions);
    for (int p = 0; p < partitions; p++) { /* one entry per partition, each with its replicas */
        xl_buf ids = { 0 }, row = { 0 };
        for (int r = 0; r < replicas; r++)
            xl_proto_put_raw(&ids, (uint64_t)(device ? device[r * partitions + p] : r * partitions + p));
        xl_proto_put_bytes(&row, ROW_replica_device_ids, xl_buf_view(&ids));
        xl_proto_put_bytes(out, ASSIGN_computation_devices, xl_buf_view(&row));
        out->failed |= ids.failed | row.failed;
        xl_buf_fini(&ids);
        xl_buf_fini(&row);
    }
}

void xl_options_build(xl_buf *out, const xl_options *o)
{
    xl_buf build = { 0 }, devices = { 0 };
    int replicas = o->replicas ? o->replicas : 1, partitions = o->partitions ? o->partitions : 1;
    xl_proto_put_int(&build, BUILD_device_ordinal, -1); /* no device in particular, as JAX says it */
    xl_proto_put_int(&build, BUILD_num_replicas, replicas);
    xl_proto_put_int(&build, BUILD_num_partitions, partitions);
    if (o->spmd)
        xl_proto_put_int(&build, BUILD_use_spmd_partitioning, 1);
    if (o->device) {
        xl_options_assignment(&devices, o->device, replicas, partitions);
        xl_proto_put_bytes(&build, BUILD_device_assignment, xl_buf_view(&devices));
    }
    if (o->device_memory)
        xl_proto_put_int(&build, BUILD_device_memory_size, o->device_memory);
    if (o->shardy)
        xl_proto_put_int(&build, BUILD_use_shardy_partitioner, 1);
    xl_proto_put_bytes(out, ROOT_executable_build_options, xl_buf_view(&build));
    if (o->portable)
        xl_proto_put_int(out, ROOT_compile_portable_executable, 1);
    xl_proto_put_int(out, ROOT_profile_version, -1); /* none */
    for (size_t i = 0; i < o->noption; i++)
        put_override(out, &o->option[i]);
    out->failed |= build.failed | devices.failed;
    xl_buf_fini(&build);
    xl_buf_fini(&devices);
}
