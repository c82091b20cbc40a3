#include "lane/failed_rank.h"

#include <string.h>

static size_t last_attempt(xl_node *const *event, size_t n)
{
    size_t from = 0;
    for (size_t i = 0; i < n; i++)
        if (xl_node_is(event[i], "event", "attempt") || xl_node_is(event[i], "event", "restart"))
            from = i;
    return from;
}

/* What a `program_end` says. */
static xl_str words_of(xl_arena *a, const xl_node *end)
{
    xl_str text = xl_node_text(end, "text"), where = xl_node_text(end, "where");
    return where.n ? xl_strf(a, "%.*s at %.*s", XL_FMT(text), XL_FMT(where)) : text;
}

xl_str xl_failed_rank(xl_arena *a, xl_node *const *event, size_t n)
{
    const xl_node *first = NULL, *said = NULL;
    size_t from = last_attempt(event, n), ranks = 0;
    for (size_t i = from; i < n; i++) {
        const xl_node *of = xl_node_get(event[i], "of"), *failed = xl_node_get(event[i], "first_failure");
        if (!xl_node_is(event[i], "event", "rank_end") || !of)
            continue;
        ranks = of->i >= 0 && (size_t)of->i >= ranks ? (size_t)of->i + 1 : ranks;
        first = failed && failed->b ? event[i] : first;
    }
    if (!first)
        return (xl_str){ "", 0 };
    int64_t rank = xl_node_int(first, "of", 0), status = xl_node_int(first, "status", 0);
    for (size_t i = from; i < n && !said; i++)
        if (xl_node_is(event[i], "event", "program_end") && xl_node_int(event[i], "rank", -1) == rank)
            said = event[i];
    xl_str how =
        status > 128 && status < 160 && !said
            ? xl_strf(a, "was ended by signal %lld (%s)", (long long)status - 128, strsignal((int)status - 128))
            : xl_strf(a, "exited with %lld", (long long)(said ? xl_node_int(said, "status", status) : status));
    xl_str words = words_of(a, said);
    return xl_strf(a, "rank %lld of %zu failed first: it %.*s%s%.*s%s", (long long)rank, ranks, XL_FMT(how),
                   words.n ? " (" : "", XL_FMT(words), words.n ? ")" : "");
}

/* What a policy said of the program whose process then ended with the error that it was given; NULL: that was not why.
 * */
static const xl_node *stopped_by(xl_node *const *event, size_t n, const xl_node *end)
{
    const xl_node *stop = NULL;
    xl_str text = xl_node_text(end, "text");
    static const char given[] = "xlane: the policy is to stop";
    for (size_t i = last_attempt(event, n); i < n; i++)
        if (xl_node_is(event[i], "event", "stop") && xl_node_int(event[i], "pid", 0) == xl_node_int(end, "pid", -1))
            stop = event[i];
    return memmem(text.p, text.n, given, sizeof given - 1) ? stop : NULL;
}

xl_str xl_failed_words(xl_arena *a, xl_node *const *event, size_t n)
{
    const xl_node *end = NULL;
    int64_t command = -1;
    xl_str rank = xl_failed_rank(a, event, n);
    if (rank.n)
        return rank;
    for (size_t i = last_attempt(event, n); i < n; i++) {
        if (xl_node_is(event[i], "event", "command"))
            command = xl_node_int(event[i], "program", -1);
        if (xl_node_is(event[i], "event", "program_end") && (!end || xl_node_int(end, "pid", 0) != command))
            end = event[i];                                /* the command's own, else the last */
    }
    if (!end)
        return rank;
    int64_t pid = xl_node_int(end, "pid", 0);
    const xl_node *stop = stopped_by(event, n, end);
    if (stop && xl_node_text(stop, "text").n)
        return xl_strf(a, "xlane stopped it, as --policy=stop says: %.*s", XL_FMT(xl_node_text(stop, "text")));
    const char *how = xl_str_is(xl_node_text(end, "text"), "KeyboardInterrupt") ? "was interrupted:" : "failed with";
    return pid == command ? xl_strf(a, "its program %s %.*s", how, XL_FMT(words_of(a, end)))
                          : xl_strf(a, "its process %lld %s %.*s", (long long)pid, how, XL_FMT(words_of(a, end)));
}
