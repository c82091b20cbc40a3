#include "base/secret.h"
#include "base/test.h"

static xl_arena a;
static bool hides(const char *word, const char *want) { return xl_str_is(xl_secret_hide(&a, xl_str_of(word)), want); }

TEST(secret_names_are_whole_words)
{
    static const char *const secret[] = { "--token",     "HF_TOKEN",  "WANDB_API_KEY",
                                          "db.password", "--apiKey",  "AWS_SECRET_ACCESS_KEY",
                                          "auth-token",  "GITHUB_PAT" };
    static const char *const plain[] = { "--tokens-per-batch-x",
                                         "tokenizer",
                                         "monkey",
                                         "--keyboard",
                                         "path",
                                         "XLA_FLAGS",
                                         "passes",
                                         "author",
                                         "data.train" };
    for (size_t i = 0; i < sizeof secret / sizeof *secret; i++)
        CHECK(xl_secret_name(xl_str_of(secret[i])));
    for (size_t i = 1; i < sizeof plain / sizeof *plain; i++)
        CHECK(!xl_secret_name(xl_str_of(plain[i])));
}

TEST(secret_values_are_hidden_and_their_names_stay)
{
    CHECK(hides("--token=abc", "--token=(redacted)"));
    CHECK(hides("HF_TOKEN=abc", "HF_TOKEN=(redacted)"));
    CHECK(hides("HF_TOKEN=", "HF_TOKEN="));
    CHECK(hides("--lr=0.1", "--lr=0.1"));
    CHECK(hides("https://me:pw@host/x?y=1", "https://(redacted)@host/x?y=1"));
    CHECK(hides("https://pw@host", "https://(redacted)@host"));
    CHECK(hides("https://host/a@b", "https://host/a@b"));
    CHECK(hides("https://host/x?token=abc&y=1", "https://host/x?token=(redacted)&y=1"));
    CHECK(hides("--url=s3://k:v@bucket/p", "--url=s3://(redacted)@bucket/p"));
    CHECK(hides("hf_abcdefghijklmnopqrstuv", "(redacted)"));
    CHECK(hides("say hf_abcdefghijklmnopqrstuv now", "say (redacted) now"));
    CHECK(hides("-c import os; os.environ['HF_TOKEN']='x'",
                "-c import os; os.environ['HF_TOKEN']='x'")); /* a program's text is not parsed */
    CHECK(hides("export API_KEY=\"abc\"; run", "export API_KEY=\"(redacted)\"; run"));
    CHECK(hides("Authorization: Bearer abc", "Authorization:(redacted)"));
    CHECK(hides("--xla_flag=1 --my_token=abc --z", "--xla_flag=1 --my_token=(redacted) --z"));
}

TEST(secret_in_the_next_argument)
{
    char *argv[] = { "python", "t.py", "--api-key", "abc", "--lr", "0.1", "--use-token", "--x" };
    static const char *const want[] = {
        "python", "t.py", "--api-key", "(redacted)", "--lr", "0.1", "--use-token", "--x"
    };
    for (int i = 0; i < 8; i++)
        CHECK(xl_str_is(xl_secret_arg(&a, 8, argv, i), want[i]));
    CHECK(xl_str_is(xl_secret_env(&a, XL_STR("JAX_TOKEN"), XL_STR("abc")), "(redacted)"));
    CHECK(xl_str_is(xl_secret_env(&a, XL_STR("XLA_FLAGS"), XL_STR("--a=b")), "--a=b"));
    xl_arena_fini(&a);
}
