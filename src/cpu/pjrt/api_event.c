/* Errors and events. */
#include <stdio.h>
#include <stdlib.h>

#include "cpu/pjrt/api.h"

/* ---- errors ----------------------------------------------------------------------------------------------------- */
typedef struct { PJRT_Error base; xl_code code; char *message; } api_error;

static void error_destroy(PJRT_Error *e);
static void error_message(const PJRT_Error *e, const char **text, size_t *n)
{
    *text = ((const api_error *)e)->message;
    *n = strlen(*text);
}
static PJRT_Error_Code error_code(const PJRT_Error *e) { return (PJRT_Error_Code)((const api_error *)e)->code; }
static void error_payload(const PJRT_Error *e, PJRT_Error_PayloadVisitor visit, void *arg)
{
    (void)e, (void)visit, (void)arg;
}
static const PJRT_Error_FunctionTable vtable = {
    .struct_size = PJRT_SIZE(PJRT_Error_FunctionTable, for_each_payload), .instance_size = sizeof(api_error),
    .destroy = error_destroy, .message = error_message, .get_code = error_code, .for_each_payload = error_payload,
};
static api_error no_memory = { { &vtable }, XL_CODE_EXHAUSTED, (char *)(uintptr_t)"out of host memory" };

static void error_destroy(PJRT_Error *e)
{
    api_error *x = (api_error *)e;
    if (!e || x == &no_memory)
        return;
    free(x->message);
    free(x);
}

static PJRT_Error *error_new(xl_code code, const char *text)
{
    api_error *e = malloc(sizeof *e);
    char *copy = strdup(text);
    if (!e || !copy) {
        free(e);
        free(copy);
        return &no_memory.base;
    }
    *e = (api_error){ { &vtable }, code, copy };
    return &e->base;
}

PJRT_Error *xl_api_error(xl_error *err)
{
    if (!err)
        return NULL;
    PJRT_Error *e = error_new(xl_error_code(err), xl_error_message(err));
    xl_error_free(err);
    return e;
}

PJRT_Error *xl_api_fail(xl_code code, const char *fmt, ...)
{
    char text[1024];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    return error_new(code, text);
}

PJRT_Error *xl_api_none(const char *name)
{
    return xl_api_fail(XL_CODE_UNIMPLEMENTED, "%s is not implemented by the xlane CPU device", name);
}

/* Errors of any maker are served through their own vtable. */
void xl_PJRT_Error_Destroy(PJRT_Error_Destroy_Args *args)
{
    if (args->error && args->error->vtable)
        args->error->vtable->destroy(args->error);
}
void xl_PJRT_Error_Message(PJRT_Error_Message_Args *args)
{
    args->error->vtable->message(args->error, &args->message, &args->message_size);
}
PJRT_Error *xl_PJRT_Error_GetCode(PJRT_Error_GetCode_Args *args)
{
    args->code = args->error->vtable->get_code(args->error);
    return NULL;
}
PJRT_Error *xl_PJRT_Error_ForEachPayload(PJRT_Error_ForEachPayload_Args *args)
{
    if (args->error && args->error->vtable != &vtable)
        args->error->vtable->for_each_payload(args->error, args->visitor, args->user_arg);
    return NULL;
}

/* ---- events ----------------------------------------------------------------------------------------------------- */
typedef struct waiter { PJRT_Event_OnReadyCallback fn; void *arg; struct waiter *next; } waiter;
struct PJRT_Event {
    atomic_int ref;
    atomic_bool ready;
    pthread_mutex_t lock;
    pthread_cond_t cond;
    waiter *waiters;
    xl_code code;
    char *message;
};

static PJRT_Event at_once = { .ready = true, .lock = PTHREAD_MUTEX_INITIALIZER, .cond = PTHREAD_COND_INITIALIZER };

PJRT_Event *xl_event_new(bool ready)
{
    PJRT_Event *e = ready ? &at_once : calloc(1, sizeof *e);
    if (!e || ready)
        return e;
    atomic_init(&e->ref, 2);
    pthread_mutex_init(&e->lock, NULL);
    pthread_cond_init(&e->cond, NULL);
    return e;
}
PJRT_Event *xl_event_ref(PJRT_Event *e)
{
    if (e != &at_once)
        atomic_fetch_add(&e->ref, 1);
    return e;
}
void xl_event_unref(PJRT_Event *e)
{
    if (!e || e == &at_once || atomic_fetch_sub(&e->ref, 1) != 1)
        return;
    pthread_mutex_destroy(&e->lock);
    pthread_cond_destroy(&e->cond);
    free(e->message);
    free(e);
}
static PJRT_Error *event_error(PJRT_Event *e)
{
    return e->code ? error_new(e->code, e->message ? e->message : "failed") : NULL;
}

void xl_event_set(PJRT_Event *e, xl_code code, const char *message)
{
    pthread_mutex_lock(&e->lock);
    if (atomic_load(&e->ready)) {
        pthread_mutex_unlock(&e->lock);
        return;
    }
    e->code = code;
    e->message = code && message ? strdup(message) : NULL;
    waiter *w = e->waiters;
    e->waiters = NULL;
    atomic_store(&e->ready, true);
    pthread_cond_broadcast(&e->cond);
    pthread_mutex_unlock(&e->lock);
    while (w) {
        waiter *next = w->next;
        w->fn(event_error(e), w->arg);
        free(w);
        w = next;
    }
}

PJRT_Error *xl_PJRT_Event_Destroy(PJRT_Event_Destroy_Args *args)
{
    xl_event_unref(args->event);
    return NULL;
}
PJRT_Error *xl_PJRT_Event_IsReady(PJRT_Event_IsReady_Args *args)
{
    args->is_ready = atomic_load(&args->event->ready);
    return NULL;
}
PJRT_Error *xl_PJRT_Event_Error(PJRT_Event_Error_Args *args)
{
    if (!atomic_load(&args->event->ready))
        return xl_api_fail(XL_CODE_PRECONDITION, "the event is not ready: wait for it before asking for its error");
    return event_error(args->event);
}
PJRT_Error *xl_PJRT_Event_Await(PJRT_Event_Await_Args *args)
{
    PJRT_Event *e = args->event;
    if (e == &at_once)
        return NULL;
    pthread_mutex_lock(&e->lock);
    while (!atomic_load(&e->ready))
        pthread_cond_wait(&e->cond, &e->lock);
    pthread_mutex_unlock(&e->lock);
    return event_error(e);
}
PJRT_Error *xl_PJRT_Event_OnReady(PJRT_Event_OnReady_Args *args)
{
    if (args->event == &at_once) {
        args->callback(NULL, args->user_arg);
        return NULL;
    }
    PJRT_Event *e = xl_event_ref(args->event);             /* the callback may destroy the handle */
    pthread_mutex_lock(&e->lock);
    if (!atomic_load(&e->ready)) {
        waiter *w = malloc(sizeof *w);
        if (w) {
            *w = (waiter){ args->callback, args->user_arg, e->waiters };
            e->waiters = w;
        }
        pthread_mutex_unlock(&e->lock);
        xl_event_unref(e);
        return w ? NULL : &no_memory.base;
    }
    pthread_mutex_unlock(&e->lock);
    args->callback(event_error(e), args->user_arg);
    xl_event_unref(e);
    return NULL;
}
PJRT_Error *xl_PJRT_Event_Create(PJRT_Event_Create_Args *args)
{
    args->event = xl_event_new(false);
    return args->event ? NULL : &no_memory.base;
}
PJRT_Error *xl_PJRT_Event_Set(PJRT_Event_Set_Args *args)
{
    char text[512];
    size_t n = args->error_message ? args->error_message_size : 0;
    if (n > sizeof text - 1)
        n = sizeof text - 1;
    if (n)
        memcpy(text, args->error_message, n);
    text[n] = 0;
    if (atomic_load(&args->event->ready))
        return xl_api_fail(XL_CODE_PRECONDITION, "the event was set before");
    xl_event_set(args->event, (xl_code)args->error_code, text);
    xl_event_unref(args->event);                           /* the maker's reference */
    return NULL;
}
