/* The program is written as a stream of small numbers, and the stream is hashed. The stream is self-delimiting (every
 * list has its length first), so two programs have one stream only if they are one program. Whatever has a name gets a
 * number in the order of first use instead: values, functions, meshes. A type is written out once and is a number after
 * that, which keeps the stream of a 200 KB program below 100 KB. Constants are written where they are used, and equal
 * ones are one: frontends and serialisers move them about and merge them, and no device cares where in the text a
 * constant stands. */
#include "ir/compare/hash.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/table.h"

typedef struct { const void **key; uint32_t n, cap; xl_table index; } ptr_map;

typedef struct { const xl_attr *value; const xl_type *type; uint64_t hash; } constant;

typedef struct {
    const xl_module *m;
    xl_arena *arena;                                       /* NULL: the quick form, which keeps no tables */
    xl_hash *strong;
    uint64_t quick;
    uint32_t n;
    ptr_map types, meshes;
    constant *constants;
    uint32_t nconstant, capconstant;
    xl_table constant_index, func_index;                   /* by content; of m->func by name */
    uint32_t *func_number;                                 /* per m->func: number + 1, or 0 when not seen */
    const xl_func **queue;
    uint32_t nqueue, capqueue;
    uint32_t *value;                                       /* number of a value of the function at work */
    uint32_t nvalue, capvalue;
    uint32_t local[256], nlocal; /* the quick form: the last values defined inside the op's regions */
    unsigned char buf[2048];
} stream;

enum { DEPTH = 256 };                                      /* readers bound the nesting well below */

static void flush(stream *s)
{
    if (s->strong)
        xl_hash_add(s->strong, s->buf, s->n);
    else
        s->quick = xl_hash64(s->buf, s->n, s->quick);
    s->n = 0;
}

static void num(stream *s, uint64_t v)
{
    if (s->n + 10 > sizeof s->buf)
        flush(s);
    while (v >= 128) {
        s->buf[s->n++] = (unsigned char)(v | 128);
        v >>= 7;
    }
    s->buf[s->n++] = (unsigned char)v;
}

static void sint(stream *s, int64_t v) { num(s, ((uint64_t)v << 1) ^ (uint64_t)(v >> 63)); }

static void bytes(stream *s, const void *p, size_t n)
{
    if (n > sizeof s->buf - s->n) {
        flush(s);
        if (n > sizeof s->buf) {                           /* a large constant goes in as it lies */
            if (s->strong)
                xl_hash_add(s->strong, p, n);
            else
                s->quick = xl_hash64(p, n, s->quick);
            return;
        }
    }
    if (n)
        memcpy(s->buf + s->n, p, n);
    s->n += (uint32_t)n;
}

static void str(stream *s, xl_str x)
{
    num(s, x.n);
    bytes(s, x.p, x.n);
}

/* A mask in a file takes a bit an element and a byte in memory; as bits it is hashed in an eighth of the time. */
static void dense(stream *s, const xl_attr *a)
{
    size_t n = a->data.n, i = 0;
    num(s, n);
    for (; a->dtype == XL_I1 && n - i >= 8; i += 8) {
        uint64_t w;
        memcpy(&w, a->data.p + i, 8);
        if (w & ~UINT64_C(0x0101010101010101))             /* no reader makes such; the rest goes in as it lies */
            break;
        unsigned char eight = (unsigned char)(w * UINT64_C(0x0102040810204080) >> 56);
        bytes(s, &eight, 1);
    }
    bytes(s, a->data.p + i, n - i);
}

static void ints(stream *s, const int64_t *p, size_t n)
{
    num(s, n);
    for (size_t i = 0; i < n; i++)
        sint(s, p[i]);
}

/* The number of a pointer; *fresh when it was not there. */
static uint32_t numbered(stream *s, ptr_map *map, const void *key, bool *fresh)
{
    uint32_t h = xl_table_hash((uintptr_t)key);
    *fresh = false;
    XL_TABLE_EACH(&map->index, h, i)
        if (map->key[i] == key)
            return i;
    *fresh = true;
    xl_table_add(&map->index, s->arena, h, map->n);
    XL_PUSH(s->arena, map->key, map->n, map->cap, key);
    return map->n - 1;
}

/* ---- types and attributes --------------------------------------------------------------------------------------- */
static void attr(stream *s, const xl_attr *a, int depth);

static void type(stream *s, const xl_type *t, int depth)
{
    if (s->arena) {
        bool fresh;
        num(s, numbered(s, &s->types, t, &fresh));
        if (!fresh)
            return;
    }
    num(s, t->kind);
    num(s, t->dtype);
    num(s, (t->unranked ? 1u : 0) | (t->bounds ? 2u : 0) | (t->quant ? 4u : 0) | (t->encoding ? 8u : 0));
    ints(s, t->dims, t->rank);
    if (t->bounds)
        ints(s, t->bounds, t->rank);
    if (t->quant) {
        const xl_quant *q = t->quant;
        num(s, q->storage);
        num(s, q->expressed);
        num(s, (q->is_signed ? 1u : 0) | (q->per_axis ? 2u : 0));
        sint(s, q->axis);
        sint(s, q->min);
        sint(s, q->max);
        ints(s, q->zero, q->n);
        bytes(s, q->scale, q->n * sizeof *q->scale);
    }
    if (depth < DEPTH) {
        if (t->encoding)
            attr(s, t->encoding, depth + 1);
        num(s, t->nin);
        num(s, t->nelem);
        for (uint32_t i = 0; i < t->nelem; i++)
            type(s, t->elem[i], depth + 1);
    }
    str(s, t->text);
}

static void mesh(stream *s, const xl_mesh *m)
{
    num(s, m->naxis);
    for (uint32_t i = 0; i < m->naxis; i++) {
        str(s, m->axis[i].name);
        sint(s, m->axis[i].size);
    }
    ints(s, m->ids, m->nids);
}

static void mesh_named(stream *s, xl_str name)
{
    const xl_mesh *def = xl_module_mesh(s->m, name);
    if (!def) {
        num(s, 0);
        str(s, name);
    } else if (s->arena) {
        bool fresh;
        num(s, 1 + numbered(s, &s->meshes, def, &fresh));
        if (fresh)
            mesh(s, def);
    } else {
        num(s, 1);
        mesh(s, def);
    }
}

static void axes(stream *s, const xl_axis_ref *a, uint32_t n)
{
    num(s, n);
    for (uint32_t i = 0; i < n; i++) {
        str(s, a[i].name);
        sint(s, a[i].pre);
        sint(s, a[i].size);
    }
}

static void sharding(stream *s, const xl_sharding *x)
{
    num(s, x->inlined != NULL);
    if (x->inlined)
        mesh(s, x->inlined);
    else
        mesh_named(s, x->mesh);
    num(s, x->rank);
    for (uint32_t i = 0; i < x->rank; i++) {
        axes(s, x->dim[i].axis, x->dim[i].naxis);
        num(s, x->dim[i].open);
        sint(s, x->dim[i].priority);
    }
    axes(s, x->replicated, x->nreplicated);
    axes(s, x->unreduced, x->nunreduced);
    sint(s, x->reduction);
}

static int64_t func_index(const stream *s, xl_str name)
{
    if (!s->arena) {
        for (uint32_t i = 0; i < s->m->nfunc; i++)
            if (xl_str_eq(s->m->func[i]->name, name))
                return i;
        return -1;
    }
    XL_TABLE_EACH(&s->func_index, (uint32_t)xl_hash64(name.p, name.n, 0), i)
        if (xl_str_eq(s->m->func[i]->name, name))
            return i;
    return -1;
}

static void symbol(stream *s, xl_str name)
{
    int64_t i = func_index(s, name);
    if (i >= 0 && s->arena) {
        if (!s->func_number[i]) {
            XL_PUSH(s->arena, s->queue, s->nqueue, s->capqueue, s->m->func[i]);
            s->func_number[i] = s->nqueue;
        }
        num(s, 1);
        num(s, s->func_number[i]);
    } else if (i >= 0) {
        num(s, 1);
        type(s, s->m->func[i]->type, 0);
    } else if (xl_module_mesh(s->m, name)) {
        num(s, 2);
        mesh_named(s, name);
    } else {
        num(s, 3);
        str(s, name);
    }
}

static bool says_nothing(xl_str key)
{
    return xl_str_is(key, "jax.result_info") || xl_str_is(key, "jax.arg_info") ||
           xl_str_is(key, "jax.uses_shape_polymorphism");
}

static void dict(stream *s, const xl_attr *a, int depth)   /* a may be NULL: the same as an empty one */
{
    for (uint32_t i = 0; a && i < a->n; i++) {
        if (says_nothing(a->key[i]) || a->item[i]->kind == XL_AT_LOC)
            continue;
        num(s, 1);
        str(s, a->key[i]);
        attr(s, a->item[i], depth + 1);
    }
    num(s, 0);
}

static void attr(stream *s, const xl_attr *a, int depth)
{
    if (!a || depth > DEPTH) {
        num(s, 255);
        return;
    }
    num(s, a->kind);
    switch (a->kind) {
    case XL_AT_UNIT: case XL_AT_LOC: break;
    case XL_AT_BOOL: num(s, a->i != 0); break;
    case XL_AT_INT:
        num(s, a->dtype);
        sint(s, a->i);
        break;
    case XL_AT_FLOAT:
        num(s, a->dtype);
        num(s, a->u);
        break;
    case XL_AT_STR: case XL_AT_OPAQUE: str(s, a->str); break;
    case XL_AT_SYM: symbol(s, a->str); break;
    case XL_AT_TYPE: type(s, a->type, depth + 1); break;
    case XL_AT_ENUM:
        num(s, a->which);
        sint(s, a->i);
        break;
    case XL_AT_INTS:
        num(s, a->dtype);
        ints(s, a->ints, a->n);
        break;
    case XL_AT_DENSE:
        type(s, a->type, depth + 1);
        dense(s, a);
        break;
    case XL_AT_SHARDING: sharding(s, a->sharding); break;
    case XL_AT_MESH: mesh(s, a->mesh); break;
    case XL_AT_DICT: dict(s, a, depth + 1); break;
    case XL_AT_STRUCT:
        str(s, a->str);
        dict(s, a, depth + 1);
        break;
    case XL_AT_ARRAY:
        num(s, a->n);
        for (uint32_t i = 0; i < a->n; i++)
            attr(s, a->item[i], depth + 1);
        break;
    }
}

/* In an inherent slot the table says what the attribute is, and how a format wrote it does not count: an integer has
 * one width, a list of integers may have come as a dense tensor, a symbol as a string. */
static void inherent(stream *s, const xl_attr *a, xl_attr_want want, int depth)
{
    if (!a)
        num(s, 255);
    else if (a->kind == XL_AT_INT || a->kind == XL_AT_BOOL)
        sint(s, a->i);
    else if (a->kind == XL_AT_INTS)
        ints(s, a->ints, a->n);
    else if (want == XL_AK_SYM && (a->kind == XL_AT_STR || a->kind == XL_AT_SYM))
        symbol(s, a->str);
    else if (a->kind == XL_AT_ARRAY) {
        num(s, a->n);
        for (uint32_t i = 0; i < a->n; i++)
            inherent(s, a->item[i], want == XL_AK_SYMS ? XL_AK_SYM : want, depth + 1);
    } else if (want == XL_AK_ARRAY && a->kind == XL_AT_DENSE && a->type->rank == 1 &&
               xl_dtype_class(a->dtype) == XL_CLASS_INT) {
        num(s, (uint64_t)a->type->dims[0]);                /* a layout */
        for (int64_t i = 0; i < a->type->dims[0]; i++)
            sint(s, xl_dense_int(a, i));
    } else
        attr(s, a, depth);
}

/* ---- ops -------------------------------------------------------------------------------------------------------- */
static void define(stream *s, const xl_func *f, xl_value v)
{
    if (s->value)
        s->value[v.id] = ++s->nvalue;
    else
        s->local[s->nlocal++ % 256] = v.id;
    type(s, f->val[v.id].type, 0);
}

static bool is_free_constant(const xl_op *o)
{
    return o && o->code == XL_OP_CONSTANT && !o->extra && o->attr[0] && o->attr[0]->kind == XL_AT_DENSE;
}

static void use_constant(stream *s, const xl_func *f, xl_value v)
{
    const xl_attr *a = f->val[v.id].def->attr[0];
    const xl_type *t = f->val[v.id].type;
    uint64_t hash = xl_hash64(a->data.p, a->data.n, (uint64_t)(uintptr_t)t); /* types are interned */
    XL_TABLE_EACH(&s->constant_index, (uint32_t)hash, i) {
        const constant *c = &s->constants[i];
        if (c->hash == hash && c->type == t && c->value->type == a->type && xl_str_eq(c->value->data, a->data)) {
            num(s, 2 * (uint64_t)i + 1);
            return;
        }
    }
    constant fresh = { a, t, hash };
    xl_table_add(&s->constant_index, s->arena, (uint32_t)hash, s->nconstant);
    num(s, 2 * (uint64_t)s->nconstant + 1);
    XL_PUSH(s->arena, s->constants, s->nconstant, s->capconstant, fresh);
    type(s, t, 0);
    attr(s, a, 0);
}

static void use(stream *s, const xl_func *f, xl_value v)
{
    if (s->value) {
        if (is_free_constant(f->val[v.id].def))
            use_constant(s, f, v);
        else
            num(s, 2 * (uint64_t)s->value[v.id]);          /* 0: not defined yet, which no verified program has */
        return;
    }
    for (uint32_t back = 1; back <= s->nlocal && back <= 256; back++)
        if (s->local[(s->nlocal - back) % 256] == v.id) {
            num(s, back);
            return;
        }
    num(s, 0);
    type(s, f->val[v.id].type, 0);
}

static void region(stream *s, const xl_func *f, const xl_region *r, int depth);

static void op(stream *s, const xl_func *f, const xl_op *o, int depth)
{
    if (s->value && is_free_constant(o))
        return;
    num(s, 1 + (uint64_t)o->code);
    if (o->code == XL_OP_UNKNOWN)
        str(s, o->name);
    num(s, o->nin);
    for (uint32_t i = 0; i < o->nin; i++)
        use(s, f, o->in[i]);
    const xl_attr_row *row = &xl_attr_rows[xl_ops[o->code].row0];
    uint32_t nattr = xl_op_nattr((xl_opcode)o->code);
    for (uint32_t i = 0; i < nattr; i++)
        inherent(s, o->attr[i], row[i].want, 0);
    dict(s, o->extra, 0);
    num(s, o->nregion);
    if (depth < DEPTH)
        for (uint32_t i = 0; i < o->nregion; i++)
            region(s, f, o->region[i], depth + 1);
    num(s, o->nout);
    for (uint32_t i = 0; i < o->nout; i++)
        define(s, f, o->out[i]);
}

static void region(stream *s, const xl_func *f, const xl_region *r, int depth)
{
    num(s, r->narg);
    for (uint32_t i = 0; i < r->narg; i++)
        define(s, f, r->arg[i]);
    for (uint32_t i = 0; i < r->nop; i++)
        op(s, f, r->op[i], depth);
    num(s, 0);
}

static void func(stream *s, const xl_func *f)
{
    uint32_t narg = f->type ? f->type->nin : f->body ? f->body->narg : 0;
    uint32_t nres = f->type ? f->type->nelem - f->type->nin : 0;
    if (s->capvalue < f->nval) {
        s->capvalue = f->nval;
        s->value = xl_new(s->arena, uint32_t, f->nval);
    } else if (f->nval)
        memset(s->value, 0, f->nval * sizeof *s->value);
    s->nvalue = 0;
    if (f->type)
        type(s, f->type, 0);
    for (uint32_t i = 0; i < narg; i++)
        dict(s, f->arg_attr ? f->arg_attr[i] : NULL, 0);
    for (uint32_t i = 0; i < nres; i++)
        dict(s, f->res_attr ? f->res_attr[i] : NULL, 0);
    dict(s, f->extra, 0);
    num(s, f->body != NULL);
    if (f->body)
        region(s, f, f->body, 0);
}

/* ---- the module ------------------------------------------------------------------------------------------------- */
static int by_name(const void *a, const void *b)
{
    return xl_str_cmp((*(const xl_func *const *)a)->name, (*(const xl_func *const *)b)->name);
}

static void module(stream *s)
{
    const xl_module *m = s->m;
    xl_table_reserve(&s->func_index, s->arena, m->nfunc);
    s->func_number = xl_new(s->arena, uint32_t, m->nfunc);
    for (uint32_t i = m->nfunc; i-- > 0; ) {
        xl_str name = m->func[i]->name;
        xl_table_add(&s->func_index, s->arena, (uint32_t)xl_hash64(name.p, name.n, 0), i);
    }
    dict(s, m->extra, 0);
    const xl_func *entry = xl_module_entry(m);
    if (entry)
        symbol(s, entry->name);
    else {                                                 /* a library: what it offers is its public names */
        const xl_func **all = xl_new(s->arena, const xl_func *, m->nfunc);
        uint32_t n = 0;
        for (uint32_t i = 0; i < m->nfunc; i++)
            if (m->func[i]->visibility == XL_PUBLIC)
                all[n++] = m->func[i];
        if (n)
            qsort(all, n, sizeof *all, by_name);
        for (uint32_t i = 0; i < n; i++) {
            str(s, all[i]->name);
            symbol(s, all[i]->name);
        }
    }
    for (uint32_t i = 0; i < s->nqueue; i++)
        func(s, s->queue[i]);
    flush(s);
}

xl_digest xl_module_hash(const xl_module *m)
{
    xl_arena arena = { 0 };
    xl_hash strong;
    jmp_buf oom;
    if (setjmp(oom)) {
        xl_arena_fini(&arena);
        if (m->arena.oom)
            longjmp(*m->arena.oom, 1);
        fputs("xlane: no memory to hash the program\n", stderr);
        abort();
    }
    arena.oom = &oom;
    xl_hash_init(&strong);
    stream s = { .m = m, .arena = &arena, .strong = &strong };
    module(&s);
    xl_arena_fini(&arena);
    return xl_hash_final(&strong);
}

uint64_t xl_op_hash(const xl_func *f, const xl_op *o)
{
    stream s;
    memset(&s, 0, offsetof(stream, local));
    s.nlocal = 0;
    s.m = f->m;
    op(&s, f, o, 0);
    flush(&s);
    return s.quick;
}

uint64_t xl_attr_hash(const xl_module *m, const xl_attr *a)
{
    stream s;
    memset(&s, 0, offsetof(stream, local));
    s.nlocal = 0;
    s.m = m;
    attr(&s, a, 0);
    flush(&s);
    return s.quick;
}
