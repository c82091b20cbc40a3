/* src/cpu/kernel/gemm_type.h: the element types of a product's matrices. */
#ifndef XL_CPU_KERNEL_GEMM_TYPE_H
#define XL_CPU_KERNEL_GEMM_TYPE_H

typedef enum {
    XL_GEMM_F32,
    XL_GEMM_F64,
    XL_GEMM_BF16,
    XL_GEMM_F16,
    XL_GEMM_I8,
    XL_GEMM_U8,
    XL_GEMM_I32,
    XL_GEMM_TYPES
} xl_gemm_type;

#endif
