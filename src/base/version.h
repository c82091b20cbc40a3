/* src/base/version.h: the one place the version is written; the Makefile reads it from here. */
#ifndef XL_BASE_VERSION_H
#define XL_BASE_VERSION_H
#define XL_VERSION "0.2.0"
#endif
