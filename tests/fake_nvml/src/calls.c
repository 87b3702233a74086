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
static int stats_fd = -1; /* its lock guards the claiming of slots between processes */

static void stats_open(const struct scenario *scenario)
{
    static char opened[4096];
    const char *path = getenv("FAKE_NVML_STATS");
    void *map;

    if (!path || !*path)
        path = table_text(scenario->top, "stats", NULL);
    if (!path || strcmp(path, opened) == 0)
        return;
    snprintf(opened, sizeof opened, "%s", path);
    stats = NULL;
    if (stats_fd >= 0)
        close(stats_fd);
    stats_fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    if (stats_fd < 0 || ftruncate(stats_fd, STATS_SLOTS * sizeof *stats) != 0)
        return;
    map = mmap(NULL, STATS_SLOTS * sizeof *stats, PROT_READ | PROT_WRITE, MAP_SHARED, stats_fd, 0);
    if (map != MAP_FAILED)
        __atomic_store_n(&stats, map, __ATOMIC_RELEASE);
}

static int is_of(const struct stats_entry *entry, const char *function)
{
    return strncmp(entry->name, function, sizeof entry->name - 1) == 0;
}

static void count_call(const char *function)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    struct stats_entry *all = __atomic_load_n(&stats, __ATOMIC_ACQUIRE), *entry;
    unsigned slot = hash_of(function) % STATS_SLOTS;

    if (!all)
        return;
    while (all[slot].name[0] && !is_of(&all[slot], function))
        slot = (slot + 1) % STATS_SLOTS;
    entry = &all[slot];
    if (!entry->name[0]) {
        pthread_mutex_lock(&lock);
        flock(stats_fd, LOCK_EX);
        for (; entry->name[0] && !is_of(entry, function); entry = &all[slot])
            slot = (slot + 1) % STATS_SLOTS;
        if (!entry->name[0])
            snprintf(entry->name, sizeof entry->name, "%s", function);
        flock(stats_fd, LOCK_UN);
        pthread_mutex_unlock(&lock);
    }
    __atomic_fetch_add(&entry->calls, 1, __ATOMIC_RELAXED);
}

/* ---------- faults and the start of a call ---------- */

struct effect {
    double latency_us;
    int hang;
    int code;
};

static void apply_faults(const struct table *table, const char *function, int gpu, int own,
                         double t, struct effect *effect)
{
    int count = (int)table_number(table, "faults", 0);

    for (int i = 0; i < count; i++) {
        const struct value *pattern = item_get(table, "faults", i, "function");

        if (!own && item_number(table, "faults", i, "gpu", gpu) != gpu)
            continue;
        if (t < item_number(table, "faults", i, "from", -INFINITY)
            || t >= item_number(table, "faults", i, "until", INFINITY)
            || fnmatch(pattern ? pattern->words[0] : "*", function, 0) != 0)
            continue;
        effect->latency_us += item_number(table, "faults", i, "latency_us", 0);
        effect->hang |= item_number(table, "faults", i, "hang", 0) != 0;
        effect->code = (int)item_number(table, "faults", i, "error", effect->code);
    }
}

static struct effect effects(const struct call *call, const char *function)
{
    const struct table *top = call->scenario->top;
    struct effect effect = {table_number(top, "latency_us", 0), 0, OK};

    apply_faults(top, function, call->gpu, 0, call->t, &effect);
    if (call->device) {
        effect.latency_us += entity_number(&call->device->self, "latency_us", call->t, 0);
        apply_faults(call->device->self.shared, function, call->gpu, 1, call->t, &effect);
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

int call_begin(struct call *call, const char *function, const void *handle, unsigned flags)
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
    count_call(function);
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
