#include "cpu/kernel/special.h"

#include <math.h>

/* Inverse error function: Winitzki's approximation, refined by Halley's method on erf. Near +-1 it uses erfc, which
 * keeps more digits there. */
double xl_special_erf_inv(double x)
{
    if (isnan(x) || fabs(x) > 1)
        return NAN;
    if (fabs(x) == 1)
        return copysign(INFINITY, x);
    if (x == 0)
        return x;
    double a = fabs(x), c = 0.147, l = log1p(-a * a), h = 2 / (M_PI * c) + l / 2;
    double y = sqrt(sqrt(h * h - l / c) - h);
    for (int i = 0; i < 4; i++) {
        double e = a > 0.5 ? (1 - a) - erfc(y) : erf(y) - a; /* sign: erf(y) - a both ways */
        double d = M_2_SQRTPI * exp(-y * y);
        if (d == 0)
            break;
        double u = e / d;
        y -= u / (1 + y * u);
    }
    return copysign(y, x);
}

/* On [1, 2] the distance to the root in two parts times a polynomial, so that the digits near the root are right too.
 * Beyond, the recurrence (x - 1 is exact there) up to 12, then the asymptotic series. */
double xl_special_digamma(double x)
{
    static const double near[] = { /* of 2 x - 3: digamma(x) / (x - root), 3e-18 */
        0.95105587603183288,     -0.2118137106407303,     0.060135621060196746,    -0.018550615381735114,
        0.0059367952783056489,   -0.0019350666648590098,  0.00063688803032572004,  -0.00021074841140458637,
        6.9950188739505062e-5,   -2.3258242394452571e-5,  7.7412322235040566e-6,   -2.5780943630530802e-6,
        8.5891273530333797e-7,   -2.8631527584693402e-7,  9.5420509726889069e-8,   -3.1630202689553338e-8,
        1.0542687624027994e-8,   -3.7075072647122388e-9,  1.2358072433984832e-9,   -2.7619635330317713e-10,
        9.2064344991779916e-11,  -8.4981372301860961e-11, 2.8327066680217588e-11
    };
    if (isnan(x) || x == -INFINITY)
        return NAN;
    double r = 0;
    if (x == 0)                                            /* -0 too, as XLA has it since JAX 0.11 */
        return -INFINITY;
    if (x < 0) {
        if (x == floor(x))
            return NAN;
        double part = x - rint(x);                         /* exact, also beside 0 */
        r = -M_PI / tan(M_PI * part);
        x = 1 - x;
    }
    if (x < 1) {
        r -= 1 / x;
        x += 1;
    }
    if (x <= 12) {
        while (x > 2) {
            x -= 1;
            r += 1 / x;
        }
        double t = 2 * x - 3, p = 0;
        for (int i = sizeof near / sizeof *near; i-- > 0; )
            p = p * t + near[i];
        return r + ((x - 0x1.762d86356be3fp+0) - 0x1.b86a722197829p-54) * p;
    }
    double z = 1 / (x * x);
    double s =
        z * (1.0 / 12 -
             z * (1.0 / 120 - z * (1.0 / 252 - z * (1.0 / 240 - z * (1.0 / 132 - z * (691.0 / 32760 - z / 12))))));
    return r + log(x) - 0.5 / x - s;
}

double xl_special_lgamma(double x)
{
    int sign;
    return lgamma_r(x, &sign);
}

/* Hurwitz zeta by Euler-Maclaurin. */
double xl_special_zeta(double s, double q)
{
    static const double b[] = { /* B_2k / (2k)! */
                                1.0 / 12,
                                -1.0 / 720,
                                1.0 / 30240,
                                -1.0 / 1209600,
                                1.0 / 47900160,
                                -691.0 / 1307674368000.0,
                                1.0 / 74724249600.0,
                                -3617.0 / 10670622842880000.0,
                                43867.0 / 5109094217170944000.0
    };
    if (isnan(s) || isnan(q))
        return NAN;
    if (s == 1)
        return INFINITY;
    if (s < 1)
        return NAN;
    if (q <= 0) {
        if (q == floor(q))
            return fmod(s, 2) == 0 ? INFINITY : NAN;
        if (s != floor(s))
            return NAN;
    }
    double sum = 0, a = q;
    int i = 0;
    for (; i < 12 || a < 12; i++, a += 1) {
        double t = pow(a, -s);
        sum += t;
        if (i > 12 && fabs(t) < fabs(sum) * 1e-17 && a > 0)
            return sum;
        if (i > 100000)
            break;
    }
    double t = pow(a, -s);
    sum += t * a / (s - 1) + 0.5 * t;
    double k = 0, f = 1, ap = t / a;
    f = s;
    for (unsigned j = 0; j < sizeof b / sizeof *b; j++) {
        double term = b[j] * f * ap;
        sum += term;
        if (fabs(term) < fabs(sum) * 1e-17)
            break;
        k = 2.0 * j + 1;
        f *= (s + k) * (s + k + 1);
        ap /= a * a;
    }
    return sum;
}

double xl_special_polygamma(double n, double x)
{
    if (n == 0)
        return xl_special_digamma(x);
    if (n < 0 || n != floor(n) || isnan(n) || isnan(x))
        return NAN;
    double sign = fmod(n, 2) == 0 ? -1 : 1;
    return sign * exp(xl_special_lgamma(n + 1)) * xl_special_zeta(n + 1, x);
}

/* exp(-|x|) I1(x): the power series while it converges quickly, the asymptotic series beyond. */
double xl_special_bessel_i1e(double x)
{
    double a = fabs(x);
    if (isnan(x))
        return x;
    if (isinf(x))
        return copysign(0, x);
    double r;
    if (a < 20) {
        double q = a * a / 4, term = a / 2, sum = term;
        for (int k = 1; k < 200 && term > sum * 1e-18; k++) {
            term *= q / ((double)k * (k + 1));
            sum += term;
        }
        r = exp(-a) * sum;
    } else {
        double term = 1, sum = 1;
        for (int k = 1; k < 60; k++) {
            double m = 2 * k - 1, next = term * -(4 - m * m) / (8 * k * a);
            if (fabs(next) > fabs(term) || fabs(next) < 1e-18)
                break;
            term = next;
            sum += term;
        }
        r = sum / sqrt(2 * M_PI * a);
    }
    return copysign(r, x);
}
