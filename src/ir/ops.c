/* The tables of ops.def, dtypes.def and enums.def, and look-ups in them by name. */
#include "ir/ir.h"

#include <pthread.h>

const xl_dtype_info xl_dtypes[XL_DT_COUNT] = {
    [XL_DT_NONE] = { "none", 0, 0, 0, 0, XL_CLASS_NONE },
#define DTYPE(name, text, bits, cls, exp, man) [XL_##name] = { text, bits, (bits + 7) / 8, exp, man, XL_CLASS_##cls },
#include "ir/dtypes.def"
};

xl_dtype xl_dtype_find(xl_str text)
{
    for (int d = XL_DT_NONE + 1; d < XL_DT_COUNT; d++)
        if (xl_str_is(text, xl_dtypes[d].text))
            return (xl_dtype)d;
    return XL_DT_NONE;
}

xl_dtype xl_dtype_part(xl_dtype d) { return d == XL_C64 ? XL_F32 : d == XL_C128 ? XL_F64 : d; }

static const struct { xl_enum e; int number; const char *text; } enum_values[] = {
#define ENUM(name, text)
#define ENUMV(name, value, number) { XL_ENUM_##name, number, #value },
#include "ir/enums.def"
};

const char *xl_enum_text(xl_enum e, int64_t v)
{
    for (size_t i = 0; i < sizeof enum_values / sizeof *enum_values; i++)
        if (enum_values[i].e == e && enum_values[i].number == v)
            return enum_values[i].text;
    return NULL;
}

bool xl_enum_find(xl_enum e, xl_str text, int64_t *out)
{
    for (size_t i = 0; i < sizeof enum_values / sizeof *enum_values; i++)
        if (enum_values[i].e == e && xl_str_is(text, enum_values[i].text)) {
            *out = enum_values[i].number;
            return true;
        }
    return false;
}

const char *xl_enum_name(xl_enum e)
{
    static const char *const name[XL_ENUM_COUNT] = {
        [XL_ENUM_NONE] = "none",
#define ENUM(name, text) [XL_ENUM_##name] = text,
#include "ir/enums.def"
    };
    return name[e];
}

/* The words of the last columns. */
enum { ANY = XL_ANY, ELEMWISE = XL_OP_ELEMWISE, FOLDS = XL_OP_FOLDS, COMMUTES = XL_OP_COMMUTES, EFFECT = XL_OP_EFFECT,
       COLLECTIVE = XL_OP_COLLECTIVE, TERMINATOR = XL_OP_TERMINATOR };

const xl_op_info xl_ops[XL_OP_COUNT + 1] = {
#define OP(name, text, nin, nout, nregion, types, grad, shard, kernel, flags) \
    [XL_OP_##name] = { #name, text, nin, nout, nregion, XL_ROW0_##name, flags },
#include "ir/ops.def"
    [XL_OP_COUNT] = { NULL, NULL, 0, 0, 0, XL_ROW_COUNT, 0 },
};

const xl_attr_row xl_attr_rows[] = {
#define OP(...)
#define ATTR(op, name, want, def) { #name, XL_AK_##want, XL_DEF_##def },
#include "ir/ops.def"
    { NULL, XL_AK_ATTR, XL_DEF_NONE },
};

/* Names to opcodes, by a table that is perfect enough: open addressing over twice the ops, filled once. */
enum { SLOTS = 512 };
_Static_assert(SLOTS > XL_OP_COUNT + 64, "the name table is too full");
static uint16_t by_name[SLOTS];
static pthread_once_t by_name_once = PTHREAD_ONCE_INIT;

static uint32_t hash_name(xl_str s)
{
    uint32_t h = 2166136261u;
    for (size_t i = 0; i < s.n; i++)
        h = (h ^ (unsigned char)s.p[i]) * 16777619u;
    return h ^ (h >> 15);
}

static void fill_names(void)
{
    for (int c = 0; c < XL_OP_COUNT; c++) {
        uint32_t h = hash_name(xl_str_of(xl_ops[c].text)) % SLOTS;
        while (by_name[h])
            h = (h + 1) % SLOTS;
        by_name[h] = (uint16_t)(c + 1);
    }
}

xl_opcode xl_opcode_find(xl_str text)
{
    if (xl_str_is(text, "func.return") || xl_str_is(text, "sdy.return") || xl_str_is(text, "chlo.return"))
        return XL_OP_RETURN;
    if (xl_str_is(text, "chlo.constant"))
        return XL_OP_CONSTANT;
    pthread_once(&by_name_once, fill_names);
    for (uint32_t h = hash_name(text) % SLOTS; by_name[h]; h = (h + 1) % SLOTS)
        if (xl_str_is(text, xl_ops[by_name[h] - 1].text))
            return (xl_opcode)(by_name[h] - 1);
    return XL_OP_UNKNOWN;
}

int xl_slot_find(xl_opcode code, xl_str name)
{
    const xl_attr_row *row = &xl_attr_rows[xl_ops[code].row0];
    for (uint32_t i = 0; i < xl_op_nattr(code); i++)
        if (xl_str_is(name, row[i].name))
            return (int)i;
    return -1;
}
