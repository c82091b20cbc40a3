/* Wants FAKE_DEVICE for itself, as a TPU does. */
#define FAKE_BEFORE(call) ((call) == Create ? hold() : NULL)
struct PJRT_Error;
static struct PJRT_Error *hold(void);
#include "fake.h"

static PJRT_Error *hold(void)
{
    const char *path = getenv("FAKE_DEVICE");
    int fd = path ? open(path, O_RDWR | O_CLOEXEC) : -1;
    if (fd < 0)
        return fail(PJRT_Error_Code_NOT_FOUND, "there is no such device");
    return flock(fd, LOCK_EX | LOCK_NB) ? fail(PJRT_Error_Code_UNAVAILABLE, "cannot take the device") : NULL;
}
