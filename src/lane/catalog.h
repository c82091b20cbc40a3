/* src/lane/catalog.h
 * The catalog: which launches were tried, with their outcomes. A launch is identified by its signature; an outcome is
 * one line of JSON, appended to this host's file and never changed. Files of several hosts can be merged by copying
 * them into one folder. A line cut off by a crash is skipped and counted; the next one starts on a line of its own.
 * `rehearsed` means compiled for a device that was not present; it never counts as `ran`. */
#ifndef XL_LANE_CATALOG_H
#define XL_LANE_CATALOG_H

#include "base/hash.h"
#include "base/json.h"

/* What a launch is. Every part is a text, so that two can be compared in words; empty is a value like any other. */
#define XL_SIGNATURE(PART)                                                                             \
    PART(code, "the program, without locations and names")                                            \
    PART(hardware, "device kind and count, or the topology")                                          \
    PART(model, "pattern and sizes, batch and length included")                                       \
    PART(parallelism, "mesh, replicas and partitions")                                                \
    PART(features, "toggles: scan, remat, compute type")                                              \
    PART(bundle, "xlane, plugin and its build")
typedef struct {
#define PART(name, help) xl_str name;
    XL_SIGNATURE(PART)
#undef PART
} xl_signature;
/* The signature as one digest; without `bundle` it says whether two are the same but for the stack. */
xl_digest xl_signature_digest(const xl_signature *s, bool with_bundle);

typedef enum {
    XL_OUTCOME_PREDICTED,
    XL_OUTCOME_REHEARSED,
    XL_OUTCOME_RAN,
    XL_OUTCOME_FAILED,
    XL_OUTCOME_KILLED                            /* a signal ended it: that says nothing of whether it fits */
} xl_outcome;
const char *xl_outcome_word(xl_outcome o);      /* "rehearsed" */

/* Bytes are -1 where they are not known. */
typedef struct {
    xl_signature sig;
    xl_outcome outcome;
    xl_str what;                                /* who says so: "rehearse", "calibrate", "train" */
    xl_str class, message;                      /* of a failure: "E1000", and the text */
    int64_t predicted, compiled, observed, limit, host;
    double flops, seconds;                      /* -1: not known. Seconds of the compile */
    xl_str detail;                              /* JSON of the verb's own, or empty */
    double when;
    xl_str where;                               /* host name */
} xl_catalog_entry;
xl_catalog_entry xl_catalog_blank(void);        /* nothing known */

/* XLANE_CATALOG, else `catalog` in the folder for state. */
char *xl_catalog_dir(xl_arena *a);  /* XLANE_CATALOG, else in xl_home_state(); NULL: there is none */
/* Adds one line; `when` and `where` are filled in. */
xl_error *xl_catalog_add(const char *dir, const xl_catalog_entry *e) XL_MUST_USE;
/* All files of the folder in the order of time. No folder: no entries. `torn` (may be NULL) gets the lines
 * passed over. */
xl_error *xl_catalog_read(xl_arena *a, const char *dir, xl_catalog_entry **out, size_t *n, size_t *torn) XL_MUST_USE;

/* What the catalog knows about a signature, in the order in which candidates are tried. The newest outcome on the same
 * stack counts; one on another stack is only a hint, and leaves it unseen. */
typedef enum { XL_KNOWN_GOOD, XL_UNSEEN, XL_KNOWN_BAD } xl_known;
xl_known xl_catalog_known(const xl_catalog_entry *e, size_t n, const xl_signature *s, const xl_catalog_entry **why);
/* The newest entry that differs from s in the bundle only: what a stack change is compared with. NULL: none. */
const xl_catalog_entry *xl_catalog_before(const xl_catalog_entry *e, size_t n, const xl_signature *s);
/* ---- programs of others, by how they were launched
 * ---------------------------------------------------------------------- */
/* A guarded launch before its programs are known: the command, where it is started, and the flags that hold then. */
typedef struct { int argc; char *const *argv; const char *folder, *flags, *profile; } xl_catalog_launch;
/* The outcome of one attempt of a guarded run, from its folder: of a program that did not compile, else of a step's
 * (lane/verdict.h), else of any; among those, of the one that needs most memory.
 * `first_event` is the number of events before the attempt. False: it compiled nothing. */
bool xl_catalog_of_run(xl_arena *a, const char *dir, size_t first_event, const xl_catalog_launch *l,
                       xl_catalog_entry *out);
/* What the catalog knows about a launch: its newest outcome in the same folder under the same flags, while the plugin's
 * file is the same. */
xl_known xl_catalog_known_launch(xl_arena *a, const xl_catalog_entry *e, size_t n, const xl_catalog_launch *l,
                                 const xl_catalog_entry **why);

void xl_catalog_json(xl_json *j, const xl_catalog_entry *e);

#endif
