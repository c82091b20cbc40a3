/* src/train/safetensors.h
 * The safetensors format: eight bytes of length, a JSON header, then the tensors' bytes. The reader trusts nothing: a
 * header that is too long or not JSON is an error, and so are tensors that overlap, exceed the file or do not have the
 * size of their shape; the error names the tensor. Files that we write have a BLAKE2b digest of each tensor and of the
 * header in __metadata__, which other readers ignore; reading a tensor of such a file checks its digest. */
#ifndef XL_TRAIN_SAFETENSORS_H
#define XL_TRAIN_SAFETENSORS_H

#include "base/hash.h"
#include "ir/ir.h"

typedef struct {
    xl_str name;
    xl_dtype dtype;
    xl_dims dims;
    const void *data;                        /* writing */
    uint64_t offset, bytes;                  /* reading: from the start of the file */
} xl_saved;

typedef struct { xl_str key, value; } xl_meta;

/* An atomic write with mode 0600: on failure the old file stays. */
xl_error *xl_safetensors_write(const char *path, const xl_saved *t, size_t n, const xl_meta *meta,
                               size_t nmeta) XL_MUST_USE;

typedef struct {
    xl_arena arena;
    const char *path;
    int fd;
    xl_saved *t;
    size_t n;
    xl_meta *meta;
    size_t nmeta;
    uint64_t bytes;                          /* of the file */
    bool digests;                            /* it has digests; false: written by other software, cannot be checked */
    xl_digest header;                        /* as it was read, where there are digests */
} xl_safetensors;
xl_error *xl_safetensors_open(const char *path, xl_safetensors *out) XL_MUST_USE;
const xl_saved *xl_safetensors_find(const xl_safetensors *s, xl_str name);
xl_str xl_safetensors_meta(const xl_safetensors *s, const char *key);   /* empty: none */
xl_error *xl_safetensors_read(const xl_safetensors *s, const xl_saved *t,
                              void *out) XL_MUST_USE; /* t->bytes of them, checked */
/* Reads all tensors against their digests, a piece at a time; DATA_LOSS names the first that differs, or says that
 * there are none. */
xl_error *xl_safetensors_verify(const xl_safetensors *s) XL_MUST_USE;
void xl_safetensors_close(xl_safetensors *s);

#endif
