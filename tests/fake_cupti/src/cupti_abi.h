/* SPDX-License-Identifier: Apache-2.0 */
/* Own declarations of the parts of CUPTI's ABI that the child calls, for x86-64 and aarch64 Linux.
 * A structure begins with its size up to its last member, and a pointer that is NULL. */
#ifndef FAKE_CUPTI_ABI_H
#define FAKE_CUPTI_ABI_H

#include <stddef.h>
#include <stdint.h>

#include "scenario.h"

enum {
    SUCCESS = 0,
    INVALID_PARAMETER = 1,
    INVALID_OPERATION = 7,
    NOT_INITIALIZED = 15,
    UNKNOWN_CHIP = 46,
    UNKNOWN = 999,
};

enum { UNSUPPORTED = 1, DISABLED = 2, SUPPORTED = 3, API_PM_SAMPLING = 3 };
enum { TRIGGER_SYSCLK = 0, TRIGGER_TIME = 1, KEEP_OLDEST = 0, KEEP_LATEST = 1 };
enum { STOP_OTHER = 0, STOP_FULL = 1, STOP_END = 2 };
enum { VERSION_12_6 = 24, VERSION_12_8 = 26, VERSION_13_1 = 130101, VERSION_13_2 = 130200 };

#define HEAD size_t struct_size; void *priv
/* Through its last member, without the padding after it. */
#define SIZE_TO(type, member) (offsetof(type, member) + sizeof(((type *)0)->member))

struct empty { HEAD; };
struct chip_name { HEAD; size_t device; const char *name; };
struct device_supported {
    HEAD;
    int device, supported, architecture, sli, vgpu, confidential, cmp, wsl, api, sku;
};
struct enable { HEAD; size_t device; void *object; };
struct object { HEAD; void *object; };
struct set_config {
    HEAD;
    void *object;
    size_t config_size;
    const uint8_t *config;
    size_t buffer_size;
    uint64_t interval;
    int trigger, append;
};
struct decode {
    HEAD;
    void *object;
    uint8_t *image;
    size_t image_size;
    int stop_reason;
    uint8_t overflow;
};
struct availability { HEAD; size_t device; size_t size; uint8_t *image; };
struct data_size { HEAD; void *object; const char **names; size_t count; uint32_t samples; size_t size; };
struct data_initialize { HEAD; void *object; size_t size; uint8_t *image; };
struct data_info { HEAD; const uint8_t *image; size_t size, total, populated, completed; };
struct sample_info {
    HEAD;
    void *object;
    const uint8_t *image;
    size_t size, index;
    uint64_t start, end;
};
struct host_initialize {
    HEAD;
    int type;
    const char *chip;
    const uint8_t *availability;
    void *host;
    const char *set;
};
struct host_object { HEAD; void *host; };
struct host_properties {
    HEAD;
    void *host;
    const char *name, *description, *hardware_unit, *dimension;
    int type, scope;
};
struct host_add { HEAD; void *host; const char **names; size_t count; };
struct host_image_size { HEAD; void *host; size_t size; };
struct host_image { HEAD; void *host; size_t size; uint8_t *image; };
struct host_passes { HEAD; size_t size; uint8_t *image; size_t passes; };
struct host_evaluate {
    HEAD;
    void *host;
    const uint8_t *image;
    size_t size, index;
    const char **names;
    size_t count;
    double *values;
};

/* What the fake writes into a counter data image. */
struct sample { uint64_t start, end, number; };
struct data_image { uint64_t magic; uint32_t most, count; struct sample samples[]; };
#define DATA_MAGIC 0x616d706c6564ull
#define CONFIG_MAGIC 0x636f6e666967ull

long long fake_version(void);
EXPORT void fake_cupti_advance(double seconds);

#endif
