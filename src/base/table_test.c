#include "base/table.h"
#include "base/test.h"

static bool has(const xl_table *t, uint32_t hash, uint32_t entry)
{
    XL_TABLE_EACH(t, hash, i)
        if (i == entry)
            return true;
    return false;
}

TEST(an_empty_table_has_nothing)
{
    xl_table t = { 0 };
    CHECK(!has(&t, 0, 0));
    xl_table_drop(&t, 0, 0);
    xl_table_fini(&t);
}

/* Against a plain list: adds and drops in a random order, with hashes that collide on purpose. */
TEST(it_agrees_with_a_list)
{
    enum { N = 600 };
    static bool in[N];
    for (int arena = 0; arena < 2; arena++) {
        xl_arena a = { 0 };
        xl_table t = { 0 };
        uint32_t n = 0, seed = 1;
        memset(in, 0, sizeof in);
        for (int turn = 0; turn < 20000; turn++) {
            seed = seed * 1664525u + 1013904223u;
            uint32_t e = (seed >> 16) % N, hash = e % 7 ? xl_table_hash(e) : e % 3;
            if (in[e]) {
                xl_table_drop(&t, hash, e);
                n--;
            } else {
                CHECK(xl_table_add(&t, arena ? &a : NULL, hash, e));
                n++;
            }
            in[e] = !in[e];
            if (turn % 500)
                continue;
            CHECK_INT(t.n, n);
            for (uint32_t k = 0; k < N; k++)
                CHECK(has(&t, k % 7 ? xl_table_hash(k) : k % 3, k) == in[k]);
        }
        if (!arena)
            xl_table_fini(&t);
        xl_arena_fini(&a);
    }
}

TEST(reserved_room_does_not_move)
{
    xl_table t = { 0 };
    CHECK(xl_table_reserve(&t, NULL, 1000));
    xl_table_slot *slot = t.slot;
    for (uint32_t i = 0; i < 1000; i++)
        CHECK(xl_table_add(&t, NULL, i, i));
    CHECK(t.slot == slot);
    xl_table_fini(&t);
}
