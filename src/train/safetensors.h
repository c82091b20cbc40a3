/* src/train/safetensors.h
 * The safetensors format: eight bytes of length, a JSON header, then the tensors' bytes. The reader trusts nothing: a header that
 * is too long, not JSON, or whose tensors overlap, leave the file or have another size than their shape is an error that names
 * the tensor. */
#ifndef XL_TRAIN_SAFETENSORS_H
#define XL_TRAIN_SAFETENSORS_H

#include "ir/ir.h"

typedef struct {
    xl_str name;
    xl_dtype dtype;
    xl_dims dims;
    const void *data;                        /* writing */
    uint64_t offset, bytes;                  /* reading: from the start of the file */
} xl_saved;

typedef struct { xl_str key, value; } xl_meta;

/* Written beside, synced, renamed over. What is there stays when this fails. */
xl_error *xl_safetensors_write(const char *path, const xl_saved *t, size_t n, const xl_meta *meta, size_t nmeta) XL_MUST_USE;

typedef struct {
    xl_arena arena;
    const char *path;
    int fd;
    xl_saved *t;
    size_t n;
    xl_meta *meta;
    size_t nmeta;
} xl_safetensors;
xl_error *xl_safetensors_open(const char *path, xl_safetensors *out) XL_MUST_USE;
const xl_saved *xl_safetensors_find(const xl_safetensors *s, xl_str name);
xl_str xl_safetensors_meta(const xl_safetensors *s, const char *key);   /* empty: none */
xl_error *xl_safetensors_read(const xl_safetensors *s, const xl_saved *t, void *out) XL_MUST_USE; /* t->bytes of them */
void xl_safetensors_close(xl_safetensors *s);

#endif
