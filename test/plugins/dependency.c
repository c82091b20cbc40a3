/* Needs libxlane-test-gone.so, which is taken away after linking. */
extern int xlane_test_gone(void);
__attribute__((visibility("default"))) int xlane_calls_gone(void);
int xlane_calls_gone(void) { return xlane_test_gone(); }
