#include "cpu/tile/strip.h"

#include "cpu/run/feature.h"

XL_CPU_SETS(xl_strip_set, xl_strip)

const xl_strip_set *xl_strips(void) { return xl_strip_best(); }
