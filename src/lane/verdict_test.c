#include "lane/verdict.h"

#include "base/test.h"

static const char *const words[] = {
#define CAUSE(word, ask, remedy) word,
#include "lane/cause.def"
};

static bool has(const char *text, const char *part) { return strstr(text, part) != NULL; }

/* Each frontend's user gets the remedy of that frontend. */
TEST(a_remedy_is_of_the_frontend)
{
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        const xl_cause *c = xl_cause_of(xl_str_of(words[i]));
        CHECK(c);
        const char *jax = xl_cause_remedy(c, XL_STR("jit_step")),
                   *torch = xl_cause_remedy(c, XL_STR("SyncTensorsGraph.12"));
        CHECK(jax == c->remedy);
        bool for_torch = !strcmp(c->word, "setup"); /* which JAX does not have */
        CHECK(for_torch == has(jax, "torch") && !has(jax, "mark_sharding") && !has(jax, "tensor)"));
        CHECK(jax == torch || (!has(torch, "jax.") && !has(torch, "jnp.") && !has(torch, "lax.")));
    }
}

TEST(a_sharding_has_two_remedies)
{
    const xl_cause *c = xl_cause_of(XL_STR("sharding"));
    CHECK(has(xl_cause_remedy(c, XL_STR("SyncTensorsGraph.12")), "mark_sharding"));
    CHECK(has(xl_cause_remedy(c, XL_STR("jit_step")), "out_shardings"));
}
