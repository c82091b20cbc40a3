/* The embedded device with PJRT's profiler extension. The profile is an XSpace with one plane, "/device:TEST:0", and
 * one event "execute" for each execution between start and stop. XLANE_PROFILER_FAILS names the call that fails. */
#include <stdint.h>
#include <time.h>

#include "pjrt/profiler.h"
#include "wrap.h"

enum { EVENTS = 1000 };
static int on, n, freed;
static uint64_t began, start_ns[EVENTS], took_ns[EVENTS];

static uint64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void *fails(const char *call)
{
    const char *f = getenv("XLANE_PROFILER_FAILS");
    static char word[64];
    if (!f || strcmp(f, call))
        return NULL;
    snprintf(word, sizeof word, "no %s today", call);
    return word;
}

static void error_destroy(PJRT_Profiler_Error_Args *a) { freed += a->error != NULL; }
static void error_message(PJRT_Profiler_Error_Args *a)
{
    a->message = a->error;
    a->message_size = strlen(a->error);
}
static void *error_get_code(void *a)
{
    (void)a;
    return NULL;
}
static void *create(PJRT_Profiler_Create_Args *a)
{
    a->profiler = &n;
    return a->options_size ? fails("create") : "no options";
}
static void *destroy(PJRT_Profiler_Plain_Args *a)
{
    (void)a;
    return NULL;
}
static void *start(PJRT_Profiler_Plain_Args *a)
{
    (void)a;
    on = 1;
    n = 0;
    began = now_ns();
    return fails("start");
}
static void *stop(PJRT_Profiler_Plain_Args *a)
{
    (void)a;
    on = 0;
    return fails("stop");
}

typedef struct {
    uint8_t p[64 * EVENTS + 257];
    size_t n;
} bytes;

static void varint(bytes *b, uint64_t v)
{
    for (; v > 127; v >>= 7)
        b->p[b->n++] = (uint8_t)(v | 128);
    b->p[b->n++] = (uint8_t)v;
}
static void number(bytes *b, int field, uint64_t v)
{
    varint(b, (uint64_t)field << 3);
    varint(b, v);
}
static void blob(bytes *b, int field, const void *p, size_t size)
{
    varint(b, (uint64_t)field << 3 | 2);
    varint(b, size);
    memcpy(b->p + b->n, p, size);
    b->n += size;
}

static void *collect_data(PJRT_Profiler_Collect_Args *a)
{
    static bytes space, plane, line, meta, entry, event;
    if (!a->buffer) {
        space.n = plane.n = line.n = meta.n = entry.n = 0;
        number(&line, 1, 1);
        blob(&line, 2, "executions", 10);
        number(&line, 3, began);
        for (int i = 0; i < n; i++) {
            event.n = 0;
            number(&event, 1, 7);
            number(&event, 2, (start_ns[i] - began) * 1000);
            number(&event, 3, took_ns[i] * 1000);
            blob(&line, 4, event.p, event.n);
        }
        number(&meta, 1, 7);
        blob(&meta, 2, "execute", 7);
        number(&entry, 1, 7);
        blob(&entry, 2, meta.p, meta.n);
        number(&plane, 1, 1);
        blob(&plane, 2, "/device:TEST:0", 14);
        blob(&plane, 3, line.p, line.n);
        blob(&plane, 4, entry.p, entry.n);
        blob(&space, 1, plane.p, plane.n);
        a->size = space.n;
        if (!getenv("XLANE_PROFILER_COPIES")) { /* as XLA's do: they are here already, and a zero more */
            space.p[space.n] = 0;
            a->buffer = space.p;
            a->size = space.n + 1;
        }
        return fails("collect");
    }
    if (a->buffer != space.p && getenv("XLANE_PROFILER_COPIES"))
        memcpy(a->buffer, space.p, space.n);
    return NULL;
}

static PJRT_Error *execute(PJRT_LoadedExecutable_Execute_Args *a)
{
    uint64_t t = now_ns();
    PJRT_Error *err = real.PJRT_LoadedExecutable_Execute(a);
    if (on && n < EVENTS) {
        start_ns[n] = t;
        took_ns[n++] = now_ns() - t;
    }
    return err;
}

static const PJRT_Profiler_Api api = { sizeof api, NULL,    error_destroy, error_message, error_get_code,
                                       create,     destroy, start,         stop,          collect_data };

static void change(PJRT_Api *mine)
{
    static PJRT_Profiler_Layer extension;
    extension.base.struct_size = sizeof extension;
    extension.base.type = PJRT_Extension_Type_Profiler;
    extension.base.next = mine->extension_start;
    extension.api = &api;
    mine->extension_start = &extension.base;
    mine->PJRT_LoadedExecutable_Execute = execute;
}
