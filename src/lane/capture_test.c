#include "lane/capture.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/test.h"

TEST(what_is_written_is_read)
{
    xl_arena a = { 0 };
    char path[64];
    snprintf(path, sizeof path, "/tmp/xlane-capture-%d.xlcap", (int)getpid());
    float x[6] = { 1, 2, 3, 4, 5, 6 };
    int64_t dims[] = { 2, 3 }, keep[] = { 0 };
    int device[] = { 3 };
    xl_cap_part t = { .elem = XL_ELEM_F32, .dims = { dims, 2 }, .size = sizeof x, .bytes = (const char *)x };
    xl_cap_input in[] = { { -1, 0, t } }, next[] = { { 0, 0, { 0 } } };
    xl_cap_part out[] = { t }, none[] = { { 0 } };
    xl_cap_step step[] = { { .number = 4, .ndevice = 1, .narg = 1, .nout = 1, .in = in, .out = out },
                           { .number = 5, .ndevice = 1, .narg = 1, .nout = 1, .in = next, .out = none, .keep = keep,
                             .nkeep = 1 } };
    xl_cap_program program = { .module = XL_STR("jit_f"), .code = XL_STR("code"), .options = XL_STR(""),
                               .device = device, .ndevice = 1 };
    xl_capture c = { .trigger = XL_STR("slow"), .why = XL_STR("it was"), .plugin = XL_STR("/p.so"), .rank = 1,
                     .ranks = 2, .program = &program, .nprogram = 1, .step = step, .nstep = 2 }, back;
    uint64_t size;
    xl_error *err = xl_capture_write(&a, path, &c, &size);
    CHECK(!err);
    struct stat st;
    CHECK(stat(path, &st) == 0 && (st.st_mode & 0777) == 0600 && (uint64_t)st.st_size == size);
    err = xl_capture_read(&a, path, &back);
    CHECK(!err);
    CHECK(back.nstep == 2 && back.nprogram == 1 && back.rank == 1 && back.ranks == 2);
    CHECK(xl_str_is(back.program[0].module, "jit_f") && xl_str_is(back.program[0].code, "code"));
    CHECK(back.program[0].device[0] == 3 && xl_str_is(back.why, "it was"));
    CHECK(back.step[0].in[0].from == -1 && !memcmp(back.step[0].in[0].part.bytes, x, sizeof x));
    CHECK(back.step[1].in[0].from == 0 && back.step[1].out[0].elem == XL_ELEM_INVALID && back.step[1].keep[0] == 0);
    xl_capture_close(&back);
    unlink(path);
    xl_arena_fini(&a);
}

TEST(numbers_that_are_not_finite)
{
    float x[5] = { -2, INFINITY, NAN, 3, NAN };
    xl_finite f = xl_finite_of(XL_ELEM_F32, x, sizeof x);
    CHECK(f.count == 5 && f.nan == 2 && f.inf == 1 && f.first_nan == 2 && f.first_inf == 1 && f.min == -2);
    int32_t i[2] = { -1, 7 };
    f = xl_finite_of(XL_ELEM_S32, i, sizeof i);
    CHECK(f.nan == 0 && f.inf == 0 && f.min == -1 && f.max == 7);
    CHECK(xl_elem_is_float(XL_ELEM_BF16) && xl_elem_is_float(XL_ELEM_C64) && !xl_elem_is_float(XL_ELEM_S32));
}

TEST(differences_in_units_of_the_last_place)
{
    float a[3] = { 1, -0.0f, 2 }, b[3] = { 1, 0, nextafterf(nextafterf(2, 3), 3) };
    xl_difference d = xl_difference_of(XL_ELEM_F32, a, b, sizeof a);
    CHECK(d.count == 3 && d.differ == 2 && d.first == 1 && d.max_ulp == 2 && d.scale == 2);
    float n[1] = { NAN }, one[1] = { 1 };
    CHECK(isinf(xl_difference_of(XL_ELEM_F32, one, n, 4).max_ulp));
    uint16_t h[1] = { 0x3f80 }, k[1] = { 0x3f81 };
    CHECK(xl_difference_of(XL_ELEM_BF16, h, k, 2).max_ulp == 1);
}
