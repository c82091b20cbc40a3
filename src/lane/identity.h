/* src/lane/identity.h
 * What an executable depends on besides its program and options: the plugin's file and the runtime's variables. The
 * guard and our own lane share this code, so their cache keys have the same parts. Nothing here allocates from an arena
 * or aborts. */
#ifndef XL_LANE_IDENTITY_H
#define XL_LANE_IDENTITY_H

#include <stddef.h>

/* The digest of the plugin's file; of one too large to read at every start its build id and size instead. */
void xl_identity_file(const char *path, char *out, size_t n);
/* XLA_FLAGS, LIBTPU_INIT_ARGS, PJRT_* and TPU_* as words: "--xla_a=1 PJRT_DEVICE=TPU", sorted; flags that only dump are
 * left out. */
void xl_identity_flags(char *out, size_t n);
void xl_identity_all_flags(char *out, size_t n);           /* with those that only dump */

#endif
