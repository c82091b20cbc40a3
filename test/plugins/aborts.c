/* Aborts the process while it looks for its device, as libtpu does when it is asked in the wrong order. */
#define FAKE_BEFORE(call) ((call) == Create ? fputs("F0000 fatal: no topology was set\n", stderr), abort(), NULL : NULL)
#include "fake.h"
