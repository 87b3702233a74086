/* SPDX-License-Identifier: Apache-2.0 */
/* The driver's own history: the mean of each sample period, and each process's SM time. */
#include "scenario.h"

#include <math.h>
#include <stdio.h>

static const struct {
    const char *key;
    double scale;
} TYPES[] = {
    {"power", 1e3}, {"utilization", 1}, {"memory_utilization", 1}, {"encoder_utilization", 1},
    {"decoder_utilization", 1}, {"clocks.1", 1}, {"clocks.2", 1}, {"module_power", 1e3},
    {"jpeg_utilization", 1}, {"ofa_utilization", 1},
};

static int raw_samples(const struct call *call, const struct json *list, ull seen, unsigned room,
                       struct nvml_sample *out, unsigned *found)
{
    for (size_t i = 0; i < list->count && *found < room; i++) {
        double at = json_number(json_at(list->items[i], 0), 0);
        double value = json_number(json_at(list->items[i], 1), 0);

        if (at > call->t || stamp_us(call->scenario, at) <= seen)
            continue;
        out[*found].timestamp = stamp_us(call->scenario, at);
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
    period = entity_number(call.entity, "samples.period", call.t, 1.0 / 6);
    if (!entity_number(call.entity, "samples.enabled", call.t, 0)
        || !json_holds(entity_get(call.entity, "samples.types"), type))
        return NOT_SUPPORTED;
    code = read_number(&call, TYPES[type].key, &now);
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
        ull at = stamp_us(call.scenario, k * period);
        double mean;

        if (at <= seen)
            continue;
        mean = entity_mean(call.scenario, call.gpu, -1, TYPES[type].key,
                           at_seconds(call.scenario, (k - 1) * period),
                           at_seconds(call.scenario, k * period));
        out[found].timestamp = at;
        out[found].value.ull_ = 0;
        out[found].value.ui = rounded(mean * TYPES[type].scale);
        found++;
    }
    *count = found;
    return found ? OK : NOT_FOUND;
}

/* ---------- processes: one entry for each that had some SM time since the last call ---------- */

#define MOST 256
#define DEPTH 100 /* periods that the driver remembers */

struct use { ull timestamp; unsigned pid, sm; };

struct nvml_process_sample {
    unsigned pid;
    ull timestamp;
    unsigned sm, memory, encoder, decoder;
};

struct nvml_process_use_v1 {
    ull timestamp;
    unsigned pid, sm, memory, encoder, decoder, jpeg, ofa;
};

struct nvml_processes_use_v1 {
    unsigned version, count;
    ull seen;
    struct nvml_process_use_v1 *entries;
};

static const char *const KINDS[] = {"processes.compute", "processes.graphics", "processes.mps"};

static unsigned scripted(const struct call *call, const struct json *list, ull seen,
                         struct use *out)
{
    unsigned found = 0;

    for (size_t i = 0; i < list->count && found < MOST; i++) {
        const struct json *entry = list->items[i];
        double at = json_number(json_get(entry, "at"), 0);

        if (at <= call->t && stamp_us(call->scenario, at) > seen)
            out[found++] = (struct use){stamp_us(call->scenario, at),
                                        (unsigned)json_number(json_get(entry, "pid"), 0),
                                        (unsigned)json_number(json_get(entry, "sm"), 0)};
    }
    return found;
}

static unsigned averaged(const struct call *call, ull seen, struct use *out)
{
    double period = entity_number(call->entity, "sample_period", call->t, 1.0 / 6);
    double until = floor(call->t / period + 1e-9) * period;
    double from = fmax(until - DEPTH * period, ((double)seen - stamp_us(call->scenario, 0)) / 1e6);
    unsigned found = 0;

    if (until - from < 1e-6)
        return 0;
    for (size_t kind = 0; kind < COUNT_OF(KINDS); kind++) {
        const struct json *list = entity_get(&call->device->self, KINDS[kind]);

        if (!list || list->type != JSON_ARRAY)
            continue;
        for (size_t i = 0; i < list->count && found < MOST; i++) {
            const struct json *wave = json_get(list->items[i], "sm");
            unsigned mean = wave ? rounded(wave_integral(wave, from, until) / (until - from)) : 0;

            if (mean)
                out[found++] = (struct use){stamp_us(call->scenario, until),
                                            (unsigned)json_number(json_get(list->items[i], "pid"),
                                                                  0),
                                            mean};
        }
    }
    return found;
}

static int uses(const struct call *call, ull seen, struct use *out, unsigned *found)
{
    const struct json *list = entity_get(call->entity, "process_samples");

    if (list && list->type != JSON_ARRAY)
        return read_json(call, "process_samples", &list);
    *found = list ? scripted(call, list, seen, out) : averaged(call, seen, out);
    return *found ? OK : NOT_FOUND;
}

EXPORT int nvmlDeviceGetProcessUtilization(nvml_device device, struct nvml_process_sample *out,
                                           unsigned *count, ull seen)
{
    struct use found[MOST];
    unsigned room, known = 0;

    BEGIN(device, NOT_UNDER_MIG);
    REQUIRE(count);
    code = uses(&call, seen, found, &known);
    if (code)
        return code;
    room = out ? *count : 0;
    *count = known;
    if (known > room)
        return INSUFFICIENT_SIZE;
    for (unsigned i = 0; i < known; i++)
        out[i] = (struct nvml_process_sample){found[i].pid, found[i].timestamp, found[i].sm,
                                              0, 0, 0};
    return OK;
}

EXPORT int nvmlDeviceGetProcessesUtilizationInfo(nvml_device device,
                                                 struct nvml_processes_use_v1 *info)
{
    struct use found[MOST];
    unsigned room, known = 0;

    BEGIN(device, NOT_UNDER_MIG);
    REQUIRE(info);
    if (info->version != VERSION_OF(struct nvml_processes_use_v1, 1))
        return VERSION_MISMATCH;
    code = uses(&call, info->seen, found, &known);
    if (code)
        return code;
    room = info->entries ? info->count : 0;
    info->count = known;
    if (known > room)
        return INSUFFICIENT_SIZE;
    for (unsigned i = 0; i < known; i++)
        info->entries[i] = (struct nvml_process_use_v1){found[i].timestamp, found[i].pid,
                                                        found[i].sm, 0, 0, 0, 0, 0};
    return OK;
}
