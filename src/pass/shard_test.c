#include "pass/shard.h"

#include "base/test.h"
#include "ir/text/print.h"
#include "ir/read.h"
#include "pass/mesh.h"

static xl_module *read(const char *text)
{
    xl_module *m = NULL;
    xl_error *err = xl_read_text(xl_str_of(text), NULL, &m);
    CHECK_OK(err);
    return m;
}

static const char *split(xl_module *m, xl_shard_info *info, xl_buf *b)
{
    CHECK_OK(xl_shard(m, 8, 1, info));
    xl_print_module(m, &(xl_print_opts){ 0 }, b);
    return b->p ? b->p : "";
}

#define MESH "sdy.mesh @mesh = <[\"data\"=2, \"model\"=4]>\n"

TEST(contracting_dimension_gives_one_all_reduce)
{
    xl_module *m = read(
        MESH
        "func.func public @main(%x: tensor<8x16xf32> {sdy.sharding = #sdy.sharding<@mesh, [{\"data\"}, {\"model\"}]>},"
        " %w: tensor<16x32xf32> {sdy.sharding = #sdy.sharding<@mesh, [{\"model\"}, {}]>}) -> tensor<8x32xf32> {\n"
        "  %y = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0] : (tensor<8x16xf32>, tensor<16x32xf32>) -> "
        "tensor<8x32xf32>\n"
        "  return %y : tensor<8x32xf32>\n}\n");
    xl_shard_info info = { 0 };
    xl_buf b = { 0 };
    const char *text = split(m, &info, &b);
    CHECK(strstr(text, "tensor<4x4xf32>, tensor<4x32xf32>) -> tensor<4x32xf32>"));
    CHECK(strstr(text, "all_reduce") && !strstr(text, "all_gather"));
    CHECK(info.traffic.operands == 4 * 32 * 4 && info.traffic.ring == 2 * 3 / 4.0 * 4 * 32 * 4);
    xl_buf_fini(&b);
    xl_module_free(m);
}

TEST(result_split_over_the_sum_gives_reduce_scatter)
{
    xl_module *m = read(
        MESH "func.func public @main(%x: tensor<8x16xf32> {sdy.sharding = #sdy.sharding<@mesh, [{}, {\"model\"}]>},"
             " %w: tensor<16x32xf32> {sdy.sharding = #sdy.sharding<@mesh, [{\"model\"}, {}]>})"
             " -> (tensor<8x32xf32> {sdy.sharding = #sdy.sharding<@mesh, [{\"model\"}, {}]>}) {\n"
             "  %y = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0] : (tensor<8x16xf32>, "
             "tensor<16x32xf32>) -> tensor<8x32xf32>\n"
             "  return %y : tensor<8x32xf32>\n}\n");
    xl_shard_info info = { 0 };
    xl_buf b = { 0 };
    const char *text = split(m, &info, &b);
    CHECK(strstr(text, "reduce_scatter") && !strstr(text, "all_reduce"));
    xl_buf_fini(&b);
    xl_module_free(m);
}

/* 9 over 4 devices are 3 each; the sum sees none of the padding, and of the result it is cut off. */
TEST(sizes_that_do_not_divide_are_padded)
{
    xl_module *m = read(MESH "func.func public @main(%x: tensor<9xf32>) -> (tensor<9xf32>, tensor<f32>) {\n"
                             "  %e = stablehlo.exponential %x : tensor<9xf32>\n"
                             "  %c = sdy.sharding_constraint %e <@mesh, [{\"model\"}]> : tensor<9xf32>\n"
                             "  %n = stablehlo.negate %c : tensor<9xf32>\n"
                             "  %z = stablehlo.constant dense<0.0> : tensor<f32>\n"
                             "  %s = stablehlo.reduce(%n init: %z) applies stablehlo.add across dimensions = [0] : "
                             "(tensor<9xf32>, tensor<f32>) -> tensor<f32>\n"
                             "  return %n, %s : tensor<9xf32>, tensor<f32>\n}\n");
    xl_shard_info info = { 0 };
    xl_buf b = { 0 };
    const char *text = split(m, &info, &b);
    CHECK(strstr(text, "exponential") &&
          strstr(strstr(text, "exponential"), "tensor<3xf32>") < strchr(strstr(text, "exponential"), '\n'));
    CHECK(strstr(text, "(tensor<3xf32>) -> tensor<12xf32>") && strstr(text, "(tensor<12xf32>) -> tensor<9xf32>"));
    CHECK(strstr(text, "select") && strstr(text, "all_reduce"));
    CHECK_INT(info.ngathered, 1);                          /* the slice of what is returned */
    xl_buf_fini(&b);
    xl_module_free(m);
}

TEST(mistakes_are_named)
{
    xl_shard_info info = { 0 };
    xl_module *m = read("sdy.mesh @mesh = <[\"data\"=3]>\n"
                        "func.func public @main(%x: tensor<9xf32>) -> tensor<9xf32> {\n"
                        "  return %x : tensor<9xf32>\n"
                        "}\n");
    CHECK_ERR(xl_shard(m, 8, 1, &info), "multiplies to 3 devices");
    xl_module_free(m);
    m = read(MESH "func.func public @main(%x: tensor<9xf32> {sdy.sharding = #sdy.sharding<@mesh, [{\"model\"}]>}) -> "
                  "tensor<9xf32> {\n"
                  "  return %x : tensor<9xf32>\n"
                  "}\n");
    CHECK_ERR(xl_shard(m, 8, 1, &info), "the next size that they can is 12");
    xl_module_free(m);
    m = read(
        "func.func public @main(%x: tensor<8x8xf32> {mhlo.sharding = \"{devices=[2,3]<=[8]}\"}) -> tensor<8x8xf32> {\n"
        "  return %x : tensor<8x8xf32>\n"
        "}\n");
    CHECK_ERR(xl_shard(m, 8, 1, &info), "splits the devices");
    xl_module_free(m);
    m = read(MESH "func.func public @main(%x: tensor<8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{\"model\"}], "
                  "unreduced={\"model\"}>}) -> tensor<8xf32> {\n"
                  "  return %x : tensor<8xf32>\n"
                  "}\n");
    CHECK_ERR(xl_shard(m, 8, 1, &info), "an axis can be used once");
    xl_module_free(m);
    m = read(MESH "func.func public @main(%x: tensor<8xf32>) -> tensor<8xf32> {\n"
                  "  stablehlo.custom_call @xlane_python_callback(%x) {has_side_effect = true, mhlo.sharding = "
                  "\"{maximal device=\"} : (tensor<8xf32>) -> ()\n"
                  "  return %x : tensor<8xf32>\n"
                  "}\n");
    CHECK_OK(xl_shard(m, 8, 1, &info));                    /* no device: the first */
    xl_module_free(m);
}

/* A product that is asked for unreduced is not summed; who needs it whole sums it. */
TEST(unreduced)
{
    static const char *const end[] = { "  return %u : tensor<8x8xf32>\n",
                                       "  %n = stablehlo.exponential %u : tensor<8x8xf32>\n"
                                       "  return %n : tensor<8x8xf32>\n" };
    for (int k = 0; k < 2; k++) {
        xl_buf program = { 0 }, b = { 0 };
        xl_buf_printf(
            &program,
            MESH
            "func.func public @main(%%x: tensor<8x8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{}, {\"model\"}]>}, "
            "%%y: tensor<8x8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{\"model\"}, {}]>}) -> (tensor<8x8xf32> "
            "{sdy.sharding = #sdy.sharding<@mesh, [{}, {}]%s>}) {\n"
            "  %%d = stablehlo.dot_general %%x, %%y, contracting_dims = [1] x [0] : (tensor<8x8xf32>, tensor<8x8xf32>) "
            "-> tensor<8x8xf32>\n"
            "  %%u = sdy.sharding_constraint %%d <@mesh, [{}, {}], unreduced={\"model\"}> : tensor<8x8xf32>\n"
            "%s}\n",
            k ? "" : ", unreduced={\"model\"}", end[k]);
        xl_module *m = read(program.p);
        xl_shard_info info = { 0 };
        const char *text = split(m, &info, &b);
        CHECK((strstr(text, "all_reduce") != NULL) == (k == 1));
        xl_buf p = { 0 };
        xl_shard_text(&info, info.out[0], 2, &info.out_owed[0], NULL, &p);
        CHECK(xl_str_is(xl_buf_view(&p),
                        k ? "{replicated}" : "{devices=[1,1,2,4]<=[8] last_tile_dims={replicated, unreduced}}"));
        xl_buf_fini(&p);
        xl_buf_fini(&b);
        xl_buf_fini(&program);
        xl_module_free(m);
    }
}

/* The older strings mean the same slices: the device list of each tile, as XLA reads them, from the string alone. */
TEST(older_strings)
{
    static const struct { const char *dims, *text;
    } cases[] = {
        { "-, -", "{replicated}" },
        { "data, -", "{devices=[2,1,4]<=[8] last_tile_dim_replicate}" },
        { "model, -", "{devices=[4,1,2]<=[2,4]T(1,0) last_tile_dim_replicate}" },
        { "data, model", "{devices=[2,4]<=[8]}" },
        { "model, data", "{devices=[4,2]<=[2,4]T(1,0)}" },
        { "data+model, -", "{devices=[8,1]<=[8]}" },
        { "-, model+data", "{devices=[1,8]<=[2,4]T(1,0)}" },
    };
    xl_arena a = { 0 };
    xl_mesh_def mesh;
    CHECK_OK(xl_mesh_parse(&a, XL_STR("data=2, model=4"), 8, &mesh));
    const int64_t d[2] = { 8, 16 };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        xl_mesh_spec s;
        xl_buf b = { 0 };
        CHECK_OK(xl_mesh_spec_parse(&mesh, (xl_dims){ d, 2 }, XL_STR("x"), xl_str_of(cases[i].dims), &s));
        xl_mesh_mhlo(&mesh, &s, &b);
        CHECK(xl_str_is(xl_buf_view(&b), cases[i].text));
        xl_buf_fini(&b);
    }
    int64_t lo[2], hi[2];
    xl_mesh_spec s;
    CHECK_OK(xl_mesh_spec_parse(&mesh, (xl_dims){ d, 2 }, XL_STR("x"), XL_STR("model, -"), &s));
    CHECK(!xl_mesh_slice(&mesh, &s, (xl_dims){ d, 2 }, 6, lo, hi)); /* data 1, model 2: device 2 holds the same */
    CHECK(lo[0] == 4 && hi[0] == 6 && lo[1] == 0 && hi[1] == 16);
    CHECK(xl_mesh_slice(&mesh, &s, (xl_dims){ d, 2 }, 2, lo, hi));
    xl_arena_fini(&a);
}

TEST(meshes_by_name)
{
    xl_arena a = { 0 };
    xl_mesh_def mesh;
    xl_mesh_spec s;
    CHECK_ERR(xl_mesh_parse(&a, XL_STR("data=2, model=3"), 8, &mesh), "multiplies to 6 devices, there are 8");
    CHECK_ERR(xl_mesh_parse(&a, XL_STR("data=2, data=4"), 8, &mesh), "twice");
    CHECK_OK(xl_mesh_parse(&a, XL_STR("data=2, model=4"), 8, &mesh));
    xl_module *m = read("func.func public @main(%x: tensor<8x10xf32>) -> tensor<8x10xf32> {\n"
                        "  return %x : tensor<8x10xf32>\n"
                        "}\n");
    xl_func *f = xl_module_entry(m);
    xl_dims dims = xl_type_dims(xl_value_type(f, f->body->arg[0]));
    CHECK_ERR(xl_mesh_spec_parse(&mesh, dims, XL_STR("w"), XL_STR("data, model"), &s), "w: dimension 1 has size 10");
    CHECK_ERR(xl_mesh_spec_parse(&mesh, dims, XL_STR("w"), XL_STR("data, model"), &s),
              "\"model\" cannot share evenly: the next size that they can is 12");
    CHECK_ERR(xl_mesh_spec_parse(&mesh, dims, XL_STR("w"), XL_STR("data, data"), &s), "used twice");
    CHECK_ERR(xl_mesh_spec_parse(&mesh, dims, XL_STR("w"), XL_STR("expert"), &s), "no axis \"expert\"");
    xl_mesh_define(m, &mesh);
    CHECK_OK(xl_mesh_spec_parse(&mesh, dims, XL_STR("w"), XL_STR("data+model, -"), &s));
    xl_mesh_shard_arg(m, f, 0, &mesh, &s);
    xl_shard_info info = { 0 };
    xl_buf b = { 0 };
    CHECK(strstr(split(m, &info, &b), "tensor<1x10xf32>"));
    xl_buf_fini(&b);
    xl_module_free(m);
    xl_arena_fini(&a);
}

/* The mesh that the frontend's answer names its groups by is the answer's own. */
static xl_error *answer(int64_t number, const xl_buf *in, uint32_t n, xl_module **out, xl_buf *lines)
{
    CHECK(number == 7 && n == 2 && in[0].n);
    *out = read("sdy.mesh @devices = <[\"x\"=2, \"y\"=4]>\n"
                "func.func public @main(%x: tensor<8x4xf32>) -> tensor<8x4xf32> {\n"
                "  %y = \"stablehlo.all_reduce\"(%x) <{channel_handle = #stablehlo.channel_handle<handle = 1, type = "
                "1>, replica_groups = #stablehlo.replica_group_mesh_axes<mesh = @devices, axes = "
                "[#stablehlo.axis_ref<name = \"y\">]>, use_global_device_ids}> ({\n"
                "  ^bb0(%a: tensor<f32>, %b: tensor<f32>):\n"
                "    %s = stablehlo.add %a, %b : tensor<f32>\n"
                "    stablehlo.return %s : tensor<f32>\n"
                "  }) : (tensor<8x4xf32>) -> tensor<8x4xf32>\n"
                "  return %y : tensor<8x4xf32>\n"
                "}\n");
    xl_buf_puts(lines, "{devices=[1,4,2]<=[2,4]T(1,0) last_tile_dim_replicate}\n"
                       "{devices=[1,4,2]<=[2,4]T(1,0) last_tile_dim_replicate}");
    return NULL;
}

TEST(a_partitioned_call_names_axes_of_its_own_mesh)
{
    xl_module *m = read(
        MESH "func.func public @main(%x: tensor<8x16xf32> {sdy.sharding = #sdy.sharding<@mesh, [{}, {\"model\"}]>}) -> "
             "tensor<8x16xf32> {\n"
             "  %y = stablehlo.custom_call @xlane_partition(%x) {backend_config = \"7\"} : (tensor<8x16xf32>) -> "
             "tensor<8x16xf32>\n"
             "  return %y : tensor<8x16xf32>\n}\n");
    xl_shard_info info = { .partition = answer };
    xl_buf b = { 0 };
    const char *text = split(m, &info, &b);
    CHECK(strstr(text, "dense<[[0, 1, 2, 3], [4, 5, 6, 7]]> : tensor<2x4xi64>"));
    CHECK(!strstr(text, "mesh_axes"));
    xl_buf_fini(&b);
    xl_module_free(m);
}

/* What awaits a maximum says so in its OpSharding, as op_name of a metadata whose op_type is sdy::reduction_op. */
TEST(what_an_unreduced_value_awaits_is_told)
{
    static const char *const kind[] = { "", "max", "min" }, *const name[] = { "", "MAX", "MIN" };
    for (int k = 0; k < 3; k++) {
        xl_buf program = { 0 }, b = { 0 }, proto = { 0 };
        xl_buf_printf(&program,
                      MESH "func.func public @main(%%x: tensor<8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{}], "
                           "unreduced=%s{\"model\"}>}) -> tensor<8xf32> {\n"
                           "  return %%x : tensor<8xf32>\n}\n",
                      kind[k]);
        xl_module *m = read(program.p);
        xl_shard_info info = { 0 };
        split(m, &info, &b);
        xl_shard_proto(&info, info.arg[0], 1, &info.arg_owed[0], NULL, &proto);
        bool told = memmem(proto.p, proto.n, "\x0a\x11sdy::reduction_op\x12\x03", 21) != NULL;
        CHECK(told == (k > 0) && (!k || memmem(proto.p, proto.n, name[k], 3)));
        xl_buf_fini(&proto);
        xl_buf_fini(&b);
        xl_buf_fini(&program);
        xl_module_free(m);
    }
}

/* A maximum that is asked for unreduced stays what each device has of it; of a sum it is not so. */
TEST(a_maximum_is_not_taken_before_it_must)
{
    for (int k = 0; k < 3; k++) {
        static const char *const op[] = { "maximum", "maximum", "add" }, *const init[] = { "0xFF800000", "0xFF800000",
                                                                                              "0.0" },
                          *const kind[] = { "max", "min", "max" };
        xl_buf program = { 0 }, b = { 0 };
        xl_buf_printf(&program,
                      MESH "func.func public @main(%%x: tensor<8x4xf32> {sdy.sharding = #sdy.sharding<@mesh, "
                           "[{\"model\"}, {}]>}) -> (tensor<4xf32> {sdy.sharding = #sdy.sharding<@mesh, [{}], "
                           "unreduced=%s{\"model\"}>}) {\n"
                           "  %%z = stablehlo.constant dense<%s> : tensor<f32>\n"
                           "  %%m = stablehlo.reduce(%%x init: %%z) applies stablehlo.%s across dimensions = [0] : "
                           "(tensor<8x4xf32>, tensor<f32>) -> tensor<4xf32>\n"
                           "  %%u = sdy.sharding_constraint %%m <@mesh, [{}], unreduced=%s{\"model\"}> : "
                           "tensor<4xf32>\n"
                           "  return %%u : tensor<4xf32>\n}\n",
                      kind[k], init[k], op[k], kind[k]);
        xl_module *m = read(program.p);
        xl_shard_info info = { 0 };
        CHECK((strstr(split(m, &info, &b), "all_reduce") != NULL) == (k > 0));
        xl_buf_fini(&b);
        xl_buf_fini(&program);
        xl_module_free(m);
    }
}
