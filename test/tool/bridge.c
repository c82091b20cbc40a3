/* Calls a function that JAX exported from a C graph: prints its receipt, trains w so that f(w, x) fits, prints the
 * losses.
 *     bridge FILE      f takes f32[4], f32[8,4] and gives f32[8] */
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

int main(int argc, char **argv)
{
    xl_exported *f;
    (void)argc;
    TRY(xl_exported_open(argv[1], &f));
    printf("%s\n", xl_exported_receipt(f));
    xl_graph *g = xl_graph_new("bridge");
    xl_tensor w = xl_param(g, "w", "f32[4]", "const 0.5"), x = xl_input(g, "x", "f32[8,4]"),
              y = xl_input(g, "y", "f32[8]"), out;
    xl_call(g, f, "cpu", (xl_tensor[]){ w, x }, 2, &out, 1);
    xl_loss(g, xl_mean(g, xl_square(g, xl_sub(g, out, y)), NULL));
    xl_lane *lane;
    xl_trainer *t;
    TRY(xl_lane_open(NULL, &lane));
    xl_adamw opt = xl_adamw_default();
    opt.lr = 0.05;
    TRY(xl_trainer_new(lane, g, &opt, 1, &t));
    float xs[8][4], ys[8];
    for (int i = 0; i < 8; i++) {
        for (int k = 0; k < 4; k++)
            xs[i][k] = (float)((i * 7 + k * 3) % 5) * 0.5f - 1;
        ys[i] = 0.1f * (float)i;
    }
    xl_feed feed[] = { { "x", xs, sizeof xs }, { "y", ys, sizeof ys } };
    for (int step = 0; step < 3; step++) {
        double loss;
        TRY(xl_trainer_step(t, feed, 2));
        TRY(xl_trainer_read(t, "loss", &loss));
        printf("%.9g\n", loss);
    }
    xl_trainer_free(t);
    xl_lane_close(lane);
    xl_graph_free(g);
    xl_exported_close(f);
    return 0;
}
