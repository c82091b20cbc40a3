#include "base/zip.h"

#include <stdlib.h>
#include <zstd.h>

xl_error *xl_zip(xl_str bytes, int level, xl_buf *out)
{
    xl_error *err = NULL;
    ZSTD_CCtx *c = ZSTD_createCCtx();
    char *piece = malloc(ZSTD_CStreamOutSize());
    size_t left = 0;
    if (!c || !piece) {
        err = XL_ERR(EXHAUSTED, "no memory to pack %zu bytes", bytes.n);
        goto out;
    }
    ZSTD_CCtx_setParameter(c, ZSTD_c_compressionLevel, level);
    ZSTD_CCtx_setParameter(c, ZSTD_c_checksumFlag, 1);
    ZSTD_CCtx_setPledgedSrcSize(c, bytes.n);
    ZSTD_inBuffer in = { bytes.p, bytes.n, 0 };
    do {
        ZSTD_outBuffer o = { piece, ZSTD_CStreamOutSize(), 0 };
        left = ZSTD_compressStream2(c, &o, &in, ZSTD_e_end);
        if (ZSTD_isError(left)) {
            err = XL_ERR(INTERNAL, "packing %zu bytes: %s", bytes.n, ZSTD_getErrorName(left));
            goto out;
        }
        xl_buf_add(out, piece, o.pos);
    } while (left && !out->failed);
    if (out->failed)
        err = XL_ERR(EXHAUSTED, "no memory to pack %zu bytes", bytes.n);
out:
    ZSTD_freeCCtx(c);
    free(piece);
    return err;
}

xl_error *xl_unzip(xl_str packed, uint64_t most, xl_buf *out)
{
    xl_error *err = NULL;
    ZSTD_DCtx *d = ZSTD_createDCtx();
    char *piece = malloc(ZSTD_DStreamOutSize());
    uint64_t total = 0;
    size_t left = 1;
    if (!d || !piece) {
        err = XL_ERR(EXHAUSTED, "no memory to unpack %zu bytes", packed.n);
        goto out;
    }
    ZSTD_inBuffer in = { packed.p, packed.n, 0 };
    for (;;) {
        ZSTD_outBuffer o = { piece, ZSTD_DStreamOutSize(), 0 };
        size_t before = in.pos;
        left = ZSTD_decompressStream(d, &o, &in);
        if (ZSTD_isError(left)) {
            err = XL_ERR(DATA_LOSS, "unpacking, at byte %zu of %zu: %s", in.pos, packed.n, ZSTD_getErrorName(left));
            goto out;
        }
        if (o.pos > most - total) {
            err = XL_ERR(EXHAUSTED, "unpacking %zu bytes: more than the %llu that are allowed here come out", packed.n,
                         (unsigned long long)most);
            goto out;
        }
        total += o.pos;
        xl_buf_add(out, piece, o.pos);
        if (out->failed) {
            err = XL_ERR(EXHAUSTED, "no memory for the %llu bytes unpacked so far", (unsigned long long)total);
            goto out;
        }
        if (left == 0)
            break;
        if (in.pos == in.size && in.pos == before && o.pos == 0) {
            err = XL_ERR(DATA_LOSS, "unpacking: the %zu bytes end too soon", packed.n);
            goto out;
        }
    }
    if (in.pos != in.size)
        err = XL_ERR(DATA_LOSS, "unpacking: %zu bytes follow the end", in.size - in.pos);
out:
    ZSTD_freeDCtx(d);
    free(piece);
    return err;
}
