/* A batch with a NaN in it: the step is left out inside the program, counted, and training goes on as if it had not
 * been. */
#include <math.h>
#include <stdio.h>
#include <xlane/xlane.h>

#define TRY(call)                                                                                                      \
    do {                                                                                                               \
        xl_error *e = (call);                                                                                          \
        if (e) {                                                                                                       \
            fprintf(stderr, "%s\n", xl_error_message(e));                                                              \
            return 1;                                                                                                  \
        }                                                                                                              \
    } while (0)

static xl_error *train(xl_lane *lane, xl_graph *g, int bad_at, float *w, double *skipped)
{
    xl_adamw opt = xl_adamw_default();
    opt.lr = 0.1;
    xl_trainer *t;
    xl_error *e = xl_trainer_new(lane, g, &opt, 1, &t);
    for (int step = 0; !e && step < 20 + (bad_at >= 0); step++) {
        float x[4] = { 1, 2, 3, 4 }, y[4] = { 2, 4, 6, 8 };
        if (step == bad_at)
            x[2] = NAN;
        xl_feed feed[] = { { "x", x, sizeof x }, { "y", y, sizeof y } };
        e = xl_trainer_step(t, feed, 2);
    }
    if (!e)
        e = xl_trainer_read(t, "skipped", skipped);
    if (!e)
        e = xl_trainer_get(t, "w", w, sizeof *w);
    if (!e)
        xl_trainer_free(t);
    return e;
}

int main(void)
{
    xl_graph *g = xl_graph_new("nan");
    xl_tensor x = xl_input(g, "x", "f32[4]"), y = xl_input(g, "y", "f32[4]"), w = xl_param(g, "w", "f32[]", "zeros");
    xl_loss(g, xl_mean(g, xl_square(g, xl_sub(g, xl_mul(g, x, w), y)), NULL));
    xl_lane *lane;
    float clean, hit;
    double none, one;
    TRY(xl_lane_open(NULL, &lane));
    TRY(train(lane, g, -1, &clean, &none));
    TRY(train(lane, g, 7, &hit, &one));
    printf("%.9g %.9g %g %g\n", clean, hit, none, one);
    xl_lane_close(lane);
    xl_graph_free(g);
    return clean == hit && none == 0 && one == 1 ? 0 : 1;
}
