/* SPDX-License-Identifier: Apache-2.0 */
/* The part of the NVML C ABI that the fake speaks: codes, layouts and calling conventions. */
#ifndef FAKE_NVML_ABI_H
#define FAKE_NVML_ABI_H

#include <stdint.h>

#define EXPORT __attribute__((visibility("default")))

typedef unsigned long long ull;
typedef void *nvml_device;

enum {
    OK = 0,
    UNINITIALIZED = 1,
    INVALID_ARGUMENT = 2,
    NOT_SUPPORTED = 3,
    NO_PERMISSION = 4,
    NOT_FOUND = 6,
    INSUFFICIENT_SIZE = 7,
    TIMEOUT = 10,
    GPU_IS_LOST = 15,
    NO_MEMORY = 20,
    VERSION_MISMATCH = 25,
    UNKNOWN = 999,
};

#define NOT_AVAILABLE_ULL (~0ULL)
#define NO_INSTANCE 0xFFFFFFFFu
#define ALL_SCOPES 0xFFFFFFFFu
#define VERSION_OF(type, n) ((unsigned)sizeof(type) | (n) << 24)

enum value_type { T_DOUBLE, T_UINT, T_ULONG, T_ULL, T_SLL, T_INT, T_USHORT };

union nvml_value {
    double d;
    unsigned ui;
    unsigned long ul;
    ull ull_;
    long long sll;
    int si;
    unsigned short us;
};

struct nvml_pci_info {
    char bus_id_legacy[16];
    unsigned domain, bus, device, pci_device_id, pci_subsystem_id;
    char bus_id[32];
};

struct nvml_memory { ull total, free, used; };
struct nvml_memory_v2 { unsigned version; ull total, reserved, free, used; };
struct nvml_bar1 { ull total, free, used; };
struct nvml_utilization { unsigned gpu, memory; };
struct nvml_temperature { unsigned version, sensor; int temperature; };
struct nvml_margin { unsigned version; int margin; };
struct nvml_sample { ull timestamp; union nvml_value value; };

struct nvml_process { unsigned pid; ull bytes; unsigned gi, ci; };

struct nvml_field {
    unsigned id, scope;
    long long timestamp, latency;
    unsigned value_type, code;
    union nvml_value value;
};

struct nvml_sram_status {
    unsigned version;
    ull aggregate_unc_parity, aggregate_unc_secded, aggregate_cor;
    ull volatile_unc_parity, volatile_unc_secded, volatile_cor;
    ull bucket_l2, bucket_sm, bucket_pcie, bucket_mcu, bucket_other;
    unsigned threshold_exceeded;
};

struct nvml_histogram { unsigned max, high, partial, low, none; };
struct nvml_flag { unsigned version, flag; };

struct nvml_fabric_v1 {
    uint8_t cluster[16];
    unsigned status, clique;
    uint8_t state;
};

struct nvml_fabric_v2 {
    unsigned version;
    uint8_t cluster[16];
    unsigned status, clique;
    uint8_t state;
    uint32_t health_mask;
};

struct nvml_fabric_v3 {
    unsigned version;
    uint8_t cluster[16];
    unsigned status, clique;
    uint8_t state;
    uint32_t health_mask;
    uint8_t health_summary;
};

struct nvml_conf_compute { unsigned environment, feature, dev_tools; };

struct nvml_attributes {
    unsigned sm_count, copy_engines, decoders, encoders, jpegs, ofas, gi_slices, ci_slices;
    ull memory_mb;
};

struct nvml_event { nvml_device device; ull type, data; unsigned gi, ci; };

struct nvml_gpm_metric {
    unsigned id, code;
    double value;
    const char *short_name, *long_name, *unit;
};

struct nvml_gpm_metrics_get {
    unsigned version, count;
    void *sample1, *sample2;
    struct nvml_gpm_metric metrics[];
};

#endif
