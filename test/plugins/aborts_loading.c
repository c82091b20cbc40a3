/* Aborts as soon as it is loaded. */
#include <stdio.h>
#include <stdlib.h>
__attribute__((constructor)) static void begin(void) { fputs("these are my last words\n", stderr); abort(); }
