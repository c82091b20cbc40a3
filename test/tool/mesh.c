/* The mesh of the C interface: one argument says which case; what happened goes to standard output, a mistake that was
 * found to standard error. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "xlane/xlane.h"

enum { B = 16, D = 8 };

static int fail(const xl_error *e)
{
    fprintf(stderr, "%s\n", xl_error_message(e));
    return 1;
}

/* y = x w by least squares, rows over data, columns of w over model. `how` is the reduction of the metric by row. */
static xl_graph *model(const char *mesh, const char *how)
{
    xl_graph *g = xl_graph_new("fit");
    if (mesh)
        xl_graph_mesh(g, mesh);
    xl_tensor x = xl_input(g, "x", "f32[16,8]"), y = xl_input(g, "y", "f32[16,8]"),
              w = xl_param(g, "w", "f32[8,8]", "normal 0.3");
    if (mesh) {
        x = xl_sharded(g, x, "data, -");
        y = xl_sharded(g, y, "data, -");
        w = xl_sharded(g, w, "-, model");
    }
    xl_tensor d = xl_square(g, xl_sub(g, xl_matmul(g, x, w), y));
    xl_loss(g, xl_mean(g, d, NULL));
    if (how)
        xl_metric_rows(g, "error", how, xl_mean(g, d, "[1]"), XL_NONE);
    return g;
}

static void data(float *x, float *y)
{
    for (int i = 0; i < B * D; i++) {
        x[i] = (float)((i * 37 + 11) % 23) / 23 - 0.5f;
        y[i] = (float)((i * 53 + 7) % 19) / 19 - 0.5f;
    }
}

static int train(xl_lane *l, xl_graph *g, const char *read, int local)
{
    static float x[B * D], y[B * D];
    xl_trainer *t = NULL;
    double v = 0, part[8];
    data(x, y);
    xl_feed feed[] = { { "x", x, sizeof x }, { "y", y, sizeof y } };
    xl_error *e = xl_trainer_new(l, g, NULL, 1, &t);
    for (int i = 0; i < 5 && !e; i++) {
        e = xl_trainer_step(t, feed, 2);
        if (!e)
            e = xl_trainer_read(t, "loss", &v);
        if (!e)
            printf("loss %.9g\n", v);
    }
    if (!e && local) {
        e = xl_trainer_read_local(t, read, part, local);
        for (int i = 0; i < local && !e; i++)
            printf("%s %.9g\n", read, part[i]);
    } else if (!e && read) {
        e = xl_trainer_read(t, read, &v);
        if (!e)
            printf("%s %.9g\n", read, v);
    }
    if (!e && !local && read) {
        e = xl_trainer_eval(t, g, feed, 2, read, &v);
        if (!e)
            printf("eval %s %.9g\n", read, v);
    }
    int rc = e ? fail(e) : 0;
    xl_error_free(e);
    xl_trainer_free(t);
    return rc;
}

int main(int argc, char **argv)
{
    const char *what = argc > 1 ? argv[1] : "";
    const char *mesh = "data=2, model=4";
    xl_lane *l = NULL;
    xl_graph *g = NULL;
    int rc = 0;
    xl_error *e = xl_lane_open(NULL, &l);
    if (e)
        return fail(e);
    if (!strcmp(what, "one"))
        rc = train(l, g = model(NULL, "mean"), "error", 0);
    else if (!strcmp(what, "mesh"))
        rc = train(l, g = model(mesh, "mean over data"), "error", 0);
    else if (!strcmp(what, "local"))
        rc = train(l, g = model(mesh, "local"), "error", 2);
    else if (!strcmp(what, "early read"))
        rc = train(l, g = model(mesh, "local"), "error", 0);
    else if (!strcmp(what, "wrong axis"))
        rc = train(l, g = model(mesh, "mean over model"), "error", 0);
    else if (!strcmp(what, "late in the graph")) {
        g = xl_graph_new("late");
        xl_input(g, "x", "f32[16,8]");
        xl_graph_mesh(g, mesh);
        rc = fail(xl_graph_error(g));
    } else if (!strcmp(what, "late in the process")) {
        xl_graph *first = model(NULL, NULL);
        rc = train(l, first, NULL, 0);
        g = model(mesh, NULL);
        rc = fail(xl_graph_error(g));
        xl_graph_free(first);
    } else if (!strcmp(what, "contradiction")) {
        g = xl_graph_new("c");
        xl_graph_mesh(g, mesh);
        xl_tensor x = xl_input(g, "x", "f32[16,8]");
        xl_sharded(g, x, "data, -");
        xl_sharded(g, x, "-, model");
        rc = fail(xl_graph_error(g));
    } else if (!strcmp(what, "twice")) {
        g = xl_graph_new("t");
        xl_graph_mesh(g, mesh);
        xl_sharded(g, xl_input(g, "x", "f32[16,8]"), "data, data");
        rc = fail(xl_graph_error(g));
    } else if (!strcmp(what, "indivisible")) {
        g = xl_graph_new("i");
        xl_graph_mesh(g, mesh);
        xl_sharded(g, xl_input(g, "x", "f32[16,10]"), "data, model");
        rc = fail(xl_graph_error(g));
    } else if (!strcmp(what, "devices"))
        rc = train(l, g = model("data=4, model=4", NULL), NULL, 0);
    else
        rc = 2;
    xl_graph_free(g);
    xl_lane_close(l);
    return rc;
}
