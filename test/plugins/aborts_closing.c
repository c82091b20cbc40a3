/* Everything works until the client is closed. */
#define FAKE_BEFORE(call) ((call) == Destroy ? abort(), NULL : NULL)
#include "fake.h"
