#include "pjrt/options.h"
#include "pjrt/program.h"
#include "pjrt/test.h"

static xl_plugin *load(const char *name)
{
    char file[64];
    snprintf(file, sizeof file, "test/plugins/%s.so", name);
    return xl_test_plugin(file);
}

static const float a_data[4] = { 1, 2, 3, 4 }, b_data[4] = { 5, 6, 7, 8 }, c_data[4] = { 1, 1, 1, 1 };
static const xl_dims two = { (const int64_t[]){ 2, 2 }, 2 };

/* Compiles, serialises, loads back, runs on all devices at once and reads back. */
static void round_trip(const char *name)
{
    xl_client *c;
    CHECK_OK(xl_client_open(load(name), NULL, &c));
    CHECK_INT(xl_client_nlocal(c), 2);
    const xl_device *d = xl_client_local(c, 1);
    CHECK_INT(d->id, 11);
    CHECK(xl_str_is(d->kind, "fake one") && d->memory && xl_str_is(d->memory->kind, "device"));
    CHECK(xl_client_device(c, 10) == xl_client_local(c, 0) && !xl_client_device(c, 99));
    xl_program *first, *p;
    CHECK_OK(xl_program_compile(c, XL_STR("anything"), XL_FORMAT_MLIR, XL_STR(""), &first));
    xl_buf bytes = { 0 };
    CHECK_OK(xl_executable_serialize(xl_program_executable(first), &bytes));
    CHECK(xl_str_is(xl_buf_view(&bytes), "anything"));
    CHECK_OK(xl_program_deserialize(c, xl_buf_view(&bytes), XL_STR(""), &p));
    xl_program_free(first);
    xl_buffer *arg[2][3], *out[2][1];
    for (int i = 0; i < 2; i++) {
        CHECK_OK(xl_buffer_from_host(xl_client_local(c, i), XL_ELEM_F32, two, a_data, NULL, &arg[i][0]));
        /* b is given transposed, by its strides */
        xl_host_opts turned = { .strides = (const int64_t[]){ 4, 8 } };
        CHECK_OK(xl_buffer_from_host(xl_client_local(c, i), XL_ELEM_F32, two, b_data, &turned, &arg[i][1]));
        xl_fence *done = NULL;
        xl_host_opts later = { .rule = XL_HOST_UNTIL_DONE, .done = &done };
        CHECK_OK(xl_buffer_from_host(xl_client_local(c, i), XL_ELEM_F32, two, c_data, &later, &arg[i][2]));
        CHECK_OK(xl_fence_await(done));
        xl_fence_free(done);
    }
    xl_buffer *const *args[2] = { arg[0], arg[1] };
    xl_buffer **outs[2] = { out[0], out[1] };
    xl_fence *done[2];
    CHECK_OK(xl_program_execute(p, &(xl_exec){ .ndevice = 2, .narg = 3, .arg = args, .out = outs, .done = done }));
    for (int i = 0; i < 2; i++) {
        float got[4] = { 0 };
        const xl_device *on;
        CHECK_OK(xl_fence_await(done[i]));
        CHECK_OK(xl_buffer_to_host(out[i][0], got, sizeof got, NULL));
        CHECK(got[0] == 18 && got[1] == 24 && got[2] == 40 && got[3] == 54); /* {1 2; 3 4} {5 7; 6 8} + 1 */
        CHECK_OK(xl_buffer_device(out[i][0], &on));
        CHECK(on == xl_client_local(c, (size_t)i));
        CHECK_ERR(xl_buffer_to_host(out[i][0], got, 3, NULL), "the size of dst");
        xl_fence_free(done[i]);
        xl_buffer_free(out[i][0]);
        for (int k = 0; k < 3; k++)
            xl_buffer_free(arg[i][k]);
    }
    xl_device_memory m;
    CHECK_OK(xl_device_memory_read(d, &m));
    CHECK(m.in_use == 4096 && m.limit == 1 << 30 && m.peak_in_use == -1 && m.peak_allocated == -1);
    xl_program_memory pm;
    CHECK_OK(xl_executable_memory(xl_program_executable(p), &pm));
    CHECK(pm.needs == 10 && pm.peak == -1 && pm.host_temporary == -1);
    xl_program_free(p);
    xl_buf_fini(&bytes);
    xl_client_close(c);
}

TEST(round_trip_with_a_plugin_of_our_age) { round_trip("healthy"); }
TEST(round_trip_with_a_table_that_ends_early) { round_trip("old"); }
TEST(round_trip_with_a_table_that_goes_on) { round_trip("new"); }

TEST(what_an_old_plugin_lacks_is_named)
{
    xl_client *c;
    xl_plugin *p = load("old");
    xl_topology *t;
    CHECK_OK(xl_client_open(p, NULL, &c));
    CHECK(xl_plugin_can(p, "PJRT_Client_Create") && !xl_plugin_can(p, "PJRT_Client_Load") &&
          !xl_plugin_can(p, "PJRT_Nonsense"));
    CHECK_ERR(xl_device_memory_reset_peak(xl_client_local(c, 0)),
              "old.so does not offer PJRT_Device_ClearMemoryStats: it speaks PJRT 0.57, the call is there since 0.106");
    CHECK_ERR(xl_topology_of(c, &t), "does not offer PJRT_Client_TopologyDescription"); /* inside the table, but NULL */
    xl_program *program;
    CHECK_ERR(xl_program_deserialize(c, XL_STR("x"), XL_STR("y"), &program), "since 0.71");
    CHECK_ERR(xl_topology_create(p, XL_STR(""), NULL, 0, &t), "needs a name");
    xl_client_close(c);
}

static xl_error *keep(void *ctx, xl_str key, xl_str value)
{
    xl_buf *b = ctx;
    CHECK(xl_str_is(key, "k"));
    b->n = 0;
    xl_buf_str(b, value);
    return NULL;
}
static xl_error *give(void *ctx, xl_str key, int timeout_ms, xl_buf *value)
{
    CHECK(xl_str_is(key, "k") && timeout_ms == 10);
    xl_buf_str(value, xl_buf_view(ctx));
    return NULL;
}
static xl_error *give_now(void *ctx, xl_str key, xl_buf *value) { return give(ctx, key, 10, value); }

TEST(the_store_of_a_job_reaches_the_plugin)
{
    xl_buf kept = { 0 };
    xl_kv kv = { &kept, give, give_now, keep };
    xl_client *c;
    CHECK_OK(xl_client_open(load("healthy"), &(xl_client_opts){ .kv = &kv }, &c));
    CHECK_INT(kept.n, 3);
    xl_client_close(c);
    xl_buf_fini(&kept);
}

static void count(xl_error *err, void *arg)
{
    xl_error_free(err);
    ++*(int *)arg;
}

TEST(fences_call_back)
{
    xl_client *c;
    xl_buffer *b;
    xl_fence *done = NULL;
    int calls = 0;
    CHECK_OK(xl_client_open(load("healthy"), NULL, &c));
    CHECK_OK(xl_buffer_from_host(xl_client_local(c, 0), XL_ELEM_F32, two, a_data,
                                 &(xl_host_opts){ .rule = XL_HOST_ZERO_COPY, .done = &done }, &b));
    CHECK_OK(xl_fence_on_ready(done, count, &calls));
    xl_fence_free(done);
    CHECK_INT(calls, 1);
    xl_buffer_free(b);
    CHECK_ERR(xl_buffer_from_host(xl_client_local(c, 0), XL_ELEM_S8, two, a_data, NULL, &b), "f32 matrices alone");
    xl_client_close(c);
}

TEST(elements)
{
    size_t n;
    CHECK_STR(xl_elem_text(XL_ELEM_BF16), "bf16");
    CHECK_INT(xl_elem_parse(XL_STR("complex<f64>")), XL_ELEM_C128);
    CHECK_INT(xl_elem_parse(XL_STR("f33")), XL_ELEM_INVALID);
    CHECK(xl_elem_size(XL_ELEM_S4, (xl_dims){ (int64_t[]){ 3, 5 }, 2 }, &n) && n == 15);
    CHECK(!xl_elem_size(XL_ELEM_F64, (xl_dims){ (int64_t[]){ 1LL << 40, 1LL << 40 }, 2 }, &n));
    CHECK(!xl_elem_size(XL_ELEM_F64, (xl_dims){ (int64_t[]){ -1 }, 1 }, &n));
}
