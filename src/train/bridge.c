/* The bridge to functions that JAX exported (jax.export): the artifact is read, its entry is inlined and copied into a
 * graph, and what it asks of a platform is remembered until a lane compiles it. Takes what Exported.serialize() gives
 * (a FlatBuffer around the artifact) or the artifact alone, as bytecode or text. */
#include <stdlib.h>

#include "base/file.h"
#include "ir/read.h"
#include "ir/verify.h"
#include "pass/pass.h"
#include "train/graph.h"

struct xl_exported {
    xl_module *m;
    xl_func *f;
    xl_arena arena;
    const char *path, *name, *receipt;
    const char **platform;
    uint32_t nplatform, nkept;
    uint16_t *kept;                      /* NULL: every argument */
    uint32_t narg;                       /* as the caller counts */
    const char **custom;
    uint32_t ncustom, capcustom;
    int convention;
    bool index_first;                    /* the entry's first argument says which platform it runs on */
};

/* ---- the FlatBuffer: offsets that are checked one by one --------------------------------------------------------- */
typedef struct { const unsigned char *p; size_t n; bool bad; } flat;

static uint32_t u32(flat *f, size_t at)
{
    if (at > f->n || f->n - at < 4) {
        f->bad = true;
        return 0;
    }
    return (uint32_t)f->p[at] | (uint32_t)f->p[at + 1] << 8 | (uint32_t)f->p[at + 2] << 16 |
           (uint32_t)f->p[at + 3] << 24;
}

static uint16_t u16(flat *f, size_t at)
{
    if (at > f->n || f->n - at < 2) {
        f->bad = true;
        return 0;
    }
    return (uint16_t)(f->p[at] | f->p[at + 1] << 8);
}

/* Where field `slot` of the table lies; 0: it is not there. */
static size_t field(flat *f, size_t table, unsigned slot)
{
    int64_t vt = (int64_t)table - (int32_t)u32(f, table);
    if (f->bad || vt < 0 || (size_t)vt + 4 > f->n) {
        f->bad = true;
        return 0;
    }
    uint16_t size = u16(f, (size_t)vt);
    uint16_t off = slot + 2 <= size ? u16(f, (size_t)vt + slot) : 0;
    return off ? table + off : 0;
}

static bool vector(flat *f, size_t at, size_t elem, size_t *from, uint32_t *n)
{
    if (!at || f->bad)
        return false;
    size_t v = at + u32(f, at);
    *n = u32(f, v);
    *from = v + 4;
    if (f->bad || *from > f->n || *n > (f->n - *from) / elem) {
        f->bad = true;
        return false;
    }
    return true;
}

static const char *string(xl_arena *a, flat *f, size_t at)
{
    size_t from;
    uint32_t n;
    return vector(f, at, 1, &from, &n) ? xl_str_c(a, (xl_str){ (const char *)f->p + from, n }) : "";
}

enum {
    FB_VERSION = 4,
    FB_NAME = 6,
    FB_IN_AVALS = 10,
    FB_PLATFORMS = 22,
    FB_MODULE = 30,
    FB_CONVENTION = 32,
    FB_KEPT = 34
};

static bool unwrap(xl_exported *e, xl_str bytes, xl_str *module)
{
    flat f = { (const unsigned char *)bytes.p, bytes.n, false };
    size_t root = u32(&f, 0), from;
    uint32_t n;
    if (f.bad || root < 4 || root >= bytes.n || !vector(&f, field(&f, root, FB_MODULE), 1, &from, &n) || n < 4)
        return false;
    *module = (xl_str){ bytes.p + from, n };
    e->name = string(&e->arena, &f, field(&f, root, FB_NAME));
    size_t at = field(&f, root, FB_CONVENTION);
    e->convention = at ? u16(&f, at) : 0;
    if (vector(&f, field(&f, root, FB_PLATFORMS), 4, &from, &n)) {
        e->platform = xl_new(&e->arena, const char *, n);
        for (uint32_t i = 0; i < n; i++)
            e->platform[e->nplatform++] = string(&e->arena, &f, from + 4 * (size_t)i);
    }
    if (vector(&f, field(&f, root, FB_IN_AVALS), 4, &from, &n))
        e->narg = n;
    if (vector(&f, field(&f, root, FB_KEPT), 2, &from, &n)) {
        e->kept = xl_new(&e->arena, uint16_t, n);
        for (uint32_t i = 0; i < n; i++)
            e->kept[e->nkept++] = u16(&f, from + 2 * (size_t)i);
    }
    return !f.bad;
}

/* ---- opening ----------------------------------------------------------------------------------------------------- */
static void find_custom(xl_exported *e, const xl_region *r)
{
    for (uint32_t i = 0; i < r->nop; i++) {
        if (r->op[i]->code == XL_OP_CUSTOM_CALL) {
            const char *t = xl_str_c(&e->arena, xl_op_str(r->op[i], XL_SLOT(CUSTOM_CALL, call_target_name)));
            bool have = false;
            for (uint32_t k = 0; k < e->ncustom; k++)
                have |= !strcmp(e->custom[k], t);
            if (!have)
                XL_PUSH(&e->arena, e->custom, e->ncustom, e->capcustom, t);
        }
        for (uint32_t k = 0; k < r->op[i]->nregion; k++)
            find_custom(e, r->op[i]->region[k]);
    }
}

xl_error *xl_exported_open(const char *path, xl_exported **out)
{
    xl_error *err = NULL;
    xl_arena tmp = { 0 };
    xl_str bytes, module;
    xl_buf b = { 0 };
    *out = NULL;
    xl_exported *e = calloc(1, sizeof *e);
    if (!e)
        return XL_ERR(EXHAUSTED, "no memory for %s", path);
    e->path = xl_str_c(&e->arena, xl_str_of(path));
    e->name = "main";
    XL_DO(xl_file_read_max(&tmp, path, (uint64_t)1 << 30, &bytes));
    bool wrapped = unwrap(e, bytes, &module);
    if (!wrapped) {
        e->nplatform = e->nkept = 0;
        e->kept = NULL;
        module = bytes;
    }
    XL_TRY(xl_read(module, NULL, &e->m), "%s", path);
    XL_TRY(xl_verify(e->m), "%s", path);
    XL_TRY(xl_pass_inline(e->m, NULL), "%s", path);
    e->f = xl_module_entry(e->m);
    if (!e->f || !e->f->body) {
        err = XL_ERR(INVALID, "%s has no entry function", path);
        goto out;
    }
    uint32_t have = e->f->body->narg, want = e->kept ? e->nkept : wrapped ? e->narg : have;
    e->index_first = wrapped && e->nplatform > 1 && have == want + 1;
    if (have != want + e->index_first) {
        err = XL_ERR(UNIMPLEMENTED,
                     "%s: its entry takes %u values where the function has %u arguments: tokens or sizes come beside "
                     "them, which is "
                     "not done here; export it for fixed shapes and without effects",
                     path, have, want);
        goto out;
    }
    if (!wrapped)
        e->narg = have;
    for (uint32_t i = 0; i < e->nkept; i++)
        if (e->kept[i] >= e->narg) {
            err = XL_ERR(INVALID, "%s keeps argument %u of %u", path, e->kept[i], e->narg);
            goto out;
        }
    find_custom(e, e->f->body);
    xl_buf_printf(&b, "%s: function %s, %s, calling convention %d, for", path, e->name,
                  wrapped ? "exported by JAX" : "a bare StableHLO artifact", e->convention);
    for (uint32_t i = 0; i < e->nplatform; i++)
        xl_buf_printf(&b, "%s %s", i ? "," : "", e->platform[i]);
    xl_buf_puts(&b, e->nplatform ? "; custom calls:" : " any platform; custom calls:");
    for (uint32_t i = 0; i < e->ncustom; i++)
        xl_buf_printf(&b, "%s %s", i ? "," : "", e->custom[i]);
    xl_buf_puts(&b, e->ncustom ? "" : " none");
    e->receipt = xl_str_c(&e->arena, xl_buf_view(&b));
    *out = e;
    e = NULL;
out:
    xl_buf_fini(&b);
    xl_exported_close(e);
    xl_arena_fini(&tmp);
    return err;
}

void xl_exported_close(xl_exported *e)
{
    if (!e)
        return;
    xl_module_free(e->m);
    xl_arena_fini(&e->arena);
    free(e);
}

const char *xl_exported_receipt(const xl_exported *e) { return e->receipt; }

/* ---- calling ----------------------------------------------------------------------------------------------------- */
static xl_op *copy_op(xl_graph *g, xl_region *r, const xl_func *f, const xl_op *op, xl_value *map)
{
    xl_arena *a = &g->m->arena;
    xl_value *in = xl_new(a, xl_value, op->nin);
    const xl_type **out = xl_new(a, const xl_type *, op->nout);
    for (uint32_t i = 0; i < op->nin; i++)
        in[i] = map[op->in[i].id];
    for (uint32_t i = 0; i < op->nout; i++)
        out[i] = xl_type_intern(g->m, xl_out_type(f, op, i));
    xl_op *c = xl_op_new(g->f, r, (xl_opcode)op->code, in, op->nin, out, op->nout, op->nregion, g->e.loc);
    c->name = xl_str_dup(a, op->name);
    for (uint32_t i = 0, n = xl_op_nattr((xl_opcode)op->code); i < n; i++)
        c->attr[i] = op->attr[i] ? xl_attr_import(g->m, op->attr[i]) : NULL;
    c->extra = op->extra ? xl_attr_import(g->m, op->extra) : NULL;
    for (uint32_t i = 0; i < op->nout; i++)
        map[op->out[i].id] = c->out[i];
    for (uint32_t k = 0; k < op->nregion; k++) {
        const xl_region *from = op->region[k];
        for (uint32_t i = 0; i < from->narg; i++)
            map[from->arg[i].id] =
                xl_region_add_arg(g->f, c->region[k], xl_type_intern(g->m, xl_value_type(f, from->arg[i])), g->e.loc);
        for (uint32_t i = 0; i < from->nop; i++)
            copy_op(g, c->region[k], f, from->op[i], map);
    }
    return c;
}

void xl_call(xl_graph *g, const xl_exported *e, const char *platform, const xl_tensor *in, int n, xl_tensor *out,
             int nout)
{
    for (int i = 0; i < nout; i++)
        out[i] = XL_NO_TENSOR;
    if (!xl_graph_ok(g, "call", in, n))
        return;
    xl_op *ret = xl_region_end(e->f->body);
    if ((uint32_t)n != e->narg || (uint32_t)nout != ret->nin) {
        xl_graph_fail(g, "call: %s takes %u tensors and gives %u, not %d and %d", e->name, e->narg, ret->nin, n, nout);
        return;
    }
    xl_value *map = xl_new(&g->m->arena, xl_value, e->f->nval);
    if (e->index_first) {
        uint32_t at = e->nplatform;
        for (uint32_t i = 0; i < e->nplatform; i++)
            if (platform && !strcmp(platform, e->platform[i]))
                at = i;
        if (at == e->nplatform) {
            xl_graph_fail(g, "call: %s was exported for several platforms, \"%s\" is none of them", e->name,
                          platform ? platform : "");
            return;
        }
        map[e->f->body->arg[0].id] =
            xl_em_splat(&g->e, xl_type_intern(g->m, xl_value_type(e->f, e->f->body->arg[0])), at);
    }
    for (uint32_t i = e->index_first; i < e->f->body->narg; i++) {
        uint32_t from = e->kept ? e->kept[i - e->index_first] : i - e->index_first;
        const xl_type *want = xl_type_intern(g->m, xl_value_type(e->f, e->f->body->arg[i]));
        if (xl_graph_type(g, in[from]) != want) {
            xl_graph_fail(g, "call: argument %u of %s is %s here, and was exported as another type", from, e->name,
                          xl_shape(g, in[from]));
            return;
        }
        map[e->f->body->arg[i].id] = xl_val_of(in[from]);
    }
    for (uint32_t i = 0; i + 1 < e->f->body->nop; i++)
        copy_op(g, g->e.r, e->f, e->f->body->op[i], map);
    for (int i = 0; i < nout; i++)
        out[i] = xl_tensor_of(map[ret->in[i].id]);
    xl_foreign x = { .what = xl_str_c(&g->m->arena, xl_str_of(e->receipt)),
                     .ncustom = e->ncustom,
                     .nplatform = e->nplatform };
    x.custom = xl_new(&g->m->arena, const char *, e->ncustom);
    x.platform = xl_new(&g->m->arena, const char *, e->nplatform);
    for (uint32_t i = 0; i < e->ncustom; i++)
        x.custom[i] = xl_str_c(&g->m->arena, xl_str_of(e->custom[i]));
    for (uint32_t i = 0; i < e->nplatform; i++)
        x.platform[i] = xl_str_c(&g->m->arena, xl_str_of(e->platform[i]));
    XL_PUSH(&g->m->arena, g->foreign, g->nforeign, g->capforeign, x);
}
