/* src/cpu/kernel/conv_groups.h
 * A convolution of f32 in groups of few features, depthwise ones above all: vectors go over the features of all groups
 * and over the outputs of a row, instead of a matrix product for each group. Pure; any thread may call it. */
#ifndef XL_CPU_KERNEL_CONV_GROUPS_H
#define XL_CPU_KERNEL_CONV_GROUPS_H

#include "cpu/plan/plan.h"

/* Strides are in floats; those of channels (c) and features (o) lead to the next one. Output o meets the input's
 * element o step + k spread - low, where there is one. */
typedef struct {
    uint32_t ns;                                           /* at least 1 */
    int64_t n, groups, ci, co;                             /* images; groups; channels and features of one group */
    int64_t in[XL_RANK_MAX], out[XL_RANK_MAX], ker[XL_RANK_MAX];
    int64_t step[XL_RANK_MAX], spread[XL_RANK_MAX], low[XL_RANK_MAX];
    int64_t xs[XL_RANK_MAX], ks[XL_RANK_MAX], ys[XL_RANK_MAX], xn, xc, kc, ko, yn, yc;
    int64_t block;                                         /* groups that are computed together */
    const float *x, *k;
    float *y;
} xl_conv_groups;

/* Sets c->block and returns the bytes that the kernel takes in the order in which it is used; 0: a product for each
 * group is as good. The answer also holds for convolutions with fewer outputs, a smaller window, stride or dilation. */
size_t xl_conv_groups_plan(xl_conv_groups *c);
/* kernel: the bytes that were asked for. False: no memory, and nothing is computed. */
bool xl_conv_groups_run(xl_pool *pool, const xl_conv_groups *c, float *kernel);

#endif
