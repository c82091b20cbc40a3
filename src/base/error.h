/* src/base/error.h
 * An error is a pointer: NULL is success. It carries a code and one line of text to which each
 * caller prepends its context, so that the user reads "parsing mlp.mlir: line 12: ...".
 * The holder owns an error; any thread may use it, one at a time. If memory runs out while an error is made,
 * a static one is returned, which may be used and freed like any other. */
#ifndef XL_BASE_ERROR_H
#define XL_BASE_ERROR_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>

typedef enum {
    XL_OK = 0,
#define CODE(name, number, word) XL_CODE_##name = number,
#include "base/codes.def"
} xl_code;

typedef struct xl_error xl_error;

#if defined(__GNUC__)
#define XL_MUST_USE __attribute__((warn_unused_result))
#define XL_PRINTF(f, a) __attribute__((format(printf, f, a)))
#define XL_NORETURN __attribute__((noreturn))
#define XL_NOT_NULL __attribute__((returns_nonnull))
#define XL_EXPORT __attribute__((visibility("default"))) /* of the installed header */
#else
#define XL_EXPORT
#define XL_MUST_USE
#define XL_PRINTF(f, a)
#define XL_NORETURN
#define XL_NOT_NULL
#endif

xl_error *xl_error_new(xl_code code, const char *fmt, ...) XL_PRINTF(2, 3) XL_MUST_USE XL_NOT_NULL;
/* Prepends "context: " to err's text; err may be NULL, then NULL comes back. */
xl_error *xl_error_wrap(xl_error *err, const char *fmt, ...) XL_PRINTF(2, 3) XL_MUST_USE;
/* Appends "; next step" to err's text: what the user can do about it. err may be NULL, then NULL comes back. */
xl_error *xl_error_next(xl_error *err, const char *fmt, ...) XL_PRINTF(2, 3) XL_MUST_USE;
/* Marks it: the command line is to be changed, for it names what is not there. It keeps that mark when it is wrapped.
 * */
xl_error *xl_error_misuse(xl_error *err) XL_MUST_USE;
bool xl_error_is_misuse(const xl_error *err);
xl_code xl_error_code(const xl_error *err);         /* XL_OK for NULL */
XL_EXPORT const char *xl_error_message(const xl_error *err);  /* borrowed until free; "ok" for NULL */
const char *xl_code_word(xl_code code);
const char *xl_code_name(xl_code code);             /* "INVALID" */
XL_EXPORT void xl_error_free(xl_error *err);                  /* NULL is fine */

/* A fact that gcc's analyzer cannot see (./x lint analyzer); a build does not evaluate it. */
#ifdef XL_ANALYZER
#define XL_KNOWN(fact) do { if (!(fact)) __builtin_unreachable(); } while (0)
#else
#define XL_KNOWN(fact) ((void)0)
#endif

#define XL_ERR(code, ...) xl_error_new(XL_CODE_##code, __VA_ARGS__)

/* Inside a function with `xl_error *err` and a label `out`. The context is never optional. */
#define XL_TRY(expr, ...) do { err = (expr); if (err) { err = xl_error_wrap(err, __VA_ARGS__); goto out; } } while (0)
/* The same without a context, where the callee's message says enough. */
#define XL_DO(expr) do { err = (expr); if (err) goto out; } while (0)

/* A bug in xlane, not a user's mistake: prints the place and aborts. Never used in guard/ or in the plugins. */
void xl_bug(const char *file, int line, const char *fmt, ...) XL_PRINTF(3, 4) XL_NORETURN;
#define XL_BUG(...) xl_bug(__FILE__, __LINE__, __VA_ARGS__)
#define XL_ASSERT(cond) do { if (!(cond)) XL_BUG("%s does not hold", #cond); } while (0)

#endif
