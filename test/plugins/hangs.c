/* Waits for a metadata server that does not answer. */
#define FAKE_BEFORE(call) ((call) == Create ? fputs("asking the metadata server\n", stderr), pause(), NULL : NULL)
#include "fake.h"
