/* The embedded device with a memory cell that flips: bit FLIP_BIT (3) of the first element of the last output, in every
 * execution. */
#include "wrap.h"

static PJRT_Error *execute(PJRT_LoadedExecutable_Execute_Args *a)
{
    PJRT_Error *err = real.PJRT_LoadedExecutable_Execute(a);
    PJRT_LoadedExecutable_GetExecutable_Args g = { .struct_size = sizeof g, .loaded_executable = a->executable };
    PJRT_Executable_NumOutputs_Args n = { .struct_size = sizeof n };
    if (err || real.PJRT_LoadedExecutable_GetExecutable(&g))
        return err;
    n.executable = g.executable;
    if (real.PJRT_Executable_NumOutputs(&n) || !n.num_outputs)
        return NULL;
    PJRT_Buffer *b = a->output_lists[0][n.num_outputs - 1];
    PJRT_Buffer_ReadyEvent_Args r = { .struct_size = sizeof r, .buffer = b };
    if (real.PJRT_Buffer_ReadyEvent(&r))
        return NULL;
    PJRT_Event_Await_Args w = { .struct_size = sizeof w, .event = r.event };
    PJRT_Buffer_UnsafePointer_Args p = { .struct_size = sizeof p, .buffer = b };
    if (!real.PJRT_Event_Await(&w) && !real.PJRT_Buffer_UnsafePointer(&p))
        *(unsigned char *)p.buffer_pointer ^= 8;
    return NULL;
}

static void change(PJRT_Api *api) { api->PJRT_LoadedExecutable_Execute = execute; }
