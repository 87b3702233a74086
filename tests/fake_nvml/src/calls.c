/* SPDX-License-Identifier: Apache-2.0 */
/* What every call begins with: counting, faults, and finding its device. */
#define _GNU_SOURCE
#include "scenario.h"

#include <fcntl.h>
#include <fnmatch.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <unistd.h>

int init_count;

/* ---------- call statistics ---------- */

#define STATS_SLOTS 1024

static struct stats_entry {
    char name[56];
    uint64_t calls;
} *stats;
static int stats_generation, stats_fd = -1;

static void stats_open(const struct scenario *scenario)
{
    static char opened[4096];
    const char *path = getenv("FAKE_NVML_STATS");
    int fd;

    if (!path || !*path)
        path = json_string(json_get(scenario->root, "stats"), NULL);
    if (!path || strcmp(path, opened) == 0)
        return;
    snprintf(opened, sizeof opened, "%s", path);
    stats = NULL;
    stats_generation++;
    fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    if (fd < 0)
        return;
    if (ftruncate(fd, STATS_SLOTS * sizeof *stats) == 0) {
        void *map = mmap(NULL, STATS_SLOTS * sizeof *stats, PROT_READ | PROT_WRITE, MAP_SHARED,
                         fd, 0);

        if (map != MAP_FAILED)
            __atomic_store_n(&stats, map, __ATOMIC_RELEASE);
    }
    if (stats_fd >= 0)
        close(stats_fd);
    stats_fd = fd; /* its lock guards the claiming of slots between processes */
}

static int stats_claim(const char *function)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    uint32_t hash = 2166136261u;
    int slot = -1;

    for (const char *c = function; *c; c++)
        hash = (hash ^ (unsigned char)*c) * 16777619u;
    pthread_mutex_lock(&lock);
    flock(stats_fd, LOCK_EX);
    for (uint32_t i = 0; i < STATS_SLOTS; i++) {
        struct stats_entry *entry = &stats[(hash + i) % STATS_SLOTS];

        if (!entry->name[0])
            snprintf(entry->name, sizeof entry->name, "%s", function);
        if (strncmp(entry->name, function, sizeof entry->name - 1) == 0) {
            slot = (int)(entry - stats);
            break;
        }
    }
    flock(stats_fd, LOCK_UN);
    pthread_mutex_unlock(&lock);
    return slot;
}

/* The caller's slot also carries which statistics file it belongs to. */
static void count_call(const char *function, int *slot)
{
    int index = *slot % STATS_SLOTS;

    if (!stats)
        return;
    if (*slot < 0 || *slot / STATS_SLOTS != stats_generation) {
        index = stats_claim(function);
        if (index < 0)
            return;
        *slot = stats_generation * STATS_SLOTS + index;
    }
    __atomic_fetch_add(&stats[index].calls, 1, __ATOMIC_RELAXED);
}

/* ---------- faults and the start of a call ---------- */

struct effect {
    double latency_us;
    int hang;
    int code;
};

static void apply_faults(const struct json *faults, const char *function, int gpu, int own,
                         double t, struct effect *effect)
{
    for (size_t i = 0; faults && faults->type == JSON_ARRAY && i < faults->count; i++) {
        const struct json *fault = faults->items[i];
        const struct json *error = json_get(fault, "error"), *which = json_get(fault, "gpu");
        const char *pattern = json_string(json_get(fault, "function"), "*");

        if (which && !own && (int)json_number(which, -1) != gpu)
            continue;
        if (t < json_number(json_get(fault, "from"), -INFINITY)
            || t >= json_number(json_get(fault, "until"), INFINITY))
            continue;
        if (fnmatch(pattern, function, 0) != 0)
            continue;
        effect->latency_us += json_number(json_get(fault, "latency_us"), 0);
        effect->hang |= json_number(json_get(fault, "hang"), 0) != 0;
        if (error)
            effect->code = (int)json_number(error, UNKNOWN);
    }
}

static struct effect effects(const struct call *call, const char *function)
{
    const struct scenario *scenario = call->scenario;
    struct effect effect = {json_number(json_get(scenario->root, "latency_us"), 0), 0, OK};

    apply_faults(json_get(scenario->root, "faults"), function, call->gpu, 0, call->t, &effect);
    if (call->device) {
        effect.latency_us += entity_number(&call->device->self, "latency_us", call->t, 0);
        apply_faults(entity_get(&call->device->self, "faults"), function, call->gpu, 1, call->t,
                     &effect);
    }
    return effect;
}

static void locate(struct call *call)
{
    call->scenario = scenario_at(&call->now);
    call->t = since_epoch(call->scenario, call->now);
    call->device = NULL;
    call->entity = NULL;
    if (call->gpu >= 0 && call->gpu < call->scenario->devices) {
        call->device = call->scenario->device[call->gpu];
        if (call->instance < call->device->instances)
            call->entity = call->instance < 0 ? &call->device->self
                                              : &call->device->instance[call->instance];
    }
}

int call_begin(struct call *call, const char *function, int *slot, const void *handle,
               unsigned flags)
{
    struct effect effect;
    int known = 1, code;

    call->gpu = call->instance = -1;
    if (!(flags & FOR_INIT) && __atomic_load_n(&init_count, __ATOMIC_RELAXED) <= 0)
        return UNINITIALIZED;
    code = scenario_refresh(flags & FOR_INIT ? 1 : 0);
    if (code)
        return code;
    if (flags & FOR_INIT)
        stats_open(scenario_now());
    count_call(function, slot);
    if (!(flags & FOR_SYSTEM))
        known = handle_decode(handle, &call->gpu, &call->instance);
    locate(call);
    effect = effects(call, function);
    sleep_us(effect.latency_us);
    while (effect.hang) {
        sleep_us(10000);
        scenario_refresh(1);
        locate(call);
        effect = effects(call, function);
    }
    if (effect.code)
        return effect.code;
    if (flags & FOR_SYSTEM)
        return OK;
    if (!known)
        return INVALID_ARGUMENT;
    if (!call->device) /* the GPU of this handle is gone from the scenario */
        return GPU_IS_LOST;
    if (!(flags & WHEN_LOST) && entity_number(&call->device->self, "lost", call->t, 0) != 0)
        return GPU_IS_LOST;
    if (call->instance >= 0) {
        if (!call->entity)
            return INVALID_ARGUMENT;
        if (!(flags & FOR_MIG_TOO))
            return NOT_SUPPORTED;
    }
    if ((flags & NOT_UNDER_MIG) && mig_enabled(call->device, call->t))
        return NOT_SUPPORTED;
    return OK;
}
