/* src/base/node.h
 * A JSON or YAML text as a tree. The tree and its strings live in the arena it was read into, and are not changed
 * afterwards. Each node knows its file and line, so that a message about a value can point at it:
 *     xl_error *e = xl_node_err(n, "must be even");      ->  "tpu.yaml:12: cache.size: must be even"
 * The xl_node_get_* functions check the kind and the range of a value. They leave *out unchanged if the key is missing
 * or null, so set the default before. */
#ifndef XL_BASE_NODE_H
#define XL_BASE_NODE_H

#include "base/str.h"

typedef enum {
    XL_NODE_NULL,
    XL_NODE_BOOL,
    XL_NODE_INT,
    XL_NODE_FLOAT,
    XL_NODE_STR,
    XL_NODE_LIST,
    XL_NODE_MAP
} xl_node_kind;

typedef struct xl_node xl_node;
struct xl_node {
    xl_node_kind kind;
    uint32_t line, col;      /* from 1 */
    const char *file;        /* as given to the reader, for messages */
    const xl_node *parent;
    xl_str key;              /* its name, when it sits in a map */
    xl_str s;                /* STR: the text; other scalars: as written */
    bool b;
    int64_t i;               /* INT; also FLOAT's value where that is whole and fits */
    double f;                /* INT and FLOAT */
    xl_node **kid;           /* LIST and MAP, in the order of the text */
    size_t n;
};

enum { XL_NODE_DEPTH = 128 };                                 /* deeper texts are refused */

const xl_node *xl_node_get(const xl_node *map, const char *key); /* NULL: no such key, or not a map, or map is NULL */
const char *xl_node_word(xl_node_kind kind);                  /* "a list" */

/* For files of our own: what is missing, or of another kind, is empty, false or `otherwise`. */
xl_str xl_node_text(const xl_node *map, const char *key); /* a scalar as written; null is empty too */
bool xl_node_is(const xl_node *map, const char *key, const char *word);
bool xl_node_flag(const xl_node *map, const char *key);
int64_t xl_node_int(const xl_node *map, const char *key, int64_t otherwise);
double xl_node_num(const xl_node *map, const char *key, double otherwise);

/* For files of the user's. */

xl_error *xl_node_get_bool(const xl_node *map, const char *key, bool *out) XL_MUST_USE;
xl_error *xl_node_get_int(const xl_node *map, const char *key, int64_t low, int64_t high, int64_t *out) XL_MUST_USE;
xl_error *xl_node_get_float(const xl_node *map, const char *key, double *out) XL_MUST_USE;
xl_error *xl_node_get_str(const xl_node *map, const char *key, xl_str *out) XL_MUST_USE;
xl_error *xl_node_get_size(const xl_node *map, const char *key, uint64_t *out) XL_MUST_USE; /* 4096 or "16MiB" */
/* A key of `map` that is not in the NULL-ended list is an error that proposes the nearest. */
xl_error *xl_node_only(const xl_node *map, const char *const *keys) XL_MUST_USE;
/* "file:line: path.to.key: " and the message. */
xl_error *xl_node_err(const xl_node *n, const char *fmt, ...) XL_PRINTF(2, 3) XL_MUST_USE;

#endif
