/* A table too short to be one. */
#define FAKE_TABLE offsetof(PJRT_Api, PJRT_Event_Await)
#include "fake.h"
