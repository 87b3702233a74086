/* SPDX-License-Identifier: Apache-2.0 */
/* How much of the SM time each process had: one entry for each that had some since the last call. */
#include "scenario.h"
#include "waves.h"

#include <math.h>

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

static const char *const KINDS[] = {"processes", "processes.compute", "processes.graphics",
                                    "processes.mps"};

static ull stamp(const struct call *call, double t)
{
    return (ull)((call->scenario->epoch + (ns_t)llround(t * 1e9) + 500) / 1000);
}

static unsigned scripted(const struct call *call, const struct json *list, ull seen,
                         struct use *out)
{
    unsigned found = 0;

    for (size_t i = 0; i < list->count && found < MOST; i++) {
        const struct json *entry = list->items[i];
        double at = json_number(json_get(entry, "at"), 0);

        if (at <= call->t && stamp(call, at) > seen)
            out[found++] = (struct use){stamp(call, at),
                                        (unsigned)json_number(json_get(entry, "pid"), 0),
                                        (unsigned)json_number(json_get(entry, "sm"), 0)};
    }
    return found;
}

static unsigned averaged(const struct call *call, ull seen, struct use *out)
{
    double period = entity_number(call->entity, "sample_period", call->t, 1.0 / 6);
    double until = floor(call->t / period + 1e-9) * period;
    double from = fmax(until - DEPTH * period, ((double)seen - stamp(call, 0)) / 1e6);
    unsigned found = 0;

    if (until - from < 1e-6)
        return 0;
    for (size_t kind = 0; kind < sizeof KINDS / sizeof *KINDS; kind++) {
        const struct json *list = entity_get(&call->device->self, KINDS[kind]);

        if (!list || list->type != JSON_ARRAY)
            continue;
        for (size_t i = 0; i < list->count && found < MOST; i++) {
            const struct json *wave = json_get(list->items[i], "sm");
            unsigned mean = wave ? rounded(wave_integral(wave, from, until) / (until - from)) : 0;

            if (mean)
                out[found++] = (struct use){stamp(call, until),
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
