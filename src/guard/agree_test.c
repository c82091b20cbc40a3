/* Ranks that answer, that come late and that never do: whoever waits gets an answer in time, and all get the
 * same one. */
#include <pthread.h>
#include <time.h>

#include "base/test.h"
#include "base/time.h"
#include "guard/guard.h"

/* A store as a coordination service is one: what is written stays, and who reads waits. */
static struct { char key[200], value[8]; } kept[64];
static int nkept;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t wrote = PTHREAD_COND_INITIALIZER;
static bool overwrites;

static const char *look(const char *key, size_t n)
{
    for (int i = 0; i < nkept; i++)
        if (strlen(kept[i].key) == n && !memcmp(kept[i].key, key, n))
            return kept[i].value;
    return NULL;
}

static PJRT_Error *put(PJRT_KeyValuePutCallback_Args *a)
{
    pthread_mutex_lock(&lock);
    bool there = look(a->key, a->key_size) != NULL;
    if (!there && nkept < 64) {
        snprintf(kept[nkept].key, sizeof kept->key, "%.*s", (int)a->key_size, a->key);
        snprintf(kept[nkept++].value, sizeof kept->value, "%.*s", (int)a->value_size, a->value);
        pthread_cond_broadcast(&wrote);
    }
    pthread_mutex_unlock(&lock);
    return there && !overwrites ? (*a->callback_error)(PJRT_Error_Code_ALREADY_EXISTS, "it is there", 11) : NULL;
}

static PJRT_Error *get(PJRT_KeyValueGetCallback_Args *a)
{
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    int64_t ns = until.tv_nsec + (int64_t)a->timeout_in_ms * 1000000;
    until.tv_sec += ns / 1000000000;
    until.tv_nsec = ns % 1000000000;
    pthread_mutex_lock(&lock);
    const char *v;
    int late = 0;
    while (!(v = look(a->key, a->key_size)) && !late)
        late = pthread_cond_timedwait(&wrote, &lock, &until);
    pthread_mutex_unlock(&lock);
    if (!v)
        return (*a->callback_error)(PJRT_Error_Code_DEADLINE_EXCEEDED, "nothing came", 12);
    a->value = (char *)v;
    a->value_size = strlen(v);
    return NULL;
}

static void destroy(PJRT_Error_Destroy_Args *a) { free(a->error); }
static PJRT_Api table = { .PJRT_Error_Destroy = destroy };
static guard_plugin plugin = { .table = &table };
static int all[3] = { 0, 1, 2 };

typedef struct { int me; bool yes, said; double after, took; const char *id; uint32_t n; pthread_t t; } rank;

static void *ask(void *arg)
{
    rank *r = arg;
    guard_ranks who = { .rank = all, .n = r->n, .me = r->me };
    snprintf(who.id, sizeof who.id, "%s", r->id);
    nanosleep(&(struct timespec){ .tv_nsec = (long)(r->after * 1e9) }, NULL);
    double t = xl_now();
    r->said = guard_agree(&plugin, (PJRT_Client *)&table, &who, "have", r->yes);
    r->took = xl_now() - t;
    return NULL;
}

/* `seconds`: how long each waits for the others. Times are compared with that, and with nothing of the machine's. */
static void ask_all(rank *r, int n, double seconds)
{
    plugin.g = guard_current();
    PJRT_Client_Create_Args a = { .client = (PJRT_Client *)&table, .kv_get_callback = get, .kv_put_callback = put };
    guard_current()->agree_seconds = seconds;
    guard_store_add(guard_current(), &a);
    for (int i = 0; i < n; i++)
        pthread_create(&r[i].t, NULL, ask, &r[i]);
    for (int i = 0; i < n; i++)
        pthread_join(r[i].t, NULL);
    guard_store_drop(guard_current(), a.client);
}

TEST(all_have_it)
{
    rank r[3] = { { 0, true, .id = "a", .n = 3 },
                  { 1, true, .id = "a", .n = 3, .after = 0.1 },
                  { 2, true, .id = "a", .n = 3 } };
    ask_all(r, 3, 60);
    CHECK(r[0].said && r[1].said && r[2].said);
}

TEST(one_has_not)
{
    rank r[3] = { { 0, true, .id = "b", .n = 3 }, { 1, true, .id = "b", .n = 3 }, { 2, false, .id = "b", .n = 3 } };
    ask_all(r, 3, 60);
    CHECK(!r[0].said && !r[1].said && !r[2].said);
    CHECK(r[0].took < 30 && r[1].took < 30);             /* nobody waits for the time to run out */
}

TEST(one_never_answers)
{
    rank r[2] = { { 0, true, .id = "c", .n = 3 }, { 1, true, .id = "c", .n = 3 } };
    ask_all(r, 2, 1);
    CHECK(!r[0].said && !r[1].said);
    CHECK(r[0].took >= 0.99);
    rank late = { 2, true, .id = "c", .n = 3 };             /* it comes after all: the answer is the others' */
    ask_all(&late, 1, 60);
    CHECK(!late.said && late.took < 30);
}

TEST(the_one_who_counts_never_comes)
{
    rank r = { 1, true, .id = "d", .n = 2 };
    ask_all(&r, 1, 1);
    CHECK(!r.said && r.took >= 1);
    rank first = { 0, true, .id = "d", .n = 2 };            /* every vote is yes by now, and the verdict stays */
    ask_all(&first, 1, 60);
    CHECK(!first.said);
}

TEST(a_store_that_overwrites_is_of_no_use)
{
    PJRT_Client_Create_Args a = { .client = (PJRT_Client *)&table, .kv_get_callback = get, .kv_put_callback = put };
    plugin.g = guard_current();
    CHECK(strstr(guard_cannot_agree(&plugin, a.client, 0), "no key-value store"));
    guard_store_add(guard_current(), &a);
    CHECK(!guard_cannot_agree(&plugin, a.client, 0));
    guard_store_drop(guard_current(), a.client);
    overwrites = true;
    guard_store_add(guard_current(), &a);
    CHECK(strstr(guard_cannot_agree(&plugin, a.client, 1), "overwrites"));
    guard_store_drop(guard_current(), a.client);
}
