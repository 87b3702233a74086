/* SPDX-License-Identifier: Apache-2.0 */
/* The target side: sessions that sample on a clock of their own. */
#include "cupti_abi.h"

#include <signal.h>
#include <string.h>
#include <time.h>

#define SAMPLE_BYTES 6000 /* of the hardware buffer */
#define CHECK(condition) do { if (!(condition)) return INVALID_PARAMETER; } while (0)
#define ENTER(gpu) do { int code_ = scenario_enter(__func__, gpu); if (code_) return code_; } while (0)

struct session {
    int enabled, configured, running, overflowed, fresh;
    size_t config_size, buffer_size;
    const uint8_t *config;
    uint64_t period; /* nanoseconds between samples */
    uint64_t decoded_until, number;
    int keep_latest;
};

static struct session sessions[MOST_GPUS];
static int initialized;
static int64_t advanced = -1;

/* From the first call on the clock stands still between calls. */
EXPORT void fake_cupti_advance(double seconds)
{
    if (advanced < 0)
        advanced = 1000000000000ll;
    advanced += (int64_t)(seconds * 1e9);
}

/* As if the process were new. */
EXPORT void fake_cupti_reset(void);
EXPORT void fake_cupti_reset(void)
{
    memset(sessions, 0, sizeof(sessions));
    initialized = 0;
    advanced = -1;
}

static uint64_t now(void)
{
    struct timespec time;
    if (advanced >= 0)
        return (uint64_t)advanced;
    clock_gettime(CLOCK_REALTIME, &time);
    return (uint64_t)time.tv_sec * 1000000000ull + (uint64_t)time.tv_nsec;
}

long long fake_version(void)
{
    return scenario_number("cupti", MAJOR == 12 ? 28 : 130101);
}

EXPORT int cuptiGetVersion(uint32_t *version)
{
    ENTER(-1);
    *version = (uint32_t)fake_version();
    return SUCCESS;
}

EXPORT int cuptiProfilerInitialize(struct empty *params)
{
    ENTER(-1);
    CHECK(params->struct_size == 16);
    if (MAJOR > scenario_number("newest", MAJOR))
        return NOT_INITIALIZED;
    initialized = 1;
    return SUCCESS;
}

/* The real one is not reference-counted either: the second call crashes. */
EXPORT int cuptiProfilerDeInitialize(struct empty *params)
{
    ENTER(-1);
    CHECK(params->struct_size == 16);
    if (!initialized)
        raise(SIGSEGV);
    initialized = 0;
    return SUCCESS;
}

EXPORT int cuptiDeviceGetChipName(struct chip_name *params)
{
    ENTER((long long)params->device);
    CHECK(params->struct_size == SIZE_TO(struct chip_name, name));
    if (!initialized) /* as 13.x does after a failed initialisation */
        raise(SIGSEGV);
    CHECK(scenario_gpu(params->device));
    params->name = scenario_gpu(params->device)->chip;
    return SUCCESS;
}

static int level(int device, const char *what)
{
    char index[8] = {(char)('0' + device % 10), 0};
    const char *lacks = scenario_word("lacks", index);
    if (!lacks)
        return SUPPORTED;
    return !strcmp(lacks, what) || !strcmp(lacks, "all") ? UNSUPPORTED : SUPPORTED;
}

EXPORT int cuptiProfilerDeviceSupported(struct device_supported *params)
{
    ENTER(params->device);
    size_t size = fake_version() >= VERSION_13_1 ? SIZE_TO(struct device_supported, sku)
                                                 : SIZE_TO(struct device_supported, api);
    CHECK(params->struct_size == size && params->api == API_PM_SAMPLING);
    CHECK(scenario_gpu((unsigned)params->device));
    params->architecture = level(params->device, "architecture");
    params->sli = level(params->device, "sli");
    params->vgpu = level(params->device, "vgpu");
    params->confidential = level(params->device, "confidential");
    params->cmp = level(params->device, "cmp");
    params->wsl = level(params->device, "wsl");
    char index[8] = {(char)('0' + params->device % 10), 0};
    params->supported = scenario_word("lacks", index) ? UNSUPPORTED : SUPPORTED;
    return SUCCESS;
}

EXPORT int cuptiPmSamplingGetCounterAvailability(struct availability *params)
{
    ENTER((long long)params->device);
    CHECK(params->struct_size == SIZE_TO(struct availability, image));
    CHECK(scenario_gpu(params->device));
    if (params->image) {
        CHECK(params->size == 64);
        memset(params->image, 0xa5, 64);
    }
    params->size = 64;
    return SUCCESS;
}

static struct session *session_of(const void *object)
{
    const struct session *session = object;
    if (session < sessions || session >= sessions + MOST_GPUS || !session->enabled)
        return NULL;
    return (struct session *)object;
}

EXPORT int cuptiPmSamplingEnable(struct enable *params)
{
    ENTER((long long)params->device);
    CHECK(params->struct_size == SIZE_TO(struct enable, object));
    CHECK(scenario_gpu(params->device));
    struct session *session = &sessions[params->device];
    if (session->enabled)
        return INVALID_OPERATION;
    memset(session, 0, sizeof(*session));
    session->enabled = 1;
    params->object = session;
    return SUCCESS;
}

static int old_chip(long long gpu)
{
    const char *chip = scenario_gpu((unsigned long long)gpu)->chip;
    return !strncmp(chip, "TU", 2) || !strcmp(chip, "GA100");
}

EXPORT int cuptiPmSamplingSetConfig(struct set_config *params)
{
    struct session *session = session_of(params->object);
    long long gpu = session ? session - sessions : -1;
    ENTER(gpu);
    size_t size = fake_version() >= VERSION_12_8 ? SIZE_TO(struct set_config, append)
                                                 : SIZE_TO(struct set_config, trigger);
    CHECK(session && params->struct_size == size && !session->running);
    CHECK(params->config && params->config_size && params->interval && params->buffer_size);
    CHECK(params->trigger == TRIGGER_SYSCLK || !old_chip(gpu));
    session->keep_latest = 0;
    if (fake_version() >= VERSION_12_8) {
        CHECK(params->append == KEEP_OLDEST || strncmp(scenario_gpu((unsigned)gpu)->chip, "TU", 2));
        session->keep_latest = params->append == KEEP_LATEST;
    }
    session->period = params->interval;
    if (params->trigger == TRIGGER_SYSCLK)
        session->period = params->interval * 1000000000ull /
                          (uint64_t)scenario_number("sysclk", 1200000000);
    session->config = params->config;
    session->config_size = params->config_size;
    session->buffer_size = params->buffer_size;
    session->configured = 1;
    session->overflowed = 0;
    return SUCCESS;
}

EXPORT int cuptiPmSamplingStart(struct object *params)
{
    struct session *session = session_of(params->object);
    ENTER(session ? session - sessions : -1);
    CHECK(session && params->struct_size == SIZE_TO(struct object, object));
    if (!session->configured || session->running)
        return INVALID_OPERATION;
    session->running = session->fresh = 1;
    session->decoded_until = now();
    return SUCCESS;
}

EXPORT int cuptiPmSamplingStop(struct object *params)
{
    struct session *session = session_of(params->object);
    ENTER(session ? session - sessions : -1);
    CHECK(session && params->struct_size == SIZE_TO(struct object, object));
    if (!session->running)
        return INVALID_OPERATION;
    session->running = 0;
    return SUCCESS;
}

EXPORT int cuptiPmSamplingDisable(struct object *params)
{
    struct session *session = session_of(params->object);
    ENTER(session ? session - sessions : -1);
    CHECK(session && params->struct_size == SIZE_TO(struct object, object) && !session->running);
    session->enabled = 0;
    return SUCCESS;
}

EXPORT int cuptiPmSamplingGetCounterDataSize(struct data_size *params)
{
    struct session *session = session_of(params->object);
    ENTER(session ? session - sessions : -1);
    CHECK(session && params->struct_size == SIZE_TO(struct data_size, size));
    CHECK(params->names && params->count && params->samples);
    params->size = sizeof(struct data_image) + params->samples * sizeof(struct sample);
    return SUCCESS;
}

EXPORT int cuptiPmSamplingCounterDataImageInitialize(struct data_initialize *params)
{
    struct session *session = session_of(params->object);
    ENTER(session ? session - sessions : -1);
    CHECK(session && params->struct_size == SIZE_TO(struct data_initialize, image));
    CHECK(params->image && params->size > sizeof(struct data_image));
    struct data_image *image = (struct data_image *)params->image;
    image->magic = DATA_MAGIC;
    image->most = (uint32_t)((params->size - sizeof(*image)) / sizeof(struct sample));
    image->count = 0;
    return SUCCESS;
}

static void first_sample(struct session *session, struct sample *sample)
{
    const char *first = scenario_word("first", NULL);
    if (!first || !strcmp(first, "zero"))
        sample->start = 0;
    else if (!strcmp(first, "stretched"))
        sample->start -= 40 * session->period;
}

static int is_missing(uint64_t number)
{
    const char *missing = scenario_word("missing", NULL);
    if (!missing)
        return 0;
    const char *of = scenario_word("missing", missing);
    uint64_t lost = (uint64_t)(*missing - '0'), every = of && *of ? (uint64_t)(*of - '0') : 10;
    return number % every < lost;
}

EXPORT int cuptiPmSamplingDecodeData(struct decode *params)
{
    struct session *session = session_of(params->object);
    ENTER(session ? session - sessions : -1);
    CHECK(session && params->struct_size == SIZE_TO(struct decode, overflow));
    struct data_image *image = (struct data_image *)params->image;
    CHECK(image && image->magic == DATA_MAGIC);
    uint64_t magic;
    memcpy(&magic, session->config, sizeof(magic));
    if (magic != CONFIG_MAGIC && !scenario_word("real", NULL))
        return UNKNOWN; /* the configuration was freed while it is in use */
    uint64_t until = now();
    uint64_t waiting = (until - session->decoded_until) / session->period;
    if (waiting > session->buffer_size / SAMPLE_BYTES)
        session->overflowed = 1;
    params->overflow = (uint8_t)session->overflowed;
    params->stop_reason = STOP_END;
    if (session->overflowed || !session->running)
        return SUCCESS;
    while (session->decoded_until + session->period <= until) {
        struct sample sample = {session->decoded_until,
                                session->decoded_until + session->period, session->number};
        session->decoded_until += session->period;
        if (is_missing(session->number++) && !session->fresh)
            continue;
        if (image->count == image->most) {
            params->stop_reason = STOP_FULL;
            session->decoded_until = until; /* what does not fit is lost */
            break;
        }
        if (session->fresh)
            first_sample(session, &sample);
        session->fresh = 0;
        image->samples[image->count++] = sample;
    }
    return SUCCESS;
}

/* Asked once a decode and not once a sample: the scenario is not read for it. */
EXPORT int cuptiPmSamplingGetCounterDataInfo(struct data_info *params)
{
    CHECK(params->struct_size == SIZE_TO(struct data_info, completed));
    const struct data_image *image = (const struct data_image *)params->image;
    CHECK(image->magic == DATA_MAGIC);
    params->total = image->most;
    params->populated = params->completed = image->count;
    return SUCCESS;
}

EXPORT int cuptiPmSamplingCounterDataGetSampleInfo(struct sample_info *params)
{
    CHECK(params->struct_size == SIZE_TO(struct sample_info, end));
    const struct data_image *image = (const struct data_image *)params->image;
    CHECK(image->magic == DATA_MAGIC && params->index < image->count);
    params->start = image->samples[params->index].start;
    params->end = image->samples[params->index].end;
    return SUCCESS;
}
