/* src/train/metric.h
 * The metrics of a step: a vector of floats, replicated on every device. First the standard ones, such as the loss
 * (step.h), then the graph's own (a local one has a number per device), then, on a mesh, the number of devices that
 * took part: one count for the standard ones, one for each other metric. */
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
/* Checks that each metric is reduced over all axes that split the batch, inputs being split later perhaps. */
xl_error *xl_metric_axes(const xl_graph *g) XL_MUST_USE;
/* Checks that as many devices took part in each reduction as the mesh has. */
xl_error *xl_metric_check(const xl_graph *g, xl_step_kind kind, const float *v) XL_MUST_USE;
/* Refuses a metric that has not been reduced. */
xl_error *xl_metric_global(const xl_graph *g, xl_step_kind kind, uint32_t i) XL_MUST_USE;
xl_value xl_metric_all(xl_graph *g); /* the count over all axes, in the graph */

#endif
