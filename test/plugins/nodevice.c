/* Says that it has none. */
#define FAKE_BEFORE(call) ((call) == Create ? fail(PJRT_Error_Code_NOT_FOUND, "no card is plugged in") : NULL)
#include "fake.h"
