/* Hangs in its first execution. */
#define FAKE_BEFORE(call) ((call) == Execute ? pause(), NULL : NULL)
#include "fake.h"
