/* SPDX-License-Identifier: Apache-2.0 */
/* The scenario in force, its tables of answers, the clock, and the start of every call. */
#ifndef FAKE_NVML_SCENARIO_H
#define FAKE_NVML_SCENARIO_H

#include "nvml_abi.h"

#include <stddef.h>

#define MAX_DEVICES 64
#define MAX_INSTANCES 16 /* MIG devices of one GPU */
#define MAX_KEY 64
#define COUNT_OF(array) ((int)(sizeof(array) / sizeof *(array)))

typedef long long ns_t;

/* One answer; tables.py says how each kind is written. */
enum kind {
    NOTHING = '-', ERROR = 'e', NUMBERS = 'n', TEXT = 's', SQUARE = 'q', SINE = 'i', STEPS = 't',
    PRODUCT = 'p', SUM = '+', FIELD = 'f', METRIC = 'm',
};

struct value {
    enum kind kind;
    int count; /* of numbers, or of the words of a product or sum */
    double *numbers;
    char **words;
    const struct value *of;
};

/* Answers by key. Tables are never freed: calls in other threads may still be reading them. */
struct table {
    int count, room;
    char **keys;
    const struct value **values;
    int *slots; /* a hash of the keys: indices, -1 where free */
    unsigned mask;
};

/* A GPU or a MIG device. */
struct entity {
    const struct table *own; /* what differs from GPU to GPU; goes before what they share */
    const struct table *shared;
    double *base; /* by index into `shared`: the integral up to `since`, NAN until asked for */
};

struct device {
    struct entity self;
    int instances;
    struct entity instance[MAX_INSTANCES];
};

struct scenario {
    const struct table *top;
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
    int gpu, instance;     /* instance: -1 for the GPU itself */
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
int call_begin(struct call *call, const char *function, const void *handle, unsigned flags);

#define BEGIN(handle, flags)                                         \
    struct call call;                                                \
    int code = call_begin(&call, __func__, (handle), (flags));       \
                                                                     \
    if (code)                                                        \
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
double since_epoch(const struct scenario *scenario, ns_t at);
ns_t at_seconds(const struct scenario *scenario, double t);
ull stamp_us(const struct scenario *scenario, double t);
ns_t monotonic(void);
void sleep_us(double us);
void *allocated(size_t size);

/* Split the text of a scenario into tables; gives how many. */
int tables_parse(char *text, struct table **tables);
unsigned hash_of(const char *key);
int table_index(const struct table *table, const char *key);
const struct value *table_get(const struct table *table, const char *key);
double table_number(const struct table *table, const char *key, double fallback);
const char *table_text(const struct table *table, const char *key, const char *fallback);
/* A member of an item of a list: the number at "list.i.member". */
double item_number(const struct table *table, const char *list, int i, const char *member,
                   double fallback);
const struct value *item_get(const struct table *table, const char *list, int i,
                             const char *member);
int holds(const struct value *numbers, double number);

const struct value *entity_get(const struct entity *entity, const char *key);
double entity_number(const struct entity *entity, const char *key, double t, double fallback);
const char *entity_text(const struct entity *entity, const char *key, const char *fallback);
/* The integral of a reading from the epoch to `at`, across changes of the scenario. */
double entity_integral(const struct scenario *scenario, int gpu, int instance, const char *key,
                       ns_t at);
/* The mean of a reading over [from, until], or its value if that is empty. */
double entity_mean(const struct scenario *scenario, int gpu, int instance, const char *key,
                   ns_t from, ns_t until);

/* A reading as NVML sees it: absent or null is NOT_SUPPORTED, an error is its code. */
int read_value(const struct call *call, const char *key, const struct value **value);
int read_number(const struct call *call, const char *key, double *value);
int read_uint(const struct call *call, const char *key, double scale, unsigned *value);
int read_uints(const struct call *call, const char *key, unsigned *values, int count);
int read_ull(const struct call *call, const char *key, ull *value);
int read_text(const struct call *call, const char *key, char *buffer, unsigned length);
int copy_text(const char *text, char *buffer, unsigned length);
/* With a window the mean over the last seconds, else the value now. */
int read_over(const struct call *call, const char *key, double window, double *value);
/* The address of a PCI function, such as 0:1b:0.0, in NVML's forms. */
void pci_address(const char *address, struct nvml_pci_info *info);
/* Bytes from hex digits, with or without hyphens. */
void hex_bytes(const char *hex, unsigned char *out, size_t room);
unsigned rounded(double value);

void *handle_of(int gpu, int instance);
int handle_decode(const void *handle, int *gpu, int *instance);
int mig_enabled(const struct device *device, double t);

/* Values over time, with exact integrals; `t` is seconds since the scenario's epoch. */
double wave_value(const struct table *table, const struct value *wave, double t);
double wave_integral(const struct table *table, const struct value *wave, double a, double b);

#endif
