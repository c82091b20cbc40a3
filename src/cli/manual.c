/* xlane man and xlane completion: manual pages and shell completion, written from the tables of the verbs, so that
 * neither can say what the command does not do. */
#include <ctype.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/version.h"
#include "cli/cli.h"

#define VERB(name) extern const xl_verb xl_verb_##name;
#include "cli/verbs.def"

static const xl_verb *const verbs[] = {
#define VERB(name) &xl_verb_##name,
#include "cli/verbs.def"
    NULL
};

/* Variables that a user sets, and the device's. */
static const struct { const char *name, *what; } variables[] = {
#define USER(name, what) { "XLANE_" name, what },
#define RUN(name, what)
#define TEST(name, what)
#define VAR(name, who, example, what) who(#name, what)
#define ENV(name, kind, least, most, words, what) { "XLANE_CPU_" #name, what },
#include "base/variables.def"
};

static bool troff;
static const xl_opt man_opts[] = {
    { "troff", XL_OPT_FLAG, &troff, NULL, "print the page's source, wherever it goes" },
    { 0 },
};

/* ---- manual pages, in man's macros ------------------------------------------------------------------------------- */

/* Text that groff prints as it is: backslashes, hyphens that must stay minus signs, and points that begin a line. */
static void roff(xl_buf *b, const char *s)
{
    bool start = true;
    for (; s && *s; s++) {
        if (start && (*s == '.' || *s == '\''))
            xl_buf_puts(b, "\\&");
        start = *s == '\n';
        if (*s == '\\')
            xl_buf_puts(b, "\\e");
        else if (*s == '-')
            xl_buf_puts(b, "\\-");
        else
            xl_buf_putc(b, *s);
    }
}

static void upper(xl_buf *b, const char *s)
{
    for (; *s; s++)
        xl_buf_putc(b, (char)toupper((unsigned char)*s));
}

static void page_head(xl_buf *b, const char *name, const char *help)
{
    xl_buf_puts(b, ".TH ");
    upper(b, name);
    xl_buf_printf(b, " 1 \"\" \"xlane %s\" \"User Commands\"\n.SH NAME\n", XL_VERSION);
    roff(b, name);
    xl_buf_puts(b, " \\- ");
    roff(b, help);
    xl_buf_puts(b, "\n.SH SYNOPSIS\n");
}

static void section(xl_buf *b, const char *title, const char *text, bool code)
{
    xl_buf_printf(b, ".SH %s\n%s", title, code ? ".nf\n" : "");
    roff(b, text);
    xl_buf_printf(b, "\n%s", code ? ".fi\n" : "");
}

static void options(xl_buf *b, const xl_verb *v)
{
    xl_buf_puts(b, ".SH OPTIONS\n");
    for (const xl_opt *o = v->opts; o && o->name; o++) {
        xl_buf_puts(b, ".TP\n.B \\-\\-");
        roff(b, o->name);
        if (o->value) {
            xl_buf_puts(b, "=\\fI");
            roff(b, o->value);
            xl_buf_puts(b, "\\fR");
        }
        xl_buf_puts(b, "\n");
        roff(b, o->help);
        xl_buf_puts(b, "\n");
    }
    if (!v->no_json)
        xl_buf_puts(b, ".TP\n.B \\-\\-json\none JSON value on standard output\n");
    xl_buf_puts(b, ".TP\n.B \\-\\-help\nwhat this verb does, and an example\n");
}

static const char EXIT[] = "0 done, 1 failed, 2 misused, 3 the policy said stop, 4 stopped by a signal and saved "
                           "(continue with `xlane resume`), 5 done but not everything could be recorded.";

static void page_of_verb(xl_buf *b, const xl_verb *v)
{
    char name[64];
    snprintf(name, sizeof name, "xlane-%s", v->name);
    page_head(b, name, v->help);
    xl_buf_printf(b, ".B xlane %s\n", v->name);
    roff(b, v->args ? v->args : "");
    xl_buf_puts(b, "\n");
    if (v->more)
        section(b, "DESCRIPTION", v->more, false);
    options(b, v);
    if (v->example)
        section(b, "EXAMPLE", v->example, true);
    section(b, "EXIT STATUS", EXIT, false);
    section(b, "SEE ALSO", "xlane(1)", false);
}

static void page_of_all(xl_buf *b)
{
    page_head(b, "xlane", "run, cache, debug and train XLA programs through the PJRT C API");
    xl_buf_puts(b, ".B xlane\n.I VERB\n[\\fIOPTIONS\\fR] [\\fIARGUMENTS\\fR]\n.SH VERBS\n");
    for (const xl_verb *const *v = verbs; *v; v++) {
        xl_buf_printf(b, ".TP\n.B %s\n", (*v)->name);
        roff(b, (*v)->help);
        xl_buf_puts(b, "\n");
    }
    section(b, "EXIT STATUS", EXIT, false);
    xl_buf_puts(b, ".SH ENVIRONMENT\n");
    for (size_t i = 0; i < sizeof variables / sizeof *variables; i++) {
        xl_buf_printf(b, ".TP\n.B %s\n", variables[i].name);
        roff(b, variables[i].what);
        xl_buf_puts(b, "\n");
    }
    section(b, "SEE ALSO", "Each verb has a page of its own: xlane-run(1), xlane-explain(1), ...", false);
}

/* For people as a page, or without man(1) as the help: on a terminal, and in a pipe, as `man` does it; in a file, or
 * with --troff, as it is written. */
static xl_error *show(const xl_cli *cli, xl_buf *b, const char *verb)
{
    struct stat out;
    bool piped = !fstat(1, &out) && S_ISFIFO(out.st_mode), man = access("/usr/bin/man", X_OK) == 0;
    bool people = (isatty(1) || piped) && !troff && !b->failed;
    if (people && !man && *cli->dir) {
        char *self = xl_path_join(cli->arena, cli->dir, "xlane");
        execl(self, "xlane", verb ? verb : "--help", verb ? "--help" : NULL, NULL);
    }
    FILE *pager = people && man ? popen("/usr/bin/man -l -", "w") : NULL;
    if (!pager)
        return xl_cli_put(b);
    fwrite(b->p, 1, b->n, pager);                          /* the reader may leave early */
    xl_buf_fini(b);
    return pclose(pager) ? XL_ERR(UNAVAILABLE, "`man -l -` failed; `xlane man --troff VERB` prints the page as troff")
                         : NULL;
}

static xl_error *man(const xl_cli *cli, int argc, char **argv)
{
    xl_buf b = { 0 };
    const char *name = argc ? argv[0] : "xlane";
    if (!strcmp(name, "xlane")) {
        page_of_all(&b);
        return show(cli, &b, NULL);
    }
    if (!strncmp(name, "xlane-", 6))                       /* as the pages are called */
        name += 6;
    for (const xl_verb *const *v = verbs; *v; v++)
        if (!strcmp((*v)->name, name)) {
            page_of_verb(&b, *v);
            return show(cli, &b, name);
        }
    return xl_cli_misuse(cli, "there is no verb '%s'; `xlane --help` lists the verbs", argv[0]);
}

XL_VERB(man) = {
    .name = "man", .args = "[--troff] [VERB]", .max = 1, .run = man, .opts = man_opts,
    .help = "show a manual page, of the command or of one verb",
    .more = "On a terminal and in a pipe `man -l` shows the page, or without it the help; a file gets it as troff.",
    .example = "xlane man explain\n"
               "xlane man explain > explain.1",
    .no_json = "its result is a manual page",
};

/* ---- completion -------------------------------------------------------------------------------------------------- */
static void words_of(xl_buf *b, const xl_verb *v)
{
    for (const xl_opt *o = v->opts; o && o->name; o++)
        xl_buf_printf(b, "--%s%s ", o->name, o->value ? "=" : "");
    xl_buf_printf(b, "%s--help", v->no_json ? "" : "--json ");
}

static void bash(xl_buf *b)
{
    xl_buf_puts(b, "_xlane() {\n"
                   "    local word=${COMP_WORDS[COMP_CWORD]} words\n"
                   "    compopt +o nospace\n"
                   "    if [ \"$COMP_CWORD\" = 1 ]; then words=\"");
    for (const xl_verb *const *v = verbs; *v; v++)
        xl_buf_printf(b, "%s ", (*v)->name);
    xl_buf_puts(b, "--help --version\"\n    else case ${COMP_WORDS[1]} in\n");
    for (const xl_verb *const *v = verbs; *v; v++) {
        xl_buf_printf(b, "        %s) words=\"", (*v)->name);
        words_of(b, *v);
        xl_buf_puts(b, "\" ;;\n");
    }
    xl_buf_puts(b, "        esac\n    fi\n    case $word in -*) ;; *) [ \"$COMP_CWORD\" = 1 ] || words= ;; esac\n"
                   "    mapfile -t COMPREPLY < <(compgen -W \"$words\" -- \"$word\")\n"
                   "    case ${COMPREPLY[0]} in *=) compopt -o nospace ;; esac\n"
                   "}\n"
                   "complete -o default -F _xlane xlane\n");
}

static void fish(xl_buf *b)
{
    for (const xl_verb *const *v = verbs; *v; v++) {
        xl_buf_printf(b, "complete -c xlane -n __fish_use_subcommand -f -a %s -d '", (*v)->name);
        for (const char *s = (*v)->help; *s; s++)
            xl_buf_printf(b, "%s%c", *s == '\'' ? "\\" : "", *s);
        xl_buf_puts(b, "'\n");
        for (const xl_opt *o = (*v)->opts; o && o->name; o++)
            xl_buf_printf(b, "complete -c xlane -n '__fish_seen_subcommand_from %s' -l %s%s\n", (*v)->name, o->name,
                          o->value ? " -r" : "");
    }
}

static void zsh(xl_buf *b)
{
    xl_buf_puts(b, "#compdef xlane\nautoload -U +X bashcompinit && bashcompinit\n");
    bash(b);
}

static xl_error *completion(const xl_cli *cli, int argc, char **argv)
{
    static const struct {
        const char *shell;
        void (*write)(xl_buf *b);
    } shells[] = { { "bash", bash }, { "zsh", zsh }, { "fish", fish } };
    (void)argc;
    for (size_t i = 0; i < sizeof shells / sizeof *shells; i++)
        if (!strcmp(argv[0], shells[i].shell)) {
            xl_buf b = { 0 };
            shells[i].write(&b);
            return xl_cli_put(&b);
        }
    return xl_cli_misuse(cli, "no completion for \"%s\"; there is one for bash, zsh and fish", argv[0]);
}

XL_VERB(completion) = {
    .name = "completion", .args = "bash|zsh|fish", .min = 1, .max = 1, .run = completion,
    .help = "print a shell's completion of verbs and options", .example = "source <(xlane completion bash)",
    .no_json = "its result is a shell script",
};
