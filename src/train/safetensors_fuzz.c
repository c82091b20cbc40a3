/* Any bytes as a safetensors file: refused, or every tensor lies in the file and can be read. */
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "train/safetensors.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char path[64];
    xl_safetensors s;
    int fd = memfd_create("fuzz", MFD_CLOEXEC);
    if (fd < 0 || write(fd, data, size) != (ssize_t)size)
        abort();
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    xl_error *err = xl_safetensors_open(path, &s);
    if (!err) {
        for (size_t i = 0; i < s.n; i++) {
            if (s.t[i].offset > size || s.t[i].bytes > size - s.t[i].offset)
                abort();
            void *out = malloc((size_t)s.t[i].bytes + 1);
            if (!out || xl_safetensors_read(&s, &s.t[i], out))
                abort();
            free(out);
            if (!xl_safetensors_find(&s, s.t[i].name))
                abort();
        }
        (void)xl_safetensors_meta(&s, "format");
        xl_safetensors_close(&s);
    }
    xl_error_free(err);
    close(fd);
    return 0;
}
