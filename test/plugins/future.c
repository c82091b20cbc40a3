/* Another major version: nothing but the version may be believed. */
#define FAKE_MAJOR 1
#define FAKE_MINOR 2
#define FAKE_TABLE offsetof(PJRT_Api, PJRT_Error_Destroy)
#include "fake.h"
