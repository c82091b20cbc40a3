/* The executables that we have seen made, by their handles. */
#include "guard/guard.h"

#include <stdio.h>
#include <stdlib.h>

static uint32_t hash_of(const void *handle) { return xl_table_hash((uintptr_t)handle); }

exec_info *guard_exec_find(guard_state *g, const void *handle)
{
    static _Thread_local struct {
        const void *handle;
        exec_info *found;
        uint64_t changes;
    } last;
    exec_info *found = NULL;
    if (last.handle == handle && last.changes == atomic_load_explicit(&g->exec_changes, memory_order_acquire))
        return last.found; /* a step runs the same executable again and again */
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
    if (at != UINT32_MAX) { /* the last one takes its place */
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
