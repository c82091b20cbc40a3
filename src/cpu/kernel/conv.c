/* Convolution: patches of the input laid out as rows, times the kernel as a matrix, group by group, some rows at a time.
 * Narrow floats are widened to f32, integers to i64. */
#include <stdlib.h>

#include "cpu/ew.h"
#include "cpu/gemm.h"
#include "cpu/planner.h"
#include "cpu/strided.h"

int64_t xl_read_index(const void *p, xl_dtype d, int64_t i);

typedef struct {
    uint32_t ns;
    int64_t n, ci, co, groups, batch_groups;               /* ci: of one group */
    int64_t in[XL_RANK_MAX], out[XL_RANK_MAX], ker[XL_RANK_MAX];
    int64_t step[XL_RANK_MAX], low[XL_RANK_MAX], base[XL_RANK_MAX], spread[XL_RANK_MAX];
    bool flip[XL_RANK_MAX];
    int64_t xs[XL_RANK_MAX], ks[XL_RANK_MAX], ys[XL_RANK_MAX], xn, xc, kc, ko, yn, yc; /* strides in elements */
    int64_t sout, sker;
    xl_dtype wide;
    xl_ew load, loadk, store;
    bool dynamic;
} conv;

typedef struct { const conv *c; const char *x; char *rows; int64_t first, xoff; size_t w; const int64_t *low; int64_t xn, xc; const int64_t *xs; } patches;

static void fill_rows(void *ctx, size_t begin, size_t end)
{
    const patches *p = ctx;
    const conv *c = p->c;
    int64_t K = c->sker * c->ci;
    for (size_t r = begin; r < end; r++) {
        int64_t o[XL_RANK_MAX], t = p->first + (int64_t)r, k[XL_RANK_MAX] = { 0 };
        for (uint32_t i = c->ns; i-- > 0; ) {
            o[i] = t % c->out[i];
            t /= c->out[i];
        }                                                  /* what is left is the image */
        int64_t image = p->xoff + t * p->xn;
        char *row = p->rows + r * (size_t)K * p->w;
        for (int64_t q = 0; q < c->sker; q++, row += (size_t)c->ci * p->w) {
            int64_t at = image;
            bool inside = true;
            for (uint32_t i = 0; i < c->ns && inside; i++) {
                int64_t kk = c->flip[i] ? c->ker[i] - 1 - k[i] : k[i];
                int64_t pos = o[i] * c->step[i] + kk * c->spread[i] - p->low[i];
                inside = pos >= 0 && pos % c->base[i] == 0 && pos / c->base[i] < c->in[i];
                at += pos / c->base[i] * p->xs[i];
            }
            for (uint32_t i = c->ns; i-- > 0; ) {
                if (++k[i] < c->ker[i])
                    break;
                k[i] = 0;
            }
            if (!inside) {
                memset(row, 0, (size_t)c->ci * p->w);
            } else if (p->xc == 1) {
                memcpy(row, p->x + (size_t)at * p->w, (size_t)c->ci * p->w);
            } else if (p->w == 4) {
                const float *from = (const float *)(const void *)p->x + at;
                for (int64_t j = 0; j < c->ci; j++)
                    ((float *)(void *)row)[j] = from[j * p->xc];
            } else {
                for (int64_t j = 0; j < c->ci; j++)
                    memcpy(row + (size_t)j * p->w, p->x + (size_t)(at + j * p->xc) * p->w, p->w);
            }
        }
    }
}

static void plain(const char *a, const char *b, char *y, int64_t m, int64_t n, int64_t k, xl_dtype d)
{
    for (int64_t i = 0; i < m; i++)
        for (int64_t j = 0; j < n; j++) {
            if (d == XL_I64) {
                uint64_t sum = 0;
                for (int64_t q = 0; q < k; q++)
                    sum += ((const uint64_t *)(const void *)a)[i * k + q] * ((const uint64_t *)(const void *)b)[q * n + j];
                ((uint64_t *)(void *)y)[i * n + j] = sum;
            } else {
                double re = 0, im = 0;
                for (int64_t q = 0; q < k; q++) {
                    const double *u = (const double *)(const void *)a + 2 * (i * k + q), *v = (const double *)(const void *)b + 2 * (q * n + j);
                    re += u[0] * v[0] - u[1] * v[1];
                    im += u[0] * v[1] + u[1] * v[0];
                }
                ((double *)(void *)y)[2 * (i * n + j)] = re;
                ((double *)(void *)y)[2 * (i * n + j) + 1] = im;
            }
        }
}

static xl_error *run_conv(const xl_step *s, xl_frame *f)
{
    const conv *c = s->data;
    const xl_shape *x = xl_in_shape(s, 0), *k = xl_in_shape(s, 1), *y = xl_out_shape(s, 0);
    size_t w = xl_dtype_bytes(c->wide);
    int64_t K = c->sker * c->ci, groups = c->groups * c->batch_groups, cog = c->co / groups, low[XL_RANK_MAX];
    xl_error *err = NULL;
    if (!y->count)
        return NULL;
    for (uint32_t i = 0; i < c->ns; i++)
        low[i] = c->dynamic ? xl_read_index(xl_in(s, f, 2), s->shape[2].dtype, 2 * i) : c->low[i];
    bool same = c->wide == x->dtype, ysame = c->wide == y->dtype, ksame = c->wide == k->dtype;
    int64_t nout = c->n / c->batch_groups, total = nout * c->sout, chunk = (1 << 20) / (K * (int64_t)w + 1);
    chunk = chunk < 256 ? 256 : chunk;                     /* as many rows as stay near, but enough to be worth packing the kernel */
    if (chunk > total)
        chunk = total;
    char *xm = same ? NULL : malloc((size_t)x->count * w + 1), *km = ksame ? NULL : malloc((size_t)k->count * w + 1);
    char *ym = ysame ? NULL : malloc((size_t)y->count * w + 1), *rows = aligned_alloc(64, ((size_t)(chunk * K) * w + 127) & ~(size_t)63);
    char *ker = aligned_alloc(64, ((size_t)(K * cog) * w + 127) & ~(size_t)63), *part = aligned_alloc(64, ((size_t)(chunk * cog) * w + 127) & ~(size_t)63);
    char *turned = c->xc == 1 || c->sker == 1 ? NULL : aligned_alloc(64, ((size_t)x->count * w + 127) & ~(size_t)63);
    if ((!same && !xm) || (!ksame && !km) || (!ysame && !ym) || !rows || !ker || !part) {
        err = XL_ERR(EXHAUSTED, "no memory for the patches of a convolution");
        goto out;
    }
    const void *in[1] = { xl_in(s, f, 0) };
    if (!same)
        c->load.fn(xm, in, (size_t)x->count, c->load.ctx);
    const char *xp = same ? xl_in(s, f, 0) : xm;
    in[0] = xl_in(s, f, 1);
    if (!ksame)
        c->loadk.fn(km, in, (size_t)k->count, c->loadk.ctx);
    const char *kp = ksame ? xl_in(s, f, 1) : km;
    char *yp = ysame ? xl_out(s, f, 0) : ym;
    /* features last, so that a patch is copied in pieces; without the memory, element by element */
    int64_t xs[XL_RANK_MAX], xn = c->xn, xc = c->xc;
    memcpy(xs, c->xs, sizeof xs);
    if (turned) {
        int64_t dim[XL_RANK_MAX + 2], to[XL_RANK_MAX + 2], from[XL_RANK_MAX + 2];
        xl_strided v;
        dim[0] = c->n, from[0] = c->xn * (int64_t)w;
        for (uint32_t i = 0; i < c->ns; i++)
            dim[i + 1] = c->in[i], from[i + 1] = c->xs[i] * (int64_t)w;
        dim[c->ns + 1] = c->ci * c->groups, from[c->ns + 1] = c->xc * (int64_t)w;
        xl_row_major(to, c->ns + 2, dim, w);
        xl_strided_init(&v, w, c->ns + 2, dim, to, from);
        xl_strided_run(&v, turned, xp, f->pool);
        xp = turned;
        xn = to[0] / (int64_t)w, xc = 1;
        for (uint32_t i = 0; i < c->ns; i++)
            xs[i] = to[i + 1] / (int64_t)w;
    }
    for (int64_t g = 0; g < groups; g++) {
        /* the group's kernel as [spatial, ci, co] */
        int64_t dim[XL_RANK_MAX + 2], to[XL_RANK_MAX + 2], from[XL_RANK_MAX + 2];
        for (uint32_t i = 0; i < c->ns; i++)
            dim[i] = c->ker[i], from[i] = c->ks[i] * (int64_t)w;
        dim[c->ns] = c->ci, from[c->ns] = c->kc * (int64_t)w;
        dim[c->ns + 1] = cog, from[c->ns + 1] = c->ko * (int64_t)w;
        xl_row_major(to, c->ns + 2, dim, w);
        xl_strided v;
        xl_strided_init(&v, w, c->ns + 2, dim, to, from);
        xl_strided_run(&v, ker, kp + (size_t)(g * cog * c->ko) * w, f->pool);
        for (int64_t first = 0; first < total; first += chunk) {
            int64_t m = total - first < chunk ? total - first : chunk;
            int64_t image = c->batch_groups > 1 ? g * nout : 0, channel = c->groups > 1 ? g * c->ci : 0;
            patches p = { c, xp, rows, first, image * xn + channel * xc, w, low, xn, xc, xs };
            xl_pool_for(f->pool, (size_t)m, (size_t)(16384 / (K + 1) + 1), fill_rows, &p);
            bool direct = c->yc == 1 && c->ns > 0 && c->ys[c->ns - 1] == c->co; /* channels last: rows of C are rows of the result */
            for (uint32_t i = 0; i + 1 < c->ns; i++)
                direct = direct && c->ys[i] == c->ys[i + 1] * c->out[i + 1];
            direct = direct && (nout == 1 || c->yn == c->ys[0] * c->out[0]);
            char *dst = direct ? yp + (size_t)(g * cog + first * c->co) * w : part;
            if (c->wide == XL_F32 || c->wide == XL_F64) {
                xl_gemm_type t = c->wide == XL_F32 ? XL_GEMM_F32 : XL_GEMM_F64;
                xl_gemm gm = { .m = (size_t)m, .n = (size_t)cog, .k = (size_t)K, .a_type = t, .b_type = t, .c_type = t, .a = rows, .b = ker, .c = dst,
                               .a_row = K, .a_col = 1, .b_row = cog, .b_col = 1, .c_row = direct ? c->co : cog };
                xl_gemm_run(f->pool, &gm);
            } else {
                plain(rows, ker, part, m, cog, K, c->wide);
                direct = false;
            }
            if (direct)
                continue;
            for (int64_t r = 0; r < m; r++) {
                int64_t at = g * cog * c->yc, t = first + r;
                for (uint32_t i = c->ns; i-- > 0; ) {
                    at += t % c->out[i] * c->ys[i];
                    t /= c->out[i];
                }
                at += t * c->yn;
                for (int64_t j = 0; j < cog && w == 4; j++)
                    ((float *)(void *)yp)[at + j * c->yc] = ((const float *)(const void *)part)[r * cog + j];
                for (int64_t j = 0; j < cog && w != 4; j++)
                    memcpy(yp + (size_t)(at + j * c->yc) * w, part + (size_t)(r * cog + j) * w, w);
            }
        }
    }
    in[0] = yp;
    if (!ysame)
        c->store.fn(xl_out(s, f, 0), in, (size_t)y->count, c->store.ctx);
out:
    free(xm);
    free(km);
    free(ym);
    free(rows);
    free(ker);
    free(part);
    free(turned);
    return err;
}

xl_error *xl_kernel_convolution(xl_planner *p, const xl_op *op)
{
    xl_shape x, k, y;
    int64_t xs[XL_RANK_MAX], ks[XL_RANK_MAX], ys[XL_RANK_MAX];
    xl_error *err = NULL;
    conv *c = xl_new(p->a, conv, 1);
    XL_DO(xl_shape_of(p, xl_in_type(p->f, op, 0), &x));
    XL_DO(xl_shape_of(p, xl_in_type(p->f, op, 1), &k));
    XL_DO(xl_shape_of(p, xl_out_type(p->f, op, 0), &y));
    c->dynamic = op->code == XL_OP_DYNAMIC_CONV;
#define CD(name) (c->dynamic ? xl_op_dims(op, XL_SLOT(DYNAMIC_CONV, name)) : xl_op_dims(op, XL_SLOT(CONVOLUTION, name)))
#define CI(name) (c->dynamic ? xl_op_int(op, XL_SLOT(DYNAMIC_CONV, name)) : xl_op_int(op, XL_SLOT(CONVOLUTION, name)))
    xl_dims is = CD(input_spatial_dimensions), kd = CD(kernel_spatial_dimensions), os = CD(output_spatial_dimensions);
    xl_dims step = CD(window_strides), base = CD(lhs_dilation), spread = CD(rhs_dilation), flip = CD(window_reversal);
    xl_dims pad = c->dynamic ? (xl_dims){ NULL, 0 } : xl_op_dims(op, XL_SLOT(CONVOLUTION, padding));
    xl_row_major(xs, x.rank, x.dims, 1);
    xl_row_major(ks, k.rank, k.dims, 1);
    xl_row_major(ys, y.rank, y.dims, 1);
    c->ns = (uint32_t)is.n;
    if (x.rank != c->ns + 2 || k.rank != x.rank || y.rank != x.rank || kd.n != is.n || os.n != is.n)
        return xl_plan_unsupported(p, op, "its dimension numbers do not fit its operands");
    c->groups = CI(feature_group_count);
    c->batch_groups = CI(batch_group_count);
    int64_t ib = CI(input_batch_dimension), ic = CI(input_feature_dimension), kc = CI(kernel_input_feature_dimension);
    int64_t ko = CI(kernel_output_feature_dimension), ob = CI(output_batch_dimension), oc = CI(output_feature_dimension);
    c->n = x.dims[ib], c->ci = k.dims[kc], c->co = k.dims[ko];
    c->xn = xs[ib], c->xc = xs[ic], c->kc = ks[kc], c->ko = ks[ko], c->yn = ys[ob], c->yc = ys[oc];
    if (c->groups < 1 || c->batch_groups < 1 || c->co % (c->groups * c->batch_groups) || c->n % c->batch_groups)
        return xl_plan_unsupported(p, op, "its groups do not divide its features");
    c->sout = c->sker = 1;
    for (uint32_t i = 0; i < c->ns; i++) {
        c->in[i] = x.dims[is.p[i]], c->ker[i] = k.dims[kd.p[i]], c->out[i] = y.dims[os.p[i]];
        c->xs[i] = xs[is.p[i]], c->ks[i] = ks[kd.p[i]], c->ys[i] = ys[os.p[i]];
        c->step[i] = xl_dims_at(step, i, 1), c->base[i] = xl_dims_at(base, i, 1), c->spread[i] = xl_dims_at(spread, i, 1);
        c->flip[i] = xl_dims_at(flip, i, 0), c->low[i] = xl_dims_at(pad, 2 * i, 0);
        c->sout *= c->out[i], c->sker *= c->ker[i];
    }
    xl_dclass cls = xl_dtype_class(x.dtype);
    c->wide = cls == XL_CLASS_COMPLEX ? XL_C128 : cls == XL_CLASS_FLOAT ? (x.dtype == XL_F64 || y.dtype == XL_F64 ? XL_F64 : XL_F32) : XL_I64;
    c->load = xl_ew_convert(p->a, x.dtype, c->wide);
    c->loadk = xl_ew_convert(p->a, k.dtype, c->wide);
    c->store = xl_ew_convert(p->a, c->wide, y.dtype);
    p->plan->flops += 2.0 * (double)y.count * (double)(c->sker * c->ci);
    return xl_plan_step(p, op, run_conv, c, 0);
out:
    return err;
}
