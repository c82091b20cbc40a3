#include "base/log.h"
#include "base/test.h"

static char got[4096];
static int lines;

static void keep(void *ctx, xl_log_level level, const char *text)
{
    CHECK(ctx == (void *)&lines);
    snprintf(got, sizeof got, "%s %s", xl_log_word(level), text);
    lines++;
}

TEST(log_goes_to_the_sink_at_its_level)
{
    xl_log_set_sink(keep, &lines);
    xl_log_set_level(XL_LOG_INFO);
    XL_LOG(INFO, "loaded %s: %d", "x.so", 7);
    CHECK_STR(got, "info loaded x.so: 7");
    XL_LOG(DEBUG, "not this one");
    CHECK_INT(lines, 1);
    xl_log_set_level(XL_LOG_OFF);
    XL_LOG(ERROR, "nor this one");
    CHECK_INT(lines, 1);
}

TEST(log_keeps_to_one_line_and_a_bound)
{
    static char big[10000];
    memset(big, 'x', sizeof big - 1);
    big[3] = '\n';
    xl_log_set_sink(keep, &lines);
    xl_log_set_level(XL_LOG_DEBUG);
    XL_LOG(WARN, "%s", big);
    CHECK(!strchr(got, '\n'));
    CHECK(strlen(got) < 2100);
}

TEST(log_words)
{
    xl_log_level l = XL_LOG_OFF;
    CHECK(xl_log_parse("debug", &l) && l == XL_LOG_DEBUG);
    CHECK(!xl_log_parse("loud", &l) && !xl_log_parse(NULL, &l));
}
