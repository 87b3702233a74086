/* SPDX-License-Identifier: Apache-2.0 */
/* Utilization, memory, power, temperature, clocks, fans and PCIe. */
#include "scenario.h"

#include <math.h>
#include <stddef.h>

/* ---------- utilization ---------- */

/* What the driver shows is the mean of the last whole sample period. */
static int over_last_period(const struct call *call, enum integral which, const char *path,
                            double *value)
{
    double period = entity_number(call->entity, "sample_period", call->t, 1.0 / 6);
    double whole = floor(call->t / period);
    int code = read_number(call, path, value);

    if (code || whole < 1)
        return code;
    *value = entity_mean(call->scenario, call->gpu, call->instance, which,
                         call->scenario->epoch + (ns_t)llround((whole - 1) * period * 1e9),
                         call->scenario->epoch + (ns_t)llround(whole * period * 1e9));
    return OK;
}

EXPORT int nvmlDeviceGetUtilizationRates(nvml_device device, struct nvml_utilization *rates)
{
    double gpu, memory;

    BEGIN(device, NOT_UNDER_MIG);
    REQUIRE(rates);
    code = over_last_period(&call, I_UTILIZATION, "utilization", &gpu);
    if (code == OK)
        code = over_last_period(&call, I_MEMORY_UTILIZATION, "memory_utilization", &memory);
    if (code)
        return code;
    rates->gpu = rounded(gpu);
    rates->memory = rounded(memory);
    return OK;
}

#define ENGINE(function, which, path)                                                       \
    EXPORT int function(nvml_device device, unsigned *utilization, unsigned *period_us)     \
    {                                                                                       \
        double value;                                                                       \
                                                                                            \
        BEGIN(device, NOT_UNDER_MIG);                                                       \
        REQUIRE(utilization && period_us);                                                  \
        code = over_last_period(&call, which, path, &value);                                \
        if (code)                                                                           \
            return code;                                                                    \
        *utilization = rounded(value);                                                      \
        *period_us = rounded(entity_number(call.entity, "sample_period", call.t, 0) * 1e6); \
        return OK;                                                                          \
    }

ENGINE(nvmlDeviceGetEncoderUtilization, I_ENCODER, "encoder_utilization")
ENGINE(nvmlDeviceGetDecoderUtilization, I_DECODER, "decoder_utilization")
ENGINE(nvmlDeviceGetJpgUtilization, I_JPEG, "jpeg_utilization")
ENGINE(nvmlDeviceGetOfaUtilization, I_OFA, "ofa_utilization")

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
    code = read_over(&call, I_POWER, entity_number(call.entity, "power_window", call.t, 0),
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
        *millijoules = (ull)(1e3 * (start + entity_integral(call.scenario, call.gpu, -1, I_POWER,
                                                            call.now)) + 1e-6);
    return code;
}

static int power_limit(const struct call *call, const char *path, unsigned *milliwatts)
{
    int given = entity_get(call->entity, path) != NULL;

    return read_uint(call, given ? path : "power_limits.default", 1e3, milliwatts);
}

EXPORT int nvmlDeviceGetEnforcedPowerLimit(nvml_device device, unsigned *limit)
{
    BEGIN(device, 0);
    return power_limit(&call, "power_limits.enforced", limit);
}

EXPORT int nvmlDeviceGetPowerManagementLimit(nvml_device device, unsigned *limit)
{
    BEGIN(device, 0);
    return power_limit(&call, "power_limits.management", limit);
}

EXPORT int nvmlDeviceGetPowerManagementDefaultLimit(nvml_device device, unsigned *limit)
{
    BEGIN(device, 0);
    return power_limit(&call, "power_limits.default", limit);
}

EXPORT int nvmlDeviceGetPowerManagementLimitConstraints(nvml_device device, unsigned *low,
                                                        unsigned *high)
{
    BEGIN(device, 0);
    code = power_limit(&call, "power_limits.min", low);
    return code ? code : power_limit(&call, "power_limits.max", high);
}

EXPORT int nvmlDeviceGetPowerManagementMode(nvml_device device, unsigned *mode)
{
    BEGIN(device, 0);
    REQUIRE(mode);
    *mode = 1;
    return OK;
}

EXPORT int nvmlDeviceGetViolationStatus(nvml_device device, unsigned policy,
                                        struct nvml_violation *status)
{
    static const int WHICH[12] = {
        I_THROTTLE_POWER, I_THROTTLE_THERMAL, I_THROTTLE_SYNC_BOOST, I_THROTTLE_BOARD_LIMIT,
        I_THROTTLE_LOW_UTILIZATION, I_THROTTLE_RELIABILITY, -1, -1, -1, -1,
        I_THROTTLE_APP_CLOCKS, I_THROTTLE_BASE_CLOCKS,
    };
    double now;

    BEGIN(device, 0);
    REQUIRE(status && policy < 12 && WHICH[policy] >= 0);
    code = read_over(&call, (enum integral)WHICH[policy], 0, &now);
    if (code)
        return code;
    status->reference_time = (ull)(call.now / 1000);
    status->violation_time = (ull)(1e9 * entity_integral(call.scenario, call.gpu, -1,
                                                         (enum integral)WHICH[policy], call.now));
    return OK;
}

/* ---------- temperature and fans ---------- */

EXPORT int nvmlDeviceGetTemperature(nvml_device device, unsigned sensor, unsigned *celsius)
{
    BEGIN(device, 0);
    REQUIRE(sensor == 0);
    return read_uint(&call, "temperature.gpu", 1, celsius);
}

EXPORT int nvmlDeviceGetTemperatureV(nvml_device device, struct nvml_temperature *temperature)
{
    double celsius;

    BEGIN(device, 0);
    REQUIRE(temperature);
    if (temperature->version != VERSION_OF(*temperature, 1))
        return VERSION_MISMATCH;
    REQUIRE(temperature->sensor == 0);
    code = read_number(&call, "temperature.gpu", &celsius);
    if (code == OK)
        temperature->temperature = (int)lround(celsius);
    return code;
}

EXPORT int nvmlDeviceGetMarginTemperature(nvml_device device, struct nvml_margin *margin)
{
    double celsius;

    BEGIN(device, 0);
    REQUIRE(margin);
    if (margin->version != VERSION_OF(*margin, 1))
        return VERSION_MISMATCH;
    code = read_number(&call, "temperature.margin", &celsius);
    if (code == OK)
        margin->margin = (int)lround(celsius);
    return code;
}

EXPORT int nvmlDeviceGetTemperatureThreshold(nvml_device device, unsigned threshold,
                                             unsigned *celsius)
{
    static const char *const PATHS[] = {
        "temperature.thresholds.shutdown", "temperature.thresholds.slowdown",
        "temperature.thresholds.memory_max", "temperature.thresholds.gpu_max",
    };

    BEGIN(device, 0);
    if (threshold >= sizeof PATHS / sizeof *PATHS)
        return NOT_SUPPORTED;
    return read_uint(&call, PATHS[threshold], 1, celsius);
}

EXPORT int nvmlDeviceGetNumFans(nvml_device device, unsigned *count)
{
    const struct json *fans;

    BEGIN(device, 0);
    REQUIRE(count);
    code = read_json(&call, "fans", &fans);
    if (code == OK)
        *count = (unsigned)fans->count;
    return code;
}

static int fan_speed(const struct call *call, unsigned fan, unsigned *percent)
{
    char path[24] = "fans.";
    const struct json *fans;
    int code = read_json(call, "fans", &fans);

    if (code)
        return code;
    if (fan >= fans->count)
        return fans->count ? INVALID_ARGUMENT : NOT_SUPPORTED;
    path[5] = (char)('0' + fan % 10);
    return read_uint(call, path, 1, percent);
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

static const char *const MAX_CLOCKS[] = {"max_clocks.graphics", "max_clocks.sm",
                                         "max_clocks.memory", "max_clocks.video"};

static int clock_now(const struct call *call, unsigned type, unsigned *mhz)
{
    double value;
    int code;

    REQUIRE(mhz && type < 4);
    code = read_over(call, (enum integral)(I_CLOCK_GRAPHICS + type), 0, &value);
    if (code == OK)
        *mhz = rounded(value);
    return code;
}

EXPORT int nvmlDeviceGetClockInfo(nvml_device device, unsigned type, unsigned *mhz)
{
    BEGIN(device, 0);
    return clock_now(&call, type, mhz);
}

EXPORT int nvmlDeviceGetMaxClockInfo(nvml_device device, unsigned type, unsigned *mhz)
{
    BEGIN(device, 0);
    REQUIRE(type < 4);
    return read_uint(&call, MAX_CLOCKS[type], 1, mhz);
}

EXPORT int nvmlDeviceGetMaxCustomerBoostClock(nvml_device device, unsigned type, unsigned *mhz)
{
    BEGIN(device, 0);
    REQUIRE(type < 4);
    if (type == 0 && entity_get(call.entity, "max_clocks.boost"))
        return read_uint(&call, "max_clocks.boost", 1, mhz);
    return read_uint(&call, MAX_CLOCKS[type], 1, mhz);
}

EXPORT int nvmlDeviceGetClock(nvml_device device, unsigned type, unsigned id, unsigned *mhz)
{
    BEGIN(device, 0);
    REQUIRE(type < 4 && id < 4);
    return id ? read_uint(&call, MAX_CLOCKS[type], 1, mhz) : clock_now(&call, type, mhz);
}

static int reasons(const struct call *call, const char *path, ull *mask)
{
    double value;
    int code;

    REQUIRE(mask);
    code = read_number(call, path, &value);
    if (code == OK)
        *mask = (ull)value;
    return code;
}

EXPORT int nvmlDeviceGetCurrentClocksEventReasons(nvml_device device, ull *mask)
{
    BEGIN(device, 0);
    return reasons(&call, "clock_event_reasons", mask);
}

EXPORT int nvmlDeviceGetCurrentClocksThrottleReasons(nvml_device device, ull *mask)
{
    BEGIN(device, 0);
    return reasons(&call, "clock_event_reasons", mask);
}

EXPORT int nvmlDeviceGetSupportedClocksEventReasons(nvml_device device, ull *mask)
{
    BEGIN(device, 0);
    return reasons(&call, "supported_clock_event_reasons", mask);
}

EXPORT int nvmlDeviceGetSupportedClocksThrottleReasons(nvml_device device, ull *mask)
{
    BEGIN(device, 0);
    return reasons(&call, "supported_clock_event_reasons", mask);
}

EXPORT int nvmlDeviceGetPerformanceState(nvml_device device, unsigned *state)
{
    BEGIN(device, 0);
    return read_uint(&call, "performance_state", 1, state);
}

EXPORT int nvmlDeviceGetPowerState(nvml_device device, unsigned *state)
{
    BEGIN(device, 0);
    return read_uint(&call, "performance_state", 1, state);
}

/* ---------- PCIe ---------- */

static int link_reading(const struct call *call, const char *path, const char *fallback,
                        unsigned *value)
{
    return read_uint(call, entity_get(call->entity, path) ? path : fallback, 1, value);
}

EXPORT int nvmlDeviceGetCurrPcieLinkGeneration(nvml_device device, unsigned *generation)
{
    BEGIN(device, 0);
    return link_reading(&call, "pcie.generation", "pcie.max_generation", generation);
}

EXPORT int nvmlDeviceGetMaxPcieLinkGeneration(nvml_device device, unsigned *generation)
{
    BEGIN(device, 0);
    return read_uint(&call, "pcie.max_generation", 1, generation);
}

EXPORT int nvmlDeviceGetGpuMaxPcieLinkGeneration(nvml_device device, unsigned *generation)
{
    BEGIN(device, 0);
    return link_reading(&call, "pcie.device_max_generation", "pcie.max_generation", generation);
}

EXPORT int nvmlDeviceGetCurrPcieLinkWidth(nvml_device device, unsigned *width)
{
    BEGIN(device, 0);
    return link_reading(&call, "pcie.width", "pcie.max_width", width);
}

EXPORT int nvmlDeviceGetMaxPcieLinkWidth(nvml_device device, unsigned *width)
{
    BEGIN(device, 0);
    return read_uint(&call, "pcie.max_width", 1, width);
}

EXPORT int nvmlDeviceGetPcieReplayCounter(nvml_device device, unsigned *replays)
{
    BEGIN(device, 0);
    return read_uint(&call, "pcie.replays", 1, replays);
}

EXPORT int nvmlDeviceGetPcieThroughput(nvml_device device, unsigned counter, unsigned *kb)
{
    double bytes;

    BEGIN(device, NOT_UNDER_MIG);
    REQUIRE(kb && counter < 2);
    sleep_us(20000); /* the real call measures for 20 ms */
    code = read_over(&call, counter ? I_PCIE_RX : I_PCIE_TX, 0.02, &bytes);
    if (code == OK)
        *kb = rounded(bytes / 1e3);
    return code;
}
