/* src/ir/num.h
 * Number formats: conversion between double and the bits of any element type, and between bits and decimal text.
 * Pure functions; any thread. */
#ifndef XL_IR_NUM_H
#define XL_IR_NUM_H

#include "ir/ir.h"

/* The nearest value of float type d, ties to even, as its bits. */
uint64_t xl_num_round(xl_dtype d, double v);
double xl_num_value(xl_dtype d, uint64_t bits);            /* exact; d is a float type */
/* Loads and stores an element of type d at p, little-endian. Not for complex types (see xl_dtype_part). */
uint64_t xl_num_load(xl_dtype d, const char *p);
void xl_num_store(xl_dtype d, char *p, uint64_t bits);
/* True if an integer fits in d's width as signed or as unsigned, which MLIR accepts for a signless type. */
bool xl_num_fits(xl_dtype d, int64_t v, bool beyond);      /* beyond: v is a uint64 above INT64_MAX */
/* Reads a decimal or exponent number at *p (which ends in a NUL somewhere); moves *p past it. False if there
 * is none. */
bool xl_num_scan(const char **p, double *out);
/* Shortest decimal that reads back as these bits, with a dot as MLIR wants it; the bit pattern where there is none. */
void xl_num_print(xl_dtype d, uint64_t bits, xl_buf *out);

#endif
