/* src/cli/capture.h: shared by the verbs that read a capture. */
#ifndef XL_CLI_CAPTURE_H
#define XL_CLI_CAPTURE_H

#include "cli/cli.h"
#include "lane/play.h"

/* Reads the capture `what` (a file, or a RUN that has one). If `p` is given, also opens a plugin for its devices:
 * `plugin`, or the one it was captured with. The caller closes both. */
xl_error *xl_cli_capture(const xl_cli *cli, const char *what, const char *plugin, xl_capture *c,
                         xl_play *p) XL_MUST_USE;
void xl_cli_about_capture(const xl_capture *c, xl_buf *out);        /* a line */
const char *xl_cli_shape(xl_arena *a, const xl_cap_part *t);        /* "f32[8,16]" */
const char *xl_cli_element(xl_arena *a, xl_dims dims, uint64_t i);  /* "[3,4]" */

#endif
