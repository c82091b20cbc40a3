/* The words of a verdict. */
#include "lane/verdict.h"

#include <stdio.h>
#include <string.h>

#include "lane/failed_rank.h"

/* counted: how often it was is said already */
static void say_cause(const xl_cause_seen *c, bool counted, xl_buf *b)
{
    enum { VALUES = 8 };
    if (c->values.n)                                       /* it comes first: that is what to change */
        xl_buf_printf(b, "%.*s: ", XL_FMT(c->values));
    xl_buf_printf(b, "%.*s", XL_FMT(c->what));
    if (c->nvalue)
        xl_buf_puts(b, c->join ? c->join : " took ");
    for (size_t i = 0; i < c->nvalue && i < VALUES; i++)
        xl_buf_printf(b, "%s%.*s", i ? ", " : "", XL_FMT(c->value[i]));
    if (c->nvalue > VALUES)
        xl_buf_printf(b, " and %zu more (--json lists all)", c->nvalue - VALUES);
    if (c->where.n && !memmem(c->what.p, c->what.n, c->where.p, c->where.n))
        xl_buf_printf(b, " at %.*s", XL_FMT(c->where));
    if (!c->nvalue && c->times > 1 && !counted)
        xl_buf_printf(b, " (%d times)", c->times);
    if (c->more)
        xl_buf_printf(b, " (with %u more change%s there)", c->more, c->more == 1 ? "" : "s");
}

static const char *times(int n, char out[32])
{
    snprintf(out, 32, n == 1 ? "once" : "%d times", n);
    return out;
}

static void say_name(xl_str name, xl_str function, xl_buf *b)
{
    xl_buf_printf(b, "`%.*s`", XL_FMT(name));
    if (function.n)
        xl_buf_printf(b, " (%.*s)", XL_FMT(function));
}

void xl_run_name_say(const xl_run_verdict *v, const xl_node *e, xl_buf *b)
{
    const xl_run_unit *u = xl_run_unit_of(v, e);
    xl_str module = xl_node_text(e, "module");
    say_name(u ? u->name : xl_run_module_name(module), u ? u->function : (xl_str){ 0 }, b);
}

void xl_verdict_end_say(const xl_run_verdict *v, xl_buf *b)
{
    int refused = 0;
    const char *cut = !v->cut      ? ""
                      : v->counted ? "; its counts may miss the last two seconds"
                                   : "; executions were not counted";
    for (size_t i = 0; i < v->nunit; i++)
        refused += v->unit[i]->refused; /* which is said, and why it ended */
    if (v->going)
        xl_buf_printf(b, "this run goes on: %.*s. What is said of it is until now, its counts until two seconds ago\n",
                      XL_FMT(v->unended));
    else if (v->unended.n)
        xl_buf_printf(b, "%.*s\n", XL_FMT(v->unended));
    else if (v->end.signal)
        xl_buf_printf(b, "this run was ended by signal %d (%s)%s\n", (int)v->end.signal, strsignal((int)v->end.signal),
                      cut);
    else if (v->end.has_status && v->end.status && !refused)
        xl_buf_printf(b, "this run ended with exit status %lld%s\n", (long long)v->end.status,
                      cut);
    else if (v->cut)
        xl_buf_printf(b,
                      "%d process%s of this run ended without writing %s last counts (os._exit, exec, a signal or a "
                      "full disk does that)\n",
                      v->cut, v->cut == 1 ? "" : "es", v->cut == 1 ? "its" : "their");
    xl_arena a = { 0 };
    xl_str failed = xl_failed_words(&a, v->event, v->nevent);
    if (failed.n)
        xl_buf_printf(b, "%.*s\n", XL_FMT(failed));
    xl_arena_fini(&a);
}

/* A dtype became one of 64 bits. */
static bool of_64_bits(const xl_cause_seen *c)
{
    bool wide = false, narrow = false;
    for (size_t i = 0; i < c->nvalue; i++) {
        bool is = xl_str_is(c->value[i], "f64") || xl_str_is(c->value[i], "i64") || xl_str_is(c->value[i], "ui64");
        wide |= is;
        narrow |= !is;
    }
    return wide && narrow && c->cause->ask == XL_ASK_SHAPE;
}

void xl_run_unit_say(xl_arena *a, const xl_run_verdict *v, const xl_run_unit *u, xl_buf *b)
{
    bool sum = u->processes > 1 && !u->ncause; /* then all of them count, else those of one process */
    int all = sum ? u->all_compiles : u->compiles, stored = sum ? u->all_cached + u->all_loaded : u->cached + u->loaded;
    int made = all - stored;
    char word[2][32];
    say_name(u->name, u->function, b);
    xl_buf_putc(b, ' ');
    if (u->place.n)
        xl_buf_printf(b, "%s at %.*s ", u->reads_value ? "for a value that is read" : "run", XL_FMT(u->place));
    if (u->failed)
        xl_buf_printf(b, "failed to compile%s", u->compiles ? ", and " : "\n");
    if (!u->compiles)
        return;
    if (!stored)
        xl_buf_printf(b, "compiled %s", all == 1 ? "once" : "");
    else if (!made)
        xl_buf_printf(b, "was loaded from the cache%s", all == 1 ? "" : " ");
    else
        xl_buf_printf(b, "compiled %s and was loaded from the cache %s", times(made, word[0]), times(stored, word[1]));
    if (all > 1 && (!stored || !made))
        xl_buf_printf(b, "%d times", all);
    if (u->refused)
        xl_buf_printf(b, ", and was refused by the policy %s", times(u->refused, word[0]));
    if (!u->ncause) {
        if (u->runs)
            xl_buf_printf(b, ", ran %s%llu time%s", xl_verdict_open(v) ? "at least " : "", (unsigned long long)u->runs,
                          u->runs == 1 ? "" : "s");
        if (sum)
            xl_buf_printf(b, " (sums over %d processes)", u->processes);
        xl_buf_puts(b, u->compiles != 1 ? "" : v->going ? ": no recompile so far" : ": no recompile");
        xl_buf_putc(b, '\n');
        return;
    }
    if (u->processes > 1)
        xl_buf_printf(b, " in %s of %d processes", u->alike ? "each" : "one", u->processes);
    xl_buf_puts(b, ": ");
    enum { SHOWN = 4, KINDS = 6 };
    bool *show = xl_new(a, bool, u->ncause), *told = xl_new(a, bool, u->ncause);
    size_t n = 0;
    for (size_t i = 0; i < u->ncause && n < KINDS; i++) { /* one of each kind before a second of any */
        show[i] = true;
        for (size_t k = 0; k < i && show[i]; k++)
            show[i] = u->cause[k].cause != u->cause[i].cause;
        n += show[i];
    }
    for (size_t i = 0; i < u->ncause && n < SHOWN; i++) {
        n += !show[i];
        show[i] = true;
    }
    bool wide_told = false;
    for (size_t i = 0, lines = 0; i < u->ncause; i++) { /* causes of one remedy share a line */
        if (!show[i] || told[i])
            continue;
        bool optax = false, minus = false, trains = false, wide = false;
        const char *joined = strcmp(u->cause[i].cause->word, "resulting") ? "    and: " : "    as a result: ";
        size_t with = 0;                                   /* that the same Python value decides */
        for (size_t k = i; k < u->ncause; k++) {
            if (!show[k] || u->cause[k].cause != u->cause[i].cause)
                continue;
            told[k] = true;
            trains |= u->cause[k].trains;
            wide |= of_64_bits(&u->cause[k]);
            if (k > i && u->cause[k].values.n && xl_str_eq(u->cause[k].values, u->cause[i].values)) {
                with++;
                continue;
            }
            xl_buf_puts(b, k > i ? ", and " : lines++ ? joined : "");
            say_cause(&u->cause[k], u->ncause == 1 && u->cause[k].times + 1 >= all, b);
            optax |= u->cause[k].optax;
            minus |= u->cause[k].optax && u->cause[k].nvalue && xl_str_starts(u->cause[k].value[0], XL_STR("-"));
        }
        if (with)
            xl_buf_printf(b, ", and %zu more change%s with it", with, with == 1 ? "" : "s");
        if (trains)
            xl_buf_puts(b, "; the later program computes gradients too: if it is your training step, it now trains "
                           "without dropout");
        if (wide && !wide_told)
            xl_buf_puts(b, "; jax_enable_x64 is on (jax.config, or JAX_ENABLE_X64), so 64-bit numbers of NumPy and "
                           "Python stay 64 bits: turn it off if you do not need them");
        wide_told |= wide;
        xl_buf_printf(b, "; %s%s%s", xl_cause_remedy(u->cause[i].cause, u->module),
                      optax ? " (Optax: optax.inject_hyperparams, or a schedule)" : "",
                      minus ? "; a learning rate of 0.1 is -0.1 in a program of Optax, which subtracts the update"
                            : "");
        if (u->remade && lines == 1)
            xl_buf_printf(b,
                          "; %d of these times the jitted function was made anew, as by jax.jit of a lambda in a loop, "
                          "which traces it again whatever it captures: make it once, outside the loop",
                          u->remade);
        xl_buf_putc(b, '\n');
    }
    if (u->ncause > n)
        xl_buf_printf(b, "    and %zu more: the list below has them\n", u->ncause - n);
}

/* Each of the ranks says so, in the same `text` or `error`. */
static bool said_before(const xl_run_verdict *v, size_t event)
{
    const xl_node *e = v->event[event];
    for (size_t i = 0; i < event; i++)
        if (xl_str_eq(xl_node_text(v->event[i], "event"), xl_node_text(e, "event")) &&
            xl_str_eq(xl_node_text(v->event[i], "text"), xl_node_text(e, "text")) &&
            xl_str_eq(xl_node_text(v->event[i], "error"), xl_node_text(e, "error")))
            return true;
    return false;
}

static void say_grown(const xl_run_verdict *v, xl_buf *b)
{
    enum { LINES = 3, VALUES = 4 };
    const xl_cause *grows = xl_cause_of(XL_STR("growing"));
    XL_KNOWN(grows); /* a row of cause.def */
    for (size_t i = 0; i < v->ngrown && i < LINES; i++) {
        const xl_run_grown *g = &v->grown[i];
        xl_buf_printf(b, "%s`%.*s` at %.*s %d times",
                      i ? ", " : "single ops compiled again for new shapes all along: ", XL_FMT(g->unit->name),
                      XL_FMT(g->where), g->times);
        for (size_t k = 0; k < g->nvalue && k < VALUES; k++)
            xl_buf_printf(b, "%s%.*s%s%.*s", k ? ", " : " (", k ? 0 : (int)g->who.n, g->who.p, k ? "" : " took ",
                          XL_FMT(g->value[k]));
        if (g->nvalue)
            xl_buf_puts(b, g->nvalue > VALUES ? ", ...)" : ")");
    }
    if (v->ngrown > LINES)
        xl_buf_printf(b, ", and on %zu more line%s", v->ngrown - LINES, v->ngrown == LINES + 1 ? "" : "s");
    if (v->ngrown)
        xl_buf_printf(b, "; %s\n", grows->remedy);
}

/* Steps that the host waited for. */
static void say_waits(const xl_run_verdict *v, xl_buf *b)
{
    for (size_t i = 0; i < v->nunit; i++) {
        const xl_run_unit *u = v->unit[i];
        if (u->reads_value && u->runs >= 3)
            xl_buf_printf(b,
                          "%.*s reads a tensor's value, which ran the graph so far and waited for it %llu times "
                          "(.item(), nonzero, print, "
                          "an if over a tensor); keep it on the device (torch.where), or read every N steps, after "
                          "torch_xla.sync()\n",
                          XL_FMT(u->place), (unsigned long long)u->runs);
    }
    for (size_t i = 0; i < v->nunit; i++) {
        const xl_run_unit *u = v->unit[i];
        for (size_t k = 0; k < v->nevent; k++)
            if (xl_node_is(v->event[k], "event", "sync") && xl_run_unit_of(v, v->event[k]) == u && u->waited) {
                say_name(u->name, u->function, b);
                xl_buf_printf(b, ": the host read a result of %s%llu of %llu steps before it started the next one; "
                              "the remedy is at `sync` in `xlane explain`\n",
                              xl_verdict_open(v) ? "at least " : "", (unsigned long long)u->waited,
                              (unsigned long long)u->runs);
                break;
            }
        if (!xl_unit_waits(u))
            continue;
        xl_str where = { "", 0 };                          /* of the fifth one */
        for (size_t k = 0; k < v->nevent; k++)
            if (xl_node_is(v->event[k], "event", "wait") && xl_run_unit_of(v, v->event[k]) == u)
                where = xl_node_text(v->event[k], "where");
        say_name(u->name, u->function, b);
        xl_buf_printf(b,
                      ": the host waited for the end of %s%llu of %llu steps before it started the next program "
                      "(%s%s%.*s), so the device had nothing queued meanwhile; %s\n",
                      xl_verdict_open(v) ? "at least " : "", (unsigned long long)u->awaited,
                      (unsigned long long)u->runs,
                      u->filtered ? "equinox.filter_jit waits in each call"
                                  : "block_until_ready, or a library that calls it",
                      where.n ? ", as at " : "", XL_FMT(where),
                      u->filtered ? "jax.jit does not wait, and takes the arrays of eqx.partition(model, eqx.is_array) "
                                    "and joins them to the rest inside (eqx.combine)"
                                  : "wait once after the loop, or every N steps");
    }
}

/* Functions whose executables no cache can keep. */
static void say_uncacheable(const xl_run_verdict *v, xl_buf *b)
{
    for (size_t i = 0; i < v->nunit && v->keeps; i++) {
        const xl_run_unit *u = v->unit[i];
        if (!u->uncacheable.n || u->helper)
            continue;
        say_name(u->name, u->function, b);
        xl_buf_printf(b, " is not cached and compiles in every run: %.*s\n", XL_FMT(u->uncacheable));
    }
}

/* What is compiled op by op, and where there is nothing else. */
static void say_single_ops(const xl_run_verdict *v, size_t steps, size_t other, bool broken, xl_buf *b)
{
    bool op_by_op = false;
    static const char *const apart[] = { "eager", "search" }; /* reasons of ops that are compiled one by one */
    for (size_t k = 0; k < sizeof apart / sizeof *apart; k++) {
        const xl_node *first = NULL;
        size_t n = 0;
        uint64_t runs = UINT64_MAX;                        /* of the op that ran least */
        for (size_t i = 0; i < v->nevent; i++)
            if (v->of[i] && xl_node_is(v->event[i], "reason", apart[k])) {
                first = first ? first : v->event[i];
                runs = v->of[i]->runs < runs ? v->of[i]->runs : runs;
                n++;
            }
        op_by_op |= first != NULL;
        if (!first)
            continue;
        bool few = runs < 3 && !k && !xl_verdict_open(v);
        xl_buf_printf(b, "%.*s: %zu single op%s%s%s%s\n", XL_FMT(xl_node_text(first, "words")), n, n == 1 ? "" : "s",
                      few && runs == 1 ? ", once" : "", few ? "" : "; ", few ? "" : xl_event_cause(first)->remedy);
    }
    if (!op_by_op && !steps && broken && !v->gaps) {
        xl_buf_printf(b,
                      "no step: the run ended with exit status %lld before a function of yours was compiled; what "
                      "it printed says why\n",
                      (long long)v->end.status);
    } else if (!op_by_op && !steps && v->eager_runs && !v->gaps) {
        const xl_cause *one_by_one = xl_cause_of(XL_STR("eager"));
        XL_KNOWN(one_by_one); /* a row of cause.def */
        xl_buf_printf(
            b, "no step: %zu modules of single ops or library functions ran %llu times, and nothing else did; %s\n",
            other, (unsigned long long)v->eager_runs, one_by_one->remedy);
    }
}

/* Programs that the cache had, and lost. */
static void say_lost(const xl_run_verdict *v, xl_buf *b)
{
    if (v->damaged)
        xl_buf_printf(
            b,
            "%d program%s compiled again, because %s could not be used; `xlane cache verify` checks the others\n",
            v->damaged, v->damaged == 1 ? " was" : "s were",
            v->damaged == 1 ? "its cache entry" : "their cache entries");
    if (v->dropped)
        xl_buf_printf(b, "%d program%s compiled again, for the cache had dropped %s to keep its size: --cache-max\n",
                      v->dropped, v->dropped == 1 ? " was" : "s were", v->dropped == 1 ? "it" : "them");
}

/* Ranks with programs of their own; clients that did not start, executions that failed. */
static void say_failures(const xl_run_verdict *v, xl_buf *b)
{
    for (size_t i = 0; i < v->nevent; i++)
        if (xl_node_is(v->event[i], "event", "divergence") && !said_before(v, i)) {
            xl_run_name_say(v, v->event[i], b);
            xl_buf_printf(b,
                          " is not one program: %.*s; ranks that run different programs hang or sum what does not "
                          "belong together: make what differs the same on each\n",
                          XL_FMT(xl_node_text(v->event[i], "text")));
        }
    for (size_t i = 0; i < v->nevent; i++) {
        const xl_node *e = v->event[i];
        xl_str error = xl_node_text(e, "error");
        if (xl_node_is(e, "event", "client") && !xl_node_flag(e, "ok") && !said_before(v, i))
            xl_buf_printf(b, "the client did not start: %.*s\n", XL_FMT(error));
        else if (xl_node_is(e, "event", "execute") && error.n) {
            xl_run_name_say(v, e, b);
            xl_buf_printf(b, " failed when it ran: %.*s; `xlane classify` says what that means for a retry\n",
                          XL_FMT(error));
        }
    }
}

void xl_verdict_say(xl_arena *a, const xl_run_verdict *v, bool listed, xl_buf *b)
{
    size_t steps = 0, other = 0;
    int made = 0, loads = 0; /* of the others, in all processes */
    bool broken = v->end.has_status && v->end.status;
    for (size_t i = 0; i < v->nunit; i++) {
        const xl_run_unit *u = v->unit[i];
        broken &= u->helper;
        steps += u->step;
        other += !u->step;
        made += u->step ? 0 : u->all_compiles - u->all_cached - u->all_loaded;
        loads += u->step ? 0 : u->all_cached + u->all_loaded;
        if (u->step)
            xl_run_unit_say(a, v, u, b);
    }
    say_waits(v, b);
    say_uncacheable(v, b);
    say_single_ops(v, steps, other, broken, b);
    say_grown(v, b);
    if (other) {
        xl_buf_puts(b, steps ? "in addition, " : "");
        if (made || !loads)
            xl_buf_printf(b, "%d compile%s", made, made == 1 ? "" : "s");
        if (loads)
            xl_buf_printf(b, "%s%d load%s from a cache", made ? " and " : "", loads, loads == 1 ? "" : "s");
        xl_buf_printf(b, " of %zu other module%s (initialisers, eager ops, library functions)%s\n", other,
                      other == 1 ? "" : "s", listed ? "" : ": --all lists them");
    }
    say_lost(v, b);
    if (v->nunit && !v->compiled && !v->failed && !v->gaps && !v->going)
        xl_buf_puts(b, "this run compiled nothing: each program that it ran was loaded from a cache\n");
    say_failures(v, b);
    if (!v->nunit && !v->gaps)
        xl_buf_puts(b, v->builtin ? "JAX took its built-in cpu backend, which is no PJRT plugin: what it compiled and "
                                    "ran there is not recorded; `xlane run --profile=cpu` takes the embedded device, "
                                    "where the program itself sets neither jax_platforms nor JAX_PLATFORMS\n"
                                  : "nothing was compiled through a plugin\n");
}

void xl_triage_say(const xl_run_verdict *v, xl_buf *b)
{
    const char *no = v->gaps ? "not known: the record is incomplete" : "no";
    if (!v->nunit && !v->gaps) {
        xl_buf_puts(b, "shapes, policy, branches and values: not recorded, since no compile was\n");
        return;
    }
    xl_buf_printf(b, "did input shapes or dtypes change?           %s\n",
                  v->shape     ? "yes"
                  : v->widened ? "yes, as jax_enable_x64 was switched"
                  : v->ngrown  ? "no, of no step; of single ops, yes"
                               : no);
    xl_buf_printf(b, "did the profile or the SPMD policy change?   %s\n", v->policy ? "yes" : no);
    xl_buf_printf(b, "did a hidden graph branch become active?     %s\n", v->branch ? "yes" : no);
    xl_buf_printf(b, "did a Python value traced into it change?    %s\n",
                  v->value     ? "yes"
                  : v->perhaps ? "perhaps: a number changed as a size did; the list has it"
                               : no);
    xl_buf_printf(b, "was the same program traced again?           %s\n", v->again ? "yes" : no);
    for (size_t i = 0; i < v->nother; i++)
        xl_buf_printf(b, "%s%.*s",
                      i ? ", " : "did something else change?                   yes: ", XL_FMT(v->other[i]));
    if (v->nother)
        xl_buf_putc(b, '\n');
}
