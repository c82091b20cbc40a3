/* src/pass/calls.h
 * The size of a program after its calls are inlined, computed before anything is copied. */
#ifndef XL_PASS_CALLS_H
#define XL_PASS_CALLS_H

#include "ir/ir.h"

/* EXHAUSTED where calls that call multiply the program's ops beyond what any compiler makes: more than 64 times, and
 * more than 65,536.
 * Memory and time are in proportion to the program as it is written. */
xl_error *xl_calls_check(const xl_module *m) XL_MUST_USE;

#endif
