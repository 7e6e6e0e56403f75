/* SPDX-License-Identifier: MIT
 *
 * control.h - how the world looks in.
 */
#pragma once

#include "base/common.h"

/* Writes a summary of the heap whose lines add up, then a line per size class in use, to a
 * descriptor.  No lock is held while it writes. */
void control_print_stats(int fd);
