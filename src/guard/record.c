/* The flight recorder: what a step was given, kept until it is known whether the step is worth keeping.
 *
 * A frontend that trains donates its state: once the NaN is read, the inputs of the step that made it are gone. So an
 * armed recorder keeps an entry for each of the last executions of a program. An input of an entry is a host copy, made
 * before the execution, or a reference to an output of an earlier entry, which a replay computes again; every
 * `every`-th entry has copies alone and so cuts the chain. Buffers do not change once made, so a handle that was seen
 * before and not destroyed since needs no second copy. Entries are freed when neither the window nor another entry
 * refers to them.
 *
 * Copies are waited for outside of the lock: a plugin may run callbacks, which take it, on the thread that copies. A
 * capture is written at the next execution or at the end, never from a callback.
 * Unarmed, all of this is one load of its state. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/ranks.h"
#include "base/time.h"
#include "base/word.h"
#include "guard/guard.h"
#include "lane/capture.h"

enum {
    BUCKETS = 4096,
    WINDOW = 4,                                            /* executions of a program that are kept whole */
    SMALL = 64 << 10,                                      /* outputs up to here are checked by --capture-check */
    READ_MAX = 4 << 20,                                    /* of what the host reads, so much is looked at */
    TIMES = 32,
    WARM = 8,                                              /* steps before one can be called slow */
};
static const uint64_t copied_each = 64 << 20;              /* bytes copied a step on average, where nobody said */

typedef struct { uint32_t ref, rank; xl_elem elem; int64_t dims[XL_CAPTURE_RANK]; size_t n; char bytes[]; } cell;

typedef struct prog {
    struct prog *next;
    const void *handle;                                    /* NULL: destroyed; kept while entries refer to it */
    guard_plugin *p;
    char *code, *options, *module;
    size_t ncode, noptions;
    bool hlo, told;
    uint32_t nout, ndevice;
    int *device;
    uint64_t executions, number, every;                    /* number: executions of all programs of its name */
} prog;

typedef struct entry entry;
typedef struct { cell *c; entry *from; uint32_t out; } source;
typedef struct { PJRT_Buffer *h; cell *c; } result;
struct entry {
    entry *next;                                           /* the window, oldest first */
    prog *prog;
    uint64_t number, order;
    uint32_t ref, ndevice, narg, nout, nkeep, mark;
    source *in;
    result *out;
    int64_t *keep;
};

typedef struct node { struct node *next; PJRT_Buffer *h; entry *e; uint32_t out; cell *c; } node;

typedef enum { NONFINITE, STEP, SIGNAL, SLOW } trigger;
static const char *const trigger_word[] = { "nonfinite", "step", "signal", "slow" };

static struct {
    xl_mutex lock;
    trigger trigger;
    uint64_t step, every, max, order, times, written;
    uint32_t window;
    bool check, full;
    char module[128];                                      /* the one that is meant; "": any */
    prog *progs;
    entry *oldest, *newest;
    node *bucket[BUCKETS];
    entry *fired;
    char why[512];
    double took[TIMES];
    uint64_t ntook;
    uint64_t unknown;                                      /* executions of executables that came without a program */
} R = { .lock = XL_MUTEX_INIT };
static volatile sig_atomic_t asked;

static void on_signal(int sig)
{
    (void)sig;
    asked = 1;
}

/* ---- cells, entries, handles: under the lock ------------------------------------------------------------------- */
static void cell_unref(cell *c)
{
    if (c && --c->ref == 0)
        free(c);
}

static node **find(PJRT_Buffer *h)
{
    node **at = &R.bucket[(((uintptr_t)h >> 4) * UINT64_C(0x9E3779B97F4A7C15)) >> 52];
    while (*at && (*at)->h != h)
        at = &(*at)->next;
    return at;
}

static node *know(PJRT_Buffer *h)
{
    node **at = find(h);
    if (!*at && (*at = calloc(1, sizeof **at)))
        (*at)->h = h;
    return *at;
}

static void forget(PJRT_Buffer *h)
{
    node **at = find(h), *n = *at;
    if (!n)
        return;
    if (n->e)
        n->e->out[n->out].h = NULL;
    cell_unref(n->c);
    *at = n->next;
    free(n);
}

static void prog_free(prog *pr)
{
    free(pr->code);
    free(pr->options);
    free(pr->module);
    free(pr->device);
    free(pr);
}

static void entry_unref(entry *e)
{
    while (e && --e->ref == 0) {
        entry *last = NULL;                                /* the chain is followed in a loop: it may be long */
        for (uint32_t i = 0; e->in && i < e->ndevice * e->narg; i++) {
            cell_unref(e->in[i].c);
            entry *from = e->in[i].from;
            if (!from)
                continue;
            if (from->ref > 1) {
                from->ref--;
                continue;
            }
            entry_unref(last);
            last = from;
        }
        for (uint32_t i = 0; e->out && i < e->ndevice * e->nout; i++) {
            node *n = e->out[i].h ? *find(e->out[i].h) : NULL;
            if (n)
                n->e = NULL;
            cell_unref(e->out[i].c);
        }
        free(e->in);
        free(e->out);
        free(e->keep);
        free(e);
        e = last;
    }
}

static void drop_all(void)
{
    while (R.oldest) {
        entry *e = R.oldest;
        R.oldest = e->next;
        entry_unref(e);
    }
    R.newest = NULL;
}

static prog *prog_of(const void *handle)
{
    prog *pr = R.progs;
    while (pr && pr->handle != handle)
        pr = pr->next;
    return pr;
}

/* ---- copies ---------------------------------------------------------------------------------------------------- */
static xl_error *await(guard_plugin *p, PJRT_Event *event)
{
    if (!event)
        return NULL;
    PJRT_Event_Await_Args w = { .struct_size = sizeof w, .event = event };
    PJRT_Event_Destroy_Args d = { .struct_size = sizeof d, .event = event };
    xl_error *err = guard_take(p, p->real->PJRT_Event_Await(&w), "PJRT_Event_Await");
    xl_error_free(guard_take(p, p->real->PJRT_Event_Destroy(&d), "PJRT_Event_Destroy"));
    return err;
}

/* Starts the copy of a buffer, rows first; the cell is whole once *event is ready. */
static xl_error *fetch(guard_plugin *p, PJRT_Buffer *b, cell **out, PJRT_Event **event)
{
    xl_error *err = NULL;
    *out = NULL;
    *event = NULL;
    PJRT_Buffer_ElementType_Args t = { .struct_size = sizeof t, .buffer = b };
    PJRT_Buffer_Dimensions_Args d = { .struct_size = sizeof d, .buffer = b };
    XL_DO(guard_take(p, p->real->PJRT_Buffer_ElementType(&t), "PJRT_Buffer_ElementType"));
    XL_DO(guard_take(p, p->real->PJRT_Buffer_Dimensions(&d), "PJRT_Buffer_Dimensions"));
    size_t size = 0;
    if (d.num_dims > XL_CAPTURE_RANK || !xl_elem_size((xl_elem)t.type, (xl_dims){ d.dims, d.num_dims }, &size)) {
        err = XL_ERR(UNIMPLEMENTED, "a buffer of element type %d with %zu dimensions", (int)t.type, d.num_dims);
        goto out;
    }
    cell *c = malloc(sizeof *c + size);
    if (!c) {
        err = XL_ERR(EXHAUSTED, "no memory for a copy of %zu bytes", size);
        goto out;
    }
    *c = (cell){ .ref = 1, .rank = (uint32_t)d.num_dims, .elem = (xl_elem)t.type, .n = size };
    int64_t order[XL_CAPTURE_RANK];
    for (size_t i = 0; i < d.num_dims; i++) {
        c->dims[i] = d.dims[i];
        order[i] = (int64_t)(d.num_dims - 1 - i);
    }
    PJRT_Buffer_MemoryLayout rows = { .struct_size = sizeof rows, .type = PJRT_Buffer_MemoryLayout_Type_Tiled };
    rows.tiled = (PJRT_Buffer_MemoryLayout_Tiled){ .struct_size = sizeof rows.tiled, .minor_to_major = order,
                                                   .minor_to_major_size = d.num_dims };
    PJRT_Buffer_ToHostBuffer_Args a = {
        .struct_size = sizeof a, .src = b, .host_layout = &rows, .dst = c->bytes, .dst_size = size
    };
    err = guard_take(p, p->real->PJRT_Buffer_ToHostBuffer(&a), "PJRT_Buffer_ToHostBuffer");
    if (err)
        free(c);
    else {
        *out = c;
        *event = a.event;
    }
out:
    return err;
}

static uint64_t device_bytes(guard_plugin *p, PJRT_Buffer *b)
{
    PJRT_Buffer_OnDeviceSizeInBytes_Args s = { .struct_size = sizeof s, .buffer = b };
    xl_error *err = guard_take(p, p->real->PJRT_Buffer_OnDeviceSizeInBytes(&s), "PJRT_Buffer_OnDeviceSizeInBytes");
    xl_error_free(err);
    return err ? 0 : s.on_device_size_in_bytes;
}

static bool gone(guard_plugin *p, PJRT_Buffer *b)
{
    PJRT_Buffer_IsDeleted_Args d = { .struct_size = sizeof d, .buffer = b };
    xl_error *err = guard_take(p, p->real->PJRT_Buffer_IsDeleted(&d), "PJRT_Buffer_IsDeleted");
    xl_error_free(err);
    return err || d.is_deleted;
}

static uint64_t memory_available(void)
{
    FILE *f = fopen("/proc/meminfo", "re");
    char line[256];
    unsigned long long kib = 0;
    while (f && fgets(line, sizeof line, f))
        if (sscanf(line, "MemAvailable: %llu", &kib) == 1)
            break;
    if (f)
        fclose(f);
    return (uint64_t)kib << 10;
}

static const char *human(uint64_t n, char out[32])
{
    const char *unit[] = { "bytes", "KiB", "MiB", "GiB", "TiB" };
    double v = (double)n;
    int u = 0;
    while (v >= 1024 && u < 4) {
        v /= 1024;
        u++;
    }
    snprintf(out, 32, u ? "%.1f %s" : "%.0f %s", v, unit[u]);
    return out;
}

/* The copies of a program's inputs: do they fit beside the program? Once for each program. */
static bool room(prog *pr, const PJRT_LoadedExecutable_Execute_Args *args)
{
    char size[32], have[32];
    if (pr->every)
        return true;
    uint64_t all = 0, free_bytes = memory_available();
    for (size_t d = 0; d < args->num_devices; d++)
        for (size_t i = 0; i < args->num_args; i++)
            all += device_bytes(pr->p, args->argument_lists[d][i]);
    bool once = R.trigger == STEP || R.trigger == SIGNAL;
    uint32_t copies = once ? 2 : R.window + 1;             /* inputs, and the outputs or the next inputs */
    if (!once && all * copies > free_bytes / 2)
        copies = (R.window = 2) + 1;
    if (all * copies > free_bytes / 2 || all > R.max) {
        guard_say("capture: off for %s: its inputs are %s, and %s", pr->module, human(all, size),
                  all > R.max ? "--capture-max allows less"
                              : "the host has too little memory free for their copies; use a host with more, or "
                                "--capture=step:N, which keeps one");
        pr->told = true;
        return false;
    }
    pr->every = once ? 1 : R.every ? R.every : 1 + all / copied_each;
    bool again = false;                                    /* another program of that name: said already */
    xl_mutex_lock(&R.lock);
    for (const prog *x = R.progs; x; x = x->next)
        again = again || (x != pr && x->every && !strcmp(x->module, pr->module));
    xl_mutex_unlock(&R.lock);
    if (!once && !again) {
        if (pr->every == 1)
            guard_say("capture: armed for %s: an exact copy of its inputs before each execution, %s each, %s of host "
                      "memory",
                      pr->module, human(all, size), human(all * R.window, have));
        else
            guard_say("capture: armed for %s: a copy of its inputs every %llu executions, %s each, and of what comes "
                      "from the host in between; a capture is computed forward from the last copy",
                      pr->module, (unsigned long long)pr->every, human(all, size));
    }
    return true;
}

/* ---- writing --------------------------------------------------------------------------------------------------- */
static xl_cap_part part_of(const cell *c)
{
    return c ? (xl_cap_part){ c->elem, { c->dims, c->rank }, c->n, c->bytes, false, { { 0 } } } : (xl_cap_part){ 0 };
}

static void number_entries(entry *e, uint64_t *n)
{
    if (e->mark)
        return;
    e->mark = 1;
    for (uint32_t i = 0; i < e->ndevice * e->narg; i++)
        if (e->in[i].from)
            number_entries(e->in[i].from, n);
    e->mark = (uint32_t)++*n + 1;                          /* after all that it refers to: its index is mark - 2 */
}

static void fill(xl_arena *a, entry *e, xl_capture *c)
{
    if (c->step[e->mark - 2].in || (!e->narg && c->step[e->mark - 2].out))
        return;
    xl_cap_step *s = &c->step[e->mark - 2];
    prog *pr = e->prog;
    uint32_t k = 0;
    while (k < c->nprogram && c->program[k].code.p != pr->code)
        k++;
    if (k == c->nprogram)
        c->program[c->nprogram++] = (xl_cap_program){ .module = xl_str_of(pr->module), .code = { pr->code, pr->ncode },
                                                      .options = { pr->options, pr->noptions }, .hlo = pr->hlo,
                                                      .device = pr->device, .ndevice = pr->ndevice };
    *s = (xl_cap_step){ .program = k, .number = e->number, .ndevice = e->ndevice, .narg = e->narg, .nout = e->nout,
                        .keep = e->keep, .nkeep = e->nkeep };
    s->in = xl_new(a, xl_cap_input, (size_t)e->ndevice * e->narg + 1);
    s->out = xl_new(a, xl_cap_part, (size_t)e->ndevice * e->nout + 1);
    for (uint32_t i = 0; i < e->ndevice * e->narg; i++) {
        const source *x = &e->in[i];
        s->in[i] = (xl_cap_input){ -1, 0, part_of(x->c) };
        if (x->from) {
            s->in[i].from = x->from->mark - 2;
            s->in[i].out = x->out % x->from->nout;
            s->in[i].part = (xl_cap_part){ 0 };
            fill(a, x->from, c);
        }
    }
    for (uint32_t i = 0; i < e->ndevice * e->nout; i++)
        s->out[i] = part_of(e->out[i].c);
}

static void unmark(entry *e)
{
    if (!e->mark)
        return;
    e->mark = 0;
    for (uint32_t i = 0; i < e->ndevice * e->narg; i++)
        if (e->in[i].from)
            unmark(e->in[i].from);
}

typedef struct { entry *e; char path[4200]; uint64_t size, steps; } writing;

static xl_error *write_it(xl_arena *a, void *ctx)
{
    writing *w = ctx;
    prog *pr = w->e->prog;
    guard_state *g = pr->p->g;
    xl_ranks ranks = xl_ranks_seen();
    char word[48];
    snprintf(word, sizeof word, R.trigger == STEP ? "%s:%llu" : "%s", trigger_word[R.trigger],
             (unsigned long long)R.step);
    xl_capture c = { .trigger = xl_str_of(word), .why = xl_str_of(R.why), .plugin = xl_str_of(pr->p->path),
                     .identity = xl_str_of(pr->p->identity), .flags = xl_str_of(pr->p->all_flags),
                     .rank = xl_run_rank(g->run), .ranks = (int)ranks.n };
    uint64_t n = 0;
    number_entries(w->e, &n);
    c.nstep = (uint32_t)n;
    c.step = xl_new(a, xl_cap_step, n);
    c.program = xl_new(a, xl_cap_program, n);
    fill(a, w->e, &c);
    w->steps = n;
    c.run = xl_run_about(a, xl_run_dir(g->run)).json;
    return xl_capture_write(a, w->path, &c, &w->size);
}

static void file_name(guard_state *g, char *out, size_t room)
{
    xl_ranks ranks = xl_ranks_seen();
    char rank[16] = "", number[24] = "";
    if (ranks.n > 1 || xl_run_rank(g->run) > 0)
        snprintf(rank, sizeof rank, "-%d", xl_run_rank(g->run));
    if (R.written)
        snprintf(number, sizeof number, ".%llu", (unsigned long long)R.written + 1);
    snprintf(out, room, "%s/step%s%s.xlcap", xl_run_dir(g->run), rank, number);
}

/* The outputs of the entry that nobody has copied yet, where they are still there. */
static void copy_outputs(guard_state *g, entry *e)
{
    guard_plugin *p = e->prog->p;
    uint64_t left = R.max;
    for (uint32_t i = 0; i < e->ndevice * e->nout; i++) {
        PJRT_Buffer *h = e->out[i].h;
        cell *c;
        PJRT_Event *event;
        if (!h || e->out[i].c || gone(p, h) || device_bytes(p, h) > left)
            continue;
        xl_error *err = fetch(p, h, &c, &event);
        if (!err) {
            err = await(p, event);
            if (err)
                free(c);
            else {
                XL_KNOWN(c);                               /* fetch gave no error */
                e->out[i].c = c;
                left -= c->n < left ? c->n : left;
            }
        }
        if (err)
            guard_fault(g, "copying an output for a capture", err);
    }
}

/* The thread that executes; nobody else changes entries that have ended. */
static void write_capture(guard_state *g, entry *e)
{
    writing w = { .e = e };
    char size[32];
    if (!xl_run_there(g->run)) {
        guard_say("capture: not written: the run has no folder");
        return;
    }
    file_name(g, w.path, sizeof w.path);
    copy_outputs(g, e);
    double t = xl_now();
    xl_error *err = xl_arena_call(write_it, &w);
    unmark(e);
    if (err) {
        guard_say("capture: not written: %s; --runs=DIR names another folder",
                  xl_error_message(err));
        guard_fault(g, "writing a capture", err);
        return;
    }
    xl_event ev;
    xl_event_begin(g->run, &ev, "capture");
    xl_json_put_text(&ev.j, "module", e->prog->module);
    xl_json_put_int(&ev.j, "number", (int64_t)e->number);
    xl_json_put_text(&ev.j, "trigger", trigger_word[R.trigger]);
    xl_json_put_text(&ev.j, "why", R.why);
    xl_json_put_text(&ev.j, "file", w.path);
    xl_json_put_int(&ev.j, "bytes", (int64_t)w.size);
    xl_json_put_int(&ev.j, "forward", (int64_t)w.steps - 1);
    xl_json_put_num(&ev.j, "seconds", xl_now() - t);
    xl_event_end(g->run, &ev);
    xl_buf next = { 0 };
    xl_buf_puts(&next, R.trigger != NONFINITE                            ? "replay "
                       : xl_str_ends(xl_str_of(R.why), XL_STR(" Inf")) ? "nan --inf "
                                                                        : "nan ");
    xl_buf_word(&next, xl_str_ends(xl_str_of(w.path), XL_STR("/step.xlcap")) ? xl_run_dir(g->run) : w.path);
    guard_say("captured execution %llu of %s, because %s, %s%s: %s, %s; next: xlane %.*s",
              (unsigned long long)e->number, e->prog->module, R.why,
              w.steps > 1 ? "to be computed forward from a copy" : "with an exact copy of its inputs",
              w.steps > 1 ? " of earlier inputs, and unverified until `xlane replay` has done so" : "", w.path,
              human(w.size, size), XL_FMT(xl_buf_view(&next)));
    xl_buf_fini(&next);
}

static void fire(guard_state *g, entry *e, const char *fmt, ...) XL_PRINTF(3, 4);
static void fire(guard_state *g, entry *e, const char *fmt, ...)           /* under the lock */
{
    va_list ap;
    if (R.fired || !atomic_load(&g->recording))
        return;
    va_start(ap, fmt);
    vsnprintf(R.why, sizeof R.why, fmt, ap);
    va_end(ap);
    R.fired = e;
    e->ref++;
}

static void write_fired(guard_state *g)
{
    xl_mutex_lock(&R.lock);
    entry *e = R.fired;
    if (e && R.written + 1 >= R.times)
        atomic_store(&g->recording, false);
    xl_mutex_unlock(&R.lock);
    if (!e)
        return;
    write_capture(g, e);
    xl_mutex_lock(&R.lock);
    e->prog->told = true;                                     /* of each program one */
    R.written++;
    entry_unref(e);
    drop_all();
    R.fired = NULL;                                        /* from here on another may fire */
    xl_mutex_unlock(&R.lock);
}

/* ---- what the hooks tell --------------------------------------------------------------------------------------- */
static char *copy_of(const char *p, size_t n)
{
    char *out = malloc(n + 1);
    if (out) {
        memcpy(out, p, n);
        out[n] = 0;
    }
    return out;
}

void guard_record_program(guard_plugin *p, const PJRT_Client_Compile_Args *args, const char *module)
{
    guard_state *g = p->g;
    PJRT_LoadedExecutable_GetExecutable_Args get = { .struct_size = sizeof get, .loaded_executable = args->executable };
    PJRT_LoadedExecutable_AddressableDevices_Args d = { .struct_size = sizeof d, .executable = args->executable };
    xl_error *err = NULL;
    prog *x = calloc(1, sizeof *x);
    get.executable = NULL;
    if (!x)
        return;
    x->p = p;
    x->handle = args->executable;
    x->code = copy_of(args->program->code, args->program->code_size);
    x->ncode = args->program->code_size;
    x->options = copy_of(args->compile_options, args->compile_options_size);
    x->noptions = args->compile_options_size;
    x->module = copy_of(module, strlen(module));
    x->hlo = args->program->format_size >= 3 && !memcmp(args->program->format, "hlo", 3);
    if (!x->code || !x->options || !x->module) {
        err = XL_ERR(EXHAUSTED, "no memory for a program");
        goto out;
    }
    XL_DO(guard_take(p, p->real->PJRT_LoadedExecutable_GetExecutable(&get), "PJRT_LoadedExecutable_GetExecutable"));
    PJRT_Executable_NumOutputs_Args n = { .struct_size = sizeof n, .executable = get.executable };
    XL_DO(guard_take(p, p->real->PJRT_Executable_NumOutputs(&n), "PJRT_Executable_NumOutputs"));
    x->nout = (uint32_t)n.num_outputs;
    XL_DO(guard_take(p, p->real->PJRT_LoadedExecutable_AddressableDevices(&d),
                     "PJRT_LoadedExecutable_AddressableDevices"));
    x->device = calloc(d.num_addressable_devices + 1, sizeof *x->device);
    if (!x->device) {
        err = XL_ERR(EXHAUSTED, "no memory for a program");
        goto out;
    }
    for (size_t i = 0; i < d.num_addressable_devices; i++) {
        PJRT_Device_GetDescription_Args e = { .struct_size = sizeof e, .device = d.addressable_devices[i] };
        XL_DO(guard_take(p, p->real->PJRT_Device_GetDescription(&e), "PJRT_Device_GetDescription"));
        PJRT_DeviceDescription_Id_Args id = { .struct_size = sizeof id, .device_description = e.device_description };
        XL_DO(guard_take(p, p->real->PJRT_DeviceDescription_Id(&id), "PJRT_DeviceDescription_Id"));
        x->device[x->ndevice++] = id.id;
    }
    xl_mutex_lock(&R.lock);
    prog *old = prog_of(x->handle);
    if (old)
        old->handle = NULL;
    x->next = R.progs;
    R.progs = x;
    xl_mutex_unlock(&R.lock);
    x = NULL;
out:
    if (get.executable) {
        PJRT_Executable_Destroy_Args e = { .struct_size = sizeof e, .executable = get.executable };
        xl_error_free(guard_take(p, p->real->PJRT_Executable_Destroy(&e), "PJRT_Executable_Destroy"));
    }
    if (x)
        prog_free(x);
    if (err)
        guard_fault(g, "keeping a program for a capture", err);
}

void guard_record_dropped(const void *executable)
{
    xl_mutex_lock(&R.lock);
    prog *pr = prog_of(executable);
    if (pr)
        pr->handle = NULL;
    xl_mutex_unlock(&R.lock);
}

void guard_record_destroyed(PJRT_Buffer *b)
{
    xl_mutex_lock(&R.lock);
    forget(b);
    xl_mutex_unlock(&R.lock);
}

static bool wanted(prog *pr)
{
    if (R.module[0] && !strstr(pr->module, R.module))
        return false;
    switch (R.trigger) {
    case STEP: return pr->number == R.step;                 /* the first program that comes so far */
    case SIGNAL: return asked;
    default: return true;
    }
}

static entry *entry_new(prog *pr, const PJRT_LoadedExecutable_Execute_Args *args)
{
    entry *e = calloc(1, sizeof *e);
    const PJRT_ExecuteOptions *o = args->options;
    if (!e)
        return NULL;
    *e = (entry){ .prog = pr, .number = pr->number, .ref = 1, .ndevice = (uint32_t)args->num_devices,
                  .narg = (uint32_t)args->num_args, .nout = pr->nout };
    e->in = calloc((size_t)e->ndevice * e->narg + 1, sizeof *e->in);
    e->out = calloc((size_t)e->ndevice * e->nout + 1, sizeof *e->out);
    e->keep = calloc((o ? o->num_non_donatable_input_indices : 0) + 1, sizeof *e->keep);
    if (!e->in || !e->out || !e->keep) {
        free(e->in);
        free(e->out);
        free(e->keep);
        free(e);
        return NULL;
    }
    for (size_t i = 0; o && i < o->num_non_donatable_input_indices; i++)
        if (o->non_donatable_input_indices[i] >= 0 && o->non_donatable_input_indices[i] < (int64_t)e->narg)
            e->keep[e->nkeep++] = o->non_donatable_input_indices[i];
    return e;
}

/* Copies the inputs that are neither known nor to be computed again. */
static xl_error *take_inputs(entry *e, const PJRT_LoadedExecutable_Execute_Args *args, bool snapshot)
{
    xl_error *err = NULL;
    guard_plugin *p = e->prog->p;
    size_t n = (size_t)e->ndevice * e->narg;
    PJRT_Event **event = calloc(n + 1, sizeof *event);
    bool *mine = calloc(n + 1, sizeof *mine);
    if (!event || !mine) {
        err = XL_ERR(EXHAUSTED, "no memory for a copy of the inputs");
        goto out;
    }
    xl_mutex_lock(&R.lock);
    for (size_t i = 0; i < n; i++) {
        const node *k = *find(args->argument_lists[i / e->narg][i % e->narg]);
        if (k && k->c) {
            e->in[i].c = k->c;
            k->c->ref++;
        } else if (k && k->e && !snapshot && k->e->ndevice == e->ndevice && k->out / k->e->nout == i / e->narg) {
            e->in[i].from = k->e;
            e->in[i].out = k->out;
            k->e->ref++;
        }
    }
    xl_mutex_unlock(&R.lock);
    for (size_t i = 0; i < n && !err; i++)
        if (!e->in[i].c && !e->in[i].from) {
            err = fetch(p, args->argument_lists[i / e->narg][i % e->narg], &e->in[i].c, &event[i]);
            mine[i] = !err;
        }
    for (size_t i = 0; i < n; i++)
        if (event[i]) {
            xl_error *late = await(p, event[i]);
            if (err)
                xl_error_free(late);
            else
                err = late;
        }
    if (err)
        goto out;
    xl_mutex_lock(&R.lock);
    for (size_t i = 0; i < n; i++) {
        node *k = mine[i] ? know(args->argument_lists[i / e->narg][i % e->narg]) : NULL;
        if (!k)
            continue;
        if (!k->c) {
            k->c = e->in[i].c;
            k->c->ref++;
        }
        if (k->e && !k->e->out[k->out].c) {                /* what an earlier step gave, seen on its way */
            k->e->out[k->out].c = e->in[i].c;
            e->in[i].c->ref++;
        }
    }
    xl_mutex_unlock(&R.lock);
out:
    free(event);
    free(mine);
    return err;
}

void *guard_record_before(guard_plugin *p, exec_info *info, const PJRT_LoadedExecutable_Execute_Args *args)
{
    guard_state *g = p->g;
    (void)p;
    if (R.fired)
        write_fired(g);
    if (!atomic_load_explicit(&g->recording, memory_order_relaxed) || (info && info->helper))
        return NULL;
    xl_mutex_lock(&R.lock);
    prog *pr = prog_of(args->executable);
    if (pr) {
        pr->executions++;
        pr->number = info && info->metrics ? xl_module_metrics_count(info->metrics, XL_M_ExecuteTime) + 1
                                          : pr->executions;
    }
    bool want = pr && !pr->told && wanted(pr);
    bool say = !pr && ++R.unknown == 3;
    xl_mutex_unlock(&R.lock);
    if (say)
        guard_say("capture: %s was loaded from the frontend's own cache, which has no program to capture; switch that "
                  "cache off (" XL_FRONTEND_CACHE_OFF ")",
                  info ? info->module : "an executable");
    if (!want || !room(pr, args))
        return NULL;
    if (R.trigger == SIGNAL)
        asked = 0;
    bool once = R.trigger == STEP || R.trigger == SIGNAL;
    entry *e = entry_new(pr, args);
    xl_error *err = e ? take_inputs(e, args, once || (pr->executions - 1) % pr->every == 0)
                      : XL_ERR(EXHAUSTED, "no memory for a copy of the inputs");
    if (err) {
        guard_say("capture: execution %llu of %s was not recorded: %s", (unsigned long long)pr->number, pr->module,
                  xl_error_message(err));
        guard_fault(g, "copying inputs for a capture", err);
        xl_mutex_lock(&R.lock);
        entry_unref(e);
        xl_mutex_unlock(&R.lock);
        return NULL;
    }
    return e;
}

/* ---- looking at numbers ---------------------------------------------------------------------------------------- */
typedef struct { guard_plugin *p; entry *e; uint32_t out; cell *c; const void *at; xl_elem elem; size_t size; bool keep;
} look;

/* Under the lock. `bytes` are those of output `out`. */
static void judge(guard_state *g, entry *e, uint32_t out, xl_elem elem, const void *bytes, size_t n, const char *how)
{
    xl_finite f = xl_finite_of(elem, bytes, n < READ_MAX ? n : READ_MAX);
    uint32_t device = out / e->nout;
    if (!f.nan && !f.inf)
        return;
    char where[48] = "";
    if (e->ndevice > 1)
        snprintf(where, sizeof where, " of device %d",
                 device < e->prog->ndevice ? e->prog->device[device] : (int)device);
    fire(g, e, "output %u%s %s %s", out % e->nout, where, how, f.nan ? "NaN" : "Inf");
}

/* Results that the host read anyway: a forward computation is verified against them. */
static void keep_scalar(look *x, const void *bytes)
{
    if (x->e->out[x->out].c || !(x->c = malloc(sizeof *x->c + x->size)))
        return;
    *x->c = (cell){ .ref = 1, .elem = x->elem, .n = x->size };
    memcpy(x->c->bytes, bytes, x->size);
}

static void looked(PJRT_Error *err, void *ctx)
{
    look *x = ctx;
    guard_state *g = x->p->g;
    if (err)
        xl_error_free(guard_take(x->p, err, "PJRT_Event_OnReady"));
    xl_mutex_lock(&R.lock);
    const void *bytes = x->c ? x->c->bytes : x->at;
    if (!err) {
        judge(g, x->e, x->out, x->elem, bytes, x->size, x->c ? "is" : "was read as");
        if (!x->c && x->keep)
            keep_scalar(x, bytes);
        if (x->c && !x->e->out[x->out].c) {
            x->e->out[x->out].c = x->c;
            x->c->ref++;
        }
    }
    cell_unref(x->c);
    entry_unref(x->e);
    xl_mutex_unlock(&R.lock);
    free(x);
}

static void look_when(guard_state *g, look *x, PJRT_Event *event)
{
    PJRT_Event_OnReady_Args r = { .struct_size = sizeof r, .event = event, .callback = looked, .user_arg = x };
    xl_error *err = guard_take(x->p, x->p->real->PJRT_Event_OnReady(&r), "PJRT_Event_OnReady");
    if (!err)
        return;
    guard_fault(g, "looking at a result", err);
    xl_mutex_lock(&R.lock);
    entry_unref(x->e);
    cell_unref(x->c);
    xl_mutex_unlock(&R.lock);
    free(x);
}

/* The entry whose output the buffer is, referred to once more; NULL: none, or it is of no interest. */
static look *look_at(guard_plugin *p, PJRT_Buffer *b)
{
    look *x = NULL;
    PJRT_Buffer_ElementType_Args t = { .struct_size = sizeof t, .buffer = b };
    xl_error *err = guard_take(p, p->real->PJRT_Buffer_ElementType(&t), "PJRT_Buffer_ElementType");
    bool is_float = !err && xl_elem_is_float((xl_elem)t.type);
    xl_error_free(err);
    if (!is_float || R.trigger != NONFINITE)
        return NULL;
    xl_mutex_lock(&R.lock);
    const node *k = *find(b);
    if (k && k->e && (x = calloc(1, sizeof *x))) {
        *x = (look){ .p = p, .e = k->e, .out = k->out, .elem = (xl_elem)t.type };
        k->e->ref++;
    }
    xl_mutex_unlock(&R.lock);
    return x;
}

static bool scalar(guard_plugin *p, PJRT_Buffer *b)
{
    PJRT_Buffer_Dimensions_Args d = { .struct_size = sizeof d, .buffer = b };
    xl_error *err = guard_take(p, p->real->PJRT_Buffer_Dimensions(&d), "PJRT_Buffer_Dimensions");
    xl_error_free(err);
    return !err && d.num_dims == 0;
}

void guard_record_copied(guard_plugin *p, const PJRT_Buffer_ToHostBuffer_Args *a)
{
    guard_state *g = p->g;
    look *x = a->event ? look_at(p, a->src) : NULL;
    if (!x)
        return;
    x->at = a->dst;
    x->size = a->dst_size;
    x->keep = a->dst_size == xl_elem_bytes(x->elem) && scalar(p, a->src);
    look_when(g, x, a->event);
}

/* The host reads the buffer's own memory, once it is ready. */
void guard_record_shared(guard_plugin *p, PJRT_Buffer *b, const void *at, uint64_t bytes)
{
    guard_state *g = p->g;
    PJRT_Buffer_IsOnCpu_Args cpu = { .struct_size = sizeof cpu, .buffer = b };
    PJRT_Buffer_ReadyEvent_Args ready = { .struct_size = sizeof ready, .buffer = b };
    xl_error *err = guard_take(p, p->real->PJRT_Buffer_IsOnCpu(&cpu), "PJRT_Buffer_IsOnCpu");
    look *x = !err && cpu.is_on_cpu && at ? look_at(p, b) : NULL;
    xl_error_free(err);
    if (!x)
        return;
    bool one = scalar(p, b);
    err = guard_take(p, p->real->PJRT_Buffer_ReadyEvent(&ready), "PJRT_Buffer_ReadyEvent");
    if (!err)
        err = await(p, ready.event);
    xl_mutex_lock(&R.lock);
    x->size = xl_elem_bytes(x->elem);
    if (!err) {
        judge(g, x->e, x->out, x->elem, at, bytes, "was read as");
        if (bytes >= x->size && one)
            keep_scalar(x, at);
        if (x->c)
            x->e->out[x->out].c = x->c;
    }
    entry_unref(x->e);
    xl_mutex_unlock(&R.lock);
    xl_error_free(err);
    free(x);
}

/* --capture-check: outputs that nobody reads, where they are small. */
static void check_outputs(guard_plugin *p, entry *e)
{
    guard_state *g = p->g;
    for (uint32_t i = 0; i < e->ndevice * e->nout; i++) {
        PJRT_Event *event;
        look *x = device_bytes(p, e->out[i].h) <= SMALL ? look_at(p, e->out[i].h) : NULL;
        if (!x)
            continue;
        xl_error *err = fetch(p, e->out[i].h, &x->c, &event);
        if (err || !event) {
            xl_error_free(err);
            xl_mutex_lock(&R.lock);
            cell_unref(x->c);
            entry_unref(x->e);
            xl_mutex_unlock(&R.lock);
            free(x);
            continue;
        }
        x->size = x->c->n;
        look_when(g, x, event);
        PJRT_Event_Destroy_Args d = { .struct_size = sizeof d, .event = event };
        xl_error_free(guard_take(p, p->real->PJRT_Event_Destroy(&d), "PJRT_Event_Destroy"));
    }
}

void guard_record_after(guard_plugin *p, void *recorded, const PJRT_LoadedExecutable_Execute_Args *args, bool failed)
{
    guard_state *g = p->g;
    entry *e = recorded;
    if (!e)
        return;
    xl_mutex_lock(&R.lock);
    if (failed) {
        entry_unref(e);
        xl_mutex_unlock(&R.lock);
        return;
    }
    for (uint32_t i = 0; i < e->ndevice * e->nout; i++) {
        PJRT_Buffer *h = args->output_lists[i / e->nout][i % e->nout];
        forget(h);                                         /* the address of one that was destroyed unseen */
        node *k = know(h);
        if (k) {
            k->e = e;
            k->out = i;
        }
        e->out[i].h = h;
    }
    if (R.trigger == STEP || R.trigger == SIGNAL) {
        if (R.trigger == STEP) {
            snprintf(R.why, sizeof R.why, "--capture=step:%llu asked for it", (unsigned long long)e->number);
            atomic_store(&g->recording, false);
        } else {
            snprintf(R.why, sizeof R.why, "a signal asked for it");
        }
        xl_mutex_unlock(&R.lock);
        write_capture(g, e);
        xl_mutex_lock(&R.lock);
        R.written++;
        entry_unref(e);
        xl_mutex_unlock(&R.lock);
        return;
    }
    e->order = ++R.order;
    if (R.newest)
        R.newest->next = e;
    else
        R.oldest = e;
    R.newest = e;
    uint32_t same = 0;
    for (entry *x = R.oldest; x; x = x->next)
        same += x->prog == e->prog;
    for (entry **at = &R.oldest; same > R.window && *at; at = &(*at)->next)
        if ((*at)->prog == e->prog) {
            entry *old = *at;
            *at = old->next;
            entry_unref(old);
            break;
        }
    e->ref++;
    xl_mutex_unlock(&R.lock);
    if (R.check)
        check_outputs(p, e);
    xl_mutex_lock(&R.lock);
    entry_unref(e);
    xl_mutex_unlock(&R.lock);
}

static int by_value(const void *x, const void *y)
{
    double a = *(const double *)x, b = *(const double *)y;
    return (a > b) - (a < b);
}

/* The step before the last one that was started took so long. */
void guard_record_took(guard_state *g, const char *module, double seconds)
{
    double sorted[TIMES];
    if (R.trigger != SLOW)
        return;
    xl_mutex_lock(&R.lock);
    uint64_t n = R.ntook < TIMES ? R.ntook : TIMES;
    memcpy(sorted, R.took, n * sizeof *sorted);
    qsort(sorted, n, sizeof *sorted, by_value);
    if (n >= WARM && seconds > 3 * sorted[n / 2]) {
        entry *slow = NULL, *last = NULL;
        for (entry *e = R.oldest; e; e = e->next)
            if (!strcmp(e->prog->module, module)) {
                slow = last;
                last = e;
            }
        if (slow)
            fire(g, slow, "it took %.3g s, the median of those before is %.3g s", seconds, sorted[n / 2]);
    }
    R.took[R.ntook++ % TIMES] = seconds;
    xl_mutex_unlock(&R.lock);
}

void guard_record_forked(guard_state *g)
{
    atomic_store(&g->recording, false);
    xl_mutex_init(&R.lock);
}

void guard_record_end(guard_state *g, bool exits)
{
    if (R.fired)
        write_fired(g);
    else if (exits && atomic_load(&g->recording) && R.trigger == STEP)
        guard_say("capture: no program was executed %llu times, so nothing was captured", (unsigned long long)R.step);
}

void guard_record_start(guard_state *g)
{
    const char *what = getenv("XLANE_CAPTURE"), *every = getenv("XLANE_CAPTURE_EVERY"),
               *most = getenv("XLANE_CAPTURE_MAX"), *check = getenv("XLANE_CAPTURE_CHECK"),
               *module = getenv("XLANE_CAPTURE_MODULE"), *times = getenv("XLANE_CAPTURE_TIMES");
    int64_t n = 0;
    if (!what || !*what)
        return;
    if (!strcmp(what, "nonfinite"))
        R.trigger = NONFINITE;
    else if (!strcmp(what, "signal"))
        R.trigger = SIGNAL;
    else if (!strcmp(what, "slow"))
        R.trigger = SLOW;
    else if (!strncmp(what, "step:", 5) && xl_str_i64(xl_str_of(what + 5), &n) && n > 0)
        R.trigger = STEP;
    else {
        guard_say("XLANE_CAPTURE=%s is not known: it is nonfinite, step:N, signal or slow; nothing is captured", what);
        return;
    }
    R.step = (uint64_t)n;
    R.every = every && xl_str_i64(xl_str_of(every), &n) && n > 0 && n <= 100000 ? (uint64_t)n : 0;
    if (!most || !xl_str_size(xl_str_of(most), &R.max))
        R.max = (uint64_t)16 << 30;
    R.times = times && xl_str_i64(xl_str_of(times), &n) && n > 0 ? (uint64_t)n : 1;
    R.check = check && !strcmp(check, "1");
    R.window = WINDOW;
    snprintf(R.module, sizeof R.module, "%s", module ? module : "");
    if (R.trigger == SIGNAL) {
        struct sigaction old, act = { .sa_handler = on_signal, .sa_flags = SA_RESTART };
        if (sigaction(SIGUSR2, NULL, &old) || old.sa_handler != SIG_DFL) {
            guard_say("capture: the program handles SIGUSR2 itself, so nothing is captured on it");
            return;
        }
        sigaction(SIGUSR2, &act, NULL);
    }
    atomic_store(&g->recording, true);
}
