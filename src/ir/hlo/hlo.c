/* HloModuleProto: what PyTorch/XLA sends. The module's computations are indexed first; then the entry is lowered, and
 * with it every computation it needs: as a function (call), as a region (the body of a reduce or a while), or in place
 * (a fusion, a branch). HLO's tuples dissolve: an instruction's value is the list of its leaves, arguments and results
 * likewise. */
#include "ir/hlo/hlo.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "ir/reading.h"

enum { LOWER_DEPTH_MAX = 128 };

void xl_hlo_fail(xl_hlo *h, const char *at, xl_code code, const char *fmt, ...)
{
    char text[512];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    bool inside = at >= h->bytes.p && at <= h->bytes.p + h->bytes.n;
    h->err = xl_error_new(code, "HLO: byte %zu: %s", inside ? (size_t)(at - h->bytes.p) : 0, text);
    longjmp(h->fail, 1);
}

/* A field's error counts its bytes from the start of its message. */
static xl_error *in_message(const xl_hlo *h, const char *start, xl_error *err)
{
    return start && start > h->bytes.p
               ? xl_error_wrap(err, "HLO: in the message that begins at byte %zu", (size_t)(start - h->bytes.p))
               : xl_error_wrap(err, "HLO");
}

/* ---- messages --------------------------------------------------------------------------------------------------- */
bool xl_hlo_next(xl_hlo *h, xl_proto *p, xl_proto_field *f)
{
    bool more;
    xl_error *err = xl_proto_next(p, f, &more);
    if (err) {
        h->err = in_message(h, p->start, err);
        longjmp(h->fail, 1);
    }
    return more;
}

bool xl_hlo_each(xl_hlo *h, xl_proto *p, uint32_t number, xl_proto_field *f)
{
    while (xl_hlo_next(h, p, f))
        if (f->number == number)
            return true;
    return false;
}

int64_t xl_hlo_num(xl_hlo *h, xl_str msg, uint32_t number)
{
    xl_proto p = xl_proto_of(msg);
    xl_proto_field f;
    int64_t v = 0;
    while (xl_hlo_each(h, &p, number, &f))
        v = (int64_t)f.value;                              /* the last one counts */
    return v;
}

xl_str xl_hlo_sub(xl_hlo *h, xl_str msg, uint32_t number, bool *have)
{
    xl_proto p = xl_proto_of(msg);
    xl_proto_field f;
    xl_str s = { msg.p, 0 };
    bool found = false;
    while (xl_hlo_each(h, &p, number, &f))
        if (f.wire == XL_WIRE_BYTES) {
            s = f.bytes;
            found = true;
        }
    if (have)
        *have = found;
    return s;
}

xl_dims xl_hlo_ints(xl_hlo *h, xl_str msg, uint32_t number)
{
    xl_proto p = xl_proto_of(msg);
    xl_proto_field f;
    int64_t *v = NULL;
    size_t n = 0, cap = 0;
    while (xl_hlo_each(h, &p, number, &f)) {
        if (f.wire != XL_WIRE_BYTES) {
            XL_PUSH(&h->tmp, v, n, cap, (int64_t)f.value);
            continue;
        }
        xl_proto list = xl_proto_of(f.bytes);
        uint64_t u;
        bool more;
        for (;;) {
            xl_error *err = xl_proto_varint(&list, &u, &more);
            if (err) {
                h->err = in_message(h, f.bytes.p, err);
                longjmp(h->fail, 1);
            }
            if (!more)
                break;
            XL_PUSH(&h->tmp, v, n, cap, (int64_t)u);
        }
    }
    return (xl_dims){ v, n };
}

/* ---- locations -------------------------------------------------------------------------------------------------- */
static void index_frames(xl_hlo *h, xl_str msg)
{
    xl_proto p = xl_proto_of(msg);
    xl_proto_field f;
    while (xl_hlo_next(h, &p, &f))
        switch (f.number) {
        case XL_HLO_FRAMES_file_names: XL_PUSH(&h->tmp, h->file, h->nfile, h->capfile, f.bytes); break;
        case XL_HLO_FRAMES_function_names:
            XL_PUSH(&h->tmp, h->function, h->nfunction, h->capfunction, f.bytes);
            break;
        case XL_HLO_FRAMES_file_locations: XL_PUSH(&h->tmp, h->place, h->nplace, h->capplace, f.bytes); break;
        case XL_HLO_FRAMES_stack_frames: XL_PUSH(&h->tmp, h->frame, h->nframe, h->capframe, f.bytes); break;
        }
    h->frame_loc = xl_new(&h->tmp, xl_loc, (size_t)h->nframe + 1);
}

/* Frames name their callers, which come before them. */
static xl_loc frame_loc(xl_hlo *h, int64_t id, int depth)
{
    if (id < 1 || id > (int64_t)h->nframe || depth > 64)
        return (xl_loc){ 0 };
    if (h->frame_loc[id].id)
        return h->frame_loc[id];
    xl_str frame = h->frame[id - 1];
    int64_t place = xl_hlo_num(h, frame, XL_HLO_FRAME_file_location_id),
            parent = xl_hlo_num(h, frame, XL_HLO_FRAME_parent_frame_id);
    if (place < 1 || place > (int64_t)h->nplace)
        return (xl_loc){ 0 };
    xl_str at = h->place[place - 1];
    int64_t file = xl_hlo_num(h, at, XL_HLO_PLACE_file_name_id),
            function = xl_hlo_num(h, at, XL_HLO_PLACE_function_name_id);
    xl_loc_info info = { .kind = XL_LOC_FILE,
                         .line = (uint32_t)xl_hlo_num(h, at, XL_HLO_PLACE_line),
                         .col = (uint32_t)xl_hlo_num(h, at, XL_HLO_PLACE_column),
                         .end_line = (uint32_t)xl_hlo_num(h, at, XL_HLO_PLACE_end_line),
                         .end_col = (uint32_t)xl_hlo_num(h, at, XL_HLO_PLACE_end_column) };
    if (file >= 1 && file <= (int64_t)h->nfile)
        info.str = xl_str_dup(&h->m->arena, h->file[file - 1]);
    xl_loc loc = xl_loc_add(h->m, &info);
    if (function >= 1 && function <= (int64_t)h->nfunction)
        loc = xl_loc_name(h->m, h->function[function - 1], loc);
    xl_loc caller = parent < id ? frame_loc(h, parent, depth + 1) : (xl_loc){ 0 };
    if (caller.id)
        loc = xl_loc_add(h->m, &(xl_loc_info){ .kind = XL_LOC_CALL, .a = loc, .b = caller });
    return h->frame_loc[id] = loc;
}

xl_loc xl_hlo_loc(xl_hlo *h, const xl_hlo_inst *i)
{
    bool have;
    xl_str meta = xl_hlo_sub(h, i->bytes, XL_HLO_INST_metadata, &have);
    xl_loc loc = { 0 };
    if (!have || h->no_locations)
        return loc;
    xl_str name = xl_hlo_sub(h, meta, XL_HLO_METADATA_op_name, NULL),
           file = xl_hlo_sub(h, meta, XL_HLO_METADATA_source_file, NULL);
    loc = frame_loc(h, xl_hlo_num(h, meta, XL_HLO_METADATA_stack_frame_id), 0);
    if (!loc.id && file.n)
        loc = xl_loc_add(h->m,
                         &(xl_loc_info){ .kind = XL_LOC_FILE,
                                         .str = xl_str_dup(&h->m->arena, file),
                                         .line = (uint32_t)xl_hlo_num(h, meta, XL_HLO_METADATA_source_line),
                                         .col = (uint32_t)xl_hlo_num(h, meta, XL_HLO_METADATA_source_column),
                                         .end_line = (uint32_t)xl_hlo_num(h, meta, XL_HLO_METADATA_source_end_line),
                                         .end_col = (uint32_t)xl_hlo_num(h, meta, XL_HLO_METADATA_source_end_column) });
    return name.n ? xl_loc_name(h->m, name, loc) : loc;
}

/* ---- the index -------------------------------------------------------------------------------------------------- */
const xl_hlo_inst *xl_hlo_find(const xl_hlo_comp *c, int64_t id)
{
    XL_TABLE_EACH(&c->by_id, xl_table_hash((uint64_t)id), k)
        if (c->inst[k].id == id)
            return &c->inst[k];
    return NULL;
}

static void index_inst(xl_hlo *h, xl_str bytes, xl_hlo_inst *i)
{
    xl_proto p = xl_proto_of(bytes);
    xl_proto_field f;
    i->bytes = bytes;
    while (xl_hlo_next(h, &p, &f))
        switch (f.number) {
        case XL_HLO_INST_name: i->name = f.bytes; break;
        case XL_HLO_INST_opcode: i->opcode = f.bytes; break;
        case XL_HLO_INST_shape: i->type = xl_hlo_type(h, f.bytes); break;
        case XL_HLO_INST_id: i->id = (int64_t)f.value; break;
        }
    if (!i->type || i->opcode.n == 0)
        XL_HLO_FAIL(h, bytes.p, "an instruction without an opcode or a shape");
    xl_dims ops = xl_hlo_ints(h, bytes, XL_HLO_INST_operand_ids);
    i->operand = ops.p;
    i->noperand = (uint32_t)ops.n;
}

static void index_comp(xl_hlo *h, xl_str bytes, xl_hlo_comp *c)
{
    xl_proto p = xl_proto_of(bytes);
    xl_proto_field f;
    uint32_t cap = 0, capparam = 0;
    c->name = xl_hlo_sub(h, bytes, XL_HLO_COMPUTATION_name, NULL);
    c->id = xl_hlo_num(h, bytes, XL_HLO_COMPUTATION_id);
    c->root = xl_hlo_num(h, bytes, XL_HLO_COMPUTATION_root_id);
    while (xl_hlo_each(h, &p, XL_HLO_COMPUTATION_instructions, &f)) {
        xl_hlo_inst i = { 0 };
        index_inst(h, f.bytes, &i);
        XL_PUSH(&h->tmp, c->inst, c->ninst, cap, i);
    }
    xl_table_reserve(&c->by_id, &h->tmp, c->ninst);
    for (uint32_t k = 0; k < c->ninst; k++) {
        xl_hlo_inst *i = &c->inst[k];
        if (xl_hlo_find(c, i->id))
            XL_HLO_FAIL(h, i->bytes.p, "two instructions have the id %lld", (long long)i->id);
        xl_table_add(&c->by_id, &h->tmp, xl_table_hash((uint64_t)i->id), k);
        if (!xl_str_is(i->opcode, "parameter"))
            continue;
        int64_t number = xl_hlo_num(h, i->bytes, XL_HLO_INST_parameter_number);
        if (number < 0 || number >= (int64_t)c->ninst)
            XL_HLO_FAIL(h, i->bytes.p, "parameter %lld of a computation with %u instructions", (long long)number,
                        c->ninst);
        while ((int64_t)c->nparam <= number)
            XL_PUSH(&h->tmp, c->param, c->nparam, capparam, NULL);
        if (c->param[number])
            XL_HLO_FAIL(h, i->bytes.p, "parameter %lld comes twice", (long long)number);
        c->param[number] = i;
    }
    for (uint32_t k = 0; k < c->nparam; k++)
        if (!c->param[k])
            XL_HLO_FAIL(h, bytes.p, "computation %.*s lacks its parameter %u", XL_FMT(c->name), k);
}

static xl_hlo_comp *find_comp(xl_hlo *h, int64_t id)
{
    for (uint32_t i = 0; i < h->ncomp; i++)
        if (h->comp[i].id == id)
            return &h->comp[i];
    return NULL;
}

xl_hlo_comp *xl_hlo_called(xl_low *l, uint32_t k)
{
    xl_dims ids = xl_hlo_ints(l->h, l->i->bytes, XL_HLO_INST_called_computation_ids);
    xl_hlo_comp *c = k < ids.n ? find_comp(l->h, ids.p[k]) : NULL;
    if (!c)
        XL_HLO_FAIL(l->h, l->i->bytes.p, "%.*s calls a computation that is not there", XL_FMT(l->i->name));
    return c;
}

/* ---- lowering --------------------------------------------------------------------------------------------------- */
xl_hlo_leaves xl_hlo_operand(xl_low *l, uint32_t k)
{
    const xl_hlo_inst *i = k < l->i->noperand ? xl_hlo_find(l->c, l->i->operand[k]) : NULL;
    xl_hlo_leaves v = i ? l->val[i - l->c->inst] : (xl_hlo_leaves){ NULL, 0 };
    if (!v.v)
        XL_HLO_FAIL(l->h, l->i->bytes.p, "%.*s (%.*s): operand %u is not there, or comes after it", XL_FMT(l->i->name),
                    XL_FMT(l->i->opcode), k);
    return v;
}

xl_hlo_leaves xl_hlo_inline(xl_low *l, xl_hlo_comp *c, xl_region *r, const xl_hlo_leaves *param, uint32_t nparam)
{
    xl_hlo *h = l->h;
    if (c->busy || ++h->depth > LOWER_DEPTH_MAX)
        XL_HLO_FAIL(h, c->inst ? c->inst->bytes.p : h->bytes.p,
                    "computation %.*s contains itself, or they nest deeper than %d", XL_FMT(c->name), LOWER_DEPTH_MAX);
    if (nparam != c->nparam)
        XL_HLO_FAIL(h, h->bytes.p, "computation %.*s has %u parameters, not %u", XL_FMT(c->name), c->nparam, nparam);
    h->work += c->ninst;
    if (h->work > h->max_work)
        XL_HLO_FAIL(h, h->bytes.p, "computations unfold to more than %llu instructions",
                    (unsigned long long)h->max_work);
    c->busy = true;
    xl_low in = { .h = h, .f = l->f, .r = r, .c = c, .param = param };
    in.val = xl_new(&h->tmp, xl_hlo_leaves, c->ninst);
    for (uint32_t k = 0; k < c->ninst; k++) {
        in.i = &c->inst[k];
        xl_hlo_op(&in);
        if (in.val[k].n != xl_hlo_nleaf(in.i->type) && !xl_str_ends(in.i->opcode, XL_STR("-start")) &&
            !xl_str_is(in.i->opcode, "send") && !xl_str_is(in.i->opcode, "recv") &&
            !xl_str_is(in.i->opcode, "async-update"))
            XL_HLO_FAIL(h, in.i->bytes.p, "%.*s (%.*s) gives %u values where its shape has %u", XL_FMT(in.i->name),
                        XL_FMT(in.i->opcode), in.val[k].n, xl_hlo_nleaf(in.i->type));
    }
    const xl_hlo_inst *root = xl_hlo_find(c, c->root);
    if (!root)
        XL_HLO_FAIL(h, h->bytes.p, "computation %.*s has no root", XL_FMT(c->name));
    c->busy = false;
    h->depth--;
    return in.val[root - c->inst];
}

/* Arguments of region r for the parameters of c, leaf by leaf. */
static xl_hlo_leaves *add_args(xl_hlo *h, xl_func *f, xl_region *r, const xl_hlo_comp *c)
{
    xl_hlo_leaves *param = xl_new(&h->tmp, xl_hlo_leaves, c->nparam);
    for (uint32_t k = 0; k < c->nparam; k++) {
        xl_leaf_types t = xl_hlo_leaf_types(h, c->param[k]->type);
        xl_loc loc = xl_hlo_loc(h, c->param[k]);
        param[k].n = t.n;
        param[k].v = xl_new(&h->tmp, xl_value, (size_t)t.n + 1);
        for (uint32_t i = 0; i < t.n; i++)
            param[k].v[i] = xl_region_add_arg(f, r, t.t[i], loc);
    }
    return param;
}

void xl_hlo_region(xl_low *l, xl_hlo_comp *c, xl_region *r)
{
    xl_hlo_leaves *param = add_args(l->h, l->f, r, c);
    xl_hlo_leaves out = xl_hlo_inline(l, c, r, param, c->nparam);
    xl_op_new(l->f, r, XL_OP_RETURN, out.v, out.n, NULL, 0, 0, (xl_loc){ 0 });
}

xl_func *xl_hlo_func(xl_hlo *h, xl_hlo_comp *c)
{
    if (c->func && !c->func->type)
        XL_HLO_FAIL(h, h->bytes.p, "computation %.*s calls itself", XL_FMT(c->name));
    if (c->func)
        return c->func;
    xl_str name = c->name;
    while (xl_module_func(h->m, name) || xl_str_is(name, "main"))
        name = xl_strf(&h->tmp, "%.*s.1", XL_FMT(name));
    xl_func *f = c->func = xl_func_new(h->m, name);
    f->visibility = XL_PRIVATE;
    xl_hlo_region(&(xl_low){ .h = h, .f = f }, c, f->body);
    xl_func_set_type(f);
    f->arg_attr = xl_new(&h->m->arena, const xl_attr *, f->type->nin);
    f->res_attr = xl_new(&h->m->arena, const xl_attr *, f->type->nelem - f->type->nin);
    return f;
}

/* ---- the entry -------------------------------------------------------------------------------------------------- */
/* The flat number of the leaf at `index` in a tuple; -1 if there is none. */
static int64_t leaf_at(const xl_type *t, xl_dims index)
{
    int64_t flat = 0;
    for (size_t k = 0; k < index.n; k++) {
        if (t->kind != XL_TY_TUPLE || index.p[k] < 0 || index.p[k] >= (int64_t)t->nelem)
            return -1;
        for (int64_t i = 0; i < index.p[k]; i++)
            flat += xl_hlo_nleaf(t->elem[i]);
        t = t->elem[index.p[k]];
    }
    return t->kind == XL_TY_TUPLE ? -1 : flat;
}

static int64_t arg_at(const xl_hlo_comp *c, int64_t number, xl_dims index)
{
    int64_t flat = 0;
    if (number < 0 || number >= (int64_t)c->nparam)
        return -1;
    for (int64_t i = 0; i < number; i++)
        flat += xl_hlo_nleaf(c->param[i]->type);
    int64_t leaf = leaf_at(c->param[number]->type, index);
    return leaf < 0 ? -1 : flat + leaf;
}

/* A sharding per leaf: a tuple's is a list, in order; another one is for all. */
static void put_shardings(xl_hlo *h, const xl_hlo_inst *i, const xl_attr **attr, uint32_t n)
{
    bool have;
    xl_str s = xl_hlo_sub(h, i->bytes, XL_HLO_INST_sharding, &have);
    if (!have)
        return;
    if (xl_hlo_num(h, s, XL_HLO_SHARDING_type) != 2) {
        const xl_attr *a = xl_hlo_sharding(h, s);
        for (uint32_t k = 0; k < n; k++)
            attr[k] = xl_dict_with(h->m, attr[k], XL_STR("mhlo.sharding"), a);
        return;
    }
    xl_proto p = xl_proto_of(s);
    xl_proto_field f;
    for (uint32_t k = 0; k < n && xl_hlo_each(h, &p, XL_HLO_SHARDING_tuple_shardings, &f); k++)
        attr[k] = xl_dict_with(h->m, attr[k], XL_STR("mhlo.sharding"), xl_hlo_sharding(h, f.bytes));
}

static void put_layout(xl_hlo *h, xl_str shape, const xl_type *t, const xl_attr **attr)
{
    bool plain = true;
    if (t->kind != XL_TY_TENSOR)
        return;
    const xl_attr *a = xl_hlo_layout(h, shape, t, &plain);
    if (plain)
        return;
    h->text.n = 0;
    for (uint32_t i = 0; i < t->rank; i++)
        xl_buf_printf(&h->text, "%s%lld", i ? "," : "{", (long long)xl_dense_int(a, i));
    xl_buf_putc(&h->text, '}');
    *attr = xl_dict_with(h->m, *attr, XL_STR("mhlo.layout_mode"), xl_attr_str(h->m, xl_buf_view(&h->text)));
}

static void entry_attrs(xl_hlo *h, xl_hlo_comp *c, xl_func *f, const xl_hlo_inst *root)
{
    uint32_t nin = f->type->nin, nout = f->type->nelem - nin, at = 0;
    f->arg_attr = xl_new(&h->m->arena, const xl_attr *, nin);
    f->res_attr = xl_new(&h->m->arena, const xl_attr *, nout);
    xl_str shape = xl_hlo_sub(h, h->bytes, XL_HLO_MODULE_host_program_shape, NULL);
    xl_str result = xl_hlo_sub(h, shape, XL_HLO_PROGRAM_result, NULL);
    xl_proto p = xl_proto_of(shape), q;
    xl_proto_field e;
    for (uint32_t k = 0; k < c->nparam; k++) {
        bool have;
        uint32_t n = xl_hlo_nleaf(c->param[k]->type);
        put_shardings(h, c->param[k], f->arg_attr + at, n);
        const xl_attr *front =
            xl_hlo_frontend(h, xl_hlo_sub(h, c->param[k]->bytes, XL_HLO_INST_frontend_attributes, &have));
        if (front && n)
            f->arg_attr[at] = xl_dict_with(h->m, f->arg_attr[at], XL_STR("mhlo.frontend_attributes"), front);
        if (xl_hlo_each(h, &p, XL_HLO_PROGRAM_parameters, &e) && n == 1)
            put_layout(h, e.bytes, c->param[k]->type, f->arg_attr + at);
        at += n;
    }
    put_shardings(h, root, f->res_attr, nout);
    if (root->type->kind == XL_TY_TUPLE) {
        q = xl_proto_of(result);
        for (uint32_t k = 0; k < root->type->nelem && root->type->nelem == nout; k++) {
            if (!xl_hlo_each(h, &q, XL_HLO_SHAPE_tuple_shapes, &e))
                break;
            put_layout(h, e.bytes, root->type->elem[k], f->res_attr + k);
        }
    } else if (nout == 1) {
        put_layout(h, result, root->type, f->res_attr);
    }
    p = xl_proto_of(xl_hlo_sub(h, h->bytes, XL_HLO_MODULE_input_output_alias, NULL));
    while (xl_hlo_each(h, &p, XL_HLO_ALIASES_entries, &e)) {
        int64_t out = leaf_at(root->type, xl_hlo_ints(h, e.bytes, XL_HLO_ALIASES_ENTRY_output_shape_index));
        int64_t arg = arg_at(c, xl_hlo_num(h, e.bytes, XL_HLO_ALIASES_ENTRY_parameter_number),
                             xl_hlo_ints(h, e.bytes, XL_HLO_ALIASES_ENTRY_parameter_shape_index));
        if (out < 0 || arg < 0)
            XL_HLO_FAIL(h, e.bytes.p, "an alias between a parameter and a result that are not there");
        f->arg_attr[arg] =
            xl_dict_with(h->m, f->arg_attr[arg], XL_STR("tf.aliasing_output"), xl_attr_int(h->m, XL_I32, out));
    }
    p = xl_proto_of(xl_hlo_sub(h, h->bytes, XL_HLO_MODULE_buffer_donor, NULL));
    while (xl_hlo_each(h, &p, XL_HLO_DONORS_entries, &e)) {
        int64_t arg = arg_at(c, xl_hlo_num(h, e.bytes, XL_HLO_DONORS_ENTRY_parameter_number),
                             xl_hlo_ints(h, e.bytes, XL_HLO_DONORS_ENTRY_parameter_shape_index));
        if (arg < 0)
            XL_HLO_FAIL(h, e.bytes.p, "a donated parameter that is not there");
        f->arg_attr[arg] = xl_dict_with(h->m, f->arg_attr[arg], XL_STR("jax.buffer_donor"), xl_attr_bool(h->m, true));
    }
}

static void read_all(xl_hlo *h)
{
    xl_proto p = xl_proto_of(h->bytes);
    xl_proto_field f;
    xl_str frames = { 0 };
    int64_t entry_id = 0;
    xl_str entry_name = { 0 };
    uint32_t cap = 0;
    while (xl_hlo_next(h, &p, &f))
        switch (f.number) {
        case XL_HLO_MODULE_name: h->m->name = xl_str_dup(&h->m->arena, f.bytes); break;
        case XL_HLO_MODULE_entry_computation_name: entry_name = f.bytes; break;
        case XL_HLO_MODULE_computations: {
            xl_hlo_comp c = { 0 };
            index_comp(h, f.bytes, &c);
            XL_PUSH(&h->tmp, h->comp, h->ncomp, cap, c);
            break;
        }
        case XL_HLO_MODULE_entry_computation_id: entry_id = (int64_t)f.value; break;
        case XL_HLO_MODULE_stack_frame_index: frames = f.bytes; break;
        case XL_HLO_MODULE_frontend_attributes: {
            const xl_attr *a = xl_hlo_frontend(h, f.bytes);
            if (a)
                h->m->extra = xl_dict_with(h->m, h->m->extra, XL_STR("mhlo.frontend_attributes"), a);
            break;
        }
        }
    if (frames.n && !h->no_locations)
        index_frames(h, frames);
    xl_hlo_comp *c = find_comp(h, entry_id);
    for (uint32_t i = 0; !c && i < h->ncomp; i++)
        if (xl_str_eq(h->comp[i].name, entry_name))
            c = &h->comp[i];
    if (!c)
        XL_HLO_FAIL(h, h->bytes.p, "there is no entry computation: this is no HloModuleProto, or it is cut short");
    const xl_hlo_inst *root = xl_hlo_find(c, c->root);
    if (!root)
        XL_HLO_FAIL(h, h->bytes.p, "the entry computation has no root");
    xl_func *main = c->func = xl_func_new(h->m, XL_STR("main"));
    xl_hlo_region(&(xl_low){ .h = h, .f = main }, c, main->body);
    xl_func_set_type(main);
    entry_attrs(h, c, main, root);
}

/* False if it left by longjmp; then h->err says why, or is NULL for want of memory. */
static bool attempt(xl_hlo *h)
{
    if (setjmp(h->fail))
        return false;
    read_all(h);
    return true;
}

xl_error *xl_read_hlo(xl_str bytes, const xl_read_opts *opts, xl_module **out)
{
    *out = NULL;
    xl_hlo *h = calloc(1, sizeof *h);                      /* in memory of its own: longjmp must not lose its fields */
    if (!h)
        return XL_ERR(EXHAUSTED, "no memory for an HLO reader");
    size_t limit = xl_reading_limit(bytes, opts);
    h->m = xl_reading_begin(limit, &h->tmp, &h->fail);
    h->bytes = bytes;
    h->no_locations = opts && opts->no_locations;
    h->max_work = ((uint64_t)1 << 18) + bytes.n;
    bool done = h->m && attempt(h);
    xl_error *err = xl_reading_end("HLO", h->m, done, limit, bytes.n, h->err, out);
    xl_buf_fini(&h->text);
    xl_arena_fini(&h->tmp);
    free(h);
    return err;
}
