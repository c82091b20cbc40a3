/* src/base/secret.h
 * Redacts what looks like a secret before it is written to a file. One rule for run.json, receipts, events, catalog and
 * cache manifests (docs/trust.md):
 *   - the value of a name that contains such a word: --api-key=V, --api-key V, HF_TOKEN=V, db.password=V;
 *   - the part before the @ in a URL with credentials (https://user:pass@host), and URL parameters with such names;
 *   - well-known forms of tokens anywhere (hf_..., ghp_..., sk-..., AKIA..., xox?-..., eyJ...).
 * The value becomes "(redacted)"; the name is kept, to show that it was given. */
#ifndef XL_BASE_SECRET_H
#define XL_BASE_SECRET_H

#include "base/str.h"

#define XL_REDACTED "(redacted)"

bool xl_secret_name(xl_str name);                          /* TOKEN, KEY, SECRET, PASSWORD, ... as a word of it */
xl_str xl_secret_hide(xl_arena *a, xl_str word); /* one argument or value; unchanged if there is nothing to hide */
xl_str xl_secret_env(xl_arena *a, xl_str name, xl_str value);
/* Argument i of a command line: also the value that follows `--token`. */
xl_str xl_secret_arg(xl_arena *a, int argc, char *const *argv, int i);
xl_str xl_secret_command(xl_arena *a, int argc, char *const *argv); /* all of them, with spaces between */

#endif
