/* src/cpu/kernel/linalg.h: linear algebra that arrives as custom calls. */
#ifndef XL_CPU_KERNEL_LINALG_H
#define XL_CPU_KERNEL_LINALG_H

#include "cpu/plan/planner.h"

/* LAPACK's routines as JAX and XLA call them. *known is false if the name is not supported. */
xl_error *xl_plan_lapack(xl_planner *p, const xl_op *op, xl_str name, bool *known) XL_MUST_USE;
/* lapack_?gtsv_ffi, or the one that makes pivots that are none a little larger. */
xl_error *xl_plan_tridiagonal(xl_planner *p, const xl_op *op, bool perturb) XL_MUST_USE;

#endif
