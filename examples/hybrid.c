/* A hybrid language model on the bytes of a file: attention, state space, experts and recurrence in one model.
 *     hybrid [FILE [STEPS [SAVE]]]        trains on FILE (this source, unless given), says what it costs per byte, and
 *                                         saves to SAVE if that is given */
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
enum { BATCH = 8, TIME = 64 };

int main(int argc, char **argv)
{
    const char *path = argc > 1 ? argv[1] : __FILE__;
    int steps = argc > 2 ? atoi(argv[2]) : 60;
    FILE *file = fopen(path, "rb");
    static unsigned char text[1 << 20];
    size_t n = file ? fread(text, 1, sizeof text, file) : 0;
    if (n < 2 * TIME) {
        fprintf(stderr, "%s is too short to learn from\n", path);
        return 1;
    }
    fclose(file);

    xl_graph *g = xl_graph_new("hybrid");
    xl_model m = xl_model_default();
    m.pattern = "AMER";
    m.dim = 64;
    xl_model_build(g, &m, BATCH, TIME, NULL);

    xl_adamw opt = xl_adamw_default();
    opt.lr = 5e-3, opt.clip = 1, opt.warmup = 5, opt.steps = steps, opt.schedule = "cosine";
    xl_lane *lane;
    xl_trainer *t;
    TRY(xl_lane_open(NULL, &lane));
    TRY(xl_trainer_new(lane, g, &opt, 1, &t));
    printf("on %s\n", xl_lane_name(lane));

    static int32_t tokens[BATCH][TIME], targets[BATCH][TIME], segments[BATCH][TIME], positions[BATCH][TIME];
    xl_feed feed[] = { { "tokens", tokens, sizeof tokens }, { "targets", targets, sizeof targets },
                       { "segments", segments, sizeof segments }, { "positions", positions, sizeof positions } };
    double first = 0, loss = 0, dropped = 0;
    for (int step = 1; step <= steps; step++) {
        for (int b = 0; b < BATCH; b++) {
            size_t at = (size_t)rand() % (n - TIME - 1);
            for (int i = 0; i < TIME; i++) {
                tokens[b][i] = text[at + (size_t)i];
                targets[b][i] = text[at + (size_t)i + 1];
                segments[b][i] = 1;
                positions[b][i] = i;
            }
        }
        TRY(xl_trainer_step(t, feed, 4));
        if (step == 1 || step % 20 == 0) {
            TRY(xl_trainer_read(t, "nll", &loss));
            TRY(xl_trainer_read(t, "dropped", &dropped));
            first = step == 1 ? loss : first;
            printf("step %3d  %.3f bits per byte, %g tokens found no expert\n", step, loss / 0.6931, dropped);
        }
    }
    if (argc > 3)
        TRY(xl_trainer_save(t, argv[3]));
    xl_trainer_free(t);
    xl_lane_close(lane);
    xl_graph_free(g);
    return loss < 0.8 * first ? 0 : 1;
}
