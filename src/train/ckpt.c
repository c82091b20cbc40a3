#include "train/ckpt.h"

#include <stdlib.h>

#include "base/file.h"
#include "base/log.h"
#include "base/thread.h"
#include "train/safetensors.h"

xl_str xl_state_name(xl_arena *a, const xl_trainer *t, uint32_t i)
{
    uint32_t k = i / t->n;
    if (k == 3)
        return XL_STR("adamw.counters");
    return k ? xl_strf(a, "adamw.%c.%.*s", k == 1 ? 'm' : 'v', XL_FMT(t->name[i % t->n])) : t->name[i];
}

typedef struct {
    xl_arena arena;
    xl_saved *t;
    size_t n;
    xl_meta meta[4];
    void *bytes;
} snapshot;

static void drop(snapshot *s)
{
    free(s->bytes);
    xl_arena_fini(&s->arena);
    *s = (snapshot){ 0 };
}

static xl_error *take(xl_trainer *t, const xl_progress *where, snapshot *s)
{
    xl_error *err = xl_trainer_whole(t);
    if (err)
        return err;
    static const int64_t two = 2;
    uint64_t total = 0, at = 0;
    *s = (snapshot){ .n = 3 * (size_t)t->n + 1 };
    s->t = xl_new(&s->arena, xl_saved, s->n);
    for (uint32_t i = 0; i < s->n; i++) {
        const xl_type *ty = i < 3 * t->n ? t->type[i % t->n] : NULL;
        int64_t bytes = 8;
        if (ty)
            xl_type_bytes(ty, &bytes);
        s->t[i] = (xl_saved){ .name = xl_str_dup(&s->arena, xl_state_name(&s->arena, t, i)), .dtype = ty ? ty->dtype : XL_I32,
                              .dims = ty ? xl_type_dims(ty) : (xl_dims){ &two, 1 }, .bytes = (uint64_t)bytes };
        total += (uint64_t)bytes;
    }
    s->bytes = malloc(total);
    if (!s->bytes) {
        err = XL_ERR(EXHAUSTED, "no memory for a checkpoint of %llu bytes", (unsigned long long)total);
        goto out;
    }
    for (uint32_t i = 0; i < s->n; i++) {
        s->t[i].data = (char *)s->bytes + at;
        XL_TRY(xl_array_get(t->buf[i], (char *)s->bytes + at, (size_t)s->t[i].bytes, NULL), "reading %.*s", XL_FMT(s->t[i].name));
        at += s->t[i].bytes;
    }
    s->meta[0] = (xl_meta){ XL_STR("format"), XL_STR("pt") };
    s->meta[1] = (xl_meta){ XL_STR("xlane.batches"), xl_strf(&s->arena, "%lld", (long long)where->batches) };
    s->meta[2] = (xl_meta){ XL_STR("xlane.seed"), xl_strf(&s->arena, "%llu", (unsigned long long)where->seed) };
out:
    if (err)
        drop(s);
    return err;
}

xl_error *xl_ckpt_save(xl_trainer *t, const char *path, const xl_progress *where)
{
    snapshot s;
    xl_error *err = take(t, where, &s);
    if (err)
        return err;
    err = xl_safetensors_write(path, s.t, s.n, s.meta, 3);
    drop(&s);
    return err;
}

xl_error *xl_ckpt_load(xl_trainer *t, const char *path, xl_progress *where)
{
    xl_error *err = NULL;
    xl_arena a = { 0 };
    xl_safetensors s = { .fd = -1 };
    static const int64_t two = 2;
    uint32_t n = 3 * t->n + 1;
    void *host = NULL;
    XL_DO(xl_safetensors_open(path, &s));
    const xl_saved **src = xl_new(&a, const xl_saved *, n);
    uint64_t most = 8;
    for (uint32_t i = 0; i < n; i++) {                   /* all are looked at before one is changed */
        xl_str name = xl_state_name(&a, t, i);
        const xl_type *ty = i < 3 * t->n ? t->type[i % t->n] : NULL;
        xl_dims want = ty ? xl_type_dims(ty) : (xl_dims){ &two, 1 };
        src[i] = xl_safetensors_find(&s, name);
        if (!src[i]) {
            err = XL_ERR(INVALID, "%s has no tensor \"%.*s\": it is of another model; take the configuration it was trained with", path, XL_FMT(name));
            goto out;
        }
        bool same = src[i]->dtype == (ty ? ty->dtype : XL_I32) && src[i]->dims.n == want.n;
        for (size_t k = 0; same && k < want.n; k++)
            same = src[i]->dims.p[k] == want.p[k];
        if (!same) {
            xl_buf x = { 0 };
            for (size_t k = 0; k < src[i]->dims.n; k++)
                xl_buf_printf(&x, "%s%lld", k ? "," : "", (long long)src[i]->dims.p[k]);
            xl_buf_puts(&x, "], this model has [");
            for (size_t k = 0; k < want.n; k++)
                xl_buf_printf(&x, "%s%lld", k ? "," : "", (long long)want.p[k]);
            err = XL_ERR(INVALID, "%s: tensor \"%.*s\" is %s[%.*s]; take the configuration it was trained with", path, XL_FMT(name), xl_dtypes[src[i]->dtype].text, XL_FMT(xl_buf_view(&x)));
            xl_buf_fini(&x);
            goto out;
        }
        most = src[i]->bytes > most ? src[i]->bytes : most;
    }
    for (size_t k = 0; k < s.n; k++) {                     /* what nobody takes belongs to another model too */
        bool taken = false;
        for (uint32_t i = 0; i < n && !taken; i++)
            taken = src[i] == &s.t[k];
        if (!taken) {
            err = XL_ERR(INVALID, "%s has a tensor \"%.*s\" that this model has not: it is of another model; take the configuration it was trained with", path, XL_FMT(s.t[k].name));
            goto out;
        }
    }
    host = malloc(most);
    if (!host) {
        err = XL_ERR(EXHAUSTED, "no memory to load a tensor of %llu bytes", (unsigned long long)most);
        goto out;
    }
    for (uint32_t i = 0; i < n; i++) {                   /* one at a time: devices that hold the state once can be loaded into */
        xl_array *fresh;
        XL_DO(xl_safetensors_read(&s, src[i], host));
        t->half = true;
        XL_TRY(xl_array_put(t->buf[i]->place, xl_elem_of(src[i]->dtype), src[i]->dims, &t->buf[i]->spec, host, &fresh), "placing %.*s", XL_FMT(src[i]->name));
        xl_array_free(t->buf[i]);
        t->buf[i] = fresh;
    }
    t->half = false;
    if (where) {
        int64_t seed = 0;
        *where = (xl_progress){ 0 };
        if (!xl_str_i64(xl_safetensors_meta(&s, "xlane.batches"), &where->batches))
            where->batches = 0;
        if (xl_str_i64(xl_safetensors_meta(&s, "xlane.seed"), &seed))
            where->seed = (uint64_t)seed;
    }
out:
    free(host);
    xl_safetensors_close(&s);
    xl_arena_fini(&a);
    return err;
}

xl_error *xl_trainer_save(xl_trainer *t, const char *path) { return xl_ckpt_save(t, path, &(xl_progress){ t->lane->step, 0 }); }
xl_error *xl_trainer_load(xl_trainer *t, const char *path) { return xl_ckpt_load(t, path, NULL); }

/* ---- in the background ---------------------------------------------------------------------------------------------- */
struct xl_saver {
    xl_arena arena;
    const char *dir;
    int64_t keep, step, last;
    snapshot s;
    xl_thread thread;
    bool running;
    xl_error *err;
};

static char *file_of(xl_arena *a, const char *dir, int64_t step) { return xl_str_c(a, xl_strf(a, "%s/step-%08lld.safetensors", dir, (long long)step)); }

static bool step_of(xl_str name, int64_t *step)
{
    if (!xl_str_starts(name, XL_STR("step-")) || !xl_str_ends(name, XL_STR(".safetensors")))
        return false;
    xl_str digits = { name.p + 5, name.n - 5 - 12 };
    while (digits.n > 1 && digits.p[0] == '0')
        digits.p++, digits.n--;
    return xl_str_i64(digits, step);
}

static void prune(xl_saver *s)
{
    xl_arena a = { 0 };
    xl_str *names;
    size_t n = 0, have = 0;
    xl_error *err = xl_dir_list(&a, s->dir, &names, &n);
    int64_t step;
    for (size_t i = 0; !err && i < n; i++)
        have += step_of(names[i], &step);
    for (size_t i = 0; !err && i < n && have > (size_t)s->keep; i++)
        if (step_of(names[i], &step)) {                  /* sorted: the oldest first */
            err = xl_file_remove(file_of(&a, s->dir, step));
            have--;
        }
    if (err)
        XL_LOG(WARN, "an old checkpoint stays: %s", xl_error_message(err));
    xl_error_free(err);
    xl_arena_fini(&a);
}

static void write_it(void *arg)
{
    xl_saver *s = arg;
    xl_arena a = { 0 };
    s->err = xl_safetensors_write(file_of(&a, s->dir, s->step), s->s.t, s->s.n, s->s.meta, 3);
    if (!s->err) {
        s->last = s->step;
        prune(s);
    }
    xl_arena_fini(&a);
}

xl_error *xl_saver_open(const char *dir, int64_t keep, xl_saver **out)
{
    xl_arena a = { 0 };
    xl_error *err = xl_dir_make(dir);
    if (err)
        return err;
    xl_saver *s = xl_new(&a, xl_saver, 1);
    s->dir = xl_str_c(&a, xl_str_of(dir));
    s->keep = keep;
    s->last = -1;
    s->arena = a;
    *out = s;
    return NULL;
}

xl_error *xl_saver_wait(xl_saver *s)
{
    if (s->running) {
        xl_thread_join(&s->thread);
        s->running = false;
        drop(&s->s);
    }
    xl_error *err = s->err;
    s->err = NULL;
    return err;
}

xl_error *xl_saver_save(xl_saver *s, xl_trainer *t, int64_t step, const xl_progress *where)
{
    xl_error *before = xl_saver_wait(s), *err = take(t, where, &s->s);
    if (!err) {
        s->step = step;
        err = xl_thread_start(&s->thread, "xlane-save", write_it, s);
        s->running = !err;
    }
    if (before && err) {
        xl_error_free(err);
        return before;
    }
    return before ? before : err;
}

xl_error *xl_saver_close(xl_saver *s)
{
    if (!s)
        return NULL;
    xl_error *err = xl_saver_wait(s);
    xl_arena a = s->arena;
    xl_arena_fini(&a);
    return err;
}

int64_t xl_saver_last(xl_saver *s) { return s->last; }

xl_error *xl_ckpt_newest(xl_arena *a, const char *dir, char **path, int64_t *step)
{
    xl_str *names;
    size_t n;
    *path = NULL;
    if (!xl_file_stat(dir, NULL))
        return NULL;
    xl_error *err = xl_dir_list(a, dir, &names, &n);
    if (err)
        return err;
    for (size_t i = n; i-- > 0 && !*path;) {
        xl_safetensors s;
        if (!step_of(names[i], step))
            continue;
        char *file = file_of(a, dir, *step);
        err = xl_safetensors_open(file, &s);
        if (err) {                                       /* not one to stop at: an older one may be whole */
            XL_LOG(WARN, "passed over: %s", xl_error_message(err));
            xl_error_free(err);
            continue;
        }
        xl_safetensors_close(&s);
        *path = file;
    }
    return NULL;
}
