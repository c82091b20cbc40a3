/* src/base/yaml.h
 * YAML in (libyaml), into the same tree as JSON; it reads our JSON too. Plain words become null, booleans and numbers
 * as YAML 1.2's core schema says (so `no` and `on` are strings). One document; a key twice in one map is an error,
 * since in a profile it is a mistake. Anchors work, within a bound on what they expand to. */
#ifndef XL_BASE_YAML_H
#define XL_BASE_YAML_H

#include "base/node.h"

enum { XL_YAML_BYTES = 16 << 20, XL_YAML_NODES = 200000 };

/* `file` names the text in messages and is borrowed for the tree's life. An empty text is a null node. */
xl_error *xl_yaml_read(xl_arena *a, const char *file, xl_str text, xl_node **out) XL_MUST_USE;

#endif
