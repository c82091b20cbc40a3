/* src/cpu/kernel/ffi.h
 * Custom calls to code that somebody else registered through the typed XLA FFI (ffi_abi.h). Registered functions and
 * types live as long as the process. A call gets the memory of its operands and results; it is instantiated when its
 * program is planned, and its state lives as long as the plan. Any thread may call these functions. */
#ifndef XL_CPU_FFI_H
#define XL_CPU_FFI_H

#include "cpu/kernel/ffi_abi.h"
#include "cpu/plan/planner.h"

/* A name can be registered again with the same functions only. execute is not optional. */
xl_error *xl_ffi_register(xl_str name, const XLA_FFI_Handler_Bundle *b) XL_MUST_USE;
/* *id 0: one is made up. Otherwise it is that of a type registered elsewhere. deleter ends a state of this type. */
xl_error *xl_ffi_type(xl_str name, int64_t *id, void (*deleter)(void *)) XL_MUST_USE;

/* What one execution hands to its calls (xl_frame.context): data of the frontend, by the ids of their types. */
typedef struct { uint32_t n; struct { int64_t type; void *data; } item[16]; } xl_ffi_context;

/* Sets *known to false, and does nothing, if the name is not registered. */
xl_error *xl_plan_ffi(xl_planner *p, const xl_op *op, xl_str name, bool *known) XL_MUST_USE;

#endif
