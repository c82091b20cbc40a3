/* src/train/spread.h
 * How a model is spread over a mesh: rules by tensor name. A model's own rules (the table in spread.c) say which axis
 * splits what; a configuration can say otherwise by name or pattern. Parameters, inputs and a few activations
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
    const xl_pairs *mesh, *rule;         /* both may be NULL: for messages, and the rules that win over the model's */
    bool small; /* a batch that the axes need not divide (sampling): what does not divide stays whole */
    bool *used;                          /* per rule: it matched something */
};

/* The mesh of a configuration; an axis that is no number, an impossible size: with the line. */
xl_error *xl_spread_mesh(xl_arena *a, const xl_pairs *axes, xl_mesh_def *out) XL_MUST_USE;
/* The split of a tensor by g->spread. False: the graph has the error. `said` becomes where it was said. */
bool xl_spread_of(xl_graph *g, xl_str name, xl_dims dims, bool batch, xl_mesh_spec *out, const char **said);
/* An activation by its name, as the rules say. */
xl_tensor xl_spread_act(xl_graph *g, const char *name, xl_tensor t);
/* Rules that matched nothing are an error: a misspelt name would leave a tensor whole in silence. */
xl_error *xl_spread_unused(const xl_spread *s) XL_MUST_USE;
bool xl_glob(xl_str pattern, xl_str text);   /* * is anything, ? is one letter */

#endif
