/* src/base/zip.h
 * zstd, whole buffers. What was packed says nothing reliable about its size: unpacking stops at a bound. */
#ifndef XL_BASE_ZIP_H
#define XL_BASE_ZIP_H

#include "base/str.h"

/* Adds the packed bytes to *out. level: 1 quick to 19 small; 3 is a good one. */
xl_error *xl_zip(xl_str bytes, int level, xl_buf *out) XL_MUST_USE;
/* Adds the unpacked bytes to *out, at most `most` of them. Damaged or cut input is DATA_LOSS. */
xl_error *xl_unzip(xl_str packed, uint64_t most, xl_buf *out) XL_MUST_USE;

#endif
