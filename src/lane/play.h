/* src/lane/play.h
 * Executes captured programs: opens a plugin with a given number of devices, compiles a program with the options it was
 * captured with, and transfers tensors between host memory and devices. Output tensors own their bytes (xl_play_drop).
 * One thread. */
#ifndef XL_LANE_PLAY_H
#define XL_LANE_PLAY_H

#include "lane/capture.h"

typedef struct { xl_client *client; const char *path; int64_t devices; } xl_play;

typedef struct {
    xl_program *prog;
    const xl_device *const *dev;                           /* in the order of the rows */
    size_t ndevice, nout;
    double seconds;                                        /* of the compile */
    int64_t needs; /* bytes on a device by the compiler's figures; -1: not told */
} xl_played;

/* How many devices these compile options ask for. */
xl_error *xl_play_devices(xl_arena *a, xl_str options, int64_t *replicas, int64_t *partitions) XL_MUST_USE;
/* Loads and starts the plugin. The embedded device is told to show so many devices, which works once in a process. */
xl_error *xl_play_open(xl_arena *a, const char *plugin, int64_t devices, xl_play *out) XL_MUST_USE;
void xl_play_close(xl_play *p);
/* Devices of the captured process that are not here are replaced by the plugin's default order. */
xl_error *xl_play_compile(const xl_play *p, xl_arena *a, xl_str code, xl_format format, xl_str options,
                          xl_played *out) XL_MUST_USE;
void xl_played_free(xl_played *p);
/* in: [ndevice][narg] with bytes; out: [ndevice][nout], filled in. Waits. */
xl_error *xl_play_run(const xl_played *p, const xl_cap_part *in, uint32_t narg, const int64_t *keep, size_t nkeep,
                      xl_cap_part *out, double *seconds) XL_MUST_USE;
void xl_play_drop(xl_cap_part *part, size_t n);

/* Joins the captures of the other ranks to that of one, in the order of the program's devices: *c then has the inputs
 * and outputs of all of them. Takes the others over. */
xl_error *xl_play_join(xl_arena *a, xl_capture *c, xl_capture *other, uint32_t n) XL_MUST_USE;

/* The inputs of the captured step ([ndevice][narg], bytes of the capture or of the arena): as they are, or computed
 * forward from earlier inputs. `compared` results that were recorded on the way, `equal` of them bit for bit. */
typedef struct { uint32_t steps, compared, equal; } xl_forward;
xl_error *xl_play_inputs(const xl_play *p, xl_arena *a, const xl_capture *c, const xl_cap_part **in,
                         xl_forward *f) XL_MUST_USE;
void xl_forward_text(const xl_forward *f, xl_buf *out);    /* a sentence: exact, verified or not */

#endif
