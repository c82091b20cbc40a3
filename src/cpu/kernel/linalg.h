/* src/cpu/kernel/linalg.h: linear algebra that arrives as custom calls. */
#ifndef XL_CPU_KERNEL_LINALG_H
#define XL_CPU_KERNEL_LINALG_H

#include "cpu/plan/planner.h"

xl_error *xl_plan_qr(xl_planner *p, const xl_op *op) XL_MUST_USE;
xl_error *xl_plan_householder(xl_planner *p, const xl_op *op) XL_MUST_USE;
xl_error *xl_plan_eigh(xl_planner *p, const xl_op *op) XL_MUST_USE;
/* LAPACK's routines as JAX calls them. *known is false where the name is none that is served. */
xl_error *xl_plan_lapack(xl_planner *p, const xl_op *op, xl_str name, bool *known) XL_MUST_USE;
/* lapack_?gtsv_ffi, or the one that makes pivots that are none a little larger. */
xl_error *xl_plan_tridiagonal(xl_planner *p, const xl_op *op, bool perturb) XL_MUST_USE;
/* a (row by row, n x n) = z t z^T: t is triangular but for blocks of two rows, each with a pair of complex eigenvalues and equal diagonal
 * elements. a becomes t; work has n elements; false: no convergence. */
bool xl_schur_real(double *a, double *z, double *work, int64_t n);

#endif
