/* src/lane/probe.h
 * The probe: is this lane alive, and if not, which layer fails? A plugin is opened in a child process; a small program
 * with a known result is compiled, run and read back on every addressable device; then the physical memory is queried.
 * A plugin that aborts or hangs is a finding, with the call it was in and its last output. There is no fallback: the
 * probe examines one plugin, and says which and why that one.
 * Call this while no other thread of ours runs (it forks). Everything in the result belongs to the arena. */
#ifndef XL_LANE_PROBE_H
#define XL_LANE_PROBE_H

#include "lane/bundle.h"
#include "lane/holders.h"
#include "pjrt/client.h"

typedef enum {
#define CLASS(name, word, text) XL_PROBE_##name,
#include "lane/probe.def"
} xl_probe_class;
const char *xl_probe_word(xl_probe_class c);   /* "no-device" */
const char *xl_probe_text(xl_probe_class c);   /* one line for people */

typedef struct {
    int id, hardware;
    xl_str kind, text;
    bool right;                 /* compiled, ran and gave the known answer */
    xl_str trouble;             /* why not */
    double compile_s, run_s;
    bool has_memory;
    xl_device_memory memory;
} xl_probe_device;

typedef struct {
    xl_probe_class class;
    xl_str plugin, why;         /* which file, and how it was chosen */
    const char **passed_over;   /* plugins that were found but whose devices are not here */
    size_t npassed_over;
    bool fallback;              /* another plugin was passed over for this one */
    xl_str reason;              /* what went wrong, in the plugin's own words where it had any; empty when healthy */
    xl_str next;                /* the step to take; empty when healthy */
    xl_str stage;               /* the call it ended in: "PJRT_Client_Create" */
    xl_str ended;               /* "ended by signal 6 (Aborted)"; empty where the child ended well */
    xl_str last_words;          /* the end of what the plugin printed */
    xl_str note;                /* something that does not change the class: a crash on closing */
    double seconds;
    xl_str *extension;
    size_t nextension;
    xl_probe_device *device;    /* the addressable ones */
    size_t ndevice;
    size_t nall;                /* devices of the whole job */
    xl_holders holders;         /* others that have the device files open */
    xl_bundle bundle;
} xl_probe;

typedef struct {
    const char *plugin;         /* as xl_plugin_wish.named */
    const char *profile;
    double timeout_s;           /* 0: 60 */
    const xl_named *option;     /* for the client */
    size_t noption;
} xl_probe_opts;

/* Fails only where the probe itself could not be made (no memory for a process); everything else is a class. */
xl_error *xl_probe_run(xl_arena *a, const xl_probe_opts *opts, xl_probe *out) XL_MUST_USE;
void xl_probe_json(xl_json *j, const xl_probe *p);

#endif
