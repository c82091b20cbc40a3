/* The embedded device with a compiler that takes one op for another, or that crashes: in every program it is given,
 * WRONG_FROM is read as WRONG_TO (of the same length), and a program that has both CRASH_ON and CRASH_WITH ends the
 * process; the compile of one that has SLOW_ON takes 0.8 s more of CPU time, and of one that has STALL_ON it does not
 * end while the file STALL is there. */
#include <time.h>
#include <unistd.h>

#include "wrap.h"

static int has(const PJRT_Program *p, const char *word)
{
    return word && *word && memmem(p->code, p->code_size, word, strlen(word)) != NULL;
}

static PJRT_Error *compile(PJRT_Client_Compile_Args *a)
{
    const char *from = getenv("WRONG_FROM"), *to = getenv("WRONG_TO");
    PJRT_Program other = *a->program, *given = (PJRT_Program *)a->program;
    if (has(given, getenv("CRASH_ON")) && has(given, getenv("CRASH_WITH"))) {
        fprintf(stderr, "Check failed: fusion.IsLoopFusion()\n");
        abort();
    }
    clock_t until = clock() + (clock_t)(0.8 * CLOCKS_PER_SEC);
    while (has(given, getenv("SLOW_ON")) && clock() < until)
        continue;
    while (has(given, getenv("STALL_ON")) && !access(getenv("STALL"), F_OK))
        usleep(10000);
    if (!has(given, from) || !to)
        return real.PJRT_Client_Compile(a);
    other.code = malloc(given->code_size);
    memcpy(other.code, given->code, given->code_size);
    for (char *p = other.code; (p = memmem(p, given->code_size - (size_t)(p - other.code), from, strlen(from)));)
        memcpy(p, to, strlen(to));
    a->program = &other;
    PJRT_Error *err = real.PJRT_Client_Compile(a);
    a->program = given;
    free(other.code);
    return err;
}

static void change(PJRT_Api *api) { api->PJRT_Client_Compile = compile; }
