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

/* The entry says type, scale and window, and of what: a wave now, its integral since the epoch, a
   running total (and a wave), a mean over the window; or that each scope has its own entry. */
static int answer(const struct call *call, const char *key, struct nvml_field *field)
{
    const struct table *table = call->entity->shared;
    const struct value *entry;
    enum value_type type;
    double scale, value;
    char scoped[MAX_KEY];
    int code = read_value(call, key, &entry);

    if (code)
        return code;
    if (entry->kind == TEXT) {
        snprintf(scoped, sizeof scoped, "%s.%u", key, field->scope);
        if (!table_get(table, scoped))
            snprintf(scoped, sizeof scoped, "%s.else", key);
        return answer(call, scoped, field);
    }
    type = (enum value_type)entry->numbers[0];
    scale = entry->numbers[1];
    switch (entry->words[0][0]) {
    case 'm': /* mean */
        code = read_over(call, entry->words[1], entry->numbers[2], &value);
        return code ? code : put(field, type, value * scale);
    case 's': /* since the epoch */
        return put(field, type, wave_integral(table, entry->of, 0, call->t));
    case 't': /* total; the small term undoes a rounding just below a whole number */
        value = wave_value(table, entry->of, call->t)
            + entity_integral(call->scenario, call->gpu, -1, entry->words[1], call->now);
        return put(field, type, floor(value * scale + 1e-6));
    default:
        return put(field, type, wave_value(table, entry->of, call->t) * scale);
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
        char key[MAX_KEY];

        snprintf(key, sizeof key, "fields.%u", field->id);
        field->code = (unsigned)answer(&call, key, field);
        field->timestamp = call.now / 1000;
        field->latency = 1;
        nvlink |= is_nvlink(field->id);
    }
    /* Some drivers touch one entry too many here; clients must leave room for it. */
    if (nvlink && entity_number(call.entity, "nvlink_overrun", call.t, 0))
        fields[count].code = UNKNOWN;
    return OK;
}
