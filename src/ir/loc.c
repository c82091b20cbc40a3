/* Locations: where in the user's program an op comes from. */
#include "base/hash.h"
#include "ir/ir.h"

xl_loc xl_loc_add(xl_module *m, const xl_loc_info *info)
{
    if (m->nloc == 0)
        XL_PUSH(&m->arena, m->loc, m->nloc, m->caploc, (xl_loc_info){ .kind = XL_LOC_UNKNOWN });
    xl_loc id = { m->nloc };
    XL_PUSH(&m->arena, m->loc, m->nloc, m->caploc, *info);
    return id;
}

xl_loc xl_loc_file(xl_module *m, xl_str file, uint32_t line, uint32_t col)
{
    return xl_loc_add(
        m, &(xl_loc_info){ .kind = XL_LOC_FILE, .str = xl_str_dup(&m->arena, file), .line = line, .col = col });
}

xl_loc xl_loc_name(xl_module *m, xl_str name, xl_loc child)
{
    return xl_loc_add(m, &(xl_loc_info){ .kind = XL_LOC_NAME, .str = xl_str_dup(&m->arena, name), .a = child });
}

const xl_loc_info *xl_loc_get(const xl_module *m, xl_loc loc)
{
    static const xl_loc_info unknown = { .kind = XL_LOC_UNKNOWN };
    if (loc.id == 0 || loc.id >= m->nloc)
        return &unknown;
    if (m->loc_decode)
        m->loc_decode((xl_module *)m, loc);                /* fills m->loc[loc.id] if it is not yet */
    return &m->loc[loc.id];
}

/* An installed Python library: its lines say what was done, the line that called it says where the user
 * asked for it. */
static bool in_library(xl_str file)
{
    static const char *const folder[] = { "/site-packages/", "/dist-packages/", "/lib/python3" };
    for (size_t k = 0; k < sizeof folder / sizeof *folder; k++)
        if (memmem(file.p, file.n, folder[k], strlen(folder[k])))
            return true;
    return false;
}

/* Callee before caller: the innermost frame outside the libraries is the line a person wants, else the innermost.
 * Bounded by `left`, the steps that may yet be taken: a hostile file's locations may contain themselves. True: the
 * search is over. */
static bool find_line(const xl_module *m, xl_loc loc, xl_loc_info *found, uint32_t *left)
{
    while (*left > 0) {
        --*left;
        const xl_loc_info *l = xl_loc_get(m, loc);
        switch (l->kind) {
        case XL_LOC_UNKNOWN: return false;
        case XL_LOC_FILE: {
            bool user = !in_library(l->str);
            if (user || found->kind == XL_LOC_UNKNOWN)
                *found = *l;
            return user;
        }
        case XL_LOC_NAME: loc = l->a; break;
        case XL_LOC_CALL: {
            xl_loc caller = l->b;
            if (find_line(m, l->a, found, left))
                return true;
            loc = caller;
            break;
        }
        case XL_LOC_FUSED:
            for (uint32_t i = 0; i < l->n; i++)
                if (find_line(m, l->list[i], found, left))
                    return true;
            return false;
        }
    }
    return false;
}

bool xl_loc_line(const xl_module *m, xl_loc loc, xl_str *file, uint32_t *line, uint32_t *col)
{
    uint32_t left = 1000;
    xl_loc_info found = { .kind = XL_LOC_UNKNOWN };
    find_line(m, loc, &found, &left);
    if (found.kind == XL_LOC_UNKNOWN)
        return false;
    *file = found.str;
    *line = found.line;
    *col = found.col;
    return true;
}

static bool passes(const xl_module *m, xl_loc loc, const char *part, uint32_t *left)
{
    while (*left > 0) {
        --*left;
        const xl_loc_info *l = xl_loc_get(m, loc);
        switch (l->kind) {
        case XL_LOC_UNKNOWN: return false;
        case XL_LOC_FILE: return memmem(l->str.p, l->str.n, part, strlen(part)) != NULL;
        case XL_LOC_NAME: loc = l->a; break;
        case XL_LOC_CALL: {
            xl_loc caller = l->b;                          /* decoding may move l */
            if (passes(m, l->a, part, left))
                return true;
            loc = caller;
            break;
        }
        case XL_LOC_FUSED: {
            xl_loc_info all = *l;
            for (uint32_t i = 0; i < all.n; i++)
                if (passes(m, all.list[i], part, left))
                    return true;
            return false;
        }
        }
    }
    return false;
}

bool xl_loc_passes(const xl_module *m, xl_loc loc, const char *part)
{
    uint32_t left = 1000;
    return passes(m, loc, part, &left);
}

bool xl_loc_below(const xl_module *m, xl_loc loc, uint64_t caller, xl_str *file, uint32_t *line)
{
    xl_loc frame[64];
    int n = 0;
    for (int depth = 0; caller && depth < 128 && n < 64; depth++) {
        const xl_loc_info *l = xl_loc_get(m, loc);
        if (l->kind == XL_LOC_NAME) {
            loc = l->a;
            continue;
        }
        if (l->kind != XL_LOC_CALL)
            return false;
        frame[n++] = l->a;
        loc = l->b;
        if (xl_loc_stack(m, loc) != caller)
            continue;
        while (n-- > 0) {                                  /* outermost first */
            const xl_loc_info *f = xl_loc_get(m, frame[n]);
            for (int k = 0; f->kind == XL_LOC_NAME && k < 8; k++)
                f = xl_loc_get(m, f->a);
            if (f->kind == XL_LOC_FILE && !in_library(f->str)) {
                *file = f->str;
                *line = f->line;
                return true;
            }
        }
        return false;
    }
    return false;
}

bool xl_loc_frame(const xl_module *m, xl_loc loc, uint32_t n, xl_str *function, xl_str *file, uint32_t *line,
                  uint32_t *col)
{
    for (int depth = 0; depth < 128; depth++) {
        xl_loc_info l = *xl_loc_get(m, loc);
        if (l.kind == XL_LOC_NAME && xl_loc_get(m, l.a)->kind != XL_LOC_FILE) {
            loc = l.a;                                     /* what the frontend calls the op */
            continue;
        }
        xl_loc_info f = l.kind == XL_LOC_CALL ? *xl_loc_get(m, l.a) : l;
        *function = f.kind == XL_LOC_NAME ? f.str : (xl_str){ "", 0 };
        if (f.kind == XL_LOC_NAME)
            f = *xl_loc_get(m, f.a);
        if (f.kind == XL_LOC_FILE && !in_library(f.str) && n-- == 0) {
            *file = f.str;
            *line = f.line;
            *col = f.col;
            return true;
        }
        if (l.kind != XL_LOC_CALL)
            return false;
        loc = l.b;
    }
    return false;
}

xl_str xl_loc_label(const xl_module *m, xl_loc loc)
{
    const xl_loc_info *l = xl_loc_get(m, loc);
    for (int depth = 0; depth < 64 && (l->kind == XL_LOC_CALL || l->kind == XL_LOC_FUSED); depth++)
        l = xl_loc_get(m, l->kind == XL_LOC_CALL ? l->a : l->n ? l->list[0] : (xl_loc){ 0 });
    return l->kind == XL_LOC_NAME ? l->str : (xl_str){ "", 0 };
}

static uint64_t hash_frames(const xl_module *m, xl_loc loc, uint64_t h, uint32_t *left)
{
    while (*left > 0) {
        --*left;
        const xl_loc_info *l = xl_loc_get(m, loc);
        switch (l->kind) {
        case XL_LOC_UNKNOWN: return h;
        case XL_LOC_FILE: return xl_hash64(l->str.p, l->str.n, h ^ ((uint64_t)l->line << 32 | l->col));
        case XL_LOC_NAME: loc = l->a; break;
        case XL_LOC_CALL: {
            xl_loc caller = l->b;                          /* decoding may move l */
            h = hash_frames(m, l->a, h, left);
            loc = caller;
            break;
        }
        case XL_LOC_FUSED: {
            xl_loc_info all = *l;
            for (uint32_t i = 0; i < all.n; i++)
                h = hash_frames(m, all.list[i], h, left);
            return h;
        }
        }
    }
    return h;
}

uint64_t xl_loc_stack(const xl_module *m, xl_loc loc)
{
    uint32_t left = 1000;
    return hash_frames(m, loc, 0, &left);
}
