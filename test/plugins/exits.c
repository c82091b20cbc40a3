/* Ends the process over a flag that it does not know, as XLA does. */
#define FAKE_BEFORE(call)                                                                                              \
    ((call) == Create ? fputs("Unknown flag in XLA_FLAGS: --xla_no_such_flag\n", stderr), exit(1), NULL : NULL)
#include "fake.h"
