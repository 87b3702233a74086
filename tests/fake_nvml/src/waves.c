/* SPDX-License-Identifier: Apache-2.0 */
/* Numbers, square waves, sines and steps over time, their sums and products. */
#include "scenario.h"

#include <math.h>

static const double TAU = 6.283185307179586476925286766559;
static const double ZERO[] = {0};
static const struct value NO_WAVE = {NUMBERS, 1, (double *)ZERO, 0, 0};

/* A square is period, phase, duty, high, low; a sine period, phase, mean, amplitude. */
static double value_at(const struct value *wave, double t)
{
    const double *n = wave->numbers;
    double turns;
    int i = 0;

    switch (wave->kind) {
    case NUMBERS:
        return wave->count ? n[0] : 0;
    case SQUARE:
        turns = (t - n[1]) / n[0];
        return turns - floor(turns) < n[2] ? n[3] : n[4];
    case SINE:
        return n[2] + n[3] * sin(TAU * (t - n[1]) / n[0]);
    case STEPS: /* the first value also holds before its time */
        while (2 * i + 2 < wave->count && n[2 * i + 2] <= t)
            i++;
        return n[2 * i + 1];
    default:
        return 0;
    }
}

/* The integral of a square from its phase to t. */
static double square_area(const double *n, double t)
{
    double turns = (t - n[1]) / n[0];
    double whole = floor(turns);
    double on = whole * n[2] + fmin(turns - whole, n[2]);

    return n[0] * (n[4] * turns + (n[3] - n[4]) * on);
}

static double integral(const struct value *wave, double a, double b)
{
    const double *n = wave->numbers;
    double area = 0, k;

    switch (wave->kind) {
    case SQUARE:
        return square_area(n, b) - square_area(n, a);
    case SINE:
        k = TAU / n[0];
        return n[2] * (b - a) + n[3] / k * (cos(k * (a - n[1])) - cos(k * (b - n[1])));
    case STEPS:
        for (int i = 0; i < wave->count; i += 2) {
            double from = i ? fmax(a, n[i]) : a;
            double until = i + 2 < wave->count ? fmin(b, n[i + 2]) : b;

            area += until > from ? n[i + 1] * (until - from) : 0;
        }
        return area;
    default:
        return value_at(wave, a) * (b - a);
    }
}

static double next_edge(const struct value *wave, double t)
{
    const double *n = wave->numbers;

    if (wave->kind == STEPS) {
        for (int i = 2; i < wave->count; i += 2)
            if (n[i] > t)
                return n[i];
    } else if (wave->kind == SQUARE) {
        double turn = floor((t - n[1]) / n[0]);

        for (int i = 0; i < 3; i++, turn++) {
            double rise = n[1] + turn * n[0], fall = rise + n[2] * n[0];

            if (rise > t || fall > t)
                return rise > t ? rise : fall;
        }
    }
    return INFINITY;
}

/* The integral of one(t) * two(t). */
static double product_integral(const struct value *one, const struct value *two, double a,
                               double b)
{
    double area = 0;

    if (one->kind == NUMBERS || two->kind == NUMBERS)
        return one->kind == NUMBERS ? value_at(one, a) * integral(two, a, b)
                                    : value_at(two, a) * integral(one, a, b);
    while (a < b) {
        double until = fmin(b, fmin(next_edge(one, a), next_edge(two, a)));
        double middle = (a + until) / 2;

        if (one->kind != SINE) {
            area += value_at(one, middle) * integral(two, a, until);
        } else if (two->kind != SINE) {
            area += value_at(two, middle) * integral(one, a, until);
        } else {
            /* Two sines have no edges: midpoints are near enough, the only inexact case. */
            for (int i = 0; i < 4096; i++) {
                double t = a + (until - a) * (i + 0.5) / 4096;

                area += value_at(one, t) * value_at(two, t) * (until - a) / 4096;
            }
        }
        a = until;
    }
    return area;
}

static const struct value *part(const struct table *table, const struct value *wave, int i)
{
    const struct value *found = table_get(table, wave->words[i]);

    return found ? found : &NO_WAVE;
}

double wave_value(const struct table *table, const struct value *wave, double t)
{
    double sum = 0;

    if (!wave || wave->kind != SUM)
        return wave ? value_at(wave, t) : 0;
    for (int i = 0; i < wave->count; i++)
        sum += value_at(part(table, wave, i), t);
    return sum;
}

double wave_integral(const struct table *table, const struct value *wave, double a, double b)
{
    if (!wave || wave->kind != PRODUCT)
        return wave ? integral(wave, a, b) : 0;
    return product_integral(part(table, wave, 0), part(table, wave, 1), a, b);
}
