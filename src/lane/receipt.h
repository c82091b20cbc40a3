/* src/lane/receipt.h
 * A receipt: what a run or ladder proved, with which versions, and how long that holds. It is about viability, never
 * quality; it separates what was rehearsed from what ran; and its checksum reveals an edit. It is written once and
 * never overwritten. One thread at a time. */
#ifndef XL_LANE_RECEIPT_H
#define XL_LANE_RECEIPT_H

#include "base/json.h"
#include "base/str.h"

typedef struct { const char *text, *source; } xl_receipt_note;

typedef struct {
    bool seen;
    int64_t compiled, loaded, executed;
} xl_receipt_pass; /* not seen: the figures say nothing */
typedef struct { const char *name, *verdict, *layer; xl_str why; xl_receipt_pass cold, restored; } xl_receipt_rung;

typedef struct {
    const char *kind;            /* "run", "ladder", "train", "rehearse" */
    const char *dir;             /* the run's folder, for counters and notes; NULL: none */
    int argc;
    char **argv;                 /* the command */
    int status;                  /* its exit status */
    const char *yet;             /* what a status other than 0 means that is no failure; NULL: it is one */
    const char *plugin;          /* NULL: as the run's events say */
    const char *cache;           /* NULL: none */
    const char *first_passing;   /* rungs; NULL: none was asked for */
    const char *next_failing;
    const xl_receipt_rung *rung; /* those that were tried or skipped, with what was seen in each pass */
    size_t nrung;
    const char *devices;         /* which answered, where the caller knows; NULL: as the run's events say */
    int64_t executed;            /* steps or executions, where the caller counted them; 0: as the run's counters say */
    bool rehearsed;              /* compiled for a device that was not there: never said to have run */
    const char *topology;        /* rehearsed for; NULL */
    const xl_receipt_note *note; /* besides those of the run's events */
    size_t nnote;
} xl_receipt_facts;

/* Writes `path` (NULL: receipt.json in the run's folder). EXISTS where there is one already. */
xl_error *xl_receipt_write(xl_arena *a, const xl_receipt_facts *f, const char *path) XL_MUST_USE;
bool xl_receipt_name(xl_str name);           /* receipt.json, or one of a run that was resumed */
/* Of a run's folder the newest whose run did something, else the newest; receipt.json where there is none. */
const char *xl_receipt_newest(xl_arena *a, const char *dir);
/* Reads one, or the newest of a folder. DATA_LOSS when its checksum does not fit; *out is then still what it
 * says. */
xl_error *xl_receipt_read(xl_arena *a, const char *path, xl_node **out) XL_MUST_USE;

/* What it proved, in words: "it ran, so it works here; ...". */
xl_str xl_receipt_words(xl_arena *a, const xl_node *receipt);

/* The checksum of a JSON map without its member "checksum": for receipts and locks. */
bool xl_sealed_check(const xl_node *root);
/* Writes {…body…,"checksum":…}; `body` is one complete map. */
xl_error *xl_sealed_write(xl_arena *a, const char *path, xl_str body, bool fresh) XL_MUST_USE;

typedef struct { xl_str name, before, after; } xl_node_change;
/* Leaves that differ between two trees, by dotted path; lists of maps with a "name" or "fact" are matched by it. */
void xl_node_changes(xl_arena *a, const xl_node *x, const xl_node *y, xl_node_change **out, size_t *n);

#endif
