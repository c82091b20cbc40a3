#include "cpu/pjrt/client_ranks.h"

#include "base/ranks.h"

enum { PROCESSES_MAX = 4096 };

/* ---- the frontend's store ---- */
static PJRT_Error *make_error(PJRT_Error_Code code, const char *message, size_t n)
{
    return xl_api_fail((xl_code)code, "%.*s", (int)(n < 1000 ? n : 1000), message);
}
static PJRT_CallbackError make = make_error;

static xl_error *taken(PJRT_Error *e)
{
    PJRT_Error_Message_Args m = { .struct_size = sizeof m, .error = e };
    PJRT_Error_GetCode_Args c = { .struct_size = sizeof c, .error = e };
    xl_PJRT_Error_Message(&m);
    (void)xl_PJRT_Error_GetCode(&c);
    xl_error *err = xl_error_new((xl_code)c.code, "%.*s", (int)m.message_size, m.message);
    xl_PJRT_Error_Destroy(&(PJRT_Error_Destroy_Args){ .struct_size = sizeof(PJRT_Error_Destroy_Args), .error = e });
    return err;
}

static xl_error *put(void *ctx, const char *key, const char *value)
{
    const PJRT_Client_Create_Args *args = ctx;
    PJRT_KeyValuePutCallback_Args a = { .struct_size = sizeof a,
                                        .key = key,
                                        .key_size = strlen(key),
                                        .value = value,
                                        .value_size = strlen(value),
                                        .callback_error = &make,
                                        .user_arg = args->kv_put_user_arg };
    PJRT_Error *e = args->kv_put_callback(&a);
    return e ? taken(e) : NULL;
}

static xl_error *get(void *ctx, const char *key, int64_t ms, xl_buf *value)
{
    const PJRT_Client_Create_Args *args = ctx;
    PJRT_KeyValueGetCallback_Args a = { .struct_size = sizeof a,
                                        .key = key,
                                        .key_size = strlen(key),
                                        .callback_error = &make,
                                        .user_arg = args->kv_get_user_arg,
                                        .timeout_in_ms = (int)(ms < INT32_MAX ? ms : INT32_MAX) };
    PJRT_Error *e = args->kv_get_callback(&a);
    if (e)
        return taken(e);
    xl_buf_add(value, a.value, a.value_size);
    if (a.value && a.value_deleter_callback)
        a.value_deleter_callback(a.value);
    return value->failed ? XL_ERR(EXHAUSTED, "no memory for a value of the key-value store") : NULL;
}

/* ---- joining ---- */
xl_error *xl_client_ranks_read(const PJRT_Client_Create_Args *args, xl_client_ranks *r)
{
    *r = (xl_client_ranks){ 0, 1 };
    for (size_t i = 0; i < args->num_options; i++) {
        const PJRT_NamedValue *v = &args->create_options[i];
        xl_str name = { v->name, v->name_size };
        if (v->type == PJRT_NamedValue_kInt64 && xl_str_is(name, "node_id"))
            r->me = v->int64_value;
        if (v->type == PJRT_NamedValue_kInt64 && xl_str_is(name, "num_nodes"))
            r->n = v->int64_value;
    }
    if (r->n < 1 || r->n > PROCESSES_MAX || r->me < 0 || r->me >= r->n)
        return XL_ERR(INVALID, "node_id %lld of num_nodes %lld: the first counts from 0, the second is from 1 to %d",
                      (long long)r->me, (long long)r->n, PROCESSES_MAX);
    const char *by = xl_ranks_seen().launcher;
    return xl_ranks_alone(r->n,
                          by && !strcmp(by, "xlane run -n")
                              ? "Call jax.distributed.initialize() before the first use of a device"
                              : "Call jax.distributed.initialize() before the first use of a device, or start the "
                                "processes with `xlane run -n`");
}

xl_error *xl_client_ranks_join(const PJRT_Client_Create_Args *args, const xl_client_ranks *r, uint32_t devices,
                               xl_mail **out)
{
    *out = NULL;
    if (r->n == 1)
        return NULL;
    if (!args->kv_get_callback || !args->kv_put_callback)
        return XL_ERR(PRECONDITION,
                      "num_nodes is %lld, but the frontend gave no key-value store to find the other %lld processes "
                      "by: this one would run alone. "
                      "Call jax.distributed.initialize() with the address of a coordinator",
                      (long long)r->n, (long long)r->n - 1);
    static _Atomic uint32_t clients;
    xl_mail_opts o = { .me = (uint32_t)r->me,
                       .n = (uint32_t)r->n,
                       .devices = devices,
                       .epoch = atomic_fetch_add(&clients, 1),
                       .store = { (void *)(uintptr_t)args, put, get } };
    return xl_mail_open(&o, out);
}
