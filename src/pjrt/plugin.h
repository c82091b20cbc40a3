/* src/pjrt/plugin.h
 * Finding and loading a PJRT plugin. A plugin is loaded once per process and stays loaded: XLA plugins do not survive
 * dlclose. Any thread may load one; the handle is shared and never freed.
 * Loading runs foreign constructors, which may abort or hang: code that only queries a plugin does so in a child
 * process (lane/probe.h). */
#ifndef XL_PJRT_PLUGIN_H
#define XL_PJRT_PLUGIN_H

#include "base/error.h"
#include "base/str.h"

typedef struct xl_plugin xl_plugin;

/* A named value: an option given to a plugin, or an attribute it gives. */
typedef enum { XL_NAMED_STR, XL_NAMED_INT, XL_NAMED_INTS, XL_NAMED_FLOAT, XL_NAMED_BOOL } xl_named_kind;
typedef struct {
    xl_str name;
    xl_named_kind kind;
    xl_str str;    /* XL_NAMED_STR */
    int64_t i;     /* XL_NAMED_INT */
    xl_dims ints;  /* XL_NAMED_INTS */
    float f;       /* XL_NAMED_FLOAT */
    bool b;        /* XL_NAMED_BOOL */
} xl_named;

/* Looks at the file without running any of it: is it there, is it a shared object, is it for this machine?
 * NOT_FOUND: no such file. UNAVAILABLE: it cannot be loaded here, and why. */
xl_error *xl_plugin_inspect(const char *path) XL_MUST_USE;
/* Does the file export GetPjrtApi, as its tables say? True where they do not say. Nothing of it runs. */
bool xl_plugin_exports(xl_arena *a, const char *path);
/* The build id the linker gave the file, in hexadecimal; empty if it has none. Cheap, unlike hashing half a
 * gigabyte. */
xl_str xl_plugin_build_id(xl_arena *a, const char *path);
/* Opens `path` and asks it for its table. NOT_FOUND and UNAVAILABLE as above; PRECONDITION: it loads, but is no plugin
 * or one of a version that does not fit. Nothing of the plugin but its constructors and GetPjrtApi has run. */
xl_error *xl_plugin_load(const char *path, xl_plugin **out) XL_MUST_USE;
/* The same for a command: what is wrong is said with its next step. */
xl_error *xl_plugin_open(const char *path, xl_plugin **out) XL_MUST_USE;
/* One-time setup inside the plugin; every function below and every other file of pjrt/ needs it first. Done once,
 * however often it is called. */
xl_error *xl_plugin_init(xl_plugin *p) XL_MUST_USE;

const char *xl_plugin_path(const xl_plugin *p);
int xl_plugin_major(const xl_plugin *p);
int xl_plugin_minor(const xl_plugin *p);
bool xl_plugin_can(const xl_plugin *p, const char *call);   /* does its table have "PJRT_Client_Load"? */
/* The numbers of the extensions it offers, in the order of its chain; at most `cap` are written, the count
 * comes back. */
size_t xl_plugin_extensions(const xl_plugin *p, int *number, size_t cap);
const char *xl_extension_name(int number);                  /* "Layouts"; "unknown" past the ones we know */
xl_error *xl_plugin_attributes(xl_plugin *p, xl_arena *a, const xl_named **out, size_t *n) XL_MUST_USE;

/* Where plugins are searched, in order: named by the user (`named`: a path or one of cpu, tpu, cuda; then
 * XLANE_PLUGIN); named in the profile; jax_plugins and libtpu in the Python of the environment; system folders; the
 * embedded one, libxlane-cpu.so beside the executable. A named plugin is used or refused, never replaced. Of the
 * others, the first whose devices this machine has is used. */
typedef struct {
    const char *named, *profile;  /* NULL: not given */
} xl_plugin_wish;
typedef struct {
    const char *path;             /* the one chosen */
    const char *why;              /* "named by --plugin", "the embedded device, as nothing else was found" */
    bool fallback;                /* it was not requested by name, and another one was passed over */
    const char **passed_over;     /* "…/libtpu.so: this machine has no TPU device file" */
    size_t npassed_over;
} xl_plugin_choice;
xl_error *xl_plugin_find(xl_arena *a, const xl_plugin_wish *wish, xl_plugin_choice *out) XL_MUST_USE;
/* INVALID: it is neither the word of a kind nor a file. What has a / is a path, and is opened later. */
xl_error *xl_plugin_named(const char *named) XL_MUST_USE;
bool xl_plugin_word(const char *named);         /* one of tpu, cuda, cpu: a kind of plugin, not a file */
/* Which devices a plugin is for, by its file name: "tpu", "cuda", "rocm", "cpu"; NULL if the name does not say. */
const char *xl_plugin_kind(const char *path);
bool xl_plugin_has_devices(const char *path);   /* are their device files here? true if the name does not say */
/* site-packages folders of the Python in the environment (VIRTUAL_ENV, CONDA_PREFIX, python3 in PATH, ~/.local). */
const char **xl_python_sites(xl_arena *a, size_t *n);

#endif
