#include "base/yaml.h"
#include "base/json.h"
#include "base/test.h"

#include <math.h>

static xl_arena a;

static const char *as_json(const char *text)
{
    xl_node *n;
    xl_buf b = { 0 };
    xl_json j = { .out = &b };
    xl_error *e = xl_yaml_read(&a, "t", xl_str_of(text), &n);
    if (e) {
        const char *m = xl_str_c(&a, xl_str_of(xl_error_message(e)));
        xl_error_free(e);
        return m;
    }
    xl_json_node(&j, n);
    const char *s = xl_str_c(&a, xl_buf_view(&b));
    xl_buf_fini(&b);
    return s;
}

TEST(yaml_scalars_are_of_the_core_schema)
{
    CHECK_STR(
        as_json("[1, -2, +3, 0x10, 1.5, 1e3, .5, ~, null, true, False, no, 'true', \"1\", 1_0, 08, 1.2.3, -, e5, .]"),
        "[1,-2,3,16,1.5,1000.0,0.5,null,null,true,false,\"no\",\"true\",\"1\",\"1_0\",8,\"1.2.3\",\"-\",\"e5\",\".\"]");
    xl_node *n;
    CHECK_OK(xl_yaml_read(&a, "t", XL_STR("[.inf, -.inf, .nan, 99999999999999999999]"), &n));
    CHECK(n->kid[0]->f > 0 && isinf(n->kid[0]->f) && n->kid[1]->f < 0 && isnan(n->kid[2]->f) &&
          n->kid[3]->kind == XL_NODE_FLOAT);
}

TEST(yaml_trees_and_lines)
{
    CHECK_STR(as_json("a: 1\n"
                      "b:\n"
                      "  - x\n"
                      "  - {c: d}\n"
                      "e: |\n"
                      "  two\n"
                      "  lines\n"),
              "{\"a\":1,\"b\":[\"x\",{\"c\":\"d\"}],\"e\":\"two\\nlines\\n\"}");
    CHECK_STR(as_json(""), "null");
    CHECK_STR(as_json("# only a comment\n"), "null");
    CHECK_STR(as_json("{\"json\": [1, \"x\\u00e9\", null]}"), "{\"json\":[1,\"xé\",null]}");
    xl_node *n;
    CHECK_OK(xl_yaml_read(&a, "p.yaml", XL_STR("cache:\n  on: true\n  size: banana\n"), &n));
    uint64_t size;
    CHECK_ERR(xl_node_get_size(xl_node_get(n, "cache"), "size", &size), "p.yaml:3: cache.size: a size was expected");
    CHECK(xl_node_get(n, "cache")->line == 1); /* a block is where its key is */
    CHECK_ERR(xl_yaml_read(&a, "p.yaml",
                           XL_STR("a: 1\n"
                                  "b: 2\n"
                                  "b:\n"
                                  "\n"
                                  "  - x\n"),
                           &n),
              "p.yaml:3: b: the key is there twice, first on line 2");
}

TEST(yaml_aliases)
{
    CHECK_STR(as_json("a: &x {k: 1}\n"
                      "b: *x\n"
                      "c: [*x, &y 2, *y]\n"),
              "{\"a\":{\"k\":1},\"b\":{\"k\":1},\"c\":[{\"k\":1},2,2]}");
    CHECK(strstr(as_json("a: &x [*x]"), "t:1:8: an alias inside"));
    CHECK(strstr(as_json("a: *x"), "t:1:4: an alias to nothing"));
}

TEST(yaml_bombs_are_refused)
{
    xl_buf b = { 0 };
    xl_buf_puts(&b, "a0: &a0 [x,x,x,x,x,x,x,x,x,x]\n");
    for (int i = 1; i < 12; i++) {
        xl_buf_printf(&b, "a%d: &a%d [", i, i);
        for (int k = 0; k < 10; k++)
            xl_buf_printf(&b, "%s*a%d", k ? "," : "", i - 1);
        xl_buf_puts(&b, "]\n");
    }
    CHECK(strstr(as_json(b.p), "too many values"));
    xl_buf_fini(&b);
    for (int i = 0; i < 5000; i++)
        xl_buf_putc(&b, '[');
    CHECK(strstr(as_json(b.p), "nested too deeply"));
    xl_buf_fini(&b);
    static char huge[XL_YAML_BYTES + 1];
    xl_node *n;
    CHECK_ERR(xl_yaml_read(&a, "t", (xl_str){ huge, sizeof huge }, &n), "at most");
}

TEST(yaml_mistakes_have_a_place)
{
    CHECK(strstr(as_json("a: 1\na: 2\n"), "t:2: a: the key is there twice, first on line 1"));
    CHECK(strstr(as_json("a: [1\nb: 2\n"), "t:1:4: while parsing a flow sequence"));
    CHECK(strstr(as_json("a: [1\nb: 2\n"), "; it shows at line 2"));
    CHECK(strstr(as_json("a: 1\nb: 2: 3\n"), "t:2:") && !strstr(as_json("a: 1\nb: 2: 3\n"), "it shows at"));
    CHECK(strstr(as_json("a: 1\n--- \nb: 2\n"), "a second document"));
    CHECK(strstr(as_json("? [x]\n: 1\n"), "a key must be"));
    CHECK(strstr(as_json("a: \"\xff\""), "t:"));
    CHECK(strstr(as_json("\ta: 1"), "t:1"));
}

TEST(yaml_without_memory_is_an_error)
{
    xl_arena small = { .limit = 600 };
    xl_node *n;
    CHECK_ERR(xl_yaml_read(&small, "t", XL_STR("[1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16]"), &n), "no memory");
    CHECK(!small.oom);
    xl_arena_fini(&small);
    xl_arena_fini(&a);
}
