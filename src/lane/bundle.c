#include "lane/bundle.h"

#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/utsname.h>
#if defined(__GLIBC__)
#include <gnu/libc-version.h>
#endif

#include "base/file.h"
#include "base/version.h"
#include "pjrt/plugin.h"

/* Packages whose version matters to a lane, as their .dist-info folders spell them. */
static const char *const wanted[] = { "jax",
                                      "jaxlib",
                                      "libtpu",
                                      "torch",
                                      "torch_xla",
                                      "jax_cuda12_pjrt",
                                      "jax_cuda12_plugin",
                                      "jax_cuda13_pjrt",
                                      "jax_cuda13_plugin",
                                      "nvidia_cudnn_cu12",
                                      "nvidia_cublas_cu12",
                                      "nvidia_cudnn_cu13",
                                      "nvidia_cublas",
                                      "nvidia_nccl_cu12",
                                      "nvidia_nccl_cu13",
                                      "flax",
                                      "optax",
                                      "numpy" };

static void packages(xl_arena *a, xl_bundle *b)
{
    size_t nsite, cap = 0;
    const char **site = xl_python_sites(a, &nsite);
    for (size_t w = 0; w < sizeof wanted / sizeof *wanted; w++)
        for (size_t s = 0; s < nsite; s++) {
            glob_t g;
            xl_str head = xl_strf(a, "%s/%s-", site[s], wanted[w]);
            bool hit = glob(xl_strf(a, "%s*.dist-info", head.p).p, 0, NULL, &g) == 0 && g.gl_pathc > 0;
            if (hit) {
                xl_str v = xl_str_of(g.gl_pathv[0]);
                v = xl_str_dup(a, (xl_str){ v.p + head.n, v.n - head.n - strlen(".dist-info") });
                xl_package p = { xl_str_of(wanted[w]), v };
                XL_PUSH(a, b->package, b->npackage, cap, p);
                if (!b->python.n) { /* …/lib/python3.11/site-packages */
                    const char *at = strstr(site[s], "/python3.");
                    if (at) {
                        xl_str rest = xl_str_of(at + strlen("/python"));
                        b->python = xl_str_dup(a, xl_str_cut(&rest, '/'));
                    }
                }
            }
            globfree(&g);
            if (hit)
                break;
        }
}

void xl_bundle_collect(xl_arena *a, const char *plugin, xl_bundle *b)
{
    struct utsname u;
    xl_file_info info;
    xl_str text;
    *b = (xl_bundle){ .api_major = -1, .api_minor = -1, .xlane = XL_STR(XL_VERSION) };
    if (plugin) {
        b->plugin = xl_str_dup(a, xl_str_of(plugin));
        b->build_id = xl_plugin_build_id(a, plugin);
        if (xl_file_stat(plugin, &info)) {
            b->plugin_size = info.size;
            b->plugin_mtime = info.mtime;
        }
    }
    if (uname(&u) == 0) {
        b->kernel = xl_strf(a, "%s %s", u.sysname, u.release);
        b->machine = xl_str_dup(a, xl_str_of(u.machine));
    }
#if defined(__GLIBC__)
    b->libc = xl_strf(a, "glibc %s", gnu_get_libc_version());
#endif
    xl_error *err = xl_file_read_max(a, "/proc/driver/nvidia/version", 1 << 16, &text);
    if (!err) { /* its first line: "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54  date" */
        xl_str line = xl_str_cut(&text, '\n');
        b->driver = xl_str_trim(line);
    }
    xl_error_free(err);
    packages(a, b);
}

static void put(xl_json *j, const char *key, xl_str s)
{
    if (s.n)
        xl_json_put_str(j, key, s);
}

void xl_bundle_json(xl_json *j, const xl_bundle *b)
{
    xl_json_map(j);
    put(j, "xlane", b->xlane);
    if (b->plugin.n) {
        put(j, "plugin", b->plugin);
        put(j, "plugin_build_id", b->build_id);
        xl_json_put_int(j, "plugin_bytes", (int64_t)b->plugin_size);
        xl_json_put_int(j, "plugin_mtime", (int64_t)b->plugin_mtime);
    }
    if (b->api_major >= 0) {
        char api[32];
        snprintf(api, sizeof api, "%d.%d", b->api_major, b->api_minor);
        xl_json_put_text(j, "pjrt_api", api);
    }
    put(j, "platform", b->platform);
    put(j, "platform_version", b->platform_version);
    put(j, "stablehlo_minimum", b->stablehlo_min);
    put(j, "stablehlo_current", b->stablehlo_now);
    put(j, "xla_version", b->xla_version);
    put(j, "machine", b->machine);
    put(j, "kernel", b->kernel);
    put(j, "libc", b->libc);
    put(j, "driver", b->driver);
    put(j, "python", b->python);
    xl_json_key(j, "packages");
    xl_json_map(j);
    for (size_t i = 0; i < b->npackage; i++) {
        xl_json_keyn(j, b->package[i].name);
        xl_json_str(j, b->package[i].version);
    }
    xl_json_end(j);
    xl_json_end(j);
}
