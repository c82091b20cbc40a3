/* src/lane/predict.h
 * How much memory a program will need, before it is compiled: liveness analysis of our own program. A value takes
 * memory from the op that defines it to its last use; memory of a donated argument is counted once. Compilers differ in
 * what they keep; the one measurable difference is a rule here: does the device write elementwise results to memory, or
 * fuse them into their readers? */
#ifndef XL_LANE_PREDICT_H
#define XL_LANE_PREDICT_H

#include "ir/ir.h"
#include "pjrt/program.h"

typedef enum {
    XL_RULE_PLAIN, /* every op's result is in memory; elementwise ops work in place where their operand ends with them
                    */
    XL_RULE_FUSED, /* an elementwise result with one reader that is elementwise too is not, nor are reshapes and
                      broadcasts */
} xl_predict_rule;
const char *xl_predict_word(xl_predict_rule r);

typedef struct { int64_t arguments, outputs, aliased, temporary, constants, total; } xl_prediction;

/* What a compiler makes of temporaries, learned from smaller programs of the same model: what it fuses, copies or makes
 * again depends little on the batch. One program gives a ratio where the compiler needs less (it fuses), and what is
 * added where it needs more (copies of weights, which do not grow with the batch); two give a line, whose slope is kept
 * between half and twice that of one. */
typedef struct { double temporary; int64_t base, code; } xl_predict_scale;   /* base + temporary * predicted */
xl_predict_scale xl_predict_compare(const xl_prediction *p, const xl_program_memory *compiled);
/* Of two, the smaller first. */
xl_predict_scale xl_predict_line(const xl_prediction p[2], const xl_program_memory compiled[2]);
void xl_predict_apply(xl_prediction *p, const xl_predict_scale *s);

/* The program is simplified first, in a copy. */
xl_error *xl_predict(const xl_module *m, xl_predict_rule rule, xl_prediction *out) XL_MUST_USE;
/* Asks the compiler about two small programs: nothing runs. UNIMPLEMENTED where it gives no memory figures. */
xl_error *xl_predict_measure(xl_client *c, xl_predict_rule *out) XL_MUST_USE;

#endif
