/* Whether the ranks of a program are about to compile the same thing. A rank that built another program is not noticed
 * by anybody: the others train with wrong sums, or hang in their first collective.
 *
 * The n-th compile over a set of processes is the n-th in each of them, so that is where they meet, whatever the
 * program is called. Each rank writes a digest of what it compiles; the first of every FAN reads those of its block,
 * the first of every FAN of those the blocks', and so on; the very first writes one verdict, which all read: 4,096
 * ranks cost some 50 calls one after another, not 4,096. Only where digests differ do the ranks concerned write all of
 * it, and every rank reads it and says the same sentence. All waits have a limit. */
#include <stdio.h>
#include <stdlib.h>

#include "base/time.h"
#include "base/zip.h"
#include "guard/guard.h"
#include "ir/read.h"
#include "lane/identity.h"

enum { FAN = 16, KEY = 160, ODD_MAX = 3, PROGRAM_MAX = 256 << 20, DIGEST = 32, SHOWN = 4 };
static const double read_seconds = 5, late_after = 10;
static double margin(guard_state *g)
{
    return g->agree_seconds < 50 ? g->agree_seconds / 10 : 5;
} /* that the others wait longer than the rank that decides */

typedef struct {
    guard_plugin *p;
    PJRT_Client *client;
    const guard_ranks *who;
    const xl_cache_key *key;
    xl_str program;
    char base[KEY - 32];
    uint32_t me;                                           /* our place among the ranks */
    double until;
    bool said;                                             /* that somebody is late */
} meeting;

/* What must be the same. Topologies and processes may differ: they say who a rank is. */
static const char *const parts[] = { "program", "options", "flags", "profile", "plugin", "versions" };

static xl_str part_of(const xl_cache_key *k, const char *name)
{
    for (uint32_t i = 0; i < k->n; i++)
        if (!strcmp(k->name[i], name))
            return k->value[i];
    return (xl_str){ "", 0 };
}

static void digest_of(const xl_cache_key *k, char out[DIGEST + 1])
{
    xl_hash h;
    char hex[XL_DIGEST_HEX];
    xl_hash_init(&h);
    xl_hash_str(&h, k->module);
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        xl_hash_str(&h, part_of(k, parts[i]));
    xl_digest d = xl_hash_final(&h);
    snprintf(out, DIGEST + 1, "%.*s", DIGEST, xl_digest_hex(&d, hex));
}

static const char *key_of(const meeting *m, char out[KEY], const char *what, int number)
{
    snprintf(out, KEY, "%s/%s/%d", m->base, what, number);
    return out;
}

static bool take(const meeting *m, const char *what, int number, double seconds, xl_buf *out)
{
    char key[KEY];
    out->n = 0;
    return guard_store_get(m->p, m->client, key_of(m, key, what, number), seconds, out);
}

static void give(const meeting *m, const char *what, int number, xl_str value)
{
    char key[KEY];
    guard_store_put(m->p, m->client, key_of(m, key, what, number), value);
}

/* ---- the digests, up the tree ---- */
/* "FIRST LAST DIGEST\n" for places of ranks that follow each other with one digest; "-" for one that has not come. What
 * the leader of a block that did not come would have said of the others is left out. */
static void add_places(xl_buf *out, uint32_t first, uint32_t last, xl_str digest)
{
    xl_buf_printf(out, "%u %u %.*s\n", first, last, XL_FMT(digest));
}

typedef struct { uint32_t first, last; xl_str digest; } places;

static bool next_places(xl_str *text, places *out)
{
    while (text->n) {
        xl_str line = xl_str_cut(text, '\n'), a = xl_str_cut(&line, ' '), b = xl_str_cut(&line, ' ');
        int64_t x, y;
        if (!xl_str_i64(a, &x) || !xl_str_i64(b, &y) || x < 0 || y < x || y > INT32_MAX || !line.n)
            continue;
        *out = (places){ (uint32_t)x, (uint32_t)y, line };
        return true;
    }
    return false;
}

/* Neighbours with one digest become one line. */
static void merge(xl_str text, xl_buf *out)
{
    places now, next;
    if (!next_places(&text, &now))
        return;
    while (next_places(&text, &next)) {
        if (next.first == now.last + 1 && xl_str_eq(now.digest, next.digest)) {
            now.last = next.last;
            continue;
        }
        add_places(out, now.first, now.last, now.digest);
        now = next;
    }
    add_places(out, now.first, now.last, now.digest);
}

/* What the rank at `place` wrote at a level; waits longer the higher the level is. */
static bool take_level(guard_state *g, meeting *m, uint32_t place, uint32_t level, xl_buf *out)
{
    char what[16];
    double until = m->until + margin(g) * level / 8, left = until - xl_now();
    snprintf(what, sizeof what, "level%u", level);
    bool came = take(m, what, m->who->rank[place], left < late_after ? left : late_after, out);
    if (!came && until - xl_now() > 0.01) {
        if (!m->said)
            guard_say("rank %d has waited %.0f s for rank %d to compile %.*s too", m->who->me, late_after,
                      m->who->rank[place], XL_FMT(m->key->module));
        m->said = true;
        came = take(m, what, m->who->rank[place], until - xl_now(), out);
    }
    return came;
}

/* Everything below us, level by level, and what we say of it. */
static void climb(guard_state *g, meeting *m, const char *digest, xl_buf *all)
{
    xl_buf one = { 0 }, merged = { 0 };
    uint32_t level = 0;
    add_places(all, m->me, m->me, xl_str_of(digest));
    for (uint64_t stride = 1; stride < m->who->n; stride *= FAN, level++) {
        if (m->me % (stride * FAN)) {
            char what[16];
            snprintf(what, sizeof what, "level%u", level);
            give(m, what, m->who->me, xl_buf_view(all));
            break;
        }
        for (uint64_t k = 1; k < FAN && m->me + k * stride < m->who->n; k++) {
            uint32_t place = (uint32_t)(m->me + k * stride);
            if (take_level(g, m, place, level, &one))
                xl_buf_str(all, xl_buf_view(&one));
            else
                add_places(all, place, place, XL_STR("-"));
        }
        merged.n = 0;
        merge(xl_buf_view(all), &merged);
        all->n = 0;
        xl_buf_str(all, xl_buf_view(&merged));
    }
    xl_buf_fini(&one);
    xl_buf_fini(&merged);
}

/* "same", or "REFERENCE COUNT|odd ranks|late ranks": the reference is the lowest rank of those that most agree with. */
static void write_verdict(const meeting *m, xl_str all, xl_buf *out)
{
    xl_buf odd = { 0 }, late = { 0 };
    xl_str text = all, best = { 0 };
    places p, q;
    uint32_t count = 0, ref = 0;
    while (next_places(&text, &p)) {
        uint32_t same = 0;
        if (xl_str_is(p.digest, "-") || (count && xl_str_eq(p.digest, best)))
            continue;
        for (xl_str again = all; next_places(&again, &q); )
            same += xl_str_eq(p.digest, q.digest) ? q.last - q.first + 1 : 0;
        if (same > count) {
            best = p.digest;
            count = same;
            ref = p.first;
        }
    }
    for (text = all; next_places(&text, &p); )
        for (uint32_t i = p.first; i <= p.last && i < m->who->n && !xl_str_eq(p.digest, best); i++) {
            xl_buf *b = xl_str_is(p.digest, "-") ? &late : &odd;
            xl_buf_printf(b, "%s%d", b->n ? "," : "", m->who->rank[i]);
        }
    if (!odd.n && !late.n)
        xl_buf_puts(out, "same");
    else
        xl_buf_printf(out, "%d %u|%.*s|%.*s", m->who->rank[ref], count, XL_FMT(xl_buf_view(&odd)),
                      XL_FMT(xl_buf_view(&late)));
    xl_buf_fini(&odd);
    xl_buf_fini(&late);
}

/* False: nobody said anything in time. */
static bool verdict(guard_state *g, meeting *m, xl_buf *out)
{
    char digest[DIGEST + 1];
    xl_buf all = { 0 };
    digest_of(m->key, digest);
    climb(g, m, digest, &all);
    bool came = true;
    if (m->me == 0) {
        write_verdict(m, xl_buf_view(&all), out);
        give(m, "verdict", 0, xl_buf_view(out));
    } else {
        came = take(m, "verdict", 0, m->until + margin(g) - xl_now(), out);
    }
    xl_buf_fini(&all);
    return came && !out->failed;
}

/* ---- what differs ---- */
/* "name length\nbytes" for the module's name, every part, and the packed program. */
static void put_part(xl_buf *b, const char *name, xl_str v)
{
    xl_buf_printf(b, "%s %zu\n", name, v.n);
    xl_buf_str(b, v);
}

static void write_record(const meeting *m, xl_buf *out)
{
    xl_buf zip = { 0 };
    put_part(out, "module", m->key->module);
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        put_part(out, parts[i], part_of(m->key, parts[i]));
    xl_error *err = xl_zip(m->program, 3, &zip);
    if (!err)
        put_part(out, "bytes", xl_buf_view(&zip));
    xl_error_free(err);
    xl_buf_fini(&zip);
}

static xl_str record_part(xl_str record, const char *name)
{
    while (record.n) {
        xl_str head = xl_str_cut(&record, '\n'), word = xl_str_cut(&head, ' ');
        int64_t n;
        if (!xl_str_i64(head, &n) || n < 0 || (uint64_t)n > record.n)
            break;
        if (xl_str_is(word, name))
            return (xl_str){ record.p, (size_t)n };
        record.p += n;
        record.n -= (size_t)n;
    }
    return (xl_str){ "", 0 };
}

static xl_module *program_of(xl_str record)
{
    xl_buf text = { 0 };
    xl_module *m = NULL;
    xl_error *err = xl_unzip(record_part(record, "bytes"), PROGRAM_MAX, &text);
    if (!err)
        err = xl_read(xl_buf_view(&text), NULL, &m);
    xl_error_free(err);
    xl_buf_fini(&text);
    return m;
}

typedef struct { xl_str ref, odd; xl_buf *out; } pair;

static xl_error *say_programs(xl_arena *a, void *ctx)
{
    pair *w = ctx;
    xl_module *x = program_of(w->ref), *y = program_of(w->odd);
    xl_verdict v = { 0 };
    xl_error *err = NULL;
    if (x && y) {
        x->arena.oom = y->arena.oom = a->oom;
        err = xl_contract_compare(a, x, y, &v);
    }
    for (uint32_t i = 0; !err && i < v.ndiff && i < SHOWN; i++)
        xl_buf_printf(w->out, "%s%.*s", i ? "; " : "", XL_FMT(v.diff[i].text));
    if (!err && v.ndiff > SHOWN)
        xl_buf_printf(w->out, "; and %u more", v.ndiff - SHOWN);
    if (!v.ndiff)
        xl_buf_puts(w->out, "the programs differ");
    xl_module_free(x);
    xl_module_free(y);
    return err;
}

static void say_pair(xl_str ref, xl_str odd, xl_buf *out)
{
    bool any = false;
    xl_str a = record_part(ref, "module"), b = record_part(odd, "module");
    if (!xl_str_eq(a, b)) {
        xl_buf_printf(out, "it compiles %.*s where the others compile %.*s", XL_FMT(b), XL_FMT(a));
        return;
    }
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        a = record_part(ref, parts[i]);
        b = record_part(odd, parts[i]);
        if (xl_str_eq(a, b))
            continue;
        xl_buf_puts(out, any ? "; " : "");
        any = true;
        if (!strcmp(parts[i], "program")) {
            xl_error_free(xl_arena_call(say_programs, &(pair){ ref, odd, out }));
        } else {
            xl_buf_printf(out, "%s: ", parts[i]);
            xl_words_diff(a, b, out);
        }
    }
}

static void say_odd(meeting *m, int ref, int odd, uint32_t agree, xl_buf *text)
{
    xl_buf a = { 0 }, b = { 0 };
    xl_buf_printf(text, "%srank %d compiles another program than rank %d", text->n ? ". " : "", odd, ref);
    if (agree > 1)
        xl_buf_printf(text, " and %u other%s", agree - 1, agree == 2 ? "" : "s");
    xl_buf_puts(text, ": ");
    if (take(m, "record", ref, read_seconds, &a) && take(m, "record", odd, read_seconds, &b))
        say_pair(xl_buf_view(&a), xl_buf_view(&b), text);
    else
        xl_buf_puts(text, "what differs is not known, for it did not say in time");
    xl_buf_fini(&a);
    xl_buf_fini(&b);
}

/* The first `most` numbers of a list "2,5"; returns how many there are. */
static uint32_t listed(xl_str list, int *out, uint32_t most)
{
    uint32_t n = 0;
    while (list.n) {
        int64_t v;
        if (xl_str_i64(xl_str_cut(&list, ','), &v)) {
            if (n < most)
                out[n] = (int)v;
            n++;
        }
    }
    return n;
}

static void set_name(const guard_ranks *who, char out[64])
{
    char hex[XL_DIGEST_HEX];
    xl_digest d = xl_hash_of((xl_str){ (const char *)who->rank, who->n * sizeof *who->rank });
    snprintf(out, 64, "same-%.16s", xl_digest_hex(&d, hex));
}

uint32_t guard_meeting(guard_state *g, const guard_ranks *who)
{
    char id[64];
    set_name(who, id);
    return guard_agree_round(g, id);
}

bool guard_differ(guard_plugin *p, PJRT_Client *client, const guard_ranks *who, const xl_cache_key *key, xl_str program,
                  xl_buf *text)
{
    guard_state *g = p->g;
    meeting m = { .p = p, .client = client, .who = who, .key = key, .program = program };
    xl_buf v = { 0 };
    char id[64];
    bool differ = false;
    if (!guard_has_store(g, client))
        return false;
    set_name(who, id);
    while (m.me < who->n && who->rank[m.me] != who->me)
        m.me++;
    if (who->meeting == UINT32_MAX || m.me == who->n)
        return false;
    snprintf(m.base, sizeof m.base, "xlane/%s/%u", id, who->meeting);
    m.until = xl_now() + g->agree_seconds;
    if (!verdict(g, &m, &v)) {
        xl_buf_printf(text,
                      "rank %d has said nothing for %.0f s, so %.*s is compiled without comparing it between ranks",
                      who->rank[0], g->agree_seconds + margin(g), XL_FMT(key->module));
        goto out;
    }
    if (xl_str_is(xl_buf_view(&v), "same"))
        goto out;
    xl_str rest = xl_buf_view(&v), head = xl_str_cut(&rest, '|'), odds = xl_str_cut(&rest, '|'), lates = rest,
           refs = xl_str_cut(&head, ' ');
    int64_t ref = 0, agree = 0;
    int odd[ODD_MAX], late[ODD_MAX];
    if (!xl_str_i64(refs, &ref) || !xl_str_i64(head, &agree))
        goto out;
    uint32_t nodd = listed(odds, odd, ODD_MAX), nlate = listed(lates, late, ODD_MAX);
    bool tells = nodd && who->me == (int)ref;
    for (uint32_t i = 0; i < nodd && i < ODD_MAX; i++)
        tells = tells || odd[i] == who->me;
    if (tells) {
        xl_buf record = { 0 };
        write_record(&m, &record);
        give(&m, "record", who->me, xl_buf_view(&record));
        xl_buf_fini(&record);
    }
    for (uint32_t i = 0; i < nodd && i < ODD_MAX; i++)
        say_odd(&m, (int)ref, odd[i], (uint32_t)agree, text);
    if (nodd > ODD_MAX)
        xl_buf_printf(text, ". So do %u more: ranks %.*s", nodd - ODD_MAX, XL_FMT(odds));
    if (nlate)
        xl_buf_printf(text, "%srank%s %.*s ha%s not come to compile %.*s within %.0f s", text->n ? ". " : "",
                      nlate > 1 ? "s" : "", XL_FMT(lates), nlate > 1 ? "ve" : "s", XL_FMT(key->module),
                      g->agree_seconds);
    differ = nodd > 0;
out:
    xl_buf_fini(&v);
    return differ;
}
