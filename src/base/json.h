/* src/base/json.h
 * JSON out: a writer that puts the commas, over an xl_buf that the caller owns.
 *     xl_json j = { .out = &buf };
 *     xl_json_map(&j); xl_json_key(&j, "n"); xl_json_int(&j, 3); xl_json_end(&j);      ->  {"n":3}
 * Values that JSON does not have are replaced: nan and infinity by null, bytes that are not UTF-8 by U+FFFD.
 * JSON in: a strict reader (RFC 8259) into an xl_node tree, with the line and column of the first mistake. */
#ifndef XL_BASE_JSON_H
#define XL_BASE_JSON_H

#include "base/node.h"

typedef struct {
    xl_buf *out;
    bool pretty;                   /* two spaces a level, one value a line */
    bool after_key;
    uint16_t depth;
    uint8_t level[XL_NODE_DEPTH];  /* what each open level is and whether it has a member */
} xl_json;

void xl_json_map(xl_json *j);      /* { */
void xl_json_list(xl_json *j);     /* [ */
void xl_json_end(xl_json *j);      /* } or ], whichever is open */
void xl_json_key(xl_json *j, const char *key);
void xl_json_keyn(xl_json *j, xl_str key);
void xl_json_str(xl_json *j, xl_str s);
void xl_json_text(xl_json *j, const char *c); /* NULL: null */
void xl_json_int(xl_json *j, int64_t v);
void xl_json_uint(xl_json *j, uint64_t v);
void xl_json_num(xl_json *j, double v);       /* the shortest text that reads back as v */
void xl_json_bool(xl_json *j, bool v);
void xl_json_null(xl_json *j);
void xl_json_raw(xl_json *j, xl_str json);    /* a value already written */
void xl_json_members(xl_json *j, xl_str map); /* those of a map already written, into the map that is open */
void xl_json_node(xl_json *j, const xl_node *n);

/* A key and its value at once. */
void xl_json_put_str(xl_json *j, const char *key, xl_str s);
void xl_json_put_text(xl_json *j, const char *key, const char *c);
void xl_json_put_int(xl_json *j, const char *key, int64_t v);
void xl_json_put_num(xl_json *j, const char *key, double v);
void xl_json_put_bool(xl_json *j, const char *key, bool v);

/* `file` names the text in messages and is borrowed for the tree's life. */
xl_error *xl_json_read(xl_arena *a, const char *file, xl_str text, xl_node **out) XL_MUST_USE;

#endif
