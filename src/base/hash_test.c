#include "base/hash.h"
#include "base/test.h"

#include <unistd.h>

TEST(hash_is_blake2b_256)
{
    /* python3 -c 'import hashlib; print(hashlib.blake2b(b"abc", digest_size=32).hexdigest())' */
    char hex[XL_DIGEST_HEX];
    xl_digest d = xl_hash_of(XL_STR("abc"));
    CHECK_STR(xl_digest_hex(&d, hex), "bddd813c634239723171ef3fee98579b94964e3bb1cb3e427262c8c068d52319");
    d = xl_hash_of(XL_STR(""));
    CHECK_STR(xl_digest_hex(&d, hex), "0e5751c026e543b2e8ab2eb06099daa1d1e5df47778f7787faab45cdf12fe3a8");
    xl_hash h;
    xl_hash_init(&h);
    xl_hash_add(&h, "a", 1);
    xl_hash_add(&h, NULL, 0);
    xl_hash_add(&h, "bc", 2);
    d = xl_hash_final(&h);
    xl_digest whole = xl_hash_of(XL_STR("abc")), back;
    CHECK(xl_digest_eq(&d, &whole));
    CHECK(xl_digest_parse(xl_str_of(xl_digest_hex(&d, hex)), &back) && xl_digest_eq(&d, &back));
    hex[5] = 'g';
    CHECK(!xl_digest_parse(xl_str_of(hex), &back) && !xl_digest_parse(XL_STR("ab"), &back));
}

TEST(mac_depends_on_the_key)
{
    xl_key a = { { 1 } }, b = { { 2 } };
    xl_digest x = xl_mac_of(&a, XL_STR("m")), y = xl_mac_of(&b, XL_STR("m")), z = xl_mac_of(&a, XL_STR("m"));
    CHECK(!xl_digest_eq(&x, &y) && xl_digest_eq(&x, &z));
}

static xl_digest pair(const char *a, const char *b)
{
    xl_hash h;
    xl_hash_init(&h);
    xl_hash_str(&h, xl_str_of(a));
    xl_hash_str(&h, xl_str_of(b));
    return xl_hash_final(&h);
}

TEST(hashed_strings_do_not_run_together)
{
    xl_digest x = pair("ab", "c"), y = pair("a", "bc");
    CHECK(!xl_digest_eq(&x, &y));
}

TEST(hash_of_a_file)
{
    char path[] = "/tmp/xlane-hash-XXXXXX";
    int fd = mkstemp(path);
    CHECK(fd >= 0 && write(fd, "abc", 3) == 3);
    close(fd);
    xl_digest d, want = xl_hash_of(XL_STR("abc"));
    CHECK_OK(xl_hash_file(path, &d));
    CHECK(xl_digest_eq(&d, &want));
    unlink(path);
    CHECK_ERR(xl_hash_file(path, &d), path);
}

TEST(hash64_spreads)
{
    /* 20000 short keys over 2^16 buckets: about 2800 would share one by chance three deep; a bad hash piles up. */
    static uint8_t seen[1 << 16];
    int most = 0;
    for (uint32_t i = 0; i < 20000; i++) {
        uint64_t h = xl_hash64(&i, sizeof i, 0);
        int c = ++seen[h & 0xffff];
        most = c > most ? c : most;
    }
    CHECK(most <= 8);
    CHECK(xl_hash64("a", 1, 0) != xl_hash64("a", 1, 1));
    CHECK(xl_hash64("a\0", 2, 0) != xl_hash64("a", 1, 0));
}

TEST(random_bytes_differ)
{
    uint8_t a[600] = { 0 }, b[600] = { 0 };
    CHECK_OK(xl_random(a, sizeof a));
    CHECK_OK(xl_random(b, sizeof b));
    CHECK(memcmp(a, b, sizeof a) != 0 && memcmp(a, a + 300, 300) != 0);
}
