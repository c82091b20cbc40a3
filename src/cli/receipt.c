/* xlane receipt: what was proved, on which pins, and for how long that holds. */
#include "lane/receipt.h"

#include <stdio.h>

#include "base/file.h"
#include "cli/cli.h"
#include "lane/run.h"

/* A file, or the newest of a run's folder, or of what `explain` calls a run. */
static xl_error *find(xl_arena *a, const char *word, char **path)
{
    xl_error *err = NULL;
    xl_file_info info;
    *path = xl_str_c(a, xl_str_of(word));
    if (!xl_file_stat(word, &info))
        XL_DO(xl_error_next(xl_run_find(a, word, path), "a receipt's file can be named too"));
    if (xl_file_stat(*path, &info) && info.dir)
        *path = xl_str_c(a, xl_str_of(xl_receipt_newest(a, *path)));
out:
    return err;
}

static void put_pass(xl_buf *b, const char *word, const xl_node *p)
{
    if (!p || p->kind != XL_NODE_MAP) {
        xl_buf_printf(b, "; %s not recorded", word);
        return;
    }
    const xl_node *compiled = xl_node_get(p, "compiled"), *cached = xl_node_get(p, "from_cache"),
                  *executed = xl_node_get(p, "executed");
    xl_buf_printf(b, "; %s %lld compiled, %lld from the cache, %lld executed", word,
                  (long long)(compiled ? compiled->i : 0), (long long)(cached ? cached->i : 0),
                  (long long)(executed ? executed->i : 0));
}

static void put_rung(xl_buf *b, const xl_node *r)
{
    xl_str verdict = xl_node_text(r, "verdict"), why = xl_node_text(r, "why");
    xl_buf_printf(b, "  %-8.*s%.*s", XL_FMT(xl_node_text(r, "name")), XL_FMT(verdict));
    if (xl_str_is(verdict, "passed") || xl_str_is(verdict, "failed")) {
        put_pass(b, "cold", xl_node_get(r, "cold"));
        put_pass(b, "restored", xl_node_get(r, "restored"));
    }
    if (why.n)
        xl_buf_printf(b, "; %.*s", XL_FMT(why));
    xl_buf_putc(b, '\n');
}

static void put_fact(xl_buf *b, const xl_node *f)
{
    xl_str value = xl_node_text(f, "value"), when = xl_node_text(f, "when");
    int64_t bytes;
    char size[32];
    if (xl_node_is(f, "fact", "peak_memory") && xl_str_i64(value, &bytes))
        value = xl_str_of(xl_size_words((double)bytes, size));
    xl_buf_printf(b, "  %-14.*s %s%.*s\n", XL_FMT(xl_node_text(f, "fact")),
                  value.n && xl_node_is(f, "fact", "packages") ? "installed: " : "",
                  XL_FMT(value.n ? value : XL_STR("none")));
    if (when.n)
        xl_buf_printf(b, "  %-14s check again %.*s\n", "", XL_FMT(when));
}

/* Bytes as a person reads them. */
static xl_str amount(xl_arena *a, xl_str name, xl_str value)
{
    int64_t bytes;
    char size[32];
    bool counts = memmem(name.p, name.n, "peak_memory", 11) && xl_str_i64(value, &bytes);
    return counts ? xl_str_dup(a, xl_str_of(xl_size_words((double)bytes, size))) : value;
}

static const char *restored(xl_str method)
{
    static const struct { const char *method, *words; } row[] = {
        { "cold", ": every program was compiled, none came from a cache" },
        { "cold-without-cache", ": every program was compiled; there was no cache" },
        { "executable-cache", ": every program came from the cache" },
        { "frontend-cache", ": every program came from the frontend's own cache" },
        { "partly-restored", ": some programs came from a cache, others were compiled" },
        { "not-seen", ": no process loaded a plugin under the guard" },
        { "nothing-compiled", ": no program was compiled or loaded" },
    };
    for (size_t i = 0; i < sizeof row / sizeof *row; i++)
        if (xl_str_is(method, row[i].method))
            return row[i].words;
    return "";
}

/* A training run leaves one each time that it goes on. */
static void put_others(xl_arena *a, xl_buf *b, const char *path)
{
    xl_str *names = NULL, dir = xl_path_dir(xl_str_of(path)), own = xl_path_base(xl_str_of(path));
    size_t n = 0, shown = 0;
    xl_error_free(xl_dir_list(a, xl_str_c(a, dir), &names, &n));
    for (size_t i = 0; i < n; i++)
        if (xl_receipt_name(names[i]) && !xl_str_eq(names[i], own))
            xl_buf_printf(b, "%s%s/%.*s", shown++ ? ", " : "others    ", xl_str_c(a, dir), XL_FMT(names[i]));
    xl_buf_puts(b, shown ? "\n" : "");
}

static xl_error *show(const xl_cli *cli, const char *path)
{
    xl_error *err = NULL;
    xl_node *r = NULL;
    xl_buf b = { 0 };
    xl_error *edited = xl_receipt_read(cli->arena, path, &r);
    if (edited && (!r || xl_error_code(edited) != XL_CODE_DATA_LOSS))
        return edited;
    if (cli->json) {
        xl_json j = { .out = &b, .pretty = true };
        xl_json_node(&j, r);
        xl_error_free(edited);
        return xl_cli_put(&b);
    }
    const xl_node *diagnostic = xl_node_get(r, "diagnostic");
    xl_buf_printf(&b, "%.*s receipt of %.*s: %.*s%s\n", XL_FMT(xl_node_text(r, "kind")),
                  XL_FMT(xl_node_text(r, "made")), XL_FMT(xl_receipt_words(cli->arena, r)),
                  diagnostic && diagnostic->b ? " (diagnostic profile: timings do not count)" : "");
    const xl_node *rungs = xl_node_get(r, "rungs"), *restore = xl_node_get(r, "restore"),
                  *owners = xl_node_get(r, "owners");
    xl_str passing = xl_node_text(rungs, "first_passing"), failing = xl_node_text(rungs, "next_failing");
    if (passing.n || failing.n)
        xl_buf_printf(&b, "rungs     first that passed: %.*s; %s%.*s\n",
                      XL_FMT(passing.n ? passing : XL_STR("none")),
                      xl_str_starts(failing, XL_STR("none")) ? "failed: " : "first that failed: ", XL_FMT(failing));
    const xl_node *each = xl_node_get(rungs, "each");
    for (size_t i = 0; each && i < each->n; i++)
        put_rung(&b, each->kid[i]);
    put_others(cli->arena, &b, path);
    xl_str method = xl_node_text(restore, "method");
    xl_buf_printf(&b, "restore   %.*s%s\n", XL_FMT(method), restored(method));
    for (size_t i = 0; owners && i < owners->n; i++)
        xl_buf_printf(&b, "%s%.*s: %.*s", i ? "; " : "parts     ", XL_FMT(owners->kid[i]->key),
                      XL_FMT(owners->kid[i]->s));
    xl_buf_putc(&b, '\n');
    const xl_node *facts = xl_node_get(r, "facts"), *notes = xl_node_get(r, "notes");
    bool none = xl_node_is(r, "claim", "none"); /* then what follows is a record, and no proof */
    for (int again = 0; again < 2; again++) {
        xl_buf_puts(&b, again && none ? "what was there when it ran, and when to check it again:\n"
                        : again       ? "what holds until something changes, and when to check it again:\n"
                        : none        ? "what was recorded of it, which is no proof:\n"
                                      : "what stays true of this run:\n");
        for (size_t i = 0; facts && i < facts->n; i++)
            if (xl_node_is(facts->kid[i], "holds", "durable") == !again)
                put_fact(&b, facts->kid[i]);
    }
    for (size_t i = 0; notes && i < notes->n; i++)
        xl_buf_printf(&b, "note             %.*s (%.*s)\n", XL_FMT(xl_node_text(notes->kid[i], "text")),
                      XL_FMT(xl_node_text(notes->kid[i], "source")));
    err = xl_cli_put(&b);
    if (!err)
        return edited;
    xl_error_free(edited);
    return err;
}

static xl_error *diff(const xl_cli *cli, const char *one, const char *two)
{
    xl_error *err = NULL;
    xl_node *x, *y;
    xl_node_change *c;
    size_t n, shown = 0;
    xl_buf b = { 0 };
    xl_json j = { .out = &b, .pretty = true };
    XL_DO(xl_receipt_read(cli->arena, one, &x));
    XL_DO(xl_receipt_read(cli->arena, two, &y));
    xl_node_changes(cli->arena, x, y, &c, &n);
    if (cli->json)
        xl_json_list(&j);
    for (size_t i = 0; i < n; i++) {
        static const char *const every[] = { "made", "checksum", "run" }; /* these differ always */
        bool skip = false;
        for (size_t k = 0; k < sizeof every / sizeof *every; k++)
            skip |= xl_str_is(c[i].name, every[k]);
        if (skip)
            continue;
        shown++;
        if (cli->json) {
            xl_json_map(&j);
            xl_json_put_str(&j, "name", c[i].name);
            xl_json_put_str(&j, "before", c[i].before);
            xl_json_put_str(&j, "after", c[i].after);
            xl_json_end(&j);
        } else {
            xl_buf_printf(&b, "%.*s: %.*s -> %.*s\n", XL_FMT(c[i].name),
                          XL_FMT(c[i].before.n ? amount(cli->arena, c[i].name, c[i].before) : XL_STR("(not there)")),
                          XL_FMT(c[i].after.n ? amount(cli->arena, c[i].name, c[i].after) : XL_STR("(not there)")));
        }
    }
    if (cli->json)
        xl_json_end(&j);
    else if (!shown)
        xl_buf_puts(&b, "the same but for their times\n");
    xl_cli_exit(cli, shown ? XL_EXIT_FAILED : XL_EXIT_DONE);
    err = xl_cli_put(&b);
out:
    return err;
}

static xl_error *receipt(const xl_cli *cli, int argc, char **argv)
{
    xl_error *err = NULL;
    xl_node *r;
    xl_buf b = { 0 };
    xl_arena *a = cli->arena;
    char *one, *two;
    bool differ = !strcmp(argv[0], "diff");
    if (differ ? argc != 3 : argc > 2 || (strcmp(argv[0], "show") && strcmp(argv[0], "verify")))
        return xl_cli_misuse(
            cli,
            "receipt: usage: show [RUN], diff RUN RUN, or verify [RUN]; RUN is a run's folder or a receipt's file");
    XL_DO(find(a, argc > 1 ? argv[1] : "last", &one));
    if (differ) {
        XL_DO(find(a, argv[2], &two));
        return diff(cli, one, two);
    }
    if (!strcmp(argv[0], "show"))
        return show(cli, one);
    XL_DO(xl_receipt_read(a, one, &r));
    xl_buf_printf(&b, "sound: a %.*s receipt of %.*s, %.*s\n", XL_FMT(xl_node_text(r, "kind")),
                  XL_FMT(xl_node_text(r, "made")), XL_FMT(xl_node_text(r, "proof")));
    if (cli->json) {
        b.n = 0;
        xl_buf_puts(&b, "{\"sound\":true}");
    }
    err = xl_cli_put(&b);
out:
    return err;
}

XL_VERB(receipt) = {
    .name = "receipt",
    .args = "show [RUN] | diff RUN RUN | verify [RUN]",
    .help = "what a run proved, with which versions, and how long that holds",
    .more =
        "Every run writes a receipt.json into its folder, once, and another each time that it is resumed: the newest "
        "is\n"
        "shown, and the others are listed. `verify` fails if it was edited; `diff` exits with 1 if two receipts "
        "differ. A\n"
        "receipt is about viability: that the lane starts, compiles, restores and runs. It says nothing about the "
        "quality of\n"
        "the trained model.",
    .example = "xlane receipt show last\nxlane receipt diff RUN1 RUN2",
    .min = 1,
    .max = 3,
    .run = receipt,
};
