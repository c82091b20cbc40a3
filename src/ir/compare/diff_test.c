/* Two programs and the sentences that tell them apart. */
#include "base/test.h"
#include "ir/compare/diff.h"
#include "ir/read.h"

static xl_arena arena;

static xl_module *kept[256];                               /* until the end: differences point into them */
static uint32_t nkept;

static void free_kept(void)
{
    while (nkept)
        xl_module_free(kept[--nkept]);
    xl_arena_fini(&arena);
}

static xl_module *read_text(const char *text)
{
    xl_module *m = NULL;
    if (!nkept)
        atexit(free_kept);
    CHECK_OK(xl_read_text(xl_str_of(text), NULL, &m));
    CHECK(nkept < 256);
    kept[nkept++] = m;
    return m;
}

static xl_diff *differ(const char *a, const char *b, uint32_t *n)
{
    xl_module *x = read_text(a), *y = read_text(b);
    xl_diff *d = xl_module_diff(&arena, x, y, 50, n);      /* file names point into the modules: those stay */
    for (uint32_t i = 0; i < *n && getenv("VERBOSE"); i++)
        printf("  %s: %.*s\n", xl_diff_word(d[i].kind), XL_FMT(d[i].text));
    return d;
}

/* Exactly one difference, of this kind, with this sentence. */
static void one(const char *a, const char *b, xl_diff_kind kind, const char *text)
{
    uint32_t n;
    xl_diff *d = differ(a, b, &n);
    for (uint32_t i = 1; i < n; i++)
        printf("  also: %.*s\n", XL_FMT(d[i].text));
    CHECK_INT(n, 1);
    CHECK_STR(xl_str_c(&arena, d[0].text), text);
    CHECK_INT(d[0].kind, kind);
}

#define MAIN(args, body) "func.func public @main(" args ") -> tensor<4xf32> {\n" body "\n}\n"
#define LOCS "#a = loc(\"train.py\":41:3)\n#x = loc(\"x\")\n#y = loc(\"y\")\n#w = loc(\"batch['w']\")\n"

TEST(nothing_differs)
{
    uint32_t n;
    differ(MAIN("%a: tensor<4xf32>", "%0 = stablehlo.sine %a : tensor<4xf32> loc(\"a.py\":1:1)\n"
                                     " return %0 : tensor<4xf32>"),
           MAIN("%b: tensor<4xf32>", "%k = stablehlo.sine %b : tensor<4xf32> loc(\"b.py\":9:9)\n"
                                     " return %k : tensor<4xf32>"),
           &n);
    CHECK_INT(n, 0);
}

TEST(arguments)
{
    one("func.func public @main(%a: tensor<8x128xf32> loc(#w)) -> tensor<8x128xf32> { %0 = stablehlo.sine %a : "
        "tensor<8x128xf32> loc(#a)\n"
        " return %0 : tensor<8x128xf32> }\n" LOCS,
        "func.func public @main(%a: tensor<8x160xf32> loc(#w)) -> tensor<8x160xf32> { %0 = stablehlo.sine %a : "
        "tensor<8x160xf32> loc(#a)\n"
        " return %0 : tensor<8x160xf32> }\n" LOCS,
        XL_DIFF_SHAPE, "argument `batch['w']`: dimension 1 changed from 128 to 160, used at train.py:41");
    one("func.func public @main(%a: tensor<8xf32>) -> tensor<8xf32> { %0 = stablehlo.sine %a : tensor<8xf32>\n"
        " return %0 : tensor<8xf32> }",
        "func.func public @main(%a: tensor<8xbf16>) -> tensor<8xbf16> { %0 = stablehlo.sine %a : tensor<8xbf16>\n"
        " return %0 : tensor<8xbf16> }",
        XL_DIFF_DTYPE, "argument 0: dtype changed from f32 to bf16");
    one(MAIN("%a: tensor<4xf32> {tf.aliasing_output = 0 : i32}", "return %a : tensor<4xf32>"),
        MAIN("%a: tensor<4xf32>", "return %a : tensor<4xf32>"), XL_DIFF_DONATION, "argument 0 is no longer donated");
    one(MAIN("%a: tensor<4xf32> {mhlo.sharding = \"{replicated}\"}", "return %a : tensor<4xf32>"),
        MAIN("%a: tensor<4xf32> {mhlo.sharding = \"{devices=[2]<=[2]}\"}", "return %a : tensor<4xf32>"),
        XL_DIFF_SHARDING, "argument 0 was replicated, and is split into 2 parts in dimension 0");
    one(MAIN("%a: tensor<4xf32> {mhlo.sharding = \"{devices=[1,2]<=[2] last_tile_dim_replicate}\"}",
             "return %a : tensor<4xf32>"),
        MAIN("%a: tensor<4xf32>", "return %a : tensor<4xf32>"), XL_DIFF_SHARDING,
        "argument 0 was replicated, and is not sharded");
    one(MAIN("%a: tensor<4xf32> {sdy.sharding = #sdy.sharding<@m, [{\"d\"}]>}", "return %a : tensor<4xf32>"),
        MAIN("%a: tensor<4xf32> {sdy.sharding = #sdy.sharding<@m, [{\"d\", ?}]>}", "return %a : tensor<4xf32>"),
        XL_DIFF_SHARDING, "argument 0 was split over mesh axis 'd' in dimension 0, and is split over mesh axis 'd' "
        "in dimension 0, and further as the compiler chooses");
    one(MAIN("%a: tensor<4xf32> {mhlo.layout_mode = \"default\"}", "return %a : tensor<4xf32>"),
        MAIN("%a: tensor<4xf32> {mhlo.layout_mode = \"auto\"}", "return %a : tensor<4xf32>"), XL_DIFF_LAYOUT,
        "argument 0: mhlo.layout_mode default -> auto"); /* cause: layout */
    one(MAIN("%a: tensor<4xf32> loc(#x), %b: tensor<4xf32> loc(#y)", "%0 = stablehlo.subtract %a, %b : tensor<4xf32>\n"
                                                                     " return %0 : tensor<4xf32>") LOCS,
        MAIN("%a: tensor<4xf32> loc(#y), %b: tensor<4xf32> loc(#x)", "%0 = stablehlo.subtract %b, %a : tensor<4xf32>\n"
                                                                     " return %0 : tensor<4xf32>") LOCS,
        XL_DIFF_ORDER, "arguments were reordered: x, y -> y, x");
    one(MAIN("%a: tensor<4xf32> loc(#x), %b: tensor<4xf32> loc(#y)", "%0 = stablehlo.subtract %a, %b : tensor<4xf32>\n"
                                                                     " return %0 : tensor<4xf32>") LOCS,
        MAIN("%a: tensor<4xf32> loc(#w), %b: tensor<4xf32> loc(#x)", "%0 = stablehlo.subtract %b, %a : tensor<4xf32>\n"
                                                                     " return %0 : tensor<4xf32>") LOCS,
        XL_DIFF_ORDER,
        "arguments were renamed and so reordered: x, y -> batch['w'], x"); /* a key that sorts before the others */
    one(MAIN("%a: tensor<4xf32> loc(#x)", "return %a : tensor<4xf32>") LOCS,
        MAIN("%a: tensor<4xf32> loc(#x), %b: tensor<i32> loc(#y)", "return %a : tensor<4xf32>") LOCS, XL_DIFF_ARGS,
        "argument `y` was added: i32");
    one(MAIN("%b: tensor<i32>, %a: tensor<4xf32>", "return %a : tensor<4xf32>"),
        MAIN("%a: tensor<4xf32>", "return %a : tensor<4xf32>"), XL_DIFF_ARGS, "argument 0 was removed: i32");
}

TEST(constants)
{
#define CONST(v) MAIN("%a: tensor<4xf32>", \
    "%c = stablehlo.constant dense<0.5> : tensor<4xf32>\n" \
    "%d = stablehlo.constant dense<" v "> : tensor<4xf32> loc(\"c.py\":1:1)\n" \
    "%0 = stablehlo.multiply %a, %c : tensor<4xf32>\n" \
    " %1 = stablehlo.add %0, %d : tensor<4xf32> loc(\"train.py\":41:3)\n" \
    " return %1 : tensor<4xf32>")
    one(CONST("1.0"), CONST("1.5"), XL_DIFF_CONSTANT,
        "constant all 1 in 4xf32 -> all 1.5 in 4xf32, used by stablehlo.add at train.py:41");
    one(CONST("[1.0, 2.0, 3.0, 4.0]"), CONST("[1.0, 2.0, 3.1, 4.0]"), XL_DIFF_CONSTANT,
        "constant 4xf32, used by stablehlo.add: element 2 changed from 3 to 3.1 (1 of 4 differ) at train.py:41");
    one(MAIN("%a: tensor<4xf32>", "%c = stablehlo.constant dense<0.1> : tensor<f32>\n"
                                  " %0 = stablehlo.broadcast_in_dim %c, dims = [] : (tensor<f32>) -> tensor<4xf32>\n"
                                  " return %0 : tensor<4xf32>"),
        MAIN("%a: tensor<4xf32>", "%c = stablehlo.constant dense<0.01> : tensor<f32>\n"
                                  " %0 = stablehlo.broadcast_in_dim %c, dims = [] : (tensor<f32>) -> tensor<4xf32>\n"
                                  " return %0 : tensor<4xf32>"),
        XL_DIFF_CONSTANT, "constant 0.1 -> 0.01, used by stablehlo.broadcast_in_dim");
}

TEST(a_constant_is_placed_where_the_changed_reader_is)
{
    /* One constant, two readers: frontends share equal ones. What changed is what the call reads. */
#define CLIP                                                                                                           \
    "func.func private @clip(%x: tensor<4xf32>, %y: tensor<f32>) -> tensor<4xf32> { %b = stablehlo.broadcast_in_dim "  \
    "%y, dims = [] : (tensor<f32>) -> tensor<4xf32> loc(\"t.py\":42:1)\n"                                              \
    "%0 = stablehlo.minimum %x, %b : tensor<4xf32> loc(\"t.py\":42:1)\n return %0 : tensor<4xf32> }"
    one(MAIN("%a: tensor<4xf32>",
             "%c = stablehlo.constant dense<0.5> : tensor<f32>\n"
             " %d = stablehlo.constant dense<1.0> : tensor<f32>\n"
             " %e = stablehlo.broadcast_in_dim %c, dims = [] : (tensor<f32>) -> tensor<4xf32> loc(\"t.py\":15:1)\n"
             "%0 = stablehlo.multiply %a, %e : tensor<4xf32> loc(\"t.py\":15:1)\n"
             " %1 = func.call @clip(%0, %d) : (tensor<4xf32>, tensor<f32>) -> tensor<4xf32>\n"
             " return %1 : tensor<4xf32>") CLIP,
        MAIN("%a: tensor<4xf32>",
             "%c = stablehlo.constant dense<0.5> : tensor<f32>\n"
             " %e = stablehlo.broadcast_in_dim %c, dims = [] : (tensor<f32>) -> tensor<4xf32> loc(\"t.py\":15:1)\n"
             "%0 = stablehlo.multiply %a, %e : tensor<4xf32> loc(\"t.py\":15:1)\n"
             " %1 = func.call @clip(%0, %c) : (tensor<4xf32>, tensor<f32>) -> tensor<4xf32>\n"
             " return %1 : tensor<4xf32>") CLIP,
        XL_DIFF_CONSTANT, "constant 1 -> 0.5, used by a call of clip at t.py:42");
#define MASK(v, t) MAIN("%a: tensor<4xf32>", \
    "%c = stablehlo.constant dense<" v "> : tensor<2x2x" t "> loc(\"c.py\":1:1)\n" \
    " %d = stablehlo.convert %c : (tensor<2x2x" t ">) -> tensor<2x2xf32>\n" \
    "%0 = stablehlo.sine %d : tensor<2x2xf32> loc(\"t.py\":7:1)\n" \
    " %1 = stablehlo.reshape %0 : (tensor<2x2xf32>) -> tensor<4xf32>\n" \
    " return %1 : tensor<4xf32>")
    one(MASK("[[0.0, 1.0], [2.0, 3.0]]", "f32"), MASK("[[0.0, 1.0], [5.0, 3.0]]", "f32"), XL_DIFF_CONSTANT,
        "constant 2x2xf32, used by stablehlo.convert: element [1, 0] changed from 2 to 5 (1 of 4 differ) at c.py:1");
    one(MASK("[[0.0, 1.0], [2.0, 3.0]]", "f32"), MASK("[[0.0, 1.0], [2.0, 3.0]]", "f16"), XL_DIFF_CONSTANT,
        "constant 2x2xf32 -> 2x2xf16 ([0, 1, 2, 3] -> [0, 1, 2, 3]), used by stablehlo.convert at c.py:1");
}

TEST(what_happens_in_each_layer_is_said_once)
{
    one(MAIN("%a: tensor<4xf32>", "%0 = stablehlo.sine %a : tensor<4xf32>\n"
                                  " %1 = stablehlo.tanh %0 : tensor<4xf32>\n"
                                  " %2 = stablehlo.sine %1 : tensor<4xf32>\n"
                                  " %3 = stablehlo.tanh %2 : tensor<4xf32>\n"
                                  " return %3 : tensor<4xf32>"),
        MAIN("%a: tensor<4xf32>", "%0 = stablehlo.sine %a : tensor<4xf32>\n"
                                  " %4 = stablehlo.abs %0 : tensor<4xf32> loc(\"t.py\":8:1)\n"
                                  " %1 = stablehlo.tanh %4 : tensor<4xf32>\n"
                                  "%2 = stablehlo.sine %1 : tensor<4xf32>\n"
                                  " %5 = stablehlo.abs %2 : tensor<4xf32> loc(\"t.py\":8:1)\n"
                                  " %3 = stablehlo.tanh %5 : tensor<4xf32>\n"
                                  " return %3 : tensor<4xf32>"),
        XL_DIFF_OP, "stablehlo.abs was added at t.py:8 (2 times)");
    /* two results of one op are told apart */
#define SORT(x)                                                                                                        \
    MAIN("%a: tensor<4xf32>, %b: tensor<4xf32>",                                                                       \
         "%0:2 = stablehlo.optimization_barrier %a, %b : tensor<4xf32>, tensor<4xf32>\n %1 = stablehlo.sine " x        \
         " : tensor<4xf32>\n return %1 : tensor<4xf32>")
    one(SORT("%0#0"), SORT("%0#1"), XL_DIFF_OP,
        "stablehlo.sine: operand 0 result 0 of stablehlo.optimization_barrier -> result 1 of "
        "stablehlo.optimization_barrier");
}

TEST(renames_of_equal_programs)
{
    xl_module *a = read_text(MAIN("%a: tensor<4xf32> loc(#x)", "return %a : tensor<4xf32>") LOCS),
              *b = read_text(MAIN("%a: tensor<4xf32> loc(#y)", "return %a : tensor<4xf32>") LOCS);
    CHECK_STR(xl_str_c(&arena, xl_module_renames(&arena, a, b)), "argument 0 is named y instead of x");
    CHECK_INT(xl_module_renames(&arena, a, a).n, 0);
}

TEST(ops)
{
#define CMP(d)                                                                                                         \
    MAIN("%a: tensor<4xf32>, %b: tensor<4xf32>",                                                                       \
         "%0 = stablehlo.compare " d ", %a, %b : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xi1> loc(\"t.py\":7:1)\n"   \
         "%1 = stablehlo.select %0, %a, %b : tensor<4xi1>, tensor<4xf32>\n return %1 : tensor<4xf32>")
    one(CMP("LT"), CMP("LE"), XL_DIFF_OP, "stablehlo.compare: comparison_direction LT -> LE at t.py:7");
#define DOT(p)                                                                                                         \
    MAIN("%a: tensor<4x8xf32>, %b: tensor<8xf32>",                                                                     \
         "%0 = stablehlo.dot_general %a, %b, contracting_dims = [1] x [0]" p                                           \
         " : (tensor<4x8xf32>, tensor<8xf32>) -> tensor<4xf32>\n return %0 : tensor<4xf32>")
    one(DOT(""), DOT(", precision = [HIGHEST, HIGHEST]"), XL_DIFF_OP,
        "stablehlo.dot_general: precision_config none -> [HIGHEST, HIGHEST]");
    one(MAIN("%a: tensor<4xf32>", "%0 = stablehlo.sine %a : tensor<4xf32>\n"
                                  " %1 = stablehlo.tanh %0 : tensor<4xf32>\n"
                                  " return %1 : tensor<4xf32>"),
        MAIN("%a: tensor<4xf32>", "%0 = stablehlo.sine %a : tensor<4xf32>\n"
                                  " %2 = stablehlo.negate %0 : tensor<4xf32> loc(\"t.py\":8:1)\n"
                                  " %1 = stablehlo.tanh %2 : tensor<4xf32>\n"
                                  " return %1 : tensor<4xf32>"),
        XL_DIFF_OP, "stablehlo.negate was added at t.py:8");
    one(MAIN("%a: tensor<4xf32>, %b: tensor<4xf32>", "%0 = stablehlo.subtract %a, %b : tensor<4xf32>\n"
                                                     " return %0 : tensor<4xf32>"),
        MAIN("%a: tensor<4xf32>, %b: tensor<4xf32>", "%0 = stablehlo.subtract %b, %a : tensor<4xf32>\n"
                                                     " return %0 : tensor<4xf32>"),
        XL_DIFF_OP, "stablehlo.subtract: operand 0 argument 0 -> argument 1");
}

TEST(inside_regions_and_calls)
{
#define LOOP(c)                                                                                                        \
    "func.func public @main(%a: tensor<i32>) -> tensor<i32> { %0 = stablehlo.while(%i = %a) : tensor<i32> cond {\n"    \
    " %c = stablehlo.constant dense<" c                                                                                \
    "> : tensor<i32>\n %1 = stablehlo.compare LT, %i, %c : (tensor<i32>, tensor<i32>) -> tensor<i1> "                  \
    "loc(\"l.py\":5:1)\n stablehlo.return %1 : tensor<i1>\n"                                                           \
    "} do { %1 = func.call @f(%i) : (tensor<i32>) -> tensor<i32>\n" \
    " stablehlo.return %1 : tensor<i32> }\n" \
    " return %0 : tensor<i32> }\n"
    one(
        LOOP("9") "func.func private @f(%x: tensor<i32>) -> tensor<i32> { %0 = stablehlo.add %x, %x : tensor<i32>\n"
                  " return %0 : tensor<i32> }",
        LOOP("8") "func.func private @f(%x: tensor<i32>) -> tensor<i32> { %0 = stablehlo.add %x, %x : tensor<i32>\n"
                  " return %0 : tensor<i32> }",
        XL_DIFF_CONSTANT, "constant 9 -> 8, used by stablehlo.compare at l.py:5");
    uint32_t n;
    xl_diff *d = differ(
        LOOP("9") "func.func private @f(%x: tensor<i32>) -> tensor<i32> { %0 = stablehlo.add %x, %x : tensor<i32>\n"
                  " return %0 : tensor<i32> }",
        LOOP(
            "9") "func.func private @f(%x: tensor<i32>) -> tensor<i32> { %0 = stablehlo.multiply %x, %x : tensor<i32>\n"
                 " return %0 : tensor<i32> }",
        &n);
    CHECK_INT(n, 1);
    CHECK_STR(xl_str_c(&arena, d[0].text), "stablehlo.multiply in place of stablehlo.add");
}

#define KEY(n) "func.func public @main(%k: tensor<" n "xui32>) -> tensor<" n "xui32> { return %k : tensor<" n "xui32> }"
#define SLICE(from, to, n)                                                                                             \
    "func.func public @main(%a: tensor<9xf32>) -> tensor<" n "xf32> { %0 = stablehlo.slice %a [" from ":" to           \
    "] : (tensor<9xf32>) -> tensor<" n "xf32> return %0 : tensor<" n "xf32> }"

#define MARKED(type)                                                                                                   \
    "sdy.mesh @empty_mesh = <[]>\n func.func public @main(%k: tensor<" type ">) -> tensor<" type                       \
    "> { %0 = sdy.sharding_constraint %k <@empty_mesh, [{}]> : tensor<" type ">\n return %0 : tensor<" type "> }"

TEST(keys_and_slices)
{
    uint32_t n;
    one(KEY("2"), KEY("4"), XL_DIFF_KEY, "argument 0: a random key changed from 2 to 4 words");
    one(KEY("2"), MARKED("2xui32"), XL_DIFF_KEY,
        "argument 0 changed from a raw key (jax.random.PRNGKey) to a typed key (jax.random.key)");
    one("func.func public @main(%k: tensor<2xf32>) -> tensor<2xf32> { return %k : tensor<2xf32> }", MARKED("2xf32"),
        XL_DIFF_OP, "sdy.sharding_constraint was added");
    one(SLICE("0", "4", "4"), SLICE("2", "6", "4"), XL_DIFF_INDEX, "stablehlo.slice: start_indices [0] -> [2]");
    xl_diff *d = differ(SLICE("0", "4", "4"), SLICE("0", "7", "7"), &n);
    CHECK_INT(n, 1);
    CHECK_INT(d[0].kind, XL_DIFF_SHAPE);
    CHECK_INT(d[0].size, 7);
}

/* PyTorch/XLA: one name for all arguments, numbered as the graph meets them. */
#define TORCH "#d = loc(\"xla__device_data\")\n"
#define ARG(name, type) "%" name ": tensor<" type "> loc(#d)"

TEST(arguments_without_names)
{
    uint32_t n;
    xl_diff *d = differ(MAIN(ARG("a", "4xf32") "," ARG("b", "4x2xf32"), "return %a : tensor<4xf32>") TORCH,
                        MAIN(ARG("b", "4x2xf32") "," ARG("a", "4xf32"),
                             "%0 = stablehlo.sine %a : tensor<4xf32>\n return %0 : tensor<4xf32>") TORCH,
                        &n);
    for (uint32_t i = 0; i < n; i++)
        CHECK_INT(d[i].kind, XL_DIFF_OP);                  /* another order alone is no change of shapes */
    d = differ(MAIN(ARG("a", "4xf32") "," ARG("b", "3x2xf32"), "return %a : tensor<4xf32>") TORCH,
               MAIN(ARG("b", "5x2xf32") "," ARG("a", "4xf32"), "return %a : tensor<4xf32>") TORCH, &n);
    CHECK(n >= 1);
    CHECK_STR(xl_str_c(&arena, d[0].text), "argument 0 (5x2xf32): dimension 0 changed from 3 to 5");
    d = differ(MAIN(ARG("s", "i64") "," ARG("a", "4xf32"), "return %a : tensor<4xf32>") TORCH,
               MAIN(ARG("b", "3x2xf32") "," ARG("a", "4xf32"), "return %a : tensor<4xf32>") TORCH, &n);
    for (uint32_t i = 0; i < n; i++)
        CHECK(d[i].kind != XL_DIFF_SHAPE);                 /* a number is gone, an array came */
    /* 0 and 1 are traced into the program, other numbers are passed to it */
    d = differ(MAIN(ARG("a", "4xf32") "," ARG("s", "f32"),
                    "%0 = stablehlo.broadcast_in_dim %s, dims = [] : (tensor<f32>) -> tensor<4xf32>\n"
                    "%1 = stablehlo.multiply %a, %0 : tensor<4xf32>\n return %1 : tensor<4xf32>") TORCH,
               MAIN(ARG("a", "4xf32"),
                    "%s = stablehlo.constant dense<1.0> : tensor<f32>\n"
                    "%0 = stablehlo.broadcast_in_dim %s, dims = [] : (tensor<f32>) -> tensor<4xf32>\n"
                    "%1 = stablehlo.multiply %a, %0 : tensor<4xf32>\n return %1 : tensor<4xf32>") TORCH,
               &n);
    for (uint32_t i = 0; i < n; i++)
        CHECK(d[i].kind == XL_DIFF_CONSTANT || d[i].follows);
    CHECK(n >= 1);
}

/* PyTorch/XLA shares an op that is there already in one trace and not in the next: no op was added. */
#define SHARED(rows, more, from)                                                                                       \
    "func.func public @main(" ARG("w", "2x3xf32") "," ARG("x", rows "x2xf32") ") -> tensor<" rows "x3xf32> {\n"        \
    "%0 = stablehlo.transpose %w, dims = [1, 0] : (tensor<2x3xf32>) -> tensor<3x2xf32>\n"                              \
    "%1 = stablehlo.sine %0 : tensor<3x2xf32>\n" more                                                                  \
    "%3 = stablehlo.add %1, " from " : tensor<3x2xf32>\n"                                                              \
    "%4 = stablehlo.transpose %3, dims = [1, 0] : (tensor<3x2xf32>) -> tensor<2x3xf32>\n"                              \
    "%5 = stablehlo.dot_general %x, %4, contracting_dims = [1] x [0] : (tensor<" rows                                  \
    "x2xf32>, tensor<2x3xf32>) -> tensor<" rows "x3xf32>\n"                                                            \
    "return %5 : tensor<" rows "x3xf32> }\n" TORCH

#define AGAIN "%2 = stablehlo.transpose %w, dims = [1, 0] : (tensor<2x3xf32>) -> tensor<3x2xf32>\n"

TEST(an_op_that_repeats_another_is_none)
{
    one(SHARED("8", "", "%0"), SHARED("5", AGAIN, "%2"), XL_DIFF_SHAPE,
        "argument 1 (5x2xf32): dimension 0 changed from 8 to 5");
    one(SHARED("8", AGAIN, "%2"), SHARED("5", "", "%0"), XL_DIFF_SHAPE,
        "argument 1 (5x2xf32): dimension 0 changed from 8 to 5");
}

/* The same where the repeated op is paired with another one: what reads it reads the same. */
TEST(an_op_that_repeats_another_is_none_whatever_it_pairs_with)
{
#define TWICE(rows, more, from)                                                                                        \
    "func.func public @main(" ARG("w", "2x3xf32") "," ARG("x", rows "x2xf32") ") -> tensor<" rows "x2xf32> {\n"        \
    "%0 = stablehlo.transpose %w, dims = [1, 0] : (tensor<2x3xf32>) -> tensor<3x2xf32>\n" more                         \
    "%2 = stablehlo.transpose " from ", dims = [1, 0] : (tensor<3x2xf32>) -> tensor<2x3xf32>\n"                        \
    "%3 = stablehlo.dot_general %2, %0, contracting_dims = [1] x [0] : (tensor<2x3xf32>, tensor<3x2xf32>) -> "         \
    "tensor<2x2xf32>\n"                                                                                                \
    "%4 = stablehlo.dot_general %x, %3, contracting_dims = [1] x [0] : (tensor<" rows                                  \
    "x2xf32>, tensor<2x2xf32>) -> tensor<" rows "x2xf32>\n"                                                            \
    "return %4 : tensor<" rows "x2xf32> }\n" TORCH
#define MORE "%1 = stablehlo.transpose %w, dims = [1, 0] : (tensor<2x3xf32>) -> tensor<3x2xf32>\n"
    one(TWICE("6", "", "%0"), TWICE("3", MORE, "%1"), XL_DIFF_SHAPE,
        "argument 1 (3x2xf32): dimension 0 changed from 6 to 3");
}

/* The numbers of PyTorch/XLA have no names, and of two on one line either may be the one that went. */
#define SCALED(args, one, two)                                                                                         \
    MAIN(ARG("x", "4xf32") args, one two "%2 = stablehlo.multiply %x, %0 : tensor<4xf32>\n"                            \
                                         "%3 = stablehlo.divide %2, %1 : tensor<4xf32>\n return %3 : tensor<4xf32>")   \
    TORCH
#define SPREAD(to, from)                                                                                               \
    "%" to " = stablehlo.broadcast_in_dim %" from ", dims = [] : (tensor<f32>) -> tensor<4xf32>\n"

TEST(numbers_without_names)
{
    uint32_t n;
    const char *two = SCALED("," ARG("a", "f32") "," ARG("b", "f32"), SPREAD("0", "a"), SPREAD("1", "b"));
    xl_diff *d = differ(two, SCALED("," ARG("b", "f32"), "%a = stablehlo.constant dense<1.0> : tensor<f32>\n",
                                    SPREAD("0", "a") SPREAD("1", "b")), &n);
    for (uint32_t i = 0; i < n; i++)
        CHECK_INT(d[i].kind == XL_DIFF_CONSTANT, !d[i].follows); /* the first of them became 1, and nothing else did */
    CHECK(n == 2 && memmem(d[1].text.p, d[1].text.n, "constant 1 is now traced into the program", 41));
    d = differ(SCALED("", "%a = stablehlo.constant dense<0.0> : tensor<f32>\n", SPREAD("0", "a") SPREAD("1", "a")),
               SCALED(", %a: tensor<f32> {jax.buffer_donor = true} loc(#d)", SPREAD("0", "a"), SPREAD("1", "a")), &n);
    for (uint32_t i = 0; i < n; i++)                       /* what the program writes anew is state, and no number */
        CHECK(d[i].kind == XL_DIFF_SETUP || d[i].follows);
    CHECK(n == 2);
    d = differ(two, SCALED("," ARG("a", "f32"), SPREAD("0", "a"), SPREAD("1", "a")), &n);
    for (uint32_t i = 0; i < n; i++)
        CHECK(d[i].kind == XL_DIFF_CONSTANT ? memmem(d[i].text.p, d[i].text.n, "are equal now", 13) != NULL :
                                              d[i].follows);
    CHECK(n >= 2);
    d = differ(SCALED("," ARG("a", "f32"), SPREAD("0", "a"), SPREAD("1", "a")), two, &n);
    for (uint32_t i = 0; i < n; i++)
        CHECK(d[i].kind == XL_DIFF_CONSTANT ? memmem(d[i].text.p, d[i].text.n, "no longer equal", 15) != NULL :
                                              d[i].follows);
}

/* Ops of a line that both have, with the number that they read: code was chosen, no argument was passed. */
TEST(ops_that_go_with_their_number)
{
    uint32_t n;
    xl_diff *d = differ(MAIN(ARG("x", "4xf32") "," ARG("s", "f32"),
                             SPREAD("0", "s") "%1 = stablehlo.multiply %x, %0 : tensor<4xf32> loc(\"t.py\":7:1)\n"
                             "%2 = stablehlo.sine %1 : tensor<4xf32> loc(\"t.py\":7:1)\n return %2 : tensor<4xf32>")
                            TORCH,
                        MAIN(ARG("x", "4xf32"), "%2 = stablehlo.sine %x : tensor<4xf32> loc(\"t.py\":7:1)\n"
                                                " return %2 : tensor<4xf32>") TORCH, &n);
    CHECK(n >= 2);
    for (uint32_t i = 0; i < n; i++)
        CHECK(d[i].kind == XL_DIFF_ARGS ? d[i].follows : d[i].kind == XL_DIFF_OP);
}

/* A parameter that the first graph makes is an argument of the second. */
#define MADE "%0 = stablehlo.iota dim = 0 : tensor<4xf32> loc(\"t.py\":3:1)\n"                                        \
             "%w = stablehlo.cosine %0 : tensor<4xf32> loc(\"t.py\":3:1)\n"
#define USED "%1 = stablehlo.multiply %x, %w : tensor<4xf32> loc(\"t.py\":7:1)\n return %1 : tensor<4xf32>"

TEST(what_a_graph_makes_itself)
{
    uint32_t n;
    const char *makes = MAIN(ARG("x", "4xf32"), MADE USED) TORCH,
               *takes = MAIN(ARG("x", "4xf32") "," ARG("w", "4xf32"), USED) TORCH;
    for (int back = 0; back < 2; back++) {
        xl_diff *d = differ(back ? takes : makes, back ? makes : takes, &n);
        CHECK(n >= 1 && d[0].kind == XL_DIFF_SETUP && !d[0].follows && d[0].line == 3);
        for (uint32_t i = 1; i < n; i++)
            CHECK(d[i].follows);
    }
}

/* Of 17 tokens 16 are used, in 4 rows: 64 is computed from a size that only the program's inside has. */
#define TOKENS(n, used, count)                                                                                         \
    "func.func public @main(%t: tensor<4x" n "xf32>) -> tensor<f32> {\n"                                               \
    "%0 = stablehlo.slice %t [0:4, 0:" used "] : (tensor<4x" n "xf32>) -> tensor<4x" used "xf32>\n"                    \
    "%z = stablehlo.constant dense<0.0> : tensor<f32>\n"                                                               \
    "%1 = stablehlo.reduce(%0 init: %z) applies stablehlo.add across dimensions = [0, 1] : (tensor<4x" used            \
    "xf32>, tensor<f32>) -> tensor<f32>\n"                                                                             \
    "%c = stablehlo.constant dense<" count "> : tensor<f32>\n"                                                         \
    "%2 = stablehlo.divide %1, %c : tensor<f32>\n return %2 : tensor<f32> }\n"

TEST(numbers_from_sizes_inside_follow)
{
    uint32_t n;
    xl_diff *d = differ(TOKENS("17", "16", "64.0"), TOKENS("33", "32", "128.0"), &n);
    CHECK_INT(n, 2);
    CHECK(d[0].kind == XL_DIFF_SHAPE && !d[0].follows);
    CHECK(d[1].kind == XL_DIFF_CONSTANT && d[1].follows);
    d = differ(TOKENS("17", "16", "64.0"), TOKENS("33", "32", "0.3"), &n);
    CHECK_INT(n, 2);
    CHECK(!d[1].follows);
}

/* What JAX adds where the program is called says nothing of the branch. */
#define BRANCH(body)                                                                                                   \
    MAIN("%a: tensor<4xf32>", body "return %0 : tensor<4xf32> loc(#c)")                                                \
    "#c = loc(\"t.py\":11:1)\n#i = loc(\"t.py\":7:1)\n"

TEST(ops_of_a_branch_are_placed_inside_the_function)
{
    one(BRANCH("%0 = stablehlo.sine %a : tensor<4xf32> loc(\"t.py\":5:1)\n"),
        BRANCH("%x = stablehlo.tanh %a : tensor<4xf32> loc(#c)\n"
               "%y = stablehlo.negate %x : tensor<4xf32> loc(#i)\n"
               "%0 = stablehlo.sine %y : tensor<4xf32> loc(\"t.py\":5:1)\n"),
        XL_DIFF_OP, "2 ops were added: stablehlo.tanh, stablehlo.negate at t.py:7");
}

/* What only the other side of a branch reads is no number that somebody changed. */
TEST(constants_of_a_branch_follow)
{
    uint32_t n;
    xl_diff *d = differ(
        BRANCH("%k = stablehlo.constant dense<0.1> : tensor<4xf32>\n"
               "%0 = stablehlo.multiply %a, %k : tensor<4xf32> loc(\"t.py\":5:1)\n"),
        BRANCH("%x = stablehlo.negate %a : tensor<4xf32> loc(#i)\n%k = stablehlo.constant dense<0.2> : tensor<4xf32>\n"
               "%0 = stablehlo.multiply %x, %k : tensor<4xf32> loc(\"t.py\":8:1)\n"),
        &n);
    for (uint32_t i = 0; i < n; i++)
        CHECK_INT(d[i].follows, d[i].kind == XL_DIFF_CONSTANT);
    CHECK(n >= 2);
    one(BRANCH("%k = stablehlo.constant dense<0.1> : tensor<4xf32>\n"
               "%0 = stablehlo.multiply %a, %k : tensor<4xf32> loc(\"t.py\":5:1)\n"),
        BRANCH("%k = stablehlo.constant dense<0.2> : tensor<4xf32>\n"
               "%0 = stablehlo.multiply %a, %k : tensor<4xf32> loc(\"t.py\":5:1)\n"),
        XL_DIFF_CONSTANT, "constant all 0.1 in 4xf32 -> all 0.2 in 4xf32, used by stablehlo.multiply at t.py:5");
}

TEST(another_number_of_devices)
{
#define DEVICES(n)                                                                                                     \
    "module @m attributes {mhlo.num_partitions = " n " : i32} {\n" MAIN("%a: tensor<4xf32>",                           \
                                                                        "return %a : tensor<4xf32>") "}\n"
    one(DEVICES("2"), DEVICES("4"), XL_DIFF_SHARDING, "the program's mhlo.num_partitions: 2 -> 4");
}

TEST(an_array_that_was_committed_to_the_one_device)
{
#define PLACED(n, attr)                                                                                                \
    "module @m attributes {mhlo.num_partitions = " n " : i32, mhlo.num_replicas = 1 : i32} {\n" MAIN(                  \
        "%a: tensor<4xf32> " attr " loc(\"w\")", "return %a : tensor<4xf32>") "}\n"
#define WHERE "{mhlo.sharding = \"{replicated}\"}"
    one(PLACED("1", ""), PLACED("1", WHERE), XL_DIFF_SHARDING,
        "argument `w` was not committed to a device, and is committed");
    one(PLACED("1", WHERE), PLACED("1", ""), XL_DIFF_SHARDING,
        "argument `w` was committed to a device, and is not");
    one(PLACED("2", ""), PLACED("2", WHERE), XL_DIFF_SHARDING, "argument `w` was not sharded, and is replicated");
}

/* A layer that is frozen: its arrays come with another argument. Those of a tree whose keys changed are the same. */
#define TWO(x, y)                                                                                                      \
    "%a: tensor<4xf32> loc(\"" x "\"), %b: tensor<4xf32> loc(\"" y "\"), %c: tensor<4xf32> loc(\"rest[1]\")"
#define SUM                                                                                                            \
    "%0 = stablehlo.subtract %a, %b : tensor<4xf32>\n%1 = stablehlo.add %0, %c : tensor<4xf32>\n"                      \
    "return %1 : tensor<4xf32>"

static void moved(const char *a, const char *b, uint32_t args, uint32_t order)
{
    uint32_t n;
    xl_diff *d = differ(a, b, &n);
    for (uint32_t i = 0; i < n; i++) {
        args -= d[i].kind == XL_DIFF_ARGS && !d[i].follows;
        order -= d[i].kind == XL_DIFF_ORDER;
    }
    CHECK_INT(args, 0);
    CHECK_INT(order, 0);
}

TEST(arrays_that_moved_from_one_argument_to_another)
{
    moved(MAIN(TWO("trained[0]", "trained[1]"), SUM), MAIN(TWO("trained[1]", "rest[0]"), "return %a : tensor<4xf32>"),
          2, 0);
    moved(MAIN(TWO("p['a']", "p['b']"), SUM), MAIN(TWO("p['b']", "p['c']"), "return %a : tensor<4xf32>"), 0, 1);
}

/* Momentum brings a factor of its own to the line that has the rate: the rate is as it was. */
#define UPDATE(args, ops, x)                                                                                           \
    MAIN("%a: tensor<4xf32>" args, "%k = stablehlo.constant dense<-0.1> : tensor<4xf32>\n" ops                         \
                                   "%0 = stablehlo.multiply " x ", %k : tensor<4xf32> loc(#c)\n"                       \
                                   "return %0 : tensor<4xf32> loc(\"t.py\":11:1)")                                     \
    "#c = loc(\"t.py\":7:1)\n"

TEST(a_number_that_both_programs_have_did_not_change)
{
    uint32_t n, added = 0;
    const char *plain = UPDATE("", "", "%a");
    xl_diff *d = differ(plain,
                        UPDATE(", %m: tensor<4xf32>", "%f = stablehlo.constant dense<0.9> : tensor<4xf32>\n"
                                                      "%d = stablehlo.multiply %m, %f : tensor<4xf32> loc(#c)\n"
                                                      "%s = stablehlo.add %d, %a : tensor<4xf32> loc(#c)\n", "%s"), &n);
    for (uint32_t i = 0; i < n; i++) {
        CHECK(d[i].kind != XL_DIFF_CONSTANT);
        added += d[i].kind == XL_DIFF_ARGS;
    }
    CHECK_INT(added, 1);
}

/* A constant of another length is a size, one of another dtype comes with the ops that read it. */
#define TABLE(type, values)                                                                                            \
    "func.func public @main(%a: tensor<4xf32>) -> tensor<" type "> {\n"                                                \
    "%0 = stablehlo.constant dense<" values "> : tensor<" type ">\n"                                                   \
    "%1 = stablehlo.negate %0 : tensor<" type ">\n return %1 : tensor<" type "> }\n"

#define CAST_OF(a, t)                                                                                                  \
    "%c = stablehlo.constant dense<0.0> : tensor<" t ">\n"                                                             \
    "%1 = stablehlo.broadcast_in_dim %c, dims = [] : (tensor<" t ">) -> tensor<4x" t ">\n"                             \
    "%2 = stablehlo.maximum " a ", %1 : tensor<4x" t ">\n"                                                             \
    "%3 = stablehlo.convert %2 : (tensor<4x" t ">) -> tensor<4xf32>\n"
#define CAST(t) CAST_OF("%a", t)

TEST(constants_of_another_type)
{
    uint32_t n;
    xl_diff *d = differ(TABLE("2xi32", "[0, 1]"), TABLE("3xi32", "[0, 1, 2]"), &n);
    CHECK(n >= 1);
    for (uint32_t i = 0; i < n; i++)
        CHECK_INT(d[i].kind, XL_DIFF_SHAPE);
    d = differ(MAIN("%a: tensor<4xf32>", CAST("f32") "return %3 : tensor<4xf32>"),
               MAIN("%a: tensor<4xf32>",
                    "%h = stablehlo.convert %a : (tensor<4xf32>) -> tensor<4xbf16> loc(\"t.py\":7:1)\n" CAST_OF(
                        "%h", "bf16") "return %3 : tensor<4xf32>"),
               &n);
    CHECK(n >= 2);
    for (uint32_t i = 0; i < n; i++)
        CHECK(d[i].kind != XL_DIFF_CONSTANT || d[i].follows);
}

TEST(thousands_of_ops_in_milliseconds)
{
    xl_buf a = { 0 }, b = { 0 };
    const char *const unary[] = { "sine", "cosine", "tanh", "negate", "exponential" };
    xl_buf_puts(&a, "func.func public @main(%v0: tensor<4xf32>) -> tensor<4xf32> {\n");
    xl_buf_str(&b, xl_buf_view(&a));
    for (int i = 0; i < 4000; i++)
        for (int k = 0; k < 2; k++) {
            int at = k ? i < 2000 ? i : i + 1 : i;         /* b has one op more, and one other in the middle */
            if (k && i == 2000)
                xl_buf_puts(&b, "%v2001 = stablehlo.floor %v2000 : tensor<4xf32>\n");
            xl_buf_printf(k ? &b : &a, "%%v%d = stablehlo.%s %%v%d : tensor<4xf32>\n", at + 1,
                          k && i == 3000 ? "log" : unary[(i * 7919 + i / 13) % 5], at);
        }
    xl_buf_puts(&a, "return %v4000 : tensor<4xf32> }\n");
    xl_buf_puts(&b, "return %v4001 : tensor<4xf32> }\n");
    xl_module *x = read_text(a.p), *y = read_text(b.p);
    uint32_t n;
    xl_diff *d = xl_module_diff(&arena, x, y, 50, &n);
    CHECK_INT(n, 2);
    CHECK_STR(xl_str_c(&arena, d[0].text), "stablehlo.floor was added");
    CHECK(xl_str_starts(d[1].text, XL_STR("stablehlo.log in place of ")));
    xl_buf_fini(&a);
    xl_buf_fini(&b);
}
