/* src/train/spread.h
 * How a model is sharded over a mesh: rules by tensor name. The default rules (the table in spread.c) say which axis
 * splits what; a configuration can override them by name or pattern. Parameters, inputs and a few activations
 * ("residual", "logits", "experts") have names.
 *   data    the batch           seq     time                 model   heads, ffn, vocabulary, channels          expert
 *   the experts of E blocks
 * An axis that the mesh does not have splits nothing. */
#ifndef XL_TRAIN_SPREAD_H
#define XL_TRAIN_SPREAD_H

#include "train/graph.h"

typedef struct {
    xl_str key, value;
    const char *where;
} xl_pair; /* of a configuration: where is "conf.yaml:12", or the word itself */
typedef struct { xl_pair *p; uint32_t n, cap; } xl_pairs;

struct xl_spread {
    const xl_pairs *mesh, *rule;         /* both may be NULL: for messages, and the rules that override the defaults */
    bool small; /* sampling: dimensions that the axes do not divide are not split */
    bool *used;                          /* per rule: it matched something */
};

/* The mesh of a configuration. Errors about an axis or its size name the line. */
xl_error *xl_spread_mesh(xl_arena *a, const xl_pairs *axes, xl_mesh_def *out) XL_MUST_USE;
/* The sharding of a tensor by g->spread; `said` is set to where it was given. False: the graph has the error. */
bool xl_spread_of(xl_graph *g, xl_str name, xl_dims dims, bool batch, xl_mesh_spec *out, const char **said);
/* Shards an activation by its name. */
xl_tensor xl_spread_act(xl_graph *g, const char *name, xl_tensor t);
/* A rule that matched nothing is an error: a misspelt name would silently leave a tensor unsplit. */
xl_error *xl_spread_unused(const xl_spread *s) XL_MUST_USE;
bool xl_glob(xl_str pattern, xl_str text);   /* * is anything, ? is one letter */

#endif
