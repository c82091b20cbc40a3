/* src/train/tb.h: TensorBoard's event files, scalars only. A record that cannot be written whole is kept and tried
 * again. */
#ifndef XL_TRAIN_TB_H
#define XL_TRAIN_TB_H

#include "base/str.h"

typedef struct xl_tb xl_tb;
xl_error *xl_tb_open(const char *dir, xl_tb **out) XL_MUST_USE;
void xl_tb_scalar(xl_tb *t, const char *tag, int64_t step, double value);
void xl_tb_flush(xl_tb *t);
uint64_t xl_tb_missing(xl_tb *t);                          /* records that are not in the file */
void xl_tb_close(xl_tb *t);
uint32_t xl_crc32c(const void *p, size_t n);

#endif
