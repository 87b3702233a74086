/* SPDX-License-Identifier: Apache-2.0 */
/* A JSON reader that is just large enough for scenario files. */
#ifndef FAKE_NVML_JSON_H
#define FAKE_NVML_JSON_H

#include <stddef.h>

enum json_type { JSON_NULL, JSON_BOOL, JSON_NUMBER, JSON_STRING, JSON_ARRAY, JSON_OBJECT };

struct json {
    enum json_type type;
    double number;       /* numbers, and 0 or 1 for booleans */
    char *string;        /* strings: bytes as written, NUL-terminated */
    size_t count;        /* arrays and objects */
    char **keys;         /* objects */
    struct json **items; /* arrays and objects */
};

/* Trees are never freed: calls in other threads may still be reading them. */
const struct json *json_parse(const char *text, size_t *error_offset);

const struct json *json_get(const struct json *object, const char *key);
const struct json *json_at(const struct json *array, size_t index);

double json_number(const struct json *value, double fallback);
const char *json_string(const struct json *value, const char *fallback);
/* Whether an array of numbers holds `number`. */
int json_holds(const struct json *array, double number);

#endif
