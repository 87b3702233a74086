/* SPDX-License-Identifier: Apache-2.0 */
/* Library life cycle, system queries, handles and identity. */
#include "scenario.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

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
    const struct json *value = top(call, "cuda_version");
    int major = 13, minor = 0;

    REQUIRE(version);
    if (value && value->type == JSON_NUMBER)
        *version = (int)value->number;
    else {
        sscanf(json_string(value, "13.0"), "%d.%d", &major, &minor);
        *version = major * 1000 + minor * 10;
    }
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

static void default_uuid(int gpu, char *uuid, size_t length)
{
    snprintf(uuid, length, "GPU-%08x-5f3c-4b1e-9d2a-%012x", 0x1a2b3c00u + (unsigned)gpu,
             (unsigned)gpu + 1);
}

static void uuid_of(const struct call *call, int instance, char *uuid, size_t length)
{
    struct entity *entity = instance < 0 ? &call->device->self
                                               : &call->device->instance[instance];
    const char *given = json_string(entity_get(entity, "uuid"), NULL);

    if (given)
        snprintf(uuid, length, "%s", given);
    else if (instance < 0)
        default_uuid(call->gpu, uuid, length);
    else
        snprintf(uuid, length, "MIG-%08x-5f3c-4b1e-9d2a-%012x", 0x4d494700u + (unsigned)call->gpu,
                 (unsigned)instance + 1);
}

static void pci_info(const struct call *call, struct nvml_pci_info *info)
{
    struct entity *self = &call->device->self;
    const char *given = json_string(entity_get(self, "pci_bus_id"), NULL);
    unsigned function = 0;

    memset(info, 0, sizeof *info);
    info->bus = 0x10 + 2 * (unsigned)call->gpu;
    if (given)
        sscanf(given, "%x:%x:%x.%x", &info->domain, &info->bus, &info->device, &function);
    info->pci_device_id = (unsigned)entity_number(self, "pci_device_id", call->t, 0) << 16 | 0x10DE;
    info->pci_subsystem_id = (unsigned)entity_number(self, "pci_subsystem_id", call->t, 0);
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

static int by_uuid(struct call *call, const char *wanted, nvml_device *device)
{
    char uuid[96];

    REQUIRE(wanted && device);
    for (call->gpu = 0; call->gpu < call->scenario->devices; call->gpu++) {
        call->device = call->scenario->device[call->gpu];
        for (int instance = -1; instance < call->device->instances; instance++) {
            uuid_of(call, instance, uuid, sizeof uuid);
            if (strcmp(uuid, wanted) != 0)
                continue;
            if (instance < 0)
                return give_handle(call, call->gpu, device);
            *device = handle_of(call->gpu, instance);
            return OK;
        }
    }
    return NOT_FOUND;
}

EXPORT int nvmlDeviceGetHandleByUUID(const char *wanted, nvml_device *device)
{
    BEGIN(NULL, FOR_SYSTEM);
    return by_uuid(&call, wanted, device);
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
    for (call.gpu = 0; call.gpu < call.scenario->devices; call.gpu++) {
        call.device = call.scenario->device[call.gpu];
        pci_info(&call, &info);
        if (info.domain == domain && info.bus == bus && info.device == slot)
            return give_handle(&call, call.gpu, device);
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

static int hex_digit(char c)
{
    const char *digits = "0123456789abcdef";
    const char *found = c ? strchr(digits, c | 0x20) : NULL;

    return found ? (int)(found - digits) : -1;
}

EXPORT int nvmlDeviceGetName(nvml_device device, char *name, unsigned length)
{
    char text[192] = "";
    const char *hex, *profile;
    const struct json *given;

    BEGIN(device, FOR_MIG_TOO);
    given = entity_get(&call.device->self, "name");
    if (given && json_get(given, "error"))
        return (int)json_number(json_get(given, "error"), UNKNOWN);
    snprintf(text, sizeof text - 64, "%s", json_string(given, ""));
    hex = json_string(entity_get(&call.device->self, "name_hex"), NULL);
    if (hex) {
        size_t bytes = 0;

        for (; hex_digit(hex[0]) >= 0 && hex_digit(hex[1]) >= 0 && bytes < 90; hex += 2)
            text[bytes++] = (char)(hex_digit(hex[0]) << 4 | hex_digit(hex[1]));
        text[bytes] = 0;
    }
    if (call.instance >= 0) {
        profile = json_string(entity_get(call.entity, "profile"), "1g.10gb");
        strcat(text, " MIG ");
        strncat(text, profile, 48);
    }
    return copy_text(text, name, length);
}

EXPORT int nvmlDeviceGetUUID(nvml_device device, char *uuid, unsigned length)
{
    char text[96];

    BEGIN(device, FOR_MIG_TOO | WHEN_LOST);
    uuid_of(&call, call.instance, text, sizeof text);
    return copy_text(text, uuid, length);
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

EXPORT int nvmlDeviceGetMinorNumber(nvml_device device, unsigned *minor)
{
    BEGIN(device, 0);
    REQUIRE(minor);
    *minor = (unsigned)entity_number(call.entity, "minor", call.t, call.gpu);
    return OK;
}

EXPORT int nvmlDeviceGetModuleId(nvml_device device, unsigned *module)
{
    BEGIN(device, 0);
    REQUIRE(module);
    *module = (unsigned)entity_number(call.entity, "module_id", call.t, call.gpu);
    return OK;
}

EXPORT int nvmlDeviceGetSerial(nvml_device device, char *serial, unsigned length)
{
    char text[32];

    BEGIN(device, 0);
    if (entity_get(call.entity, "serial"))
        return read_text(&call, "serial", serial, length);
    snprintf(text, sizeof text, "165%010d", call.gpu + 1);
    return copy_text(text, serial, length);
}

EXPORT int nvmlDeviceGetBoardPartNumber(nvml_device device, char *number, unsigned length)
{
    BEGIN(device, 0);
    return read_text(&call, "board_part_number", number, length);
}

EXPORT int nvmlDeviceGetVbiosVersion(nvml_device device, char *version, unsigned length)
{
    BEGIN(device, 0);
    return read_text(&call, "vbios", version, length);
}

EXPORT int nvmlDeviceGetPciInfo_v3(nvml_device device, struct nvml_pci_info *info)
{
    BEGIN(device, 0);
    REQUIRE(info);
    pci_info(&call, info);
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
    pci_info(&call, &plain);
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

EXPORT int nvmlDeviceGetBrand(nvml_device device, unsigned *brand)
{
    BEGIN(device, 0);
    return read_uint(&call, "brand", 1, brand);
}

EXPORT int nvmlDeviceGetArchitecture(nvml_device device, unsigned *architecture)
{
    BEGIN(device, 0);
    return read_uint(&call, "architecture", 1, architecture);
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

EXPORT int nvmlDeviceGetNumGpuCores(nvml_device device, unsigned *cores)
{
    BEGIN(device, 0);
    return read_uint(&call, "cores", 1, cores);
}

EXPORT int nvmlDeviceGetMemoryBusWidth(nvml_device device, unsigned *width)
{
    BEGIN(device, 0);
    return read_uint(&call, "bus_width", 1, width);
}

/* ---------- modes ---------- */

#define MODE(function, path)                                   \
    EXPORT int function(nvml_device device, unsigned *mode)    \
    {                                                          \
        BEGIN(device, 0);                                      \
        return read_uint(&call, path, 1, mode);                \
    }

MODE(nvmlDeviceGetPersistenceMode, "modes.persistence")
MODE(nvmlDeviceGetComputeMode, "modes.compute")
MODE(nvmlDeviceGetVirtualizationMode, "modes.virtualization")
MODE(nvmlDeviceGetAccountingMode, "modes.accounting")
MODE(nvmlDeviceGetDisplayActive, "modes.display_active")
MODE(nvmlDeviceGetDisplayMode, "modes.display_mode")

/* ---------- everything else pynvml asks for ---------- */

int stub_call(const char *function, int *slot, const void *first)
{
    struct call call;
    int gpu, instance;
    unsigned flags = handle_decode(first, &gpu, &instance) ? FOR_MIG_TOO : FOR_SYSTEM;
    int code = call_begin(&call, function, slot, first, flags);

    return code ? code : NOT_SUPPORTED;
}
