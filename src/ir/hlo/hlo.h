/* src/ir/hlo/hlo.h
 * The inside of the HloModuleProto reader, shared by its files: hlo.c indexes the module and lowers computations,
 * hlo_op.c has one function per HLO opcode, hlo_type.c shapes, literals and shardings. Messages are read where they are
 * needed, straight from the bytes. A mistake in the input leaves by longjmp to `fail`, with the error in `err`. */
#ifndef XL_IR_HLO_H
#define XL_IR_HLO_H

#include <setjmp.h>

#include "base/proto.h"
#include "base/table.h"
#include "ir/hlo/hlo_fields.h"
#include "ir/ir.h"

typedef struct xl_hlo_comp xl_hlo_comp;

/* An HLO value is a tree of tuples; here it is the list of its leaves, so tuples and get-tuple-element cost nothing. */
typedef struct { xl_value *v; uint32_t n; } xl_hlo_leaves;
typedef struct { const xl_type **t; uint32_t n; } xl_leaf_types;

typedef struct {
    xl_str bytes;                                          /* the HloInstructionProto */
    xl_str name, opcode;
    int64_t id;
    const xl_type *type;                                   /* of its shape; tuples are tuples */
    const int64_t *operand;                                /* ids */
    uint32_t noperand;
} xl_hlo_inst;

struct xl_hlo_comp {
    xl_str name;
    int64_t id, root;
    xl_hlo_inst *inst;
    uint32_t ninst;
    xl_table by_id;
    const xl_hlo_inst **param;
    uint32_t nparam;
    xl_func *func;                                         /* once it was needed as one */
    bool busy;
};

typedef struct {
    jmp_buf fail;
    xl_error *err;
    xl_module *m;
    xl_arena tmp;
    xl_str bytes;
    bool no_locations;
    xl_hlo_comp *comp;
    uint32_t ncomp;
    xl_str *file, *function, *place, *frame;               /* the stack frame index; ids start at 1 */
    uint32_t nfile, nfunction, nplace, nframe;
    uint32_t capfile, capfunction, capplace, capframe;
    xl_loc *frame_loc;
    uint64_t work, max_work;                               /* instructions lowered: inlining must not explode */
    uint32_t depth;
    xl_buf text;
} xl_hlo;

/* Where a computation is being lowered to. */
typedef struct {
    xl_hlo *h;
    xl_func *f;
    xl_region *r;
    xl_hlo_comp *c;
    xl_hlo_leaves *val;                                        /* per instruction; v NULL: not yet */
    const xl_hlo_leaves *param;                                /* per parameter */
    const xl_hlo_inst *i;                                  /* the one at hand */
} xl_low;

void xl_hlo_fail(xl_hlo *h, const char *at, xl_code code, const char *fmt, ...) XL_PRINTF(4, 5) XL_NORETURN;
#define XL_HLO_FAIL(h, at, ...) xl_hlo_fail((h), (at), XL_CODE_INVALID, __VA_ARGS__)

/* ---- messages --------------------------------------------------------------------------------------------------- */
bool xl_hlo_next(xl_hlo *h, xl_proto *p, xl_proto_field *f);
/* The next field of this number; false at the end. */
bool xl_hlo_each(xl_hlo *h, xl_proto *p, uint32_t number, xl_proto_field *f);
int64_t xl_hlo_num(xl_hlo *h, xl_str msg, uint32_t number);            /* 0 where it is absent */
xl_str xl_hlo_sub(xl_hlo *h, xl_str msg, uint32_t number, bool *have); /* have may be NULL */
xl_dims xl_hlo_ints(xl_hlo *h, xl_str msg, uint32_t number);           /* packed or not; in h->tmp */

/* ---- shapes, literals, shardings (hlo_type.c) -------------------------------------------------------------------- */
const xl_type *xl_hlo_type(xl_hlo *h, xl_str shape);
xl_leaf_types xl_hlo_leaf_types(xl_hlo *h, const xl_type *t);
uint32_t xl_hlo_nleaf(const xl_type *t);
const xl_attr *xl_hlo_literal(xl_hlo *h, xl_str literal, const xl_type *t);
/* minor_to_major of a shape's layout as a dense list of indices; *plain: it is the default one. */
const xl_attr *xl_hlo_layout(xl_hlo *h, xl_str shape, const xl_type *t, bool *plain);
const xl_attr *xl_hlo_sharding(xl_hlo *h, xl_str sharding);            /* the string HLO prints */
const xl_attr *xl_hlo_frontend(xl_hlo *h, xl_str attributes);          /* DICT, or NULL where empty */

/* ---- lowering ---------------------------------------------------------------------------------------------------- */
void xl_hlo_op(xl_low *l);                                             /* hlo_op.c */
const xl_hlo_inst *xl_hlo_find(const xl_hlo_comp *c, int64_t id);     /* NULL if there is none */
xl_hlo_leaves xl_hlo_operand(xl_low *l, uint32_t k);
xl_hlo_comp *xl_hlo_called(xl_low *l, uint32_t k);
/* A computation as a function of its own, as a region, or in place. */
xl_func *xl_hlo_func(xl_hlo *h, xl_hlo_comp *c);
void xl_hlo_region(xl_low *l, xl_hlo_comp *c, xl_region *r);
xl_hlo_leaves xl_hlo_inline(xl_low *l, xl_hlo_comp *c, xl_region *r, const xl_hlo_leaves *param, uint32_t nparam);
xl_loc xl_hlo_loc(xl_hlo *h, const xl_hlo_inst *i);

#endif
