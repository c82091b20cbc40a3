/* Before 0.57 the table had another order. */
#define FAKE_MINOR 40
#include "fake.h"
