#include "train/loop.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/file.h"
#include "base/journal.h"
#include "base/log.h"
#include "base/secret.h"
#include "base/time.h"
#include "base/version.h"
#include "base/word.h"
#include "lane/collective_error.h"
#include "lane/memory_csv.h"
#include "pjrt/gate.h"
#include "train/placements.h"
#include "train/stop.h"
#include "train/tb.h"

/* ---- signals: the first asks for an end after this step, a second one from a person or a scheduler ends at once ----
 */
static volatile sig_atomic_t asked, ranked; /* ranked: this process is one of several */
static const int heeded[] = { SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGPIPE };
enum { HEEDED = sizeof heeded / sizeof *heeded };

static xl_str second;                    /* what is said at a second one: made before, for a handler may only write */

static void on_signal(int sig)
{
    /* A terminal that is gone says so more than once; a scheduler tells a rank, and its launcher tells it again. */
    if (asked && sig != SIGPIPE && sig != SIGHUP && !(ranked && sig == SIGTERM)) {
        (void)!write(STDERR_FILENO, second.p, second.n);
        _exit(128 + sig);
    }
    if (!asked)
        asked = sig;
}

static void listen(struct sigaction was[HEEDED])
{
    struct sigaction s = { .sa_handler = on_signal };
    asked = 0;
    for (int i = 0; i < HEEDED; i++) {
        sigaction(heeded[i], &s, &was[i]);
        if (i >= 2 && was[i].sa_handler == SIG_IGN) /* nohup, or a parent that wants an error where a pipe is closed */
            sigaction(heeded[i], &was[i], NULL);
    }
}

static void unlisten(struct sigaction was[HEEDED])
{
    for (int i = 0; i < HEEDED; i++)
        sigaction(heeded[i], &was[i], NULL);
}

/* ---- the state of a loop ----------------------------------------------------------------------------------------- */
typedef struct {                         /* a step whose numbers are still on the device */
    xl_array *b;
    xl_fence *done;
    const xl_prepared *p;
    int64_t step;
    int bucket;
    double wall;
    float v[64];
} pending;

enum { PENDING_MAX = 4096 };

typedef struct {
    const xl_config *c;
    xl_arena *a;
    xl_setup s;
    xl_run *run;
    xl_tb *tb;
    xl_data *data;
    xl_saver *saver;
    xl_journal csv, memory;
    xl_buf rows;                         /* of metrics.csv, nrow of them, not handed over yet */
    uint64_t nrow, gone;                 /* gone: rows that a process before this one lost */
    int64_t noted;                       /* the last checkpoint that events.jsonl has */
    FILE *say, *mute;                    /* mute: where other ranks than the first say what that one says */
    xl_job *job;                         /* NULL: this process alone */
    xl_stop *stop;
    bool leads; /* the first rank, or the only one: writes what is written once */
    int lock;
    bool csv_lost;                       /* metrics.csv could not be written, and that was said */
    bool quiet, tty, drawn, refused; /* drawn: sharding.json was written; refused: the device gives no memory figures */
    int64_t step, batches, tokens;
    pending *q;
    uint32_t nq, started;
    double began, last_print, last_loss, eval_loss, skipped;
    int64_t done, left_out, lost_from;   /* as in xl_loop_result */
    int64_t last_step, last_tokens;
    float lr, norm;
    char started_at[XL_TIME_ISO];
    xl_str identity;                     /* of the data */
    struct { const char *what; double seconds; } phase[16]; /* up to the end of the first step, one after the other */
    int nphase;                          /* -1: told */
    double phase_at;
} loop;

/* The time since the last phase was this one's, but for the part of it that is told apart. */
static void phase_done(loop *l, const char *what, double apart)
{
    double now = xl_now();
    if (l->nphase < 0 || l->nphase == (int)(sizeof l->phase / sizeof *l->phase))
        return;
    l->phase[l->nphase].what = what;
    l->phase[l->nphase++].seconds = now - l->phase_at - apart;
    l->phase_at = now;
}

static double phase_apart(loop *l, const char *what, double seconds)
{
    if (l->nphase < 0 || l->nphase == (int)(sizeof l->phase / sizeof *l->phase))
        return 0;
    l->phase[l->nphase].what = what;
    l->phase[l->nphase++].seconds = seconds;
    return seconds;
}

/* Where the time to the end of the first step went: what took a twentieth of a second or more to the people, all of it
 * into the events. */
static void tell_phases(loop *l)
{
    xl_buf b = { 0 };
    double total = 0, small = 0;
    xl_event e;
    for (int i = 0; i < l->nphase; i++)
        total += l->phase[i].seconds;
    xl_event_begin(l->run, &e, "first_step");
    xl_json_put_int(&e.j, "step", l->step);
    xl_json_put_num(&e.j, "seconds", total);
    xl_json_key(&e.j, "phases");
    xl_json_map(&e.j);
    for (int i = 0; i < l->nphase; i++) {
        xl_json_put_num(&e.j, l->phase[i].what, l->phase[i].seconds);
        if (l->phase[i].seconds < 0.05) {
            small += l->phase[i].seconds;
            continue;
        }
        for (const char *c = l->phase[i].what; *c; c++)
            xl_buf_putc(&b, *c == '_' ? ' ' : *c);
        xl_buf_printf(&b, " %.2f s, ", l->phase[i].seconds);
    }
    xl_json_end(&e.j);
    xl_event_end(l->run, &e);
    if (!l->quiet && b.n)
        fprintf(l->say, "%sfirst step after %.2f s: %.*sthe rest %.2f s\n", l->tty ? "\r\033[K" : "", total,
                XL_FMT(xl_buf_view(&b)), small);
    xl_buf_fini(&b);
    l->nphase = -1;
}

static void note_text(loop *l, const char *event, const char *key, const char *text)
{
    xl_event e;
    xl_event_begin(l->run, &e, event);
    xl_json_put_int(&e.j, "step", l->step);
    xl_json_put_text(&e.j, key, text);
    xl_event_end(l->run, &e);
}

/* ---- metrics.csv ------------------------------------------------------------------------------------------------- */
/* A resumed run goes on behind the step of its checkpoint: rows beyond it are written again. */
static xl_error *open_csv(loop *l, const char *dir, int64_t after)
{
    xl_error *err = NULL;
    char *path = xl_path_join(l->a, dir, "metrics.csv");
    xl_buf keep = { 0 }, head = { 0 };
    xl_graph *g = l->s.g[0];
    int64_t rows = 0;
    if (after > 0 && xl_file_stat(path, NULL)) {
        xl_str text, line;
        XL_DO(xl_file_read(l->a, path, &text));
        while (text.n) {
            line = xl_str_cut(&text, '\n');
            xl_str rest = line;
            int64_t step;
            if (xl_str_i64(xl_str_cut(&rest, ','), &step) && step <= after) {
                xl_buf_printf(&keep, "%.*s\n", XL_FMT(line));
                rows++;
            }
        }
    }
    if (rows < after) {
        l->gone = (uint64_t)(after - rows);
        fprintf(l->say,
                "%llu rows of %s up to step %lld are missing: they could not be written before the run was ended\n",
                (unsigned long long)l->gone, path, (long long)after);
    }
    xl_buf_puts(&head, "step");
    for (uint32_t i = 0; i < xl_metric_count(g, XL_STEP_TRAIN); i++)
        for (uint32_t k = 0; i != XL_AT_STEP && k < xl_metric_of(g, XL_STEP_TRAIN, i)->width; k++) {
            const xl_metric_info *m = xl_metric_of(g, XL_STEP_TRAIN, i);
            xl_buf_printf(&head, ",%s%s", xl_metric_name(g, XL_STEP_TRAIN, i), m->how == XL_HOW_LOCAL ? ".local" : "");
            if (m->width > 1)
                xl_buf_printf(&head, "%u", k);
        }
    xl_buf_printf(&head, ",bucket,seconds\n%.*s", XL_FMT(xl_buf_view(&keep)));
    XL_DO(xl_file_write_atomic(path, xl_buf_view(&head))); /* never a moment without the rows so far */
    XL_DO(xl_journal_open(&l->csv, path, (xl_str){ 0 }, false));
out:
    xl_buf_fini(&keep);
    xl_buf_fini(&head);
    return err;
}

static xl_error *log_step(loop *l, const pending *p)
{
    const xl_graph *g = p->p->g;
    uint32_t n = xl_metric_count(g, XL_STEP_TRAIN);
    xl_error *err = xl_metric_check(g, XL_STEP_TRAIN, p->v);
    if (err)
        return err;
    xl_buf_printf(&l->rows, "%lld", (long long)p->step);
    for (uint32_t i = 0; i < n; i++) {
        const xl_metric_info *m = xl_metric_of(g, XL_STEP_TRAIN, i);
        for (uint32_t k = 0; i != XL_AT_STEP && k < m->width; k++) {
            float v = p->v[xl_metric_at(g, XL_STEP_TRAIN, i) + k];
            char tag[128];
            xl_buf_printf(&l->rows, ",%.9g", (double)v);
            if (m->how == XL_HOW_LOCAL)
                snprintf(tag, sizeof tag, "local/rank%d.%u/%s", xl_run_rank(l->run), k,
                         xl_metric_name(g, XL_STEP_TRAIN, i));
            else
                snprintf(tag, sizeof tag, "train/%s", xl_metric_name(g, XL_STEP_TRAIN, i));
            xl_tb_scalar(l->tb, tag, p->step, v);
        }
    }
    xl_buf_printf(&l->rows, ",%d,%.6f\n", p->bucket, p->wall - l->began);
    l->nrow++;
    /* The device counts over the whole run: of the first step here the numbers themselves say it. */
    bool out =
        l->done++ ? p->v[XL_AT_SKIPPED] > l->skipped : !(isfinite(p->v[XL_AT_LOSS]) && isfinite(p->v[XL_AT_GRAD_NORM]));
    l->left_out += out;
    l->lost_from = !out ? 0 : l->lost_from ? l->lost_from : p->step;
    if (out) {
        xl_event e;
        xl_event_begin(l->run, &e, "skipped");
        xl_json_put_int(&e.j, "step", p->step);
        xl_json_put_text(&e.j, "cause", "the loss or its gradient was not finite; the update was left out");
        xl_event_end(l->run, &e);
    }
    l->skipped = p->v[XL_AT_SKIPPED];
    l->last_loss = p->v[XL_AT_LOSS];
    l->lr = p->v[XL_AT_LR];
    l->norm = p->v[XL_AT_GRAD_NORM];
    return NULL;
}

/* Rows go out together, whole; what a full disk does not take now is tried again the next time. */
static void put_rows(loop *l)
{
    if (!l->nrow)
        return;
    if (!l->leads)
        ;
    else if (l->rows.failed)
        l->csv.lost += l->nrow;
    else
        xl_journal_add(&l->csv, xl_buf_view(&l->rows), l->nrow);
    l->rows.n = l->nrow = 0;
    l->rows.failed = false;
}

/* Starts the transfers of what is still on the device; nobody waits for them here. */
static xl_error *fetch(loop *l)
{
    xl_error *err = NULL;
    for (; l->started < l->nq; l->started++) {
        pending *p = &l->q[l->started];
        XL_DO(xl_array_get(p->b, p->v, xl_metric_slots(p->p->g, XL_STEP_TRAIN) * sizeof(float), &p->done));
    }
out:
    return err;
}

/* Takes what has arrived; with `wait` all that was started. */
static xl_error *harvest(loop *l, bool wait)
{
    xl_error *err = NULL;
    uint32_t k = 0;
    for (; k < l->started; k++) {
        bool ready = true;
        if (!wait)
            XL_DO(xl_fence_is_ready(l->q[k].done, &ready));
        if (!ready)
            break;
        XL_TRY(xl_fence_await(l->q[k].done), "step %lld", (long long)l->q[k].step);
        XL_TRY(log_step(l, &l->q[k]), "step %lld", (long long)l->q[k].step);
        xl_fence_free(l->q[k].done);
        xl_array_free(l->q[k].b);
        l->q[k].done = NULL;
        l->q[k].b = NULL;
    }
out:
    memmove(l->q, l->q + k, (l->nq - k) * sizeof *l->q);
    l->nq -= k;
    l->started -= k;
    return err;
}

/* All steps so far are on disk: before their checkpoint is, or a run that is killed and resumed would have rows
 * missing. */
static xl_error *settle(loop *l)
{
    xl_error *err = NULL;
    XL_DO(fetch(l));
    XL_DO(harvest(l, true));
    put_rows(l);
    xl_tb_flush(l->tb);
    if (xl_journal_missing(&l->csv) && !l->csv_lost) {
        l->csv_lost = true;
        fprintf(l->say,
                "%smetrics.csv in %s could not be written: make room there, or name another folder with --runs next "
                "time; its rows are kept and tried again, and training goes on\n",
                l->tty ? "\n" : "", xl_run_dir(l->run));
    }
out:
    return err;
}

/* At the end a disk that is full gets a few seconds; then what is missing is counted. */
static uint64_t missing(loop *l)
{
    uint64_t n = 0;
    for (int turn = 0; turn < 25; turn++) {
        bool all = xl_journal_flush(&l->csv) & xl_journal_flush(&l->memory) & (!l->run || xl_run_flush(l->run));
        xl_tb_flush(l->tb);
        n = l->gone + xl_journal_missing(&l->csv) + xl_journal_missing(&l->memory) + xl_tb_missing(l->tb) +
            (l->run ? xl_run_lost(l->run) : 0);
        if (all && !xl_tb_missing(l->tb))
            break;
        xl_sleep(0.2);
    }
    return n;
}

/* ---- talk -------------------------------------------------------------------------------------------------------- */
static const char *amount(char out[32], double v)
{
    static const char unit[] = " kMGTP";
    int i = 0;
    while (v >= 1000 && i < 5)
        v /= 1000, i++;
    snprintf(out, 32, i ? "%.3g%c" : "%.3g", v, unit[i]);
    return out;
}

static void print_line(loop *l, bool end)
{
    double now = xl_now(), dt = now - l->last_print;
    int64_t ds = l->step - l->last_step;
    if (l->quiet || ds < 1)
        return;
    char rate[32], mem[32];
    double per = dt / (double)ds, left = per * (double)(l->c->steps - l->step), used = 0;
    size_t n = l->s.lane->place.n;
    for (size_t i = 0; i < n; i++) {     /* of the fullest */
        xl_device_memory m;
        if (!l->s.lane->place.dev[i]->local)
            continue;
        xl_error *err = xl_device_memory_read(l->s.lane->place.dev[i], &m);
        used = !err && (double)m.in_use > used ? (double)m.in_use : used;
        xl_error_free(err);
    }
    struct rusage ru;
    getrusage(RUSAGE_SELF, &ru);
    used = used > 0 ? used : (double)ru.ru_maxrss * 1024;
    fprintf(l->say, "%sstep %lld/%lld  loss %.4f  %s tok/s  %.1f ms/step  %sB%s  compiles %llu  left %d:%02d%s",
            l->tty ? "\r\033[K" : "", (long long)l->step, (long long)l->c->steps, l->last_loss,
            amount(rate, (double)(l->tokens - l->last_tokens) / dt), per * 1e3, amount(mem, used),
            n > 1 ? "/device" : "", (unsigned long long)l->s.lane->ncompile, (int)(left / 60), (int)left % 60,
            l->tty && !end ? "" : "\n");
    if (l->left_out > 0 && (!l->tty || end))
        fprintf(l->say, "%lld of %lld steps were skipped: loss or gradient not finite\n", (long long)l->left_out,
                (long long)l->done);
    fflush(l->say);
    l->last_print = now;
    l->last_step = l->step;
    l->last_tokens = l->tokens;
}

/* What each physical device holds, in the form the guard writes too. */
static void note_memory(loop *l)
{
    xl_buf b = { 0 };
    xl_error *err = NULL;
    if (!l->memory.path)
        err = xl_memory_csv_create(&l->memory, xl_run_dir(l->run), l->job);
    for (size_t i = 0; i < l->s.lane->place.n && !err; i++) {
        const xl_device *d = l->s.lane->place.dev[i];
        xl_device_memory m;
        if (!d->local)
            continue;
        err = xl_device_memory_read(d, &m);
        if (!err)
            xl_memory_csv_put(&b, xl_run_rank(l->run), (int)getpid(), d->id,
                              &(xl_memory_row){ .t = xl_run_time(l->run), .step = (int64_t)l->step, .in_use = m.in_use,
                                                .peak = m.peak_in_use, .limit = m.limit, .largest = m.largest_alloc,
                                                .since = -1 });
    }
    if (err && !l->refused) {            /* a device that gives no figures trains as well, and says so once */
        xl_event e;
        l->refused = true;
        xl_event_begin(l->run, &e, "memory");
        xl_json_put_text(&e.j, "call", "PJRT_Device_MemoryStats");
        xl_json_put_text(&e.j, "plugin", l->s.lane->choice.path);
        xl_json_put_text(&e.j, "error", xl_error_message(err));
        xl_event_end(l->run, &e);
    }
    if (!err && b.n && !b.failed)
        xl_journal_add(&l->memory, xl_buf_view(&b), 1);
    xl_error_free(err);
    xl_buf_fini(&b);
}

/* Who holds what, from the buffers of the first step. */
static xl_error *draw(loop *l, const xl_prepared *p, xl_array *const *in, const xl_array *metrics)
{
    if (l->drawn || !p->g->mesh.naxis)
        return NULL;
    l->drawn = true;
    return xl_placement_record(l->s.t, p->g, in, metrics, l->leads ? xl_run_dir(l->run) : NULL);
}

/* ---- evaluation -------------------------------------------------------------------------------------------------- */
static void free_inputs(xl_array **in, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        xl_array_free(in[i]);
}

static xl_error *put_batch(xl_lane *l, const xl_graph *g, const xl_batch *b, xl_array *in[4])
{
    xl_error *err = NULL;
    const int32_t *src[4] = { b->tokens, b->targets, b->segments, b->positions };
    memset(in, 0, 4 * sizeof *in);
    for (uint32_t i = 0; i < g->ninput; i++)
        XL_TRY(xl_lane_put(l, g->input[i].type, &g->input[i].spec, src[i], &in[i]), "sending a batch");
out:
    if (err)
        free_inputs(in, 4);
    return err;
}

static xl_error *evaluate(xl_setup *s, const xl_config *c, int64_t batches, double *nll, int64_t *tokens)
{
    xl_error *err = NULL;
    xl_data *d = NULL;
    double sum = 0;
    *tokens = 0;
    XL_DO(xl_trainer_canary(s->t, s->g[0]));
    XL_DO(xl_data_open(c, true, &d));
    XL_DO(xl_data_start(d, 0));
    for (int64_t i = 0; i < batches; i++) {
        const xl_batch *b;
        const xl_prepared *p;
        xl_array *in[4], *m = NULL;
        float v[64] = { 0 };
        XL_DO(xl_data_next(d, &b));
        XL_DO(xl_trainer_prepare(s->t, s->g[b->bucket], XL_STEP_EVAL, &p));
        XL_DO(xl_metric_global(p->g, XL_STEP_EVAL, (uint32_t)xl_metric_find(p->g, XL_STEP_EVAL, "nll")));
        XL_DO(put_batch(s->lane, p->g, b, in));
        err = xl_trainer_measure(s->t, p, in, &m);
        if (!err)
            err = xl_trainer_metrics(p, m, v);
        free_inputs(in, 4);
        xl_array_free(m);
        if (err)
            goto out;
        sum += (double)v[xl_metric_at(p->g, XL_STEP_EVAL, (uint32_t)xl_metric_find(p->g, XL_STEP_EVAL, "nll"))] *
               (double)b->ntoken;
        *tokens += b->ntoken;
    }
    *nll = *tokens ? sum / (double)*tokens : NAN;
out:
    xl_data_close(d);
    return err;
}

/* Who took part in what the evaluation says: every batch's count was the mesh's, or there would have been an error. */
static xl_participants participants(const xl_graph *g)
{
    const xl_metric_info *m = xl_metric_of(g, XL_STEP_EVAL, (uint32_t)xl_metric_find(g, XL_STEP_EVAL, "nll"));
    xl_participants p = { .n = xl_metric_expects(g, m->axes) };
    xl_axes_text(&g->mesh, m->axes, p.over, sizeof p.over);
    return p;
}

static const char *whole_path(xl_arena *a, const char *path)
{
    char *whole = path ? realpath(path, NULL) : NULL;
    const char *out = whole ? xl_str_c(a, xl_str_of(whole)) : path;
    free(whole);
    return out;
}

/* ---- the run's folder -------------------------------------------------------------------------------------------- */
static xl_error *lock_dir(loop *l, const char *dir)
{
    char *path = xl_path_join(l->a, dir, "lock");
    l->lock = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600);
    if (l->lock < 0)
        return XL_ERR(UNAVAILABLE, "making %s: %s", path, strerror(errno));
    if (flock(l->lock, LOCK_EX | LOCK_NB) && errno == EWOULDBLOCK) /* else the file system has no locks */
        return XL_ERR(PRECONDITION, "another process trains in %s; wait for it, or start a new run", dir);
    return NULL;
}

/* What was typed, as far as the system keeps it. */
static void put_command(xl_arena *a, xl_json *j)
{
    xl_str text = { "", 0 };
    char **argv = NULL;
    size_t n = 0, cap = 0;
    xl_error_free(xl_file_read(a, "/proc/self/cmdline", &text));
    while (text.n)
        XL_PUSH(a, argv, n, cap, (char *)(uintptr_t)xl_str_c(a, xl_str_cut(&text, 0)));
    if (!n)
        return;
    xl_json_key(j, "command");
    xl_json_list(j);
    for (size_t i = 0; i < n; i++)
        xl_json_str(j, xl_secret_arg(a, (int)n, argv, (int)i));
    xl_json_end(j);
}

/* At the start, and again at the end with how it ended and what could not be written down. */
static xl_error *write_run_json(loop *l, const char *dir, const char *ended, uint64_t lost)
{
    xl_buf b = { 0 };
    xl_json j = { .out = &b, .pretty = true };
    char when[XL_TIME_ISO];
    xl_json_map(&j);
    xl_json_put_text(&j, "kind", "train");
    xl_json_put_text(&j, "name", l->c->name);
    xl_json_put_text(&j, "xlane", XL_VERSION);
    if (!l->started_at[0])
        xl_time_iso(xl_now_wall(), l->started_at);
    xl_json_put_text(&j, "started", l->started_at);
    put_command(l->a, &j);
    if (ended) {
        xl_json_put_text(&j, "ended", xl_time_iso(xl_now_wall(), when));
        xl_json_put_text(&j, "end", ended);
        xl_json_put_int(&j, "step", l->step);
        xl_json_put_int(&j, "lost", (int64_t)lost);
        if (lost) {
            xl_json_key(&j, "lost_from");
            xl_json_map(&j);
            xl_json_put_int(&j, "metrics.csv", (int64_t)(l->gone + xl_journal_missing(&l->csv)));
            xl_json_put_int(&j, "memory.csv", (int64_t)xl_journal_missing(&l->memory));
            xl_json_put_int(&j, "events.jsonl", (int64_t)xl_run_lost(l->run));
            xl_json_put_int(&j, "tensorboard", (int64_t)xl_tb_missing(l->tb));
            xl_json_end(&j);
        }
    }
    const char *within = getenv("XLANE_RUN"); /* of `xlane run` */
    if (within && *within)
        xl_json_put_text(&j, "within", within);
    xl_json_put_text(&j, "device", xl_lane_name(l->s.lane));
    xl_json_put_text(&j, "plugin", l->s.lane->choice.path);
    const char *diagnostic = getenv("XLANE_DIAGNOSTIC");
    xl_json_put_text(&j, "profile", getenv("XLANE_PROFILE"));
    xl_json_put_bool(&j, "diagnostic", diagnostic && diagnostic[0] == '1');
    xl_json_put_text(&j, "pattern", l->c->model.pattern);
    xl_json_put_int(&j, "parameters", xl_graph_params(l->s.g[0]));
    if (l->s.mesh.naxis) {
        xl_buf m = { 0 };
        xl_mesh_text(&l->s.mesh, &m);
        xl_json_put_str(&j, "mesh", xl_buf_view(&m));
        xl_buf_fini(&m);
    }
    xl_json_put_text(&j, "data", xl_data_about(l->data));
    if (!l->identity.n)                  /* of when the run began, whatever happens to the file meanwhile */
        l->identity = xl_data_identity(l->a, l->data);
    xl_json_put_str(&j, "data_identity", l->identity);
    xl_json_put_text(&j, "scan", l->s.why[0] ? l->s.why : "over repeated units");
    if (l->s.attention[0])
        xl_json_put_text(&j, "attention", l->s.attention);
    if (l->s.kernels[0])
        xl_json_put_text(&j, "kernels", l->s.kernels);
    xl_json_end(&j);
    xl_error *err = xl_file_write_atomic(xl_path_join(l->a, dir, "run.json"), xl_buf_view(&b));
    xl_buf_fini(&b);
    return err;
}

static void say_mesh(loop *l)
{
    xl_buf b = { 0 };
    char one[32], all[32];
    double each = 0, whole = 0;
    for (uint32_t i = 0; i < 3 * l->s.t->n; i++) {
        size_t n = 0;
        const xl_array *x = l->s.t->buf[i];
        if (xl_elem_size(x->elem, (xl_dims){ x->dims, x->rank }, &n))
            whole += (double)n;
        each += (double)(xl_array_local(x) * xl_elem_bytes(x->elem));
    }
    xl_mesh_text(&l->s.mesh, &b);
    fprintf(l->say, "mesh: %.*s on %zu devices; parameters and optimizer state %sB on each, %sB in one piece\n",
            XL_FMT(xl_buf_view(&b)), l->s.lane->place.n, amount(one, each), amount(all, whole));
    xl_buf_fini(&b);
}

/* Of a commit, not of an attempt. */
static void note_saved(loop *l)
{
    int64_t step = xl_saver_last(l->saver);
    if (step == l->noted || step < 0)
        return;
    xl_event e;
    xl_event_begin(l->run, &e, "checkpoint");
    xl_json_put_int(&e.j, "step", step);
    xl_event_end(l->run, &e);
    l->noted = step;
}

static xl_error *save(loop *l)
{
    xl_progress where = { l->batches, (uint64_t)l->c->seed };
    xl_error *err = xl_saver_wait(l->saver), *now = NULL;
    note_saved(l);
    if (l->job && xl_saver_last(l->saver) == l->step)
        return NULL;                              /* stopped where it had just saved */
    if (l->leads && !xl_journal_flush(&l->csv)) { /* ahead of its rows it would leave a gap in them, were the run killed
                                                     now */
        now = XL_ERR(UNAVAILABLE, "the rows of metrics.csv before step %lld wait for room on the disk",
                     (long long)l->step);
        xl_saver_refuse(l->saver, now);
    } else {
        now = xl_saver_save(l->saver, l->s.t, l->step, &where);
    }
    if (err) /* that was the one before */
        xl_error_free(now);
    else
        err = now;
    if (err) {                           /* a full disk does not end a run */
        char last[64] = "no checkpoint has been written yet";
        if (xl_saver_last(l->saver) >= 0)
            snprintf(last, sizeof last, "the last whole one is that of step %lld", (long long)xl_saver_last(l->saver));
        fprintf(l->say, "%sa checkpoint was not written: %s (training goes on without it; %s)\n", l->tty ? "\n" : "",
                xl_error_message(err), last);
        note_text(l, "checkpoint_failed", "error", xl_error_message(err));
        xl_error_free(err);
    }
    return NULL;
}

/* "20000 bytes of 2026-11-20T00:12:31Z", of xl_data_identity; itself where it is none. */
static xl_str identity_words(xl_arena *a, xl_str identity)
{
    const xl_str size = XL_STR("size "), modified = XL_STR("; modified ");
    int64_t bytes;
    double at;
    char when[XL_TIME_ISO];
    xl_str rest = identity, head = xl_str_cut(&rest, ',');
    const char *time = rest.n ? memmem(rest.p, rest.n, modified.p, modified.n) : NULL;
    if (!time || !xl_str_starts(head, size) || !xl_str_i64((xl_str){ head.p + size.n, head.n - size.n }, &bytes))
        return identity;
    time += modified.n;
    if (!xl_str_f64((xl_str){ time, (size_t)(rest.p + rest.n - time) }, &at))
        return identity;
    return xl_strf(a, "%lld bytes of %s", (long long)bytes, xl_time_iso(at, when));
}

/* The data that a run goes on with should be the data that it began with. */
static void check_data(loop *l, const char *dir)
{
    xl_str before, now = xl_data_identity(l->a, l->data);
    xl_run_info was = xl_run_about(l->a, dir);
    const xl_node *n = was.json ? xl_node_get(was.json, "data_identity") : NULL;
    before = n && n->kind == XL_NODE_STR ? n->s : (xl_str){ 0 };
    if (!before.n || xl_str_eq(before, now))
        return;
    xl_str x = before, y = now, was_of = identity_words(l->a, before), is_of = identity_words(l->a, now);
    bool touched = xl_str_eq(xl_str_cut(&x, ';'), xl_str_cut(&y, ';')); /* all but the time */
    fprintf(l->say, "the training data %s since the run began: %.*s then, %.*s now%s\n",
            touched ? "were written again" : "have changed", XL_FMT(was_of), XL_FMT(is_of),
            touched ? "; size and samples are the same"
                    : "; the losses are not those of a run that was never interrupted");
    xl_event e;
    xl_event_begin(l->run, &e, "data_changed");
    xl_json_put_str(&e.j, "before", before);
    xl_json_put_str(&e.j, "after", now);
    xl_json_put_bool(&e.j, "touched_only", touched);
    xl_event_end(l->run, &e);
}

/* The one that the first rank has found whole: all begin at the same. */
static xl_error *told_checkpoint(loop *l, char **path, int64_t *at)
{
    xl_buf b = { 0 };
    xl_error *err = xl_job_get(l->job, "from", 600, &b);
    xl_str text = xl_buf_view(&b);
    if (!err && !xl_str_i64(xl_str_cut(&text, ' '), at))
        err = XL_ERR(INTERNAL, "rank 0 did not send the step to start from");
    *path = !err && text.n ? xl_str_c(l->a, text) : NULL;
    xl_buf_fini(&b);
    return err;
}

/* The newest whole checkpoint of a run that is resumed; *path NULL: begin at step 0, which has been said. */
static xl_error *find_checkpoint(loop *l, const char *dir, bool from_scratch, bool fresh, char **path, int64_t *at)
{
    xl_buf passed = { 0 };
    if (!l->leads)
        return told_checkpoint(l, path, at);
    xl_error *err = xl_ckpt_newest(l->a, dir, path, at, &passed);
    if (passed.n)
        note_text(l, "checkpoint_damaged", "error", passed.p);
    if (err && from_scratch && xl_error_code(err) == XL_CODE_DATA_LOSS) {
        fprintf(l->say, "%s\n--from-scratch was given: the run begins again at step 0\n", xl_error_message(err));
        xl_error_free(err);
        err = NULL;
    } else if (xl_error_code(err) == XL_CODE_DATA_LOSS) {
        err = xl_ckpt_lost(l->a, dir, err);
    } else if (!err && !*path && !fresh) {
        fprintf(l->say, "%s has no checkpoint yet: it begins at step 0\n", dir);
    }
    if (!err && l->job)
        err = xl_job_put(l->job, "from", xl_strf(l->a, "%lld %s", (long long)*at, *path ? *path : ""));
    xl_buf_fini(&passed);
    return err;
}

/* Something else went wrong (the data, an evaluation, a refused compile): what was trained is kept, if the device still
 * has it. */
static void rescue(loop *l, const char *dir)
{
    if (!l->saver || l->job || l->step <= xl_saver_last(l->saver)) /* the other ranks may be no more */
        return;
    xl_progress where = { l->batches, (uint64_t)l->c->seed };
    xl_error_free(settle(l));            /* the rows up to there */
    xl_error *err = xl_saver_save(l->saver, l->s.t, l->step, &where);
    if (!err)
        err = xl_saver_wait(l->saver);
    note_saved(l);
    if (!err)
        fprintf(l->say, "step %lld is saved; once the cause below is gone, go on with: xlane resume %s\n",
                (long long)l->step, xl_word_of(l->a, dir));
    xl_error_free(err);
}

/* The rate that a careless program would bake into its step; see optimizer.bake_lr. */
static double rate_now(const xl_adamw *o, int64_t t)
{
    double up = fmin(1, (double)t / (double)(o->warmup > 1 ? o->warmup : 1)),
           at = fmax(0, fmin(1, (double)(t - o->warmup) / (double)(o->steps - o->warmup)));
    double shape = !strcmp(o->schedule, "cosine")   ? 0.5 * (1 + cos(M_PI * at))
                   : !strcmp(o->schedule, "linear") ? 1 - at
                                                    : 1;
    return up * (o->min_lr + (o->lr - o->min_lr) * shape);
}

static xl_error *one_step(loop *l)
{
    xl_error *err = NULL;
    const xl_batch *b;
    const xl_prepared *p;
    xl_array *in[4] = { 0 }, *m = NULL;
    XL_DO(xl_data_next(l->data, &b));
    phase_done(l, "batch", 0);
    l->s.lane->step = l->step;
    l->s.lane->steady = l->step >= l->c->warmup_steps;
    if (l->c->bake_lr) {
        l->s.t->how.bake_lr = true;
        l->s.t->how.baked = rate_now(&l->c->opt, l->step + 1);
    }
    uint64_t compiled = l->s.lane->ncompile;
    XL_DO(xl_trainer_prepare(l->s.t, l->s.g[b->bucket], XL_STEP_TRAIN, &p));
    phase_done(l, compiled < l->s.lane->ncompile ? "program_compiled" : "program_loaded",
               phase_apart(l, "kernels_measured", l->s.lane->tuning_seconds));
    XL_DO(put_batch(l->s.lane, p->g, b, in));
    XL_DO(xl_trainer_update(l->s.t, p, in, &m));
    XL_DO(draw(l, p, in, m));
    l->step++;
    l->batches++;
    l->tokens += b->ntoken;
    l->q[l->nq++] = (pending){ .b = m, .p = p, .step = l->step, .bucket = b->bucket, .wall = xl_now() };
out:
    free_inputs(in, 4);
    return err;
}

/* A collective that failed: program, timing and layout together, into the events and to the people. */
static void diagnose(loop *l, const xl_error *err)
{
    xl_collective_trouble t =
        l->s.mesh.naxis && l->run ? xl_collective_trouble_of(xl_str_of(xl_error_message(err))) : XL_TROUBLE_NONE;
    xl_sharding_plan p = { 0 };
    xl_buf mesh = { 0 }, text = { 0 };
    double zero = xl_now() - xl_run_time(l->run);           /* gates tell their moments on the clock of the process */
    if (t == XL_TROUBLE_NONE)
        return;
    xl_error_free(xl_train_sharding(l->a, l->c, false, &p));
    xl_mesh_text(&l->s.mesh, &mesh);
    xl_collective_facts f = { .module = "the training step",
                              .devices = xl_mesh_size(&l->s.mesh),
                              .step = l->step + 1,
                              .mesh = xl_buf_view(&mesh),
                              .crossing = &p.crossing,
                              .spmd = xl_gate_when(XL_GATE_SPMD) - zero,
                              .tensor = xl_gate_when(XL_GATE_TENSOR) - zero,
                              .compiled = -1,
                              .failed = xl_run_time(l->run) };
    f.spmd = f.spmd < 0 ? 0 : f.spmd;                      /* before the run's folder was made */
    f.layout = l->s.t ? xl_trainer_layout(l->a, l->s.t) : XL_STR("nothing was on a device yet");
    xl_collective_tell(l->run, t, xl_str_of(xl_error_message(err)), &f, &text);
    fprintf(l->say, "%.*s\n", XL_FMT(xl_buf_view(&text)));
    xl_buf_fini(&mesh);
    xl_buf_fini(&text);
}

/* How many programs each rank compiled and loaded; the first rank says what that is in all. */
static void tell_compiles(loop *l)
{
    char key[64];
    int64_t sum[2] = { (int64_t)l->s.lane->ncompile, (int64_t)l->s.lane->nloaded };
    double until = xl_now() + 10;
    if (!l->leads) {
        snprintf(key, sizeof key, "compiles-%lld", (long long)xl_job_me(l->job));
        xl_error_free(xl_job_put(l->job, key, xl_strf(l->a, "%lld %lld", (long long)sum[0], (long long)sum[1])));
        return;
    }
    for (int64_t i = 1; i < xl_job_ranks(l->job); i++) {
        xl_buf b = { 0 };
        int64_t n[2];
        snprintf(key, sizeof key, "compiles-%lld", (long long)i);
        xl_error *err = xl_job_get(l->job, key, until - xl_now(), &b);
        xl_str text = xl_buf_view(&b);
        bool said = !err && xl_str_i64(xl_str_cut(&text, ' '), &n[0]) && xl_str_i64(text, &n[1]);
        xl_error_free(err);
        xl_buf_fini(&b);
        if (!said)
            return;
        sum[0] += n[0];
        sum[1] += n[1];
    }
    xl_event e;
    xl_event_begin(l->run, &e, "compiles");
    xl_json_put_int(&e.j, "ranks", xl_job_ranks(l->job));
    xl_json_put_int(&e.j, "compiled", sum[0]);
    xl_json_put_int(&e.j, "loaded", sum[1]);
    xl_event_end(l->run, &e);
    if (!l->quiet)
        fprintf(l->say, "programs of %lld ranks: %lld compiled, %lld loaded from the cache\n",
                (long long)xl_job_ranks(l->job), (long long)sum[0], (long long)sum[1]);
}

/* A run that cannot save would train for nothing. */
static xl_error *may_save(loop *l, const char *dir)
{
    const char *each[] = { dir, xl_ckpt_folder(l->a, dir) };
    for (int i = 0; i < 2; i++)
        if (xl_file_stat(each[i], NULL) && access(each[i], W_OK | X_OK)) {
            const char *run = xl_word_of(l->a, dir);
            return xl_error_next(
                xl_file_error(errno, "writing into", each[i]),
                "make it writable (chmod u+rwx %s), or go on in a copy of the run: cp -r %s NEW; xlane "
                "resume NEW",
                xl_word_of(l->a, each[i]), run);
        }
    return NULL;
}

/* Data, device and graphs; the run's folder, locked; the trainer with fresh parameters. */
static xl_error *open_run(loop *l, const xl_loop_opts *opts, char **folder, xl_loop_result *out)
{
    xl_error *err = NULL;
    const xl_config *c = l->c;
    xl_arena *a = l->a;
    const int64_t *times;
    if (*folder && l->leads)
        XL_DO(may_save(l, *folder));
    XL_DO(xl_data_open(c, false, &l->data));
    if (c->eval_every) {                 /* what is wrong with it is said now, not at the first evaluation */
        xl_data *valid = NULL;
        XL_DO(xl_data_open(c, true, &valid));
        xl_data_close(valid);
    }
    int n = xl_data_buckets(l->data, &times);
    phase_done(l, "data", 0);
    XL_DO(xl_setup_device(c, &l->s));
    double apart = phase_apart(l, "plugin", l->s.lane->plugin_seconds);
    phase_done(l, "cache", apart + phase_apart(l, "client", l->s.lane->client_seconds));
    XL_DO(xl_setup_graphs(c, times, n, c->data.batch, &l->s));
    phase_done(l, "graph", phase_apart(l, "kernel_trials", l->s.trial_seconds));
    if (!*folder)
        XL_DO(xl_run_make(a, c->runs, c->name, folder));
    char *dir = out->dir = *folder;
    if ((!opts->dir || opts->fresh) && l->leads) { /* first of all: a run that is killed from here on can be resumed */
        xl_buf y = { 0 };
        xl_config kept = *c;                               /* a run is resumed and evaluated from any folder */
        kept.data.train = whole_path(a, c->data.train);
        kept.data.valid = whole_path(a, c->data.valid);
        xl_config_write(&kept, &y);
        err = xl_file_write_atomic(xl_path_join(a, dir, "config.yaml"), xl_buf_view(&y));
        xl_buf_fini(&y);
        if (err)
            goto out;
    }
    if (l->leads)
        XL_DO(lock_dir(l, dir));
    XL_DO(xl_run_open(dir, &l->run));
    l->s.lane->run = l->run;
    if (l->job)
        xl_run_set_rank(l->run, (int)xl_job_me(l->job));
    if (opts->dir && l->leads)
        check_data(l, dir);
    if (l->leads)
        XL_DO(write_run_json(l, dir, NULL, 0));
    phase_done(l, "folder", 0);
    XL_DO(xl_trainer_new(l->s.lane, l->s.g[0], &c->opt, (uint64_t)c->seed, &l->s.t));
    l->s.t->how.keep = xl_config_keep(c);
    phase_done(l, "initial_values", 0);
out:
    return err;
}

/* The newest checkpoint that is whole, if the run has one, and the files that go on from there. */
static xl_error *restore(loop *l, const xl_loop_opts *opts, const char *dir)
{
    xl_error *err = NULL;
    const xl_config *c = l->c;
    char *ckpts = xl_path_join(l->a, dir, "checkpoints"), *from = NULL;
    int64_t at = 0;
    if (opts->dir)
        XL_DO(find_checkpoint(l, dir, opts->from_scratch, opts->fresh, &from, &at));
    if (from) {
        xl_progress where;
        XL_TRY(xl_ckpt_load(l->s.t, from, &where), "resuming");
        l->step = at;
        l->batches = where.batches;
        if (where.seed != (uint64_t)c->seed)
            fprintf(l->say, "the checkpoint was made with seed %llu: the data come in another order now\n",
                    (unsigned long long)where.seed);
    }
    l->noted = from ? at : -1;
    XL_DO(xl_saver_open(ckpts, c->keep, l->noted, l->job, &l->saver));
    if (l->leads) {
        XL_DO(open_csv(l, dir, l->step));
        xl_error_free(xl_tb_open(dir, &l->tb));
    }
    XL_DO(xl_data_start(l->data, l->batches));
out:
    return err;
}

/* What is trained, on what, from where: to the people and into the events. */
static void announce(loop *l, const char *dir)
{
    const xl_config *c = l->c;
    int64_t units = xl_data_units(l->data);
    if (c->data.batch > units)
        fprintf(l->say,
                "data.batch is %lld and the data are %lld %s: a step sees some of them more than once; data.batch=%lld "
                "takes each at most once, "
                "data.train names a larger file\n",
                (long long)c->data.batch, (long long)units, xl_data_units_word(l->data), (long long)units);
    if (!l->quiet) {
        char count[32];
        fprintf(l->say, "%s: %s parameters, %s\n", c->model.pattern, amount(count, (double)xl_graph_params(l->s.g[0])),
                xl_lane_name(l->s.lane));
        if (l->s.mesh.naxis)
            say_mesh(l);
        fprintf(l->say, "data: %s\nrun:  %s%s\n", xl_data_about(l->data), dir, l->step ? " (resumed)" : "");
        if (l->s.why[0])
            fprintf(l->say, "no scan over layers: %s\n", l->s.why);
        if (l->s.attention[0])
            fprintf(l->say, "attention: %s\n", l->s.attention);
        if (l->s.kernels[0])
            fprintf(l->say, "kernels: %s\n", l->s.kernels);
        if (xl_data_cut(l->data))
            fprintf(l->say, "%lld documents are longer than the largest bucket and are cut\n",
                    (long long)xl_data_cut(l->data));
    }
    xl_event e;
    xl_event_begin(l->run, &e, l->step ? "resume" : "start");
    xl_json_put_int(&e.j, "step", l->step);
    xl_json_put_text(&e.j, "device", xl_lane_name(l->s.lane));
    xl_json_put_text(&e.j, "scan", l->s.why[0] ? l->s.why : "over repeated units");
    if (l->s.attention[0])
        xl_json_put_text(&e.j, "attention", l->s.attention);
    if (l->s.kernels[0])
        xl_json_put_text(&e.j, "kernels", l->s.kernels);
    xl_event_end(l->run, &e);
}

static xl_error *evaluate_now(loop *l)
{
    xl_error *err = NULL;
    xl_event e;
    int64_t tokens;
    XL_TRY(evaluate(&l->s, l->c, l->c->eval_batches, &l->eval_loss, &tokens), "evaluating");
    xl_event_begin(l->run, &e, "eval");
    xl_json_put_int(&e.j, "step", l->step);
    xl_json_put_num(&e.j, "nll", l->eval_loss);
    xl_json_put_text(&e.j, "reduction", "mean over all tokens of all batches");
    xl_json_put_int(&e.j, "tokens", tokens);
    xl_participants who = participants(l->s.g[0]);
    xl_json_put_int(&e.j, "participants", who.n);
    if (who.over[0])
        xl_json_put_text(&e.j, "over", who.over);
    xl_event_end(l->run, &e);
    xl_tb_scalar(l->tb, "eval/nll", l->step, l->eval_loss);
    if (!l->quiet)
        fprintf(l->say, "%sstep %lld  validation %.4f nats/token\n", l->tty ? "\r\033[K" : "", (long long)l->step,
                l->eval_loss);
    l->last_print = xl_now();
    l->last_step = l->step;
    l->last_tokens = l->tokens;
out:
    return err;
}

/* The checkpoint of the last step has been begun: waits for it, and tries again where the disk is full for a moment. */
static xl_error *last_checkpoint(loop *l)
{
    xl_error *err = xl_saver_wait(l->saver);
    for (int turn = 0; err && turn < 10 && xl_error_code(err) == XL_CODE_UNAVAILABLE;
         turn++) { /* a disk that is full for a moment */
        xl_sleep(0.5);
        xl_error_free(err);
        xl_progress where = { l->batches, (uint64_t)l->c->seed };
        err = xl_saver_save(l->saver, l->s.t, l->step, &where);
        if (!err)
            err = xl_saver_wait(l->saver);
    }
    if (!err)
        return NULL;
    return xl_saver_last(l->saver) < 0
               ? xl_error_wrap(err, "the last checkpoint was not written (there is none before it: once it can be, "
                                    "resume begins at step 0)")
               : xl_error_wrap(err,
                               "the last checkpoint was not written (once it can be, resume goes on from step %lld)",
                               (long long)xl_saver_last(l->saver));
}

static void note_stop(loop *l, const char *why)
{
    xl_event e;
    int64_t observed = 0;                /* of the fullest device */
    for (size_t i = 0; i < l->s.lane->place.n; i++) {
        xl_device_memory used;
        if (!l->s.lane->place.dev[i]->local)
            continue;
        xl_error *unsaid = xl_device_memory_read(l->s.lane->place.dev[i], &used);
        observed = !unsaid && used.peak_in_use > observed ? used.peak_in_use : observed;
        xl_error_free(unsaid);
    }
    xl_event_begin(l->run, &e, "stop");
    xl_json_put_int(&e.j, "step", l->step);
    xl_json_put_text(&e.j, "why", why);
    if (observed > 0)
        xl_json_put_int(&e.j, "observed_bytes", observed);
    xl_event_end(l->run, &e);
}

/* What is told of a run however it ended, once there was something to tell. */
static void tell_end(loop *l, const char *dir, const xl_error *err, bool heard, xl_loop_result *out)
{
    if (l->s.lane) {
        out->device = xl_str_c(l->a, xl_str_of(xl_lane_name(l->s.lane)));
        out->cache = l->s.cache ? xl_str_c(l->a, xl_str_of(xl_cache_dir(l->s.cache))) : NULL;
    }
    if (heard) {
        put_rows(l);
        out->unwritten = missing(l);
        if (out->unwritten)
            fprintf(l->say,
                    "%llu rows and events could not be written down (the disk was full, or the folder is gone): "
                    "run.json counts them\n",
                    (unsigned long long)out->unwritten);
        xl_error *unsaid = l->leads ? write_run_json(l, dir,
                                                    err              ? "failed"
                                                    : out->preempted ? "preempted"
                                                    : out->stopped   ? "stopped by a signal"
                                                                     : "all steps done",
                                                    out->unwritten)
                                   : NULL;
        if (unsaid)
            fprintf(l->say, "how the run ended is not in run.json: %s\n", xl_error_message(unsaid));
        xl_error_free(unsaid);
    }
}

static void loop_close(loop *l)
{
    for (uint32_t i = 0; i < l->nq; i++) {
        xl_fence_free(l->q[i].done);
        xl_array_free(l->q[i].b);
    }
    free(l->q);
    xl_error *late = xl_saver_close(l->saver);
    xl_error_free(late);
    xl_data_close(l->data);
    xl_setup_fini(&l->s);
    xl_tb_close(l->tb);
    xl_journal_close(&l->csv);
    xl_journal_close(&l->memory);
    xl_buf_fini(&l->rows);
    xl_run_close(l->run);
    if (l->lock >= 0)
        close(l->lock);
    if (l->mute)
        fclose(l->mute);
}

/* Steps, with what is logged, evaluated and saved between them, until the last one or a signal. */
static xl_error *all_steps(loop *l)
{
    const xl_config *c = l->c;
    xl_error *err = NULL;
    while (l->step < c->steps && (l->stop ? xl_stop_begin(l->stop, l->step + 1) : !asked)) {
        XL_DO(one_step(l));
        if (l->nphase >= 0) {
            XL_DO(settle(l));
            phase_done(l, "step", 0);
            tell_phases(l);
        }
        bool log = l->step % c->log_every == 0 || l->step == c->steps,
             ev = c->eval_every && (l->step % c->eval_every == 0 || l->step == c->steps);
        XL_DO(harvest(l, false));
        if (log || l->nq == PENDING_MAX) {
            XL_DO(settle(l));
            print_line(l, false);
            note_memory(l);
        }
        if (ev)
            XL_DO(evaluate_now(l));
        if (c->save_every && l->step % c->save_every == 0 && l->step < c->steps) {
            XL_DO(settle(l));
            XL_DO(save(l));
        }
    }
    XL_DO(settle(l));
    print_line(l, true);
out:
    return err;
}

xl_error *xl_train_loop(xl_arena *a, const xl_config *c, const xl_loop_opts *opts, xl_loop_result *out)
{
    xl_error *err = NULL;
    loop l = { .c = c,
               .a = a,
               .lock = -1,
               .say = opts->say ? opts->say : stderr,
               .quiet = opts->quiet,
               .job = opts->job,
               .leads = !xl_job_me(opts->job),
               .last_loss = NAN,
               .eval_loss = NAN };
    l.phase_at = xl_now() - xl_process_age();
    phase_done(&l, "process", 0);
    struct sigaction was[HEEDED];
    char *dir = opts->dir ? xl_str_c(a, xl_str_of(opts->dir)) : NULL;
    bool heard = false, tried = false;
    if (!l.leads && (l.mute = fopen("/dev/null", "w")))
        l.say = l.mute;
    l.tty = isatty(fileno(l.say));
    l.s.job = l.job;
    ranked = l.job != NULL;
    l.q = calloc(PENDING_MAX, sizeof *l.q);
    *out = (xl_loop_result){ .loss = NAN, .eval_loss = NAN };
    if (!l.q) {
        err = XL_ERR(EXHAUSTED, "no memory for the loop");
        goto out;
    }
    XL_DO(open_run(&l, opts, &dir, out));
    XL_DO(restore(&l, opts, dir));
    phase_done(&l, opts->dir ? "checkpoint" : "files", 0);
    out->from = l.step;
    announce(&l, dir);
    second = l.leads ? xl_strf(a,
                               "\nended by a second signal: nothing was saved after the newest checkpoint; go on from "
                               "there, or from step 0, with: xlane resume %s\n",
                               xl_word_of(a, dir))
                     : XL_STR("");
    listen(was);
    heard = true;
    if (l.job)
        XL_DO(xl_stop_open(l.job, &asked, l.step, &l.stop));
    l.began = l.last_print = xl_now();
    l.last_step = l.step;

    XL_DO(all_steps(&l));
    if (xl_stop_signal(l.stop))
        asked = xl_stop_signal(l.stop);
    XL_DO(save(&l));
    if ((err = last_checkpoint(&l))) {
        tried = true;
        goto out;
    }
    note_saved(&l);
    out->stopped = asked != 0;
    out->preempted = l.job && asked == SIGTERM;
    note_stop(&l, out->preempted ? "preempted" : asked ? "a signal" : "all steps done");
    if (l.job)
        tell_compiles(&l);
    if (asked && (!l.quiet || out->preempted))
        fprintf(l.say, "%s after step %lld and saved; go on with: xlane resume %s\n",
                out->preempted ? "preempted" : "stopped", (long long)l.step, xl_word_of(l.a, dir));
out:
    if (err)
        xl_job_cancel(l.job); /* nobody is waited for any more */
    xl_stop_close(l.stop);
    if (err && heard && !tried)
        rescue(&l, dir);
    if (heard)
        unlisten(was);
    if (err && l.run) {
        note_text(&l, "failed", "error", xl_error_message(err));
        diagnose(&l, err);
    }
    tell_end(&l, dir, err, heard, out);
    loop_close(&l);
    ranked = false;
    out->step = l.step;
    out->loss = l.last_loss;
    out->eval_loss = l.eval_loss;
    out->skipped = (int64_t)l.skipped;
    out->done = l.done;
    out->left_out = l.left_out;
    out->lost_from = l.lost_from;
    return err;
}

/* ---- evaluation of a finished run -------------------------------------------------------------------------------- */
xl_error *xl_train_eval(xl_arena *a, const xl_config *c, const char *dir, double *nll, int64_t *tokens, int64_t *step,
                        xl_participants *who)
{
    xl_error *err = NULL;
    xl_setup s = { 0 };
    char *path;
    XL_DO(xl_ckpt_needed(a, dir, &path, step));
    int64_t one = c->data.time;
    XL_DO(xl_setup_device(c, &s));
    XL_DO(xl_setup_graphs(c, c->data.nbucket ? c->data.buckets : &one, c->data.nbucket ? c->data.nbucket : 1,
                          c->data.batch, &s));
    XL_DO(xl_trainer_new(s.lane, s.g[0], &c->opt, (uint64_t)c->seed, &s.t));
    XL_DO(xl_ckpt_load(s.t, path, NULL));
    err = evaluate(&s, c, c->eval_batches, nll, tokens);
    *who = participants(s.g[0]);
out:
    xl_setup_fini(&s);
    return err;
}
