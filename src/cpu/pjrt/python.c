/* JAX enables some features only for its own platforms: host callbacks, decompositions by LAPACK, donation of
 * arguments. PJRT offers no way to enable them, so when the plugin is loaded into a Python process with JAX, it runs a
 * script that does (jax_rules.py), however the plugin was registered. Python's C API is looked up among the symbols of
 * the process; nothing is linked. A failure is a warning in the log. */
#include <dlfcn.h>
#include <link.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/thread.h"
#include "cpu/kernel/callback.h"
#include "cpu/kernel/ffi.h"
#include "cpu/pjrt/api.h"

static const char script[] =
#include "jax_rules.inc" /* made by the Makefile */
    ;

/* Without Python's lock, which another thread may hold while it waits for us. */
static int is_jax(struct dl_phdr_info *info, size_t size, void *found)
{
    (void)size;
    if (info->dlpi_name && strstr(info->dlpi_name, "/jaxlib/"))
        *(bool *)found = true;
    return *(bool *)found;
}

static void set_callback(void *fn) { xl_host_set((xl_host_fn *)(uintptr_t)fn); }

/* What jax.ffi registers: 0, or 1 and why not in error, of size bytes. */
static int told(xl_error *err, char *error, size_t size)
{
    if (err)
        snprintf(error, size, "%s", xl_error_message(err));
    xl_error_free(err);
    return err != NULL;
}
static int register_call(const char *name, const XLA_FFI_Handler_Bundle *b, char *error, size_t size)
{
    return told(xl_ffi_register((xl_str){ name, strlen(name) }, b), error, size);
}
static int register_type(const char *name, int64_t *id, const XLA_FFI_TypeInfo *info, char *error, size_t size)
{
    return told(xl_ffi_type((xl_str){ name, strlen(name) }, id, info ? info->deleter : NULL), error, size);
}

/* The verbosity that jaxlib was given for its source file of that name; passes are logged like XLA's. */
static atomic_bool passes_logged;
static void set_verbose(const char *file, int level)
{
    if (!strcmp(file, "hlo_pass_pipeline") || !strcmp(file, "*"))
        atomic_store(&passes_logged, level >= 1);
}
bool xl_python_logs_passes(void) { return atomic_load_explicit(&passes_logged, memory_order_relaxed); }

void xl_python_setup(const char *platform)
{
    typedef struct object object;
    static struct {
        int (*initialized)(void), (*ensure)(void), (*set)(object *, const char *, object *);
        void (*release)(int), (*decref)(object *), (*clear)(void);
        object *(*module)(const char *), *(*dict)(object *), *(*run)(const char *, int, object *, object *),
            *(*text)(const char *), *(*address)(void *);
    } py;
    static const struct { const char *name; void *to;
    } need[] = {
        { "Py_IsInitialized", &py.initialized },
        { "PyGILState_Ensure", &py.ensure },
        { "PyGILState_Release", &py.release },
        { "PyImport_AddModule", &py.module },
        { "PyModule_GetDict", &py.dict },
        { "PyDict_SetItemString", &py.set },
        { "PyRun_String", &py.run },
        { "PyUnicode_FromString", &py.text },
        { "PyLong_FromVoidPtr", &py.address },
        { "Py_DecRef", &py.decref },
        { "PyErr_Clear", &py.clear },
    };
    static const struct { const char *name; uintptr_t fn; } ours[] = {
        { "set_callback_at", (uintptr_t)set_callback },
        { "register_call_at", (uintptr_t)register_call },
        { "register_type_at", (uintptr_t)register_type },
        { "set_writer_at", (uintptr_t)xl_hlo_writer_set },
        { "set_verbose_at", (uintptr_t)set_verbose },
    };
    static xl_mutex once = XL_MUTEX_INIT;
    bool jax = false;
    enum { FILE_INPUT = 257 };
    dl_iterate_phdr(is_jax, &jax);
    if (!jax)
        return;
    xl_mutex_lock(&once);
    for (size_t i = 0; i < sizeof need / sizeof *need; i++) {
        void *sym = dlsym(RTLD_DEFAULT, need[i].name);
        memcpy(need[i].to, &sym, sizeof sym);
        jax = jax && sym;
    }
    xl_mutex_unlock(&once);
    if (!jax || !py.initialized())
        return;
    int state = py.ensure();
    object *m = py.module("_xlane_jax_rules"), *d = m ? py.dict(m) : NULL, *name = py.text(platform), *r = NULL;
    bool ok = d && name && !py.set(d, "platform", name);
    for (size_t i = 0; ok && i < sizeof ours / sizeof *ours; i++) {
        object *at = py.address((void *)ours[i].fn);
        ok = at && !py.set(d, ours[i].name, at);
        if (at)
            py.decref(at);
    }
    if (ok)
        r = py.run(script, FILE_INPUT, d, d);
    if (!r) {
        py.clear();
        XL_LOG(WARN, "JAX could not be told of host callbacks and decompositions: this version of it is not one that "
                     "xlane knows");
    }
    if (r)
        py.decref(r);
    if (name)
        py.decref(name);
    py.release(state);
}
