#include "lane/weak.h"

#include "lane/call.h"

/* Arguments as bits; those from the 63rd on are not looked at where only the programs tell. */
typedef struct { uint64_t changed, number; } weak_args;    /* number: it is a Python number now */

/* Which arguments are converted before they are used: scalars, or those that are none. JAX does that to a Python
 * number, whose type is weak, where the other operand decides; an array decides itself, and then the other one is
 * converted. */
static uint64_t converted(const xl_module *m, bool scalars)
{
    const xl_func *f = xl_module_entry(m);
    uint64_t out = 0;
    for (uint32_t i = 0; f && f->body && i < f->body->nop; i++) {
        const xl_op *op = f->body->op[i];
        const xl_val *v = op->code == XL_OP_CONVERT ? &f->val[op->in[0].id] : NULL;
        if (v && !v->def && v->region == f->body && v->index < 63 && (xl_in_type(f, op, 0)->rank == 0) == scalars)
            out |= (uint64_t)1 << v->index;
    }
    return out;
}

/* The arguments of this value's dtype that it is computed from, looking back at most `depth` ops. */
static uint64_t made_from(const xl_func *f, xl_value v, xl_dtype dtype, int depth)
{
    const xl_val *x = &f->val[v.id];
    uint64_t out = 0;
    if (!x->def)
        return x->region == f->body && x->index < 63 && x->type->dtype == dtype ? (uint64_t)1 << x->index : 0;
    for (uint32_t i = 0; depth && x->def->nin <= 3 && i < x->def->nin; i++)
        out |= made_from(f, x->def->in[i], dtype, depth - 1);
    return out;
}

/* The arguments whose values are converted to the type that they have: JAX writes that where a value of a weak type
 * (a Python number, or what is computed from it alone) meets an array of the same type. */
static uint64_t strengthened(const xl_module *m, uint32_t *n)
{
    const xl_func *f = xl_module_entry(m);
    uint64_t out = 0;
    *n = 0;
    for (uint32_t i = 0; f && f->body && i < f->body->nop; i++) {
        const xl_op *op = f->body->op[i];
        if (op->code != XL_OP_CONVERT || !xl_type_eq(xl_in_type(f, op, 0), xl_out_type(f, op, 0)))
            continue;
        out |= made_from(f, op->in[0], xl_in_type(f, op, 0)->dtype, 6);
        ++*n;
    }
    return out;
}

/* Arguments with a difference of their own, whatever it is. */
static uint64_t otherwise(const xl_verdict *v)
{
    uint64_t args = 0;
    for (uint32_t i = 0; i < v->ndiff; i++)
        if (v->diff[i].arg >= 0)
            args |= XL_DIFF_ARG((uint32_t)v->diff[i].arg);
    return args;
}

/* Scalars that a conversion to their own type reads: no other op of JAX's comes of a weak type alone. */
static uint64_t confirmed(const xl_module *m)
{
    const xl_func *f = xl_module_entry(m);
    uint64_t out = 0;
    for (uint32_t i = 0; f && f->body && i < f->body->nop; i++) {
        const xl_op *op = f->body->op[i];
        const xl_val *v = op->code == XL_OP_CONVERT ? &f->val[op->in[0].id] : NULL;
        if (v && !v->def && v->region == f->body && v->index < 63 && v->type->rank == 0 &&
            xl_type_eq(xl_in_type(f, op, 0), xl_out_type(f, op, 0)))
            out |= (uint64_t)1 << v->index;
    }
    return out;
}

/* By the programs alone. Where nothing differs but conversions and what comes of them: a scalar argument of one type in
 * both that is converted in one alone. A Python value that chooses a precision converts arrays in the same program as
 * it does scalars. Where arguments differ otherwise, conversions come of those too: one to the type that it has is
 * left. */
static weak_args by_programs(const xl_module *before, const xl_module *after, bool same_work, const xl_verdict *v)
{
    weak_args none = { 0, 0 };
    uint64_t x = converted(before, true), y = converted(after, true), ax = converted(before, false),
             ay = converted(after, false), others = otherwise(v);
    uint32_t nx, ny;
    for (uint32_t i = 0; i < v->ndiff; i++)
        if (v->diff[i].kind == XL_DIFF_ARGS || v->diff[i].kind == XL_DIFF_ORDER)
            return none;                                   /* their numbers moved */
    if (!v->ndiff)
        return none;
    if (others) {
        uint64_t cx = confirmed(before) & ~y, cy = confirmed(after) & ~x;
        return (weak_args){ (cx | cy) & ~others, cy };
    }
    for (uint32_t i = 0; i < v->ndiff; i++)
        if (v->diff[i].kind == XL_DIFF_SHAPE || v->diff[i].kind == XL_DIFF_SHARDING ||
            v->diff[i].kind == XL_DIFF_INDEX)
            return none;
    if ((x & ~y && ax & ~ay) || (y & ~x && ay & ~ax) || !same_work)
        return none;
    if (x ^ y)
        return (weak_args){ x ^ y, y };
    uint64_t wx = strengthened(before, &nx), wy = strengthened(after, &ny), weak = nx > ny ? wx & ~wy : wy & ~wx;
    return nx != ny && weak ? (weak_args){ weak & (~weak + 1), ny > nx ? weak & (~weak + 1) : 0 } : none;
}

static const xl_val *argument(const xl_module *m, uint32_t i)
{
    const xl_func *f = xl_module_entry(m);
    return f && f->body && i < f->body->narg ? &f->val[f->body->arg[i].id] : NULL;
}

/* now: it is weak now, and was not. kind: which of the two it is, empty: not known. */
static xl_diff difference(xl_arena *a, const xl_module *after, uint32_t i, bool now, xl_str kind)
{
    const char *more = kind.n ? "" : " (a Python number, or jnp.asarray of one)";
    xl_str weak = kind.n ? kind : XL_STR("a weakly typed value");
    xl_str strong = xl_str_is(kind, "a Python number") ? XL_STR("an array or NumPy number") : XL_STR("an array");
    xl_diff d = { .kind = XL_DIFF_WEAK,
                  .arg = (int32_t)i,
                  .dim = -1,
                  .times = 1,
                  .name = xl_loc_label(after, argument(after, i)->loc),
                  .before = now ? strong : weak,
                  .after = now ? weak : strong };
    xl_diff_used_at(after, i, &d);
    xl_str who = d.name.n ? xl_strf(a, "argument `%.*s`", XL_FMT(d.name)) : xl_strf(a, "argument %u", i);
    d.text = xl_strf(a, "%.*s: %.*s%s instead of %.*s%s of the same type: its weak type changed%s%.*s%s", XL_FMT(who),
                     XL_FMT(d.after), now ? more : "", XL_FMT(d.before), now ? "" : more,
                     d.file.n ? ", used at " : "", XL_FMT(d.file),
                     d.file.n ? xl_strf(a, ":%u", d.line).p : "");
    return d;
}

void xl_weak_find(xl_arena *a, const xl_module *before, const xl_module *after, bool same_work, xl_verdict *v)
{
    uint32_t n = 0, narg = 0, at = 0;
    uint64_t others = otherwise(v), weak = 0;
    xl_str kind = { "", 0 };
    bool was, is, told = xl_call_weak(a, v->call_before, v->call_after, XL_STR("?"), &was, &is, &kind);
    weak_args by = told ? (weak_args){ 0, 0 } : by_programs(before, after, same_work, v);
    while (argument(after, narg))
        narg++;
    xl_diff *d = xl_new(a, xl_diff, v->ndiff + narg);
    while (at < v->ndiff && v->diff[at].arg >= 0)
        at++;
    for (uint32_t i = 0; i < narg; i++) {
        bool changed = i < 63 && by.changed >> i & 1, number = i < 63 && by.number >> i & 1;
        if (told && !(others & XL_DIFF_ARG(i)))
            changed = xl_call_weak(a, v->call_before, v->call_after, xl_loc_label(after, argument(after, i)->loc), &was,
                                   &is, &kind) && was != is, number = is;
        if (!changed)
            continue;
        d[at + n++] = difference(a, after, i, number, kind);
        weak |= XL_DIFF_ARG(i);
    }
    if (!n)
        return;
    memcpy(d, v->diff, at * sizeof *d);
    memcpy(d + at + n, v->diff + at, (v->ndiff - at) * sizeof *d);
    v->diff = d;
    v->ndiff += n;
    bool same = same_work && !xl_call_values(a, v->call_before, v->call_after).n; /* which chose no other code */
    for (uint32_t i = at + n; i < v->ndiff; i++) {
        bool moved = same && (d[i].makes || !d[i].ops) && !d[i].part.n; /* converted earlier, or later */
        bool form = (d[i].kind == XL_DIFF_OP && (d[i].forms || moved)) || d[i].kind == XL_DIFF_DTYPE || d[i].recast;
        d[i].follows |= d[i].arg < 0 && form && d[i].reads & weak;
    }
}
