/* src/cpu/tile/strip.h
 * The strip machine: an interpreter for the elementwise ops of tile programs. A strip is eight vectors of 4-byte
 * elements (32 elements on NEON, 64 with AVX2, 128 with AVX-512) held in registers: the machine's accumulator. Every
 * instruction is a function that takes the strip, performs one op on it (a second operand is read from memory), and
 * jumps to the next instruction with the strip still in registers. A chain of ops thus costs its arithmetic and one
 * jump per strip and op; only results and values used twice are stored. Instructions are data: no machine code is
 * generated.
 *
 * Operands are arrays (M: read at the strip's position) or scalars (S: the same for all elements). Elements are f32,
 * i32, u32, or truth values of 4 bytes, all ones or all zeros. Loads and stores also support bf16 and one-byte truth
 * values.
 * Code is read-only, and any thread may run it; each thread resolves it (fills in functions and pointers) in its own
 * memory. */
#ifndef XL_CPU_STRIP_H
#define XL_CPU_STRIP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Ops and forms of which two in a row are one instruction: its x is the first one's, its y the second one's. */
#define XL_STRIP_SIMPLE(F)                                                                                             \
    F(ADD, AM)                                                                                                         \
    F(ADD, AS) F(SUBTRACT, AM) F(SUBTRACT, AS) F(SUBTRACT, MA) F(SUBTRACT, SA) F(MULTIPLY, AM) F(MULTIPLY, AS)
enum { XL_STRIP_SIMPLES = 8 };

typedef enum {
    XL_STRIP_LOAD,
    XL_STRIP_STORE, /* forms AM and AS; the first operand is not read */
    XL_STRIP_LOAD_BF16,
    XL_STRIP_STORE_BF16,
    XL_STRIP_LOAD_TRUTH,
    XL_STRIP_STORE_TRUTH,
    XL_STRIP_SELECT, /* its own forms, below */
    XL_STRIP_PLUS_PRODUCT,
    XL_STRIP_PRODUCT_LESS,
    XL_STRIP_LESS_PRODUCT, /* x y + A, x y - A, A - x y, rounded once: MM, SM and SS */
    XL_STRIP_TIMES_PLUS,
    XL_STRIP_TIMES_LESS,
    XL_STRIP_LESS_TIMES, /* A x + y, A x - y, y - A x, rounded once: MM, MS, SM and SS */
    XL_STRIP_DIVIDE_BY,    /* form AS; x: what xl_strip_divisor computed for the divisor */
    XL_STRIP_DIVIDE_BY_SQRT,
    XL_STRIP_DIVIDE_BY_DIVIDE, /* the same, and then the root, or the quotient by the array y */
    XL_STRIP_DIVIDE_BY_UNDER,  /* the array y by the number, and that by the accumulator */
    XL_STRIP_SUM,
    XL_STRIP_MAX,
    XL_STRIP_MIN, /* folds the strip into the partial results at x */
#define UNARY(name, expr) XL_STRIP_##name,
#define BINARY(name, expr) XL_STRIP_##name,
#include "cpu/tile/strip.def"
#define XL_STRIP_AFTER(f, ff)                                                                                          \
    XL_STRIP_##f##_##ff##_ADD_AM, XL_STRIP_##f##_##ff##_ADD_AS, XL_STRIP_##f##_##ff##_SUBTRACT_AM,                     \
        XL_STRIP_##f##_##ff##_SUBTRACT_AS, XL_STRIP_##f##_##ff##_SUBTRACT_MA, XL_STRIP_##f##_##ff##_SUBTRACT_SA,       \
        XL_STRIP_##f##_##ff##_MULTIPLY_AM, XL_STRIP_##f##_##ff##_MULTIPLY_AS,
    XL_STRIP_SIMPLE(XL_STRIP_AFTER) /* in the order of the list, the first op's number times eight plus the second's */
#undef XL_STRIP_AFTER
    XL_STRIP_END,
    XL_STRIP_COUNT
} xl_strip_op;

/* A: the accumulator; x, y: what the instruction points to, in this order. */
typedef enum {
    XL_FORM_AM,
    XL_FORM_MA,
    XL_FORM_AS,
    XL_FORM_SA,
    XL_FORM_MM,
    XL_FORM_MS,
    XL_FORM_SM,
    XL_FORM_SS,
    XL_FORM_COUNT
} xl_strip_form;
/* Of select(truth, yes, no): A is the truth (x, y: yes and no), yes (x: truth, y: no), or no (x: truth, y: yes). */
typedef enum {
    XL_SELECT_MM,
    XL_SELECT_MS,
    XL_SELECT_SM,
    XL_SELECT_SS,
    XL_SELECT_YES_M,
    XL_SELECT_YES_S,
    XL_SELECT_NO_M,
    XL_SELECT_NO_S,
    XL_SELECT_COUNT
} xl_select_form;
/* Each op has every form once more, with the strip stored at z afterwards; stores and folds excepted. */
enum {
    XL_FORM_STORE = 8,
    XL_STRIP_FORMS = 16,
    XL_STRIP_WIDTH_MAX = 128,
    XL_STRIP_PARTS = 16
}; /* WIDTH_MAX: elements of the widest strip */

typedef void xl_strip_fn(void);                            /* its real type is the set's own */
typedef struct { xl_strip_fn *fn; const char *x, *y, *z; } xl_strip_ins;
typedef struct { int64_t none, x, y, z; } xl_strip_step;   /* how far they are apart from one line to the next, bytes */

/* Memory that is too large for the cache and will be wanted soon: lines to ask for while strips run, as many for each
 * as a strip has. A store without that waits for its line, and no CPU has room for many that wait. */
enum { XL_STRIP_AHEADS = 4 };
typedef struct {
    uint32_t n;
    struct {
        const char *at;                                    /* for the first strip */
        uint8_t size;                                      /* bytes of an element */
        bool write;
    } of[XL_STRIP_AHEADS];
} xl_strip_ahead;

/* A fold of whole lines: where its instruction has the partial results, what they are joined with, in this order, and
 * where the result of the first line goes and those of the others. */
typedef struct {
    uint16_t op;
    float *part, first;
    char *to;
    int64_t step;
} xl_strip_fold;

typedef struct {
    uint32_t needs;                                        /* features (feature.h) */
    size_t width;                                          /* elements of a strip */
    xl_strip_fn *fn[XL_STRIP_COUNT][XL_STRIP_FORMS];
    void (*run)(const xl_strip_ins *code, size_t n, const xl_strip_ahead *ahead); /* over n whole strips */
    /* Over lines of n strips each; `code` ends with XL_STRIP_END and is moved on by `step`, an entry for each of its
     * `ncode` others. */
    void (*lines)(xl_strip_ins *code, const xl_strip_step *step, uint32_t ncode, size_t n, size_t lines,
                  const xl_strip_ahead *ahead, const xl_strip_fold *fold, uint32_t nfold);
} xl_strip_set;

/* What is to be known of a divisor c that many numbers are divided by: out[0] is c; out[1] + out[2] is 1/c, rounded
 * toward zero to a float, and what that left. x/c is fma(x, out[1], x out[2]), correctly rounded, where |x| >= out[3]
 * (NaN: nowhere) or x is zero. */
void xl_strip_divisor(float c, float out[4]);

const xl_strip_set *xl_strips(void);                       /* the best that this machine has */

#endif
