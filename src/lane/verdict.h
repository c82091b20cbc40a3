/* src/lane/verdict.h
 * What the compiles of a run mean: which modules are its steps, why each of them was compiled again and what to do
 * about it, and the answers to the triage questions. It is read from a run folder; everything lives in the given
 * arena. */
#ifndef XL_LANE_VERDICT_H
#define XL_LANE_VERDICT_H

#include "base/json.h"
#include "lane/contract.h"
#include "lane/metrics.h"
#include "lane/run.h"

typedef enum {
    XL_ASK_NONE, XL_ASK_SHAPE, XL_ASK_POLICY, XL_ASK_BRANCH, XL_ASK_VALUE, XL_ASK_AGAIN, XL_ASK_LOST
} xl_ask;
typedef struct { const char *word, *remedy; xl_ask ask; } xl_cause;
const char *xl_cause_remedy(const xl_cause *c, xl_str module); /* for the frontend that the module is of */
const xl_cause *xl_verdict_cause(const xl_verdict *v);     /* of a compile; NULL: it was its module's first */
const xl_cause *xl_cause_of(xl_str word);                  /* NULL: "first", or a word that has no row */

/* One cause of one module's recompiles. */
typedef struct {
    const xl_cause *cause;
    xl_str what; /* "argument `x` dimension 0", "constant", a whole sentence */
    const char *join;                                      /* between that and the values: " took ", ": " */
    xl_str where;                                          /* "train.py:41", or empty */
    xl_str *value;                                         /* in the order they came; none for a whole sentence */
    size_t nvalue, capvalue;
    xl_str values;                                         /* Python values that changed then: of the first time */
    bool optax;                                            /* a constant that Optax reads */
    bool trains;                                           /* a later program without dropout computes gradients */
    bool late;                                             /* it came after the warm-up window */
    int times;
    uint32_t ops, more;                                    /* ops that came or went; further changes on that line */
    double by, number;                                     /* the last growth, and the execution that it was for */
    int growths;                                           /* in a row, each as large as the last */
    double gap;                                            /* the fewest executions from one change to the next */
    uint32_t group, nth;                                   /* in the order they were seen: of one cause, and each */
} xl_cause_seen;

/* A module, or programs that only a number tells apart. */
typedef struct {
    xl_str module;                                         /* of its first compile */
    xl_str name;                                           /* for people: "step" of "jit_step" */
    xl_str function; /* "train.py:31", where the name alone does not tell; or "" */
    bool helper;                                           /* an eager op or a library function */
    bool step;                                             /* ran again and again: the answers concern it */
    xl_str place;                                          /* PyTorch/XLA: the line that runs it; empty: not recorded */
    bool reads_value;                                      /* and that line reads a tensor's value */
    int compiles, cached, loaded, failed;                  /* of the process that had most */
    int processes;                                         /* that compiled or loaded it */
    bool alike;                                            /* and each as often as that one */
    int all_compiles, all_cached, all_loaded;              /* of all processes */
    int remade;                                            /* changes of it for which its function was made anew */
    int refused;                                           /* by the policy, in all processes */
    uint64_t runs;                                         /* executions of all; 0 where none were recorded */
    uint64_t waited; /* of those, the ones whose results were read before the next */
    uint64_t awaited;                                      /* those waited for, without a read, before the next */
    bool filtered;                                         /* equinox.filter_jit calls it, which always waits */
    xl_str uncacheable;                                    /* why no cache can keep it; empty: one may */
    double pid;                                            /* of its first compile */
    bool shares;                                           /* another process has another function of that name */
    double first, last;                                    /* seconds of its first and last compile */
    xl_cause_seen *cause;
    size_t ncause, capcause;
    xl_str *turned; /* "static argument `step` changed from 2 to 3": what changed with a branch or value */
    size_t nturned, capturned;
} xl_run_unit;

/* A line that called an op or a library's function with new shapes again and again. */
typedef struct {
    const xl_run_unit *unit;
    xl_str where;                                          /* "train.py:41" */
    xl_str who; /* "dimension 0" of the first one, or empty: of another rank */
    xl_str *value;                                         /* that it took, in the order they came */
    size_t nvalue, capvalue;
    int times, early, late;                                /* early, late: in each half of what the process executed */
} xl_run_grown;

typedef struct {
    bool recorded;                                         /* a process attached to a plugin, or trained */
    xl_run_grown *grown;
    size_t ngrown, capgrown;
    bool gaps;                                             /* compiles may be missing: it answers with what is there */
    xl_node **event;                                       /* all events of the run */
    size_t nevent;
    xl_run_unit **of;                                          /* of[i]: the unit of a compile event i, else NULL */
    const xl_cause **habit; /* what the whole run makes of a step's recompile i, else NULL */
    xl_run_unit **unit;
    size_t nunit;
    bool shape, policy, branch, value, again, lines, torch;
    bool widened;                                          /* arguments are of 64 bits, or 32, as x64 was switched */
    xl_str *other;                                         /* causes that answer none of the questions: "donation" */
    size_t nother, capother;
    bool perhaps;                                          /* a number changed as a size did */
    bool builtin;                                          /* JAX took its built-in cpu, of which nothing is recorded */
    bool placed;                                           /* the lines that run graphs were recorded */
    int steps;                                             /* units that are steps */
    uint64_t eager_runs;                                   /* executions of helpers */
    int compiled, cached, loaded, failed;                  /* of all modules */
    int dropped, damaged; /* programs that the cache had, and lost */
    /* Of its steps, in all processes: changes of the program in and after the warm-up window; the same program traced
     * again; first compiles here of programs that an earlier run had. */
    int early, late, traced, since;
    xl_run_end end;
    xl_str unended;                                        /* where no end is recorded: see xl_run_unended */
    bool going;                                            /* a process of it is alive */
    int cut;                                               /* processes that ended without writing their last counts */
    bool counted;                                          /* executions were counted */
    bool keeps;                                            /* a process had a cache */
} xl_run_verdict;

xl_error *xl_run_judge(xl_arena *a, const char *dir, xl_run_verdict *out) XL_MUST_USE;
xl_str xl_run_module_name(xl_str module); /* for people: "step" of "jit_step" */
/* Whether that is what a user may call the module: by its own name, without its number, or by its function's. */
bool xl_run_module_is(xl_str module, xl_str name);
/* The function that an event is of, by its module and process; NULL: none of that name compiled. */
const xl_run_unit *xl_run_unit_of(const xl_run_verdict *v, const xl_node *e);
/* "`step`", or "`_lambda` (train.py:31)" where the name alone does not tell, of an event that has a module. */
void xl_run_name_say(const xl_run_verdict *v, const xl_node *e, xl_buf *b);
/* "`step` compiled 4 times: ...; pad ...", with its newline; several lines where there are several causes. */
void xl_run_unit_say(xl_arena *a, const xl_run_verdict *v, const xl_run_unit *u, xl_buf *b);
/* The opening of explain: a sentence for each step, then one line for all else; `listed`: the rest follows. */
void xl_verdict_say(xl_arena *a, const xl_run_verdict *v, bool listed, xl_buf *b);
void xl_triage_say(const xl_run_verdict *v, xl_buf *b);    /* the answers */
/* The compile whose program a run is about, from that event on: of one that did not compile, else of a step's, else of
 * any; among those, of the one that needs most memory. NULL: none was recorded. */
const xl_node *xl_run_step_compile(const xl_run_verdict *v, size_t first_event);
/* Whether its counts are lower bounds. */
static inline bool xl_verdict_open(const xl_run_verdict *v)
{
    return v->going || v->cut || v->gaps;
}
/* One line on how the run ended, where that bears on what is said of it, or nothing. */
void xl_verdict_end_say(const xl_run_verdict *v, xl_buf *b);
/* Whether the host waited, without a read, for most executions of that step. */
bool xl_unit_waits(const xl_run_unit *u);
/* Whether a value that the host read decided a size of a step. */
bool xl_verdict_sized(const xl_run_verdict *v);
bool xl_event_again(const xl_node *e);                     /* a compile event that is a recompile in its run */
/* The cause of a compile event that was not its module's first: never NULL for those. */
const xl_cause *xl_event_cause(const xl_node *e);
/* The same, of event `i`, by what the whole run tells of it. */
const xl_cause *xl_run_cause(const xl_run_verdict *v, size_t i);
const char *xl_run_remedy(const xl_run_verdict *v, size_t i); /* what the first lines say of it, in the whole run */

#endif
