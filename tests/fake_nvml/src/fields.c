/* SPDX-License-Identifier: Apache-2.0 */
/* Field values, each by the entry that tables.py wrote for it. */
#include "scenario.h"

#include <math.h>
#include <stdio.h>

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

/* An entry is null, {"error"}, or a value: of a wave (`of`), a running total (`total`), both added,
   a mean over the last seconds (`mean`, `window`) or the integral of a wave since the epoch. */
static int answer(const struct call *call, const struct json *entry, struct nvml_field *field)
{
    enum value_type type = (enum value_type)json_number(json_get(entry, "type"), T_ULL);
    double scale = json_number(json_get(entry, "scale"), 1), value;
    const struct json *error = json_get(entry, "error"), *scopes = json_get(entry, "scopes");
    const char *total = json_string(json_get(entry, "total"), NULL);
    const char *mean = json_string(json_get(entry, "mean"), NULL);
    int code;

    if (!entry || entry->type == JSON_NULL)
        return NOT_SUPPORTED;
    if (error)
        return (int)json_number(error, UNKNOWN);
    if (scopes) {
        char scope[12];

        snprintf(scope, sizeof scope, "%u", field->scope);
        scopes = json_get(scopes, scope);
        return answer(call, scopes ? scopes : json_get(entry, "else"), field);
    }
    if (mean) {
        code = read_over(call, mean, json_number(json_get(entry, "window"), 0), &value);
        return code ? code : put(field, type, value * scale);
    }
    if (json_get(entry, "integral"))
        return put(field, type, wave_integral(json_get(entry, "integral"), 0, call->t));
    value = wave_value(json_get(entry, "of"), call->t);
    if (!total)
        return put(field, type, value * scale);
    value += entity_integral(call->scenario, call->gpu, -1, total, call->now);
    /* The small term undoes a rounding just below a whole number. */
    return put(field, type, floor(value * scale + 1e-6));
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
        char key[24];

        snprintf(key, sizeof key, "fields.%u", field->id);
        field->code = (unsigned)answer(&call, entity_get(call.entity, key), field);
        field->timestamp = call.now / 1000;
        field->latency = 1;
        nvlink |= is_nvlink(field->id);
    }
    /* Some drivers touch one entry too many here; clients must leave room for it. */
    if (nvlink && entity_number(call.entity, "nvlink_overrun", call.t, 0))
        fields[count].code = UNKNOWN;
    return OK;
}
