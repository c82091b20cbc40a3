#include "lane/kept.h"

#include <string.h>
#include <sys/stat.h>

#include "base/file.h"
#include "base/json.h"

enum { JSON_MAX = 64 << 20 };

typedef struct entry { xl_kept_file file; void *what; struct entry *older; } entry;
static struct { xl_arena *a; entry *newest; } K;

void xl_kept_in(xl_arena *a)
{
    K.a = a;
    K.newest = NULL;
}

static bool same(const xl_kept_file *x, const xl_kept_file *y)
{
    return x->dev == y->dev && x->ino == y->ino && x->size == y->size && x->sec == y->sec && x->nsec == y->nsec &&
           !strcmp(x->path, y->path);
}

void *xl_kept_find(xl_arena *a, const char *path, xl_kept_file *file)
{
    struct stat st;
    *file = (xl_kept_file){ 0 };
    if (a != K.a || stat(path, &st))
        return NULL;
    *file = (xl_kept_file){ path, (uint64_t)st.st_dev, (uint64_t)st.st_ino, (uint64_t)st.st_size, st.st_mtim.tv_sec,
                            st.st_mtim.tv_nsec };
    for (const entry *e = K.newest; e; e = e->older)
        if (same(&e->file, file))
            return e->what;
    return NULL;
}

void xl_kept_add(xl_arena *a, const xl_kept_file *file, void *what)
{
    if (!file->path)
        return;
    entry *e = xl_new(a, entry, 1);
    *e = (entry){ *file, what, K.newest };
    e->file.path = xl_str_c(a, xl_str_of(file->path));
    K.newest = e;
}

xl_error *xl_kept_json(xl_arena *a, const char *path, xl_node **out)
{
    xl_error *err = NULL;
    xl_str text;
    xl_kept_file file;
    *out = xl_kept_find(a, path, &file);
    if (*out)
        return NULL;
    XL_DO(xl_file_read_max(a, path, JSON_MAX, &text));
    XL_DO(xl_json_read(a, path, text, out));
    xl_kept_add(a, &file, *out);
out:
    return err;
}
