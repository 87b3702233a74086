/* SPDX-License-Identifier: Apache-2.0 */
/* ECC, row remapping, retired pages, NVLink, fabric and processes. */
#include "scenario.h"

#include <stdio.h>
#include <string.h>

/* ---------- ECC ---------- */

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
    const struct value *sram;

    BEGIN(device, 0);
    REQUIRE(status);
    if (status->version != VERSION_OF(*status, 1))
        return VERSION_MISMATCH;
    code = read_value(&call, "sram", &sram);
    if (code)
        return code;
    for (int i = 0; i < 11; i++)
        (&status->aggregate_unc_parity)[i] = (ull)sram->numbers[i];
    status->threshold_exceeded = (unsigned)sram->numbers[11];
    return OK;
}

/* ---------- rows and pages ---------- */

EXPORT int nvmlDeviceGetRemappedRows(nvml_device device, unsigned *correctable,
                                     unsigned *uncorrectable, unsigned *pending,
                                     unsigned *failure)
{
    unsigned rows[4];

    BEGIN(device, 0);
    REQUIRE(correctable && uncorrectable && pending && failure);
    code = read_uints(&call, "remapped_rows", rows, 4);
    if (code)
        return code;
    *correctable = rows[0];
    *uncorrectable = rows[1];
    *pending = rows[2];
    *failure = rows[3];
    return OK;
}

EXPORT int nvmlDeviceGetRowRemapperHistogram(nvml_device device, struct nvml_histogram *histogram)
{
    BEGIN(device, 0);
    REQUIRE(histogram);
    return read_uints(&call, "remapped_rows.histogram", &histogram->max, 5);
}

EXPORT int nvmlDeviceGetUnrepairableMemoryFlag_v1(nvml_device device, struct nvml_flag *flag)
{
    BEGIN(device, 0);
    REQUIRE(flag);
    if (flag->version != VERSION_OF(*flag, 1))
        return VERSION_MISMATCH;
    return read_uint(&call, "unrepairable_memory", 1, &flag->flag);
}

EXPORT int nvmlDeviceGetRetiredPages(nvml_device device, unsigned cause, unsigned *count,
                                     ull *addresses)
{
    const struct value *pages;
    unsigned room;

    BEGIN(device, 0);
    REQUIRE(count && cause < 2);
    code = read_value(&call, cause ? "retired_pages.double_bit" : "retired_pages.single_bit",
                      &pages);
    if (code)
        return code;
    room = addresses ? *count : 0;
    *count = (unsigned)pages->count;
    for (unsigned i = 0; i < room && i < *count; i++)
        addresses[i] = (ull)pages->numbers[i];
    return room < *count ? INSUFFICIENT_SIZE : OK;
}

/* ---------- NVLink and fabric ---------- */

EXPORT int nvmlDeviceGetNvLinkState(nvml_device device, unsigned link, unsigned *active)
{
    double links;

    BEGIN(device, 0);
    REQUIRE(active);
    code = read_number(&call, "nvlink.links", &links);
    if (code || links < 1)
        return code ? code : NOT_SUPPORTED;
    REQUIRE(link < links);
    *active = !holds(entity_get(call.entity, "nvlink.inactive"), link);
    return OK;
}

/* What is at the other end: "switch", "unknown", or the PCI address of a GPU. */
static int nvlink_remote(const struct call *call, unsigned link, char remote[32])
{
    char key[32];
    double links;
    int code = read_number(call, "nvlink.links", &links);

    if (code || links < 1)
        return code ? code : NOT_SUPPORTED;
    REQUIRE(link < links);
    snprintf(key, sizeof key, "nvlink.remote.%u", link);
    return read_text(call, key, remote, 32);
}

EXPORT int nvmlDeviceGetNvLinkRemoteDeviceType(nvml_device device, unsigned link, unsigned *type)
{
    char remote[32];

    BEGIN(device, 0);
    REQUIRE(type);
    code = nvlink_remote(&call, link, remote);
    if (code == OK)
        *type = strcmp(remote, "switch") == 0 ? 2 : strcmp(remote, "unknown") == 0 ? 0xFF : 0;
    return code;
}

EXPORT int nvmlDeviceGetNvLinkRemotePciInfo_v2(nvml_device device, unsigned link,
                                               struct nvml_pci_info *info)
{
    char remote[32];

    BEGIN(device, 0);
    REQUIRE(info);
    code = nvlink_remote(&call, link, remote);
    if (code == OK && strcmp(remote, "unknown") == 0)
        code = NOT_SUPPORTED;
    if (code == OK)
        pci_address(strcmp(remote, "switch") == 0 ? "0:5:0.0" : remote, info);
    return code;
}

static int fabric(const struct call *call, struct nvml_fabric_v3 *known)
{
    unsigned numbers[5];
    int code = read_uints(call, "fabric", numbers, 5);

    if (code)
        return code;
    memset(known, 0, sizeof *known);
    hex_bytes(entity_text(call->entity, "fabric.cluster_uuid", ""), known->cluster,
              sizeof known->cluster);
    known->state = (uint8_t)numbers[0];
    known->status = numbers[1];
    known->clique = numbers[2];
    known->health_mask = numbers[3];
    known->health_summary = (uint8_t)numbers[4];
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
    const struct table *table = call->device->self.shared;
    struct call whole = *call; /* a MIG device's processes are in the GPU's list */
    unsigned room, listed, found = 0, gi = 0, ci = 0;
    int code;

    REQUIRE(count);
    whole.entity = &call->device->self;
    code = read_uint(&whole, key, 1, &listed);
    if (code)
        return code;
    if (call->instance >= 0) {
        gi = (unsigned)entity_number(call->entity, "gi", call->t, call->instance);
        ci = (unsigned)entity_number(call->entity, "ci", call->t, 0);
    }
    room = out ? *count : 0;
    for (int i = 0; i < (int)listed; i++) {
        const struct value *bytes = item_get(table, key, i, "bytes");
        struct nvml_process entry = {
            (unsigned)item_number(table, key, i, "pid", 0),
            !bytes || bytes->kind == NOTHING ? NOT_AVAILABLE_ULL
                                             : (ull)wave_value(table, bytes, call->t),
            (unsigned)item_number(table, key, i, "gi", NO_INSTANCE),
            (unsigned)item_number(table, key, i, "ci", NO_INSTANCE),
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
