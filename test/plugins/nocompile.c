/* Refuses every program. */
#define FAKE_BEFORE(call) ((call) == Compile ? fail(PJRT_Error_Code_INTERNAL, "ptxas: not found") : NULL)
#include "fake.h"
