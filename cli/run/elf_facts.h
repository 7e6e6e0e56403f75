/* SPDX-License-Identifier: MIT
 *
 * elf_facts.h - what the file of a program says about it.
 *
 * The file is hostile: every offset and length is checked, and what does not fit counts as absent.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

enum { ELF_NAME_BYTES = 256, ELF_PATH_BYTES = 4096 };

struct elf_facts {
    bool is_elf, is_script;
    char interpreter[ELF_NAME_BYTES]; /* of a script: after #! */
    bool is_64_bit;
    uint16_t machine;     /* EM_... */
    bool is_dynamic;      /* a loader starts it: it has an interpreter, or it is a library */
    bool defines_malloc;  /* in its dynamic symbols, so that its own wins */
    bool defines_tally;   /* libtally.a is inside */
    bool needs_tally;     /* it is linked with libtally.so */
    bool needs_sanitizer; /* libasan and its like, which must come first */
    bool has_symbols;     /* .symtab */
    bool has_debug_info;  /* .debug_info */
    char build_id[129];   /* hexadecimal; "" without */
    uint64_t functions;   /* whose size and beginning are known */
    uint64_t with_frame;  /* those of them that set up a frame pointer first */
};

/* False when the file cannot be opened; errno says why. */
bool elf_look(const char *path, struct elf_facts *facts);

/* The file that execvp takes for a word of the command line; false: there is none. */
bool elf_find(const char *word, char path[ELF_PATH_BYTES]);

/* One sentence about a program that ran without the library. */
const char *elf_explain_absence(const char *word, const char *library);
