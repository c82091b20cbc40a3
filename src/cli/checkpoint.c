/* xlane checkpoint: are the checkpoints of a run whole? */
#include "base/file.h"
#include "cli/cli.h"
#include "lane/run.h"
#include "lane/trained.h"
#include "train/ckpt.h"

static xl_error *checkpoint(const xl_cli *cli, int argc, char **argv)
{
    xl_error *err = NULL;
    xl_ckpt_info *all;
    size_t n, bad = 0;
    char *dir;
    xl_buf b = { 0 };
    if (strcmp(argv[0], "verify") || argc != 2)
        return xl_cli_misuse(cli, "checkpoints can be asked to verify: xlane checkpoint verify RUN");
    XL_DO(xl_run_find_trained(cli->arena, argv[1], &dir));
    if (!xl_run_trained(cli->arena, dir))
        return XL_ERR(NOT_FOUND, "%s is not of a training run, so it has no checkpoints; `xlane train` makes one", dir);
    const char *folder = xl_ckpt_folder(cli->arena, dir);
    XL_DO(xl_ckpt_list(cli->arena, folder, &all, &n));
    for (size_t i = 0; i < n; i++)
        bad += all[i].bad != NULL;
    if (cli->json) {
        xl_json j = { .out = &b, .pretty = true };
        xl_json_map(&j);
        xl_json_put_text(&j, "folder", folder);
        xl_json_put_int(&j, "bad", (int64_t)bad);
        xl_json_key(&j, "checkpoints");
        xl_json_list(&j);
        for (size_t i = 0; i < n; i++) {
            xl_json_map(&j);
            xl_json_put_int(&j, "step", all[i].step);
            xl_json_put_text(&j, "file", all[i].path);
            xl_json_put_int(&j, "bytes", (int64_t)all[i].bytes);
            xl_json_put_bool(&j, "committed", all[i].committed);
            xl_json_put_text(&j, "bad", all[i].bad);
            xl_json_end(&j);
        }
        xl_json_end(&j);
        xl_json_end(&j);
    } else {
        for (size_t i = 0; i < n; i++)
            xl_buf_printf(&b, "step %-8lld  %9.1f KiB  %s%s\n", (long long)all[i].step, (double)all[i].bytes / 1024,
                          all[i].bad ? "BAD: " : "whole",
                          all[i].bad         ? all[i].bad
                          : all[i].committed ? ""
                                             : ", but not committed: its marker (.ok) is missing; resume can use it");
        bool gone = !n && xl_trained_saved(cli->arena, dir);
        xl_buf_printf(&b, "%zu checkpoint%s in %s; %zu bad%s\n", n, n == 1 ? "" : "s", folder, bad,
                      bad && bad < n ? "; `xlane resume` takes the newest whole one" : "");
        if (bad == n)                                      /* or there is none */
            xl_buf_printf(&b, "%s: %s\n",
                          n      ? "none of them can be read"
                          : gone ? "those that the run had are gone"
                                 : "none was saved yet",
                          xl_ckpt_remedy(cli->arena, dir, n || gone));
    }
    if (bad || !n)
        xl_cli_exit(cli, XL_EXIT_FAILED);
    return xl_cli_put(&b);
out:
    xl_buf_fini(&b);
    return err;
}

XL_VERB(checkpoint) = {
    .name = "checkpoint",
    .args = "verify RUN",
    .help = "read every checkpoint of a run and compare its tensors with their digests",
    .more =
        "RUN is the folder of a run, its name under ./runs, or `last`. The exit status is 1 when a checkpoint is "
        "damaged or\n"
        "missing, or when there is none.",
    .example = "xlane checkpoint verify last",
    .min = 2,
    .max = 2,
    .run = checkpoint,
};
