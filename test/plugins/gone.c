/* The library that is taken away. */
__attribute__((visibility("default"))) int xlane_test_gone(void);
int xlane_test_gone(void) { return 1; }
