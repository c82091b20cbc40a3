/* Programs on several devices: who holds what, from the buffers of their first execution; and two ways in which a
 * number lies. A result that is whole on every device, but not the same on each: it was not reduced over all of them,
 * whatever the frontend believes. And a result with one number per device of which only some were read: local, taken
 * for global. Both are looked at where they cost nothing: of executions 1, 2, 3, 4, 8, 16, ... small results are
 * remembered until they are read or destroyed; the others pass by. */
#include <stdio.h>
#include <stdlib.h>

#include "base/file.h"
#include "guard/guard.h"
#include "lane/collective_error.h"

enum { DEVICES = 64, BYTES = 64, ROWS = 64, FILTER = 4096, FILES = 16, PARTS = 16384 };
typedef enum { UNSEEN, WHOLE, EACH, OTHER } result_kind;

struct spmd_info { /* stays for ever: a result may be read after its executable is gone */
    xl_arena arena, drawn;                                 /* drawn: of held, until it was written down */
    uint32_t ndevice, nout, ncollective;
    int64_t group; /* devices in the smallest group of the program's own collectives */
    int64_t *numel;                                        /* of each result, globally; -1: not known */
    uint8_t *kind, *said, *elem;                           /* of each result; elem: PJRT_Buffer_Type */
    uint32_t *local;                                       /* bytes of one part */
    xl_crossings own;                                      /* the program's own collectives */
    const char *module;                                    /* the name in g->metrics, once it ran */
    double compiled;                                       /* at this moment of the run */
    char layout[256];                                      /* of the arguments of the first execution, in words */
    xl_placements held; /* the arguments, as annotated; parts are filled in by the first execution */
    _Atomic bool recorded, classified;
    _Atomic uint64_t runs;
};

typedef struct {
    spmd_info *s;                                          /* NULL: free */
    const char *module;
    guard_plugin *p;
    uint32_t out, alive;
    uint64_t read;                                         /* a bit per device */
    bool checked;
    PJRT_Buffer *buf[DEVICES];
} row;

static xl_mutex lock = XL_MUTEX_INIT;
static row rows[ROWS];
static uint32_t next_row;
static _Atomic uint32_t nrow;
static uint8_t filter[FILTER]; /* how many remembered buffers have this hash: most calls need not look */

static uint32_t spot(const void *b) { return (uint32_t)(((uintptr_t)b >> 4) * UINT64_C(0x9E3779B97F4A7C15) >> 52); }

/* ---- what the program says ---- */
static void look(spmd_info *s, const xl_region *r)
{
    for (uint32_t i = 0; r && i < r->nop; i++) {
        const xl_op *op = r->op[i];
        for (uint32_t k = 0; k < op->nregion; k++)
            look(s, op->region[k]);
        int slot = xl_ops[op->code].flags & XL_OP_COLLECTIVE
                       ? xl_slot_find((xl_opcode)op->code, XL_STR("replica_groups"))
                       : -1;
        const xl_attr *g = slot < 0 ? NULL : op->attr[slot];
        if (!g)
            continue;
        s->ncollective++;
        if (g->kind == XL_AT_DENSE && g->type->rank == 2 && g->type->dims[1] > 0 &&
            (!s->group || g->type->dims[1] < s->group))
            s->group = g->type->dims[1];
    }
}

static void arguments(spmd_info *s, xl_module *m, xl_func *f)
{
    xl_shard_ctx c = { .m = m, .f = f, .a = &s->drawn, .n = s->ndevice, .nreplica = 1, .nval = f->nval };
    xl_error *err = xl_shard_atoms(&c);
    const xl_mesh *mesh = NULL;
    for (uint32_t i = 0; i < m->nmesh && !mesh; i++)
        mesh = m->mesh[i].mesh->naxis && !m->mesh[i].mesh->nids ? m->mesh[i].mesh : NULL;
    for (uint32_t i = 0; i < f->body->narg && !err; i++) {
        const xl_type *t = xl_value_type(f, f->body->arg[i]);
        xl_axes *spec = NULL;
        uint32_t closed, before = s->held.n;
        err = xl_shard_read(&c, xl_shard_note(f->arg_attr ? f->arg_attr[i] : NULL), t, true, &spec, &closed);
        if (err)
            break;
        xl_shard_info info = { .natom = c.natom, .size = c.size, .stride = c.stride, .npartition = c.n };
        xl_str label = xl_loc_label(m, f->val[f->body->arg[i].id].loc);
        char name[160];
        snprintf(name, sizeof name, "argument %u%s%.*s", i, label.n ? " " : "", XL_FMT(label));
        xl_placement_add(&s->drawn, &s->held, xl_str_of(name), t, &info,
                    spec ? spec : xl_spec_copy(&c, NULL, xl_shard_rank(t)), mesh);
        if (s->held.n == before) /* no tensor: nothing to hold, but it keeps its place in the list */
            XL_PUSH(&s->drawn, s->held.t, s->held.n, s->held.cap,
                    ((xl_placement){ .name = xl_str_dup(&s->drawn, xl_str_of(name)) }));
    }
    if (err) { /* a sharding we cannot read: then there is no drawing of it */
        s->held.n = 0;
        xl_error_free(err);
    }
    for (uint32_t i = 0; mesh && i < mesh->naxis && s->held.n; i++)
        s->held.mesh = xl_strf(&s->arena, "%.*s%s%.*s=%lld", XL_FMT(s->held.mesh), i ? ", " : "",
                               XL_FMT(mesh->axis[i].name), (long long)mesh->axis[i].size);
}

spmd_info *guard_spmd_of(guard_state *g, xl_arena *a, xl_module *m, int64_t devices)
{
    xl_func *f = xl_module_entry(m);
    if (devices < 2 || devices > DEVICES || !f || !f->body)
        return NULL;
    spmd_info *s = calloc(1, sizeof *s);
    if (!s)
        return NULL;
    const xl_op *end = xl_region_end(f->body);
    s->arena.oom = s->drawn.oom = a->oom; /* jumps past us: what was taken by then is lost, and the compile goes on */
    s->ndevice = (uint32_t)devices;
    s->nout = end->nin;
    s->numel = xl_new(&s->arena, int64_t, s->nout);
    s->kind = xl_new(&s->arena, uint8_t, s->nout);
    s->said = xl_new(&s->arena, uint8_t, s->nout);
    s->elem = xl_new(&s->arena, uint8_t, s->nout);
    s->local = xl_new(&s->arena, uint32_t, s->nout);
    for (uint32_t i = 0; i < s->nout; i++)
        if (xl_in_type(f, end, i)->kind != XL_TY_TENSOR || !xl_type_count(xl_in_type(f, end, i), &s->numel[i]))
            s->numel[i] = -1;
    for (uint32_t i = 0; i < m->nfunc; i++)
        look(s, m->func[i]->body);
    const xl_mesh *mesh = NULL;
    for (uint32_t i = 0; i < m->nmesh && !mesh; i++)
        mesh = m->mesh[i].mesh->naxis && !m->mesh[i].mesh->nids ? m->mesh[i].mesh : NULL;
    for (uint32_t i = 0; i < m->nfunc; i++)
        if (m->func[i]->body)
            xl_crossings_of(&s->arena, m->func[i], devices, mesh, &s->own);
    s->compiled = xl_run_time(g->run);
    if (f->body->narg * devices <= PARTS)
        arguments(s, m, f);
    s->arena.oom = s->drawn.oom = NULL;
    return s;
}

/* ---- events ---- */
static void number(xl_buf *b, uint8_t elem, const void *at)
{
    float f;
    double d;
    int32_t i;
    uint16_t h;
    switch (elem) {
    case PJRT_Buffer_Type_F32: memcpy(&f, at, 4); xl_buf_printf(b, "%.7g", (double)f); return;
    case PJRT_Buffer_Type_F64: memcpy(&d, at, 8); xl_buf_printf(b, "%.12g", d); return;
    case PJRT_Buffer_Type_S32: memcpy(&i, at, 4); xl_buf_printf(b, "%d", i); return;
    case PJRT_Buffer_Type_BF16:
        memcpy(&h, at, 2);
        i = (int32_t)((uint32_t)h << 16);
        memcpy(&f, &i, 4);
        xl_buf_printf(b, "%.4g", (double)f);
        return;
    default: memcpy(&h, at, 1); xl_buf_printf(b, "0x%02x...", h & 0xff); return;
    }
}

static void tell(guard_state *g, const char *event, const char *module, const spmd_info *s, uint32_t out, xl_str values,
                 xl_str text)
{
    xl_event e;
    xl_event_begin(g->run, &e, event);
    xl_json_put_text(&e.j, "module", module);
    xl_json_put_int(&e.j, "result", out);
    xl_json_put_int(&e.j, "devices", s->ndevice);
    xl_json_put_int(&e.j, "step", (int64_t)g->step);
    xl_json_put_int(&e.j, "collectives", s->ncollective);
    if (s->group)
        xl_json_put_int(&e.j, "group", s->group);
    if (values.n)
        xl_json_put_str(&e.j, "values", values);
    xl_json_put_str(&e.j, "text", text);
    xl_event_end(g->run, &e);
    guard_say("%.*s", XL_FMT(text));
}

/* Under the lock, when nobody can read it any more: were all numbers of it read, or some? */
static void forget(guard_state *g, row *r)
{
    spmd_info *s = r->s;
    uint64_t all = s->ndevice == 64 ? UINT64_MAX : (UINT64_C(1) << s->ndevice) - 1;
    for (uint32_t d = 0; d < s->ndevice; d++)
        if (r->buf[d])
            filter[spot(r->buf[d])]--;
    if (s->kind[r->out] == EACH && r->read && r->read != all && !s->said[r->out]) {
        xl_buf b = { 0 };
        s->said[r->out] = 1;
        xl_buf_printf(&b, "result %u of %s is one number per device, and was read from device", r->out, r->module);
        for (uint32_t d = 0, n = 0; d < s->ndevice; d++)
            if (r->read >> d & 1)
                xl_buf_printf(&b, "%s%u", n++ ? ", " : " ", d);
        xl_buf_printf(&b,
                      " of %u only: it is local, read before the collective that would make it that of all of them "
                      "(psum, pmean over its axes)",
                      s->ndevice);
        if (!b.failed)
            tell(g, "local-read", r->module, s, r->out, (xl_str){ 0 }, xl_buf_view(&b));
        xl_buf_fini(&b);
    }
    r->s = NULL;
    nrow--;
}

/* ---- a result that should be the same everywhere ---- */
typedef struct {
    spmd_info *s;
    const char *module;
    guard_plugin *p;
    uint32_t out, n;
    _Atomic uint32_t left;
    _Atomic bool failed;
    unsigned char data[DEVICES][BYTES];
} sameness;

static void compare(guard_state *g, sameness *c)
{
    spmd_info *s = c->s;
    bool same = true;
    xl_buf v = { 0 }, t = { 0 };
    for (uint32_t d = 1; d < c->n; d++)
        same &= !memcmp(c->data[0], c->data[d], s->local[c->out]);
    if (!same && !atomic_load(&c->failed) && !s->said[c->out]) {
        s->said[c->out] = 1;
        for (uint32_t d = 0; d < c->n; d++) {
            xl_buf_printf(&v, "%s%u: ", d ? ", " : "", d);
            number(&v, s->elem[c->out], c->data[d]);
        }
        xl_buf_printf(&t,
                      "result %u of %s passes for one number, but the devices hold different ones (%.*s): it was not "
                      "reduced over all of them. ",
                      c->out, c->module, XL_FMT(xl_buf_view(&v)));
        if (!s->ncollective)
            xl_buf_puts(&t, "The program has no collective of its own");
        else
            xl_buf_printf(&t, "The smallest group of its %u collective%s has %lld of %u devices", s->ncollective,
                          s->ncollective == 1 ? "" : "s", (long long)s->group, s->ndevice);
        xl_buf_puts(
            &t, "; what is read is the value of the first device. Name all axes that it varies over in psum or pmean");
        if (!v.failed && !t.failed)
            tell(g, "not-reduced", c->module, s, c->out, xl_buf_view(&v), xl_buf_view(&t));
    }
    xl_buf_fini(&v);
    xl_buf_fini(&t);
    free(c);
}

static void drop_error(guard_plugin *p, PJRT_Error *err)
{
    if (err)
        p->table->PJRT_Error_Destroy(
            &(PJRT_Error_Destroy_Args){ .struct_size = sizeof(PJRT_Error_Destroy_Args), .error = err });
}

static void arrived(PJRT_Error *err, void *arg)
{
    sameness *c = arg;
    guard_state *g = c->p->g;
    if (err) {
        atomic_store(&c->failed, true);
        drop_error(c->p, err);
    }
    if (atomic_fetch_sub(&c->left, 1) == 1)
        compare(g, c);
}

/* Copies of our own, started while the lock keeps the buffers alive; nobody waits for them here. */
static void check_same(row *r)
{
    spmd_info *s = r->s;
    r->checked = true;
    if (r->alive != s->ndevice || s->said[r->out])
        return;
    sameness *c = calloc(1, sizeof *c);
    if (!c)
        return;
    c->s = s;
    c->module = r->module;
    c->p = r->p;
    c->out = r->out;
    c->n = s->ndevice;
    atomic_store(&c->left, s->ndevice);
    for (uint32_t d = 0; d < s->ndevice; d++) {
        PJRT_Buffer_ToHostBuffer_Args h = {
            .struct_size = sizeof h, .src = r->buf[d], .dst = c->data[d], .dst_size = s->local[r->out]
        };
        PJRT_Error *err = r->p->real->PJRT_Buffer_ToHostBuffer(&h);
        if (err || !h.event) {
            drop_error(r->p, err);
            atomic_store(&c->failed, true);
            arrived(NULL, c);
            continue;
        }
        PJRT_Event_OnReady_Args on = { .struct_size = sizeof on, .event = h.event, .callback = arrived, .user_arg = c };
        err = r->p->real->PJRT_Event_OnReady(&on);
        if (err) {
            drop_error(r->p, err);
            PJRT_Event_Await_Args w = { .struct_size = sizeof w, .event = h.event };
            drop_error(r->p, r->p->real->PJRT_Event_Await(&w));
            arrived(NULL, c);
        }
        PJRT_Event_Destroy_Args gone = { .struct_size = sizeof gone, .event = h.event };
        drop_error(r->p, r->p->real->PJRT_Event_Destroy(&gone));
    }
}

/* ---- the hooks ---- */
static row *find(const PJRT_Buffer *b, uint32_t *device)
{
    for (uint32_t i = 0; i < ROWS; i++)
        for (uint32_t d = 0; rows[i].s && d < rows[i].s->ndevice; d++)
            if (rows[i].buf[d] == b) {
                *device = d;
                return &rows[i];
            }
    return NULL;
}

void guard_spmd_read(const PJRT_Buffer *b)
{
    uint32_t d;
    if (!atomic_load_explicit(&nrow, memory_order_relaxed))
        return;
    xl_mutex_lock(&lock);
    row *r = filter[spot(b)] ? find(b, &d) : NULL;
    if (r) {
        r->read |= UINT64_C(1) << d;
        if (r->s->kind[r->out] == WHOLE && !r->checked)
            check_same(r);
    }
    xl_mutex_unlock(&lock);
}

void guard_spmd_destroyed(guard_state *g, const PJRT_Buffer *b)
{
    uint32_t d;
    if (!atomic_load_explicit(&nrow, memory_order_relaxed))
        return;
    xl_mutex_lock(&lock);
    row *r = filter[spot(b)] ? find(b, &d) : NULL;
    if (r) {
        filter[spot(b)]--;
        r->buf[d] = NULL;
        if (--r->alive == 0)
            forget(g, r);
    }
    xl_mutex_unlock(&lock);
}

void guard_spmd_end(guard_state *g)
{
    xl_mutex_lock(&lock);
    for (uint32_t i = 0; i < ROWS; i++)
        if (rows[i].s)
            forget(g, &rows[i]);
    xl_mutex_unlock(&lock);
}

static void classify(guard_plugin *p, spmd_info *s, PJRT_Buffer *const *out)
{
    for (uint32_t i = 0; i < s->nout; i++) {
        PJRT_Buffer_Dimensions_Args d = { .struct_size = sizeof d, .buffer = out[i] };
        PJRT_Buffer_ElementType_Args t = { .struct_size = sizeof t, .buffer = out[i] };
        int64_t n = 1;
        PJRT_Error *err = p->real->PJRT_Buffer_Dimensions(&d);
        s->kind[i] = OTHER;
        if (!err)
            err = p->real->PJRT_Buffer_ElementType(&t);
        if (err) {
            drop_error(p, err);
            continue;
        }
        for (size_t k = 0; k < d.num_dims && n <= 1 << 20; k++)
            n *= d.dims[k];
        size_t bytes = (size_t)t.type < GUARD_TYPES ? guard_type_bytes[t.type] * (size_t)n : 0;
        s->elem[i] = (uint8_t)t.type;
        s->local[i] = (uint32_t)bytes;
        if (n < 1 || bytes < 1 || bytes > BYTES)
            continue;
        if (s->numel[i] == n)
            s->kind[i] = WHOLE;
        else if (n == 1 && s->numel[i] == s->ndevice)
            s->kind[i] = EACH;
    }
}

static int device_of(guard_plugin *p, PJRT_Buffer *b)
{
    PJRT_Buffer_Device_Args d = { .struct_size = sizeof d, .buffer = b };
    PJRT_Error *err = p->real->PJRT_Buffer_Device(&d);
    PJRT_Device_GetDescription_Args get = { .struct_size = sizeof get };
    PJRT_DeviceDescription_Id_Args id = { .struct_size = sizeof id, .id = -1 };
    if (!err) {
        get.device = d.device;
        err = p->real->PJRT_Device_GetDescription(&get);
    }
    if (!err) {
        id.device_description = get.device_description;
        err = p->real->PJRT_DeviceDescription_Id(&id);
    }
    drop_error(p, err);
    return err ? -1 : id.id;
}

/* The arguments as they lie: device, shape and bytes of every real buffer, beside the slice that the
 * annotation says. */
static void record(guard_plugin *p, spmd_info *s, const char *module, PJRT_LoadedExecutable_Execute_Args *args)
{
    guard_state *g = p->g;
    static _Atomic uint32_t files;
    xl_buf b = { 0 };
    xl_json j = { .out = &b };
    char path[4200];
    if (!*xl_run_dir(g->run) || !s->held.n || args->num_args != s->held.n || args->num_devices != s->ndevice)
        return;
    for (uint32_t i = 0; i < s->held.n; i++)
        for (uint32_t d = 0; d < s->held.t[i].npart; d++) {
            xl_placement_part *part = &s->held.t[i].part[d];
            PJRT_Buffer *buf = args->argument_lists[d][i];
            PJRT_Buffer_Dimensions_Args get = { .struct_size = sizeof get, .buffer = buf };
            PJRT_Buffer_OnDeviceSizeInBytes_Args z = { .struct_size = sizeof z, .buffer = buf };
            PJRT_Error *err = p->real->PJRT_Buffer_Dimensions(&get);
            if (!err)
                err = p->real->PJRT_Buffer_OnDeviceSizeInBytes(&z);
            if (err || get.num_dims != s->held.t[i].rank) {
                drop_error(p, err);
                return;
            }
            part->device = device_of(p, buf);
            part->bytes = (int64_t)z.on_device_size_in_bytes;
            for (uint32_t k = 0; k < get.num_dims; k++)
                part->hi[k] = part->lo[k] + get.dims[k];
        }
    if (atomic_fetch_add(&files, 1) >= FILES)
        return;
    s->held.program = xl_str_of(module);
    xl_placement_json(&s->held, &j);
    snprintf(path, sizeof path, "%s/sharding-%d-%u.json", xl_run_dir(g->run), xl_run_rank(g->run), files);
    if (!b.failed && xl_run_there(g->run))
        xl_error_free(xl_file_write_quick(path, xl_buf_view(&b)));
    xl_buf_fini(&b);
}

/* Do the parts of each argument lie in the same order of dimensions on every device? */
static void layouts(guard_plugin *p, spmd_info *s, PJRT_LoadedExecutable_Execute_Args *args)
{
    snprintf(s->layout, sizeof s->layout, "the plugin does not say how its buffers lie");
    if (!PJRT_HAS(p->real, PJRT_Buffer_GetMemoryLayout) || !p->real->PJRT_Buffer_GetMemoryLayout)
        return;
    for (size_t i = 0; i < args->num_args; i++) {
        int64_t first[XL_PLACEMENT_RANK_MAX];
        size_t n = 0;
        for (size_t d = 0; d < args->num_devices; d++) {
            PJRT_Buffer_GetMemoryLayout_Args l = { .struct_size = sizeof l, .buffer = args->argument_lists[d][i] };
            PJRT_Error *err = p->real->PJRT_Buffer_GetMemoryLayout(&l);
            if (err) {
                drop_error(p, err);
                return;
            }
            const PJRT_Buffer_MemoryLayout_Tiled *t = &l.layout.tiled;
            if (l.layout.type != PJRT_Buffer_MemoryLayout_Type_Tiled || t->minor_to_major_size > XL_PLACEMENT_RANK_MAX)
                continue;
            if (!d) {
                n = t->minor_to_major_size;
                if (n)
                    memcpy(first, t->minor_to_major, n * sizeof *first);
            } else if (n != t->minor_to_major_size || (n && memcmp(first, t->minor_to_major, n * sizeof *first))) {
                snprintf(s->layout, sizeof s->layout,
                         "argument %zu lies otherwise on device row %zu than on row 0: the layouts are mixed", i, d);
                return;
            }
        }
    }
    snprintf(s->layout, sizeof s->layout, "each of the %zu arguments lies alike on every device", args->num_args);
}

static _Atomic(spmd_info *) last; /* that ran on several devices: an error comes without its program */

void guard_spmd_error(guard_state *g, xl_str text)
{
    static _Atomic uint32_t told;
    spmd_info *s = atomic_load(&last);
    xl_collective_trouble t = s ? xl_collective_trouble_of(text) : XL_TROUBLE_NONE;
    if (t == XL_TROUBLE_NONE ||
        atomic_fetch_add(&told, 1) >= 2) /* the same error is looked at by every device's result */
        return;
    bool torch = !strncmp(s->module, "SyncTensorsGraph", 16);
    xl_collective_facts f = { .module = s->module,
                              .devices = s->ndevice,
                              .step = (int64_t)g->step,
                              .mesh = s->held.mesh,
                              .crossing = &s->own,
                              .always = !torch,
                              .spmd = g->tensor_spmd  ? 0
                                      : guard_spmd() ? s->compiled
                                                     : -1,
                              .tensor = g->tensor == 2 ? g->tensor_time : -1,
                              .compiled = s->compiled,
                              .failed = xl_run_time(g->run),
                              .layout = xl_str_of(s->layout) };
    xl_buf b = { 0 };
    xl_collective_tell(g->run, t, text, &f, &b);
    if (!b.failed)
        guard_say("%.*s", XL_FMT(xl_buf_view(&b)));
    xl_buf_fini(&b);
}

void guard_spmd_before(guard_plugin *p, exec_info *e, PJRT_LoadedExecutable_Execute_Args *args)
{
    spmd_info *s = e->spmd;
    s->module = xl_module_metrics_name(e->metrics);
    atomic_store_explicit(&last, s, memory_order_release);
    if (atomic_load_explicit(&s->recorded, memory_order_relaxed) || atomic_exchange(&s->recorded, true))
        return;
    layouts(p, s, args);
    if (!e->helper)
        record(p, s, s->module, args);                     /* before it runs: arguments may be given away by that */
    s->held.n = 0;
    xl_arena_fini(&s->drawn);
}

void guard_spmd_after(guard_plugin *p, exec_info *e, PJRT_LoadedExecutable_Execute_Args *args)
{
    guard_state *g = p->g;
    spmd_info *s = e->spmd;
    uint64_t n = atomic_fetch_add_explicit(&s->runs, 1, memory_order_relaxed) + 1;
    if (args->num_devices != s->ndevice || (n > 3 && (n & (n - 1))))
        return;
    xl_mutex_lock(&lock);
    if (!atomic_exchange(&s->classified, true))
        classify(p, s, args->output_lists[0]);
    for (uint32_t i = 0; i < s->nout; i++) {
        if ((s->kind[i] != WHOLE && s->kind[i] != EACH) || s->said[i])
            continue;
        row *r = &rows[next_row++ % ROWS];
        if (r->s)
            forget(g, r);
        *r = (row){ .s = s, .module = xl_module_metrics_name(e->metrics), .p = p, .out = i, .alive = s->ndevice };
        for (uint32_t d = 0; d < s->ndevice; d++) {
            r->buf[d] = args->output_lists[d][i];
            filter[spot(r->buf[d])]++;
        }
        nrow++;
    }
    xl_mutex_unlock(&lock);
}
