#include "lane/job.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/ranks.h"
#include "base/time.h"
#include "lane/run.h"

#define STORE ".ranks-"

struct xl_job {
    int64_t n, me;
    char dir[4096]; /* of the store */
    atomic_bool cancelled;
    xl_kv kv;
};

/* ---- which job it is ------------------------------------------------------------------------------------------------
 */
const char *xl_job_name(xl_arena *a)
{
    const char *own = getenv("XLANE_JOB"), *ompi = getenv("OMPI_MCA_ess_base_jobid"), *pmix = getenv("PMIX_NAMESPACE"),
               *slurm = getenv("SLURM_JOB_ID"), *step = getenv("SLURM_STEP_ID");
    const char *torch = getenv("TORCHELASTIC_RUN_ID"), *port = getenv("MASTER_PORT"), *addr = getenv("MASTER_ADDR"),
               *turn = getenv("TORCHELASTIC_RESTART_COUNT");
    xl_buf clean = { 0 };
    const char *all = own && *own ? own
                      : ompi      ? ompi
                      : pmix      ? pmix
                      : slurm     ? xl_strf(a, "%s.%s", slurm, step ? step : "batch").p
                      : torch     ? xl_strf(a, "%s.%s.%s", torch, port ? port : "", turn ? turn : "0").p
                      : addr && port && getenv("WORLD_SIZE") ? xl_strf(a, "%s.%s", addr, port).p
                                  : "";
    for (const char *c = all; *c; c++)
        xl_buf_putc(&clean, *c == '/' ? '-' : *c);
    const char *name = clean.n ? xl_str_c(a, xl_buf_view(&clean)) : "";
    xl_buf_fini(&clean);
    return name;
}

xl_error *xl_job_folder(xl_arena *a, const char *runs, const char *name, const char *job, char **dir, char **link)
{
    enum { STALE_S = 600 }; /* a link of an earlier job that went by the same name */
    xl_error *err = NULL;
    char to[512];
    struct stat st;
    char *made;
    *link = xl_path_join(a, runs, xl_strf(a, ".job-%s", job).p);
    XL_DO(xl_run_make(a, runs, name, &made));
    if (lstat(*link, &st) == 0 && st.st_uid == geteuid() && xl_now_wall() - (double)st.st_mtime > STALE_S)
        unlink(*link);
    xl_str base = xl_path_base(xl_str_of(made));
    *dir = made;
    if (symlink(xl_str_c(a, base), *link) == 0)
        return NULL;
    ssize_t n = errno == EEXIST ? readlink(*link, to, sizeof to - 1) : -1;
    if (n <= 0 || memchr(to, '/', (size_t)n) || lstat(*link, &st) || st.st_uid != geteuid()) {
        err = XL_ERR(UNAVAILABLE,
                     "%s: not a link to the run folder of this job: remove it, or name another folder with --runs",
                     *link);
        goto out;
    }
    rmdir(made);
    *dir = xl_path_join(a, runs, xl_str_c(a, (xl_str){ to, (size_t)n }));
out:
    return err;
}

/* ---- the store ------------------------------------------------------------------------------------------------------
 */
/* Letters, digits and - as they are, anything else as =XX: no key leaves the folder. */
static void file_of(const xl_job *j, xl_str key, char *out, size_t size)
{
    size_t n = (size_t)snprintf(out, size, "%s/", j->dir);
    for (size_t i = 0; i < key.n && n + 4 < size; i++) {
        char c = key.p[i];
        bool plain = (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || c == '-';
        n += (size_t)snprintf(out + n, size - n, plain ? "%c" : "=%02x", plain ? c : (unsigned char)c);
    }
}

static xl_error *put(void *ctx, xl_str key, xl_str value)
{
    char path[8192];
    file_of(ctx, key, path, sizeof path);
    return xl_file_write_new(path, value, 0600);
}

static xl_error *try_get(void *ctx, xl_str key, xl_buf *value)
{
    char path[8192];
    xl_arena a = { 0 };
    xl_str text = { 0 };
    file_of(ctx, key, path, sizeof path);
    xl_error *err = xl_file_read_plain(&a, path, 64 << 20, &text);
    if (!err)
        xl_buf_add(value, text.p, text.n);
    xl_arena_fini(&a);
    return err ? err : value->failed ? XL_ERR(EXHAUSTED, "no memory for a value of the store") : NULL;
}

static xl_error *get_for(xl_job *j, xl_str key, double seconds, xl_buf *value)
{
    char path[8192];
    double began = xl_now(), pause = 0.0005;
    file_of(j, key, path, sizeof path);
    while (!xl_file_stat(path, NULL)) {
        if (atomic_load(&j->cancelled))
            return XL_ERR(CANCELLED, "no longer waiting for %.*s: this process is ending", XL_FMT(key));
        if (xl_now() - began > seconds)
            return XL_ERR(DEADLINE, "%.*s did not come within %.0f s", XL_FMT(key), seconds);
        xl_sleep(pause);
        pause = pause < 0.02 ? pause * 1.5 : pause;
    }
    return try_get(j, key, value);
}

static xl_error *get(void *ctx, xl_str key, int ms, xl_buf *value) { return get_for(ctx, key, ms * 1e-3, value); }

xl_error *xl_job_open(const char *dir, xl_job **out)
{
    xl_error *err = NULL;
    xl_arena a = { 0 };
    xl_ranks seen = xl_ranks_seen();
    const char *alone = getenv("XLANE_ALONE"), *name = xl_job_name(&a);
    xl_job *j = NULL;
    *out = NULL;
    if (seen.n <= 1 || (alone && !strcmp(alone, "1")))
        goto out;
    if (!*name) {
        err = XL_ERR(PRECONDITION,
                     "%s says that there are %lld processes, and nothing says which job they are: set XLANE_JOB to a "
                     "word that all of them share and no other job has",
                     seen.variable, (long long)seen.n);
        goto out;
    }
    j = calloc(1, sizeof *j);
    if (!j) {
        err = XL_ERR(EXHAUSTED, "out of memory");
        goto out;
    }
    j->n = seen.n;
    j->me = seen.me;
    j->kv = (xl_kv){ j, get, try_get, put };
    snprintf(j->dir, sizeof j->dir, "%s/" STORE "%s", dir, name);
    XL_TRY(xl_dir_make_private(j->dir), "making the store of the ranks");
    *out = j;
    j = NULL;
out:
    free(j);
    xl_arena_fini(&a);
    return err;
}

int64_t xl_job_ranks(const xl_job *j) { return j ? j->n : 1; }
int64_t xl_job_me(const xl_job *j) { return j ? j->me : 0; }
const xl_kv *xl_job_kv(xl_job *j) { return &j->kv; }
xl_error *xl_job_put(xl_job *j, const char *key, xl_str value) { return put(j, xl_str_of(key), value); }

xl_error *xl_job_get(xl_job *j, const char *key, double seconds, xl_buf *value)
{
    return get_for(j, xl_str_of(key), seconds, value);
}

bool xl_job_has(xl_job *j, const char *key)
{
    char path[8192];
    file_of(j, xl_str_of(key), path, sizeof path);
    return xl_file_stat(path, NULL);
}

void xl_job_cancel(xl_job *j)
{
    if (j)
        atomic_store(&j->cancelled, true);
}

static void remove_store(const char *dir)
{
    xl_arena a = { 0 };
    xl_str *names = NULL;
    size_t n = 0;
    xl_error_free(xl_dir_list(&a, dir, &names, &n));
    for (size_t i = 0; i < n; i++)
        xl_error_free(xl_file_remove(xl_path_join(&a, dir, xl_str_c(&a, names[i]))));
    rmdir(dir);
    xl_arena_fini(&a);
}

void xl_job_close(xl_job *j, bool whole)
{
    char key[64];
    if (!j)
        return;
    snprintf(key, sizeof key, "bye-%lld", (long long)j->me);
    if (whole)
        xl_error_free(xl_job_put(j, key, XL_STR("")));
    if (whole && !j->me) {
        double until = xl_now() + 10;
        for (int64_t i = 1; i < j->n && whole; i++) {
            xl_buf b = { 0 };
            snprintf(key, sizeof key, "bye-%lld", (long long)i);
            xl_error *err = xl_job_get(j, key, until - xl_now(), &b);
            whole = !err;
            xl_error_free(err);
            xl_buf_fini(&b);
        }
        if (whole)
            remove_store(j->dir);
    }
    free(j);
}

void xl_job_sweep(const char *dir)
{
    xl_arena a = { 0 };
    xl_str *names = NULL;
    size_t n = 0;
    xl_error_free(xl_dir_list(&a, dir, &names, &n));
    for (size_t i = 0; i < n; i++)
        if (xl_str_starts(names[i], XL_STR(STORE)))
            remove_store(xl_path_join(&a, dir, xl_str_c(&a, names[i])));
    xl_arena_fini(&a);
}
