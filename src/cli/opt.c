#include "cli/opt.h"

#include <stdio.h>

#include "lane/profile.h"
#include "pjrt/plugin.h"

static const xl_opt *find(const xl_opt *table, xl_str name)
{
    for (; table && table->name; table++)
        if (xl_str_is(name, table->name))
            return table;
    return NULL;
}

static void nearest(const xl_opt *table, xl_str name, size_t *best, const char **near)
{
    for (; table && table->name; table++) {
        size_t d = xl_str_distance(name, xl_str_of(table->name));
        if (d < *best) {
            *best = d;
            *near = table->name;
        }
    }
}

static xl_error *unknown(const xl_opt *table, const xl_opt *common, xl_str name)
{
    size_t best = SIZE_MAX;
    const char *near = NULL;
    nearest(table, name, &best, &near);
    nearest(common, name, &best, &near);
    if (near && best <= 1 + name.n / 3)
        return XL_ERR(INVALID, "there is no option --%.*s; did you mean --%s?", XL_FMT(name), near);
    return XL_ERR(INVALID, "there is no option --%.*s; --help lists the options", XL_FMT(name));
}

/* As it is typed: -n, --name. */
static const char *dashes(const xl_opt *o) { return o->name[1] ? "--" : "-"; }

/* A word of its own, which is not empty. */
static bool words(const xl_opt *o)
{
    return o->kind == XL_OPT_STR || o->kind == XL_OPT_PLUGIN || o->kind == XL_OPT_PROFILE;
}

static xl_error *set(xl_arena *a, const xl_opt *o, const char *text)
{
    xl_str s = xl_str_of(text);
    bool ok = true;
    xl_error *err = NULL;
    if (!s.n && (words(o) || o->kind == XL_OPT_REPEAT))
        return XL_ERR(INVALID, "%s%s is empty: give it a value, %s%s=%s, or leave it out", dashes(o), o->name,
                      dashes(o), o->name, o->value ? o->value : "VALUE");
    switch (o->kind) {
    case XL_OPT_FLAG:
        if (xl_str_is(s, "true") || xl_str_is(s, "false"))
            *(bool *)o->out = xl_str_is(s, "true");
        else
            return XL_ERR(INVALID, "--%s takes no value (or true, or false), not '%s'", o->name, text);
        return NULL;
    case XL_OPT_PLUGIN:
    case XL_OPT_PROFILE:
        err = o->kind == XL_OPT_PLUGIN ? xl_plugin_named(text) : xl_profile_named(a, text);
        if (err)
            return xl_error_wrap(err, "--%s", o->name);
        *(const char **)o->out = text;
        return NULL;
    case XL_OPT_STR:
    case XL_OPT_TEXT:
        *(const char **)o->out = text;
        return NULL;
    case XL_OPT_INT:
    case XL_OPT_COUNT:
    case XL_OPT_SOME:
        err = xl_str_whole(s, INT64_MAX, o->out);
        if (xl_error_code(err) == XL_CODE_RANGE)
            return xl_error_wrap(err, "%s%s", dashes(o), o->name);
        ok = !err && (o->kind == XL_OPT_INT || *(int64_t *)o->out >= (o->kind == XL_OPT_SOME));
        xl_error_free(err);
        break;
    case XL_OPT_NUM:
        ok = xl_str_f64(s, o->out);
        break;
    case XL_OPT_SECONDS:
        ok = xl_str_f64(s, o->out) && *(double *)o->out >= 0 && *(double *)o->out <= 1e9;
        break;
    case XL_OPT_SIZE:
        ok = xl_str_size(s, o->out) && *(uint64_t *)o->out > 0;
        break;
    case XL_OPT_REPEAT: {
        xl_opt_list *l = o->out;
        l->p = xl_arena_grow(a, (void *)l->p, sizeof *l->p, l->n, l->n + 1);
        l->p[l->n++] = text;
        return NULL;
    }
    }
    static const char *const want[] = { [XL_OPT_INT] = "a whole number",
                                        [XL_OPT_COUNT] = "a whole number of at least 0",
                                        [XL_OPT_SOME] = "a whole number of at least 1",
                                        [XL_OPT_NUM] = "a number",
                                        [XL_OPT_SECONDS] = "a number of seconds, from 0 to 1e9",
                                        [XL_OPT_SIZE] = "a size above 0, such as 64MiB" };
    return ok ? NULL : XL_ERR(INVALID, "%s%s takes %s, not '%s'", dashes(o), o->name, want[o->kind], text);
}

/* Of an option of one letter, what is joined to it: "4" of -n4 and -n=4, "" of -n; NULL: it is none. */
static const char *short_value(const xl_opt *table, const char *arg)
{
    const xl_opt *o = find(table, (xl_str){ arg + 1, 1 });
    if (!o || !arg[2])
        return o ? "" : NULL;
    bool equals = arg[2] == '=', number = !words(o) && o->kind != XL_OPT_TEXT;
    const char *value = arg + 2 + equals;
    bool digits = strspn(value, "0123456789") == strlen(value);
    return *value && (equals || (number && digits)) ? value : NULL;
}

xl_error *xl_opt_parse(xl_arena *a, const xl_opt *table, const xl_opt *common, bool stop_at_first, int argc,
                       char **argv, int *nargs)
{
    xl_error *err = NULL;
    int n = 0, i = 0;
    for (; i < argc; i++) {
        char *arg = argv[i];
        if (arg[0] != '-' || arg[1] == 0) { /* a plain word, or "-" for standard input */
            if (stop_at_first)
                break;
            argv[n++] = arg;
            continue;
        }
        if (arg[1] != '-') {
            double number;
            if (xl_str_f64(xl_str_of(arg), &number)) {
                argv[n++] = arg;
                continue;
            }
            const char *joined = short_value(table, arg);
            if (joined)                                    /* a verb may have a short one: report -o FILE, run -n4 */
                arg = xl_str_c(a, xl_strf(a, "--%c%s%s", arg[1], *joined ? "=" : "", joined));
            else if (strcmp(arg, "-h") != 0) {
                err = XL_ERR(INVALID, "'%s': options are written out here, with two dashes; --help lists them", arg);
                goto out;
            } else
                arg = "--help";
        }
        if (arg[2] == 0) { /* "--" */
            i++;
            break;
        }
        xl_str rest = xl_str_of(arg + 2), name = xl_str_cut(&rest, '=');
        const char *value = rest.p;
        const xl_opt *o = find(table, name);
        if (!o)
            o = find(common, name);
        if (!o) {
            err = unknown(table, common, name);
            goto out;
        }
        if (!value && o->kind == XL_OPT_FLAG) {
            *(bool *)o->out = true;
            continue;
        }
        if (!value && i + 1 < argc && strcmp(argv[i + 1], "--"))
            value = argv[++i];
        if (!value) {
            err = XL_ERR(INVALID, "%s%s needs a value: %s%s=%s", dashes(o), o->name, dashes(o), o->name,
                         o->value ? o->value : "VALUE");
            goto out;
        }
        XL_DO(set(a, o, value));
    }
    for (; i < argc; i++)
        argv[n++] = argv[i];
    *nargs = n;
out:
    return err;
}

/* A sentence in the second column of the help, which ends at 120. */
static void wrapped(xl_buf *b, const char *text)
{
    enum { LEFT = 29, WIDTH = 120 - LEFT };
    while (strlen(text) > WIDTH) {
        size_t n = WIDTH;
        while (n > 0 && text[n] != ' ')
            n--;
        if (!n)
            break;
        xl_buf_printf(b, "%.*s\n%*s", (int)n, text, LEFT, "");
        text += n + 1;
    }
    xl_buf_printf(b, "%s\n", text);
}

void xl_opt_help(xl_buf *b, const xl_opt *table)
{
    for (; table && table->name; table++) {
        char left[80];
        snprintf(left, sizeof left, "%s%s%s%s", dashes(table), table->name, table->value ? "=" : "",
                 table->value ? table->value : "");
        xl_buf_printf(b, "  %-26s ", left);
        wrapped(b, table->help);
    }
}
