/* cholesky.h with 16-byte vectors. */
#define BYTES 16
#define WIDE 2
#define MOST 64
#define NEEDS 0
#define SET xl_cholesky_generic
#include "cpu/kernel/cholesky_set.inl"
