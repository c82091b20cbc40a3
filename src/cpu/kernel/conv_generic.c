/* conv_line.h with 16-byte vectors; the block of outputs fits in the registers. */
#define BYTES 16
#if defined(__aarch64__)
#define ROWS 6
#else
#define ROWS 3
#endif
#define NEEDS 0
#define SET xl_conv_generic
#include "cpu/kernel/conv_line.inl"
