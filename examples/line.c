/* Fit a line: the smallest whole program. The data are y = 3x - 2 with some noise.
 *     cc examples/line.c -Iinclude -Lbuild -lxlane -o line && LD_LIBRARY_PATH=build XLANE_PLUGIN=build/libxlane-cpu.so
 *     ./line */
#include <stdio.h>
#include <stdlib.h>
#include <xlane/xlane.h>

#define TRY(call)                                                                                                      \
    do {                                                                                                               \
        xl_error *e = (call);                                                                                          \
        if (e) {                                                                                                       \
            fprintf(stderr, "%s\n", xl_error_message(e));                                                              \
            return 1;                                                                                                  \
        }                                                                                                              \
    } while (0)
enum { N = 32 };

int main(void)
{
    xl_graph *g = xl_graph_new("line");
    xl_tensor x = xl_input(g, "x", "f32[32]"), y = xl_input(g, "y", "f32[32]");
    xl_tensor w = xl_param(g, "w", "f32[]", "zeros"), b = xl_param(g, "b", "f32[]", "zeros");
    xl_tensor guess = xl_add(g, xl_mul(g, x, w), b);
    xl_loss(g, xl_mean(g, xl_square(g, xl_sub(g, guess, y)), NULL));

    xl_adamw opt = xl_adamw_default();
    opt.lr = 0.1;
    opt.schedule = "cosine";
    opt.steps = 200;
    xl_lane *lane;
    xl_trainer *t;
    TRY(xl_lane_open(NULL, &lane));
    TRY(xl_trainer_new(lane, g, &opt, 1, &t));
    printf("on %s\n", xl_lane_name(lane));

    for (int step = 1; step <= 200; step++) {
        float xs[N], ys[N];
        for (int i = 0; i < N; i++) {
            xs[i] = 2 * (float)rand() / (float)RAND_MAX - 1;
            ys[i] = 3 * xs[i] - 2 + 0.1f * ((float)rand() / (float)RAND_MAX - 0.5f);
        }
        xl_feed feed[] = { { "x", xs, sizeof xs }, { "y", ys, sizeof ys } };
        TRY(xl_trainer_step(t, feed, 2));
        if (step % 50 == 0) {
            double loss;
            TRY(xl_trainer_read(t, "loss", &loss));
            printf("step %3d  loss %.5f\n", step, loss);
        }
    }
    float wv, bv;
    TRY(xl_trainer_get(t, "w", &wv, sizeof wv));
    TRY(xl_trainer_get(t, "b", &bv, sizeof bv));
    printf("y = %.3f x + %.3f\n", wv, bv);
    xl_trainer_free(t);
    xl_lane_close(lane);
    xl_graph_free(g);
    return wv > 2.9f && wv < 3.1f && bv > -2.1f && bv < -1.9f ? 0 : 1;
}
