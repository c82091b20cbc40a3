/* Tensors over the embedded plugin's devices: every way to shard one, upload and read back, and which device holds
 * which part. */
#include "pjrt/array.h"
#include "pjrt/test.h"

static xl_client *open_client(void)
{
    xl_client *c = NULL;
    setenv("XLANE_CPU_DEVICES", "12", 1);
    CHECK_OK(xl_client_open(xl_test_plugin("libxlane-cpu.so"), NULL, &c));
    return c;
}

TEST(put_and_get_in_every_cut)
{
    static const char *const cuts[] = { "-, -, -", "a, -, -",   "-, b, -",     "-, -, c",   "a, b, c",
                                        "c, a, b", "b+a, -, c", "-, c+b+a, -", "-, -, a+c", "b, c+a, -" };
    static const int64_t d[3] = { 6, 12, 24 };
    xl_arena a = { 0 };
    xl_client *c = open_client();
    const xl_device *dev[12];
    xl_mesh_def mesh;
    static float all[6 * 12 * 24], back[6 * 12 * 24], part[6 * 12 * 24];
    CHECK_OK(xl_mesh_parse(&a, XL_STR("a=2, b=3, c=2"), 12, &mesh));
    for (int i = 0; i < 12; i++)
        dev[i] = xl_client_local(c, (size_t)i);
    xl_place place = { dev, 12, &mesh };
    for (int i = 0; i < 6 * 12 * 24; i++)
        all[i] = (float)i;
    for (size_t k = 0; k < sizeof cuts / sizeof *cuts; k++) {
        xl_mesh_spec s;
        xl_array *x = NULL;
        CHECK_OK(xl_mesh_spec_parse(&mesh, (xl_dims){ d, 3 }, XL_STR("x"), xl_str_of(cuts[k]), &s));
        CHECK_OK(xl_array_put(&place, XL_ELEM_F32, (xl_dims){ d, 3 }, &s, all, &x));
        CHECK_OK(xl_array_check(x));
        memset(back, 0, sizeof back);
        CHECK_OK(xl_array_get(x, back, sizeof back, NULL));
        CHECK(!memcmp(all, back, sizeof all));
        for (int64_t e = 0; e < 12; e++) {                 /* what lies on a device is its slice, element by element */
            int64_t lo[3], hi[3], n = 0;
            xl_mesh_slice(&mesh, &s, (xl_dims){ d, 3 }, e, lo, hi);
            CHECK_OK(xl_buffer_to_host(x->part[e], part, xl_array_local(x) * sizeof *part, NULL));
            bool same = true;
            for (int64_t i = lo[0]; i < hi[0]; i++)
                for (int64_t j = lo[1]; j < hi[1]; j++)
                    for (int64_t l = lo[2]; l < hi[2]; l++)
                        same &= part[n++] == all[(i * 12 + j) * 24 + l];
            CHECK(same && n == (int64_t)xl_array_local(x));
        }
        xl_array_free(x);
    }
    xl_array *scalar = NULL;
    int32_t one = 7, got = 0;
    CHECK_OK(xl_array_put(&place, XL_ELEM_S32, (xl_dims){ NULL, 0 }, NULL, &one, &scalar));
    CHECK_OK(xl_array_get(scalar, &got, sizeof got, NULL));
    CHECK(got == 7);
    CHECK_ERR(xl_array_get(scalar, back, 8, NULL), "4 bytes is read into 8");
    xl_array_free(scalar);
    xl_client_close(c);
    xl_arena_fini(&a);
}
