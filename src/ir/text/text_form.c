/* The forms ops have in the text when their name is not quoted. Most are operands and `key = value` between commas, a
 * dictionary, a colon and types; form.h has the keys. */
#include "ir/text/form.h"
#include "ir/read.h"
#include "ir/text/text.h"

const xl_form_key xl_form_keys[] = {
#define KEY(op, key, attr) { XL_OP_##op, XL_SLOT(op, attr), key },
    XL_KEYS(KEY)
#undef KEY
    { XL_OP_UNKNOWN, 0, NULL },
};

#define PUSH(arr, n, cap, x) XL_PUSH(&p->tmp, p->arr, p->n, p->cap, x)
#define SLOT(c, op, attr) ((c)->slot[XL_SLOT(op, attr)])
#define SET(c, op, attr, v) (SLOT(c, op, attr) = (v))

static const xl_type *operand_type(const xl_text *p, const xl_text_op *c, uint32_t i)
{
    return p->f->val[p->val[c->val0 + i].id].type;
}

static void result(xl_text *p, const xl_type *t) { PUSH(ty, nty, capty, t); }

static void check(xl_text *p, xl_text_op *c, uint32_t i, const xl_type *t)
{
    if (operand_type(p, c, i) != t)
        xl_text_fail(p, "operand %u was defined with another type", i);
}

static const xl_attr *enum_word(xl_text *p, xl_enum e)
{
    int64_t v;
    xl_str w = xl_text_ident(p);
    if (!xl_enum_find(e, w, &v))
        xl_text_fail(p, "%s has no value '%.*s'", xl_enum_name(e), (int)(w.n < 40 ? w.n : 40), w.p);
    return xl_attr_enum(p->m, e, v);
}

static const xl_attr *precision_list(xl_text *p)
{
    uint32_t mark = p->nitem;
    xl_text_want(p, '[');
    if (!text_take(p, ']')) {
        do {
            const xl_attr *a = enum_word(p, XL_ENUM_PRECISION);
            PUSH(item, nitem, capitem, a);
        } while (text_take(p, ','));
        xl_text_want(p, ']');
    }
    const xl_attr *a = xl_attr_array(p->m, p->item + mark, p->nitem - mark);
    p->nitem = mark;
    return a;
}

static void list_by_list(xl_text *p, const xl_attr **lhs, const xl_attr **rhs)
{
    *lhs = xl_text_ints(p);
    xl_text_want_word(p, "x");
    *rhs = xl_text_ints(p);
}

/* The value of `key =`. */
static void key_value(xl_text *p, xl_text_op *c, xl_str key)
{
    for (const xl_form_key *k = xl_form_keys; k->key; k++)
        if (k->op == c->code && xl_str_is(key, k->key)) {
            xl_attr_want want = xl_attr_rows[xl_ops[c->code].row0 + k->slot].want;
            c->slot[k->slot] = want == XL_AK_DIMS  ? xl_text_ints(p)
                               : want == XL_AK_I64 ? xl_attr_i64(p->m, xl_text_int(p))
                               : want == XL_AK_STR
                                   ? xl_attr_str(p->m, xl_text_string(p)) /* the colon after it is the op's */
                               : want > XL_AK_ATTR ? enum_word(p, (xl_enum)(want - XL_AK_ATTR))
                                                   : xl_text_attr(p);
            if (want == XL_AK_BOOL && c->slot[k->slot]->kind != XL_AT_BOOL)
                xl_text_fail(p, "%s: expected true or false", k->key);
            return;
        }
    if (c->code == XL_OP_DOT_GENERAL && xl_str_is(key, "contracting_dims")) {
        list_by_list(p, &SLOT(c, DOT_GENERAL, lhs_contracting_dimensions),
                     &SLOT(c, DOT_GENERAL, rhs_contracting_dimensions));
    } else if (c->code == XL_OP_DOT_GENERAL && xl_str_is(key, "batching_dims")) {
        list_by_list(p, &SLOT(c, DOT_GENERAL, lhs_batching_dimensions), &SLOT(c, DOT_GENERAL, rhs_batching_dimensions));
    } else if (c->code == XL_OP_DOT_GENERAL && xl_str_is(key, "precision")) {
        SET(c, DOT_GENERAL, precision_config, precision_list(p));
    } else if (c->code == XL_OP_DOT && xl_str_is(key, "precision")) {
        SET(c, DOT, precision_config, precision_list(p));
    } else if (c->code == XL_OP_DOT_GENERAL && xl_str_is(key, "algorithm")) {
        xl_text_put(p, c, key, xl_text_struct(p, XL_STR("stablehlo.dot_algorithm")));
    } else if (c->code == XL_OP_REDUCE_PRECISION && xl_str_is(key, "format")) {
        xl_str w = xl_text_ident(p), e, m;                 /* e5m10 */
        int64_t eb, mb;
        e = (xl_str){ w.p + 1, w.n - 1 };
        m = e;
        e = xl_str_cut(&m, 'm');
        if (w.p[0] != 'e' || !xl_str_i64(e, &eb) || !xl_str_i64(m, &mb) || eb < 0 || mb < 0 || eb > 64 || mb > 64)
            xl_text_fail(p, "a format is written like e5m10");
        SET(c, REDUCE_PRECISION, exponent_bits, xl_attr_int(p->m, XL_I32, eb));
        SET(c, REDUCE_PRECISION, mantissa_bits, xl_attr_int(p->m, XL_I32, mb));
    } else if (c->code == XL_OP_CHLO_TOP_K && xl_str_is(key, "k")) {
        SET(c, CHLO_TOP_K, k, xl_attr_i64(p->m, xl_text_int(p)));
    } else if (c->code == XL_OP_SDY_GROUP && xl_str_is(key, "group_id")) {
        SET(c, SDY_GROUP, group_id, xl_attr_i64(p->m, xl_text_int(p)));
    } else {
        xl_text_put(p, c, key, xl_text_attr(p));
    }
}

/* V, V, key = value, WORD ... */
static void operands_and_keys(xl_text *p, xl_text_op *c)
{
    text_skip(p);
    if ((*p->s != '%' && !xl_text_is(*p->s, XL_CH_START)) || !strncmp(p->s, "loc(", 4))
        return;
    do {
        text_skip(p);
        if (*p->s == '%') {
            xl_text_operand(p);
            continue;
        }
        const char *at = p->s;
        xl_str w = xl_text_ident(p);
        int64_t v;
        if (text_take(p, '=')) {
            key_value(p, c, w);
        } else if (c->code == XL_OP_COMPARE && xl_enum_find(XL_ENUM_COMPARISON_DIRECTION, w, &v)) {
            SET(c, COMPARE, comparison_direction, xl_attr_enum(p->m, XL_ENUM_COMPARISON_DIRECTION, v));
        } else if (c->code == XL_OP_COMPARE && xl_enum_find(XL_ENUM_COMPARISON_TYPE, w, &v)) {
            SET(c, COMPARE, compare_type, xl_attr_enum(p->m, XL_ENUM_COMPARISON_TYPE, v));
        } else {
            p->s = at;
            xl_text_fail(p, "'%.*s' means nothing here", (int)(w.n < 40 ? w.n : 40), w.p);
        }
    } while (text_take(p, ','));
}

/* : T, or : T, T, or : (T) -> T, or : T -> T. */
static void types(xl_text *p, xl_text_op *c)
{
    uint32_t n = p->nval - c->val0, listed = 0;
    if (c->code == XL_OP_RETURN && n == 0 && !text_at(p, ':'))
        return;
    xl_text_want(p, ':');
    if (text_at(p, '(')) {
        xl_text_functype(p, c);
        return;
    }
    const xl_type *t = NULL;
    do {
        t = xl_text_type_of(p);
        if (listed < n && (listed > 0 || text_at(p, ',')))
            check(p, c, listed, t);
        else if (listed >= n && listed > 0)
            xl_text_fail(p, "there are more types than operands");
        listed++;
    } while (text_take(p, ','));
    text_skip(p);
    if (p->s[0] == '-' && p->s[1] == '>') {                /* T, T -> T: chlo */
        p->s += 2;
        if (listed != n)
            xl_text_fail(p, "there are %u operands and %u operand types", n, listed);
        if (n == 1)
            check(p, c, 0, t);
        if (text_take(p, '(')) {
            do
                result(p, xl_text_type_of(p));
            while (text_take(p, ','));
            xl_text_want(p, ')');
        } else {
            result(p, xl_text_type_of(p));
        }
        return;
    }
    switch (c->code) {
    case XL_OP_RETURN: case XL_OP_OPTIMIZATION_BARRIER:
        if (listed != n)
            xl_text_fail(p, "there are %u operands and %u types", n, listed);
        if (n == 1)
            check(p, c, 0, t);
        for (uint32_t i = 0; i < n && c->code == XL_OP_OPTIMIZATION_BARRIER; i++)
            result(p, operand_type(p, c, i));
        return;
    case XL_OP_SELECT:                                     /* pred type, value type */
        if (n != 3 || listed != 2)
            xl_text_fail(p, "expected the types of the predicate and of the values");
        check(p, c, 2, t);
        result(p, t);
        return;
    case XL_OP_SDY_GROUP:
        if (n == 1)
            check(p, c, 0, t);
        return;
    case XL_OP_COMPLEX: case XL_OP_TUPLE:                  /* the type of the result alone */
        break;
    default:
        if (listed > 1 && listed != n)
            xl_text_fail(p, "there are %u operands and %u types", n, listed);
        for (uint32_t i = 0; i < n; i++)
            check(p, c, i, t);
    }
    if (xl_ops[c->code].nout != 0)
        result(p, t);
}

static void slice(xl_text *p, xl_text_op *c)
{
    uint32_t mark = p->nnum;
    xl_text_operand(p);
    xl_text_want(p, '[');
    if (!text_take(p, ']')) {
        do {
            int64_t v[3] = { xl_text_int(p), 0, 1 };
            xl_text_want(p, ':');
            v[1] = xl_text_int(p);
            if (text_take(p, ':'))
                v[2] = xl_text_int(p);
            for (int i = 0; i < 3; i++)
                PUSH(num, nnum, capnum, v[i]);
        } while (text_take(p, ','));
        xl_text_want(p, ']');
    }
    uint32_t n = (p->nnum - mark) / 3;
    int64_t *part = xl_new(&p->tmp, int64_t, n);
    for (int k = 0; k < 3; k++) {
        for (uint32_t i = 0; i < n; i++)
            part[i] = p->num[mark + 3 * i + (uint32_t)k];
        const xl_attr *a = xl_attr_dims(p->m, (xl_dims){ part, n });
        if (k == 0)
            SET(c, SLICE, start_indices, a);
        else if (k == 1)
            SET(c, SLICE, limit_indices, a);
        else
            SET(c, SLICE, strides, a);
    }
    p->nnum = mark;
}

static void convolution(xl_text *p, xl_text_op *c)
{
    xl_text_want(p, '(');
    xl_text_operands(p, ')');
    xl_text_want_word(p, "dim_numbers");
    xl_text_want(p, '=');
    xl_text_put(p, c, XL_STR("dimension_numbers"), xl_text_conv(p));
    xl_text_want(p, ',');
    xl_text_want_word(p, "window");
    xl_text_want(p, '=');
    xl_text_want(p, '{');
    if (text_take(p, '}'))
        return;
    do {
        static const char *const key[][2] = { { "stride", "window_strides" },
                                              { "pad", "padding" },
                                              { "lhs_dilate", "lhs_dilation" },
                                              { "rhs_dilate", "rhs_dilation" },
                                              { "reverse", "window_reversal" } };
        xl_str w = xl_text_ident(p);
        const char *attr = NULL;
        for (size_t i = 0; i < sizeof key / sizeof *key; i++)
            if (xl_str_is(w, key[i][0]))
                attr = key[i][1];
        if (!attr)
            xl_text_fail(p, "a window has no '%.*s'", (int)(w.n < 40 ? w.n : 40), w.p);
        xl_text_want(p, '=');
        xl_text_put(p, c, xl_str_of(attr), xl_text_ints(p));
    } while (text_take(p, ','));
    xl_text_want(p, '}');
}

/* (V init: V), (V init: V) applies stablehlo.add across dimensions = [0], or with a reducer at its end. */
static void reduce(xl_text *p, xl_text_op *c)
{
    uint32_t mark = p->nval;
    xl_str applies = { 0 };
    do {
        xl_text_want(p, '(');
        xl_text_operand(p);
        xl_text_want_word(p, "init");
        xl_text_want(p, ':');
        xl_text_operand(p);
        xl_text_want(p, ')');
    } while (text_take(p, ','));
    uint32_t n = (p->nval - mark) / 2;                     /* in pairs; ours are inputs, then inits */
    xl_value *pairs = xl_new(&p->tmp, xl_value, 2 * (size_t)n);
    memcpy(pairs, p->val + mark, 2 * (size_t)n * sizeof *pairs);
    for (uint32_t i = 0; i < n; i++) {
        p->val[mark + i] = pairs[2 * i];
        p->val[mark + n + i] = pairs[2 * i + 1];
    }
    if (xl_text_word(p, "applies"))
        applies = text_at(p, '"') ? xl_text_string(p) : xl_text_ident(p);
    xl_text_want_word(p, "across");
    xl_text_want_word(p, "dimensions");
    xl_text_want(p, '=');
    SET(c, REDUCE, dimensions, xl_text_ints(p));
    xl_text_attrs(p, c);
    xl_text_want(p, ':');
    xl_text_functype(p, c);
    xl_region *r = xl_region_new(p->f, NULL);
    if (applies.n) {
        xl_opcode code = xl_opcode_find(applies);
        if (code == XL_OP_UNKNOWN || xl_ops[code].nin != 2 || xl_ops[code].nout != 1 || xl_op_nattr(code))
            xl_text_fail(p, "'%.*s' cannot be applied", (int)(applies.n < 40 ? applies.n : 40), applies.p);
        const xl_type *in = operand_type(p, c, 0);
        if (in->kind != XL_TY_TENSOR)
            xl_text_fail(p, "operand 0 is not a tensor");
        xl_type scalar = { .kind = XL_TY_TENSOR, .dtype = in->dtype, .quant = in->quant };
        const xl_type *t = xl_type_intern(p->m, &scalar);
        xl_value arg[2];
        for (int i = 0; i < 2; i++)
            arg[i] = xl_region_add_arg(p->f, r, t, (xl_loc){ 0 });
        xl_op *op = xl_op_new(p->f, r, code, arg, 2, &t, 1, 0, (xl_loc){ 0 });
        xl_op_new(p->f, r, XL_OP_RETURN, op->out, 1, NULL, 0, 0, (xl_loc){ 0 });
    } else {
        /* reducer(%lhs0: T, %rhs0: T) (%lhs1: T, %rhs1: T) { ... }: the arguments are all lhs, then all rhs */
        xl_str *name = xl_new(&p->tmp, xl_str, 2 * (size_t)n);
        const xl_type **t = xl_new(&p->tmp, const xl_type *, 2 * (size_t)n);
        xl_loc *loc = xl_new(&p->tmp, xl_loc, 2 * (size_t)n);
        xl_text_want_word(p, "reducer");
        for (uint32_t i = 0; i < n; i++) {
            xl_text_want(p, '(');
            for (uint32_t k = 0; k < 2; k++) {
                uint32_t at = k * n + i;
                name[at] = xl_text_value_name(p);
                xl_text_want(p, ':');
                t[at] = xl_text_type_of(p);
                (void)xl_text_loc(p, &loc[at]);
                xl_text_want(p, k ? ')' : ',');
            }
        }
        /* A name may be one of an outer value; the bindings made here end with the region. */
        uint32_t first = p->f->nval;
        for (uint32_t i = 0; i < 2 * n; i++)
            xl_region_add_arg(p->f, r, t[i], loc[i]);
        xl_text_scope s = xl_text_open(p);
        for (uint32_t i = 0; i < 2 * n; i++)
            xl_text_define(p, name[i], first + i, 1);
        xl_text_body(p, r);
        xl_text_close(p, s);
    }
    PUSH(reg, nreg, capreg, r);
}

static void loop(xl_text *p, xl_text_op *c)
{
    uint32_t n = 0, cap = 0;
    xl_str *name = NULL;
    xl_text_want(p, '(');
    if (!text_take(p, ')')) {
        do {
            xl_str w = xl_text_value_name(p);
            XL_PUSH(&p->tmp, name, n, cap, w);
            xl_text_want(p, '=');
            xl_text_operand(p);
        } while (text_take(p, ','));
        xl_text_want(p, ')');
    }
    if (text_take(p, ':'))
        for (uint32_t i = 0; i < n; i++) {
            if (i)
                xl_text_want(p, ',');
            const xl_type *t = xl_text_type_of(p);
            check(p, c, i, t);
            result(p, t);
        }
    else if (n)
        xl_text_fail(p, "expected ':'");
    if (xl_text_word(p, "attributes"))
        xl_text_attrs(p, c);
    for (int k = 0; k < 2; k++) {
        xl_region *r = xl_region_new(p->f, NULL);
        xl_text_want_word(p, k ? "do" : "cond");
        uint32_t first = p->f->nval;
        for (uint32_t i = 0; i < n; i++)
            xl_region_add_arg(p->f, r, operand_type(p, c, i), (xl_loc){ 0 });
        xl_text_scope s = xl_text_open(p);
        for (uint32_t i = 0; i < n; i++)
            xl_text_define(p, name[i], first + i, 1);
        xl_text_body(p, r);
        xl_text_close(p, s);
        PUSH(reg, nreg, capreg, r);
    }
}

static void key_equals(xl_text *p, const char *key)
{
    xl_text_want_word(p, key);
    xl_text_want(p, '=');
}

static void segments(xl_text *p, xl_text_op *c, const char *key, int64_t a, int64_t b)
{
    int64_t v[2] = { a, b };
    xl_text_put(p, c, xl_str_of(key), xl_attr_ints(p->m, XL_I32, (xl_dims){ v, 2 }));
}

/* (V, V) inits (V) dimension = 0 attributes {...} { ^bb0(...): ... } : (T, T, T) -> (T, T) */
static void scan(xl_text *p, xl_text_op *c)
{
    xl_text_want(p, '(');
    xl_text_operands(p, ')');
    uint32_t inputs = p->nval - c->val0;
    xl_text_want_word(p, "inits");
    xl_text_want(p, '(');
    xl_text_operands(p, ')');
    uint32_t carries = p->nval - c->val0 - inputs;
    key_equals(p, "dimension");
    SET(c, CHLO_SCAN, dimension, xl_attr_i64(p->m, xl_text_int(p)));
    if (xl_text_word(p, "attributes"))
        xl_text_attrs(p, c);
    xl_region *r = xl_region_new(p->f, NULL);
    xl_text_region(p, r);
    PUSH(reg, nreg, capreg, r);
    xl_text_want(p, ':');
    xl_text_functype(p, c);
    uint32_t results = p->nty - c->ty0;
    if (results < carries)
        xl_text_fail(p, "there are %u initial values and %u results", carries, results);
    segments(p, c, "operandSegmentSizes", inputs, carries);
    segments(p, c, "resultSegmentSizes", results - carries, carries);
}

/* (%a: T, ...) { ... } after an sdy op that names its block arguments itself. */
static void sdy_region(xl_text *p)
{
    xl_region *r = xl_region_new(p->f, NULL);
    xl_text_scope s = xl_text_open(p);
    xl_text_want(p, '(');
    xl_text_region_args(p, r);
    xl_text_body(p, r);
    xl_text_close(p, s);
    PUSH(reg, nreg, capreg, r);
}

static void manual(xl_text *p, xl_text_op *c)
{
    xl_text_want(p, '(');
    xl_text_operands(p, ')');
    key_equals(p, "in_shardings");
    SET(c, SDY_MANUAL, in_shardings, xl_text_shardings(p));
    key_equals(p, "out_shardings");
    SET(c, SDY_MANUAL, out_shardings, xl_text_shardings(p));
    key_equals(p, "manual_axes");
    SET(c, SDY_MANUAL, manual_axes, xl_text_axis_names(p));
    sdy_region(p);
}

static void named_computation(xl_text *p, xl_text_op *c)
{
    xl_text_want(p, '<');
    SET(c, SDY_NAMED, name, xl_attr_str(p->m, xl_text_string(p)));
    xl_text_want(p, '>');
    xl_text_want(p, '(');
    xl_text_operands(p, ')');
    if (xl_text_word(p, "in_shardings")) {
        xl_text_want(p, '=');
        SET(c, SDY_NAMED, in_shardings, xl_text_shardings(p));
    }
    if (xl_text_word(p, "out_shardings")) {
        xl_text_want(p, '=');
        SET(c, SDY_NAMED, out_shardings, xl_text_shardings(p));
    }
    sdy_region(p);
}

/* sdy.all_gather [{"x"}, {}] %0 out_sharding=<@mesh, ...>; the axes stay text. */
static void sdy_collective(xl_text *p, xl_text_op *c, uint32_t axes, uint32_t out)
{
    text_skip(p);
    if (axes != UINT32_MAX)
        c->slot[axes] = xl_text_raw(p, (xl_str){ 0 });
    xl_text_operand(p);
    key_equals(p, "out_sharding");
    c->slot[out] = xl_text_sharding(p);
}

static void direction(xl_text *p, xl_text_op *c)
{
    static const char *const word[] = { "NONE", "FORWARD", "BACKWARD", "BOTH" };
    xl_text_operand(p);
    key_equals(p, "allowed_direction");
    xl_str w = xl_text_ident(p);
    for (int i = 0; i < 4; i++)
        if (xl_str_is(w, word[i]))
            SET(c, SDY_BARRIER, allowed_direction, xl_attr_int(p->m, XL_I32, i));
    if (!SLOT(c, SDY_BARRIER, allowed_direction))
        xl_text_fail(p, "a direction is NONE, FORWARD, BACKWARD or BOTH");
}

static void rest(xl_text *p, xl_text_op *c)
{
    xl_text_attrs(p, c);
    types(p, c);
}

static void call_like(xl_text *p, xl_text_op *c)
{
    xl_text_want(p, '(');
    xl_text_operands(p, ')');
    rest(p, c);
}

/* Those of the sdy dialect. False: not one of them. */
static bool sdy_form(xl_text *p, xl_text_op *c)
{
    switch (c->code) {
    case XL_OP_SDY_CONSTRAINT:
        xl_text_operand(p);
        SET(c, SDY_CONSTRAINT, sharding, xl_text_sharding(p));
        break;
    case XL_OP_SDY_RESHARD:
        xl_text_operand(p);
        SET(c, SDY_RESHARD, sharding, xl_text_sharding(p));
        break;
    case XL_OP_SDY_GROUP:
        xl_text_operand(p);
        key_equals(p, "group_id");
        key_value(p, c, XL_STR("group_id"));
        break;
    case XL_OP_SDY_BARRIER: direction(p, c); break;
    case XL_OP_SDY_MANUAL: manual(p, c); break;
    case XL_OP_SDY_NAMED: named_computation(p, c); break;
    case XL_OP_SDY_ALL_GATHER:
        sdy_collective(p, c, XL_SLOT(SDY_ALL_GATHER, gathering_axes), XL_SLOT(SDY_ALL_GATHER, out_sharding));
        break;
    case XL_OP_SDY_ALL_SLICE:
        sdy_collective(p, c, XL_SLOT(SDY_ALL_SLICE, slicing_axes), XL_SLOT(SDY_ALL_SLICE, out_sharding));
        break;
    case XL_OP_SDY_ALL_TO_ALL:
        sdy_collective(p, c, XL_SLOT(SDY_ALL_TO_ALL, params), XL_SLOT(SDY_ALL_TO_ALL, out_sharding));
        break;
    case XL_OP_SDY_ALL_REDUCE:
        sdy_collective(p, c, XL_SLOT(SDY_ALL_REDUCE, reduction_axes), XL_SLOT(SDY_ALL_REDUCE, out_sharding));
        break;
    case XL_OP_SDY_COLLECTIVE_PERMUTE:
        sdy_collective(p, c, UINT32_MAX, XL_SLOT(SDY_COLLECTIVE_PERMUTE, out_sharding));
        break;
    default: return false;
    }
    rest(p, c);
    return true;
}

/* builtin.unrealized_conversion_cast: types on both sides of `to`. */
static void cast(xl_text *p, xl_text_op *c)
{
    operands_and_keys(p, c);
    xl_text_attrs(p, c);
    xl_text_want(p, ':');
    for (uint32_t i = 0; i < p->nval - c->val0; i++) {
        if (i)
            xl_text_want(p, ',');
        check(p, c, i, xl_text_type_of(p));
    }
    xl_text_want_word(p, "to");
    do
        result(p, xl_text_type_of(p));
    while (text_take(p, ','));
    c->forward = p->nval - c->val0 == p->nty - c->ty0;
}

void xl_text_custom(xl_text *p, xl_text_op *c)
{
    switch (c->code) {
    case XL_OP_CONSTANT:
        if (text_at(p, '(')) {                             /* the value's type is not the result's: quantised */
            xl_text_generic(p, c);
            return;
        }
        xl_text_attrs(p, c);
        const xl_attr *a = xl_text_attr(p);
        if (a->kind != XL_AT_DENSE)
            xl_text_fail(p, "expected dense<...>");
        SET(c, CONSTANT, value, a);
        result(p, a->type);
        return;
    case XL_OP_CALL:
        SET(c, CALL, callee, xl_attr_sym(p->m, xl_text_symbol(p)));
        call_like(p, c);
        return;
    case XL_OP_CUSTOM_CALL:
        SET(c, CUSTOM_CALL, call_target_name, xl_attr_str(p->m, xl_text_symbol(p)));
        call_like(p, c);
        return;
    case XL_OP_COMPOSITE:
        SET(c, COMPOSITE, name, xl_attr_str(p->m, xl_text_string(p)));
        operands_and_keys(p, c);
        if (text_take(p, '(')) {
            do {
                xl_region *r = xl_region_new(p->f, NULL);
                xl_text_region(p, r);
                PUSH(reg, nreg, capreg, r);
            } while (text_take(p, ','));
            xl_text_want(p, ')');
        }
        rest(p, c);
        return;
    case XL_OP_REDUCE:
        if (text_at(p, '('))
            reduce(p, c);
        return;
    case XL_OP_WHILE: loop(p, c); return;
    case XL_OP_CHLO_SCAN: scan(p, c); return;
    case XL_OP_SLICE: slice(p, c); rest(p, c); return;
    case XL_OP_CONVOLUTION: convolution(p, c); rest(p, c); return;
    case XL_OP_GET_TUPLE_ELEMENT:
        xl_text_operand(p);
        xl_text_want(p, '[');
        SET(c, GET_TUPLE_ELEMENT, index, xl_attr_int(p->m, XL_I32, xl_text_int(p)));
        xl_text_want(p, ']');
        rest(p, c);
        return;
    case XL_OP_OPTIMIZATION_BARRIER:
        xl_text_attrs(p, c);
        if (text_take(p, '(')) {
            xl_text_want(p, ')');
            return;
        }
        operands_and_keys(p, c);
        rest(p, c);
        return;
    case XL_OP_CHLO_TOP_K:
        xl_text_want(p, '(');
        operands_and_keys(p, c);
        xl_text_want(p, ')');
        rest(p, c);
        return;
    case XL_OP_UNKNOWN:
        if (!xl_str_is(c->name, "builtin.unrealized_conversion_cast"))
            xl_text_fail(p, "this op is not known and its form is its own; print the program in the generic form");
        cast(p, c);
        return;
    default:
        if (sdy_form(p, c))
            return;
        operands_and_keys(p, c);
        rest(p, c);
    }
}
