/* Executions: the hot path. One look-up, two clock reads, a few relaxed additions. */
#include <stdlib.h>

#include "base/time.h"
#include "guard/guard.h"

/* A step is one execution of the module with the most execute time. Another module may overtake early on; the count
 * then goes on from what that one has done. */
static void count_step(guard_state *g, xl_module_metrics *mm)
{
    xl_module_metrics *now = atomic_load_explicit(&g->step_module, memory_order_relaxed);
    if (mm != now) {
        if (now && xl_module_metrics_seconds(mm, XL_M_ExecuteTime) <= xl_module_metrics_seconds(now, XL_M_ExecuteTime))
            return;
        atomic_store_explicit(&g->step_module, mm, memory_order_relaxed);
        for (xl_metric_id w = XL_M_StepTime; w <= XL_M_StepHostGap; w++)
            xl_metrics_forget(g->metrics, w);              /* they were of the other one's steps */
    }
    uint64_t step = xl_module_metrics_count(mm, XL_M_ExecuteTime);
    atomic_store_explicit(&g->step, step, memory_order_relaxed);
    if ((step & (step - 1)) == 0) /* the first steps of a short run count too, and nobody else may look in time */
        guard_memory_now(g);
    else
        guard_memory_due();
}

enum { SEVERAL = 5 };                                      /* steps in a row that waited are worth a line */

/* Results that the host may read: a step's, and what helpers computed of them since. What they computed of other values
 * (the next learning rate) waits for no step. Reading one of an earlier step keeps nothing waiting, as the newer step
 * is with the device by then. Both under made_lock. */
static uint64_t made_at(const guard_state *g, const PJRT_Buffer *b) /* GUARD_MADE: it is none of them */
{
    for (uint64_t i = 0; i < g->nmade && i < GUARD_MADE; i++)
        if (g->made[i] == b)
            return i;
    return GUARD_MADE;
}

static void note_made(guard_state *g, const exec_info *e, const PJRT_LoadedExecutable_Execute_Args *args)
{
    PJRT_Buffer *const *out = args->num_devices && args->output_lists ? args->output_lists[0] : NULL;
    uint32_t n = !out ? 0 : e->nout < GUARD_MADE ? e->nout : GUARD_MADE;
    xl_mutex_lock(&g->made_lock);
    bool of_step = !e->helper;
    if (of_step)
        g->nmade = 0;
    for (size_t i = 0; args->num_devices && i < args->num_args && !of_step; i++)
        of_step = made_at(g, args->argument_lists[0][i]) < GUARD_MADE;
    for (uint32_t i = 0; i < n; i++) {
        uint64_t gone = e->helper ? made_at(g, out[i]) : GUARD_MADE; /* a result that was freed had this address */
        if (gone < GUARD_MADE)
            g->made[gone] = of_step ? out[i] : NULL;
        else if (of_step)
            g->made[g->nmade++ % GUARD_MADE] = out[i];
    }
    xl_mutex_unlock(&g->made_lock);
}

static bool made_last(guard_state *g, const PJRT_Buffer *b)
{
    xl_mutex_lock(&g->made_lock);
    bool found = made_at(g, b) < GUARD_MADE;
    xl_mutex_unlock(&g->made_lock);
    return found;
}

/* The line of a step that the host waits for again and again, once. */
static void tell_wait(guard_state *g, const xl_module_metrics *of)
{
    const char *place = atomic_load_explicit(&g->wait_place, memory_order_relaxed);
    xl_event e;
    if (!place || xl_module_metrics_count(of, XL_M_HostWait) != SEVERAL)
        return;
    xl_event_begin(g->run, &e, "wait");
    xl_json_put_text(&e.j, "module", xl_module_metrics_name(of));
    xl_json_put_text(&e.j, "where", place);
    xl_event_end(g->run, &e);
}

/* What the host read since the execution before this one kept this one waiting, and what it reads after the last one
 * none. Told of the module whose result could
 * be read: a loop for training and one for evaluation each have their own count. Once is a log line, again and again is
 * a step that waits for the host. */
static void count_wait(guard_state *g, xl_module_metrics *mm)
{
    xl_module_metrics *before = atomic_load_explicit(&g->ran, memory_order_relaxed);
    uint64_t of = atomic_load_explicit(&g->ran_number, memory_order_relaxed);
    atomic_store_explicit(&g->ran, mm, memory_order_relaxed);
    atomic_store_explicit(&g->ran_number, xl_module_metrics_count(mm, XL_M_ExecuteTime), memory_order_relaxed);
    bool checked = atomic_load_explicit(&g->checks, memory_order_relaxed) &&
                   atomic_exchange_explicit(&g->checks, 0, memory_order_relaxed);
    bool awaited = atomic_load_explicit(&g->awaited, memory_order_relaxed) &&
                   atomic_exchange_explicit(&g->awaited, 0, memory_order_relaxed);
    if (atomic_load_explicit(&g->reads, memory_order_relaxed) == 0) {
        if (before && (checked || awaited))
            xl_metrics_count(g->metrics, before, checked ? XL_M_NanCheck : XL_M_HostWait, 1);
        if (before && awaited && !checked)
            tell_wait(g, before);
        atomic_fetch_add_explicit(&g->unread, 1, memory_order_relaxed);
        return;
    }
    /* An evaluation now and then is no loop that waits. */
    bool soon = atomic_exchange_explicit(&g->unread, 0, memory_order_relaxed) <= 4;
    atomic_store_explicit(&g->reads, 0, memory_order_relaxed);
    uint64_t bytes = atomic_exchange_explicit(&g->read_bytes, 0, memory_order_relaxed);
    if (before && xl_metrics_waited(g->metrics, before, of, soon, SEVERAL)) {
        const char *place = atomic_load_explicit(&g->read_place, memory_order_relaxed);
        xl_event e;
        xl_event_begin(g->run, &e, "sync");
        xl_json_put_text(&e.j, "module", xl_module_metrics_name(before));
        xl_json_put_int(&e.j, "bytes", (int64_t)bytes);
        xl_json_put_int(&e.j, "step", (int64_t)of);
        if (place)
            xl_json_put_text(&e.j, "where", place);
        xl_json_put_text(&e.j, "text",
                         "a result of each of the last 5 steps was read before the next one started, so the device "
                         "waited for the host");
        xl_event_end(g->run, &e);
    }
}

static _Thread_local int checking;
static _Thread_local const char *reading, *waiting;

/* JAX begins to read an array, or to wait for one, on this thread and on that line of the user's; NULL: it has ended.
 * The text stays where it is. */
__attribute__((visibility("default"))) void xlane_guard_reading(const char *place, int waits);
void xlane_guard_reading(const char *place, int waits)
{
    reading = waits ? NULL : place;
    waiting = waits ? place : NULL;
}

/* JAX begins (1) or ends (-1) to look for NaN in a result, on this thread. */
__attribute__((visibility("default"))) void xlane_guard_checks(int change);
void xlane_guard_checks(int change) { checking += change; }

void guard_read(guard_state *g, const PJRT_Buffer *b, uint64_t bytes)
{
    xl_metrics_count(g->metrics, NULL, XL_M_OutboundData, bytes);
    xl_metrics_count(g->metrics, NULL, XL_M_TransferFromDevice, 1);
    if (!made_last(g, b))
        return;
    atomic_fetch_add_explicit(checking ? &g->checks : &g->reads, 1, memory_order_relaxed);
    if (checking)
        return;
    atomic_fetch_add_explicit(&g->read_bytes, bytes, memory_order_relaxed);
    atomic_store_explicit(&g->read_place, reading, memory_order_relaxed);
}

void guard_awaited(guard_state *g, const PJRT_Buffer *b)
{
    if (!made_last(g, b))
        return;
    atomic_fetch_add_explicit(&g->awaited, 1, memory_order_relaxed);
    if (waiting)
        atomic_store_explicit(&g->wait_place, waiting, memory_order_relaxed);
}

/* What may decide a size: one whole number, or an array of booleans that picks elements. */
typedef enum { NOTHING, NUMBER, MASK } sizing;
enum { MASK_MAX = 1 << 16 };
typedef struct { guard_plugin *p; const void *at; size_t size; sizing is; } arrival;

static void keep_number(guard_state *g, sizing is, const void *at, size_t size)
{
    int64_t v = 0;
    int32_t four;
    if (is == MASK) {
        for (size_t i = 0; i < size; i++)
            v += ((const uint8_t *)at)[i] != 0;
    } else if (size == 4) {
        memcpy(&four, at, 4);
        v = four;
    } else {
        memcpy(&v, at, 8);
    }
    uint32_t slot = atomic_fetch_add_explicit(&g->nnumber, 1, memory_order_relaxed) % GUARD_NUMBERS;
    atomic_store_explicit(&g->number_step[slot], g->step, memory_order_relaxed);
    atomic_store_explicit(&g->number_mask[slot], is == MASK, memory_order_relaxed);
    atomic_store_explicit(&g->number[slot], v, memory_order_release);
}

static void arrived(PJRT_Error *err, void *ctx)
{
    arrival *x = ctx;
    if (err)
        xl_error_free(guard_take(x->p, err, "PJRT_Event_OnReady"));
    else
        keep_number(x->p->g, x->is, x->at, x->size);
    free(x);
}

/* One whole number of 32 or 64 bits, as sizes are; or booleans. */
static sizing sizing_of(guard_plugin *p, PJRT_Buffer *b, uint64_t bytes)
{
    PJRT_Buffer_ElementType_Args t = { .struct_size = sizeof t, .buffer = b };
    if (bytes < 2 || bytes > MASK_MAX)
        return NOTHING;
    xl_error *err = guard_take(p, p->real->PJRT_Buffer_ElementType(&t), "PJRT_Buffer_ElementType");
    sizing is = err                                ? NOTHING
                : t.type == PJRT_Buffer_Type_PRED  ? MASK
                : (bytes == 4 || bytes == 8) && t.type >= PJRT_Buffer_Type_S8 && t.type <= PJRT_Buffer_Type_U64 &&
                        guard_type_bytes[t.type] == bytes
                    ? NUMBER
                    : NOTHING;
    xl_error_free(err);
    return is;
}

void guard_copied_number(guard_plugin *p, const PJRT_Buffer_ToHostBuffer_Args *a)
{
    sizing is = a->event ? sizing_of(p, a->src, a->dst_size) : NOTHING;
    arrival *x = is ? malloc(sizeof *x) : NULL;
    if (!x)
        return;
    *x = (arrival){ p, a->dst, a->dst_size, is };
    PJRT_Event_OnReady_Args r = { .struct_size = sizeof r, .event = a->event, .callback = arrived, .user_arg = x };
    xl_error *err = guard_take(p, p->real->PJRT_Event_OnReady(&r), "PJRT_Event_OnReady");
    if (err)
        free(x);
    xl_error_free(err);
}

void guard_shared_number(guard_plugin *p, PJRT_Buffer *b, const void *at, uint64_t bytes)
{
    guard_state *g = p->g;
    PJRT_Buffer_IsOnCpu_Args cpu = { .struct_size = sizeof cpu, .buffer = b };
    PJRT_Buffer_ReadyEvent_Args ready = { .struct_size = sizeof ready, .buffer = b };
    sizing size = at ? sizing_of(p, b, bytes) : NOTHING;
    if (!size)
        return;
    xl_error *err = guard_take(p, p->real->PJRT_Buffer_IsOnCpu(&cpu), "PJRT_Buffer_IsOnCpu");
    if (!err && cpu.is_on_cpu)
        err = guard_take(p, p->real->PJRT_Buffer_ReadyEvent(&ready), "PJRT_Buffer_ReadyEvent");
    if (!err && cpu.is_on_cpu) {
        PJRT_Event_IsReady_Args is = { .struct_size = sizeof is, .event = ready.event };
        PJRT_Event_Destroy_Args gone = { .struct_size = sizeof gone, .event = ready.event };
        err = guard_take(p, p->real->PJRT_Event_IsReady(&is), "PJRT_Event_IsReady");
        if (!err && is.is_ready)
            keep_number(g, size, at, bytes);
        xl_error_free(guard_take(p, p->real->PJRT_Event_Destroy(&gone), "PJRT_Event_Destroy"));
    }
    xl_error_free(err);
}

bool guard_number_read(guard_state *g, int64_t n, bool *mask)
{
    uint32_t all = atomic_load(&g->nnumber);
    for (uint32_t i = 0; i < all && i < GUARD_NUMBERS; i++)
        if (g->number[i] == n && g->number_step[i] == g->step) {
            *mask = g->number_mask[i];
            return true;
        }
    return false;
}

/* A program that compiled and failed when it ran (no memory for its results), the first few times. */
static void failed(guard_state *g, const char *module, const char *text, size_t n)
{
    static atomic_uint told;
    xl_event e;
    if (atomic_fetch_add(&told, 1) >= 8)
        return;
    xl_event_begin(g->run, &e, "execute");
    xl_json_put_text(&e.j, "module", module);
    xl_json_put_int(&e.j, "step", (int64_t)g->step);
    xl_json_put_str(&e.j, "error", (xl_str){ text, n });
    xl_event_end(g->run, &e);
}

/* An execution under way: of a step, or of another program between steps (step 0). */
typedef struct { guard_plugin *p; xl_module_metrics *mm; uint64_t step; double start; } finish;

/* told: by the plugin. Else the call has returned, and that is all that is known. */
static void ended(const finish *f, bool told)
{
    guard_state *g = f->p->g;
    if (!f->step) {
        xl_steps_other_done(g->steps, f->start, xl_now(), told);
        return;
    }
    double busy = xl_steps_done(g->steps, f->step, xl_now(), told);
    if (busy > 0 && f->mm == atomic_load_explicit(&g->step_module, memory_order_relaxed))
        xl_metrics_time(g->metrics, f->mm, XL_M_StepDeviceTime, busy);
}

static void finished(PJRT_Error *err, void *ctx)
{
    finish *f = ctx;
    if (err) {
        xl_error *why = guard_take(f->p, err, "PJRT_Event_OnReady");
        failed(f->p->g, f->mm ? xl_module_metrics_name(f->mm) : "an executable", xl_error_message(why),
               strlen(xl_error_message(why)));
        xl_error_free(why);
    }
    ended(f, true);
    free(f);
}

/* When the device was done with it: where the frontend asks for that event it is also told to us, else the call's
 * return counts. */
static void await_end(finish of, const PJRT_LoadedExecutable_Execute_Args *args)
{
    PJRT_Event *done = args->device_complete_events ? args->device_complete_events[0] : NULL;
    finish *f = done ? malloc(sizeof *f) : NULL;
    if (f) {
        *f = of;
        PJRT_Event_OnReady_Args r = { .struct_size = sizeof r, .event = done, .callback = finished, .user_arg = f };
        xl_error *err = guard_take(of.p, of.p->real->PJRT_Event_OnReady(&r), "PJRT_Event_OnReady");
        if (!err)
            return;
        xl_error_free(err);
        free(f);
    }
    ended(&of, false);
}

static void time_step(guard_plugin *p, xl_module_metrics *mm, const PJRT_LoadedExecutable_Execute_Args *args,
                      double start)
{
    guard_state *g = p->g;
    double took, gap;
    xl_steps_of(g->steps, xl_module_metrics_name(mm), xl_module_metrics_count(mm, XL_M_ExecuteTime) - 1);
    uint64_t step = xl_steps_start(g->steps, start, &took, &gap);
    if (took > 0) {
        if (guard_recording(g))
            guard_record_took(g, xl_module_metrics_name(mm), took);
        xl_metrics_time(g->metrics, mm, XL_M_StepTime, took);
        xl_metrics_time(g->metrics, mm, XL_M_StepHostGap, gap);
    }
    await_end((finish){ p, mm, step, start }, args);
}

PJRT_Error *guard_execute(guard_plugin *p, PJRT_LoadedExecutable_Execute_Args *args)
{
    guard_state *g = p->g;
    exec_info *e = guard_exec_find(g, args->executable);
    xl_module_metrics *mm = e ? e->metrics : NULL;
    if (e && e->spmd)
        guard_spmd_before(p, e, args);
    else if (args->num_devices == 1) /* an op on one device's part of a result reads that part alone */
        for (size_t i = 0; i < args->num_args; i++)
            guard_spmd_read(args->argument_lists[0][i]);
    void *recorded = guard_recording(g) ? guard_record_before(p, e, args) : NULL;
    double t = xl_now();
    uint32_t slice = UINT32_MAX;
    if (atomic_load_explicit(&g->profiling, memory_order_relaxed)) /* before there is a step module, any may be it */
        slice = guard_profile_before(p, mm, mm && !e->helper && (!g->step_module || mm == g->step_module), t);
    flight *f = guard_takeoff(g, "execute", mm ? xl_module_metrics_name(mm) : "an executable", t);
    PJRT_Error *err = p->real->PJRT_LoadedExecutable_Execute(args);
    xl_metrics_time(g->metrics, mm, XL_M_ExecuteTime, xl_now() - t);
    guard_land(f);
    if (err) {
        PJRT_Error_Message_Args m = { .struct_size = sizeof m, .error = err };
        p->real->PJRT_Error_Message(&m);
        failed(g, mm ? xl_module_metrics_name(mm) : "an executable", m.message, m.message_size);
    }
    if (recorded)
        guard_record_after(p, recorded, args, err != NULL);
    if (e && e->spmd && !err)
        guard_spmd_after(p, e, args);
    if (mm && !e->helper) {
        count_step(g, mm);
        count_wait(g, mm);
    }
    if (e && !err)
        note_made(g, e, args);
    if (g->steps && !err) {
        if (mm && !e->helper && mm == atomic_load_explicit(&g->step_module, memory_order_relaxed))
            time_step(p, mm, args, t);
        else if (xl_steps_other(g->steps, t))
            await_end((finish){ p, mm, 0, t }, args);
    }
    if (slice != UINT32_MAX)
        guard_profile_after(p, slice, args, !err);
    return err;
}
