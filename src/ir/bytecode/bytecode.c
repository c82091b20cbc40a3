/* MLIR bytecode: the container and the ops. The sections are found first, since strings and properties come after what
 * uses them; then the tables are indexed without looking inside; then the ops are read in one pass, and pull from the
 * tables what they name. Values are numbered per isolated scope: `ids` is one stack of all open regions, `scope` where
 * the innermost isolated one begins.
 *
 * An op's inherent attributes arrive as a blob without names, in alphabetical order. For VHLO that is the order of our
 * slots, so a description of each op name says which slot each reference goes to; ops of older versions lack some
 * slots, native StableHLO has some of them folded into structures. Blobs are shared between ops that agree: their slots
 * are kept. */
#include "ir/bytecode/bytecode.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "ir/reading.h"

enum {
    SEC_STRING,
    SEC_DIALECT,
    SEC_ATTR,
    SEC_ATTR_OFFSET,
    SEC_IR,
    SEC_RES,
    SEC_RES_OFFSET,
    SEC_VERSIONS,
    SEC_PROPS,
    SEC_COUNT
};
enum { OP_ATTRS = 1, OP_RESULTS = 2, OP_OPERANDS = 4, OP_SUCCESSORS = 8, OP_REGIONS = 16, OP_USES = 32, OP_PROPS = 64 };
enum { REGION_DEPTH_MAX = 256, BYTECODE_MAX = 6 };

typedef enum { DESC_NEW, DESC_OP, DESC_MODULE, DESC_FUNC, DESC_MESH, DESC_CAST } desc_kind;
typedef struct { xl_str name; bool drop, optional, later; } prop_row;

struct xl_bc_desc {
    xl_str name;                                           /* without the dialect */
    uint16_t dialect;
    bool registered;
    desc_kind kind;
    xl_opcode code;
    uint32_t nprop;
    prop_row prop[20];
};

/* ---- reading ---------------------------------------------------------------------------------------------------- */
void xl_bc_fail(xl_bc *r, const uint8_t *at, xl_code code, const char *fmt, ...)
{
    char text[512];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    r->err = xl_error_new(code, "bytecode: byte %zu: %s", (size_t)(at - r->base), text);
    longjmp(r->fail, 1);
}

uint64_t xl_bc_varint_slow(xl_bc *r, xl_cur *c)
{
    if (c->p >= c->end)
        XL_BC_FAIL(r, c->p, "the data ends here, where a number should be");
    unsigned z = *c->p ? (unsigned)__builtin_ctz(*c->p) : 8;
    if ((size_t)(c->end - c->p) < z + 1)
        XL_BC_FAIL(r, c->p, "the data ends inside a number");
    uint64_t u = 0;
    if (z == 8) {
        for (unsigned i = 0; i < 8; i++)
            u |= (uint64_t)c->p[1 + i] << (8 * i);
    } else {
        for (unsigned i = 0; i <= z; i++)
            u |= (uint64_t)c->p[i] << (8 * i);
        u >>= z + 1;
    }
    c->p += z + 1;
    return u;
}

xl_str xl_bc_str(xl_bc *r, xl_cur *c)
{
    const uint8_t *at = c->p;
    uint64_t i = xl_bc_varint(r, c);
    if (i >= r->nstr)
        XL_BC_FAIL(r, at, "string %llu of %u", (unsigned long long)i, r->nstr);
    return r->str[i];
}

xl_str xl_bc_blob(xl_bc *r, xl_cur *c)
{
    const uint8_t *at = c->p;
    uint64_t n = xl_bc_varint(r, c);
    if (n > (size_t)(c->end - c->p))
        XL_BC_FAIL(r, at, "%llu bytes of data, but only %zu are left", (unsigned long long)n, (size_t)(c->end - c->p));
    xl_str s = { (const char *)c->p, (size_t)n };
    c->p += n;
    return s;
}

uint32_t xl_bc_count(xl_bc *r, xl_cur *c, size_t least)
{
    const uint8_t *at = c->p;
    uint64_t n = xl_bc_varint(r, c);
    if (n > (size_t)(c->end - c->p) / least || n > INT32_MAX)
        XL_BC_FAIL(r, at, "a count of %llu with only %zu bytes left", (unsigned long long)n, (size_t)(c->end - c->p));
    return (uint32_t)n;
}

uint32_t xl_bc_attr_index(xl_bc *r, xl_cur *c)
{
    const uint8_t *at = c->p;
    uint64_t i = xl_bc_varint(r, c);
    if (i >= r->nattr)
        XL_BC_FAIL(r, at, "attribute %llu of %u", (unsigned long long)i, r->nattr);
    return (uint32_t)i;
}

void xl_bc_charge(xl_bc *r, const uint8_t *at, uint64_t weight)
{
    r->weight += weight;
    if (r->weight > r->max_weight)
        XL_BC_FAIL(r, at, "the attributes and types of the ops unfold to more than %llu parts",
                   (unsigned long long)r->max_weight);
}

const xl_type *xl_bc_text_type(xl_bc *r, const xl_bc_entry *e, xl_str text, bool *scalar)
{
    const xl_type *t;
    xl_dtype d = xl_dtype_find(text);
    *scalar = true;
    if (d != XL_DT_NONE)
        return xl_type_scalar(r->m, d);
    *scalar = xl_str_starts(text, XL_STR("!quant."));
    xl_error *err = xl_read_text_type(r->m, text, &t);
    if (err) {
        r->err = xl_error_wrap(err, "bytecode: byte %zu: a type given as text", (size_t)(e->at.p - r->base));
        longjmp(r->fail, 1);
    }
    return t;
}

const xl_attr *xl_bc_text_attr(xl_bc *r, const xl_bc_entry *e, xl_str text)
{
    const xl_attr *a;
    xl_error *err = xl_read_text_attr(r->m, text, &a);
    if (err) {
        r->err = xl_error_wrap(err, "bytecode: byte %zu: an attribute given as text", (size_t)(e->at.p - r->base));
        longjmp(r->fail, 1);
    }
    return a;
}

static xl_cur section(xl_bc *r, xl_cur *c, unsigned *id)
{
    const uint8_t *at = c->p;
    uint8_t b = xl_bc_byte(r, c);
    *id = b & 0x7f;
    uint64_t n = xl_bc_varint(r, c);
    if (b & 0x80) {
        uint64_t align = xl_bc_varint(r, c);
        if (align == 0 || (align & (align - 1)) || align > 1 << 20)
            XL_BC_FAIL(r, at, "a section aligned to %llu", (unsigned long long)align);
        while ((size_t)(c->p - r->base) & (align - 1))
            if (xl_bc_byte(r, c) != 0xcb)
                XL_BC_FAIL(r, c->p - 1, "padding must be bytes 0xCB");
    }
    if (n > (size_t)(c->end - c->p))
        XL_BC_FAIL(r, at, "section %u has %llu bytes, but only %zu are left: the file is cut short", *id,
                   (unsigned long long)n, (size_t)(c->end - c->p));
    xl_cur s = { c->p, c->p + n };
    c->p += n;
    return s;
}

/* ---- tables ----------------------------------------------------------------------------------------------------- */
static void read_strings(xl_bc *r, xl_cur c)
{
    uint32_t n = xl_bc_count(r, &c, 1);
    uint64_t *size = xl_new(&r->tmp, uint64_t, n), total = 0;
    const uint8_t *at = c.p;
    for (uint32_t i = n; i-- > 0; ) {
        size[i] = xl_bc_varint(r, &c);
        if (size[i] == 0 || size[i] > (size_t)(c.end - c.p))
            XL_BC_FAIL(r, at, "a string of %llu bytes does not fit in its section", (unsigned long long)size[i]);
        total += size[i];
    }
    if (total != (size_t)(c.end - c.p))
        XL_BC_FAIL(r, at, "strings of %llu bytes in a section that holds %zu", (unsigned long long)total,
                   (size_t)(c.end - c.p));
    char *copy = xl_arena_alloc(&r->m->arena, (size_t)total + 1);
    memcpy(copy, c.p, (size_t)total);
    r->str = xl_new(&r->m->arena, xl_str, n);
    r->nstr = n;
    for (uint32_t i = 0; i < n; i++) {
        if (copy[size[i] - 1] != 0)
            XL_BC_FAIL(r, at, "string %u does not end in a NUL", i);
        r->str[i] = (xl_str){ copy, (size_t)size[i] - 1 };
        copy += size[i];
    }
}

static xl_bc_dialect dialect_kind(xl_str s)
{
    static const struct { const char *name; xl_bc_dialect kind; } known[] = {
        { "builtin", XL_BC_BUILTIN }, { "func", XL_BC_FUNC }, { "vhlo", XL_BC_VHLO }, { "stablehlo", XL_BC_STABLEHLO },
        { "chlo", XL_BC_CHLO }, { "sdy", XL_BC_SDY }, { "quant", XL_BC_QUANT },
    };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (xl_str_is(s, known[i].name))
            return known[i].kind;
    return XL_BC_OTHER;
}

static void read_dialects(xl_bc *r, xl_cur c)
{
    unsigned id;
    uint32_t n = xl_bc_count(r, &c, 1), cap = 0;
    if (n > UINT16_MAX)
        XL_BC_FAIL(r, c.p, "%u dialects", n);
    r->dialect = xl_arena_array(&r->tmp, sizeof *r->dialect, n);
    r->ndialect = n;
    for (uint32_t i = 0; i < n; i++) {
        const uint8_t *at = c.p;
        uint64_t v = xl_bc_varint(r, &c);
        bool versioned = r->version >= 1 && (v & 1);
        if (r->version >= 1)
            v >>= 1;
        if (v >= r->nstr)
            XL_BC_FAIL(r, at, "string %llu of %u", (unsigned long long)v, r->nstr);
        r->dialect[i].name = r->str[v];
        r->dialect[i].kind = dialect_kind(r->str[v]);
        if (versioned)
            section(r, &c, &id);
    }
    if (r->version >= 4)
        xl_bc_varint(r, &c);                               /* how many names there are: the groups tell it too */
    while (c.p < c.end) {
        const uint8_t *at = c.p;
        uint64_t d = xl_bc_varint(r, &c);
        if (d >= n)
            XL_BC_FAIL(r, at, "dialect %llu of %u", (unsigned long long)d, n);
        for (uint32_t k = xl_bc_count(r, &c, 1); k-- > 0; ) {
            at = c.p;
            uint64_t v = xl_bc_varint(r, &c);
            bool registered = r->version < 5 || (v & 1);
            if (r->version >= 5)
                v >>= 1;
            if (v >= r->nstr)
                XL_BC_FAIL(r, at, "string %llu of %u", (unsigned long long)v, r->nstr);
            xl_bc_desc desc = { .name = r->str[v], .dialect = (uint16_t)d, .registered = registered };
            XL_PUSH(&r->tmp, r->desc, r->ndesc, cap, desc);
        }
    }
}

static void read_group(xl_bc *r, xl_cur *c, xl_cur *data, xl_bc_entry *e, uint32_t n)
{
    for (uint32_t have = 0; have < n; ) {
        const uint8_t *at = c->p;
        uint64_t d = xl_bc_varint(r, c);
        uint32_t k = xl_bc_count(r, c, 1);
        if (d >= r->ndialect || k > n - have)
            XL_BC_FAIL(r, at, "a group of %u entries of dialect %llu, where %u are left", k, (unsigned long long)d,
                       n - have);
        for (; k > 0; k--, have++) {
            at = c->p;
            uint64_t v = xl_bc_varint(r, c);
            if (v >> 1 > (size_t)(data->end - data->p))
                XL_BC_FAIL(r, at, "an entry of %llu bytes, where %zu are left", (unsigned long long)(v >> 1),
                           (size_t)(data->end - data->p));
            e[have].at = (xl_cur){ data->p, data->p + (v >> 1) };
            e[have].dialect = (uint16_t)d;
            e[have].custom = v & 1;
            data->p += v >> 1;
        }
    }
}

static void read_entries(xl_bc *r, xl_cur offsets, xl_cur data)
{
    uint32_t nattr = xl_bc_count(r, &offsets, 1), ntype = xl_bc_count(r, &offsets, 1);
    r->attr = xl_new(&r->tmp, xl_bc_entry, nattr);
    r->type = xl_new(&r->tmp, xl_bc_entry, ntype);
    r->nattr = nattr;
    r->ntype = ntype;
    read_group(r, &offsets, &data, r->attr, nattr);
    read_group(r, &offsets, &data, r->type, ntype);
    if (offsets.p != offsets.end || data.p != data.end)
        XL_BC_FAIL(r, offsets.p, "the attribute and type tables have bytes left over");
}

static void read_props(xl_bc *r, xl_cur c)
{
    r->nprop = xl_bc_count(r, &c, 1);
    r->prop = xl_new(&r->tmp, xl_bc_prop, r->nprop);
    for (uint32_t i = 0; i < r->nprop; i++) {
        xl_str s = xl_bc_blob(r, &c);
        r->prop[i].at = (xl_cur){ (const uint8_t *)s.p, (const uint8_t *)s.p + s.n };
    }
}

/* Only the resources of dialects are looked up; the external ones before them are stepped over. */
static void read_resources(xl_bc *r, xl_cur c, xl_cur data)
{
    uint32_t external = xl_bc_count(r, &c, 1), cap = 0;
    for (uint32_t group = 0; group < external || c.p < c.end; group++) {
        if (group < external)
            xl_bc_str(r, &c);
        else
            xl_bc_varint(r, &c);
        for (uint32_t n = xl_bc_count(r, &c, 3); n > 0; n--) {
            xl_str key = xl_bc_str(r, &c);
            const uint8_t *at = c.p;
            uint64_t size = xl_bc_varint(r, &c);
            uint8_t kind = xl_bc_byte(r, &c);
            if (size > (size_t)(data.end - data.p))
                XL_BC_FAIL(r, at, "a resource of %llu bytes, where %zu are left", (unsigned long long)size,
                           (size_t)(data.end - data.p));
            if (group >= external) {
                if (r->nres == cap) {
                    uint32_t want = cap ? 2 * cap : 8;
                    r->res = xl_arena_grow(&r->tmp, r->res, sizeof *r->res, r->nres, want);
                    cap = want;
                }
                r->res[r->nres].key = key;
                r->res[r->nres].at = (xl_cur){ data.p, data.p + size };
                r->res[r->nres++].kind = kind;
            }
            data.p += size;
        }
    }
}

/* ---- what the names of ops mean ---------------------------------------------------------------------------------- */
/* VHLO ops whose newest version is 2, and the slots that version 1 did not have. All others are at version 1. */
static const struct { const char *name, *missing;
} second[] = {
    { "all_gather", "" },
    { "all_reduce", "" },
    { "all_to_all", "" },
    { "collective_broadcast", "has_dynamic_root" },
    { "composite", "" },
    { "custom_call", "result_tilings" },
    { "dot_general", "accumulation_type allow_imprecise_accumulation lhs_component_count lhs_precision_type "
                     "num_primitive_operations rhs_component_count rhs_precision_type" },
    { "dynamic_conv", "" },
    { "dynamic_gather", "operand_batching_dims start_indices_batching_dims" },
    { "gather", "operand_batching_dims start_indices_batching_dims" },
    { "recv", "source_target_pairs" },
    { "send", "source_target_pairs" },
    { "scatter", "input_batching_dims scatter_indices_batching_dims" },
    { "cbrt", "result_accuracy" },
    { "cosine", "result_accuracy" },
    { "exponential", "result_accuracy" },
    { "exponential_minus_one", "result_accuracy" },
    { "log", "result_accuracy" },
    { "log_plus_one", "result_accuracy" },
    { "logistic", "result_accuracy" },
    { "rsqrt", "result_accuracy" },
    { "sine", "result_accuracy" },
    { "sqrt", "result_accuracy" },
    { "tan", "result_accuracy" },
    { "tanh", "result_accuracy" },
};

/* Native ops whose properties are not simply their slots. ? optional, ! optional and unknown to older producers. */
static const struct { xl_opcode code; const char *props;
} native[] = {
    { XL_OP_ALL_GATHER, "all_gather_dim channel_handle? replica_groups use_global_device_ids?" },
    { XL_OP_ALL_REDUCE, "channel_handle? replica_groups use_global_device_ids?" },
    { XL_OP_ALL_TO_ALL, "channel_handle? concat_dimension replica_groups split_count split_dimension" },
    { XL_OP_COLLECTIVE_BROADCAST, "channel_handle? has_dynamic_root! replica_groups" },
    { XL_OP_COLLECTIVE_PERMUTE, "channel_handle? source_target_pairs" },
    { XL_OP_COLLECTIVE_REDUCE, "channel_handle? has_dynamic_root? replica_groups use_global_device_ids?" },
    { XL_OP_CONVOLUTION,
      "batch_group_count dimension_numbers feature_group_count lhs_dilation? padding? precision_config? rhs_dilation? "
      "window_reversal? window_strides?" },
    { XL_OP_CUSTOM_CALL,
      "api_version? backend_config? call_target_name called_computations? has_side_effect? operand_layouts? "
      "output_operand_aliases? result_layouts? result_tilings!" },
    { XL_OP_DOT_GENERAL, "algorithm? dot_dimension_numbers precision_config?" },
    { XL_OP_DYNAMIC_CONV,
      "batch_group_count dimension_numbers feature_group_count lhs_dilation? precision_config? rhs_dilation? "
      "window_reversal? window_strides?" },
    { XL_OP_DYNAMIC_GATHER, "dimension_numbers indices_are_sorted?" },
    { XL_OP_GATHER, "dimension_numbers indices_are_sorted? slice_sizes" },
    { XL_OP_RECV, "channel_handle is_host_transfer? source_target_pairs!" },
    { XL_OP_REDUCE_SCATTER, "channel_handle? replica_groups scatter_dimension use_global_device_ids?" },
    { XL_OP_SCATTER, "indices_are_sorted? scatter_dimension_numbers unique_indices?" },
    { XL_OP_SEND, "channel_handle is_host_transfer? source_target_pairs!" },
    { XL_OP_SLICE, "limit_indices start_indices strides" },
    { XL_OP_CALL, "arg_attrs! callee no_inline! res_attrs!" },
    { XL_OP_CHLO_TOP_K, "is_stable! k" },
    { XL_OP_CHLO_SCAN, "dimension is_associative? is_reverse? scan_dim_size!" },
    { XL_OP_SDY_ALL_REDUCE, "out_sharding reduction_axes reduction_op!" },
};

static bool has_word(const char *words, const char *w)
{
    xl_str rest = xl_str_of(words);
    while (rest.n)
        if (xl_str_is(xl_str_cut(&rest, ' '), w))
            return true;
    return false;
}

static void add_prop(xl_bc_desc *d, xl_str name, bool drop, bool optional, bool later)
{
    d->prop[d->nprop++] = (prop_row){ name, drop, optional, later };
}

static void describe_slots(xl_bc_desc *d, const char *missing, bool optional)
{
    for (uint32_t i = 0, n = xl_op_nattr(d->code); i < n; i++) {
        const xl_attr_row *row = &xl_attr_rows[xl_ops[d->code].row0 + i];
        if (!has_word(missing, row->name))
            add_prop(d, xl_str_of(row->name), false, optional && row->def != XL_DEF_REQUIRED, false);
    }
}

static void describe_vhlo(xl_bc *r, xl_bc_desc *d, const uint8_t *at)
{
    char text[64];
    xl_str base = d->name;
    int64_t version = -1;
    for (size_t i = base.n; i-- > 2; )
        if (base.p[i] == 'v' && base.p[i - 1] == '_') {
            xl_str_i64((xl_str){ base.p + i + 1, base.n - i - 1 }, &version);
            base.n = i - 1;
            break;
        }
    d->kind = DESC_OP;
    const char *missing = "";
    int64_t newest = 1;
    for (size_t i = 0; i < sizeof second / sizeof *second; i++)
        if (xl_str_is(base, second[i].name)) {
            newest = 2;
            missing = version == 1 ? second[i].missing : "";
        }
    d->code = XL_OP_UNKNOWN;
    if (base.n < 48) {
        snprintf(text, sizeof text, "stablehlo.%.*s", XL_FMT(base));
        d->code = xl_opcode_find(xl_str_of(text));
    }
    if (xl_str_is(base, "call"))
        d->code = XL_OP_CALL;
    if (xl_str_is(base, "func"))
        d->kind = DESC_FUNC;
    if (version < 1 || version > newest || (d->kind == DESC_OP && d->code == XL_OP_UNKNOWN))
        xl_bc_fail(r, at, XL_CODE_UNIMPLEMENTED,
                   "op vhlo.%.*s is newer than this reader, which knows VHLO up to 1.20.0 (producer %.*s); serialise "
                   "for an older version",
                   XL_FMT(d->name), XL_FMT(r->producer));
    if (d->kind == DESC_OP)
        describe_slots(d, missing, false);
    if (d->code == XL_OP_DYNAMIC_CONV && version == 1) {   /* it had `padding` too; its operand says the same */
        uint32_t k = XL_SLOT(DYNAMIC_CONV, precision_config);
        memmove(&d->prop[k + 1], &d->prop[k], (d->nprop++ - k) * sizeof *d->prop);
        d->prop[k] = (prop_row){ .drop = true };
    }
}

static void describe(xl_bc *r, xl_bc_desc *d, const uint8_t *at)
{
    char text[128];
    xl_bc_dialect kind = r->dialect[d->dialect].kind;
    d->kind = DESC_OP;
    d->code = XL_OP_UNKNOWN;
    if (kind == XL_BC_VHLO) {
        describe_vhlo(r, d, at);
        return;
    }
    int n = snprintf(text, sizeof text, "%.*s.%.*s", XL_FMT(r->dialect[d->dialect].name), XL_FMT(d->name));
    xl_str full = { text, (size_t)n };
    if (n >= (int)sizeof text || kind == XL_BC_OTHER)
        return;
    if (xl_str_is(full, "builtin.module"))
        d->kind = DESC_MODULE;
    else if (xl_str_is(full, "func.func"))
        d->kind = DESC_FUNC;
    else if (xl_str_is(full, "sdy.mesh"))
        d->kind = DESC_MESH;
    else if (xl_str_is(full, "builtin.unrealized_conversion_cast"))
        d->kind = DESC_CAST;
    else
        d->code = xl_opcode_find(full);
    if (d->kind != DESC_OP || d->code == XL_OP_UNKNOWN)
        return;
    for (size_t i = 0; i < sizeof native / sizeof *native; i++)
        if (native[i].code == d->code) {
            xl_str rest = xl_str_of(native[i].props);
            while (rest.n) {
                xl_str w = xl_str_cut(&rest, ' ');
                char last = w.p[w.n - 1];
                bool optional = last == '?' || last == '!';
                w.n -= optional;
                add_prop(d, w, d->code == XL_OP_CALL && !xl_str_is(w, "callee"), optional, last == '!');
            }
            return;
        }
    describe_slots(d, "", true);
}

/* ---- attributes of an op ----------------------------------------------------------------------------------------- */
static uint32_t count_refs(xl_bc *r, xl_cur c)
{
    uint32_t n = 0;
    while (c.p < c.end && n < 64) {
        xl_bc_varint(r, &c);
        n++;
    }
    return n;
}

/* The sizes of two groups, dense or as index and value of those that are not zero. */
static const xl_attr *segments(xl_bc *r, xl_cur *c)
{
    const uint8_t *at = c->p;
    int64_t v[2] = { 0, 0 };
    uint64_t head = xl_bc_varint(r, c), n = head >> 1, bits = 0;
    bool sparse = head & 1;
    if (sparse && n)
        bits = xl_bc_varint(r, c);
    if (n > 2 || (!sparse && n != 2) || bits > 8)
        XL_BC_FAIL(r, at, "the operands of chlo.scan are not in two groups");
    for (uint64_t i = 0; i < n; i++) {
        uint64_t e = xl_bc_varint(r, c), k = sparse ? e & ((1u << bits) - 1) : i;
        e >>= bits;
        if (k > 1 || e > INT32_MAX)
            XL_BC_FAIL(r, at, "the operands of chlo.scan are not in two groups");
        v[k] = (int64_t)e;
    }
    return xl_attr_ints(r->m, XL_I32, (xl_dims){ v, 2 });
}

static void put_props(xl_bc *r, xl_bc_desc *d, xl_bc_prop *p, xl_op *op)
{
    uint32_t nslot = xl_op_nattr(d->code);
    if (p->desc != d) {
        xl_cur c = p->at;
        uint64_t before = r->weight;
        const xl_attr **slot = xl_new(&r->tmp, const xl_attr *, nslot);
        bool scan = d->code == XL_OP_CHLO_SCAN; /* its properties end in how its operands and results are grouped */
        uint32_t have = count_refs(r, c);
        have -= scan && have >= 6 ? 6 : 0;                 /* two groups: how many numbers, and the two */
        uint32_t skip = have < d->nprop ? d->nprop - have : 0;
        bool call_args = d->code == XL_OP_CALL && have == 3; /* arg_attrs and res_attrs came before no_inline */
        for (uint32_t i = 0; i < d->nprop; i++) {
            const prop_row *row = &d->prop[i];
            if (skip && row->later && !(call_args && i != 2)) {
                skip--;
                continue;
            }
            const uint8_t *at = c.p;
            uint64_t v = xl_bc_varint(r, &c);
            if (row->optional) {
                if (!(v & 1))
                    continue;
                v >>= 1;
            }
            if (v >= r->nattr)
                XL_BC_FAIL(r, at, "attribute %llu of %u", (unsigned long long)v, r->nattr);
            const xl_attr *a = xl_bc_attr(r, (uint32_t)v);
            const char *why = row->drop ? NULL : xl_slot_put(r->m, d->code, slot, row->name, a);
            if (why)
                XL_BC_FAIL(r, at, "%s: %.*s: %s", xl_ops[d->code].text, XL_FMT(row->name),
                           *why ? why : "the op has no such attribute");
            xl_bc_charge(r, at, r->attr[v].weight);
        }
        if (scan) {
            slot[XL_SLOT(CHLO_SCAN, operandSegmentSizes)] = segments(r, &c);
            slot[XL_SLOT(CHLO_SCAN, resultSegmentSizes)] = segments(r, &c);
        }
        if (c.p != c.end)
            XL_BC_FAIL(r, c.p, "the properties of %s have %zu bytes left over", xl_ops[d->code].text,
                       (size_t)(c.end - c.p));
        p->slot = slot;
        p->desc = d;
        p->weight = (uint32_t)(r->weight - before);
    } else {
        xl_bc_charge(r, p->at.p, p->weight);
    }
    if (nslot)
        memcpy(op->attr, p->slot, nslot * sizeof *op->attr);
}

/* Before version 5 of the format, and for ops that the producer did not know, all attributes are in one dictionary. */
static void put_dict(xl_bc *r, const uint8_t *at, xl_op *op, const xl_attr *dict, bool vhlo)
{
    if (dict->kind != XL_AT_DICT)
        XL_BC_FAIL(r, at, "the attributes of an op must be a dictionary");
    xl_str *key = xl_new(&r->tmp, xl_str, dict->n);
    const xl_attr **item = xl_new(&r->tmp, const xl_attr *, dict->n);
    uint32_t n = 0;
    for (uint32_t i = 0; i < dict->n; i++) {
        xl_str k = dict->key[i];
        if (vhlo && op->code == XL_OP_DYNAMIC_CONV && xl_str_is(k, "padding"))
            continue;
        const char *why =
            op->code == XL_OP_UNKNOWN ? "" : xl_slot_put(r->m, (xl_opcode)op->code, op->attr, k, dict->item[i]);
        if (why && *why)
            XL_BC_FAIL(r, at, "%s: %.*s: %s", xl_op_text(op), XL_FMT(k), why);
        if (why) {
            key[n] = k;
            item[n++] = dict->item[i];
        }
    }
    op->extra = n == dict->n ? dict : xl_attr_dict(r->m, key, item, n);
}

/* ---- ops -------------------------------------------------------------------------------------------------------- */
typedef struct {
    xl_bc_desc *desc;
    const uint8_t *at;
    uint8_t mask;
    xl_loc loc;
    uint32_t dict, prop;                                   /* index + 1; 0: none */
    uint32_t nout, nin, nregion;
    bool isolated;
} op_head;

static void skip_uses(xl_bc *r, xl_cur *c, uint32_t n)
{
    uint64_t k = n > 1 ? xl_bc_varint(r, c) : 1;
    if (k > (size_t)(c->end - c->p))
        XL_BC_FAIL(r, c->p, "a use list of %llu entries", (unsigned long long)k);
    for (; k > 0; k--) {
        if (n > 1)
            xl_bc_varint(r, c);
        uint64_t m = xl_bc_varint(r, c) >> 1;
        if (m > (size_t)(c->end - c->p))
            XL_BC_FAIL(r, c->p, "a use list of %llu numbers", (unsigned long long)m);
        for (; m > 0; m--)
            xl_bc_varint(r, c);
    }
}

/* Everything of an op but its regions. Result types and operands are left in r->ty and r->in. */
static void read_head(xl_bc *r, xl_cur *c, op_head *h)
{
    *h = (op_head){ .at = c->p };
    uint64_t v = xl_bc_varint(r, c);
    if (v >= r->ndesc)
        XL_BC_FAIL(r, h->at, "op name %llu of %u", (unsigned long long)v, r->ndesc);
    h->desc = &r->desc[v];
    if (h->desc->kind == DESC_NEW)
        describe(r, h->desc, h->at);
    h->mask = xl_bc_byte(r, c);
    h->loc = xl_bc_loc(r, xl_bc_attr_index(r, c));
    if (h->mask & OP_ATTRS)
        h->dict = xl_bc_attr_index(r, c) + 1;
    if (h->mask & OP_PROPS) {
        v = xl_bc_varint(r, c);
        if (v >= r->nprop)
            XL_BC_FAIL(r, h->at, "properties %llu of %u", (unsigned long long)v, r->nprop);
        h->prop = (uint32_t)v + 1;
    }
    if (h->mask & OP_RESULTS) {
        h->nout = xl_bc_count(r, c, 1);
        if (h->nout > r->capty) {
            r->capty = h->nout + 16;
            r->ty = xl_new(&r->tmp, const xl_type *, r->capty);
        }
        for (uint32_t i = 0; i < h->nout; i++)
            r->ty[i] = xl_bc_type_ref(r, c);
    }
    if (h->mask & OP_OPERANDS) {
        h->nin = xl_bc_count(r, c, 1);
        if (h->nin > r->capin) {
            r->capin = h->nin + 16;
            r->in = xl_new(&r->tmp, xl_value, r->capin);
        }
        for (uint32_t i = 0; i < h->nin; i++) {
            const uint8_t *at = c->p;
            v = xl_bc_varint(r, c);
            if (v >= r->nids - r->scope || r->ids[r->scope + v].id == UINT32_MAX)
                XL_BC_FAIL(r, at, "value %llu is used here but not yet defined", (unsigned long long)v);
            r->in[i] = r->ids[r->scope + v];
        }
    }
    if (h->mask & OP_SUCCESSORS)
        xl_bc_fail(r, h->at, XL_CODE_UNIMPLEMENTED, "an op that branches to blocks has no place in StableHLO");
    if (h->mask & OP_USES)
        skip_uses(r, c, h->nout);
    if (h->mask & OP_REGIONS) {
        const uint8_t *at = c->p;
        v = xl_bc_varint(r, c);
        h->isolated = v & 1;
        if (v >> 1 > UINT16_MAX || v >> 1 > (size_t)(c->end - c->p))
            XL_BC_FAIL(r, at, "%llu regions", (unsigned long long)(v >> 1));
        h->nregion = (uint32_t)(v >> 1);
    }
}

static void define(xl_bc *r, const uint8_t *at, uint32_t *next, xl_value v)
{
    if (*next >= r->nids)
        XL_BC_FAIL(r, at, "the region defines more values than it said");
    r->ids[(*next)++] = v;
}

/* One region's numbers: taken from the stack when it opens, given back when it closes. */
static uint32_t open_region(xl_bc *r, xl_cur *c)
{
    const uint8_t *at = c->p;
    uint64_t n = xl_bc_varint(r, c);
    if (n > (size_t)(c->end - c->p))
        XL_BC_FAIL(r, at, "a region of %llu values with only %zu bytes left", (unsigned long long)n,
                   (size_t)(c->end - c->p));
    uint32_t base = r->nids;
    if (n > r->capids - base) {
        size_t cap = 2 * ((size_t)base + n) + 64;
        if (cap > UINT32_MAX)
            XL_BC_FAIL(r, at, "too many values");
        r->ids = xl_arena_grow(&r->tmp, r->ids, sizeof *r->ids, base, cap);
        r->capids = (uint32_t)cap;
    }
    if (n)
        memset(r->ids + base, 0xff, n * sizeof *r->ids);       /* XL_NO_VALUE: not yet defined */
    r->nids = base + (uint32_t)n;
    return base;
}

static void read_op(xl_bc *r, xl_cur *c, xl_func *f, xl_region *into, uint32_t *next);

static void read_block(xl_bc *r, xl_cur *c, xl_func *f, xl_region *into, uint32_t *next)
{
    const uint8_t *at = c->p;
    uint64_t v = xl_bc_varint(r, c), nop = v >> 1;
    if (nop > (size_t)(c->end - c->p) / 3)
        XL_BC_FAIL(r, at, "%llu ops with only %zu bytes left", (unsigned long long)nop, (size_t)(c->end - c->p));
    if (v & 1) {
        uint32_t n = xl_bc_count(r, c, 1);
        for (uint32_t i = 0; i < n; i++) {
            const xl_type *t;
            xl_loc loc = { 0 };
            at = c->p;
            if (r->version >= 4) {
                v = xl_bc_varint(r, c);
                if (v >> 1 >= r->ntype)
                    XL_BC_FAIL(r, at, "type %llu of %u", (unsigned long long)(v >> 1), r->ntype);
                t = xl_bc_type(r, (uint32_t)(v >> 1));
                xl_bc_charge(r, at, r->type[v >> 1].weight);
                if (v & 1)
                    loc = xl_bc_loc(r, xl_bc_attr_index(r, c));
            } else {
                t = xl_bc_type_ref(r, c);
                loc = xl_bc_loc(r, xl_bc_attr_index(r, c));
            }
            define(r, at, next, xl_region_add_arg(f, into, t, loc));
        }
        if (r->version >= 3 && xl_bc_byte(r, c))
            skip_uses(r, c, n);
    }
    for (; nop > 0; nop--)
        read_op(r, c, f, into, next);
}

static void read_regions(xl_bc *r, xl_cur *c, const op_head *h, xl_func *f, xl_region **region, bool *empty)
{
    uint32_t scope = r->scope;
    xl_cur inner = *c;
    unsigned id;
    if (++r->nest > REGION_DEPTH_MAX)
        XL_BC_FAIL(r, c->p, "regions nest deeper than %d", REGION_DEPTH_MAX);
    bool boxed = h->isolated && r->version >= 2;
    if (boxed) {
        inner = section(r, c, &id);
        if (id != SEC_IR)
            XL_BC_FAIL(r, inner.p, "an op's regions must be in an IR section");
    }
    if (h->isolated)
        r->scope = r->nids;
    for (uint32_t i = 0; i < h->nregion; i++) {
        const uint8_t *at = inner.p;
        uint64_t blocks = xl_bc_varint(r, &inner);
        if (blocks == 0 && empty) {
            *empty = true;
            continue;
        }
        if (blocks != 1)
            xl_bc_fail(r, at, XL_CODE_UNIMPLEMENTED, "a region of %llu blocks: StableHLO's have one",
                       (unsigned long long)blocks);
        uint32_t base = open_region(r, &inner), next = base;
        read_block(r, &inner, f, region[i], &next);
        r->nids = base;
    }
    r->scope = scope;
    r->nest--;
    if (!boxed)
        c->p = inner.p;
    else if (inner.p != inner.end)
        XL_BC_FAIL(r, inner.p, "%zu bytes are left over after an op's regions", (size_t)(inner.end - inner.p));
}

static void read_op(xl_bc *r, xl_cur *c, xl_func *f, xl_region *into, uint32_t *next)
{
    op_head h;
    read_head(r, c, &h);
    xl_bc_desc *d = h.desc;
    if (d->kind == DESC_CAST) { /* between two spellings of one type: its result is its operand */
        if (h.nin != h.nout || h.nregion)
            XL_BC_FAIL(r, h.at, "a conversion cast of %u values to %u", h.nin, h.nout);
        for (uint32_t i = 0; i < h.nin; i++)
            define(r, h.at, next, r->in[i]);
        return;
    }
    if (d->kind != DESC_OP)
        XL_BC_FAIL(r, h.at, "%.*s.%.*s inside a function", XL_FMT(r->dialect[d->dialect].name), XL_FMT(d->name));
    xl_op *op = xl_op_new(f, into, d->code, r->in, h.nin, r->ty, h.nout, h.nregion, h.loc);
    for (uint32_t i = 0; i < h.nout; i++)
        define(r, h.at, next, op->out[i]);
    if (d->code == XL_OP_UNKNOWN) {
        op->name = xl_strf(&r->m->arena, "%.*s.%.*s", XL_FMT(r->dialect[d->dialect].name), XL_FMT(d->name));
        if (h.prop && d->registered)
            xl_bc_fail(r, h.at, XL_CODE_UNIMPLEMENTED,
                       "op %.*s is not known here, and its properties cannot be read without knowing it",
                       XL_FMT(op->name));
    }
    bool vhlo = r->dialect[d->dialect].kind == XL_BC_VHLO;
    if (h.dict) {
        const xl_attr *dict = xl_bc_attr(r, h.dict - 1);
        xl_bc_charge(r, h.at, r->attr[h.dict - 1].weight);
        if (r->version < 5 || d->code == XL_OP_UNKNOWN)
            put_dict(r, h.at, op, dict, vhlo);
        else if (dict->kind != XL_AT_DICT)
            XL_BC_FAIL(r, h.at, "the attributes of an op must be a dictionary");
        else
            op->extra = dict;
    }
    if (h.prop && d->code == XL_OP_UNKNOWN) {
        xl_cur p = r->prop[h.prop - 1].at;
        uint32_t i = xl_bc_attr_index(r, &p);
        xl_bc_charge(r, h.at, r->attr[i].weight);
        const xl_attr *dict = xl_bc_attr(r, i), *extra = op->extra;
        put_dict(r, h.at, op, dict, false);
        for (uint32_t k = 0; extra && k < extra->n; k++)
            op->extra = xl_dict_with(r->m, op->extra, extra->key[k], extra->item[k]);
    } else if (h.prop) {
        put_props(r, d, &r->prop[h.prop - 1], op);
    }
    for (uint32_t i = 0, n = xl_op_nattr(d->code); i < n; i++)
        if (!op->attr[i] && xl_attr_rows[xl_ops[d->code].row0 + i].def == XL_DEF_REQUIRED)
            XL_BC_FAIL(r, h.at, "%s lacks its attribute %s", xl_ops[d->code].text,
                       xl_attr_rows[xl_ops[d->code].row0 + i].name);
    xl_op_normalize(r->m, op);
    if (h.nregion)
        read_regions(r, c, &h, f, op->region, NULL);
}

/* ---- functions and the module ------------------------------------------------------------------------------------ */
typedef struct { const xl_attr *args, *res, *type, *name, *visibility; } func_attrs;

static const xl_attr *take(xl_bc *r, xl_cur *c, bool optional)
{
    const uint8_t *at = c->p;
    uint64_t v = xl_bc_varint(r, c);
    if (optional) {
        if (!(v & 1))
            return NULL;
        v >>= 1;
    }
    if (v >= r->nattr)
        XL_BC_FAIL(r, at, "attribute %llu of %u", (unsigned long long)v, r->nattr);
    const xl_attr *a = xl_bc_attr(r, (uint32_t)v);
    xl_bc_charge(r, at, r->attr[v].weight);
    return a;
}

static const xl_attr **attr_list(xl_bc *r, const op_head *h, const xl_attr *a, uint32_t n)
{
    const xl_attr **out = xl_new(&r->m->arena, const xl_attr *, n);
    if (!a)
        return out;
    if (a->kind != XL_AT_ARRAY || (a->n && a->n != n))
        XL_BC_FAIL(r, h->at, "attributes for %u arguments or results, where the function has %u",
                   a->kind == XL_AT_ARRAY ? a->n : 0, n);
    for (uint32_t i = 0; i < a->n; i++) {
        if (a->item[i]->kind != XL_AT_DICT)
            XL_BC_FAIL(r, h->at, "the attributes of an argument must be a dictionary");
        out[i] = a->item[i]->n ? a->item[i] : NULL;
    }
    return out;
}

static void read_func(xl_bc *r, xl_cur *c, const op_head *h)
{
    bool vhlo = r->dialect[h->desc->dialect].kind == XL_BC_VHLO;
    func_attrs a = { 0 };
    const xl_attr *extra = NULL;
    if (h->dict) {
        const xl_attr *d = xl_bc_attr(r, h->dict - 1);
        xl_bc_charge(r, h->at, r->attr[h->dict - 1].weight);
        xl_str *key = xl_new(&r->tmp, xl_str, d->n);
        const xl_attr **item = xl_new(&r->tmp, const xl_attr *, d->n);
        uint32_t n = 0;
        for (uint32_t i = 0; d->kind == XL_AT_DICT && i < d->n; i++) {
            xl_str k = d->key[i];
            const xl_attr **to = r->version >= 5                  ? NULL
                                 : xl_str_is(k, "arg_attrs")      ? &a.args
                                 : xl_str_is(k, "res_attrs")      ? &a.res
                                 : xl_str_is(k, "function_type")  ? &a.type
                                 : xl_str_is(k, "sym_name")       ? &a.name
                                 : xl_str_is(k, "sym_visibility") ? &a.visibility
                                                                  : NULL;
            if (to) {
                *to = d->item[i];
                continue;
            }
            key[n] = k;
            item[n++] = d->item[i];
        }
        if (n)
            extra = xl_attr_dict(r->m, key, item, n);
    }
    if (h->prop) {
        xl_cur p = r->prop[h->prop - 1].at;
        uint32_t refs = count_refs(r, p);
        a.args = take(r, &p, !vhlo);
        a.type = take(r, &p, false);
        if (!vhlo && refs == 6 && take(r, &p, true))
            extra = xl_dict_with(r->m, extra, XL_STR("no_inline"), xl_attr_unit(r->m));
        a.res = take(r, &p, !vhlo);
        a.name = take(r, &p, false);
        a.visibility = take(r, &p, !vhlo);
        if (p.p != p.end)
            XL_BC_FAIL(r, p.p, "the properties of a function have bytes left over");
    }
    if (!a.name || a.name->kind != XL_AT_STR || !a.type || a.type->kind != XL_AT_TYPE ||
        a.type->type->kind != XL_TY_FUNC)
        XL_BC_FAIL(r, h->at, "a function without a name or a function type");
    if (h->nregion != 1 || h->nin || h->nout)
        XL_BC_FAIL(r, h->at, "function %.*s has %u regions, %u operands, %u results", XL_FMT(a.name->str), h->nregion,
                   h->nin, h->nout);
    xl_func *f = xl_func_new(r->m, a.name->str);
    const xl_type *t = a.type->type;
    f->type = t;
    f->loc = h->loc;
    f->extra = extra;
    if (a.visibility && a.visibility->kind == XL_AT_STR)
        f->visibility = xl_str_is(a.visibility->str, "private")  ? XL_PRIVATE
                        : xl_str_is(a.visibility->str, "nested") ? XL_NESTED
                                                                 : XL_PUBLIC;
    f->arg_attr = attr_list(r, h, a.args, t->nin);
    f->res_attr = attr_list(r, h, a.res, t->nelem - t->nin);
    bool empty = false;
    read_regions(r, c, h, f, &f->body, &empty);
    if (empty) {
        f->body = NULL;
        return;
    }
    bool same = f->body->narg == t->nin;
    for (uint32_t i = 0; same && i < t->nin; i++)
        same = xl_value_type(f, f->body->arg[i]) == t->elem[i];
    if (!same)
        XL_BC_FAIL(r, h->at, "the arguments of %.*s are not those of its type", XL_FMT(f->name));
}

static void read_mesh(xl_bc *r, const op_head *h)
{
    const xl_attr *mesh = NULL, *name = NULL;
    if (h->prop) {
        xl_cur p = r->prop[h->prop - 1].at;
        mesh = take(r, &p, false);
        name = take(r, &p, false);
    } else if (h->dict) {
        const xl_attr *d = xl_bc_attr(r, h->dict - 1);
        mesh = xl_dict_get(d, XL_STR("mesh"));
        name = xl_dict_get(d, XL_STR("sym_name"));
    }
    if (!mesh || mesh->kind != XL_AT_MESH || !name || name->kind != XL_AT_STR || h->nregion)
        XL_BC_FAIL(r, h->at, "sdy.mesh without a name or a mesh");
    xl_mesh_sym s = { name->str, mesh->mesh, h->loc };
    XL_PUSH(&r->m->arena, r->m->mesh, r->m->nmesh, r->m->capmesh, s);
}

static void read_module(xl_bc *r, xl_cur *c, const op_head *h)
{
    xl_module *m = r->m;
    unsigned id;
    if (h->dict) {
        const xl_attr *d = xl_bc_attr(r, h->dict - 1);
        xl_bc_charge(r, h->at, r->attr[h->dict - 1].weight);
        if (d->kind != XL_AT_DICT)
            XL_BC_FAIL(r, h->at, "the attributes of the module must be a dictionary");
        const xl_attr *name = r->version < 5 ? xl_dict_get(d, XL_STR("sym_name")) : NULL;
        if (name && name->kind == XL_AT_STR) {
            m->name = name->str;
            d = xl_dict_with(m, d, XL_STR("sym_name"), NULL);
        }
        m->extra = d && d->n ? d : NULL;
    }
    if (h->prop) {
        xl_cur p = r->prop[h->prop - 1].at;
        const xl_attr *name = take(r, &p, true);
        if (name && name->kind == XL_AT_STR)
            m->name = name->str;
    }
    if (h->nregion != 1)
        XL_BC_FAIL(r, h->at, "a module of %u regions", h->nregion);
    xl_cur in = *c;
    if (h->isolated && r->version >= 2) {
        in = section(r, c, &id);
        if (id != SEC_IR)
            XL_BC_FAIL(r, in.p, "the module's region must be in an IR section");
    }
    const uint8_t *at = in.p;
    if (xl_bc_varint(r, &in) != 1)
        XL_BC_FAIL(r, at, "a module has one block");
    open_region(r, &in);
    uint64_t v = xl_bc_varint(r, &in);
    if (v & 1)
        XL_BC_FAIL(r, at, "a module has no arguments");
    for (v >>= 1; v > 0; v--) {
        op_head inner;
        read_head(r, &in, &inner);
        if (inner.desc->kind == DESC_FUNC)
            read_func(r, &in, &inner);
        else if (inner.desc->kind == DESC_MESH)
            read_mesh(r, &inner);
        else
            xl_bc_fail(r, inner.at, XL_CODE_UNIMPLEMENTED, "%.*s.%.*s directly in a module",
                       XL_FMT(r->dialect[inner.desc->dialect].name), XL_FMT(inner.desc->name));
    }
    if (!(h->isolated && r->version >= 2))
        c->p = in.p;
    else if (in.p != in.end)
        XL_BC_FAIL(r, in.p, "%zu bytes are left over after the module", (size_t)(in.end - in.p));
}

static void read_all(xl_bc *r)
{
    xl_cur c = { r->base, r->end }, sec[SEC_COUNT] = { 0 };
    bool have[SEC_COUNT] = { false };
    static const uint8_t magic[4] = { 'M', 'L', 0xef, 'R' };
    if (r->end - r->base < 4 || memcmp(r->base, magic, 4))
        XL_BC_FAIL(r, r->base, "this is not MLIR bytecode: it does not begin with 4D 4C EF 52");
    c.p += 4;
    r->version = xl_bc_varint(r, &c);
    if (r->version > BYTECODE_MAX)
        xl_bc_fail(r, r->base + 4, XL_CODE_UNIMPLEMENTED,
                   "format version %llu, but this reader knows 0 to %d; write an older one",
                   (unsigned long long)r->version, BYTECODE_MAX);
    const uint8_t *nul = memchr(c.p, 0, (size_t)(c.end - c.p));
    if (!nul)
        XL_BC_FAIL(r, c.p, "the producer's name does not end");
    r->producer = (xl_str){ (const char *)c.p, (size_t)(nul - c.p) > 80 ? 80 : (size_t)(nul - c.p) };
    c.p = nul + 1;
    while (c.p < c.end) {
        unsigned id;
        const uint8_t *at = c.p;
        xl_cur s = section(r, &c, &id);
        if (id >= SEC_COUNT || id == SEC_VERSIONS || have[id])
            XL_BC_FAIL(r, at, "section %u is unknown or comes twice", id);
        have[id] = true;
        sec[id] = s;
    }
    for (int i = 0; i < SEC_COUNT; i++)
        if (!have[i] && i != SEC_RES && i != SEC_RES_OFFSET && i != SEC_VERSIONS && !(i == SEC_PROPS && r->version < 5))
            XL_BC_FAIL(r, r->end, "section %d is missing: the file is cut short", i);
    read_strings(r, sec[SEC_STRING]);
    if (have[SEC_PROPS])
        read_props(r, sec[SEC_PROPS]);
    read_dialects(r, sec[SEC_DIALECT]);
    if (have[SEC_RES] && have[SEC_RES_OFFSET])
        read_resources(r, sec[SEC_RES_OFFSET], sec[SEC_RES]);
    read_entries(r, sec[SEC_ATTR_OFFSET], sec[SEC_ATTR]);
    xl_bc_locations(r);
    c = sec[SEC_IR];
    uint64_t v = xl_bc_varint(r, &c);
    op_head h;
    if (v != 2)
        XL_BC_FAIL(r, sec[SEC_IR].p, "a file must hold one module, not %llu things", (unsigned long long)(v >> 1));
    read_head(r, &c, &h);
    if (h.desc->kind != DESC_MODULE)
        XL_BC_FAIL(r, h.at, "a file must hold a module, not %.*s.%.*s", XL_FMT(r->dialect[h.desc->dialect].name),
                   XL_FMT(h.desc->name));
    read_module(r, &c, &h);
    if (c.p != c.end)
        XL_BC_FAIL(r, c.p, "%zu bytes are left over after the module", (size_t)(c.end - c.p));
}

/* False if it left by longjmp; then r->err says why, or is NULL for want of memory. */
static bool attempt(xl_bc *r)
{
    if (setjmp(r->fail))
        return false;
    read_all(r);
    return true;
}

xl_error *xl_read_bytecode(xl_str bytes, const xl_read_opts *opts, xl_module **out)
{
    *out = NULL;
    xl_bc *r = calloc(1, sizeof *r);                       /* in memory of its own: longjmp must not lose its fields */
    if (!r)
        return XL_ERR(EXHAUSTED, "no memory for a bytecode reader");
    size_t limit = xl_reading_limit(bytes, opts);
    r->m = xl_reading_begin(limit, &r->tmp, &r->fail);
    r->base = (const uint8_t *)bytes.p;
    r->end = r->base + bytes.n;
    r->no_locations = opts && opts->no_locations;
    r->max_weight = ((uint64_t)1 << 20) + 64 * (uint64_t)bytes.n;
    bool done = r->m && attempt(r);
    xl_error *err = xl_reading_end("bytecode", r->m, done, limit, bytes.n, r->err, out);
    xl_buf_fini(&r->text);
    xl_arena_fini(&r->tmp);
    free(r);
    return err;
}
