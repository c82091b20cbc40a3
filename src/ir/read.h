/* src/ir/read.h
 * Programs from bytes: StableHLO text, MLIR bytecode (VHLO artifacts of any version, native StableHLO, sdy between),
 * and HloModuleProto. The input is not trusted: depth, counts and memory are bounded, and an error names the line or
 * the byte.
 * On success the caller owns *out.
 *
 * All readers produce the same form, so that a program has the same hash in every format:
 *   slot kinds    I64 I32 BOOL F32 ENUM  INT, BOOL, FLOAT, ENUM attributes (a unit flag becomes BOOL true)
 *                 DIMS, PAIRS            INTS of I64, pairs flat (lo0, hi0, lo1, ...), a splat written out; BOOLS: INTS
 *                 of I1 PRECISIONS             ARRAY of ENUM; SYMS: ARRAY of SYM; STRS: ARRAY of STR (manual_axes)
 *                 GROUPS                 DENSE of I64, rank 2, or STRUCT "stablehlo.replica_group_mesh_axes"
 *                 SHARDINGS              ARRAY of SHARDING; the same for a discardable sdy.sharding that is per value
 *                 TYPE                   TYPE; an element type on its own (f32) is the rank-0 tensor of it
 *                 STRUCT                 "stablehlo.result_accuracy" with atol, rtol (FLOAT F64), ulps (INT I64), mode
 *                 (ENUM)
 *   custom_call   layouts DENSE of INDEX; aliases STRUCT "stablehlo.output_operand_alias" with operand_index (INT I64),
 *                 operand_tuple_indices, output_tuple_indices (INTS I64)
 *   channels      channel_id, and channel_type of send and recv only
 *   constants     2- and 4-bit elements hold their bits and zeros above them; i1 is 0 or 1
 *   sdy           mesh symbols in m->mesh (the stablehlo.mesh attribute on them says the same and is dropped);
 *   propagation
 *                 direction INT I32; everything else of sdy (op_sharding_rule, axis lists) OPAQUE, as MLIR prints it
 *   casts         builtin.unrealized_conversion_cast is forwarded: its result is its operand */
#ifndef XL_IR_READ_H
#define XL_IR_READ_H

#include "ir/ir.h"

typedef struct {
    size_t memory; /* bound on the module's arena; 0: one that grows with the input */
    bool no_locations;                                     /* drop locations, which is faster */
} xl_read_opts;

/* Detects the format from the first bytes; xl_read does so too. opts may be NULL. */
typedef enum { XL_SYNTAX_TEXT, XL_SYNTAX_BYTECODE, XL_SYNTAX_HLO } xl_syntax;
xl_syntax xl_syntax_of(xl_str bytes);
xl_error *xl_read(xl_str bytes, const xl_read_opts *opts, xl_module **out) XL_MUST_USE;
xl_error *xl_read_text(xl_str bytes, const xl_read_opts *opts, xl_module **out) XL_MUST_USE;
xl_error *xl_read_bytecode(xl_str bytes, const xl_read_opts *opts, xl_module **out) XL_MUST_USE;
xl_error *xl_read_hlo(xl_str bytes, const xl_read_opts *opts, xl_module **out) XL_MUST_USE;

/* One attribute or type in its textual form, into an existing module: bytecode may embed them. */
xl_error *xl_read_text_attr(xl_module *m, xl_str text, const xl_attr **out) XL_MUST_USE;
xl_error *xl_read_text_type(xl_module *m, xl_str text, const xl_type **out) XL_MUST_USE;

/* Puts attribute `name` of an op with this code into its slot (slot: xl_op_nattr(code) of them), in the form above;
 * structs that ops.def has flat (#stablehlo.dot, gather, scatter, conv, dot_algorithm, channel_handle) are taken apart.
 * NULL on success; "" if the op has no such attribute (which is discardable then); otherwise what is wrong with the
 * value. */
const char *xl_slot_put(xl_module *m, xl_opcode code, const xl_attr **slot, xl_str name, const xl_attr *a);

#endif
