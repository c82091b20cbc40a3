/* src/train/sized.h
 * Public structs of options begin with their size, a size_t, as the program was compiled. A program and a library of
 * different versions then work together on the members that both know. Each call may be made from any thread. */
#ifndef XL_TRAIN_SIZED_H
#define XL_TRAIN_SIZED_H

#include "base/error.h"

/* The program's struct, `size` bytes long, gets the library's defaults, `n` bytes of `known`; what the library does not
 * know is zero. */
void xl_sized_fill(void *out, size_t size, const void *known, size_t n);
/* The members that both know go from the program's struct into `known`, which has the defaults of the others. An error
 * if the struct did not come from `start`, or sets a member that this library does not know. */
xl_error *xl_sized_read(const char *start, const void *in, void *known, size_t n) XL_MUST_USE;

#endif
