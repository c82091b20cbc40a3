/* The client with a complete plugin, our own: covers what the small test plugins lack. */
#include "pjrt/options.h"
#include "pjrt/program.h"
#include "pjrt/test.h"

static xl_client *open_client(void)
{
    xl_client *c = NULL;
    CHECK_OK(xl_client_open(xl_test_plugin("libxlane-cpu.so"), NULL, &c));
    return c;
}

static const char step[] = "module @step {\n"
                           "  func.func public @main(%w: tensor<2x3xf32> {tf.aliasing_output = 0 : i32}, %g: "
                           "tensor<2x3xf32>) -> (tensor<2x3xf32>, tensor<f32>) {\n"
                           "    %0 = stablehlo.subtract %w, %g : tensor<2x3xf32>\n"
                           "    %z = stablehlo.constant dense<0.0> : tensor<f32>\n"
                           "    %1 = stablehlo.reduce(%0 init: %z) applies stablehlo.add across dimensions = [0, 1] : "
                           "(tensor<2x3xf32>, tensor<f32>) -> tensor<f32>\n"
                           "    return %0, %1 : tensor<2x3xf32>, tensor<f32>\n"
                           "  }\n"
                           "}\n";
static const float w_data[6] = { 10, 20, 30, 40, 50, 60 }, g_data[6] = { 1, 2, 3, 4, 5, 6 };
static const xl_dims shape = { (const int64_t[]){ 2, 3 }, 2 };

static xl_program *compile(xl_client *c)
{
    xl_buf o = { 0 };
    xl_program *p;
    xl_options_build(&o, &(xl_options){ .device = (int64_t[]){ xl_client_local(c, 0)->id } });
    CHECK_OK(xl_program_compile(c, XL_STR(step), XL_FORMAT_MLIR, xl_buf_view(&o), &p));
    xl_buf_fini(&o);
    return p;
}

/* One step; says whether the first argument was taken over. */
static bool run(xl_client *c, xl_program *p, bool keep)
{
    const xl_device *d = xl_client_local(c, 0);
    xl_buffer *arg[2], *out[2] = { NULL };
    xl_fence *done = NULL;
    float w[6], sum;
    bool gone;
    CHECK_OK(xl_buffer_from_host(d, XL_ELEM_F32, shape, w_data, NULL, &arg[0]));
    CHECK_OK(xl_buffer_from_host(d, XL_ELEM_F32, shape, g_data, NULL, &arg[1]));
    CHECK_OK(xl_program_execute(p, &(xl_exec){ .ndevice = 1,
                                               .narg = 2,
                                               .arg = (xl_buffer *const *const[]){ arg },
                                               .out = (xl_buffer * *const[]){ out },
                                               .keep = (int64_t[]){ 0 },
                                               .nkeep = keep,
                                               .done = &done }));
    CHECK_OK(xl_fence_await(done));
    CHECK_OK(xl_buffer_to_host(out[0], w, sizeof w, NULL));
    CHECK_OK(xl_buffer_to_host(out[1], &sum, sizeof sum, NULL));
    CHECK(w[0] == 9 && w[5] == 54 && sum == 189);
    CHECK_OK(xl_buffer_is_deleted(arg[0], &gone));
    xl_fence_free(done);
    for (int i = 0; i < 2; i++) {
        xl_buffer_free(arg[i]);
        xl_buffer_free(out[i]);
    }
    return gone;
}

TEST(donation_and_the_argument_that_is_kept)
{
    xl_client *c = open_client();
    xl_program *p = compile(c);
    CHECK(run(c, p, false));
    CHECK(!run(c, p, true));
    xl_program_free(p);
    xl_client_close(c);
}

TEST(what_an_executable_says)
{
    xl_arena a = { 0 };
    xl_client *c = open_client();
    xl_program *p = compile(c);
    const xl_executable *e = xl_program_executable(p);
    xl_str name;
    size_t replicas, partitions, n;
    const xl_output *o;
    xl_program_memory m;
    const xl_device *const *on;
    CHECK_OK(xl_executable_name(e, &a, &name));
    CHECK(xl_str_is(name, "step"));
    CHECK_OK(xl_executable_shape(e, &replicas, &partitions));
    CHECK(replicas == 1 && partitions == 1);
    CHECK_OK(xl_executable_outputs(e, &a, &o, &n));
    CHECK(n == 2 && o[0].elem == XL_ELEM_F32 && o[0].dims.n == 2 && o[0].dims.p[1] == 3 && o[1].dims.n == 0);
    CHECK_OK(xl_executable_memory(e, &m));
    CHECK(m.arguments == 48 && m.aliased == 24);
    CHECK_OK(xl_program_devices(p, &a, &on, &n));
    CHECK(n == 1 && on[0] == xl_client_local(c, 0));
    xl_program_free(p);
    xl_client_close(c);
    xl_arena_fini(&a);
}

TEST(serialised_and_loaded_in_another_client)
{
    xl_client *c = open_client();
    xl_program *p = compile(c);
    xl_buf bytes = { 0 };
    CHECK_OK(xl_executable_serialize(xl_program_executable(p), &bytes));
    CHECK(bytes.n > 0);
    xl_program_free(p);
    xl_client_close(c);
    c = open_client();
    CHECK_OK(xl_program_deserialize(c, xl_buf_view(&bytes), XL_STR(""), &p));
    CHECK(run(c, p, false));
    xl_program_free(p);
    xl_error *err = xl_program_deserialize(c, (xl_str){ bytes.p, bytes.n / 2 }, XL_STR(""), &p);
    CHECK(err && !p);
    xl_error_free(err);
    xl_buf_fini(&bytes);
    xl_client_close(c);
}

TEST(errors_come_through)
{
    xl_client *c = open_client();
    xl_program *p;
    xl_buffer *b;
    xl_buf o = { 0 };
    char byte;
    xl_options_build(&o, &(xl_options){ 0 });
    CHECK_ERR(xl_program_compile(c, XL_STR("module { oops }"), XL_FORMAT_MLIR, xl_buf_view(&o), &p),
              "libxlane-cpu.so: PJRT_Client_Compile: ");
    CHECK(!p);
    CHECK_OK(xl_buffer_from_host(xl_client_local(c, 0), XL_ELEM_F32, shape, w_data, NULL, &b));
    xl_error *err = xl_buffer_to_host(b, &byte, 1, NULL);
    CHECK(err);
    xl_error_free(err);
    xl_buffer_free(b);
    xl_buf_fini(&o);
    xl_client_close(c);
}

TEST(strides_turn_a_matrix)
{
    xl_client *c = open_client();
    xl_buffer *b;
    float got[6];
    CHECK_OK(xl_buffer_from_host(xl_client_local(c, 0), XL_ELEM_F32, shape, w_data,
                                 &(xl_host_opts){ .strides = (int64_t[]){ 4, 8 } }, &b));
    CHECK_OK(xl_buffer_to_host(b, got, sizeof got, NULL));
    CHECK(got[0] == 10 && got[1] == 30 && got[2] == 50 && got[3] == 20 && got[5] == 60);
    xl_buffer_free(b);
    xl_client_close(c);
}
