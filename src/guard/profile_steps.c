/* Profiling some steps from outside. `xlane profile-steps` leaves a file in the run folder (or XLANE_PROFILE_STEPS is
 * set); the watcher sees it and arms the guard. From the start of the first step asked for to the end of the last,
 * every execution is noted, and the plugin's own profiler (PJRT's profiler extension) runs where it has one. Two files
 * come of it: profile-<pid>.json and, from the plugin, profile-<pid>.xplane.pb. While nothing is asked for an execution
 * costs one load more. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/file.h"
#include "base/proto.h"
#include "base/time.h"
#include "guard/guard.h"
#include "pjrt/profiler.h"

/* ---- the plugin's profiler -------------------------------------------------------------------------------------- */
static const PJRT_Profiler_Api *profiler_of(const PJRT_Api *real)
{
    const PJRT_Extension_Base *e = real->extension_start;
    for (int n = 0; e && n < 1000; n++, e = e->next)
        if (e->type == PJRT_Extension_Type_Profiler && e->struct_size >= sizeof(PJRT_Profiler_Layer)) {
            const PJRT_Profiler_Api *api = ((const PJRT_Profiler_Layer *)e)->api;
            return api && api->struct_size >= sizeof *api ? api : NULL;
        }
    return NULL;
}

/* ---- what is noted -------------------------------------------------------------------------------------------------
 * */
enum { SLICES_MAX = 1 << 16 };
enum { IDLE, ARMED, RUNNING, WRITING };
typedef struct {
    const char *module;
    uint64_t step;
    double start, back;
    _Atomic double done;
} slice;

static struct {
    _Atomic int state;
    _Atomic uint64_t first, last;
    _Atomic uint32_t n, waiting; /* slices; those whose device has not answered */
    slice *slice;
    guard_plugin *plugin;
    const PJRT_Profiler_Api *api;
    void *profiler;
    char request[64];  /* the newest that was seen */
    char trouble[512]; /* what the plugin's profiler said */
} P;

static bool failed(const char *what, void *err)
{
    if (!err)
        return false;
    PJRT_Profiler_Error_Args m = { .struct_size = sizeof m, .priv = P.api->priv, .error = err };
    P.api->error_message(&m);
    snprintf(P.trouble, sizeof P.trouble, "%s: %.*s", what, (int)(m.message ? m.message_size : 0),
             m.message ? m.message : "");
    m.struct_size = PJRT_PROFILER_DESTROY_SIZE;
    P.api->error_destroy(&m);
    return true;
}

static void profiler_start(guard_plugin *p)
{
    /* tensorflow.ProfileOptions: version 1, host tracer level 2, device tracer level 1, with HLO protos */
    static const char options[] = { 0x28, 1, 0x10, 2, 0x18, 1, 0x38, 1 };
    P.api = profiler_of(p->real);
    P.trouble[0] = 0;
    if (!P.api)
        return;
    PJRT_Profiler_Create_Args c = { .struct_size = sizeof c, .options = options, .options_size = sizeof options };
    if (failed("create", P.api->create(&c)))
        return;
    PJRT_Profiler_Plain_Args s = { .struct_size = sizeof s, .profiler = c.profiler };
    if (failed("start", P.api->start(&s)))
        P.api->destroy(&s);
    else
        P.profiler = c.profiler;
}

/* How many of the bytes are fields: XLA's profiler gives a zero more than the XSpace has, and readers refuse it. */
static size_t without_end(const uint8_t *bytes, size_t n)
{
    xl_proto r = xl_proto_of((xl_str){ (const char *)bytes, n });
    xl_proto_field f;
    size_t size = 0;
    bool more = true;
    while (more) {
        xl_error *err = xl_proto_next(&r, &f, &more);
        if (err)
            more = false;
        else
            size = (size_t)(r.p - r.start);
        xl_error_free(err);
    }
    return n - size > 1 ? n : size;
}

/* The bytes of an XSpace, in malloc'ed memory; NULL: none. Asked without a buffer, a profiler says how long they are;
 * XLA's has them in a buffer of its own by then and writes to no other, one that has none writes to ours when it is
 * asked again. */
static uint8_t *profiler_stop(size_t *n)
{
    uint8_t *bytes = NULL;
    *n = 0;
    if (!P.profiler)
        return NULL;
    PJRT_Profiler_Plain_Args s = { .struct_size = sizeof s, .profiler = P.profiler };
    PJRT_Profiler_Collect_Args c = { .struct_size = sizeof c, .profiler = P.profiler };
    if (!failed("stop", P.api->stop(&s)) && !failed("collect", P.api->collect_data(&c)) && c.size &&
        (bytes = malloc(c.size))) {
        if (c.buffer)
            memcpy(bytes, c.buffer, c.size);
        else {
            c.buffer = bytes;
            if (failed("collect", P.api->collect_data(&c))) {
                free(bytes);
                bytes = NULL;
            }
        }
        *n = bytes ? without_end(bytes, c.size) : 0;
    }
    P.api->destroy(&s);
    P.profiler = NULL;
    return bytes;
}

static void write_down(guard_state *g)
{
    const char *dir = xl_run_dir(g->run);
    char path[4200];
    size_t nspace;
    xl_buf b = { 0 };
    xl_json j = { .out = &b };
    double began = xl_now() - xl_run_time(g->run), until = xl_now() + 2;
    while (atomic_load(&P.waiting) && xl_now() < until)
        xl_sleep(0.001);
    uint8_t *space = profiler_stop(&nspace);
    uint32_t n = atomic_load(&P.n);
    if (n > SLICES_MAX)
        n = SLICES_MAX;
    xl_json_map(&j);
    xl_json_put_text(&j, "request", P.request);
    xl_json_put_int(&j, "pid", getpid());
    xl_json_put_int(&j, "rank", xl_run_rank(g->run));
    xl_json_put_int(&j, "first", (int64_t)P.first);
    xl_json_put_int(&j, "last", (int64_t)P.last);
    xl_json_put_text(&j, "plugin", P.plugin ? P.plugin->path : "");
    xl_json_put_bool(&j, "profiler", P.api != NULL);
    if (P.trouble[0])
        xl_json_put_text(&j, "trouble", P.trouble);
    xl_json_put_int(&j, "xspace_bytes", (int64_t)nspace);
    xl_json_key(&j, "slices"); /* module, step (0: none), start, return, done; seconds of the run */
    xl_json_list(&j);
    for (uint32_t i = 0; i < n; i++) {
        slice *s = &P.slice[i];
        double done = atomic_load(&s->done);
        xl_json_list(&j);
        xl_json_text(&j, s->module);
        xl_json_int(&j, (int64_t)s->step);
        xl_json_num(&j, s->start - began);
        xl_json_num(&j, s->back - began);
        xl_json_num(&j, (done > 0 ? done : s->back) - began);
        xl_json_end(&j);
    }
    xl_json_end(&j);
    xl_json_end(&j);
    if (xl_run_there(g->run) && !b.failed) {
        snprintf(path, sizeof path, "%s/profile-%d.xplane.pb", dir, (int)getpid());
        if (space)
            xl_error_free(xl_file_write_quick(path, (xl_str){ (char *)space, nspace }));
        snprintf(path, sizeof path, "%s/profile-%d.json", dir, (int)getpid());
        xl_error_free(xl_file_write_quick(path, xl_buf_view(&b)));
    }
    free(space);
    xl_buf_fini(&b);
    /* The slices stay: a device may still answer for one of them. They are used again by the next request. */
    atomic_store(&g->profiling, false);
    atomic_store(&P.state, IDLE);
}

/* ---- from the execution --------------------------------------------------------------------------------------------
 * */
uint32_t guard_profile_before(guard_plugin *p, xl_module_metrics *mm, bool step, double now)
{
    int armed = ARMED;
    uint64_t number = step ? xl_module_metrics_count(mm, XL_M_ExecuteTime) + 1 : 0;
    if (step && number >= P.first && atomic_load(&P.state) == ARMED &&
        atomic_compare_exchange_strong(&P.state, &armed, WRITING)) {
        P.last = P.last - P.first + number; /* one that is over already is made up for by a later one */
        P.first = number;
        P.plugin = p;
        profiler_start(p);
        atomic_store(&P.n, 0);
        atomic_store(&P.state, RUNNING);
    }
    if (atomic_load(&P.state) != RUNNING)
        return UINT32_MAX;
    uint32_t i = atomic_fetch_add(&P.n, 1);
    if (i >= SLICES_MAX)
        return UINT32_MAX;
    P.slice[i].module = mm ? xl_module_metrics_name(mm) : "an executable";
    P.slice[i].step = number;
    P.slice[i].start = P.slice[i].back = now;
    atomic_store(&P.slice[i].done, 0);
    return i;
}

static void ready(PJRT_Error *err, void *ctx)
{
    slice *s = ctx;
    if (err)
        xl_error_free(guard_take(P.plugin, err, "PJRT_Event_OnReady"));
    atomic_store(&s->done, xl_now());
    atomic_fetch_sub(&P.waiting, 1);
}

void guard_profile_after(guard_plugin *p, uint32_t i, const PJRT_LoadedExecutable_Execute_Args *args, bool ok)
{
    guard_state *g = p->g;
    int running = RUNNING;
    if (i >= SLICES_MAX)
        return;
    slice *s = &P.slice[i];
    uint64_t step = s->step;
    PJRT_Event *done = ok && args->device_complete_events ? args->device_complete_events[0] : NULL;
    s->back = xl_now();
    if (done) {
        PJRT_Event_OnReady_Args r = { .struct_size = sizeof r, .event = done, .callback = ready, .user_arg = s };
        atomic_fetch_add(&P.waiting, 1);
        xl_error *err = guard_take(p, p->real->PJRT_Event_OnReady(&r), "PJRT_Event_OnReady");
        if (err)
            atomic_fetch_sub(&P.waiting, 1);
        xl_error_free(err);
    }
    /* The last one: its device is waited for, once, so that the profile has all of it. */
    if (step && step >= P.last && atomic_compare_exchange_strong(&P.state, &running, WRITING))
        write_down(g);
}

/* ---- from the watcher and at the end -------------------------------------------------------------------------------
 * */
static void arm(guard_state *g, xl_str text)
{
    char word[64];
    int64_t first, last;
    int idle = IDLE;
    text = xl_str_trim(text);
    snprintf(word, sizeof word, "%.*s", XL_FMT(text));
    xl_str rest = text, a = xl_str_cut(&rest, ':'), b = xl_str_cut(&rest, ' ');
    if (!strcmp(word, P.request) || !xl_str_i64(a, &first) || !xl_str_i64(b, &last) || first < 1 || last < first ||
        !atomic_compare_exchange_strong(&P.state, &idle, WRITING))
        return;
    if (!P.slice)
        P.slice = calloc(SLICES_MAX, sizeof *P.slice);
    if (!P.slice || atomic_load(&P.waiting)) {
        atomic_store(&P.state, IDLE);
        return;
    }
    memcpy(P.request, word, sizeof word);
    P.first = (uint64_t)first;
    P.last = (uint64_t)last;
    atomic_store(&P.state, ARMED);
    atomic_store(&g->profiling, true);
}

void guard_profile_look(guard_state *g)
{
    char path[4200], text[64];
    if (!*xl_run_dir(g->run))
        return;
    snprintf(path, sizeof path, "%s/profile.request", xl_run_dir(g->run));
    int fd = access(path, F_OK) == 0 ? xl_file_open(path, O_RDONLY | O_NOFOLLOW, 0) : -1;
    ssize_t n = fd >= 0 ? read(fd, text, sizeof text - 1) : 0;
    if (fd >= 0)
        close(fd);
    if (n > 0)
        arm(g, (xl_str){ text, (size_t)n });
}

void guard_profile_begin(guard_state *g)
{
    const char *steps = getenv("XLANE_PROFILE_STEPS");
    if (steps && *steps && *xl_run_dir(g->run))
        arm(g, xl_str_of(steps));
}

void guard_profile_forked(guard_state *g)
{
    atomic_store(&g->profiling, false);
    atomic_store(&P.waiting, 0);
    atomic_store(&P.state, IDLE);
    P.profiler = NULL;
}

void guard_profile_end(guard_state *g)
{
    int running = RUNNING;
    if (atomic_compare_exchange_strong(&P.state, &running, WRITING))
        write_down(g);
}
