/* src/ir/read.h
 * Programs from bytes: StableHLO text, MLIR bytecode (VHLO artifacts of any version, native StableHLO, sdy between), and
 * HloModuleProto. The input is not trusted: depth, counts and memory are bounded, and an error names the line or the byte.
 * On success the caller owns *out. */
#ifndef XL_IR_READ_H
#define XL_IR_READ_H

#include "ir/ir.h"

typedef struct {
    size_t memory;                                         /* bound on the module's arena; 0: a generous one by input size */
    bool no_locations;                                     /* drop them: faster where nobody will ask */
} xl_read_opts;

/* Looks at the first bytes to tell the format. opts may be NULL. */
xl_error *xl_read(xl_str bytes, const xl_read_opts *opts, xl_module **out) XL_MUST_USE;
xl_error *xl_read_text(xl_str bytes, const xl_read_opts *opts, xl_module **out) XL_MUST_USE;
xl_error *xl_read_bytecode(xl_str bytes, const xl_read_opts *opts, xl_module **out) XL_MUST_USE;
xl_error *xl_read_hlo(xl_str bytes, const xl_read_opts *opts, xl_module **out) XL_MUST_USE;

#endif
