#include "base/test.h"
#include "ir/hlo/hlo_groups.h"

static void message(xl_buf *to, uint32_t number, xl_buf *m)
{
    xl_proto_put_bytes(to, number, xl_buf_view(m));
    xl_buf_fini(m);
    *m = (xl_buf){ 0 };
}

/* A mesh of 2 x 8; groups over (parts of) its axes: axis, then (before)size or 0. */
static const char *over(xl_arena *a, const int64_t (*ref)[3], size_t n, const char *ids)
{
    xl_buf axis = { 0 }, mesh = { 0 }, part = { 0 }, list = { 0 }, inst = { 0 }, text = { 0 };
    xl_hlo_groups g;
    for (int k = 0; k < 2; k++) {
        xl_proto_put_bytes(&axis, 1, XL_STR("axis"));
        xl_proto_put_int(&axis, 2, k ? 8 : 2);
        message(&mesh, 1, &axis);
    }
    if (ids)
        xl_proto_put_bytes(&mesh, 2, (xl_str){ ids, 16 });
    message(&list, 1, &mesh);
    for (size_t i = 0; i < n; i++) {
        xl_proto_put_int(&axis, 1, ref[i][0]);
        if (ref[i][1]) {
            xl_proto_put_int(&part, 1, ref[i][1]);
            xl_proto_put_int(&part, 2, ref[i][2]);
            message(&axis, 2, &part);
        }
        message(&list, 2, &axis);
    }
    message(&inst, 93, &list);
    xl_error *bad = xl_hlo_groups_read(a, xl_buf_view(&inst), &g);
    for (int64_t i = 0; !bad && i < g.ngroup * g.size; i++)
        xl_buf_printf(&text, "%s%lld", i % g.size ? " " : i ? ", " : "", (long long)g.id[i]);
    const char *out = bad ? "refused" : xl_strf(a, "%.*s", XL_FMT(xl_buf_view(&text))).p;
    xl_error_free(bad);
    for (size_t cut = 0; cut < inst.n; cut++)                  /* cut anywhere: an error or groups, nothing else */
        xl_error_free(xl_hlo_groups_read(a, (xl_str){ inst.p, cut }, &g));
    xl_buf_fini(&inst);
    xl_buf_fini(&text);
    return out;
}

TEST(groups_by_axes_of_a_mesh)
{
    xl_arena a = { 0 };
    CHECK_STR(over(&a, (const int64_t[][3]){ { 1 } }, 1, NULL), "0 1 2 3 4 5 6 7, 8 9 10 11 12 13 14 15");
    CHECK_STR(over(&a, (const int64_t[][3]){ { 0 } }, 1, NULL), "0 8, 1 9, 2 10, 3 11, 4 12, 5 13, 6 14, 7 15");
    CHECK_STR(over(&a, (const int64_t[][3]){ { 1 }, { 0 } }, 2, NULL), "0 8 1 9 2 10 3 11 4 12 5 13 6 14 7 15");
    CHECK_STR(over(&a, (const int64_t[][3]){ { 1, 2, 2 } }, 1, NULL), "0 2, 1 3, 4 6, 5 7, 8 10, 9 11, 12 14, 13 15");
    CHECK_STR(over(&a, (const int64_t[][3]){ { 1, 4, 2 }, { 1, 1, 2 } }, 2, NULL),
              "0 4 1 5, 2 6 3 7, 8 12 9 13, 10 14 11 15");
    CHECK_STR(
        over(&a, (const int64_t[][3]){ { 0 } }, 1, "\x0f\x0e\x0d\x0c\x0b\x0a\x09\x08\x07\x06\x05\x04\x03\x02\x01\x00"),
        "15 7, 14 6, 13 5, 12 4, 11 3, 10 2, 9 1, 8 0");
    CHECK_STR(over(&a, (const int64_t[][3]){ { 2 } }, 1, NULL), "refused");
    CHECK_STR(over(&a, (const int64_t[][3]){ { 1, 3, 2 } }, 1, NULL), "refused");
    CHECK_STR(over(&a, (const int64_t[][3]){ { 1 }, { 1 } }, 2, NULL), "refused");
    xl_arena_fini(&a);
}
