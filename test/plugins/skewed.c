/* One kernel is wrong: it computes the logistic function where an exponential is asked for. */
#include "wrap.h"

static PJRT_Error *compile(PJRT_Client_Compile_Args *args)
{
    static const char from[] = "stablehlo.exponential ", to[] = "stablehlo.logistic    ";
    PJRT_Program program = *args->program;
    PJRT_Client_Compile_Args with = *args;
    char *copy = malloc(program.code_size + 1);
    if (!copy)
        return real.PJRT_Client_Compile(args);
    memcpy(copy, program.code, program.code_size);
    for (size_t i = 0; i + sizeof from < program.code_size; i++)
        if (!memcmp(copy + i, from, sizeof from - 1))
            memcpy(copy + i, to, sizeof to - 1);
    program.code = copy;
    with.program = &program;
    PJRT_Error *e = real.PJRT_Client_Compile(&with);
    args->executable = with.executable;
    free(copy);
    return e;
}
static void change(PJRT_Api *api) { api->PJRT_Client_Compile = compile; }
