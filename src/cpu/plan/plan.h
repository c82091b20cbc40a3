/* src/cpu/plan/plan.h
 * A plan is a program that is ready to run: steps over numbered buffers, one memory plan for all of them, constants
 * stored once.
 * A step is a function, the buffers it reads and writes, their shapes, and the decoded attributes of its op.
 * Regions (the body of a while, the computation of a reduction) become blocks of steps of the same plan.
 *
 * One thread makes a plan; after that it never changes, and any number of threads may run it, each with its own frame.
 * Nothing in it is machine code; it owns the module it was made from. */
#ifndef XL_CPU_PLAN_H
#define XL_CPU_PLAN_H

#include "cpu/run/pool.h"
#include "ir/ir.h"

enum { XL_RANK_MAX = 32, XL_ALIGN = 64, XL_LANES = 256 };

typedef struct {
    xl_dtype dtype;
    uint32_t rank;
    const int64_t *dims;
    int64_t count;
    size_t elem, bytes;                                    /* bytes = count * elem */
} xl_extent;

typedef struct xl_plan xl_plan;
typedef struct xl_step xl_step;
typedef struct xl_block xl_block;
typedef struct xl_frame xl_frame;
typedef xl_error *xl_step_fn(const xl_step *s, xl_frame *f);

/* Of a step that treats `units` members of a batch apart: run does those from begin to end. stride: per buffer, the
 * bytes of a member, if member i reads and writes those from i * stride on alone; 0 if not. */
typedef struct {
    xl_error *(*run)(const xl_step *s, xl_frame *f, size_t begin, size_t end);
    int64_t units;
    const size_t *stride;
} xl_slices;

struct xl_step {
    xl_step_fn *run;
    const char *name;                                      /* of the op, for messages */
    uint32_t nin, nout;
    const uint32_t *buf;                                   /* nin operands, then nout results */
    const xl_extent *shape;                                 /* likewise */
    const void *data;                                      /* the kernel's own */
    xl_block *const *sub;
    const xl_op *op;
    const uint32_t
        *val; /* of a step for several ops, or one that reads through views: ids of the values in buf, or UINT32_MAX */
    xl_op *const *ops;                                     /* those ops */
    uint32_t nop, nres;                                    /* how many; results proper, before the memory it works in */
    uint32_t inplace;                                      /* operands that results may overwrite, as the kernel says */
    int64_t pos;                                           /* of its op */
    const xl_slices *slices;                               /* or NULL */
};

struct xl_block {
    xl_step *step;
    uint32_t nstep, capstep;
    uint32_t narg, nret;
    uint32_t *arg, *ret;                                   /* buffers, tuples taken apart */
    xl_extent *arg_shape, *ret_shape;
    uint32_t lanes;                                        /* each buffer holds this many elements side by side */
};

typedef enum {
    XL_BUF_TEMP,
    XL_BUF_ARG,
    XL_BUF_OUT,
    XL_BUF_CONST,
    XL_BUF_PART
} xl_buf_kind; /* PART: of another, where a step says */
typedef struct {
    xl_buf_kind kind;
    bool pinned;                                           /* nobody may write over it in place */
    uint32_t index; /* ARG, OUT: which; PART: the buffer it is a part of, XL_NO_BUF: one that lives as long anyway */
    size_t bytes, offset;
    uint32_t host; /* TEMP: 1 + the OUT buffer whose memory it lies in before that is written, or 0 */
    const void *data;                                      /* CONST */
    int64_t def, last, end; /* positions: made, last read of the present content, given back; OUT: first written */
} xl_plan_buf;

struct xl_plan {
    xl_arena arena;
    xl_module *m;
    xl_func *f;
    xl_block *body;
    xl_plan_buf *buf;
    uint32_t nbuf, capbuf;
    uint32_t narg, nout;
    xl_extent *arg, *out;
    int32_t *out_donor;                                    /* per output: the argument whose memory it takes, or -1 */
    bool *arg_donated;
    size_t temp_bytes, const_bytes;
    double flops, bytes_accessed, transcendentals;
    uint32_t ndevice;                                      /* that run it together */
    bool collective;                                       /* they meet while running */
    bool host;                                             /* it calls functions of this process */
    struct xl_plan_end *ends;
    uint32_t nstep;
};

typedef struct xl_meet xl_meet;                            /* where the devices of one execution exchange data */

struct xl_frame {
    const xl_plan *plan;
    void **ptr;                                            /* per buffer */
    xl_pool *pool;
    size_t lanes;                                          /* nonzero inside a vector block: elements at work */
    uint32_t replica, partition, nreplica, npartition;
    xl_meet *meet;
    uint64_t *rng;                                         /* state of the rng op */
    int64_t run;                                           /* the same for all devices of an execution */
    int32_t ordinal;                                       /* of the device in its client */
    const void *context;                                   /* xl_ffi_context: for custom calls; or NULL */
};

/* Takes over m on success. The module must be inlined: one function without calls. */
xl_error *xl_plan_new(xl_module *m, uint32_t ndevice, xl_plan **out) XL_MUST_USE;
void xl_plan_free(xl_plan *p);
/* fn(ctx) is called when the plan is freed, which it is also where it is not finished. */
void xl_plan_at_end(xl_plan *p, void (*fn)(void *ctx), void *ctx);

/* arg and out: narg and nout pointers, 64-byte aligned where they are ours; an output may be its donor's memory.
 * temp: plan->temp_bytes of memory. f's pool, ids and meet are set by the caller; ptr is made here. */
xl_error *xl_plan_run(const xl_plan *p, xl_frame *f, void *const *arg, void *const *out, void *temp) XL_MUST_USE;
xl_error *xl_block_run(const xl_block *b, xl_frame *f) XL_MUST_USE;

static inline void *xl_in(const xl_step *s, const xl_frame *f, uint32_t i) { return f->ptr[s->buf[i]]; }
static inline void *xl_out(const xl_step *s, const xl_frame *f, uint32_t i) { return f->ptr[s->buf[s->nin + i]]; }
static inline const xl_extent *xl_in_shape(const xl_step *s, uint32_t i) { return &s->shape[i]; }
static inline const xl_extent *xl_out_shape(const xl_step *s, uint32_t i) { return &s->shape[s->nin + i]; }

#endif
