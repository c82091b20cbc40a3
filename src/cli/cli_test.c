#include "cli/cli.h"
#include "base/test.h"

#include <unistd.h>

static struct { const char *plugin, *text; int64_t limit; double x; uint64_t size; xl_opt_list env; bool all; } opt;
static const xl_opt opts[] = {
    { "plugin", XL_OPT_STR, &opt.plugin, "PATH", "the plugin to open" },
    { "limit", XL_OPT_INT, &opt.limit, "SECONDS", "give up after this long" },
    { "text", XL_OPT_TEXT, &opt.text, "TEXT", "words, or none" },
    { "x", XL_OPT_NUM, &opt.x, "X", "a number" },
    { "size", XL_OPT_SIZE, &opt.size, "BYTES", "a size" },
    { "env", XL_OPT_REPEAT, &opt.env, "K=V", "set a variable" },
    { "all", XL_OPT_FLAG, &opt.all, NULL, "everything" },
    { 0 }
};
static char got[200];
static bool got_json;

static xl_error *run(const xl_cli *cli, int argc, char **argv)
{
    got[0] = 0;
    got_json = cli->json;
    for (int i = 0; i < argc; i++)
        snprintf(got + strlen(got), sizeof got - strlen(got), "%s|", argv[i]);
    if (argc && strcmp(argv[0], "fail") == 0)
        return XL_ERR(INVALID, "it went wrong");
    if (argc && strcmp(argv[0], "stop") == 0)
        xl_cli_exit(cli, XL_EXIT_STOPPED);
    if (argc && strcmp(argv[0], "misuse") == 0)
        return xl_cli_misuse(cli, "not so");
    return NULL;
}

static const xl_verb probe = { .name = "probe", .args = "[FILE]", .help = "is it alive", .opts = opts, .max = 3,
                               .example = "xlane probe x", .run = run };
static const xl_verb launch = { .name = "run", .args = "CMD", .help = "run it", .min = 1, .max = -1, .opts = opts,
                                .stop_at_first = true, .run = run };
static const xl_verb *const verbs[] = { &probe, &launch, NULL };

/* Runs the command with what it prints caught: standard output and error in one. */
static char said[8192];
static int call(const char *line)
{
    char copy[500], *argv[20];
    int argc = 0;
    snprintf(copy, sizeof copy, "%s", line);
    for (char *w = strtok(copy, " "); w; w = strtok(NULL, " "))
        argv[argc++] = w;
    memset(&opt, 0, sizeof opt);
    fflush(stdout);
    FILE *f = tmpfile();
    int out = dup(1), err = dup(2);
    dup2(fileno(f), 1);
    dup2(fileno(f), 2);
    int status = xl_cli_main(verbs, argc, argv);
    fflush(stdout);
    dup2(out, 1);
    dup2(err, 2);
    close(out);
    close(err);
    rewind(f);
    said[fread(said, 1, sizeof said - 1, f)] = 0;
    fclose(f);
    return status;
}
#define SAYS(line, status, part)                                                                                       \
    do {                                                                                                               \
        CHECK_INT(call(line), status);                                                                                 \
        if (!strstr(said, part))                                                                                       \
            FAIL("'%s' says: %s", line, said);                                                                         \
    } while (0)

TEST(cli_options_of_every_kind)
{
    CHECK_INT(call("xlane probe a --plugin=p.so --limit 7 --x=-1.5 --size 4KiB --all --json b -- --c"), 0);
    CHECK_STR(got, "a|b|--c|");
    CHECK_STR(opt.plugin, "p.so");
    CHECK(opt.limit == 7 && opt.x == -1.5 && opt.size == 4096 && opt.all && got_json);
    CHECK_INT(call("xlane --json probe --env=A=1 --all=false -5 --env B=2 -"), 0);
    CHECK(opt.env.n == 2 && got_json && !opt.all);
    CHECK_STR(got, "-5|-|");
    CHECK_INT(call("xlane probe"), 0);
    CHECK(!got_json);
}

TEST(cli_options_end_at_the_command)
{
    CHECK_INT(call("xlane run --limit=2 python t.py --limit=9 --help"), 0);
    CHECK_STR(got, "python|t.py|--limit=9|--help|");
    CHECK_INT(opt.limit, 2);
    CHECK_INT(call("xlane run -- python --x"), 0);
    CHECK_STR(got, "python|--x|");
}

TEST(cli_says_what_is_wrong)
{
    SAYS("xlane prob", 2, "did you mean 'probe'");
    SAYS("xlane zzzzzz", 2, "no verb 'zzzzzz'; `xlane --help` lists the verbs");
    SAYS("xlane probe --plugn=x", 2, "xlane: probe: there is no option --plugn; did you mean --plugin?");
    SAYS("xlane probe --qqqqqqqqqqq", 2, "--help lists");
    SAYS("xlane probe --nonsense", 2,
         "there is no option --nonsense; --help lists the options"); /* "size" is not meant */
    SAYS("xlane probe --limit=x", 2, "--limit takes a whole number, not 'x'");
    SAYS("xlane probe --size=1XB", 2, "--size takes a size above 0, such as 64MiB, not '1XB'");
    SAYS("xlane probe --size=0", 2, "--size takes a size above 0, such as 64MiB, not '0'");
    SAYS("xlane probe --plugin=", 2, "--plugin is empty: give it a value, --plugin=PATH, or leave it out");
    SAYS("xlane probe --env=", 2, "--env is empty");
    SAYS("xlane probe --text=", 0, "");
    SAYS("xlane probe --plugin", 2, "--plugin needs a value: --plugin=PATH");
    SAYS("xlane run --plugin -- x", 2, "--plugin needs a value: --plugin=PATH");
    SAYS("xlane run --plugin=-- -- x", 0, "");
    SAYS("xlane probe --all=maybe", 2, "takes no value");
    SAYS("xlane probe -p", 2, "two dashes");
    SAYS("xlane probe a b c d", 2, "too many arguments; usage: xlane probe [FILE]");
    SAYS("xlane run", 2, "an argument is missing");
    SAYS("xlane probe fail", 1, "xlane: it went wrong\n");
    SAYS("xlane probe stop", 3, "");
    SAYS("xlane probe misuse", 2, "xlane: not so\n");
    SAYS("xlane", 2, "usage: xlane VERB");
}

TEST(cli_help)
{
    SAYS("xlane --help", 0, "probe         is it alive");
    SAYS("xlane help", 0, "usage: xlane VERB");
    SAYS("xlane probe --help", 0, "--plugin=PATH              the plugin to open");
    SAYS("xlane help probe", 0, "example:\n  xlane probe x\n");
    SAYS("xlane probe -h", 0, "--json");
    SAYS("xlane run --help", 0, "usage: xlane run CMD"); /* without the argument it needs */
    SAYS("xlane --version", 0, "xlane 0.");
}
