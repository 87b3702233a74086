/* SPDX-License-Identifier: Apache-2.0 */
/* Library life cycle, system queries, handles and identity. */
#include "scenario.h"

#include <stdio.h>
#include <string.h>

static int initialise(const char *function, int *slot)
{
    struct call call;
    int code = call_begin(&call, function, slot, NULL, FOR_SYSTEM | FOR_INIT);

    if (code == OK)
        __atomic_fetch_add(&init_count, 1, __ATOMIC_RELAXED);
    return code;
}

EXPORT int nvmlInitWithFlags(unsigned flags)
{
    static int slot = -1;

    (void)flags;
    return initialise(__func__, &slot);
}

EXPORT int nvmlInit_v2(void)
{
    static int slot = -1;

    return initialise(__func__, &slot);
}

EXPORT int nvmlInit(void)
{
    static int slot = -1;

    return initialise(__func__, &slot);
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

    if (code < 0 || code >= (int)(sizeof TEXTS / sizeof *TEXTS))
        return "Unknown Error";
    return TEXTS[code];
}

/* ---------- system ---------- */

static const struct json *top(const struct call *call, const char *key)
{
    return json_get(call->scenario->root, key);
}

EXPORT int nvmlSystemGetDriverVersion(char *version, unsigned length)
{
    BEGIN(NULL, FOR_SYSTEM);
    return copy_text(json_string(top(&call, "driver_version"), "580.95.05"), version, length);
}

EXPORT int nvmlSystemGetNVMLVersion(char *version, unsigned length)
{
    char text[96];

    BEGIN(NULL, FOR_SYSTEM);
    snprintf(text, sizeof text, "13.%s", json_string(top(&call, "driver_version"), "580.95.05"));
    return copy_text(json_string(top(&call, "nvml_version"), text), version, length);
}

static int cuda_version(const struct call *call, int *version)
{
    REQUIRE(version);
    *version = (int)json_number(top(call, "cuda_version"), 0);
    return OK;
}

EXPORT int nvmlSystemGetCudaDriverVersion(int *version)
{
    BEGIN(NULL, FOR_SYSTEM);
    return cuda_version(&call, version);
}

EXPORT int nvmlSystemGetCudaDriverVersion_v2(int *version)
{
    BEGIN(NULL, FOR_SYSTEM);
    return cuda_version(&call, version);
}

EXPORT int nvmlSystemGetConfComputeState(struct nvml_conf_compute *state)
{
    const struct json *cc;

    BEGIN(NULL, FOR_SYSTEM);
    REQUIRE(state);
    cc = top(&call, "confidential_compute");
    if (cc && cc->type == JSON_NULL)
        return NOT_SUPPORTED;
    state->environment = (unsigned)json_number(json_get(cc, "environment"), 0);
    state->feature = (unsigned)json_number(json_get(cc, "feature"), 0);
    state->dev_tools = (unsigned)json_number(json_get(cc, "dev_tools"), 0);
    return OK;
}

EXPORT int nvmlSystemGetProcessName(unsigned pid, char *name, unsigned length)
{
    char path[32], text[256] = "";
    FILE *file;

    BEGIN(NULL, FOR_SYSTEM);
    REQUIRE(name && length);
    snprintf(path, sizeof path, "/proc/%u/comm", pid);
    file = fopen(path, "re");
    if (!file)
        return NOT_FOUND;
    if (fgets(text, sizeof text, file))
        text[strcspn(text, "\n")] = 0;
    fclose(file);
    snprintf(name, length, "%s", text);
    return OK;
}

/* ---------- handles ---------- */

static const char *uuid_of(const struct entity *entity)
{
    return json_string(entity_get(entity, "uuid"), "");
}

static void pci_info(const struct entity *self, struct nvml_pci_info *info)
{
    unsigned function = 0;

    memset(info, 0, sizeof *info);
    sscanf(json_string(entity_get(self, "pci_bus_id"), ""), "%x:%x:%x.%x", &info->domain,
           &info->bus, &info->device, &function);
    info->pci_device_id = (unsigned)entity_number(self, "pci_device_id", 0, 0) << 16 | 0x10DE;
    info->pci_subsystem_id = (unsigned)entity_number(self, "pci_subsystem_id", 0, 0);
    snprintf(info->bus_id, sizeof info->bus_id, "%08X:%02X:%02X.%X", info->domain, info->bus,
             info->device, function);
    snprintf(info->bus_id_legacy, sizeof info->bus_id_legacy, "%04X:%02X:%02X.%X",
             info->domain & 0xFFFF, info->bus & 0xFF, info->device & 0xFF, function & 0xF);
}

static int give_handle(struct call *call, int gpu, nvml_device *device)
{
    const struct json *error;

    REQUIRE(device);
    if (gpu < 0 || gpu >= call->scenario->devices)
        return INVALID_ARGUMENT;
    error = entity_get(&call->scenario->device[gpu]->self, "handle_error");
    if (error && error->type == JSON_NUMBER && error->number != 0)
        return (int)error->number;
    *device = handle_of(gpu, -1);
    return OK;
}

EXPORT int nvmlDeviceGetCount_v2(unsigned *count)
{
    BEGIN(NULL, FOR_SYSTEM);
    REQUIRE(count);
    *count = (unsigned)call.scenario->listed;
    return OK;
}

EXPORT int nvmlDeviceGetCount(unsigned *count)
{
    return nvmlDeviceGetCount_v2(count);
}

EXPORT int nvmlDeviceGetHandleByIndex_v2(unsigned index, nvml_device *device)
{
    BEGIN(handle_of((int)(index < MAX_DEVICES ? index : 0), -1), WHEN_LOST);
    return (int)index < call.scenario->listed ? give_handle(&call, call.scenario->order[index], device)
                                              : INVALID_ARGUMENT;
}

EXPORT int nvmlDeviceGetHandleByIndex(unsigned index, nvml_device *device)
{
    return nvmlDeviceGetHandleByIndex_v2(index, device);
}

EXPORT int nvmlDeviceGetHandleByUUID(const char *wanted, nvml_device *device)
{
    BEGIN(NULL, FOR_SYSTEM);
    REQUIRE(wanted && device);
    for (int gpu = 0; gpu < call.scenario->devices; gpu++) {
        const struct device *candidate = call.scenario->device[gpu];

        if (strcmp(uuid_of(&candidate->self), wanted) == 0)
            return give_handle(&call, gpu, device);
        for (int i = 0; i < candidate->instances; i++) {
            if (strcmp(uuid_of(&candidate->instance[i]), wanted) == 0) {
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

EXPORT int nvmlDeviceGetHandleByPciBusId(const char *wanted, nvml_device *device)
{
    return nvmlDeviceGetHandleByPciBusId_v2(wanted, device);
}

EXPORT int nvmlDeviceGetHandleBySerial(const char *wanted, nvml_device *device)
{
    BEGIN(NULL, FOR_SYSTEM);
    REQUIRE(wanted && device);
    for (int gpu = 0; gpu < call.scenario->devices; gpu++) {
        struct entity *self = &call.scenario->device[gpu]->self;

        if (strcmp(json_string(entity_get(self, "serial"), ""), wanted) == 0)
            return give_handle(&call, gpu, device);
    }
    return NOT_FOUND;
}

/* ---------- identity ---------- */

EXPORT int nvmlDeviceGetName(nvml_device device, char *name, unsigned length)
{
    char text[192] = "";
    const struct json *given;

    BEGIN(device, FOR_MIG_TOO);
    given = entity_get(&call.device->self, "name");
    if (json_get(given, "error"))
        return (int)json_number(json_get(given, "error"), UNKNOWN);
    hex_bytes(json_string(given, ""), (unsigned char *)text, sizeof text - 64);
    if (call.instance >= 0) {
        strcat(text, " MIG ");
        strncat(text, json_string(entity_get(call.entity, "profile"), "1g.10gb"), 48);
    }
    return copy_text(text, name, length);
}

EXPORT int nvmlDeviceGetUUID(nvml_device device, char *uuid, unsigned length)
{
    BEGIN(device, FOR_MIG_TOO | WHEN_LOST);
    return copy_text(uuid_of(call.entity), uuid, length);
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

EXPORT int nvmlDeviceGetPciInfo_v2(nvml_device device, struct nvml_pci_info *info)
{
    return nvmlDeviceGetPciInfo_v3(device, info);
}

EXPORT int nvmlDeviceGetPciInfoExt(nvml_device device, struct nvml_pci_info_ext *info)
{
    struct nvml_pci_info plain;

    BEGIN(device, 0);
    REQUIRE(info);
    if (info->version != VERSION_OF(*info, 1))
        return VERSION_MISMATCH;
    pci_info(call.entity, &plain);
    info->domain = plain.domain;
    info->bus = plain.bus;
    info->device = plain.device;
    info->pci_device_id = plain.pci_device_id;
    info->pci_subsystem_id = plain.pci_subsystem_id;
    info->base_class = 3;
    info->sub_class = 2;
    memcpy(info->bus_id, plain.bus_id, sizeof info->bus_id);
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
    const struct json *value;

    BEGIN(device, 0);
    REQUIRE(major && minor);
    code = read_json(&call, "compute_capability", &value);
    if (code)
        return code;
    *major = (int)json_number(json_at(value, 0), 0);
    *minor = (int)json_number(json_at(value, 1), 0);
    return OK;
}

/* ---------- everything else pynvml asks for ---------- */

int stub_call(const char *function, int *slot, const void *first)
{
    struct call call;
    int gpu, instance;
    unsigned flags = handle_decode(first, &gpu, &instance) ? FOR_MIG_TOO : FOR_SYSTEM;
    int code = call_begin(&call, function, slot, first, flags);

    return code ? code : NOT_SUPPORTED;
}
