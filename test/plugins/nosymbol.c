/* A fine library, and no plugin. */
__attribute__((visibility("default"))) int xlane_not_a_plugin(void);
int xlane_not_a_plugin(void) { return 1; }
