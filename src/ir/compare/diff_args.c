/* What differs between the arguments of two programs. They pair up by name where both programs name them all, else by
 * position; those of PyTorch/XLA, which have no names of their own, by type and by the line that they were traced from.
 */
#include "ir/compare/diff_state.h"

#include "ir/compare/hash.h"

uint32_t xl_diff_nargs(const xl_func *f) { return f->body ? f->body->narg : f->type ? f->type->nin : 0; }
const xl_type *xl_diff_arg_type(const xl_func *f, uint32_t i)
{
    return f->body ? xl_value_type(f, f->body->arg[i]) : f->type->elem[i];
}

xl_str xl_diff_arg_name(const xl_func *f, uint32_t i)
{
    xl_str none = { "", 0 }, name = f->body ? xl_loc_label(f->m, f->val[f->body->arg[i].id].loc) : none;
    return xl_str_is(name, "xla__device_data") ? none : name; /* PyTorch/XLA calls all of them so */
}

/* PyTorch/XLA's: its arguments have one name for all, or under no debug profile none. */
bool xl_diff_by_graph(const xl_func *f)
{
    return xl_diff_nargs(f) && f->body &&
           (xl_str_starts(f->m->name, XL_STR("SyncTensorsGraph")) ||
            xl_str_is(xl_loc_label(f->m, f->val[f->body->arg[0].id].loc), "xla__device_data"));
}

bool xl_diff_of_optimizer(const xl_func *f, uint32_t i)
{
    return f->body && xl_loc_passes(f->m, f->val[f->body->arg[i].id].loc, "/torch/optim/");
}

static xl_diff about_arg(xl_differ *d, const xl_func *f, uint32_t i, xl_diff_kind kind)
{
    xl_diff x = { .kind = kind, .arg = (int32_t)i, .dim = -1, .name = xl_diff_arg_name(f, i) }, from = { 0 };
    if (f->body && !x.name.n)
        xl_diff_place(f->m, f->val[f->body->arg[i].id].loc, &from);
    if (from.file.n)
        x.from = xl_strf(d->arena, "%.*s:%u", XL_FMT(from.file), from.line);
    if (f->body)
        xl_diff_place_use(f, f->body->arg[i], &x);
    return x;
}

/* PyTorch/XLA gives its arguments one name for all, and under XLA_HLO_DEBUG the lines that they were traced from: then
 * the type, whose it is and the line tell them apart. */
static xl_str traced_words(xl_differ *d, const xl_func *f, uint32_t i, xl_str from)
{
    if (!xl_diff_by_graph(f))
        return (xl_str){ "", 0 };
    const char *whose = !xl_diff_of_optimizer(f, i)    ? ""
                        : xl_diff_arg_type(f, i)->rank ? ", optimizer state"
                                                       : ", of the optimizer";
    xl_str words = xl_strf(d->arena, "%.*s%s", XL_FMT(xl_say_type(d->arena, xl_diff_arg_type(f, i))), whose);
    return from.n ? xl_strf(d->arena, "%.*s, from %.*s", XL_FMT(words), XL_FMT(from)) : words;
}

/* Where an argument is first used. */
static xl_str used_at(const xl_differ *d, const xl_diff *x)
{
    return x->file.n ? xl_strf(d->arena, ", used at %.*s:%u", XL_FMT(x->file), x->line) : (xl_str){ "", 0 };
}

static xl_str arg_words(xl_differ *d, const xl_func *f, const xl_diff *x)
{
    if (x->name.n) /* as the user wrote it; JSON has the number too */
        return xl_say_argument(d->arena, x->name);
    xl_str name = traced_words(d, f, (uint32_t)x->arg, x->from);
    return name.n ? xl_strf(d->arena, "argument %d (%.*s)", x->arg, XL_FMT(name))
                  : xl_strf(d->arena, "argument %d", x->arg);
}

xl_diff_kind xl_diff_attr_kind(xl_str key)
{
    if (xl_str_is(key, "sdy.sharding") || xl_str_is(key, "mhlo.sharding") || xl_str_is(key, "sdy.sharding_rule") ||
        xl_str_is(key, "mhlo.num_partitions") || xl_str_is(key, "mhlo.num_replicas") ||
        xl_str_starts(key, XL_STR("mhlo.spmd_")) || xl_str_is(key, "mhlo.use_auto_spmd_partitioning"))
        return XL_DIFF_SHARDING;
    if (xl_str_is(key, "tf.aliasing_output") || xl_str_is(key, "jax.buffer_donor"))
        return XL_DIFF_DONATION;
    if (xl_str_is(key, "mhlo.layout_mode") || xl_str_is(key, "mhlo.memory_kind") ||
        xl_str_ends(key, XL_STR("layouts")) || xl_str_ends(key, XL_STR("layout")))
        return XL_DIFF_LAYOUT;
    return XL_DIFF_OP;
}

static bool no_matter(xl_str key)
{
    return xl_str_is(key, "jax.result_info") || xl_str_is(key, "jax.arg_info") ||
           xl_str_is(key, "jax.uses_shape_polymorphism");
}

void xl_diff_dicts(const xl_differ *d, const xl_attr *x, const xl_attr *y, xl_diff_key_fn *fn, void *ctx)
{
    uint32_t i = 0, k = 0, nx = x ? x->n : 0, ny = y ? y->n : 0;
    while (i < nx || k < ny) {
        int c = i >= nx ? 1 : k >= ny ? -1 : xl_str_cmp(x->key[i], y->key[k]);
        const xl_attr *before = c <= 0 ? x->item[i] : NULL, *after = c >= 0 ? y->item[k] : NULL;
        xl_str key = c <= 0 ? x->key[i] : y->key[k];
        if (!no_matter(key) &&
            !(before && after &&
              (xl_attr_eq(before, after) || xl_attr_hash(d->a, before) == xl_attr_hash(d->b, after))))
            fn(ctx, key, before, after);
        i += c <= 0;
        k += c >= 0;
    }
}

/* A sharding in plain words. XLA's own are texts: "{replicated}", "{devices=[2,1]<=[2]}" where each number is of a
 * dimension. */
static xl_str sharding_words(xl_differ *d, const xl_attr *a)
{
    static const char tiles[] = "{devices=[", rest[] = "last_tile_dim_replicate";
    xl_str text = a ? xl_say_attr(d->arena, a) : XL_STR("not sharded");
    if (xl_str_is(text, "{replicated}"))
        return XL_STR("replicated");
    if (!xl_str_starts(text, xl_str_of(tiles)))
        return text;
    xl_str list = { text.p + sizeof tiles - 1, text.n - (sizeof tiles - 1) };
    int64_t parts;
    uint32_t dims = 1, split = 0;
    list = xl_str_cut(&list, ']');
    for (size_t i = 0; i < list.n; i++)
        dims += list.p[i] == ',';
    dims -= memmem(text.p, text.n, rest, sizeof rest - 1) != NULL;
    xl_buf b = { 0 };
    for (uint32_t i = 0; i < dims && xl_str_i64(xl_str_cut(&list, ','), &parts); i++)
        if (parts > 1)
            xl_buf_printf(&b, "%s%lld parts in dimension %u", split++ ? ", " : "split into ", (long long)parts, i);
    xl_str words = split ? xl_str_dup(d->arena, xl_buf_view(&b)) : XL_STR("replicated");
    xl_buf_fini(&b);
    return words;
}

/* Compiled for one device. */
static bool one_device(const xl_differ *d, const xl_module *m)
{
    static const char *const count[] = { "mhlo.num_partitions", "mhlo.num_replicas" };
    for (size_t i = 0; i < sizeof count / sizeof *count; i++) {
        const xl_attr *n = xl_dict_get(m->extra, xl_str_of(count[i]));
        if (!n || !xl_str_is(xl_say_attr(d->arena, n), "1"))
            return false;
    }
    return true;
}

void xl_diff_arg_attr(void *ctx, xl_str key, const xl_attr *before, const xl_attr *after)
{
    xl_diff_of_arg *c = ctx;
    xl_differ *d = c->d;
    bool arg = c->what == NULL;
    xl_diff x = { .kind = xl_diff_attr_kind(key), .arg = -1, .dim = -1 };
    if (arg)
        x = about_arg(d, c->f, c->i, x.kind);
    xl_str who = arg ? arg_words(d, c->f, &x) : xl_strf(d->arena, "%s", c->what);
    if (x.kind == XL_DIFF_DONATION) { /* which output it goes to follows; that it is given away is the point */
        if (c->donated)
            return;
        c->donated = true;
        x.before = before ? XL_STR("donated") : XL_STR("kept");
        x.after = after ? XL_STR("donated") : XL_STR("kept");
        if (before && after) {
            x.before = xl_say_attr(d->arena, before);
            x.after = xl_say_attr(d->arena, after);
            x.text = xl_strf(d->arena, "%.*s is donated to output %.*s instead of %.*s", XL_FMT(who),
                             XL_FMT(x.after), XL_FMT(x.before));
        } else
            x.text = after ? xl_strf(d->arena, "%.*s is now donated", XL_FMT(who))
                           : xl_strf(d->arena, "%.*s is no longer donated", XL_FMT(who));
    } else {
        bool split = xl_str_ends(key, XL_STR(".sharding"));
        x.before = split ? sharding_words(d, before) : xl_say_attr(d->arena, before);
        x.after = split ? sharding_words(d, after) : xl_say_attr(d->arena, after);
        x.committed = split && arg && !before != !after && one_device(d, d->a) && one_device(d, d->b);
        if (x.committed) /* JAX writes a sharding for an array that jax.device_put placed */
            x.text = xl_strf(d->arena, "%.*s was %scommitted to a device, and is %s", XL_FMT(who),
                             before ? "" : "not ", after ? "committed" : "not");
        else if (split && xl_str_eq(x.before, x.after)) /* what differs has no words */
            x.text = xl_strf(d->arena, "%.*s is %.*s in another way", XL_FMT(who), XL_FMT(x.after));
        else if (split)
            x.text = xl_strf(d->arena, "%.*s was %.*s, and is %.*s", XL_FMT(who), XL_FMT(x.before), XL_FMT(x.after));
        else
            x.text = xl_strf(d->arena, "%.*s: %.*s %.*s -> %.*s", XL_FMT(who), XL_FMT(key), XL_FMT(x.before),
                             XL_FMT(x.after));
    }
    xl_diff_note(d, x);
}

/* A key of random numbers. JAX leaves out arguments that nothing reads, so one comes and goes with the branch that
 * draws (dropout). */
static bool is_key(const xl_type *t)
{
    return t->kind == XL_TY_TENSOR && t->dtype == XL_U32 && t->rank >= 1 &&
           (t->dims[t->rank - 1] == 2 || t->dims[t->rank - 1] == 4);
}

bool xl_diff_key_mark(const xl_func *f, const xl_op *op)
{
    return op->code == XL_OP_SDY_CONSTRAINT && is_key(xl_value_type(f, op->in[0]));
}

static bool typed_key(const xl_func *f, uint32_t i)
{
    for (uint32_t k = 0; f->body && k < f->body->nop; k++) {
        const xl_op *op = f->body->op[k];
        if (op->nin && op->in[0].id == f->body->arg[i].id && xl_diff_key_mark(f, op))
            return true;
    }
    return false;
}

/* A typed key and a raw one have the same words. */
static void key_kind(xl_differ *d, const xl_func *fa, uint32_t i, const xl_func *fb, uint32_t k)
{
    static const char *const word[] = { "a raw key (jax.random.PRNGKey)", "a typed key (jax.random.key)" };
    bool was = typed_key(fa, i), is = typed_key(fb, k);
    if (was == is)
        return;
    xl_diff x = about_arg(d, fb, k, XL_DIFF_KEY);
    x.before = xl_str_of(word[was]);
    x.after = xl_str_of(word[is]);
    x.text = xl_strf(d->arena, "%.*s changed from %s to %s%.*s", XL_FMT(arg_words(d, fb, &x)), word[was], word[is],
                     XL_FMT(used_at(d, &x)));
    d->keys = true;
    xl_diff_note(d, x);
}

/* The same sizes in another order: it was transposed. */
static bool transposed(const xl_type *s, const xl_type *t)
{
    uint64_t seen = 0;
    if (s->rank != t->rank || s->rank > 64 || s->dtype != t->dtype ||
        !memcmp(s->dims, t->dims, s->rank * sizeof *s->dims))
        return false;
    for (uint32_t i = 0; i < s->rank; i++) {
        uint32_t k = 0;
        while (k < t->rank && (seen >> k & 1 || t->dims[k] != s->dims[i]))
            k++;
        if (k == t->rank)
            return false;
        seen |= UINT64_C(1) << k;
    }
    return true;
}

static void one_arg(xl_differ *d, const xl_func *fa, uint32_t i, const xl_func *fb, uint32_t k)
{
    const xl_type *s = xl_diff_arg_type(fa, i), *t = xl_diff_arg_type(fb, k);
    if (s->kind != XL_TY_TENSOR || t->kind != XL_TY_TENSOR || s->rank != t->rank || transposed(s, t)) {
        if (!xl_type_eq(s, t)) {
            xl_diff x = about_arg(d, fb, k, XL_DIFF_SHAPE);
            x.before = xl_say_type(d->arena, s);
            x.after = xl_say_type(d->arena, t);
            x.text = xl_strf(d->arena, "%.*s: %.*s -> %.*s%.*s", XL_FMT(arg_words(d, fb, &x)), XL_FMT(x.before),
                             XL_FMT(x.after), XL_FMT(xl_diff_at(d, &x)));
            d->shapes = true;
            xl_diff_sizes(d, s, t);
            xl_diff_note(d, x);
        }
    } else {
        for (uint32_t q = 0; q < s->rank; q++) {
            int64_t bs = s->bounds ? s->bounds[q] : XL_DYN, bt = t->bounds ? t->bounds[q] : XL_DYN;
            if (s->dims[q] == t->dims[q] && bs == bt)
                continue;
            bool key = q + 1 == s->rank && is_key(s) && is_key(t);
            xl_diff x = about_arg(d, fb, k, key ? XL_DIFF_KEY : XL_DIFF_SHAPE);
            x.dim = (int32_t)q;
            x.size = t->dims[q];
            x.before = s->dims[q] >= 0 ? xl_strf(d->arena, "%lld", (long long)s->dims[q])
                       : bs >= 0       ? xl_strf(d->arena, "<=%lld", (long long)bs)
                                       : XL_STR("?");
            x.after = t->dims[q] >= 0 ? xl_strf(d->arena, "%lld", (long long)t->dims[q])
                      : bt >= 0       ? xl_strf(d->arena, "<=%lld", (long long)bt)
                                      : XL_STR("?");
            if (key)
                x.text =
                    xl_strf(d->arena, "%.*s: a random key changed from %.*s to %.*s words%.*s",
                            XL_FMT(arg_words(d, fb, &x)), XL_FMT(x.before), XL_FMT(x.after), XL_FMT(used_at(d, &x)));
            else
                x.text = xl_strf(d->arena, "%.*s: dimension %u changed from %.*s to %.*s%.*s",
                                 XL_FMT(arg_words(d, fb, &x)), q, XL_FMT(x.before), XL_FMT(x.after),
                                 XL_FMT(used_at(d, &x)));
            d->shapes = true;
            xl_diff_size(d, s->dims[q], t->dims[q]);
            xl_diff_note(d, x);
        }
        if (s->dtype != t->dtype) {
            xl_diff x = about_arg(d, fb, k, XL_DIFF_DTYPE);
            x.before = xl_str_of(xl_dtypes[s->dtype].text);
            x.after = xl_str_of(xl_dtypes[t->dtype].text);
            x.text = xl_strf(d->arena, "%.*s: dtype changed from %.*s to %.*s%.*s", XL_FMT(arg_words(d, fb, &x)),
                             XL_FMT(x.before), XL_FMT(x.after), XL_FMT(used_at(d, &x)));
            d->dtypes = true;
            xl_diff_note(d, x);
        }
    }
    if (xl_type_eq(s, t) && is_key(t))
        key_kind(d, fa, i, fb, k);
    xl_diff_of_arg c = { d, fb, k, NULL, false };
    xl_diff_dicts(d, fa->arg_attr ? fa->arg_attr[i] : NULL, fb->arg_attr ? fb->arg_attr[k] : NULL, xl_diff_arg_attr,
                  &c);
}

static bool all_named(const xl_func *f)
{
    uint32_t n = xl_diff_nargs(f);
    for (uint32_t i = 0; i < n; i++) {
        if (!xl_diff_arg_name(f, i).n)
            return false;
        for (uint32_t k = 0; k < i && n <= 4096; k++)
            if (n <= 512 && xl_str_eq(xl_diff_arg_name(f, i), xl_diff_arg_name(f, k)))
                return false;
    }
    return n > 0;
}

/* The other program has arguments of this very call: another size may bring more of them or fewer (an LSTM's steps). */
static bool of_same_call(const xl_func *f, uint32_t i, const xl_func *other)
{
    uint64_t stack =
        xl_diff_by_graph(f) && xl_diff_by_graph(other) ? xl_loc_stack(f->m, f->val[f->body->arg[i].id].loc) : 0;
    for (uint32_t k = 0; stack && k < xl_diff_nargs(other); k++)
        if (xl_loc_stack(other->m, other->val[other->body->arg[k].id].loc) == stack)
            return true;
    return false;
}

/* Elements of one list, by what stands before and after their number in a name: "history" and "['x']" of
 * "history[3]['x']". */
typedef struct { xl_str list, rest; int64_t number; } element;

static bool element_at(xl_str name, size_t at, element *e)
{
    xl_str rest = { name.p + at + 1, name.n - at - 1 }, number = xl_str_cut(&rest, ']');
    *e = (element){ .list = { name.p, at }, .rest = { number.p + number.n + 1, 0 } };
    e->rest.n = rest.p ? rest.n : 0;
    return at && name.p[at] == '[' && rest.p && xl_str_i64(number, &e->number);
}

/* How many there are of that type from the first on, none of them missing: 0, or what the program reads. */
static int64_t count_elements(const xl_func *f, const element *e, const xl_type *type)
{
    int64_t n = 0, met = 0;
    for (uint32_t i = 0; i < xl_diff_nargs(f); i++) {
        xl_str name = xl_diff_arg_name(f, i);
        element x;
        if (xl_str_starts(name, e->list) && element_at(name, e->list.n, &x) && xl_str_eq(x.rest, e->rest) &&
            xl_type_eq(xl_diff_arg_type(f, i), type)) {
            met++;
            n = x.number >= n ? x.number + 1 : n;
        }
    }
    return met == n ? n : 0;
}

/* An argument that came or went with the length of a list of arrays: told once, as that. */
static bool of_list(xl_differ *d, const xl_func *f, uint32_t i, bool came)
{
    const xl_func *other = xl_module_entry(came ? d->a : d->b);
    xl_str name = xl_diff_arg_name(f, i);
    element e;
    int64_t n = 0, before = 0;
    for (size_t at = 1; at < name.n && !(n && before); at++) {
        if (name.p[at] != '[' || !element_at(name, at, &e))
            continue;
        n = count_elements(f, &e, xl_diff_arg_type(f, i));
        before = count_elements(other, &e, xl_diff_arg_type(f, i));
    }
    if (n <= before || !before)
        return false;
    xl_diff x = about_arg(d, f, i, XL_DIFF_ARGS);
    xl_str who = xl_say_argument(d->arena, e.list);
    x.part = xl_strf(d->arena, "elements of %.*s", XL_FMT(who));
    for (uint32_t k = 0; k < d->n; k++)
        if (xl_str_eq(d->list[k].part, x.part))
            return true;
    x.before = xl_strf(d->arena, "%lld", (long long)(came ? before : n));
    x.after = xl_strf(d->arena, "%lld", (long long)(came ? n : before));
    x.text = xl_strf(d->arena, "%.*s has %.*s elements that the program reads, and had %.*s%.*s",
                     XL_FMT(who), XL_FMT(x.after), XL_FMT(x.before), XL_FMT(used_at(d, &x)));
    xl_diff_size(d, came ? before : n, came ? n : before);
    d->arguments = true;
    xl_diff_note(d, x);
    return true;
}

static void came_or_went(xl_differ *d, const xl_func *f, uint32_t i, bool came)
{
    bool listed = of_list(d, f, i, came);
    xl_diff x = about_arg(d, f, i, XL_DIFF_ARGS);
    x.listed = listed;
    x.again = of_same_call(f, i, xl_module_entry(came ? d->a : d->b));
    xl_str t = xl_say_type(d->arena, xl_diff_arg_type(f, i));
    x.state = xl_diff_of_optimizer(f, i);
    *(came ? &x.after : &x.before) = t;
    bool with_op =
        xl_diff_by_graph(f) && xl_diff_arg_type(f, i)->rank == 0; /* PyTorch/XLA: a Python number that an op reads */
    x.follows = is_key(xl_diff_arg_type(f, i)) || with_op;
    d->numbers |= with_op;
    d->arguments |= !x.follows;
    (came ? d->came : d->went)[i] = !x.follows || with_op;
    x.text = xl_strf(d->arena, "%.*s %s: %.*s%.*s", XL_FMT(arg_words(d, f, &x)), came ? "was added" : "was removed",
                     XL_FMT(t), XL_FMT(xl_diff_at(d, &x)));
    xl_diff_note(d, x);
}

/* Of the arguments that no name pairs up, those of one type were renamed: in order. */
static void renamed(xl_differ *d, const xl_func *fa, const xl_func *fb, int32_t *to)
{
    uint32_t na = xl_diff_nargs(fa), nb = xl_diff_nargs(fb), k = 0;
    bool *taken = xl_new(d->arena, bool, nb);
    for (uint32_t i = 0; i < na; i++)
        if (to[i] >= 0)
            taken[to[i]] = true;
    for (uint32_t i = 0; i < na; i++) {
        while (to[i] < 0 && k < nb && taken[k])
            k++;
        if (to[i] < 0 && k < nb && xl_type_eq(xl_diff_arg_type(fa, i), xl_diff_arg_type(fb, k)))
            to[i] = (int32_t)k++;
    }
}

/* PyTorch/XLA numbers its arguments as it meets them in the graph, so another graph has them in another order: those of
 * one type and line pair up first, then those of one type, then those of one line, then those alike in rank and dtype.
 */
static bool pairs_at(const xl_func *fa, uint32_t i, const xl_func *fb, uint32_t k, int round)
{
    const xl_type *s = xl_diff_arg_type(fa, i), *t = xl_diff_arg_type(fb, k);
    uint64_t x = xl_loc_stack(fa->m, fa->val[fa->body->arg[i].id].loc),
             y = xl_loc_stack(fb->m, fb->val[fb->body->arg[k].id].loc);
    bool alike = s->rank == t->rank && s->dtype == t->dtype;
    uint32_t equal = 0;
    for (uint32_t q = 0; alike && q < s->rank; q++)
        equal += s->dims[q] == t->dims[q];
    switch (round) {
    case 0: return xl_type_eq(s, t) && x == y;
    case 1: return xl_type_eq(s, t);
    case 2: return alike && x == y && x;
    case 3: return x == y && x;
    case 4: return alike && equal;
    default: return xl_diff_nargs(fa) == xl_diff_nargs(fb) && !s->rank == !t->rank; /* a number is no array */
    }
}

static void pair_by_graph(xl_differ *d, const xl_func *fa, const xl_func *fb, int32_t *to)
{
    uint32_t na = xl_diff_nargs(fa), nb = xl_diff_nargs(fb);
    bool *taken = xl_new(d->arena, bool, nb);
    for (uint32_t i = 0; i < na; i++)
        to[i] = -1;
    for (int round = 0; round < 6; round++)
        for (uint32_t i = 0; i < na; i++)
            for (uint32_t q = 0; to[i] < 0 && q < nb; q++) {
                uint32_t k = (i + q) % nb; /* mostly in place */
                if (!taken[k] && pairs_at(fa, i, fb, k, round)) {
                    to[i] = (int32_t)k;
                    taken[k] = true;
                }
            }
}

/* "trained" of "trained.layers[0].weight". */
static xl_str root_of(xl_str name)
{
    size_t n = 0;
    while (n < name.n && name.p[n] != '.' && name.p[n] != '[')
        n++;
    return (xl_str){ name.p, n };
}

static uint32_t count_root(const xl_func *f, xl_str root)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < xl_diff_nargs(f); i++)
        n += xl_str_eq(root_of(xl_diff_arg_name(f, i)), root);
    return n;
}

/* One argument of the function has fewer arrays, and another one more: these are others, and not the same renamed. */
static bool moved_between(const xl_func *fa, const xl_func *fb, const int32_t *by_name)
{
    for (uint32_t i = 0; i < xl_diff_nargs(fa); i++) {
        xl_str root = root_of(xl_diff_arg_name(fa, i));
        uint32_t n = by_name[i] < 0 ? count_root(fb, root) : 0;
        if (n && n != count_root(fa, root))
            return true;
    }
    return false;
}

/* Fills to[] (per argument of a: index in b or -1) and notes what differs. */
void xl_diff_args(xl_differ *d, const xl_func *fa, const xl_func *fb, int32_t *to)
{
    uint32_t na = xl_diff_nargs(fa), nb = xl_diff_nargs(fb);
    int32_t *from = xl_new(d->arena, int32_t, nb);
    for (uint32_t k = 0; k < nb; k++)
        from[k] = -1;
    for (uint32_t i = 0; i < na; i++)
        to[i] = na == nb ? (int32_t)i : -1;
    if (all_named(fa) && all_named(fb) && na <= 4096 && nb <= 4096) {
        uint32_t same = 0, moved = 0;
        int32_t *by_name = xl_new(d->arena, int32_t, na);
        for (uint32_t i = 0; i < na; i++) {
            by_name[i] = -1;
            xl_str name = xl_diff_arg_name(fa, i);
            for (uint32_t q = 0; q < nb && by_name[i] < 0; q++) {
                uint32_t k = (i + q) % nb; /* mostly in place */
                if (xl_str_eq(name, xl_diff_arg_name(fb, k)))
                    by_name[i] = (int32_t)k;
            }
            same += by_name[i] >= 0;
            moved += by_name[i] >= 0 && by_name[i] != (int32_t)i;
        }
        /* Names that changed with nothing else are renames: then position counts. */
        bool others = na != nb || (na <= 512 && moved_between(fa, fb, by_name));
        if (others || moved)
            memcpy(to, by_name, na * sizeof *to);
        if (!others && moved) {
            renamed(d, fa, fb, to);
            xl_diff x = { .kind = XL_DIFF_ORDER, .arg = -1, .dim = -1 };
            xl_buf before = { 0 }, after = { 0 };
            uint32_t shown = 0;
            for (uint32_t i = 0; i < na; i++) {
                if (xl_str_eq(xl_diff_arg_name(fa, i), xl_diff_arg_name(fb, i)))
                    continue;
                if (x.arg < 0)
                    x = about_arg(d, fb, i, XL_DIFF_ORDER);
                if (shown++ < 8) {
                    xl_buf_printf(&before, "%s%.*s", before.n ? ", " : "", XL_FMT(xl_diff_arg_name(fa, i)));
                    xl_buf_printf(&after, "%s%.*s", after.n ? ", " : "", XL_FMT(xl_diff_arg_name(fb, i)));
                }
            }
            x.before = xl_str_dup(d->arena, xl_buf_view(&before));
            x.after = xl_str_dup(d->arena, xl_buf_view(&after));
            x.text = xl_strf(d->arena, "arguments were %s: %.*s -> %.*s%s",
                             same == na ? "reordered" : "renamed and so reordered", XL_FMT(x.before), XL_FMT(x.after),
                             shown > 8 ? ", ..." : "");
            xl_buf_fini(&before);
            xl_buf_fini(&after);
            xl_diff_note(d, x);
        }
    } else if (xl_diff_by_graph(fa) && xl_diff_by_graph(fb) && na <= 1024 && nb <= 1024) {
        pair_by_graph(d, fa, fb, to);
    } else if (na != nb) { /* no names: pair equal types in order */
        uint64_t *x = xl_new(d->arena, uint64_t, na), *y = xl_new(d->arena, uint64_t, nb);
        for (uint32_t i = 0; i < na; i++) {
            xl_str t = xl_say_type(d->arena, xl_diff_arg_type(fa, i));
            x[i] = xl_hash64(t.p, t.n, 1);
        }
        for (uint32_t k = 0; k < nb; k++) {
            xl_str t = xl_say_type(d->arena, xl_diff_arg_type(fb, k));
            y[k] = xl_hash64(t.p, t.n, 1);
        }
        xl_align(d->arena, x, na, y, nb, to);
    }
    for (uint32_t i = 0; i < na; i++)
        if (to[i] >= 0)
            from[to[i]] = (int32_t)i;
        else
            came_or_went(d, fa, i, false);
    for (uint32_t k = 0; k < nb; k++)
        if (from[k] >= 0)
            one_arg(d, fa, (uint32_t)from[k], fb, k);
        else
            came_or_went(d, fb, k, true);
}
