/* src/pass/shard.h
 * SPMD: turns a program with global shapes and shardings into the program that every device runs on its own part.
 *
 * The devices of a program are numbered 0..n-1, and the number is decomposed into *atoms*: digits of prime size, the
 * first the most significant. Every axis of every mesh, and every tile of the older annotations, is a list of atoms, so
 * one form serves both, and sub-axes need no special case. A *spec* has for each dimension of a tensor the atoms over
 * which it is split, major first; an atom occurs at most once in a spec. Dimensions are split only if they divide
 * evenly; other sizes are padded first (shard_pad.c).
 *
 * A *rule* (the sharding column of ops.def) relates the dimensions of an op's operands and results: each dimension is a
 * product of *factors*, and dimensions with the same factor are split alike. A factor is passed through, or mirrored
 * (the first part becomes the last), or summed over (the result is then partial), or indexed (gather and scatter shift
 * their indices). A dimension without a factor is never split.
 *
 * Propagation (shard_propagate.c) copies specs along factors until nothing changes. Partitioning (shard_partition.c)
 * visits the ops, chooses for each the split of its factors that moves the fewest bytes, reshards the operands
 * accordingly (shard_reshard.c), and emits the op on local shapes. An op without a rule is computed whole on every
 * device from gathered operands: slow, but always right. */
#ifndef XL_PASS_SHARD_H
#define XL_PASS_SHARD_H

#include "ir/build.h"

enum { XL_AXES_MAX = 15, XL_SHARD_FACTORS = 96 };
typedef struct { uint8_t n, atom[XL_AXES_MAX]; } xl_axes;

/* What a collective moves, per device. operands: the bytes of its operands. ring: the bytes a device sends when k of
 * them do it in a ring: of n bytes 2 (k - 1) / k n for an all_reduce, (k - 1) n for an all_gather, (k - 1) / k n for a
 * reduce_scatter and an all_to_all, n for a permute or a broadcast. */
typedef struct { double operands, ring; int64_t group; } xl_traffic;
xl_traffic xl_shard_traffic(const xl_func *f, const xl_op *op, int64_t ndevice); /* zeros for what is no collective */

/* An op for which operands were gathered because no rule splits it that way: every device computes what they all need.
 * Or an annotation of a size that does not divide: "uneven sharding", with what each device holds. */
typedef struct { const char *op; xl_str file; uint32_t line, times; double bytes; } xl_gathered;

/* What a value is unreduced over: each device holds a part of what is to be summed (ADD) over it, or the maximum or
 * minimum is to be taken (MAXIMUM, MINIMUM). */
typedef struct { xl_axes over; xl_opcode combine; } xl_owed;

/* A value whose sharding the frontend asked for: the custom call xlane_inspect_sharding, whose backend_config is a
 * number. */
typedef struct { int64_t number; bool manual; const xl_axes *spec; uint32_t rank; xl_owed owed; } xl_inspected;

/* Asks the frontend how it partitions a call of its own, the custom call xlane_partition whose backend_config is a
 * number. in: the OpSharding of each operand, then of each result. The answer: a module whose entry function is the
 * call on local shapes, without calls inside, and a line for each operand and result that says how it is split, as
 * mhlo.sharding would. The caller frees both. */
typedef xl_error *xl_partition_fn(int64_t number, const xl_buf *in, uint32_t n, xl_module **out, xl_buf *lines);

/* ---- the pass ---------------------------------------------------------------------------------------------------- */
typedef struct {
    const uint8_t *loose; /* set by the caller, nloose of them: the split of argument i is ours to choose */
    uint32_t nloose;
    xl_partition_fn *partition;                            /* set by the caller; NULL: no frontend to ask */
    xl_axes **arg, **out; /* the spec of each argument and result; NULL for what is no tensor */
    xl_owed *arg_owed, *out_owed;                          /* what they are unreduced over */
    const int64_t **arg_order, **out_order; /* which device has the part of number p; NULL: that of number p */
    uint32_t narg, nout;
    uint32_t natom;
    const int64_t *size, *stride;                          /* of the atoms */
    int64_t npartition;
    xl_traffic traffic; /* of all collectives, per device and run, loops counted once */
    xl_gathered *gathered;
    uint32_t ngathered;
    xl_inspected *inspected;
    uint32_t ninspected;
} xl_shard_info;
/* A line for each: op, file:line, times, bytes per device, separated by tabs. */
void xl_shard_gathered(const xl_shard_info *info, xl_buf *out);

/* Partitions the entry function, in which calls are inlined. npartition 1 only drops the annotations. *info is the
 * module's. */
xl_error *xl_shard(xl_module *m, int64_t npartition, int64_t nreplica, xl_shard_info *info) XL_MUST_USE;
/* The OpSharding message of a spec, unreduced over owed, as XLA would write it for the same annotation. */
void xl_shard_proto(const xl_shard_info *info, const xl_axes *spec, uint32_t rank, const xl_owed *owed,
                    const int64_t *order, xl_buf *out);
void xl_shard_text(const xl_shard_info *info, const xl_axes *spec, uint32_t rank, const xl_owed *owed,
                   const int64_t *order, xl_buf *out); /* the same as mhlo.sharding has it */

/* ---- rules ------------------------------------------------------------------------------------------------------- */
typedef enum { XL_FACTOR_PASS, XL_FACTOR_MIRROR, XL_FACTOR_SUM, XL_FACTOR_INDEX } xl_factor_kind;
typedef struct { uint8_t n, f[7]; } xl_dim_factors;
typedef struct {
    uint32_t nfactor;
    int64_t size[XL_SHARD_FACTORS];
    uint8_t kind[XL_SHARD_FACTORS];
    xl_opcode combine;                                     /* of partial results: ADD, MAXIMUM, ... */
    xl_dim_factors **map;                                  /* per operand, then per result; per dimension */
    double work; /* operations per element of the product of all factors; 0: of the result */
} xl_rule;
/* Fills r, whose maps are allocated and empty; false: there is no rule, and the op is computed whole. */
typedef bool xl_shard_fn(const xl_func *f, const xl_op *op, xl_rule *r);
#define OP(name, text, nin, nout, nregion, types, grad, shard, ...) xl_shard_fn xl_shard_##shard;
#include "ir/ops.def"
bool xl_shard_rule(const xl_func *f, const xl_op *op, xl_arena *a, xl_rule *r);

/* ---- between the files of the pass ------------------------------------------------------------------------------- */
typedef struct {
    xl_module *m;
    xl_func *f;
    xl_arena *a;
    int64_t n, nreplica;
    uint32_t natom;
    int64_t *size, *stride;
    xl_axes *axis; /* the axes of the meshes, or of the tiles of older annotations */
    uint32_t naxis, capaxis;
    uint32_t nval, nresult; /* values of the program as it came; then one per result of it */
    xl_axes **spec;                                        /* per value; NULL for what is no tensor */
    uint32_t *closed; /* per value: a bit per dimension that may not be split further */
    bool *grouped;                                         /* per value: it is in a sharding group */
    struct xl_shard_edge *edge;                            /* values that should be split alike */
    uint32_t nedge, capedge;
    xl_gathered *gathered;
    uint32_t ngathered, capgathered;
    xl_inspected *inspected;
    uint32_t ninspected, capinspected;
    xl_partition_fn *partition;
    int64_t asked[32]; /* of the annotation last read: into how many parts, by dimension */
    bool uneven;                                           /* xl_shard_read left out part of a split */
} xl_shard_ctx;
/* b is split like a, but for the `skip` major atoms that a has in each dimension, and never over the `manual` ones,
 * which belong to the region that b is in. */
typedef struct xl_shard_edge { uint32_t a, b; const xl_axes *skip; xl_axes manual; } xl_shard_edge;

static inline uint32_t xl_shard_rank(const xl_type *t)
{
    return t->kind == XL_TY_TENSOR && !t->unranked && t->rank <= 32 ? t->rank : 0;
}
static inline bool xl_axes_eq(const xl_axes *a, const xl_axes *b)
{
    return a->n == b->n && !memcmp(a->atom, b->atom, a->n);
}
static inline bool xl_axes_prefix(const xl_axes *a, const xl_axes *of)
{
    return a->n <= of->n && !memcmp(a->atom, of->atom, a->n);
}
bool xl_spec_eq(const xl_axes *a, const xl_axes *b, uint32_t rank);
bool xl_spec_uses(const xl_axes *spec, uint32_t rank, uint8_t atom);
int64_t xl_axes_parts(const xl_shard_ctx *c, const xl_axes *a);
const xl_type *xl_shard_local(const xl_shard_ctx *c, const xl_type *t, const xl_axes *spec);
xl_axes *xl_spec_copy(const xl_shard_ctx *c, const xl_axes *spec, uint32_t rank);

/* shard_spec.c: annotations in the program. */
xl_error *xl_shard_atoms(xl_shard_ctx *c) XL_MUST_USE;
/* A spec for a tensor of type t from an annotation (sdy.sharding or an mhlo.sharding string); `closed` receives the
 * bits of closed dimensions. Dimensions that do not divide evenly are an error if `strict`, otherwise they are split
 * as far as possible (c->uneven). *out is NULL if the annotation has no sharding (manual, unknown). */
xl_error *xl_shard_read(xl_shard_ctx *c, const xl_attr *a, const xl_type *t, bool strict, xl_axes **out,
                        uint32_t *closed) XL_MUST_USE;
xl_error *xl_shard_owed(xl_shard_ctx *c, const xl_attr *a, xl_owed *out) XL_MUST_USE; /* of an annotation */
/* The devices of the annotation's mesh where no digits of their numbers are its axes; NULL where they are. Inside the
 * program such a mesh counts as 0, 1, 2, ...; arguments and results change hands at the border. */
const int64_t *xl_shard_order(const xl_shard_ctx *c, const xl_attr *a);
const xl_attr *xl_shard_note(const xl_attr *dict);         /* the annotation among the attributes, or NULL */
xl_error *xl_shard_axis(xl_shard_ctx *c, const xl_sharding *s, xl_str name, int64_t pre, int64_t size,
                        xl_axes *out) XL_MUST_USE; /* appends */
/* How many of the first atoms of a are whole axes: a frontend cannot name a part of an axis. */
uint32_t xl_shard_whole_axes(const xl_shard_ctx *c, const xl_axes *a);

/* factors <-> specs */
void xl_shard_project(const xl_shard_ctx *c, const xl_rule *r, uint32_t tensor, const xl_axes *spec, uint32_t rank,
                      xl_axes *fs);
void xl_shard_unproject(const xl_shard_ctx *c, const xl_rule *r, uint32_t tensor, const xl_axes *fs, uint32_t rank,
                        xl_axes *spec);

xl_error *xl_shard_divide(xl_shard_ctx *c)
    XL_MUST_USE; /* makes sizes divide where a constraint in between asks for it (shard_pad.c) */
void xl_shard_propagate(xl_shard_ctx *c);

/* shard_reshard.c: from one spec to another. */
double xl_shard_cost(const xl_shard_ctx *c, const xl_type *t, const xl_axes *from,
                     const xl_axes *to); /* ring bytes per device */
xl_value xl_shard_move(xl_shard_ctx *c, xl_b *b, xl_value v, const xl_type *global, const xl_axes *from,
                       const xl_axes *to);
/* v, whose dims each device has already reversed in its own part; exchanges the parts so that they are in reverse
 * order too. */
xl_value xl_shard_mirror(xl_shard_ctx *c, xl_b *b, xl_value v, const xl_axes *spec, xl_dims dims);
/* From the devices of xl_shard_order to 0, 1, 2, ... (an argument), or back (a result). */
xl_value xl_shard_renumber(xl_shard_ctx *c, xl_b *b, xl_value v, const int64_t *order, bool argument);
xl_value xl_shard_all_reduce(xl_shard_ctx *c, xl_b *b, xl_value v, const xl_axes *over, xl_opcode combine);
xl_value xl_shard_reduce_scatter(xl_shard_ctx *c, xl_b *b, xl_value v, const xl_axes *over, uint32_t dim,
                                 xl_opcode combine);
xl_value xl_shard_offset(xl_shard_ctx *c, xl_b *b, const xl_axes *a, int64_t unit,
                         xl_dtype d); /* coordinate along a, times unit: a scalar */

/* Groups of the devices that differ in the atoms of `over` alone, in its order. flat: for every replica. */
const xl_attr *xl_shard_groups(xl_shard_ctx *c, const xl_axes *over, bool flat);

/* Fewer collectives: see shard_combine.c. Gives what crosses in f per device and run, loops counted once. */
xl_traffic xl_shard_combine(xl_func *f, int64_t ndevice);

#endif
