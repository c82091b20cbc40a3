/* What it costs ranks to agree on a program (guard/same.c), simulated: one thread per rank runs the guard's own code
 * over a store in memory whose every call takes 0.3 to 2 ms of the rank's own clock, and a read not less than until its
 * key was written. Nobody sleeps: the time is the longest chain of calls, whatever this machine is doing. Beside it a
 * flat count, where rank 0 reads all digests one after another.
 *   build/bench/agree [RANKS ...]        256, 1,024 and 4,096 unless told */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/time.h"
#include "guard/guard.h"

enum { BUCKETS = 1 << 14 };
typedef struct entry { struct entry *next; char *key, *value; size_t n; double at; } entry;
static struct { pthread_mutex_t lock; pthread_cond_t wrote; entry *first; } bucket[BUCKETS];
static _Thread_local double clock_ms;
static _Thread_local unsigned seed;
static _Atomic uint64_t puts_done, gets_done;

static double latency(void) { return 0.3 + 1.7 * (rand_r(&seed) / (double)RAND_MAX); }

static size_t slot(const char *key, size_t n)
{
    uint64_t h = 1469598103934665603ULL;
    for (size_t i = 0; i < n; i++)
        h = (h ^ (unsigned char)key[i]) * 1099511628211ULL;
    return (size_t)(h >> 20) % BUCKETS;
}

static PJRT_Error *put(PJRT_KeyValuePutCallback_Args *a)
{
    size_t b = slot(a->key, a->key_size);
    entry *e = calloc(1, sizeof *e);
    e->key = strndup(a->key, a->key_size);
    e->value = malloc(a->value_size + 1);
    memcpy(e->value, a->value, a->value_size);
    e->n = a->value_size;
    clock_ms += latency();
    e->at = clock_ms;
    atomic_fetch_add(&puts_done, 1);
    pthread_mutex_lock(&bucket[b].lock);
    e->next = bucket[b].first;
    bucket[b].first = e;
    pthread_cond_broadcast(&bucket[b].wrote);
    pthread_mutex_unlock(&bucket[b].lock);
    return NULL;
}

static void value_free(char *v) { free(v); }

static PJRT_Error *get(PJRT_KeyValueGetCallback_Args *a)
{
    size_t b = slot(a->key, a->key_size);
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += a->timeout_in_ms / 1000;
    until.tv_nsec += a->timeout_in_ms % 1000 * 1000000L;
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    entry *e;
    int late = 0;
    atomic_fetch_add(&gets_done, 1);
    pthread_mutex_lock(&bucket[b].lock);
    for (;;) {
        for (e = bucket[b].first; e && (strlen(e->key) != a->key_size || memcmp(e->key, a->key, a->key_size));
             e = e->next)
            ;
        if (e || late)
            break;
        late = pthread_cond_timedwait(&bucket[b].wrote, &bucket[b].lock, &until);
    }
    if (e) {
        a->value = malloc(e->n + 1);
        memcpy(a->value, e->value, e->n);
        a->value_size = e->n;
        a->value_deleter_callback = value_free;
        clock_ms = (clock_ms > e->at ? clock_ms : e->at) + latency();
    }
    pthread_mutex_unlock(&bucket[b].lock);
    return e ? NULL : (*a->callback_error)(PJRT_Error_Code_DEADLINE_EXCEEDED, "late", 4);
}

static void destroy(PJRT_Error_Destroy_Args *a) { free(a->error); }
static PJRT_Api table = { .PJRT_Error_Destroy = destroy };
static guard_plugin plugin = { .table = &table };
static const char step[] = "func.func public @main(%x: tensor<4xf32>) -> tensor<4xf32> {\n"
                           "  %c = stablehlo.constant dense<1.0> : tensor<4xf32>\n"
                           "  %0 = stablehlo.multiply %x, %c : tensor<4xf32>\n  return %0 : tensor<4xf32>\n}\n";
static const char other[] = "func.func public @main(%x: tensor<4xf32>) -> tensor<4xf32> {\n"
                            "  %c = stablehlo.constant dense<2.0> : tensor<4xf32>\n"
                            "  %0 = stablehlo.multiply %x, %c : tensor<4xf32>\n  return %0 : tensor<4xf32>\n}\n";

typedef struct { guard_ranks who; const char *program; bool comes; double took; xl_buf text; } rank;

static void *come(void *arg)
{
    rank *r = arg;
    xl_cache_key k = { .module = XL_STR("jit_step") };
    if (!r->comes)
        return NULL;
    clock_ms = 0;
    seed = (unsigned)r->who.me * 7919 + 1;
    xl_cache_key_add(&k, "program", xl_str_of(r->program));
    guard_differ(&plugin, (PJRT_Client *)&table, &r->who, &k, xl_str_of(r->program), &r->text);
    r->took = clock_ms;
    return NULL;
}

/* Returns the seconds that it took this machine. */
static double simulate(uint32_t n, const char *what, int odd, int absent)
{
    static uint32_t meeting;
    int *id = calloc(n, sizeof *id);
    rank *r = calloc(n, sizeof *r);
    pthread_t *t = calloc(n, sizeof *t);
    pthread_attr_t small;
    double longest = 0, flat = 0;
    uint32_t named = 0, here = 0;
    pthread_attr_init(&small);
    pthread_attr_setstacksize(&small, 512 << 10);
    puts_done = gets_done = 0;
    meeting++;
    double begun = xl_now();
    for (uint32_t i = 0; i < n; i++) {
        id[i] = (int)i;
        r[i] = (rank){ .who = { .rank = id, .n = n, .me = (int)i, .meeting = meeting },
                       .program = (int)i == odd ? other : step,
                       .comes = (int)i != absent };
    }
    for (uint32_t i = 0; i < n; i++)
        if (pthread_create(&t[i], &small, come, &r[i])) {
            fprintf(stderr, "agree: no thread for rank %u\n", i);
            exit(1);
        }
    for (uint32_t i = 0; i < n; i++)
        pthread_join(t[i], NULL);
    char want[64];
    snprintf(want, sizeof want, "rank %d %s", odd >= 0 ? odd : absent, odd >= 0 ? "compiles another" : "has not come");
    for (uint32_t i = 0; i < n; i++) {
        here += r[i].comes;
        longest = r[i].took > longest ? r[i].took : longest;
        named += r[i].comes && (odd < 0 && absent < 0 ? r[i].text.n == 0 : r[i].text.p && strstr(r[i].text.p, want));
        xl_buf_fini(&r[i].text);
    }
    for (uint32_t i = 0; i < n; i++)
        flat += latency();
    printf("%6u  %-18s %9.1f ms %9.1f ms %9llu %9llu   %u of %u ranks %s\n", n, what, longest, flat + 3,
           (unsigned long long)puts_done, (unsigned long long)gets_done, named, here,
           odd < 0 && absent < 0 ? "name nobody"
           : odd >= 0            ? "name it"
                                 : "name it, after the time limit");
    fflush(stdout);
    free(id), free(r), free(t);
    pthread_attr_destroy(&small);
    return xl_now() - begun;
}

int main(int argc, char **argv)
{
    static const char *usual[] = { "256", "1024", "4096" };
    for (int i = 0; i < BUCKETS; i++) {
        pthread_mutex_init(&bucket[i].lock, NULL);
        pthread_cond_init(&bucket[i].wrote, NULL);
    }
    plugin.g = guard_current();
    setenv("XLANE_LOG", "off", 0);
    guard_store_add(guard_current(),
        &(PJRT_Client_Create_Args){ .client = (PJRT_Client *)&table, .kv_get_callback = get, .kv_put_callback = put });
    printf("simulated: 0.3 to 2 ms a call\n ranks  case                    tree         flat      puts      gets\n");
    for (int k = 0; k < (argc > 1 ? argc - 1 : 3); k++) {
        uint32_t n = (uint32_t)atoi(argc > 1 ? argv[k + 1] : usual[k]);
        guard_current()->agree_seconds = 60;
        double took = simulate(n, "all alike", -1, -1);
        simulate(n, "one differs", (int)(n * 5 / 8 + 3), -1);
        /* the one wait in real time: so long that no thread is late only because this machine is busy */
        guard_current()->agree_seconds = 1 + 20 * took;
        simulate(n, "one does not come", -1, (int)(n / 2 + 5));
    }
}
