#include "lane/rehearse.h"

#include "base/proto.h"
#include "base/test.h"

TEST(figures_of_real_messages) /* R2: libtpu 0.0.51's two forms, and the embedded device's */
{
    int64_t used, limit;
    CHECK(xl_oom_figures(XL_STR("E1000: CompileTimeHbmOom: Ran out of memory on HBM, the total memory required for HLO "
                                "temporaries (447.18G) exceeds available "
                                "HBM (31.24G). HLO module: main."),
                         &used, &limit));
    CHECK_INT(used, (int64_t)(447.18 * (1 << 30)));
    CHECK_INT(limit, (int64_t)(31.24 * (1 << 30)));
    CHECK(xl_oom_figures(
        XL_STR("Ran out of memory in memory space hbm. Used 256.00K of 100.00K hbm. Exceeded hbm capacity by 156.00K."),
        &used, &limit));
    CHECK_INT(used, 262144);
    CHECK_INT(limit, 102400);
    CHECK(!xl_oom_figures(XL_STR("Used up. Used 3 apples ) exceeds available"), &used, &limit));
    CHECK_INT(used, -1);
    CHECK(!xl_oom_figures(XL_STR(") exceeds available ("), &used, &limit));
    CHECK(!xl_oom_figures((xl_str){ NULL, 0 }, &used, &limit));
}

static void message(xl_buf *out, uint32_t field, xl_buf *inner)
{
    xl_proto_put_bytes(out, field, xl_buf_view(inner));
    xl_buf_fini(inner);
    *inner = (xl_buf){ 0 };
}

/* An HloModuleProto with one computation of these ops, each f32[16] (all-gather-start: a tuple of f32[16]
 * and f32[64]). */
static void module(xl_buf *out, const char *const *op, int n)
{
    xl_buf comp = { 0 }, inst = { 0 }, shape = { 0 }, part = { 0 };
    for (int i = 0; i < n; i++) {
        xl_proto_put_bytes(&inst, 1, XL_STR("name"));
        xl_proto_put_bytes(&inst, 2, xl_str_of(op[i]));
        if (strstr(op[i], "gather-start")) {
            xl_proto_put_int(&shape, 2, 13);
            for (int k = 16; k <= 64; k *= 4) {
                xl_proto_put_int(&part, 2, 11);
                xl_proto_put_int(&part, 3, k);
                message(&shape, 4, &part);
            }
        } else {
            xl_proto_put_int(&shape, 2, 11);
            xl_proto_put_bytes(&shape, 3, XL_STR("\x10"));
        }
        message(&inst, 3, &shape);
        message(&comp, 2, &inst);
    }
    message(out, 3, &comp);
}

TEST(collectives_are_counted)
{
    static const char *const ops[] = {
        "add",    "all-reduce", "all-reduce-start", "all-reduce-done", "all-gather-start", "all-gather-done",
        "fusion", "all-reduce"
    };
    xl_arena a = { 0 };
    xl_buf m = { 0 }, with = { 0 };
    xl_collective *c;
    size_t n;
    module(&m, ops, 8);
    CHECK(xl_collectives_scan(&a, xl_buf_view(&m), XL_STR("hlo"), NULL, 4, &c, &n));
    CHECK_INT(n, 2);
    CHECK(xl_str_is(c[0].name, "all-reduce"));
    CHECK_INT(c[0].count, 3);
    CHECK_INT(c[0].bytes, 3 * 64);
    CHECK(xl_str_is(c[1].name, "all-gather"));
    CHECK_INT(c[1].count, 1);
    CHECK_INT(c[1].bytes, 256);
    CHECK(xl_str_is(c[0].over, "groups of 4"));
    message(&with, 1, &m);
    CHECK(xl_collectives_scan(&a, xl_buf_view(&with), XL_STR("hlo_with_config"), NULL, 4, &c, &n));
    CHECK_INT(n, 2);
    CHECK(!xl_collectives_scan(&a, XL_STR("module {}"), XL_STR("mlir"), NULL, 1, &c, &n));
    for (size_t cut = 0; cut < with.n; cut++) /* never outside its bytes, whatever they are */
        xl_collectives_scan(&a, (xl_str){ with.p, cut }, XL_STR("hlo_with_config"), NULL, 4, &c, &n);
    xl_buf_fini(&with);
    xl_arena_fini(&a);
}

/* An entry that loops three times over a body with three all-reduces: its groups in short, as a list, and by an axis of
 * a mesh. */
TEST(collectives_are_told_by_axis_and_turn)
{
    const xl_mesh_axis axes[] = { { XL_STR("data"), 2 }, { XL_STR("model"), 2 } };
    const xl_mesh mesh = { .axis = axes, .naxis = 2 };
    xl_arena a = { 0 };
    xl_buf m = { 0 }, comp = { 0 }, inst = { 0 }, part = { 0 };
    xl_collective *c;
    size_t n;
    xl_proto_put_bytes(&inst, 2, XL_STR("while"));
    xl_proto_put_int(&inst, 38, 7);
    xl_proto_put_bytes(&inst, 43, XL_STR("{\"known_trip_count\":{\"n\":\"3\"}}"));
    message(&comp, 2, &inst);
    xl_proto_put_int(&comp, 5, 1);
    message(&m, 3, &comp);
    for (int form = 0; form < 3; form++) {
        xl_proto_put_bytes(&inst, 2, XL_STR("all-reduce"));
        xl_proto_put_int(&part, 2, 11);
        xl_proto_put_int(&part, 3, 16);
        message(&inst, 3, &part);
        if (form == 2) {
            xl_buf axis = { 0 }, named = { 0 };
            for (int k = 0; k < 2; k++) {
                xl_proto_put_int(&axis, 2, 2);
                message(&named, 1, &axis);
            }
            message(&part, 1, &named);
            xl_proto_put_int(&axis, 1, 1);
            message(&part, 2, &axis);
            message(&inst, 93, &part);
        } else if (form) {
            xl_proto_put_bytes(&part, 1, XL_STR("\x02\x03"));
            message(&inst, 49, &part);
        } else {                                            /* [2,2] transposed: {0,2}, {1,3} */
            xl_proto_put_int(&part, 1, 2);
            xl_proto_put_int(&part, 2, 2);
            xl_proto_put_bytes(&part, 3, XL_STR("\x02\x02"));
            xl_proto_put_bytes(&part, 4, (xl_str){ "\x01\x00", 2 });
            message(&inst, 92, &part);
        }
        message(&comp, 2, &inst);
    }
    xl_proto_put_int(&comp, 5, 7);
    message(&m, 3, &comp);
    xl_proto_put_int(&m, 6, 1);
    CHECK(xl_collectives_scan(&a, xl_buf_view(&m), XL_STR("hlo"), &mesh, 4, &c, &n));
    CHECK_INT(n, 2);
    CHECK(xl_str_is(c[0].over, "data") && c[0].count == 3 && c[0].bytes == 3 * 64 && !c[0].loops);
    CHECK(xl_str_is(c[1].over, "model") && c[1].count == 6);
    xl_buf_fini(&m);
    xl_arena_fini(&a);
}

TEST(a_rehearsal_reads_back)
{
    xl_arena a = { 0 };
    xl_buf b = { 0 };
    xl_node *node;
    xl_rehearsal r = { .verdict = XL_REHEARSAL_TOO_LARGE,
                       .plugin = XL_STR("libtpu.so"),
                       .topology = XL_STR("v6e:2x2"),
                       .used = 5,
                       .limit = 4,
                       .flops = 1e12,
                       .bytes = -1,
                       .seconds = 2,
                       .message = XL_STR("E1000"),
                       .scanned = true },
                 back;
    r.memory.needs = 77;
    xl_rehearsal_json(&(xl_json){ .out = &b }, &r);
    CHECK_OK(xl_json_read(&a, "test", xl_buf_view(&b), &node));
    CHECK_OK(xl_rehearsal_read(&a, node, &back));
    CHECK_INT(back.verdict, XL_REHEARSAL_TOO_LARGE);
    CHECK_INT(back.used, 5);
    CHECK_INT(back.memory.needs, 77);
    CHECK(back.flops == 1e12 && back.bytes == -1 && back.scanned && back.ncollective == 0);
    CHECK_OK(xl_json_read(&a, "test", XL_STR("{\"verdict\":\"perhaps\"}"), &node));
    CHECK_ERR(xl_rehearsal_read(&a, node, &back), "no verdict");
    xl_buf_fini(&b);
    xl_arena_fini(&a);
}
