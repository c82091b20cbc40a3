#include "lane/failed_rank.h"

#include <string.h>

xl_str xl_failed_rank(xl_arena *a, xl_node *const *event, size_t n)
{
    const xl_node *first = NULL, *said = NULL;
    size_t from = 0, ranks = 0;
    for (size_t i = 0; i < n; i++)
        if (xl_node_is(event[i], "event", "attempt") || xl_node_is(event[i], "event", "restart"))
            from = i;
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
    xl_str words = xl_node_text(said, "text");
    return xl_strf(a, "rank %lld of %zu failed first: it %.*s%s%.*s%s", (long long)rank, ranks, XL_FMT(how),
                   words.n ? " (" : "", XL_FMT(words), words.n ? ")" : "");
}
