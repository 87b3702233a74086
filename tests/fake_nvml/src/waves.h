/* SPDX-License-Identifier: Apache-2.0 */
/* Values over time with exact integrals; `t` is seconds since the scenario's epoch. */
#ifndef FAKE_NVML_WAVES_H
#define FAKE_NVML_WAVES_H

#include "json.h"

double wave_value(const struct json *wave, double t);
double wave_integral(const struct json *wave, double a, double b);
/* The integral of first(t) * second(t). */
double wave_product_integral(const struct json *first, const struct json *second, double a,
                             double b);

#endif
