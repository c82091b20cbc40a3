/* xlane try: does it work here? From the probe to the report, each step in a process of its own, and five lines on what
 * was proved. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/file.h"
#include "base/time.h"
#include "cli/cli.h"
#include "lane/probe.h"
#include "lane/receipt.h"
#include "lane/run.h"

static struct { const char *plugin, *runs; int64_t steps; } opt = { .steps = 120 };
static const xl_opt opts[] = {
    { "plugin", XL_OPT_PLUGIN, &opt.plugin, "PATH", "the device to try (the best on this host)" },
    { "steps", XL_OPT_INT, &opt.steps, "NUMBER", "how long to train (120)" },
    { "runs", XL_OPT_STR, &opt.runs, "DIR", "where the folder with everything is made (XLANE_RUNS, else runs)" },
    { 0 },
};

/* Sentences of a small grammar: there is something to learn, and it needs no download. */
static xl_error *write_text(const char *path)
{
    static const char *const who[] = { "the cat",   "a dog",   "the old man", "my sister",
                                       "the pilot", "a child", "the teacher", "the queen" };
    static const char *const does[] = { "sees", "follows", "likes", "hears", "finds", "draws", "forgets", "carries" };
    static const char *const what[] = { "the red house", "a small bird", "the river", "an apple",
                                        "the long road", "a blue lamp",  "the music", "a letter" };
    xl_buf b = { 0 };
    uint64_t s = 7;
    while (b.n < 200000) {
        unsigned k[3];
        for (int i = 0; i < 3; i++) {
            s = s * 6364136223846793005u + 1442695040888963407u;
            k[i] = (unsigned)(s >> 40) % 8;
        }
        xl_buf_printf(&b, "%s %s %s.\n", who[k[0]], does[k[1]], what[k[2]]);
    }
    xl_error *err = xl_file_write_quick(path, xl_buf_view(&b));
    xl_buf_fini(&b);
    return err;
}

/* Our own program with these arguments; standard output goes to a file, the progress to the user. */
static pid_t start(const char *exe, char **argv, const char *out)
{
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        int fd = open(out, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
        if (fd >= 0)
            dup2(fd, 1);
        execv(exe, argv);
        _exit(127);
    }
    return pid;
}

static int finish(pid_t pid)
{
    int status = 0;
    while (waitpid(pid, &status, 0) < 0)
        if (errno != EINTR)
            return 127;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

typedef struct { int64_t rows; double first, last; } losses;

static losses read_losses(const char *dir)
{
    xl_arena a = { 0 };
    losses l = { 0 };
    xl_str text;
    xl_error *err = xl_file_read_max(&a, xl_path_join(&a, dir, "metrics.csv"), 64 << 20, &text);
    if (!err) {
        xl_str_cut(&text, '\n');
        while (text.n) {
            xl_str line = xl_str_cut(&text, '\n');
            double v;
            xl_str_cut(&line, ',');
            if (!xl_str_f64(xl_str_cut(&line, ','), &v))
                continue;
            l.first = l.rows ? l.first : v;
            l.last = v;
            l.rows++;
        }
    }
    xl_error_free(err);
    xl_arena_fini(&a);
    return l;
}

/* The one run folder in `work`; NULL while there is none. */
static char *run_in(xl_arena *a, const char *work)
{
    xl_str *names = NULL;
    size_t n = 0;
    xl_error_free(xl_dir_list(a, work, &names, &n));
    for (size_t i = 0; i < n; i++) {
        char *dir = xl_path_join(a, work, xl_str_c(a, names[i]));
        if (xl_file_stat(xl_path_join(a, dir, "events.jsonl"), NULL))
            return dir;
    }
    return NULL;
}

typedef struct { int64_t compiled, cached; int64_t stopped_at; } counts;

/* Counted from the resume event on, or up to it. */
static xl_error *count(xl_arena *a, const char *dir, bool after, counts *c)
{
    xl_node **e;
    size_t n;
    bool resumed = false;
    xl_error *err = xl_run_events(a, dir, &e, &n);
    *c = (counts){ 0 };
    for (size_t i = 0; !err && i < n; i++) {
        const xl_node *what = xl_node_get(e[i], "event"), *result = xl_node_get(e[i], "result"),
                      *step = xl_node_get(e[i], "step");
        if (!what)
            continue;
        if (xl_str_is(what->s, "resume")) {
            resumed = true;
            c->stopped_at = step ? step->i : 0;
        }
        if (xl_str_is(what->s, "compile") && result && resumed == after) {
            c->compiled += xl_str_is(result->s, "compiled");
            c->cached += xl_str_is(result->s, "cached");
        }
    }
    return err;
}

/* What the five parts find out for each other. */
typedef struct {
    xl_arena *a;
    char exe[4096], *work, *dir, *said, *device, *html;
    xl_probe probe;
    char *train[17];                                       /* the command */
    int64_t more;                                          /* steps that the resumed run has beyond --steps */
    counts cold, warm;
    losses l;
    double nll, began;
    int64_t tokens;
} trial;

static xl_error *run_part(trial *t, char **argv, const char *out, const char *doing)
{
    int status = finish(start(t->exe, argv, out));
    return status ? XL_ERR(INTERNAL, "%s ended with status %d; its output is above", doing, status) : NULL;
}

static xl_error *prove(trial *t)
{
    xl_error *err = NULL;
    xl_arena *a = t->a;
    ssize_t len = readlink("/proc/self/exe", t->exe, sizeof t->exe - 1);
    t->exe[len > 0 ? len : 0] = 0;
    fprintf(stderr, "xlane: 1 of 5, probe\n");
    XL_DO(xl_probe_run(a, &(xl_probe_opts){ .plugin = opt.plugin }, &t->probe));
    if (t->probe.class != XL_PROBE_HEALTHY) {
        err = XL_ERR(UNAVAILABLE, "%s: %.*s; %.*s", xl_probe_word(t->probe.class), XL_FMT(t->probe.reason),
                     XL_FMT(t->probe.next));
        goto out;
    }
    XL_DO(xl_run_make(a, opt.runs ? opt.runs : xl_runs_folder(), "try", &t->work));
    char *whole = realpath(t->work, NULL);
    t->work = whole ? xl_str_c(a, xl_str_of(whole)) : t->work;
    free(whole);
    t->said = xl_path_join(a, t->work, "said.json");
    t->device = xl_str_c(a, xl_strf(a, "device=%.*s", XL_FMT(t->probe.plugin)));
out:
    return err;
}

/* Half way it is asked to stop, as an operator or a scheduler would. */
static xl_error *stop_half_way(trial *t, pid_t pid)
{
    int status;
    for (bool told = false; !told;) {
        xl_sleep(0.05);
        if (waitpid(pid, &status, WNOHANG) == pid) {
            t->dir = run_in(t->a, t->work);
            if (status != 0 || !t->dir)
                return XL_ERR(INTERNAL, "training ended early, with status %d; its output is above",
                              WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status));
            t->more = opt.steps / 2; /* a device this fast is done before it can be stopped: it is resumed for more */
            return NULL;
        }
        t->dir = t->dir ? t->dir : run_in(t->a, t->work);
        if (t->dir && read_losses(t->dir).rows >= opt.steps / 2) {
            kill(pid, SIGINT);
            told = true;
        }
    }
    status = finish(pid);
    return status && status != XL_EXIT_INTERRUPTED
               ? XL_ERR(INTERNAL, "training ended with status %d after it was asked to stop; its output is above",
                        status)
               : NULL;
}

static xl_error *train_half(trial *t)
{
    xl_error *err = NULL;
    xl_arena *a = t->a;
    char *text = xl_path_join(a, t->work, "text.txt");
    XL_DO(write_text(text));
    fprintf(stderr, "xlane: 2 of 5, train a hybrid model (attention, state space, experts, recurrence)\n");
    char *words[] = { "xlane",
                      "train",
                      "--json",
                      xl_str_c(a, xl_strf(a, "data.train=%s", text)),
                      "data.format=bytes",
                      "model.pattern=AMER",
                      "model.dim=64",
                      "data.batch=4",
                      "data.time=64",
                      xl_str_c(a, xl_strf(a, "train.steps=%lld", (long long)opt.steps)),
                      "train.log_every=10",
                      "train.eval_every=0",
                      "name=hybrid",
                      xl_str_c(a, xl_strf(a, "runs=%s", t->work)),
                      xl_str_c(a, xl_strf(a, "cache=%s/cache", t->work)),
                      t->device,
                      NULL };
    _Static_assert(sizeof words == sizeof t->train, "the command has room");
    memcpy(t->train, words, sizeof words);
    pid_t pid = start(t->exe, t->train, t->said);
    err = pid < 0 ? XL_ERR(UNAVAILABLE, "starting a process: %s", strerror(errno)) : stop_half_way(t, pid);
out:
    return err;
}

static xl_error *resume(trial *t)
{
    xl_error *err = NULL;
    fprintf(stderr, "xlane: 3 of 5, resume it in a new process\n");
    char *steps = xl_str_c(t->a, xl_strf(t->a, "train.steps=%lld", (long long)(opt.steps + t->more)));
    char *words[] = { "xlane", "resume", "--json", t->dir, t->device, steps, NULL };
    XL_DO(run_part(t, words, t->said, "resuming"));
    XL_DO(count(t->a, t->dir, false, &t->cold));
    XL_DO(count(t->a, t->dir, true, &t->warm));
    t->l = read_losses(t->dir);
out:
    return err;
}

static xl_error *evaluate(trial *t)
{
    xl_error *err = NULL;
    xl_str answer;
    xl_node *e;
    fprintf(stderr, "xlane: 4 of 5, evaluate\n");
    char *words[] = { "xlane", "eval", "--json", t->dir, t->device, NULL };
    XL_DO(run_part(t, words, t->said, "evaluating"));
    XL_DO(xl_file_read_max(t->a, t->said, 1 << 20, &answer));
    XL_DO(xl_json_read(t->a, "eval", answer, &e));
    XL_DO(xl_node_get_float(e, "nll", &t->nll));
    XL_DO(xl_node_get_int(e, "tokens", 0, INT64_MAX, &t->tokens));
    xl_error_free(xl_file_remove(t->said));
out:
    return err;
}

static xl_error *write_files(trial *t)
{
    xl_error *err = NULL;
    xl_arena *a = t->a;
    fprintf(stderr, "xlane: 5 of 5, receipt and report\n");
    xl_receipt_facts facts = {
        .kind = "train",
        .dir = t->dir,
        .argc = (int)(sizeof t->train / sizeof *t->train) - 1,
        .argv = t->train,
        .plugin = xl_str_c(a, t->probe.plugin),
        .cache = xl_path_join(a, t->work, "cache"),
        .executed = t->l.rows,
        .devices = xl_strf(a, "%zu: %.*s", t->probe.ndevice, XL_FMT(t->probe.device[0].kind)).p,
    };
    if (!xl_file_stat(xl_path_join(a, t->dir, "receipt.json"), NULL))
        XL_DO(xl_receipt_write(a, &facts, NULL));
    t->html = xl_path_join(a, t->dir, "report.html");
    char *words[] = { "xlane", "report", t->dir, xl_str_c(a, xl_strf(a, "--out=%s", t->html)), NULL };
    XL_DO(run_part(t, words, "/dev/null", "drawing the report"));
out:
    return err;
}

/* The table, or the JSON; whether all of it was proved. */
static bool tell(const trial *t, bool json, xl_buf *b)
{
    const losses *l = &t->l;
    const counts *cold = &t->cold, *warm = &t->warm;
    bool learned = l->last < 0.8 * l->first, warm_start = warm->compiled == 0 && warm->cached > 0,
         whole_way = l->rows == opt.steps + t->more, proved = learned && warm_start && whole_way;
    if (json) {
        xl_json j = { .out = b, .pretty = true };
        xl_json_map(&j);
        xl_json_put_bool(&j, "proved", proved);
        xl_json_put_str(&j, "plugin", t->probe.plugin);
        xl_json_put_int(&j, "steps", l->rows);
        xl_json_put_num(&j, "first_loss", l->first);
        xl_json_put_num(&j, "last_loss", l->last);
        xl_json_put_int(&j, "stopped_at", warm->stopped_at);
        xl_json_put_int(&j, "cold_compiled", cold->compiled);
        xl_json_put_int(&j, "resumed_compiled", warm->compiled);
        xl_json_put_int(&j, "resumed_from_cache", warm->cached);
        xl_json_put_num(&j, "nll", t->nll);
        xl_json_put_text(&j, "run", t->dir);
        xl_json_put_text(&j, "report", t->html);
        xl_json_put_num(&j, "seconds", xl_now() - t->began);
        xl_json_end(&j);
        return proved;
    }
    xl_buf_printf(b, "1 probe    %.*s computes a known answer on %zu device%s\n", XL_FMT(t->probe.plugin),
                  t->probe.ndevice, t->probe.ndevice == 1 ? "" : "s");
    xl_buf_printf(b, "2 train    %lld steps of a hybrid model, loss %.3f to %.3f%s; the cold process compiled %lld\n",
                  (long long)l->rows, l->first, l->last, learned ? "" : " (NOT LEARNED)", (long long)cold->compiled);
    xl_buf_printf(b,
                  "3 restart  stopped after step %lld, resumed in a new process: %lld compiled, %lld from the "
                  "cache, %lld steps executed%s\n",
                  (long long)warm->stopped_at, (long long)warm->compiled, (long long)warm->cached,
                  (long long)(l->rows - warm->stopped_at), warm_start && whole_way ? "" : " (NOT A WARM RESTART)");
    xl_buf_printf(b, "4 eval     %.4f nats a token over %lld tokens that it never saw\n", t->nll,
                  (long long)t->tokens);
    xl_buf_printf(b,
                  "5 files    %s: report.html, receipt.json, checkpoints, metrics.csv, events.jsonl (%.0f s in all)\n",
                  t->dir, xl_now() - t->began);
    if (proved)
        xl_buf_puts(b, "next       xlane run --profile=cpu --summary -- python your_script.py, or xlane train "
                       "data.train=your_text.txt\n");
    return proved;
}

static xl_error *try(const xl_cli *cli, int argc, char **argv)
{
    xl_error *err = NULL;
    xl_buf b = { 0 };
    trial t = { .a = cli->arena, .began = xl_now() };
    (void)argc;
    (void)argv;
    if (opt.steps < 40)
        return xl_cli_misuse(cli, "--steps needs at least 40: it is stopped and resumed half way");
    XL_DO(prove(&t));
    XL_DO(train_half(&t));
    XL_DO(resume(&t));
    XL_DO(evaluate(&t));
    XL_DO(write_files(&t));
    bool proved = tell(&t, cli->json, &b);
    XL_DO(xl_cli_put(&b));
    if (!proved)
        xl_cli_exit(cli, XL_EXIT_FAILED);
out:
    xl_buf_fini(&b);
    return err;
}

XL_VERB(try) = {
    .name = "try",
    .args = "[--plugin=PATH] [--steps=N]",
    .help = "check that xlane works here: train, stop, resume, evaluate, report (some seconds)",
    .more =
        "Probes the device, trains a small hybrid model, stops it half way, resumes it in a new process that must "
        "find its\n"
        "executable in the cache, evaluates it and writes the report. The last lines say what was shown, where the "
        "files are, and\n"
        "what to type next.",
    .example = "xlane try",
    .opts = opts,
    .min = 0,
    .max = 0,
    .run = try,
};
