/* src/cpu/tile/tile.h
 * Tile programs: how a group (fuse.h) runs. The iteration space of a group is rows and columns; a tile is some rows
 * with all their columns, or part of one row. For each tile, a short list of instructions runs over slots of a few
 * kilobytes that stay in the L1 cache: loads of operands that cannot be read in place, elementwise ops, reductions,
 * stores. Contiguous operands are read in place, and results are written in place where possible, without copies.
 *
 * Elementwise ops on 4-byte elements run on the strip machine (strip.h), many of them in one pass over the tile; others
 * run one array at a time (ew.h). tile.c builds the instructions, tile_code.c arranges them in stages and strip code,
 * and tile_run.c runs them.
 *
 * Narrow floats are f32 in slots and rounded after each op, as the specification requires. Values that do not depend on
 * the tile (scalars, vectors along the columns) are prepared once per chunk. The pool shares chunks; chunks and the
 * order in which their partial sums are joined depend only on the shapes. */
#ifndef XL_CPU_TILE_H
#define XL_CPU_TILE_H

#include "cpu/kernel/ew.h"
#include "cpu/plan/group.h"
#include "cpu/kernel/fold.h"
#include "cpu/tile/strip.h"

enum {
    XL_TILE_SIZE = 1024,
    XL_TILE_ROWS_SIZE = 4096,
    XL_TILE_CHUNK = 1 << 15,
    XL_TILE_PARTS = 32,
    XL_TILE_LINE = 256,
    XL_NO_REG = 0xffff
};

/* DO_EW: an array function; SPREAD: broadcasts one number per row to the whole tile; LOAD: loads an operand that is
 * not read in place, a number per row, or one for all; ROW, COL, ALL: reductions; STRIPS: a piece of strip code;
 * DIVISOR: prepares division by a number in strip code. */
typedef enum {
    DO_EW,
    DO_SPREAD,
    DO_LOAD,
    DO_LOAD_ROW,
    DO_LOAD_ONE,
    DO_DIVISOR,
    DO_ROW,
    DO_COL,
    DO_ALL,
    DO_STRIPS
} xl_tile_act;

typedef struct {
    uint32_t buf;
    int64_t off, row, col;
    size_t elem;
} xl_tile_direct; /* elements: off + r * row + c * col */

typedef struct {                                           /* operands that are not read in place */
    uint32_t buf;
    int64_t off;
    size_t elem;
    const int64_t *stride;                                 /* per dimension of the space */
    xl_widen_fn *widen;
} xl_tile_load;

/* What a piece of strip code asks memory for (strip.h): an operand in memory, and which of its lines: those that this
 * pass will write a little later, those that a later pass over this tile will write, or those that the first pass over
 * the next tile will read. */
typedef enum { XL_AHEAD_THIS_PASS, XL_AHEAD_THIS_TILE, XL_AHEAD_NEXT_TILE } xl_ahead_when;
typedef struct { uint16_t of; uint8_t when; } xl_tile_ahead;

typedef struct {
    xl_tile_act act;
    bool row;                                              /* over the tile's rows, not its elements */
    bool lines, folds;                                     /* STRIPS: a row at a time; reductions among them */
    bool late;                                             /* while planning: only after everything else */
    uint16_t dst, src[3];
    uint32_t nsrc,
        arg; /* arg: which load; ROW: operand with the initial value; COL, ALL: which partial; STRIPS: first code */
    uint32_t ncode, nahead;
    xl_tile_ahead ahead[XL_STRIP_AHEADS];
    int32_t strip;                                         /* while planning: the strip op, or -1 */
    size_t elem;
    xl_ew ew;
    xl_line_fn *line;
    xl_rows_fn *rows;                                      /* ROW: the same for many short rows, or NULL */
    xl_widen_fn *widen;                                    /* of the initial value */
} xl_tile_instr;

typedef struct { /* one pointer of a strip instruction: ref[of] + line * step */
    uint16_t of;
    uint8_t size;                                          /* of an element of an array; 0: a number, or none */
    bool used, write;
    int64_t step;
} xl_tile_point;
typedef struct {
    uint16_t op;
    uint8_t form;
    xl_tile_point x, y, z; /* of a fold: which of its piece's; the result, one per line */
    const xl_tile_instr *fold;
} xl_tile_code;

typedef struct {                                           /* a result that chunks make in parts */
    uint32_t out, init, temp;                              /* buffers of the step */
    bool all;
    xl_ew ew;
    size_t elem;
    xl_widen_fn *widen;
    xl_narrow_fn *narrow;
} xl_tile_partial;

typedef struct {
    uint32_t rank, split;
    int64_t dim[XL_RANK_MAX];
    int64_t rows, cols, tile_rows, tile_cols;
    bool by_cols;                                          /* chunks are ranges of columns */
    size_t n, grain, nchunk;                               /* of rows or columns */
    uint32_t nhoist, ninstr, ndirect, nslot, npart, nload, longest,
        nfold; /* longest: piece of strip code; nfold: the most folds in one */
    const xl_tile_instr *hoist, *ins;
    const xl_tile_code *code;
    const xl_tile_direct *dir;
    const xl_tile_load *loads;
    const xl_tile_partial *part;
    size_t slot_bytes;
    double work;
} xl_tile_program;

xl_step_fn xl_tile_run;                                    /* of a step whose data is a program */
xl_error *xl_tile_run_part(const xl_step *s, xl_frame *f, size_t begin, size_t end); /* rows, or elements of a row */

/* ---- while planning ---- */
typedef struct {
    bool row, hoisted, same, truth,
        along; /* same: one number throughout; truth: in strips, four bytes each; along: one line for all */
    size_t elem;
    int32_t direct;                                        /* index, or -1 */
    int32_t def;                                           /* instruction that makes it, or -1 */
    uint32_t slot, made, last;                             /* slot, and positions, once scheduled */
    bool kept, outside;                                    /* in memory; wanted outside its piece of strip code */
    bool again;                                            /* made in each pass that reads it, if not wanted outside */
    uint32_t users;                                        /* in its piece of strip code */
    uint16_t other, spread; /* the same as truth values of the other size; the same for all columns */
} xl_tile_reg;

typedef struct {
    uint32_t buf;
    xl_dtype dtype;
    bool row, along;
    uint16_t reg;
    int64_t off;
    const int64_t *stride;
} xl_tile_leaf;

typedef struct {
    xl_planner *p;
    xl_group *g;
    xl_tile_program *pr;
    xl_tile_reg *r; uint32_t nreg, capreg;
    xl_tile_instr *i; uint32_t ni, capi;
    xl_tile_instr *h; uint32_t nh, caph;
    xl_tile_instr *list; uint32_t nlist, caplist;          /* in the order in which they run */
    xl_tile_code *code; uint32_t ncode, capcode;           /* registers in place of refs until slots are known */
    xl_tile_load *l; uint32_t nl, capl;
    xl_tile_direct *d; uint32_t nd, capd;
    xl_tile_leaf *leaf; uint32_t nleaf, capleaf;
    xl_tile_partial *part; uint32_t npart, cappart;
    uint32_t *in; xl_value *val; xl_extent *shape; uint32_t nin, capin, capval, capshape; /* val: the value there */
    uint32_t inplace;
    bool lines;                                            /* rows are long enough for strips */
    uint32_t *stage, nstage;                               /* per instruction */
    uint16_t acc;                                          /* the register that the strip holds */
    uint16_t *of;                                          /* per member: its register, XL_NO_REG for COL and ALL */
} xl_tile_maker;

/* Orders m->i into m->list and m->code. */
void xl_tile_schedule(xl_tile_maker *m);
/* Sets made and last of every register: positions in that order. */
void xl_tile_positions(xl_tile_maker *m);
/* After which position operand `buf` is read no more. */
uint32_t xl_tile_read_last(const xl_tile_maker *m, uint32_t buf);
/* Appends what copies register r to register `to` after all else: in strips, or with an array function. */
void xl_tile_copy_out(xl_tile_maker *m, uint16_t r, uint16_t to, xl_ew ew);
/* Gives registers their places in memory, and the program its parts. */
void xl_tile_finish(xl_tile_maker *m);

/* The strip op that does `op` on operands of types in[], or -1; XL_STRIP_LOAD: nothing is to be done. */
int32_t xl_tile_strip_of(const xl_op *op, const xl_dtype *in, xl_dtype out);

#endif
