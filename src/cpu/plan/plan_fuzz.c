/* Any bytes as an executable of the CPU device, given the checksum it should have, so that what is behind the checksum
 * is reached: sizes, options, the program and its plan. Refused, or loaded; nothing is run. */
#include <stdlib.h>

#include "base/hash.h"
#include "cpu/pjrt/api.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void drop(const PJRT_Error *e)
{
    PJRT_Error_Destroy_Args d = { .struct_size = sizeof d, .error = (PJRT_Error *)e };
    if (e)
        xl_PJRT_Error_Destroy(&d);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static PJRT_Client *client;
    if (!client) {
        PJRT_Client_Create_Args c = { .struct_size = sizeof c };
        setenv("XLANE_CPU_HBM", "64M", 1);                  /* a program that plans more than this is refused */
        if (xl_PJRT_Client_Create(&c))
            abort();
        client = c.client;
    }
    char *blob = malloc(size + sizeof(xl_digest));
    if (!blob)
        abort();
    if (size)
        memcpy(blob, data, size);
    xl_digest d = xl_hash_of((xl_str){ blob, size });
    memcpy(blob + size, d.b, sizeof d.b);
    PJRT_Executable_DeserializeAndLoad_Args l = { .struct_size = sizeof l,
                                                  .client = client,
                                                  .serialized_executable = blob,
                                                  .serialized_executable_size = size + sizeof d };
    PJRT_Error *e = xl_PJRT_Executable_DeserializeAndLoad(&l);
    if (!e) {
        PJRT_LoadedExecutable_Destroy_Args x = { .struct_size = sizeof x, .executable = l.loaded_executable };
        drop(xl_PJRT_LoadedExecutable_Destroy(&x));
    }
    drop(e);
    free(blob);
    return 0;
}
