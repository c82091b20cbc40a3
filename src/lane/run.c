#include "lane/run.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/file.h"
#include "base/journal.h"
#include "base/proc.h"
#include "base/time.h"
#include "base/word.h"
#include "lane/gaps.h"
#include "lane/kept.h"

struct xl_run {
    char *dir;
    xl_journal events;
    xl_path_id id;                                         /* of the folder */
    _Atomic int rank;
    double began;                                          /* on the clock of xl_now() */
};

xl_error *xl_run_make(xl_arena *a, const char *parent, const char *name, char **path)
{
    enum { LONGEST = 100 };                                /* of a name: a folder's has 255 bytes at most */
    xl_error *err = NULL;
    char stamp[XL_TIME_ISO];
    xl_time_name(xl_now_wall(), stamp);
    XL_DO(xl_error_next(xl_dir_make(parent), "--runs=DIR names another folder"));
    xl_buf clean = { 0 };
    const char *whole = name && *name ? name : "run";
    for (const char *c = whole; *c && c - whole < LONGEST; c++)
        xl_buf_putc(&clean, (*c >= '0' && *c <= '9') || (*c >= 'A' && *c <= 'Z') || (*c >= 'a' && *c <= 'z') ||
                                    *c == '.' || *c == '-' || *c == '_' ? *c : '-');
    for (int k = 1; k < 10000; k++) {
        char suffix[16] = "";
        if (k > 1)
            snprintf(suffix, sizeof suffix, "-%d", k);
        *path = xl_path_join(a, parent, xl_strf(a, "%s-%s%s", stamp, clean.p, suffix).p);
        if (mkdir(*path, 0700) == 0)
            break;
        if (errno != EEXIST || k == 9999) {
            err = XL_ERR(UNAVAILABLE, "making %s: %s; --runs=DIR names another folder", *path, strerror(errno));
            break;
        }
    }
    xl_buf_fini(&clean);
out:
    return err;
}

static int rank_from_environment(void)
{
    static const char *const names[] = { "RANK",      "SLURM_PROCID", "OMPI_COMM_WORLD_RANK",
                                         "PMIX_RANK", "PMI_RANK",     "JAX_PROCESS_ID" };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const char *v = getenv(names[i]);
        int64_t rank;
        if (v && xl_str_i64(xl_str_of(v), &rank) && rank >= 0 && rank < 1 << 30)
            return (int)rank;
    }
    return 0;
}

/* When the folder was made: t = 0 for all processes of the run, also for one that resumes it later. Where the file
 * system does not keep that, the time in the folder's name, to the second. */
static double born(const char *dir)
{
    struct statx x;
    struct tm tm = { 0 };
    if (statx(AT_FDCWD, dir, 0, STATX_BTIME, &x) == 0 && (x.stx_mask & STATX_BTIME))
        return (double)x.stx_btime.tv_sec + (double)x.stx_btime.tv_nsec * 1e-9;
    const char *name = xl_path_base(xl_str_of(dir)).p;
    if (name && sscanf(name, "%4d%2d%2d-%2d%2d%2d", &tm.tm_year, &tm.tm_mon, &tm.tm_mday, &tm.tm_hour, &tm.tm_min,
                       &tm.tm_sec) == 6) {
        tm.tm_year -= 1900;
        tm.tm_mon -= 1;
        return (double)timegm(&tm);
    }
    return xl_now_wall();
}

/* The monotonic clock is one for all processes of a boot of a host; elsewhere the wall clock has to do. */
static void boot_id(char out[40])
{
    xl_arena a = { .limit = 1 << 16 };
    xl_str id = { "", 0 };
    xl_error_free(xl_file_read_max(&a, "/proc/sys/kernel/random/boot_id", 4096, &id));
    snprintf(out, 40, "%.*s", XL_FMT(xl_str_trim(id)));
    xl_arena_fini(&a);
}

const char *xl_run_clock(char out[96])
{
    char boot[40];
    boot_id(boot);
    snprintf(out, 96, "%.6f %.6f %s", xl_now_wall(), xl_now(), boot);
    return out;
}

static double began(const char *dir)
{
    const char *told = getenv("XLANE_RUN_BEGAN");
    double wall = 0, mono = 0, now = xl_now();
    char boot[40] = "", here[40];
    int n = told && *told ? sscanf(told, "%lf %lf %39s", &wall, &mono, boot) : 0;
    boot_id(here);
    if (n == 3 && here[0] && !strcmp(boot, here) && mono <= now)
        return mono;
    if (n < 1)
        wall = dir ? born(dir) : xl_now_wall();
    double age = xl_now_wall() - wall;
    return now - (age > 0 ? age : 0);
}

xl_error *xl_run_open(const char *dir, xl_run **out)
{
    xl_error *err = NULL;
    *out = NULL;
    xl_run *r = calloc(1, sizeof *r);
    if (!r || !(r->dir = strdup(dir ? dir : ""))) {
        free(r);
        return XL_ERR(EXHAUSTED, "out of memory");
    }
    r->rank = rank_from_environment();
    r->began = began(dir);
    if (dir && *dir) {
        char path[4096];                                   /* no arena: this runs in other people's processes too */
        snprintf(path, sizeof path, "%s/events.jsonl", dir);
        err = xl_journal_open(&r->events, path, (xl_str){ 0 }, true);
        if (!xl_path_identify(dir, &r->id))
            r->id = (xl_path_id){ 0 };
    }
    *out = r;                                              /* usable even then: it records nothing */
    return err;
}

void xl_run_close(xl_run *r)
{
    if (!r)
        return;
    xl_journal_close(&r->events);
    free(r->dir);
    free(r);
}

bool xl_run_there(const xl_run *r) { return *r->dir && xl_path_is(r->dir, &r->id); }
const char *xl_run_dir(const xl_run *r) { return r->dir; }
int xl_run_rank(const xl_run *r) { return r->rank; }
void xl_run_set_rank(xl_run *r, int rank) { r->rank = rank; }
double xl_run_time(const xl_run *r) { return xl_now() - r->began; }
bool xl_run_flush(xl_run *r) { return xl_journal_flush(&r->events); }
uint64_t xl_run_lost(xl_run *r) { return r->events.path ? xl_journal_missing(&r->events) : r->events.lost; }

void xl_event_begin(const xl_run *r, xl_event *e, const char *event)
{
    *e = (xl_event){ 0 };
    e->j.out = &e->line;
    xl_json_map(&e->j);
    double t = xl_run_time(r);
    xl_json_key(&e->j, "t");
    xl_json_num(&e->j, (double)(int64_t)(t * 1e6) * 1e-6);
    xl_json_put_int(&e->j, "rank", xl_run_rank(r));
    xl_json_put_int(&e->j, "pid", getpid());
    xl_json_put_text(&e->j, "event", event);
}

void xl_event_end(xl_run *r, xl_event *e)
{
    xl_json_end(&e->j);
    xl_buf_putc(&e->line, '\n');
    if (!e->line.failed)
        xl_journal_add(&r->events, xl_buf_view(&e->line), 1);
    else
        r->events.lost++;
    xl_buf_fini(&e->line);
}

static int by_time(const void *a, const void *b)
{
    const xl_node *x = *(xl_node *const *)a, *y = *(xl_node *const *)b;
    double s = xl_node_get(x, "t") ? xl_node_get(x, "t")->f : 0, t = xl_node_get(y, "t") ? xl_node_get(y, "t")->f : 0;
    return s < t ? -1 : s > t ? 1 : x->line < y->line ? -1 : x->line > y->line;
}

xl_error *xl_run_read(xl_arena *a, const char *dir, xl_run_log *out)
{
    xl_error *err = NULL;
    xl_str text;
    char *path = xl_path_join(a, dir, "events.jsonl");
    size_t cap = 0;
    uint32_t line = 0;
    xl_kept_file file;
    const xl_run_log *kept = xl_kept_find(a, path, &file);
    *out = kept ? *kept : (xl_run_log){ 0 };
    if (kept)
        return NULL;
    if (access(path, F_OK) && errno == ENOENT)
        return XL_ERR(NOT_FOUND,
                      "%s is missing, and what ran is recorded there alone: copy the whole folder of the run, or run "
                      "the program again",
                      path);
    XL_TRY(xl_file_read(a, path, &text), "reading what was recorded");
    bool ends = text.n && text.p[text.n - 1] == '\n';
    while (text.n) {
        xl_str one = xl_str_cut(&text, '\n');
        xl_node *node;
        line++;
        if (!one.n)
            continue;
        xl_error *bad = xl_json_read(a, path, one, &node);
        if (bad || node->kind != XL_NODE_MAP) {            /* torn by a crash or a full disk: the rest still counts */
            xl_error_free(bad);
            out->cut = !text.n && !ends;
            out->unread += !out->cut;
            continue;
        }
        node->line = line;
        XL_PUSH(a, out->event, out->n, cap, node);
    }
    if (out->n)
        qsort(out->event, out->n, sizeof *out->event, by_time);
    xl_run_log *whole = xl_new(a, xl_run_log, 1);
    *whole = *out;
    xl_kept_add(a, &file, whole);
out:
    return err;
}

xl_error *xl_run_events(xl_arena *a, const char *dir, xl_node ***events, size_t *n)
{
    xl_run_log log;
    xl_error *err = xl_run_read(a, dir, &log);
    *events = log.event;
    *n = log.n;
    return err;
}

static bool has(xl_arena *a, const char *dir, xl_run_part part)
{
    xl_node **e = NULL;
    xl_str *names = NULL;
    size_t n = 0;
    if (part != XL_RUN_COMPILES) {
        bool programs = part == XL_RUN_PROGRAMS;
        xl_error_free(xl_dir_list(a, programs ? xl_path_join(a, dir, "programs") : dir, &names, &n));
        for (size_t i = 0; i < n; i++)
            if (programs ? xl_str_ends(names[i], XL_STR(".zst")) : xl_str_starts(names[i], XL_STR("metrics-")))
                return true;
        return false;
    }
    xl_error_free(xl_run_events(a, dir, &e, &n));
    for (size_t k = 0; k < n; k++) {
        const xl_node *what = xl_node_get(e[k], "event");
        if (what && xl_str_is(what->s, "compile"))
            return true;
    }
    return false;
}

enum { SECOND = sizeof "20260101-120000" - 1 };

/* Names begin with the time, to the second; those of one second are put in the order in which they were made. */
static xl_error *in_time(xl_arena *a, const char *runs, xl_str **names, size_t *n)
{
    xl_error *err = xl_dir_list(a, runs, names, n);
    for (size_t i = 1; i < *n; i++) {
        xl_str it = (*names)[i];
        double made = 0;
        size_t k = i;
        for (; k > 0 && !strncmp((*names)[k - 1].p, it.p, SECOND); k--) {
            made = made ? made : born(xl_path_join(a, runs, it.p));
            if (born(xl_path_join(a, runs, (*names)[k - 1].p)) <= made)
                break;
            (*names)[k] = (*names)[k - 1];
        }
        (*names)[k] = it;
    }
    return err;
}

const char *xl_run_newest(xl_arena *a, const char *dir, xl_run_part part)
{
    enum { LOOKED = 50 };
    xl_str *names = NULL, own = xl_path_base(xl_str_of(dir));
    size_t n = 0;
    const char *runs = xl_str_c(a, xl_path_dir(xl_str_of(dir)));
    xl_error_free(in_time(a, runs, &names, &n));
    for (size_t i = n, looked = 0; i-- > 0 && looked < LOOKED;) {
        char *other = xl_path_join(a, runs, xl_str_c(a, names[i]));
        if (xl_str_eq(names[i], own) || !xl_file_stat(xl_path_join(a, other, "events.jsonl"), NULL))
            continue;
        looked++;
        if (has(a, other, part))
            return other;
    }
    return NULL;
}

bool xl_run_loaded(xl_arena *a, const char *dir)
{
    xl_node **e = NULL;
    size_t n = 0;
    int loaded = 0, others = 0;
    xl_error_free(xl_run_events(a, dir, &e, &n));
    for (size_t i = 0; i < n; i++) {
        const xl_node *what = xl_node_get(e[i], "event"), *result = xl_node_get(e[i], "result");
        if (!what || !result || !xl_str_is(what->s, "compile"))
            continue;
        loaded += xl_str_is(result->s, "loaded");
        others += !xl_str_is(result->s, "loaded");
    }
    return loaded && !others;
}

/* `part` stands in `name` from a dash (or the start) to a dash (or the end): "train" in "20261118-005107-train-2", not
 * "ra". */
static bool has_part(xl_str name, xl_str part)
{
    for (size_t i = 0; part.n && i + part.n <= name.n; i++)
        if ((i == 0 || name.p[i - 1] == '-') && (i + part.n == name.n || name.p[i + part.n] == '-') &&
            !memcmp(name.p + i, part.p, part.n))
            return true;
    return false;
}

/* The newest run whose name has that within it; names begin with their time. */
static xl_str nearest(xl_arena *a, const char *runs, const xl_str *names, size_t n, xl_str word)
{
    xl_str best = { "", 0 };
    for (size_t i = 0; i < n && word.n >= 3; i++)
        if (memmem(names[i].p, names[i].n, word.p, word.n) && xl_str_cmp(names[i], best) > 0 &&
            xl_run_is(a, xl_path_join(a, runs, xl_str_c(a, names[i]))))
            best = names[i];
    return best;
}

/* Killed very early, a run has only one of them. */
bool xl_run_is(xl_arena *a, const char *dir)
{
    return xl_file_stat(xl_path_join(a, dir, "events.jsonl"), NULL) ||
           xl_file_stat(xl_path_join(a, dir, "config.yaml"), NULL) ||
           xl_file_stat(xl_path_join(a, dir, "run.json"), NULL);
}

bool xl_run_trained(xl_arena *a, const char *dir)
{
    xl_run_info about = xl_run_about(a, dir);
    const xl_node *kind = xl_node_get(about.json, "kind");
    return kind ? xl_str_is(kind->s, "train") : !about.json && xl_file_stat(xl_path_join(a, dir, "config.yaml"), NULL);
}

/* The run of `xlane run -- xlane train`, beside this one, in which this one was made; NULL: none. */
static char *outer_of(xl_arena *a, const char *dir)
{
    const xl_node *within = xl_node_get(xl_run_about(a, dir).json, "within");
    if (!within || !within->s.n)
        return NULL;
    xl_str beside = xl_path_dir(xl_str_of(dir));
    char *outer = xl_path_join(a, xl_str_c(a, beside), xl_str_c(a, xl_path_base(within->s)));
    return xl_run_is(a, outer) ? outer : NULL;
}

const char *xl_runs_folder(void)
{
    const char *runs = getenv("XLANE_RUNS");
    return runs && *runs ? runs : "runs";
}

static const char BY_RUN[] = "xlane run -- CMD", BY_TRAIN[] = "xlane train";

static xl_error *list_runs(xl_arena *a, const char *runs, const char *maker, xl_str **names, size_t *n)
{
    xl_file_info info;
    *names = NULL;
    *n = 0;
    if (xl_file_stat(runs, &info) && !info.dir)
        return XL_ERR(INVALID, "%s is a file, and runs are kept in a folder; XLANE_RUNS=DIR names another", runs);
    if (access(runs, F_OK) && errno != EACCES)
        return strcmp(runs, xl_runs_folder())
                   ? XL_ERR(NOT_FOUND, "there is no folder %s; runs are looked for in %s unless another is named", runs,
                            xl_runs_folder())
                   : XL_ERR(NOT_FOUND, "there is no folder %s here; `%s` makes it, or give the folder of a run", runs,
                            maker);
    xl_error *err = in_time(a, runs, names, n);
    return err ? xl_error_next(xl_error_wrap(err, "looking for runs"), "XLANE_RUNS=DIR names another folder") : NULL;
}

xl_error *xl_runs_list(xl_arena *a, const char *runs, xl_str **names, size_t *n)
{
    return list_runs(a, runs, BY_RUN, names, n);
}

bool xl_run_denied(xl_arena *a, const char *dir)
{
    return access(xl_path_join(a, dir, "run.json"), F_OK) && errno == EACCES;
}

static xl_error *find(xl_arena *a, const char *word, const char *maker, char **dir)
{
    const char *runs = xl_runs_folder();
    if (!*word)
        return xl_error_misuse(XL_ERR(
            INVALID, "a run is asked for by an empty name; `last` is the newest, `xlane runs` lists them all"));
    if (strcmp(word, "last")) {
        char *tries[] = { xl_str_c(a, xl_str_of(word)), xl_path_join(a, runs, word) };
        for (int i = 0; i < 2; i++)
            if (xl_run_is(a, tries[i])) {
                *dir = tries[i];
                return NULL;
            }
        /* A whole part of a name will do when it fits exactly one: the time, or what the run was called. */
        xl_str *names = NULL;
        size_t n = 0, hits = 0;
        xl_file_info info;
        if (xl_file_stat(runs, &info) && !info.dir)
            return list_runs(a, runs, maker, &names, &n);
        xl_error *unread = xl_dir_list(a, runs, &names, &n);
        for (int i = 0; i < 2; i++)
            if (xl_run_denied(a, tries[i])) {
                xl_error_free(unread);
                return XL_ERR(PERMISSION, "reading the run %s: Permission denied; ask its owner", tries[i]);
            }
        if (xl_error_code(unread) == XL_CODE_PERMISSION)
            return xl_error_next(unread, "XLANE_RUNS=DIR names another folder, and a run is also found by its path");
        xl_error_free(unread);
        const char *closed = NULL;
        for (size_t i = 0; i < n; i++) {
            char *d = xl_path_join(a, runs, xl_str_c(a, names[i]));
            if (!has_part(names[i], xl_str_of(word)))
                continue;
            if (xl_run_is(a, d)) {
                *dir = d;
                hits++;
            } else if (xl_run_denied(a, d)) {
                closed = d;
            }
        }
        if (hits == 1)
            return NULL;
        if (!hits && closed)
            return XL_ERR(PERMISSION, "reading the run %s: Permission denied; ask its owner", closed);
        if (!n)
            return xl_error_misuse(XL_ERR(
                NOT_FOUND, "no run folder called '%s', and no runs in %s yet; `%s` makes one", word, runs, maker));
        xl_str near = hits ? (xl_str){ 0 } : nearest(a, runs, names, n, xl_str_of(word));
        return xl_error_misuse(XL_ERR(
            NOT_FOUND, "%s run folder called '%s'%s%.*s; `xlane runs` lists them, `last` is the newest",
            hits ? "more than one" : "no", word, near.n ? "; the newest with that in its name is " : "", XL_FMT(near)));
    }
    xl_str *names;
    size_t n, denied = 0;
    xl_error *err = list_runs(a, runs, maker, &names, &n);
    if (err)
        return err;
    for (size_t i = n; i-- > 0;) {
        char *d = xl_path_join(a, runs, xl_str_c(a, names[i])), *outer = NULL;
        if (xl_run_is(a, d)) {
            outer = outer_of(a, d);
            *dir = outer ? outer : d;
            return NULL;
        }
        denied += xl_run_denied(a, d);
    }
    if (denied)
        return XL_ERR(PERMISSION,
                      "no run in %s can be read: Permission denied; ask their owner, or XLANE_RUNS=DIR names "
                      "another folder",
                      runs);
    return XL_ERR(NOT_FOUND, "no runs in %s; make one with `%s`", runs, maker);
}

xl_error *xl_run_find(xl_arena *a, const char *word, char **dir) { return find(a, word, BY_RUN, dir); }

xl_error *xl_run_find_trained(xl_arena *a, const char *word, char **dir)
{
    xl_error *err = find(a, word, BY_TRAIN, dir);
    if (err || xl_run_trained(a, *dir))
        return err;
    xl_str *names = NULL, runs = xl_path_dir(xl_str_of(*dir));
    size_t n = 0;
    xl_error_free(xl_dir_list(a, xl_str_c(a, runs), &names, &n));
    for (size_t i = n; i-- > 0 && strncmp(names[i].p, xl_path_base(xl_str_of(*dir)).p, SECOND) >= 0;) {
        char *d = xl_path_join(a, xl_str_c(a, runs), xl_str_c(a, names[i])), *outer = outer_of(a, d);
        if (outer && xl_str_eq(xl_path_base(xl_str_of(outer)), xl_path_base(xl_str_of(*dir)))) {
            *dir = d;
            break;
        }
    }
    return NULL;
}

xl_run_info xl_run_about(xl_arena *a, const char *dir)
{
    xl_run_info info = { .profile = XL_STR("none") };
    xl_node *root = NULL;
    xl_error *err = xl_kept_json(a, xl_path_join(a, dir, "run.json"), &root);
    if (!err) {
        const xl_node *profile = xl_node_get(root, "profile"), *diagnostic = xl_node_get(root, "diagnostic");
        info.json = root;
        if (profile && profile->kind == XL_NODE_STR)
            info.profile = profile->s;
        const xl_node *by = xl_node_get(root, "diagnostic_by");
        info.diagnostic = diagnostic && diagnostic->b;
        info.switches = by && by->kind == XL_NODE_STR ? by->s : (xl_str){ "", 0 };
        const xl_node *guard = xl_node_get(xl_node_get(root, "environment"), "XLANE_GUARD");
        info.unguarded = guard && xl_str_is(guard->s, "off");
    }
    xl_error_free(err);
    return info;
}

/* The process of an event, and not a later one that was given its number. */
static bool goes_on(const char *dir, const xl_node *e, const char *key)
{
    static const double apart = 2; /* of the two clocks, and of a folder made beside the process */
    int64_t pid = xl_node_int(e, key, 0);
    return pid > 0 && xl_pid_alive(pid) && xl_pid_started(pid) < born(dir) + xl_node_num(e, "t", 0) + apart;
}

/* Of the command and the guarded processes: one that still goes on, and one that came to its end by itself; 0: none. */
static void processes(xl_arena *a, const char *dir, int64_t *going, int64_t *left)
{
    xl_node **e = NULL;
    size_t n = 0;
    xl_error_free(xl_run_events(a, dir, &e, &n));
    for (size_t i = 0; i < n; i++) {
        const xl_node *what = xl_node_get(e[i], "event"), *pid = xl_node_get(e[i], "pid");
        if (!what || !pid || pid->i <= 0)
            continue;
        if (xl_str_is(what->s, "exit"))
            *left = pid->i;
        if (xl_str_is(what->s, "attach") && goes_on(dir, e[i], "pid"))
            *going = pid->i;
        if (xl_str_is(what->s, "command") && goes_on(dir, e[i], "program"))
            *going = xl_node_int(e[i], "program", 0);
    }
}

/* How long a training run went on, by its events: from each start or resumption to the stop, or to the last word
 * before the next one. */
static double trained_for(const xl_run_log *log)
{
    double began = -1, last = 0, sum = 0;
    for (size_t i = 0; i < log->n; i++) {
        const xl_node *e = log->event[i];
        double t = xl_node_num(e, "t", 0);
        bool again = xl_node_is(e, "event", "resume"), stop = xl_node_is(e, "event", "stop");
        if (xl_node_int(e, "rank", 0))
            continue;
        if (again || (began < 0 && xl_node_is(e, "event", "start"))) {
            sum += began >= 0 ? last - began : 0;
            began = again ? t : 0;                         /* the folder was made at 0 */
        }
        if (stop && began >= 0) {
            sum += t - began;
            began = -1;
        }
        last = t;
    }
    return began >= 0 ? sum + last - began : sum;
}

/* "ladder, 13 of 13 passed, 1 skipped"; empty: it is none. */
static xl_str ladder_state(xl_arena *a, const char *dir, double *seconds)
{
    xl_node *root = NULL;
    xl_error_free(xl_kept_json(a, xl_path_join(a, dir, "ladder.json"), &root));
    const xl_node *rungs = xl_node_get(root, "rungs");
    size_t passed = 0, skipped = 0;
    if (!rungs || !rungs->n)
        return (xl_str){ "", 0 };
    for (size_t i = 0; i < rungs->n; i++) {
        passed += xl_node_is(rungs->kid[i], "verdict", "passed");
        skipped += xl_node_is(rungs->kid[i], "verdict", "skipped");
    }
    *seconds = xl_node_num(root, "seconds", 0);
    return xl_strf(a, "ladder, %zu of %zu passed%s", passed, rungs->n - skipped,
                   skipped ? xl_strf(a, ", %zu skipped", skipped).p : "");
}

xl_run_end xl_run_end_of(xl_arena *a, const char *dir)
{
    const xl_node *json = xl_run_about(a, dir).json, *status = xl_node_get(json, "status"),
                  *why = xl_node_get(json, "end"), *seconds = xl_node_get(json, "seconds"), *last = NULL, *n;
    xl_run_end r = { .known = xl_node_get(json, "ended") != NULL };
    xl_run_log log;
    xl_error_free(xl_run_read(a, dir, &log));
    for (size_t i = log.n; i-- > 0 && !last;) {
        const xl_node *what = xl_node_get(log.event[i], "event");
        if (what && xl_str_is(what->s, "attempt"))         /* what ended before it was an earlier one */
            break;
        if (what && xl_str_is(what->s, "end"))
            last = log.event[i];
    }
    r.signal = (n = xl_node_get(last, "signal")) ? n->i : 0;
    if (!r.known && last && (n = xl_node_get(json, "launcher")) && n->i > 0 && !xl_pid_alive(n->i)) {
        r.known = r.unwritten = true;
        status = xl_node_get(last, "status");
        seconds = xl_node_get(last, "t");
    }
    r.has_status = status != NULL;
    r.status = status ? status->i : 0;
    r.seconds = seconds ? seconds->f : trained_for(&log);
    if (!json && ladder_state(a, dir, &r.seconds).n)
        r.known = true;
    if (why && why->kind == XL_NODE_STR)
        r.why = why->s;
    return r;
}

bool xl_run_going(xl_arena *a, const char *dir)
{
    const xl_node *json = xl_run_about(a, dir).json, *pid = xl_node_get(json, "launcher");
    if (xl_run_end_of(a, dir).known)
        return false;
    if (pid && pid->i > 0 && xl_pid_alive(pid->i))
        return true;
    xl_node **e = NULL;
    size_t n = 0;
    xl_error_free(xl_run_events(a, dir, &e, &n));
    for (size_t i = 0; i < n; i++)
        if (goes_on(dir, e[i], "pid") || (xl_node_is(e[i], "event", "command") && goes_on(dir, e[i], "program")))
            return true;
    return false;
}

xl_str xl_run_state(xl_arena *a, const char *dir, bool *going)
{
    xl_run_end end = xl_run_end_of(a, dir);
    bool there = xl_run_about(a, dir).json != NULL, running = there && !end.known && xl_run_going(a, dir);
    if (going)
        *going = running;
    double took;
    xl_str ladder = there ? (xl_str){ "", 0 } : ladder_state(a, dir, &took);
    if (ladder.n)
        return ladder;
    if (!there)
        return XL_STR("unknown: no run.json that can be read");
    if (running)
        return XL_STR("running");
    if (!end.known)
        return XL_STR("cut off: no end was recorded");
    return end.signal       ? xl_strf(a, "signal %lld (%s)", (long long)end.signal, strsignal((int)end.signal))
           : end.why.n      ? end.why
           : end.has_status ? xl_strf(a, "exit status %lld", (long long)end.status)
                            : XL_STR("ended");
}

/* Of `xlane train`, which has no launcher that outlives it. */
static xl_str trained_unended(xl_arena *a, const char *dir, xl_str began)
{
    if (xl_run_going(a, dir))
        return xl_strf(a, "it began at %.*s and trains on", XL_FMT(began));
    return xl_strf(a,
                   "it began at %.*s, and nothing recorded how it ended: `xlane train` was killed, ended by a second "
                   "signal, or could not write; `xlane resume %s` goes on from the newest checkpoint, or from step 0",
                   XL_FMT(began), xl_word_of(a, dir));
}

xl_str xl_run_unended(xl_arena *a, const char *dir)
{
    xl_run_info info = xl_run_about(a, dir);
    const xl_node *pid = xl_node_get(info.json, "launcher"), *began = xl_node_get(info.json, "began");
    xl_run_end end = xl_run_end_of(a, dir);
    if (end.unwritten && end.signal)
        return xl_strf(a, "it was ended by signal %lld (%s), and run.json could not be written then",
                       (long long)end.signal, strsignal((int)end.signal));
    if (end.unwritten)
        return xl_strf(a, "it ended with status %lld, and run.json could not be written then", (long long)end.status);
    if (!end.known && xl_node_is(info.json, "kind", "train"))
        return trained_unended(a, dir, xl_node_text(info.json, "started"));
    if (!pid || pid->i <= 0 || end.known)
        return (xl_str){ "", 0 };
    if (xl_pid_alive(pid->i))
        return xl_strf(a, "it began at %.*s and has not ended: `xlane run` is process %lld",
                       XL_FMT(began ? began->s : XL_STR("?")), (long long)pid->i);
    int64_t going = 0, left = 0;
    processes(a, dir, &going, &left);
    if (going)
        return xl_strf(a,
                       "it began at %.*s and `xlane run` (process %lld) is gone, but its process %lld goes on: `xlane "
                       "top` shows it; how it ends will not be recorded",
                       XL_FMT(began ? began->s : XL_STR("?")), (long long)pid->i, (long long)going);
    if (left)
        return xl_strf(a,
                       "it began at %.*s, `xlane run` (process %lld) was killed or could not write, and its process "
                       "%lld came to its end by itself, with a status that nothing recorded: see what it printed; "
                       "`xlane explain` has what was seen until then",
                       XL_FMT(began ? began->s : XL_STR("?")), (long long)pid->i, (long long)left);
    return xl_strf(
        a,
        "it began at %.*s, and nothing recorded how it ended: `xlane run` (process %lld) was killed or could not "
        "write, and its program ended with it or later; see the system's log (dmesg) and the room in the run's "
        "folder, then start it again",
        XL_FMT(began ? began->s : XL_STR("?")), (long long)pid->i);
}

xl_str xl_run_mark(xl_arena *a, const char *dir)
{
    xl_run_info info = xl_run_about(a, dir);
    xl_str gaps = xl_run_gaps_of(a, dir).text, none = { "", 0 };
    xl_str by = info.switches.n ? xl_strf(a, "%.*s, set in the environment", XL_FMT(info.switches))
                                : xl_strf(a, "profile %.*s", XL_FMT(info.profile));
    xl_str diagnostic = info.diagnostic ? xl_strf(a,
                                                  "DIAGNOSTIC RUN (%.*s): its switches cost time; do not compare its "
                                                  "timings\n",
                                                  XL_FMT(by))
                                        : none;
    return !gaps.n ? diagnostic
                   : xl_strf(a, "%.*sINCOMPLETE RECORD (%.*s): %.*s\n", XL_FMT(diagnostic),
                             XL_FMT(xl_path_base(xl_str_of(dir))), XL_FMT(gaps));
}
