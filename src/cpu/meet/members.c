#include "cpu/meet/members.h"

#include <stdio.h>

enum { SLICED_LEAST = 64 << 10 };

void xl_meet_where(const xl_step *s, char *text, size_t size)
{
    size_t at = (size_t)snprintf(text, size, "%s", s->name);
    for (uint32_t i = 0; i < s->nin && i < 2 && at < size - 32; i++) {
        at += (size_t)snprintf(text + at, size - at, "%s", i ? ", " : " of ");
        for (uint32_t k = 0; k < s->shape[i].rank && at < size - 32; k++)
            at += (size_t)snprintf(text + at, size - at, "%lldx", (long long)s->shape[i].dims[k]);
        at += (size_t)snprintf(text + at, size - at, "%s", xl_dtypes[s->shape[i].dtype].text);
    }
}

void xl_meet_slice(size_t count, uint32_t part, uint32_t parts, size_t *from, size_t *to)
{
    size_t each = (count / parts + 15) & ~(size_t)15;      /* whole cache lines */
    *from = each * part < count ? each * part : count;
    *to = part + 1 == parts || each * (part + 1) > count ? count : each * (part + 1);
}

bool xl_meet_sliced(const xl_step *s, uint32_t parts)
{
    size_t bytes = 0;
    for (uint32_t i = 0; i < s->nin; i++)
        bytes += s->shape[i].bytes;
    return parts > 1 && s->op->code == XL_OP_ALL_REDUCE && bytes >= SLICED_LEAST;
}
