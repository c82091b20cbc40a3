#include "lane/contract.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "base/file.h"
#include "base/zip.h"
#include "ir/compare/hash.h"
#include "ir/read.h"
#include "lane/call.h"
#include "lane/weak.h"

/* One remembered compile. The key's parts and names are copied into its arena. */
typedef struct record {
    struct record *next;                                   /* newest first */
    xl_arena arena;
    xl_str group, run;                                     /* run: empty for this process */
    xl_str module;
    xl_compile_site site;
    char hash[XL_DIGEST_HEX];
    xl_str name[XL_KEY_PARTS], value[XL_KEY_PARTS];
    uint32_t n;
    xl_module *m;
    uint64_t *op; /* the numbers of its ops, sorted: how alike two programs are */
    uint32_t nop;
    uint64_t *line;                                        /* of its ops, sorted */
    uint32_t nline;
    xl_str caster;                                         /* the first argument that changed its dtype, in words */
    xl_dtype cast;                                         /* and to which */
    bool helper;
} record;

enum { PER_GROUP = 16, RECORDS = 512, GROUPS = 256, DIFFS = 32, RECALL = 64, RECALL_BYTES = 1 << 20, READ = 4 };
static const size_t most_memory = (size_t)64 << 20;

struct xl_contracts {
    xl_run *run;
    char *script;
    record *all;
    size_t memory;
    bool wide, switched;                                   /* a program had 64-bit numbers; x64 was switched */
    uint32_t ngroup;
    xl_str group[GROUPS];                                  /* those whose earlier runs were looked up */
};

xl_contracts *xl_contracts_new(xl_run *run, const char *script)
{
    xl_contracts *c = calloc(1, sizeof *c);
    if (c) {
        c->run = run;
        c->script = strdup(script ? script : "");
    }
    if (c && !c->script) {
        free(c);
        return NULL;
    }
    return c;
}

static void record_free(record *r)
{
    if (!r)
        return;
    xl_module_free(r->m);
    xl_arena_fini(&r->arena);
    free(r);
}

void xl_contracts_free(xl_contracts *c)
{
    if (!c)
        return;
    for (record *r = c->all, *next; r; r = next) {
        next = r->next;
        record_free(r);
    }
    for (uint32_t i = 0; i < c->ngroup; i++)
        free((void *)c->group[i].p);
    free(c->script);
    free(c);
}

xl_str xl_contract_script(xl_arena *a, xl_str args, const char *cwd)
{
    xl_str program = xl_str_cut(&args, 0), base = xl_path_base(program);
    if (!xl_str_starts(base, XL_STR("python")))
        return xl_str_dup(a, program);
    while (args.n) {
        xl_str arg = xl_str_cut(&args, 0);
        if (xl_str_is(arg, "-c"))
            return XL_STR("-c");
        if (xl_str_is(arg, "-m"))
            return xl_strf(a, "-m %.*s", XL_FMT(xl_str_cut(&args, 0)));
        if (xl_str_is(arg, "-W") || xl_str_is(arg, "-X"))
            xl_str_cut(&args, 0);
        else if (!xl_str_starts(arg, XL_STR("-")))
            return xl_str_starts(arg, XL_STR("/")) ? xl_str_dup(a, arg)
                                                   : xl_str_of(xl_path_join(a, cwd, xl_str_c(a, arg)));
    }
    return xl_str_dup(a, program);
}

static bool deeper(const xl_module *m, const xl_region *r, uint64_t caller, bool *any)
{
    for (uint32_t i = 0; r && i < r->nop; i++) {
        uint64_t stack = xl_loc_stack(m, r->op[i]->loc);
        *any |= stack != 0;
        if (stack && stack != caller)
            return true;
        for (uint32_t k = 0; k < r->op[i]->nregion; k++)
            if (deeper(m, r->op[i]->region[k], caller, any))
                return true;
    }
    return false;
}

static xl_loc called_at(const xl_module *m)
{
    const xl_func *f = xl_module_entry(m);
    const xl_region *r = f ? f->body : NULL;
    return r && r->nop && r->op[r->nop - 1]->code == XL_OP_RETURN ? r->op[r->nop - 1]->loc : (xl_loc){ 0 };
}

bool xl_contract_helper(const xl_module *m, xl_owner owner)
{
    if (owner || !m)
        return owner == XL_OWNER_LIBRARY || owner == XL_OWNER_SEARCH;
    uint64_t caller = xl_loc_stack(m, called_at(m));
    bool any = false;
    uint32_t n = 0;
    for (uint32_t f = 0; f < m->nfunc && caller; f++)
        if (deeper(m, m->func[f]->body, caller, &any))
            return false;
    if (any)
        return true;
    for (uint32_t f = 0; f < m->nfunc; f++)
        for (uint32_t k = 0; m->func[f]->body && k < m->func[f]->body->nop; k++) {
            uint16_t code = m->func[f]->body->op[k]->code;
            n += code != XL_OP_CONSTANT && code != XL_OP_CALL && code != XL_OP_RETURN;
        }
    return n <= 1;
}

xl_str xl_contract_group(xl_str module)
{
    size_t n = module.n;
    while (n && module.p[n - 1] >= '0' && module.p[n - 1] <= '9')
        n--;
    return n && n < module.n && module.p[n - 1] == '.' ? (xl_str){ module.p, n - 1 } : module;
}

/* ---- how alike --------------------------------------------------------------------------------------------------- */
static int by_number(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

static void number_ops(record *r)
{
    uint32_t n = 0;
    for (uint32_t f = 0; f < r->m->nfunc; f++)
        n += r->m->func[f]->body ? r->m->func[f]->body->nop : 0;
    r->op = xl_new(&r->arena, uint64_t, n);
    for (uint32_t f = 0; f < r->m->nfunc; f++) {
        xl_func *fn = r->m->func[f];
        for (uint32_t i = 0; fn->body && i < fn->body->nop; i++)
            r->op[r->nop++] = xl_op_hash(fn, fn->body->op[i]);
    }
    if (r->nop)
        qsort(r->op, r->nop, sizeof *r->op, by_number);
    r->line = xl_module_lines(&r->arena, r->m, &r->nline);
}

static uint32_t in_common(const record *a, const record *b)
{
    uint32_t i = 0, j = 0, n = 0;
    while (i < a->nop && j < b->nop) {
        if (a->op[i] == b->op[j])
            n++, i++, j++;
        else if (a->op[i] < b->op[j])
            i++;
        else
            j++;
    }
    return n;
}

/* Arguments of the same number, types and ranks. */
static bool same_signature(const xl_func *a, const xl_func *b)
{
    if (!a || !b || !a->body || !b->body || a->body->narg != b->body->narg)
        return false;
    for (uint32_t i = 0; i < a->body->narg; i++) {
        const xl_type *x = xl_value_type(a, a->body->arg[i]), *y = xl_value_type(b, b->body->arg[i]);
        if (x->kind != y->kind || x->dtype != y->dtype || x->rank != y->rank)
            return false;
    }
    return true;
}
static uint32_t count_codes(const xl_module *m, uint32_t *count)
{
    uint32_t n = 0;
    for (uint32_t f = 0; f < m->nfunc; f++) {
        const xl_region *body = m->func[f]->body;
        for (uint32_t i = 0; body && i < body->nop; i++, n++)
            count[body->op[i]->code]++;
    }
    return n;
}
/* A family whose names are only numbered holds every program of a process. Two are of one kind if they take the same
 * arguments but for their sizes, or if half of the larger one's ops are in the other, whatever their shapes. */
static bool kin(const xl_module *a, const xl_module *b)
{
    uint32_t x[XL_OP_COUNT] = { 0 }, y[XL_OP_COUNT] = { 0 }, both = 0;
    uint32_t na = count_codes(a, x), nb = count_codes(b, y);
    for (uint32_t i = 0; i < XL_OP_COUNT; i++)
        both += x[i] < y[i] ? x[i] : y[i];
    return 2 * both >= (na > nb ? na : nb) || same_signature(xl_module_entry(a), xl_module_entry(b));
}

/* ---- programs on disk -------------------------------------------------------------------------------------------- */
xl_error *xl_recorded_save(xl_run *run, const char *hash, xl_str bytes)
{
    xl_error *err = NULL;
    xl_buf packed = { 0 };
    char path[4096];
    if (!xl_run_there(run))
        return NULL;
    int n = snprintf(path, sizeof path, "%s/programs", xl_run_dir(run));
    if (n < 0 || (size_t)n + 80 >= sizeof path)
        return XL_ERR(INVALID, "the run folder's path is too long");
    XL_DO(xl_dir_make_private(path));
    snprintf(path + n, sizeof path - (size_t)n, "/%s.zst", hash);
    if (xl_file_stat(path, NULL))
        return NULL;
    XL_DO(xl_zip(bytes, 1, &packed));
    err = xl_file_write_quick(path, xl_buf_view(&packed));
out:
    xl_buf_fini(&packed);
    return err;
}

xl_error *xl_recorded_load(xl_arena *a, const char *run_dir, const char *hash, xl_str *bytes)
{
    xl_error *err = NULL;
    xl_buf raw = { 0 };
    xl_str packed;
    char *path = xl_path_join(a, run_dir, xl_strf(a, "programs/%s.zst", hash).p);
    XL_TRY(xl_file_read(a, path, &packed), "loading a recorded program");
    XL_TRY(xl_unzip(packed, UINT64_C(1) << 30, &raw), "loading %s", path);
    *bytes = xl_str_dup(a, xl_buf_view(&raw));
out:
    xl_buf_fini(&raw);
    return err;
}

/* ---- earlier runs: `<runs>/contracts/<group>.jsonl`, a line per compile ---- */
static char *index_path(xl_arena *a, const xl_contracts *c, xl_str group)
{
    xl_str parent = xl_path_dir(xl_str_of(xl_run_dir(c->run)));
    xl_buf name = { 0 };
    for (size_t i = 0; i < group.n && i < 100; i++) {
        char ch = group.p[i];
        xl_buf_putc(&name, (ch >= '0' && ch <= '9') || (ch >= 'A' && ch <= 'Z') || (ch >= 'a' && ch <= 'z') ||
                                   ch == '_' || ch == '-'
                               ? ch
                               : '.');
    }
    char *path = xl_path_join(a, xl_str_c(a, parent), xl_strf(a, "contracts/%s.jsonl", name.p ? name.p : "none").p);
    xl_buf_fini(&name);
    return path;
}

static void remember_on_disk(xl_arena *a, xl_contracts *c, const record *r, xl_str bytes)
{
    if (!xl_run_there(c->run))
        return;
    xl_buf line = { 0 };
    xl_json j = { .out = &line };
    xl_json_map(&j);
    xl_json_put_str(&j, "run", xl_path_base(xl_str_of(xl_run_dir(c->run))));
    xl_json_put_int(&j, "rank", xl_run_rank(c->run));
    xl_json_put_text(&j, "script", c->script);
    xl_json_put_text(&j, "hash", r->hash);
    if (r->site.function.n)
        xl_json_put_str(&j, "function", r->site.function);
    xl_str names = xl_call_names(a, r->site.call);
    if (names.n)
        xl_json_put_str(&j, "names", names);
    if (r->site.x64)
        xl_json_put_bool(&j, "x64", r->site.x64 == XL_X64_ON);
    xl_json_key(&j, "parts");
    xl_json_map(&j);
    for (uint32_t i = 0; i < r->n; i++) {
        xl_json_keyn(&j, r->name[i]);
        xl_json_str(&j, r->value[i]);
    }
    xl_json_end(&j);
    xl_json_end(&j);
    char *path = index_path(a, c, r->group);
    xl_error_free(xl_dir_make_private(xl_str_c(a, xl_path_dir(xl_str_of(path)))));
    xl_error_free(xl_file_append(path, xl_buf_view(&line)));
    xl_error_free(xl_recorded_save(c->run, r->hash, bytes));
    xl_buf_fini(&line);
}

static record *record_new(xl_arena *a, xl_str group)
{
    record *r = calloc(1, sizeof *r);
    if (r) {
        r->arena.oom = a->oom;
        r->group = xl_str_dup(&r->arena, group);
    }
    return r;
}

static bool has(const xl_contracts *c, xl_str group, xl_str hash)
{
    for (const record *r = c->all; r; r = r->next)
        if (xl_str_is(hash, r->hash) && xl_str_eq(r->group, group))
            return true;
    return false;
}
/* The hash in a line as remember_on_disk writes it, found without reading the rest. */
static xl_str hash_of(xl_str line)
{
    static const char key[] = "\"hash\":\"";
    const char *at = memmem(line.p, line.n, key, sizeof key - 1);
    return at && line.p + line.n - at >= (ptrdiff_t)(sizeof key + XL_DIGEST_HEX)
               ? (xl_str){ at + sizeof key - 1, XL_DIGEST_HEX - 1 }
               : (xl_str){ 0 };
}

/* The newest programs of earlier runs, each once; looked up once per group. */
static void recall(xl_arena *a, xl_contracts *c, xl_str group)
{
    for (uint32_t i = 0; i < c->ngroup; i++)
        if (xl_str_eq(c->group[i], group))
            return;
    char *copy = c->ngroup < GROUPS ? malloc(group.n + 1) : NULL;
    if (!copy)
        return;
    memcpy(copy, group.p, group.n);
    c->group[c->ngroup++] = (xl_str){ copy, group.n };
    if (!*xl_run_dir(c->run))
        return;
    xl_str text;
    xl_error *err = xl_file_read_plain(a, index_path(a, c, group), 64 << 20, &text);
    if (err) {
        xl_error_free(err);
        return;
    }
    const char *end = text.p + text.n, *at = end;
    if (text.n > RECALL_BYTES) /* a long history of the same programs is not searched to its beginning */
        text.p = end - RECALL_BYTES;
    for (int found = 0; at > text.p && found < RECALL;) {  /* from the end, newest first; the list keeps that order */
        const char *from = at - 1;
        while (from > text.p && from[-1] != '\n')
            from--;
        xl_node *n;
        xl_str line = xl_str_trim((xl_str){ from, (size_t)(at - from) });
        at = from;
        if (has(c, group, hash_of(line)) || !line.n)
            continue;
        err = xl_json_read(a, "contracts", line, &n);
        const xl_node *hash = err ? NULL : xl_node_get(n, "hash"), *run = err ? NULL : xl_node_get(n, "run"),
                      *parts = err ? NULL : xl_node_get(n, "parts"), *script = err ? NULL : xl_node_get(n, "script"),
                      *function = err ? NULL : xl_node_get(n, "function"),
                      *x64 = err ? NULL : xl_node_get(n, "x64"), *names = err ? NULL : xl_node_get(n, "names");
        xl_error_free(err);
        if (script && !xl_str_is(script->s, c->script))
            continue;
        if (!hash || !run || !parts || hash->s.n != XL_DIGEST_HEX - 1 || parts->n > XL_KEY_PARTS ||
            xl_str_is(run->s, xl_str_c(a, xl_path_base(xl_str_of(xl_run_dir(c->run))))))
            continue;
        record *r = record_new(a, group);
        if (!r)
            return;
        memcpy(r->hash, hash->s.p, hash->s.n);
        found++;
        r->run = xl_str_dup(&r->arena, run->s);
        if (function && function->kind == XL_NODE_STR)
            r->site.function = xl_str_dup(&r->arena, function->s);
        if (names && names->kind == XL_NODE_STR)
            r->site.call = xl_str_dup(&r->arena, names->s);
        if (x64 && x64->kind == XL_NODE_BOOL)
            r->site.x64 = x64->b ? XL_X64_ON : XL_X64_OFF;
        r->n = (uint32_t)parts->n;
        for (uint32_t i = 0; i < r->n; i++) {
            r->name[i] = xl_str_dup(&r->arena, parts->kid[i]->key);
            r->value[i] = xl_str_dup(&r->arena, parts->kid[i]->s);
        }
        record **tail = &c->all;                           /* behind everything of this process */
        while (*tail)
            tail = &(*tail)->next;
        *tail = r;
    }
}

/* Calls the program's arguments what the user does, where a wrapper has names of its own for them. */
static void name_arguments(record *r)
{
    xl_func *f = xl_module_entry(r->m);
    for (uint32_t i = 0; f && f->body && i < f->body->narg; i++) {
        xl_val *v = &f->val[f->body->arg[i].id];
        xl_str label = xl_loc_label(r->m, v->loc), name = xl_call_name(&r->arena, r->site.call, label);
        if (!xl_str_eq(name, label))
            v->loc = xl_loc_name(r->m, name, v->loc);
    }
}

/* A recalled record's program is read only when it is needed. */
static void need_program(xl_arena *a, xl_contracts *c, record *r)
{
    xl_str bytes;
    if (r->m || !r->run.n)
        return;
    char *dir = xl_path_join(a, xl_str_c(a, xl_path_dir(xl_str_of(xl_run_dir(c->run)))), xl_str_c(a, r->run));
    xl_error *err = xl_recorded_load(a, dir, r->hash, &bytes);
    if (!err)
        err = xl_read(bytes, NULL, &r->m);
    xl_error_free(err);
    if (r->m) {
        r->m->arena.oom = a->oom;
        r->arena.oom = a->oom;
        name_arguments(r);
        number_ops(r);
    }
}

/* ---- the verdict ------------------------------------------------------------------------------------------------- */
/* Ops and constants come and go with the arguments that they read, so those are asked first. */
static const xl_diff_kind order[] = { XL_DIFF_SHAPE, XL_DIFF_DTYPE, XL_DIFF_WEAK,   XL_DIFF_KEY,   XL_DIFF_SHARDING,
                                      XL_DIFF_ARGS,  XL_DIFF_ORDER, XL_DIFF_INDEX,  XL_DIFF_CONSTANT,
                                      XL_DIFF_OP,    XL_DIFF_SETUP, XL_DIFF_LAYOUT, XL_DIFF_DONATION };

/* A constant on a line where ops came or went is part of that change, and no cause of its own. */
static bool among_ops(const xl_verdict *v, const xl_diff *x)
{
    for (uint32_t i = 0; i < v->ndiff && x->kind == XL_DIFF_CONSTANT && x->file.n; i++) {
        const xl_diff *o = &v->diff[i];
        uint32_t last = o->last ? o->last : o->line;       /* one that changed, or those that came or went */
        if (o->kind == XL_DIFF_OP && !o->follows && xl_str_eq(o->file, x->file) && o->line <= x->line &&
            x->line <= last)
            return true;
    }
    return false;
}

static bool has_wide(const xl_module *m)
{
    for (uint32_t f = 0; f < m->nfunc; f++)
        for (uint32_t v = 0; v < m->func[f]->nval; v++) {
            const xl_type *t = m->func[f]->val[v].type;
            if (t && t->kind == XL_TY_TENSOR && (t->dtype == XL_F64 || t->dtype == XL_I64 || t->dtype == XL_C128))
                return true;
        }
    return false;
}

/* JAX has 64-bit numbers only under jax_enable_x64: a program that has some, after one that had none, came after it was
 * switched, unless a 64-bit argument explains it and x64 was on already. Where it is known, that decides. */
static bool wider(const xl_module *before, const xl_module *after, const xl_verdict *v)
{
    bool args = false, on = has_wide(after);
    if (v->x64_before && v->x64_after)
        return v->x64_before != v->x64_after && has_wide(before) != on && on == (v->x64_after == XL_X64_ON);
    for (uint32_t i = 0; i < v->ndiff; i++)
        args |= v->diff[i].arg >= 0 && v->diff[i].kind == XL_DIFF_DTYPE;
    return xl_str_starts(after->name, XL_STR("jit_")) && has_wide(before) != on &&
           !(args && (on ? v->wide : v->steady_wide));
}

/* As many ops of each kind, but for those that only change a form. */
static bool same_work(const xl_module *a, const xl_module *b)
{
    static const uint16_t form[] = { XL_OP_CONVERT, XL_OP_BROADCAST_IN_DIM, XL_OP_RESHAPE, XL_OP_CONSTANT };
    uint32_t x[XL_OP_COUNT] = { 0 }, y[XL_OP_COUNT] = { 0 };
    count_codes(a, x);
    count_codes(b, y);
    for (size_t i = 0; i < sizeof form / sizeof *form; i++)
        x[form[i]] = y[form[i]] = 0;
    return !memcmp(x, y, sizeof x);
}

/* What changed first of all; NULL: nothing but consequences. */
static const char *reason_of(const xl_verdict *v)
{
    for (size_t k = 0; k < sizeof order / sizeof *order; k++)
        for (uint32_t i = 0; i < v->ndiff; i++)
            if (v->diff[i].kind == order[k] && !v->diff[i].follows && !among_ops(v, &v->diff[i]))
                return xl_diff_word(order[k]);
    return NULL;
}

/* "sdy.sharding_constraint, stablehlo.reshape": ops that say where a value lies, or change its form; at least one of
 * the former. */
static bool constrains(xl_str names)
{
    static const char *const forms[] = { "reshape", "broadcast_in_dim", "transpose" };
    bool any = false;
    while (names.n) {
        xl_str one = xl_str_trim(xl_str_cut(&names, ','));
        bool form = false, constraint = xl_str_ends(one, XL_STR("sharding_constraint"));
        for (size_t i = 0; i < sizeof forms / sizeof *forms; i++)
            form |= xl_str_ends(one, xl_str_of(forms[i]));
        if (!form && !constraint)
            return false;
        any |= constraint;
    }
    return any;
}

/* Arguments that are split otherwise: JAX writes other constraints into the program, and its results are split as they
 * are. Nobody chose other code for that. */
static void follow_shardings(xl_verdict *v)
{
    bool split = false;
    for (uint32_t i = 0; i < v->ndiff; i++)
        split |= v->diff[i].kind == XL_DIFF_SHARDING && v->diff[i].arg >= 0;
    for (uint32_t i = 0; i < v->ndiff && split; i++) {
        xl_diff *d = &v->diff[i];
        bool op = d->kind == XL_DIFF_OP && (!d->before.n || constrains(d->before)) &&
                  (!d->after.n || constrains(d->after));
        d->follows |= d->arg < 0 && (d->kind == XL_DIFF_SHARDING || op);
    }
}

xl_error *xl_contract_compare(xl_arena *a, const xl_module *before, const xl_module *after, xl_verdict *out)
{
    uint32_t n = 0;
    xl_diff *diff = xl_module_diff(a, before, after, DIFFS, &n);
    out->diff = diff;
    out->ndiff = n;
    out->reason = "identical";
    bool ordered = false;
    for (uint32_t i = 0; i < n; i++)
        ordered |= diff[i].kind == XL_DIFF_ORDER;
    for (uint32_t i = 0; i < n && ordered && same_work(before, after); i++) /* the ops follow their arguments */
        diff[i].follows |= diff[i].kind == XL_DIFF_OP;
    follow_shardings(out);
    if (wider(before, after, out)) {
        xl_diff *d = xl_new(a, xl_diff, n + 1);
        bool on = has_wide(after);
        *d = (xl_diff){ .kind = XL_DIFF_DTYPE,
                        .arg = -1,
                        .dim = -1,
                        .times = 1,
                        .before = on ? XL_STR("32 bits") : XL_STR("64 bits"),
                        .after = on ? XL_STR("64 bits") : XL_STR("32 bits") };
        for (uint32_t i = 0; i < n; i++) {
            d[i + 1] = diff[i];
            d[i + 1].follows = true;                       /* arguments too: NumPy's are 64 bits wide by default */
            if (!d->file.n)
                d->file = diff[i].file, d->line = diff[i].line;
        }
        d->text = xl_strf(a, "64-bit numbers %s%s%.*s%s: jax_enable_x64 was switched %s", on ? "came in" : "went",
                          d->file.n ? " at " : "", XL_FMT(d->file), d->file.n ? xl_strf(a, ":%u", d->line).p : "",
                          on ? "on" : "off");
        out->diff = d;
        out->ndiff = n + 1;
        out->reason = "x64";
        return NULL;
    }
    xl_weak_find(a, before, after, same_work(before, after), out);
    const char *reason = reason_of(out);
    if (reason)
        out->reason = reason;
    return NULL;
}

/* ---- the same code, compiled as another module ---- */
/* JAX's pmap: a module of its own name for all functions, with a mesh of its own, or in older versions a prefix. */
static bool pmapped(const xl_module *m)
{
    const xl_func *f = xl_module_entry(m);
    if (xl_str_starts(m->name, XL_STR("pmap_")))
        return true;
    return f && f->body && f->body->narg && m->nmesh &&
           xl_str_starts(xl_loc_label(m, f->val[f->body->arg[0].id].loc), XL_STR("flat_args["));
}

/* Of the same lines, but for one at most on either side: what pmap itself adds is of the line that calls it. */
static bool same_lines(const record *a, const record *b)
{
    uint32_t i = 0, k = 0, both = 0;
    while (i < a->nline && k < b->nline) {
        both += a->line[i] == b->line[k];
        if (a->line[i] == b->line[k])
            i++, k++;
        else if (a->line[i] < b->line[k])
            i++;
        else
            k++;
    }
    return both && a->nline - both <= 1 && b->nline - both <= 1;
}

/* A program of this process from the same lines, of which one is pmapped and the other not. */
static record *transformed(xl_contracts *c, const record *now)
{
    for (record *r = c->all; r && now->m; r = r->next)
        if (r->m && !r->run.n && !r->helper && same_lines(r, now) && pmapped(r->m) != pmapped(now->m))
            return r;
    return NULL;
}

/* Does an op of the region, or of one inside it, come from this very place? */
static bool comes_from(const xl_module *m, const xl_region *g, xl_str file, uint32_t line, uint32_t col)
{
    xl_str at;
    uint32_t l, c;
    for (uint32_t i = 0; g && i < g->nop; i++) {
        const xl_op *op = g->op[i];
        if (xl_loc_line(m, op->loc, &at, &l, &c) && l == line && c == col && xl_str_eq(at, file))
            return true;
        for (uint32_t k = 0; k < op->nregion; k++)
            if (comes_from(m, op->region[k], file, line, col))
                return true;
    }
    return false;
}

static bool has_place(const xl_module *m, xl_str file, uint32_t line, uint32_t col)
{
    xl_str from;
    uint32_t l, c;
    if (xl_loc_line(m, called_at(m), &from, &l, &c) && l == line && c == col && xl_str_eq(from, file))
        return false;                                      /* the expression that calls the function itself */
    for (uint32_t i = 0; i < m->nfunc; i++)
        if (comes_from(m, m->func[i]->body, file, line, col))
            return true;
    return false;
}

/* A function of this process whose ops the frontend now runs one by one: the expression that called this helper is one
 * of its. The line alone does not tell: a call of a jitted lambda may stand beside an eager op. */
static const record *op_by_op(const xl_contracts *c, const record *now)
{
    xl_str file;
    uint32_t line, col;
    if (!now->helper || !now->m || !xl_loc_line(now->m, called_at(now->m), &file, &line, &col))
        return NULL;
    uint64_t number = xl_hash64(file.p, file.n, line);
    for (const record *r = c->all; r; r = r->next)
        if (r->m && !r->run.n && !r->helper && r->nline &&
            bsearch(&number, r->line, r->nline, sizeof number, by_number) && has_place(r->m, file, line, col))
            return r;
    return NULL;
}

/* Is that frame one of an op of the region, or of one inside it? */
static bool passes(const xl_module *m, const xl_region *g, xl_str file, uint32_t line, uint32_t col)
{
    xl_str function, at;
    uint32_t l, c;
    for (uint32_t i = 0; g && i < g->nop; i++) {
        for (uint32_t n = 0; xl_loc_frame(m, g->op[i]->loc, n, &function, &at, &l, &c); n++)
            if (l == line && c == col && xl_str_eq(at, file))
                return true;
        for (uint32_t k = 0; k < g->op[i]->nregion; k++)
            if (passes(m, g->op[i]->region[k], file, line, col))
                return true;
    }
    return false;
}

/* Which function it is whose ops run one by one: of the frames that the jitted function's ops have too, the outermost;
 * and where that was called. */
static xl_str op_by_op_words(xl_arena *a, const xl_module *m, const record *jitted)
{
    xl_str name = { "", 0 }, function, file = { "", 0 }, own = jitted->module, at = { "", 0 };
    uint32_t line = 0, col;
    bool is = false, inside = true;
    own = xl_str_starts(own, XL_STR("jit_")) ? (xl_str){ own.p + 4, own.n - 4 } : own;
    for (uint32_t n = 0; inside && xl_loc_frame(m, called_at(m), n, &function, &file, &line, &col); n++) {
        at = n ? at : xl_strf(a, "%.*s:%u", XL_FMT(file), line);
        inside = false;
        for (uint32_t i = 0; i < jitted->m->nfunc && !is && !inside; i++)
            inside = passes(jitted->m, jitted->m->func[i]->body, file, line, col);
        if (!inside)
            break;
        for (xl_str rest = function; rest.n;)              /* "step" of "Model.step" */
            name = xl_str_cut(&rest, '.');
        is = xl_str_eq(name, own);
    }
    if (!file.n)
        return (xl_str){ "", 0 };
    bool other = !is && name.n;
    return xl_strf(a, "`%.*s`%s%.*s%s ran op by op, outside of jit, at %.*s, called at %.*s:%u",
                   XL_FMT(name.n ? name : own), other ? ", which `" : "", other ? (int)own.n : 0, own.p,
                   other ? "` uses too," : "", XL_FMT(at), XL_FMT(file), line);
}

/* ---- the same program again ---- */
/* Where it is defined (its first line) and where it was called from: all that a frontend leaves of why it traced the
 * function again. */
static bool same_again(xl_arena *a, const char *what, const xl_module *before, const xl_module *m, xl_verdict *out)
{
    const xl_func *f = xl_module_entry(m);
    xl_str file[3] = { 0 };
    uint32_t line[3] = { 0 }, col;
    bool here = xl_loc_line(m, called_at(m), &file[0], &line[0], &col),
         then = xl_loc_line(before, called_at(before), &file[1], &line[1], &col);
    uint64_t caller = xl_loc_stack(m, called_at(m));
    for (uint32_t i = 0; f && f->body && i < f->body->nop; i++) {
        xl_str in;
        uint32_t at;
        if (xl_loc_below(m, f->body->op[i]->loc, caller, &in, &at) &&
            (!line[2] || (xl_str_eq(in, file[2]) && at < line[2])))
            file[2] = in, line[2] = at;
    }
    if (!here && !line[2])
        return false;
    xl_diff *d = xl_new(a, xl_diff, 1);
    int at = here ? 0 : 2;
    *d = (xl_diff){ .kind = XL_DIFF_IDENTICAL, .arg = -1, .dim = -1, .times = 1, .file = file[at], .line = line[at] };
    bool moved = here && then && (line[0] != line[1] || !xl_str_eq(file[0], file[1]));
    d->text = xl_strf(a, "%s when called at %.*s:%u", what, XL_FMT(file[at]), line[at]);
    if (moved)
        d->text = xl_strf(a, "%.*s (previously at %.*s:%u)", XL_FMT(d->text), XL_FMT(file[1]), line[1]);
    if (line[2] && at == 0)
        d->text = xl_strf(a, "%.*s; the function is at %.*s:%u", XL_FMT(d->text), XL_FMT(file[2]), line[2]);
    out->diff = d;
    out->ndiff = 1;
    return true;
}

/* The part of the key that is to blame when the program is the same; NULL when all are. */
static const char *compare_parts(xl_arena *a, const record *old, const xl_cache_key *key, xl_verdict *out)
{
    static const struct { const char *part, *reason; } blame[] = {
        { "options", "options" }, { "flags", "flags" }, { "profile", "profile" }, { "plugin", "plugin" },
        { "versions", "plugin" }, { "topology", "topology" },
    };
    const char *reason = NULL;
    xl_buf words = { 0 };
    for (size_t b = 0; b < sizeof blame / sizeof *blame; b++)
        for (uint32_t i = 0; i < key->n; i++) {
            if (strcmp(key->name[i], blame[b].part))
                continue;
            for (uint32_t k = 0; k < old->n; k++)
                if (xl_str_is(old->name[k], blame[b].part) && !xl_str_eq(old->value[k], key->value[i])) {
                    xl_buf_printf(&words, "%s%s: ", words.n ? "; " : "", blame[b].part);
                    xl_words_diff(old->value[k], key->value[i], &words);
                    if (!reason)
                        reason = blame[b].reason;
                }
        }
    if (words.n && old->run.n)
        xl_buf_printf(&words, " (left of each arrow: run %.*s, right: this run)", XL_FMT(old->run));
    out->words = words.n ? xl_str_dup(a, xl_buf_view(&words)) : (xl_str){ "", 0 };
    xl_buf_fini(&words);
    return reason;
}

/* Keeps within PER_GROUP of the newest's group and function, not counting what was recalled and never read, RECORDS of
 * all, and a bound on memory; the oldest go. */
static void forget(xl_contracts *c)
{
    const record *newest = c->all;
    uint32_t same = 0, kept = 0;
    c->memory = 0;
    for (record **at = &c->all; *at;) {
        record *r = *at;
        size_t size = r->arena.used + (r->m ? r->m->arena.used : 0);
        if (((r->m || !r->run.n) && xl_str_eq(r->group, newest->group) &&
             xl_str_eq(r->site.function, newest->site.function) && ++same > PER_GROUP) ||
            c->memory + size > most_memory || kept == RECORDS) {
            *at = r->next;
            record_free(r);
            continue;
        }
        c->memory += size;
        kept++;
        at = &r->next;
    }
}

/* "train.py:31#2" is the second function that is alive of those made there. */
static xl_str made_at(xl_str function, xl_str *role)
{
    const char *number = memchr(function.p, '#', function.n), *end = function.p + function.n;
    const char *after = number;
    while (after && after < end && *after != '.')
        after++;
    *role = after ? (xl_str){ after, (size_t)(end - after) } : (xl_str){ "", 0 };
    return number ? (xl_str){ function.p, (size_t)(number - function.p) } : function;
}

/* Made of another function: no earlier version of this program, unless it is the same program of a function that was
 * made in the same place. Of an earlier run the place may have moved since; half of the ops tell. */
static bool of_another(const record *r, const record *now, bool same)
{
    xl_str x = r->site.function, y = now->site.function, role[2];
    if (!x.n || !y.n || xl_str_eq(x, y))
        return false;
    if (r->run.n)
        return !same && r->m && 2 * (uint64_t)in_common(r, now) < (r->nop > now->nop ? r->nop : now->nop);
    bool place = xl_str_eq(made_at(x, &role[0]), made_at(y, &role[1])) && xl_str_eq(role[0], role[1]);
    return !(same && place);
}

/* The recorded compile that is nearest: the same program before one alike, this process before earlier runs. */
typedef struct { record *r; bool same, here; uint32_t common; } nearest;

static nearest find_nearest(xl_contracts *c, xl_arena *a, const record *now, const xl_compile_site *site, bool numbered)
{
    nearest best = { 0 };
    const xl_module *m = now->m;
    bool known = has(c, now->group, xl_str_of(now->hash));
    uint32_t read = 0;
    for (record *r = c->all; r; r = r->next) {
        if (!xl_str_eq(r->group, now->group))
            continue;
        bool same = !strcmp(r->hash, now->hash), here = !r->run.n;
        if (best.here && !here)
            continue;
        if (!same && !known && !r->m && read++ < READ)
            need_program(a, c, r);
        bool placed = numbered && r->site.place.n && site->place.n;
        if ((placed && !xl_str_eq(r->site.place, site->place)) || of_another(r, now, same))
            continue;
        if (!same && (!r->m || !m || (numbered && !placed && !kin(r->m, m))))
            continue;
        uint32_t common = same ? UINT32_MAX : in_common(r, now);
        if (!best.r || best.same < same || (best.same == same && best.common < common))
            best = (nearest){ r, same, here, common };
    }
    return best;
}

/* A setting was switched: ops that are otherwise come of it, arguments do not. */
static void configured(xl_verdict *v, xl_str config)
{
    v->config = config;
    for (uint32_t i = 0; i < v->ndiff; i++)
        v->diff[i].follows |= v->diff[i].arg < 0 && (v->diff[i].kind == XL_DIFF_OP || v->diff[i].kind == XL_DIFF_DTYPE);
    v->reason = reason_of(v);
    if (!v->reason)
        v->reason = "config";
}

/* How many results it has of that type, and arguments. */
typedef struct { uint32_t results, args; } held;
static held held_of(const xl_module *m, const xl_type *t)
{
    held n = { 0, 0 };
    const xl_func *f = xl_module_entry(m);
    const xl_op *end = f && f->body && f->body->nop ? f->body->op[f->body->nop - 1] : NULL;
    for (uint32_t i = 0; end && end->code == XL_OP_RETURN && i < end->nin; i++)
        n.results += xl_type_eq(xl_in_type(f, end, i), t);
    for (uint32_t i = 0; end && i < f->body->narg; i++)
        n.args += xl_type_eq(xl_value_type(f, f->body->arg[i]), t);
    return n;
}

/* An argument of another dtype, of which the program before returned an array and took none: it is fed back. Where that
 * ran once, and was compiled because an argument had taken that very dtype, the caller did nothing else since. */
static void find_returned(xl_arena *a, const record *best, record *now, xl_verdict *v)
{
    const xl_module *before = best->m;
    const xl_func *f = xl_module_entry(now->m);
    for (uint32_t i = 0; f && f->body && i < v->ndiff; i++) {
        xl_diff *d = &v->diff[i];
        bool typed = d->kind == XL_DIFF_DTYPE && d->arg >= 0 && (uint32_t)d->arg < f->body->narg && !d->follows;
        held then = typed ? held_of(before, xl_value_type(f, f->body->arg[d->arg])) : (held){ 0, 0 };
        d->returned = then.results > then.args;
        if (!typed)
            continue;
        xl_dtype to = xl_value_type(f, f->body->arg[d->arg])->dtype;
        d->resulting = d->returned && now->site.runs == best->site.runs + 1 && best->caster.n && best->cast == to;
        if (d->resulting)
            d->text = xl_strf(a, "%.*s; the call before returned it so, since %.*s had changed its dtype",
                              XL_FMT(d->text), XL_FMT(best->caster));
        if (now->caster.n || (d->returned && !d->resulting))
            continue;
        now->cast = to;
        now->caster = d->resulting ? xl_str_dup(&now->arena, best->caster)
                      : d->name.n  ? xl_say_argument(&now->arena, d->name)
                                   : xl_strf(&now->arena, "argument %d", d->arg);
    }
}

/* Arguments of another size. One that grew to what the program before returned accumulates. Where each of them is
 * returned as large as it came in, they are several or of a tree, and another array kept its size, they are parameters
 * or state, and not a batch. */
static void find_roles(const xl_module *before, const xl_module *after, xl_verdict *v)
{
    const xl_func *f = xl_module_entry(after);
    uint32_t sized = 0, carried = 0, arrays = 0;
    bool tree = false;
    for (uint32_t i = 0; f && f->body && i < f->body->narg; i++)
        arrays += xl_value_type(f, f->body->arg[i])->rank > 0;
    int32_t last = -1;
    for (uint32_t i = 0; f && f->body && i < v->ndiff; i++) {
        xl_diff *d = &v->diff[i];
        if (d->kind != XL_DIFF_SHAPE || d->arg < 0 || (uint32_t)d->arg >= f->body->narg || d->follows)
            continue;
        const xl_type *t = xl_value_type(f, f->body->arg[d->arg]);
        int64_t x, y;
        bool more = d->dim >= 0 && xl_str_i64(d->before, &x) && xl_str_i64(d->after, &y) && y > x;
        held then = held_of(before, t);
        d->grown = more && then.results > then.args;       /* else it is another argument's */
        if (d->arg == last)
            continue;
        last = d->arg;
        sized++;
        carried += held_of(after, t).results && !d->grown;
        tree |=
            memchr(d->name.p ? d->name.p : "", '[', d->name.n) || memchr(d->name.p ? d->name.p : "", '.', d->name.n);
    }
    for (uint32_t i = 0; i < v->ndiff && sized && carried == sized && (tree || sized > 1) && arrays > sized; i++)
        v->diff[i].carried = v->diff[i].kind == XL_DIFF_SHAPE && v->diff[i].arg >= 0;
}

/* JAX leaves out of a program what it does not read. Where the caller passed the same arguments, other code reads one.
 * */
static void pruned(const record *best, const xl_compile_site *site, xl_verdict *v)
{
    bool args = false, ops = false, other = false;
    for (uint32_t i = 0; i < v->ndiff; i++) {
        const xl_diff *d = &v->diff[i];
        args |= d->kind == XL_DIFF_ARGS && !d->follows;
        ops |= d->kind == XL_DIFF_OP;
        other |= d->arg >= 0 && d->kind != XL_DIFF_ARGS && d->kind != XL_DIFF_DONATION && d->kind != XL_DIFF_LAYOUT;
    }
    if (!args || !ops || other || !xl_call_alike(best->site.call, site->call))
        return;
    for (uint32_t i = 0; i < v->ndiff; i++) {
        xl_diff *d = &v->diff[i];
        if (d->kind == XL_DIFF_ARGS || d->kind == XL_DIFF_OP)
            d->follows = d->kind == XL_DIFF_ARGS || (d->at_call && d->follows);
    }
    const char *reason = reason_of(v);
    v->reason = reason ? reason : v->reason;
}

/* A list or array in the function's surroundings has another size, and nothing else explains the program: all of it
 * follows from that. */
static bool held_otherwise(xl_arena *a, const record *best, const xl_compile_site *site, xl_verdict *v)
{
    xl_str what, from, to;
    bool inside = v->ndiff > 0 && !v->config.n;
    for (uint32_t i = 0; i < v->ndiff && inside; i++)
        inside = v->diff[i].follows || (v->diff[i].arg < 0 && v->diff[i].kind != XL_DIFF_ORDER);
    if (!inside || !xl_call_held(a, best->site.call, site->call, &what, &from, &to))
        return false;
    xl_diff *d = xl_new(a, xl_diff, v->ndiff + 1);
    *d = (xl_diff){ .kind = XL_DIFF_CONSTANT,
                    .arg = -1,
                    .dim = -1,
                    .times = 1,
                    .part = what,
                    .before = from,
                    .after = to };
    for (uint32_t i = 0; i < v->ndiff; i++) {
        d[i + 1] = v->diff[i];
        d[i + 1].follows = true;
        d[i + 1].perhaps = false;
        if (!d->file.n)
            d->file = v->diff[i].file, d->line = v->diff[i].line;
    }
    d->text = xl_strf(a, "%.*s changed from %.*s to %.*s%s%.*s%s", XL_FMT(what), XL_FMT(from), XL_FMT(to),
                      d->file.n ? ", used at " : "", XL_FMT(d->file), d->file.n ? xl_strf(a, ":%u", d->line).p : "");
    v->diff = d;
    v->ndiff++;
    v->reason = "constant";
    v->way = "collected";
    return true;
}

/* The array that a constant is, of those that the function takes from its surroundings. */
static void name_captured(xl_arena *a, const record *best, const xl_compile_site *site, xl_diff *d)
{
    static const char head[] = "constant ", use[] = ", used by ";
    const char *end = memmem(d->text.p, d->text.n, use, sizeof use - 1);
    if (!end || !xl_str_starts(d->text, XL_STR(head)))
        return;
    xl_str shape = { d->text.p + sizeof head - 1, (size_t)(end - d->text.p) - (sizeof head - 1) };
    while (shape.n && shape.p[shape.n - 1] != 'x')
        shape.n--;
    shape.n -= shape.n > 0;
    xl_str name = shape.n ? xl_call_array(best->site.call, site->call, shape) : shape;
    if (name.n)
        d->text = xl_strf(a, "%.*s (as `%.*s`, which the function captures)%.*s", (int)(end - d->text.p), d->text.p,
                          XL_FMT(name), (int)(d->text.n - (size_t)(end - d->text.p)), end);
}

/* What the call tells of a program that changed: by which values, and arguments that came by keyword. */
static void called_otherwise(xl_arena *a, const record *best, const xl_compile_site *site, xl_verdict *v)
{
    xl_str how;
    bool named = strcmp(v->reason, "x64") && held_otherwise(a, best, site, v);
    for (uint32_t i = 0; i < v->ndiff; i++) {
        xl_diff *d = &v->diff[i];
        if (d->kind == XL_DIFF_ORDER && xl_call_form(a, best->site.call, site->call, &how)) {
            d->text = xl_strf(a, "called %.*s (%.*s)", XL_FMT(how), XL_FMT(d->text));
            v->way = "keywords";
        } else if (d->kind == XL_DIFF_CONSTANT && !d->follows && !d->part.n) {
            xl_str name = xl_call_value(a, best->site.call, site->call, d->before, d->after);
            if (name.n) {
                const char *use = memmem(d->text.p, d->text.n, ", used by ", 10);
                size_t n = use ? (size_t)(use - d->text.p) : d->text.n;
                d->part = name;
                bool own = xl_str_ends(name, XL_STR(")")); /* it has parentheses already */
                d->text = xl_strf(a, "%.*s%s%.*s%s%.*s", (int)n, d->text.p, own ? ", " : " (", XL_FMT(name),
                                  own ? "" : ")", (int)(d->text.n - n), d->text.p + n);
                named = true;
            } else {
                name_captured(a, best, site, d);
            }
        }
    }
    if (!named)
        v->values = xl_call_values(a, best->site.call, site->call);
}

/* Does it draw random numbers? JAX does so in functions of its own; a key that is made, split or folded draws none. */
static bool draws_in(const xl_region *r)
{
    for (uint32_t i = 0; r && i < r->nop; i++) {
        if (r->op[i]->code == XL_OP_RNG || r->op[i]->code == XL_OP_RNG_BIT_GENERATOR)
            return true;
        for (uint32_t k = 0; k < r->op[i]->nregion; k++)
            if (draws_in(r->op[i]->region[k]))
                return true;
    }
    return false;
}
static bool draws(const xl_module *m)
{
    static const char *const names[] = { "_uniform", "_randint", "_shuffle" };
    bool ops = false, named = false, threefry = false;
    for (uint32_t f = 0; f < m->nfunc; f++) {
        ops |= draws_in(m->func[f]->body);
        threefry |= xl_str_is(m->func[f]->name, "threefry2x32");
        for (size_t i = 0; i < sizeof names / sizeof *names; i++)
            named |= xl_str_is(m->func[f]->name, names[i]);
    }
    return ops || (named && threefry);
}

/* Does it differentiate? JAX says so in the names of ops. */
static bool grads_in(const xl_module *m, const xl_region *r)
{
    for (uint32_t i = 0; r && i < r->nop; i++) {
        xl_str label = xl_loc_label(m, r->op[i]->loc);
        if (memmem(label.p, label.n, "transpose(jvp(", 14))
            return true;
        for (uint32_t k = 0; k < r->op[i]->nregion; k++)
            if (grads_in(m, r->op[i]->region[k]))
                return true;
    }
    return false;
}

/* Only one of the programs draws random numbers, as with dropout. */
static void find_draws(xl_arena *a, const xl_module *before, const xl_module *after, xl_verdict *v)
{
    bool was = draws(before), is = draws(after);
    xl_diff *first = NULL, *most = NULL;
    for (uint32_t i = 0; i < v->ndiff && was != is; i++) {
        xl_diff *d = &v->diff[i];
        d->draws = d->kind == XL_DIFF_OP && !d->follows;
        first = first || !d->draws ? first : d;
        if (d->draws && (!most || d->ops > most->ops))
            most = d;
    }
    if (!most)
        return;
    for (uint32_t i = 0; i < after->nfunc && was; i++)
        most->trains |= grads_in(after, after->func[i]->body);
    most->text = xl_strf(a, "only %s program draws random numbers: %.*s", was ? "the earlier" : "this",
                         XL_FMT(most->text));
    xl_diff told = *most; /* it comes first */
    *most = *first;
    *first = told;
}

/* Options that JAX derives: by which arguments and results have shardings, and by whether a program calls back into
 * Python. */
static void option_follows(xl_arena *a, xl_verdict *v)
{
    static const char spmd[] = "options: compile option allow_spmd_sharding_propagation_to_",
                      in_place[] = "options: allow_in_place_mlir_modification ";
    bool split = false, calls = false, alone = true;
    xl_str rest = v->words;
    for (int changes = 0; xl_str_cut(&rest, '>').n && rest.p; changes++)
        alone = changes == 0;
    for (uint32_t i = 0; i < v->ndiff; i++) {
        const xl_diff *d = &v->diff[i];
        split |= d->kind == XL_DIFF_SHARDING && d->arg >= 0;
        calls |= d->kind == XL_DIFF_OP && (memmem(d->text.p, d->text.n, "custom_call", 11) || d->ops);
    }
    if (alone && ((split && xl_str_starts(v->words, xl_str_of(spmd))) ||
                  (calls && xl_str_starts(v->words, xl_str_of(in_place)))))
        v->words = xl_strf(a, "as a result: %.*s", XL_FMT(v->words));
}

static xl_error *compare_with(xl_contracts *c, xl_arena *a, const nearest *near, const xl_cache_key *key,
                              const xl_compile_site *site, record *now, xl_verdict *out)
{
    xl_error *err = NULL;
    record *best = near->r;
    xl_module *m = now->m;
    snprintf(out->against, sizeof out->against, "%s", best->hash);
    out->against_run = xl_str_dup(a, best->run);
    const char *part = compare_parts(a, best, key, out);
    xl_str config = { 0 };
    if (near->here && best->site.config.n && site->config.n && !xl_str_eq(best->site.config, site->config)) {
        xl_buf words = { 0 };
        xl_words_diff(best->site.config, site->config, &words);
        config = xl_strf(a, "jax.config: %.*s", XL_FMT(xl_buf_view(&words)));
        xl_buf_fini(&words);
    }
    if (!near->same) {
        best->m->arena.oom = a->oom;
        out->x64_before = best->site.x64;
        out->x64_after = site->x64;
        out->wide = c->wide;
        out->steady_wide = c->wide && !c->switched;
        if (near->here) {
            out->call_before = best->site.call;
            out->call_after = site->call;
        }
        err = xl_contract_compare(a, best->m, m, out);
        c->switched |= !strcmp(out->reason, "x64");
        if (!strcmp(out->reason, "identical")) /* the hash says otherwise: something that has no words yet */
            out->reason = "op";
        if (near->here && !strcmp(out->reason, "args"))
            pruned(best, site, out);
        if (config.n && strcmp(out->reason, "x64"))
            configured(out, config);
        find_roles(best->m, m, out);
        if (near->here)
            find_returned(a, best, now, out);
        option_follows(a, out);
        if (!strcmp(out->reason, "op"))
            find_draws(a, best->m, m, out);
        if (near->here) {
            called_otherwise(a, best, site, out);
            out->remade = xl_call_remade(best->site.call, site->call);
        }
    } else {
        bool elsewhere = near->here && !xl_str_eq(best->site.devices, site->devices);
        out->reason = part ? part : elsewhere ? "device" : near->here ? "identical" : "first";
        if (!part && elsewhere) {
            if (best->m && m)
                same_again(a, "the same program, compiled again for another device", best->m, m, out);
            out->words =
                xl_strf(a, "for device %.*s instead of %.*s", XL_FMT(site->devices), XL_FMT(best->site.devices));
        } else if (!part && near->here && best->m && m) {  /* what a frontend looks its own programs up by */
            out->words = xl_module_renames(a, best->m, m);
            out->config = config;
            out->mapped = pmapped(m);
            xl_str how = { "", 0 };
            out->way = config.n ? NULL : xl_call_way(a, best->site.call, site->call, &how);
            xl_str what = xl_strf(a, "the same program, traced again%s%.*s", out->way ? " " : "", XL_FMT(how));
            same_again(a, what.p, best->m, m, out);
        }
    }
    if (near->here)
        out->against_module = xl_str_dup(a, best->site.name);
    return err;
}

xl_error *xl_contracts_judge(xl_contracts *c, xl_arena *a, const xl_cache_key *key, const xl_compile_site *site,
                             xl_module *m, xl_str bytes, xl_verdict *out)
{
    xl_error *err = NULL;
    xl_str group = xl_contract_group(key->module);
    *out = (xl_verdict){ .reason = "first" };
    record *now = c ? record_new(a, group) : NULL, *best;
    if (!now) {
        xl_module_free(m);
        return XL_ERR(EXHAUSTED, "out of memory");
    }
    now->m = m;
    now->module = xl_str_dup(&now->arena, key->module);
    now->site = (xl_compile_site){ xl_str_dup(&now->arena, site->place),
                                   xl_str_dup(&now->arena, site->devices),
                                   xl_str_dup(&now->arena, site->function),
                                   xl_str_dup(&now->arena, site->name.n ? site->name : key->module),
                                   xl_str_dup(&now->arena, site->config),
                                   xl_str_dup(&now->arena, site->call),
                                   site->x64,
                                   site->owner,
                                   site->runs };
    for (uint32_t i = 0; i < key->n; i++) {
        now->name[i] = xl_str_dup(&now->arena, xl_str_of(key->name[i]));
        now->value[i] = xl_str_dup(&now->arena, key->value[i]);
        if (!strcmp(key->name[i], "program"))
            snprintf(now->hash, sizeof now->hash, "%.*s", XL_FMT(key->value[i]));
    }
    now->n = key->n;
    if (m) {
        m->arena.oom = a->oom;
        name_arguments(now);
        number_ops(now);
    }
    now->helper = xl_contract_helper(m, site->owner);
    recall(a, c, group);
    nearest near = find_nearest(c, a, now, site, group.n < key->module.n);
    if (near.r) {
        err = compare_with(c, a, &near, key, site, now, out);
    } else if ((best = transformed(c, now))) {
        out->reason = "transform";
        snprintf(out->against, sizeof out->against, "%s", best->hash);
        out->against_module = xl_str_dup(a, best->site.name);
        best->m->arena.oom = a->oom;
        bool under = pmapped(m);
        xl_str what = xl_strf(a, "one function, compiled as %.*s %s jax.pmap and as %.*s %s it, traced again",
                              XL_FMT(best->module), under ? "without" : "under", XL_FMT(key->module),
                              under ? "under" : "without");
        if (!same_again(a, what.p, best->m, m, out))
            out->words = what;
    }
    const record *function = op_by_op(c, now);
    if (function) {
        *out = (xl_verdict){ .reason = "eager", .words = op_by_op_words(a, m, function) };
    }
    if (site->owner == XL_OWNER_SEARCH)
        *out = (xl_verdict){ .reason = "search",
                             .words = XL_STR("JAX runs the function again op by op, to find where a NaN came from") };
    xl_str file;
    uint32_t line, col;
    bool named = out->ndiff && out->diff[0].kind == XL_DIFF_IDENTICAL;   /* its text names the caller */
    if (near.r && !function && !named && !now->helper && m && xl_loc_line(m, called_at(m), &file, &line, &col))
        out->called = xl_strf(a, "%.*s:%u", XL_FMT(file), line);
    out->filtered = m && xl_loc_passes(m, called_at(m), "/equinox/_jit.py");
    c->wide |= m && has_wide(m);
    remember_on_disk(a, c, now, bytes);
    now->arena.oom = NULL;
    if (now->m)
        now->m->arena.oom = NULL;
    now->next = c->all;
    c->all = now;
    forget(c);
    return err;
}

void xl_verdict_json(const xl_verdict *v, xl_json *j)
{
    if (v->against[0])
        xl_json_put_text(j, "against", v->against);
    if (v->against_run.n)
        xl_json_put_str(j, "against_run", v->against_run);
    if (v->against_module.n)
        xl_json_put_str(j, "against_module", v->against_module);
    if (v->words.n)
        xl_json_put_str(j, "words", v->words);
    if (v->config.n)
        xl_json_put_str(j, "config", v->config);
    if (v->mapped)
        xl_json_put_bool(j, "mapped", true);
    if (v->remade)
        xl_json_put_bool(j, "remade", true);
    if (v->filtered)
        xl_json_put_text(j, "jitted_by", "equinox");
    if (v->way)
        xl_json_put_text(j, "way", v->way);
    if (v->values.n)
        xl_json_put_str(j, "values", v->values);
    if (v->called.n)
        xl_json_put_str(j, "called", v->called);
    xl_json_key(j, "detail");
    xl_json_list(j);
    for (uint32_t i = 0; i < v->ndiff; i++) {
        const xl_diff *d = &v->diff[i];
        xl_json_map(j);
        xl_json_put_text(j, "what", xl_diff_word(d->kind));
        if (d->arg >= 0)
            xl_json_put_int(j, "arg", d->arg);
        if (d->state)
            xl_json_put_bool(j, "optimizer", true);
        if (d->read_back)
            xl_json_put_bool(j, "read_back", true);
        if (d->grown || d->carried)
            xl_json_put_bool(j, d->grown ? "grown" : "carried", true);
        if (d->draws)
            xl_json_put_bool(j, "draws", true);
        if (d->trains)
            xl_json_put_bool(j, "trains", true);
        if (d->optax)
            xl_json_put_text(j, "library", "optax");
        if (d->returned)
            xl_json_put_bool(j, d->resulting ? "resulting" : "returned", true);
        if (d->committed)
            xl_json_put_bool(j, "committed", true);
        if (d->part.n)
            xl_json_put_str(j, "part", d->part);
        if (d->ops)
            xl_json_put_int(j, "ops", d->ops);
        if (d->name.n)
            xl_json_put_str(j, "name", d->name);
        if (d->dim >= 0)
            xl_json_put_int(j, "dim", d->dim);
        int64_t number;
        for (int side = 0; side < 2; side++) {
            xl_str s = side ? d->after : d->before;
            xl_json_key(j, side ? "after" : "before");
            if (xl_str_i64(s, &number))
                xl_json_int(j, number);
            else
                xl_json_str(j, s);
        }
        if (d->follows)
            xl_json_put_bool(j, "follows", true);
        if (d->perhaps)
            xl_json_put_bool(j, "perhaps", true);
        if (d->file.n) {
            xl_buf where = { 0 };
            xl_buf_printf(&where, "%.*s:%u", XL_FMT(d->file), d->line);
            xl_json_put_str(j, "where", xl_buf_view(&where));
            xl_buf_fini(&where);
        }
        xl_json_put_str(j, "text", d->text);
        xl_json_end(j);
    }
    xl_json_end(j);
}
