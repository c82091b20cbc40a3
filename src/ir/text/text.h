/* src/ir/text/text.h
 * The inside of the text reader. It makes one pass over the characters, without tokens: a function reads what it
 * expects at p->s and advances. Errors in the text longjmp to xl_read_text, which owns everything; so do the arenas
 * when memory runs out. The text is copied once, NUL-terminated, into the module, so names and plain strings are slices
 * of it. */
#ifndef XL_IR_TEXT_H
#define XL_IR_TEXT_H

#include <setjmp.h>

#include "base/table.h"
#include "ir/ir.h"

enum { XL_TEXT_DEPTH = 256 };                              /* of regions, attributes and types in each other */

typedef struct { xl_str name; int32_t binding; } xl_text_name;
typedef struct { uint32_t name, first, count; int32_t below; } xl_text_binding;   /* below: the binding that it hides */
typedef struct { xl_str name; const void *what; xl_loc loc; bool defined; const char *where; } xl_text_alias;
typedef struct { xl_str text; const xl_type *type; } xl_text_type;
typedef struct { xl_str key; const xl_attr *value; } xl_text_pair;

typedef struct { xl_str name; uint32_t count; } xl_text_result;

typedef struct {
    const char *s, *start, *end;                           /* *end is NUL */
    xl_str bytes;                                          /* the caller's */
    const xl_attr *attr;                                   /* what xl_read_text_attr asked for */
    const xl_type *just;                                   /* and xl_read_text_type */
    xl_module *m;
    xl_func *f;                                            /* the one being read */
    xl_arena tmp;
    jmp_buf out;
    xl_error *err;
    const char *op;                                        /* name of the current op, for messages */
    size_t nop;
    uint32_t depth;
    bool no_locations;

    xl_text_name *name;
    uint32_t nname, capname;
    xl_table name_index;
    xl_text_binding *bind;                                 /* a stack: scopes end by popping */
    uint32_t nbind, capbind;
    xl_text_alias *alias;                                  /* # and ! */
    uint32_t nalias, capalias;
    xl_table alias_index;
    xl_text_type *type;                                    /* types by their spelling */
    uint32_t ntype, captype;
    xl_table type_index;
    xl_text_pair *pair;                                    /* stacks that nested calls share */
    uint32_t npair, cappair;
    xl_value *val;
    uint32_t nval, capval;
    const xl_type **ty;
    uint32_t nty, capty;
    const xl_attr **item;
    uint32_t nitem, capitem;
    int64_t *num;
    uint32_t nnum, capnum;
    xl_text_result *want;                                  /* names before the = */
    uint32_t nwant, capwant;
    xl_region **reg;
    uint32_t nreg, capreg;
    xl_text_pair *res;                                     /* dense_resource: name, and its bytes as a STR attribute */
    uint32_t nres;
} xl_text;

/* ---- characters and words --------------------------------------------------------------------------------------- */
void xl_text_fail(xl_text *p, const char *fmt, ...) XL_PRINTF(2, 3) XL_NORETURN;
void xl_text_space(xl_text *p);                            /* past white space and comments */
extern const unsigned char xl_text_class[256];             /* bits below */
enum {
    XL_CH_WORD = 1 /* letters digits _ $ . */,
    XL_CH_SPACE = 2,
    XL_CH_DIGIT = 4,
    XL_CH_START = 8 /* letters _ */,
    XL_CH_HEX = 16
};
static inline bool xl_text_is(char c, int cls) { return xl_text_class[(unsigned char)c] & cls; }

static inline void text_skip(xl_text *p)
{
    if (*p->s == ' ' && !xl_text_is(p->s[1], XL_CH_SPACE) && p->s[1] != '/')
        p->s++;
    else if (xl_text_is(*p->s, XL_CH_SPACE) || *p->s == '/')
        xl_text_space(p);
}
static inline bool text_at(xl_text *p, char c) { text_skip(p); return *p->s == c; }
static inline bool text_take(xl_text *p, char c) { text_skip(p); if (*p->s != c) return false; p->s++; return true; }
void xl_text_want(xl_text *p, char c);
bool xl_text_word(xl_text *p, const char *word);           /* takes the whole word, if it is next */
void xl_text_want_word(xl_text *p, const char *word);
xl_str xl_text_ident(xl_text *p);                          /* [A-Za-z_][A-Za-z0-9_$.]*; an error if there is none */
xl_str xl_text_string(xl_text *p);                         /* a quoted string, escapes decoded */
xl_str xl_text_symbol(xl_text *p);                         /* @name, @"name", @a::@b */
int64_t xl_text_int(xl_text *p);                           /* signed, decimal or 0x */
bool xl_text_number(xl_text *p, int64_t *i,
                    bool *beyond); /* an integer; false and unmoved if a float or nothing follows */
uint32_t xl_text_hash(xl_str s);
void xl_text_enter(xl_text *p);                            /* one level deeper, or the error that it is too deep */
static inline void text_leave(xl_text *p) { p->depth--; }

/* ---- types and attributes (text_attr.c, text_dense.c, text_loc.c)
 * ------------------------------------------------------------------------- */
const xl_type *xl_text_type_of(xl_text *p);
const xl_attr *xl_text_attr(xl_text *p);
/* Reads { k = v, ... } onto p->pair; the caller pops it back to the mark. */
void xl_text_pairs(xl_text *p);
const xl_attr *xl_text_keyed(xl_text *p, uint32_t mark,
                             xl_str name);                 /* pops p->pair to mark: a DICT, or a STRUCT called name */
const xl_attr *xl_text_dict(xl_text *p);                   /* { ... } as a DICT; NULL if empty */
const xl_attr *xl_text_ints(xl_text *p);                   /* [1, 2, 3], or [[1, 2], [3, 4]] flat: INTS of I64 */
const xl_attr *xl_text_struct(xl_text *p, xl_str name);    /* <k = v, ...> */
const xl_attr *xl_text_conv(xl_text *p); /* [b, 0, f]x[0, i, o]->[b, 0, f] as a STRUCT stablehlo.conv */
const xl_attr *xl_text_dense(xl_text *p);                  /* dense<...> : T, after the word */
const xl_attr *xl_text_resource(xl_text *p);               /* dense_resource<...> : T, after the word */
uint64_t xl_text_scalar(xl_text *p, xl_dtype d);           /* one number, as the bits of d */
double xl_text_float(xl_text *p);
xl_text_alias *xl_text_find_alias(xl_text *p, xl_str name);
void xl_text_alias_def(xl_text *p);                        /* #name = ... or !name = ... */
void xl_text_resources(xl_text *p);                        /* {-# ... #-} */
bool xl_text_loc(xl_text *p, xl_loc *out);                 /* loc(...) if it is next */
void xl_text_check_aliases(xl_text *p);                    /* all defined, none in itself */

/* ---- ops (text_op.c, text_form.c) ------------------------------------------------------------------------------- */
enum { XL_TEXT_SLOTS = 24 };                               /* no op has more inherent attributes */
typedef struct { /* the current op; its parts are on the stacks above these marks */
    xl_region *r;
    xl_opcode code;
    xl_str name;
    const xl_attr *slot[XL_TEXT_SLOTS];
    uint32_t val0, ty0, pair0, reg0, want0;
    bool forward;                                          /* a cast: its results are its operands */
} xl_text_op;

typedef uint32_t xl_text_scope;
xl_text_scope xl_text_open(xl_text *p); /* names defined from here end with xl_text_close; one level deeper */
void xl_text_close(xl_text *p, xl_text_scope s);
void xl_text_region(xl_text *p, xl_region *r);             /* { ... } with its own names */
void xl_text_region_args(xl_text *p, xl_region *r);        /* %x: T, ...) after the parenthesis */
void xl_text_body(xl_text *p, xl_region *r);               /* the same where the arguments are named already */
xl_value xl_text_value(xl_text *p);                        /* %name or %name#2 */
void xl_text_operand(xl_text *p);                          /* the same, onto p->val */
void xl_text_operands(xl_text *p, char close);             /* until close, which is taken */
xl_str xl_text_value_name(xl_text *p);                     /* %name, to be defined */
void xl_text_define(xl_text *p, xl_str name, uint32_t first, uint32_t count);
void xl_text_put(xl_text *p, xl_text_op *c, xl_str key, const xl_attr *a);
void xl_text_attrs(xl_text *p, xl_text_op *c); /* { ... } if it is next: into slots, or kept as discardable */
void xl_text_functype(xl_text *p, xl_text_op *c);          /* (T, ...) -> T: operands checked, results onto p->ty */
void xl_text_generic(xl_text *p, xl_text_op *c);           /* what follows the quoted name */
void xl_text_custom(xl_text *p, xl_text_op *c);            /* what follows a bare name */

/* ---- shardy (text_sdy.c) ---------------------------------------------------------------------------------------- */
const xl_attr *xl_text_sharding(xl_text *p);               /* <@mesh, [...]> */
const xl_attr *xl_text_shardings(xl_text *p);              /* [<...>, ...] as an ARRAY */
const xl_mesh *xl_text_mesh(xl_text *p);                   /* <["x"=2], device_ids=[...]> */
const xl_attr *xl_text_axis_names(xl_text *p);             /* {"x", "y"} as an ARRAY of STR */
const xl_attr *xl_text_sdy_list(xl_text *p);               /* <manual_axes{"x"}> after #sdy, and lists of axes */
const xl_attr *xl_text_raw(xl_text *p, xl_str head);       /* a bracketed body as OPAQUE text: head, then the body */

#endif
