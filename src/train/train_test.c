#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/file.h"
#include "base/test.h"
#include "train/ckpt.h"
#include "train/config.h"
#include "train/data.h"
#include "train/safetensors.h"
#include "train/sized.h"
#include "train/tb.h"

static const char *folder(void)
{
    static char dir[] = "/tmp/xlane-train-test-XXXXXX";
    static bool made;
    if (!made)
        made = mkdtemp(dir) != NULL;
    return dir;
}

static char *in_folder(const char *name)
{
    static char path[4][256];
    static int k;
    char *p = path[k++ % 4];
    snprintf(p, 256, "%s/%s", folder(), name);
    return p;
}

static void put(const char *path, const void *p, size_t n)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0644);
    CHECK(fd >= 0 && write(fd, p, n) == (ssize_t)n);
    close(fd);
}

/* A program of an older header has a shorter struct, one of a newer header a longer one. */
TEST(options_of_other_versions)
{
    struct { xl_adamw known; double later[2]; } next;
    xl_adamw_fill(&next.known, sizeof next);
    CHECK(next.known.size == sizeof next && next.known.lr == xl_adamw_default().lr && next.later[1] == 0);
    xl_adamw got = xl_adamw_default();
    next.known.lr = 0.5;
    CHECK_OK(xl_sized_read("xl_adamw_default", &next, &got, sizeof got));
    CHECK(got.lr == 0.5 && got.size == sizeof got);
    next.later[1] = 3;
    CHECK_ERR(xl_sized_read("xl_adamw_default", &next, &got, sizeof got), "does not have");

    struct { size_t size; double lr; } last = { 0 };
    xl_sized_fill(&last, sizeof last, &(xl_adamw){ .lr = 7 }, sizeof(xl_adamw));
    CHECK(last.size == sizeof last && last.lr == 7);
    got = xl_adamw_default();
    CHECK_OK(xl_sized_read("xl_adamw_default", &last, &got, sizeof got));
    CHECK(got.lr == 7 && got.beta2 == xl_adamw_default().beta2);

    xl_adamw blank = { 0 };
    CHECK_ERR(xl_sized_read("xl_adamw_default", &blank, &got, sizeof got), "start from xl_adamw_default");
    xl_graph *g = xl_graph_new("blank");
    xl_model no_size = { .pattern = "A" };
    xl_model_build(g, &no_size, 2, 8, NULL);
    CHECK(xl_graph_error(g) && strstr(xl_error_message(xl_graph_error(g)), "xl_model_default") != NULL);
    xl_graph_free(g);
    CHECK(!strcmp(xl_version(), XLANE_VERSION));
}

TEST(patterns)
{
    xl_pattern_unit u[XL_UNITS_MAX];
    int n;
    CHECK_OK(xl_pattern_parse("AMER*3", u, &n));
    CHECK_INT(n, 1);
    CHECK_INT(u[0].n, 4);
    CHECK_INT(u[0].times, 3);
    CHECK_OK(xl_pattern_parse("AA(ME)*2R", u, &n));
    CHECK_INT(n, 3);
    CHECK_INT(u[1].times, 2);
    CHECK_ERR(xl_pattern_parse("", u, &n), "empty");
    CHECK_ERR(xl_pattern_parse("AX", u, &n), "'X'");
    CHECK_ERR(xl_pattern_parse("A*0", u, &n), "1 to 10000");
    CHECK_ERR(xl_pattern_parse("(AM", u, &n), "not closed");
    CHECK_ERR(xl_pattern_parse("A*2-", u, &n), "not understood");
}

TEST(the_first_mistake_sticks_with_its_line)
{
    xl_graph *g = xl_graph_new("t");
    xl_tensor a = xl_input(xl_graph_at(g, "model.c", 7), "a", "f32[2,3]"), b = xl_input(g, "b", "f32[4]");
    CHECK(!xl_graph_error(g));
    CHECK_STR(xl_shape(g, xl_add(g, a, xl_const(g, "f32[3]", 1))), "f32[2,3]");
    xl_tensor c = xl_add(xl_graph_at(g, "model.c", 9), a, b);
    CHECK_INT(c.id, UINT32_MAX);
    xl_loss(xl_graph_at(g, "model.c", 11), xl_sum(g, c, NULL));
    CHECK_STR(xl_error_message(xl_graph_error(g)), "model.c:9: add: f32[2,3] and f32[4] do not match in dimension -1");
    xl_graph_free(g);
}

TEST(mistakes_are_named)
{
    static const struct { const char *says; int what;
    } cases[] = { { "is not a type", 0 },
                  { "has 6 elements", 1 },
                  { "not one float", 2 },
                  { "there is a \"a\" already", 3 },
                  { "parameters are kept in f32", 4 },
                  { "none of mean, sum, max, local", 5 },
                  { "matmul", 6 },
                  { "names an axis", 7 } };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        xl_graph *g = xl_graph_new("t");
        xl_tensor a = xl_input(g, "a", "f32[2,3]");
        switch (cases[i].what) {
        case 0: xl_input(g, "x", "float[3"); break;
        case 1: xl_reshape(g, a, "[4,-1]"); break;
        case 2: xl_loss(g, a); break;
        case 3: xl_param(g, "a", "f32[]", "zeros"); break;
        case 4: xl_param(g, "p", "bf16[2]", "zeros"); break;
        case 5: xl_metric(g, "m", "average", xl_sum(g, a, NULL)); break;
        case 6: xl_matmul(g, a, a); break;
        case 7: xl_sum(g, a, "[2]"); break;
        }
        CHECK(xl_graph_error(g));
        if (!strstr(xl_error_message(xl_graph_error(g)), cases[i].says))
            FAIL("\"%s\" lacks \"%s\"", xl_error_message(xl_graph_error(g)), cases[i].says);
        xl_graph_free(g);
    }
}

static void widen(xl_graph *g, xl_tensor turn, xl_tensor *carry, void *arg)
{
    (void)turn, (void)arg;
    xl_tensor two[2] = { carry[0], carry[0] };
    carry[0] = xl_concat(g, two, 2, 0);
}

TEST(a_scan_keeps_its_types)
{
    xl_graph *g = xl_graph_new("t");
    xl_tensor a = xl_input(g, "a", "f32[2]");
    xl_scan(g, 3, &a, 1, widen, NULL);
    CHECK(xl_graph_error(g) && strstr(xl_error_message(xl_graph_error(g)), "came in as f32[2] and goes out as f32[4]"));
    xl_graph_free(g);
}

TEST(configurations)
{
    xl_arena a = { 0 };
    xl_config c;
    char *words[] = { "data.train=x.txt", "model.dim=64", "data.buckets=[16,32]", "model.scan=false" };
    CHECK_OK(xl_config_read(&a, NULL, words, 4, &c));
    CHECK_INT(c.model.dim, 64);
    CHECK_INT(c.data.nbucket, 2);
    CHECK_INT(c.model.scan, 0);
    xl_buf b = { 0 };
    xl_config_write(&c, &b);                                /* what is written reads back as the same */
    char *path = in_folder("c.yaml");
    CHECK_OK(xl_file_write_atomic(path, xl_buf_view(&b)));
    xl_config d;
    CHECK_OK(xl_config_read(&a, path, NULL, 0, &d));
    CHECK_INT(d.model.dim, 64);
    CHECK_INT(d.data.buckets[1], 32);
    CHECK_STR(d.data.train, "x.txt");
    CHECK_INT(d.model.scan, 0);
    xl_buf_fini(&b);
    char *typo[] = { "data.train=x", "model.haeds=4" }, *none[] = { "model.dim=64" },
         *shrink[] = { "data.train=x", "data.buckets=32,16" };
    CHECK_ERR(xl_config_read(&a, NULL, typo, 2, &c), "did you mean 'model.heads'");
    CHECK_ERR(xl_config_read(&a, NULL, none, 1, &c), "data.train");
    CHECK_ERR(xl_config_read(&a, NULL, shrink, 2, &c), "must grow");
    xl_arena_fini(&a);
}

TEST(safetensors_round_trip_and_hostile_headers)
{
    float v[6] = { 1, 2, 3, 4, 5, 6 };
    int32_t n[2] = { 7, 8 };
    int64_t d[2] = { 2, 3 }, one = 2;
    xl_saved t[2] = { { .name = XL_STR("w"), .dtype = XL_F32, .dims = { d, 2 }, .data = v },
                      { .name = XL_STR("n"), .dtype = XL_I32, .dims = { &one, 1 }, .data = n } };
    xl_meta m = { XL_STR("k"), XL_STR("a \"b\"") };
    char *path = in_folder("t.safetensors");
    CHECK_OK(xl_safetensors_write(path, t, 2, &m, 1));
    xl_safetensors s;
    CHECK_OK(xl_safetensors_open(path, &s));
    const xl_saved *w = xl_safetensors_find(&s, XL_STR("w"));
    CHECK(w && w->bytes == 24 && w->dims.n == 2 && w->dims.p[1] == 3);
    float back[6];
    CHECK_OK(xl_safetensors_read(&s, w, back));
    CHECK(!memcmp(back, v, sizeof v));
    CHECK(xl_str_is(xl_safetensors_meta(&s, "k"), "a \"b\""));
    xl_safetensors_close(&s);
    static const char *const heads[] = {
        "{\"w\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,80]}}",
        "{\"w\":{\"dtype\":\"F99\",\"shape\":[2],\"data_offsets\":[0,8]}}",
        "{\"w\":{\"dtype\":\"F32\",\"shape\":[-1],\"data_offsets\":[0,8]}}",
        "{\"w\":{\"dtype\":\"F32\",\"shape\":[4611686018427387904,4],\"data_offsets\":[0,0]}}",
        "{\"w\":{\"dtype\":\"F32\",\"shape\":[2]}}",
        "{\"w\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]},\"x\":{\"dtype\":\"F32\",\"shape\":[1],\"data_"
        "offsets\":[4,8]}}",
        "[1]",
        "{\"w\":3}",
        "{"
    };
    for (size_t i = 0; i < sizeof heads / sizeof *heads; i++) {
        char file[512] = { 0 };
        uint64_t len = strlen(heads[i]);
        memcpy(file, &len, 8);
        memcpy(file + 8, heads[i], len);
        put(path, file, 8 + len + 8);
        xl_error *err = xl_safetensors_open(path, &s);
        if (!err)
            FAIL("%s was taken", heads[i]);
        xl_error_free(err);
    }
}

TEST(data_is_a_function_of_its_place)
{
    char *path = in_folder("d.txt"), text[4000];
    for (size_t i = 0; i < sizeof text; i++)
        text[i] = (char)('a' + i * 7 % 23);
    put(path, text, sizeof text);
    xl_config c = { .seed = 5, .model = { .vocab = 256 } };
    c.data.train = path;
    c.data.batch = 3;
    c.data.time = 20;
    c.data.end = -1;
    int32_t first[12][60];
    for (int round = 0; round < 2; round++) {               /* from the start, then from the seventh */
        xl_data *d;
        const xl_batch *b;
        CHECK_OK(xl_data_open(&c, false, &d));
        CHECK_OK(xl_data_start(d, round ? 7 : 0));
        for (int i = round ? 7 : 0; i < 12; i++) {
            CHECK_OK(xl_data_next(d, &b));
            if (round)
                CHECK(!memcmp(first[i], b->tokens, sizeof first[i]));
            memcpy(first[i], b->tokens, sizeof first[i]);
            CHECK_INT(b->ntoken, 60);
            for (int k = 0; k < 60; k++)
                CHECK(k % 20 == 19 || b->targets[k] == b->tokens[k + 1]);
        }
        xl_data_close(d);
    }
    c.data.format = "lines"; /* documents, packed: segments count up, positions begin anew */
    c.data.pack = true;
    for (size_t i = 0; i < sizeof text; i += 9)
        text[i] = '\n';
    put(path, text, sizeof text);
    xl_data *d;
    const xl_batch *b;
    CHECK_OK(xl_data_open(&c, false, &d));
    CHECK_OK(xl_data_start(d, 0));
    CHECK_OK(xl_data_next(d, &b));
    CHECK_INT(b->segments[0], 1);
    CHECK_INT(b->segments[8], 2);
    CHECK_INT(b->positions[8], 0);
    CHECK_INT(b->targets[7], '\n');
    xl_data_close(d);
}

TEST(crc32c_is_that_of_the_standard) { CHECK_INT(xl_crc32c("123456789", 9), 0xe3069283u); }

/* Whatever threads made it: pair i is splitmix64 of the parameter's state and i. */
TEST(parameters_do_not_depend_on_threads)
{
    enum { N = (1 << 19) + 3 };
    const xl_param_info p = { .name = XL_STR("w"), .init = XL_INIT_UNIFORM, .scale = 1 };
    float *a = malloc(N * sizeof *a);
    uint64_t s = (0x2545f4914f6cdd1du ^ 'w') * 0x100000001b3u;
    int wrong = 0;
    xl_param_draw(&p, 1, a, N);
    for (int i = 0; i < N; i += 2) {
        uint64_t z = (s += 0x9e3779b97f4a7c15u);
        z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
        z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
        z ^= z >> 31;
        wrong += a[i] != 2 * (((float)(z >> 40) + 0.5f) * 0x1p-24f) - 1;
        wrong += i + 1 < N && a[i + 1] != 2 * ((float)(uint32_t)((z >> 8) & 0xffffff) * 0x1p-24f) - 1;
    }
    CHECK_INT(wrong, 0);
    free(a);
}

TEST(parameters_do_not_depend_on_their_neighbours)
{
    xl_param_info p = { .name = XL_STR("w"), .init = XL_INIT_NORMAL, .scale = 1 }, q = p;
    float a[1000], b[1000], sum = 0, sq = 0;
    xl_param_draw(&p, 1, a, 1000);
    xl_param_draw(&q, 1, b, 1000);
    CHECK(!memcmp(a, b, sizeof a));
    q.name = XL_STR("x");
    xl_param_draw(&q, 1, b, 1000);
    CHECK(memcmp(a, b, sizeof a));
    for (int i = 0; i < 1000; i++)
        sum += a[i], sq += a[i] * a[i];
    CHECK(sum / 1000 < 0.15f && sum / 1000 > -0.15f && sq / 1000 > 0.85f && sq / 1000 < 1.15f);
}
