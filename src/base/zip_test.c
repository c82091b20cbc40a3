#include "base/zip.h"
#include "base/test.h"

static xl_buf packed, back;
static char data[300000];

TEST(zip_round_trip)
{
    for (size_t i = 0; i < sizeof data; i++)
        data[i] = (char)(i * i >> 7);
    CHECK_OK(xl_zip((xl_str){ data, sizeof data }, 3, &packed));
    CHECK(packed.n < sizeof data);
    CHECK_OK(xl_unzip(xl_buf_view(&packed), sizeof data, &back));
    CHECK(back.n == sizeof data && memcmp(back.p, data, sizeof data) == 0);
    xl_buf none = { 0 }, out = { 0 };
    CHECK_OK(xl_zip(XL_STR(""), 3, &none));
    CHECK_OK(xl_unzip(xl_buf_view(&none), 0, &out));
    CHECK_INT(out.n, 0);
    xl_buf_fini(&none);
    xl_buf_fini(&out);
}

TEST(zip_is_bounded)
{
    xl_buf out = { 0 };
    CHECK_ERR(xl_unzip(xl_buf_view(&packed), sizeof data - 1, &out), "more than the 299999");
    xl_buf_fini(&out);
}

TEST(zip_refuses_damage)
{
    xl_buf out = { 0 };
    CHECK_ERR(xl_unzip((xl_str){ packed.p, packed.n - 1 }, sizeof data, &out), "too soon");
    CHECK_ERR(xl_unzip(XL_STR(""), sizeof data, &out), "too soon");
    CHECK_ERR(xl_unzip(XL_STR("not packed at all"), sizeof data, &out), "at byte 0");
    xl_buf_fini(&out);
    packed.p[packed.n / 2] ^= 1;
    CHECK_ERR(xl_unzip(xl_buf_view(&packed), sizeof data, &out), "unpacking");
    packed.p[packed.n / 2] ^= 1;
    xl_buf_fini(&out);
    xl_buf_putc(&packed, 'x');
    CHECK_ERR(xl_unzip(xl_buf_view(&packed), sizeof data, &out), "1 bytes follow");
    xl_buf_fini(&out);
    xl_buf_fini(&packed);
    xl_buf_fini(&back);
}
