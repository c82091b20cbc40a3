#include "lane/retry.h"

#include "base/file.h"
#include "base/test.h"
#include "base/yaml.h"

/* M4: every text of test/errors.yaml gets its class; a masked cause is unmasked; nothing is retried outside
 * the window. */
TEST(every_error_text_has_its_class)
{
    xl_arena a = { 0 };
    xl_str text;
    xl_node *root;
    int bad = 0, masked = 0, live = 0;
    CHECK_OK(xl_file_read(&a, "test/errors.yaml", &text));
    CHECK_OK(xl_yaml_read(&a, "test/errors.yaml", text, &root));
    CHECK(root->kind == XL_NODE_LIST && root->n >= 40);
    for (size_t i = 0; i < root->n; i++) {
        const xl_node *c = root->kid[i], *again = xl_node_get(c, "again");
        xl_str phase = xl_node_text(c, "phase");
        xl_phase p = xl_str_is(phase, "startup") ? XL_PHASE_STARTUP
                     : xl_str_is(phase, "run")   ? XL_PHASE_RUN
                                                 : XL_PHASE_WINDOW;
        xl_failure f = xl_retry_classify(0, xl_node_text(c, "text"), p);
        xl_str mask = xl_node_text(c, "masked");
        const xl_node *seen = xl_node_get(c, "live");
        masked += f.masked_by != NULL;
        live += seen && seen->b;
        bool ok = xl_str_is(xl_node_text(c, "want"), xl_retry_word(f.verdict)) &&
                  xl_str_is(xl_node_text(c, "cause"), f.cause) && again && f.again == again->b &&
                  (mask.n ? f.masked_by && xl_str_is(mask, f.masked_by) : !f.masked_by);
        if (!ok) {
            printf("  %.*s: %s, %s, %s, %s\n", XL_FMT(xl_node_text(c, "name")), f.cause, xl_retry_word(f.verdict),
                   f.again ? "again" : "not again", f.masked_by ? f.masked_by : "");
            bad++;
        }
    }
    xl_arena_fini(&a);
    CHECK_INT(bad, 0);
    CHECK_INT(masked, 5);
    CHECK(live >= 40);                  /* provoked and seen, not put together */
}

TEST(the_code_counts_where_the_text_says_nothing)
{
    CHECK_STR(xl_retry_classify(8, XL_STR("what"), XL_PHASE_WINDOW).cause, "code_exhausted");
    CHECK_STR(xl_retry_classify(0, XL_STR(""), XL_PHASE_WINDOW).cause, "unknown");
    CHECK(!xl_retry_classify(14, XL_STR("x"), XL_PHASE_RUN).again);
    CHECK(xl_retry_classify(14, XL_STR("x"), XL_PHASE_STARTUP).again);
}

TEST(log_lines_are_no_codes)
{
    xl_failure f =
        xl_retry_classify(0, XL_STR("E1000 17:42:48.594192 1044529 agent.cc:332] UNAVAILABLE: gone"), XL_PHASE_STARTUP);
    CHECK_STR(f.ecode, "");
    CHECK_STR(f.cause, "code_unavailable");
}
