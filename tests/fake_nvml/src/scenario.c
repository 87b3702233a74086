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
    const char *path = json_string(json_get(root, "clock"), NULL);

    if (!path)
        path = getenv("FAKE_NVML_CLOCK");
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

static unsigned hash_of(const char *key)
{
    unsigned hash = 2166136261u;

    for (; *key; key++)
        hash = (hash ^ (unsigned char)*key) * 16777619u;
    return hash;
}

static void *allocated(size_t size)
{
    void *memory = calloc(1, size ? size : 1);

    if (!memory)
        abort();
    return memory;
}

static void table_init(struct table *table, const struct json *values)
{
    table->values = values;
    table->mask = 63;
    while (table->mask < 2 * values->count)
        table->mask = table->mask * 2 + 1;
    table->slots = allocated((table->mask + 1) * sizeof *table->slots);
    memset(table->slots, -1, (table->mask + 1) * sizeof *table->slots);
    for (size_t i = 0; i < values->count; i++) {
        unsigned slot = hash_of(values->keys[i]) & table->mask;

        while (table->slots[slot] >= 0)
            slot = (slot + 1) & table->mask;
        table->slots[slot] = (int)i;
    }
}

int table_index(const struct table *table, const char *key)
{
    unsigned slot = hash_of(key) & table->mask;

    for (; table->slots[slot] >= 0; slot = (slot + 1) & table->mask)
        if (strcmp(table->values->keys[table->slots[slot]], key) == 0)
            return table->slots[slot];
    return -1;
}

static void entity_init(struct entity *entity, const struct json *own, const struct table *tables)
{
    size_t count;

    entity->own = own;
    entity->table = &tables[(int)json_number(json_get(own, "table"), 0)];
    count = entity->table->values->count;
    entity->base = allocated(count * sizeof *entity->base);
    for (size_t i = 0; i < count; i++)
        entity->base[i] = NAN;
}

static struct device *new_device(const struct json *own, const struct table *tables)
{
    struct device *device = allocated(sizeof *device);
    const struct json *instances = json_get(own, "instances"), *instance;

    entity_init(&device->self, own, tables);
    while (device->instances < MAX_INSTANCES
           && (instance = json_at(instances, (size_t)device->instances)))
        entity_init(&device->instance[device->instances++], instance, tables);
    return device;
}

static struct scenario *build(const struct json *root, struct scenario *previous)
{
    struct scenario *scenario = allocated(sizeof *scenario);
    const struct json *devices = json_get(root, "devices"), *order = json_get(root, "order");
    const struct json *texts = json_get(root, "tables"), *since = json_get(root, "since");
    struct table *tables = allocated(texts->count * sizeof *tables);

    scenario->root = root;
    scenario->clock_path = clock_path(root);
    scenario->epoch = (ns_t)llround(json_number(json_get(root, "epoch"), 0) * 1e9);
    scenario->origin = scenario->since = scenario->epoch;
    if (previous) {
        scenario->origin = previous->origin;
        scenario->previous = previous;
        scenario->since = since ? (ns_t)llround(json_number(since, 0) * 1e9) : driver_now(scenario);
        /* Time must not run backwards along the chain. */
        if (scenario->since < previous->since)
            scenario->since = previous->since;
    }
    for (size_t i = 0; i < texts->count; i++)
        table_init(&tables[i], texts->items[i]);
    scenario->devices = devices->count > MAX_DEVICES ? MAX_DEVICES : (int)devices->count;
    for (int i = 0; i < scenario->devices; i++)
        scenario->device[i] = new_device(devices->items[i], tables);
    scenario->listed = order->count > MAX_DEVICES ? MAX_DEVICES : (int)order->count;
    for (int i = 0; i < scenario->listed; i++)
        scenario->order[i] = (int)json_number(order->items[i], i);
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
    ns_t now = monotonic();
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
    }
    if (path && *path)
        code = load(path);
    else if (!current) /* no GPUs, for threads that outlive their test */
        __atomic_store_n(&current, build(json_parse("{\"devices\":[],\"order\":[],\"tables\":[],"
                                                    "\"events\":[]}", NULL), NULL),
                         __ATOMIC_RELEASE);
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

const struct json *entity_get(const struct entity *entity, const char *key)
{
    const struct json *found = json_get(entity->own, key);
    int index = found ? -1 : table_index(entity->table, key);

    return index < 0 ? found : entity->table->values->items[index];
}

double entity_number(const struct entity *entity, const char *key, double t, double fallback)
{
    const struct json *value = entity_get(entity, key);

    if (!value || value->type == JSON_NULL || json_get(value, "error"))
        return fallback;
    return wave_value(value, t);
}

int read_json(const struct call *call, const char *key, const struct json **value)
{
    const struct json *found = entity_get(call->entity, key);
    const struct json *error;

    if (!found || found->type == JSON_NULL)
        return NOT_SUPPORTED;
    error = json_get(found, "error");
    if (error)
        return (int)json_number(error, UNKNOWN);
    *value = found;
    return OK;
}

int read_number(const struct call *call, const char *key, double *value)
{
    const struct json *found;
    int code = read_json(call, key, &found);

    if (code == OK)
        *value = wave_value(found, call->t);
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

size_t hex_bytes(const char *hex, unsigned char *out, size_t room)
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
    return count;
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
    const struct json *found;
    int code = read_json(call, key, &found);

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
