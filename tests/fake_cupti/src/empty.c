/* SPDX-License-Identifier: Apache-2.0 */
/* Stands for the libraries that libcupti wants loaded before it. */
#include "scenario.h"

EXPORT int nothing(void);
EXPORT int nothing(void)
{
    return 0;
}
