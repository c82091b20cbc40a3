/* src/ir/ir.h
 * The program. A module is an arena that owns its functions, ops, types, attributes and locations. A function
 * has one body region; ops may have regions of their own (a reduction's computation, the branches of an if). A region
 * is one block: arguments, then ops in order, the last a RETURN. StableHLO has no other control flow.
 *
 * A value is an index into its function's table (`f->val`), the same table for all nested regions, so that a region may
 * use values that are defined around it. Ops are pointers and never move. Types are interned: within one module equal
 * types are equal pointers. Attributes and types are immutable, and shared within the module.
 *
 * Readers and builders create a module, passes change it, all other code only reads. One thread at a time may change
 * it. */
#ifndef XL_IR_IR_H
#define XL_IR_IR_H

#include <stdbool.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/error.h"
#include "base/str.h"

/* ---- element types ---------------------------------------------------------------------------------------------- */
typedef enum {
    XL_DT_NONE,
#define DTYPE(name, ...) XL_##name,
#include "ir/dtypes.def"
    XL_DT_COUNT
} xl_dtype;

typedef enum { XL_CLASS_NONE, XL_CLASS_PRED, XL_CLASS_INT, XL_CLASS_UINT, XL_CLASS_FLOAT, XL_CLASS_COMPLEX } xl_dclass;

typedef struct { const char *text; uint8_t bits, bytes, exp, man; xl_dclass cls; } xl_dtype_info;
extern const xl_dtype_info xl_dtypes[XL_DT_COUNT];

static inline size_t xl_dtype_bytes(xl_dtype d) { return xl_dtypes[d].bytes; }
static inline xl_dclass xl_dtype_class(xl_dtype d) { return xl_dtypes[d].cls; }
/* A float narrower than f32: computed in f32. */
static inline bool xl_is_narrow(xl_dtype d)
{
    return xl_dtype_class(d) == XL_CLASS_FLOAT && d != XL_F32 && d != XL_F64;
}
xl_dtype xl_dtype_find(xl_str text);              /* XL_DT_NONE if there is none */
xl_dtype xl_dtype_part(xl_dtype d);               /* complex<f32> -> f32; others unchanged */

/* ---- types ------------------------------------------------------------------------------------------------------ */
#define XL_DYN INT64_MIN                          /* a dimension `?`, or a bound that is absent */

typedef enum {
    XL_TY_TENSOR, XL_TY_TOKEN, XL_TY_TUPLE, XL_TY_FUTURE, XL_TY_FUNC, XL_TY_BUFFER /* memref */, XL_TY_NONE,
    XL_TY_OPAQUE                                  /* kept as text */
} xl_type_kind;

typedef struct xl_attr xl_attr;
typedef struct xl_type xl_type;

typedef struct {                                  /* !quant.uniform: the element type is then `storage` below */
    xl_dtype storage, expressed;
    bool is_signed, per_axis;
    int64_t axis, min, max;
    uint32_t n;                                   /* scales and zero points: 1, or the size of the axis */
    const double *scale;
    const int64_t *zero;
} xl_quant;

struct xl_type {
    xl_type_kind kind;
    xl_dtype dtype;                               /* tensor and buffer */
    bool unranked;                                /* tensor<*xf32> */
    uint32_t rank;                                /* tensor and buffer */
    const int64_t *dims;                          /* rank of them; XL_DYN for `?` */
    const int64_t *bounds;                        /* NULL, or rank of them; XL_DYN where there is none */
    const xl_quant *quant;                        /* NULL unless quantised */
    const xl_attr *encoding;                      /* any other encoding, kept; or NULL */
    uint32_t nelem, nin;                          /* tuple, future: nelem. func: nin inputs, then nelem - nin results */
    const xl_type *const *elem;
    xl_str text;                                  /* opaque */
};

static inline xl_dims xl_type_dims(const xl_type *t) { return (xl_dims){ t->dims, t->rank }; }
bool xl_type_static(const xl_type *t);            /* a ranked tensor without `?` */
/* Elements of a static tensor; false if it is not one or the product does not fit in int64. */
bool xl_type_count(const xl_type *t, int64_t *out);
bool xl_type_bytes(const xl_type *t, int64_t *out);
bool xl_type_eq(const xl_type *a, const xl_type *b); /* structural, for types of different modules */
static inline bool xl_type_is_tensor(const xl_type *t) { return t->kind == XL_TY_TENSOR; }

/* ---- attributes ------------------------------------------------------------------------------------------------- */
typedef enum {
    XL_AT_UNIT,
    XL_AT_BOOL,   /* i */
    XL_AT_INT,    /* i, dtype */
    XL_AT_FLOAT,  /* bits of dtype in u; the value as a double in f */
    XL_AT_STR,    /* str: any bytes */
    XL_AT_SYM,    /* str, without the @; nested references as "a::b" */
    XL_AT_TYPE,   /* type */
    XL_AT_ENUM,   /* i, which */
    XL_AT_INTS,   /* ints (n), dtype: array<i64: ...>; in an inherent slot also what was a dense list or pairs */
    XL_AT_ARRAY,  /* item (n) */
    XL_AT_DICT,   /* key and item (n), sorted by key, no key twice */
    XL_AT_DENSE,  /* type, data: constants. One element if splat, else all, row-major, little-endian, i1 a byte each */
    XL_AT_STRUCT, /* str: "stablehlo.result_accuracy" or the like; key and item (n) its fields */
    XL_AT_SHARDING, /* sharding */
    XL_AT_MESH,     /* mesh */
    XL_AT_LOC,      /* loc */
    XL_AT_OPAQUE    /* str: the text of an unknown attribute, as MLIR prints it */
} xl_attr_kind;

typedef enum {
    XL_ENUM_NONE,
#define ENUM(name, text) XL_ENUM_##name,
#include "ir/enums.def"
    XL_ENUM_COUNT
} xl_enum;
enum {
#define ENUM(name, text)
#define ENUMV(name, value, number) XL_##name##_##value = number,
#include "ir/enums.def"
};
const char *xl_enum_text(xl_enum e, int64_t v);            /* "LT"; NULL if there is none */
bool xl_enum_find(xl_enum e, xl_str text, int64_t *out);
const char *xl_enum_name(xl_enum e);                       /* "comparison_direction" */

typedef struct { uint32_t id; } xl_loc;                    /* 0: unknown */

typedef struct { xl_str name; int64_t size; } xl_mesh_axis;
typedef struct {
    const xl_mesh_axis *axis;
    uint32_t naxis;
    const int64_t *ids;
    uint32_t nids;
} xl_mesh;                                                              /* nids 0: iota */
typedef struct { xl_str name; int64_t pre, size; } xl_axis_ref;         /* size 0: the whole axis, else "x":(pre)size */
typedef struct {
    const xl_axis_ref *axis;
    uint32_t naxis;
    bool open;
    int32_t priority;
} xl_dim_sharding; /* priority -1: none */
typedef struct {
    xl_str mesh;                                           /* symbol, or empty with `inlined` set */
    const xl_mesh *inlined;
    uint32_t rank;
    const xl_dim_sharding *dim;
    const xl_axis_ref *replicated, *unreduced;
    uint32_t nreplicated, nunreduced;
    int32_t reduction;                                     /* of the unreduced axes: 0 sum, 1 max, 2 min */
} xl_sharding;

struct xl_attr {
    xl_attr_kind kind;
    xl_dtype dtype;
    xl_enum which;
    bool splat;
    uint32_t n;
    union {
        int64_t i;
        struct { double f; uint64_t u; };
        xl_str str;
        const int64_t *ints;
        struct { const xl_type *type; xl_str data; };
        const xl_sharding *sharding;
        const xl_mesh *mesh;
        xl_loc loc;
    };
    const xl_str *key;
    const xl_attr *const *item;
};

/* ---- ops -------------------------------------------------------------------------------------------------------- */
typedef enum {
#define OP(name, ...) XL_OP_##name,
#include "ir/ops.def"
    XL_OP_COUNT
} xl_opcode;

/* The slot of an inherent attribute: XL_SLOT(DOT_GENERAL, precision_config). */
enum {
#define OP(name, ...) XL_ROW0_##name, XL_ROW0_END_##name = XL_ROW0_##name - 1,
#define ATTR(op, name, ...) XL_ROW_##op##_##name,
#include "ir/ops.def"
    XL_ROW_COUNT
};
#define XL_SLOT(op, name) ((uint32_t)XL_ROW_##op##_##name - (uint32_t)XL_ROW0_##op)
#define XL_ATTR(o, op, name) ((o)->attr[XL_SLOT(op, name)])

enum { XL_ANY = -1 };                                      /* operands, results, regions: any number */
enum {                                                     /* flags */
       XL_OP_ELEMWISE = 1,
       XL_OP_FOLDS = 2,
       XL_OP_COMMUTES = 4,
       XL_OP_EFFECT = 8,
       XL_OP_COLLECTIVE = 16,
       XL_OP_TERMINATOR = 32
};
typedef enum {
    XL_AK_I64, XL_AK_I32, XL_AK_F32, XL_AK_BOOL, XL_AK_STR, XL_AK_SYM, XL_AK_SYMS, XL_AK_DIMS, XL_AK_BOOLS, XL_AK_PAIRS,
    XL_AK_DENSE, XL_AK_TYPE, XL_AK_STRUCT, XL_AK_DICT, XL_AK_ARRAY, XL_AK_STR_OR_DICT, XL_AK_PRECISIONS, XL_AK_GROUPS,
    XL_AK_SHARDING, XL_AK_SHARDINGS, XL_AK_STRS, XL_AK_ATTR,
#define ENUM(name, text) XL_AK_ENUM_##name,
#include "ir/enums.def"
} xl_attr_want;
typedef enum {
    XL_DEF_REQUIRED, XL_DEF_ZERO, XL_DEF_ONE, XL_DEF_MINUS_ONE, XL_DEF_ONES, XL_DEF_ALL_ZERO, XL_DEF_EMPTY, XL_DEF_NONE
} xl_attr_default;

typedef struct { const char *name; xl_attr_want want; xl_attr_default def; } xl_attr_row;
typedef struct {
    const char *name;                                      /* "DOT_GENERAL" */
    const char *text;                                      /* "stablehlo.dot_general" */
    int16_t nin, nout, nregion;
    uint16_t row0; /* first row of xl_attr_rows; the next op's is one past its last */
    uint32_t flags;
} xl_op_info;
extern const xl_op_info xl_ops[XL_OP_COUNT + 1];
extern const xl_attr_row xl_attr_rows[];
static inline uint32_t xl_op_nattr(xl_opcode c) { return (uint32_t)(xl_ops[c + 1].row0 - xl_ops[c].row0); }
/* The op called `text` ("stablehlo.add"; func.return, stablehlo.return and sdy.return are one);
 * XL_OP_UNKNOWN if none. */
xl_opcode xl_opcode_find(xl_str text);
/* The slot of attribute `name`, or -1. */
int xl_slot_find(xl_opcode code, xl_str name);

typedef struct { uint32_t id; } xl_value;
#define XL_NO_VALUE ((xl_value){ UINT32_MAX })

typedef struct xl_op xl_op;
typedef struct xl_region xl_region;
typedef struct xl_func xl_func;
typedef struct xl_module xl_module;

struct xl_op {
    uint16_t code;                                         /* xl_opcode */
    uint16_t nregion;
    uint32_t nin, nout;
    xl_value *in, *out;
    xl_region **region;
    const xl_attr **attr;                                  /* inherent, xl_op_nattr(code) of them, NULL = default */
    const xl_attr *extra;                                  /* discardable: a DICT, or NULL for none */
    xl_loc loc;
    uint32_t mark;                                         /* scratch for the current pass */
    xl_str name;                                           /* UNKNOWN only: its full name */
    xl_region *parent;
};

struct xl_region {
    xl_value *arg;
    uint32_t narg, capop, nop;
    xl_op **op;                                            /* in order; the last is the terminator */
    xl_op *owner;                                          /* NULL for a function body */
};

typedef struct {
    const xl_type *type;
    xl_op *def;                                            /* NULL for an argument */
    xl_region *region;                                     /* argument of this region, or NULL */
    uint32_t index;                                        /* which result or argument */
    xl_loc loc;                                            /* arguments only; results have their op's */
    xl_str name;                                           /* as in the text, without %; often empty */
} xl_val;

struct xl_func {
    xl_module *m;
    xl_str name;
    enum { XL_PUBLIC, XL_PRIVATE, XL_NESTED } visibility;
    xl_region *body;                                       /* NULL: a declaration; then arg types are in `type` */
    const xl_type *type;                                   /* XL_TY_FUNC */
    const xl_attr **arg_attr, **res_attr;                  /* per argument and result: DICT or NULL */
    const xl_attr *extra;                                  /* other attributes: DICT or NULL */
    xl_loc loc;
    xl_val *val;
    uint32_t nval, capval;
};

typedef struct { xl_str name; const xl_mesh *mesh; xl_loc loc; } xl_mesh_sym;

typedef enum { XL_LOC_UNKNOWN, XL_LOC_FILE, XL_LOC_NAME, XL_LOC_CALL, XL_LOC_FUSED } xl_loc_kind;
typedef struct {
    xl_loc_kind kind;
    uint32_t line, col, end_line, end_col;                 /* FILE; end_* 0 where there is none */
    xl_str str;                                            /* FILE: path; NAME: name */
    xl_loc a, b;                                           /* NAME: child a. CALL: callee a, caller b */
    const xl_loc *list;                                    /* FUSED: n of them */
    uint32_t n;
    const xl_attr *meta;                                   /* FUSED: metadata or NULL */
} xl_loc_info;

struct xl_module {
    xl_arena arena;
    xl_str name;                                           /* may be empty */
    const xl_attr *extra;                                  /* module attributes: DICT or NULL */
    xl_func **func;
    uint32_t nfunc, capfunc;
    xl_mesh_sym *mesh;
    uint32_t nmesh, capmesh;
    xl_loc_info *loc;                                      /* loc[0] is unknown */
    uint32_t nloc, caploc;
    /* If locations are decoded on demand: fills the entry of `loc`. */
    void (*loc_decode)(xl_module *m, xl_loc loc);
    void *loc_ctx;
    struct xl_intern *intern;
};

/* ---- making ----------------------------------------------------------------------------------------------------- */
xl_module *xl_module_new(void);                            /* free with xl_module_free. NULL: no memory */
/* The same with a bound on its memory: when that is reached, the arena jumps to *oom (see arena.h). */
xl_module *xl_module_new_bounded(size_t limit, jmp_buf *oom);
void xl_module_free(xl_module *m);
xl_func *xl_module_func(const xl_module *m, xl_str name);  /* NULL if there is none */
xl_func *xl_module_entry(const xl_module *m);              /* public main; else the only public one; else NULL */
const xl_mesh *xl_module_mesh(const xl_module *m, xl_str name);

const xl_type *xl_type_tensor(xl_module *m, xl_dtype d, xl_dims dims);
const xl_type *xl_type_bounded(xl_module *m, xl_dtype d, xl_dims dims, const int64_t *bounds);
const xl_type *xl_type_scalar(xl_module *m, xl_dtype d);
const xl_type *xl_type_token(xl_module *m);
const xl_type *xl_type_tuple(xl_module *m, const xl_type *const *elem, uint32_t n);
const xl_type *xl_type_func(xl_module *m, const xl_type *const *in, uint32_t nin, const xl_type *const *out,
                            uint32_t nout);
const xl_type *xl_type_intern(xl_module *m, const xl_type *t); /* copies t, of any module, into m */
const xl_type *xl_type_with_dtype(xl_module *m, const xl_type *t, xl_dtype d); /* same shape, another element */

const xl_attr *xl_attr_unit(xl_module *m);
const xl_attr *xl_attr_bool(xl_module *m, bool b);
const xl_attr *xl_attr_int(xl_module *m, xl_dtype d, int64_t v);
const xl_attr *xl_attr_i64(xl_module *m, int64_t v);
const xl_attr *xl_attr_float(xl_module *m, xl_dtype d, uint64_t bits, double value);
const xl_attr *xl_attr_str(xl_module *m, xl_str s);
const xl_attr *xl_attr_sym(xl_module *m, xl_str s);
const xl_attr *xl_attr_type(xl_module *m, const xl_type *t);
const xl_attr *xl_attr_enum(xl_module *m, xl_enum e, int64_t v);
const xl_attr *xl_attr_ints(xl_module *m, xl_dtype d, xl_dims v);
const xl_attr *xl_attr_dims(xl_module *m, xl_dims v);      /* ints of i64 */
const xl_attr *xl_attr_array(xl_module *m, const xl_attr *const *item, uint32_t n);
/* Sorts by key; if a key is repeated, the last one counts. */
const xl_attr *xl_attr_dict(xl_module *m, const xl_str *key, const xl_attr *const *item, uint32_t n);
const xl_attr *xl_attr_struct(xl_module *m, xl_str name, const xl_str *key, const xl_attr *const *item, uint32_t n);
/* Data of one element makes a splat. The bytes are copied. */
const xl_attr *xl_attr_dense(xl_module *m, const xl_type *t, xl_str data);
const xl_attr *xl_attr_sharding(xl_module *m, const xl_sharding *s); /* keeps the pointer */
const xl_attr *xl_attr_mesh(xl_module *m, const xl_mesh *s);
const xl_attr *xl_attr_opaque(xl_module *m, xl_str text);
const xl_attr *xl_attr_import(xl_module *m, const xl_attr *a); /* deep copy from another module */
bool xl_attr_eq(const xl_attr *a, const xl_attr *b);       /* NULL equals only NULL */
const xl_attr *xl_dict_get(const xl_attr *dict, xl_str key); /* dict may be NULL */
const xl_attr *xl_dict_with(xl_module *m, const xl_attr *dict, xl_str key, const xl_attr *v); /* v NULL removes */

xl_loc xl_loc_file(xl_module *m, xl_str file, uint32_t line, uint32_t col);
xl_loc xl_loc_name(xl_module *m, xl_str name, xl_loc child);
xl_loc xl_loc_add(xl_module *m, const xl_loc_info *info);
const xl_loc_info *xl_loc_get(const xl_module *m, xl_loc loc);
/* The user's line: the innermost frame outside installed libraries. False if the location has none. */
bool xl_loc_line(const xl_module *m, xl_loc loc, xl_str *file, uint32_t *line, uint32_t *col);
/* The outermost frame outside the libraries below the line that called the program, whose xl_loc_stack is `caller`: a
 * line of the function that was called. False: not recorded. */
bool xl_loc_below(const xl_module *m, xl_loc loc, uint64_t caller, xl_str *file, uint32_t *line);
/* The n-th frame outside the libraries, the innermost is 0. function: "loss", or empty. */
bool xl_loc_frame(const xl_module *m, xl_loc loc, uint32_t n, xl_str *function, xl_str *file, uint32_t *line,
                  uint32_t *col);
xl_str xl_loc_label(const xl_module *m, xl_loc loc);       /* the outermost name, or empty */
bool xl_loc_passes(const xl_module *m, xl_loc loc, const char *part); /* some frame's file has `part` in its path */
uint64_t xl_loc_stack(const xl_module *m, xl_loc loc); /* a hash of the lines of all frames; 0: none */

xl_func *xl_func_new(xl_module *m, xl_str name);           /* appended to the module, with an empty body */
xl_region *xl_region_new(xl_func *f, xl_op *owner);
xl_value xl_region_add_arg(xl_func *f, xl_region *r, const xl_type *t, xl_loc loc);
/* An op with its results of the given types, appended to r when r is not NULL. Regions are new and empty. */
xl_op *xl_op_new(xl_func *f, xl_region *r, xl_opcode code, const xl_value *in, uint32_t nin,
                 const xl_type *const *out, uint32_t nout, uint32_t nregion, xl_loc loc);
void xl_region_append(xl_func *f, xl_region *r, xl_op *op);
void xl_op_set(xl_op *op, uint32_t slot, const xl_attr *a);
/* Sets attributes with default values to NULL and sorts `extra`. Readers call it after setting attributes. */
void xl_op_normalize(xl_module *m, xl_op *op);
/* Sets f->type from the body's arguments and the operands of its RETURN. */
void xl_func_set_type(xl_func *f);
/* Deep copy of f's body ops into region r of function g (same module), values mapped by map[f value id]; used by
 * inlining and cloning. Arguments must be mapped already. The terminator is not copied; its nret operands are returned
 * in ret. */
void xl_region_clone_into(xl_func *g, xl_region *r, const xl_func *f, const xl_region *body, xl_value *map,
                          xl_value *ret, uint32_t nret);
/* Adds the caller's location to the ops from `first` on, which were copied from a callee: frontends give the ops of
 * their helper functions no line. */
void xl_region_called_from(xl_module *m, const xl_region *r, uint32_t first, xl_loc caller);
xl_op *xl_op_clone(xl_func *g, xl_region *r, const xl_func *f, const xl_op *op, xl_value *map); /* with its regions */

/* ---- reading ---------------------------------------------------------------------------------------------------- */
static inline const xl_type *xl_value_type(const xl_func *f, xl_value v) { return f->val[v.id].type; }
static inline const xl_type *xl_in_type(const xl_func *f, const xl_op *op, uint32_t i)
{
    return f->val[op->in[i].id].type;
}
static inline const xl_type *xl_out_type(const xl_func *f, const xl_op *op, uint32_t i)
{
    return f->val[op->out[i].id].type;
}
static inline xl_op *xl_value_op(const xl_func *f, xl_value v) { return f->val[v.id].def; }
static inline xl_op *xl_region_end(const xl_region *r) /* the RETURN; NULL before the program is verified */
{
    XL_KNOWN(r->nop);                             /* otherwise the caller checks for NULL */
    return r->nop ? r->op[r->nop - 1] : NULL;
}
const char *xl_op_text(const xl_op *op);                   /* "stablehlo.add", or the unknown op's own name */

/* Typed access to inherent attributes; absent ones give their default. */
xl_dims xl_op_dims(const xl_op *op, uint32_t slot);        /* n = 0 when absent: see xl_dims_at */
int64_t xl_op_int(const xl_op *op, uint32_t slot);         /* INT, BOOL and ENUM too */
xl_str xl_op_str(const xl_op *op, uint32_t slot);          /* STR and SYM */
static inline int64_t xl_dims_at(xl_dims d, size_t i, int64_t absent) { return i < d.n ? d.p[i] : absent; }
/* Reads element i of a DENSE attribute of integer or i1 type. */
int64_t xl_dense_int(const xl_attr *a, int64_t i);
/* replica_groups as rows: *ngroup groups of *size device positions each (-1 pads); false if they are given by mesh
 * axes. */
bool xl_op_groups(const xl_op *op, uint32_t slot, const int64_t **ids, int64_t *ngroup, int64_t *size);

#endif
