/* SPDX-License-Identifier: Apache-2.0 */
/* GPM: a sample is a moment; a metric is the difference of two integrals, by its entry in the table. */
#include "scenario.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct sample {
    ns_t at; /* 0: never filled */
    const struct scenario *scenario; /* the version in force then */
    int gpu, instance;
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
    sample->scenario = call->scenario;
    sample->gpu = call->gpu;
    sample->instance = instance;
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

static double total(const struct sample *sample, const char *key)
{
    return entity_integral(sample->scenario, sample->gpu, sample->instance, key, sample->at);
}

static double grown(const struct sample *first, const struct sample *second, const char *key)
{
    return total(second, key) - total(first, key);
}

/* Active cycles of a unit over elapsed ones, in percent; `share_of_time` where that is the same
   but for rounding, because the clock stood still, or where there is no clock. */
static double share_of_cycles(double active, double elapsed, double share_of_time)
{
    double share = elapsed > 0 ? active / elapsed : share_of_time;

    return fabs(share - share_of_time) < 1e-7 * fabs(share_of_time) ? share_of_time : share;
}

static int evaluate(const struct call *call, const struct sample *first,
                    const struct sample *second, struct nvml_gpm_metric *out)
{
    const struct entity *entity = second->instance < 0
        ? &call->device->self
        : &call->device->instance[second->instance];
    double seconds = (double)(second->at - first->at) / 1e9, scale;
    const struct value *metric;
    char name[16], **words; /* share or count, key, active cycles, clock */

    snprintf(name, sizeof name, "gpm.%u", out->id);
    metric = entity_get(entity, name);
    if (!metric)
        return NOT_SUPPORTED;
    scale = metric->numbers[0];
    words = metric->words;
    out->unit = out->short_name = out->long_name = ""; /* nobody asks for them */
    if (words[0][0] == 'c') {
        out->value = floor(total(second, words[1]) * scale + 1e-6);
    } else if (words[0][0] == 'n' || seconds < 0.1 - 1e-9) {
        out->value = NAN;
    } else {
        out->value = grown(first, second, words[1]) / seconds * scale;
        if (words[2][0] != '-')
            out->value = share_of_cycles(grown(first, second, words[2]),
                                         grown(first, second, words[3]), out->value);
    }
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
