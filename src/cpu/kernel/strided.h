/* src/cpu/kernel/strided.h
 * Copies between strided views: slices, transposes, broadcasts, reversals, pads and concatenations. A copy is prepared
 * once when planning (contiguous dimensions joined, the loop order chosen for the destination) and run many times. */
#ifndef XL_CPU_STRIDED_H
#define XL_CPU_STRIDED_H

#include "cpu/plan/plan.h"

typedef struct {
    uint32_t rank;
    size_t elem;
    int64_t dim[XL_RANK_MAX], to[XL_RANK_MAX], from[XL_RANK_MAX]; /* strides in bytes; a `from` of 0 broadcasts */
    int64_t count;
} xl_strided;

void xl_strided_init(xl_strided *s, size_t elem, uint32_t rank, const int64_t *dim, const int64_t *to,
                     const int64_t *from);
void xl_strided_run(const xl_strided *s, void *to, const void *from, xl_pool *pool);
/* Row-major strides in bytes of a shape. */
void xl_row_major(int64_t *stride, uint32_t rank, const int64_t *dim, size_t elem);
/* n copies of one element. */
void xl_fill(void *to, const void *elem, size_t bytes, size_t n);

#endif
