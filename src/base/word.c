#include "base/word.h"

void xl_buf_word(xl_buf *b, const char *text)
{
    static const char special[] = " \t\n\"'\\$`&|;<>()*?[]{}#~!";
    if (*text && !strpbrk(text, special)) {
        xl_buf_puts(b, text);
        return;
    }
    xl_buf_putc(b, '\'');
    for (; *text; text++)
        if (*text == '\'')
            xl_buf_puts(b, "'\\''");
        else
            xl_buf_putc(b, *text);
    xl_buf_putc(b, '\'');
}

const char *xl_word_of(xl_arena *a, const char *text)
{
    xl_buf b = { 0 };
    xl_buf_word(&b, text);
    const char *word = xl_str_c(a, xl_buf_view(&b));
    xl_buf_fini(&b);
    return word;
}
