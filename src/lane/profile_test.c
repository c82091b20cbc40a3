#include "lane/profile.h"

#include <unistd.h>

#include "base/file.h"
#include "base/test.h"
#include "lane/flags.h"
#include "lane/receipt.h"
#include "pjrt/gate.h"

static xl_arena a;

/* A temporary folder with a user's and a project's profiles. */
static void home(void)
{
    static char dir[] = "/tmp/xlane-profile-XXXXXX";
    static bool made;
    if (!made) {
        CHECK(mkdtemp(dir));
        CHECK(chdir(dir) == 0);
        setenv("XDG_CONFIG_HOME", dir, 1);
        unsetenv("XLA_FLAGS");
        unsetenv("LIBTPU_INIT_ARGS");
        unsetenv("PJRT_DEVICE");
        CHECK_OK(xl_dir_make(".xlane/profiles"));
        CHECK_OK(xl_dir_make("xlane/profiles"));
    }
    made = true;
}

static void put(const char *name, const char *text)
{
    CHECK_OK(xl_file_write_quick(xl_strf(&a, ".xlane/profiles/%s.yaml", name).p, xl_str_of(text)));
}

TEST(values_are_inherited_and_know_their_line)
{
    xl_profile p;
    home();
    put("mine", "about: mine\ninherits: tpu-v6e\ndevice:\n  premapped_buffer: 8192\n");
    CHECK_OK(xl_profile_load(&a, "mine", &p));
    CHECK_INT(p.nchain, 3);
    const xl_setting *s = xl_profile_get(&p, "device.premapped_buffer");
    CHECK(s && xl_str_is(s->value, "8192") && xl_str_is(s->origin, ".xlane/profiles/mine.yaml:4"));
    s = xl_profile_get(&p, "device.pjrt_device");
    CHECK(s && xl_str_is(s->value, "TPU") && xl_str_starts(s->origin, XL_STR("built-in tpu.yaml:")));
}

TEST(a_profile_of_a_built_in_name_extends_it)
{
    xl_profile p;
    home();
    put("cpu", "inherits: cpu\nshapes:\n  warmup: 3\n");
    CHECK_OK(xl_profile_load(&a, "cpu", &p));
    CHECK(xl_profile_get(&p, "device.plugin") && xl_profile_get(&p, "shapes.warmup"));
    CHECK_OK(xl_file_remove(".xlane/profiles/cpu.yaml"));
}

TEST(mistakes_are_named_with_the_nearest)
{
    xl_profile p;
    home();
    put("a", "inherits: b\n");
    put("b", "inherits: c\n");
    put("c", "inherits: a\n");
    CHECK_ERR(xl_profile_load(&a, "a", &p), "in a circle: a inherits b inherits c inherits a");
    CHECK_ERR(xl_profile_load(&a, "tpu-v6", &p), "did you mean 'tpu-v6e'");
    put("bad", "shapes:\n  polcy: warn\n");
    CHECK_ERR(xl_profile_load(&a, "bad", &p),
              "bad.yaml:2: shapes.polcy: unknown key; the nearest known one is 'policy'");
    put("bad", "shapes:\n  policy: sometimes\n");
    CHECK_ERR(xl_profile_load(&a, "bad", &p), "allow, warn or stop");
    put("bad", "flags:\n  environment:\n    LD_PRELOAD: x.so\n");
    CHECK_ERR(xl_profile_load(&a, "bad", &p), "which code is loaded");
    put("bad", "flags:\n  xla:\n    xla_a: 1 --xla_b=2\n");
    CHECK_ERR(xl_profile_load(&a, "bad", &p), "no spaces");
    put("bad", "- a list\n");
    CHECK_ERR(xl_profile_load(&a, "bad", &p), "a profile is a map");
    put("bad", "inherits: bad\n");
    CHECK_ERR(xl_profile_load(&a, "bad", &p), "bad.yaml:1: inherits: 'bad' inherits itself, and there is no other");
    put("cpu", "inherits: cpu\n");                         /* the built-in one is another */
    CHECK_OK(xl_profile_load(&a, "cpu", &p));
    CHECK_OK(xl_file_remove(".xlane/profiles/cpu.yaml"));
    CHECK_ERR(xl_profile_load(&a, "gpu", &p), "did you mean 'cuda'?");
    CHECK_ERR(xl_profile_load(&a, "H100", &p), "did you mean 'cuda'?");
    CHECK_ERR(xl_profile_load(&a, "foo", &p), "there is no profile 'foo'; there are ");
}

TEST(the_profile_is_stronger_than_the_environment)
{
    xl_profile p;
    home();
    put("f", "flags:\n  xla:\n    xla_a: 1\ndevice:\n  pjrt_device: CPU\n");
    setenv("XLA_FLAGS", "--xla_a=2 --xla_b=3", 1);
    setenv("PJRT_DEVICE", "TPU", 1);
    CHECK_OK(xl_profile_effective(&a, "f", &p));
    const xl_setting *s = xl_profile_get(&p, "flags.xla.xla_a");
    CHECK(s && xl_str_is(s->value, "1") && xl_str_is(s->shadow, "2"));
    s = xl_profile_get(&p, "flags.xla.xla_b");
    CHECK(s && xl_str_is(s->origin, "environment"));
    CHECK(xl_str_is(xl_profile_get(&p, "shapes.policy")->origin, "default"));
    xl_gate_reset();
    CHECK_OK(xl_profile_apply(&a, &p));
    CHECK_STR(getenv("XLA_FLAGS"), "--xla_a=1 --xla_b=3");
    CHECK_STR(getenv("PJRT_DEVICE"), "CPU");
    CHECK(!strncmp(getenv("XLANE_PROFILE"), "f@", 2));
    unsetenv("XLA_FLAGS");
    unsetenv("PJRT_DEVICE");
}

TEST(a_diagnostic_setting_marks_and_does_not_change_the_key)
{
    xl_profile p, q;
    home();
    put("d", "inherits: f\ndebug:\n  ir: true\n");
    CHECK_OK(xl_profile_load(&a, "f", &p));
    CHECK_OK(xl_profile_load(&a, "d", &q));
    CHECK(!p.diagnostic && q.diagnostic);
    CHECK_STR(p.digest, q.digest);
    put("e", "inherits: f\nspmd:\n  enabled: true\n");
    CHECK_OK(xl_profile_load(&a, "e", &q));
    CHECK(strcmp(p.digest, q.digest));
}

TEST(flags_count_where_the_device_reads_them)
{
    xl_profile p;
    home();
    setenv("XLA_FLAGS", "--xla_dump_to=x", 1);
    CHECK_OK(xl_profile_effective(&a, NULL, &p));
    CHECK(p.diagnostic);                                   /* no device is named */
    const xl_setting *s = xl_profile_get(&p, "flags.xla.xla_dump_to");
    CHECK(xl_str_is(xl_setting_words(&a, s), "--xla_dump_to=x in XLA_FLAGS"));
    xl_profile_device(&p, "cpu");
    CHECK(!p.diagnostic && !xl_setting_diagnoses(s));
    xl_profile_device(&p, "cuda");
    CHECK(p.diagnostic && xl_setting_diagnoses(s));
    CHECK_OK(xl_profile_effective(&a, "cpu", &p));
    CHECK(!p.diagnostic);
    CHECK_OK(xl_profile_effective(&a, "debug-dump", &p));
    xl_profile_device(&p, "cpu");
    CHECK(p.diagnostic);                                   /* its file says so */
    unsetenv("XLA_FLAGS");
}

TEST(premapped_buffers_are_checked_against_the_host) /* L6 */
{
    xl_profile p;
    xl_host_budget b;
    home();
    setenv("XLANE_HOST_MEMORY", "16GiB", 1);
    put("m", "device:\n  premapped_buffer: 4GiB\n  loader_memory: 8GiB\n  headroom: 2GiB\n");
    CHECK_OK(xl_profile_effective(&a, "m", &p));
    CHECK_OK(xl_profile_budget(&a, &p, &b));
    CHECK_INT(b.premapped, (int64_t)4 << 30);
    put("m", "device:\n  premapped_buffer: 8GiB\n  loader_memory: 8GiB\n  headroom: 2GiB\n");
    CHECK_OK(xl_profile_effective(&a, "m", &p));
    CHECK_ERR(xl_profile_budget(&a, &p, &b),
              "at most 6.00 GiB remain for TPU_PREMAPPED_BUFFER_SIZE; set device.premapped_buffer to 6442450944");
    put("m", "device:\n  premapped_buffer: 5000\n");
    CHECK_OK(xl_profile_effective(&a, "m", &p));
    CHECK_ERR(xl_profile_budget(&a, &p, &b), "the next one that is: 8192");
    unsetenv("XLANE_HOST_MEMORY");
}

TEST(gates_name_both_moments) /* L3 */
{
    xl_gate_reset();
    CHECK_OK(xl_gate_pass(XL_GATE_ENVIRONMENT, "a profile"));
    CHECK_OK(xl_gate_pass(XL_GATE_RUNTIME, "the first client"));
    CHECK_ERR(xl_gate_pass(XL_GATE_ENVIRONMENT, "another profile"), "the first client");
    CHECK_OK(xl_gate_pass(XL_GATE_SPMD, "a mesh"));
    CHECK_OK(xl_gate_pass(XL_GATE_TENSOR, "the first tensor"));
    CHECK_OK(xl_gate_pass(XL_GATE_TENSOR, "the second"));
    CHECK_ERR(xl_gate_pass(XL_GATE_SPMD, "a late mesh"), "a late mesh");
    CHECK_ERR(xl_gate_pass(XL_GATE_SPMD, "a late mesh"), "the first tensor");
    xl_gate_reset();
}

TEST(flags_are_words_with_values)
{
    xl_str rest = XL_STR("  --xla_a=1 xla_b=x=y\t--xla_c "), name, value;
    CHECK(xl_flags_next(&rest, &name, &value) && xl_str_is(name, "xla_a") && xl_str_is(value, "1"));
    CHECK(xl_flags_next(&rest, &name, &value) && xl_str_is(name, "xla_b") && xl_str_is(value, "x=y"));
    CHECK(xl_flags_next(&rest, &name, &value) && xl_str_is(name, "xla_c") && xl_str_is(value, "true"));
    CHECK(!xl_flags_next(&rest, &name, &value));
}

TEST(flags_are_read_from_a_library)
{
    static const char bytes[] = "\177ELF................................................................\0xla_dump_"
                                "to\0not_xla_tail\0xla_gpu_autotune_level\0xla_open";
    xl_flag_set s;
    home();
    CHECK_OK(xl_file_write_quick("lib.so", (xl_str){ bytes, sizeof bytes - 1 }));
    CHECK_OK(xl_flags_scan(&a, "lib.so", &s));
    CHECK_INT(s.n, 2);
    CHECK(xl_flags_know(&s, XL_STR("xla_dump_to")) && !xl_flags_know(&s, XL_STR("xla_dump_too")));
    CHECK(xl_str_is(xl_flags_nearest(&s, XL_STR("xla_gpu_autotune_levle")), "xla_gpu_autotune_level"));
    CHECK_INT(xl_flags_nearest(&s, XL_STR("xla_something_else_entirely")).n, 0);
    CHECK_ERR(xl_flags_scan(&a, "nothing.so", &s), "nothing.so");
    CHECK_OK(xl_file_write_quick(
        "text.so", XL_STR("this is not a library, though it is long enough to be looked at; it has no header")));
    CHECK_ERR(xl_flags_scan(&a, "text.so", &s), "no ELF header");
}

TEST(an_edited_receipt_is_known)
{
    xl_node *r;
    xl_str text;
    char *argv[] = { (char *)"true", NULL };
    xl_receipt_facts f = { .kind = "run", .argc = 1, .argv = argv, .executed = 1 };
    home();
    CHECK_OK(xl_receipt_write(&a, &f, "receipt.json"));
    CHECK_OK(xl_receipt_read(&a, "receipt.json", &r));
    CHECK_ERR(xl_receipt_write(&a, &f, "receipt.json"), "receipt");
    CHECK_OK(xl_file_read(&a, "receipt.json", &text));
    char *at = strstr((char *)text.p, "viability");
    CHECK(at);
    memcpy(at, "superbity", 9);
    CHECK_OK(xl_file_write_quick("edited.json", text));
    CHECK_ERR(xl_receipt_read(&a, "edited.json", &r), "checksum");
}
