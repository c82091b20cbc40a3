#define BYTES 16
#define NEEDS 0
#define SET xl_fft_generic
#include "cpu/kernel/fft_set.inl"
