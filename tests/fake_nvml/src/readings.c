/* SPDX-License-Identifier: Apache-2.0 */
/* Utilization, memory, power, temperature, clocks, fans and PCIe; all that is one number. */
#include "scenario.h"

#include <math.h>
#include <stdio.h>

/* ---------- one number ---------- */

#define VALUE(function, key, scale)                             \
    EXPORT int function(nvml_device device, unsigned *value)    \
    {                                                           \
        BEGIN(device, 0);                                       \
        return read_uint(&call, key, scale, value);             \
    }

VALUE(nvmlDeviceGetMinorNumber, "minor", 1)
VALUE(nvmlDeviceGetArchitecture, "architecture", 1)
VALUE(nvmlDeviceGetNumGpuCores, "cores", 1)
VALUE(nvmlDeviceGetMemoryBusWidth, "bus_width", 1)
VALUE(nvmlDeviceGetPersistenceMode, "modes.persistence", 1)
VALUE(nvmlDeviceGetComputeMode, "modes.compute", 1)
VALUE(nvmlDeviceGetVirtualizationMode, "modes.virtualization", 1)
VALUE(nvmlDeviceGetDisplayActive, "modes.display_active", 1)
VALUE(nvmlDeviceGetDisplayMode, "modes.display_mode", 1)
VALUE(nvmlDeviceGetPerformanceState, "performance_state", 1)
VALUE(nvmlDeviceGetEnforcedPowerLimit, "power_limits.enforced", 1e3)
VALUE(nvmlDeviceGetPowerManagementLimit, "power_limits.management", 1e3)
VALUE(nvmlDeviceGetPowerManagementDefaultLimit, "power_limits.default", 1e3)
VALUE(nvmlDeviceGetCurrPcieLinkGeneration, "pcie.generation", 1)
VALUE(nvmlDeviceGetMaxPcieLinkGeneration, "pcie.max_generation", 1)
VALUE(nvmlDeviceGetCurrPcieLinkWidth, "pcie.width", 1)
VALUE(nvmlDeviceGetMaxPcieLinkWidth, "pcie.max_width", 1)
VALUE(nvmlDeviceGetPcieReplayCounter, "pcie.replays", 1)
VALUE(nvmlDeviceGetRetiredPagesPendingStatus, "retired_pages.pending", 1)

#define PAIR(function, key, other, scale)                                           \
    EXPORT int function(nvml_device device, unsigned *one, unsigned *two)           \
    {                                                                               \
        BEGIN(device, 0);                                                           \
        code = read_uint(&call, key, scale, one);                                   \
        return code ? code : read_uint(&call, other, scale, two);                   \
    }

PAIR(nvmlDeviceGetPowerManagementLimitConstraints, "power_limits.min", "power_limits.max", 1e3)
PAIR(nvmlDeviceGetEccMode, "ecc.enabled", "ecc.pending", 1)

#define MASK(function, key)                              \
    EXPORT int function(nvml_device device, ull *mask)   \
    {                                                    \
        BEGIN(device, 0);                                \
        return read_ull(&call, key, mask);               \
    }

MASK(nvmlDeviceGetCurrentClocksEventReasons, "clock_event_reasons")
MASK(nvmlDeviceGetCurrentClocksThrottleReasons, "clock_event_reasons")
MASK(nvmlDeviceGetSupportedEventTypes, "event_types")

/* A reading of which NVML numbers the kinds. */
static int numbered(const struct call *call, const char *group, unsigned kind, unsigned *value)
{
    char key[48];

    snprintf(key, sizeof key, "%s.%u", group, kind);
    return read_uint(call, key, 1, value);
}

/* ---------- utilization ---------- */

/* What the driver shows is the mean of the last whole sample period. */
static int over_last_period(const struct call *call, const char *key, double *value)
{
    double period = entity_number(call->entity, "sample_period", call->t, 1.0 / 6);
    double whole = floor(call->t / period);
    int code = read_number(call, key, value);

    if (code || whole < 1)
        return code;
    *value = entity_mean(call->scenario, call->gpu, call->instance, key,
                         at_seconds(call->scenario, (whole - 1) * period),
                         at_seconds(call->scenario, whole * period));
    return OK;
}

EXPORT int nvmlDeviceGetUtilizationRates(nvml_device device, struct nvml_utilization *rates)
{
    double gpu, memory;

    BEGIN(device, NOT_UNDER_MIG);
    REQUIRE(rates);
    code = over_last_period(&call, "utilization", &gpu);
    if (code == OK)
        code = over_last_period(&call, "memory_utilization", &memory);
    if (code)
        return code;
    rates->gpu = rounded(gpu);
    rates->memory = rounded(memory);
    return OK;
}

#define ENGINE(function, key)                                                       \
    EXPORT int function(nvml_device device, unsigned *utilization, unsigned *period_us)     \
    {                                                                                       \
        double value;                                                                       \
                                                                                            \
        BEGIN(device, NOT_UNDER_MIG);                                                       \
        REQUIRE(utilization && period_us);                                                  \
        code = over_last_period(&call, key, &value);                                       \
        if (code)                                                                           \
            return code;                                                                    \
        *utilization = rounded(value);                                                      \
        *period_us = rounded(entity_number(call.entity, "sample_period", call.t, 0) * 1e6); \
        return OK;                                                                          \
    }

ENGINE(nvmlDeviceGetEncoderUtilization, "encoder_utilization")
ENGINE(nvmlDeviceGetDecoderUtilization, "decoder_utilization")
ENGINE(nvmlDeviceGetJpgUtilization, "jpeg_utilization")
ENGINE(nvmlDeviceGetOfaUtilization, "ofa_utilization")

/* ---------- memory ---------- */

static int memory(const struct call *call, struct nvml_memory_v2 *memory)
{
    double total, used;
    int code;

    if (call->instance >= 0) {
        total = entity_number(call->entity, "memory_mb", call->t, 9728) * 1048576;
        used = entity_number(call->entity, "memory_used", call->t, 0);
        memory->reserved = 0;
    } else {
        code = read_number(call, "memory.total", &total);
        if (code == OK)
            code = read_number(call, "memory.used", &used);
        if (code)
            return code;
        memory->reserved = (ull)llround(entity_number(call->entity, "memory.reserved", call->t, 0));
    }
    memory->total = (ull)llround(total);
    memory->used = (ull)llround(used);
    memory->free = memory->total - memory->reserved - memory->used;
    return OK;
}

EXPORT int nvmlDeviceGetMemoryInfo(nvml_device device, struct nvml_memory *info)
{
    struct nvml_memory_v2 v2;

    BEGIN(device, FOR_MIG_TOO);
    REQUIRE(info);
    code = memory(&call, &v2);
    if (code)
        return code;
    info->total = v2.total;
    info->free = v2.free;
    info->used = v2.used + v2.reserved;
    return OK;
}

EXPORT int nvmlDeviceGetMemoryInfo_v2(nvml_device device, struct nvml_memory_v2 *info)
{
    BEGIN(device, FOR_MIG_TOO);
    REQUIRE(info);
    if (info->version != VERSION_OF(*info, 2))
        return VERSION_MISMATCH;
    return memory(&call, info);
}

EXPORT int nvmlDeviceGetBAR1MemoryInfo(nvml_device device, struct nvml_bar1 *info)
{
    double total, used;

    BEGIN(device, FOR_MIG_TOO);
    REQUIRE(info);
    if (call.instance >= 0)
        call.entity = &call.device->self;
    code = read_number(&call, "bar1.total", &total);
    if (code == OK)
        code = read_number(&call, "bar1.used", &used);
    if (code)
        return code;
    info->total = (ull)total;
    info->used = (ull)used;
    info->free = info->total - info->used;
    return OK;
}

/* ---------- power ---------- */

EXPORT int nvmlDeviceGetPowerUsage(nvml_device device, unsigned *milliwatts)
{
    double watts;

    BEGIN(device, 0);
    REQUIRE(milliwatts);
    code = read_over(&call, "power", entity_number(call.entity, "power_window", call.t, 0),
                     &watts);
    if (code == OK)
        *milliwatts = rounded(watts * 1e3);
    return code;
}

EXPORT int nvmlDeviceGetTotalEnergyConsumption(nvml_device device, ull *millijoules)
{
    double start;

    BEGIN(device, 0);
    REQUIRE(millijoules);
    code = read_number(&call, "energy", &start);
    if (code == OK)
        *millijoules = (ull)(1e3 * (start + entity_integral(call.scenario, call.gpu, -1, "power",
                                                            call.now)) + 1e-6);
    return code;
}

/* ---------- temperature and fans ---------- */

EXPORT int nvmlDeviceGetTemperature(nvml_device device, unsigned sensor, unsigned *celsius)
{
    BEGIN(device, 0);
    REQUIRE(sensor == 0);
    return read_uint(&call, "temperature.gpu", 1, celsius);
}

static int celsius(const struct call *call, const char *key, int *celsius)
{
    double value;
    int code = read_number(call, key, &value);

    if (code == OK)
        *celsius = (int)lround(value);
    return code;
}

EXPORT int nvmlDeviceGetTemperatureV(nvml_device device, struct nvml_temperature *temperature)
{
    BEGIN(device, 0);
    REQUIRE(temperature);
    if (temperature->version != VERSION_OF(*temperature, 1))
        return VERSION_MISMATCH;
    REQUIRE(temperature->sensor == 0);
    return celsius(&call, "temperature.gpu", &temperature->temperature);
}

EXPORT int nvmlDeviceGetMarginTemperature(nvml_device device, struct nvml_margin *margin)
{
    BEGIN(device, 0);
    REQUIRE(margin);
    if (margin->version != VERSION_OF(*margin, 1))
        return VERSION_MISMATCH;
    return celsius(&call, "temperature.margin", &margin->margin);
}

EXPORT int nvmlDeviceGetTemperatureThreshold(nvml_device device, unsigned threshold,
                                             unsigned *celsius)
{
    BEGIN(device, 0);
    return numbered(&call, "temperature.thresholds", threshold, celsius);
}

VALUE(nvmlDeviceGetNumFans, "fans", 1)

static int fan_speed(const struct call *call, unsigned fan, unsigned *percent)
{
    unsigned count;
    int code = read_uint(call, "fans", 1, &count);

    if (code == OK && fan >= count)
        return count ? INVALID_ARGUMENT : NOT_SUPPORTED;
    return code ? code : numbered(call, "fans", fan, percent);
}

EXPORT int nvmlDeviceGetFanSpeed_v2(nvml_device device, unsigned fan, unsigned *percent)
{
    BEGIN(device, 0);
    return fan_speed(&call, fan, percent);
}

EXPORT int nvmlDeviceGetFanSpeed(nvml_device device, unsigned *percent)
{
    BEGIN(device, 0);
    return fan_speed(&call, 0, percent);
}

/* ---------- clocks ---------- */

#define CLOCKS(function, group)                                                     \
    EXPORT int function(nvml_device device, unsigned type, unsigned *mhz)           \
    {                                                                               \
        BEGIN(device, 0);                                                           \
        REQUIRE(type < 4);                                                          \
        return numbered(&call, group, type, mhz);                                   \
    }

CLOCKS(nvmlDeviceGetClockInfo, "clocks")
CLOCKS(nvmlDeviceGetMaxClockInfo, "max_clocks")
CLOCKS(nvmlDeviceGetApplicationsClock, "application_clocks")
CLOCKS(nvmlDeviceGetDefaultApplicationsClock, "application_clocks")

EXPORT int nvmlDeviceGetMaxCustomerBoostClock(nvml_device device, unsigned type, unsigned *mhz)
{
    BEGIN(device, 0);
    REQUIRE(type < 4);
    return type ? numbered(&call, "max_clocks", type, mhz)
                : read_uint(&call, "max_clocks.boost", 1, mhz);
}

/* ---------- PCIe ---------- */

EXPORT int nvmlDeviceGetPcieThroughput(nvml_device device, unsigned counter, unsigned *kb)
{
    double bytes;

    BEGIN(device, NOT_UNDER_MIG);
    REQUIRE(kb && counter < 2);
    sleep_us(20000); /* the real call measures for 20 ms */
    code = read_over(&call, counter ? "pcie.rx" : "pcie.tx", 0.02, &bytes);
    if (code == OK)
        *kb = rounded(bytes / 1e3);
    return code;
}
