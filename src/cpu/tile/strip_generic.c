/* 16-byte vectors: NEON on AArch64, SSE2 on x86-64, plain C elsewhere. */
#define BYTES 16
#define NEEDS 0
#define SET xl_strip_generic
#include "cpu/tile/strip.inl"
