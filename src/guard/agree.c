/* Programs whose devices belong to several processes. Compiling them is collective on some plugins: a rank that
 * compiled while another loaded would wait for ever. So all load or all compile, and that is decided through the
 * key-value callbacks that the frontend gave the plugin.
 *
 * A question ("do you all have it?") has a vote of each rank and one verdict. Everybody writes a vote; the lowest rank
 * reads them all and writes the verdict; the others wait for it. A store whose keys cannot be overwritten makes the
 * verdict final: who has waited too long writes "no" itself, and either that is the verdict, or there was one already
 * and that one counts. A store that overwrites is of no use for this, and the cache steps aside. */
#include <stdio.h>
#include <stdlib.h>

#include "base/time.h"
#include "guard/guard.h"

enum { AGREE_KEY = 200 };
static const double margin = 5; /* seconds that the others wait longer than the rank that counts votes */

/* ---- the frontend's store ---- */
static guard_store *store_of(guard_state *g, PJRT_Client *client)
{
    guard_store *found = NULL;
    xl_mutex_lock(&g->client_lock);
    for (uint32_t i = 0; i < GUARD_STORES && !found; i++)
        if (g->store[i].client == client)
            found = &g->store[i];
    xl_mutex_unlock(&g->client_lock);
    return found;
}

void guard_store_add(guard_state *g, const PJRT_Client_Create_Args *a)
{
    if (!a->kv_get_callback || !a->kv_put_callback)
        return;
    xl_mutex_lock(&g->client_lock);
    for (uint32_t i = 0; i < GUARD_STORES; i++)
        if (!g->store[i].client) {
            g->store[i] = (guard_store){ a->client, a->kv_get_callback, a->kv_get_user_arg, a->kv_put_callback,
                                        a->kv_put_user_arg };
            break;
        }
    xl_mutex_unlock(&g->client_lock);
}

void guard_store_drop(guard_state *g, PJRT_Client *client)
{
    guard_store *s = store_of(g, client);
    if (s)
        s->client = NULL;
}

static PJRT_Error *make_error(PJRT_Error_Code code, const char *message, size_t n)
{
    return guard_error(code, (xl_str){ message, n });
}
static PJRT_CallbackError make = make_error;

static bool put_bytes(const guard_plugin *p, const guard_store *s, const char *key, xl_str value)
{
    PJRT_KeyValuePutCallback_Args a = { .struct_size = sizeof a,
                                        .key = key,
                                        .key_size = strlen(key),
                                        .value = value.p,
                                        .value_size = value.n,
                                        .callback_error = &make,
                                        .user_arg = s->put_arg };
    PJRT_Error *err = s->put(&a);
    if (err)
        p->table->PJRT_Error_Destroy(
            &(PJRT_Error_Destroy_Args){ .struct_size = sizeof(PJRT_Error_Destroy_Args), .error = err });
    return !err;
}

static bool put(const guard_plugin *p, const guard_store *s, const char *key, const char *value)
{
    return put_bytes(p, s, key, xl_str_of(value));
}

/* False: nothing came within the time. */
static bool get_bytes(const guard_plugin *p, const guard_store *s, const char *key, double seconds, xl_buf *out)
{
    PJRT_KeyValueGetCallback_Args a = { .struct_size = sizeof a,
                                        .key = key,
                                        .key_size = strlen(key),
                                        .callback_error = &make,
                                        .user_arg = s->get_arg,
                                        .timeout_in_ms = seconds > 0.001 ? (int)(seconds * 1000) : 1 };
    PJRT_Error *err = s->get(&a);
    if (err) {
        p->table->PJRT_Error_Destroy(
            &(PJRT_Error_Destroy_Args){ .struct_size = sizeof(PJRT_Error_Destroy_Args), .error = err });
        return false;
    }
    xl_buf_add(out, a.value, a.value_size);
    if (a.value_deleter_callback && a.value)
        a.value_deleter_callback(a.value);
    return !out->failed;
}

/* "yes": 1, something else: 0, nothing within the time: -1. */
static int get(const guard_plugin *p, const guard_store *s, const char *key, double seconds)
{
    xl_buf value = { 0 };
    int yes = get_bytes(p, s, key, seconds, &value) ? xl_str_is(xl_buf_view(&value), "yes") : -1;
    xl_buf_fini(&value);
    return yes;
}

bool guard_store_put(guard_plugin *p, PJRT_Client *client, const char *key, xl_str value)
{
    guard_state *g = p->g;
    guard_store *s = store_of(g, client);
    return s && put_bytes(p, s, key, value);
}

bool guard_store_get(guard_plugin *p, PJRT_Client *client, const char *key, double seconds, xl_buf *out)
{
    guard_state *g = p->g;
    guard_store *s = store_of(g, client);
    return s && get_bytes(p, s, key, seconds, out);
}

bool guard_has_store(guard_state *g, PJRT_Client *client) { return store_of(g, client); }

/* Whether the client has a store, and one that keeps what was written first. */
const char *guard_cannot_agree(guard_plugin *p, PJRT_Client *client, int rank)
{
    guard_state *g = p->g;
    guard_store *s = store_of(g, client);
    if (!s)
        return "its devices span processes, which compile together, and the frontend gave no key-value store to agree "
               "by";
    xl_mutex_lock(&g->agree_lock);
    if (!s->tried) {
        char key[64];
        snprintf(key, sizeof key, "xlane/kept/%d", rank);
        put(p, s, key, "yes");
        s->overwrites = put(p, s, key, "yes");
        s->tried = true;
    }
    bool bad = s->overwrites;
    xl_mutex_unlock(&g->agree_lock);
    return bad ? "its devices span processes, which compile together, and the frontend's key-value store overwrites: "
                 "no way to agree"
               : NULL;
}

/* ---- a question ---- */
uint32_t guard_agree_round(guard_state *g, const char *id)
{
    typedef struct round { struct round *next; uint32_t n; char id[64]; } round;
    static round *all;
    uint32_t n = UINT32_MAX;
    xl_mutex_lock(&g->agree_lock);
    round *r = all;
    while (r && strncmp(r->id, id, sizeof r->id - 1))
        r = r->next;
    if (!r && (r = calloc(1, sizeof *r))) {
        snprintf(r->id, sizeof r->id, "%s", id);
        r->next = all;
        all = r;
    }
    if (r)
        n = r->n++;
    xl_mutex_unlock(&g->agree_lock);
    return n;
}

static bool verdict(const guard_plugin *p, const guard_store *s, const char *key, bool yes)
{
    if (put(p, s, key, yes ? "yes" : "no"))
        return yes;
    return get(p, s, key, 1) == 1;                         /* somebody was first */
}

bool guard_agree(guard_plugin *p, PJRT_Client *client, const guard_ranks *who, const char *question, bool yes)
{
    guard_state *g = p->g;
    guard_store *s = store_of(g, client);
    char vote[AGREE_KEY], end[AGREE_KEY];
    if (!s || who->round == UINT32_MAX)
        return false;
    snprintf(end, sizeof end, "xlane/%s/%u/%s/verdict", who->id, who->round, question);
    snprintf(vote, sizeof vote, "xlane/%s/%u/%s/%d", who->id, who->round, question, who->me);
    put(p, s, vote, yes ? "yes" : "no");
    if (!yes)
        return verdict(p, s, end, false);                  /* the others need not wait */
    if (who->me != who->rank[0]) {
        int v = get(p, s, end, g->agree_seconds + margin);
        return v >= 0 ? v == 1 : verdict(p, s, end, false);
    }
    double until = xl_now() + g->agree_seconds;
    for (uint32_t i = 1; i < who->n && yes; i++) {
        snprintf(vote, sizeof vote, "xlane/%s/%u/%s/%d", who->id, who->round, question, who->rank[i]);
        yes = get(p, s, vote, until - xl_now()) == 1;
    }
    return verdict(p, s, end, yes);
}
