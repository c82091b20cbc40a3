/* A compile: contract, policy, cache, then the plugin. */
#include "guard/compile.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/time.h"
#include "lane/identity.h"
#include "lane/placement.h"

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

static xl_str options_of(const guard_compiling *c)
{
    return (xl_str){ c->args->compile_options, c->args->compile_options_size };
}

static PJRT_LoadedExecutable *load(guard_state *g, guard_compiling *c, const xl_cache_found *f)
{
    PJRT_LoadedExecutable *loaded;
    xl_error *err = guard_load(c->p, c->args->client, f, options_of(c), &loaded);
    if (!err)
        return loaded;
    xl_cache_drop(g->cache, &c->key, xl_error_message(err));
    guard_fault(g, "loading a cached executable", err);
    return NULL;
}

static void store(guard_state *g, guard_compiling *c, double seconds)
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
            static const char call[] = "PJRT_Executable_Serialize: ";
            const char *why = xl_error_message(err);
            snprintf(c->refused, sizeof c->refused, "%s",
                     why + (strncmp(why, call, sizeof call - 1) ? 0 : sizeof call - 1));
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
static void gathered(guard_state *g, guard_compiling *c)
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
    static const char devices[] = "xla_force_host_platform_device_count";
    const char *then = "set it before the program starts", *more = "";
    if (words.n && memmem(words.p, words.n, devices, sizeof devices - 1))
        more = "; the number of embedded CPU devices is XLANE_CPU_DEVICES";
    xl_buf text = { 0 };
    xl_buf_printf(&text, "changed after the plugin was initialised: it has no effect; %s%s", then, more);
    xl_json_put_str(&e.j, "text", xl_buf_view(&text));
    xl_event_end(g->run, &e);
    guard_say("a flag changed after the plugin was initialised and has no effect: %.*s; %s%s",
              XL_FMT(xl_buf_view(&words)), then, more);
    xl_buf_fini(&text);
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

static PJRT_LoadedExecutable *look(guard_state *g, guard_compiling *c, xl_cache_found *found)
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
static PJRT_LoadedExecutable *look_together(guard_state *g, guard_compiling *c, xl_cache_found *found)
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
static PJRT_LoadedExecutable *look_alone(guard_state *g, guard_compiling *c, xl_cache_found *found, xl_lease *lease,
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
static PJRT_Error *differing(guard_state *g, guard_compiling *c)
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
                guard_report(g, c, "stopped", 0, NULL, why.p);
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
static PJRT_Error *refuse(guard_state *g, guard_compiling *c)
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
        guard_report(g, c, "stopped", 0, NULL, text.p);
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
static PJRT_Error *admit(guard_state *g, guard_compiling *c, bool *known)
{
    PJRT_Error *out = NULL;
    xl_error *err = xl_arena_call(guard_examine, c);
    *known = !err;
    if (err)
        guard_fault(g, "examining a compile", err);
    if (*known && g->contracts) {
        xl_mutex_lock(&g->compile_lock);
        err = xl_arena_call(guard_judge, c);
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
static void made(guard_state *g, guard_compiling *c, xl_module_metrics *named, const char *how, double seconds,
                 const xl_cache_found *found)
{
    xl_metrics_time(g->metrics, named, strcmp(how, "cached") ? XL_M_CompileTime : XL_M_LoadTime, seconds);
    guard_exec_add(c->p, c->args->executable, xl_str_of(c->name), c->helper, c->spmd);
    if (guard_recording(g))
        guard_record_program(c->p, c->args, c->name);
    if (found)
        store(g, c, seconds);
    c->needs = guard_needs(c->p, c->args->executable);
    guard_report(g, c, how, seconds, found, NULL);
    gathered(g, c);
}

/* From the cache, or by the plugin. */
static PJRT_Error *produce(guard_state *g, guard_compiling *c, bool cache)
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
        guard_say("%s is compiled again: its cache entry %s: %s%s", c->name,
                  found.removed ? "was removed earlier" : "cannot be used", found.detail,
                  found.removed ? "" : "; `xlane cache verify` checks the others");
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
            guard_report(g, c, "failed", seconds, cache ? &found : NULL, text.p ? text.p : "");
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
    guard_compiling c = { .p = p, .args = args, .needs = -1 };
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
