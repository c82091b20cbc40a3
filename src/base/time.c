#include "base/time.h"

#include <errno.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

static double clock_seconds(clockid_t id)
{
    struct timespec t;
    clock_gettime(id, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

double xl_now(void) { return clock_seconds(CLOCK_MONOTONIC); }
double xl_now_cpu(void) { return clock_seconds(CLOCK_PROCESS_CPUTIME_ID); }
double xl_now_wall(void) { return clock_seconds(CLOCK_REALTIME); }

double xl_process_age(void)
{
    char text[1024] = "";
    unsigned long long ticks = 0;
    FILE *f = fopen("/proc/self/stat", "re");
    size_t n = f ? fread(text, 1, sizeof text - 1, f) : 0;
    if (f)
        fclose(f);
    text[n] = 0;
    char *p = strrchr(text, ')');        /* the name may have blanks; 19 fields lie between it and the start */
    for (int i = 0; p && i < 20; i++)
        p = strchr(p + 1, ' ');
    if (!p || sscanf(p, "%llu", &ticks) != 1)
        return 0;
    double age = clock_seconds(CLOCK_BOOTTIME) - (double)ticks / (double)sysconf(_SC_CLK_TCK);
    return age > 0 ? age : 0;
}

static const char *format(double wall, const char *fmt, char out[XL_TIME_ISO])
{
    time_t t = (time_t)wall;
    struct tm tm;
    if (!(wall >= 0 && wall < 253402300800.0) || !gmtime_r(&t, &tm) || !strftime(out, XL_TIME_ISO, fmt, &tm))
        strcpy(out, "?");
    return out;
}

const char *xl_time_iso(double wall, char out[XL_TIME_ISO]) { return format(wall, "%Y-%m-%dT%H:%M:%SZ", out); }
const char *xl_time_name(double wall, char out[XL_TIME_ISO]) { return format(wall, "%Y%m%d-%H%M%S", out); }

double xl_time_read(const char *iso)
{
    struct tm tm = { 0 };
    const char *end = strptime(iso, "%Y-%m-%dT%H:%M:%SZ", &tm);
    return end && !*end ? (double)timegm(&tm) : 0;
}

void xl_sleep(double seconds)
{
    if (!(seconds > 0))
        return;
    struct timespec t = { .tv_sec = (time_t)seconds };
    t.tv_nsec = (long)((seconds - (double)t.tv_sec) * 1e9);
    while (nanosleep(&t, &t) != 0 && errno == EINTR)
        ;
}
