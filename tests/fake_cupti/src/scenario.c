/* SPDX-License-Identifier: Apache-2.0 */
#include "scenario.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define MOST_LINES 256
#define MOST_WORDS (MOST_VALUES + 2)
#define LINE_BYTES 512

struct line {
    char text[LINE_BYTES]; /* as in the file: what it did so far is kept by it */
    char words[LINE_BYTES];
    char *word[MOST_WORDS];
    int count;
    int done; /* how often a `fail` has failed */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct line lines[MOST_LINES];
static int line_count;
static struct gpu gpus[MOST_GPUS];
static struct timespec read_at;
static long long read_size = -1;

static void parse(struct line *line)
{
    char *rest, *word;
    strcpy(line->words, line->text);
    line->count = 0;
    for (word = strtok_r(line->words, " \t\n", &rest); word && line->count < MOST_WORDS;
         word = strtok_r(NULL, " \t\n", &rest)) {
        if (*word == '#')
            break;
        line->word[line->count++] = word;
    }
}

static int done_before(const struct line *old, int old_count, const char *text)
{
    for (int i = 0; i < old_count; i++)
        if (!strcmp(old[i].text, text))
            return old[i].done;
    return 0;
}

static void refresh(void)
{
    static struct line old[MOST_LINES];
    const char *path = getenv("FAKE_CUPTI");
    struct stat status;
    if (!path || stat(path, &status))
        return;
    if (status.st_size == read_size && status.st_mtim.tv_sec == read_at.tv_sec &&
        status.st_mtim.tv_nsec == read_at.tv_nsec)
        return;
    FILE *file = fopen(path, "re");
    if (!file)
        return;
    int old_count = line_count;
    memcpy(old, lines, sizeof(old));
    memset(gpus, 0, sizeof(gpus));
    line_count = 0;
    while (line_count < MOST_LINES && fgets(lines[line_count].text, LINE_BYTES, file)) {
        struct line *line = &lines[line_count];
        parse(line);
        line->done = done_before(old, old_count, line->text);
        if (line->count == 4 && !strcmp(line->word[0], "gpu")) {
            struct gpu *gpu = &gpus[atoi(line->word[1]) % MOST_GPUS];
            gpu->present = 1;
            snprintf(gpu->chip, sizeof(gpu->chip), "%s", line->word[2]);
            snprintf(gpu->uuid, sizeof(gpu->uuid), "%s", line->word[3]);
        }
        if (line->count)
            line_count++;
    }
    fclose(file);
    read_size = status.st_size;
    read_at = status.st_mtim;
}

static struct line *find(const char *key, const char *second)
{
    for (int i = 0; i < line_count; i++)
        if (!strcmp(lines[i].word[0], key) &&
            (!second || (lines[i].count > 1 && !strcmp(lines[i].word[1], second))))
            return &lines[i];
    return NULL;
}

const struct gpu *scenario_gpu(unsigned long long index)
{
    return index < MOST_GPUS && gpus[index].present ? &gpus[index] : NULL;
}

int scenario_gpus(void)
{
    int count = 0;
    for (int i = 0; i < MOST_GPUS; i++)
        count += gpus[i].present;
    return count;
}

const char *scenario_word(const char *key, const char *second)
{
    const struct line *line = find(key, second);
    int at = second ? 2 : 1;
    if (!line)
        return NULL;
    return line->count > at ? line->word[at] : "";
}

long long scenario_number(const char *key, long long otherwise)
{
    const char *word = scenario_word(key, NULL);
    return word ? atoll(word) : otherwise;
}

double scenario_value(const char *metric, unsigned long long sample)
{
    const struct line *line = find("value", metric);
    if (!line || line->count < 3)
        return 10.0;
    return atof(line->word[2 + sample % (unsigned long long)(line->count - 2)]);
}

static void note(const char *function, long long gpu)
{
    const char *path = scenario_word("log", NULL);
    char text[128];
    if (!path)
        return;
    int length = gpu < 0 ? snprintf(text, sizeof(text), "%d %s -\n", getpid(), function)
                         : snprintf(text, sizeof(text), "%d %s %lld\n", getpid(), function, gpu);
    int file = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
    if (file >= 0) {
        if (write(file, text, (size_t)length) < 0)
            abort();
        close(file);
    }
}

static int failure(const char *function, long long gpu)
{
    for (int i = 0; i < line_count; i++) {
        struct line *line = &lines[i];
        if (line->count < 3 || strcmp(line->word[0], "fail") || strcmp(line->word[1], function))
            continue;
        int times = line->count > 3 ? atoi(line->word[3]) : 0;
        if (line->count > 4 && atoll(line->word[4]) != gpu)
            continue;
        if (times && line->done >= times)
            continue;
        line->done++;
        return atoi(line->word[2]);
    }
    return 0;
}

int scenario_enter(const char *function, long long gpu)
{
    pthread_mutex_lock(&lock);
    refresh();
    note(function, gpu);
    int code = failure(function, gpu);
    int crashes = find("crash", function) != NULL, hangs = find("hang", function) != NULL;
    pthread_mutex_unlock(&lock);
    if (crashes)
        raise(SIGSEGV);
    while (hangs)
        pause();
    return code;
}
