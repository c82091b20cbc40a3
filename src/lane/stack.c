#include "lane/stack.h"

#include <errno.h>
#include <ftw.h>
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/file.h"
#include "base/hash.h"
#include "base/home.h"
#include "base/json.h"
#include "base/proc.h"
#include "base/time.h"
#include "lane/identity.h"
#include "pjrt/plugin.h"

/* ---- plugins in a folder of packages -------------------------------------------------------------------------------
 * Each package that brings a plugin: where its file lies, and the name of its metadata. */
static const struct {
    const char *pattern, *package;
} places[] = {
    { "libtpu/libtpu.so", "libtpu" },
    { "jax_plugins/*/*plugin*.so", "jax_*_pjrt" },
    { "jax_plugins/*/*pjrt*.so", "jax_*_pjrt" },
    { "*/*pjrt*.so", "*" },
};
enum { NPLACE = sizeof places / sizeof *places };

/* The package and version of "libtpu-0.0.40.dist-info". */
static bool of_metadata(xl_arena *a, const char *path, xl_stack *s)
{
    xl_str name = xl_path_base(xl_str_of(path)), end = XL_STR(".dist-info");
    if (!xl_str_ends(name, end))
        return false;
    name.n -= end.n;
    xl_str rest = name, package = xl_str_cut(&rest, '-');
    if (!rest.n)
        return false;
    char *p = xl_str_c(a, package);
    for (char *c = p; *c; c++)
        *c = *c == '_' ? '-' : *c;
    s->package = xl_str_of(p);
    s->version = xl_str_dup(a, rest);
    return true;
}

static void find_version(xl_arena *a, const char *site, size_t place, xl_stack *s)
{
    glob_t g;
    if (glob(xl_strf(a, "%s/%s-*.dist-info", site, places[place].package).p, 0, NULL, &g) == 0 && g.gl_pathc)
        of_metadata(a, g.gl_pathv[0], s);
    globfree(&g);
}

/* The plugin of a folder of packages. Of several the one of `kind`, else one whose devices are here, else the first. */
static bool in_site(xl_arena *a, const char *site, const char *kind, xl_stack *s)
{
    int best = -1;
    for (size_t i = 0; i < NPLACE; i++) {
        glob_t g;
        if (glob(xl_path_join(a, site, places[i].pattern), 0, NULL, &g) == 0)
            for (size_t k = 0; k < g.gl_pathc; k++) {
                const char *is = xl_plugin_kind(g.gl_pathv[k]);
                int score = kind && is && !strcmp(kind, is) ? 2 : !kind && xl_plugin_has_devices(g.gl_pathv[k]) ? 1 : 0;
                if (score > best) {
                    best = score;
                    s->path = xl_str_c(a, xl_str_of(g.gl_pathv[k]));
                    find_version(a, site, i, s);
                }
            }
        globfree(&g);
    }
    return best >= 0;
}

/* ---- fetched ones --------------------------------------------------------------------------------------------------
 * */
static bool plain_word(xl_str s)
{
    for (size_t i = 0; i < s.n; i++) {
        char c = s.p[i];
        if (!((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || (i && strchr("._-+!", c))))
            return false;
    }
    return s.n > 0 && s.n < 100;
}

static int remove_one(const char *path, const struct stat *st, int kind, struct FTW *at)
{
    (void)st;
    (void)kind;
    (void)at;
    return remove(path);
}
static void remove_all(const char *dir) { nftw(dir, remove_one, 16, FTW_DEPTH | FTW_PHYS); }

static char *plugins_dir(xl_arena *a)
{
    char *cache = xl_home_cache(a);
    return cache ? xl_path_join(a, cache, "plugins") : NULL;
}

static const char *python(xl_arena *a)
{
    const char *env = getenv("VIRTUAL_ENV");
    char *path = env && *env ? xl_path_join(a, env, "bin/python") : NULL;
    return path && access(path, X_OK) == 0 ? path : "python3";
}

/* A fetched plugin as its plugin.json describes it; its bytes must be those that were fetched. */
static xl_error *open_fetched(xl_arena *a, const char *dir, xl_stack *s)
{
    xl_error *err = NULL;
    xl_str text, file = { 0 }, digest = { 0 };
    xl_node *n;
    xl_digest is;
    char hex[XL_DIGEST_HEX];
    char *about = xl_path_join(a, dir, "plugin.json");
    XL_DO(xl_path_trusted(dir));
    XL_DO(xl_file_read_plain(a, about, 1 << 20, &text));
    XL_DO(xl_json_read(a, about, text, &n));
    XL_DO(xl_node_get_str(n, "file", &file));
    XL_DO(xl_node_get_str(n, "blake2b", &digest));
    XL_DO(xl_node_get_str(n, "package", &s->package));
    XL_DO(xl_node_get_str(n, "version", &s->version));
    s->path = xl_path_join(a, dir, xl_str_c(a, file));
    XL_DO(xl_path_trusted(s->path));
    XL_DO(xl_hash_file(s->path, &is));
    if (!file.n || !xl_str_is(digest, xl_digest_hex(&is, hex)))
        err = XL_ERR(DATA_LOSS, "%s is not the file that was fetched: its digest was %.*s and is %s", s->path,
                     XL_FMT(digest), hex);
out:
    return xl_error_next(err, "remove %s, and it is fetched again", dir);
}

static xl_error *describe(xl_arena *a, const char *dir, xl_str package, xl_str version, const xl_stack *s)
{
    xl_error *err = NULL;
    xl_digest d;
    char hex[XL_DIGEST_HEX];
    xl_buf b = { 0 };
    xl_json j = { .out = &b, .pretty = true };
    xl_file_info info = { 0 };
    XL_DO(xl_hash_file(s->path, &d));
    xl_file_stat(s->path, &info);
    xl_json_map(&j);
    xl_json_put_str(&j, "package", package);
    xl_json_put_str(&j, "version", version);
    xl_json_put_text(&j, "file", s->path + strlen(dir) + 1);
    xl_json_put_int(&j, "bytes", (int64_t)info.size);
    xl_json_put_text(&j, "blake2b", xl_digest_hex(&d, hex));
    xl_json_put_num(&j, "fetched", xl_now_wall());
    xl_json_end(&j);
    err = xl_file_write_atomic(xl_path_join(a, dir, "plugin.json"), xl_buf_view(&b));
out:
    xl_buf_fini(&b);
    return err;
}

/* The wheels of NVIDIA's libraries are not fetched a second time: the plugin looks for them two folders up. */
static void link_nvidia(xl_arena *a, const char *dir)
{
    size_t n;
    const char **site = xl_python_sites(a, &n);
    char *link = xl_path_join(a, dir, "nvidia");
    for (size_t i = 0; i < n && access(link, F_OK); i++) {
        char *have = xl_path_join(a, site[i], "nvidia");
        if (access(have, F_OK) == 0 && symlink(have, link))
            return;
    }
}

static xl_error *fetch(xl_arena *a, xl_str package, xl_str version, xl_stack *s)
{
    xl_error *err = NULL;
    xl_proc_result r;
    xl_stack got = { 0 };
    char *parent = plugins_dir(a), *dir, *tmp = NULL;
    if (!parent)
        return XL_ERR(UNAVAILABLE, "HOME is not set, so there is no folder for plugins; XDG_CACHE_HOME=DIR names one");
    dir = xl_path_join(a, parent, xl_strf(a, "%.*s-%.*s", XL_FMT(package), XL_FMT(version)).p);
    if (xl_file_stat(xl_path_join(a, dir, "plugin.json"), NULL)) {
        err = open_fetched(a, dir, s);
        goto out;
    }
    XL_TRY(xl_dir_make_private(parent), "a folder for plugins");
    XL_TRY(xl_path_trusted(parent), "a folder for plugins");
    tmp = xl_path_join(a, parent, xl_strf(a, ".%.*s-%.*s.%d", XL_FMT(package), XL_FMT(version), (int)getpid()).p);
    XL_DO(xl_dir_make_private(tmp));
    fprintf(stderr, "xlane: fetching %.*s %.*s into %s\n", XL_FMT(package), XL_FMT(version), dir);
    const char *wheel = xl_strf(a, "%.*s==%.*s", XL_FMT(package), XL_FMT(version)).p;
    /* Of wheels only: nothing that was fetched runs. */
    char *const argv[] = { (char *)python(a),
                           "-m",
                           "pip",
                           "install",
                           "--disable-pip-version-check",
                           "--no-deps",
                           "--no-compile",
                           "--no-input",
                           "--only-binary=:all:",
                           "--root-user-action=ignore",
                           "--target",
                           tmp,
                           (char *)wheel,
                           NULL };
    XL_TRY(xl_proc_show(a, argv, NULL, 3600 * 1000, &r), "fetching %s with pip", wheel);
    if (r.status != 0) {
        err = XL_ERR(NOT_FOUND,
                     "pip did not fetch %s (it %.*s, and said why above); `%s -m pip index versions %.*s` lists "
                     "the versions, and a file or a Python environment can be named instead",
                     wheel, XL_FMT(xl_proc_words(a, &r)), argv[0], XL_FMT(package));
        goto out;
    }
    if (!in_site(a, tmp, NULL, &got)) {
        err = XL_ERR(NOT_FOUND, "%s has no PJRT plugin; packages that bring one are libtpu, jax-cuda13-pjrt, …", wheel);
        goto out;
    }
    XL_DO(describe(a, tmp, package, version, &got));
    if (rename(tmp, dir) && errno != EEXIST && errno != ENOTEMPTY) { /* there already: another process was quicker */
        err = xl_file_error(errno, "renaming", tmp);
        goto out;
    }
    if (xl_str_starts(package, XL_STR("jax-cuda")))
        link_nvidia(a, dir);
    s->fetched = true;
    err = open_fetched(a, dir, s);
out:
    if (tmp)
        remove_all(tmp);
    return err;
}

/* ---- all of them ---------------------------------------------------------------------------------------------------
 * */
static xl_error *of_environment(xl_arena *a, const char *dir, const char *kind, xl_stack *s)
{
    glob_t g;
    bool found = false;
    if (glob(xl_path_join(a, dir, "lib/python3*/site-packages"), 0, NULL, &g) == 0)
        for (size_t i = 0; i < g.gl_pathc && !found; i++)
            found = in_site(a, g.gl_pathv[i], kind, s);
    globfree(&g);
    const char *is = found ? xl_plugin_kind(s->path) : NULL;
    if (found && (!kind || (is && !strcmp(is, kind))))
        return NULL;
    return XL_ERR(NOT_FOUND,
                  "the Python environment %s has no plugin%s%s; install one there (%s/bin/python -m pip install "
                  "%s), or name a version to fetch: libtpu==0.0.40",
                  dir, kind ? " for " : "", kind ? kind : "", dir,
                  kind && strcmp(kind, "tpu") ? "jax-cuda13-pjrt" : "libtpu");
}

xl_error *xl_stack_find(xl_arena *a, const char *word, const char *kind, xl_stack *s)
{
    xl_error *err = NULL;
    xl_str version = xl_str_of(word), package = xl_str_cut(&version, '=');
    xl_file_info info;
    *s = (xl_stack){ 0 };
    if (version.n > 1 && version.p[0] == '=') {
        version = (xl_str){ version.p + 1, version.n - 1 };
        if (!plain_word(package) || !plain_word(version)) {
            err = XL_ERR(INVALID, "'%s' is no version of a package; it is written libtpu==0.0.40", word);
            goto out;
        }
        XL_DO(fetch(a, package, version, s));
    } else if (xl_file_stat(word, &info) && info.dir) {
        if (access(xl_path_join(a, word, "bin/python"), X_OK)) {
            err = XL_ERR(INVALID,
                         "%s is a folder without bin/python; name a Python environment, a plugin's file, or a "
                         "version to fetch: libtpu==0.0.40",
                         word);
            goto out;
        }
        XL_DO(of_environment(a, word, kind, s));
    } else {
        xl_plugin_choice c;
        XL_DO(xl_plugin_find(a, &(xl_plugin_wish){ .named = word }, &c));
        s->path = c.path;
        char *site = xl_str_c(a, xl_path_dir(xl_path_dir(xl_str_of(c.path))));
        if (xl_str_is(xl_path_base(xl_str_of(c.path)), "libtpu.so"))
            find_version(a, site, 0, s);
        else if (strstr(c.path, "/jax_plugins/"))
            find_version(a, xl_str_c(a, xl_path_dir(xl_str_of(site))), 1, s);
    }
    XL_DO(xl_plugin_inspect(s->path));
    xl_identity_file(s->path, s->identity, sizeof s->identity);
    s->label = s->version.n ? xl_strf(a, "%.*s %.*s", XL_FMT(s->package), XL_FMT(s->version)).p : s->path;
out:
    return err;
}
