#include "cpu/pjrt/spare.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { PIECES = 256, SMALLEST = 1 << 15 };
static const size_t most = (size_t)256 << 20;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct { void *p; size_t bytes; } kept[PIECES];     /* oldest first */
static size_t n, total;

static void *drop(size_t i)
{
    void *p = kept[i].p;
    total -= kept[i].bytes;
    memmove(kept + i, kept + i + 1, (n - i - 1) * sizeof *kept);
    n--;
    return p;
}

void *xl_spare_take(size_t bytes)
{
    void *p = NULL;
    if (bytes < SMALLEST)
        return NULL;
    pthread_mutex_lock(&lock);
    for (size_t i = n; i-- > 0 && !p; )                    /* the newest is the warmest */
        if (kept[i].bytes == bytes)
            p = drop(i);
    pthread_mutex_unlock(&lock);
    return p;
}

bool xl_spare_give(void *p, size_t bytes)
{
    if (bytes < SMALLEST || bytes > most / 4)
        return false;
    pthread_mutex_lock(&lock);
    while (n == PIECES || total + bytes > most)
        free(drop(0));
    kept[n].p = p;
    kept[n++].bytes = bytes;
    total += bytes;
    pthread_mutex_unlock(&lock);
    return true;
}

void xl_spare_clear(void)
{
    pthread_mutex_lock(&lock);
    while (n)
        free(drop(n - 1));
    pthread_mutex_unlock(&lock);
}
