/* A compile compared with earlier ones: what it is, why it is needed, and what is recorded of it. */
#include "guard/compile.h"

#include <stdio.h>
#include <unistd.h>

#include "ir/compare/hash.h"
#include "ir/read.h"
#include "lane/verdict.h"

static bool calls(const xl_region *r, const char *target)
{
    for (uint32_t i = 0; r && i < r->nop; i++) {
        const xl_op *op = r->op[i];
        if (op->code == XL_OP_CUSTOM_CALL && xl_str_is(xl_op_str(op, XL_SLOT(CUSTOM_CALL, call_target_name)), target))
            return true;
        for (uint32_t k = 0; k < op->nregion; k++)
            if (calls(op->region[k], target))
                return true;
    }
    return false;
}

/* A module that ran again and again, or that the user named. Where names are only numbered, the nearest earlier program
 * ran for it. A frontend's eager ops and library functions also run again and again, with whatever shapes come: those
 * are no steps. */
static bool watched(guard_state *g, const guard_compiling *c, const xl_verdict *v)
{
    xl_str rest = xl_str_of(g->watch);
    while (rest.n) {
        xl_str one = xl_str_trim(xl_str_cut(&rest, ','));
        if (one.n && (xl_run_module_is(xl_str_of(c->module), one) || xl_run_module_is(xl_str_of(c->name), one) ||
                      xl_str_is(one, c->called)))
            return true;
    }
    return !c->helper && v->against_module.n && c->own >= g->watch_after;
}

/* How often a module has changed in one way, this time included: for one reason, in one argument, on one line. Under
 * compile_lock. */
static uint32_t times_told(const char *module, const xl_verdict *v)
{
    static struct {
        uint64_t key;
        uint32_t times;
    } known[64];
    static uint32_t n;
    xl_str group = xl_contract_group(xl_str_of(module));
    uint64_t h = xl_hash64(v->reason, strlen(v->reason), xl_hash64(group.p, group.n, 0));
    const xl_diff *d = v->ndiff ? &v->diff[0] : NULL;
    bool each = d && d->kind != XL_DIFF_ARGS; /* a list that grows has a new argument each time */
    if (d)
        h = xl_hash64(d->file.p, d->file.n,
                      h + d->line + (each ? 31 * (uint64_t)(d->arg + 1) : 0) + 997 * (uint64_t)(d->dim + 1));
    for (uint32_t i = 0; i < n && i < 64; i++)
        if (known[i].key == h)
            return ++known[i].times;
    known[n % 64].key = h;
    return known[n++ % 64].times = 1;
}

/* What lies below the program's folder is named from there: the line is for who started it. */
static void from_here(xl_buf *b)
{
    char here[4096];
    size_t n = getcwd(here, sizeof here - 1) ? strlen(here) : 0;
    if (n < 2)
        return;
    here[n++] = '/';
    for (char *at = b->p, *found; at && (found = memmem(at, b->n - (size_t)(at - b->p), here, n)); at = found) {
        memmove(found, found + n, b->n - (size_t)(found + n - b->p));
        b->n -= n;
    }
}

/* Arrays of this module that grew by as much in each execution, several times in a row. Under compile_lock. */
static void note_growth(const guard_compiling *c, xl_verdict *v)
{
    enum { IN_A_ROW = 3 };
    static struct {
        uint64_t key, number;
        int64_t by;
        uint32_t times;
    } known[64];
    static uint32_t n;
    for (uint32_t i = 0; i < v->ndiff; i++) {
        xl_diff *d = &v->diff[i];
        int64_t x, y;
        if (d->kind != XL_DIFF_SHAPE || d->arg < 0 || d->dim < 0 || d->follows || !xl_str_i64(d->before, &x) ||
            !xl_str_i64(d->after, &y))
            continue;
        uint64_t key = xl_hash64(c->name, strlen(c->name), 31 * (uint64_t)(d->arg + 1) + 997 * (uint64_t)(d->dim + 1));
        uint32_t k = 0;
        while (k < n && k < 64 && known[k].key != key)
            k++;
        if (k == n || k == 64) {
            k = n++ % 64;
            known[k].key = key;
            known[k].times = 0;
        }
        bool on = y > x && c->number == known[k].number + 1 && (!known[k].times || y - x == known[k].by);
        known[k].times = on ? known[k].times + 1 : 0;
        known[k].by = y - x;
        known[k].number = c->number;
        d->grown |= known[k].times >= IN_A_ROW;
    }
}

enum { MOST = 100 }; /* characters before the remedy, of a list that goes on */

/* Its first part, and less of it where the line is long. What one value of a static argument tells is too little. */
static void say_remedy(xl_buf *b, const xl_cause *cause, xl_str module, bool more)
{
    const char *remedy = cause ? xl_cause_remedy(cause, module) : "";
    if (cause && (!strcmp(cause->word, "unused") || !strcmp(cause->word, "unread"))) {
        xl_buf_puts(b, "; it gave the program that another value had given, and `xlane explain` has the "
                       "remedy, once the run is over");
        return;
    }
    const char *ends[] = { ". ", "; ", ": " };
    size_t n = strlen(remedy), all = n;
    for (size_t i = 0; i < (b->n + n > 2 * MOST ? 3 : 2) && cause; i++) {
        const char *end = strstr(remedy, ends[i]);
        n = end && (size_t)(end - remedy) < n ? (size_t)(end - remedy) : n;
    }
    if (cause)
        xl_buf_printf(b, "; remedy: %.*s%s", (int)n, remedy,
                      more && n < all ? "; `xlane explain` has more" : "");
}

/* The first time that a module changes in one way all of it is said, with the remedy; then what changed, in a short
 * line, twice, and from then on with the count, where that is a power of ten. The same program again has nothing new to
 * tell: its first line is followed by the counts alone. */
static void say_why(guard_compiling *c, const xl_verdict *v)
{
    xl_buf *b = &c->why;
    uint32_t times = times_told(c->name, v), next = 10;
    bool same = !strcmp(v->reason, "identical"), again = times > 1;
    while (next <= times && next < 1000000000)
        next *= 10;
    c->quiet = times > (same ? 1 : 3) && times != next / 10;
    uint32_t n = 0, shown = 0;
    const char *prefix = v->way ? v->way : v->reason;
    for (uint32_t i = 0; i < v->ndiff; i++) { /* what follows from them is left to explain */
        xl_str text = v->diff[i].text;
        if (v->diff[i].follows || n++ >= (again ? 1 : 4) || (shown && b->n + text.n > MOST))
            continue;
        if (!shown && !same && !xl_str_starts(text, xl_str_of(prefix)))
            xl_buf_printf(b, "%s: ", prefix);
        xl_buf_printf(b, "%s%.*s", shown++ ? "; " : "", XL_FMT(text));
    }
    bool said = !again && xl_str_starts(v->words, xl_str_of(v->reason));
    if (!n && !said && !(v->config.n && !again))
        xl_buf_puts(b, same ? "the same program, traced again" : v->reason);
    if (n > shown)
        xl_buf_printf(b, "; and %u more, in `xlane explain`", n - shown);
    if (times >= 3)
        xl_buf_printf(b, " (%u times so far; the next warning comes at %u, `xlane explain` lists all)", times, next);
    if (again)
        return;
    if (v->words.n && (!n || same)) /* else options that follow from what is said */
        xl_buf_printf(b, "%s%.*s", b->n ? "; " : "", XL_FMT(v->words));
    if (v->config.n)
        xl_buf_printf(b, "%s%.*s", b->n ? "; " : "", XL_FMT(v->config));
    if (v->values.n && b->n + v->values.n < 2 * MOST)
        xl_buf_printf(b, "; %.*s", XL_FMT(v->values));
    if (v->called.n)
        xl_buf_printf(b, "; called at %.*s", XL_FMT(v->called));
    from_here(b);
    bool trains = false;
    for (uint32_t i = 0; i < v->ndiff; i++)
        trains |= v->diff[i].trains;
    if (trains)
        xl_buf_puts(b, "; this program computes gradients too: if it is your training step, it now trains without "
                       "dropout");
    say_remedy(b, xl_verdict_cause(v), xl_str_of(c->name), n <= shown);
}

xl_error *guard_examine(xl_arena *a, void *ctx)
{
    xl_error *err = NULL;
    guard_compiling *c = ctx;
    guard_state *g = c->p->g;
    PJRT_Client_Compile_Args *args = c->args;
    xl_str bytes = { args->program->code, args->program->code_size };
    xl_digest d;
    bool early_exit = false;
    int64_t devices = 1;
    const xl_option *assignment = NULL;
    err = xl_read(bytes, NULL, &c->m);
    if (err) {
        guard_fault(g, "reading a program", err);
        d = xl_hash_of(bytes);
        snprintf(c->module, sizeof c->module, "unreadable");
    } else {
        c->m->arena.oom = a->oom;
        d = xl_module_hash(c->m);
        snprintf(c->module, sizeof c->module, "%.*s", XL_FMT(c->m->name));
        for (uint32_t i = 0; i < c->m->nfunc; i++)
            if (calls(c->m->func[i]->body, "CustomSPMDPartitioning"))
                c->uncacheable = "it has a custom partitioner, which is a pointer of this process";
    }
    xl_digest_hex(&d, c->hash);
    err = guard_option_words(a, (xl_str){ args->compile_options, args->compile_options_size }, &c->options, &early_exit,
                             &devices, &assignment);
    if (err) {
        char hex[XL_DIGEST_HEX];
        guard_fault(g, "reading compile options", err);
        d = xl_hash_of((xl_str){ args->compile_options, args->compile_options_size });
        xl_buf_printf(&c->options, "unread=%s", xl_digest_hex(&d, hex));
    }
    if (early_exit)
        c->uncacheable = "it stops after layout assignment";
    if (atomic_load(&g->rewrites))
        c->uncacheable = "an XLA transformation was registered, which is a function of this process";
    c->spmd = c->m ? guard_spmd_of(g, a, c->m, devices) : NULL;
    guard_put_devices(assignment, &c->devices);
    XL_DO(guard_ranks_of(c->p, args->client, assignment, devices, &c->ranks));
    XL_DO(guard_platform(c->p, args->client, &c->topology, &c->versions));
    if (c->options.failed || c->topology.failed || c->versions.failed)
        return XL_ERR(EXHAUSTED, "out of memory");
    c->key.module = xl_str_of(c->module);
    xl_cache_key_add(&c->key, "program", xl_str_of(c->hash));
    xl_cache_key_add(&c->key, "options", xl_buf_view(&c->options));
    xl_cache_key_add(&c->key, "flags", xl_str_of(c->p->flags));
    xl_cache_key_add(&c->key, "profile", xl_str_of(g->profile));
    xl_cache_key_add(&c->key, "plugin", xl_str_of(c->p->identity));
    xl_cache_key_add(&c->key, "versions", xl_buf_view(&c->versions));
    xl_cache_key_add(&c->key, "topology", xl_buf_view(&c->topology));
    /* The embedded device's are the same for all ranks, and each compiles by itself: one compiles, the others load. */
    c->together = c->ranks.n > 1 && !xl_str_starts(xl_buf_view(&c->topology), XL_STR("platform=xlane "));
    if (c->together && g->cache && !c->uncacheable)
        c->uncacheable = guard_cannot_agree(c->p, args->client, c->ranks.me);
    if (c->together) { /* each rank keeps its own */
        xl_buf_printf(&c->process, "index=%d of=%u", c->ranks.me, c->ranks.n);
        xl_cache_key_add(&c->key, "process", xl_buf_view(&c->process));
        snprintf(c->ranks.id, sizeof c->ranks.id, "%.32s", c->hash);
    }
    xl_cache_key_seal(&c->key);
out:
    return err;
}

/* The contract and the policy. The caller holds compile_lock: running out of memory jumps past this function. */
xl_error *guard_judge(xl_arena *a, void *ctx)
{
    xl_error *err = NULL;
    guard_compiling *c = ctx;
    guard_state *g = c->p->g;
    guard_told told = guard_function(xl_str_of(c->module));
    memcpy(c->function, told.function, sizeof c->function);
    memcpy(c->called, told.name, sizeof c->called);
    guard_function_name(xl_str_of(c->module), c->function, c->name, sizeof c->name);
    xl_module_metrics *mm = xl_metrics_module(g->metrics, xl_str_of(c->name));
    c->helper = xl_contract_helper(c->m, told.owner);
    xl_verdict v;
    xl_module *m = c->m;
    c->m = NULL;
    guard_frame(g, c->place, sizeof c->place, &c->reads_value);
    xl_compile_site site = { xl_str_of(c->place),
                             xl_buf_view(&c->devices),
                             xl_str_of(c->function),
                             xl_str_of(c->name),
                             xl_str_of(told.config),
                             xl_str_of(told.call),
                             told.x64,
                             told.owner,
                             mm ? xl_module_metrics_count(mm, XL_M_ExecuteTime) : 0 };
    XL_DO(xl_contracts_judge(g->contracts, a, &c->key, &site, m,
                             (xl_str){ c->args->program->code, c->args->program->code_size }, &v));
    /* Which module counts steps is judged by time, and one slow call of another can mislead: a module's own executions
     * count too. */
    xl_module_metrics *ran = v.against_module.n ? xl_metrics_module(g->metrics, v.against_module) : mm;
    c->own = ran ? xl_module_metrics_count(ran, XL_M_ExecuteTime) : 0;
    c->step = g->step > c->own ? g->step : c->own;
    c->number = 1 + (xl_str_eq(v.against_module, xl_str_of(c->name)) || !v.against_module.n ? c->own : c->step);
    bool over = g->warmup_compiles ? g->compiles >= g->warmup_compiles : c->step >= g->warmup;
    bool steady = over && watched(g, c, &v);
    c->phase = steady ? "steady" : "warmup";
    xl_json j = { .out = &c->verdict };
    c->reason = v.reason;
    int64_t size = 0;
    bool mask = false, masked = false;
    for (uint32_t i = 0; i < v.ndiff; i++) {
        xl_diff *d = &v.diff[i];
        bool number = d->kind == XL_DIFF_SHAPE && d->size && guard_number_read(g, d->size, &masked);
        d->read_back = number || (d->kind == XL_DIFF_SHAPE && d->from.n && guard_frame_read(d->from));
        mask = size ? mask : number && masked;
        size = size ? size : number ? d->size : 0;
    }
    xl_json_map(&j);
    xl_verdict_json(&v, &j);
    if (size) /* the host read this very number since the last step */
        xl_json_put_int(&j, "read_back", size);
    if (mask)
        xl_json_put_bool(&j, "read_mask", true);
    xl_json_end(&j);
    note_growth(c, &v); /* for the warning: explain has the whole run */
    if (steady && strcmp(v.reason, "first")) {
        say_why(c, &v);
        from_here(&c->why); /* where the warning is a repeated one */
        c->stop = g->policy == XL_POLICY_STOP;
        xl_metrics_count(g->metrics, mm, strcmp(v.reason, "identical") ? XL_M_SteadyRecompile : XL_M_SteadyRetrace, 1);
    }
out:
    return err;
}

void guard_report(guard_state *g, guard_compiling *c, const char *result, double seconds, const xl_cache_found *miss,
                  const char *error)
{
    xl_event e;
    xl_event_begin(g->run, &e, "compile");
    xl_json_put_text(&e.j, "module", c->name);
    if (c->function[0])
        xl_json_put_text(&e.j, "function", c->function);
    if (c->called[0])
        xl_json_put_text(&e.j, "name", c->called);
    xl_json_put_text(&e.j, "program", c->hash);
    xl_json_put_text(&e.j, "result", result);
    xl_json_put_num(&e.j, "seconds", seconds);
    xl_json_put_text(&e.j, "phase", c->phase ? c->phase : "warmup");
    xl_json_put_int(&e.j, "step", (int64_t)(c->step ? c->step : g->step));
    if (c->helper) {
        xl_json_put_bool(&e.j, "helper", true);
        xl_json_put_int(&e.j, "executed", (int64_t)xl_metrics_total(g->metrics, XL_M_ExecuteTime));
    } else if (c->number) {
        xl_json_put_int(&e.j, "number", (int64_t)c->number);
    }
    if (c->place[0]) {
        xl_json_put_text(&e.j, "place", c->place);
        xl_json_put_bool(&e.j, "reads_value", c->reads_value);
    }
    if (c->ahead)
        xl_json_put_bool(&e.j, "ahead", true);
    const char *reason = c->reason && !c->verdict.failed ? c->reason : "first";
    bool lost = miss && !miss->hit && (!strcmp(miss->reason, "evicted") || !strcmp(miss->reason, "unreadable"));
    if (lost && !strcmp(reason, "first"))
        reason = miss->reason; /* the cache had it */
    xl_json_put_text(&e.j, "reason", reason);
    if (!c->verdict.failed)
        xl_json_members(&e.j, xl_buf_view(&c->verdict));
    if (miss && !miss->hit) {
        xl_json_put_text(&e.j, "cache_reason", miss->reason);
        xl_json_put_text(&e.j, "cache_detail", miss->detail);
    }
    if (c->topology.n)
        xl_json_put_str(&e.j, "topology", xl_buf_view(&c->topology));
    if (c->needs >= 0)
        xl_json_put_int(&e.j, "compiled_bytes", c->needs);
    if (c->uncacheable)
        xl_json_put_text(&e.j, "uncacheable", c->uncacheable);
    if (error)
        xl_json_put_text(&e.j, "error", error);
    xl_event_end(g->run, &e);
}
