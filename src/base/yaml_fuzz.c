/* Any bytes: xl_yaml_read gives an error or a tree that can be written as JSON. */
#include "base/json.h"
#include "base/yaml.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    xl_arena a = { 0 };
    xl_buf b = { 0 };
    xl_node *n;
    xl_error *e = xl_yaml_read(&a, "fuzz", (xl_str){ (const char *)data, size }, &n);
    if (!e) {
        xl_json j = { .out = &b };
        xl_json_node(&j, n);
    }
    xl_error_free(e);
    xl_buf_fini(&b);
    xl_arena_fini(&a);
    return 0;
}
