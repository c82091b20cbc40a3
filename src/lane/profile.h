/* src/lane/profile.h
 * A profile: launch policy in a file. Groups: spmd, cache, shapes, debug, device (profile.def has their keys) and
 * flags, with raw flags for XLA_FLAGS (`xla`), LIBTPU_INIT_ARGS (`libtpu`) and variables (`environment`). A profile may
 * inherit others by name.
 * Names are looked up in ./.xlane/profiles, then in the user's ~/.config/xlane/profiles, then among the built-in ones;
 * a profile that inherits its own name means the next one of that name. The profile overrides the environment: flags
 * are policy, not shell state; overridden values are reported.
 * Everything belongs to the arena given. One thread at a time. */
#ifndef XL_LANE_PROFILE_H
#define XL_LANE_PROFILE_H

#include "base/json.h"
#include "base/str.h"

typedef enum { XL_USE_LANE, XL_USE_CODE, XL_USE_DIAG } xl_setting_use;

typedef struct {
    xl_str name;             /* "spmd.enabled", "flags.libtpu.xla_tpu_x", "flags.environment.NCCL_DEBUG" */
    const char *var;         /* the variable it ends in; NULL: none (arithmetic only) */
    bool flag;               /* one word "--name=value" of that variable */
    xl_str word;             /* then: the flag's name */
    xl_str value;            /* as the runtime reads it; empty: the runtime's own default */
    xl_str origin;           /* "tpu.yaml:12", "built-in tpu.yaml:12", "environment", "default" */
    xl_str shadow;           /* what the environment said and does not count; empty: nothing else */
    bool bytes;              /* the value is a size in bytes */
    bool unread;             /* a flag that the device does not read, so that it does nothing */
    xl_setting_use use;
} xl_setting;
bool xl_setting_diagnoses(const xl_setting *s);            /* a debug setting that is on: it costs time */
xl_str xl_setting_words(xl_arena *a, const xl_setting *s); /* "JAX_LOG_COMPILES=1", "--xla_dump_to=x in XLA_FLAGS" */

typedef struct {
    xl_str name, file, about;
    bool declared;           /* a file of it says that it is diagnostic */
    bool diagnostic;         /* that, or a debug setting is on */
    xl_str *chain;           /* the files it is made of, the first inherited first */
    size_t nchain;
    xl_setting *set;
    size_t n;
    char digest[17];         /* of what changes the compiled code; "none" where it says nothing of that */
} xl_profile;

typedef struct { xl_str name, file, about; bool diagnostic; const char *where; xl_str bad; } xl_profile_row;

/* Those there are, the ones hidden by another of the same name left out; `bad` says why one cannot be read. */
xl_error *xl_profile_list(xl_arena *a, xl_profile_row **out, size_t *n) XL_MUST_USE;
/* What the profile's files say. `name` may be a path. */
xl_error *xl_profile_load(xl_arena *a, const char *name, xl_profile *out) XL_MUST_USE;
/* INVALID: it is the name of none, with those there are. A path is opened later. */
xl_error *xl_profile_named(xl_arena *a, const char *name) XL_MUST_USE;
/* What will hold: the profile, the rest of the environment, the defaults. NULL name: no profile at all. */
xl_error *xl_profile_effective(xl_arena *a, const char *name, xl_profile *out) XL_MUST_USE;
/* The flags of XLA_FLAGS and LIBTPU_INIT_ARGS count where the device reads them: which kind it is, as of
 * xl_plugin_kind; NULL: not known, so all count. An effective profile has been told the kind it names itself. */
void xl_profile_device(xl_profile *p, const char *kind);
const xl_setting *xl_profile_get(const xl_profile *p, const char *name);   /* NULL: not set */

/* Puts an effective profile into this process's environment, with XLANE_PROFILE=name@digest. Fails, and changes
 * nothing, where the runtime is up already, or where the host could not hold the buffers it asks for. */
xl_error *xl_profile_apply(xl_arena *a, const xl_profile *p) XL_MUST_USE;

/* The same without looking at this host's memory: for a compile for other machines. */
xl_error *xl_profile_set(xl_arena *a, const xl_profile *p) XL_MUST_USE;

/* The host's memory against what the profile wants of it. */
typedef struct { uint64_t premapped, loader, headroom, host; } xl_host_budget;
xl_error *xl_profile_budget(xl_arena *a, const xl_profile *p,
                            xl_host_budget *out) XL_MUST_USE; /* the error is the refusal */

/* The plugin's file that the profile's own lines name: is it there, and a plugin of this machine? The error names the
 * line. A word (tpu, cuda) is none: the program may find that plugin in a Python of its own. */
xl_error *xl_profile_plugin(xl_arena *a, const xl_profile *p) XL_MUST_USE;

/* jaxlib's own XLA in the Python of the environment: it is loaded whatever the plugin is, and reads XLA_FLAGS. NULL:
 * none is installed. */
const char *xl_profile_frontend(xl_arena *a);

typedef struct { bool fatal, flag; xl_str text; } xl_finding; /* flag: one that XLA would end the process at */
/* What is wrong with an effective profile. `library`: files whose strings tell the flags they know (plugin, then the
 * frontend's own XLA for XLA_FLAGS); may be none. */
xl_error *xl_profile_check(xl_arena *a, const xl_profile *p, const char *plugin, const char *frontend, xl_finding **out,
                           size_t *n) XL_MUST_USE;

typedef struct { xl_str name, before, after, before_origin, after_origin; } xl_profile_change;
void xl_profile_diff(xl_arena *a, const xl_profile *x, const xl_profile *y, xl_profile_change **out, size_t *n);

void xl_profile_json(xl_json *j, const xl_profile *p);     /* one map */

#endif
