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
