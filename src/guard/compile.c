/* A compile: contract, policy, cache, then the plugin. */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/time.h"
#include "guard/guard.h"
#include "ir/compare/hash.h"
#include "ir/read.h"
#include "lane/placement.h"
#include "lane/identity.h"
#include "lane/verdict.h"
#include "pjrt/options.h"

/* ---- executables we have seen made ------------------------------------------------------------------------------ */
static uint32_t hash_of(const void *handle) { return xl_table_hash((uintptr_t)handle); }

exec_info *guard_exec_find(guard_state *g, const void *handle)
{
    static _Thread_local struct { const void *handle; exec_info *found; uint64_t changes; } last;
    exec_info *found = NULL;
    if (last.handle == handle && last.changes == atomic_load_explicit(&g->exec_changes, memory_order_acquire))
        return last.found;                                 /* a step runs the same executable again and again */
    xl_mutex_lock(&g->table_lock);
    XL_TABLE_EACH(&g->exec_index, hash_of(handle), i)
        if (g->exec[i]->handle == handle)
            found = g->exec[i];
    last.handle = handle;
    last.found = found;
    last.changes = g->exec_changes;
    xl_mutex_unlock(&g->table_lock);
    return found;
}

/* Room for one more; under the lock. */
static bool room(guard_state *g)
{
    if (g->nexec == g->capexec) {
        uint32_t cap = g->capexec ? 2 * g->capexec : 128;
        exec_info **more = realloc(g->exec, cap * sizeof *more);
        if (!more)
            return false;
        g->exec = more;
        g->capexec = cap;
    }
    return xl_table_reserve(&g->exec_index, NULL, (size_t)g->nexec + 1);
}

static uint32_t results_of(guard_plugin *p, PJRT_LoadedExecutable *handle)
{
    PJRT_LoadedExecutable_GetExecutable_Args get = { .struct_size = sizeof get, .loaded_executable = handle };
    PJRT_Executable_NumOutputs_Args n = { .struct_size = sizeof n };
    if (!PJRT_HAS(p->real, PJRT_Executable_NumOutputs))
        return 0;
    xl_error *err =
        guard_take(p, p->real->PJRT_LoadedExecutable_GetExecutable(&get), "PJRT_LoadedExecutable_GetExecutable");
    if (!err) {
        PJRT_Executable_Destroy_Args d = { .struct_size = sizeof d, .executable = get.executable };
        n.executable = get.executable;
        err = guard_take(p, p->real->PJRT_Executable_NumOutputs(&n), "PJRT_Executable_NumOutputs");
        xl_error_free(guard_take(p, p->real->PJRT_Executable_Destroy(&d), "PJRT_Executable_Destroy"));
    }
    uint32_t found = err ? 0 : (uint32_t)n.num_outputs;
    xl_error_free(err);
    return found;
}

void guard_exec_add(guard_plugin *p, PJRT_LoadedExecutable *handle, xl_str module, bool helper, spmd_info *spmd)
{
    guard_state *g = p->g;
    exec_info *e = calloc(1, sizeof *e);
    if (!e)
        return;
    e->handle = handle;
    e->helper = helper;
    e->nout = results_of(p, handle);
    e->spmd = spmd;
    snprintf(e->module, sizeof e->module, "%.*s", XL_FMT(module));
    e->metrics = xl_metrics_module(g->metrics, xl_str_of(e->module));
    guard_exec_drop(g, handle);
    xl_mutex_lock(&g->table_lock);
    if (room(g)) {
        xl_table_add(&g->exec_index, NULL, hash_of(handle), g->nexec);
        g->exec[g->nexec++] = e;
        g->exec_changes++;
        e = NULL;
    }
    xl_mutex_unlock(&g->table_lock);
    free(e);
}

void guard_exec_drop(guard_state *g, const void *handle)
{
    xl_mutex_lock(&g->table_lock);
    uint32_t at = UINT32_MAX;
    XL_TABLE_EACH(&g->exec_index, hash_of(handle), i)
        if (g->exec[i]->handle == handle)
            at = i;
    if (at != UINT32_MAX) {                                /* the last one takes its place */
        uint32_t last = g->nexec - 1;
        uint32_t hash = hash_of(g->exec[last]->handle);
        xl_table_drop(&g->exec_index, hash_of(handle), at);
        if (last != at) {
            xl_table_drop(&g->exec_index, hash, last);
            xl_table_add(&g->exec_index, NULL, hash, at);
        }
        free(g->exec[at]);
        g->exec[at] = g->exec[last];
        g->nexec = last;
        g->exec_changes++;
    }
    xl_mutex_unlock(&g->table_lock);
}

/* ---- the plugin, asked by us ---- */
xl_error *guard_take(guard_plugin *p, PJRT_Error *err, const char *call)
{
    if (!err)
        return NULL;
    PJRT_Error_Message_Args m = { .struct_size = sizeof m, .error = err };
    PJRT_Error_GetCode_Args c = { .struct_size = sizeof c, .error = err };
    p->table->PJRT_Error_Message(&m);
    PJRT_Error *bad = p->table->PJRT_Error_GetCode(&c);
    xl_error *out = xl_error_new(bad || c.code <= 0 || c.code > 16 ? XL_CODE_UNKNOWN : (xl_code)c.code, "%s: %.*s",
                                 call, (int)m.message_size, m.message);
    p->table->PJRT_Error_Destroy(
        &(PJRT_Error_Destroy_Args){ .struct_size = sizeof(PJRT_Error_Destroy_Args), .error = err });
    return out;
}

xl_error *guard_platform(guard_plugin *p, PJRT_Client *client, xl_buf *topology, xl_buf *versions)
{
    xl_error *err = NULL;
    PJRT_Client_PlatformName_Args name = { .struct_size = sizeof name, .client = client };
    PJRT_Client_PlatformVersion_Args version = { .struct_size = sizeof version, .client = client };
    PJRT_Client_Devices_Args devices = { .struct_size = sizeof devices, .client = client };
    XL_DO(guard_take(p, p->real->PJRT_Client_PlatformName(&name), "PJRT_Client_PlatformName"));
    XL_DO(guard_take(p, p->real->PJRT_Client_PlatformVersion(&version), "PJRT_Client_PlatformVersion"));
    XL_DO(guard_take(p, p->real->PJRT_Client_Devices(&devices), "PJRT_Client_Devices"));
    xl_buf_printf(topology, "platform=%.*s devices=%zu", (int)name.platform_name_size, name.platform_name,
                  devices.num_devices);
    if (devices.num_devices) {
        PJRT_Device_GetDescription_Args d = { .struct_size = sizeof d, .device = devices.devices[0] };
        XL_DO(guard_take(p, p->real->PJRT_Device_GetDescription(&d), "PJRT_Device_GetDescription"));
        PJRT_DeviceDescription_Kind_Args k = { .struct_size = sizeof k, .device_description = d.device_description };
        XL_DO(guard_take(p, p->real->PJRT_DeviceDescription_Kind(&k), "PJRT_DeviceDescription_Kind"));
        xl_buf_puts(topology, " kind=");
        for (size_t i = 0; i < k.device_kind_size; i++)
            xl_buf_putc(topology, k.device_kind[i] == ' ' ? '_' : k.device_kind[i]);
    }
    xl_buf_puts(versions, "platform_version=");
    for (size_t i = 0; i < version.platform_version_size; i++) {
        char c = version.platform_version[i];
        xl_buf_putc(versions, c == ' ' || c == '\n' || c == '\t' ? '_' : c);
    }
    FILE *driver = fopen("/proc/driver/nvidia/version", "re");
    char line[256];
    if (driver) {
        if (fgets(line, sizeof line, driver)) {
            line[strcspn(line, "\n")] = 0;
            for (char *c = line; *c; c++)
                if (*c == ' ' || *c == '\t')
                    *c = '_';
            xl_buf_printf(versions, " driver=%s", line);
        }
        fclose(driver);
    }
out:
    return err;
}

/* A list of one number again and again means what the number alone means; its length is the program's business (how
 * many arguments). */
static xl_str alone(xl_str path, xl_str list)
{
    if (memmem(path.p, path.n, "allow_spmd_sharding_propagation_to_", 35) == NULL || list.n < 3)
        return list;
    for (size_t i = 1; i + 1 < list.n; i++)
        if (list.p[i] != list.p[1] && list.p[i] != ',' && list.p[i] != ' ')
            return list;
    return (xl_str){ list.p + 1, 1 };
}

/* Compile options as words: "executable_build_options.num_partitions=1 ...", those that change the code. */
static xl_error *option_words(xl_arena *a, xl_str bytes, xl_buf *out, bool *early_exit, int64_t *devices,
                              const xl_option **assignment)
{
    xl_error *err = NULL;
    xl_option *root, *none;
    xl_option_change *change;
    size_t n;
    XL_DO(xl_options_parse(a, bytes, &root));
    XL_DO(xl_options_parse(a, XL_STR(""), &none));
    *early_exit = xl_options_int(root, "executable_build_options.debug_options.xla_early_exit_with_layouts", 0) != 0;
    *devices = xl_options_int(root, "executable_build_options.num_replicas", 1) *
               xl_options_int(root, "executable_build_options.num_partitions", 1);
    *assignment = xl_options_find(root, "executable_build_options.device_assignment");
    xl_options_diff(a, none, root, &change, &n);
    for (size_t i = 0; i < n; i++) {
        if (change[i].quiet)
            continue;
        xl_buf_printf(out, "%s%.*s=", out->n ? " " : "", XL_FMT(change[i].path));
        xl_str after = alone(change[i].path, change[i].after);
        for (size_t k = 0; k < after.n; k++) {
            char c = after.p[k];
            xl_buf_putc(out, c == ' ' || c == '\n' || c == '\t' ? '_' : c);
        }
    }
out:
    return err;
}

/* ---- whose devices ---- */
static bool assigned(const xl_option *o, int id)
{
    for (size_t i = 0; o && (o->kind == XL_OPTION_MSG || o->kind == XL_OPTION_LIST) && i < o->n; i++) {
        const xl_option *k = &o->child[i];
        if (k->name && k->kind == XL_OPTION_INTS && !strcmp(k->name, "replica_device_ids"))
            for (size_t j = 0; j < k->n; j++)
                if ((int64_t)k->list[j] == id)
                    return true;
        if (assigned(k, id))
            return true;
    }
    return false;
}

static void put_devices(const xl_option *o, xl_buf *out)
{
    for (size_t i = 0; o && (o->kind == XL_OPTION_MSG || o->kind == XL_OPTION_LIST) && i < o->n; i++) {
        const xl_option *k = &o->child[i];
        if (k->name && k->kind == XL_OPTION_INTS && !strcmp(k->name, "replica_device_ids"))
            for (size_t j = 0; j < k->n; j++)
                xl_buf_printf(out, "%s%lld", out->n ? "," : "", (long long)k->list[j]);
        put_devices(k, out);
    }
}

static xl_error *add_rank(guard_ranks *r, int rank)
{
    uint32_t at = 0;
    while (at < r->n && r->rank[at] < rank)
        at++;
    if (at < r->n && r->rank[at] == rank)
        return NULL;
    if (r->n == r->cap) {
        uint32_t cap = r->cap ? 2 * r->cap : 8;
        int *more = realloc(r->rank, cap * sizeof *more);
        if (!more)
            return XL_ERR(EXHAUSTED, "out of memory");
        r->rank = more;
        r->cap = cap;
    }
    memmove(r->rank + at + 1, r->rank + at, (r->n - at) * sizeof *r->rank);
    r->rank[at] = rank;
    r->n++;
    return NULL;
}

/* The processes of the devices that a program is compiled for; one alone, or none known: nobody else. */
static xl_error *ranks_of(guard_plugin *p, PJRT_Client *client, const xl_option *assignment, int64_t devices,
                          guard_ranks *out)
{
    xl_error *err = NULL;
    PJRT_Client_AddressableDevices_Args here = { .struct_size = sizeof here, .client = client };
    PJRT_Client_Devices_Args all = { .struct_size = sizeof all, .client = client };
    PJRT_Client_ProcessIndex_Args me = { .struct_size = sizeof me, .client = client };
    XL_DO(guard_take(p, p->real->PJRT_Client_AddressableDevices(&here), "PJRT_Client_AddressableDevices"));
    XL_DO(guard_take(p, p->real->PJRT_Client_Devices(&all), "PJRT_Client_Devices"));
    if (all.num_devices <= here.num_addressable_devices ||
        (!assignment && devices <= (int64_t)here.num_addressable_devices))
        return NULL;
    XL_DO(guard_take(p, p->real->PJRT_Client_ProcessIndex(&me), "PJRT_Client_ProcessIndex"));
    out->me = me.process_index;
    for (size_t i = 0; i < all.num_devices; i++) {
        PJRT_Device_GetDescription_Args d = { .struct_size = sizeof d, .device = all.devices[i] };
        XL_DO(guard_take(p, p->real->PJRT_Device_GetDescription(&d), "PJRT_Device_GetDescription"));
        PJRT_DeviceDescription_Id_Args id = { .struct_size = sizeof id, .device_description = d.device_description };
        PJRT_DeviceDescription_ProcessIndex_Args whose = { .struct_size = sizeof whose,
                                                           .device_description = d.device_description };
        XL_DO(guard_take(p, p->real->PJRT_DeviceDescription_Id(&id), "PJRT_DeviceDescription_Id"));
        XL_DO(
            guard_take(p, p->real->PJRT_DeviceDescription_ProcessIndex(&whose), "PJRT_DeviceDescription_ProcessIndex"));
        if (!assignment || assigned(assignment, id.id))
            XL_DO(add_rank(out, whose.process_index));
    }
out:
    return err;
}

/* ---- what a compile is made of ---- */
typedef struct {
    guard_plugin *p;
    PJRT_Client_Compile_Args *args;
    /* found out */
    char module[256], hash[XL_DIGEST_HEX];
    char function[384];                                    /* of the user's, that it is made of, or "" */
    char name[256];                                        /* the module's, in this process: see guard_function_name */
    char called[128];                                      /* the function's, where the module has another, or "" */
    xl_buf options, topology, versions, process, devices;
    char place[256];                                       /* the line that asked for it, or "" */
    bool reads_value;                                      /* and that line reads a tensor's value */
    int64_t needs;                                         /* the compiler's own figure of memory; -1: not told */
    guard_ranks ranks;                                     /* those of its devices */
    bool together;                                         /* they load or compile together */
    const char *uncacheable;                               /* why it may not be cached, or NULL */
    char refused[512];                                     /* the plugin's own words for that */
    const char *phase;
    uint64_t step, number;                                 /* number: of the execution that it is for, from 1 */
    bool stop, ahead, quiet; /* ahead: it was loaded before it was asked for; quiet: `why` was told often enough */
    const char *reason;                                    /* why it compiled, in a word; static */
    xl_buf verdict;                                        /* what the contract says of it, a JSON map */
    xl_buf why;                                            /* for people: what changed, and the remedy */
    bool helper;                                           /* an eager op, or a library function: never a step */
    uint64_t own; /* executions of what it was compared with, in this process */
    xl_cache_key key;
    xl_module *m;                                          /* until the contracts own it */
    spmd_info *spmd;
} compile;

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
static bool watched(guard_state *g, const compile *c, const xl_verdict *v)
{
    xl_str rest = xl_str_of(g->watch), group = xl_contract_group(xl_str_of(c->module));
    while (rest.n) {
        xl_str one = xl_str_trim(xl_str_cut(&rest, ','));
        if (one.n && (xl_str_is(one, c->module) || xl_str_is(one, c->name) || xl_str_eq(one, group)))
            return true;
    }
    return !c->helper && v->against_module.n && c->own >= g->watch_after;
}

/* How often a module has changed in one way, this time included: for one reason, in one argument, on one line. Under
 * compile_lock. */
static uint32_t times_told(const char *module, const xl_verdict *v)
{
    static struct { uint64_t key; uint32_t times; } known[64];
    static uint32_t n;
    xl_str group = xl_contract_group(xl_str_of(module));
    uint64_t h = xl_hash64(v->reason, strlen(v->reason), xl_hash64(group.p, group.n, 0));
    const xl_diff *d = v->ndiff ? &v->diff[0] : NULL;
    bool each = d && d->kind != XL_DIFF_ARGS;              /* a list that grows has a new argument each time */
    if (d)
        h = xl_hash64(d->file.p, d->file.n, h + d->line + (each ? 31 * (uint64_t)(d->arg + 1) : 0) +
                                                997 * (uint64_t)(d->dim + 1));
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
static void note_growth(const compile *c, xl_verdict *v)
{
    enum { IN_A_ROW = 3 };
    static struct { uint64_t key, number; int64_t by; uint32_t times; } known[64];
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

enum { MOST = 100 };                                       /* characters before the remedy, of a list that goes on */

/* Its first part, and less of it where the line is long. What one value of a static argument tells is too little. */
static void say_remedy(xl_buf *b, const xl_cause *cause, bool more)
{
    if (cause && !strcmp(cause->word, "unused")) {
        xl_buf_puts(b, "; it gave the program that another value had given, and `xlane explain` says what to do of the "
                       "whole run");
        return;
    }
    const char *ends[] = { ". ", "; ", ": " };
    size_t n = cause ? strlen(cause->remedy) : 0, all = n;
    for (size_t i = 0; i < (b->n + n > 2 * MOST ? 3 : 2) && cause; i++) {
        const char *end = strstr(cause->remedy, ends[i]);
        n = end && (size_t)(end - cause->remedy) < n ? (size_t)(end - cause->remedy) : n;
    }
    if (cause)
        xl_buf_printf(b, "; remedy: %.*s%s", (int)n, cause->remedy,
                      more && n < all ? "; `xlane explain` has more" : "");
}

/* The first time that a module changes in one way all of it is said, with the remedy; then what changed, in a short
 * line, twice, and from then on with the count, where that is a power of ten. The same program again has nothing new to
 * tell: its first line is followed by the counts alone. */
static void say_why(compile *c, const xl_verdict *v)
{
    xl_buf *b = &c->why;
    uint32_t times = times_told(c->name, v), next = 10;
    bool same = !strcmp(v->reason, "identical"), again = times > 1;
    while (next <= times && next < 1000000000)
        next *= 10;
    c->quiet = times > (same ? 1 : 3) && times != next / 10;
    uint32_t n = 0, shown = 0;
    const char *prefix = v->way ? v->way : v->reason;
    for (uint32_t i = 0; i < v->ndiff; i++) {              /* what follows from them is left to explain */
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
    if (v->words.n && (!n || same))                        /* else options that follow from what is said */
        xl_buf_printf(b, "%s%.*s", b->n ? "; " : "", XL_FMT(v->words));
    if (v->config.n)
        xl_buf_printf(b, "%s%.*s", b->n ? "; " : "", XL_FMT(v->config));
    if (v->values.n && b->n + v->values.n < 2 * MOST)
        xl_buf_printf(b, "; %.*s", XL_FMT(v->values));
    if (v->called.n)
        xl_buf_printf(b, "; called at %.*s", XL_FMT(v->called));
    from_here(b);
    say_remedy(b, xl_verdict_cause(v), n <= shown);
}

static xl_error *examine(xl_arena *a, void *ctx)
{
    xl_error *err = NULL;
    compile *c = ctx;
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
    err = option_words(a, (xl_str){ args->compile_options, args->compile_options_size }, &c->options, &early_exit,
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
    put_devices(assignment, &c->devices);
    XL_DO(ranks_of(c->p, args->client, assignment, devices, &c->ranks));
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
    if (c->together) {                                     /* each rank keeps its own */
        xl_buf_printf(&c->process, "index=%d of=%u", c->ranks.me, c->ranks.n);
        xl_cache_key_add(&c->key, "process", xl_buf_view(&c->process));
        snprintf(c->ranks.id, sizeof c->ranks.id, "%.32s", c->hash);
    }
    xl_cache_key_seal(&c->key);
out:
    return err;
}

/* The contract and the policy. The caller holds compile_lock: running out of memory jumps past this function. */
static xl_error *judge(xl_arena *a, void *ctx)
{
    xl_error *err = NULL;
    compile *c = ctx;
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
    xl_compile_site site = { xl_str_of(c->place), xl_buf_view(&c->devices), xl_str_of(c->function),
                             xl_str_of(c->name), xl_str_of(told.config), xl_str_of(told.call),
                             told.x64, told.owner };
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
    if (size)                                              /* the host read this very number since the last step */
        xl_json_put_int(&j, "read_back", size);
    if (mask)
        xl_json_put_bool(&j, "read_mask", true);
    xl_json_end(&j);
    note_growth(c, &v);                                    /* for the warning: explain has the whole run */
    if (steady && strcmp(v.reason, "first")) {
        say_why(c, &v);
        from_here(&c->why);                                /* where the warning is a repeated one */
        c->stop = g->policy == XL_POLICY_STOP;
        xl_metrics_count(g->metrics, mm,
                         strcmp(v.reason, "identical") ? XL_M_SteadyRecompile : XL_M_SteadyRetrace, 1);
    }
out:
    return err;
}

static void report(guard_state *g, compile *c, const char *result, double seconds, const xl_cache_found *miss,
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
        reason = miss->reason;                             /* the cache had it */
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

/* ---- cache ---- */
xl_error *guard_load(guard_plugin *p, PJRT_Client *client, const xl_cache_found *f, xl_str options,
                     PJRT_LoadedExecutable **out)
{
    PJRT_LoadOptions how = { .struct_size = sizeof how };
    PJRT_Executable_DeserializeAndLoad_Args l = {
        .struct_size = sizeof l,
        .client = client,
        .serialized_executable = f->blob,
        .serialized_executable_size = f->size,
        .overridden_serialized_compile_options = options.p,
        .overridden_serialized_compile_options_size = options.n,
        .load_options = &how,
    };
    xl_error *err =
        guard_take(p, p->real->PJRT_Executable_DeserializeAndLoad(&l), "PJRT_Executable_DeserializeAndLoad");
    *out = err ? NULL : l.loaded_executable;
    return err;
}

static xl_str options_of(const compile *c)
{
    return (xl_str){ c->args->compile_options, c->args->compile_options_size };
}

static PJRT_LoadedExecutable *load(guard_state *g, compile *c, const xl_cache_found *f)
{
    PJRT_LoadedExecutable *loaded;
    xl_error *err = guard_load(c->p, c->args->client, f, options_of(c), &loaded);
    if (!err)
        return loaded;
    xl_cache_drop(g->cache, &c->key, xl_error_message(err));
    guard_fault(g, "loading a cached executable", err);
    return NULL;
}

static void store(guard_state *g, compile *c, double seconds)
{
    xl_error *err = NULL;
    PJRT_LoadedExecutable_GetExecutable_Args get = { .struct_size = sizeof get,
                                                     .loaded_executable = c->args->executable };
    PJRT_Executable_Serialize_Args s = { .struct_size = sizeof s };
    get.executable = NULL;
    XL_DO(
        guard_take(c->p, c->p->real->PJRT_LoadedExecutable_GetExecutable(&get), "PJRT_LoadedExecutable_GetExecutable"));
    s.executable = get.executable;
    XL_DO(guard_take(c->p, c->p->real->PJRT_Executable_Serialize(&s), "PJRT_Executable_Serialize"));
    err = xl_cache_put(g->cache, &c->key, s.serialized_bytes, s.serialized_bytes_size, seconds);
    if (s.serialized_executable_deleter)
        s.serialized_executable_deleter(s.serialized_executable);
out:
    if (get.executable) {
        PJRT_Executable_Destroy_Args d = { .struct_size = sizeof d, .executable = get.executable };
        xl_error_free(guard_take(c->p, c->p->real->PJRT_Executable_Destroy(&d), "PJRT_Executable_Destroy"));
    }
    if (err) {
        xl_metrics_count(g->metrics, NULL, XL_M_UncachedCompile, 1);
        if (xl_error_code(err) == XL_CODE_UNIMPLEMENTED) { /* a plugin's limit, for this program or for all */
            snprintf(c->refused, sizeof c->refused, "%s", xl_error_message(err));
            c->uncacheable = c->refused;
            if (!c->p->no_serialize_warned)
                guard_say("%s is not cached and will compile in every run: %s", c->name, c->refused);
            c->p->no_serialize_warned = true;
            xl_error_free(err);
            return;
        }
        if (!xl_run_there(g->run) && !c->p->no_store_warned)    /* or `xlane run` says it at the end */
            guard_say("%s could not be written to the cache: %s", c->name, xl_error_message(err));
        c->p->no_store_warned = true;
        guard_fault(g, XL_FAULT_CACHE, err);
    }
}

/* Ops for which the embedded device's partitioner had to gather operands; other plugins do not say, and are not asked:
 * theirs is a walk over all of the program. */
static void gathered(guard_state *g, compile *c)
{
    PJRT_LoadedExecutable_GetExecutable_Args get = { .struct_size = sizeof get,
                                                     .loaded_executable = c->args->executable };
    PJRT_Executable_GetCostAnalysis_Args cost = { .struct_size = sizeof cost };
    xl_str topology = xl_buf_view(&c->topology), lines = { 0 };
    if (!c->spmd || !xl_str_starts(topology, XL_STR("platform=xlane ")) ||
        !PJRT_HAS(c->p->real, PJRT_Executable_GetCostAnalysis))
        return;
    get.executable = NULL;
    xl_error *err =
        guard_take(c->p, c->p->real->PJRT_LoadedExecutable_GetExecutable(&get), "PJRT_LoadedExecutable_GetExecutable");
    if (!err) {
        cost.executable = get.executable;
        err = guard_take(c->p, c->p->real->PJRT_Executable_GetCostAnalysis(&cost), "PJRT_Executable_GetCostAnalysis");
        for (size_t i = 0; !err && i < cost.num_properties; i++)
            if (cost.properties[i].type == PJRT_NamedValue_kString &&
                xl_str_is((xl_str){ cost.properties[i].name, cost.properties[i].name_size }, "gathered"))
                lines = (xl_str){ cost.properties[i].string_value, cost.properties[i].value_size };
    }
    if (lines.n) {
        xl_event e;
        xl_buf text = { 0 };
        xl_gathered_text(lines, &text);
        xl_event_begin(g->run, &e, "gathered");
        xl_json_put_text(&e.j, "module", c->name);
        xl_json_key(&e.j, "ops");
        xl_gathered_json(lines, &e.j);
        xl_json_put_str(&e.j, "text", xl_buf_view(&text));
        xl_event_end(g->run, &e);
        xl_buf_fini(&text);
    }
    if (get.executable) {
        PJRT_Executable_Destroy_Args d = { .struct_size = sizeof d, .executable = get.executable };
        xl_error_free(guard_take(c->p, c->p->real->PJRT_Executable_Destroy(&d), "PJRT_Executable_Destroy"));
    }
    if (err)
        guard_fault(g, "asking what was gathered", err);
}

/* ---- flags that came too late ---- */
static void late_flags(guard_plugin *p)
{
    guard_state *g = p->g;
    static char said[sizeof p->all_flags];
    char now[sizeof p->all_flags];
    xl_identity_all_flags(now, sizeof now);
    if (!strcmp(now, p->all_flags))
        return;
    xl_mutex_lock(&g->compile_lock);
    bool again = !strcmp(now, said);
    memcpy(said, now, sizeof said);
    xl_mutex_unlock(&g->compile_lock);
    if (again)
        return;
    xl_buf words = { 0 };
    xl_words_diff(xl_str_of(p->all_flags), xl_str_of(now), &words);
    xl_event e;
    xl_event_begin(g->run, &e, "late-flag");
    xl_json_put_text(&e.j, "before", p->all_flags);
    xl_json_put_text(&e.j, "after", now);
    xl_json_put_str(&e.j, "words", xl_buf_view(&words));
    xl_json_put_text(&e.j, "text",
                     "changed after the plugin was initialised: it has no effect; set it before the program starts");
    xl_event_end(g->run, &e);
    guard_say(
        "a flag changed after the plugin was initialised and has no effect: %.*s; set it before the program starts",
        XL_FMT(xl_buf_view(&words)));
    xl_buf_fini(&words);
}

/* SPMD that came on after the first tensor: what existed by then has no sharding, and XLA does not say so. */
static void late_spmd(guard_state *g)
{
    static _Atomic bool said;
    if (atomic_load_explicit(&g->tensor, memory_order_acquire) < 2 || g->tensor_spmd || !guard_spmd() ||
        atomic_exchange(&said, true))
        return;
    char text[256];
    snprintf(text, sizeof text,
             "SPMD was switched on after the first tensor, which was made at %.3f s of the run: that one and what came "
             "with it have no "
             "sharding; switch it on before anything is put on a device (spmd.enabled in a profile)",
             g->tensor_time);
    xl_event e;
    xl_event_begin(g->run, &e, "late-spmd");
    xl_json_put_num(&e.j, "tensor", g->tensor_time);
    xl_json_put_text(&e.j, "text", text);
    xl_event_end(g->run, &e);
    guard_say("%s", text);
}

static const double lease_seconds = 900;

static PJRT_LoadedExecutable *look(guard_state *g, compile *c, xl_cache_found *found)
{
    PJRT_LoadedExecutable *ready = guard_ahead_take(c->args->client, &c->key.digest, options_of(c));
    c->ahead = ready != NULL;
    if (ready)
        return ready;
    xl_error *err = xl_cache_get(g->cache, &c->key, found);
    if (err) {
        guard_fault(g, "looking into the cache", err);
        *found = (xl_cache_found){ .reason = "first" };
        return NULL;
    }
    PJRT_LoadedExecutable *loaded = found->hit ? load(g, c, found) : NULL;
    free(found->blob);
    found->blob = NULL;
    if (found->hit && !loaded) {
        *found = (xl_cache_found){ .reason = "unreadable" };
        snprintf(found->detail, sizeof found->detail, "the plugin would not load the entry");
    }
    return loaded;
}

/* Of a program that several processes compile together: all load, or none. Asked twice, since an entry that is there
 * may not load. */
static PJRT_LoadedExecutable *look_together(guard_state *g, compile *c, xl_cache_found *found)
{
    guard_ranks *r = &c->ranks;
    PJRT_LoadedExecutable *loaded = NULL;
    r->round = guard_agree_round(g, r->id);
    xl_error *err = xl_cache_get(g->cache, &c->key, found);
    if (err) {
        guard_fault(g, "looking into the cache", err);
        *found = (xl_cache_found){ .reason = "first" };
    }
    bool all = guard_agree(c->p, c->args->client, r, "have", found->hit);
    if (all) {
        loaded = load(g, c, found);
        all = guard_agree(c->p, c->args->client, r, "loaded", loaded != NULL);
        if (loaded && !all) {
            PJRT_LoadedExecutable_Destroy_Args d = { .struct_size = sizeof d, .executable = loaded };
            xl_error_free(
                guard_take(c->p, c->p->real->PJRT_LoadedExecutable_Destroy(&d), "PJRT_LoadedExecutable_Destroy"));
        }
    }
    free(found->blob);
    if (found->hit && !all) {
        *found = (xl_cache_found){ .reason = "rank" };
        snprintf(found->detail, sizeof found->detail,
                 "this rank has the entry, another has not, or did not answer: all %u compile together", r->n);
    }
    found->blob = NULL;
    return all ? loaded : NULL;
}

/* Before the lease, and again once we have it: whoever had it until then has written the entry. */
static PJRT_LoadedExecutable *look_alone(guard_state *g, compile *c, xl_cache_found *found, xl_lease *lease,
                                         bool *leased)
{
    PJRT_LoadedExecutable *loaded = look(g, c, found);
    if (loaded)
        return loaded;
    *leased = true;
    xl_lease_state s = xl_cache_lease(g->cache, &c->key, lease_seconds, lease);
    return s == XL_LEASE_WAITED || (s == XL_LEASE_MINE && xl_cache_has(g->cache, &c->key)) ? look(g, c, found) : NULL;
}

/* Ranks of one program must compile the same one. An error where one does not and the policy is to stop. */
static PJRT_Error *differing(guard_state *g, compile *c)
{
    xl_buf text = { 0 };
    PJRT_Error *out = NULL;
    xl_str program = { c->args->program->code, c->args->program->code_size };
    c->ranks.meeting = guard_meeting(g, &c->ranks);
    bool differ = guard_differ(c->p, c->args->client, &c->ranks, &c->key, program, &text);
    if (text.n && !text.failed) {
        xl_event e;
        xl_event_begin(g->run, &e, differ ? "divergence" : "late-rank");
        xl_json_put_text(&e.j, "module", c->module);
        xl_json_put_str(&e.j, "text", xl_buf_view(&text));
        xl_event_end(g->run, &e);
        guard_say("%.*s", XL_FMT(xl_buf_view(&text)));
        if (differ && g->policy == XL_POLICY_STOP) {
            xl_buf why = { 0 };
            xl_buf_printf(&why, "xlane: the policy is to stop when ranks compile different programs. %.*s",
                          XL_FMT(xl_buf_view(&text)));
            out = guard_error(PJRT_Error_Code_FAILED_PRECONDITION, xl_buf_view(&why));
            if (out)
                report(g, c, "stopped", 0, NULL, why.p);
            xl_event_begin(g->run, &e, "stop");
            xl_json_put_str(&e.j, "text", xl_buf_view(&text));
            xl_event_end(g->run, &e);
            xl_buf_fini(&why);
        }
    }
    xl_buf_fini(&text);
    return out;
}

/* Whether the program was refused before; if not, it is noted as refused. */
static bool refused_before(guard_state *g, const xl_digest *d)
{
    bool found = false;
    xl_mutex_lock(&g->compile_lock);
    for (uint32_t i = 0; i < g->nrefused && i < GUARD_REFUSED; i++)
        found |= !memcmp(&g->refused[i], d, sizeof *d);
    if (!found)
        g->refused[g->nrefused++ % GUARD_REFUSED] = *d;
    xl_mutex_unlock(&g->compile_lock);
    return found;
}

/* A step's program has changed after the warm-up window, and the policy is to stop. NULL: no memory for an error. */
static PJRT_Error *refuse(guard_state *g, compile *c)
{
    xl_buf text = { 0 }, what = { 0 };
    if (refused_before(g, &c->key.digest))
        xl_buf_printf(&what, "%s was asked for again with a program that had been refused", c->name);
    else
        xl_buf_printf(&what, "%s %s: %.*s", c->name, strcmp(c->reason, "identical") ? "changed" : "was requested again",
                      XL_FMT(xl_buf_view(&c->why)));
    xl_buf_printf(&text,
                  "xlane: the policy is to stop when a step's program changes or is traced again after the warm-up "
                  "window. %.*s. Run "
                  "`xlane explain` on the run for all of it, or use --policy warn to go on.",
                  XL_FMT(xl_buf_view(&what)));
    PJRT_Error *out = guard_error(PJRT_Error_Code_FAILED_PRECONDITION, xl_buf_view(&text));
    if (out) {
        report(g, c, "stopped", 0, NULL, text.p);
        xl_event e;
        xl_event_begin(g->run, &e, "stop");
        xl_json_put_str(&e.j, "text", xl_buf_view(&what));
        xl_event_end(g->run, &e);
    }
    xl_buf_fini(&text);
    xl_buf_fini(&what);
    return out;
}

/* What is being compiled: the key, the contract, the other ranks. An error where the policy is to stop. */
static PJRT_Error *admit(guard_state *g, compile *c, bool *known)
{
    PJRT_Error *out = NULL;
    xl_error *err = xl_arena_call(examine, c);
    *known = !err;
    if (err)
        guard_fault(g, "examining a compile", err);
    if (*known && g->contracts) {
        xl_mutex_lock(&g->compile_lock);
        err = xl_arena_call(judge, c);
        xl_mutex_unlock(&g->compile_lock);
        if (err)
            guard_fault(g, "comparing a compile", err);
    }
    if (!c->name[0])
        snprintf(c->name, sizeof c->name, "%s", c->module);
    xl_module_free(c->m);
    if (*known && c->ranks.n > 1 && g->policy != XL_POLICY_ALLOW)
        out = differing(g, c);
    return !out && c->stop ? refuse(g, c) : out;
}

/* There is an executable: counted, watched and reported. `found`: why it was not in the cache; NULL: it was, or none is
 * used. */
static void made(guard_state *g, compile *c, xl_module_metrics *named, const char *how, double seconds,
                 const xl_cache_found *found)
{
    xl_metrics_time(g->metrics, named, strcmp(how, "cached") ? XL_M_CompileTime : XL_M_LoadTime, seconds);
    guard_exec_add(c->p, c->args->executable, xl_str_of(c->name), c->helper, c->spmd);
    if (guard_recording(g))
        guard_record_program(c->p, c->args, c->name);
    if (found)
        store(g, c, seconds);
    c->needs = guard_needs(c->p, c->args->executable);
    report(g, c, how, seconds, found, NULL);
    gathered(g, c);
}

/* From the cache, or by the plugin. */
static PJRT_Error *produce(guard_state *g, compile *c, bool cache)
{
    xl_cache_found found = { .reason = "first" };
    xl_lease lease = { -1 };
    bool leased = false;
    double t = xl_now();
    xl_module_metrics *named = xl_metrics_module(g->metrics, xl_str_of(c->name));
    flight *f = guard_takeoff(g, "compile", named ? xl_module_metrics_name(named) : "a program", t);
    PJRT_LoadedExecutable *loaded = !cache        ? NULL
                                    : c->together ? look_together(g, c, &found)
                                                  : look_alone(g, c, &found, &lease, &leased);
    PJRT_Error *out = NULL;
    if (c->why.n && !c->quiet && g->policy == XL_POLICY_WARN) /* before it is compiled, which may take minutes */
        guard_say("%s %s: %.*s", c->called[0] ? c->called : c->name,
                  !loaded                           ? "is compiled again"
                  : !strcmp(c->reason, "identical") ? "was loaded from the cache"
                                                    : "changed, and was loaded from the cache",
                  XL_FMT(xl_buf_view(&c->why)));
    static atomic_flag said = ATOMIC_FLAG_INIT;
    if (!loaded && !strcmp(found.reason, "unreadable") && !atomic_flag_test_and_set(&said))
        guard_say(
            "%s is compiled, for its entry in the cache cannot be used: %s; `xlane cache verify` examines them all",
            c->name, found.detail);
    if (loaded) {
        c->args->executable = loaded;
        xl_metrics_count(g->metrics, named, XL_M_CachedCompile, 1);
        made(g, c, named, "cached", xl_now() - t, NULL);
    } else {
        t = xl_now();
        out = c->p->real->PJRT_Client_Compile(c->args);
        double seconds = xl_now() - t;
        if (out) {
            PJRT_Error_Message_Args m = { .struct_size = sizeof m, .error = out };
            c->p->real->PJRT_Error_Message(&m);
            xl_buf text = { 0 };
            xl_buf_add(&text, m.message, m.message_size);
            report(g, c, "failed", seconds, cache ? &found : NULL, text.p ? text.p : "");
            xl_buf_fini(&text);
        } else {
            xl_metrics_count(g->metrics, named, cache ? XL_M_CompileCacheMiss : XL_M_UncachedCompile, 1);
            made(g, c, named, "compiled", seconds, cache ? &found : NULL);
        }
    }
    if (!out && cache && !c->together)
        guard_ahead_note(c->args->client, &c->key.digest, options_of(c));
    if (leased)
        xl_cache_release(g->cache, &c->key, &lease);
    guard_land(f);
    return out;
}

PJRT_Error *guard_compile(guard_plugin *p, PJRT_Client_Compile_Args *args)
{
    guard_state *g = p->g;
    compile c = { .p = p, .args = args, .needs = -1 };
    bool known;
    late_flags(p);
    late_spmd(g);
    PJRT_Error *out = admit(g, &c, &known);
    if (!out) {
        atomic_fetch_add(&g->compiles, 1);
        out = produce(g, &c, known && g->cache && !c.uncacheable);
    }
    xl_buf_fini(&c.options);
    xl_buf_fini(&c.topology);
    xl_buf_fini(&c.versions);
    xl_buf_fini(&c.process);
    xl_buf_fini(&c.devices);
    free(c.ranks.rank);
    xl_buf_fini(&c.verdict);
    xl_buf_fini(&c.why);
    return out;
}

/* The frontend's own cache answered. */
void guard_loaded(guard_plugin *p, PJRT_Executable_DeserializeAndLoad_Args *args, double seconds)
{
    guard_state *g = p->g;
    PJRT_LoadedExecutable_GetExecutable_Args get = { .struct_size = sizeof get,
                                                   .loaded_executable = args->loaded_executable };
    PJRT_Executable_Name_Args n = { .struct_size = sizeof n };
    char module[128] = "unnamed";
    xl_error *err =
        guard_take(p, p->real->PJRT_LoadedExecutable_GetExecutable(&get), "PJRT_LoadedExecutable_GetExecutable");
    if (!err) {
        n.executable = get.executable;
        err = guard_take(p, p->real->PJRT_Executable_Name(&n), "PJRT_Executable_Name");
        if (!err)
            snprintf(module, sizeof module, "%.*s", (int)n.executable_name_size, n.executable_name);
        PJRT_Executable_Destroy_Args d = { .struct_size = sizeof d, .executable = get.executable };
        xl_error_free(guard_take(p, p->real->PJRT_Executable_Destroy(&d), "PJRT_Executable_Destroy"));
    }
    if (err)
        guard_fault(g, "naming a loaded executable", err);
    char called[256];
    guard_told told = guard_function(xl_str_of(module));
    bool helper = told.owner && told.owner != XL_OWNER_USER;
    xl_mutex_lock(&g->compile_lock);
    guard_function_name(xl_str_of(module), told.function, called, sizeof called);
    xl_mutex_unlock(&g->compile_lock);
    xl_module_metrics *mm = xl_metrics_module(g->metrics, xl_str_of(called));
    xl_metrics_time(g->metrics, mm, XL_M_LoadTime, seconds);
    xl_metrics_count(g->metrics, mm, XL_M_FrontendCacheHit, 1);
    guard_exec_add(p, args->loaded_executable, xl_str_of(called), helper, NULL);
    xl_event e;
    xl_event_begin(g->run, &e, "compile");
    xl_json_put_text(&e.j, "module", called);
    xl_json_put_text(&e.j, "result", "loaded");
    xl_json_put_num(&e.j, "seconds", seconds);
    xl_json_put_text(&e.j, "phase", "warmup");
    xl_json_put_int(&e.j, "step", (int64_t)g->step);
    if (helper)
        xl_json_put_bool(&e.j, "helper", true);
    xl_json_put_text(&e.j, "reason", "first");
    xl_event_end(g->run, &e);
}
