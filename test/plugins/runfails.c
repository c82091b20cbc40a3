/* Compiles, and then cannot run. */
#define FAKE_BEFORE(call)                                                                                              \
    ((call) == Execute ? fail(PJRT_Error_Code_INTERNAL, "an illegal memory access was encountered") : NULL)
#include "fake.h"
