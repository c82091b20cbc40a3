#include "base/json.h"
#include "base/test.h"

#include <math.h>

static xl_arena a;

TEST(json_writer_puts_commas_and_escapes)
{
    xl_buf b = { 0 };
    xl_json j = { .out = &b };
    xl_json_map(&j);
    xl_json_put_text(&j, "s", "a\"\\\n\t\x01/é");
    xl_json_put_str(&j, "bad", XL_STR("\xff<\xc0\xaf>\xed\xa0\x80|\xe2\x82"));
    xl_json_key(&j, "l");
    xl_json_list(&j);
    xl_json_int(&j, INT64_MIN);
    xl_json_uint(&j, UINT64_MAX);
    xl_json_bool(&j, true);
    xl_json_null(&j);
    xl_json_map(&j);
    xl_json_end(&j);
    xl_json_end(&j);
    xl_json_put_text(&j, "none", NULL);
    xl_json_end(&j);
    CHECK_STR(b.p, "{\"s\":\"a\\\"\\\\\\n\\t\\u0001/é\",\"bad\":\"�<��>���|��\",\"l\":[-9223372036854775808,"
                   "18446744073709551615,true,null,{}],\"none\":null}");
    xl_buf_fini(&b);
}

static const char *num(double v)
{
    static xl_buf b;
    xl_buf_fini(&b);
    xl_json j = { .out = &b };
    xl_json_num(&j, v);
    return b.p;
}

TEST(json_numbers_read_back)
{
    CHECK_STR(num(0.1), "0.1");
    CHECK_STR(num(1), "1.0");
    CHECK_STR(num(-0.0), "-0.0");
    CHECK_STR(num(1e300), "1e+300");
    CHECK_STR(num(NAN), "null");
    CHECK_STR(num(-INFINITY), "null");
    CHECK_STR(num(5e-324), "4.94065645841247e-324");
    double back, third = 1.0 / 3;
    CHECK(xl_str_f64(xl_str_of(num(third)), &back) && back == third);
    num(0);
}

TEST(json_pretty)
{
    xl_buf b = { 0 };
    xl_json j = { .out = &b, .pretty = true };
    xl_node *n;
    CHECK_OK(xl_json_read(&a, "t", XL_STR("{\"a\":[1,{}],\"b\":[]}"), &n));
    xl_json_node(&j, n);
    CHECK_STR(b.p, "{\n  \"a\": [\n    1,\n    {}\n  ],\n  \"b\": []\n}");
    xl_buf_fini(&b);
}

TEST(json_reader_reads)
{
    xl_node *n;
    CHECK_OK(xl_json_read(&a, "t", XL_STR(" {\"a\" : [1, -2.5e3,\ntrue, false, null, 1e400, 12345678901234567890 ],"
                                          "\"k\":\"x\\u00e9\\ud83d\\ude00\\ud800\\n\", \"a2\":{}, \"k\":2}\n"), &n));
    const xl_node *l = xl_node_get(n, "a");
    CHECK(n->kind == XL_NODE_MAP && l && l->kind == XL_NODE_LIST && l->n == 7);
    CHECK(l->kid[0]->kind == XL_NODE_INT && l->kid[0]->i == 1 && l->kid[0]->f == 1);
    CHECK(l->kid[1]->kind == XL_NODE_FLOAT && l->kid[1]->f == -2500 && l->kid[1]->i == -2500);
    CHECK(l->kid[2]->b && !l->kid[3]->b && l->kid[4]->kind == XL_NODE_NULL);
    CHECK_INT(l->kid[2]->line, 2);
    CHECK(isinf(l->kid[5]->f) && l->kid[6]->kind == XL_NODE_FLOAT);
    CHECK(xl_str_is(n->kid[1]->s, "xé😀�\n"));
    CHECK_INT(xl_node_get(n, "k")->i, 2); /* of two with one name the last counts */
    CHECK(!xl_node_get(n, "zz") && !xl_node_get(NULL, "a") && !xl_node_get(l, "a"));
}

TEST(json_reader_refuses)
{
    static const struct { const char *text, *says;
    } cases[] = {
        { "", "t:1:1: the text ends" },
        { "{", "a key in quotes" },
        { "[1,]", "t:1:4: a value" },
        { "[1 2]", "',' was" },
        { "{\"a\" 1}", "':' was" },
        { "01", "something follows" },
        { "1.", "point" },
        { "-", "a value" },
        { "1e", "exponent" },
        { "\"a", "does not end" },
        { "\"\\x\"", "escape" },
        { "\"\\u12\"", "escape" },
        { "\"\\", "does not end" },
        { "\"\xff\"", "UTF-8" },
        { "\"a\n"
          "b\"",
          "control" },
        { "[1", "does not end" },
        { "nul", "a value" },
        { "{} x", "follows" },
        { "\n\n [tru]", "t:3:3" },
        { "NaN", "a value" },
        { "{\"a\":1,}", "key in quotes" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        xl_node *n;
        CHECK_ERR(xl_json_read(&a, "t", xl_str_of(cases[i].text), &n), cases[i].says);
        CHECK(!n);
    }
}

TEST(json_reader_stands_a_nesting_bomb)
{
    static char bomb[1000000];
    memset(bomb, '[', sizeof bomb);
    xl_node *n;
    CHECK_ERR(xl_json_read(&a, "t", (xl_str){ bomb, sizeof bomb }, &n), "nested too deeply");
}

TEST(json_reader_stands_every_truncation_and_flip)
{
    static const char text[] = "{\"a\":[1,-2.5e3,true,null,{\"b\":\"\\u00e9\\ud83d\\ude00\"}],\"c\":\"\\\\\"}";
    for (size_t n = 0; n < sizeof text - 1; n++) {
        char *cut = malloc(n ? n : 1); /* of the exact size, for the sanitizer */
        memcpy(cut, text, n);
        xl_node *t;
        xl_error *e = xl_json_read(&a, "t", (xl_str){ cut, n }, &t);
        CHECK(e);
        xl_error_free(e);
        for (int c = 1; c < 256 && n; c += 7) {
            cut[n - 1] = (char)c;
            xl_error_free(xl_json_read(&a, "t", (xl_str){ cut, n }, &t));
        }
        free(cut);
    }
}

TEST(node_getters_check)
{
    xl_node *n;
    CHECK_OK(xl_json_read(&a, "p.json",
                          XL_STR("{\"cache\":{\"size\":\"16MiB\",\n"
                                 "\"on\":true,\"n\":7,\"x\":0.5,\"name\":\"q\",\"l\":[1,{\"z\":2}]}}"),
                          &n));
    const xl_node *c = xl_node_get(n, "cache");
    uint64_t size = 0;
    int64_t v = -1;
    double x = 0;
    bool on = false;
    xl_str s = { 0 };
    CHECK_OK(xl_node_get_size(c, "size", &size));
    CHECK_OK(xl_node_get_bool(c, "on", &on));
    CHECK_OK(xl_node_get_int(c, "n", 0, 10, &v));
    CHECK_OK(xl_node_get_float(c, "x", &x));
    CHECK_OK(xl_node_get_str(c, "name", &s));
    CHECK(size == 16u << 20 && on && v == 7 && x == 0.5 && xl_str_is(s, "q"));
    CHECK_OK(xl_node_get_int(c, "missing", 0, 10, &v));
    CHECK_INT(v, 7);
    CHECK_ERR(xl_node_get_int(c, "n", 0, 5, &v), "p.json:2: cache.n: 7 is not between 0 and 5");
    CHECK_ERR(xl_node_get_int(c, "name", 0, 5, &v), "a whole number was expected, not a string");
    CHECK_ERR(xl_node_get_bool(c, "n", &on), "true or false was expected");
    CHECK_ERR(xl_node_get_size(c, "x", &size), "a size was expected");
    CHECK_ERR(xl_node_get_str(c, "l", &s), "a string was expected, not a list");
    CHECK_ERR(xl_node_get_float(c, "name", &x), "a number was expected");
    CHECK_ERR(xl_node_err(xl_node_get(xl_node_get(c, "l")->kid[1], "z"), "odd"), "p.json:2: cache.l[1].z: odd");
    const char *const known[] = { "size", "on", "n", "x", "nane", "l", NULL };
    CHECK_ERR(xl_node_only(c, known), "cache.name: unknown key; the nearest known one is 'nane'");
    const char *const all[] = { "cache", NULL };
    CHECK_OK(xl_node_only(n, all));
    xl_arena_fini(&a);
}

TEST(members_of_a_written_map_join_the_open_one)
{
    xl_buf b = { 0 };
    xl_json j = { .out = &b };
    xl_json_map(&j);
    xl_json_members(&j, XL_STR("{}"));
    xl_json_members(&j, XL_STR("{\"a\":1,\"b\":[2]}"));
    xl_json_put_int(&j, "c", 3);
    xl_json_members(&j, XL_STR("{\"d\":4}"));
    xl_json_end(&j);
    CHECK_STR(b.p, "{\"a\":1,\"b\":[2],\"c\":3,\"d\":4}");
    xl_buf_fini(&b);
}
