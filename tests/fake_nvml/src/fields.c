/* SPDX-License-Identifier: Apache-2.0 */
/* Field values: what the scenario states under "fields", else what the device state implies. */
#include "scenario.h"

#include "waves.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static int put(struct nvml_field *field, enum value_type type, double number)
{
    field->value_type = type;
    field->value.ull_ = 0;
    switch (type) {
    case T_DOUBLE: field->value.d = number; break;
    case T_UINT: field->value.ui = (unsigned)(ull)llround(number); break;
    case T_ULONG: field->value.ul = (unsigned long)number; break;
    case T_ULL: field->value.ull_ = (ull)number; break;
    case T_SLL: field->value.sll = llround(number); break;
    case T_INT: field->value.si = (int)lround(number); break;
    case T_USHORT: field->value.us = (unsigned short)number; break;
    }
    return OK;
}

static enum value_type type_named(const char *name, enum value_type otherwise)
{
    static const char *const NAMES[] = {"double", "uint", "ulong", "ull", "sll", "int", "ushort"};

    for (int i = 0; name && i < 7; i++)
        if (strcmp(NAMES[i], name) == 0)
            return (enum value_type)i;
    return otherwise;
}

static int is_wave(const struct json *json)
{
    return json_get(json, "square") || json_get(json, "sine") || json_get(json, "steps");
}

/* Returns -1 if the scenario does not speak of this field. */
static int stated(const struct call *call, struct nvml_field *field)
{
    char path[24], scope[12];
    const struct json *value, *scopes;
    enum value_type type = T_ULL;

    snprintf(path, sizeof path, "fields.%u", field->id);
    value = entity_get(call->entity, path);
    if (!value)
        return -1;
    if (value->type == JSON_NULL)
        return NOT_SUPPORTED;
    if (json_get(value, "error"))
        return (int)json_number(json_get(value, "error"), UNKNOWN);
    if (value->type == JSON_OBJECT && !is_wave(value)) {
        type = type_named(json_string(json_get(value, "type"), NULL), T_ULL);
        if (json_get(value, "rate"))
            return put(field, type, wave_integral(json_get(value, "rate"), 0, call->t));
        scopes = json_get(value, "scope");
        value = json_get(value, "value");
        if (scopes) {
            snprintf(scope, sizeof scope, "%u", field->scope);
            scopes = json_get(scopes, scope);
            if (scopes || !value)
                value = scopes;
        }
        if (!value)
            return INVALID_ARGUMENT;
        if (json_get(value, "error"))
            return (int)json_number(json_get(value, "error"), UNKNOWN);
    }
    return put(field, type, wave_value(value, call->t));
}

/* ---------- fields that follow from the state ---------- */

static double total(const struct call *call, enum integral which)
{
    return entity_integral(call->scenario, call->gpu, -1, which, call->now);
}

static int plain(const struct call *call, struct nvml_field *field, const char *path,
                 enum value_type type, double scale)
{
    double value;
    int code = read_number(call, path, &value);

    return code ? code : put(field, type, value * scale);
}

/* A running total; absent when its rate is absent. */
static int counter(const struct call *call, struct nvml_field *field, enum integral which,
                   enum value_type type, double scale)
{
    double now;
    int code = read_over(call, which, 0, &now);

    /* The small term undoes a rounding just below a whole number. */
    return code ? code : put(field, type, floor(total(call, which) * scale + 1e-6));
}

static int throttle_time(const struct call *call, struct nvml_field *field, enum integral which)
{
    return counter(call, field, which, T_ULL, 1e9);
}

static double links(const struct call *call)
{
    return entity_number(call->entity, "nvlink.links", call->t, 0);
}

/* The share of a total that the field's scope asks for, or a code. */
static int link_share(const struct call *call, const struct nvml_field *field, double *share)
{
    double count = links(call);

    if (count < 1)
        return NOT_SUPPORTED;
    if (field->scope != ALL_SCOPES && field->scope >= count)
        return INVALID_ARGUMENT;
    *share = field->scope == ALL_SCOPES ? 1 : 1 / count;
    return OK;
}

static int nvlink_bytes(const struct call *call, struct nvml_field *field, enum integral which,
                        const char *family, double scale)
{
    double share;
    int code = link_share(call, field, &share);
    const char *own = json_string(entity_get(call->entity, "nvlink.family"), "throughput");

    if (code)
        return code;
    if (strcmp(own, "both") != 0 && strcmp(own, family) != 0)
        return NOT_SUPPORTED;
    return counter(call, field, which, T_ULL, share * scale);
}

/* Link 0 has all the errors, so that a sum over links is right. */
static int link_errors(const struct call *call, struct nvml_field *field, const char *name,
                       unsigned link)
{
    char path[32];

    if (links(call) < 1)
        return NOT_SUPPORTED;
    if (link != ALL_SCOPES && link >= links(call))
        return NOT_SUPPORTED;
    snprintf(path, sizeof path, "nvlink.errors.%s", name);
    return plain(call, field, path, T_ULL, link == ALL_SCOPES || link == 0 ? 1 : 0);
}

static int link_error_family(const struct call *call, struct nvml_field *field)
{
    static const char *const KINDS[] = {"crc_flit", "crc_data", "replay", "recovery"};
    unsigned id = field->id;

    if (id >= 32 && id <= 59)
        return link_errors(call, field, KINDS[(id - 32) / 7],
                           (id - 32) % 7 == 6 ? ALL_SCOPES : (id - 32) % 7);
    return link_errors(call, field, KINDS[(id - 96) / 6], 6 + (id - 96) % 6);
}

static int power(const struct call *call, struct nvml_field *field, double window)
{
    static const char *const SCOPES[] = {NULL, "module_power", "memory_power", "base_power"};
    double watts;
    int code;

    if (field->scope == 0)
        code = read_over(call, I_POWER, window, &watts);
    else if (field->scope < 4)
        code = read_number(call, SCOPES[field->scope], &watts);
    else
        code = INVALID_ARGUMENT;
    return code ? code : put(field, T_UINT, watts * 1e3);
}

static int power_limit(const struct call *call, struct nvml_field *field, const char *path)
{
    if (!entity_get(call->entity, path))
        path = "power_limits.default";
    return plain(call, field, path, T_UINT, 1e3);
}

static int energy(const struct call *call, struct nvml_field *field)
{
    double start;
    int code = read_number(call, "energy", &start);

    return code ? code : put(field, T_ULL, 1e3 * (start + total(call, I_POWER)) + 1e-6);
}

static int wrapping(const struct call *call, struct nvml_field *field, enum integral which)
{
    double now;
    int code = read_over(call, which, 0, &now);

    return code ? code : put(field, T_UINT, fmod(floor(total(call, which) + 1e-6), 4294967296.0));
}

static int ecc_total(const struct call *call, struct nvml_field *field)
{
    static const char *const GROUPS[] = {"volatile.corrected", "volatile.uncorrected",
                                         "aggregate.corrected", "aggregate.uncorrected"};
    static const char *const LOCATIONS[] = {"l1", "l2", "dram", "registers", "texture", "cbu",
                                            "sram"};
    double sum = 0;

    if (!entity_number(call->entity, "ecc.enabled", call->t, 0))
        return NOT_SUPPORTED;
    for (size_t i = 0; i < sizeof LOCATIONS / sizeof *LOCATIONS; i++) {
        char path[64];

        snprintf(path, sizeof path, "ecc.%s.%s", GROUPS[field->id - 3], LOCATIONS[i]);
        sum += entity_number(call->entity, path, call->t, 0);
    }
    return put(field, T_ULL, sum);
}

static int c2c(const struct call *call, struct nvml_field *field)
{
    double count;
    int code = read_number(call, "c2c.links", &count);

    if (code || field->id == 170)
        return code ? code : put(field, T_UINT, count);
    if (field->scope >= count)
        return INVALID_ARGUMENT;
    if (field->id == 171)
        return put(field, T_UINT, !json_holds(entity_get(call->entity, "c2c.inactive"),
                                              field->scope));
    return plain(call, field, "c2c.max_bandwidth_mbps", T_UINT, 1);
}

static int temperature_limit(const struct call *call, struct nvml_field *field)
{
    char path[24];

    snprintf(path, sizeof path, "temperature.limits.%u", field->id - 193);
    return plain(call, field, path, T_INT, 1);
}

static int pcie_error(const struct call *call, struct nvml_field *field)
{
    static const char *const KINDS[] = {
        "correctable", "naks_received", "receiver_error", "bad_tlp", "naks_sent", "bad_dllp",
        "non_fatal", "fatal", "unsupported_request", "lcrc", "lane",
    };
    char path[40];

    snprintf(path, sizeof path, "pcie.errors.%s", KINDS[field->id - 173]);
    return plain(call, field, path, T_UINT, 1);
}

static int link_speed(const struct call *call, struct nvml_field *field, unsigned link)
{
    if (link != ALL_SCOPES && link >= links(call))
        return links(call) < 1 ? NOT_SUPPORTED : INVALID_ARGUMENT;
    if (json_holds(entity_get(call->entity, "nvlink.inactive"), link))
        return put(field, T_UINT, 0);
    return plain(call, field, "nvlink.speed_mbps", T_UINT, 1);
}

static int implied(const struct call *call, struct nvml_field *field)
{
    unsigned id = field->id;

    switch (id) {
    case 1: return plain(call, field, "ecc.enabled", T_UINT, 1);
    case 2: return plain(call, field, "ecc.pending", T_UINT, 1);
    case 3 ... 6: return ecc_total(call, field);
    case 29: case 30: {
        const struct json *pages;
        int code = read_json(call, id == 29 ? "retired_pages.single_bit"
                                            : "retired_pages.double_bit", &pages);

        return code ? code : put(field, T_ULL, (double)pages->count);
    }
    case 31: return plain(call, field, "retired_pages.pending", T_UINT, 1);
    case 32 ... 59: case 96 ... 119: return link_error_family(call, field);
    case 74: return throttle_time(call, field, I_THROTTLE_POWER);
    case 75: return throttle_time(call, field, I_THROTTLE_THERMAL);
    case 76: return throttle_time(call, field, I_THROTTLE_SYNC_BOOST);
    case 77: return throttle_time(call, field, I_THROTTLE_BOARD_LIMIT);
    case 78: return throttle_time(call, field, I_THROTTLE_LOW_UTILIZATION);
    case 79: return throttle_time(call, field, I_THROTTLE_RELIABILITY);
    case 80: return throttle_time(call, field, I_THROTTLE_APP_CLOCKS);
    case 81: return throttle_time(call, field, I_THROTTLE_BASE_CLOCKS);
    case 82: return plain(call, field, "temperature.memory", T_UINT, 1);
    case 83: case 191: return energy(call, field);
    case 84 ... 89: return link_speed(call, field, id - 84);
    case 90: return links(call) < 1 ? NOT_SUPPORTED : link_speed(call, field, ALL_SCOPES);
    case 91: return plain(call, field, "nvlink.links", T_UINT, 1);
    case 94: return plain(call, field, "pcie.replays", T_UINT, 1);
    case 95: return plain(call, field, "pcie.replay_rollover", T_UINT, 1);
    case 132 ... 137: return link_speed(call, field, id - 126);
    case 138: return nvlink_bytes(call, field, I_NVLINK_TX, "throughput", 1 / 1024.0);
    case 139: return nvlink_bytes(call, field, I_NVLINK_RX, "throughput", 1 / 1024.0);
    case 140: return nvlink_bytes(call, field, I_NVLINK_RAW_TX, "throughput", 1 / 1024.0);
    case 141: return nvlink_bytes(call, field, I_NVLINK_RAW_RX, "throughput", 1 / 1024.0);
    case 142: return plain(call, field, "remapped_rows.correctable", T_UINT, 1);
    case 143: return plain(call, field, "remapped_rows.uncorrectable", T_UINT, 1);
    case 144: return plain(call, field, "remapped_rows.pending", T_UINT, 1);
    case 145: return plain(call, field, "remapped_rows.failure", T_UINT, 1);
    case 161: return link_errors(call, field, "replay", field->scope);
    case 162: return link_errors(call, field, "recovery", field->scope);
    case 163: return link_errors(call, field, "crc_flit", field->scope);
    case 164: return link_speed(call, field, field->scope);
    case 169: return plain(call, field, "pcie.l0_to_recovery", T_UINT, 1);
    case 170 ... 172: return c2c(call, field);
    case 173 ... 183: return pcie_error(call, field);
    case 185: return power(call, field, 1);
    case 186: return power(call, field, 0);
    case 187: return power_limit(call, field, "power_limits.min");
    case 188: return power_limit(call, field, "power_limits.max");
    case 189: return power_limit(call, field, "power_limits.default");
    case 190: return power_limit(call, field, "power_limits.enforced");
    case 192: return power_limit(call, field, "power_limits.management");
    case 193 ... 196: return temperature_limit(call, field);
    case 197: return wrapping(call, field, I_PCIE_TX);
    case 198: return wrapping(call, field, I_PCIE_RX);
    case 201: return nvlink_bytes(call, field, I_NVLINK_TX, "count", 1 / 256.0);
    case 202: return nvlink_bytes(call, field, I_NVLINK_TX, "count", 1);
    case 203: return nvlink_bytes(call, field, I_NVLINK_RX, "count", 1 / 256.0);
    case 204: return nvlink_bytes(call, field, I_NVLINK_RX, "count", 1);
    case 230: return plain(call, field, "recovery_action", T_UINT, 1);
    case 269: return throttle_time(call, field, I_THROTTLE_SW_THERMAL);
    case 270: return throttle_time(call, field, I_THROTTLE_HW_THERMAL);
    case 271: return throttle_time(call, field, I_THROTTLE_HW_POWER_BRAKE);
    case 301: return plain(call, field, "remapped_rows.correctable_inactive", T_UINT, 1);
    case 302: return plain(call, field, "remapped_rows.uncorrectable_inactive", T_UINT, 1);
    default: return NOT_SUPPORTED;
    }
}

static int is_nvlink(unsigned id)
{
    return (id >= 32 && id <= 73) || (id >= 84 && id <= 91) || (id >= 96 && id <= 141)
        || (id >= 146 && id <= 168) || (id >= 201 && id <= 225);
}

EXPORT int nvmlDeviceGetFieldValues(nvml_device device, int count, struct nvml_field *fields)
{
    int nvlink = 0;

    BEGIN(device, 0);
    REQUIRE(fields && count > 0);
    for (int i = 0; i < count; i++) {
        struct nvml_field *field = &fields[i];
        int own = stated(&call, field);

        if (own < 0)
            own = implied(&call, field);
        field->code = (unsigned)own;
        field->timestamp = call.now / 1000;
        field->latency = 1;
        nvlink |= is_nvlink(field->id);
    }
    /* Some drivers touch one entry too many here; clients must leave room for it. */
    if (nvlink && entity_number(call.entity, "nvlink_overrun", call.t, 0))
        fields[count].code = UNKNOWN;
    return OK;
}
