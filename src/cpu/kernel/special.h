/* src/cpu/kernel/special.h: functions that libm lacks, in double. */
#ifndef XL_CPU_KERNEL_SPECIAL_H
#define XL_CPU_KERNEL_SPECIAL_H

double xl_special_erf_inv(double x);
double xl_special_digamma(double x);
double xl_special_lgamma(double x);               /* does not touch signgam */
double xl_special_polygamma(double n, double x);
double xl_special_zeta(double s, double q);       /* Hurwitz */
double xl_special_bessel_i1e(double x);

#endif
