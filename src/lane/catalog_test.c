#include "lane/catalog.h"

#include <unistd.h>

#include "base/file.h"
#include "base/test.h"

static char *folder(xl_arena *a, const char *name)
{
    char *dir = xl_str_c(a, xl_strf(a, "/tmp/xlane-catalog-%d-%s", (int)getpid(), name));
    return dir;
}

static void clear(xl_arena *a, const char *dir)
{
    xl_str *names;
    size_t n;
    if (!xl_file_stat(dir, NULL))
        return;
    CHECK_OK(xl_dir_list(a, dir, &names, &n));
    for (size_t i = 0; i < n; i++)
        CHECK_OK(xl_file_remove(xl_path_join(a, dir, xl_str_c(a, names[i]))));
    rmdir(dir);
}

static xl_catalog_entry entry(const char *model, xl_outcome o, const char *bundle)
{
    xl_catalog_entry e = xl_catalog_blank();
    e.sig = (xl_signature){
        .code = XL_STR("c0de"), .hardware = XL_STR("v6e:2x2"), .model = xl_str_of(model), .bundle = xl_str_of(bundle)
    };
    e.outcome = o;
    e.what = XL_STR("test");
    return e;
}

TEST(remembers_and_orders) /* M2: known good, unseen, known bad */
{
    xl_arena a = { 0 };
    char *dir = folder(&a, "order");
    clear(&a, dir);
    xl_catalog_entry good = entry("batch 8", XL_OUTCOME_REHEARSED, "s1"),
                     bad = entry("batch 64", XL_OUTCOME_FAILED, "s1"), *all;
    size_t n, torn;
    good.compiled = 123;
    bad.class = XL_STR("E1000");
    CHECK_OK(xl_catalog_read(&a, dir, &all, &n, &torn));
    CHECK_INT(n, 0);
    CHECK_OK(xl_catalog_add(dir, &good));
    CHECK_OK(xl_catalog_add(dir, &bad));
    CHECK_OK(xl_catalog_read(&a, dir, &all, &n, &torn));
    CHECK_INT(n, 2);
    CHECK_INT(torn, 0);
    const xl_catalog_entry *why;
    CHECK_INT(xl_catalog_known(all, n, &good.sig, &why), XL_KNOWN_GOOD);
    CHECK_INT(why->compiled, 123);
    CHECK_INT(why->observed, -1);
    CHECK_INT(xl_catalog_known(all, n, &bad.sig, &why), XL_KNOWN_BAD);
    CHECK(xl_str_is(why->class, "E1000"));
    xl_catalog_entry other = entry("batch 16", XL_OUTCOME_RAN, "s1");
    CHECK_INT(xl_catalog_known(all, n, &other.sig, &why), XL_UNSEEN);
    clear(&a, dir);
    xl_arena_fini(&a);
}

TEST(another_stack_is_unseen_and_is_compared)
{
    xl_arena a = { 0 };
    char *dir = folder(&a, "stack");
    clear(&a, dir);
    xl_catalog_entry ran = entry("batch 8", XL_OUTCOME_RAN, "s1"), now = entry("batch 8", XL_OUTCOME_RAN, "s2"), *all;
    size_t n;
    ran.observed = 99;
    CHECK_OK(xl_catalog_add(dir, &ran));
    CHECK_OK(xl_catalog_read(&a, dir, &all, &n, NULL));
    CHECK_INT(xl_catalog_known(all, n, &now.sig, NULL), XL_UNSEEN);
    CHECK_INT(xl_catalog_before(all, n, &now.sig)->observed, 99);
    CHECK(!xl_catalog_before(all, n, &ran.sig));
    clear(&a, dir);
    xl_arena_fini(&a);
}

TEST(a_torn_line_costs_itself_alone)
{
    xl_arena a = { 0 };
    char *dir = folder(&a, "torn");
    clear(&a, dir);
    xl_catalog_entry e = entry("batch 8", XL_OUTCOME_RAN, "s1"), *all;
    size_t n, torn;
    xl_str *names, text;
    CHECK_OK(xl_catalog_add(dir, &e));
    CHECK_OK(xl_dir_list(&a, dir, &names, &n));
    char *path = xl_path_join(&a, dir, xl_str_c(&a, names[0]));
    CHECK_OK(xl_file_read(&a, path, &text));
    xl_str half = xl_strf(&a, "%.*s%.*s", XL_FMT(text), (int)text.n / 2, text.p);
    CHECK_OK(xl_file_write_quick(path, half));
    CHECK_OK(xl_catalog_add(dir, &e));
    CHECK_OK(
        xl_file_write_quick(xl_path_join(&a, dir, "other.jsonl"), text)); /* another host's file: merging is copying */
    CHECK_OK(xl_catalog_read(&a, dir, &all, &n, &torn));
    CHECK_INT(n, 3);
    CHECK_INT(torn, 1);
    clear(&a, dir);
    xl_arena_fini(&a);
}
