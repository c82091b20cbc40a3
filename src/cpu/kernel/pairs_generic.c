#define BYTES 16
#define NEEDS 0
#define SET xl_pairs_generic
#include "cpu/kernel/pairs.inl"
