/* The text of a kernel is a template with $n (columns), $b (columns that a block processes at once, a power of two), $r
 * (rows of one program), $m (all rows), $t (the narrow type), $f (1 / columns), $e (epsilon) and $l (where the last
 * block of columns begins). The arguments are the operands, then the results. One program (a block of threads)
 * processes one row, or $r rows one after the other. */
#include "pass/triton.h"

#include <math.h>
#include <stdio.h>

enum {
    COLUMNS_MAX = 16384,
    PER_THREAD = 8,
    LOSS_BLOCK = 4096,
    BACK_PROGRAMS = 1024,
    JOIN_BLOCK = 2048,
    JOIN_EACH = 4 * JOIN_BLOCK,          /* elements of one program */
    PARTS_MAX = 256,
    COLUMNS_EACH = 32,                   /* of a tile with 128 rows */
    COLUMNS_TILE = 2048
};
static const char LOSS[] = "xlane_loss", NORM[] = "xlane_norm", NORM_SUM[] = "xlane_norm_sum",
                  NORM_BACK[] = "xlane_norm_back", NORM_SUM_BACK[] = "xlane_norm_sum_back", JOIN[] = "xlane_join",
                  AFTER[] = "xlane_after", ROPE[] = "xlane_rope", ROPE_BACK[] = "xlane_rope_back",
                  COLUMNS[] = "xlane_columns";

#define FIRST_ROW "xlane.first_row"      /* of xl_triton_after, in the op's `extra` */

#define PTR(t) "!tt.ptr<" t "> {tt.divisibility = 16 : i32}"
#define SUM_OF(out, in, op)                                                                                            \
    "  " out " = \"tt.reduce\"(" in ") <{axis = 0 : i32}> ({\n"                                                        \
    "  ^bb0(%r0: f32, %r1: f32):\n"                                                                                    \
    "    %r2 = " op " %r0, %r1 : f32\n"                                                                                \
    "    tt.reduce.return %r2 : f32\n"                                                                                 \
    "  }) : (tensor<$bxf32>) -> f32\n"

/* One pass finds each lane's maximum and its sum of exp(x - maximum); the sums are then joined, and a second pass
 * writes the gradient where the logits were. It begins at the row's end, which the cache still has; the cache is asked
 * to keep what the first pass read, and nothing of what the second one writes. */
static const char *const loss_text[] = {
    "tt.func public @xlane_loss(%x: " PTR("$t") ", %label: " PTR("i32") ", %weight: " PTR("f32") ", %dx: " PTR("$t")
    ", %nll: " PTR("f32") ", %out: " PTR("f32") ") {\n"
    "  %c0 = arith.constant 0 : i32\n"
    "  %cb = arith.constant $b : i32\n"
    "  %cn = arith.constant $n : i32\n"
    "  %clast = arith.constant $l : i32\n"
    "  %cn64 = arith.constant $n : i64\n"
    "  %low = arith.constant dense<-1.0e+30> : tensor<$bxf32>\n"
    "  %zero = arith.constant dense<0.0> : tensor<$bxf32>\n"
    "  %zero_t = arith.constant dense<0.0> : tensor<$bx$t>\n"
    "  %one = arith.constant dense<1.0> : tensor<$bxf32>\n"
    "  %log2e = arith.constant dense<1.44269504> : tensor<$bxf32>\n"
    "  %end = arith.constant dense<$n> : tensor<$bxi32>\n"
    "  %row = tt.get_program_id x : i32\n"
    "  %row64 = arith.extsi %row : i32 to i64\n"
    "  %at = arith.muli %row64, %cn64 : i64\n"
    "  %xr = tt.addptr %x, %at : !tt.ptr<$t>, i64\n"
    "  %dr = tt.addptr %dx, %at : !tt.ptr<$t>, i64\n"
    "  %lp = tt.addptr %label, %row : !tt.ptr<i32>, i32\n"
    "  %wp = tt.addptr %weight, %row : !tt.ptr<f32>, i32\n"
    "  %l = tt.load %lp : !tt.ptr<i32>\n"
    "  %w = tt.load %wp : !tt.ptr<f32>\n"
    "  %yp = tt.addptr %xr, %l : !tt.ptr<$t>, i32\n"
    "  %yt = tt.load %yp : !tt.ptr<$t>\n"
    "  %y = arith.extf %yt : $t to f32\n"
    "  %range = tt.make_range {start = 0 : i32, end = $b : i32} : tensor<$bxi32>\n"
    "  %xs = tt.splat %xr : !tt.ptr<$t> -> tensor<$bx!tt.ptr<$t>>\n"
    "  %ds = tt.splat %dr : !tt.ptr<$t> -> tensor<$bx!tt.ptr<$t>>\n"
    "  %p:2 = scf.for %j = %c0 to %cn step %cb iter_args(%m = %low, %s = %zero)"
    " -> (tensor<$bxf32>, tensor<$bxf32>) : i32 {\n"
    "    %js = tt.splat %j : i32 -> tensor<$bxi32>\n"
    "    %i = arith.addi %js, %range : tensor<$bxi32>\n"
    "    %in = arith.cmpi slt, %i, %end : tensor<$bxi32>\n"
    "    %ptr = tt.addptr %xs, %i : tensor<$bx!tt.ptr<$t>>, tensor<$bxi32>\n"
    "    %vt = tt.load %ptr, %in, %zero_t evictionPolicy = evict_last : tensor<$bx!tt.ptr<$t>>\n"
    "    %v0 = arith.extf %vt : tensor<$bx$t> to tensor<$bxf32>\n"
    "    %v = arith.select %in, %v0, %low : tensor<$bxi1>, tensor<$bxf32>\n"
    "    %d = arith.subf %v, %m : tensor<$bxf32>\n"
    "    %abs = math.absf %d : tensor<$bxf32>\n"
    "    %neg = arith.subf %zero, %abs : tensor<$bxf32>\n"
    "    %in2 = arith.mulf %neg, %log2e : tensor<$bxf32>\n"
    "    %e = math.exp2 %in2 : tensor<$bxf32>\n"
    "    %up = arith.cmpf ogt, %v, %m : tensor<$bxf32>\n"
    "    %scaled = arith.mulf %s, %e : tensor<$bxf32>\n"
    "    %s1 = arith.addf %scaled, %one : tensor<$bxf32>\n"
    "    %s2 = arith.addf %s, %e : tensor<$bxf32>\n"
    "    %sn = arith.select %up, %s1, %s2 : tensor<$bxi1>, tensor<$bxf32>\n"
    "    %mn = arith.maximumf %m, %v : tensor<$bxf32>\n"
    "    scf.yield %mn, %sn : tensor<$bxf32>, tensor<$bxf32>\n"
    "  }\n",
    SUM_OF("%top", "%p#0", "arith.maximumf")
    "  %tops = tt.splat %top : f32 -> tensor<$bxf32>\n"
    "  %gap = arith.subf %p#0, %tops : tensor<$bxf32>\n"
    "  %gap2 = arith.mulf %gap, %log2e : tensor<$bxf32>\n"
    "  %by = math.exp2 %gap2 : tensor<$bxf32>\n"
    "  %part = arith.mulf %p#1, %by : tensor<$bxf32>\n"
    SUM_OF("%sum", "%part", "arith.addf")
    "  %ln = math.log %sum : f32\n"
    "  %lse = arith.addf %ln, %top : f32\n"
    "  %loss = arith.subf %lse, %y : f32\n"
    "  %wloss = arith.mulf %loss, %w : f32\n"
    "  %np = tt.addptr %nll, %row : !tt.ptr<f32>, i32\n"
    "  %op = tt.addptr %out, %row : !tt.ptr<f32>, i32\n"
    "  tt.store %np, %loss : !tt.ptr<f32>\n"
    "  tt.store %op, %wloss : !tt.ptr<f32>\n"
    "  %q = arith.divf %w, %sum : f32\n"
    "  %qs = tt.splat %q : f32 -> tensor<$bxf32>\n"
    "  %ws = tt.splat %w : f32 -> tensor<$bxf32>\n"
    "  %ls = tt.splat %l : i32 -> tensor<$bxi32>\n"
    "  scf.for %done = %c0 to %cn step %cb : i32 {\n"
    "    %j = arith.subi %clast, %done : i32\n"
    "    %js = tt.splat %j : i32 -> tensor<$bxi32>\n"
    "    %i = arith.addi %js, %range : tensor<$bxi32>\n"
    "    %in = arith.cmpi slt, %i, %end : tensor<$bxi32>\n"
    "    %ptr = tt.addptr %xs, %i : tensor<$bx!tt.ptr<$t>>, tensor<$bxi32>\n"
    "    %vt = tt.load %ptr, %in, %zero_t evictionPolicy = evict_first : tensor<$bx!tt.ptr<$t>>\n"
    "    %v = arith.extf %vt : tensor<$bx$t> to tensor<$bxf32>\n"
    "    %d = arith.subf %v, %tops : tensor<$bxf32>\n"
    "    %in2 = arith.mulf %d, %log2e : tensor<$bxf32>\n"
    "    %e = math.exp2 %in2 : tensor<$bxf32>\n"
    "    %pr = arith.mulf %e, %qs : tensor<$bxf32>\n"
    "    %hit = arith.cmpi eq, %i, %ls : tensor<$bxi32>\n"
    "    %h = arith.select %hit, %ws, %zero : tensor<$bxi1>, tensor<$bxf32>\n"
    "    %g = arith.subf %pr, %h : tensor<$bxf32>\n"
    "    %gt = arith.truncf %g : tensor<$bxf32> to tensor<$bx$t>\n"
    "    %to = tt.addptr %ds, %i : tensor<$bx!tt.ptr<$t>>, tensor<$bxi32>\n"
    "    tt.store %to, %gt, %in cacheModifier = cs : tensor<$bx!tt.ptr<$t>>\n"
    "  }\n"
    "  tt.return\n"
    "}\n", NULL };

#define ROW_HEAD                                                                                                       \
    "  %cn64 = arith.constant $n : i64\n"                                                                              \
    "  %inv = arith.constant $f : f32\n"                                                                               \
    "  %zero = arith.constant dense<0.0> : tensor<$bxf32>\n"                                                           \
    "  %zero_t = arith.constant dense<0.0> : tensor<$bx$t>\n"                                                          \
    "  %end = arith.constant dense<$n> : tensor<$bxi32>\n"                                                             \
    "  %id = tt.get_program_id x : i32\n"                                                                              \
    "  %range = tt.make_range {start = 0 : i32, end = $b : i32} : tensor<$bxi32>\n"                                    \
    "  %in = arith.cmpi slt, %range, %end : tensor<$bxi32>\n"                                                          \
    "  %gp0 = tt.splat %gain : !tt.ptr<f32> -> tensor<$bx!tt.ptr<f32>>\n"                                              \
    "  %gp = tt.addptr %gp0, %range : tensor<$bx!tt.ptr<f32>>, tensor<$bxi32>\n"                                       \
    "  %gv = tt.load %gp, %in, %zero : tensor<$bx!tt.ptr<f32>>\n"
/* The pointers to a row of `from`, and what lies there as f32. */
#define ROW_OF(to, from)                                                                                               \
    "  " to "_r = tt.addptr " from ", %at : !tt.ptr<$t>, i64\n"                                                        \
    "  " to "_s = tt.splat " to "_r : !tt.ptr<$t> -> tensor<$bx!tt.ptr<$t>>\n"                                         \
    "  " to "_p = tt.addptr " to "_s, %range : tensor<$bx!tt.ptr<$t>>, tensor<$bxi32>\n"
#define LOAD(to, from)                                                                                                 \
    ROW_OF(to, from)                                                                                                   \
    "  " to "_t = tt.load " to "_p, %in, %zero_t : tensor<$bx!tt.ptr<$t>>\n"                                           \
    "  " to " = arith.extf " to "_t : tensor<$bx$t> to tensor<$bxf32>\n"

#define NORM_BODY                                                                                                      \
    "  %eps = arith.constant $e : f32\n"                                                                               \
    "  %sq = arith.mulf %h, %h : tensor<$bxf32>\n"                                                                     \
    SUM_OF("%ss", "%sq", "arith.addf")                                                                                 \
    "  %ms = arith.mulf %ss, %inv : f32\n"                                                                             \
    "  %me = arith.addf %ms, %eps : f32\n"                                                                             \
    "  %r = math.rsqrt %me : f32\n"                                                                                    \
    "  %rp = tt.addptr %rstd, %id : !tt.ptr<f32>, i32\n"                                                               \
    "  tt.store %rp, %r : !tt.ptr<f32>\n"                                                                              \
    "  %rs = tt.splat %r : f32 -> tensor<$bxf32>\n"                                                                    \
    "  %hr = arith.mulf %h, %rs : tensor<$bxf32>\n"                                                                    \
    "  %n = arith.mulf %hr, %gv : tensor<$bxf32>\n"                                                                    \
    "  %nt = arith.truncf %n : tensor<$bxf32> to tensor<$bx$t>\n"                                                      \
    ROW_OF("%o", "%out")                                                                                               \
    "  tt.store %o_p, %nt, %in : tensor<$bx!tt.ptr<$t>>\n"                                                             \
    "  tt.return\n"                                                                                                    \
    "}\n"
#define NORM_AT                                                                                                        \
    ROW_HEAD                                                                                                           \
    "  %id64 = arith.extsi %id : i32 to i64\n"                                                                         \
    "  %at = arith.muli %id64, %cn64 : i64\n"

static const char *const norm_text[] = {
    "tt.func public @xlane_norm(%x: " PTR("$t") ", %gain: " PTR("f32") ", %out: " PTR("$t") ", %rstd: " PTR(
        "f32") ") {\n" NORM_AT LOAD("%h", "%x") NORM_BODY,
    NULL
};

static const char *const norm_sum_text[] = {
    "tt.func public @xlane_norm_sum(%x: " PTR("$t") ", %delta: " PTR("$t") ", %gain: " PTR("f32") ", %out: " PTR("$t")
    ", %rstd: " PTR("f32") ", %sum: " PTR("$t") ") {\n"
    NORM_AT LOAD("%xv", "%x") LOAD("%dv", "%delta")
    "  %hf = arith.addf %xv, %dv : tensor<$bxf32>\n"
    "  %ht = arith.truncf %hf : tensor<$bxf32> to tensor<$bx$t>\n"
    ROW_OF("%s", "%sum")
    "  tt.store %s_p, %ht, %in : tensor<$bx!tt.ptr<$t>>\n"
    "  %h = arith.extf %ht : tensor<$bx$t> to tensor<$bxf32>\n"
    NORM_BODY, NULL };

/* dx = rstd (dn gain - xn mean(dn gain xn)) with xn = x rstd, and for the gain the sum of dn xn over the rows of this
 * program. The next two rows are on their way while one is worked on. */
#define BACK_HEAD                                                                                                      \
    ROW_HEAD                                                                                                           \
    "  %c0 = arith.constant 0 : i32\n"                                                                                 \
    "  %c1 = arith.constant 1 : i32\n"                                                                                 \
    "  %cr = arith.constant $r : i32\n"                                                                                \
    "  %cm = arith.constant $m : i32\n"                                                                                \
    "  %first = arith.muli %id, %cr : i32\n"                                                                           \
    "  %rest = arith.subi %cm, %first : i32\n"                                                                         \
    "  %count = arith.minsi %rest, %cr : i32\n"                                                                        \
    "  %acc = scf.for %k = %c0 to %count step %c1 iter_args(%a = %zero) -> (tensor<$bxf32>) : i32 {\n"                 \
    "  %row = arith.addi %first, %k : i32\n"                                                                           \
    "  %row64 = arith.extsi %row : i32 to i64\n"                                                                       \
    "  %at = arith.muli %row64, %cn64 : i64\n"                                                                         \
    LOAD("%dn", "%dout") LOAD("%h", "%x")                                                                              \
    "  %rp = tt.addptr %rstd, %row : !tt.ptr<f32>, i32\n"                                                              \
    "  %r = tt.load %rp : !tt.ptr<f32>\n"                                                                              \
    "  %rs = tt.splat %r : f32 -> tensor<$bxf32>\n"                                                                    \
    "  %xn = arith.mulf %h, %rs : tensor<$bxf32>\n"                                                                    \
    "  %t = arith.mulf %dn, %gv : tensor<$bxf32>\n"                                                                    \
    "  %tx = arith.mulf %t, %xn : tensor<$bxf32>\n"                                                                    \
    SUM_OF("%dot", "%tx", "arith.addf")                                                                                \
    "  %c = arith.mulf %dot, %inv : f32\n"                                                                             \
    "  %cs = tt.splat %c : f32 -> tensor<$bxf32>\n"                                                                    \
    "  %xc = arith.mulf %xn, %cs : tensor<$bxf32>\n"                                                                   \
    "  %tc = arith.subf %t, %xc : tensor<$bxf32>\n"                                                                    \
    "  %d = arith.mulf %tc, %rs : tensor<$bxf32>\n"
#define BACK_TAIL(value)                                                                                               \
    "  %dt = arith.truncf " value " : tensor<$bxf32> to tensor<$bx$t>\n"                                               \
    ROW_OF("%o", "%dx")                                                                                                \
    "  tt.store %o_p, %dt, %in : tensor<$bx!tt.ptr<$t>>\n"                                                             \
    "  %dg = arith.mulf %dn, %xn : tensor<$bxf32>\n"                                                                   \
    "  %an = arith.addf %a, %dg : tensor<$bxf32>\n"                                                                    \
    "  scf.yield %an : tensor<$bxf32>\n"                                                                               \
    "  } {tt.num_stages = 3 : i32}\n"                                                                                  \
    "  %id64 = arith.extsi %id : i32 to i64\n"                                                                         \
    "  %pat = arith.muli %id64, %cn64 : i64\n"                                                                         \
    "  %pr = tt.addptr %part, %pat : !tt.ptr<f32>, i64\n"                                                              \
    "  %ps = tt.splat %pr : !tt.ptr<f32> -> tensor<$bx!tt.ptr<f32>>\n"                                                 \
    "  %pp = tt.addptr %ps, %range : tensor<$bx!tt.ptr<f32>>, tensor<$bxi32>\n"                                        \
    "  tt.store %pp, %acc, %in : tensor<$bx!tt.ptr<f32>>\n"                                                            \
    "  tt.return\n"                                                                                                    \
    "}\n"

static const char *const norm_back_text[] = {
    "tt.func public @xlane_norm_back(%dout: " PTR("$t") ", %x: " PTR("$t") ", %rstd: " PTR("f32") ", %gain: " PTR("f32")
    ", %dx: " PTR("$t") ", %part: " PTR("f32") ") {\n" BACK_HEAD BACK_TAIL("%d"), NULL };

static const char *const norm_sum_back_text[] = {
    "tt.func public @xlane_norm_sum_back(%dout: " PTR("$t") ", %x: " PTR("$t") ", %rstd: " PTR("f32") ", %gain: "
    PTR("f32") ", %dsum: " PTR("$t") ", %dx: " PTR("$t") ", %part: " PTR("f32") ") {\n"
    BACK_HEAD LOAD("%ds", "%dsum")
    "  %all = arith.addf %d, %ds : tensor<$bxf32>\n"
    BACK_TAIL("%all"), NULL };

/* Parts one after the other, and for each program the sum of the squares of what it copied. Part k is an argument of
 * its own, g<k>; %p is the one of this program. $n: elements of a part, $r: programs for each. %off says where element
 * %i of a part lies. */
static const char *const join_text[] = {
    "  %zero = arith.constant dense<0.0> : tensor<$bxf32>\n"
    "  %zero_t = arith.constant dense<0.0> : tensor<$bx$t>\n"
    "  %end = arith.constant dense<$n> : tensor<$bxi32>\n"
    "  %c0 = arith.constant 0 : i32\n"
    "  %cb = arith.constant $b : i32\n"
    "  %ce = arith.constant $m : i32\n"
    "  %cn64 = arith.constant $n : i64\n"
    "  %within = arith.remsi %id, %cr : i32\n"
    "  %first = arith.muli %within, %ce : i32\n"
    "  %part64 = arith.extsi %part : i32 to i64\n"
    "  %at = arith.muli %part64, %cn64 : i64\n"
    "  %to = tt.addptr %out, %at : !tt.ptr<$t>, i64\n"
    "  %range = tt.make_range {start = 0 : i32, end = $b : i32} : tensor<$bxi32>\n"
    "  %ps = tt.splat %p : !tt.ptr<$t> -> tensor<$bx!tt.ptr<$t>>\n"
    "  %ts = tt.splat %to : !tt.ptr<$t> -> tensor<$bx!tt.ptr<$t>>\n"
    "  %acc = scf.for %j = %c0 to %ce step %cb iter_args(%a = %zero) -> (tensor<$bxf32>) : i32 {\n"
    "    %fj = arith.addi %first, %j : i32\n"
    "    %js = tt.splat %fj : i32 -> tensor<$bxi32>\n"
    "    %i = arith.addi %js, %range : tensor<$bxi32>\n"
    "    %in = arith.cmpi slt, %i, %end : tensor<$bxi32>\n",
    "    %pp = tt.addptr %ps, %off : tensor<$bx!tt.ptr<$t>>, tensor<$bxi32>\n"
    "    %tp = tt.addptr %ts, %i : tensor<$bx!tt.ptr<$t>>, tensor<$bxi32>\n"
    "    %vt = tt.load %pp, %in, %zero_t : tensor<$bx!tt.ptr<$t>>\n"
    "    tt.store %tp, %vt, %in : tensor<$bx!tt.ptr<$t>>\n"
    "    %v = arith.extf %vt : tensor<$bx$t> to tensor<$bxf32>\n"
    "    %v2 = arith.mulf %v, %v : tensor<$bxf32>\n"
    "    %an = arith.addf %a, %v2 : tensor<$bxf32>\n"
    "    scf.yield %an : tensor<$bxf32>\n"
    "  }\n"
    SUM_OF("%sum", "%acc", "arith.addf")
    "  %sp = tt.addptr %squares, %id : !tt.ptr<f32>, i32\n"
    "  tt.store %sp, %sum : !tt.ptr<f32>\n"
    "  tt.return\n"
    "}\n" };

/* Sums of the columns of parts with $m rows of $n columns, 32 columns of one part to a program: %p, number %part. */
static const char columns_text[] =
    "  %zero = arith.constant dense<0.0> : tensor<128x32xf32>\n"
    "  %c0 = arith.constant 0 : i32\n"
    "  %cb = arith.constant 128 : i32\n"
    "  %ce = arith.constant $m : i32\n"
    "  %cn = arith.constant $n : i32\n"
    "  %c32 = arith.constant 32 : i32\n"
    "  %rows = arith.constant dense<$m> : tensor<128x32xi32>\n"
    "  %wide = arith.constant dense<$n> : tensor<128x32xi32>\n"
    "  %end = arith.constant dense<$n> : tensor<32xi32>\n"
    "  %within = arith.remsi %id, %cr : i32\n"
    "  %first = arith.muli %within, %c32 : i32\n"
    "  %firsts = tt.splat %first : i32 -> tensor<32xi32>\n"
    "  %range = tt.make_range {start = 0 : i32, end = 32 : i32} : tensor<32xi32>\n"
    "  %col = arith.addi %firsts, %range : tensor<32xi32>\n"
    "  %in = arith.cmpi slt, %col, %end : tensor<32xi32>\n"
    "  %col1 = tt.expand_dims %col {axis = 0 : i32} : tensor<32xi32> -> tensor<1x32xi32>\n"
    "  %cols = tt.broadcast %col1 : tensor<1x32xi32> -> tensor<128x32xi32>\n"
    "  %down = tt.make_range {start = 0 : i32, end = 128 : i32} : tensor<128xi32>\n"
    "  %down1 = tt.expand_dims %down {axis = 1 : i32} : tensor<128xi32> -> tensor<128x1xi32>\n"
    "  %downs = tt.broadcast %down1 : tensor<128x1xi32> -> tensor<128x32xi32>\n"
    "  %inside = arith.cmpi slt, %cols, %wide : tensor<128x32xi32>\n"
    "  %ps = tt.splat %p : !tt.ptr<f32> -> tensor<128x32x!tt.ptr<f32>>\n"
    "  %acc = scf.for %j = %c0 to %ce step %cb iter_args(%a = %zero) -> (tensor<128x32xf32>) : i32 {\n"
    "    %js = tt.splat %j : i32 -> tensor<128x32xi32>\n"
    "    %row = arith.addi %js, %downs : tensor<128x32xi32>\n"
    "    %left = arith.cmpi slt, %row, %rows : tensor<128x32xi32>\n"
    "    %mask = arith.andi %left, %inside : tensor<128x32xi1>\n"
    "    %rw = arith.muli %row, %wide : tensor<128x32xi32>\n"
    "    %off = arith.addi %rw, %cols : tensor<128x32xi32>\n"
    "    %pp = tt.addptr %ps, %off : tensor<128x32x!tt.ptr<f32>>, tensor<128x32xi32>\n"
    "    %v = tt.load %pp, %mask, %zero : tensor<128x32x!tt.ptr<f32>>\n"
    "    %an = arith.addf %a, %v : tensor<128x32xf32>\n"
    "    scf.yield %an : tensor<128x32xf32>\n"
    "  }\n"
    "  %sum = \"tt.reduce\"(%acc) <{axis = 0 : i32}> ({\n"
    "  ^bb0(%r0: f32, %r1: f32):\n"
    "    %r2 = arith.addf %r0, %r1 : f32\n"
    "    tt.reduce.return %r2 : f32\n"
    "  }) : (tensor<128x32xf32>) -> tensor<32xf32>\n"
    "  %at = arith.muli %part, %cn : i32\n"
    "  %to = tt.addptr %out, %at : !tt.ptr<f32>, i32\n"
    "  %ts = tt.splat %to : !tt.ptr<f32> -> tensor<32x!tt.ptr<f32>>\n"
    "  %tp = tt.addptr %ts, %col : tensor<32x!tt.ptr<f32>>, tensor<32xi32>\n"
    "  tt.store %tp, %sum, %in : tensor<32x!tt.ptr<f32>>\n"
    "  tt.return\n"
    "}\n";

/* A copy of $n elements from element $m on. */
static const char after_text[] =
    "  %zero_t = arith.constant dense<0.0> : tensor<$bx$t>\n"
    "  %end = arith.constant dense<$n> : tensor<$bxi32>\n"
    "  %cb = arith.constant $b : i32\n"
    "  %from = arith.constant $m : i64\n"
    "  %id = tt.get_program_id x : i32\n"
    "  %first = arith.muli %id, %cb : i32\n"
    "  %firsts = tt.splat %first : i32 -> tensor<$bxi32>\n"
    "  %range = tt.make_range {start = 0 : i32, end = $b : i32} : tensor<$bxi32>\n"
    "  %i = arith.addi %firsts, %range : tensor<$bxi32>\n"
    "  %in = arith.cmpi slt, %i, %end : tensor<$bxi32>\n"
    "  %xf = tt.addptr %x, %from : !tt.ptr<$t>, i64\n"
    "  %xs = tt.splat %xf : !tt.ptr<$t> -> tensor<$bx!tt.ptr<$t>>\n"
    "  %os = tt.splat %out : !tt.ptr<$t> -> tensor<$bx!tt.ptr<$t>>\n"
    "  %xp = tt.addptr %xs, %i : tensor<$bx!tt.ptr<$t>>, tensor<$bxi32>\n"
    "  %op = tt.addptr %os, %i : tensor<$bx!tt.ptr<$t>>, tensor<$bxi32>\n"
    "  %v = tt.load %xp, %in, %zero_t : tensor<$bx!tt.ptr<$t>>\n"
    "  tt.store %op, %v, %in : tensor<$bx!tt.ptr<$t>>\n"
    "  tt.return\n"
    "}\n";

/* One row of q, k and v side by side. A lane has number j of the first half of head h, and that of the second; the
 * pair turns by the angle that cos and sin [rows, $m] have at j. What is known of the sizes stands before: %half, %size
 * (of a head), %wide, %qs and %ks (of a row of q and k), %kat and %vat (where k and v begin), %qn and %kn (pairs). */
#define ROPE_AT                                                                                                        \
    "  %id = tt.get_program_id x : i32\n"                                                                              \
    "  %row = arith.extsi %id : i32 to i64\n"                                                                          \
    "  %range = tt.make_range {start = 0 : i32, end = $b : i32} : tensor<$bxi32>\n"                                    \
    "  %h = arith.divsi %range, %half : tensor<$bxi32>\n"                                                              \
    "  %j = arith.remsi %range, %half : tensor<$bxi32>\n"                                                              \
    "  %hs = arith.muli %h, %size : tensor<$bxi32>\n"                                                                  \
    "  %lo = arith.addi %hs, %j : tensor<$bxi32>\n"                                                                    \
    "  %hi = arith.addi %lo, %half : tensor<$bxi32>\n"                                                                 \
    "  %inq = arith.cmpi slt, %range, %qn : tensor<$bxi32>\n"                                                          \
    "  %ink = arith.cmpi slt, %range, %kn : tensor<$bxi32>\n"                                                          \
    "  %zero = arith.constant dense<0.0> : tensor<$bx$t>\n"                                                            \
    "  %zero_f = arith.constant dense<0.0> : tensor<$bxf32>\n"                                                         \
    "  %xrow = arith.muli %row, %wide : i64\n"                                                                         \
    "  %qrow = arith.muli %row, %qs : i64\n"                                                                           \
    "  %krow = arith.muli %row, %ks : i64\n"                                                                           \
    "  %kx = arith.addi %xrow, %kat : i64\n"                                                                           \
    "  %vx = arith.addi %xrow, %vat : i64\n"                                                                           \
    "  %arow = arith.muli %row, %turns : i64\n"                                                                        \
    ROPE_TO("%c", "%cos", "%arow", "%j", "f32")                                                                        \
    "  %c = tt.load %c_p, %inq, %zero_f : tensor<$bx!tt.ptr<f32>>\n"                                                   \
    ROPE_TO("%s", "%sin", "%arow", "%j", "f32")                                                                        \
    "  %s = tt.load %s_p, %inq, %zero_f : tensor<$bx!tt.ptr<f32>>\n"
#define ROPE_TO(to, from, row, at, type)                                                                               \
    "  " to "_r = tt.addptr " from ", " row " : !tt.ptr<" type ">, i64\n"                                              \
    "  " to "_s = tt.splat " to "_r : !tt.ptr<" type "> -> tensor<$bx!tt.ptr<" type ">>\n"                             \
    "  " to "_p = tt.addptr " to "_s, " at " : tensor<$bx!tt.ptr<" type ">>, tensor<$bxi32>\n"
#define ROPE_LOAD(to, from, row, in)                                                                                   \
    ROPE_TO(to "0", from, row, "%lo", "$t")                                                                            \
    ROPE_TO(to "1", from, row, "%hi", "$t")                                                                            \
    "  " to "0 = tt.load " to "0_p, " in ", %zero : tensor<$bx!tt.ptr<$t>>\n"                                          \
    "  " to "1 = tt.load " to "1_p, " in ", %zero : tensor<$bx!tt.ptr<$t>>\n"
#define ROPE_STORE(at, v0, v1, to, row, in)                                                                            \
    ROPE_TO(at "0", to, row, "%lo", "$t")                                                                              \
    ROPE_TO(at "1", to, row, "%hi", "$t")                                                                              \
    "  tt.store " at "0_p, " v0 ", " in " : tensor<$bx!tt.ptr<$t>>\n"                                                  \
    "  tt.store " at "1_p, " v1 ", " in " : tensor<$bx!tt.ptr<$t>>\n"
/* (v0, v1) turned: v0 cos `first` v1 sin, and v1 cos `second` v0 sin. */
#define ROPE_TURN(v, first, second)                                                                                    \
    "  " v "0f = arith.extf " v "0 : tensor<$bx$t> to tensor<$bxf32>\n"                                                \
    "  " v "1f = arith.extf " v "1 : tensor<$bx$t> to tensor<$bxf32>\n"                                                \
    "  " v "0c = arith.mulf " v "0f, %c : tensor<$bxf32>\n"                                                            \
    "  " v "1s = arith.mulf " v "1f, %s : tensor<$bxf32>\n"                                                            \
    "  " v "1c = arith.mulf " v "1f, %c : tensor<$bxf32>\n"                                                            \
    "  " v "0s = arith.mulf " v "0f, %s : tensor<$bxf32>\n"                                                            \
    "  " v "a = " first " " v "0c, " v "1s : tensor<$bxf32>\n"                                                         \
    "  " v "b = " second " " v "1c, " v "0s : tensor<$bxf32>\n"                                                        \
    "  " v "x = arith.truncf " v "a : tensor<$bxf32> to tensor<$bx$t>\n"                                               \
    "  " v "y = arith.truncf " v "b : tensor<$bxf32> to tensor<$bx$t>\n"

static const char *const rope_text[] = {
    "tt.func public @xlane_rope(%x: " PTR("$t") ", %cos: " PTR("f32") ", %sin: " PTR("f32") ", %q: " PTR("$t")
    ", %k: " PTR("$t") ", %v: " PTR("$t") ") {\n",
    ROPE_AT, ROPE_LOAD("%a", "%x", "%xrow", "%inq") ROPE_LOAD("%b", "%x", "%kx", "%ink")
    ROPE_LOAD("%d", "%x", "%vx", "%ink"), ROPE_TURN("%a", "arith.subf", "arith.addf")
    ROPE_STORE("%o", "%ax", "%ay", "%q", "%qrow", "%inq"), ROPE_TURN("%b", "arith.subf", "arith.addf")
    ROPE_STORE("%p", "%bx", "%by", "%k", "%krow", "%ink") ROPE_STORE("%w", "%d0", "%d1", "%v", "%krow", "%ink")
    "  tt.return\n"
    "}\n", NULL
};
static const char *const rope_back_text[] = {
    "tt.func public @xlane_rope_back(%q: " PTR("$t") ", %k: " PTR("$t") ", %v: " PTR("$t") ", %cos: " PTR("f32")
    ", %sin: " PTR("f32") ", %x: " PTR("$t") ") {\n",
    ROPE_AT, ROPE_LOAD("%a", "%q", "%qrow", "%inq") ROPE_LOAD("%b", "%k", "%krow", "%ink")
    ROPE_LOAD("%d", "%v", "%krow", "%ink"), ROPE_TURN("%a", "arith.addf", "arith.subf")
    ROPE_STORE("%o", "%ax", "%ay", "%x", "%xrow", "%inq"), ROPE_TURN("%b", "arith.addf", "arith.subf")
    ROPE_STORE("%p", "%bx", "%by", "%x", "%kx", "%ink") ROPE_STORE("%w", "%d0", "%d1", "%x", "%vx", "%ink")
    "  tt.return\n"
    "}\n", NULL
};

/* ---- the calls --------------------------------------------------------------------------------------------------- */
typedef struct { int64_t columns, block, rows, rows_each; xl_dtype type; double eps; } sizes;

static int64_t count_of(const xl_type *t)
{
    int64_t n = 0;
    xl_type_count(t, &n);
    return n;
}

static int64_t power_of_two(int64_t n)
{
    int64_t p = 32;
    while (p < n)
        p *= 2;
    return p;
}

static void fill_one(xl_buf *out, const char *text, const sizes *s)
{
    for (const char *c = text; *c; c++) {
        if (*c != '$') {
            xl_buf_putc(out, *c);
            continue;
        }
        switch (*++c) {
        case 'n': xl_buf_printf(out, "%lld", (long long)s->columns); break;
        case 'b': xl_buf_printf(out, "%lld", (long long)s->block); break;
        case 'm': xl_buf_printf(out, "%lld", (long long)s->rows); break;
        case 'l': xl_buf_printf(out, "%lld", (long long)((s->columns - 1) / s->block * s->block)); break;
        case 'r': xl_buf_printf(out, "%lld", (long long)s->rows_each); break;
        case 't': xl_buf_printf(out, "%s", xl_dtypes[s->type].text); break;
        case 'f': xl_buf_printf(out, "%.9e", 1 / (double)s->columns); break;
        default: xl_buf_printf(out, "%.9e", s->eps); break;
        }
    }
}

static void fill(xl_buf *out, const char *const *text, const sizes *s)
{
    for (; *text; text++)
        fill_one(out, *text, s);
}

static const xl_attr *row_major(xl_module *m, const xl_type *t)
{
    int64_t *order = xl_new(&m->arena, int64_t, t->rank);
    const int64_t rank = t->rank;
    for (uint32_t i = 0; i < t->rank; i++)
        order[i] = (int64_t)(t->rank - 1 - i);
    return xl_attr_dense(m, xl_type_tensor(m, XL_INDEX, (xl_dims){ &rank, 1 }),
                         (xl_str){ (const char *)order, t->rank * sizeof *order });
}

/* A result takes the place of an operand. */
static void alias(xl_module *m, xl_op *op, uint32_t result, int64_t operand)
{
    const xl_attr *was = op->attr[XL_SLOT(CUSTOM_CALL, output_operand_aliases)];
    const xl_str part[] = { XL_STR("operand_index"), XL_STR("operand_tuple_indices"), XL_STR("output_tuple_indices") };
    const int64_t at = result;
    const xl_attr *const value[] = { xl_attr_i64(m, operand), xl_attr_dims(m, XL_NO_DIMS),
                                     xl_attr_dims(m, (xl_dims){ &at, op->nout > 1 }) };
    const uint32_t n = was ? was->n : 0;
    const xl_attr **all = xl_new(&m->arena, const xl_attr *, n + 1);
    if (n)
        memcpy(all, was->item, n * sizeof *all);
    all[n] = xl_attr_struct(m, XL_STR("stablehlo.output_operand_alias"), part, value, 3);
    op->attr[XL_SLOT(CUSTOM_CALL, output_operand_aliases)] = xl_attr_array(m, all, n + 1);
}

/* Result 0 takes the place of operand `in_place`, where that is not negative. */
static xl_op *launch(xl_emit *e, const char *name, xl_str body, int64_t programs, int64_t block, const xl_value *in,
                     uint32_t nin, const xl_type **out, uint32_t nout, int64_t in_place)
{
    xl_module *m = e->f->m;
    const xl_attr **ins = xl_new(&m->arena, const xl_attr *, nin), **outs = xl_new(&m->arena, const xl_attr *, nout);
    int64_t threads = block / PER_THREAD, warps = threads < 32 ? 1 : threads > 1024 ? 32 : threads / 32;
    for (uint32_t i = 0; i < nin; i++)
        ins[i] = row_major(m, xl_em_type(e, in[i]));
    for (uint32_t i = 0; i < nout; i++)
        outs[i] = row_major(m, out[i]);
    const xl_str key[] = { XL_STR("debug"), XL_STR("grid_x"), XL_STR("grid_y"),     XL_STR("grid_z"),
                           XL_STR("ir"),    XL_STR("name"),   XL_STR("num_stages"), XL_STR("num_warps") };
    const xl_attr *one = xl_attr_int(m, XL_I32, 1);
    const xl_attr *value[] = { xl_attr_bool(m, false),
                               xl_attr_int(m, XL_I32, programs),
                               one,
                               one,
                               xl_attr_str(m, body),
                               xl_attr_str(m, xl_str_of(name)),
                               one,
                               xl_attr_int(m, XL_I32, warps) };
    xl_op *op = xl_op_new(e->f, e->r, XL_OP_CUSTOM_CALL, in, nin, out, nout, 0, e->loc);
    op->attr[XL_SLOT(CUSTOM_CALL, call_target_name)] = xl_attr_str(m, XL_STR(XL_TRITON_CALL));
    op->attr[XL_SLOT(CUSTOM_CALL, api_version)] = xl_attr_int(m, XL_I32, 4);
    op->attr[XL_SLOT(CUSTOM_CALL, backend_config)] = xl_attr_dict(m, key, value, 8);
    op->attr[XL_SLOT(CUSTOM_CALL, operand_layouts)] = xl_attr_array(m, ins, nin);
    op->attr[XL_SLOT(CUSTOM_CALL, result_layouts)] = xl_attr_array(m, outs, nout);
    if (in_place >= 0)
        alias(m, op, 0, in_place);
    return op;
}

static xl_op *call(xl_emit *e, const char *name, const char *const *text, const sizes *s, const xl_value *in,
                   uint32_t nin, const xl_type **out, uint32_t nout, int64_t in_place)
{
    xl_buf body = { 0 };
    fill(&body, text, s);
    xl_op *op = launch(e, name, xl_buf_view(&body), (s->rows + s->rows_each - 1) / s->rows_each, s->block, in, nin, out,
                       nout, in_place);
    xl_buf_fini(&body);
    return op;
}

const char *xl_triton_refuses(xl_dtype d, int64_t width)
{
    if (d != XL_F16 && d != XL_BF16)
        return "the kernels compute in bf16 or f16";
    return width > COLUMNS_MAX ? "a row must have at most 16384 channels" : NULL;
}

void xl_triton_loss(xl_emit *e, xl_value logits, xl_value labels, xl_value weight, xl_value *nll, xl_value *weighted)
{
    const xl_type *t = xl_em_type(e, logits), *row = xl_em_type(e, weight), *out[] = { t, row, row };
    const int64_t n = t->dims[t->rank - 1], b = power_of_two(n);
    const sizes s = { n, b < LOSS_BLOCK ? b : LOSS_BLOCK, count_of(row), 1, t->dtype, 0 };
    xl_op *op = call(e, LOSS, loss_text, &s, (xl_value[]){ logits, labels, weight }, 3, out, 3, 0);
    *nll = op->out[1];
    *weighted = op->out[2];
}

xl_value xl_triton_norm(xl_emit *e, xl_value *x, xl_value delta, xl_value gain, double eps)
{
    xl_module *m = e->f->m;
    const xl_type *t = xl_em_type(e, *x), *rstd = xl_type_tensor(m, XL_F32, (xl_dims){ t->dims, t->rank - 1 });
    const xl_type *out[] = { t, rstd, t };
    const int64_t n = t->dims[t->rank - 1];
    const sizes s = { n, power_of_two(n), count_of(rstd), 1, t->dtype, eps };
    if (!xl_has(delta))
        return call(e, NORM, norm_text, &s, (xl_value[]){ *x, gain }, 2, out, 2, -1)->out[0];
    xl_op *op = call(e, NORM_SUM, norm_sum_text, &s, (xl_value[]){ *x, delta, gain }, 3, out, 3, -1);
    *x = op->out[2];
    return op->out[0];
}

/* Where a part lies in what it was cut from: `columns` from `at` on, of rows `wide` long. A slice of the last dimension
 * needs no copy of its own. */
typedef struct { xl_value of; int64_t at, columns, wide; } cut;

static cut cut_of(const xl_func *f, xl_value v)
{
    const xl_op *op = xl_value_op(f, v);
    while (op && op->code == XL_OP_RESHAPE)
        op = xl_value_op(f, (v = op->in[0]));
    const xl_type *t = xl_value_type(f, v);
    const int64_t columns = t->rank ? t->dims[t->rank - 1] : 1;
    const cut whole = { v, 0, columns, columns };
    if (!op || op->code != XL_OP_SLICE)
        return whole;
    const xl_type *from = xl_value_type(f, op->in[0]);
    xl_dims lo = xl_op_dims(op, XL_SLOT(SLICE, start_indices)), by = xl_op_dims(op, XL_SLOT(SLICE, strides));
    for (uint32_t i = 0; i < t->rank; i++)
        if ((by.n && by.p[i] != 1) || (i + 1 < t->rank && t->dims[i] != from->dims[i]))
            return whole;
    return (cut){ op->in[0], lo.p[t->rank - 1], columns, from->dims[t->rank - 1] };
}

/* v is a concatenation along dimension 0 of parts that are alike; how many, or 0. */
static uint32_t parts_of(const xl_func *f, xl_value v, cut part[PARTS_MAX])
{
    const xl_op *op = xl_value_op(f, v);
    if (!op || op->code != XL_OP_CONCATENATE || op->nin > PARTS_MAX ||
        xl_op_int(op, XL_SLOT(CONCATENATE, dimension)) != 0)
        return 0;
    for (uint32_t i = 0; i < op->nin; i++) {
        part[i] = cut_of(f, op->in[i]);
        if (xl_value_type(f, op->in[i]) != xl_value_type(f, op->in[0]) || part[i].at != part[0].at ||
            part[i].columns != part[0].columns || xl_value_type(f, part[i].of) != xl_value_type(f, part[0].of))
            return 0;
    }
    return op->nin;
}

/* The head of a kernel whose operands are n parts of `type`, then its result %out and `more` of them; $r programs work
 * on each: which it is is %part, and its pointer %p. */
static void pick_part(xl_buf *body, const char *name, const char *type, uint32_t n, const char *more, const sizes *s)
{
    xl_buf_printf(body, "tt.func public @%s(", name);
    for (uint32_t i = 0; i < n; i++)
        xl_buf_printf(body, "%%g%u: !tt.ptr<%s> {tt.divisibility = 16 : i32}, ", i, type);
    xl_buf_printf(body, "%%out: !tt.ptr<%s> {tt.divisibility = 16 : i32}%s) {\n", type, more);
    fill_one(body, "  %cr = arith.constant $r : i32\n"
                   "  %id = tt.get_program_id x : i32\n"
                   "  %part = arith.divsi %id, %cr : i32\n", s);
    char so_far[16] = "g0", next[16];
    for (uint32_t i = 1; i < n; i++) {
        snprintf(next, sizeof next, i + 1 < n ? "p%u" : "p", i);
        xl_buf_printf(body, "  %%k%u = arith.constant %u : i32\n", i, i);
        xl_buf_printf(body, "  %%is%u = arith.cmpi eq, %%part, %%k%u : i32\n", i, i);
        xl_buf_printf(body, "  %%%s = arith.select %%is%u, %%g%u, %%%s : !tt.ptr<%s>\n", next, i, i, so_far, type);
        memcpy(so_far, next, sizeof so_far);
    }
}

/* What v is the sum over the first of two dimensions of; XL_NO_VALUE: it is none. */
static xl_value summed_rows(const xl_func *f, xl_value v)
{
    const xl_op *op = xl_value_op(f, v);
    while (op && op->code == XL_OP_RESHAPE)
        op = xl_value_op(f, op->in[0]);
    if (!op || op->code != XL_OP_REDUCE || op->nin != 2 || op->region[0]->op[0]->code != XL_OP_ADD)
        return XL_NO_VALUE;
    xl_dims over = xl_op_dims(op, XL_SLOT(REDUCE, dimensions));
    const xl_type *t = xl_value_type(f, op->in[0]);
    return t->rank == 2 && t->dtype == XL_F32 && over.n == 1 && over.p[0] == 0 ? op->in[0] : XL_NO_VALUE;
}

/* v is the sum over the second of three dimensions. */
static bool summed_stack(const xl_func *f, xl_value v, xl_value *of)
{
    const xl_op *op = xl_value_op(f, v);
    if (!op || op->code != XL_OP_REDUCE || op->nin != 2 || op->region[0]->op[0]->code != XL_OP_ADD)
        return false;
    xl_dims over = xl_op_dims(op, XL_SLOT(REDUCE, dimensions));
    const xl_type *t = xl_value_type(f, *of = op->in[0]);
    return t->rank == 3 && t->dtype == XL_F32 && over.n == 1 && over.p[0] == 1;
}

bool xl_triton_columns(xl_emit *e, xl_value v, xl_value *out)
{
    xl_module *m = e->f->m;
    const xl_op *op = xl_value_op(e->f, v);
    const xl_type *t = xl_em_type(e, v);
    xl_value stack = XL_NO_VALUE, *in = &stack;
    const bool one = summed_stack(e->f, v, &stack);
    const uint32_t n = !op || one ? 1 : op->nin;
    if (!one && (!op || op->code != XL_OP_CONCATENATE || n < 2 || n > PARTS_MAX || t->rank != 2 ||
                 xl_op_int(op, XL_SLOT(CONCATENATE, dimension)) != 0 || t->dims[0] != n))
        return false;
    if (!one)
        in = xl_new(&m->arena, xl_value, n);
    for (uint32_t i = 0; i < n && !one; i++) {
        in[i] = summed_rows(e->f, op->in[i]);
        if (!xl_has(in[i]) || xl_em_type(e, in[i]) != xl_em_type(e, in[0]))
            return false;
    }
    const xl_type *part = xl_em_type(e, in[0]);
    const int64_t rows = part->dims[one], c = t->dims[1], each = (c + COLUMNS_EACH - 1) / COLUMNS_EACH;
    if (part->dims[1 + one] != c || rows * c >= INT32_MAX / 2)
        return false;
    const sizes s = { c, COLUMNS_TILE, rows, each, XL_F32, 0 };
    xl_buf body = { 0 };
    pick_part(&body, COLUMNS, "f32", n, "", &s);
    if (one) {
        xl_buf_printf(&body, "  %%size = arith.constant %lld : i64\n", (long long)(rows * c));
        xl_buf_puts(&body, "  %part64 = arith.extsi %part : i32 to i64\n"
                           "  %begin = arith.muli %part64, %size : i64\n"
                           "  %p = tt.addptr %g0, %begin : !tt.ptr<f32>, i64\n");
    }
    fill_one(&body, columns_text, &s);
    *out = launch(e, COLUMNS, xl_buf_view(&body), t->dims[0] * each, COLUMNS_TILE, in, n, &t, 1, -1)->out[0];
    xl_buf_fini(&body);
    return true;
}

bool xl_triton_join(xl_emit *e, xl_value v, xl_value *joined, xl_value *squares)
{
    xl_module *m = e->f->m;
    const xl_type *t = xl_em_type(e, v);
    cut part[PARTS_MAX];
    if (t->dtype != XL_F16 && t->dtype != XL_BF16)
        return false;
    const uint32_t n = parts_of(e->f, v, part);
    const int64_t each = n ? count_of(t) / n : 0;
    if (n < 2 || !each || count_of(xl_em_type(e, part[0].of)) >= INT32_MAX / 2)
        return false;
    const int64_t programs = (each + JOIN_EACH - 1) / JOIN_EACH;
    const sizes s = { each, JOIN_BLOCK, JOIN_EACH, programs, t->dtype, 0 };
    const char *type = xl_dtypes[t->dtype].text;
    xl_value *in = xl_new(&m->arena, xl_value, n);
    xl_buf body = { 0 };
    for (uint32_t i = 0; i < n; i++)
        in[i] = part[i].of;
    pick_part(&body, JOIN, type, n, ", %squares: " PTR("f32"), &s);
    fill_one(&body, join_text[0], &s);
    if (part[0].wide == part[0].columns)
        fill_one(&body, "    %off = arith.addi %js, %range : tensor<$bxi32>\n", &s);
    else {
        const long long c = part[0].columns, w = part[0].wide, at = part[0].at;
        xl_buf_printf(&body, "    %%cc = arith.constant dense<%lld> : tensor<%dxi32>\n", c, JOIN_BLOCK);
        xl_buf_printf(&body, "    %%cw = arith.constant dense<%lld> : tensor<%dxi32>\n", w, JOIN_BLOCK);
        xl_buf_printf(&body, "    %%ca = arith.constant dense<%lld> : tensor<%dxi32>\n", at, JOIN_BLOCK);
        fill_one(&body, "    %row = arith.divsi %i, %cc : tensor<$bxi32>\n"
                        "    %col = arith.remsi %i, %cc : tensor<$bxi32>\n"
                        "    %rw = arith.muli %row, %cw : tensor<$bxi32>\n"
                        "    %rc = arith.addi %rw, %col : tensor<$bxi32>\n"
                        "    %off = arith.addi %rc, %ca : tensor<$bxi32>\n", &s);
    }
    fill_one(&body, join_text[1], &s);
    const xl_type *out[] = { t, xl_type_tensor(m, XL_F32, XL_DIMS(n * programs)) };
    xl_op *op = launch(e, JOIN, xl_buf_view(&body), n * programs, JOIN_BLOCK, in, n, out, 2, -1);
    xl_buf_fini(&body);
    *joined = op->out[0];
    *squares = op->out[1];
    return true;
}

xl_value xl_triton_after(xl_emit *e, xl_value x, int64_t lo, int64_t hi, const xl_value *after, uint32_t n)
{
    xl_module *m = e->f->m;
    const xl_type *t = xl_em_type(e, x);
    int64_t *dims = xl_new(&m->arena, int64_t, t->rank);
    memcpy(dims, t->dims, t->rank * sizeof *dims);
    dims[0] = hi - lo;
    const xl_type *out = xl_type_tensor(m, t->dtype, (xl_dims){ dims, t->rank });
    const int64_t count = count_of(out), row = count / (hi - lo);
    const sizes s = { count, JOIN_BLOCK, lo * row, 1, t->dtype, 0 };
    xl_value *in = xl_new(&m->arena, xl_value, n + 1);
    xl_buf body = { 0 };
    xl_buf_printf(&body, "tt.func public @%s(", AFTER);
    fill_one(&body, "%x: " PTR("$t") ", ", &s);
    in[0] = x;
    for (uint32_t i = 0; i < n; i++) {
        in[i + 1] = after[i];
        xl_buf_printf(&body, "%%after%u: !tt.ptr<%s>, ", i, xl_dtypes[xl_em_type(e, after[i])->dtype].text);
    }
    fill_one(&body, "%out: " PTR("$t") ") {\n", &s);
    fill_one(&body, after_text, &s);
    xl_op *op = launch(e, AFTER, xl_buf_view(&body), (count + JOIN_BLOCK - 1) / JOIN_BLOCK, JOIN_BLOCK, in, n + 1, &out,
                       1, -1);
    xl_buf_fini(&body);
    op->extra = xl_dict_with(m, op->extra, XL_STR(FIRST_ROW), xl_attr_i64(m, lo));
    return op->out[0];
}

/* `heads` of q, `groups` of k and of v, of `size` channels each; back: from the gradients of the three to that of x. */
static xl_op *turn_by(xl_emit *e, const char *const *text, const char *name, int64_t rows, int64_t heads,
                      int64_t groups, int64_t size, const xl_value *in, uint32_t nin, const xl_type **out,
                      uint32_t nout)
{
    const long long half = size / 2, wide = (heads + 2 * groups) * size, b = power_of_two(heads * half);
    const sizes s = { wide, b, rows, 1, xl_em_type(e, in[0])->dtype, 0 };
    const struct { const char *name; long long value; } wide_number[] = {
        { "wide", wide }, { "qs", heads * size }, { "ks", groups * size }, { "kat", heads * size },
        { "vat", (heads + groups) * size }, { "turns", half } },
    number[] = { { "half", half }, { "size", size }, { "qn", heads * half }, { "kn", groups * half } };
    xl_buf body = { 0 };
    fill_one(&body, text[0], &s);
    for (size_t i = 0; i < sizeof wide_number / sizeof *wide_number; i++)
        xl_buf_printf(&body, "  %%%s = arith.constant %lld : i64\n", wide_number[i].name, wide_number[i].value);
    for (size_t i = 0; i < sizeof number / sizeof *number; i++)
        xl_buf_printf(&body, "  %%%s = arith.constant dense<%lld> : tensor<%lldxi32>\n", number[i].name,
                      number[i].value, b);
    fill(&body, text + 1, &s);
    xl_op *op = launch(e, name, xl_buf_view(&body), rows, b, in, nin, out, nout, -1);
    xl_buf_fini(&body);
    return op;
}

void xl_triton_rope(xl_emit *e, xl_value x, xl_value cos, xl_value sin, int64_t heads, int64_t groups, xl_value out[3])
{
    const xl_type *t = xl_em_type(e, x);
    const int64_t B = t->dims[0], T = t->dims[1], S = t->dims[2] / (heads + 2 * groups);
    const xl_type *q = xl_type_tensor(e->f->m, t->dtype, XL_DIMS(B, T, heads, S)),
                  *k = xl_type_tensor(e->f->m, t->dtype, XL_DIMS(B, T, groups, S)), *types[] = { q, k, k };
    xl_op *op = turn_by(e, rope_text, ROPE, B * T, heads, groups, S, (xl_value[]){ x, cos, sin }, 3, types, 3);
    for (int i = 0; i < 3; i++)
        out[i] = op->out[i];
}

/* ---- rows of stacked tensors ------------------------------------------------------------------------------------ */
/* Of a call that is ours; others' kernels (JAX's Pallas has the same call) have none. */
static xl_str kernel_name(const xl_op *op)
{
    const xl_attr *config = op->code == XL_OP_CUSTOM_CALL ? op->attr[XL_SLOT(CUSTOM_CALL, backend_config)] : NULL;
    if (!config || config->kind != XL_AT_DICT ||
        !xl_str_is(xl_op_str(op, XL_SLOT(CUSTOM_CALL, call_target_name)), XL_TRITON_CALL))
        return XL_STR("");
    const xl_attr *name = xl_dict_get(config, XL_STR("name")), *ir = xl_dict_get(config, XL_STR("ir"));
    bool ours = name && name->kind == XL_AT_STR && xl_str_starts(name->str, XL_STR("xlane_")) && ir &&
                ir->kind == XL_AT_STR && xl_str_starts(ir->str, XL_STR("tt.func public @xlane_"));
    return ours ? name->str : XL_STR("");
}

typedef struct { int64_t count, shift; } place; /* of a row: its elements, and what to add to the index */

/* Argument `arg` of the kernel (operands, then results) becomes row *index + shift of a stack of rows. The kernel gets
 * as many more operands as `more` says, after the first nin; the last of them is the index. */
static xl_str text_of_row(xl_arena *a, xl_str ir, uint32_t arg, uint32_t nin, uint32_t more, place row)
{
    xl_buf out = { 0 }, head = { 0 };
    const char *c = memchr(ir.p, '(', ir.n), *end = ir.p + ir.n;
    uint32_t n = 0;
    if (!c)
        return ir;
    xl_buf_add(&out, ir.p, (size_t)(c + 1 - ir.p));
    for (c++; c < end && *c == '%'; n++) {
        const char *name = c, *colon = memchr(c, ':', (size_t)(end - c)), *to = colon ? colon : end;
        while (to < end && *to != ')' && !(end - to > 2 && !memcmp(to, ", %", 3)))
            to++;
        const char *stop = colon ? memchr(colon, '>', (size_t)(end - colon)) : NULL;
        if (to == end || !stop)
            break;
        if (n == nin && more > 1)
            xl_buf_printf(&out, "%%into%u: !tt.ptr<i8>, ", nin);
        if (n == nin)
            xl_buf_printf(&out, "%%row%u: !tt.ptr<i32>, ", nin);
        xl_buf_add(&out, name, (size_t)(colon - name));
        if (n == arg) {
            const char *type = colon + 2;
            xl_buf_puts(&out, "_all");
            xl_buf_printf(&head, "  %%index%u = tt.load %%row%u : !tt.ptr<i32>\n", nin, nin);
            xl_buf_printf(&head, "  %%shift%u = arith.constant %lld : i32\n", nin, (long long)row.shift);
            xl_buf_printf(&head, "  %%at%u = arith.addi %%index%u, %%shift%u : i32\n", nin, nin, nin);
            xl_buf_printf(&head, "  %%wide%u = arith.extsi %%at%u : i32 to i64\n", nin, nin);
            xl_buf_printf(&head, "  %%count%u = arith.constant %lld : i64\n", nin, (long long)row.count);
            xl_buf_printf(&head, "  %%from%u = arith.muli %%wide%u, %%count%u : i64\n", nin, nin, nin);
            xl_buf_printf(&head, "  %.*s = tt.addptr %.*s_all, %%from%u : %.*s, i64\n", (int)(colon - name), name,
                          (int)(colon - name), name, nin, (int)(stop + 1 - type), type);
        }
        xl_buf_add(&out, colon, (size_t)(to - colon));
        if (*to == ',')
            xl_buf_puts(&out, ", ");
        c = *to == ',' ? to + 2 : to;
    }
    const char *line = memchr(c, '\n', (size_t)(end - c));
    line = line ? line + 1 : end;
    xl_buf_add(&out, c, (size_t)(line - c));
    xl_buf_str(&out, xl_buf_view(&head));
    xl_buf_add(&out, line, (size_t)(end - line));
    xl_str text = xl_str_dup(a, xl_buf_view(&out));
    xl_buf_fini(&out);
    xl_buf_fini(&head);
    return text;
}

static void take_row(xl_func *f, xl_op *op, uint32_t arg, const xl_value *more, uint32_t nmore, place at)
{
    xl_module *m = f->m;
    const xl_attr *config = op->attr[XL_SLOT(CUSTOM_CALL, backend_config)];
    xl_str text = text_of_row(&m->arena, xl_dict_get(config, XL_STR("ir"))->str, arg, op->nin, nmore, at);
    op->attr[XL_SLOT(CUSTOM_CALL, backend_config)] = xl_dict_with(m, config, XL_STR("ir"), xl_attr_str(m, text));
    xl_value *in = xl_new(&m->arena, xl_value, op->nin + nmore);
    memcpy(in, op->in, op->nin * sizeof *in);
    memcpy(in + op->nin, more, nmore * sizeof *in);
    op->in = in;
    op->nin += nmore;
    const xl_attr **ins = xl_new(&m->arena, const xl_attr *, op->nin),
                  **outs = xl_new(&m->arena, const xl_attr *, op->nout);
    for (uint32_t i = 0; i < op->nin; i++)
        ins[i] = row_major(m, xl_value_type(f, op->in[i]));
    for (uint32_t i = 0; i < op->nout; i++)
        outs[i] = row_major(m, xl_value_type(f, op->out[i]));
    op->attr[XL_SLOT(CUSTOM_CALL, operand_layouts)] = xl_attr_array(m, ins, op->nin);
    op->attr[XL_SLOT(CUSTOM_CALL, result_layouts)] = xl_attr_array(m, outs, op->nout);
}

bool xl_triton_again(const xl_op *op) { return xl_str_is(kernel_name(op), ROPE); }

static bool is_i32(const xl_func *f, xl_value v)
{
    const xl_type *t = xl_value_type(f, v);
    return t->dtype == XL_I32 && !t->rank;
}

/* An index that is another and a constant: the kernel adds it. */
static int64_t shift_of(const xl_func *f, xl_value *index)
{
    const xl_op *op = xl_value_op(f, *index), *by = op && op->code == XL_OP_ADD ? xl_value_op(f, op->in[1]) : NULL;
    if (!by || by->code != XL_OP_CONSTANT)
        return 0;
    *index = op->in[0];
    return xl_dense_int(XL_ATTR(by, CONSTANT, value), 0);
}

bool xl_triton_puts_rows(const xl_func *f, const xl_op *op, xl_value result, xl_value index)
{
    xl_str name = kernel_name(op);
    bool back = xl_str_is(name, NORM_BACK) || xl_str_is(name, NORM_SUM_BACK), mine = false;
    for (uint32_t i = back; i < op->nout; i++)           /* of a gradient: the sums for the gain */
        mine |= op->out[i].id == result.id;
    return mine && (back || xl_str_is(name, NORM) || xl_str_is(name, NORM_SUM)) && is_i32(f, index);
}

void xl_triton_put_row(xl_func *f, xl_op *op, xl_value result, xl_value rows, xl_value index)
{
    const xl_type *all = xl_value_type(f, rows);
    const int64_t nin = op->nin, shift = shift_of(f, &index);
    uint32_t at = 0;
    while (op->out[at].id != result.id)
        at++;
    f->val[result.id].type = all;
    take_row(f, op, op->nin + at, (xl_value[]){ rows, index }, 2, (place){ count_of(all) / all->dims[0], shift });
    alias(f->m, op, at, nin);
}

/* v is row *index of *rows, whole, in another shape or not. */
static bool row_of(const xl_func *f, xl_value v, xl_value *rows, xl_value *index)
{
    const xl_op *op = xl_value_op(f, v);
    while (op && op->code == XL_OP_RESHAPE)
        op = xl_value_op(f, op->in[0]);
    if (!op || op->code != XL_OP_DYNAMIC_SLICE)
        return false;
    const xl_type *all = xl_value_type(f, op->in[0]), *one = xl_value_type(f, op->out[0]);
    for (uint32_t i = 1; i < all->rank; i++)             /* a slice that is as long as the whole begins at 0 */
        if (one->dims[i] != all->dims[i])
            return false;
    *rows = op->in[0];
    *index = op->in[1];
    return one->dims[0] == 1 && is_i32(f, *index);
}

void xl_triton_read_rows(xl_func *f, xl_region *r)
{
    xl_value rows, index;
    for (uint32_t i = 0; i < r->nop; i++)
        for (uint32_t k = 0, n = kernel_name(r->op[i]).n ? r->op[i]->nin : 0; k < n; k++)
            if (row_of(f, r->op[i]->in[k], &rows, &index)) {
                const xl_type *all = xl_value_type(f, rows);
                const int64_t shift = shift_of(f, &index);
                r->op[i]->in[k] = rows;
                take_row(f, r->op[i], k, &index, 1, (place){ count_of(all) / all->dims[0], shift });
            }
}

/* ---- gradients --------------------------------------------------------------------------------------------------- */
static bool is_one(const xl_func *f, xl_value v)
{
    const xl_op *op = xl_value_op(f, v);
    while (op && (op->code == XL_OP_BROADCAST_IN_DIM || op->code == XL_OP_RESHAPE || op->code == XL_OP_CONVERT))
        op = xl_value_op(f, op->in[0]);
    if (!op || op->code != XL_OP_CONSTANT)
        return false;
    const xl_attr *a = XL_ATTR(op, CONSTANT, value);
    const float one = 1;
    return a->type->dtype == XL_F32 && a->data.n == sizeof one && !memcmp(a->data.p, &one, sizeof one);
}

/* The kernel has written the gradient for a loss that is the plain sum of the weighted rows; any other one scales it.
 * */
static xl_error *loss_grad(xl_grad_ctx *g, const xl_op *op, const xl_value *ct)
{
    xl_emit *e = &g->e;
    const xl_type *t = xl_em_type(e, op->out[0]);
    if (xl_has(ct[0]) || xl_has(ct[1]))
        return XL_ERR(UNIMPLEMENTED, "only the weighted loss of the fused kernel has a gradient");
    if (!xl_has(ct[2]))
        return NULL;
    xl_value d = op->out[0];
    if (!is_one(e->f, ct[2])) {
        int64_t *at = xl_new(&e->f->m->arena, int64_t, t->rank);
        for (uint32_t i = 0; i < t->rank; i++)
            at[i] = i;
        xl_value by = xl_em_broadcast(e, ct[2], xl_type_dims(t), (xl_dims){ at, t->rank - 1 });
        d = xl_em_convert(e, xl_em_binary(e, XL_OP_MULTIPLY, xl_em_convert(e, d, XL_F32), by), t->dtype);
    }
    xl_cot_add(g, op->in[0], d);
    return NULL;
}

static xl_error *norm_grad(xl_grad_ctx *g, const xl_op *op, const xl_value *ct, bool sum)
{
    xl_emit *e = &g->e;
    xl_module *m = e->f->m;
    const xl_type *t = xl_em_type(e, op->out[0]);
    const int64_t n = t->dims[t->rank - 1], rows = count_of(xl_em_type(e, op->out[1]));
    xl_value dsum = sum ? ct[2] : XL_NO_VALUE, dx = dsum, gain = op->in[sum ? 2 : 1];
    if (xl_has(ct[1]))
        return XL_ERR(UNIMPLEMENTED, "the scale of the fused norm has no gradient of its own");
    if (xl_has(ct[0])) {
        const int64_t each = (rows + BACK_PROGRAMS - 1) / BACK_PROGRAMS, programs = (rows + each - 1) / each;
        const sizes s = { n, power_of_two(n), rows, each, t->dtype, 0 };
        const xl_type *out[] = { t, xl_type_tensor(m, XL_F32, XL_DIMS(programs, n)) };
        xl_value in[] = { ct[0], sum ? op->out[2] : op->in[0], op->out[1], gain, dsum };
        xl_op *b = xl_has(dsum) ? call(e, NORM_SUM_BACK, norm_sum_back_text, &s, in, 5, out, 2, -1)
                                : call(e, NORM_BACK, norm_back_text, &s, in, 4, out, 2, -1);
        dx = b->out[0];
        if (xl_cot_active(g, gain))
            xl_cot_add(g, gain, xl_em_sum(e, b->out[1], XL_DIMS(0)));
    }
    xl_cot_add(g, op->in[0], dx);
    if (sum)
        xl_cot_add(g, op->in[1], dx);
    return NULL;
}

static void rope_grad(xl_grad_ctx *g, const xl_op *op, const xl_value *ct)
{
    xl_emit *e = &g->e;
    const xl_type *q = xl_em_type(e, op->out[0]), *k = xl_em_type(e, op->out[1]), *x = xl_em_type(e, op->in[0]);
    xl_value in[5] = { XL_NO_VALUE, XL_NO_VALUE, XL_NO_VALUE, op->in[1], op->in[2] };
    for (int i = 0; i < 3; i++)
        in[i] = xl_has(ct[i]) ? ct[i] : xl_em_splat(e, xl_em_type(e, op->out[i]), 0);
    xl_op *b = turn_by(e, rope_back_text, ROPE_BACK, q->dims[0] * q->dims[1], q->dims[2], k->dims[2], q->dims[3], in, 5,
                       &x, 1);
    xl_cot_add(g, op->in[0], b->out[0]);
}

xl_error *xl_triton_grad(xl_grad_ctx *g, xl_op *op, const xl_value *ct, bool *mine)
{
    xl_str name = kernel_name(op);
    *mine = xl_str_is(name, LOSS) || xl_str_is(name, NORM) || xl_str_is(name, NORM_SUM) || xl_str_is(name, AFTER) ||
            xl_str_is(name, ROPE);
    if (!*mine)
        return NULL;
    if (xl_str_is(name, ROPE)) {
        rope_grad(g, op, ct);
        return NULL;
    }
    if (xl_str_is(name, AFTER)) {
        if (xl_has(ct[0]))
            xl_cot_add_part(g, op->in[0], 0, xl_dict_get(op->extra, XL_STR(FIRST_ROW))->i, ct[0]);
        return NULL;
    }
    return xl_str_is(name, LOSS) ? loss_grad(g, op, ct) : norm_grad(g, op, ct, xl_str_is(name, NORM_SUM));
}
