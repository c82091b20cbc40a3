/* src/base/word.h
 * A text as one word of a shell, for commands that messages propose: a path with a space in it is quoted. */
#ifndef XL_BASE_WORD_H
#define XL_BASE_WORD_H

#include "base/str.h"

void xl_buf_word(xl_buf *b, const char *text);
const char *xl_word_of(xl_arena *a, const char *text);

#endif
