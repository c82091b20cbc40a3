/* Starts, and lists no device. */
#define FAKE_DEVICES 0
#include "fake.h"
