/* SPDX-License-Identifier: Apache-2.0 */
/* Event sets: each scripted event reaches each set once, if it was registered in time. */
#include "scenario.h"

#include <math.h>
#include <stdlib.h>

struct event_key {
    double at;
    int gpu;
    ull type, data;
};

struct event_set {
    struct { ull mask; ns_t since; } device[MAX_DEVICES];
    struct event_key *delivered;
    size_t count, room;
};

EXPORT int nvmlEventSetCreate(struct event_set **set)
{
    BEGIN(NULL, FOR_SYSTEM);
    REQUIRE(set);
    *set = calloc(1, sizeof **set);
    return *set ? OK : NO_MEMORY;
}

EXPORT int nvmlEventSetFree(struct event_set *set)
{
    BEGIN(NULL, FOR_SYSTEM);
    REQUIRE(set);
    free(set->delivered);
    free(set);
    return OK;
}

EXPORT int nvmlDeviceRegisterEvents(nvml_device device, ull types, struct event_set *set)
{
    double supported;

    BEGIN(device, 0);
    REQUIRE(set);
    code = read_number(&call, "event_types", &supported);
    if (code)
        return code;
    if (types & ~(ull)supported)
        return NOT_SUPPORTED;
    if (!set->device[call.gpu].mask)
        set->device[call.gpu].since = call.now;
    set->device[call.gpu].mask |= types;
    return OK;
}

static int is_delivered(const struct event_set *set, const struct event_key *key)
{
    for (size_t i = 0; i < set->count; i++) {
        const struct event_key *other = &set->delivered[i];

        if (other->at == key->at && other->gpu == key->gpu && other->type == key->type
            && other->data == key->data)
            return 1;
    }
    return 0;
}

static void remember(struct event_set *set, const struct event_key *key)
{
    if (set->count == set->room) {
        set->room = set->room * 2 + 16;
        set->delivered = realloc(set->delivered, set->room * sizeof *set->delivered);
        if (!set->delivered)
            abort();
    }
    set->delivered[set->count++] = *key;
}

/* The number of the first due event in the list, which is in order of time; -1: there is none. */
static int due(const struct scenario *scenario, double now, const struct event_set *set,
               struct event_key *key)
{
    const struct table *top = scenario->top;
    int count = (int)table_number(top, "events", 0);

    for (int i = 0; i < count; i++) {
        *key = (struct event_key){
            item_number(top, "events", i, "at", 0),
            (int)item_number(top, "events", i, "gpu", 0),
            (ull)item_number(top, "events", i, "type", 0),
            (ull)item_number(top, "events", i, "data", 0),
        };
        if (key->gpu < 0 || key->gpu >= MAX_DEVICES || key->at > now)
            continue;
        if ((set->device[key->gpu].mask & key->type)
            && key->at >= since_epoch(scenario, set->device[key->gpu].since)
            && !is_delivered(set, key))
            return i;
    }
    return -1;
}

/* A real wait costs nothing until something happens: poll no oftener than a test notices. */
#define EVENT_POLL_US 250000

EXPORT int nvmlEventSetWait_v2(struct event_set *set, struct nvml_event *out, unsigned timeout_ms)
{
    ns_t end = monotonic() + (ns_t)timeout_ms * 1000000;

    BEGIN(NULL, FOR_SYSTEM);
    REQUIRE(set && out);
    for (;;) {
        ns_t at;
        const struct scenario *scenario = scenario_at(&at);
        double now = since_epoch(scenario, at);
        struct event_key key;
        int event = due(scenario, now, set, &key);

        if (event >= 0) {
            remember(set, &key);
            out->device = handle_of(key.gpu, -1);
            out->type = key.type;
            out->data = key.data;
            out->gi = (unsigned)item_number(scenario->top, "events", event, "gi", NO_INSTANCE);
            out->ci = (unsigned)item_number(scenario->top, "events", event, "ci", NO_INSTANCE);
            return OK;
        }
        if (monotonic() >= end)
            return TIMEOUT;
        sleep_us(fmin(EVENT_POLL_US, (double)(end - monotonic()) / 1e3));
        scenario_refresh(0);
    }
}
