#include "train/tb.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/journal.h"
#include "base/proto.h"
#include "base/time.h"

struct xl_tb { xl_journal file; xl_buf records; uint64_t n; }; /* records: n of them, for the next flush */

uint32_t xl_crc32c(const void *p, size_t n)
{
    const unsigned char *s = p;
    uint32_t c = ~0u;
    while (n--) {
        c ^= *s++;
        for (int k = 0; k < 8; k++)
            c = c >> 1 ^ (0x82f63b78u & (0u - (c & 1)));
    }
    return ~c;
}

static uint32_t masked(const void *p, size_t n)
{
    uint32_t c = xl_crc32c(p, n);
    return (c >> 15 | c << 17) + 0xa282ead8u;
}

/* a record: length, its checksum, the bytes, their checksum */
static void record(xl_tb *t, xl_str s)
{
    uint64_t n = s.n;
    uint32_t a = masked(&n, 8), b = masked(s.p, s.n);
    xl_buf_add(&t->records, &n, 8);
    xl_buf_add(&t->records, &a, 4);
    xl_buf_str(&t->records, s);
    xl_buf_add(&t->records, &b, 4);
    t->n++;
}

static uint64_t bits64(double v)
{
    uint64_t u;
    memcpy(&u, &v, 8);
    return u;
}

xl_error *xl_tb_open(const char *dir, xl_tb **out)
{
    char path[4096];
    char host[64] = "host";
    gethostname(host, sizeof host - 1);
    snprintf(path, sizeof path, "%s/events.out.tfevents.%lld.%s.%d", dir, (long long)xl_now_wall(), host,
             (int)getpid());
    xl_tb *t = calloc(1, sizeof *t);
    xl_error *err = t ? xl_journal_open(&t->file, path, (xl_str){ 0 }, false) : XL_ERR(EXHAUSTED, "out of memory");
    if (err) {
        free(t);
        return err;
    }
    xl_buf b = { 0 };
    xl_proto_put_bits(&b, 1, XL_WIRE_I64, bits64(xl_now_wall()));
    xl_proto_put_bytes(&b, 3, XL_STR("brain.Event:2"));
    record(t, xl_buf_view(&b));
    xl_buf_fini(&b);
    *out = t;
    return NULL;
}

void xl_tb_scalar(xl_tb *t, const char *tag, int64_t step, double value)
{
    if (!t)
        return;
    float v = (float)value;
    uint32_t u;
    memcpy(&u, &v, 4);
    xl_buf val = { 0 }, sum = { 0 }, ev = { 0 };
    xl_proto_put_bytes(&val, 1, xl_str_of(tag));
    xl_proto_put_bits(&val, 2, XL_WIRE_I32, u);
    xl_proto_put_bytes(&sum, 1, xl_buf_view(&val));
    xl_proto_put_bits(&ev, 1, XL_WIRE_I64, bits64(xl_now_wall()));
    xl_proto_put_int(&ev, 2, step);
    xl_proto_put_bytes(&ev, 5, xl_buf_view(&sum));
    record(t, xl_buf_view(&ev));
    xl_buf_fini(&val);
    xl_buf_fini(&sum);
    xl_buf_fini(&ev);
}

void xl_tb_flush(xl_tb *t)
{
    if (!t)
        return;
    if (!t->n) {
        (void)xl_journal_flush(&t->file);
        return;
    }
    if (t->records.failed)
        t->file.lost += t->n;
    else
        xl_journal_add(&t->file, xl_buf_view(&t->records), t->n);
    t->records.n = t->n = 0;
    t->records.failed = false;
}

uint64_t xl_tb_missing(xl_tb *t) { return t ? xl_journal_missing(&t->file) : 0; }

void xl_tb_close(xl_tb *t)
{
    if (!t)
        return;
    xl_tb_flush(t);
    xl_journal_close(&t->file);
    xl_buf_fini(&t->records);
    free(t);
}
