/* cse: of two ops that do the same to the same values, the first serves for both.
 * needs: nothing.  keeps: types, locations.  breaks: nothing.
 * An op in a region sees the ops above it, so entries are added when a region is entered and removed when it is
 * left. */
#include "ir/compare/hash.h"
#include "pass/pass.h"

typedef struct entry { xl_op *op; uint64_t key; struct entry *next; } entry;
typedef struct { xl_func *f; xl_subst s; entry **slot; uint32_t cap; entry **stack; uint32_t nstack, capstack; } table;

static bool commutes(const xl_op *op) { return (xl_ops[op->code].flags & XL_OP_COMMUTES) && op->nin == 2; }

static uint64_t key_of(const xl_func *f, const xl_op *op)
{
    uint64_t h = xl_op_hash(f, op), a = 0;
    for (uint32_t i = 0; i < op->nin; i++) {
        uint64_t x = (op->in[i].id + 1) * UINT64_C(0x9E3779B97F4A7C15);
        a = commutes(op) ? a + x : (a ^ x) * UINT64_C(0xD6E8FEB86659FD93) + i;
    }
    return h ^ a;
}

static bool same_op(const xl_func *f, const xl_op *a, const xl_op *b, xl_value *map, int depth);

static bool same_region(const xl_func *f, const xl_region *a, const xl_region *b, xl_value *map, int depth)
{
    if (a->narg != b->narg || a->nop != b->nop || depth > 32)
        return false;
    for (uint32_t i = 0; i < a->narg; i++) {
        if (xl_value_type(f, a->arg[i]) != xl_value_type(f, b->arg[i]))
            return false;
        map[a->arg[i].id] = b->arg[i];
    }
    for (uint32_t k = 0; k < a->nop; k++)
        if (!same_op(f, a->op[k], b->op[k], map, depth + 1))
            return false;
    return true;
}

static xl_value mapped(const xl_value *map, xl_value v)
{
    return map && map[v.id].id ? map[v.id] : v;
} /* value 0 is never inside a region */

static bool same_op(const xl_func *f, const xl_op *a, const xl_op *b, xl_value *map, int depth)
{
    if (a->code != b->code || a->nin != b->nin || a->nout != b->nout || a->nregion != b->nregion ||
        !xl_str_eq(a->name, b->name) || !xl_attr_eq(a->extra, b->extra))
        return false;
    bool straight = true, crossed = depth == 0 && commutes(a);
    for (uint32_t i = 0; i < a->nin; i++)
        straight = straight && mapped(map, a->in[i]).id == b->in[i].id;
    if (!straight && !(crossed && a->in[0].id == b->in[1].id && a->in[1].id == b->in[0].id))
        return false;
    for (uint32_t i = 0; i < a->nout; i++)
        if (xl_out_type(f, a, i) != xl_out_type(f, b, i))
            return false;
    for (uint32_t i = 0, n = xl_op_nattr((xl_opcode)a->code); i < n; i++)
        if (!xl_attr_eq(a->attr[i], b->attr[i]))
            return false;
    if (a->nregion && !map)
        map = xl_new(&f->m->arena, xl_value, f->nval);
    for (uint32_t i = 0; i < a->nregion; i++)
        if (!same_region(f, a->region[i], b->region[i], map, depth))
            return false;
    for (uint32_t i = 0; map && depth > 0 && i < a->nout; i++)
        map[a->out[i].id] = b->out[i];
    return true;
}

static uint32_t size(const xl_op *op)
{
    uint32_t n = 1;
    for (uint32_t i = 0; i < op->nregion; i++)
        for (uint32_t k = 0; k < op->region[i]->nop && n < 64; k++)
            n += size(op->region[i]->op[k]);
    return n;
}

static bool may_share(const xl_func *f, const xl_op *op)
{
    return op->nout > 0 && op->code != XL_OP_CUSTOM_CALL && op->code != XL_OP_UNKNOWN &&
           !(xl_ops[op->code].flags & XL_OP_TERMINATOR) && !xl_op_has_effect(f->m, op) && size(op) < 64;
}

static void region(table *t, xl_region *r)
{
    uint32_t kept = 0, mark = t->nstack;
    for (uint32_t k = 0; k < r->nop; k++) {
        xl_op *op = r->op[k];
        xl_subst_op(&t->s, op);
        for (uint32_t i = 0; i < op->nregion; i++)
            region(t, op->region[i]);
        if (may_share(t->f, op)) {
            uint64_t key = key_of(t->f, op);
            entry **at = &t->slot[key & (t->cap - 1)], *e = *at;
            while (e && !(e->key == key && same_op(t->f, op, e->op, NULL, 0)))
                e = e->next;
            if (e) {
                for (uint32_t i = 0; i < op->nout; i++)
                    xl_subst_set(&t->s, op->out[i], e->op->out[i]);
                continue;
            }
            e = xl_new(&t->f->m->arena, entry, 1);
            *e = (entry){ op, key, *at };
            *at = e;
            XL_PUSH(&t->f->m->arena, t->stack, t->nstack, t->capstack, e);
        }
        r->op[kept++] = op;
    }
    r->nop = kept;
    while (t->nstack > mark) {                             /* newest first, so each is at the head of its chain */
        entry *e = t->stack[--t->nstack];
        t->slot[e->key & (t->cap - 1)] = e->next;
    }
}

xl_error *xl_pass_cse(xl_module *m, const xl_pipeline_opts *opts)
{
    (void)opts;
    for (uint32_t i = 0; i < m->nfunc; i++) {
        xl_func *f = m->func[i];
        if (!f->body)
            continue;
        table t = { .f = f, .s = xl_subst_new(f), .cap = 64 };
        while (t.cap < f->nval)
            t.cap *= 2;
        t.slot = xl_new(&m->arena, entry *, t.cap);
        region(&t, f->body);
    }
    return NULL;
}
