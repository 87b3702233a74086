/* SPDX-License-Identifier: Apache-2.0 */
/* MIG mode and the inventory of MIG devices. */
#include "scenario.h"

#include <math.h>
#include <string.h>

EXPORT int nvmlDeviceGetMigMode(nvml_device device, unsigned *now, unsigned *pending)
{
    BEGIN(device, 0);
    REQUIRE(now && pending);
    if (!entity_number(call.entity, "mig.capable", call.t, 0))
        return NOT_SUPPORTED;
    *now = (unsigned)mig_enabled(call.device, call.t);
    *pending = (unsigned)entity_number(call.entity, "mig.pending", call.t, *now);
    return OK;
}

EXPORT int nvmlDeviceGetMaxMigDeviceCount(nvml_device device, unsigned *count)
{
    BEGIN(device, 0);
    REQUIRE(count);
    *count = entity_number(call.entity, "mig.capable", call.t, 0) ? 7 : 0;
    if (*count && call.device->instances > 7)
        *count = (unsigned)call.device->instances;
    return OK;
}

/* An instance may name its index, which leaves holes before it. */
static int at_index(const struct call *call, unsigned index)
{
    for (int i = 0; i < call->device->instances; i++)
        if (entity_number(&call->device->instance[i], "index", call->t, i) == index)
            return i;
    return -1;
}

EXPORT int nvmlDeviceGetMigDeviceHandleByIndex(nvml_device device, unsigned index,
                                               nvml_device *mig)
{
    int instance;

    BEGIN(device, 0);
    REQUIRE(mig);
    if (!entity_number(call.entity, "mig.capable", call.t, 0))
        return NOT_SUPPORTED;
    instance = mig_enabled(call.device, call.t) ? at_index(&call, index) : -1;
    if (instance < 0)
        return NOT_FOUND;
    *mig = handle_of(call.gpu, instance);
    return OK;
}

EXPORT int nvmlDeviceGetDeviceHandleFromMigDeviceHandle(nvml_device mig, nvml_device *device)
{
    BEGIN(mig, FOR_MIG_TOO);
    REQUIRE(device && call.instance >= 0);
    *device = handle_of(call.gpu, -1);
    return OK;
}

EXPORT int nvmlDeviceIsMigDeviceHandle(nvml_device device, unsigned *yes)
{
    BEGIN(device, FOR_MIG_TOO);
    REQUIRE(yes);
    *yes = call.instance >= 0;
    return OK;
}

#define INSTANCE(function, key, otherwise)                                     \
    EXPORT int function(nvml_device device, unsigned *id)                         \
    {                                                                             \
        BEGIN(device, FOR_MIG_TOO);                                               \
        REQUIRE(id);                                                              \
        if (call.instance < 0)                                                    \
            return NOT_SUPPORTED;                                                 \
        *id = (unsigned)entity_number(call.entity, key, call.t, otherwise);       \
        return OK;                                                                \
    }

INSTANCE(nvmlDeviceGetGpuInstanceId, "gi", call.instance)
INSTANCE(nvmlDeviceGetComputeInstanceId, "ci", 0)

EXPORT int nvmlDeviceGetAttributes_v2(nvml_device device, struct nvml_attributes *attributes)
{
    BEGIN(device, FOR_MIG_TOO);
    REQUIRE(attributes);
    memset(attributes, 0, sizeof *attributes);
    if (call.instance < 0)
        return NOT_SUPPORTED;
    attributes->memory_mb = (ull)llround(entity_number(call.entity, "memory_mb", call.t, 9728));
    return read_uints(&call, "attributes", &attributes->sm_count, 8);
}
