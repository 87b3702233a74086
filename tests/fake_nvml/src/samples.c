/* SPDX-License-Identifier: Apache-2.0 */
/* The driver's own history: one mean per sample period, a bounded number of them. */
#include "scenario.h"

#include <math.h>
#include <stdio.h>

static const struct {
    int which;
    double scale;
} TYPES[] = {
    {I_POWER, 1e3}, {I_UTILIZATION, 1}, {I_MEMORY_UTILIZATION, 1}, {I_ENCODER, 1},
    {I_DECODER, 1}, {I_CLOCK_SM, 1}, {I_CLOCK_MEMORY, 1}, {I_MODULE_POWER, 1e3}, {I_JPEG, 1},
    {I_OFA, 1},
};

static ull stamp(const struct call *call, double t)
{
    return (ull)((call->scenario->epoch + (ns_t)llround(t * 1e9) + 500) / 1000);
}

static int raw_samples(const struct call *call, const struct json *list, ull seen, unsigned room,
                       struct nvml_sample *out, unsigned *found)
{
    for (size_t i = 0; i < list->count && *found < room; i++) {
        double at = json_number(json_at(list->items[i], 0), 0);
        double value = json_number(json_at(list->items[i], 1), 0);

        if (at > call->t || stamp(call, at) <= seen)
            continue;
        out[*found].timestamp = stamp(call, at);
        out[*found].value.ull_ = 0;
        out[*found].value.ui = (unsigned)value;
        ++*found;
    }
    return *found ? OK : NOT_FOUND;
}

EXPORT int nvmlDeviceGetSamples(nvml_device device, unsigned type, ull seen,
                                unsigned *value_type, unsigned *count, struct nvml_sample *out)
{
    char path[32];
    const struct json *raw;
    double period, depth, last, first, now;
    unsigned room, found = 0;

    BEGIN(device, NOT_UNDER_MIG);
    REQUIRE(value_type && count && type < 10);
    period = entity_number(call.entity, "samples.period", call.t,
                           entity_number(call.entity, "sample_period", call.t, 1.0 / 6));
    if (type >= sizeof TYPES / sizeof *TYPES
        || !entity_number(call.entity, "samples.enabled", call.t, 0)
        || !json_holds(entity_get(call.entity, "samples.types"), type))
        return NOT_SUPPORTED;
    code = read_over(&call, (enum integral)TYPES[type].which, 0, &now);
    if (code)
        return code;
    *value_type = T_UINT;
    snprintf(path, sizeof path, "raw_samples.%u", type);
    raw = entity_get(call.entity, path);
    if (raw && raw->type != JSON_ARRAY)
        raw = NULL;
    depth = raw ? (double)raw->count : entity_number(call.entity, "samples.depth", call.t, 100);
    if (!out) {
        /* The sizing call answers what the buffer can hold, whatever is new in it. */
        *count = (unsigned)depth;
        return OK;
    }
    room = *count;
    REQUIRE(room);
    if (raw) {
        code = raw_samples(&call, raw, seen, room, out, &found);
        *count = found;
        return code;
    }
    last = floor(call.t / period + 1e-9);
    first = fmax(1, last - depth + 1);
    for (double k = first; k <= last && found < room; k++) {
        ull at = stamp(&call, k * period);
        double mean;

        if (at <= seen)
            continue;
        mean = entity_mean(call.scenario, call.gpu, -1, (enum integral)TYPES[type].which,
                           call.scenario->epoch + (ns_t)llround((k - 1) * period * 1e9),
                           call.scenario->epoch + (ns_t)llround(k * period * 1e9));
        out[found].timestamp = at;
        out[found].value.ull_ = 0;
        out[found].value.ui = rounded(mean * TYPES[type].scale);
        found++;
    }
    *count = found;
    return found ? OK : NOT_FOUND;
}
