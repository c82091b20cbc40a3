#include "lane/cache.h"

#include <stdio.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/file.h"
#include "base/test.h"
#include "base/thread.h"

static char root[256];

static xl_cache *fresh(const char *name, char *dir, size_t n)
{
    xl_cache *c;
    snprintf(root, sizeof root, "/tmp/xlane-cache-test-%d", (int)getpid());
    snprintf(dir, n, "%s/%s", root, name);
    setenv("XLANE_STATE", root, 1);
    CHECK_OK(xl_cache_open(dir, &(xl_cache_opts){ .max_bytes = 1 << 20 }, &c));
    return c;
}

static xl_cache_key key_of(const char *program, const char *flags)
{
    xl_cache_key k = { .module = XL_STR("jit_step") };
    xl_cache_key_add(&k, "program", xl_str_of(program));
    xl_cache_key_add(&k, "flags", xl_str_of(flags));
    xl_cache_key_seal(&k);
    return k;
}

static void entry_at(char *path, size_t n, const char *dir, const xl_cache_key *k)
{
    char hex[XL_DIGEST_HEX];
    xl_digest_hex(&k->digest, hex);
    snprintf(path, n, "%s/%.2s/%s.xle", dir, hex, hex + 2);
}

TEST(C1_what_was_put_comes_back)
{
    char dir[300];
    xl_cache *c = fresh("back", dir, sizeof dir);
    xl_cache_key k = key_of("p1", "--xla_a=4 --xla_b=1");
    xl_cache_found f;
    CHECK_OK(xl_cache_get(c, &k, &f));
    CHECK(!f.hit);
    CHECK_STR(f.reason, "first");
    CHECK_OK(xl_cache_put(c, &k, "hello executable", 16, 2.5));
    CHECK_OK(xl_cache_get(c, &k, &f));
    CHECK(f.hit && f.size == 16 && !memcmp(f.blob, "hello executable", 16) && f.compile_seconds == 2.5);
    free(f.blob);
    xl_cache_close(c);
}

TEST(C1_a_key_with_too_many_parts_is_refused)
{
    char dir[300];
    xl_cache *c = fresh("parts", dir, sizeof dir);
    xl_cache_key k = key_of("p1", "");
    xl_cache_found f;
    for (int i = 0; i < XL_KEY_PARTS; i++)
        xl_cache_key_add(&k, "part", XL_STR("x"));
    xl_cache_key_seal(&k);
    xl_error *err = xl_cache_put(c, &k, "hello", 5, 1);
    CHECK(err && strstr(xl_error_message(err), "more than 12 parts"));
    xl_error_free(err);
    err = xl_cache_get(c, &k, &f);
    CHECK(err && !f.hit);
    xl_error_free(err);
    xl_cache_close(c);
}

TEST(C3_a_miss_names_what_differs)
{
    char dir[300];
    xl_cache *c = fresh("why", dir, sizeof dir);
    xl_cache_key k = key_of("p1", "--xla_gpu_autotune_level=4"), other = key_of("p1", "--xla_gpu_autotune_level=0");
    xl_cache_found f;
    CHECK_OK(xl_cache_put(c, &k, "x", 1, 0));
    CHECK_OK(xl_cache_get(c, &other, &f));
    CHECK_STR(f.reason, "flags");
    CHECK(strstr(f.detail, "same program") && strstr(f.detail, "xla_gpu_autotune_level 4 -> 0"));
    xl_cache_close(c);
}

TEST(C5_every_flipped_byte_and_every_cut_is_a_miss)
{
    char dir[300], path[600];
    xl_cache *c = fresh("flip", dir, sizeof dir);
    xl_cache_key k = key_of("p1", "f");
    xl_arena a = { 0 };
    xl_str good;
    xl_cache_found f;
    CHECK_OK(xl_cache_put(c, &k, "hello executable", 16, 1));
    entry_at(path, sizeof path, dir, &k);
    CHECK_OK(xl_file_read(&a, path, &good));
    char *bytes = malloc(good.n);
    for (size_t i = 0; i < good.n; i++) {
        memcpy(bytes, good.p, good.n);
        bytes[i] ^= (char)(1 << (i % 8));
        FILE *out = fopen(path, "w");
        CHECK(out && fwrite(bytes, 1, good.n, out) == good.n && fclose(out) == 0);
        CHECK_OK(xl_cache_get(c, &k, &f));
        CHECK(!f.hit && !strcmp(f.reason, "unreadable"));
        CHECK(truncate(path, (off_t)i) == 0);
        CHECK_OK(xl_cache_get(c, &k, &f));
        CHECK(!f.hit && !strcmp(f.reason, "unreadable"));
    }
    free(bytes);
    xl_arena_fini(&a);
    xl_cache_close(c);
}

TEST(C5_what_others_could_have_written_is_refused)
{
    char dir[300], path[600], path2[600];
    xl_cache *c = fresh("trust", dir, sizeof dir);
    xl_cache_key k = key_of("p1", "f"), k2 = key_of("p2", "f");
    xl_cache_found f;
    CHECK_OK(xl_cache_put(c, &k, "x", 1, 1));
    CHECK_OK(xl_cache_put(c, &k2, "y", 1, 1));
    entry_at(path, sizeof path, dir, &k);
    entry_at(path2, sizeof path2, dir, &k2);
    CHECK(chmod(path, 0666) == 0);
    CHECK_OK(xl_cache_get(c, &k, &f));
    CHECK(!f.hit && strstr(f.detail, "another user"));
    CHECK(rename(path2, path) == 0);                       /* a sound entry under another's name */
    CHECK_OK(xl_cache_get(c, &k, &f));
    CHECK(!f.hit && strstr(f.detail, "name does not fit"));
    xl_cache_close(c);
    CHECK(chmod(dir, 0777) == 0);
    CHECK_ERR(xl_cache_open(dir, NULL, &c), "refused");
    CHECK_ERR(xl_cache_open("gs://bucket/x", NULL, &c), "cache export");
}

TEST(C6_bound_eviction_and_export)
{
    char dir[300], other[300], pack[400];
    xl_cache *c = fresh("lru", dir, sizeof dir);
    xl_arena a = { 0 };
    xl_cache_entry *e;
    size_t n, removed;
    uint64_t freed;
    static unsigned char noise[300000];
    xl_cache_found f;
    CHECK_OK(xl_random(noise, sizeof noise));
    for (int i = 0; i < 6; i++) {
        char name[16];
        snprintf(name, sizeof name, "p%d", i);
        xl_cache_key k = key_of(name, "f");
        CHECK_OK(xl_cache_put(c, &k, noise, sizeof noise, 1));
        usleep(15000);
    }
    CHECK_OK(xl_cache_list(&a, dir, &e, &n));
    CHECK_INT(n, 3);                                       /* three of 300 KB fit in 1 MiB */
    xl_cache_key first = key_of("p0", "f"), last = key_of("p5", "f");
    CHECK_OK(xl_cache_get(c, &first, &f));
    CHECK(!f.hit && !strcmp(f.reason, "evicted"));
    CHECK_OK(xl_cache_get(c, &last, &f));
    CHECK(f.hit);
    free(f.blob);
    snprintf(pack, sizeof pack, "%s/pack", root);
    CHECK_OK(xl_cache_export(&a, dir, pack, &n));
    CHECK_INT(n, 3);
    snprintf(other, sizeof other, "%s/imported", root);
    CHECK_OK(xl_cache_import(&a, other, pack, &n));
    CHECK_INT(n, 3);
    CHECK_OK(xl_cache_list(&a, other, &e, &n));
    CHECK(n == 3 && !e[0].bad && !e[1].bad && !e[2].bad);
    CHECK_OK(xl_cache_prune(&a, other, 1, &removed, &freed));
    CHECK_INT(removed, 3);
    CHECK(truncate(pack, 400000) == 0);
    CHECK_ERR(xl_cache_import(&a, other, pack, &n), "truncated");
    xl_cache_close(c);
    xl_arena_fini(&a);
}

TEST(C4_of_several_processes_one_compiles)
{
    char dir[300], log[400];
    xl_cache *c = fresh("lease", dir, sizeof dir);
    xl_cache_key k = key_of("p1", "f");
    snprintf(log, sizeof log, "%s/compiles", root);
    fflush(NULL);
    for (int i = 0; i < 8; i++)
        if (fork() == 0) {
            xl_lease l;
            xl_cache_found f;
            xl_lease_state s = xl_cache_lease(c, &k, 10, &l);
            xl_error_free(xl_cache_get(c, &k, &f));
            if (!f.hit) {
                usleep(50000);
                xl_error_free(xl_file_append(log, XL_STR("compiled")));
                xl_error_free(xl_cache_put(c, &k, "x", 1, 0.05));
            }
            xl_cache_release(c, &k, &l);
            _exit(s == XL_LEASE_TIMEOUT);
        }
    for (int i = 0; i < 8; i++) {
        int status;
        CHECK(wait(&status) > 0 && status == 0);
    }
    xl_arena a = { 0 };
    xl_str text;
    CHECK_OK(xl_file_read(&a, log, &text));
    CHECK_INT(text.n, strlen("compiled\n"));
    xl_arena_fini(&a);
    xl_cache_close(c);
    char rm[400];
    snprintf(rm, sizeof rm, "rm -rf %s", root);
    CHECK(system(rm) == 0);
}
