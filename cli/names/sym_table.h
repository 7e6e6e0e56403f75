/* SPDX-License-Identifier: MIT
 *
 * sym_table.h - the symbols of one module, sorted once.
 */
#pragma once

#include "names/sym_file.h"

struct sym_table;

/* Those of the debug file, or of the module, or what the module shows to the loader. */
struct sym_table *sym_table_read(const struct sym_files *files);
void sym_table_free(struct sym_table *table);

/* The name of the symbol that reaches an address, without a version; NULL where none does.  Valid until
 * the next call. */
const char *sym_table_find(const struct sym_table *table, uint64_t address);
