/* src/base/hash.h
 * BLAKE2b-256 for names and proofs (libsodium), a keyed form of it for authentication, a quick 64-bit hash for tables,
 * and random bytes. Any thread; one xl_hash belongs to one thread at a time. Nothing here allocates. */
#ifndef XL_BASE_HASH_H
#define XL_BASE_HASH_H

#include "base/str.h"

enum { XL_DIGEST_SIZE = 32, XL_DIGEST_HEX = 65, XL_KEY_SIZE = 32 };

typedef struct { uint8_t b[XL_DIGEST_SIZE]; } xl_digest;
typedef struct { uint8_t b[XL_KEY_SIZE]; } xl_key;
typedef struct { _Alignas(64) unsigned char state[384]; } xl_hash;

void xl_hash_init(xl_hash *h);
void xl_hash_init_keyed(xl_hash *h, const xl_key *key);    /* the result is a MAC */
void xl_hash_add(xl_hash *h, const void *p, size_t n);
void xl_hash_u64(xl_hash *h, uint64_t v);                  /* eight bytes, little-endian everywhere */
void xl_hash_str(xl_hash *h, xl_str s);                    /* length first: ("ab","c") and ("a","bc") differ */
xl_digest xl_hash_final(xl_hash *h);

xl_digest xl_hash_of(xl_str bytes);
xl_digest xl_mac_of(const xl_key *key, xl_str bytes);
/* The whole file, read in pieces; memory use does not depend on its size. */
xl_error *xl_hash_file(const char *path, xl_digest *out) XL_MUST_USE;

bool xl_digest_eq(const xl_digest *a, const xl_digest *b); /* in constant time */
const char *xl_digest_hex(const xl_digest *d, char out[XL_DIGEST_HEX]);
bool xl_digest_parse(xl_str hex, xl_digest *out);

uint64_t xl_hash64(const void *p, size_t n, uint64_t seed); /* for tables in memory: never in a file */
xl_error *xl_random(void *p, size_t n) XL_MUST_USE;         /* fit for keys */

#endif
