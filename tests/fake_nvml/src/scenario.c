/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "scenario.h"

#include "waves.h"

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
static ns_t first_epoch;
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
    char text[64];
    char *end;
    ssize_t length;
    long double seconds;
    int fd = open(path, O_RDONLY | O_CLOEXEC);

    if (fd < 0)
        return 0;
    length = read(fd, text, sizeof text - 1);
    close(fd);
    if (length <= 0)
        return 0;
    text[length] = 0;
    seconds = strtold(text, &end);
    if (end == text)
        return 0;
    *now = (ns_t)llroundl(seconds * 1e9L);
    return 1;
}

static const char *clock_path(const struct json *root)
{
    const char *path = json_string(json_get(json_get(root, "clock"), "file"), NULL);

    if (!path)
        path = getenv("FAKE_NVML_CLOCK");
    return path && *path ? strdup(path) : NULL;
}

ns_t driver_now(const struct scenario *scenario)
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
    size_t length = 0, room = 0;

    if (!file)
        return NULL;
    do {
        if (length + 4097 > room) {
            room = room * 2 + 8192;
            text = realloc(text, room);
            if (!text)
                abort();
        }
        length += fread(text + length, 1, 4096, file);
    } while (!feof(file) && !ferror(file));
    fclose(file);
    text[length] = 0;
    return text;
}

static const struct json *parsed_default(const char *text)
{
    return json_parse(text, NULL);
}

static void entity_init(struct entity *entity)
{
    for (int i = 0; i < INTEGRALS; i++)
        entity->base[i] = NAN;
}

static struct device *new_device(const struct json *own, const struct json *shared)
{
    static const struct json *defaults;
    struct device *device = calloc(1, sizeof *device);
    const struct json *product, *instances;

    if (!device)
        abort();
    if (!defaults)
        defaults = parsed_default(DEFAULTS);
    device->self.layers[0] = own;
    device->self.layers[1] = shared;
    device->self.layers[3] = defaults;
    product = entity_get(&device->self, "product");
    device->self.layers[2] = parsed_default(product_preset(json_string(product, "h100-sxm")));
    entity_init(&device->self);
    instances = entity_get(&device->self, "mig.instances");
    while (device->instances < MAX_INSTANCES) {
        const struct json *instance = json_at(instances, (size_t)device->instances);

        if (!instance)
            break;
        device->instance[device->instances].layers[0] = instance;
        entity_init(&device->instance[device->instances]);
        device->instances++;
    }
    return device;
}

/* Which device is at which index: as given, else as they stand. */
static void number(struct scenario *scenario)
{
    const struct json *order = json_get(scenario->root, "order");

    scenario->listed = order ? (int)order->count : scenario->devices;
    for (int i = 0; i < scenario->listed && i < MAX_DEVICES; i++)
        scenario->order[i] = order ? (int)json_number(json_at(order, (size_t)i), i) : i;
}

static struct scenario *build(const struct json *root, struct scenario *previous)
{
    struct scenario *scenario = calloc(1, sizeof *scenario);
    const struct json *devices = json_get(root, "devices");
    const struct json *shared = json_get(root, "template");
    const struct json *since = json_get(root, "since");

    if (!scenario)
        abort();
    scenario->root = root;
    scenario->clock_path = clock_path(root);
    if (!first_epoch)
        first_epoch = driver_now(scenario);
    scenario->epoch = json_get(root, "epoch")
        ? (ns_t)llround(json_number(json_get(root, "epoch"), 0) * 1e9)
        : first_epoch;
    scenario->origin = scenario->since = scenario->epoch;
    if (previous) {
        scenario->origin = previous->origin;
        scenario->previous = previous;
        scenario->since = since ? (ns_t)llround(json_number(since, 0) * 1e9) : driver_now(scenario);
        /* Time must not run backwards along the chain. */
        if (scenario->since < previous->since)
            scenario->since = previous->since;
    }
    if (devices && devices->type == JSON_ARRAY) {
        scenario->devices = devices->count > MAX_DEVICES ? MAX_DEVICES : (int)devices->count;
        for (int i = 0; i < scenario->devices; i++)
            scenario->device[i] = new_device(json_at(devices, (size_t)i), shared);
        number(scenario);
        return scenario;
    }
    scenario->devices = (int)json_number(json_get(devices, "count"), 1);
    if (scenario->devices > MAX_DEVICES)
        scenario->devices = MAX_DEVICES;
    if (json_get(devices, "template"))
        shared = json_get(devices, "template");
    for (int i = 0; i < scenario->devices; i++) {
        char index[12];

        snprintf(index, sizeof index, "%d", i);
        scenario->device[i] = new_device(json_get(json_get(devices, "overrides"), index), shared);
    }
    number(scenario);
    return scenario;
}

static int load(const char *path)
{
    struct stat st;
    const struct json *root;
    size_t where = 0;
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
    text = read_file(path);
    root = text ? json_parse(text, &where) : NULL;
    free(text);
    seen_mtime = st.st_mtim;
    seen_inode = st.st_ino;
    seen_size = st.st_size;
    if (!root || root->type != JSON_OBJECT) {
        fprintf(stderr, "fake NVML: %s is not a JSON object (byte %zu)\n", path, where);
        return current ? OK : UNKNOWN;
    }
    __atomic_store_n(&current, build(root, current), __ATOMIC_RELEASE);
    return OK;
}

int scenario_refresh(int force)
{
    ns_t now = read_clock(CLOCK_MONOTONIC);
    const struct scenario *scenario = scenario_now();
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
        first_epoch = 0;
    }
    if (path && *path)
        code = load(path);
    else if (!current)
        __atomic_store_n(&current, build(json_parse("{}", NULL), NULL), __ATOMIC_RELEASE);
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

/* Stops early at null and at {"error": n}: both speak for everything below them. */
static const struct json *walk(const struct json *json, const char *path)
{
    while (json && *path) {
        size_t length = strcspn(path, ".");

        if (json->type == JSON_NULL || json_get(json, "error"))
            return json;
        if (json->type == JSON_ARRAY)
            json = json_at(json, (size_t)strtoul(path, NULL, 10));
        else
            json = json_member(json, path, length);
        path += length;
        path += *path == '.';
    }
    return json;
}

const struct json *entity_get(struct entity *entity, const char *path)
{
    const struct json *found = NULL;
    uint32_t hash = 2166136261u;
    struct lookup *made;
    size_t length;

    for (length = 0; path[length]; length++)
        hash = (hash ^ (unsigned char)path[length]) * 16777619u;
    for (uint32_t i = 0; i < 8; i++) {
        struct lookup *known =
            __atomic_load_n(&entity->lookups[(hash + i) % LOOKUPS], __ATOMIC_ACQUIRE);

        if (!known)
            break;
        if (known->hash == hash && strcmp(known->path, path) == 0)
            return known->found;
    }
    for (int i = 0; i < LAYERS && !found; i++)
        found = entity->layers[i] ? walk(entity->layers[i], path) : NULL;
    made = malloc(sizeof *made + length + 1);
    if (!made)
        abort();
    made->hash = hash;
    made->found = found;
    memcpy(made->path, path, length + 1);
    for (uint32_t i = 0; i < 8; i++) {
        struct lookup *none = NULL;

        if (__atomic_compare_exchange_n(&entity->lookups[(hash + i) % LOOKUPS], &none, made, 0,
                                        __ATOMIC_RELEASE, __ATOMIC_RELAXED))
            return found;
    }
    free(made);
    return found;
}

double entity_number(struct entity *entity, const char *path, double t, double fallback)
{
    const struct json *value = entity_get(entity, path);

    if (!value || value->type == JSON_NULL || json_get(value, "error"))
        return fallback;
    return wave_value(value, t);
}

int read_json(const struct call *call, const char *path, const struct json **value)
{
    const struct json *found = entity_get(call->entity, path);
    const struct json *error;

    if (!found || found->type == JSON_NULL)
        return NOT_SUPPORTED;
    error = json_get(found, "error");
    if (error)
        return (int)json_number(error, UNKNOWN);
    *value = found;
    return OK;
}

int read_number(const struct call *call, const char *path, double *value)
{
    const struct json *found;
    int code = read_json(call, path, &found);

    if (code == OK)
        *value = wave_value(found, call->t);
    return code;
}

unsigned rounded(double value)
{
    return value < 0 ? 0 : (unsigned)llround(value);
}

int read_uint(const struct call *call, const char *path, double scale, unsigned *value)
{
    double number;
    int code;

    REQUIRE(value);
    code = read_number(call, path, &number);
    if (code == OK)
        *value = rounded(number * scale);
    return code;
}

int copy_text(const char *text, char *buffer, unsigned length)
{
    REQUIRE(buffer);
    if (strlen(text) + 1 > length)
        return INSUFFICIENT_SIZE;
    strcpy(buffer, text);
    return OK;
}

int read_text(const struct call *call, const char *path, char *buffer, unsigned length)
{
    const struct json *found;
    int code = read_json(call, path, &found);

    return code ? code : copy_text(json_string(found, ""), buffer, length);
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

int mig_enabled(struct device *device, double t)
{
    return entity_number(&device->self, "mig.current", t, device->instances > 0) != 0;
}

/* For a test process that goes on to another scenario: forget inits that were never undone. */
EXPORT void fake_nvml_reset(void)
{
    __atomic_store_n(&init_count, 0, __ATOMIC_RELAXED);
    pthread_mutex_lock(&reload_lock);
    current_path[0] = 0;
    __atomic_store_n(&current, NULL, __ATOMIC_RELEASE);
    first_epoch = 0;
    pthread_mutex_unlock(&reload_lock);
}
