#include "cli/cli.h"

#include <errno.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/variables.h"
#include "base/version.h"
#include "lane/kept.h"

void xl_cli_exit(const xl_cli *cli, int status) { *cli->status = status; }

xl_error *xl_cli_misuse(const xl_cli *cli, const char *fmt, ...)
{
    char text[1024];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    *cli->status = XL_EXIT_MISUSED;
    return XL_ERR(INVALID, "%s", text);
}

static const bool *json_asked;

void xl_cli_wrap(xl_buf *b)
{
    struct winsize w = { 0 };
    if (!isatty(1) || ioctl(1, TIOCGWINSZ, &w) || w.ws_col < 40 || b->failed)
        return;
    xl_buf out = { 0 };
    for (xl_str rest = xl_buf_view(b); rest.n;) {
        xl_str line = xl_str_cut(&rest, '\n');
        size_t indent = 0, width = w.ws_col;
        while (indent < line.n && line.p[indent] == ' ')
            indent++;
        while (line.n > width) {
            size_t at = width;
            while (at > indent + 1 && line.p[at] != ' ')
                at--;
            if (line.p[at] != ' ' || at <= indent + 1)     /* one long word: as it is */
                break;
            xl_buf_add(&out, line.p, at);
            xl_buf_printf(&out, "\n%*s", (int)indent + 4, "");
            line = xl_str_trim((xl_str){ line.p + at, line.n - at });
            if (width == w.ws_col)
                width = w.ws_col > indent + 24 ? w.ws_col - indent - 4 : 20;
            indent = 0;
        }
        xl_buf_add(&out, line.p, line.n);
        xl_buf_putc(&out, '\n');
    }
    xl_buf_fini(b);
    *b = out;
}

xl_error *xl_cli_put(xl_buf *b)
{
    xl_error *err = NULL;
    if (b->failed) {
        err = XL_ERR(EXHAUSTED, "no memory for the result");
        goto out;
    }
    if (b->n == 0 || b->p[b->n - 1] != '\n')
        xl_buf_putc(b, '\n');
    bool strange = false;
    for (size_t i = 0; i < b->n && !strange && !(json_asked && *json_asked); i++) /* JSON has its own escapes */
        strange = ((unsigned char)b->p[i] < ' ' && b->p[i] != '\n' && b->p[i] != '\t') || b->p[i] == 0x7f ||
                  (unsigned char)b->p[i] == 0xc2;
    if (strange) { /* module names, paths and messages are other people's: none may speak to the terminal */
        xl_buf shown = { 0 };
        xl_buf_shown(&shown, xl_buf_view(b));
        xl_buf_fini(b);
        *b = shown;
        if (b->failed) {
            err = XL_ERR(EXHAUSTED, "no memory for the result");
            goto out;
        }
    }
    if (fwrite(b->p, 1, b->n, stdout) != b->n)
        err = XL_ERR(UNAVAILABLE, "writing the result: %s", strerror(errno));
out:
    xl_buf_fini(b);
    return err;
}

static void help_all(xl_buf *b, const xl_verb *const *verbs)
{
    xl_buf_puts(b, "xlane: runs, caches, debugs and trains XLA programs through the PJRT C API\n\n"
                   "usage: xlane VERB [OPTIONS] [ARGUMENTS]\n\n");
    for (; *verbs; verbs++)
        xl_buf_printf(b, "  %-13s %s\n", (*verbs)->name, (*verbs)->help);
    xl_buf_puts(b, "\nEvery verb has --help with an example; those with a result to read have --json for scripts.\n"
                   "Exit status: 0 done, 1 failed, 2 misused, 3 the policy said stop, 4 stopped by a signal and saved "
                   "(continue with\n"
                   "`xlane resume`), 5 done but not everything could be recorded.\n"
                   "XLANE_LOG=off|error|warn|info|debug sets how much is logged to standard error.\n");
}

static void help_verb(xl_buf *b, const xl_verb *v, const xl_opt *common)
{
    xl_buf_printf(b,
                  "xlane %s: %s\n"
                  "\n"
                  "usage: xlane %s%s%s\n"
                  "\n",
                  v->name, v->help, v->name, v->args ? " " : "", v->args ? v->args : "");
    if (v->more)
        xl_buf_printf(b, "%s\n\n", v->more);
    xl_opt_help(b, v->opts);
    xl_opt_help(b, v->no_json ? common + 1 : common);      /* the first row is --json */
    if (v->example) {
        xl_str rest = xl_str_of(v->example);
        xl_buf_puts(b, "\nexample:\n");
        while (rest.n) {
            xl_str line = xl_str_cut(&rest, '\n');
            xl_buf_printf(b, "  %.*s\n", XL_FMT(line));
        }
    }
}

static const xl_verb *find(const xl_verb *const *verbs, const char *name)
{
    for (; *verbs; verbs++)
        if (strcmp((*verbs)->name, name) == 0)
            return *verbs;
    return NULL;
}

static xl_error *unknown_verb(const xl_cli *cli, const xl_verb *const *verbs, const char *name)
{
    size_t best = SIZE_MAX;
    const char *near = NULL;
    for (; *verbs; verbs++) {
        size_t d = xl_str_distance(xl_str_of((*verbs)->name), xl_str_of(name));
        if (d < best) {
            best = d;
            near = (*verbs)->name;
        }
    }
    if (near && best <= (strlen(name) < 6 ? 1 : strlen(name) / 3))
        return xl_cli_misuse(cli, "there is no verb '%s'; did you mean '%s'?", name, near);
    return xl_cli_misuse(cli, "there is no verb '%s'; `xlane --help` lists the verbs", name);
}

static void program_dir(char *out, size_t room)
{
    ssize_t n = readlink("/proc/self/exe", out, room - 1);
    out[n > 0 ? n : 0] = 0;
    char *slash = strrchr(out, '/');
    if (slash)
        *slash = 0;
}

static void warn_unknown(void)
{
    xl_buf b = { 0 };
    xl_variables_unknown(&b);
    for (xl_str rest = xl_buf_view(&b); rest.n;) {
        xl_str line = xl_str_cut(&rest, '\n');
        fprintf(stderr, "xlane: %.*s\n", XL_FMT(line));
    }
    xl_buf_fini(&b);
}

static xl_error *run(const xl_cli *cli, bool *json, const xl_verb *const *verbs, int argc, char **argv)
{
    xl_error *err = NULL;
    xl_buf b = { 0 };
    bool help = false, version = false;
    int n = 0;
    const xl_opt common[] = { { "json", XL_OPT_FLAG, json, NULL, "the result as one JSON value" },
                              { "help", XL_OPT_FLAG, &help, NULL, "this text" },
                              { 0 } };
    const xl_opt before[] = { { "version", XL_OPT_FLAG, &version, NULL, "the version" }, { 0 } };

    *cli->status = XL_EXIT_MISUSED; /* until the verb has what it needs */
    XL_DO(xl_opt_parse(cli->arena, before, common, true, argc, argv, &n));
    if (version || (n == 1 && !strcmp(argv[0], "version"))) {
        *cli->status = XL_EXIT_DONE;
        xl_buf_puts(&b, "xlane " XL_VERSION);
        return xl_cli_put(&b);
    }
    bool ask = n > 0 && strcmp(argv[0], "help") == 0 && !find(verbs, "help"); /* `xlane help [VERB]` */
    if (ask) {
        help = true;
        argv++;
        n--;
    }
    const xl_verb *v = n > 0 ? find(verbs, argv[0]) : NULL;
    if (n > 0 && !v)
        return unknown_verb(cli, verbs, argv[0]);
    if (v) {
        int rest = 0;
        XL_TRY(xl_opt_parse(cli->arena, v->opts, common, v->stop_at_first, n - 1, argv + 1, &rest), "%s", v->name);
        argv++;
        n = rest;
    }
    if (help || !v) {
        if (v)
            help_verb(&b, v, common);
        else
            help_all(&b, verbs);
        if (help) {
            *cli->status = XL_EXIT_DONE;
            return xl_cli_put(&b);
        }
        fwrite(b.p, 1, b.n, stderr);
        xl_buf_fini(&b);
        return NULL;
    }
    if (n < v->min || (v->max >= 0 && n > v->max))
        return xl_cli_misuse(cli, "%s: %s; usage: xlane %s %s", v->name,
                             n < v->min ? "an argument is missing" : "too many arguments", v->name,
                             v->args ? v->args : "");
    if (*json && v->no_json)
        return xl_cli_misuse(cli, "%s has no --json: %s", v->name, v->no_json);
    XL_DO(xl_variables_check());
    warn_unknown();
    *cli->status = XL_EXIT_DONE;
    err = v->run(cli, n, argv);
out:
    return err;
}

int xl_cli_main(const xl_verb *const *verbs, int argc, char **argv)
{
    char dir[4096];
    int status = XL_EXIT_DONE;
    xl_arena arena = { 0 };
    xl_cli cli = { .arena = &arena, .dir = dir, .status = &status };
    json_asked = &cli.json;
    xl_kept_in(&arena);
    program_dir(dir, sizeof dir);
    xl_error *err = run(&cli, &cli.json, verbs, argc > 0 ? argc - 1 : 0, argc > 0 ? argv + 1 : argv);
    if (fflush(stdout) != 0 && !err)
        err = XL_ERR(UNAVAILABLE, "writing the result: %s", strerror(errno));
    if (err) {
        xl_buf shown = { 0 };
        xl_buf_shown(&shown, xl_str_of(xl_error_message(err)));
        fprintf(stderr, "xlane: %.*s\n", XL_FMT(xl_buf_view(&shown)));
        xl_buf_fini(&shown);
        if (status == XL_EXIT_DONE)
            status = xl_error_is_misuse(err) ? XL_EXIT_MISUSED : XL_EXIT_FAILED;
        xl_error_free(err);
    }
    xl_kept_in(NULL);
    xl_arena_fini(&arena);
    return status;
}
