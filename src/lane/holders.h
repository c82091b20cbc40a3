/* src/lane/holders.h
 * Who has a device open? Reads /proc/<pid>/fd. Only root can examine processes of other users: the number of processes
 * that could not be examined is reported, so that "nobody" is never claimed on half the evidence. */
#ifndef XL_LANE_HOLDERS_H
#define XL_LANE_HOLDERS_H

#include "base/str.h"

typedef struct { int pid; xl_str command, device; } xl_holder;
typedef struct {
    xl_holder *holder;       /* one row per process and device, without this process and its children */
    size_t n;
    size_t nhidden;          /* processes that could not be looked into */
    size_t ndevice;          /* device files that exist */
    bool exclusive;          /* the devices serve one process at a time */
} xl_holders;

/* The device files of a kind of plugin ("tpu", "cuda", "rocm"; NULL: all of these). XLANE_PROBE_DEVICES, a list of
 * patterns with colons between, takes their place. */
void xl_holders_find(xl_arena *a, const char *kind, xl_holders *out);

#endif
