/* src/cpu/kernel/fft.h
 * The inner loops of Fourier transforms. Several lines are transformed together: element k of line l is at k * lanes +
 * l, with real and imaginary parts in separate arrays. The basic transform is forward, unscaled, of m points, in stages
 * of small radix; other lengths and directions are built from it. Pure; any thread. */
#ifndef XL_CPU_KERNEL_FFT_H
#define XL_CPU_KERNEL_FFT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { XL_FFT_FACTORS = 40, XL_FFT_LANES = 16 };
typedef struct { size_t radix; void *u, *w; } xl_fft_stage; /* on reals: cos and sin of 2 pi k / radix; its factors */
typedef struct {                                           /* a length */
    int64_t n, m; /* m: of the stages; n, or a power of two for Bluestein's convolution */
    uint32_t nfactor;
    uint8_t factor[XL_FFT_FACTORS];
    void *w; /* per stage: of an odd radix its roots, then the twiddle factors; floats or doubles, as all here */
    void *each; /* NULL, or for a line by itself the factors of the first two stages, element by element */
    void *chirp, *kernel;                                  /* NULL, or Bluestein's: n and m factors */
    xl_fft_stage *stage; /* NULL, or nfactor of them: from or to reals, by stages on reals and nothing else */
} xl_fft_line;

typedef struct { /* the transform of the middle dimension of [outer, n, inner] */
    const xl_fft_line *l;
    const void *src;
    void *dst;
    int64_t inner, sn, dn;                                 /* elements of a line that are read and written */
    bool real_in, real_out, half, inverse;                 /* half: the rest of what is read are its conjugates */
    double scale;
} xl_fft_pass;

/* Lines first, ... of a pass, at most XL_FFT_LANES; mem has room for 4 * m * lanes numbers. */
typedef void xl_fft_fn(const xl_fft_pass *p, int64_t first, int64_t lanes, void *mem);
typedef struct { uint32_t needs; xl_fft_fn *f32, *f64; } xl_fft_set;

#endif
