/* Dereferences NULL in the compiler. */
#define FAKE_BEFORE(call) ((call) == Compile ? (void)(*(volatile int *)NULL = 1), NULL : NULL)
#include "fake.h"
