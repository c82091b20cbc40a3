/* Checks the ABI at compile time: every size and every offset of abi.h, and the order of the table, against layout.def.
 * Nothing here produces code. */
#include "pjrt/abi.h"

#define SIZE(s, size) _Static_assert(sizeof(s) == (size), #s " has another size");
#define FIELD(s, field, offset, size)                                                \
    _Static_assert(offsetof(s, field) == (offset), #s "." #field " lies elsewhere"); \
    _Static_assert(sizeof(((s *)0)->field) == (size), #s "." #field " has another size");
#define HEAD(s) FIELD(s, struct_size, 0, 8) FIELD(s, extension_start, 8, 8)
#include "pjrt/layout.def"
