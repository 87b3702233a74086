/* SPDX-License-Identifier: Apache-2.0 */
/* The host side: sets of metrics. With `real PATH` the real library makes the config image. */
#define _GNU_SOURCE
#include "cupti_abi.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOST_METRICS 64
#define CHECK(condition) do { if (!(condition)) return INVALID_PARAMETER; } while (0)
#define ENTER() do { int code_ = scenario_enter(__func__, -1); if (code_) return code_; } while (0)

struct host {
    char chip[32];
    char names[MOST_METRICS][128];
    size_t count;
    void *real; /* the real library's object */
};

struct config_image { uint64_t magic, passes; };

static void *real_library(void)
{
    static void *library;
    const char *path = scenario_word("real", NULL);
    if (library || !path)
        return library;
    const char *parts[] = {"libnvperf_host.so", "libnvperf_target.so"};
    char beside[1024];
    const char *slash = strrchr(path, '/');
    for (int i = 0; i < 2; i++) {
        snprintf(beside, sizeof(beside), "%.*s/%s", (int)(slash - path), path, parts[i]);
        if (!dlopen(beside, RTLD_NOW | RTLD_GLOBAL))
            abort();
    }
    library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!library)
        abort();
    return library;
}

/* Pass the call on with the real object in place of ours; -1 without a real library. */
static int passed_on(const char *function, void *params, void **slot, void *real)
{
    void *library = real_library();
    if (!library)
        return -1;
    int (*call)(void *) = (int (*)(void *))(intptr_t)dlsym(library, function);
    void *ours = slot ? *slot : NULL;
    if (slot)
        *slot = real;
    int code = call(params);
    if (slot)
        *slot = ours;
    return code;
}

EXPORT int cuptiProfilerHostInitialize(struct host_initialize *params)
{
    ENTER();
    size_t size = fake_version() >= VERSION_13_2 ? SIZE_TO(struct host_initialize, set)
                                                 : SIZE_TO(struct host_initialize, host);
    CHECK(params->struct_size == size && params->type == 1 && params->chip);
    struct host *host = calloc(1, sizeof(*host));
    const uint8_t *availability = params->availability;
    params->availability = NULL; /* the fake's means nothing to the real library */
    int code = passed_on(__func__, params, NULL, NULL);
    params->availability = availability;
    if (code > 0) {
        free(host);
        return code;
    }
    snprintf(host->chip, sizeof(host->chip), "%s", params->chip);
    host->real = code == 0 ? params->host : NULL;
    params->host = host;
    return SUCCESS;
}

EXPORT int cuptiProfilerHostDeinitialize(struct host_object *params)
{
    ENTER();
    struct host *host = params->host;
    CHECK(params->struct_size == SIZE_TO(struct host_object, host) && host);
    passed_on(__func__, params, &params->host, host->real);
    free(host);
    return SUCCESS;
}

EXPORT int cuptiProfilerHostGetMetricProperties(struct host_properties *params)
{
    ENTER();
    struct host *host = params->host;
    size_t size = fake_version() >= VERSION_13_1 ? SIZE_TO(struct host_properties, scope)
                                                 : SIZE_TO(struct host_properties, type);
    CHECK(params->struct_size == size && host && params->name);
    int code = passed_on(__func__, params, &params->host, host->real);
    if (code >= 0)
        return code;
    CHECK(!scenario_word("unknown", params->name));
    /* One name, two pipes: which one depends on the chip. */
    int is_shared = strstr(params->name, "pipe_shared") && !strncmp(host->chip, "TU", 2);
    params->description = is_shared ? "cycles of the pipe (fp16+tensor)" : "a number";
    return SUCCESS;
}

EXPORT int cuptiProfilerHostConfigAddMetrics(struct host_add *params)
{
    ENTER();
    struct host *host = params->host;
    CHECK(params->struct_size == SIZE_TO(struct host_add, count) && host && params->names);
    int code = passed_on(__func__, params, &params->host, host->real);
    if (code > 0)
        return code;
    for (size_t i = 0; i < params->count; i++) {
        CHECK(host->count < MOST_METRICS && !scenario_word("unknown", params->names[i]));
        snprintf(host->names[host->count++], 128, "%s", params->names[i]);
    }
    return SUCCESS;
}

EXPORT int cuptiProfilerHostGetConfigImageSize(struct host_image_size *params)
{
    ENTER();
    struct host *host = params->host;
    CHECK(params->struct_size == SIZE_TO(struct host_image_size, size) && host);
    int code = passed_on(__func__, params, &params->host, host->real);
    if (code >= 0)
        return code;
    params->size = sizeof(struct config_image);
    return SUCCESS;
}

EXPORT int cuptiProfilerHostGetConfigImage(struct host_image *params)
{
    ENTER();
    struct host *host = params->host;
    CHECK(params->struct_size == SIZE_TO(struct host_image, image) && host && params->image);
    int code = passed_on(__func__, params, &params->host, host->real);
    if (code >= 0)
        return code;
    CHECK(params->size >= sizeof(struct config_image));
    struct config_image *image = (struct config_image *)params->image;
    image->magic = CONFIG_MAGIC;
    image->passes = 1;
    for (size_t i = 0; i < host->count; i++) {
        const char *passes = scenario_word("passes", host->names[i]);
        if (passes && strtoull(passes, NULL, 10) > image->passes)
            image->passes = strtoull(passes, NULL, 10);
    }
    return SUCCESS;
}

EXPORT int cuptiProfilerHostGetNumOfPasses(struct host_passes *params)
{
    ENTER();
    CHECK(params->struct_size == SIZE_TO(struct host_passes, passes) && params->image);
    int code = passed_on(__func__, params, NULL, NULL);
    if (code >= 0)
        return code;
    const struct config_image *image = (const struct config_image *)params->image;
    CHECK(image->magic == CONFIG_MAGIC);
    params->passes = image->passes;
    return SUCCESS;
}

/* Asked for every sample: what the names stand for is looked up once per set of names. */
EXPORT int cuptiProfilerHostEvaluateToGpuValues(struct host_evaluate *params)
{
    CHECK(params->struct_size == SIZE_TO(struct host_evaluate, values) && params->host);
    const struct data_image *image = (const struct data_image *)params->image;
    CHECK(image->magic == DATA_MAGIC && params->index < image->count && params->values);
    for (size_t i = 0; i < params->count; i++)
        params->values[i] = scenario_value(params->names[i], image->samples[params->index].number);
    return SUCCESS;
}
