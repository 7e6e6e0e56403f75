/* SPDX-License-Identifier: MIT
 *
 * sym_index.h - names and lines of one module's addresses, from its files.
 */
#pragma once

#include <stdatomic.h>

#include "names/sym_file.h"
#include "names/sym_image.h"

/*
 * Adds a place for each of the offsets, which are sorted and different.  *done counts them, to show
 * progress.  Looks at nothing but the memory of `files`.
 */
void sym_index_resolve(const struct sym_files *files, const uint64_t *offsets, size_t count,
                       struct sym_builder *out, _Atomic uint32_t *done);
