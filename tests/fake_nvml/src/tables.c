/* SPDX-License-Identifier: Apache-2.0 */
/* The text that tables.py writes: "table" begins a table, each other line is KEY KIND PAYLOAD. */
#include "scenario.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_WORDS 16

void *allocated(size_t size)
{
    void *memory = calloc(1, size ? size : 1);

    if (!memory)
        abort();
    return memory;
}

static void *grown(void *array, size_t size)
{
    array = realloc(array, size);
    if (!array)
        abort();
    return array;
}

unsigned hash_of(const char *key)
{
    unsigned hash = 2166136261u;

    for (; *key; key++)
        hash = (hash ^ (unsigned char)*key) * 16777619u;
    return hash;
}

/* Take numbers from the text: all, or at most so many. */
static char *take_numbers(char *text, struct value *value, int most)
{
    int room = 0;

    while (value->count < most) {
        char *end;
        double number = strtod(text, &end);

        if (end == text)
            break;
        if (value->count == room) {
            room = room ? 4 * room : most < 4 ? most : 1;
            value->numbers = grown(value->numbers, (size_t)room * sizeof *value->numbers);
        }
        value->numbers[value->count++] = number;
        text = end;
    }
    return text;
}

/* Take words from the text, which is cut into them: all, or at most so many. */
static char *take_words(char *text, struct value *value, int most)
{
    int count = 0;

    value->words = allocated(MAX_WORDS * sizeof *value->words);
    while (count < most && text && *text) {
        char *word = strsep(&text, " ");

        if (*word)
            value->words[count++] = word;
    }
    if (most == MAX_WORDS)
        value->count = count;
    return text;
}

static const struct value *value_parse(char *text)
{
    struct value *value = allocated(sizeof *value);

    value->kind = (enum kind)*text;
    text += text[1] == ' ' ? 2 : 1;
    switch (value->kind) {
    case NOTHING:
        break;
    case TEXT:
        value->words = allocated(sizeof *value->words);
        value->words[0] = text;
        break;
    case PRODUCT: case SUM:
        take_words(text, value, MAX_WORDS);
        break;
    case METRIC:
        take_words(take_numbers(text, value, 1), value, 6);
        break;
    case FIELD:
        text = take_words(take_numbers(text, value, 3), value, 2);
        value->of = text && *text ? value_parse(text) : NULL;
        break;
    default:
        take_numbers(text, value, 1 << 20);
    }
    return value;
}

static void table_add(struct table *table, char *key, const struct value *value)
{
    if (table->count == table->room) {
        table->room = table->room * 2 + 16;
        table->keys = grown(table->keys, (size_t)table->room * sizeof *table->keys);
        table->values = grown(table->values, (size_t)table->room * sizeof *table->values);
    }
    table->keys[table->count] = key;
    table->values[table->count++] = value;
}

static void table_index_keys(struct table *table)
{
    table->mask = 63;
    while (table->mask < 2 * (unsigned)table->count)
        table->mask = table->mask * 2 + 1;
    table->slots = allocated((table->mask + 1) * sizeof *table->slots);
    memset(table->slots, -1, (table->mask + 1) * sizeof *table->slots);
    for (int i = 0; i < table->count; i++) {
        unsigned slot = hash_of(table->keys[i]) & table->mask;

        while (table->slots[slot] >= 0)
            slot = (slot + 1) & table->mask;
        table->slots[slot] = i;
    }
}

int tables_parse(char *text, struct table **tables)
{
    int count = 0;

    *tables = NULL;
    while (text && *text) {
        char *line = strsep(&text, "\n");
        char *key = strsep(&line, " ");

        if (strcmp(key, "table") == 0) {
            *tables = grown(*tables, (size_t)(count + 1) * sizeof **tables);
            memset(&(*tables)[count++], 0, sizeof **tables);
        } else if (count && line && *line) {
            table_add(&(*tables)[count - 1], key, value_parse(line));
        }
    }
    for (int i = 0; i < count; i++)
        table_index_keys(&(*tables)[i]);
    return count;
}

int table_index(const struct table *table, const char *key)
{
    unsigned slot = hash_of(key) & table->mask;

    for (; table->slots[slot] >= 0; slot = (slot + 1) & table->mask)
        if (strcmp(table->keys[table->slots[slot]], key) == 0)
            return table->slots[slot];
    return -1;
}

const struct value *table_get(const struct table *table, const char *key)
{
    int index = table_index(table, key);

    return index < 0 ? NULL : table->values[index];
}

double table_number(const struct table *table, const char *key, double fallback)
{
    const struct value *found = table_get(table, key);

    return found && found->kind == NUMBERS && found->count ? found->numbers[0] : fallback;
}

const char *table_text(const struct table *table, const char *key, const char *fallback)
{
    const struct value *found = table_get(table, key);

    return found && found->kind == TEXT ? found->words[0] : fallback;
}

const struct value *item_get(const struct table *table, const char *list, int i,
                             const char *member)
{
    char key[MAX_KEY];

    snprintf(key, sizeof key, "%s.%d.%s", list, i, member);
    return table_get(table, key);
}

double item_number(const struct table *table, const char *list, int i, const char *member,
                   double fallback)
{
    char key[MAX_KEY];

    snprintf(key, sizeof key, "%s.%d.%s", list, i, member);
    return table_number(table, key, fallback);
}

int holds(const struct value *numbers, double number)
{
    for (int i = 0; numbers && i < numbers->count; i++)
        if (numbers->numbers[i] == number)
            return 1;
    return 0;
}
