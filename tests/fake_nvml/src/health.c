/* SPDX-License-Identifier: Apache-2.0 */
/* ECC, row remapping, retired pages, NVLink, fabric and processes. */
#include "scenario.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---------- ECC ---------- */

EXPORT int nvmlDeviceGetEccMode(nvml_device device, unsigned *mode, unsigned *pending)
{
    BEGIN(device, 0);
    code = read_uint(&call, "ecc.enabled", 1, mode);
    return code ? code : read_uint(&call, "ecc.pending", 1, pending);
}

EXPORT int nvmlDeviceGetTotalEccErrors(nvml_device device, unsigned error, unsigned counter,
                                       ull *count)
{
    char key[32];

    BEGIN(device, 0);
    REQUIRE(error < 2 && counter < 2);
    snprintf(key, sizeof key, "ecc.%u.%u", error, counter);
    return read_ull(&call, key, count);
}

EXPORT int nvmlDeviceGetMemoryErrorCounter(nvml_device device, unsigned error, unsigned counter,
                                           unsigned location, ull *count)
{
    char key[48];

    BEGIN(device, 0);
    REQUIRE(error < 2 && counter < 2 && location < 8);
    snprintf(key, sizeof key, "ecc.%u.%u.%u", error, counter, location);
    return read_ull(&call, key, count);
}

EXPORT int nvmlDeviceGetSramEccErrorStatus(nvml_device device, struct nvml_sram_status *status)
{
    const struct json *sram;
    ull *counts;

    BEGIN(device, 0);
    REQUIRE(status);
    if (status->version != VERSION_OF(*status, 1))
        return VERSION_MISMATCH;
    code = read_json(&call, "sram", &sram);
    if (code)
        return code;
    counts = &status->aggregate_unc_parity;
    for (size_t i = 0; i < 11; i++)
        counts[i] = (ull)wave_value(json_at(sram, i), call.t);
    status->threshold_exceeded = (unsigned)wave_value(json_at(sram, 11), call.t);
    return OK;
}

/* ---------- rows and pages ---------- */

EXPORT int nvmlDeviceGetRemappedRows(nvml_device device, unsigned *correctable,
                                     unsigned *uncorrectable, unsigned *pending,
                                     unsigned *failure)
{
    BEGIN(device, 0);
    code = read_uint(&call, "remapped_rows.correctable", 1, correctable);
    if (code == OK)
        code = read_uint(&call, "remapped_rows.uncorrectable", 1, uncorrectable);
    if (code == OK)
        code = read_uint(&call, "remapped_rows.pending", 1, pending);
    return code ? code : read_uint(&call, "remapped_rows.failure", 1, failure);
}

EXPORT int nvmlDeviceGetRemappedRows_v2(nvml_device device, unsigned *info)
{
    static const char *const PATHS[] = {
        "remapped_rows.correctable", "remapped_rows.correctable_inactive",
        "remapped_rows.uncorrectable", "remapped_rows.uncorrectable_inactive",
        "remapped_rows.pending", "remapped_rows.failure",
    };

    BEGIN(device, 0);
    REQUIRE(info);
    for (size_t i = 0; code == OK && i < sizeof PATHS / sizeof *PATHS; i++)
        code = read_uint(&call, PATHS[i], 1, &info[i]);
    return code;
}

EXPORT int nvmlDeviceGetRowRemapperHistogram(nvml_device device, struct nvml_histogram *histogram)
{
    const struct json *banks;

    BEGIN(device, 0);
    REQUIRE(histogram);
    code = read_json(&call, "remapped_rows.histogram", &banks);
    if (code)
        return code;
    for (size_t i = 0; i < 5; i++)
        (&histogram->max)[i] = (unsigned)json_number(json_at(banks, i), 0);
    return OK;
}

EXPORT int nvmlDeviceGetUnrepairableMemoryFlag_v1(nvml_device device, struct nvml_flag *flag)
{
    BEGIN(device, 0);
    REQUIRE(flag);
    if (flag->version != VERSION_OF(*flag, 1))
        return VERSION_MISMATCH;
    return read_uint(&call, "unrepairable_memory", 1, &flag->flag);
}

static int retired(const struct call *call, unsigned cause, unsigned *count, ull *addresses,
                   ull *timestamps)
{
    const struct json *pages;
    unsigned room;
    int code;

    REQUIRE(count && cause < 2);
    code = read_json(call, cause ? "retired_pages.double_bit" : "retired_pages.single_bit",
                     &pages);
    if (code)
        return code;
    room = *count;
    *count = (unsigned)pages->count;
    if (pages->count == 0)
        return OK;
    if (!addresses || room < pages->count)
        return INSUFFICIENT_SIZE;
    for (size_t i = 0; i < pages->count; i++) {
        const struct json *page = pages->items[i];

        addresses[i] = (ull)json_number(page->type == JSON_ARRAY ? json_at(page, 0) : page, 0);
        if (timestamps)
            timestamps[i] = (ull)json_number(json_at(page, 1), 0);
    }
    return OK;
}

EXPORT int nvmlDeviceGetRetiredPages(nvml_device device, unsigned cause, unsigned *count,
                                     ull *addresses)
{
    BEGIN(device, 0);
    return retired(&call, cause, count, addresses, NULL);
}

EXPORT int nvmlDeviceGetRetiredPages_v2(nvml_device device, unsigned cause, unsigned *count,
                                        ull *addresses, ull *timestamps)
{
    BEGIN(device, 0);
    return retired(&call, cause, count, addresses, timestamps);
}

/* ---------- NVLink and fabric ---------- */

static int check_link(const struct call *call, unsigned link)
{
    double links;
    int code = read_number(call, "nvlink.links", &links);

    if (code)
        return code;
    if (links < 1)
        return NOT_SUPPORTED;
    return link < links ? OK : INVALID_ARGUMENT;
}

EXPORT int nvmlDeviceGetNvLinkState(nvml_device device, unsigned link, unsigned *active)
{
    BEGIN(device, 0);
    REQUIRE(active);
    code = check_link(&call, link);
    if (code == OK)
        *active = !json_holds(entity_get(call.entity, "nvlink.inactive"), link);
    return code;
}

EXPORT int nvmlDeviceGetNvLinkVersion(nvml_device device, unsigned link, unsigned *version)
{
    BEGIN(device, 0);
    code = check_link(&call, link);
    return code ? code : read_uint(&call, "nvlink.version", 1, version);
}

EXPORT int nvmlDeviceGetNvLinkRemoteDeviceType(nvml_device device, unsigned link, unsigned *type)
{
    BEGIN(device, 0);
    code = check_link(&call, link);
    return code ? code : read_uint(&call, "nvlink.remote_type", 1, type);
}

EXPORT int nvmlDeviceGetNvLinkCapability(nvml_device device, unsigned link, unsigned capability,
                                         unsigned *yes)
{
    BEGIN(device, 0);
    REQUIRE(yes && link < 36 && capability < 6);
    *yes = 1; /* true even past the last link, as on hardware */
    return OK;
}

EXPORT int nvmlDeviceGetNvLinkErrorCounter(nvml_device device, unsigned link, unsigned counter,
                                           ull *count)
{
    static const char *const PATHS[] = {"nvlink.errors.replay", "nvlink.errors.recovery",
                                        "nvlink.errors.crc_flit", "nvlink.errors.crc_data"};
    double value;

    BEGIN(device, 0);
    REQUIRE(count && counter < 4);
    code = check_link(&call, link);
    if (code == OK)
        code = read_number(&call, PATHS[counter], &value);
    if (code == OK)
        *count = link == 0 ? (ull)value : 0; /* link 0 has them all */
    return code;
}

static int fabric(const struct call *call, struct nvml_fabric_v3 *known)
{
    const struct json *found;
    int code = read_json(call, "fabric.state", &found);

    if (code)
        return code;
    memset(known, 0, sizeof *known);
    hex_bytes(json_string(entity_get(call->entity, "fabric.cluster_uuid"), ""), known->cluster,
              sizeof known->cluster);
    known->status = (unsigned)entity_number(call->entity, "fabric.status", call->t, 0);
    known->clique = (unsigned)entity_number(call->entity, "fabric.clique", call->t, 0);
    known->state = (uint8_t)entity_number(call->entity, "fabric.state", call->t, 0);
    known->health_mask = (uint32_t)entity_number(call->entity, "fabric.health_mask", call->t, 0);
    known->health_summary =
        (uint8_t)entity_number(call->entity, "fabric.health_summary", call->t, 0);
    return OK;
}

EXPORT int nvmlDeviceGetGpuFabricInfoV(nvml_device device, struct nvml_fabric_v3 *info)
{
    struct nvml_fabric_v3 known;

    BEGIN(device, 0);
    REQUIRE(info);
    if (info->version != VERSION_OF(struct nvml_fabric_v2, 2)
        && info->version != VERSION_OF(struct nvml_fabric_v3, 3))
        return VERSION_MISMATCH;
    code = fabric(&call, &known);
    if (code)
        return code;
    known.version = info->version;
    memcpy(info, &known, info->version >> 24 == 2 ? sizeof(struct nvml_fabric_v2) : sizeof known);
    return OK;
}

EXPORT int nvmlDeviceGetGpuFabricInfo(nvml_device device, struct nvml_fabric_v1 *info)
{
    struct nvml_fabric_v3 known;

    BEGIN(device, 0);
    REQUIRE(info);
    code = fabric(&call, &known);
    if (code)
        return code;
    memcpy(info->cluster, known.cluster, sizeof info->cluster);
    info->status = known.status;
    info->clique = known.clique;
    info->state = known.state;
    return OK;
}

/* ---------- processes ---------- */

static int processes(const struct call *call, const char *key, unsigned *count,
                     struct nvml_process *out)
{
    struct call whole = *call; /* a MIG device's processes are in the GPU's list */
    const struct json *list;
    unsigned room, found = 0, gi = 0, ci = 0;
    int code;

    REQUIRE(count);
    whole.entity = &call->device->self;
    code = read_json(&whole, key, &list);
    if (code)
        return code;
    if (call->instance >= 0) {
        gi = (unsigned)entity_number(call->entity, "gi", call->t, call->instance);
        ci = (unsigned)entity_number(call->entity, "ci", call->t, 0);
    }
    room = out ? *count : 0;
    for (size_t i = 0; i < list->count; i++) {
        const struct json *process = list->items[i];
        const struct json *bytes = json_get(process, "bytes");
        struct nvml_process entry = {
            (unsigned)json_number(json_get(process, "pid"), 0),
            !bytes || bytes->type == JSON_NULL ? NOT_AVAILABLE_ULL
                                               : (ull)wave_value(bytes, call->t),
            (unsigned)json_number(json_get(process, "gi"), NO_INSTANCE),
            (unsigned)json_number(json_get(process, "ci"), NO_INSTANCE),
        };

        if (call->instance >= 0 && (entry.gi != gi || entry.ci != ci))
            continue;
        if (found < room)
            out[found] = entry;
        found++;
    }
    *count = found;
    return found > room ? INSUFFICIENT_SIZE : OK;
}

#define PROCESSES(function, key)                                                              \
    EXPORT int function(nvml_device device, unsigned *count, struct nvml_process *out)        \
    {                                                                                         \
        BEGIN(device, FOR_MIG_TOO);                                                           \
        return processes(&call, key, count, out);                                             \
    }

PROCESSES(nvmlDeviceGetComputeRunningProcesses_v2, "processes.compute")
PROCESSES(nvmlDeviceGetComputeRunningProcesses_v3, "processes.compute")
PROCESSES(nvmlDeviceGetGraphicsRunningProcesses_v2, "processes.graphics")
PROCESSES(nvmlDeviceGetGraphicsRunningProcesses_v3, "processes.graphics")
PROCESSES(nvmlDeviceGetMPSComputeRunningProcesses_v2, "processes.mps")
PROCESSES(nvmlDeviceGetMPSComputeRunningProcesses_v3, "processes.mps")
