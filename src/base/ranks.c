#include "base/ranks.h"

#include <stdlib.h>

static const struct {
    const char *size, *rank, *launcher;
    bool names;
} known[] = {
    /* names: a list of hosts, one process each */
    { "XLANE_RANKS", "XLANE_RANK", "xlane run -n", false },
    { "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK", "mpirun", false },
    { "SLURM_NTASKS", "SLURM_PROCID", "srun", false },
    { "WORLD_SIZE", "RANK", "torchrun", false },
    { "TPU_WORKER_HOSTNAMES", "TPU_WORKER_ID", "Cloud TPU", true },
};

xl_ranks xl_ranks_seen(void)
{
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        const char *size = getenv(known[i].size), *rank = getenv(known[i].rank);
        if (!rank || !*rank)
            rank = getenv("JOB_COMPLETION_INDEX");         /* of an indexed Job of Kubernetes, which gives no count */
        int64_t n = 1, me = 0;
        if (!size || !*size)
            continue;
        if (known[i].names) {
            for (const char *c = size; *c; c++)
                n += *c == ',' && c[1];
        } else if (!xl_str_i64(xl_str_of(size), &n)) {
            continue;
        }
        if (!rank || !xl_str_i64(xl_str_of(rank), &me) || me < 0 || me >= n)
            me = 0;
        if (n > 1)
            return (xl_ranks){ n, me, known[i].size, known[i].launcher };
    }
    return (xl_ranks){ 1, 0, NULL, NULL };
}

xl_error *xl_ranks_alone(int64_t have, const char *remedy)
{
    const char *meant = getenv("XLANE_ALONE");
    xl_ranks seen = xl_ranks_seen();
    if (seen.n <= 1 || have > 1 || (meant && !strcmp(meant, "1")))
        return NULL;
    return XL_ERR(PRECONDITION,
                  "%s says that %s started %lld processes, this one was told of %lld: it would run alone. %s; or set "
                  "XLANE_ALONE=1 where each is meant to run "
                  "by itself",
                  seen.variable, seen.launcher, (long long)seen.n, (long long)have, remedy);
}
