/* src/cpu/pjrt/spare.h
 * Memory that was given back, kept for the next buffer of the same size: a program that runs again and again would
 * otherwise have the system clear new pages for its results each time. Bounded in number and in bytes; any thread. */
#ifndef XL_CPU_SPARE_H
#define XL_CPU_SPARE_H

#include <stdbool.h>
#include <stddef.h>

void *xl_spare_take(size_t bytes);                         /* NULL: none of that size */
bool xl_spare_give(void *p, size_t bytes);                 /* false: not kept, the caller frees it */
void xl_spare_clear(void);

#endif
