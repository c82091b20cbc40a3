#include "lane/memory_csv.h"
#include "lane/retry.h"

#include <signal.h>
#include <stdio.h>

#include "base/file.h"
#include "lane/run.h"

typedef enum { KIND_ROOT, KIND_MASK, KIND_CODE, KIND_LAST } kind;
static const struct cause {
    const char *name;
    kind kind;
    int code;
    const char *ecode, *signature;
    xl_retry verdict;
    xl_boundary boundary;
    const char *text;
} causes[] = {
#define CAUSE(name, kind, code, ecode, signature, verdict, boundary, text) \
    { #name, KIND_##kind, code, ecode, signature, XL_RETRY_##verdict, XL_AT_##boundary, text },
#include "lane/retry.def"
};
enum { NCAUSE = sizeof causes / sizeof *causes };

const char *xl_retry_word(xl_retry r)
{
    static const char *const words[] = { "here", "smaller", "elsewhere", "fix", "never" };
    return words[r];
}
const char *xl_boundary_word(xl_boundary b)
{
    static const char *const words[] = { "host", "startup", "device", "graph", "cache", "unknown" };
    return words[b];
}
const char *xl_phase_word(xl_phase p)
{
    static const char *const words[] = { "startup", "compile window", "run" };
    return words[p];
}

static bool has(xl_str text, xl_str part) { return part.n && memmem(text.p, text.n, part.p, part.n); }

static bool digit(char c) { return c >= '0' && c <= '9'; }

/* "E1000" as a word of its own; a log line's "E1115 11:45:37" has its time after it and is none. */
static bool find_ecode(xl_str text, char out[8])
{
    for (size_t i = 0; i + 5 < text.n; i++) {
        const char *p = text.p + i;
        if (p[0] != 'E' || !digit(p[1]) || !digit(p[2]) || !digit(p[3]) || !digit(p[4]) || p[5] != ':')
            continue;
        if (i && ((p[-1] >= 'A' && p[-1] <= 'Z') || (p[-1] >= 'a' && p[-1] <= 'z') || digit(p[-1])))
            continue;
        memcpy(out, p, 5);
        out[5] = 0;
        return true;
    }
    out[0] = 0;
    return false;
}

static bool signature_fits(xl_str text, const char *signature)
{
    xl_str any = xl_str_of(signature);
    while (any.n) {
        xl_str all = xl_str_cut(&any, '|');
        bool fits = all.n > 0;
        while (all.n) {
            xl_str part = xl_str_cut(&all, '&');
            fits = fits && has(text, part);
        }
        if (fits)
            return true;
    }
    return false;
}

/* The code a status text starts with: "RESOURCE_EXHAUSTED: ...". */
static int find_code(xl_str text)
{
    static const char *const names[] = {
        "CANCELLED",      "UNKNOWN",           "INVALID_ARGUMENT",   "DEADLINE_EXCEEDED",   "NOT_FOUND",
        "ALREADY_EXISTS", "PERMISSION_DENIED", "RESOURCE_EXHAUSTED", "FAILED_PRECONDITION", "ABORTED",
        "OUT_OF_RANGE",   "UNIMPLEMENTED",     "INTERNAL",           "UNAVAILABLE",         "DATA_LOSS",
        "UNAUTHENTICATED"
    };
    const char *first = NULL;
    int code = 0;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char with[32];
        int n = snprintf(with, sizeof with, "%s:", names[i]);
        const char *at = text.n ? memmem(text.p, text.n, with, (size_t)n) : NULL;
        if (at && (!first || at < first)) {
            first = at;
            code = (int)i + 1;
        }
    }
    return code;
}

xl_failure xl_retry_classify(int code, xl_str text, xl_phase phase)
{
    xl_failure f = { .cause = "unknown",
                     .verdict = XL_RETRY_NEVER,
                     .boundary = XL_AT_UNKNOWN,
                     .text = "nothing in this text is a failure that xlane knows: give the whole log of every rank, "
                             "from its first error on, or the run's folder" };
    const struct cause *hit = NULL, *mask = NULL, *last = NULL;
    find_ecode(text, f.ecode);
    f.code = code ? code : find_code(text);
    for (size_t i = 0; i < NCAUSE; i++) {
        const struct cause *c = &causes[i];
        if (c->kind == KIND_CODE) {
            if (!hit && !mask && f.code == c->code)
                hit = c;
            continue;
        }
        bool fits = (c->ecode[0] && f.ecode[0] && !strncmp(f.ecode, c->ecode, strlen(c->ecode))) ||
                    signature_fits(text, c->signature);
        if (fits && c->kind == KIND_ROOT && !hit)
            hit = c;
        if (fits && c->kind == KIND_MASK && !mask)
            mask = c;
        if (fits && c->kind == KIND_LAST && !last)
            last = c;
    }
    if (hit && mask && hit->kind == KIND_ROOT)
        f.masked_by = mask->name;
    if (!hit)
        hit = mask ? mask : last;
    if (hit) {
        f.cause = hit->name;
        f.verdict = hit->verdict;
        f.boundary = hit->boundary;
        f.text = hit->text;
    }
    f.again = phase != XL_PHASE_RUN && (f.verdict == XL_RETRY_HERE || f.verdict == XL_RETRY_SMALLER);
    return f;
}

void xl_failure_json(xl_json *j, const xl_failure *f)
{
    xl_json_put_text(j, "cause", f->cause);
    xl_json_put_text(j, "verdict", xl_retry_word(f->verdict));
    xl_json_put_text(j, "boundary", xl_boundary_word(f->boundary));
    xl_json_put_int(j, "code", f->code);
    if (f->ecode[0])
        xl_json_put_text(j, "ecode", f->ecode);
    if (f->masked_by)
        xl_json_put_text(j, "masked_by", f->masked_by);
    xl_json_put_bool(j, "retry", f->again);
    xl_json_put_text(j, "text", f->text);
}

xl_failure xl_retry_signal(int sig)
{
    bool crash = sig == SIGSEGV || sig == SIGBUS || sig == SIGILL || sig == SIGFPE || sig == SIGABRT;
    return (xl_failure){
        .cause = crash ? "crashed" : "killed",
        .verdict = crash ? XL_RETRY_FIX : XL_RETRY_HERE,
        .boundary = XL_AT_HOST,
        .text = crash ? "the process crashed: run it with `python -X faulthandler`, which prints the line of each "
                        "thread; whether a device was at work then is not recorded"
                : sig == SIGKILL ? "somebody, a scheduler, or the kernel for want of host memory ended it: dmesg or "
                                   "the scheduler's log tell; "
                                   "where it was memory, take a smaller batch or loader"
                                 : "somebody or a scheduler asked it to end",
    };
}

xl_phase xl_run_phase(xl_arena *a, const char *dir, xl_buf *texts)
{
    xl_node **e = NULL;
    size_t n = 0;
    bool client = false;
    int64_t steps = 0, attempts = 0;
    xl_error_free(xl_run_events(a, dir, &e, &n));
    for (size_t i = 0; i < n; i++) {
        const xl_node *what = xl_node_get(e[i], "event"), *ok = xl_node_get(e[i], "ok"),
                      *error = xl_node_get(e[i], "error");
        const xl_node *step = xl_node_get(e[i], "step"), *all = xl_node_get(e[i], "steps");
        if (!what)
            continue;
        if (xl_str_is(what->s, "attempt")) {               /* each attempt starts afresh */
            client = false;
            steps = 0;
            attempts++;
            if (texts)
                texts->n = 0;
        }
        client |= xl_str_is(what->s, "client") && ok && ok->b;
        if (step && step->i > steps)
            steps = step->i;
        if (all && all->i > steps)
            steps = all->i;
        if (error && error->s.n && texts &&
            !xl_str_is(what->s, "fault")) /* the guard's own troubles are not the program's */
            xl_buf_printf(texts, "%.*s\n", XL_FMT(error->s));
    }
    xl_memory_csv c = { 0 };
    if (!attempts)
        c = xl_memory_csv_open(a, dir); /* what a process that was killed has left */
    for (xl_memory_row r; xl_memory_csv_next(&c, &r);)
        steps = r.step > steps ? r.step : steps;
    return steps > XL_WINDOW_STEPS ? XL_PHASE_RUN : client ? XL_PHASE_WINDOW : XL_PHASE_STARTUP;
}
