#include "pjrt/options.h"

#include "base/proto.h"
#include "base/test.h"

static xl_error *parse(xl_arena *a, xl_str bytes)
{
    xl_option *root;
    return xl_options_parse(a, bytes, &root);
}

TEST(what_is_built_is_read)
{
    xl_arena a = { 0 };
    xl_buf b = { 0 };
    xl_option *root;
    xl_options_build(&b, &(xl_options){ .partitions = 4, .spmd = true, .device = (int64_t[]){ 7, 6, 5, 4 } });
    CHECK_OK(xl_options_parse(&a, xl_buf_view(&b), &root));
    CHECK_INT(xl_options_int(root, "executable_build_options.num_partitions", 0), 4);
    CHECK_INT(xl_options_int(root, "executable_build_options.num_replicas", 0), 1);
    CHECK_INT(xl_options_int(root, "executable_build_options.device_ordinal", 0), -1);
    CHECK_INT(xl_options_int(root, "executable_build_options.no_such_thing", 12), 12);
    const xl_option *rows = xl_options_find(root, "executable_build_options.device_assignment.computation_devices");
    CHECK(rows && rows->n == 4 && rows->child[2].child[0].list[0] == 5);
    xl_buf_fini(&b);
    xl_arena_fini(&a);
}

TEST(fields_of_a_newer_xla_stay)
{
    xl_arena a = { 0 };
    xl_buf b = { 0 }, c = { 0 };
    xl_option *root;
    xl_proto_put_bytes(&b, 900, XL_STR("new"));
    xl_proto_put_int(&b, 899, -3);
    xl_proto_put_int(&b, 5, 1);
    CHECK_OK(xl_options_parse(&a, xl_buf_view(&b), &root));
    xl_options_canonical(root, &c);
    xl_buf want = { 0 };
    xl_proto_put_int(&want, 5, 1);
    xl_proto_put_int(&want, 899, -3);
    xl_proto_put_bytes(&want, 900, XL_STR("new"));
    CHECK(xl_str_eq(xl_buf_view(&c), xl_buf_view(&want)));
    xl_buf_fini(&b);
    xl_buf_fini(&c);
    xl_buf_fini(&want);
    xl_arena_fini(&a);
}

TEST(hostile_bytes)
{
    xl_arena a = { 0 };
    CHECK_OK(parse(&a, (xl_str){ NULL, 0 }));
    CHECK_ERR(parse(&a, (xl_str){ "\x1a", 1 }), "byte 1");
    CHECK_ERR(parse(&a, (xl_str){ "\x1a\x7f""abc", 5 }), "claims 127 bytes, 3 are left");
    CHECK_ERR(parse(&a, (xl_str){ "\x1a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", 11 }), "claims 18446744073709551615");
    CHECK_ERR(parse(&a, (xl_str){ "\x28\xff\xff\xff\xff\xff\xff\xff\xff\xff\x7f", 11 }), "more than 64 bits");
    CHECK_ERR(parse(&a, (xl_str){ "\x03", 1 }), "no field has the number 0");
    CHECK_ERR(parse(&a, (xl_str){ "\x2b", 1 }), "wire type 3");
    CHECK_ERR(parse(&a, (xl_str){ "\x2a\x01x", 3 }), "profile_version has the wire type 2");
    /* Two million empty messages: bounded, and told. */
    xl_buf many = { 0 };
    for (int i = 0; i < 2000000; i++)
        xl_proto_put_int(&many, 1000 + (uint32_t)(2000000 - i), 0);
    CHECK_ERR(parse(&a, xl_buf_view(&many)), "more than");
    xl_buf_fini(&many);
    xl_arena_fini(&a);
}

TEST(many_unknown_fields_backwards_are_sorted_quickly)
{
    xl_arena a = { 0 };
    xl_buf b = { 0 }, c = { 0 };
    xl_option *root;
    for (uint32_t i = 500000; i > 0; i--)
        xl_proto_put_int(&b, 1000 + i, i);
    CHECK_OK(xl_options_parse(&a, xl_buf_view(&b), &root));
    xl_options_canonical(root, &c);
    CHECK_INT(c.n, b.n);
    xl_buf_fini(&b);
    xl_buf_fini(&c);
    xl_arena_fini(&a);
}

TEST(an_option_is_dropped_and_the_rest_is_written)
{
    xl_arena a = { 0 };
    xl_buf in = { 0 }, out = { 0 };
    xl_option *root;
    int64_t device[] = { 3, 1 };
    xl_options_build(&in, &(xl_options){ .partitions = 2, .device = device, .spmd = true });
    CHECK_OK(xl_options_parse(&a, xl_buf_view(&in), &root));
    CHECK(!xl_options_drop(root, "executable_build_options.no_such_option"));
    CHECK(!xl_options_drop(root, "no_such_message.device_ordinal"));
    CHECK(xl_options_drop(root, "executable_build_options.device_assignment"));
    xl_options_write(root, &out);
    CHECK_OK(xl_options_parse(&a, xl_buf_view(&out), &root));
    CHECK(!xl_options_find(root, "executable_build_options.device_assignment"));
    CHECK_INT(xl_options_int(root, "executable_build_options.num_partitions", 0), 2);
    CHECK_INT(xl_options_int(root, "executable_build_options.use_spmd_partitioning", 0), 1);
    xl_buf_fini(&in);
    xl_buf_fini(&out);
    xl_arena_fini(&a);
}
