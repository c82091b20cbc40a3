#include "cli/unrecorded.h"

#include <string.h>

#include "lane/failed_rank.h"
#include "lane/run.h"
#include "lane/verdict.h"

xl_str xl_why_unrecorded(xl_arena *a, const char *dir)
{
    const xl_run_info about = xl_run_about(a, dir);
    const xl_node *status = xl_node_get(about.json, "status");
    xl_run_verdict v;
    xl_error_free(xl_run_judge(a, dir, &v));
    xl_str failed = xl_failed_words(a, v.event, v.nevent);
    if (about.unguarded)
        return XL_STR(XL_GUARD_OFF "; start it again without that");
    if (v.going)
        return xl_strf(a, "so far, that is: %.*s", XL_FMT(v.unended));
    if (v.unended.n)
        return v.unended;
    if (v.end.signal)
        return xl_strf(a, "its command was ended by signal %d (%s) before it had loaded a PJRT plugin; what it printed "
                          "may say why",
                       (int)v.end.signal, strsignal((int)v.end.signal));
    if (status && status->i)
        return xl_strf(a, "its command ended with exit status %lld before it had loaded a PJRT plugin; %.*s%s then "
                          "start it again", (long long)status->i, XL_FMT(failed),
                       failed.n ? ": mend that," : "what it printed says why: mend that,");
    if (v.builtin)
        return XL_STR("JAX took its built-in cpu backend, which is no PJRT plugin; `xlane run --profile=cpu -- ...` "
                      "takes the embedded device");
    if (xl_str_is(about.profile, "none"))
        return XL_STR("no process of it loaded a PJRT plugin; on this machine's CPU, `xlane run --profile=cpu -- CMD` "
                      "takes the embedded device (JAX's built-in cpu backend is no plugin)");
    return xl_strf(a,
                   "no process of it loaded a PJRT plugin, though profile %.*s names one: it used no device, or chose "
                   "JAX's built-in cpu itself (JAX_PLATFORMS or jax_platforms in the program)",
                   XL_FMT(about.profile));
}
