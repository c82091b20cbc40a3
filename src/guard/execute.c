/* Executions: the hot path. One look-up, two clock reads, a few relaxed additions. */
#include "base/time.h"
#include "guard/guard.h"

/* A step is one execution of the module with the most execute time. Another module may overtake early on; the count then goes
 * on from what that one has done. */
static void count_step(xl_module_metrics *mm)
{
    xl_module_metrics *now = atomic_load_explicit(&G.step_module, memory_order_relaxed);
    if (mm != now) {
        if (now && xl_module_metrics_seconds(mm, XL_M_ExecuteTime) <= xl_module_metrics_seconds(now, XL_M_ExecuteTime))
            return;
        atomic_store_explicit(&G.step_module, mm, memory_order_relaxed);
    }
    uint64_t step = xl_module_metrics_count(mm, XL_M_ExecuteTime);
    atomic_store_explicit(&G.step, step, memory_order_relaxed);
    if ((step & (step - 1)) == 0)                          /* the first steps of a short run count too, and nobody else may look in time */
        guard_memory_now();
    else
        guard_memory_due();
    if (atomic_load_explicit(&G.reads, memory_order_relaxed) == 0) {
        if (atomic_load_explicit(&G.sync_run, memory_order_relaxed))
            atomic_store_explicit(&G.sync_run, 0, memory_order_relaxed);
        return;
    }
    atomic_store_explicit(&G.reads, 0, memory_order_relaxed);
    uint64_t bytes = atomic_exchange_explicit(&G.read_bytes, 0, memory_order_relaxed);
    xl_metrics_count(G.metrics, mm, XL_M_HostSync, 1);
    /* Once is a log line, again and again is a step that waits for the host. */
    if (atomic_fetch_add_explicit(&G.sync_run, 1, memory_order_relaxed) == 4 && !atomic_exchange(&G.sync_said, true)) {
        xl_event e;
        xl_event_begin(G.run, &e, "sync");
        xl_json_put_text(&e.j, "module", xl_module_metrics_name(mm));
        xl_json_put_int(&e.j, "bytes", (int64_t)bytes);
        xl_json_put_int(&e.j, "step", (int64_t)G.step);
        xl_json_put_text(&e.j, "text", "every step reads from the device before the next one starts, so the device waits for the host; "
                                       "read every N steps, or keep the value on the device");
        xl_event_end(G.run, &e);
    }
}

void guard_read(const char *how, uint64_t bytes)
{
    (void)how;
    xl_metrics_count(G.metrics, NULL, XL_M_OutboundData, bytes);
    xl_metrics_count(G.metrics, NULL, XL_M_TransferFromDevice, 1);
    atomic_fetch_add_explicit(&G.reads, 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&G.read_bytes, bytes, memory_order_relaxed);
}

PJRT_Error *guard_execute(guard_plugin *p, PJRT_LoadedExecutable_Execute_Args *args)
{
    exec_info *e = guard_exec_find(args->executable);
    xl_module_metrics *mm = e ? e->metrics : NULL;
    if (e && e->spmd)
        guard_spmd_before(p, e, args);
    double t = xl_now();
    flight *f = guard_takeoff("execute", mm ? xl_module_metrics_name(mm) : "an executable", t);
    PJRT_Error *err = p->real->PJRT_LoadedExecutable_Execute(args);
    xl_metrics_time(G.metrics, mm, XL_M_ExecuteTime, xl_now() - t);
    guard_land(f);
    if (e && e->spmd && !err)
        guard_spmd_after(p, e, args);
    if (mm && !e->eager)
        count_step(mm);
    return err;
}
