/* SPDX-License-Identifier: MIT
 *
 * triggers.h - when a profile is written without a call that asks for it.
 *
 * Threads     All functions are called inside (api/life.h), with no lock held.
 */
#pragma once

#include "base/common.h"

/* prof.gdump */
bool triggers_gdump(void);
void triggers_set_gdump(bool on);

/* Bytes from one profile to the next by volume; 0: none. */
uint64_t triggers_interval(void);
