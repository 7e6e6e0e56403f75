/* SPDX-License-Identifier: MIT
 *
 * screen.h - the whole terminal for a while: the alternate screen, given back on every way out.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What ended a wait. */
enum screen_event { SCREEN_TIME, SCREEN_KEY, SCREEN_RESIZED, SCREEN_END, SCREEN_OTHER };

/* False, with nothing changed, unless both input and output are a terminal. */
bool screen_begin(void);
void screen_end(void);

/* Lines from the top left, cut at the right edge and below the bottom; the rest is cleared. */
void screen_draw(const char *text, size_t length);

unsigned screen_columns(void);

/*
 * Waits for a time (CLOCK_MONOTONIC), a key, a new size of the window, or something to read in `fd`
 * (-1: none), which is SCREEN_OTHER.  SCREEN_END: a signal wants the command to end, and *number is
 * that signal; for SCREEN_KEY it is the key.  Ctrl-Z gives the terminal back for a while.
 */
enum screen_event screen_wait(uint64_t until_ns, int fd, int *number);
