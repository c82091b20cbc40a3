#include "cli/cli.h"

#define VERB(name) extern const xl_verb xl_verb_##name; extern const char xl_verb_row_##name;
#include "cli/verbs.def"
#define VERB(name) const char xl_verb_row_##name = 0;
#include "cli/verbs.def"

static const xl_verb *const verbs[] = {
#define VERB(name) &xl_verb_##name,
#include "cli/verbs.def"
    NULL
};

int main(int argc, char **argv) { return xl_cli_main(verbs, argc, argv); }
