/* SPDX-License-Identifier: Apache-2.0 */
/* GPM: samples hold running integrals, a metric is the difference of two of them. */
#include "scenario.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct sample {
    ns_t at; /* 0: never filled */
    int gpu, instance;
    double total[INTEGRALS];
};

struct support { unsigned version, supported; };

static int supported(const struct call *call)
{
    return entity_number(&call->device->self, "gpm.supported", call->t, 0) != 0;
}

EXPORT int nvmlGpmQueryDeviceSupport(nvml_device device, struct support *support)
{
    BEGIN(device, FOR_MIG_TOO);
    REQUIRE(support);
    if (support->version != 1)
        return VERSION_MISMATCH;
    support->supported = (unsigned)supported(&call);
    return OK;
}

EXPORT int nvmlGpmSampleAlloc(struct sample **sample)
{
    BEGIN(NULL, FOR_SYSTEM);
    REQUIRE(sample);
    *sample = calloc(1, sizeof **sample);
    return *sample ? OK : NO_MEMORY;
}

EXPORT int nvmlGpmSampleFree(struct sample *sample)
{
    BEGIN(NULL, FOR_SYSTEM);
    free(sample);
    return OK;
}

static int fill(const struct call *call, int instance, struct sample *sample)
{
    REQUIRE(sample);
    if (!supported(call))
        return NOT_SUPPORTED;
    sample->at = call->now;
    sample->gpu = call->gpu;
    sample->instance = instance;
    for (int i = 0; i < INTEGRALS; i++) {
        int clock = i == I_CLOCK_SM || i == I_CLOCK_MEMORY;

        sample->total[i] = i < I_NVLINK_TX && !clock
            ? 0
            : entity_integral(call->scenario, call->gpu, clock ? -1 : instance,
                              (enum integral)i, call->now);
    }
    return OK;
}

EXPORT int nvmlGpmSampleGet(nvml_device device, struct sample *sample)
{
    BEGIN(device, 0);
    return fill(&call, -1, sample);
}

EXPORT int nvmlGpmMigSampleGet(nvml_device device, unsigned gi, struct sample *sample)
{
    BEGIN(device, 0);
    if (!mig_enabled(call.device, call.t))
        return NOT_SUPPORTED;
    for (int i = 0; i < call.device->instances; i++)
        if (entity_number(&call.device->instance[i], "gi", call.t, i) == gi)
            return fill(&call, i, sample);
    return INVALID_ARGUMENT;
}

/* ---------- metrics ---------- */

enum kind { PERCENT, MIB_PER_S, CYCLES, BYTES };

struct metric {
    unsigned id;
    int which;
    enum kind kind;
    const char *name;
};

static const struct metric METRICS[] = {
    {1, I_GPM_GRAPHICS, PERCENT, "graphics_util"}, {2, I_GPM_SM, PERCENT, "sm_util"},
    {3, I_GPM_OCCUPANCY, PERCENT, "sm_occupancy"}, {4, I_GPM_INT, PERCENT, "integer_util"},
    {5, I_GPM_TENSOR, PERCENT, "any_tensor_util"}, {6, I_GPM_DFMA, PERCENT, "dfma_tensor_util"},
    {7, I_GPM_HMMA, PERCENT, "hmma_tensor_util"}, {8, I_GPM_DMMA, PERCENT, "dmma_tensor_util"},
    {9, I_GPM_IMMA, PERCENT, "imma_tensor_util"}, {10, I_GPM_DRAM, PERCENT, "dram_bw_util"},
    {11, I_GPM_FP64, PERCENT, "fp64_util"}, {12, I_GPM_FP32, PERCENT, "fp32_util"},
    {13, I_GPM_FP16, PERCENT, "fp16_util"},
    {20, I_GPM_PCIE_TX, MIB_PER_S, "pcie_tx_per_sec"},
    {21, I_GPM_PCIE_RX, MIB_PER_S, "pcie_rx_per_sec"},
    {60, I_GPM_NVLINK_RX, MIB_PER_S, "nvlink_total_rx_per_sec"},
    {61, I_GPM_NVLINK_TX, MIB_PER_S, "nvlink_total_tx_per_sec"},
    {100, I_GPM_C2C_TX, MIB_PER_S, "c2c_total_tx_per_sec"},
    {101, I_GPM_C2C_RX, MIB_PER_S, "c2c_total_rx_per_sec"},
    {102, I_GPM_C2C_DATA_TX, MIB_PER_S, "c2c_data_tx_per_sec"},
    {103, I_GPM_C2C_DATA_RX, MIB_PER_S, "c2c_data_rx_per_sec"},
    {248, I_CLOCK_SM, CYCLES, "sm_cycles_elapsed"}, {249, I_CYCLES_SM, CYCLES, "sm_cycles_active"},
    {250, I_CYCLES_TENSOR, CYCLES, "mma_cycles_active"},
    {251, I_CYCLES_DMMA, CYCLES, "dmma_cycles_active"},
    {252, I_CYCLES_HMMA, CYCLES, "hmma_cycles_active"},
    {253, I_CYCLES_IMMA, CYCLES, "imma_cycles_active"},
    {254, I_CYCLES_DFMA, CYCLES, "dfma_cycles_active"},
    {255, I_GPM_PCIE_TX, BYTES, "pcie_tx"}, {256, I_GPM_PCIE_RX, BYTES, "pcie_rx"},
    {257, I_CYCLES_INT, CYCLES, "integer_cycles_active"},
    {258, I_CYCLES_FP64, CYCLES, "fp64_cycles_active"},
    {259, I_CYCLES_FP32, CYCLES, "fp32_cycles_active"},
    {260, I_CYCLES_FP16, CYCLES, "fp16_cycles_active"},
};

static const struct {
    unsigned first, last;
    int which;
    const char *engine, *name;
} ENGINES[] = {
    {30, 37, I_GPM_NVDEC, "engines.nvdec", "nvdec_util"},
    {40, 47, I_GPM_NVJPG, "engines.nvjpg", "nvjpg_util"},
    {50, 51, I_GPM_OFA, "engines.ofa", "nvofa_util"},
    {166, 169, I_GPM_NVENC, "engines.nvenc", "nvenc_util"},
};

/* Find a metric; `share` becomes one link's part of an NVLink total. */
static int find_metric(const struct call *call, unsigned id, struct metric *metric, double *share)
{
    double links = entity_number(call->entity, "nvlink.links", call->t, 0);
    int link = -1;

    *share = 1;
    for (size_t i = 0; i < sizeof METRICS / sizeof *METRICS; i++)
        if (METRICS[i].id == id) {
            *metric = METRICS[i];
            if (strncmp(metric->name, "nvlink", 6) == 0 && links < 1)
                return 0;
            return strncmp(metric->name, "c2c", 3) != 0
                || entity_number(call->entity, "c2c.links", call->t, 0) > 0;
        }
    for (size_t i = 0; i < sizeof ENGINES / sizeof *ENGINES; i++)
        if (id >= ENGINES[i].first && id <= ENGINES[i].last) {
            int engine = (int)(id - ENGINES[i].first);

            *metric = (struct metric){id, ENGINES[i].which + engine, PERCENT, ENGINES[i].name};
            return engine < entity_number(call->entity, ENGINES[i].engine, call->t, 0);
        }
    *metric = (struct metric){id, 0, MIB_PER_S, "nvlink_link"};
    if (id >= 62 && id <= 97)
        link = (int)id - 62;
    else if (id >= 212 && id <= 247)
        link = (int)id - 212 + 36;
    else if (id >= 261 && id <= 404) {
        link = (int)id - 261;
        metric->kind = BYTES;
    } else if (id >= 405 && id <= 476)
        link = (int)id - 405 + 72;
    if (link < 0 || link / 2 >= links)
        return 0;
    metric->which = link % 2 ? I_GPM_NVLINK_TX : I_GPM_NVLINK_RX;
    *share = 1 / links;
    return 1;
}

/* What counts the cycles of a unit, and those that its clock made; the rest counts time. */
static const struct {
    int which, active, elapsed;
} UNITS_BY_CYCLES[] = {
    {I_GPM_SM, I_CYCLES_SM, I_CLOCK_SM}, {I_GPM_OCCUPANCY, I_CYCLES_OCCUPANCY, I_CLOCK_SM},
    {I_GPM_INT, I_CYCLES_INT, I_CLOCK_SM}, {I_GPM_TENSOR, I_CYCLES_TENSOR, I_CLOCK_SM},
    {I_GPM_DFMA, I_CYCLES_DFMA, I_CLOCK_SM}, {I_GPM_HMMA, I_CYCLES_HMMA, I_CLOCK_SM},
    {I_GPM_DMMA, I_CYCLES_DMMA, I_CLOCK_SM}, {I_GPM_IMMA, I_CYCLES_IMMA, I_CLOCK_SM},
    {I_GPM_FP64, I_CYCLES_FP64, I_CLOCK_SM}, {I_GPM_FP32, I_CYCLES_FP32, I_CLOCK_SM},
    {I_GPM_FP16, I_CYCLES_FP16, I_CLOCK_SM}, {I_GPM_DRAM, I_CYCLES_DRAM, I_CLOCK_MEMORY},
};

/* Active cycles of the unit over elapsed ones, in percent; `share_of_time` where that is the same
   but for rounding, because the clock stood still, or where there is no clock. */
static double share_of_cycles(const struct sample *first, const struct sample *second, int which,
                              double share_of_time)
{
    for (size_t i = 0; i < sizeof UNITS_BY_CYCLES / sizeof *UNITS_BY_CYCLES; i++) {
        int active = UNITS_BY_CYCLES[i].active, elapsed = UNITS_BY_CYCLES[i].elapsed;
        double cycles = 1e6 * (second->total[elapsed] - first->total[elapsed]), share;

        if (UNITS_BY_CYCLES[i].which != which || !(cycles > 0))
            continue;
        share = 100 * (second->total[active] - first->total[active]) / cycles;
        return fabs(share - share_of_time) < 1e-7 * fabs(share_of_time) ? share_of_time : share;
    }
    return share_of_time;
}

static int of_instance(const struct metric *metric)
{
    return metric->which < I_GPM_PCIE_TX || metric->which > I_GPM_C2C_DATA_RX;
}

static int evaluate(const struct call *call, const struct sample *first,
                    const struct sample *second, struct nvml_gpm_metric *out)
{
    static const char *const UNITS[] = {"%", "MiB/s", "", "B"};
    struct entity *entity = second->instance < 0
        ? &call->device->self
        : &call->device->instance[second->instance];
    double seconds = (double)(second->at - first->at) / 1e9, share, sms;
    struct metric metric;

    if (!find_metric(call, out->id, &metric, &share)
        || json_holds(entity_get(&call->device->self, "gpm.unsupported_ids"), out->id))
        return NOT_SUPPORTED;
    out->short_name = out->long_name = metric.name;
    out->unit = UNITS[metric.kind];
    if (second->instance >= 0 && !of_instance(&metric))
        return NOT_SUPPORTED;
    if (metric.kind == CYCLES || metric.kind == BYTES) {
        if (!entity_number(&call->device->self, "gpm.cumulative", call->t, 0))
            return NOT_SUPPORTED;
        out->value = second->total[metric.which] * share;
        if (metric.kind == CYCLES) {
            const char *cycles = json_string(entity_get(&call->device->self, "gpm.cycles"), "");

            if (metric.which == I_CLOCK_SM)
                out->value *= 1e6;
            sms = entity_number(entity, "sm_count", call->t, 1);
            if (strcmp(cycles, "averaged") != 0)
                out->value *= sms;
        }
        out->value = floor(out->value + 1e-6);
    } else {
        out->value = (second->total[metric.which] - first->total[metric.which]) / seconds * share;
        if (strcmp(json_string(entity_get(&call->device->self, "gpm.semantics"), ""), "time") != 0)
            out->value = share_of_cycles(first, second, metric.which, out->value);
        if (metric.kind == MIB_PER_S)
            out->value /= 1048576;
        if (seconds < 0.1 - 1e-9)
            out->value = NAN;
    }
    if (json_holds(entity_get(&call->device->self, "gpm.nan_ids"), out->id))
        out->value = NAN;
    return OK;
}

EXPORT int nvmlGpmMetricsGet(struct nvml_gpm_metrics_get *get)
{
    const struct sample *first, *second;
    int gpu = get && get->version == 1 && get->sample2 ? ((struct sample *)get->sample2)->gpu : 0;

    BEGIN(handle_of(gpu, -1), 0);
    REQUIRE(get);
    if (get->version != 1)
        return VERSION_MISMATCH;
    first = get->sample1;
    second = get->sample2;
    REQUIRE(first && second && first->at && second->at);
    REQUIRE(first->gpu == second->gpu && first->instance == second->instance);
    REQUIRE(second->instance < call.device->instances);
    for (unsigned i = 0; i < get->count; i++) {
        get->metrics[i].value = 0;
        get->metrics[i].code = (unsigned)evaluate(&call, first, second, &get->metrics[i]);
    }
    return OK;
}
