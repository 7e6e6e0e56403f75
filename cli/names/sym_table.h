/* SPDX-License-Identifier: MIT
 *
 * sym_table.h - the symbols of one module, sorted once.
 */
#pragma once

#include "names/sym_file.h"

struct sym_table;

/* The symbols of the debug file, else of the module, else those that the loader sees. */
struct sym_table *sym_table_read(const struct sym_files *files);
void sym_table_free(struct sym_table *table);

/* The unversioned name of the symbol that covers an address, or NULL; valid until the next call. */
const char *sym_table_find(const struct sym_table *table, uint64_t address);
