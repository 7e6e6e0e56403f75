/* SPDX-License-Identifier: MIT
 *
 * sym_file.h - the files of one module: itself, its separate debug file, the file that dwz made.
 */
#pragma once

#include <libelf.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "names/sym_image.h"
#include "names/symbolize.h"

/* A file in private memory. */
struct sym_file {
    Elf *elf; /* NULL: there is none */
    uint8_t *bytes;
    size_t length;
    char *path;
    char build_id[SYM_BUILD_ID_CHARS]; /* "" where it has none */
    char identity[SYM_BUILD_ID_CHARS]; /* of this file as it is now, in digits too */
};

struct sym_files {
    struct sym_file module, debug, alternative;
    char *other_path; /* of a file with another build-id; NULL */
    char other_id[SYM_BUILD_ID_CHARS];
    bool no_debuginfod; /* it was asked for, but its library is missing */
};

/* A module as a profile knows it. */
struct sym_module {
    const char *path, *build_id; /* "" where unknown */
    uint64_t start, limit;       /* where one of its mappings lies */
};

/* Reads those of the three files that exist and fit together into memory. */
void sym_files_open(struct sym_files *files, const struct sym_module *module,
                    const struct symbolize_options *options);

bool sym_file_has_debug(const struct sym_file *file);
