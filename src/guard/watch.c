/* The watcher: one thread that sleeps while nothing happens. While calls are under way it names those that hang; after
 * activity it writes the metrics and the devices' memory figures, a few times a second at most. */
#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/file.h"
#include "base/journal.h"
#include "base/time.h"
#include "guard/guard.h"
#include "lane/memory_csv.h"

static _Atomic int asleep;                                 /* the watcher waits on this word while it is 1 */
static _Atomic bool dirty, memory_due;
static xl_journal memory;
static bool memory_open, memory_refused;

/* ---- what the compiler says of a program ---- */
int64_t guard_needs(guard_plugin *p, PJRT_LoadedExecutable *loaded)
{
    PJRT_LoadedExecutable_GetExecutable_Args get = { .struct_size = sizeof get, .loaded_executable = loaded };
    PJRT_Executable_GetCompiledMemoryStats_Args s = { .struct_size = sizeof s };
    if (!PJRT_HAS(p->real, PJRT_Executable_GetCompiledMemoryStats) || !p->real->PJRT_Executable_GetCompiledMemoryStats)
        return -1;
    xl_error *err =
        guard_take(p, p->real->PJRT_LoadedExecutable_GetExecutable(&get), "PJRT_LoadedExecutable_GetExecutable");
    if (err) {
        xl_error_free(err);
        return -1;
    }
    s.executable = get.executable;
    err = guard_take(p, p->real->PJRT_Executable_GetCompiledMemoryStats(&s), "PJRT_Executable_GetCompiledMemoryStats");
    bool told = !err;
    xl_error_free(err); /* a plugin that does not say is no trouble of the program's */
    PJRT_Executable_Destroy_Args d = { .struct_size = sizeof d, .executable = get.executable };
    xl_error_free(guard_take(p, p->real->PJRT_Executable_Destroy(&d), "PJRT_Executable_Destroy"));
    return told ? s.generated_code_size_in_bytes + s.argument_size_in_bytes + s.output_size_in_bytes -
                      s.alias_size_in_bytes + s.temp_size_in_bytes
                : -1;
}

/* ---- calls under way ---- */
flight *guard_takeoff(guard_state *g, const char *what, const char *module, double now)
{
    static _Thread_local uint32_t mine;                    /* where this thread found room the last time */
    guard_watch_stir();
    for (uint32_t k = 0; k < GUARD_FLIGHTS; k++) {
        flight *f = &g->flight[(mine + k) % GUARD_FLIGHTS];
        double free_slot = 0;
        if (atomic_load_explicit(&f->since, memory_order_relaxed) == 0 &&
            atomic_compare_exchange_strong_explicit(&f->since, &free_slot, -1, memory_order_acquire,
                                                    memory_order_relaxed)) {
            mine = (mine + k) % GUARD_FLIGHTS;
            atomic_store_explicit(&f->module, module, memory_order_relaxed);
            atomic_store_explicit(&f->what, what, memory_order_relaxed);
            atomic_store_explicit(&f->said, false, memory_order_relaxed);
            atomic_store_explicit(&f->since, now, memory_order_release);
            return f;
        }
    }
    return NULL;
}

void guard_land(flight *f)
{
    if (f)
        atomic_store_explicit(&f->since, 0, memory_order_release);
}

static bool look_for_hangs(guard_state *g)
{
    bool any = false;
    double now = xl_now();
    for (uint32_t i = 0; i < GUARD_FLIGHTS; i++) {
        flight *f = &g->flight[i];
        double since = atomic_load_explicit(&f->since, memory_order_acquire);
        if (since <= 0)
            continue;
        any = true;
        if (now - since < g->hang_after || f->said)
            continue;
        const char *what = f->what, *module = f->module;
        f->said = true;
        if (atomic_load_explicit(&f->since, memory_order_acquire) != since)
            continue;                                      /* it came back while we looked */
        xl_event e;
        xl_event_begin(g->run, &e, "hang");
        xl_json_put_text(&e.j, "what", what);
        xl_json_put_text(&e.j, "module", module);
        xl_json_put_num(&e.j, "seconds", now - since);
        xl_event_end(g->run, &e);
        guard_say("%s of %s has not returned for %.0f s (process %d)", what, module, now - since, (int)getpid());
    }
    return any;
}

/* ---- files ---- */
/* Where this process keeps its counters for a scraper: the file that was named belongs to the first process of the run
 * that has any; another one's has its process number before the ending ("lane.prom", "lane-4711.prom"). */
static bool scraper_file(const char *dir, const char *named, char *out, size_t room)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static int owner;                                      /* the process that asked last, after a fork another one */
    static bool mine;
    if (pthread_mutex_trylock(&lock)) /* another thread is at it, or was when this process was forked */
        return false;
    if (owner != (int)getpid()) {
        char mark[4200];
        snprintf(mark, sizeof mark, "%s/scraped", dir);
        int fd = *dir ? xl_file_open(mark, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW, 0600) : -1;
        mine = fd >= 0 || !*dir || errno != EEXIST;
        owner = (int)getpid();
        if (fd >= 0)
            close(fd);
    }
    const char *slash = strrchr(named, '/'), *dot = strrchr(slash ? slash : named, '.');
    size_t stem = dot ? (size_t)(dot - named) : strlen(named);
    if (mine)
        snprintf(out, room, "%s", named);
    else
        snprintf(out, room, "%.*s-%d%s", (int)stem, named, owner, dot ? dot : "");
    pthread_mutex_unlock(&lock);
    return true;
}

bool guard_write_metrics(guard_state *g)
{
    bool written = false;
    const char *dir = xl_run_dir(g->run), *prom = getenv("XLANE_PROMETHEUS");
    char path[4200];
    xl_buf b = { 0 };
    xl_json j = { .out = &b };
    if (xl_run_there(g->run)) {
        snprintf(path, sizeof path, "%s/metrics-%d.json", dir, (int)getpid());
        xl_metrics_json(g->metrics, &j);
        xl_error *err = b.failed ? XL_ERR(EXHAUSTED, "out of memory") : xl_file_write_quick(path, xl_buf_view(&b));
        written = !err;
        xl_error_free(err);
        b.n = 0;
        if (g->steps && g->step) {
            xl_json k = { .out = &b };
            snprintf(path, sizeof path, "%s/steps-%d.json", dir, (int)getpid());
            xl_steps_json(g->steps, xl_now() - xl_run_time(g->run), &k);
            if (!b.failed)
                xl_error_free(xl_file_write_quick(path, xl_buf_view(&b)));
        }
        guard_frames_trim(g);
    }
    b.n = 0;
    if (prom && *prom) {
        xl_metrics_prometheus(g->metrics, xl_run_rank(g->run), (int)getpid(), &b);
        if ((!*dir || xl_run_there(g->run)) && scraper_file(dir, prom, path, sizeof path) && !b.failed)
            xl_error_free(xl_file_write_shown(path, xl_buf_view(&b)));
    }
    xl_buf_fini(&b);
    return written;
}

void guard_memory_due(void)
{
    if (!atomic_load_explicit(&memory_due, memory_order_relaxed))
        atomic_store_explicit(&memory_due, true, memory_order_relaxed);
}

/* Where the plugin can reset a device's peak (PJRT 0.106), it is reset at each sample, which gives the peak of the
 * steps between two samples. What it was before is kept, so that the frontend sees no reset that it did not ask for.
 * Under peak_lock. */
enum { PEAKS = 256 };
static struct { PJRT_Device *device; int64_t peak; bool cannot; } kept[PEAKS];
static uint32_t nkept;
static xl_mutex peak_lock = { PTHREAD_MUTEX_INITIALIZER };

static uint32_t kept_of(PJRT_Device *d)
{
    uint32_t i = 0;
    while (i < nkept && kept[i].device != d)
        i++;
    if (i == nkept && nkept < PEAKS) {
        memset(&kept[nkept], 0, sizeof kept[nkept]);
        kept[nkept++].device = d;
    }
    return i;                                              /* PEAKS: no room, then nothing is reset */
}

static PJRT_Error *read_stats(guard_plugin *p, PJRT_Device_MemoryStats_Args *s, bool reset, int64_t *since)
{
    xl_mutex_lock(&peak_lock);
    PJRT_Error *err = p->real->PJRT_Device_MemoryStats(s);
    uint32_t k = err || !s->peak_bytes_in_use_is_set ? PEAKS : kept_of(s->device);
    *since = -1;
    if (k < PEAKS) {
        int64_t peak = s->peak_bytes_in_use;
        if (kept[k].peak > peak)
            s->peak_bytes_in_use = kept[k].peak;
        if (reset && !kept[k].cannot && PJRT_HAS(p->real, PJRT_Device_ClearMemoryStats) &&
            p->real->PJRT_Device_ClearMemoryStats) {
            PJRT_Device_ClearMemoryStats_Args c = { .struct_size = sizeof c, .device = s->device };
            PJRT_Error *no = p->real->PJRT_Device_ClearMemoryStats(&c);
            kept[k].cannot = no != NULL;
            if (no)
                p->real->PJRT_Error_Destroy(
                    &(PJRT_Error_Destroy_Args){ .struct_size = sizeof(PJRT_Error_Destroy_Args), .error = no });
            else
                *since = peak;
            kept[k].peak = s->peak_bytes_in_use;
        }
    }
    xl_mutex_unlock(&peak_lock);
    return err;
}

PJRT_Error *guard_memory_stats(guard_plugin *p, PJRT_Device_MemoryStats_Args *a)
{
    int64_t since;
    return read_stats(p, a, false, &since);
}

PJRT_Error *guard_memory_clear(guard_plugin *p, PJRT_Device_ClearMemoryStats_Args *a)
{
    xl_mutex_lock(&peak_lock);
    PJRT_Error *err = p->real->PJRT_Device_ClearMemoryStats(a);
    uint32_t k = kept_of(a->device);
    if (!err && k < PEAKS)
        kept[k].peak = 0;
    xl_mutex_unlock(&peak_lock);
    return err;
}

void guard_memory_forget(guard_plugin *p, PJRT_Client *client)
{
    PJRT_Client_AddressableDevices_Args d = { .struct_size = sizeof d, .client = client };
    PJRT_Error *err = p->real->PJRT_Client_AddressableDevices(&d);
    if (err) {
        p->real->PJRT_Error_Destroy(
            &(PJRT_Error_Destroy_Args){ .struct_size = sizeof(PJRT_Error_Destroy_Args), .error = err });
        return;
    }
    xl_mutex_lock(&peak_lock);
    for (size_t i = 0; i < d.num_addressable_devices; i++)
        for (uint32_t k = 0; k < nkept; k++)
            if (kept[k].device == d.addressable_devices[i])
                kept[k] = kept[--nkept];
    xl_mutex_unlock(&peak_lock);
}

/* Physical devices, one line each. A plugin that cannot answer is named once, with the call. Under client_lock. */
static void sample_memory(guard_state *g)
{
    PJRT_Client *client = g->client;
    guard_plugin *p = g->client_plugin;
    const char *dir = xl_run_dir(g->run);
    if (!client || !p || !*dir || memory_refused)
        return;
    if (!memory_open) {
        memory_open = true;
        if (xl_run_there(g->run))
            xl_error_free(xl_memory_csv_create(&memory, dir, true));
    }
    PJRT_Client_AddressableDevices_Args d = { .struct_size = sizeof d, .client = client };
    if (!memory.path || p->real->PJRT_Client_AddressableDevices(&d))
        return;
    xl_buf b = { 0 };
    for (size_t i = 0; i < d.num_addressable_devices; i++) {
        PJRT_Device_MemoryStats_Args s = { .struct_size = sizeof s, .device = d.addressable_devices[i] };
        int64_t since;
        PJRT_Error *err = read_stats(p, &s, true, &since);
        if (err) {
            PJRT_Error_Message_Args m = { .struct_size = sizeof m, .error = err };
            p->real->PJRT_Error_Message(&m);
            xl_event e;
            memory_refused = true;
            xl_event_begin(g->run, &e, "memory");
            xl_json_put_text(&e.j, "call", "PJRT_Device_MemoryStats");
            xl_json_put_text(&e.j, "plugin", p->path);
            xl_json_put_str(&e.j, "error", (xl_str){ m.message, m.message_size });
            xl_event_end(g->run, &e);
            p->real->PJRT_Error_Destroy(
                &(PJRT_Error_Destroy_Args){ .struct_size = sizeof(PJRT_Error_Destroy_Args), .error = err });
            break;
        }
        xl_memory_csv_put(&b, xl_run_rank(g->run), (int)getpid(), (int64_t)i,
                          &(xl_memory_row){ .t = xl_run_time(g->run),
                                            .step = (int64_t)g->step,
                                            .in_use = s.bytes_in_use,
                                            .peak = s.peak_bytes_in_use_is_set ? s.peak_bytes_in_use : -1,
                                            .limit = s.bytes_limit_is_set ? s.bytes_limit : -1,
                                            .largest = s.largest_alloc_size_is_set ? s.largest_alloc_size : -1,
                                            .since = since });
    }
    if (b.n && !b.failed)
        xl_journal_add(&memory, xl_buf_view(&b), 1);
    xl_buf_fini(&b);
}

void guard_memory_now(guard_state *g)
{
    xl_mutex_lock(&g->client_lock);
    sample_memory(g);
    xl_mutex_unlock(&g->client_lock);
}

/* ---- the thread ---- */
void guard_watch_stir(void)
{
    if (!atomic_load_explicit(&dirty, memory_order_relaxed))
        atomic_store_explicit(&dirty, true, memory_order_relaxed);
    if (atomic_load_explicit(&asleep, memory_order_relaxed) && atomic_exchange(&asleep, 0))
        syscall(SYS_futex, (int *)&asleep, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
}

static void write_files(void *unused)
{
    guard_state *g = guard_current();
    (void)unused;
    guard_write_metrics(g);
    guard_ahead_write(g, false);
}

static void watch(void *unused)
{
    guard_state *g = guard_current();
    double written = 0;
    (void)unused;
    for (;;) {
        bool busy = look_for_hangs(g);
        guard_profile_look(g);
        if (atomic_exchange_explicit(&memory_due, false, memory_order_relaxed))
            guard_memory_now(g);
        if (xl_now() - written > 2 && atomic_exchange_explicit(&dirty, false, memory_order_relaxed)) {
            xl_file_apart(write_files, NULL);
            written = xl_now();
            busy = true;
        }
        if (busy || atomic_load_explicit(&dirty, memory_order_relaxed) || xl_now() - written < 2.5) {
            xl_sleep(0.2);
            continue;
        }
        atomic_store(&asleep, 1);
        if (!atomic_load(&dirty))
            syscall(SYS_futex, (int *)&asleep, FUTEX_WAIT_PRIVATE, 1, NULL, NULL, 0);
        atomic_store(&asleep, 0);
    }
}

void guard_watch_start(guard_state *g)
{
    static xl_thread t;
    xl_error *err = xl_thread_start(&t, "xlane-watch", watch, NULL);
    if (err)
        guard_fault(g, "starting the watcher", err);
}
