/* Arbitrary bytes as a cache entry. The pack around it gets a valid checksum, so the code behind the checksum is
 * reached: an import accepts the entry or refuses it, and what it accepted can be listed. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/file.h"
#include "base/hash.h"
#include "lane/cache.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static char folder[64], pack[96];

static void tidy(xl_arena *a)
{
    size_t removed;
    uint64_t freed;
    xl_error_free(xl_cache_prune(a, folder, 1, &removed, &freed));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    xl_arena a = { 0 };
    xl_buf b = { 0 };
    size_t n;
    xl_cache_entry *e;
    if (!*folder) {
        snprintf(folder, sizeof folder, "/dev/shm/xlane-fuzz-cache-%d", (int)getpid());
        snprintf(pack, sizeof pack, "%s.pack", folder);
        setenv("XLANE_STATE", folder, 1);
        if (xl_dir_make_private(folder))
            abort();
    }
    uint64_t length = size;
    xl_digest d = xl_hash_of((xl_str){ (const char *)data, size });
    xl_buf_add(&b, "XLANEPK1", 8);
    xl_buf_add(&b, &length, sizeof length);
    xl_buf_add(&b, data, size);
    xl_buf_add(&b, d.b, sizeof d.b);
    xl_error *err = xl_file_write_mode(pack, xl_buf_view(&b), 0600);
    if (err)
        abort();
    err = xl_cache_import(&a, folder, pack, &n);
    if (!err) {
        if (n != 1)
            abort();
        err = xl_cache_list(&a, folder, &e, &n);
        if (err || n != 1)
            abort();
        tidy(&a);
    }
    xl_error_free(err);
    xl_buf_fini(&b);
    xl_arena_fini(&a);
    return 0;
}
