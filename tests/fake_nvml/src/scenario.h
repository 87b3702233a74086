/* SPDX-License-Identifier: Apache-2.0 */
/* The scenario in force, its devices, the clock, integrals and the start of every call. */
#ifndef FAKE_NVML_SCENARIO_H
#define FAKE_NVML_SCENARIO_H

#include "json.h"
#include "nvml_abi.h"

#define MAX_DEVICES 64
#define MAX_INSTANCES 16 /* MIG devices of one GPU */
#define LAYERS 4

typedef long long ns_t;

/* What is integrated over time; gpm.c and fields.c name ranges of these. */
enum integral {
    I_POWER, I_MODULE_POWER,
    I_UTILIZATION, I_MEMORY_UTILIZATION, I_ENCODER, I_DECODER, I_JPEG, I_OFA,
    I_CLOCK_GRAPHICS, I_CLOCK_SM, I_CLOCK_MEMORY, I_CLOCK_VIDEO,
    I_THROTTLE_POWER, I_THROTTLE_THERMAL, I_THROTTLE_SYNC_BOOST, I_THROTTLE_BOARD_LIMIT,
    I_THROTTLE_LOW_UTILIZATION, I_THROTTLE_RELIABILITY, I_THROTTLE_APP_CLOCKS,
    I_THROTTLE_BASE_CLOCKS, I_THROTTLE_SW_THERMAL, I_THROTTLE_HW_THERMAL,
    I_THROTTLE_HW_POWER_BRAKE,
    I_NVLINK_TX, I_NVLINK_RX, I_NVLINK_RAW_TX, I_NVLINK_RAW_RX, I_PCIE_TX, I_PCIE_RX,
    I_GPM_GRAPHICS, I_GPM_SM, I_GPM_OCCUPANCY, I_GPM_INT, I_GPM_TENSOR, I_GPM_DFMA, I_GPM_HMMA,
    I_GPM_DMMA, I_GPM_IMMA, I_GPM_DRAM, I_GPM_FP64, I_GPM_FP32, I_GPM_FP16,
    I_GPM_PCIE_TX, I_GPM_PCIE_RX, I_GPM_NVLINK_TX, I_GPM_NVLINK_RX,
    I_GPM_C2C_TX, I_GPM_C2C_RX, I_GPM_C2C_DATA_TX, I_GPM_C2C_DATA_RX,
    I_GPM_NVDEC, /* 8 engines */
    I_GPM_NVJPG = I_GPM_NVDEC + 8,
    I_GPM_OFA = I_GPM_NVJPG + 8,
    I_GPM_NVENC = I_GPM_OFA + 2,
    I_CYCLES_SM = I_GPM_NVENC + 4, /* ratio x SM clock, in the order of ids 249-254, 257-260 */
    I_CYCLES_TENSOR, I_CYCLES_DMMA, I_CYCLES_HMMA, I_CYCLES_IMMA, I_CYCLES_DFMA,
    I_CYCLES_INT, I_CYCLES_FP64, I_CYCLES_FP32, I_CYCLES_FP16, I_CYCLES_OCCUPANCY,
    I_CYCLES_DRAM, /* ratio x memory clock */
    INTEGRALS
};

#define LOOKUPS 512 /* a power of two */

struct lookup {
    uint32_t hash;
    const struct json *found;
    char path[];
};

/* A GPU or a MIG device: where its readings are looked up, first match wins. */
struct entity {
    const struct json *layers[LAYERS];
    struct lookup *lookups[LOOKUPS]; /* remembered, so that the fake costs clients little */
    double base[INTEGRALS];          /* integrals up to `since`, NaN until asked for */
};

struct device {
    struct entity self;
    int instances;
    struct entity instance[MAX_INSTANCES];
};

struct scenario {
    const struct json *root;
    const char *clock_path; /* NULL: the real clock */
    ns_t epoch;
    ns_t origin; /* the epoch of the first version */
    ns_t since; /* when this version replaced `previous` */
    struct scenario *previous;
    int devices;
    struct device *device[MAX_DEVICES];
    int listed;             /* how many the driver counts */
    int order[MAX_DEVICES]; /* the device at each index */
};

struct call {
    const struct scenario *scenario;
    struct device *device;
    struct entity *entity; /* the GPU, or the MIG device asked about */
    int gpu, instance;           /* instance: -1 for the GPU itself */
    ns_t now;
    double t; /* now in seconds since the epoch */
};

enum call_flags {
    FOR_SYSTEM = 1,     /* no device */
    FOR_MIG_TOO = 2,    /* MIG handles are taken as well */
    WHEN_LOST = 4,      /* answers for a lost GPU */
    NOT_UNDER_MIG = 8,  /* refused once MIG is on */
    FOR_INIT = 16,      /* allowed before init */
};

extern int init_count;

/* Count the call, apply faults, find the device. Non-zero: the code to return at once. */
int call_begin(struct call *call, const char *function, int *slot, const void *handle,
               unsigned flags);

#define BEGIN(handle, flags)                                                       \
    static int stats_slot_ = -1;                                                   \
    struct call call;                                                              \
    int code = call_begin(&call, __func__, &stats_slot_, (handle), (flags));       \
                                                                                   \
    if (code)                                                                      \
        return code

#define REQUIRE(condition)           \
    do {                             \
        if (!(condition))            \
            return INVALID_ARGUMENT; \
    } while (0)

/* Load or re-read the scenario; `force` skips the few-millisecond pause between checks. */
int scenario_refresh(int force);
const struct scenario *scenario_now(void);
/* The driver's time and the version in force then: a new one may be read before its `since`,
   so that all threads and processes change over at the same instant. */
const struct scenario *scenario_at(ns_t *now);
ns_t driver_now(const struct scenario *scenario);
double since_epoch(const struct scenario *scenario, ns_t at);
void sleep_us(double us);

const struct json *entity_get(struct entity *entity, const char *path);
double entity_number(struct entity *entity, const char *path, double t, double fallback);
double entity_integral(const struct scenario *scenario, int gpu, int instance,
                       enum integral which, ns_t at);
/* The mean of an integrated reading over [from, until], or its value if that is empty. */
double entity_mean(const struct scenario *scenario, int gpu, int instance, enum integral which,
                   ns_t from, ns_t until);

/* A reading as NVML sees it: absent or null is NOT_SUPPORTED, {"error": n} is that code. */
int read_json(const struct call *call, const char *path, const struct json **value);
int read_number(const struct call *call, const char *path, double *value);
int read_uint(const struct call *call, const char *path, double scale, unsigned *value);
int read_text(const struct call *call, const char *path, char *buffer, unsigned length);
int copy_text(const char *text, char *buffer, unsigned length);
/* An integrated reading: its value now, or with a window the mean over the last seconds. */
int read_over(const struct call *call, enum integral which, double window, double *value);
unsigned rounded(double value);

void *handle_of(int gpu, int instance);
int handle_decode(const void *handle, int *gpu, int *instance);
int mig_enabled(struct device *device, double t);

extern const char DEFAULTS[];
const char *product_preset(const char *product);

#endif
