/* src/cpu/kernel/callback.h
 * Host callbacks: the custom calls xlane_python_callback and xlane_partitioned_python_callback. Their attribute
 * `number` identifies a function of the frontend, which registers one dispatcher for all of them
 * (cpu/pjrt/jax_rules.py). Any thread may call the dispatcher, also several at a time. */
#ifndef XL_CPU_CALLBACK_H
#define XL_CPU_CALLBACK_H

#include "cpu/plan/planner.h"

typedef struct { void *data; uint64_t rank; const int64_t *dims; } xl_host_array;
/* arrays: the operands, then the results, which it fills in. Not 0: it failed, and error, of size bytes, says why. */
typedef int xl_host_fn(uint64_t number, const xl_host_array *arrays, char *error, size_t size);

void xl_host_set(xl_host_fn *fn);
xl_error *xl_host_call(uint64_t number, const xl_host_array *arrays) XL_MUST_USE; /* in this thread */
/* Runs code that is not ours. A device of a program whose devices meet is a fiber: fn then runs in a thread of its own,
 * whose stack it knows. */
xl_error *xl_host_run(const xl_frame *f, void (*fn)(void *arg), void *arg) XL_MUST_USE;
bool xl_host_is(const xl_op *op);                          /* a custom call that is such a callback */
xl_error *xl_plan_host(xl_planner *p, const xl_op *op) XL_MUST_USE;

#endif
