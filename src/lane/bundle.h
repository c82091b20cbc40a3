/* src/lane/bundle.h
 * The bundle: the versions of everything a lane depends on, so that a result can be explained later and a stack
 * restored. It is collected without opening the plugin; the caller fills in what only the plugin can tell. */
#ifndef XL_LANE_BUNDLE_H
#define XL_LANE_BUNDLE_H

#include "base/json.h"
#include "base/str.h"

typedef struct { xl_str name, version; } xl_package;

typedef struct {
    xl_str plugin, build_id;          /* the file */
    uint64_t plugin_size;
    double plugin_mtime;
    int api_major, api_minor;         /* -1: not known */
    xl_str platform, platform_version;
    xl_str stablehlo_min, stablehlo_now, xla_version;  /* "1.13.7"; empty: the plugin does not say */
    xl_str xlane, machine, kernel, libc, driver;       /* driver: NVIDIA's; empty where there is none */
    xl_str python;                    /* "3.11"; empty where there is none */
    xl_package *package;              /* jax, jaxlib, libtpu, torch, torch_xla … as installed there */
    size_t npackage;
} xl_bundle;

/* plugin may be NULL. Never fails: what cannot be found out is empty. Strings are the arena's. */
void xl_bundle_collect(xl_arena *a, const char *plugin, xl_bundle *out);
void xl_bundle_json(xl_json *j, const xl_bundle *b);       /* one map */

#endif
