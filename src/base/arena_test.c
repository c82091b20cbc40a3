#include "base/arena.h"
#include "base/str.h"
#include "base/test.h"

TEST(arena_memory_is_zeroed_aligned_and_stays)
{
    xl_arena a = { 0 };
    char *first = xl_arena_alloc(&a, 3);
    for (size_t n = 1; n < 5000; n += 37) {
        char *p = xl_arena_alloc(&a, n);
        CHECK(((uintptr_t)p & 15) == 0);
        for (size_t i = 0; i < n; i++)
            CHECK(p[i] == 0);
        memset(p, 1, n);
    }
    CHECK(first[0] == 0);
    xl_arena_fini(&a);
    CHECK_INT(a.used, 0);
}

TEST(arena_limit_jumps)
{
    jmp_buf oom;
    xl_arena a = { .limit = 1000, .oom = &oom };
    if (setjmp(oom) == 0) {
        for (int i = 0; i < 1000; i++)
            xl_arena_alloc(&a, 64);
        FAIL("no limit");
    }
    CHECK(a.used <= 1000);
    xl_arena_fini(&a);
}

TEST(strings)
{
    xl_str rest = XL_STR("a,bc,"), part = xl_str_cut(&rest, ',');
    CHECK(xl_str_is(part, "a") && xl_str_is(rest, "bc,"));
    int64_t v;
    uint64_t u;
    CHECK(xl_str_i64(XL_STR("-12"), &v) && v == -12);
    CHECK(!xl_str_i64(XL_STR("12x"), &v) && !xl_str_i64(XL_STR(""), &v));
    CHECK(xl_str_size(XL_STR("16MiB"), &u) && u == 16u << 20);
    CHECK(!xl_str_size(XL_STR("16XB"), &u));
    CHECK_INT(xl_str_distance(XL_STR("kitten"), XL_STR("sitting")), 3);
}

TEST(errors_chain)
{
    xl_error *e = xl_error_wrap(XL_ERR(INVALID, "line %d", 3), "parsing %s", "f");
    CHECK_STR(xl_error_message(e), "parsing f: line 3");
    CHECK_INT(xl_error_code(e), XL_CODE_INVALID);
    xl_error_free(e);
    CHECK(!xl_error_wrap(NULL, "x"));
}
