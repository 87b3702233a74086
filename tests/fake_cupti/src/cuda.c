/* SPDX-License-Identifier: Apache-2.0 */
/* The functions of libcuda.so.1 that the child asks. */
#include "scenario.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SUCCESS = 0, INVALID_VALUE = 1, NO_DEVICE = 100, INVALID_DEVICE = 101 };

struct uuid {
    unsigned char bytes[16];
};

EXPORT int cuInit(unsigned flags)
{
    int code = scenario_enter("cuInit", -1);
    const char *order = getenv("CUDA_DEVICE_ORDER");
    /* The exporter's numbers would not be those of the driver. */
    if (getenv("CUDA_VISIBLE_DEVICES") || !order || strcmp(order, "PCI_BUS_ID"))
        return NO_DEVICE;
    return code ? code : flags ? INVALID_VALUE : SUCCESS;
}

EXPORT int cuDriverGetVersion(int *version)
{
    int code = scenario_enter("cuDriverGetVersion", -1);
    *version = (int)scenario_number("driver", 13000);
    return code;
}

EXPORT int cuDeviceGetCount(int *count)
{
    int code = scenario_enter("cuDeviceGetCount", -1);
    *count = scenario_gpus();
    return code;
}

EXPORT int cuDeviceGet(int *device, int index)
{
    int code = scenario_enter("cuDeviceGet", index);
    *device = index;
    return code ? code : scenario_gpu((unsigned)index) ? SUCCESS : INVALID_DEVICE;
}

EXPORT int cuDeviceGetUuid(struct uuid *uuid, int device)
{
    int code = scenario_enter("cuDeviceGetUuid", device);
    const struct gpu *gpu = scenario_gpu((unsigned)device);
    if (code || !gpu)
        return code ? code : INVALID_DEVICE;
    for (int i = 0; i < 16; i++) {
        unsigned byte = 0;
        sscanf(gpu->uuid + 2 * i, "%2x", &byte);
        uuid->bytes[i] = (unsigned char)byte;
    }
    return SUCCESS;
}
