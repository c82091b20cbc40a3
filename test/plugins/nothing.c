/* Has the symbol, but no table behind it. */
#include "pjrt/abi.h"
__attribute__((visibility("default"))) const PJRT_Api *GetPjrtApi(void);
const PJRT_Api *GetPjrtApi(void) { return NULL; }
