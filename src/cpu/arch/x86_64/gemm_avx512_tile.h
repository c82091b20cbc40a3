/* src/cpu/arch/x86_64/gemm_avx512_tile.h
 * The 8x48 and 8x32 f32 tiles whose rows and columns are all there, in assembly: four steps of k unrolled, every
 * address an offset or an index, so that besides 24 products a step has 3 loads of B, 8 numbers of A and nothing else.
 * Compilers add a dozen instructions to each step, which costs a twentieth.
 *
 * Sum (i, j), of row i and vector j, is register 8 + 3i + j; 0 to 2 hold a step of B, 3 to 7 numbers of A. Of two NaNs
 * the result is the one that gemm_avx512.c's fma16 and add16 take. */
#ifndef XL_CPU_X86_GEMM_AVX512_TILE_H
#define XL_CPU_X86_GEMM_AVX512_TILE_H

#include <stdbool.h>
#include <stddef.h>

#include "cpu/kernel/gemm_set.h"

#define FMA(b, a, sum) "vfmadd231ps %%zmm" #a ", %%zmm" #b ", %%zmm" #sum "\n\t"
#define FMAS2(a, s0, s1, s2) FMA(0, a, s0) FMA(1, a, s1)
#define FMAS3(a, s0, s1, s2) FMAS2(a, s0, s1, s2) FMA(2, a, s2)
#define NUMBER(a, at) "vbroadcastss " at ", %%zmm" #a "\n\t"
#define LOAD2(B, q) "vmovups " B(q, 0) ", %%zmm0\n\tvmovups " B(q, 64) ", %%zmm1\n\t"
#define LOAD3(B, q) LOAD2(B, q) "vmovups " B(q, 128) ", %%zmm2\n\t"
#define STEP(NV, A, B, q)                                                                                              \
    LOAD##NV(B, q) NUMBER(3, A(q, 0)) FMAS##NV(3, 8, 9, 10) NUMBER(4, A(q, 1)) FMAS##NV(4, 11, 12, 13)                 \
    NUMBER(5, A(q, 2)) FMAS##NV(5, 14, 15, 16) NUMBER(6, A(q, 3)) FMAS##NV(6, 17, 18, 19)                              \
    NUMBER(7, A(q, 4)) FMAS##NV(7, 20, 21, 22) NUMBER(3, A(q, 5)) FMAS##NV(3, 23, 24, 25)                              \
    NUMBER(4, A(q, 6)) FMAS##NV(4, 26, 27, 28) NUMBER(5, A(q, 7)) FMAS##NV(5, 29, 30, 31)

/* Where number i of step q lies from %[a], and what lies `off` bytes into step q of B, as text; then how both go on by
 * one step and by four. A packed; along k, its rows `ar` apart (`a3` is three of them further); along m. */
#define PACKED_A(q, i) "32*" #q "+4*" #i "(%[a])"
#define PACKED_A_ONE "add $32, %[a]\n\t"
#define PACKED_A_FOUR "add $128, %[a]\n\t"
#define ALONG_K_0 "(%[a])"
#define ALONG_K_1 "(%[a], %[as])"
#define ALONG_K_2 "(%[a], %[as], 2)"
#define ALONG_K_3 "(%[a3])"
#define ALONG_K_4 "(%[a], %[as], 4)"
#define ALONG_K_5 "(%[a3], %[as], 2)"
#define ALONG_K_6 "(%[a], %[as3], 2)"
#define ALONG_K_7 "(%[a3], %[as], 4)"
#define ALONG_K(q, i) "4*" #q ALONG_K_##i
#define ALONG_K_ONE "add $4, %[a]\n\tadd $4, %[a3]\n\t"
#define ALONG_K_FOUR "add $16, %[a]\n\tadd $16, %[a3]\n\t"
#define ALONG_M_0 "(%[a])"
#define ALONG_M_1 "(%[a], %[as])"
#define ALONG_M_2 "(%[a], %[as], 2)"
#define ALONG_M_3 "(%[a], %[as3])"
#define ALONG_M(q, i) "4*" #i ALONG_M_##q
#define ALONG_M_ONE "add %[as], %[a]\n\t"
#define ALONG_M_FOUR "lea (%[a], %[as], 4), %[a]\n\t"
#define PACKED_B(q, off) "192*" #q "+" #off "(%[b])"
#define PACKED_B_ONE "add $192, %[b]\n\t"
#define PACKED_B_FOUR "add $768, %[b]\n\t"
#define PLAIN_B_0 "(%[b])"
#define PLAIN_B_1 "(%[b], %[bs])"
#define PLAIN_B_2 "(%[b], %[bs], 2)"
#define PLAIN_B_3 "(%[b], %[bs3])"
#define PLAIN_B(q, off) #off PLAIN_B_##q
#define PLAIN_B_ONE "add %[bs], %[b]\n\t"
#define PLAIN_B_FOUR "lea (%[b], %[bs], 4), %[b]\n\t"
#define FOUR(NV, A, B) STEP(NV, A, B, 0) STEP(NV, A, B, 1) STEP(NV, A, B, 2) STEP(NV, A, B, 3) A##_FOUR B##_FOUR

/* `count` times `body`, which may be none. */
#define TIMES(label, count, body)                                                                                      \
    "mov %[" #count "], %[n]\n\ttest %[n], %[n]\n\tjz 2" #label "f\n\t.p2align 5\n1" #label ":\n\t" body               \
    "dec %[n]\n\tjnz 1" #label "b\n2" #label ":\n\t"

#define EACH(f) f(0, 8, 9, 10) f(1, 11, 12, 13) f(2, 14, 15, 16) f(3, 17, 18, 19) f(4, 20, 21, 22) f(5, 23, 24, 25)    \
    f(6, 26, 27, 28) f(7, 29, 30, 31)
#define ZERO1(s) "vpxord %%zmm" #s ", %%zmm" #s ", %%zmm" #s "\n\t"
#define ZERO(i, x, y, z) ZERO1(x) ZERO1(y) ZERO1(z)
#define ADD1(off, s) "vmovups " #off "(%[c]), %%zmm0\n\tvaddps %%zmm" #s ", %%zmm0, %%zmm" #s "\n\t"
#define PUT1(off, s) "vmovups %%zmm" #s ", " #off "(%[c])\n\t"
#define PUT2(i, x, y, z) PUT1(0, x) PUT1(64, y) "add %[cs], %[c]\n\t"
#define PUT3(i, x, y, z) PUT1(0, x) PUT1(64, y) PUT1(128, z) "add %[cs], %[c]\n\t"
#define ADD2(i, x, y, z) ADD1(0, x) ADD1(64, y) PUT2(i, x, y, z)
#define ADD3(i, x, y, z) ADD1(0, x) ADD1(64, y) ADD1(128, z) PUT3(i, x, y, z)
#define CLOBBERS                                                                                                       \
    "zmm0", "zmm1", "zmm2", "zmm3", "zmm4", "zmm5", "zmm6", "zmm7", "zmm8", "zmm9", "zmm10", "zmm11", "zmm12",         \
        "zmm13", "zmm14", "zmm15", "zmm16", "zmm17", "zmm18", "zmm19", "zmm20", "zmm21", "zmm22", "zmm23", "zmm24",    \
        "zmm25", "zmm26", "zmm27", "zmm28", "zmm29", "zmm30", "zmm31", "memory", "cc"

/* A row of C. With packed factors it comes from far, and all rows are asked for in the last 64 steps: earlier, they
 * would be gone from L1 again. */
#define ASK_C2 "prefetchw (%[line])\n\tprefetchw 64(%[line])\n\tadd %[cs], %[line]\n\t"
#define ASK_C3 "prefetchw (%[line])\n\tprefetchw 64(%[line])\n\tprefetchw 128(%[line])\n\tadd %[cs], %[line]\n\t"
/* Cache lines of others, one in four steps: `asks` of them, each so far from %[at] as the list says. */
#define ASK "mov (%[list]), %[line]\n\tadd $8, %[list]\n\tprefetcht1 (%[at], %[line])\n\t"
/* A comes from L2. */
#define ASK_A "prefetcht0 512(%[a])\n\tprefetcht0 576(%[a])\n\t"
#define FINISH(NV)                                                                                                     \
    "cmpl $0, %[add]\n\tje 3f\n\t" EACH(ADD##NV) "jmp 4f\n3:\n\t" EACH(PUT##NV) "4:\n\t"

/* c[8][48] (+)= a b, k of the packed steps. Takes from *ask what it has asked for. */
static inline void xl_tile_8x48_packed(size_t k, const float *a, const float *b, float *c, ptrdiff_t ldc,
                                       bool accumulate, xl_gemm_ask *ask)
{
    size_t ones = k & 3, fours = k / 4, rows = fours < 16 ? 0 : 8, n;
    size_t asks = ask->count < fours - 2 * rows ? ask->count : fours - 2 * rows, plain = fours - 2 * rows - asks;
    ptrdiff_t cs = ldc * 4;
    const char *line;
    int add = accumulate;
    __asm__ volatile(
        EACH(ZERO) TIMES(1, ones, STEP(3, PACKED_A, PACKED_B, 0) PACKED_A_ONE PACKED_B_ONE)
        TIMES(2, asks, ASK_A ASK FOUR(3, PACKED_A, PACKED_B))
        TIMES(3, plain, ASK_A FOUR(3, PACKED_A, PACKED_B))
        "mov %[c], %[line]\n\t"
        TIMES(4, rows, ASK_A ASK_C3 FOUR(3, PACKED_A, PACKED_B) ASK_A FOUR(3, PACKED_A, PACKED_B)) FINISH(3)
        : [a] "+r"(a), [b] "+r"(b), [c] "+r"(c), [n] "=&r"(n), [line] "=&r"(line), [list] "+r"(ask->list)
        : [cs] "r"(cs), [at] "r"(ask->at), [ones] "m"(ones), [asks] "m"(asks), [plain] "m"(plain), [rows] "m"(rows),
          [add] "m"(add)
        : CLOBBERS);
    ask->count -= asks;
}

#define COMMA ,
/* The same of factors where they lie: A steps `as` bytes from row to row (along k) or along k (along m). */
#define PLAIN_TILE(name, NV, A, A3, THIRD)                                                                             \
    static inline void name(size_t k, const float *a, ptrdiff_t as, const float *b, ptrdiff_t bs, float *c,            \
                            ptrdiff_t cs, int add)                                                                     \
    {                                                                                                                  \
        size_t ones = k & 3, fours = k / 4, first = fours < 8 ? 0 : 8, plain = fours - first, n;                       \
        ptrdiff_t as3 = 3 * as, bs3 = 3 * bs;                                                                          \
        const char *line;                                                                                              \
        THIRD                                                                                                          \
        __asm__ volatile(                                                                                              \
            EACH(ZERO) "mov %[c], %[line]\n\t"                                                                         \
            TIMES(1, ones, STEP(NV, A, PLAIN_B, 0) A##_ONE PLAIN_B_ONE)                                                \
            TIMES(2, first, ASK_C##NV FOUR(NV, A, PLAIN_B)) TIMES(3, plain, FOUR(NV, A, PLAIN_B)) FINISH(NV)           \
            : [a] "+r"(a), A3 [b] "+r"(b), [c] "+r"(c), [n] "=&r"(n), [line] "=&r"(line)                               \
            : [as] "r"(as), [as3] "r"(as3), [bs] "r"(bs), [bs3] "r"(bs3), [cs] "r"(cs), [ones] "m"(ones),              \
              [first] "m"(first), [plain] "m"(plain), [add] "m"(add)                                                   \
            : CLOBBERS);                                                                                               \
    }
#define ALONG_K_THIRD const float *a3 = (const float *)((const char *)a + as3);
PLAIN_TILE(xl_tile_8x48_along_k, 3, ALONG_K, [a3] "+r"(a3) COMMA, ALONG_K_THIRD)
PLAIN_TILE(xl_tile_8x32_along_k, 2, ALONG_K, [a3] "+r"(a3) COMMA, ALONG_K_THIRD)
PLAIN_TILE(xl_tile_8x48_along_m, 3, ALONG_M, , )
PLAIN_TILE(xl_tile_8x32_along_m, 2, ALONG_M, , )

#endif
