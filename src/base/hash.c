#include "base/hash.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sodium.h>
#include <sys/random.h>
#include <unistd.h>

_Static_assert(sizeof(crypto_generichash_state) <= sizeof(xl_hash), "xl_hash holds libsodium's state");
_Static_assert(_Alignof(crypto_generichash_state) <= 64, "and is aligned for it");

/* Hashing works without sodium_init; with it libsodium picks the vectorised code of this processor. */
static pthread_once_t once = PTHREAD_ONCE_INIT;
static void start(void) { (void)!sodium_init(); }

static crypto_generichash_state *state(xl_hash *h) { return (crypto_generichash_state *)(void *)h->state; }

void xl_hash_init(xl_hash *h)
{
    pthread_once(&once, start);
    crypto_generichash_init(state(h), NULL, 0, XL_DIGEST_SIZE);
}

void xl_hash_init_keyed(xl_hash *h, const xl_key *key)
{
    pthread_once(&once, start);
    crypto_generichash_init(state(h), key->b, sizeof key->b, XL_DIGEST_SIZE);
}

void xl_hash_add(xl_hash *h, const void *p, size_t n)
{
    if (n)
        crypto_generichash_update(state(h), p, n);
}

void xl_hash_u64(xl_hash *h, uint64_t v)
{
    uint8_t b[8];
    for (int i = 0; i < 8; i++)
        b[i] = (uint8_t)(v >> (8 * i));
    xl_hash_add(h, b, sizeof b);
}

void xl_hash_str(xl_hash *h, xl_str s)
{
    xl_hash_u64(h, s.n);
    xl_hash_add(h, s.p, s.n);
}

xl_digest xl_hash_final(xl_hash *h)
{
    xl_digest d;
    crypto_generichash_final(state(h), d.b, sizeof d.b);
    return d;
}

xl_digest xl_hash_of(xl_str bytes)
{
    xl_hash h;
    xl_hash_init(&h);
    xl_hash_add(&h, bytes.p, bytes.n);
    return xl_hash_final(&h);
}

xl_digest xl_mac_of(const xl_key *key, xl_str bytes)
{
    xl_hash h;
    xl_hash_init_keyed(&h, key);
    xl_hash_add(&h, bytes.p, bytes.n);
    return xl_hash_final(&h);
}

xl_error *xl_hash_file(const char *path, xl_digest *out)
{
    xl_error *err = NULL;
    char piece[1 << 16];
    xl_hash h;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        err = xl_error_new(errno == ENOENT ? XL_CODE_NOT_FOUND : XL_CODE_PERMISSION, "opening %s: %s", path,
                           strerror(errno));
        goto out;
    }
    xl_hash_init(&h);
    for (;;) {
        ssize_t n = read(fd, piece, sizeof piece);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0) {
            err = XL_ERR(DATA_LOSS, "reading %s: %s", path, strerror(errno));
            goto out;
        }
        if (n == 0)
            break;
        xl_hash_add(&h, piece, (size_t)n);
    }
    *out = xl_hash_final(&h);
out:
    if (fd >= 0)
        close(fd);
    return err;
}

bool xl_digest_eq(const xl_digest *a, const xl_digest *b) { return sodium_memcmp(a->b, b->b, sizeof a->b) == 0; }

const char *xl_digest_hex(const xl_digest *d, char out[XL_DIGEST_HEX])
{
    static const char hex[] = "0123456789abcdef";
    for (size_t i = 0; i < sizeof d->b; i++) {
        out[2 * i] = hex[d->b[i] >> 4];
        out[2 * i + 1] = hex[d->b[i] & 15];
    }
    out[2 * sizeof d->b] = 0;
    return out;
}

static int nibble(char c)
{
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                  : -1;
}

bool xl_digest_parse(xl_str hex, xl_digest *out)
{
    if (hex.n != 2 * sizeof out->b)
        return false;
    for (size_t i = 0; i < sizeof out->b; i++) {
        int hi = nibble(hex.p[2 * i]), lo = nibble(hex.p[2 * i + 1]);
        if (hi < 0 || lo < 0)
            return false;
        out->b[i] = (uint8_t)(hi << 4 | lo);
    }
    return true;
}

/* Multiply and fold: both halves of a 128-bit product, so that every input bit reaches every output bit. */
static uint64_t fold(uint64_t a, uint64_t b)
{
    uint64_t al = (uint32_t)a, ah = a >> 32, bl = (uint32_t)b, bh = b >> 32;
    uint64_t ll = al * bl, lh = al * bh, hl = ah * bl, hh = ah * bh;
    uint64_t mid = (ll >> 32) + (uint32_t)lh + (uint32_t)hl;
    return (mid << 32 | (uint32_t)ll) ^ (hh + (lh >> 32) + (hl >> 32) + (mid >> 32));
}

uint64_t xl_hash64(const void *p, size_t n, uint64_t seed)
{
    static const uint64_t odd1 = 0x9e3779b97f4a7c15u, odd2 = 0xd1b54a32d192ed03u;
    const unsigned char *c = p;
    uint64_t h = seed ^ fold(n ^ odd1, odd2), lane[4] = { h, h ^ odd1, h ^ odd2, h ^ odd1 ^ odd2 };
    bool wide = n >= 256;                                  /* four chains of multiplications side by side */
    for (; wide && n >= 32; n -= 32, c += 32)
        for (int k = 0; k < 4; k++) {
            uint64_t w;
            memcpy(&w, c + 8 * k, 8);
            lane[k] = fold(lane[k] ^ w, odd1) + w;
        }
    if (wide)
        h = fold(lane[0] ^ fold(lane[1] ^ odd2, odd1), odd2) ^ fold(lane[2] ^ fold(lane[3] ^ odd1, odd2), odd1);
    for (; n >= 8; n -= 8, c += 8) {
        uint64_t w;
        memcpy(&w, c, 8);
        h = fold(h ^ w, odd1) + w;
    }
    if (n) {
        uint64_t w = 0;
        memcpy(&w, c, n);
        h = fold(h ^ w, odd1) + w;
    }
    return fold(h ^ odd2, odd1);
}

xl_error *xl_random(void *p, size_t n)
{
    unsigned char *c = p;
    while (n) {
        ssize_t got = getrandom(c, n < 256 ? n : 256, 0);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return XL_ERR(UNAVAILABLE, "getrandom: %s", strerror(errno));
        c += got;
        n -= (size_t)got;
    }
    return NULL;
}
