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

static void put_sample(struct nvml_sample *out, ull at, double value)
{
    out->timestamp = at;
    out->value.ull_ = 0;
    out->value.ui = rounded(value);
}

EXPORT int nvmlDeviceGetSamples(nvml_device device, unsigned type, ull seen,
                                unsigned *value_type, unsigned *count, struct nvml_sample *out)
{
    char key[MAX_KEY];
    const struct value *raw; /* time, value, time, value ... */
    double period, depth, last, first, now;
    unsigned room, found = 0;

    BEGIN(device, NOT_UNDER_MIG);
    REQUIRE(value_type && count && type < 10);
    period = entity_number(call.entity, "samples.period", call.t, 1.0 / 6);
    if (!entity_number(call.entity, "samples.enabled", call.t, 0)
        || !holds(entity_get(call.entity, "samples.types"), type))
        return NOT_SUPPORTED;
    code = read_number(&call, TYPES[type].key, &now);
    if (code)
        return code;
    *value_type = T_UINT;
    snprintf(key, sizeof key, "raw_samples.%u", type);
    raw = entity_get(call.entity, key);
    if (raw && raw->kind != NUMBERS)
        raw = NULL;
    depth = raw ? raw->count / 2.0 : entity_number(call.entity, "samples.depth", call.t, 100);
    if (!out) {
        /* The sizing call answers what the buffer can hold, whatever is new in it. */
        *count = (unsigned)depth;
        return OK;
    }
    room = *count;
    REQUIRE(room);
    for (int i = 0; raw && i < raw->count / 2 && found < room; i++) {
        ull at = stamp_us(call.scenario, raw->numbers[2 * i]);

        if (raw->numbers[2 * i] <= call.t && at > seen)
            put_sample(&out[found++], at, raw->numbers[2 * i + 1]);
    }
    last = floor(call.t / period + 1e-9);
    first = fmax(1, last - depth + 1);
    for (double k = first; !raw && k <= last && found < room; k++) {
        ull at = stamp_us(call.scenario, k * period);
        double mean;

        if (at <= seen)
            continue;
        mean = entity_mean(call.scenario, call.gpu, -1, TYPES[type].key,
                           at_seconds(call.scenario, (k - 1) * period),
                           at_seconds(call.scenario, k * period));
        put_sample(&out[found++], at, mean * TYPES[type].scale);
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

static const char *const KINDS[] = {"processes.compute", "processes.graphics", "processes.mps"};

static unsigned scripted(const struct call *call, int count, ull seen, struct use *out)
{
    const struct table *table = call->entity->shared;
    unsigned found = 0;

    for (int i = 0; i < count && found < MOST; i++) {
        double at = item_number(table, "process_samples", i, "at", 0);

        if (at <= call->t && stamp_us(call->scenario, at) > seen)
            out[found++] = (struct use){
                stamp_us(call->scenario, at),
                (unsigned)item_number(table, "process_samples", i, "pid", 0),
                (unsigned)item_number(table, "process_samples", i, "sm", 0),
            };
    }
    return found;
}

static unsigned averaged(const struct call *call, ull seen, struct use *out)
{
    const struct table *table = call->device->self.shared;
    double period = entity_number(call->entity, "sample_period", call->t, 1.0 / 6);
    double until = floor(call->t / period + 1e-9) * period;
    double from = fmax(until - DEPTH * period,
                       ((double)seen - stamp_us(call->scenario, 0)) / 1e6);
    unsigned found = 0;

    if (until - from < 1e-6)
        return 0;
    for (int kind = 0; kind < COUNT_OF(KINDS); kind++) {
        int count = (int)table_number(table, KINDS[kind], 0);

        for (int i = 0; i < count && found < MOST; i++) {
            const struct value *wave = item_get(table, KINDS[kind], i, "sm");
            unsigned mean = rounded(wave_integral(table, wave, from, until) / (until - from));

            if (mean)
                out[found++] = (struct use){stamp_us(call->scenario, until),
                                            (unsigned)item_number(table, KINDS[kind], i, "pid", 0),
                                            mean};
        }
    }
    return found;
}

static int uses(const struct call *call, ull seen, struct use *out, unsigned *found)
{
    const struct value *list = entity_get(call->entity, "process_samples");

    if (list && list->kind != NUMBERS)
        return read_value(call, "process_samples", &list);
    *found = list ? scripted(call, (int)list->numbers[0], seen, out) : averaged(call, seen, out);
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
