#include "pass/calls.h"

#include <stdlib.h>

enum { TIMES = 64, LEAST = 65536 };
static const uint64_t most = UINT64_C(1) << 60;

typedef struct { const xl_module *m; uint64_t *size, own; uint8_t *state; } count; /* state: 0 new, 1 open, 2 done */

static uint64_t func_size(count *c, uint32_t i);

static uint64_t region_size(count *c, const xl_region *r)
{
    uint64_t n = 0;
    for (uint32_t k = 0; k < r->nop; k++) {
        const xl_op *op = r->op[k];
        n++;
        c->own++;
        if (op->code == XL_OP_CALL) {
            xl_str name = xl_op_str(op, XL_SLOT(CALL, callee));
            for (uint32_t i = 0; i < c->m->nfunc; i++)
                if (xl_str_eq(c->m->func[i]->name, name)) {
                    n += func_size(c, i);
                    break;
                }
        }
        for (uint32_t g = 0; g < op->nregion; g++)
            n += region_size(c, op->region[g]);
        n = n < most ? n : most;
    }
    return n;
}

static uint64_t func_size(count *c, uint32_t i)
{
    if (c->state[i] == 0 && c->m->func[i]->body) {         /* one that calls itself is refused elsewhere */
        c->state[i] = 1;
        c->size[i] = region_size(c, c->m->func[i]->body);
        c->state[i] = 2;
    }
    return c->size[i];
}

xl_error *xl_calls_check(const xl_module *m)
{
    count c = { .m = m, .size = calloc(m->nfunc + 1, sizeof *c.size), .state = calloc(m->nfunc + 1, 1) };
    xl_error *err = c.size && c.state ? NULL : XL_ERR(EXHAUSTED, "out of memory");
    uint64_t largest = 0;
    for (uint32_t i = 0; !err && i < m->nfunc; i++) {
        uint64_t n = func_size(&c, i);
        largest = n > largest ? n : largest;
    }
    if (!err && largest > LEAST && largest / TIMES > c.own)
        err = XL_ERR(EXHAUSTED,
                     "its calls make %llu ops of the %llu that are written: more than %d times as many is refused; "
                     "call less from what is called",
                     (unsigned long long)largest, (unsigned long long)c.own, TIMES);
    free(c.size);
    free(c.state);
    return err;
}
