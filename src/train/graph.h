/* src/train/graph.h
 * The inside of an xl_graph, for the rest of train/. The graph's function has the inputs and parameters as arguments,
 * in the order in which they were declared, and no RETURN: programs are built by copying its body into others. */
#ifndef XL_TRAIN_GRAPH_H
#define XL_TRAIN_GRAPH_H

#define XL_NO_LOCATIONS
#include "pass/emit.h"
#include "pass/mesh.h"
#include "xlane/xlane.h"

typedef enum { XL_HOW_MEAN, XL_HOW_SUM, XL_HOW_MAX, XL_HOW_LOCAL } xl_metric_how;

typedef struct {
    xl_str name;
    const xl_type *type;
    xl_value arg;                        /* in the graph's function */
    enum { XL_INIT_CONST, XL_INIT_NORMAL, XL_INIT_UNIFORM } init;
    double scale;
    bool matrix; /* two dimensions or more (not counting that of a scan): decays, and is used as g->compute */
    xl_mesh_spec spec;                   /* of the optimizer's state too */
    const char *said;                    /* where the sharding was given; NULL: nowhere */
} xl_param_info;

typedef struct { xl_str name; const xl_type *type; xl_value arg; xl_mesh_spec spec; const char *said; } xl_input_info;
typedef struct {
    xl_str name;
    xl_metric_how how;
    xl_value value, count;               /* count: on a mesh, of the devices that took part */
    uint32_t axes;                       /* a bit per axis of the mesh that it is reduced over, or local along */
    uint32_t width;                      /* numbers: one, or one per device of a local one */
    bool rows;                           /* the reduction is ours, with the count in the same collective */
} xl_metric_info;

/* How tensors and activations are split over the mesh; see spread.h. */
typedef struct xl_spread xl_spread;

/* An external function that the graph calls: what a platform must offer for it. */
typedef struct { const char *what, **custom, **platform; uint32_t ncustom, nplatform; } xl_foreign;

struct xl_graph {
    xl_module *m;
    xl_func *f;
    xl_emit e;
    xl_error *err;
    xl_str name;
    xl_dtype compute;
    xl_param_info *param;
    xl_input_info *input;
    xl_metric_info *metric;
    uint32_t nparam, capparam, ninput, capinput, nmetric, capmetric;
    xl_value loss;
    const char *file;
    int line;
    const char *last_file;               /* the location of the last call, made once per line */
    int last_line;
    uint32_t remat_from;                 /* first op of the open group, UINT32_MAX when none is open */
    int64_t ngroup;
    uint32_t depth;                      /* of scans that are open */
    xl_foreign *foreign;
    uint32_t nforeign, capforeign;
    xl_mesh_def mesh;                    /* naxis 0: one device */
    enum {
        XL_PLANT_NONE,
        XL_PLANT_LOCAL,
        XL_PLANT_READ,
        XL_PLANT_GROUP,
        XL_PLANT_CANARY
    } plant; /* a deliberate mistake in the metrics by row or the canary, to test that it is caught */
    xl_value parts;                      /* with a mesh: f32 of its shape, a one from each device */
    bool gpu;                            /* for a backend whose scatter is atomic, and whose gather is cheap */
    bool layers_loop;                    /* its layers are a loop: see xl_lane_compile */
    bool triton;                         /* with our own kernels for norms and the loss (pass/triton.h) */
    const xl_spread
        *spread; /* decides the sharding of each argument; NULL: not split unless xl_sharded is called */
};

/* Declares, once, that the graph needs these custom calls of CUDA. `what` is a literal. */
void xl_graph_foreign(xl_graph *g, const char *what, const char *const *custom, uint32_t n);

static inline xl_value xl_val_of(xl_tensor t) { return (xl_value){ t.id }; }
static inline xl_tensor xl_tensor_of(xl_value v) { return (xl_tensor){ v.id }; }
#define XL_RMSNORM_EPS 1e-6
#define XL_NO_TENSOR ((xl_tensor){ UINT32_MAX })
enum { XL_DIMS_MAX = 16 };

/* Sets the sticky error, with the caller's line, unless there is one already. */
xl_tensor xl_graph_fail(xl_graph *g, const char *fmt, ...) XL_PRINTF(2, 3);
bool xl_graph_ok(xl_graph *g, const char *op, const xl_tensor *t, int n); /* no error yet, and these belong to g */
static inline const xl_type *xl_graph_type(const xl_graph *g, xl_tensor t) { return xl_value_type(g->f, xl_val_of(t)); }
/* The public functions with dimensions as numbers. */
xl_tensor xl_input_dims(xl_graph *g, const char *name, xl_dtype d, xl_dims dims);
xl_tensor xl_param_dims(xl_graph *g, const char *name, xl_dims dims, const char *init); /* f32; used as g->compute */
xl_tensor xl_param_rows(xl_graph *g, const char *name, xl_dims dims,
                        const char *init); /* the first dimension is that of a scan */
xl_tensor xl_reshape_dims(xl_graph *g, xl_tensor a, xl_dims dims);
xl_tensor xl_transpose_dims(xl_graph *g, xl_tensor a, xl_dims perm);
xl_tensor xl_broadcast_dims(xl_graph *g, xl_tensor a, xl_dims dims);
xl_tensor xl_dot_dims(xl_graph *g, xl_tensor a, xl_tensor b, xl_dims abatch, xl_dims bbatch, xl_dims ac, xl_dims bc,
                      xl_dtype out);
xl_tensor xl_cast_to(xl_graph *g, xl_tensor a, xl_dtype d);
xl_tensor xl_const_of(xl_graph *g, xl_dtype d, xl_dims dims, double v);
xl_tensor xl_iota_of(xl_graph *g, xl_dtype d, xl_dims dims, int dim);
xl_tensor xl_gather_rows(xl_graph *g, xl_tensor table, xl_tensor ids); /* ids of any shape; rows of a[n, ...] */
/* sdy.sharding_constraint; and xl_graph_mesh with a mesh that was read elsewhere. */
xl_value xl_constrain(xl_graph *g, xl_value v, const xl_mesh_spec *spec);
bool xl_graph_mesh_def(xl_graph *g, const xl_mesh_def *mesh);
const xl_param_info *xl_graph_param(const xl_graph *g, xl_str name);
const xl_input_info *xl_graph_input(const xl_graph *g, xl_str name);
/* A module that contains only *f, for printing, hashing and compiling. It borrows everything. */
xl_module xl_graph_view(const xl_graph *g, xl_func **f);
/* A new function that is not yet in the module. */
xl_func *xl_graph_func(xl_graph *g, const char *name);

#endif
