/* SPDX-License-Identifier: Apache-2.0 */
/* Running totals and means of readings, across changes of the scenario. */
#include "scenario.h"

#include "waves.h"

#include <math.h>
#include <string.h>

static const struct {
    const char *path;
    const char *fallback;
} INTEGRAL_PATHS[INTEGRALS] = {
    [I_POWER] = {"power", "idle_power"},
    [I_MODULE_POWER] = {"module_power", 0},
    [I_UTILIZATION] = {"utilization", 0},
    [I_MEMORY_UTILIZATION] = {"memory_utilization", 0},
    [I_ENCODER] = {"encoder_utilization", 0},
    [I_DECODER] = {"decoder_utilization", 0},
    [I_JPEG] = {"jpeg_utilization", 0},
    [I_OFA] = {"ofa_utilization", 0},
    [I_CLOCK_GRAPHICS] = {"clocks.graphics", "max_clocks.graphics"},
    [I_CLOCK_SM] = {"clocks.sm", "max_clocks.sm"},
    [I_CLOCK_MEMORY] = {"clocks.memory", "max_clocks.memory"},
    [I_CLOCK_VIDEO] = {"clocks.video", "max_clocks.video"},
    [I_THROTTLE_POWER] = {"throttle.power", 0},
    [I_THROTTLE_THERMAL] = {"throttle.thermal", 0},
    [I_THROTTLE_SYNC_BOOST] = {"throttle.sync_boost", 0},
    [I_THROTTLE_BOARD_LIMIT] = {"throttle.board_limit", 0},
    [I_THROTTLE_LOW_UTILIZATION] = {"throttle.low_utilization", 0},
    [I_THROTTLE_RELIABILITY] = {"throttle.reliability", 0},
    [I_THROTTLE_APP_CLOCKS] = {"throttle.app_clocks", 0},
    [I_THROTTLE_BASE_CLOCKS] = {"throttle.base_clocks", 0},
    [I_THROTTLE_SW_THERMAL] = {"throttle.sw_thermal", 0},
    [I_THROTTLE_HW_THERMAL] = {"throttle.hw_thermal", 0},
    [I_THROTTLE_HW_POWER_BRAKE] = {"throttle.hw_power_brake", 0},
    [I_NVLINK_TX] = {"nvlink.tx", 0},
    [I_NVLINK_RX] = {"nvlink.rx", 0},
    [I_NVLINK_RAW_TX] = {"nvlink.raw_tx", "nvlink.tx"},
    [I_NVLINK_RAW_RX] = {"nvlink.raw_rx", "nvlink.rx"},
    [I_PCIE_TX] = {"pcie.tx", 0},
    [I_PCIE_RX] = {"pcie.rx", 0},
    [I_GPM_GRAPHICS] = {"gpm.graphics", 0},
    [I_GPM_SM] = {"gpm.sm", 0},
    [I_GPM_OCCUPANCY] = {"gpm.occupancy", 0},
    [I_GPM_INT] = {"gpm.int", 0},
    [I_GPM_TENSOR] = {"gpm.tensor", 0},
    [I_GPM_DFMA] = {"gpm.dfma", 0},
    [I_GPM_HMMA] = {"gpm.hmma", 0},
    [I_GPM_DMMA] = {"gpm.dmma", 0},
    [I_GPM_IMMA] = {"gpm.imma", 0},
    [I_GPM_DRAM] = {"gpm.dram", 0},
    [I_GPM_FP64] = {"gpm.fp64", 0},
    [I_GPM_FP32] = {"gpm.fp32", 0},
    [I_GPM_FP16] = {"gpm.fp16", 0},
    [I_GPM_PCIE_TX] = {"gpm.pcie_tx", "pcie.tx"},
    [I_GPM_PCIE_RX] = {"gpm.pcie_rx", "pcie.rx"},
    [I_GPM_NVLINK_TX] = {"gpm.nvlink_tx", "nvlink.tx"},
    [I_GPM_NVLINK_RX] = {"gpm.nvlink_rx", "nvlink.rx"},
    [I_GPM_C2C_TX] = {"gpm.c2c_tx", 0},
    [I_GPM_C2C_RX] = {"gpm.c2c_rx", 0},
    [I_GPM_C2C_DATA_TX] = {"gpm.c2c_data_tx", "gpm.c2c_tx"},
    [I_GPM_C2C_DATA_RX] = {"gpm.c2c_data_rx", "gpm.c2c_rx"},
    [I_CYCLES_SM] = {"gpm.sm", 0},
    [I_CYCLES_TENSOR] = {"gpm.tensor", 0},
    [I_CYCLES_DMMA] = {"gpm.dmma", 0},
    [I_CYCLES_HMMA] = {"gpm.hmma", 0},
    [I_CYCLES_IMMA] = {"gpm.imma", 0},
    [I_CYCLES_DFMA] = {"gpm.dfma", 0},
    [I_CYCLES_INT] = {"gpm.int", 0},
    [I_CYCLES_FP64] = {"gpm.fp64", 0},
    [I_CYCLES_FP32] = {"gpm.fp32", 0},
    [I_CYCLES_FP16] = {"gpm.fp16", 0},
    [I_CYCLES_OCCUPANCY] = {"gpm.occupancy", 0},
    [I_CYCLES_DRAM] = {"gpm.dram", 0},
};

static const struct json *integrand(struct entity *entity, enum integral which)
{
    const char *path = INTEGRAL_PATHS[which].path;
    const struct json *found;
    static const struct { enum integral first; int count; const char *path; } ENGINES[] = {
        {I_GPM_NVDEC, 8, "gpm.nvdec"},
        {I_GPM_NVJPG, 8, "gpm.nvjpg"},
        {I_GPM_OFA, 2, "gpm.ofa"},
        {I_GPM_NVENC, 4, "gpm.nvenc"},
    };

    for (size_t i = 0; !path && i < sizeof ENGINES / sizeof *ENGINES; i++) {
        int engine = (int)which - (int)ENGINES[i].first;

        if (engine < 0 || engine >= ENGINES[i].count)
            continue;
        found = entity_get(entity, ENGINES[i].path);
        return found && found->type == JSON_ARRAY ? json_at(found, (size_t)engine) : found;
    }
    found = path ? entity_get(entity, path) : NULL;
    if (!found && INTEGRAL_PATHS[which].fallback)
        found = entity_get(entity, INTEGRAL_PATHS[which].fallback);
    return found;
}

static double piece(const struct scenario *scenario, struct device *device,
                    struct entity *entity, enum integral which, ns_t from, ns_t until)
{
    double a = since_epoch(scenario, from), b = since_epoch(scenario, until);
    const struct json *wave = integrand(entity, which);

    if (!wave || wave->type == JSON_NULL || until <= from)
        return 0;
    /* Percent of MHz to cycles per second. */
    if (which >= I_CYCLES_SM)
        return 1e4 * wave_product_integral(
            wave,
            integrand(&device->self, which == I_CYCLES_DRAM ? I_CLOCK_MEMORY : I_CLOCK_SM), a, b);
    return wave_integral(wave, a, b);
}

static struct entity *entity_at(const struct scenario *scenario, int gpu, int instance)
{
    struct device *device = gpu < scenario->devices ? scenario->device[gpu] : NULL;

    if (!device || instance >= device->instances)
        return NULL;
    return instance < 0 ? &device->self : &device->instance[instance];
}

/* A new generation is a reloaded driver, a new UUID another MIG device: counters restart. */
static int same_counters(struct entity *one, struct entity *other)
{
    return entity_number(one, "generation", 0, 0) == entity_number(other, "generation", 0, 0)
        && strcmp(json_string(entity_get(one, "uuid"), ""),
                  json_string(entity_get(other, "uuid"), "")) == 0;
}

double entity_integral(const struct scenario *scenario, int gpu, int instance,
                       enum integral which, ns_t at)
{
    struct entity *entity = entity_at(scenario, gpu, instance);
    const struct scenario *previous = scenario->previous;
    double base;

    if (at < scenario->since && previous)
        return entity_integral(previous, gpu, instance, which, at);
    if (!entity)
        return 0;
    base = entity->base[which];
    if (isnan(base)) {
        struct entity *before = previous ? entity_at(previous, gpu, instance) : NULL;

        base = 0;
        if (before && same_counters(entity, before))
            base = entity_integral(previous, gpu, instance, which, scenario->since);
        entity->base[which] = base;
    }
    return base + piece(scenario, scenario->device[gpu], entity, which, scenario->since, at);
}

double entity_mean(const struct scenario *scenario, int gpu, int instance, enum integral which,
                   ns_t from, ns_t until)
{
    struct entity *entity = entity_at(scenario, gpu, instance);

    if (from < scenario->origin)
        from = scenario->origin;
    if (until <= from)
        return entity ? wave_value(integrand(entity, which), since_epoch(scenario, until)) : 0;
    return (entity_integral(scenario, gpu, instance, which, until)
            - entity_integral(scenario, gpu, instance, which, from))
        / ((double)(until - from) / 1e9);
}

int read_over(const struct call *call, enum integral which, double window, double *value)
{
    const struct json *found = integrand(call->entity, which);
    const struct json *error;

    if (!found || found->type == JSON_NULL)
        return NOT_SUPPORTED;
    error = json_get(found, "error");
    if (error)
        return (int)json_number(error, UNKNOWN);
    *value = window > 0 ? entity_mean(call->scenario, call->gpu, call->instance, which,
                                      call->now - (ns_t)llround(window * 1e9), call->now)
                        : wave_value(found, call->t);
    return OK;
}
