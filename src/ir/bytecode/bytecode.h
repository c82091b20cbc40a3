/* src/ir/bytecode/bytecode.h
 * The inside of the bytecode reader, shared by its files: bytecode.c reads the container and the ops, bytecode_attr.c
 * the attribute and type tables. One reader serves one call. Invalid input ends in a longjmp to `fail` with the error
 * in `err`; exceeding a bound on memory does the same without an error. */
#ifndef XL_IR_BYTECODE_H
#define XL_IR_BYTECODE_H

#include <setjmp.h>

#include "ir/ir.h"

typedef struct { const uint8_t *p, *end; } xl_cur;

/* One entry of the attribute or type table, decoded on demand. */
typedef struct {
    xl_cur at;
    union { const xl_attr *attr; const xl_type *type; };
    uint32_t weight;                                       /* nodes below it, itself included */
    uint16_t dialect;
    bool custom, busy, scalar;
} xl_bc_entry;

typedef struct xl_bc_desc xl_bc_desc;
typedef struct { xl_cur at; const xl_bc_desc *desc; const xl_attr **slot; uint32_t weight; } xl_bc_prop;

typedef enum {
    XL_BC_OTHER,
    XL_BC_BUILTIN,
    XL_BC_FUNC,
    XL_BC_VHLO,
    XL_BC_STABLEHLO,
    XL_BC_CHLO,
    XL_BC_SDY,
    XL_BC_QUANT
} xl_bc_dialect;

/* Most of a program's attributes are locations, which are rarely used: they are decoded on demand. */
typedef struct {
    const xl_str *str;
    uint32_t nstr, nattr;
    const uint32_t *loc_of;                                /* per attribute: its location id, 0 if it is none */
    const uint32_t *str_of;                                /* per attribute: its string + 1, 0 if it is none */
    const xl_cur *at;                                      /* per location */
} xl_bc_locs;

typedef struct {
    jmp_buf fail;
    xl_error *err;
    xl_module *m;
    xl_arena tmp;
    const uint8_t *base, *end;
    uint64_t version;
    xl_str producer;
    bool no_locations;

    xl_str *str;
    uint32_t nstr;
    struct { xl_str name; xl_bc_dialect kind; } *dialect;
    uint32_t ndialect;
    xl_bc_desc *desc;
    uint32_t ndesc;
    xl_bc_entry *attr, *type;
    uint32_t nattr, ntype;
    xl_bc_prop *prop;
    uint32_t nprop;
    uint32_t *loc_of;
    struct { xl_str key; xl_cur at; uint8_t kind; } *res;
    uint32_t nres;

    xl_value *ids;                                         /* value numbers of all open regions */
    uint32_t nids, capids, scope;                          /* scope: where the innermost isolated one begins */
    uint64_t weight, max_weight;                           /* of all attributes and types the ops refer to */
    uint32_t depth, nest;                                  /* of attributes; of regions */
    const xl_type **ty;                                    /* result types and operands of the current op */
    xl_value *in;
    uint32_t capty, capin;
    xl_buf text;
} xl_bc;

/* "byte 123: ..." */
void xl_bc_fail(xl_bc *r, const uint8_t *at, xl_code code, const char *fmt, ...) XL_PRINTF(4, 5) XL_NORETURN;
#define XL_BC_FAIL(r, at, ...) xl_bc_fail((r), (at), XL_CODE_INVALID, __VA_ARGS__)
uint64_t xl_bc_varint_slow(xl_bc *r, xl_cur *c);

static inline uint64_t xl_bc_varint(xl_bc *r, xl_cur *c)
{
    if (c->p < c->end && (*c->p & 1))
        return *c->p++ >> 1;
    return xl_bc_varint_slow(r, c);
}
static inline int64_t xl_bc_svarint(xl_bc *r, xl_cur *c)
{
    uint64_t u = xl_bc_varint(r, c);
    return (int64_t)((u >> 1) ^ (0 - (u & 1)));
}
static inline uint8_t xl_bc_byte(xl_bc *r, xl_cur *c)
{
    if (c->p >= c->end)
        XL_BC_FAIL(r, c->p, "the data ends here, in the middle of something");
    return *c->p++;
}
xl_str xl_bc_str(xl_bc *r, xl_cur *c);                     /* a string reference */
xl_str xl_bc_blob(xl_bc *r, xl_cur *c);
/* A count of items of at least `least` bytes each; an error if so many cannot follow. */
uint32_t xl_bc_count(xl_bc *r, xl_cur *c, size_t least);
uint32_t xl_bc_attr_index(xl_bc *r, xl_cur *c);
void xl_bc_charge(xl_bc *r, const uint8_t *at, uint64_t weight);

const xl_attr *xl_bc_attr(xl_bc *r, uint32_t index);
const xl_type *xl_bc_type(xl_bc *r, uint32_t index);
const xl_type *xl_bc_type_ref(xl_bc *r, xl_cur *c);
/* Entries that are kept as text: types and attributes of dialects without an encoding of their own. */
const xl_type *xl_bc_text_type(xl_bc *r, const xl_bc_entry *e, xl_str text, bool *scalar);
const xl_attr *xl_bc_text_attr(xl_bc *r, const xl_bc_entry *e, xl_str text);
xl_loc xl_bc_loc(xl_bc *r, uint32_t index);
/* Prepares the locations of the module, to be decoded by xl_loc_get. */
void xl_bc_locations(xl_bc *r);

#endif
