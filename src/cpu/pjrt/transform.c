/* Programs as HLO. PJRT's XlaTransform extension (jax.extend.xla) lets a frontend rewrite a program while it is
 * compiled, in XLA's own form. jaxlib writes it (jax_rules.py): the program goes there as MLIR, after calls were
 * inlined and it was split over devices, and what comes back is read like any other HLO. A program that nobody changed
 * goes on as it was. Any thread may register, clear and compile. */
#include <stdlib.h>

#include "base/thread.h"
#include "cpu/kernel/callback.h"
#include "cpu/pjrt/api.h"
#include "cpu/plan/lower.h"
#include "ir/read.h"
#include "ir/text/print.h"
#include "ir/verify.h"

/* ---- what was registered, in order ------------------------------------------------------------------------------ */
/* A callback waits for Python's lock, which a thread that registers may hold: no lock of ours is held meanwhile, and a
 * row that is cleared lives until it returns. */
typedef struct {
    atomic_int ref;
    PJRT_XlaTransform_PipelineStage stage;
    PJRT_XlaTransform_Callbacks *callbacks;
    char *name;
} row;

static xl_mutex lock = XL_MUTEX_INIT;
static row **rows;
static size_t nrow;

static void row_unref(row *r)
{
    if (!r || atomic_fetch_sub(&r->ref, 1) != 1)
        return;
    if (r->callbacks && r->callbacks->dtor)
        r->callbacks->dtor(r->callbacks);
    free(r->name);
    free(r);
}

static bool is_stage(int stage)
{
    return stage == PJRT_XlaTransform_PipelineStage_kPreScheduler ||
           stage == PJRT_XlaTransform_PipelineStage_kPostScheduler;
}

static PJRT_Error *register_transform(PJRT_Register_Xla_Transform_Args *args)
{
    if (!args->callbacks || args->callbacks->version != 1 || !args->callbacks->transform_hlo_module || !args->name ||
        !is_stage((int)args->stage))
        return xl_api_fail(XL_CODE_INVALID, "an XLA transformation needs a name, a stage (0 or 1), and callbacks of "
                                            "version 1 with a function that transforms");
    if (!xl_hlo_writer())
        return xl_api_fail(XL_CODE_UNIMPLEMENTED,
                           "the transformation %.*s is for HLO, which jaxlib writes for this device, and this process "
                           "has none: register it from JAX",
                           (int)args->name_size, args->name);
    row *r = calloc(1, sizeof *r);
    char *name = strndup(args->name, args->name_size);
    xl_mutex_lock(&lock);
    row **more = r && name ? realloc(rows, (nrow + 1) * sizeof *rows) : NULL;
    if (more) {
        *r = (row){ .stage = args->stage, .callbacks = args->callbacks, .name = name };
        atomic_init(&r->ref, 1);
        rows = more;
        rows[nrow++] = r;
    }
    xl_mutex_unlock(&lock);
    if (more)
        return NULL;
    free(name);
    free(r);
    return xl_api_fail(XL_CODE_EXHAUSTED, "no memory to register an XLA transformation");
}

/* All of that name and stage, as XLA does. */
static PJRT_Error *clear_transform(PJRT_Clear_Xla_Transform_Args *args)
{
    row *gone;
    args->cleared = false;
    do {
        gone = NULL;
        xl_mutex_lock(&lock);
        for (size_t i = 0; i < nrow && !gone; i++)
            if (rows[i]->stage == args->stage &&
                (args->name ? xl_str_is((xl_str){ args->name, args->name_size }, rows[i]->name)
                            : rows[i]->callbacks == args->callbacks)) {
                gone = rows[i];
                memmove(rows + i, rows + i + 1, (--nrow - i) * sizeof *rows);
            }
        xl_mutex_unlock(&lock);
        args->cleared = args->cleared || gone;
        row_unref(gone);
    } while (gone);
    return NULL;
}

/* The rows of the moment, one reference to each. */
static xl_error *take_rows(row ***out, size_t *n)
{
    xl_error *err = NULL;
    *out = NULL;
    xl_mutex_lock(&lock);
    *n = nrow;
    if (nrow && !(*out = malloc(nrow * sizeof **out))) {
        *n = 0;
        err = XL_ERR(EXHAUSTED, "no memory to transform a program");
    }
    for (size_t i = 0; i < *n; i++) {
        (*out)[i] = rows[i];
        atomic_fetch_add(&rows[i]->ref, 1);
    }
    xl_mutex_unlock(&lock);
    return err;
}

/* ---- HLO -------------------------------------------------------------------------------------------------------- */
static _Atomic uint64_t writer;

void xl_hlo_writer_set(uint64_t number) { atomic_store(&writer, number); }
bool xl_hlo_writer(void) { return atomic_load(&writer) != 0; }

/* The frontend's answer lies in its own memory until this thread asks again. */
static xl_error *ask(xl_str program, bool schedule, xl_buf *out)
{
    static const int64_t one = 1, two = 2;
    uint64_t reply[2] = { 0 };
    uint8_t what = schedule;
    int64_t n = (int64_t)program.n;
    if (!xl_hlo_writer())
        return XL_ERR(UNIMPLEMENTED, "no frontend of this process writes HLO");
    union { const char *in; char *p; } text = { .in = program.p };
    xl_error *err = xl_host_call(atomic_load(&writer), (xl_host_array[]){ { text.p, 1, &n },
                                                                          { &what, 1, &one },
                                                                          { reply, 1, &two } });
    if (err)
        return xl_error_wrap(err, "writing the program as HLO");
    out->n = 0;
    xl_buf_add(out, (const char *)(uintptr_t)reply[0], (size_t)reply[1]);
    return out->failed ? XL_ERR(EXHAUSTED, "no memory for the program as HLO") : NULL;
}

xl_error *xl_hlo_write(xl_str program, xl_buf *out) { return ask(program, false, out); }

/* ---- a compile -------------------------------------------------------------------------------------------------- */
static xl_error *call(const row *r, xl_buf *hlo, bool *changed)
{
    xl_error *err = NULL;
    PJRT_XlaTransform_Args a = { .struct_size = PJRT_SIZE(PJRT_XlaTransform_Args, changed),
                                 .header = { .api_version = 1 },
                                 .hlo_module = { hlo->p, hlo->n } };
    r->callbacks->transform_hlo_module(r->callbacks, &a);
    if (a.header.has_error)
        err = XL_ERR(INTERNAL, "the XLA transformation %s failed: %.*s", r->name,
                     a.header.error_msg.data ? (int)a.header.error_msg.size : 0, a.header.error_msg.data);
    else if (a.changed) {
        xl_buf next = { 0 };
        xl_buf_add(&next, a.transformed_hlo_module.data, a.transformed_hlo_module.size);
        if (next.failed)
            err = XL_ERR(EXHAUSTED, "no memory for what the XLA transformation %s made", r->name);
        xl_buf_fini(hlo);
        *hlo = next;
        *changed = true;
    }
    if (a.header.cleanup_fn)
        a.header.cleanup_fn(a.header.data);
    return err;
}

static bool calls_functions(const xl_region *r)
{
    bool calls = false;
    for (uint32_t i = 0; i < r->nop && !calls; i++) {
        const xl_op *op = r->op[i];
        const xl_attr *called = op->code == XL_OP_CUSTOM_CALL ? XL_ATTR(op, CUSTOM_CALL, called_computations) : NULL;
        calls = called && called->n;
        for (uint32_t k = 0; k < op->nregion; k++)
            calls = calls || calls_functions(op->region[k]);
    }
    return calls;
}

/* Functions that nobody calls any more may say what XLA's reader does not take. */
static xl_error *print(xl_module *m, xl_buf *out)
{
    xl_func *entry = xl_module_entry(m), *first = m->func[0];
    uint32_t n = m->nfunc;
    jmp_buf oom, *outer = m->arena.oom;
    if (setjmp(oom)) {
        m->arena.oom = outer;
        return XL_ERR(EXHAUSTED, "no memory to print the program");
    }
    m->arena.oom = &oom;
    if (!calls_functions(entry->body)) {
        m->func[0] = entry;
        m->nfunc = 1;
    }
    xl_print_module(m, &(xl_print_opts){ .locations = true }, out);
    m->func[0] = first;
    m->nfunc = n;
    m->arena.oom = outer;
    return out->failed ? XL_ERR(EXHAUSTED, "no memory to print the program") : NULL;
}

static bool same_type(const xl_type *a, const xl_type *b)
{
    if (a->kind != XL_TY_TENSOR || b->kind != XL_TY_TENSOR)
        return a->kind == b->kind;
    return a->dtype == b->dtype && a->rank == b->rank && !memcmp(a->dims, b->dims, a->rank * sizeof *a->dims);
}

/* The new module takes the old one's place: the same arguments and results, in the same memories. */
static xl_error *replace(xl_module *old, xl_module *m)
{
    jmp_buf oom, *outer = m->arena.oom;
    xl_func *f = xl_module_entry(old), *g = xl_module_entry(m);
    const char *const key = "mhlo.memory_kind";
    if (!g || f->type->nelem != g->type->nelem || f->type->nin != g->type->nin)
        return XL_ERR(INVALID, "an XLA transformation changed how many arguments or results the program has");
    for (uint32_t i = 0; i < f->type->nelem; i++)
        if (!same_type(f->type->elem[i], g->type->elem[i]))
            return XL_ERR(INVALID, "an XLA transformation changed the type of %s %u of the program",
                          i < f->type->nin ? "argument" : "result", i < f->type->nin ? i : i - f->type->nin);
    if (setjmp(oom)) {
        m->arena.oom = outer;
        return XL_ERR(EXHAUSTED, "no memory for what an XLA transformation made");
    }
    m->arena.oom = &oom;
    xl_layouts_forget(m);
    for (int k = 0; k < 2; k++) {
        uint32_t n = k ? f->type->nin : f->type->nelem - f->type->nin;
        const xl_attr **from = k ? f->arg_attr : f->res_attr, ***to = k ? &g->arg_attr : &g->res_attr;
        if (!*to)
            *to = xl_new(&m->arena, const xl_attr *, n + 1);
        for (uint32_t i = 0; from && i < n; i++) {
            const xl_attr *kind = xl_dict_get(from[i], xl_str_of(key));
            if (kind && kind->kind == XL_AT_STR)
                (*to)[i] = xl_dict_with(m, (*to)[i], xl_str_of(key), xl_attr_str(m, xl_str_dup(&m->arena, kind->str)));
        }
    }
    xl_error *err = xl_verify(m);
    if (!err)
        err = xl_lower(m, false);
    m->arena.oom = outer;
    return err;
}

xl_error *xl_transform(xl_module *m, xl_module **out, xl_buf *hlo)
{
    row **all;
    size_t n;
    bool changed = false;
    xl_module *next = NULL;
    *out = NULL;
    xl_buf text = { 0 };
    xl_error *err = take_rows(&all, &n);
    if (!n)
        return err;
    XL_DO(print(m, &text));
    XL_DO(ask(xl_buf_view(&text), false, hlo));
    for (int stage = PJRT_XlaTransform_PipelineStage_kPreScheduler;
         stage <= PJRT_XlaTransform_PipelineStage_kPostScheduler; stage++)
        for (size_t i = 0, nth = 0; i < n; i++) {
            if ((int)all[i]->stage != stage)
                continue;
            if (stage == PJRT_XlaTransform_PipelineStage_kPostScheduler && !nth++) {
                xl_buf plain = *hlo;                       /* with an order of its instructions from here on */
                *hlo = (xl_buf){ 0 };
                err = ask(xl_buf_view(&plain), true, hlo);
                xl_buf_fini(&plain);
                if (err)
                    goto out;
            }
            XL_DO(call(all[i], hlo, &changed));
        }
    if (changed) {
        XL_TRY(xl_read_hlo(xl_buf_view(hlo), NULL, &next), "reading what an XLA transformation made");
        XL_DO(replace(m, next));
        *out = next;
        next = NULL;
    }
out:
    for (size_t i = 0; i < n; i++)
        row_unref(all[i]);
    free((void *)all);
    xl_module_free(next);
    xl_buf_fini(&text);
    if (!changed || err) {
        xl_buf_fini(hlo);
        *hlo = (xl_buf){ 0 };
    }
    return err;
}

PJRT_Xla_Transform_Extension xl_transform_extension = {
    .base = { PJRT_SIZE(PJRT_Xla_Transform_Extension, clear_xla_transform), PJRT_Extension_Type_XlaTransform, NULL },
    .register_xla_transform = register_transform,
    .clear_xla_transform = clear_transform,
};
