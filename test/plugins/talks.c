/* As XLA's plugins do: it logs on standard error, unless TF_CPP_MIN_LOG_LEVEL is at least the line's level. */
#include "wrap.h"

static void change(PJRT_Api *api)
{
    const char *least = getenv("TF_CPP_MIN_LOG_LEVEL");
    (void)api;
    if (!least || atoi(least) < 1)
        fprintf(stderr, "I0000 00:00:00.000000 talks.c:1] an INFO line of the runtime\n");
    if (!least || atoi(least) < 2)
        fprintf(stderr, "W0000 00:00:00.000000 talks.c:2] a warning of the runtime\n");
}
