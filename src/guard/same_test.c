/* Ranks that compile the same program, one that compiles another, one that does not come: all get the same answer, in
 * time. One thread per rank. */
#include <pthread.h>
#include <stdlib.h>
#include <time.h>

#include "base/test.h"
#include "base/time.h"
#include "guard/guard.h"

enum { RANKS = 300, KEYS = 4096 };                         /* three levels of the tree */
static struct { char *key, *value; size_t n; } kept[KEYS];
static int nkept;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t wrote = PTHREAD_COND_INITIALIZER;

static PJRT_Error *put(PJRT_KeyValuePutCallback_Args *a)
{
    pthread_mutex_lock(&lock);
    if (nkept < KEYS) {
        kept[nkept].key = strndup(a->key, a->key_size);
        kept[nkept].value = malloc(a->value_size + 1);
        memcpy(kept[nkept].value, a->value, a->value_size);
        kept[nkept++].n = a->value_size;
    }
    pthread_cond_broadcast(&wrote);
    pthread_mutex_unlock(&lock);
    return NULL;
}

static void value_free(char *v) { free(v); }

static PJRT_Error *get(PJRT_KeyValueGetCallback_Args *a)
{
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    int64_t ns = until.tv_nsec + (int64_t)a->timeout_in_ms * 1000000;
    until.tv_sec += ns / 1000000000;
    until.tv_nsec = ns % 1000000000;
    int found = -1, late = 0;
    pthread_mutex_lock(&lock);
    for (;;) {
        for (int i = 0; i < nkept && found < 0; i++)
            if (strlen(kept[i].key) == a->key_size && !memcmp(kept[i].key, a->key, a->key_size))
                found = i;
        if (found >= 0 || late)
            break;
        late = pthread_cond_timedwait(&wrote, &lock, &until);
    }
    if (found >= 0) {
        a->value = malloc(kept[found].n + 1);
        memcpy(a->value, kept[found].value, kept[found].n);
        a->value_size = kept[found].n;
        a->value_deleter_callback = value_free;
    }
    pthread_mutex_unlock(&lock);
    return found < 0 ? (*a->callback_error)(PJRT_Error_Code_DEADLINE_EXCEEDED, "nothing came", 12) : NULL;
}

static void destroy(PJRT_Error_Destroy_Args *a) { free(a->error); }
static PJRT_Api table = { .PJRT_Error_Destroy = destroy };
static guard_plugin plugin = { .table = &table };

#define STEP(c)                                                                                                        \
    "func.func public @main(%x: tensor<4xf32>) -> tensor<4xf32> {\n  %c = stablehlo.constant dense<" c                 \
    "> : tensor<4xf32>\n"                                                                                              \
    "  %0 = stablehlo.multiply %x, %c : tensor<4xf32>\n  return %0 : tensor<4xf32>\n}\n"

typedef struct { guard_ranks who; const char *module, *program, *flags; bool comes, differ; xl_buf text; } rank;

static void *come(void *arg)
{
    rank *r = arg;
    xl_cache_key k = { .module = xl_str_of(r->module) };
    xl_cache_key_add(&k, "program", xl_str_of(r->program));
    xl_cache_key_add(&k, "flags", xl_str_of(r->flags));
    if (r->comes)
        r->differ = guard_differ(&plugin, (PJRT_Client *)&table, &r->who, &k, xl_str_of(r->program), &r->text);
    return NULL;
}

static rank *meet(uint32_t n, int odd, const char *module, const char *program, const char *flags, int absent)
{
    static int id[RANKS];
    static uint32_t meeting;
    static pthread_t t[RANKS];
    rank *r = calloc(n, sizeof *r);
    pthread_attr_t small;
    pthread_attr_init(&small);
    pthread_attr_setstacksize(&small, 1 << 20);
    plugin.g = guard_current();
    guard_store_drop(guard_current(), (PJRT_Client *)&table);
    guard_store_add(guard_current(),
        &(PJRT_Client_Create_Args){ .client = (PJRT_Client *)&table, .kv_get_callback = get, .kv_put_callback = put });
    meeting++;
    for (uint32_t i = 0; i < n; i++) {
        id[i] = (int)i;
        bool other = (int)i == odd;
        r[i] = (rank){ { .rank = id, .n = n, .me = (int)i, .meeting = meeting },
                       other ? module : "jit_step",
                       other ? program : STEP("1.0"),
                       other ? flags : "level=4",
                       .comes = (int)i != absent };
    }
    for (uint32_t i = 0; i < n; i++)
        CHECK(!pthread_create(&t[i], &small, come, &r[i]));
    for (uint32_t i = 0; i < n; i++)
        pthread_join(t[i], NULL);
    pthread_attr_destroy(&small);
    for (int i = 0; i < nkept; i++) {
        free(kept[i].key);
        free(kept[i].value);
    }
    nkept = 0;
    return r;
}

/* Every rank says this, or nothing where it is NULL. */
static void all_say(rank *r, uint32_t n, int absent, bool differ, const char *what)
{
    for (uint32_t i = 0; i < n; i++) {
        if ((int)i != absent) {
            CHECK(r[i].differ == differ);
            if (what && !strstr(r[i].text.p ? r[i].text.p : "", what))
                printf("  rank %u says: %.*s\n", i, XL_FMT(xl_buf_view(&r[i].text)));
            CHECK(what ? strstr(r[i].text.p ? r[i].text.p : "", what) != NULL : r[i].text.n == 0);
        }
        xl_buf_fini(&r[i].text);
    }
    free(r);
}

TEST(alike)
{
    guard_current()->agree_seconds = 20;
    all_say(meet(4, -1, NULL, NULL, NULL, -1), 4, -1, false, NULL);
    all_say(meet(RANKS, -1, NULL, NULL, NULL, -1), RANKS, -1, false, NULL);
}

TEST(another_constant_is_named)
{
    guard_current()->agree_seconds = 20;
    all_say(meet(4, 2, "jit_step", STEP("2.0"), "level=4", -1), 4, -1, true,
            "rank 2 compiles another program than rank 0 and 2 others: constant all 1 in 4xf32 -> all 2 in 4xf32");
    all_say(meet(4, 0, "jit_step", STEP("2.0"), "level=4", -1), 4, -1, true,
            "rank 0 compiles another program than rank 1 and 2 others: constant all 1 in 4xf32 -> all 2 in 4xf32");
    all_say(meet(RANKS, 77, "jit_step", STEP("2.0"), "level=4", -1), RANKS, -1, true,
            "rank 77 compiles another program than rank 0 and 298 others: constant all 1 in 4xf32 -> all 2 in 4xf32");
}

TEST(another_flag_is_named)
{
    all_say(meet(3, 1, "jit_step", STEP("1.0"), "level=0", -1), 3, -1, true,
            "rank 1 compiles another program than rank 0 and 1 other: flags: level 4 -> 0");
}

TEST(another_module_is_named)
{
    all_say(meet(3, 1, "jit_eval", STEP("1.0"), "level=4", -1), 3, -1, true,
            "it compiles jit_eval where the others compile jit_step");
}

TEST(who_does_not_come_is_named_in_time)
{
    double t = xl_now();
    guard_current()->agree_seconds = 0.5;
    all_say(meet(4, -1, NULL, NULL, NULL, 3), 4, 3, false, "rank 3 has not come to compile jit_step");
    guard_current()->agree_seconds = 1;
    all_say(meet(4, -1, NULL, NULL, NULL, 0), 4, 0, false, "rank 0 has said nothing");
    CHECK(xl_now() - t < 40 * (0.5 + 1));                   /* of what the two may wait */
}
