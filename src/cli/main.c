#include <stdio.h>
int main(void) { puts("xlane"); return 0; }
