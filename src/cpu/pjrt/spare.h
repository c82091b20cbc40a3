/* src/cpu/pjrt/spare.h
 * Keeps freed memory for the next buffer of the same size. Otherwise the system would clear new pages for the results
 * of every execution of a program. Bounded in number and in bytes; any thread. */
#ifndef XL_CPU_SPARE_H
#define XL_CPU_SPARE_H

#include <stdbool.h>
#include <stddef.h>

void *xl_spare_take(size_t bytes);                         /* NULL: none of that size */
bool xl_spare_give(void *p, size_t bytes);                 /* false: not kept, the caller frees it */
void xl_spare_clear(void);

#endif
