/* An MLP that reads digits, which the program draws itself: seven-segment figures, moved about, with noise. */
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
enum { BATCH = 64, SIDE = 16, PIXELS = SIDE * SIDE };

static float noise(void) { return (float)rand() / (float)RAND_MAX; }

static void draw(int digit, float *px)
{
    /* the segments: top, left, right, middle, ... */
    static const unsigned char lit[10] = { 0x77, 0x24, 0x5d, 0x6d, 0x2e, 0x6b, 0x7b, 0x25, 0x7f, 0x6f };
    int dx = rand() % 5, dy = rand() % 3;
    for (int i = 0; i < PIXELS; i++)
        px[i] = 0.3f * noise();
    for (int s = 0; s < 7; s++) {
        if (!(lit[digit] >> s & 1))
            continue;
        int flat = s == 0 || s == 3 || s == 6, x = dx + 2 + (s == 2 || s == 5 ? 6 : 0);
        int y = dy + 1 + (s > 3 ? 6 : 0) + (s == 3 || s == 6 ? 6 : 0);
        for (int k = 0; k < 7; k++)
            px[(flat ? y : y + k) * SIDE + (flat ? x + k : x)] += 0.7f;
    }
}

static xl_graph *model(void)
{
    xl_graph *g = xl_graph_new("digits");
    xl_tensor x = xl_input(g, "pixels", "f32[64,256]"), y = xl_input(g, "digit", "i32[64]");
    xl_tensor w1 = xl_param(g, "w1", "f32[256,128]", "normal 0.06"), b1 = xl_param(g, "b1", "f32[128]", "zeros");
    xl_tensor w2 = xl_param(g, "w2", "f32[128,10]", "normal 0.09"), b2 = xl_param(g, "b2", "f32[10]", "zeros");
    xl_tensor h = xl_relu(g, xl_add(g, xl_matmul(g, x, w1), b1));
    xl_tensor logits = xl_add(g, xl_matmul(g, h, w2), b2);
    /* right: the label's probability is the largest */
    xl_tensor prob = xl_exp(g, xl_neg(g, xl_cross_entropy(g, logits, y)));
    xl_tensor top = xl_max(g, xl_softmax(g, logits), "[1]");
    xl_tensor right = xl_where(g, xl_compare(g, prob, ">=", xl_scale(g, top, 0.9999)), xl_const(g, "f32[]", 1),
                               xl_const(g, "f32[]", 0));
    xl_metric(g, "right", "mean", xl_mean(g, right, NULL));
    xl_loss(g, xl_mean(g, xl_cross_entropy(g, logits, y), NULL));
    return g;
}

int main(void)
{
    xl_graph *g = model();
    xl_adamw opt = xl_adamw_default();
    opt.schedule = "cosine", opt.steps = 300, opt.warmup = 10, opt.lr = 3e-3;
    xl_lane *lane;
    xl_trainer *t;
    TRY(xl_lane_open(NULL, &lane));
    TRY(xl_trainer_new(lane, g, &opt, 1, &t));
    static float px[BATCH][PIXELS];
    int label[BATCH];
    xl_feed feed[] = { { "pixels", px, sizeof px }, { "digit", label, sizeof label } };
    double right = 0, loss;
    for (int step = 1; step <= 300; step++) {
        for (int i = 0; i < BATCH; i++)
            draw(label[i] = rand() % 10, px[i]);
        TRY(xl_trainer_step(t, feed, 2));
        if (step % 100 == 0) {
            TRY(xl_trainer_read(t, "loss", &loss));
            TRY(xl_trainer_read(t, "right", &right));
            printf("step %d  loss %.4f  right %.1f %%\n", step, loss, 100 * right);
        }
    }
    xl_trainer_free(t);
    xl_lane_close(lane);
    xl_graph_free(g);
    return right > 0.9 ? 0 : 1;
}
