/* SPDX-License-Identifier: Apache-2.0 */
/* Numbers, square waves, sines, steps, their products, and lists of them, which are sums. */
#include "scenario.h"

#include <math.h>

static const double TAU = 6.283185307179586476925286766559;

enum shape { CONSTANT, SQUARE, SINE, STEPS };

struct wave {
    enum shape shape;
    double period, phase, duty, high, low; /* square; period also for sine */
    double mean, amplitude;                /* sine; mean is also the constant */
    const struct json *steps;
};

static struct wave parse(const struct json *json)
{
    struct wave wave = {0};
    const struct json *body;

    if (!json || json->type != JSON_OBJECT) {
        wave.mean = json_number(json, 0);
        return wave;
    }
    if ((body = json_get(json, "square"))) {
        wave.shape = SQUARE;
        wave.period = json_number(json_get(body, "period"), 1);
        wave.phase = json_number(json_get(body, "phase"), 0);
        wave.duty = json_number(json_get(body, "duty"), 0.5);
        wave.high = json_number(json_get(body, "high"), 1);
        wave.low = json_number(json_get(body, "low"), 0);
    } else if ((body = json_get(json, "sine"))) {
        wave.shape = SINE;
        wave.period = json_number(json_get(body, "period"), 1);
        wave.phase = json_number(json_get(body, "phase"), 0);
        wave.mean = json_number(json_get(body, "mean"), 0);
        wave.amplitude = json_number(json_get(body, "amplitude"), 0);
    } else if ((body = json_get(json, "steps")) && body->count) {
        wave.shape = STEPS;
        wave.steps = body;
    }
    if (wave.shape != STEPS && !(wave.period > 0))
        wave.period = 1;
    return wave;
}

static double step_time(const struct wave *wave, size_t i)
{
    return json_number(json_at(json_at(wave->steps, i), 0), 0);
}

static double step_value(const struct wave *wave, size_t i)
{
    return json_number(json_at(json_at(wave->steps, i), 1), 0);
}

static double value_at(const struct wave *wave, double t)
{
    double turn;

    switch (wave->shape) {
    case SQUARE:
        turn = (t - wave->phase) / wave->period;
        return turn - floor(turn) < wave->duty ? wave->high : wave->low;
    case SINE:
        return wave->mean + wave->amplitude * sin(TAU * (t - wave->phase) / wave->period);
    case STEPS: {
        double value = step_value(wave, 0); /* the first value also holds before its time */

        for (size_t i = 1; i < wave->steps->count && step_time(wave, i) <= t; i++)
            value = step_value(wave, i);
        return value;
    }
    default:
        return wave->mean;
    }
}

/* The integral of a square from its phase to t. */
static double square_area(const struct wave *wave, double t)
{
    double turns = (t - wave->phase) / wave->period;
    double whole = floor(turns);
    double on = whole * wave->duty + fmin(turns - whole, wave->duty);

    return wave->period * (wave->low * turns + (wave->high - wave->low) * on);
}

static double integral(const struct wave *wave, double a, double b)
{
    switch (wave->shape) {
    case SQUARE:
        return square_area(wave, b) - square_area(wave, a);
    case SINE: {
        double k = TAU / wave->period;

        return wave->mean * (b - a)
            + wave->amplitude / k * (cos(k * (a - wave->phase)) - cos(k * (b - wave->phase)));
    }
    case STEPS: {
        double area = 0;
        size_t count = wave->steps->count;

        for (size_t i = 0; i < count; i++) {
            double from = i == 0 ? a : fmax(a, step_time(wave, i));
            double until = i + 1 == count ? b : fmin(b, step_time(wave, i + 1));

            if (until > from)
                area += step_value(wave, i) * (until - from);
        }
        return area;
    }
    default:
        return wave->mean * (b - a);
    }
}

static double next_edge(const struct wave *wave, double t)
{
    if (wave->shape == STEPS) {
        for (size_t i = 1; i < wave->steps->count; i++)
            if (step_time(wave, i) > t)
                return step_time(wave, i);
    } else if (wave->shape == SQUARE) {
        double turn = floor((t - wave->phase) / wave->period);

        for (int i = 0; i < 3; i++, turn++) {
            double rise = wave->phase + turn * wave->period;
            double fall = rise + wave->duty * wave->period;

            if (rise > t)
                return rise;
            if (fall > t)
                return fall;
        }
    }
    return INFINITY;
}

/* The integral of first(t) * second(t). */
static double product_integral(const struct json *first, const struct json *second, double a,
                               double b)
{
    struct wave one = parse(first), two = parse(second);
    double area = 0;

    if (one.shape == CONSTANT)
        return one.mean * integral(&two, a, b);
    if (two.shape == CONSTANT)
        return two.mean * integral(&one, a, b);
    while (a < b) {
        double until = fmin(b, fmin(next_edge(&one, a), next_edge(&two, a)));
        double middle = (a + until) / 2;

        if (one.shape != SINE) {
            area += value_at(&one, middle) * integral(&two, a, until);
        } else if (two.shape != SINE) {
            area += value_at(&two, middle) * integral(&one, a, until);
        } else {
            /* Two sines have no edges: midpoints are near enough, the only inexact case. */
            int pieces = 4096;

            for (int i = 0; i < pieces; i++) {
                double t = a + (until - a) * (i + 0.5) / pieces;

                area += value_at(&one, t) * value_at(&two, t) * (until - a) / pieces;
            }
        }
        a = until;
    }
    return area;
}

double wave_value(const struct json *json, double t)
{
    struct wave wave;
    double sum = 0;

    if (json && json->type == JSON_ARRAY) {
        for (size_t i = 0; i < json->count; i++)
            sum += wave_value(json->items[i], t);
        return sum;
    }
    wave = parse(json);
    return value_at(&wave, t);
}

double wave_integral(const struct json *json, double a, double b)
{
    const struct json *product = json_get(json, "product");
    struct wave wave;

    if (product)
        return product_integral(json_at(product, 0), json_at(product, 1), a, b);
    wave = parse(json);
    return integral(&wave, a, b);
}
