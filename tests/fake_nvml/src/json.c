/* SPDX-License-Identifier: Apache-2.0 */
#include "json.h"

#include <stdlib.h>
#include <string.h>

struct reader {
    const char *at;
    int failed;
};

static struct json *read_value(struct reader *reader, int depth);

static void skip_space(struct reader *reader)
{
    reader->at += strspn(reader->at, " \t\r\n");
}

static int take(struct reader *reader, char expected)
{
    skip_space(reader);
    if (*reader->at != expected)
        return 0;
    reader->at++;
    return 1;
}

static struct json *new_value(enum json_type type)
{
    struct json *value = calloc(1, sizeof *value);

    if (!value)
        abort();
    value->type = type;
    return value;
}

static char *read_string(struct reader *reader)
{
    char *text, *out;

    if (!take(reader, '"')) {
        reader->failed = 1;
        return NULL;
    }
    /* Every escape is at least as long as what it stands for. */
    text = out = malloc(strlen(reader->at) + 1);
    if (!text)
        abort();
    while (*reader->at && *reader->at != '"') {
        char c = *reader->at++;

        if (c != '\\') {
            *out++ = c;
            continue;
        }
        c = *reader->at ? *reader->at++ : 0;
        switch (c) {
        case '"': case '\\': case '/': *out++ = c; break;
        case 'b': *out++ = '\b'; break;
        case 'f': *out++ = '\f'; break;
        case 'n': *out++ = '\n'; break;
        case 'r': *out++ = '\r'; break;
        case 't': *out++ = '\t'; break;
        default:
            reader->failed = 1;
        }
        if (reader->failed)
            return NULL;
    }
    if (*reader->at != '"') {
        reader->failed = 1;
        return NULL;
    }
    reader->at++;
    *out = 0;
    out = realloc(text, (size_t)(out - text) + 1);
    return out ? out : text;
}

static void append(struct json *into, char *key, struct json *item)
{
    if ((into->count & (into->count + 1)) == 0) { /* full at 0, 1, 3, 7, 15 ... */
        size_t room = into->count * 2 + 1;

        into->items = realloc(into->items, room * sizeof *into->items);
        into->keys = realloc(into->keys, room * sizeof *into->keys);
        if (!into->items || !into->keys)
            abort();
    }
    into->keys[into->count] = key;
    into->items[into->count] = item;
    into->count++;
}

static struct json *read_list(struct reader *reader, int depth, enum json_type type, char end)
{
    struct json *list = new_value(type);

    reader->at++;
    if (take(reader, end))
        return list;
    while (!reader->failed) {
        char *key = NULL;
        struct json *item;

        if (type == JSON_OBJECT) {
            key = read_string(reader);
            if (reader->failed || !take(reader, ':'))
                break;
        }
        item = read_value(reader, depth + 1);
        if (reader->failed)
            break;
        append(list, key, item);
        if (take(reader, end))
            return list;
        if (!take(reader, ','))
            break;
    }
    reader->failed = 1;
    return list;
}

static struct json *read_word(struct reader *reader, const char *word, enum json_type type,
                              double number)
{
    struct json *value = new_value(type);
    size_t length = strlen(word);

    value->number = number;
    if (strncmp(reader->at, word, length) == 0)
        reader->at += length;
    else
        reader->failed = 1;
    return value;
}

static struct json *read_value(struct reader *reader, int depth)
{
    struct json *value;
    char *end;

    skip_space(reader);
    if (depth > 64) {
        reader->failed = 1;
        return NULL;
    }
    switch (*reader->at) {
    case '{': return read_list(reader, depth, JSON_OBJECT, '}');
    case '[': return read_list(reader, depth, JSON_ARRAY, ']');
    case 't': return read_word(reader, "true", JSON_BOOL, 1);
    case 'f': return read_word(reader, "false", JSON_BOOL, 0);
    case 'n': return read_word(reader, "null", JSON_NULL, 0);
    case '"':
        value = new_value(JSON_STRING);
        value->string = read_string(reader);
        return value;
    default:
        value = new_value(JSON_NUMBER);
        value->number = strtod(reader->at, &end);
        if (end == reader->at)
            reader->failed = 1;
        reader->at = end;
        return value;
    }
}

const struct json *json_parse(const char *text, size_t *error_offset)
{
    struct reader reader = {text, 0};
    const struct json *value = read_value(&reader, 0);

    skip_space(&reader);
    if (reader.failed || *reader.at) {
        if (error_offset)
            *error_offset = (size_t)(reader.at - text);
        return NULL;
    }
    return value;
}

const struct json *json_get(const struct json *object, const char *key)
{
    if (!object || object->type != JSON_OBJECT)
        return NULL;
    for (size_t i = 0; i < object->count; i++)
        if (strcmp(object->keys[i], key) == 0)
            return object->items[i];
    return NULL;
}

const struct json *json_at(const struct json *array, size_t index)
{
    if (!array || array->type != JSON_ARRAY || index >= array->count)
        return NULL;
    return array->items[index];
}

double json_number(const struct json *value, double fallback)
{
    if (!value || (value->type != JSON_NUMBER && value->type != JSON_BOOL))
        return fallback;
    return value->number;
}

const char *json_string(const struct json *value, const char *fallback)
{
    return value && value->type == JSON_STRING ? value->string : fallback;
}

int json_holds(const struct json *array, double number)
{
    for (size_t i = 0; array && array->type == JSON_ARRAY && i < array->count; i++)
        if (json_number(array->items[i], -1) == number)
            return 1;
    return 0;
}
