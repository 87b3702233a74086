/* SPDX-License-Identifier: Apache-2.0 */
/* Running totals and means of readings, across changes of the scenario. */
#include "scenario.h"

#include <math.h>
#include <string.h>

static struct entity *entity_at(const struct scenario *scenario, int gpu, int instance)
{
    struct device *device = gpu < scenario->devices ? scenario->device[gpu] : NULL;

    if (!device || instance >= device->instances)
        return NULL;
    return instance < 0 ? &device->self : &device->instance[instance];
}

/* A new generation is a reloaded driver, a new UUID another MIG device: counters restart. */
static int same_counters(const struct entity *one, const struct entity *other)
{
    return entity_number(one, "generation", 0, 0) == entity_number(other, "generation", 0, 0)
        && strcmp(entity_text(one, "uuid", ""), entity_text(other, "uuid", "")) == 0;
}

/* The integral up to `since`, which an earlier version had. */
static double before(const struct scenario *scenario, const struct entity *entity, int gpu,
                     int instance, const char *key)
{
    const struct scenario *previous = scenario->previous;
    const struct entity *then = previous ? entity_at(previous, gpu, instance) : NULL;

    if (!then || !same_counters(entity, then))
        return 0;
    return entity_integral(previous, gpu, instance, key, scenario->since);
}

double entity_integral(const struct scenario *scenario, int gpu, int instance, const char *key,
                       ns_t at)
{
    struct entity *entity = entity_at(scenario, gpu, instance);
    int index;

    if (at < scenario->since && scenario->previous)
        return entity_integral(scenario->previous, gpu, instance, key, at);
    if (!entity)
        return 0;
    index = table_index(entity->shared, key);
    if (index < 0)
        return before(scenario, entity, gpu, instance, key);
    if (isnan(entity->base[index]))
        entity->base[index] = before(scenario, entity, gpu, instance, key);
    if (at <= scenario->since)
        return entity->base[index];
    return entity->base[index] + wave_integral(entity->shared, entity->shared->values[index],
                                               since_epoch(scenario, scenario->since),
                                               since_epoch(scenario, at));
}

double entity_mean(const struct scenario *scenario, int gpu, int instance, const char *key,
                   ns_t from, ns_t until)
{
    struct entity *entity = entity_at(scenario, gpu, instance);

    if (from < scenario->origin)
        from = scenario->origin;
    if (until <= from)
        return entity ? entity_number(entity, key, since_epoch(scenario, until), 0) : 0;
    return (entity_integral(scenario, gpu, instance, key, until)
            - entity_integral(scenario, gpu, instance, key, from))
        / ((double)(until - from) / 1e9);
}

int read_over(const struct call *call, const char *key, double window, double *value)
{
    int code = read_number(call, key, value);

    if (code == OK && window > 0)
        *value = entity_mean(call->scenario, call->gpu, call->instance, key,
                             call->now - (ns_t)llround(window * 1e9), call->now);
    return code;
}
