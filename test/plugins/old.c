/* The oldest version we take: its table ends with PJRT_Buffer_CopyRawToHost. */
#define FAKE_MINOR 57
#define FAKE_TABLE offsetof(PJRT_Api, PJRT_AsyncHostToDeviceTransferManager_Destroy)
#include "fake.h"
