#include "base/test.h"
#include "lane/collective_error.h"

static xl_collective_trouble of(const char *text) { return xl_collective_trouble_of(xl_str_of(text)); }

TEST(troubles_by_their_words)
{
    CHECK(of("device 3 is in stablehlo.all_reduce of 4x8xf32, device 5 of its group in stablehlo.all_gather of 8xf32: "
             "every device") == XL_TROUBLE_ORDER);
    CHECK(of("device 0 and device 1 came to all_reduce with different replica groups: every device of a group") ==
          XL_TROUBLE_GROUP);
    CHECK(of("INVALID_ARGUMENT: all-reduce operand layouts differ: f32[8,128]{1,0} and f32[8,128]{0,1}") ==
          XL_TROUBLE_LAYOUT);
    CHECK(of("INTERNAL: Collective permute mixed Layout in SPMD partitioned program") == XL_TROUBLE_LAYOUT);
    CHECK(of("DEADLINE_EXCEEDED: rendezvous of 8 participants") == XL_TROUBLE_GROUP);
    CHECK(of("RESOURCE_EXHAUSTED: out of memory while running jit_step") == XL_TROUBLE_NONE);
    CHECK(of("dot_general: contracting sizes differ, layout {1,0}") == XL_TROUBLE_NONE);
}
