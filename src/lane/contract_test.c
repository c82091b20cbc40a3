#include "lane/contract.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/test.h"
#include "ir/compare/hash.h"
#include "ir/read.h"

static char root[64];

/* A separate process, as far as contracts can tell. */
static xl_contracts *process(const char *runs, xl_run **run)
{
    static xl_arena a;
    char parent[128], *dir;
    snprintf(root, sizeof root, "/tmp/xlane-contract-test-%d", (int)getpid());
    snprintf(parent, sizeof parent, "%s/%s", root, runs);
    CHECK_OK(xl_run_make(&a, parent, "run", &dir));
    CHECK_OK(xl_run_open(dir, run));
    return xl_contracts_new(*run, "train.py");
}

/* Judges the program of n ops of a vector of `size`, of another kind and with one more argument if `other`; gives the
 * reason. */
static xl_compile_site site;                               /* of the next compile */
static const char *part = "options", *value = "plain";     /* of its key, besides the program */

static const char *judge(xl_contracts *c, const char *name, int n, int size, bool other)
{
    static xl_arena a;
    xl_buf text = { 0 };
    xl_module *m;
    xl_verdict v;
    char type[32];
    snprintf(type, sizeof type, "tensor<%dxf32>", size);
    xl_buf_printf(&text, "func.func public @main(%%v0: %s%s) -> %s {\n", type, other ? ", %k: tensor<i32>" : "", type);
    for (int i = 0; i < n; i++)
        xl_buf_printf(&text, "%%v%d = stablehlo.%s %%v%d, %%v%d : %s\n", i + 1,
                      !other  ? "add"
                      : i % 2 ? "multiply"
                              : "subtract",
                      i, i, type);
    xl_buf_printf(&text, "return %%v%d : %s }", n, type);
    CHECK_OK(xl_read_text(xl_buf_view(&text), NULL, &m));
    xl_digest d = xl_module_hash(m);
    char hex[XL_DIGEST_HEX];
    xl_digest_hex(&d, hex);
    xl_cache_key k = { .module = xl_str_of(name) };
    xl_cache_key_add(&k, "program", xl_str_of(hex));
    xl_cache_key_add(&k, part, xl_str_of(value));
    xl_cache_key_seal(&k);
    CHECK_OK(xl_contracts_judge(c, &a, &k, &site, m, xl_buf_view(&text), &v));
    xl_buf_fini(&text);
    return v.reason;
}

TEST(G1_numbered_programs_are_compared_with_their_kind)
{
    xl_run *run;
    xl_contracts *c = process("kind", &run);
    CHECK_STR(judge(c, "SyncTensorsGraph.3", 10, 4, false), "first");
    CHECK_STR(judge(c, "SyncTensorsGraph.4", 40, 4, true),
              "first"); /* other arguments, few ops in common: another model */
    CHECK_STR(judge(c, "SyncTensorsGraph.5", 10, 6, false), "shape");
    CHECK_STR(judge(c, "SyncTensorsGraph.6", 40, 6, true), "shape");
    CHECK_STR(judge(c, "SyncTensorsGraph.7", 30, 6, false), "op"); /* three times as long, and of the same arguments */
    CHECK_STR(judge(c, "SyncTensorsGraph.3", 10, 4, false), "identical");
    CHECK_STR(judge(c, "jit_step", 10, 4, false), "first");
    CHECK(strcmp(judge(c, "jit_step", 40, 4, true), "first")); /* a name of its own is enough */
    xl_contracts_free(c);
    xl_run_close(run);
}

TEST(G1_numbered_programs_are_known_by_the_line_that_runs_them)
{
    xl_run *run;
    xl_contracts *c = process("place", &run);
    site.place = XL_STR("train.py:9");
    CHECK_STR(judge(c, "SyncTensorsGraph.3", 10, 4, false), "first");
    CHECK(strcmp(judge(c, "SyncTensorsGraph.4", 40, 4, true), "first")); /* little in common, and of the same line */
    site.place = XL_STR("train.py:14");
    CHECK_STR(judge(c, "SyncTensorsGraph.5", 10, 6, false), "first");
    CHECK_STR(judge(c, "SyncTensorsGraph.6", 10, 8, false), "shape");
    site.place = (xl_str){ "", 0 };
    xl_contracts_free(c);
    xl_run_close(run);
}

TEST(G1_the_same_program_for_another_device)
{
    xl_run *run;
    xl_contracts *c = process("device", &run);
    site.devices = XL_STR("0");
    CHECK_STR(judge(c, "jit_step", 10, 4, false), "first");
    CHECK_STR(judge(c, "jit_step", 10, 4, false), "identical");
    site.devices = XL_STR("1");
    CHECK_STR(judge(c, "jit_step", 10, 4, false), "device");
    site.devices = (xl_str){ "", 0 };
    xl_contracts_free(c);
    xl_run_close(run);
}

TEST(G1_functions_of_one_name_are_compared_each_with_itself)
{
    xl_run *run;
    xl_contracts *c = process("function", &run);
    site.function = XL_STR("/a/train.py:3");
    CHECK_STR(judge(c, "jit_step", 10, 4, false), "first");
    site.function = XL_STR("/a/train.py:9");
    CHECK_STR(judge(c, "jit_step", 10, 6, true), "first");
    CHECK_STR(judge(c, "jit_step", 10, 8, true), "shape");
    site.function = XL_STR("/a/train.py:20");
    CHECK_STR(judge(c, "jit_step", 10, 4, false), "first"); /* what another function computes is no news of this one */
    site.function = XL_STR("/a/train.py:3");
    CHECK_STR(judge(c, "jit_step", 10, 5, false), "shape");
    site.function = XL_STR("/a/train.py:3#2");             /* made in the same place, and alive beside it */
    CHECK_STR(judge(c, "jit_step", 10, 7, false), "first");
    CHECK_STR(judge(c, "jit_step", 10, 5, false), "identical");
    site.function = XL_STR("/a/train.py:3.backward");
    CHECK_STR(judge(c, "jit_step", 10, 5, false), "first");
    site.function = (xl_str){ "", 0 };                     /* not known: a name of its own is enough */
    CHECK(strcmp(judge(c, "jit_step", 40, 4, true), "first"));
    xl_contracts_free(c);
    xl_run_close(run);
}

/* cause: options flags profile plugin topology */
TEST(C3_the_part_of_the_key_that_differs_is_the_reason)
{
    static const char *const reason[][2] = { { "options", "options" }, { "flags", "flags" }, { "profile", "profile" },
                                             { "plugin", "plugin" }, { "versions", "plugin" },
                                             { "topology", "topology" } };
    for (size_t i = 0; i < sizeof reason / sizeof *reason; i++) {
        xl_run *run;
        xl_contracts *c = process(reason[i][0], &run);
        part = reason[i][0];
        CHECK_STR(judge(c, "jit_step", 10, 4, false), "first");
        value = "another";
        CHECK_STR(judge(c, "jit_step", 10, 4, false), reason[i][1]);
        CHECK_STR(judge(c, "jit_step", 10, 4, false), "identical");
        part = "options", value = "plain";
        xl_contracts_free(c);
        xl_run_close(run);
    }
}

TEST(C2_a_restart_knows_every_program_of_the_run_before)
{
    xl_run *run;
    xl_contracts *c = process("restart", &run);
    for (int i = 0; i < 20; i++)
        CHECK_STR(judge(c, "SyncTensorsGraph.1", 1 + i, 8, false), i ? "op" : "first");
    xl_contracts_free(c);
    xl_run_close(run);
    c = process("restart", &run);
    CHECK_STR(judge(c, "SyncTensorsGraph.1", 1, 8, false), "first"); /* it is there, though not among the newest */
    xl_contracts_free(c);
    xl_run_close(run);
    c = process("restart", &run);
    CHECK_STR(judge(c, "SyncTensorsGraph.1", 20, 9, false), "shape");
    xl_contracts_free(c);
    xl_run_close(run);
}

TEST(z_clean_up)
{
    char rm[100];
    snprintf(rm, sizeof rm, "rm -rf %s", root);
    CHECK(system(rm) == 0);
}
