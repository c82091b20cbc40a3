/* Says about a card that others have filled what XLA's CUDA plugin says: the error is vague, the log is not. */
#define FAKE_BEFORE(call)                                                                                              \
    ((call) == Create                                                                                                  \
     ? fputs("E0000 Failed to create stream executor: CUDA_ERROR_OUT_OF_MEMORY: out of memory\n", stderr),             \
     fail(PJRT_Error_Code_NOT_FOUND, "no supported devices found for platform CUDA") : NULL)
#include "fake.h"
