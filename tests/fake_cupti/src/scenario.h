/* SPDX-License-Identifier: Apache-2.0 */
/* What the fake libraries play: a text file, named by FAKE_CUPTI, that is read again when it
 * changes. One setting a line; `#` begins a comment.
 *
 *   driver 13000                      CUDA version of the driver (cuDriverGetVersion)
 *   cupti 130101                      version that cuptiGetVersion reports
 *   newest 12                         CUPTI of a later CUDA is too new for the driver
 *   gpu 0 AD102 UUID                  one line per GPU: index, chip, 32 hex digits
 *   lacks 0 vgpu                      a field of DeviceSupported: vgpu sli confidential cmp wsl all
 *   fail FUNCTION CODE [TIMES [GPU]]  that call returns CODE; TIMES 0: for ever
 *   crash FUNCTION / hang FUNCTION    that call never comes back
 *   passes METRIC 2                   a set with this metric needs so many passes
 *   unknown METRIC                    this metric does not exist
 *   value METRIC V [V ...]            the values of its samples, in turn; others are 10
 *   first zero|stretched|plain        the start of the first sample after Start; default: zero
 *   sysclk 1200000000                 hertz of the clock that the SYSCLK trigger counts
 *   missing A B                       of every B samples in a row the first A do not come
 *   log PATH                          a line per call: process, function, GPU or -
 *   real PATH                         a real libcupti that makes the config image
 */
#ifndef FAKE_CUPTI_SCENARIO_H
#define FAKE_CUPTI_SCENARIO_H

#include <stdint.h>

#define EXPORT __attribute__((visibility("default")))
#define MOST_GPUS 16
#define MOST_VALUES 16

struct gpu {
    int present;
    char chip[32];
    char uuid[33];
};

const struct gpu *scenario_gpu(unsigned long long index);
int scenario_gpus(void);
long long scenario_number(const char *key, long long otherwise);
/* The word after `key` and, where given, a second word; NULL if there is no such line. */
const char *scenario_word(const char *key, const char *second);
/* The sample's value of this metric. */
double scenario_value(const char *metric, unsigned long long sample);
/* Enter a call: log it, crash, hang, or return the code that it has to fail with; else 0. */
int scenario_enter(const char *function, long long gpu);

#endif
