/* What training, evaluating and sampling have in common: graphs, the device, its cache. */
#include <stdio.h>
#include <stdlib.h>

#include "base/file.h"
#include "base/log.h"
#include "train/loop.h"

xl_error *xl_setup_graphs(const xl_config *c, const int64_t *times, int n, int64_t batch, xl_setup *s)
{
    if (c->mesh.n) {
        xl_error *err = xl_spread_mesh(&s->arena, &c->mesh, &s->mesh);
        if (err)
            return err;
        s->spread = (xl_spread){ .mesh = &c->mesh, .rule = &c->sharding, .small = s->small, .used = xl_new(&s->arena, bool, c->sharding.n) };
    } else if (c->sharding.n)
        return XL_ERR(INVALID, "%s: sharding needs a mesh; say for example mesh: {data: 2, model: 4}", c->sharding.p[0].where);
    for (int i = 0; i < n; i++) {
        char name[64];
        snprintf(name, sizeof name, "b%lldt%lld", (long long)batch, (long long)times[i]);
        s->g[i] = xl_graph_new(name);
        if (!s->g[i])
            return XL_ERR(EXHAUSTED, "no memory for a graph");
        s->n = i + 1;
        if (s->mesh.naxis) {
            if (xl_graph_mesh_def(s->g[i], &s->mesh))
                s->g[i]->spread = &s->spread;
        }
        s->logits[i] = xl_model_build(s->g[i], &c->model, batch, times[i], &s->why);
        if (s->g[i]->err)
            return XL_ERR(INVALID, "%s", xl_error_message(s->g[i]->err));
        s->g[i]->spread = NULL;
    }
    return s->mesh.naxis ? xl_spread_unused(&s->spread) : NULL;
}

static xl_error *open_cache(const xl_config *c, xl_setup *s)
{
    xl_arena a = { 0 };
    const char *home = getenv("HOME"), *base = getenv("XDG_CACHE_HOME"), *dir = c->cache ? c->cache : getenv("XLANE_CACHE");
    if (!dir || !*dir)
        dir = base && *base ? xl_path_join(&a, base, "xlane") : home && *home ? xl_path_join(&a, home, ".cache/xlane") : NULL;
    xl_error *err = NULL;
    if (dir && strcmp(dir, "none")) {
        err = xl_cache_open(dir, NULL, &s->cache);
        if (err && !c->cache) {          /* nobody asked for it by name: go on without */
            XL_LOG(INFO, "no executable cache: %s", xl_error_message(err));
            xl_error_free(err);
            err = NULL;
        }
    }
    xl_arena_fini(&a);
    return err;
}

xl_error *xl_setup_device(const xl_config *c, xl_setup *s)
{
    xl_error *err = open_cache(c, s);
    if (!err)
        err = xl_lane_open(c->device, &s->lane);
    if (err)
        return err;
    if (s->mesh.naxis) {
        err = xl_lane_spread(s->lane, &s->mesh);
        if (err)
            return xl_error_wrap(err, "%s", c->mesh.p[0].where);
    }
    s->lane->cache = s->cache;
    s->lane->policy = c->policy[0] == 'a' ? XL_POLICY_ALLOW : c->policy[0] == 's' ? XL_POLICY_STOP : XL_POLICY_WARN;
    return NULL;
}

void xl_setup_fini(xl_setup *s)
{
    xl_trainer_free(s->t);
    for (int i = 0; i < s->n; i++)
        xl_graph_free(s->g[i]);
    xl_lane_close(s->lane);
    xl_cache_close(s->cache);
    xl_arena_fini(&s->arena);
    *s = (xl_setup){ 0 };
}

xl_error *xl_run_config(xl_arena *a, const char *dir, char *const *words, int n, xl_config *out)
{
    char *path = xl_path_join(a, dir, "config.yaml");
    if (!xl_file_stat(path, NULL))
        return XL_ERR(NOT_FOUND, "%s has no config.yaml: it is not the folder of a training run", dir);
    return xl_config_read(a, path, words, n, out);
}
