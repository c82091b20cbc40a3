/* A version of the years to come: it says that its table is longer than ours. */
#define FAKE_MINOR 314
#define FAKE_TABLE (sizeof(PJRT_Api) + 800)
#include "fake.h"
