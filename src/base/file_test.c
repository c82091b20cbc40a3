#include "base/file.h"
#include "base/test.h"

#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static char dir[64];
static xl_arena a;

static char *in(const char *name) { return xl_path_join(&a, dir, name); }

TEST(file_write_then_read)
{
    strcpy(dir, "/tmp/xlane-file-XXXXXX");
    CHECK(mkdtemp(dir));
    xl_str s, *names;
    size_t n;
    CHECK_OK(xl_file_write_atomic(in("a"), XL_STR("one")));
    CHECK_OK(xl_file_write_atomic(in("a"), XL_STR("two\0three")));
    CHECK_OK(xl_file_read(&a, in("a"), &s));
    CHECK(xl_str_eq(s, XL_STR("two\0three")) && s.p[s.n] == 0);
    CHECK_OK(xl_file_write_atomic(in("empty"), XL_STR("")));
    CHECK_OK(xl_file_read(&a, in("empty"), &s));
    CHECK_INT(s.n, 0);
    CHECK_OK(xl_dir_list(&a, dir, &names, &n)); /* and no temporary file is left */
    CHECK_INT(n, 2);
    CHECK(xl_str_is(names[0], "a") && xl_str_is(names[1], "empty"));
}

TEST(file_write_new_never_overwrites)
{
    xl_str s, *names;
    size_t n;
    CHECK_OK(xl_file_write_new(in("key"), XL_STR("first"), 0600));
    xl_error *e = xl_file_write_new(in("key"), XL_STR("second"), 0600);
    CHECK_INT(xl_error_code(e), XL_CODE_EXISTS);
    xl_error_free(e);
    CHECK_OK(xl_file_read(&a, in("key"), &s));
    CHECK(xl_str_is(s, "first"));
    struct stat st;
    CHECK(stat(in("key"), &st) == 0 && (st.st_mode & 0777) == 0600);
    CHECK_OK(xl_dir_list(&a, dir, &names, &n));
    CHECK_INT(n, 3);
}

TEST(file_reading_is_bounded)
{
    xl_str s;
    CHECK_ERR(xl_file_read_max(&a, in("a"), 4, &s), "9 bytes");
    CHECK_ERR(xl_file_read_max(&a, "/dev/zero", 100000, &s), "more than the 100000");
    CHECK_ERR(xl_file_read(&a, dir, &s), "is a folder");
    CHECK_ERR(xl_file_read(&a, in("missing"), &s), "missing");
    xl_arena small = { .limit = 4 };
    CHECK_ERR(xl_file_read(&small, in("a"), &s), "no memory");
    CHECK_OK(xl_file_read(&a, "/proc/self/status", &s)); /* says it has no bytes, and has */
    CHECK(s.n > 100);
    xl_arena_fini(&small);
}

TEST(file_append_from_several_processes)
{
    enum { KIDS = 4, LINES = 100 };
    for (int k = 0; k < KIDS; k++)
        if (fork() == 0) {
            char line[80];
            for (int i = 0; i < LINES; i++) {
                memset(line, 'a' + k, 70);
                line[70] = 0;
                if (xl_file_append(in("log"), xl_str_of(line)))
                    _exit(1);
            }
            _exit(0);
        }
    for (int k = 0, st; k < KIDS; k++)
        CHECK(wait(&st) > 0 && st == 0);
    xl_str rest;
    int lines = 0;
    CHECK_OK(xl_file_read(&a, in("log"), &rest));
    while (rest.n) {
        xl_str l = xl_str_cut(&rest, '\n');
        CHECK_INT(l.n, 70);
        for (size_t i = 1; i < l.n; i++)
            CHECK(l.p[i] == l.p[0]);
        lines++;
    }
    CHECK_INT(lines, KIDS * LINES);
}

TEST(folders)
{
    CHECK_OK(xl_dir_make(in("x/y//z")));
    CHECK_OK(xl_dir_make(in("x/y/z/")));
    xl_file_info info;
    CHECK(xl_file_stat(in("x/y/z"), &info) && info.dir);
    CHECK_ERR(xl_dir_make(in("a/b")), "is a file");
    xl_str *names;
    size_t n;
    CHECK_ERR(xl_dir_list(&a, in("nowhere"), &names, &n), "nowhere");
    CHECK(xl_str_is(xl_path_dir(XL_STR("a/b")), "a") && xl_str_is(xl_path_dir(XL_STR("/b")), "/"));
    CHECK(xl_str_is(xl_path_dir(XL_STR("b")), ".") && xl_str_is(xl_path_base(XL_STR("a/b")), "b"));
    CHECK_STR(xl_path_join(&a, "a/", "b"), "a/b");
    CHECK_STR(xl_path_join(&a, "a", "/b"), "/b");
}

TEST(trust_says_who_could_have_written)
{
    char *own = in("own");
    CHECK_OK(xl_dir_make(own));
    CHECK(chmod(own, 0755) == 0);
    char *f = in("own/f");
    CHECK_OK(xl_file_write_new(f, XL_STR("x"), 0644));
    CHECK_OK(xl_path_trusted(f));
    CHECK(chmod(f, 0664) == 0);
    CHECK_ERR(xl_path_trusted(f), "chmod go-w");
    CHECK(chmod(f, 0644) == 0 && chmod(own, 0777) == 0);
    CHECK_ERR(xl_path_trusted(f), own);
    CHECK(chmod(own, 0755) == 0 && symlink("own", in("link")) == 0);
    CHECK_OK(xl_path_trusted(in("link/f")));
    if (geteuid() == 0) { /* only root can give a file away */
        CHECK(chown(f, 12345, 12345) == 0);
        CHECK_ERR(xl_path_trusted(f), "user 12345");
        CHECK(chown(f, 0, 0) == 0 && lchown(in("link"), 12345, 12345) == 0);
        CHECK_ERR(xl_path_trusted(in("link/f")), "user 12345");
    }
    CHECK_ERR(xl_path_trusted(in("none")), "none");
}

TEST(file_cleanup)
{
    CHECK_OK(xl_file_remove(in("a")));
    CHECK_OK(xl_file_remove(in("a")));
    CHECK(!xl_file_stat(in("a"), NULL));
    char *cmd = xl_str_c(&a, xl_strf(&a, "rm -rf '%s'", dir));
    CHECK(system(cmd) == 0);
    xl_arena_fini(&a);
}
