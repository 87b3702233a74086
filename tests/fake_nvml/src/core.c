/* SPDX-License-Identifier: Apache-2.0 */
/* Library life cycle, system queries, handles and identity. */
#include "scenario.h"

#include <stdio.h>
#include <string.h>

EXPORT int nvmlInitWithFlags(unsigned flags)
{
    BEGIN(NULL, FOR_SYSTEM | FOR_INIT);
    (void)flags;
    __atomic_fetch_add(&init_count, 1, __ATOMIC_RELAXED);
    return OK;
}

EXPORT int nvmlShutdown(void)
{
    BEGIN(NULL, FOR_SYSTEM);
    __atomic_fetch_sub(&init_count, 1, __ATOMIC_RELAXED);
    return OK;
}

EXPORT const char *nvmlErrorString(int code)
{
    static const char *const TEXTS[] = {
        [0] = "The operation was successful", "Uninitialized", "Invalid Argument",
        "Not Supported", "Insufficient Permissions", "Already Initialized", "Not Found",
        "Insufficient Size", "Insufficient External Power", "Driver Not Loaded", "Timeout",
        "Interrupt Request Issue", "NVML Shared Library Not Found", "Function Not Found",
        "Corrupted infoROM", "GPU is lost", "GPU requires reset",
        "GPU access blocked by the operating system", "Driver/library version mismatch",
        "In use by another client", "Insufficient Memory", "No data",
        "vGPU ECC not supported", "Insufficient Resources", "Frequency not supported",
        "Argument version mismatch", "Deprecated", "System not ready", "No GPUs found",
        "Invalid State",
    };

    if (code < 0 || code >= COUNT_OF(TEXTS))
        return "Unknown Error";
    return TEXTS[code];
}

/* ---------- system ---------- */

EXPORT int nvmlSystemGetDriverVersion(char *version, unsigned length)
{
    BEGIN(NULL, FOR_SYSTEM);
    return copy_text(table_text(call.scenario->top, "driver_version", ""), version, length);
}

EXPORT int nvmlSystemGetCudaDriverVersion(int *version)
{
    BEGIN(NULL, FOR_SYSTEM);
    REQUIRE(version);
    *version = (int)table_number(call.scenario->top, "cuda_version", 0);
    return OK;
}

EXPORT int nvmlSystemGetConfComputeState(struct nvml_conf_compute *state)
{
    const struct value *found;

    BEGIN(NULL, FOR_SYSTEM);
    REQUIRE(state);
    found = table_get(call.scenario->top, "confidential_compute");
    if (!found || found->count < 3)
        return NOT_SUPPORTED;
    state->environment = (unsigned)found->numbers[0];
    state->feature = (unsigned)found->numbers[1];
    state->dev_tools = (unsigned)found->numbers[2];
    return OK;
}

/* ---------- handles ---------- */

void pci_address(const char *address, struct nvml_pci_info *info)
{
    unsigned function = 0;

    memset(info, 0, sizeof *info);
    sscanf(address, "%x:%x:%x.%x", &info->domain, &info->bus, &info->device, &function);
    snprintf(info->bus_id, sizeof info->bus_id, "%08X:%02X:%02X.%X", info->domain, info->bus,
             info->device, function);
    snprintf(info->bus_id_legacy, sizeof info->bus_id_legacy, "%04X:%02X:%02X.%X",
             info->domain & 0xFFFF, info->bus & 0xFF, info->device & 0xFF, function & 0xF);
}

static void pci_info(const struct entity *self, struct nvml_pci_info *info)
{
    pci_address(entity_text(self, "pci_bus_id", ""), info);
    info->pci_device_id = (unsigned)entity_number(self, "pci_device_id", 0, 0) << 16 | 0x10DE;
    info->pci_subsystem_id = (unsigned)entity_number(self, "pci_subsystem_id", 0, 0);
}

static int give_handle(struct call *call, int gpu, nvml_device *device)
{
    int code;

    REQUIRE(device);
    if (gpu < 0 || gpu >= call->scenario->devices)
        return INVALID_ARGUMENT;
    code = (int)entity_number(&call->scenario->device[gpu]->self, "handle_error", call->t, 0);
    if (code == OK)
        *device = handle_of(gpu, -1);
    return code;
}

EXPORT int nvmlDeviceGetCount_v2(unsigned *count)
{
    BEGIN(NULL, FOR_SYSTEM);
    REQUIRE(count);
    *count = (unsigned)call.scenario->listed;
    return OK;
}

EXPORT int nvmlDeviceGetHandleByIndex_v2(unsigned index, nvml_device *device)
{
    BEGIN(handle_of((int)(index < MAX_DEVICES ? index : 0), -1), WHEN_LOST);
    REQUIRE((int)index < call.scenario->listed);
    return give_handle(&call, call.scenario->order[index], device);
}

EXPORT int nvmlDeviceGetHandleByUUID(const char *wanted, nvml_device *device)
{
    BEGIN(NULL, FOR_SYSTEM);
    REQUIRE(wanted && device);
    for (int gpu = 0; gpu < call.scenario->devices; gpu++) {
        const struct device *candidate = call.scenario->device[gpu];

        if (strcmp(entity_text(&candidate->self, "uuid", ""), wanted) == 0)
            return give_handle(&call, gpu, device);
        for (int i = 0; i < candidate->instances; i++) {
            if (strcmp(entity_text(&candidate->instance[i], "uuid", ""), wanted) == 0) {
                *device = handle_of(gpu, i);
                return OK;
            }
        }
    }
    return NOT_FOUND;
}

EXPORT int nvmlDeviceGetHandleByPciBusId_v2(const char *wanted, nvml_device *device)
{
    struct nvml_pci_info info;
    unsigned domain = 0, bus = 0, slot = 0;

    BEGIN(NULL, FOR_SYSTEM);
    REQUIRE(wanted && device);
    if (sscanf(wanted, "%x:%x:%x", &domain, &bus, &slot) != 3) {
        domain = 0;
        if (sscanf(wanted, "%x:%x", &bus, &slot) != 2)
            return INVALID_ARGUMENT;
    }
    for (int gpu = 0; gpu < call.scenario->devices; gpu++) {
        pci_info(&call.scenario->device[gpu]->self, &info);
        if (info.domain == domain && info.bus == bus && info.device == slot)
            return give_handle(&call, gpu, device);
    }
    return NOT_FOUND;
}

/* ---------- identity ---------- */

EXPORT int nvmlDeviceGetName(nvml_device device, char *name, unsigned length)
{
    char text[192] = "";
    const struct value *given;

    BEGIN(device, FOR_MIG_TOO);
    given = entity_get(&call.device->self, "name");
    if (given->kind == ERROR)
        return (int)given->numbers[0];
    hex_bytes(given->words[0], (unsigned char *)text, sizeof text - 64);
    if (call.instance >= 0) {
        strcat(text, " MIG ");
        strncat(text, entity_text(call.entity, "profile", "1g.10gb"), 48);
    }
    return copy_text(text, name, length);
}

EXPORT int nvmlDeviceGetUUID(nvml_device device, char *uuid, unsigned length)
{
    BEGIN(device, FOR_MIG_TOO | WHEN_LOST);
    return copy_text(entity_text(call.entity, "uuid", ""), uuid, length);
}

EXPORT int nvmlDeviceGetIndex(nvml_device device, unsigned *index)
{
    BEGIN(device, WHEN_LOST);
    REQUIRE(index);
    for (int i = 0; i < call.scenario->listed; i++) {
        if (call.scenario->order[i] == call.gpu) {
            *index = (unsigned)i;
            return OK;
        }
    }
    return NOT_FOUND;
}

#define TEXT(function, key)                                                     \
    EXPORT int function(nvml_device device, char *buffer, unsigned length)      \
    {                                                                           \
        BEGIN(device, 0);                                                       \
        return read_text(&call, key, buffer, length);                           \
    }

TEXT(nvmlDeviceGetSerial, "serial")
TEXT(nvmlDeviceGetBoardPartNumber, "board_part_number")
TEXT(nvmlDeviceGetVbiosVersion, "vbios")

EXPORT int nvmlDeviceGetPciInfo_v3(nvml_device device, struct nvml_pci_info *info)
{
    BEGIN(device, 0);
    REQUIRE(info);
    pci_info(call.entity, info);
    return OK;
}

EXPORT int nvmlDeviceGetNumaNodeId(nvml_device device, unsigned *node)
{
    double number;

    BEGIN(device, 0);
    REQUIRE(node);
    code = read_number(&call, "numa_node", &number);
    if (code == OK)
        *node = (unsigned)(int)number; /* -1: no node */
    return code;
}

EXPORT int nvmlDeviceGetCudaComputeCapability(nvml_device device, int *major, int *minor)
{
    unsigned found[2];

    BEGIN(device, 0);
    REQUIRE(major && minor);
    code = read_uints(&call, "compute_capability", found, 2);
    if (code == OK) {
        *major = (int)found[0];
        *minor = (int)found[1];
    }
    return code;
}

/* ---------- everything else pynvml asks for ---------- */

int stub_call(const char *function, const void *first)
{
    struct call call;
    int gpu, instance;
    unsigned flags = handle_decode(first, &gpu, &instance) ? FOR_MIG_TOO : FOR_SYSTEM;
    int code = call_begin(&call, function, first, flags);

    return code ? code : NOT_SUPPORTED;
}
