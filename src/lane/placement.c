#include "lane/placement.h"

#include <stdio.h>

#include "base/file.h"
#include "pass/pass.h"

/* ---- from a program ---- */
static int64_t parts(const xl_shard_info *s, const xl_axes *a)
{
    int64_t n = 1;
    for (uint32_t i = 0; i < a->n; i++)
        n *= s->size[a->atom[i]];
    return n;
}

static int64_t place(const xl_shard_info *s, const xl_axes *a, int64_t device)
{
    int64_t at = 0;
    for (uint32_t i = 0; i < a->n; i++)
        at = at * s->size[a->atom[i]] + device / s->stride[a->atom[i]] % s->size[a->atom[i]];
    return at;
}

/* The axes of the mesh that are these digits; what is no whole axis shows as its size. */
static void names(const xl_mesh *mesh, const xl_shard_info *s, const xl_axes *a, xl_buf *b)
{
    if (!a->n)
        xl_buf_puts(b, "whole");
    for (uint32_t i = 0; i < a->n; ) {
        uint32_t took = 0;
        int64_t stride = s->npartition;
        for (uint32_t k = 0; mesh && k < mesh->naxis && !took; k++) {
            stride /= mesh->axis[k].size;
            int64_t n = 1;
            uint32_t j = i;
            while (j < a->n && n < mesh->axis[k].size)
                n *= s->size[a->atom[j++]];
            if (j > i && n == mesh->axis[k].size && s->stride[a->atom[j - 1]] == stride && n > 1) {
                xl_buf_printf(b, "%s%.*s", i ? "+" : "", XL_FMT(mesh->axis[k].name));
                took = j - i;
            }
        }
        if (!took) {
            xl_buf_printf(b, "%s/%lld", i ? "+" : "", (long long)s->size[a->atom[i]]);
            took = 1;
        }
        i += took;
    }
}

void xl_placement_add(xl_arena *a, xl_placements *l, xl_str name, const xl_type *global, const xl_shard_info *s,
                 const xl_axes *spec, const xl_mesh *mesh)
{
    xl_placement t = { .name = xl_str_dup(a, name), .rank = xl_shard_rank(global), .npart = (uint32_t)s->npartition };
    xl_buf b = { 0 };
    if (global->kind != XL_TY_TENSOR || !xl_type_bytes(global, &t.bytes) || t.rank > XL_PLACEMENT_RANK_MAX)
        return;
    t.dtype = xl_str_of(xl_dtypes[global->dtype].text);
    t.part = xl_new(a, xl_placement_part, t.npart);
    for (uint32_t d = 0; d < t.rank; d++) {
        t.dims[d] = global->dims[d];
        xl_buf_puts(&b, d ? ", " : "");
        names(mesh, s, &spec[d], &b);
    }
    t.split = xl_str_dup(a, xl_buf_view(&b));
    xl_buf_fini(&b);
    for (uint32_t p = 0; p < t.npart; p++) {
        double share = 1;
        t.part[p].device = (int)p;
        for (uint32_t d = 0; d < t.rank; d++) {
            int64_t n = parts(s, &spec[d]), len = (global->dims[d] + n - 1) / n, at = place(s, &spec[d], p);
            int64_t lo = at * len, hi = lo + len;
            t.part[p].lo[d] = lo < global->dims[d] ? lo : global->dims[d];
            t.part[p].hi[d] = hi < global->dims[d] ? hi : global->dims[d];
            share *= global->dims[d] ? (double)len / (double)global->dims[d]
                                     : 1; /* a part that is not full is padded: it takes as much */
        }
        t.part[p].bytes = (int64_t)((double)t.bytes * share + 0.5);
    }
    l->ndevice = t.npart > l->ndevice ? t.npart : l->ndevice;
    XL_PUSH(a, l->t, l->n, l->cap, t);
}

typedef struct { xl_arena *a; const xl_func *f; int64_t ndevice; const xl_mesh *mesh; xl_crossings *out; } walk;

/* ---- what crosses ---- */
static const xl_attr *groups_of(const xl_op *op)
{
    int slot = xl_slot_find((xl_opcode)op->code, XL_STR("replica_groups"));
    if (slot < 0)
        slot = xl_slot_find((xl_opcode)op->code, XL_STR("source_target_pairs"));
    return slot < 0 ? NULL : op->attr[slot];
}

void xl_group_axes(const xl_mesh *mesh, const int64_t *id, int64_t rows, int64_t size, bool pairs, int64_t ndevice,
                   char *out, size_t room)
{
    uint32_t differ =
        mesh && !size && mesh->naxis < 32 ? (1u << mesh->naxis) - 1 : 0; /* no groups: all devices together */
    int64_t full = 1;
    size_t n = 0;
    for (int64_t r = 0; mesh && r < (pairs ? rows : rows ? 1 : 0); r++)
        for (int64_t i = 1; i < size; i++) {
            int64_t a = id[r * size], b = id[r * size + i];
            for (uint32_t k = mesh->naxis; k-- > 0; a /= mesh->axis[k].size, b /= mesh->axis[k].size)
                differ |= a >= 0 && b >= 0 && a % mesh->axis[k].size != b % mesh->axis[k].size ? 1u << k : 0;
        }
    for (uint32_t k = 0; mesh && k < mesh->naxis; k++)
        full *= differ >> k & 1 ? mesh->axis[k].size : 1;
    if (!mesh || !differ || (!pairs && size && full != size)) {
        if (pairs)
            snprintf(out, room, "%lld pairs", (long long)rows);
        else
            snprintf(out, room, "groups of %lld", (long long)(size ? size : ndevice));
        return;
    }
    for (uint32_t k = 0; k < mesh->naxis && n < room; k++)
        if (differ >> k & 1)
            n += (size_t)snprintf(out + n, room - n, "%s%.*s", n ? ", " : "", XL_FMT(mesh->axis[k].name));
}

static void axes_of(const walk *w, const xl_op *op, char *out, size_t room)
{
    const xl_attr *g = groups_of(op);
    bool pairs = op->code == XL_OP_COLLECTIVE_PERMUTE;
    int64_t size = g && g->kind == XL_AT_DENSE && g->type->rank == 2 ? g->type->dims[1] : 0,
            rows = size ? pairs ? g->type->dims[0] : 1 : 0;
    int64_t *id = xl_new(w->a, int64_t, rows * size);
    for (int64_t i = 0; i < rows * size; i++)
        id[i] = xl_dense_int(g, i);
    xl_group_axes(w->mesh, id, rows, size, pairs, w->ndevice, out, room);
}

static void operand(const walk *w, xl_crossing *c, const xl_type *t, int64_t times)
{
    char text[256];
    size_t n = 0;
    uint32_t k = 0;
    for (uint32_t d = 0; d < t->rank && n < sizeof text - 32; d++)
        n += (size_t)snprintf(text + n, sizeof text - n, "%lldx", (long long)t->dims[d]);
    snprintf(text + n, sizeof text - n, "%s", t->kind == XL_TY_TENSOR ? xl_dtypes[t->dtype].text : "token");
    while (k < c->nin && !xl_str_eq(c->in[k].type, xl_str_of(text)))
        k++;
    if (k == c->nin)
        XL_PUSH(w->a, c->in, c->nin, c->capin, ((xl_crossing_in){ xl_str_dup(w->a, xl_str_of(text)), 0 }));
    c->in[k].count += times;
}

static void cross(const walk *w, const xl_region *r, int64_t times, bool loops)
{
    for (uint32_t i = 0; i < r->nop; i++) {
        const xl_op *op = r->op[i];
        int64_t turns = 1;
        bool known = op->code != XL_OP_WHILE || xl_while_turns(w->f, op, &turns);
        for (uint32_t k = 0; k < op->nregion; k++)
            cross(w, op->region[k], known && op->code == XL_OP_WHILE && k == 1 ? times * turns : times,
                  loops || !known);
        if (!(xl_ops[op->code].flags & XL_OP_COLLECTIVE))
            continue;
        xl_crossing c = { .op = (xl_opcode)op->code }, *at = NULL;
        axes_of(w, op, c.axes, sizeof c.axes);
        for (uint32_t k = 0; k < w->out->n && !at; k++)
            if (w->out->c[k].op == c.op && !strcmp(w->out->c[k].axes, c.axes))
                at = &w->out->c[k];
        if (!at) {
            XL_PUSH(w->a, w->out->c, w->out->n, w->out->cap, c);
            at = &w->out->c[w->out->n - 1];
        }
        at->count += times;
        at->loops |= loops;
        xl_traffic t = xl_shard_traffic(w->f, op, w->ndevice);
        at->bytes += t.operands * (double)times;
        at->ring += t.ring * (double)times;
        for (uint32_t k = 0; k < op->nin; k++)
            operand(w, at, xl_in_type(w->f, op, k), times);
    }
}

void xl_crossings_of(xl_arena *a, const xl_func *f, int64_t ndevice, const xl_mesh *mesh, xl_crossings *out)
{
    walk w = { a, f, ndevice, mesh, out };
    cross(&w, f->body, 1, false);
}

void xl_crossings_text(const xl_crossings *c, xl_buf *b)
{
    double total = 0, ring = 0;
    bool loops = false;
    if (c->n)
        xl_buf_printf(b, "%-30s %-16s %6s %14s %14s   per device and step\n", "collectives", "over", "times",
                      "operand bytes", "ring bytes");
    for (uint32_t i = 0; i < c->n; i++) {
        xl_buf_printf(b, "%-30s %-16s %6lld %14.0f %14.0f%s\n", xl_ops[c->c[i].op].text, c->c[i].axes,
                      (long long)c->c[i].count, c->c[i].bytes, c->c[i].ring, c->c[i].loops ? " *" : "");
        total += c->c[i].bytes;
        ring += c->c[i].ring;
        loops |= c->c[i].loops;
    }
    if (c->n)
        xl_buf_printf(b, "%-30s %-16s %6s %14.0f %14.0f\n", "collectives together", "", "", total, ring);
    if (loops)
        xl_buf_puts(b, "* in a loop whose number of turns the program does not say: one turn counted\n");
}

void xl_crossings_json(const xl_crossings *c, xl_json *j)
{
    xl_json_list(j);
    for (uint32_t i = 0; i < c->n; i++) {
        xl_json_map(j);
        xl_json_put_text(j, "op", xl_ops[c->c[i].op].text);
        xl_json_put_text(j, "over", c->c[i].axes);
        xl_json_put_int(j, "count", c->c[i].count);
        xl_json_put_num(j, "bytes", c->c[i].bytes);
        xl_json_put_num(j, "ring_bytes", c->c[i].ring);
        xl_json_put_bool(j, "loops_counted_once", c->c[i].loops);
        xl_json_key(j, "operands");
        xl_json_list(j);
        for (uint32_t k = 0; k < c->c[i].nin; k++) {
            xl_json_map(j);
            xl_json_put_str(j, "type", c->c[i].in[k].type);
            xl_json_put_int(j, "count", c->c[i].in[k].count);
            xl_json_end(j);
        }
        xl_json_end(j);
        xl_json_end(j);
    }
    xl_json_end(j);
}

/* ---- what is gathered ---- */
void xl_gathered_text(xl_str lines, xl_buf *b)
{
    if (lines.n)
        xl_buf_puts(b, "gathered and computed by every device, since no rule splits the op along what its operands are "
                       "split along (or the size does not divide):\n");
    while (lines.n) {
        xl_str line = xl_str_cut(&lines, '\n'), op = xl_str_cut(&line, '\t'), where = xl_str_cut(&line, '\t'),
               times = xl_str_cut(&line, '\t');
        if (op.n)
            xl_buf_printf(b, "  %-28.*s %6.*s %14.*s bytes per device  %.*s\n", XL_FMT(op), XL_FMT(times), XL_FMT(line),
                          XL_FMT(where));
    }
}

void xl_gathered_json(xl_str lines, xl_json *j)
{
    xl_json_list(j);
    while (lines.n) {
        xl_str line = xl_str_cut(&lines, '\n'), op = xl_str_cut(&line, '\t'), where = xl_str_cut(&line, '\t'),
               times = xl_str_cut(&line, '\t');
        int64_t n = 0, bytes = 0;
        if (!op.n || !xl_str_i64(times, &n) || !xl_str_i64(line, &bytes))
            continue;
        xl_json_map(j);
        xl_json_put_str(j, "op", op);
        if (!xl_str_starts(where, XL_STR(":")))
            xl_json_put_str(j, "where", where);
        xl_json_put_int(j, "count", n);
        xl_json_put_int(j, "bytes", bytes);
        xl_json_end(j);
    }
    xl_json_end(j);
}

/* ---- sums and drawings ---- */
static bool same_slice(const xl_placement *t, const xl_placement_part *a, const xl_placement_part *b)
{
    return !memcmp(a->lo, b->lo, t->rank * sizeof *a->lo) && !memcmp(a->hi, b->hi, t->rank * sizeof *a->hi);
}

static int64_t copies_of(const xl_placement *t, const xl_placement_part *p)
{
    int64_t n = 0;
    for (uint32_t i = 0; i < t->npart; i++)
        n += same_slice(t, p, &t->part[i]);
    return n;
}

int64_t xl_placement_copies(const xl_placement *t) { return t->npart ? copies_of(t, &t->part[0]) : 0; }

int64_t xl_placement_on(const xl_placements *l, int device)
{
    int64_t n = 0;
    for (uint32_t i = 0; i < l->n; i++)
        for (uint32_t k = 0; k < l->t[i].npart; k++)
            n += l->t[i].part[k].device == device ? l->t[i].part[k].bytes : 0;
    return n;
}

int64_t xl_placement_waste(const xl_placements *l, int device)
{
    int64_t n = 0;
    for (uint32_t i = 0; i < l->n; i++)
        for (uint32_t k = 0; k < l->t[i].npart; k++)
            if (l->t[i].part[k].device == device) {
                int64_t c = copies_of(&l->t[i], &l->t[i].part[k]);
                n += l->t[i].part[k].bytes / c * (c - 1);
            }
    return n;
}

void xl_placement_draw(const xl_placement *t, uint32_t most, xl_buf *b)   /* most 0: only its line */
{
    int64_t copies = xl_placement_copies(t);
    xl_buf_printf(b, "%.*s: ", XL_FMT(t->name));
    for (uint32_t d = 0; d < t->rank; d++)
        xl_buf_printf(b, "%lldx", (long long)t->dims[d]);
    xl_buf_printf(b, "%.*s [%.*s], %lld bytes on each device, %lld cop%s of each part\n", XL_FMT(t->dtype),
                  XL_FMT(t->split), (long long)(t->npart ? t->part[0].bytes : 0), (long long)copies,
                  copies == 1 ? "y" : "ies");
    for (uint32_t p = 0; copies < t->npart && p < t->npart && p < most; p++) {
        xl_buf_printf(b, "  device %-3d ", t->part[p].device);
        for (uint32_t d = 0; d < t->rank; d++) {
            int64_t lo = t->part[p].lo[d], hi = t->part[p].hi[d], len = t->part[0].hi[d] - t->part[0].lo[d],
                    n = len > 0 ? (t->dims[d] + len - 1) / len : 1;
            if (n > 1 && n <= 16) {
                xl_buf_puts(b, " ");
                for (int64_t k = 0; k < n; k++)
                    xl_buf_puts(b, k == lo / len ? "#" : ".");
            }
            xl_buf_printf(b, " %lld:%lld", (long long)lo, (long long)hi);
        }
        xl_buf_puts(b, "\n");
    }
    if (most && copies < t->npart && t->npart > most)
        xl_buf_printf(b, "  ... and %u more devices (`xlane sharding --json` lists all)\n", t->npart - most);
}

static void ints(xl_json *j, const char *key, const int64_t *v, uint32_t n)
{
    xl_json_key(j, key);
    xl_json_list(j);
    for (uint32_t i = 0; i < n; i++)
        xl_json_int(j, v[i]);
    xl_json_end(j);
}

void xl_placement_json(const xl_placements *l, xl_json *j)
{
    xl_json_map(j);
    if (l->program.n)
        xl_json_put_str(j, "program", l->program);
    if (l->mesh.n)
        xl_json_put_str(j, "mesh", l->mesh);
    xl_json_put_int(j, "devices", l->ndevice);
    xl_json_key(j, "tensors");
    xl_json_list(j);
    for (uint32_t i = 0; i < l->n; i++) {
        const xl_placement *t = &l->t[i];
        xl_json_map(j);
        xl_json_put_str(j, "name", t->name);
        xl_json_put_str(j, "dtype", t->dtype);
        ints(j, "shape", t->dims, t->rank);
        xl_json_put_str(j, "split", t->split);
        xl_json_put_int(j, "bytes", t->bytes);
        xl_json_put_int(j, "copies", xl_placement_copies(t));
        xl_json_key(j, "parts");
        xl_json_list(j);
        for (uint32_t k = 0; k < t->npart; k++) {
            xl_json_map(j);
            xl_json_put_int(j, "device", t->part[k].device);
            ints(j, "lo", t->part[k].lo, t->rank);
            ints(j, "hi", t->part[k].hi, t->rank);
            xl_json_put_int(j, "bytes", t->part[k].bytes);
            xl_json_end(j);
        }
        xl_json_end(j);
        xl_json_end(j);
    }
    xl_json_end(j);
    xl_json_end(j);
}

static bool read_ints(const xl_node *n, int64_t *out, uint32_t *count)
{
    if (!n || n->kind != XL_NODE_LIST || n->n > XL_PLACEMENT_RANK_MAX)
        return false;
    for (size_t i = 0; i < n->n; i++)
        out[i] = n->kid[i]->i;
    *count = (uint32_t)n->n;
    return true;
}

xl_error *xl_placement_read(xl_arena *a, const char *path, xl_placements *out)
{
    xl_error *err = NULL;
    xl_str text;
    xl_node *root;
    *out = (xl_placements){ 0 };
    XL_DO(xl_file_read_max(a, path, 256 << 20, &text));
    XL_DO(xl_json_read(a, path, text, &root));
    const xl_node *list = xl_node_get(root, "tensors"), *mesh = xl_node_get(root, "mesh"),
                  *n = xl_node_get(root, "devices"), *program = xl_node_get(root, "program");
    out->program = program ? program->s : (xl_str){ 0 };
    out->mesh = mesh ? mesh->s : (xl_str){ 0 };
    out->ndevice = n ? (uint32_t)n->i : 0;
    for (size_t i = 0; list && i < list->n; i++) {
        const xl_node *e = list->kid[i], *name = xl_node_get(e, "name"), *dtype = xl_node_get(e, "dtype"),
                      *split = xl_node_get(e, "split"), *bytes = xl_node_get(e, "bytes"),
                      *part = xl_node_get(e, "parts");
        xl_placement t = { 0 };
        uint32_t rank;
        if (!name || !dtype || !split || !bytes || !part || !read_ints(xl_node_get(e, "shape"), t.dims, &t.rank)) {
            err = xl_node_err(e, "a tensor lacks its name, type, shape or parts");
            goto out;
        }
        t.name = name->s;
        t.dtype = dtype->s;
        t.split = split->s;
        t.bytes = bytes->i;
        t.npart = (uint32_t)part->n;
        t.part = xl_new(a, xl_placement_part, t.npart);
        for (uint32_t k = 0; k < t.npart; k++) {
            const xl_node *p = part->kid[k], *device = xl_node_get(p, "device"), *held = xl_node_get(p, "bytes");
            if (!device || !held || !read_ints(xl_node_get(p, "lo"), t.part[k].lo, &rank) || rank != t.rank ||
                !read_ints(xl_node_get(p, "hi"), t.part[k].hi, &rank) || rank != t.rank) {
                err = xl_node_err(p, "a part lacks its device or its slice");
                goto out;
            }
            t.part[k].device = (int)device->i;
            t.part[k].bytes = held->i;
        }
        XL_PUSH(a, out->t, out->n, out->cap, t);
    }
out:
    return err;
}
