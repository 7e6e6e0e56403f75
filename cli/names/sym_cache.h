/* SPDX-License-Identifier: MIT
 *
 * sym_cache.h - images kept in $XDG_CACHE_HOME/tally/sym, one file per build-id.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

/* The folder, made where it is missing; -1 where no private one can be had. */
int sym_cache_open(void);
/* A checked image from malloc; NULL where there is none that can be trusted. */
void *sym_cache_read(int folder, const char *build_id, size_t *length);
/* Replaces what was there, whole or not at all.  Failure is silent: it is a cache. */
void sym_cache_write(int folder, const char *build_id, const void *image, size_t length);

/* Lower-case hexadecimal digits, an even number of them, 2 to 128. */
bool sym_is_build_id(const char *text);
