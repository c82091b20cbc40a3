/* The readers, for tests in Python: reads commands from standard input, one a line, and answers each.
 *   hash FILE     ok HEX                        verify FILE   ok
 *   print FILE    ok N, then N bytes of text    line FILE N   ok FILE:LINE of the N-th op of main
 *   time FILE N   ok SECONDS, the shortest of N readings
 * What fails is answered by "error MESSAGE". FILE is in any of the formats. */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "base/file.h"
#include "ir/compare/hash.h"
#include "ir/text/print.h"
#include "ir/read.h"
#include "ir/verify.h"

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static xl_error *answer(const char *verb, const char *path, long n)
{
    xl_error *err = NULL;
    xl_arena tmp = { 0 };
    xl_module *m = NULL;
    xl_buf text = { 0 };
    xl_str bytes;
    XL_DO(xl_file_read(&tmp, path, &bytes));
    XL_DO(xl_read(bytes, NULL, &m));
    if (!strcmp(verb, "hash")) {
        char hex[XL_DIGEST_HEX];
        xl_digest d = xl_module_hash(m);
        printf("ok %s\n", xl_digest_hex(&d, hex));
    } else if (!strcmp(verb, "print")) {
        xl_print_module(m, NULL, &text);
        printf("ok %zu\n", text.n);
        fwrite(text.p, 1, text.n, stdout);
    } else if (!strcmp(verb, "verify")) {
        XL_DO(xl_verify(m));
        printf("ok\n");
    } else if (!strcmp(verb, "time")) {
        double best = 1e9;
        while (n-- > 0) {
            xl_module *again = NULL;
            double t0 = now();
            XL_DO(xl_read(bytes, NULL, &again));
            double t = now() - t0;
            best = t < best ? t : best;
            xl_module_free(again);
        }
        printf("ok %.9f\n", best);
    } else {
        xl_func *f = xl_module_entry(m);
        xl_str file = { 0 };
        uint32_t line = 0, col = 0;
        if (f && f->body && n < (long)f->body->nop)
            xl_loc_line(m, f->body->op[n]->loc, &file, &line, &col);
        printf("ok %.*s:%u\n", XL_FMT(file), line);
    }
out:
    xl_buf_fini(&text);
    xl_module_free(m);
    xl_arena_fini(&tmp);
    return err;
}

int main(void)
{
    char line[4096], verb[16], path[4000];
    while (fgets(line, sizeof line, stdin)) {
        long n = 0;
        if (sscanf(line, "%15s %3999s %ld", verb, path, &n) < 2)
            return 2;
        xl_error *err = answer(verb, path, n);
        if (err)
            printf("error %s\n", xl_error_message(err));
        xl_error_free(err);
        fflush(stdout);
    }
    return 0;
}
