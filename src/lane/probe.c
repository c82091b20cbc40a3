#include "lane/probe.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/proc.h"
#include "base/time.h"
#include "pjrt/options.h"
#include "pjrt/program.h"

const char *xl_probe_word(xl_probe_class c)
{
    static const char *const words[] = {
#define CLASS(name, word, text) word,
#include "lane/probe.def"
    };
    return words[c];
}

const char *xl_probe_text(xl_probe_class c)
{
    static const char *const texts[] = {
#define CLASS(name, word, text) text,
#include "lane/probe.def"
    };
    return texts[c];
}

/* ---- The program. Small whole numbers, so that the answer is exact in whatever precision a device multiplies. ---- */

enum { ROWS = 4, INNER = 8, COLS = 4 };
static const char program_text[] =
    "module @xlane_probe {\n"
    "  func.func public @main(%a: tensor<4x8xf32>, %b: tensor<8x4xf32>, %c: tensor<4x4xf32>) -> tensor<4x4xf32> {\n"
    "    %0 = stablehlo.dot_general %a, %b, contracting_dims = [1] x [0], precision = [HIGHEST, HIGHEST]"
    " : (tensor<4x8xf32>, tensor<8x4xf32>) -> tensor<4x4xf32>\n"
    "    %1 = stablehlo.add %0, %c : tensor<4x4xf32>\n"
    "    return %1 : tensor<4x4xf32>\n"
    "  }\n"
    "}\n";

typedef struct { float a[ROWS * INNER], b[INNER * COLS], c[ROWS * COLS], answer[ROWS * COLS]; } question;

static void ask(question *q)
{
    for (int i = 0; i < ROWS * INNER; i++)
        q->a[i] = (float)(i % 7 - 3);
    for (int i = 0; i < INNER * COLS; i++)
        q->b[i] = (float)(i % 5 - 2);
    for (int i = 0; i < ROWS * COLS; i++)
        q->c[i] = (float)(i + 1);
    for (int r = 0; r < ROWS; r++)
        for (int k = 0; k < COLS; k++) {
            float sum = q->c[r * COLS + k];
            for (int i = 0; i < INNER; i++)
                sum += q->a[r * INNER + i] * q->b[i * COLS + k];
            q->answer[r * COLS + k] = sum;
        }
}

/* ---- In the child. It tells what it is about to do and what it found, a JSON object a line; whatever happens to it,
 * the lines before that are known. ---- */

typedef struct { const char *path; const xl_probe_opts *opts; } job;

static void tell(int fd, xl_json *j)
{
    xl_json_end(j);
    xl_buf_putc(j->out, '\n');
    xl_proc_write(fd, j->out->p, j->out->n);
    xl_buf_fini(j->out);
}

static void tell_stage(int fd, const char *call)
{
    xl_buf b = { 0 };
    xl_json j = { .out = &b };
    xl_json_map(&j);
    xl_json_put_text(&j, "stage", call);
    tell(fd, &j);
}

static int tell_end(int fd, const char *class, xl_error *err)
{
    xl_buf b = { 0 };
    xl_json j = { .out = &b };
    xl_json_map(&j);
    xl_json_put_text(&j, "class", class);
    xl_json_put_text(&j, "reason", err ? xl_error_message(err) : "");
    xl_json_put_int(&j, "code", xl_error_code(err));
    tell(fd, &j);
    xl_error_free(err);
    return 0;
}

static void tell_plugin(int fd, xl_arena *a, xl_plugin *p)
{
    xl_buf b = { 0 };
    xl_json j = { .out = &b };
    int number[64];
    size_t n = xl_plugin_extensions(p, number, 64), nattr = 0;
    const xl_named *attr = NULL;
    xl_json_map(&j);
    xl_json_put_int(&j, "api_major", xl_plugin_major(p));
    xl_json_put_int(&j, "api_minor", xl_plugin_minor(p));
    xl_json_key(&j, "extensions");
    xl_json_list(&j);
    for (size_t i = 0; i < n && i < 64; i++)
        xl_json_text(&j, xl_extension_name(number[i]));
    xl_json_end(&j);
    xl_json_key(&j, "attributes");
    xl_json_map(&j);
    xl_error_free(xl_plugin_attributes(p, a, &attr, &nattr));
    for (size_t i = 0; i < nattr; i++) {
        xl_buf v = { 0 };
        if (attr[i].kind == XL_NAMED_INTS)
            for (size_t k = 0; k < attr[i].ints.n; k++)
                xl_buf_printf(&v, "%s%lld", k ? "." : "", (long long)attr[i].ints.p[k]);
        else if (attr[i].kind == XL_NAMED_INT)
            xl_buf_printf(&v, "%lld", (long long)attr[i].i);
        else if (attr[i].kind == XL_NAMED_STR)
            xl_buf_str(&v, attr[i].str);
        else
            xl_buf_puts(&v, attr[i].kind == XL_NAMED_BOOL && attr[i].b ? "true" : "");
        xl_json_keyn(&j, attr[i].name);
        xl_json_str(&j, xl_buf_view(&v));
        xl_buf_fini(&v);
    }
    xl_json_end(&j);
    tell(fd, &j);
}

static void tell_client(int fd, const xl_client *c)
{
    xl_buf b = { 0 };
    xl_json j = { .out = &b };
    size_t n;
    xl_client_devices(c, &n);
    xl_json_map(&j);
    xl_json_put_str(&j, "platform", xl_client_platform(c));
    xl_json_put_str(&j, "platform_version", xl_client_version(c));
    xl_json_put_int(&j, "all_devices", (int64_t)n);
    tell(fd, &j);
}

/* One device's turn. `*stage` says which class an error is of. */
static xl_error *try_device(int fd, xl_client *c, const xl_device *d, const question *q, double *compile_s,
                            double *run_s, const char **class)
{
    xl_error *err = NULL;
    xl_buf options = { 0 };
    xl_program *program = NULL;
    xl_buffer *arg[3] = { NULL }, *result = NULL, **out_row = &result;
    xl_buffer *const *arg_row = arg;
    float got[ROWS * COLS];
    int64_t id = d->id;
    xl_options_build(&options, &(xl_options){ .device = &id });
    tell_stage(fd, "PJRT_Client_Compile");
    *class = "compile-fails";
    double t = xl_now();
    XL_DO(xl_program_compile(c, XL_STR(program_text), XL_FORMAT_MLIR, xl_buf_view(&options), &program));
    *compile_s = xl_now() - t;
    *class = "wrong-answer";
    tell_stage(fd, "PJRT_Client_BufferFromHostBuffer");
    t = xl_now();
    XL_DO(xl_buffer_from_host(d, XL_ELEM_F32, (xl_dims){ (int64_t[]){ ROWS, INNER }, 2 }, q->a, NULL, &arg[0]));
    XL_DO(xl_buffer_from_host(d, XL_ELEM_F32, (xl_dims){ (int64_t[]){ INNER, COLS }, 2 }, q->b, NULL, &arg[1]));
    XL_DO(xl_buffer_from_host(d, XL_ELEM_F32, (xl_dims){ (int64_t[]){ ROWS, COLS }, 2 }, q->c, NULL, &arg[2]));
    tell_stage(fd, "PJRT_LoadedExecutable_Execute");
    size_t nout;
    XL_DO(xl_executable_noutputs(xl_program_executable(program), &nout));
    if (nout != 1) {
        err = XL_ERR(INTERNAL, "the program has one result, the plugin says %zu", nout);
        goto out;
    }
    XL_DO(xl_program_execute(program, &(xl_exec){ .ndevice = 1, .narg = 3, .arg = &arg_row, .out = &out_row }));
    tell_stage(fd, "PJRT_Buffer_ToHostBuffer");
    memset(got, 0xff, sizeof got); /* nan: what is not written shows */
    XL_DO(xl_buffer_to_host(result, got, sizeof got, NULL));
    *run_s = xl_now() - t;
    for (int i = 0; i < ROWS * COLS; i++)
        if (!(got[i] == q->answer[i])) {
            err = XL_ERR(INTERNAL, "element [%d, %d] of the result is %g, the right answer is %g", i / COLS, i % COLS,
                         (double)got[i], (double)q->answer[i]);
            goto out;
        }
out:
    for (int i = 0; i < 3; i++)
        xl_buffer_free(arg[i]);
    xl_buffer_free(result);
    xl_program_free(program);
    xl_buf_fini(&options);
    return err;
}

static const struct { const char *name; size_t offset;
} memory_rows[] = {
#define ROW(f) { #f, offsetof(xl_device_memory, f) },
    ROW(in_use) ROW(peak_in_use) ROW(limit) ROW(reserved) ROW(peak_reserved) ROW(reservable_limit) ROW(largest_free)
        ROW(pool) ROW(peak_pool) ROW(peak_allocated) ROW(allocs) ROW(largest_alloc)
#undef ROW
};
enum { NMEMORY = sizeof memory_rows / sizeof *memory_rows };
#define MEMORY(m, i) (*(int64_t *)((char *)(m) + memory_rows[i].offset))

static void memory_json(xl_json *j, const xl_device_memory *m)
{
    xl_json_map(j);
    for (size_t i = 0; i < NMEMORY; i++)
        if (MEMORY(m, i) >= 0)
            xl_json_put_int(j, memory_rows[i].name, MEMORY(m, i));
    xl_json_end(j);
}

static void tell_device(int fd, const xl_device *d, xl_error *err, double compile_s, double run_s)
{
    xl_buf b = { 0 };
    xl_json j = { .out = &b };
    xl_device_memory m;
    xl_json_map(&j);
    xl_json_key(&j, "device");
    xl_json_map(&j);
    xl_json_put_int(&j, "id", d->id);
    xl_json_put_int(&j, "hardware", d->hardware);
    xl_json_put_str(&j, "kind", d->kind);
    xl_json_put_str(&j, "text", d->text);
    xl_json_put_bool(&j, "right", !err);
    xl_json_put_text(&j, "trouble", err ? xl_error_message(err) : "");
    xl_json_put_num(&j, "compile_s", compile_s);
    xl_json_put_num(&j, "run_s", run_s);
    tell_stage(fd, "PJRT_Device_MemoryStats");
    xl_error *silent = xl_device_memory_read(d, &m);
    if (!silent) {
        xl_json_key(&j, "memory");
        memory_json(&j, &m);
    }
    xl_error_free(silent);
    xl_json_end(&j);
    tell(fd, &j);
}

static int child(void *arg, int fd)
{
    const job *todo = arg;
    xl_error *err = NULL;
    xl_plugin *p = NULL;
    xl_client *c = NULL;
    xl_arena a = { 0 };
    question q;
    const char *class = "healthy";
    ask(&q);
    /* Without a chip libtpu asks the cloud's metadata server for minutes; with one it needs the answers. */
    const char *kind = xl_plugin_kind(todo->path);
    if (kind && strcmp(kind, "tpu") == 0 && !xl_plugin_has_devices(todo->path))
        setenv("TPU_SKIP_MDS_QUERY", "1", 0);
    tell_stage(fd, "dlopen");
    if ((err = xl_plugin_load(todo->path, &p)))
        return tell_end(fd, xl_error_code(err) == XL_CODE_NOT_FOUND ? "library-missing"
                            : xl_error_code(err) == XL_CODE_PRECONDITION ? "abi-mismatch" : "will-not-load", err);
    tell_stage(fd, "PJRT_Plugin_Initialize");
    if ((err = xl_plugin_init(p)))
        return tell_end(fd, "will-not-load", err);
    tell_stage(fd, "PJRT_Plugin_Attributes");
    tell_plugin(fd, &a, p);
    tell_stage(fd, "PJRT_Client_Create");
    if ((err =
             xl_client_open(p, &(xl_client_opts){ .option = todo->opts->option, .noption = todo->opts->noption }, &c)))
        return tell_end(fd, "no-device", err);
    tell_client(fd, c);
    if (xl_client_nlocal(c) == 0)
        return tell_end(fd, "no-device", XL_ERR(NOT_FOUND, "the plugin started and lists no addressable device"));
    xl_error *first = NULL;
    const char *first_class = "healthy";
    for (size_t i = 0; i < xl_client_nlocal(c); i++) {
        const xl_device *d = xl_client_local(c, i);
        double compile_s = 0, run_s = 0;
        err = try_device(fd, c, d, &q, &compile_s, &run_s, &class);
        tell_device(fd, d, err, compile_s, run_s);
        if (err && !first) {
            first = xl_error_wrap(err, "device %d", d->id);
            first_class = class;
        } else {
            xl_error_free(err);
        }
    }
    tell_end(fd, first_class, first);
    tell_stage(fd, "PJRT_Client_Destroy");
    xl_client_close(c);
    tell_stage(fd, "");
    xl_arena_fini(&a);
    return 0;
}

/* ---- In the parent ---- */

static xl_str text_of(xl_arena *a, const xl_node *map, const char *key)
{
    return xl_str_dup(a, xl_node_text(map, key));
}

static void hear_device(xl_arena *a, const xl_node *n, xl_probe *p, size_t *cap)
{
    const xl_node *memory = xl_node_get(n, "memory"), *right = xl_node_get(n, "right");
    xl_probe_device d = { .id = (int)xl_node_int(n, "id", -1),
                          .hardware = (int)xl_node_int(n, "hardware", -1),
                          .kind = text_of(a, n, "kind"),
                          .text = text_of(a, n, "text"),
                          .right = right && right->b,
                          .trouble = text_of(a, n, "trouble"),
                          .compile_s = xl_node_num(n, "compile_s", 0),
                          .run_s = xl_node_num(n, "run_s", 0),
                          .has_memory = memory != NULL };
    for (size_t i = 0; i < NMEMORY; i++)
        MEMORY(&d.memory, i) = xl_node_int(memory, memory_rows[i].name, -1);
    XL_PUSH(a, p->device, p->ndevice, *cap, d);
}

/* What the child told, line by line. A torn last line is what an abort leaves, and is passed over. */
static void hear(xl_arena *a, xl_str lines, xl_probe *p, bool *ended, int64_t *code)
{
    size_t cap = 0, ext_cap = 0;
    while (lines.n) {
        xl_str line = xl_str_cut(&lines, '\n');
        xl_node *n = NULL;
        const xl_node *part;
        xl_error *err = xl_json_read(a, "probe", line, &n);
        if (err) {
            xl_error_free(err);
            continue;
        }
        if (xl_node_get(n, "stage"))
            p->stage = text_of(a, n, "stage");
        if ((part = xl_node_get(n, "api_major"))) {
            p->bundle.api_major = (int)part->i;
            p->bundle.api_minor = (int)xl_node_int(n, "api_minor", -1);
            const xl_node *attr = xl_node_get(n, "attributes"), *ext = xl_node_get(n, "extensions");
            p->bundle.stablehlo_min = text_of(a, attr, "stablehlo_minimum_version");
            p->bundle.stablehlo_now = text_of(a, attr, "stablehlo_current_version");
            p->bundle.xla_version = text_of(a, attr, "xla_version");
            for (size_t i = 0; ext && i < ext->n; i++)
                XL_PUSH(a, p->extension, p->nextension, ext_cap, xl_str_dup(a, ext->kid[i]->s));
        }
        if (xl_node_get(n, "platform")) {
            p->bundle.platform = text_of(a, n, "platform");
            p->bundle.platform_version = text_of(a, n, "platform_version");
            p->nall = (size_t)xl_node_int(n, "all_devices", 0);
        }
        if ((part = xl_node_get(n, "device")))
            hear_device(a, part, p, &cap);
        if ((part = xl_node_get(n, "class"))) {
            for (int c = 0; c <= XL_PROBE_WRONG; c++)
                if (xl_str_is(part->s, xl_probe_word((xl_probe_class)c)))
                    p->class = (xl_probe_class)c;
            p->reason = text_of(a, n, "reason");
            *code = xl_node_int(n, "code", 0);
            *ended = true;
        }
    }
}

/* The class of a child that did not come to an end: by the call it was in. */
static xl_probe_class class_of_stage(xl_str stage)
{
    if (xl_str_is(stage, "PJRT_Client_Create"))
        return XL_PROBE_NO_DEVICE;
    if (xl_str_is(stage, "PJRT_Client_Compile"))
        return XL_PROBE_NO_COMPILE;
    if (!stage.n || xl_str_is(stage, "dlopen") || xl_str_starts(stage, XL_STR("PJRT_Plugin_")))
        return XL_PROBE_NO_LOAD;
    return XL_PROBE_WRONG;
}

static bool says(xl_str text, const char *word)
{
    size_t n = strlen(word);
    for (size_t i = 0; i + n <= text.n; i++)
        if (strncasecmp(text.p + i, word, n) == 0)
            return true;
    return false;
}

/* Does the plugin itself say that somebody else has the device? The phrases are those of libtpu and of CUDA. */
static bool says_held(xl_str text)
{
    static const char *const phrases[] = { "already in use",
                                           "in use by process",
                                           "libtpu_lockfile",
                                           "resource busy",
                                           "CUDA_ERROR_DEVICE_UNAVAILABLE",
                                           "devices unavailable",
                                           "Device or resource busy" };
    for (size_t i = 0; i < sizeof phrases / sizeof *phrases; i++)
        if (says(text, phrases[i]))
            return true;
    return false;
}

static bool flag_unknown(const xl_probe *p)
{
    return says(p->last_words, "Unknown flag") || says(p->last_words, "XLA_FLAGS");
}

/* The variable of the environment that our own plugin's error names; empty: none. */
static xl_str setting_named(xl_str reason)
{
    extern char **environ;
    for (char **e = environ; e && *e; e++) {
        xl_str name = { *e, strcspn(*e, "=") };
        const char *at = xl_str_starts(name, XL_STR("XLANE_CPU_")) ? memmem(reason.p, reason.n, name.p, name.n) : NULL;
        if (at && !isalnum((unsigned char)at[name.n]) && at[name.n] != '_') /* a reason ends with 0 */
            return xl_str_of(*e);
    }
    return (xl_str){ 0 };
}

/* The devices are not what is wrong if a setting keeps the plugin from showing or using them. */
static void judge_setting(xl_probe *p)
{
    bool ours = p->reason.n && setting_named(p->reason).n;
    if ((p->class == XL_PROBE_NO_DEVICE && (ours || says(p->last_words, "Unknown flag"))) ||
        (p->class == XL_PROBE_NO_COMPILE && ours))
        p->class = XL_PROBE_SETTING;
}

static void judge_held(xl_arena *a, xl_probe *p, int64_t code)
{
    bool told = says_held(p->reason) || says_held(p->last_words);
    bool no_memory =
        code == XL_CODE_EXHAUSTED || says(p->reason, "out of memory") || says(p->reason, "OUT_OF_MEMORY") ||
        says(p->last_words, "CUDA_ERROR_OUT_OF_MEMORY"); /* the plugin's error says "no supported devices" then */
    if (p->class != XL_PROBE_NO_DEVICE && !(no_memory && p->class > XL_PROBE_NO_DEVICE))
        return;
    /* Devices that several may share are held only if the plugin complains of room or of others. */
    if (told || (p->holders.n && (p->holders.exclusive || no_memory)))
        p->class = XL_PROBE_HELD;
    if (p->class == XL_PROBE_HELD && p->holders.n) {
        const xl_holder *h = &p->holders.holder[0];
        p->reason = xl_strf(a, "%.*s is held by process %d (%.*s)%s%.*s", XL_FMT(h->device), h->pid, XL_FMT(h->command),
                            p->reason.n ? "; " : "", XL_FMT(p->reason));
    }
}

static xl_str advice(xl_arena *a, const xl_probe *p)
{
    const char *kind = p->plugin.n ? xl_plugin_kind(p->plugin.p) : NULL;
    bool tpu = kind && strcmp(kind, "tpu") == 0, cuda = kind && strcmp(kind, "cuda") == 0;
    if (p->class != XL_PROBE_HEALTHY && flag_unknown(p))
        return XL_STR(
            "a flag in XLA_FLAGS or LIBTPU_INIT_ARGS is not known to this plugin: take it out and probe again");
    switch (p->class) {
    case XL_PROBE_HEALTHY: return (xl_str){ "", 0 };
    case XL_PROBE_MISSING:
        return tpu ? XL_STR("install it (pip install libtpu) or give its path with --plugin")
                   : XL_STR("check the path, or leave --plugin out to see what is installed");
    case XL_PROBE_NO_LOAD:
        if (says(p->reason, "this machine is"))
            return XL_STR(
                "get the plugin for this machine's processor, or move the lane to a machine of the other kind");
        if (says(p->reason, "not found on this machine"))
            return XL_STR("install the package that has the missing library, or add its folder to LD_LIBRARY_PATH");
        if (says(p->reason, "not a shared library") || says(p->reason, "cut short"))
            return XL_STR("this is not a plugin: download it again, or name the .so file");
        return p->ended.n ? XL_STR("read its last words; then try the plugin's previous version")
                          : XL_STR("check the file against its package (pip install --force-reinstall)");
    case XL_PROBE_ABI:
        return says(p->reason, "no GetPjrtApi")
                   ? XL_STR("name the plugin itself: libtpu.so, xla_cuda_plugin.so, libxlane-cpu.so")
               : says(p->reason, "this xlane speaks") ? XL_STR("update xlane, or install a plugin of PJRT 0.57 to 0.x")
                                                      : XL_STR("install a newer version of the plugin");
    case XL_PROBE_SETTING: {
        xl_str value = setting_named(p->reason), name = xl_str_cut(&value, '=');
        return xl_strf(a, "%.*s is %.*s here: change it, or unset it, and probe again", XL_FMT(name), XL_FMT(value));
    }
    case XL_PROBE_NO_DEVICE:
        if (says(p->ended, "within"))
            return XL_STR(
                "it hangs while it looks for its device: look at its last words, and try --timeout with more seconds");
        return tpu    ? XL_STR("run on a TPU VM; there /dev/accel* or /dev/vfio/* must exist, in a container too "
                                  "(--privileged)")
               : cuda ? XL_STR("see that nvidia-smi works here and that CUDA_VISIBLE_DEVICES does not hide the cards")
                      : XL_STR("see that the device and its driver are there and that this user may open them");
    case XL_PROBE_HELD:
        if (p->holders.n)
            return xl_strf(a, "wait for process %d to end, or end it; then probe again", p->holders.holder[0].pid);
        return says(p->reason, "lockfile") ? XL_STR("nobody is seen to hold it: run as root to see all processes; if "
                                                    "there is none, remove /tmp/libtpu_lockfile")
                                           : XL_STR("run as root to see which process holds it");
    case XL_PROBE_NO_COMPILE:
        return XL_STR("read the plugin's message; compare its version with the driver's in the bundle");
    case XL_PROBE_WRONG:
        return XL_STR(
            "do not train here: take this device out, and try another version of the plugin or of the driver");
    }
    return (xl_str){ "", 0 };
}

xl_error *xl_probe_run(xl_arena *a, const xl_probe_opts *opts, xl_probe *p)
{
    xl_error *err = NULL;
    xl_plugin_choice choice;
    xl_proc_result r = { 0 };
    bool ended = false;
    int64_t code = 0;
    *p = (xl_probe){ .class = XL_PROBE_MISSING };
    err = xl_plugin_find(a, &(xl_plugin_wish){ .named = opts->plugin, .profile = opts->profile }, &choice);
    p->passed_over = choice.passed_over;
    p->npassed_over = choice.npassed_over;
    p->fallback = choice.fallback;
    p->plugin = xl_str_of(choice.path);
    p->why = xl_str_of(choice.why);
    xl_bundle_collect(a, choice.path, &p->bundle);
    if (!err && (err = xl_plugin_inspect(choice.path)))
        p->class = xl_error_code(err) == XL_CODE_NOT_FOUND ? XL_PROBE_MISSING : XL_PROBE_NO_LOAD;
    if (err) {
        p->reason = xl_str_dup(a, xl_str_of(xl_error_message(err)));
        xl_error_free(err);
        err = NULL;
        p->next = advice(a, p);
        goto out;
    }
    job todo = { choice.path, opts };
    int limit_ms = (int)((opts->timeout_s > 0 && opts->timeout_s < 1e6 ? opts->timeout_s : 60) * 1000);
    XL_TRY(xl_proc_call(a, child, &todo, limit_ms, &r), "starting a process for the probe");
    p->seconds = r.seconds;
    p->last_words = xl_str_trim(r.err);
    hear(a, r.out, p, &ended, &code);
    if (r.signal || r.timed_out || r.status) {
        xl_str how = xl_proc_words(a, &r);
        if (ended) {
            p->note = xl_strf(a, "after the probe, in %.*s, the plugin's process %.*s", XL_FMT(p->stage), XL_FMT(how));
        } else {
            p->ended = how;
            p->class = class_of_stage(p->stage);
            p->reason = xl_strf(a, "in %.*s its process %.*s", XL_FMT(p->stage), XL_FMT(how));
        }
    }
    xl_holders_find(a, xl_plugin_kind(choice.path), &p->holders);
    judge_held(a, p, code);
    judge_setting(p);
    p->next = advice(a, p);
out:
    return err;
}

/* ---- Out ---- */

static void owner_json(xl_json *j, const xl_probe *p)
{
    xl_buf b = { 0 };
    xl_str file = p->plugin;
    const char *slash = file.n ? memrchr(file.p, '/', file.n) : NULL;
    if (slash)
        file = (xl_str){ slash + 1, (size_t)(file.p + file.n - slash - 1) };
    xl_json_map(j);
    xl_json_put_text(j, "frontend", "xlane: a StableHLO program of its own");
    if (file.n && p->bundle.api_major >= 0)
        xl_buf_printf(&b, "%.*s through PJRT %d.%d", XL_FMT(file), p->bundle.api_major, p->bundle.api_minor);
    else
        xl_buf_printf(&b, "nobody: %.*s did not start", XL_FMT(file));
    xl_json_put_str(j, "runtime", xl_buf_view(&b));
    b.n = 0;
    if (p->ndevice)
        xl_buf_printf(&b, "%zu x %.*s, driven by %.*s", p->ndevice, XL_FMT(p->device[0].kind), XL_FMT(file));
    else if (p->class == XL_PROBE_HELD && p->holders.n)
        xl_buf_printf(&b, "process %d", p->holders.holder[0].pid);
    else
        xl_buf_puts(&b, "nobody");
    xl_json_put_str(j, "device", xl_buf_view(&b));
    xl_json_put_text(j, "fallback", p->fallback ? "the embedded CPU device stands in for the plugins under passed_over"
                                                : "none: a failure of this plugin is a failure of the lane");
    xl_json_end(j);
    xl_buf_fini(&b);
}

void xl_probe_json(xl_json *j, const xl_probe *p)
{
    xl_json_map(j);
    xl_json_put_text(j, "class", xl_probe_word(p->class));
    xl_json_put_str(j, "plugin", p->plugin);
    xl_json_put_str(j, "why", p->why);
    if (p->npassed_over) {
        xl_json_key(j, "passed_over");
        xl_json_list(j);
        for (size_t i = 0; i < p->npassed_over; i++)
            xl_json_text(j, p->passed_over[i]);
        xl_json_end(j);
    }
    xl_json_put_str(j, "reason", p->reason);
    xl_json_put_str(j, "next", p->next);
    xl_json_put_num(j, "seconds", p->seconds);
    if (p->stage.n)
        xl_json_put_str(j, "stage", p->stage);
    if (p->ended.n)
        xl_json_put_str(j, "ended", p->ended);
    if (p->note.n)
        xl_json_put_str(j, "note", p->note);
    if (p->class != XL_PROBE_HEALTHY && p->last_words.n)
        xl_json_put_str(j, "last_words", p->last_words);
    xl_json_key(j, "api");
    xl_json_map(j);
    if (p->bundle.api_major >= 0) {
        xl_json_put_int(j, "major", p->bundle.api_major);
        xl_json_put_int(j, "minor", p->bundle.api_minor);
        xl_json_put_str(j, "platform", p->bundle.platform);
        xl_json_key(j, "extensions");
        xl_json_list(j);
        for (size_t i = 0; i < p->nextension; i++)
            xl_json_str(j, p->extension[i]);
        xl_json_end(j);
    }
    xl_json_end(j);
    xl_json_key(j, "devices");
    xl_json_list(j);
    for (size_t i = 0; i < p->ndevice; i++) {
        const xl_probe_device *d = &p->device[i];
        xl_json_map(j);
        xl_json_put_int(j, "id", d->id);
        xl_json_put_int(j, "hardware", d->hardware);
        xl_json_put_str(j, "kind", d->kind);
        xl_json_put_bool(j, "right", d->right);
        if (d->trouble.n)
            xl_json_put_str(j, "trouble", d->trouble);
        xl_json_put_num(j, "compile_s", d->compile_s);
        xl_json_put_num(j, "run_s", d->run_s);
        xl_json_key(j, "memory");
        if (d->has_memory)
            memory_json(j, &d->memory);
        else
            xl_json_null(j);
        xl_json_end(j);
    }
    xl_json_end(j);
    xl_json_key(j, "holders");
    xl_json_list(j);
    for (size_t i = 0; i < p->holders.n; i++) {
        xl_json_map(j);
        xl_json_put_int(j, "pid", p->holders.holder[i].pid);
        xl_json_put_str(j, "command", p->holders.holder[i].command);
        xl_json_put_str(j, "device", p->holders.holder[i].device);
        xl_json_end(j);
    }
    xl_json_end(j);
    xl_json_key(j, "owner");
    owner_json(j, p);
    xl_json_key(j, "bundle");
    xl_bundle_json(j, &p->bundle);
    xl_json_end(j);
}
