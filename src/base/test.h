/* src/base/test.h
 * A test file is a program: TEST(name) { ... CHECK(x); } one or more times, and nothing else. Each prints a line; the
 * program exits 1 if one failed. `./x test` adds them up. A failed CHECK ends its test, not the program. */
#ifndef XL_BASE_TEST_H
#define XL_BASE_TEST_H

#include <setjmp.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"

typedef struct xl_test { const char *name; void (*run)(void); struct xl_test *next; } xl_test;
static xl_test *xl_tests, **xl_tests_end = &xl_tests;
static jmp_buf xl_test_out;

#define TEST(fn)                                                                                   \
    static void test_##fn(void);                                                                   \
    __attribute__((constructor)) static void add_##fn(void)                                        \
    {                                                                                              \
        static xl_test t = { #fn, test_##fn, NULL };                                               \
        *xl_tests_end = &t;                                                                        \
        xl_tests_end = &t.next;                                                                    \
    }                                                                                              \
    static void test_##fn(void)

#define FAIL(...)                                                                                                      \
    do {                                                                                                               \
        printf("  %s:%d: ", __FILE__, __LINE__);                                                                       \
        printf(__VA_ARGS__);                                                                                           \
        printf("\n");                                                                                                  \
        longjmp(xl_test_out, 1);                                                                                       \
    } while (0)
/* The amount of work: `all` under `./x test all`, `usual` otherwise. Under an emulator one step less: `usual` under
 * `./x test all`, `emulated` otherwise. */
__attribute__((unused)) static int xl_test_amount(int all, int usual, int emulated)
{
    const char *everything = getenv("XLANE_TEST_ALL");
    bool whole = everything && *everything == '1';
    return getenv("XLANE_EMULATED") ? (whole ? usual : emulated) : whole ? all : usual;
}

#define CHECK(c) do { if (!(c)) FAIL("%s does not hold", #c); } while (0)
#define CHECK_INT(a, b)                                                                                                \
    do {                                                                                                               \
        long long a_ = (long long)(a), b_ = (long long)(b);                                                            \
        if (a_ != b_)                                                                                                  \
            FAIL("%s is %lld, not %lld", #a, a_, b_);                                                                  \
    } while (0)
#define CHECK_STR(a, b)                                                                                                \
    do {                                                                                                               \
        const char *a_ = (a), *b_ = (b);                                                                               \
        if (strcmp(a_, b_))                                                                                            \
            FAIL("%s is \"%s\", not \"%s\"", #a, a_, b_);                                                              \
    } while (0)
#define CHECK_OK(e) do { xl_error *e_ = (e); if (e_) FAIL("%s: %s", #e, xl_error_message(e_)); } while (0)
/* The expression fails, and its message has `part` in it. */
#define CHECK_ERR(e, part)                                                                              \
    do {                                                                                                \
        xl_error *e_ = (e);                                                                             \
        if (!e_)                                                                                        \
            FAIL("%s succeeded", #e);                                                                   \
        if (!strstr(xl_error_message(e_), part))                                                        \
            FAIL("%s says \"%s\", without \"%s\"", #e, xl_error_message(e_), part);                     \
        xl_error_free(e_);                                                                              \
    } while (0)

int main(int argc, char **argv)
{
    static int failed;             /* static: setjmp must not lose them */
    static xl_test *t;
    setvbuf(stdout, NULL, _IOLBF, 0);
    for (t = xl_tests; t; t = t->next) {
        if (argc > 1 && !strstr(t->name, argv[1]))
            continue;
        int bad = setjmp(xl_test_out);
        if (!bad)
            t->run();
        printf("%s %s\n", bad ? "FAIL" : "ok  ", t->name);
        failed += bad;
    }
    return failed ? 1 : 0;
}

#endif
