/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "scenario.h"

#include <fcntl.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static struct scenario *current;
static pthread_mutex_t reload_lock = PTHREAD_MUTEX_INITIALIZER;
static struct timespec seen_mtime;
static ino_t seen_inode;
static off_t seen_size;
static ns_t last_check;
static char current_path[4096];

/* ---------- clock ---------- */

static ns_t read_clock(clockid_t id)
{
    struct timespec ts;

    clock_gettime(id, &ts);
    return (ns_t)ts.tv_sec * 1000000000 + ts.tv_nsec;
}

static int clock_file(const char *path, ns_t *now)
{
    FILE *file = fopen(path, "re");
    long double seconds;
    int read = file ? fscanf(file, "%Lf", &seconds) : 0;

    if (file)
        fclose(file);
    if (read == 1)
        *now = (ns_t)llroundl(seconds * 1e9L);
    return read == 1;
}

static const char *clock_path(const struct table *top)
{
    const char *path = table_text(top, "clock", getenv("FAKE_NVML_CLOCK"));

    return path && *path ? strdup(path) : NULL;
}

static ns_t driver_now(const struct scenario *scenario)
{
    ns_t now;

    if (scenario->clock_path && clock_file(scenario->clock_path, &now))
        return now;
    return read_clock(CLOCK_REALTIME);
}

double since_epoch(const struct scenario *scenario, ns_t at)
{
    return (double)(at - scenario->epoch) / 1e9;
}

ns_t at_seconds(const struct scenario *scenario, double t)
{
    return scenario->epoch + (ns_t)llround(t * 1e9);
}

ull stamp_us(const struct scenario *scenario, double t)
{
    return (ull)((at_seconds(scenario, t) + 500) / 1000);
}

ns_t monotonic(void)
{
    return read_clock(CLOCK_MONOTONIC);
}

void sleep_us(double us)
{
    struct timespec ts = {(time_t)(us / 1e6), (long)(fmod(us, 1e6) * 1e3)};

    if (us > 0)
        nanosleep(&ts, NULL);
}

/* ---------- loading ---------- */

static char *read_file(const char *path)
{
    FILE *file = fopen(path, "rbe");
    char *text = NULL;
    size_t room = 0;

    if (!file)
        return NULL;
    if (getdelim(&text, &room, 0, file) < 0) {
        free(text);
        text = NULL;
    }
    fclose(file);
    return text;
}

static void entity_init(struct entity *entity, const struct table *tables, double own)
{
    entity->own = &tables[(int)own];
    entity->shared = &tables[(int)table_number(entity->own, "shared", 0)];
    entity->base = allocated((size_t)entity->shared->count * sizeof *entity->base);
    for (int i = 0; i < entity->shared->count; i++)
        entity->base[i] = NAN;
}

static struct device *new_device(const struct table *tables, double own)
{
    struct device *device = allocated(sizeof *device);
    const struct value *instances;

    entity_init(&device->self, tables, own);
    instances = table_get(device->self.own, "instances");
    for (int i = 0; instances && i < instances->count && i < MAX_INSTANCES; i++)
        entity_init(&device->instance[device->instances++], tables, instances->numbers[i]);
    return device;
}

/* Make a version of the tables; the first is that of the scenario itself. */
static struct scenario *build(const struct table *tables, struct scenario *previous)
{
    struct scenario *scenario = allocated(sizeof *scenario);
    const struct table *top = scenario->top = tables;
    const struct value *devices = table_get(top, "devices"), *order = table_get(top, "order");

    scenario->clock_path = clock_path(top);
    scenario->epoch = (ns_t)llround(table_number(top, "epoch", 0) * 1e9);
    scenario->origin = scenario->since = scenario->epoch;
    if (previous) {
        scenario->origin = previous->origin;
        scenario->previous = previous;
        scenario->since = table_get(top, "since")
            ? (ns_t)llround(table_number(top, "since", 0) * 1e9)
            : driver_now(scenario);
        /* Time must not run backwards along the chain. */
        if (scenario->since < previous->since)
            scenario->since = previous->since;
    }
    for (int i = 0; devices && i < devices->count && i < MAX_DEVICES; i++)
        scenario->device[scenario->devices++] = new_device(tables, devices->numbers[i]);
    for (int i = 0; order && i < order->count && i < MAX_DEVICES; i++)
        scenario->order[scenario->listed++] = (int)order->numbers[i];
    return scenario;
}

static int load(const char *path)
{
    struct stat st;
    struct table *tables;
    char *text;

    if (stat(path, &st) != 0) {
        if (!current)
            fprintf(stderr, "fake NVML: no scenario at %s\n", path);
        return current ? OK : UNKNOWN;
    }
    if (current && st.st_mtim.tv_sec == seen_mtime.tv_sec
        && st.st_mtim.tv_nsec == seen_mtime.tv_nsec && st.st_ino == seen_inode
        && st.st_size == seen_size)
        return OK;
    text = read_file(path); /* kept: the tables point into it */
    seen_mtime = st.st_mtim;
    seen_inode = st.st_ino;
    seen_size = st.st_size;
    if (!text || !tables_parse(text, &tables)) {
        fprintf(stderr, "fake NVML: %s has no tables\n", path);
        return current ? OK : UNKNOWN;
    }
    __atomic_store_n(&current, build(tables, current), __ATOMIC_RELEASE);
    return OK;
}

int scenario_refresh(int force)
{
    ns_t now = monotonic();
    const struct scenario *scenario = scenario_now();
    struct table *nothing;
    const char *path;
    int code = OK;

    /* A frozen clock means a deterministic test: there a change must be seen at once. */
    if (!force && scenario && now - __atomic_load_n(&last_check, __ATOMIC_RELAXED) < 5000000
        && !scenario->clock_path)
        return OK;
    __atomic_store_n(&last_check, now, __ATOMIC_RELAXED);
    path = getenv("FAKE_NVML_SCENARIO");
    pthread_mutex_lock(&reload_lock);
    if (strcmp(current_path, path ? path : "") != 0) {
        /* Another test in the same process: nothing of the last scenario may show. */
        snprintf(current_path, sizeof current_path, "%s", path ? path : "");
        __atomic_store_n(&current, NULL, __ATOMIC_RELEASE);
    }
    if (path && *path)
        code = load(path);
    else if (!current && tables_parse(strdup("table"), &nothing))
        /* No GPUs, for threads that outlive their test. */
        __atomic_store_n(&current, build(nothing, NULL), __ATOMIC_RELEASE);
    pthread_mutex_unlock(&reload_lock);
    return code;
}

const struct scenario *scenario_now(void)
{
    return __atomic_load_n(&current, __ATOMIC_ACQUIRE);
}

const struct scenario *scenario_at(ns_t *now)
{
    const struct scenario *scenario = scenario_now();

    *now = driver_now(scenario);
    while (scenario->previous && *now < scenario->since)
        scenario = scenario->previous;
    return scenario;
}

/* ---------- lookup ---------- */

const struct value *entity_get(const struct entity *entity, const char *key)
{
    const struct value *found = table_get(entity->own, key);

    return found ? found : table_get(entity->shared, key);
}

double entity_number(const struct entity *entity, const char *key, double t, double fallback)
{
    const struct value *found = entity_get(entity, key);

    if (!found || found->kind == NOTHING || found->kind == ERROR)
        return fallback;
    return wave_value(entity->shared, found, t);
}

const char *entity_text(const struct entity *entity, const char *key, const char *fallback)
{
    const struct value *found = entity_get(entity, key);

    return found && found->kind == TEXT ? found->words[0] : fallback;
}

int read_value(const struct call *call, const char *key, const struct value **value)
{
    const struct value *found = entity_get(call->entity, key);

    if (!found || found->kind == NOTHING)
        return NOT_SUPPORTED;
    if (found->kind == ERROR)
        return (int)found->numbers[0];
    *value = found;
    return OK;
}

int read_number(const struct call *call, const char *key, double *value)
{
    const struct value *found = NULL;
    int code = read_value(call, key, &found);

    if (code == OK)
        *value = wave_value(call->entity->shared, found, call->t);
    return code;
}

int read_uints(const struct call *call, const char *key, unsigned *values, int count)
{
    const struct value *found = NULL;
    int code = read_value(call, key, &found);

    for (int i = 0; code == OK && i < count; i++)
        values[i] = i < found->count ? rounded(found->numbers[i]) : 0;
    return code;
}

unsigned rounded(double value)
{
    return value < 0 ? 0 : (unsigned)llround(value);
}

int read_uint(const struct call *call, const char *key, double scale, unsigned *value)
{
    double number;
    int code;

    REQUIRE(value);
    code = read_number(call, key, &number);
    if (code == OK)
        *value = rounded(number * scale);
    return code;
}

int read_ull(const struct call *call, const char *key, ull *value)
{
    double number;
    int code;

    REQUIRE(value);
    code = read_number(call, key, &number);
    if (code == OK)
        *value = (ull)number;
    return code;
}

void hex_bytes(const char *hex, unsigned char *out, size_t room)
{
    size_t count = 0;
    unsigned byte;

    while (count < room && hex[0] && hex[1]) {
        if (*hex == '-') {
            hex++;
            continue;
        }
        if (sscanf(hex, "%2x", &byte) != 1)
            break;
        out[count++] = (unsigned char)byte;
        hex += 2;
    }
}

int copy_text(const char *text, char *buffer, unsigned length)
{
    REQUIRE(buffer);
    if (strlen(text) + 1 > length)
        return INSUFFICIENT_SIZE;
    strcpy(buffer, text);
    return OK;
}

int read_text(const struct call *call, const char *key, char *buffer, unsigned length)
{
    const struct value *found = NULL;
    int code = read_value(call, key, &found);

    return code ? code : copy_text(found->words[0], buffer, length);
}

/* ---------- handles ---------- */

static char handles[MAX_DEVICES * (MAX_INSTANCES + 1)];

void *handle_of(int gpu, int instance)
{
    return &handles[gpu * (MAX_INSTANCES + 1) + instance + 1];
}

int handle_decode(const void *handle, int *gpu, int *instance)
{
    uintptr_t offset = (uintptr_t)handle - (uintptr_t)handles;

    if (offset >= sizeof handles)
        return 0;
    *gpu = (int)(offset / (MAX_INSTANCES + 1));
    *instance = (int)(offset % (MAX_INSTANCES + 1)) - 1;
    return 1;
}

int mig_enabled(const struct device *device, double t)
{
    return entity_number(&device->self, "mig.current", t, 0) != 0;
}

/* For a test process that goes on to another scenario: forget inits that were never undone. */
EXPORT void fake_nvml_reset(void)
{
    __atomic_store_n(&init_count, 0, __ATOMIC_RELAXED);
    pthread_mutex_lock(&reload_lock);
    current_path[0] = 0;
    __atomic_store_n(&current, NULL, __ATOMIC_RELEASE);
    pthread_mutex_unlock(&reload_lock);
}
