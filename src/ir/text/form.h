/* src/ir/text/form.h
 * What the text writes as `key = value` after an op's operands, for reader and printer alike:
 *   stablehlo.broadcast_in_dim %0, dims = [1] : ...
 * KEY(op, key, attribute) in the order of printing. Ops with irregular forms (slice, dot_general, convolution, ...)
 * are code in both. */
#ifndef XL_IR_FORM_H
#define XL_IR_FORM_H

#include "ir/ir.h"

#define XL_KEYS(KEY)                                              \
    KEY(IOTA, "dim", iota_dimension)                              \
    KEY(DYNAMIC_IOTA, "dim", iota_dimension)                      \
    KEY(BROADCAST, "sizes", broadcast_sizes)                      \
    KEY(BROADCAST_IN_DIM, "dims", broadcast_dimensions)           \
    KEY(DYNAMIC_BROADCAST_IN_DIM, "dims", broadcast_dimensions)   \
    KEY(TRANSPOSE, "dims", permutation)                           \
    KEY(REVERSE, "dims", dimensions)                              \
    KEY(CONCATENATE, "dim", dimension)                            \
    KEY(PAD, "low", edge_padding_low)                             \
    KEY(PAD, "high", edge_padding_high)                           \
    KEY(PAD, "interior", interior_padding)                        \
    KEY(GET_DIMENSION_SIZE, "dim", dimension)                     \
    KEY(SET_DIMENSION_SIZE, "dim", dimension)                     \
    KEY(DYNAMIC_SLICE, "sizes", slice_sizes)                      \
    KEY(EINSUM, "config", einsum_config)                          \
    KEY(UNARY_EINSUM, "config", einsum_config)                    \
    KEY(FFT, "type", fft_type)                                    \
    KEY(FFT, "length", fft_length)                                \
    KEY(RNG, "distribution", rng_distribution)                    \
    KEY(RNG_BIT_GENERATOR, "algorithm", rng_algorithm)            \
    KEY(CHOLESKY, "lower", lower)

typedef struct { uint16_t op; uint16_t slot; const char *key; } xl_form_key;
extern const xl_form_key xl_form_keys[];                   /* ends with key NULL */

#endif
