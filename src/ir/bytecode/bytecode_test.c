/* Bytecode made by hand: the smallest module, and what a hostile one might hold. Real programs are in
 * test/bytecode.py. */
#include "base/test.h"
#include "ir/read.h"

typedef struct {
    xl_buf strings, dialects, attrs, sizes, types, ir, props;
    uint32_t nstr, nattr, ntype;
    xl_buf strdata;
} file;

static void vint(xl_buf *b, uint64_t v)                    /* prefix varint */
{
    if (v < 128) {
        xl_buf_putc(b, (char)(v << 1 | 1));
    } else {
        xl_buf_putc(b, 0);
        for (int i = 0; i < 8; i++)
            xl_buf_putc(b, (char)(v >> (8 * i)));
    }
}

static void section(xl_buf *out, int id, const xl_buf *b)
{
    xl_buf_putc(out, (char)id);
    vint(out, b->n);
    xl_buf_str(out, xl_buf_view(b));
}

static uint32_t str(file *f, const char *s)
{
    xl_buf_add(&f->strdata, s, strlen(s) + 1);
    xl_buf size = { 0 };
    vint(&size, strlen(s) + 1);
    xl_buf all = { 0 };                                    /* sizes go last string first */
    xl_buf_str(&all, xl_buf_view(&size));
    xl_buf_str(&all, xl_buf_view(&f->strings));
    xl_buf_fini(&size);
    xl_buf_fini(&f->strings);
    f->strings = all;
    return f->nstr++;
}

enum { BUILTIN, VHLO };

/* Dialects builtin and vhlo; ops builtin.module, vhlo.func_v1, vhlo.return_v1, vhlo.constant_v1, vhlo.add_v9. */
static void begin(file *f)
{
    *f = (file){ 0 };
    const char *const names[] = { "builtin", "vhlo", "module", "func_v1", "return_v1", "constant_v1", "add_v9" };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        str(f, names[i]);
    vint(&f->dialects, 2);
    vint(&f->dialects, 0 << 1);
    vint(&f->dialects, 1 << 1);
    vint(&f->dialects, 5);
    vint(&f->dialects, BUILTIN);
    vint(&f->dialects, 1);
    vint(&f->dialects, 2 << 1 | 1);
    vint(&f->dialects, VHLO);
    vint(&f->dialects, 4);
    for (int i = 3; i < 7; i++)
        vint(&f->dialects, (uint64_t)i << 1 | 1);
}

static uint32_t entry(file *f, int dialect, const uint64_t *v, size_t n)
{
    size_t before = f->attrs.n;
    for (size_t i = 0; i < n; i++)
        vint(&f->attrs, v[i]);
    vint(&f->sizes, (uint64_t)dialect);
    vint(&f->sizes, 1);
    vint(&f->sizes, (f->attrs.n - before) << 1 | 1);
    return f->nattr++;
}
#define ENTRY(f, dialect, ...)                                                                                         \
    entry((f), (dialect), (const uint64_t[]){ __VA_ARGS__ },                                                           \
          sizeof((const uint64_t[]){ __VA_ARGS__ }) / sizeof(uint64_t))

/* One type of vhlo after the attributes: tensor_v1 needs its element, so f32 first. */
static xl_buf end(file *f)
{
    xl_buf out = { 0 }, b = { 0 };
    xl_buf_add(&out, "ML\xefR\x0dStableHLO_v1.18.0\0", 4 + 1 + 18);
    section(&out, 1, &f->dialects);
    vint(&b, f->nattr);
    vint(&b, f->ntype);
    xl_buf_str(&b, xl_buf_view(&f->sizes));
    section(&out, 3, &b);
    section(&out, 2, &f->attrs);
    section(&out, 4, &f->ir);
    b.n = 0;
    vint(&b, f->nstr);
    xl_buf_str(&b, xl_buf_view(&f->strings));
    xl_buf_str(&b, xl_buf_view(&f->strdata));
    section(&out, 0, &b);
    b.n = 0;
    vint(&b, 1);
    vint(&b, f->props.n);
    xl_buf_str(&b, xl_buf_view(&f->props));
    section(&out, 8, &b);
    xl_buf_fini(&b);
    return out;
}

static void drop(file *f, xl_buf *out)
{
    xl_buf *all[] = { &f->strings, &f->dialects, &f->attrs, &f->sizes, &f->types, &f->ir, &f->props, &f->strdata, out };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        xl_buf_fini(all[i]);
}

/* builtin.module {attributes: attribute `dict`, or none} with an empty block. */
static void module(file *f, int64_t dict)
{
    vint(&f->ir, 1 << 1);
    vint(&f->ir, 0);
    xl_buf_putc(&f->ir, (char)(0x10 | (dict >= 0)));
    vint(&f->ir, 0);                                       /* location */
    if (dict >= 0)
        vint(&f->ir, (uint64_t)dict);
    vint(&f->ir, 1 << 1);                                  /* one region, not isolated */
    vint(&f->ir, 1);
    vint(&f->ir, 0);
    vint(&f->ir, 0 << 1);
}

static xl_error *read_it(const xl_buf *b)
{
    xl_module *m;
    xl_error *err = xl_read(xl_buf_view(b), NULL, &m);
    xl_module_free(m);
    return err;
}

TEST(an_empty_module_with_attributes)
{
    file f;
    xl_module *m;
    begin(&f);
    ENTRY(&f, BUILTIN, 15);                                /* 0: unknown location */
    uint32_t key = ENTRY(&f, BUILTIN, 2, 2);               /* 1: "module" */
    uint32_t d = ENTRY(&f, BUILTIN, 1, 1, key, key);       /* 2: {module = "module"} */
    module(&f, d);
    xl_buf out = end(&f);
    CHECK_OK(xl_read(xl_buf_view(&out), NULL, &m));
    CHECK_INT(m->nfunc, 0);
    CHECK_INT(m->extra->n, 1);
    CHECK(xl_str_is(xl_dict_get(m->extra, XL_STR("module"))->str, "module"));
    xl_module_free(m);
    drop(&f, &out);
}

TEST(cut_short_anywhere)
{
    file f;
    begin(&f);
    ENTRY(&f, BUILTIN, 15);
    module(&f, -1);
    xl_buf out = end(&f);
    CHECK_OK(read_it(&out));
    size_t whole = out.n;
    for (size_t n = 4; n < whole; n++) {
        char *copy = malloc(n);                            /* so that a sanitizer sees a byte too far */
        memcpy(copy, out.p, n);
        xl_module *m;
        xl_error *err = xl_read_bytecode((xl_str){ copy, n }, NULL, &m);
        CHECK(err && strstr(xl_error_message(err), "byte "));
        xl_error_free(err);
        free(copy);
    }
    drop(&f, &out);
}

TEST(an_attribute_that_contains_itself)
{
    file f;
    begin(&f);
    ENTRY(&f, BUILTIN, 15);
    uint32_t key = ENTRY(&f, BUILTIN, 2, 2);
    uint32_t d = ENTRY(&f, BUILTIN, 1, 1, key, 3);
    ENTRY(&f, BUILTIN, 0, 2, 3, 3);                        /* 3: [3, 3] */
    module(&f, d);
    xl_buf out = end(&f);
    CHECK_ERR(read_it(&out), "contains itself");
    drop(&f, &out);
}

TEST(a_nest_and_a_bomb)
{
    for (int bomb = 0; bomb < 2; bomb++) {
        file f;
        begin(&f);
        ENTRY(&f, BUILTIN, 15);
        uint32_t key = ENTRY(&f, BUILTIN, 2, 2), n = bomb ? 60 : 5000;
        uint32_t d = ENTRY(&f, BUILTIN, 1, 1, key, 3);
        for (uint32_t i = 0; i < n; i++) {                 /* each holds the next, once or twice */
            if (bomb)
                ENTRY(&f, BUILTIN, 0, 2, 4 + i, 4 + i);
            else
                ENTRY(&f, BUILTIN, 0, 1, 4 + i);
        }
        ENTRY(&f, BUILTIN, 7);
        module(&f, d);
        xl_buf out = end(&f);
        CHECK_ERR(read_it(&out), bomb ? "unfolds to more than" : "nest deeper than");
        drop(&f, &out);
    }
}

TEST(counts_that_cannot_be)
{
    file f;
    begin(&f);
    ENTRY(&f, BUILTIN, 15);
    uint32_t d = ENTRY(&f, BUILTIN, 1, 1ull << 40);
    module(&f, d);
    xl_buf out = end(&f);
    CHECK_ERR(read_it(&out), "a count of 1099511627776");
    drop(&f, &out);

    begin(&f);
    ENTRY(&f, BUILTIN, 15);
    module(&f, 7);
    out = end(&f);
    CHECK_ERR(read_it(&out), "attribute 7 of 1");
    drop(&f, &out);
}

TEST(a_newer_op_is_named)
{
    file f;
    begin(&f);
    ENTRY(&f, BUILTIN, 15);
    vint(&f.ir, 1 << 1);
    vint(&f.ir, 4);                                        /* vhlo.add_v9 where the module should be */
    xl_buf_putc(&f.ir, 0);
    vint(&f.ir, 0);
    xl_buf out = end(&f);
    CHECK_ERR(read_it(&out), "vhlo.add_v9 is newer than this reader");
    CHECK_ERR(read_it(&out), "StableHLO_v1.18.0");
    drop(&f, &out);
}

TEST(sections_twice_and_versions_unknown)
{
    file f;
    begin(&f);
    ENTRY(&f, BUILTIN, 15);
    module(&f, -1);
    xl_buf out = end(&f);
    section(&out, 4, &f.ir);
    CHECK_ERR(read_it(&out), "section 4 is unknown or comes twice");
    out.p[4] = 15;
    CHECK_ERR(read_it(&out), "format version 7");
    CHECK_ERR(read_it(&(xl_buf){ .p = "ML\xefR", .n = 4 }), "byte 4");
    drop(&f, &out);
}

/* A location that calls itself says nothing, and does not hang whoever asks. */
TEST(a_location_that_contains_itself)
{
    file f;
    xl_module *m;
    xl_str file_name;
    uint32_t line, col;
    begin(&f);
    ENTRY(&f, BUILTIN, 10, 0, 0);
    module(&f, -1);
    xl_buf out = end(&f);
    CHECK_OK(xl_read(xl_buf_view(&out), NULL, &m));
    CHECK_INT(m->nloc, 2);
    CHECK(!xl_loc_line(m, (xl_loc){ 1 }, &file_name, &line, &col));
    xl_module_free(m);
    drop(&f, &out);
}
