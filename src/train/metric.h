/* src/train/metric.h
 * What a step reports: a vector of floats, whole on every device. First the loss and its like (step.h), then the
 * graph's metrics (a local one has a number per device), then, on a mesh, how many devices took part: one count for the
 * loss and its like, one for each metric. */
#ifndef XL_TRAIN_METRIC_H
#define XL_TRAIN_METRIC_H

#include "train/step.h"

uint32_t xl_metric_count(const xl_graph *g, xl_step_kind kind);                  /* metrics */
uint32_t xl_metric_slots(const xl_graph *g, xl_step_kind kind);                  /* floats of the vector */
uint32_t xl_metric_at(const xl_graph *g, xl_step_kind kind, uint32_t i);         /* where metric i begins in it */
const char *xl_metric_name(const xl_graph *g, xl_step_kind kind, uint32_t i);
const xl_metric_info *xl_metric_of(const xl_graph *g, xl_step_kind kind, uint32_t i);
int xl_metric_find(const xl_graph *g, xl_step_kind kind, const char *name);      /* -1: there is none */
int64_t xl_metric_expects(const xl_graph *g, uint32_t axes);                     /* participants, by the mesh */
const char *xl_axes_text(const xl_mesh_def *mesh, uint32_t axes, char *out, size_t size); /* "data, model" */
/* Inputs may have been split after a metric was named: is each still reduced over all that splits the batch? */
xl_error *xl_metric_axes(const xl_graph *g) XL_MUST_USE;
/* Did as many devices take part in each reduction as the mesh says? */
xl_error *xl_metric_check(const xl_graph *g, xl_step_kind kind, const float *v) XL_MUST_USE;
/* Refuses a metric that has not been reduced. */
xl_error *xl_metric_global(const xl_graph *g, xl_step_kind kind, uint32_t i) XL_MUST_USE;
xl_value xl_metric_all(xl_graph *g); /* the count over all axes, in the graph */

#endif
