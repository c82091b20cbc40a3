/* Types and attributes of the text. */
#include "ir/num.h"
#include "ir/text/text.h"

#define PUSH(arr, n, cap, x) XL_PUSH(&p->tmp, p->arr, p->n, p->cap, x)

/* ---- types ------------------------------------------------------------------------------------------------------ */
static xl_dtype dtype_of(xl_text *p, xl_str w)
{
    xl_dtype d = xl_dtype_find(w);
    if (d == XL_DT_NONE && w.n > 2 && w.p[0] == 's' && w.p[1] == 'i') /* si8: what signless means here */
        d = xl_dtype_find((xl_str){ w.p + 1, w.n - 1 });
    if (d == XL_DT_NONE)
        xl_text_fail(p, "there is no element type '%.*s'", (int)(w.n < 40 ? w.n : 40), w.p);
    return d;
}

double xl_text_float(xl_text *p)
{
    double v;
    text_skip(p);
    if (!xl_num_scan(&p->s, &v))
        xl_text_fail(p, "expected a number");
    return v;
}

/* !quant.uniform<i8<-128:127>:f32:AXIS, {scale:zero, ...}> */
static const xl_quant *quant(xl_text *p)
{
    xl_quant *q = xl_new(&p->m->arena, xl_quant, 1);
    xl_text_want(p, '<');
    xl_str word = xl_text_ident(p);
    if (word.n > 1 && word.p[0] == 'u' && xl_text_is(word.p[1], XL_CH_DIGIT)) /* u8, as this dialect spells ui8 */
        word = xl_strf(&p->tmp, "ui%.*s", (int)(word.n - 1 < 40 ? word.n - 1 : 40), word.p + 1);
    q->storage = dtype_of(p, word);
    xl_dclass cls = xl_dtype_class(q->storage);
    if (cls != XL_CLASS_INT && cls != XL_CLASS_UINT)
        xl_text_fail(p, "a quantised type is stored in integers");
    q->is_signed = cls == XL_CLASS_INT;
    unsigned bits = xl_dtypes[q->storage].bits;
    if (bits == 0 || bits > 32)
        xl_text_fail(p, "a quantised type is stored in at most 32 bits");
    q->min = q->is_signed ? -((int64_t)1 << (bits - 1)) : 0;
    q->max = q->is_signed ? ((int64_t)1 << (bits - 1)) - 1 : ((int64_t)1 << bits) - 1;
    if (text_take(p, '<')) {
        q->min = xl_text_int(p);
        xl_text_want(p, ':');
        q->max = xl_text_int(p);
        xl_text_want(p, '>');
    }
    xl_text_want(p, ':');
    q->expressed = dtype_of(p, xl_text_ident(p));
    if (text_take(p, ':')) {
        q->per_axis = true;
        q->axis = xl_text_int(p);
    }
    xl_text_want(p, ',');
    bool list = text_take(p, '{');
    double *scale = NULL;
    int64_t *zero = NULL;
    uint32_t ncap = 0, zcap = 0, nz = 0;
    do {
        XL_PUSH(&p->m->arena, scale, q->n, ncap, xl_text_float(p));
        int64_t z = text_take(p, ':') ? xl_text_int(p) : 0;
        XL_PUSH(&p->m->arena, zero, nz, zcap, z);
    } while (list && text_take(p, ','));
    if (list)
        xl_text_want(p, '}');
    xl_text_want(p, '>');
    q->scale = scale;
    q->zero = zero;
    return q;
}

static xl_dtype element(xl_text *p, const xl_quant **q)
{
    if (*p->s == '!') {
        p->s++;
        xl_str w = xl_text_ident(p);
        if (!xl_str_is(w, "quant.uniform"))
            xl_text_fail(p, "a tensor cannot hold '!%.*s'", XL_FMT(w));
        *q = quant(p);
        return (*q)->storage;
    }
    xl_str w = xl_text_ident(p);
    if (xl_str_is(w, "complex")) {
        xl_text_want(p, '<');
        xl_str e = xl_text_ident(p);
        xl_text_want(p, '>');
        if (xl_str_is(e, "f32"))
            return XL_C64;
        if (xl_str_is(e, "f64"))
            return XL_C128;
        xl_text_fail(p, "there is no complex<%.*s>", XL_FMT(e));
    }
    return dtype_of(p, w);
}

/* After tensor< or memref<. */
static const xl_type *shaped(xl_text *p, xl_type_kind kind)
{
    xl_type t = { .kind = kind };
    uint32_t mark = p->nnum;
    int64_t *bounds = NULL;
    text_skip(p);
    if (*p->s == '*') {
        p->s++;
        if (*p->s++ != 'x')
            xl_text_fail(p, "expected 'x' after '*'");
        t.unranked = true;
    } else {
        while (*p->s == '?' || xl_text_is(*p->s, XL_CH_DIGIT)) {
            int64_t d = 0;
            if (*p->s == '?') {
                p->s++;
                d = XL_DYN;
            } else {
                for (; xl_text_is(*p->s, XL_CH_DIGIT); p->s++)
                    if (__builtin_mul_overflow(d, 10, &d) || __builtin_add_overflow(d, *p->s - '0', &d))
                        xl_text_fail(p, "a dimension does not fit in 64 bits");
            }
            if (*p->s != 'x')
                xl_text_fail(p, "expected 'x' after a dimension");
            p->s++;
            PUSH(num, nnum, capnum, d);
        }
    }
    t.dtype = element(p, &t.quant);
    t.rank = p->nnum - mark;
    if (text_take(p, ',')) {
        text_skip(p);
        const xl_attr *e = xl_text_attr(p);
        if (e->kind == XL_AT_STRUCT && xl_str_is(e->str, "stablehlo.type_extensions") && kind == XL_TY_TENSOR) {
            const xl_attr *b = xl_dict_get(e, XL_STR("bounds"));
            if (!b || b->kind != XL_AT_INTS || b->n != t.rank)
                xl_text_fail(p, "there must be as many bounds as dimensions");
            bounds = xl_new(&p->tmp, int64_t, t.rank);
            memcpy(bounds, b->ints, t.rank * sizeof *bounds);
        } else {
            t.encoding = e;
        }
    }
    xl_text_want(p, '>');
    t.dims = p->num + mark;
    t.bounds = bounds;
    const xl_type *r = xl_type_intern(p->m, &t);
    p->nnum = mark;
    return r;
}

/* T, T, ... onto p->ty until `close`, which is taken. */
static void type_list(xl_text *p, char close)
{
    if (text_take(p, close))
        return;
    do {
        const xl_type *t = xl_text_type_of(p);
        PUSH(ty, nty, capty, t);
    } while (text_take(p, ','));
    xl_text_want(p, close);
}

static const xl_type *opaque_type(xl_text *p, xl_str name)
{
    const xl_attr *a;
    xl_str head = xl_strf(&p->tmp, "!%.*s", XL_FMT(name));
    if (*p->s == '<')
        a = xl_text_raw(p, head);
    else
        a = xl_attr_opaque(p->m, head);
    return xl_type_intern(p->m, &(xl_type){ .kind = XL_TY_OPAQUE, .text = a->str });
}

static const xl_type *type_slow(xl_text *p)
{
    xl_text_enter(p);
    uint32_t mark = p->nty;
    const xl_type *t = NULL;
    if (*p->s == '(') {
        p->s++;
        type_list(p, ')');
        uint32_t nin = p->nty - mark;
        text_skip(p);
        if (p->s[0] != '-' || p->s[1] != '>')
            xl_text_fail(p, "expected '->'");
        p->s += 2;
        if (text_take(p, '(')) {
            type_list(p, ')');
        } else {
            const xl_type *r = xl_text_type_of(p);
            PUSH(ty, nty, capty, r);
        }
        t = xl_type_func(p->m, p->ty + mark, nin, p->ty + mark + nin, p->nty - mark - nin);
    } else if (*p->s == '!') {
        const char *from = ++p->s;
        while (xl_text_is(*p->s, XL_CH_WORD))
            p->s++;
        xl_str w = { from, (size_t)(p->s - from) };
        if (xl_str_is(w, "stablehlo.token") || xl_str_is(w, "mhlo.token")) {
            t = xl_type_token(p->m);
        } else if (xl_str_is(w, "stablehlo.future")) {
            xl_text_want(p, '<');
            type_list(p, '>');
            t = xl_type_intern(p->m, &(xl_type){ .kind = XL_TY_FUTURE, .nelem = p->nty - mark, .elem = p->ty + mark });
        } else if (xl_str_is(w, "quant.uniform")) {
            const xl_quant *q = quant(p);
            t = xl_type_intern(p->m, &(xl_type){ .kind = XL_TY_TENSOR, .dtype = q->storage, .quant = q });
        } else if (!memchr(w.p, '.', w.n)) {
            xl_text_alias *a = xl_text_find_alias(p, (xl_str){ from - 1, w.n + 1 });
            if (!a->defined)
                xl_text_fail(p, "there is no type alias '!%.*s' before this", XL_FMT(w));
            t = a->what;
        } else {
            t = opaque_type(p, w);
        }
    } else {
        xl_str w = xl_text_ident(p);
        if (xl_str_is(w, "tensor")) {
            xl_text_want(p, '<');
            t = shaped(p, XL_TY_TENSOR);
        } else if (xl_str_is(w, "memref")) {
            xl_text_want(p, '<');
            t = shaped(p, XL_TY_BUFFER);
        } else if (xl_str_is(w, "tuple")) {
            xl_text_want(p, '<');
            type_list(p, '>');
            t = xl_type_tuple(p->m, p->ty + mark, p->nty - mark);
        } else if (xl_str_is(w, "none")) {
            t = xl_type_intern(p->m, &(xl_type){ .kind = XL_TY_NONE });
        } else if (xl_str_is(w, "complex")) {
            const xl_quant *q = NULL;
            p->s = w.p;
            t = xl_type_scalar(p->m, element(p, &q));
        } else {
            t = xl_type_scalar(p->m, dtype_of(p, w));
        }
    }
    p->nty = mark;
    text_leave(p);
    return t;
}

/* tensor<8x16xf32> comes thousands of times: known spellings are answered from a table. */
const xl_type *xl_text_type_of(xl_text *p)
{
    text_skip(p);
    const char *s = p->s;
    if (memcmp(s, "tensor<", (size_t)(p->end - s) < 7 ? 0 : 7) != 0 || p->end - s < 8)
        return type_slow(p);
    uint32_t h = 2166136261u;
    const char *q = s + 7;
    for (; *q != '>'; q++) {
        if (!xl_text_is(*q, XL_CH_WORD) && *q != '?')
            return type_slow(p);
        h = (h ^ (unsigned char)*q) * 16777619u;
    }
    h ^= h >> 15;
    xl_str text = { s + 7, (size_t)(q - s - 7) };
    XL_TABLE_EACH(&p->type_index, h, k)
        if (xl_str_eq(p->type[k].text, text)) {
            p->s = q + 1;
            return p->type[k].type;
        }
    xl_text_type known = { text, type_slow(p) };
    xl_table_add(&p->type_index, &p->tmp, h, p->ntype);
    PUSH(type, ntype, captype, known);
    return known.type;
}

/* ---- attributes ------------------------------------------------------------------------------------------------- */
static void ints(xl_text *p)
{
    xl_text_enter(p);
    xl_text_want(p, '[');
    if (!text_take(p, ']')) {
        do {
            if (text_at(p, '[')) {
                ints(p);
            } else {
                int64_t v = xl_text_word(p, "true")    ? 1
                            : xl_text_word(p, "false") ? 0
                            : text_take(p, '?')        ? XL_DYN
                                                       : xl_text_int(p);
                PUSH(num, nnum, capnum, v);
            }
        } while (text_take(p, ','));
        xl_text_want(p, ']');
    }
    text_leave(p);
}

const xl_attr *xl_text_ints(xl_text *p)
{
    uint32_t mark = p->nnum;
    ints(p);
    const xl_attr *a = xl_attr_dims(p->m, (xl_dims){ p->num + mark, p->nnum - mark });
    p->nnum = mark;
    return a;
}

static const xl_attr *list(xl_text *p)                     /* after [ */
{
    uint32_t mark = p->nitem;
    if (!text_take(p, ']')) {
        do {
            const xl_attr *a = xl_text_attr(p);
            PUSH(item, nitem, capitem, a);
        } while (text_take(p, ','));
        xl_text_want(p, ']');
    }
    const xl_attr *a = xl_attr_array(p->m, p->item + mark, p->nitem - mark);
    p->nitem = mark;
    return a;
}

void xl_text_pairs(xl_text *p)
{
    xl_text_enter(p);
    xl_text_want(p, '{');
    if (!text_take(p, '}')) {
        do {
            xl_text_pair e = { text_at(p, '"') ? xl_text_string(p) : xl_text_ident(p), NULL };
            e.value = text_take(p, '=') ? xl_text_attr(p) : xl_attr_unit(p->m);
            PUSH(pair, npair, cappair, e);
        } while (text_take(p, ','));
        xl_text_want(p, '}');
    }
    text_leave(p);
}

const xl_attr *xl_text_keyed(xl_text *p, uint32_t mark, xl_str name)
{
    uint32_t n = p->npair - mark;
    xl_str *key = xl_new(&p->tmp, xl_str, n);
    const xl_attr **val = xl_new(&p->tmp, const xl_attr *, n);
    for (uint32_t i = 0; i < n; i++) {
        key[i] = p->pair[mark + i].key;
        val[i] = p->pair[mark + i].value;
    }
    p->npair = mark;
    if (n > 4096)                                          /* sorting is by insertion: they are short */
        xl_text_fail(p, "a dictionary has more than 4096 entries");
    return name.n ? xl_attr_struct(p->m, name, key, val, n) : xl_attr_dict(p->m, key, val, n);
}

const xl_attr *xl_text_dict(xl_text *p)
{
    uint32_t mark = p->npair;
    xl_text_pairs(p);
    return p->npair == mark ? NULL : xl_text_keyed(p, mark, (xl_str){ 0 });
}

/* The value of a struct's field: lists of integers stay together, and a bare word is a type. */
static const xl_attr *field(xl_text *p)
{
    text_skip(p);
    if (*p->s == '[') {
        const char *s = p->s + 1;
        while (xl_text_is(*s, XL_CH_SPACE))
            s++;
        if (*s == ']' || *s == '-' || *s == '?' || xl_text_is(*s, XL_CH_DIGIT))
            return xl_text_ints(p);
        p->s++;
        return list(p);
    }
    if (*p->s == '(') {                                    /* sub_axis_info: (pre)size */
        p->s++;
        int64_t v[2] = { xl_text_int(p), 0 };
        xl_text_want(p, ')');
        v[1] = xl_text_int(p);
        return xl_attr_dims(p->m, (xl_dims){ v, 2 });
    }
    const xl_attr *a = xl_text_attr(p);                    /* numbers in structs have no type of their own */
    if (a->kind == XL_AT_INT)
        return xl_attr_i64(p->m, a->i);
    if (a->kind == XL_AT_FLOAT)
        return xl_attr_float(p->m, XL_F64, xl_num_round(XL_F64, a->f), a->f);
    return a;
}

const xl_attr *xl_text_struct(xl_text *p, xl_str name)
{
    uint32_t mark = p->npair;
    xl_text_want(p, '<');
    if (!text_take(p, '>')) {
        do {
            xl_text_pair e = { xl_text_ident(p), NULL };
            xl_text_want(p, '=');
            e.value = field(p);
            PUSH(pair, npair, cappair, e);
        } while (text_take(p, ',') && !text_at(p, '>'));   /* a comma may come last */
        xl_text_want(p, '>');
    }
    return xl_text_keyed(p, mark, name);
}

const xl_attr *xl_text_conv(xl_text *p)
{
    static const char *const part[3] = { "input", "kernel", "output" };
    static const char mark_of[3][2] = { { 'b', 'f' }, { 'i', 'o' }, { 'b', 'f' } };
    uint32_t mark = p->npair;
    for (int k = 0; k < 3; k++) {
        int64_t at[2] = { -1, -1 }, spatial[32];
        int64_t dim = 0, nspatial = 0;
        for (int i = 0; i < 32; i++)
            spatial[i] = -1;
        xl_text_want(p, '[');
        if (!text_take(p, ']')) {
            do {
                text_skip(p);
                if (*p->s == mark_of[k][0] || *p->s == mark_of[k][1]) {
                    int64_t *slot = &at[*p->s == mark_of[k][1]];
                    if (*slot >= 0)
                        xl_text_fail(p, "a convolution dimension is given twice");
                    *slot = dim;
                    p->s++;
                } else if (*p->s == '?') {
                    p->s++;
                } else {
                    int64_t d = xl_text_int(p);
                    if (d < 0 || d >= 32 || spatial[d] >= 0)
                        xl_text_fail(p, "a spatial dimension is out of range or given twice");
                    spatial[d] = dim;
                    nspatial = d >= nspatial ? d + 1 : nspatial;
                }
                dim++;
            } while (text_take(p, ','));
            xl_text_want(p, ']');
        }
        for (int i = 0; i < nspatial; i++)
            if (spatial[i] < 0)
                xl_text_fail(p, "spatial dimension %d is missing", i);
        if (at[0] < 0 || at[1] < 0)
            xl_text_fail(p, "a convolution lacks '%c' or '%c'", mark_of[k][0], mark_of[k][1]);
        xl_text_pair e = { xl_strf(&p->tmp, "%s_%s_dimension", part[k], k == 1 ? "input_feature" : "batch"),
                           xl_attr_i64(p->m, at[0]) };
        PUSH(pair, npair, cappair, e);
        e = (xl_text_pair){ xl_strf(&p->tmp, "%s_%s_dimension", part[k], k == 1 ? "output_feature" : "feature"),
                            xl_attr_i64(p->m, at[1]) };
        PUSH(pair, npair, cappair, e);
        e = (xl_text_pair){ xl_strf(&p->tmp, "%s_spatial_dimensions", part[k]),
                            xl_attr_dims(p->m, (xl_dims){ spatial, (size_t)nspatial }) };
        PUSH(pair, npair, cappair, e);
        text_skip(p);
        if (k == 0) {
            if (*p->s++ != 'x')
                xl_text_fail(p, "expected 'x'");
        } else if (k == 1) {
            if (p->s[0] != '-' || p->s[1] != '>')
                xl_text_fail(p, "expected '->'");
            p->s += 2;
        }
    }
    return xl_text_keyed(p, mark, XL_STR("stablehlo.conv"));
}

/* #stablehlo<comparison_direction LT>, after #stablehlo or #chlo. */
static const xl_attr *enum_value(xl_text *p, xl_str name)
{
    int64_t v;
    xl_str word = xl_text_ident(p);
    for (int e = 1; e < XL_ENUM_COUNT; e++)
        if (xl_str_is(name, xl_enum_name((xl_enum)e))) {
            if (!xl_enum_find((xl_enum)e, word, &v))
                xl_text_fail(p, "%.*s has no value '%.*s'", XL_FMT(name), XL_FMT(word));
            return xl_attr_enum(p->m, (xl_enum)e, v);
        }
    return NULL;
}

/* #stablehlo.<name>, whole name w; NULL: none of those known here. */
static const xl_attr *stablehlo_attr(xl_text *p, xl_str w, xl_str name)
{
    if (xl_str_is(name, "conv")) {
        xl_text_want(p, '<');
        if (xl_text_word(p, "raw")) {
            uint32_t mark = p->npair;
            while (!text_at(p, '>')) {
                xl_text_pair e = { xl_text_ident(p), NULL };
                xl_text_want(p, '=');
                e.value = field(p);
                PUSH(pair, npair, cappair, e);
                if (!text_take(p, ','))
                    break;
            }
            xl_text_want(p, '>');
            return xl_text_keyed(p, mark, w);
        }
        const xl_attr *a = xl_text_conv(p);
        xl_text_want(p, '>');
        return a;
    }
    if (xl_str_is(name, "bounds")) {
        uint32_t mark = p->nnum;
        xl_text_want(p, '<');
        if (!text_at(p, '>'))
            do {
                int64_t v = text_take(p, '?') ? XL_DYN : xl_text_int(p);
                PUSH(num, nnum, capnum, v);
            } while (text_take(p, ','));
        xl_text_want(p, '>');
        const xl_attr *b = xl_attr_dims(p->m, (xl_dims){ p->num + mark, p->nnum - mark });
        p->nnum = mark;
        return xl_attr_struct(p->m, XL_STR("stablehlo.type_extensions"), &(xl_str){ "bounds", 6 }, &b, 1);
    }
    static const char *const known[] = { "dot",
                                         "gather",
                                         "scatter",
                                         "channel_handle",
                                         "dot_algorithm",
                                         "output_operand_alias",
                                         "result_accuracy",
                                         "type_extensions",
                                         "replica_group_mesh_axes",
                                         "axis_ref",
                                         "mesh_axis",
                                         "mesh" };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (xl_str_is(name, known[i]))
            return xl_text_struct(p, w);
    if (*p->s == '<') {                                /* #stablehlo.result_accuracy_mode<DEFAULT> */
        const char *at = p->s++;
        const xl_attr *a = enum_value(p, name);
        if (a) {
            xl_text_want(p, '>');
            return a;
        }
        p->s = at;
    }
    return NULL;
}

static const xl_attr *hash_attr(xl_text *p)
{
    const char *from = p->s++;
    while (xl_text_is(*p->s, XL_CH_WORD))
        p->s++;
    xl_str w = { from + 1, (size_t)(p->s - from - 1) }, whole = { from, w.n + 1 };
    if (w.n == 0)
        xl_text_fail(p, "expected a name after '#'");
    if (*p->s == '<' && (xl_str_is(w, "stablehlo") || xl_str_is(w, "chlo"))) {
        const char *at = p->s++;
        xl_str name = xl_text_ident(p);
        const xl_attr *a = text_at(p, '>') ? NULL : enum_value(p, name);
        if (a) {
            xl_text_want(p, '>');
            return a;
        }
        p->s = at;
        return xl_text_raw(p, whole);
    }
    if (*p->s == '<' && xl_str_is(w, "sdy"))
        return xl_text_sdy_list(p);
    if (!memchr(w.p, '.', w.n)) {
        if (*p->s == '<')                                  /* another dialect's enum or the like */
            return xl_text_raw(p, whole);
        xl_text_alias *a = xl_text_find_alias(p, whole);
        if (!a->defined || !a->what)
            xl_text_fail(p, "there is no attribute alias '%.*s' before this", XL_FMT(whole));
        return a->what;
    }
    if (xl_str_is(w, "sdy.sharding"))
        return xl_text_sharding(p);
    if (xl_str_is(w, "sdy.sharding_per_value")) {
        xl_text_want(p, '<');
        const xl_attr *a = xl_text_shardings(p);
        xl_text_want(p, '>');
        return a;
    }
    if (xl_str_is(w, "sdy.mesh"))
        return xl_attr_mesh(p->m, xl_text_mesh(p));
    if (xl_str_starts(w, XL_STR("stablehlo."))) {
        const xl_attr *a = stablehlo_attr(p, w, (xl_str){ w.p + 10, w.n - 10 });
        if (a)
            return a;
    }
    if (xl_str_is(w, "chlo.ragged_dot"))
        return xl_text_struct(p, w);
    if (*p->s == '<' || *p->s == '[')
        return xl_text_raw(p, whole);
    return xl_attr_opaque(p->m, whole);
}

/* array<i64: 1, 2>, after the word. */
static const xl_attr *int_array(xl_text *p)
{
    xl_text_want(p, '<');
    xl_dtype d = dtype_of(p, xl_text_ident(p));
    if (xl_dtype_class(d) == XL_CLASS_FLOAT || xl_dtype_class(d) == XL_CLASS_COMPLEX) {
        uint32_t mark = p->nitem;                          /* rare, and no slot of ours: an array of floats */
        if (text_take(p, ':'))
            do {
                uint64_t u = xl_text_scalar(p, d);
                PUSH(item, nitem, capitem, xl_attr_float(p->m, d, u, xl_num_value(d, u)));
            } while (text_take(p, ','));
        xl_text_want(p, '>');
        const xl_attr *a = xl_attr_array(p->m, p->item + mark, p->nitem - mark);
        p->nitem = mark;
        return a;
    }
    uint32_t mark = p->nnum;
    if (text_take(p, ':'))
        do {
            int64_t v = (int64_t)xl_text_scalar(p, d);
            PUSH(num, nnum, capnum, v);
        } while (text_take(p, ','));
    xl_text_want(p, '>');
    const xl_attr *a = xl_attr_ints(p->m, d, (xl_dims){ p->num + mark, p->nnum - mark });
    p->nnum = mark;
    return a;
}

static const xl_attr *number_attr(xl_text *p)
{
    int64_t v;
    bool beyond, is_hex = p->s[0] == '0' && p->s[1] == 'x';
    if (!xl_text_number(p, &v, &beyond)) {
        double f = xl_text_float(p);
        xl_dtype d = XL_F64;
        if (text_take(p, ':')) {
            const xl_type *t = xl_text_type_of(p);
            d = t->dtype;
            if (xl_dtype_class(d) != XL_CLASS_FLOAT)
                xl_text_fail(p, "a number with a dot needs a float type");
        }
        uint64_t u = xl_num_round(d, f);
        return xl_attr_float(p->m, d, u, xl_num_value(d, u));
    }
    xl_dtype d = XL_I64;
    if (text_take(p, ':')) {
        const xl_type *t = xl_text_type_of(p);
        if (t->kind != XL_TY_TENSOR || t->rank || t->unranked)
            xl_text_fail(p, "a number needs an element type");
        d = t->dtype;
    }
    if (xl_dtype_class(d) == XL_CLASS_FLOAT) {
        if (!is_hex)
            xl_text_fail(p, "a float needs a dot: 1.0");
        if (xl_dtypes[d].bits < 64 && (uint64_t)v >> xl_dtypes[d].bits)
            xl_text_fail(p, "a bit pattern is wider than %s", xl_dtypes[d].text);
        return xl_attr_float(p->m, d, (uint64_t)v, xl_num_value(d, (uint64_t)v));
    }
    if (d == XL_I1)
        return xl_attr_bool(p->m, v != 0);
    if (xl_dtype_class(d) == XL_CLASS_COMPLEX || !xl_num_fits(d, v, beyond))
        xl_text_fail(p, "a number does not fit in %s", xl_dtypes[d].text);
    unsigned bits = xl_dtypes[d].bits;
    if (bits < 64 && xl_dtype_class(d) == XL_CLASS_INT && v >= (int64_t)1 << (bits - 1))
        v -= (int64_t)1 << bits;                           /* 255 : i8 is -1 */
    return xl_attr_int(p->m, d, v);
}

const xl_attr *xl_text_attr(xl_text *p)
{
    const xl_attr *a = NULL;
    xl_loc loc;
    text_skip(p);
    xl_text_enter(p);
    char c = *p->s;
    if (xl_text_is(c, XL_CH_DIGIT) || c == '-') {
        a = number_attr(p);
    } else if (c == '"') {
        a = xl_attr_str(p->m, xl_text_string(p));
        if (text_at(p, ':') && p->s[1] != ':') {           /* "x" : !type: the type is not kept */
            p->s++;
            (void)xl_text_type_of(p);
        }
    } else if (c == '[') {
        p->s++;
        a = list(p);
    } else if (c == '{') {
        a = xl_text_dict(p);
        if (!a)
            a = xl_attr_dict(p->m, NULL, NULL, 0);
    } else if (c == '@') {
        a = xl_attr_sym(p->m, xl_text_symbol(p));
    } else if (c == '#') {
        a = hash_attr(p);
    } else if (xl_text_word(p, "dense")) {
        a = xl_text_dense(p);
    } else if (xl_text_word(p, "array")) {
        a = int_array(p);
    } else if (xl_text_word(p, "true")) {
        a = xl_attr_bool(p->m, true);
    } else if (xl_text_word(p, "false")) {
        a = xl_attr_bool(p->m, false);
    } else if (xl_text_word(p, "unit")) {
        a = xl_attr_unit(p->m);
    } else if (xl_text_word(p, "dense_resource")) {
        a = xl_text_resource(p);
    } else if (xl_text_word(p, "affine_map")) {
        a = xl_text_raw(p, XL_STR("affine_map"));
    } else if (xl_text_word(p, "distinct")) {
        xl_text_fail(p, "distinct attributes are not supported");
    } else if (xl_text_loc(p, &loc)) {
        xl_attr *l = xl_new(&p->m->arena, xl_attr, 1);
        l->kind = XL_AT_LOC;
        l->loc = loc;
        a = l;
    } else {
        a = xl_attr_type(p->m, xl_text_type_of(p));
    }
    text_leave(p);
    return a;
}
