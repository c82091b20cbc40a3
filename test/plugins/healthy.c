/* Nothing is wrong with this one. */
#include "fake.h"
