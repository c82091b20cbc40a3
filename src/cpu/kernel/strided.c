#include "cpu/kernel/strided.h"

/* The dimensions of an empty tensor may have a product that overflows; its strides wrap and are never used. */
static int64_t times(int64_t a, int64_t b) { return (int64_t)((uint64_t)a * (uint64_t)b); }

void xl_row_major(int64_t *stride, uint32_t rank, const int64_t *dim, size_t elem)
{
    int64_t s = (int64_t)elem;
    for (uint32_t i = rank; i-- > 0; ) {
        stride[i] = s;
        s = times(s, dim[i]);
    }
}

void xl_fill(void *to, const void *elem, size_t bytes, size_t n)
{
    if (!n)
        return;
    const unsigned char *e = elem;
    bool same = true;
    for (size_t i = 1; i < bytes; i++)
        same = same && e[i] == e[0];
    if (same) {
        memset(to, e[0], n * bytes);
        return;
    }
    switch (bytes) {
    case 2: { uint16_t v; memcpy(&v, e, 2); uint16_t *p = to; for (size_t i = 0; i < n; i++) p[i] = v; return; }
    case 4: { uint32_t v; memcpy(&v, e, 4); uint32_t *p = to; for (size_t i = 0; i < n; i++) p[i] = v; return; }
    case 8: { uint64_t v; memcpy(&v, e, 8); uint64_t *p = to; for (size_t i = 0; i < n; i++) p[i] = v; return; }
    default: for (size_t i = 0; i < n; i++) memcpy((char *)to + i * bytes, e, bytes);
    }
}

void xl_strided_init(xl_strided *s, size_t elem, uint32_t rank, const int64_t *dim, const int64_t *to,
                     const int64_t *from)
{
    bool none = false;
    *s = (xl_strided){ .elem = elem, .count = 1 };
    for (uint32_t i = 0; i < rank; i++) {
        s->count = times(s->count, dim[i]);
        none = none || dim[i] == 0;
        if (dim[i] == 1)
            continue;
        uint32_t at = s->rank++;                           /* insertion by the writer's stride, largest first */
        while (at > 0 && s->to[at - 1] < to[i]) {
            s->dim[at] = s->dim[at - 1], s->to[at] = s->to[at - 1], s->from[at] = s->from[at - 1];
            at--;
        }
        s->dim[at] = dim[i], s->to[at] = to[i], s->from[at] = from[i];
    }
    if (none) {
        s->count = s->rank = 0;
        return;
    }
    uint32_t n = 0;                                        /* join neighbours that run on */
    for (uint32_t i = 0; i < s->rank; i++) {
        if (n && s->to[n - 1] == times(s->to[i], s->dim[i]) && s->from[n - 1] == times(s->from[i], s->dim[i])) {
            s->dim[n - 1] *= s->dim[i], s->to[n - 1] = s->to[i], s->from[n - 1] = s->from[i];
            continue;
        }
        s->dim[n] = s->dim[i], s->to[n] = s->to[i], s->from[n] = s->from[i];
        n++;
    }
    s->rank = n;
}

static void line(char *to, const char *from, int64_t n, int64_t ts, int64_t fs, size_t elem)
{
    if (ts == (int64_t)elem && fs == (int64_t)elem) {
        memcpy(to, from, (size_t)n * elem);
        return;
    }
    if (ts == (int64_t)elem && fs == 0) {
        xl_fill(to, from, elem, (size_t)n);
        return;
    }
#define LINE(T) for (int64_t i = 0; i < n; i++) *(T *)(void *)(to + i * ts) = *(const T *)(const void *)(from + i * fs)
    switch (elem) {
    case 1: LINE(uint8_t); return;
    case 2: LINE(uint16_t); return;
    case 4: LINE(uint32_t); return;
    case 8: LINE(uint64_t); return;
    default: for (int64_t i = 0; i < n; i++) memcpy(to + i * ts, from + i * fs, elem);
    }
#undef LINE
}

/* A cache line's worth of lines whose elements change places: to[i][j] = from[j][i]. By way of memory of our own, since
 * lines a power of two apart drive each other from the cache: each is touched once. */
typedef uint32_t four __attribute__((vector_size(16), aligned(4), may_alias));
typedef uint64_t two __attribute__((vector_size(16), aligned(8), may_alias));
#define AT(T, p) (*(T *)(void *)(p))
#define FROM(T, p) (*(const T *)(const void *)(p))
#ifdef __clang__
#define MIX(T, a, b, ...) __builtin_shufflevector((a), (b), __VA_ARGS__)
#else
#define MIX(T, a, b, ...) __builtin_shuffle((a), (b), (T){ __VA_ARGS__ })
#endif
static void turn_four(char *to, int64_t ts, const char *from, int64_t fs)
{
    four lines[16][4];
    for (int j = 0; j < 4; j++)
        for (int i = 0; i < 4; i++) {
            const char *p = from + 4 * j * fs + 16 * i;
            four a = FROM(four, p), b = FROM(four, p + fs), c = FROM(four, p + 2 * fs), d = FROM(four, p + 3 * fs);
            four ab = MIX(four, a, b, 0, 4, 1, 5), cd = MIX(four, c, d, 0, 4, 1, 5),
                 ef = MIX(four, a, b, 2, 6, 3, 7), gh = MIX(four, c, d, 2, 6, 3, 7);
            lines[4 * i][j] = MIX(four, ab, cd, 0, 1, 4, 5);
            lines[4 * i + 1][j] = MIX(four, ab, cd, 2, 3, 6, 7);
            lines[4 * i + 2][j] = MIX(four, ef, gh, 0, 1, 4, 5);
            lines[4 * i + 3][j] = MIX(four, ef, gh, 2, 3, 6, 7);
        }
    for (int i = 0; i < 16; i++)
        for (int j = 0; j < 4; j++)
            AT(four, to + i * ts + 16 * j) = lines[i][j];
}
static void turn_eight(char *to, int64_t ts, const char *from, int64_t fs)
{
    two lines[8][4];
    for (int j = 0; j < 4; j++)
        for (int i = 0; i < 4; i++) {
            const char *p = from + 2 * j * fs + 16 * i;
            two a = FROM(two, p), b = FROM(two, p + fs);
            lines[2 * i][j] = MIX(two, a, b, 0, 2);
            lines[2 * i + 1][j] = MIX(two, a, b, 1, 3);
        }
    for (int i = 0; i < 8; i++)
        for (int j = 0; j < 4; j++)
            AT(two, to + i * ts + 16 * j) = lines[i][j];
}
#undef AT
#undef FROM
#undef MIX

/* Two dimensions that change places: small squares keep both sides in cache. */
static void square(char *to, const char *from, const int64_t *dim, const int64_t *ts, const int64_t *fs, size_t elem)
{
    enum { S = 16 };
    for (int64_t i = 0; i < dim[0]; i += S)
        for (int64_t j = 0; j < dim[1]; j += S) {
            int64_t ni = dim[0] - i < S ? dim[0] - i : S, nj = dim[1] - j < S ? dim[1] - j : S;
            bool turned = ts[1] == (int64_t)elem && fs[0] == (int64_t)elem && ni == S && nj == S;
            if (turned && elem == 4) {
                turn_four(to + i * ts[0] + j * 4, ts[0], from + i * 4 + j * fs[1], fs[1]);
                continue;
            }
            if (turned && elem == 8) {
                for (int64_t k = 0; k < 4; k++) {
                    int64_t a = i + k / 2 * 8, b = j + k % 2 * 8;
                    turn_eight(to + a * ts[0] + b * 8, ts[0], from + a * 8 + b * fs[1], fs[1]);
                }
                continue;
            }
            for (int64_t k = 0; k < ni; k++)
                line(to + (i + k) * ts[0] + j * ts[1], from + (i + k) * fs[0] + j * fs[1], nj, ts[1], fs[1], elem);
        }
}

static void run(const xl_strided *s, uint32_t d, char *to, const char *from)
{
    uint32_t left = s->rank - d;
    if (left == 0) {
        memcpy(to, from, s->elem);
        return;
    }
    if (left == 1) {
        line(to, from, s->dim[d], s->to[d], s->from[d], s->elem);
        return;
    }
    if (left == 2 && s->from[d + 1] > (int64_t)s->elem && s->from[d] == (int64_t)s->elem) {
        square(to, from, s->dim + d, s->to + d, s->from + d, s->elem);
        return;
    }
    for (int64_t i = 0; i < s->dim[d]; i++)
        run(s, d + 1, to + i * s->to[d], from + i * s->from[d]);
}

typedef struct { const xl_strided *s; char *to; const char *from; } job;

static void part(void *ctx, size_t begin, size_t end)
{
    const job *j = ctx;
    xl_strided s = *j->s;
    s.dim[0] = (int64_t)(end - begin);
    run(&s, 0, j->to + (int64_t)begin * s.to[0], j->from + (int64_t)begin * s.from[0]);
}

void xl_strided_run(const xl_strided *s, void *to, const void *from, xl_pool *pool)
{
    if (s->count <= 0)
        return;
    job j = { s, to, from };
    int64_t per = s->rank ? s->count / s->dim[0] : 1;
    if (s->count * (int64_t)s->elem < 1 << 17 || s->rank == 0 || s->dim[0] < 2) {
        run(s, 0, to, from);
        return;
    }
    int64_t grain = (1 << 16) / (per * (int64_t)s->elem + 1) + 1;
    xl_pool_for(pool, (size_t)s->dim[0], (size_t)grain, part, &j);
}
