/* SPDX-License-Identifier: MIT
 *
 * sym_table.c - the symbols of one module, sorted once.
 *
 * Several symbols may share an address, and some have no size.  Functions win over labels, those
 * with a size over those without, global over weak over local; a label reaches to the next symbol
 * or the end of its section.
 */
#include "names/sym_table.h"

#include <gelf.h>
#include <stdlib.h>
#include <string.h>

#include "common/cli.h"
#include "names/demangle.h"

enum { SYMBOLS_LOOKED_BACK = 16 };

struct symbol {
    uint64_t address, size; /* without a size: up to the end of its section */
    bool has_size;
    const char *name;
    unsigned rank; /* which of several at one address is preferred */
};

struct sym_table {
    struct symbol *symbols; /* by address */
    uint32_t count, room;
};

/* Where the section with code ends; 0: it has none. */
static uint64_t end_of_code(Elf *elf, uint32_t section) {
    GElf_Shdr header;
    Elf_Scn *scn = section < SHN_LORESERVE ? elf_getscn(elf, section) : NULL;
    bool is_code =
        scn != NULL && gelf_getshdr(scn, &header) != NULL && (header.sh_flags & SHF_EXECINSTR) != 0;
    return is_code ? header.sh_addr + header.sh_size : 0;
}

/* Functions first, global before weak before local, those with a size before those without. */
static unsigned rank_of(const GElf_Sym *symbol) {
    unsigned binding = GELF_ST_BIND(symbol->st_info), type = GELF_ST_TYPE(symbol->st_info);
    return (type != STT_NOTYPE ? 8U : 0U) + (symbol->st_size != 0 ? 4U : 0U) +
           (binding == STB_GLOBAL ? 2U
            : binding == STB_WEAK ? 1U
                                  : 0U);
}

static bool is_wanted(Elf *elf, const GElf_Sym *symbol, const char *name) {
    unsigned type = GELF_ST_TYPE(symbol->st_info);
    if (name == NULL || name[0] == '\0' || symbol->st_shndx == SHN_UNDEF) {
        return false;
    }
    if (type == STT_FUNC || type == STT_GNU_IFUNC) {
        return true;
    }
    return type == STT_NOTYPE && name[0] != '$' && end_of_code(elf, symbol->st_shndx) != 0;
}

static void add_symbol(struct sym_table *table, Elf *elf, const GElf_Sym *symbol,
                       const char *name) {
    table->symbols =
        must_have_room(table->symbols, table->count, &table->room, sizeof table->symbols[0]);
    uint64_t size = symbol->st_size;
    if (size == 0) {
        uint64_t end = end_of_code(elf, symbol->st_shndx);
        size = end > symbol->st_value ? end - symbol->st_value : 0;
    }
    table->symbols[table->count++] =
        (struct symbol){symbol->st_value, size, symbol->st_size != 0, name, rank_of(symbol)};
}

static void read_symbols(struct sym_table *table, Elf *elf, GElf_Word kind) {
    for (Elf_Scn *section = NULL; elf != NULL && (section = elf_nextscn(elf, section)) != NULL;) {
        GElf_Shdr header;
        Elf_Data *data;
        if (gelf_getshdr(section, &header) == NULL || header.sh_type != kind ||
            header.sh_entsize == 0 || (data = elf_getdata(section, NULL)) == NULL) {
            continue;
        }
        size_t count = data->d_size / header.sh_entsize;
        for (size_t i = 1; i < count && i <= INT32_MAX; i++) {
            GElf_Sym symbol;
            if (gelf_getsym(data, (int)i, &symbol) == NULL) {
                break;
            }
            const char *name = elf_strptr(elf, header.sh_link, symbol.st_name);
            if (is_wanted(elf, &symbol, name)) {
                add_symbol(table, elf, &symbol, name);
            }
        }
    }
}

/* By address; at one address the preferred one last. */
static int compare_symbols(const void *a, const void *b) {
    const struct symbol *left = a, *right = b;
    if (left->address != right->address) {
        return left->address < right->address ? -1 : 1;
    }
    if (left->rank != right->rank) {
        return left->rank < right->rank ? -1 : 1;
    }
    return strcmp(right->name, left->name);
}

struct sym_table *sym_table_read(const struct sym_files *files) {
    struct sym_table *table = must_zeroed(sizeof *table);
    read_symbols(table, files->debug.elf, SHT_SYMTAB);
    if (table->count == 0) {
        read_symbols(table, files->module.elf, SHT_SYMTAB);
    }
    if (table->count == 0) {
        read_symbols(table, files->module.elf, SHT_DYNSYM);
    }
    if (table->count > 0) {
        qsort(table->symbols, table->count, sizeof table->symbols[0], compare_symbols);
    }
    return table;
}

void sym_table_free(struct sym_table *table) {
    free(table->symbols);
    free(table);
}

/* Without the version, as in memcpy@@GLIBC_2.14; in a static buffer if it had one. */
static const char *without_version(const char *name) {
    static char plain[DEMANGLE_IN_MOST + 1];
    size_t length = strcspn(name, "@");
    if (name[length] == '\0' || length == 0 || length > DEMANGLE_IN_MOST) {
        return name;
    }
    memcpy(plain, name, length);
    plain[length] = '\0';
    return plain;
}

const char *sym_table_find(const struct sym_table *table, uint64_t address) {
    size_t low = 0, high = table->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (table->symbols[middle].address <= address) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    for (size_t back = 0; back < SYMBOLS_LOOKED_BACK && back < low; back++) {
        const struct symbol *symbol = &table->symbols[low - 1 - back];
        if (address - symbol->address < symbol->size && (symbol->has_size || back == 0)) {
            return without_version(symbol->name);
        }
    }
    return NULL;
}
