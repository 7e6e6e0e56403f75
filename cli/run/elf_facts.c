/* SPDX-License-Identifier: MIT
 *
 * elf_facts.c - looks at headers, dynamic section, symbols and notes of an ELF file.
 *
 * Sections are read whole, into memory of their own, when their size is sensible.  A program without
 * section headers keeps what its program headers say.
 */
#include "run/elf_facts.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/cli.h"

enum { SECTION_MOST_BYTES = 256 << 20, SECTIONS_MOST = 65535, NOTES_MOST = 64 };

/* The file while it is looked at. */
struct look {
    int fd;
    struct elf_facts *facts;
    Elf64_Ehdr header;
    Elf64_Shdr *sections;
    size_t section_count;
    char *names; /* of sections */
    size_t names_bytes;
    /* Bytes that may still be read: sections of a sparse file can be many and huge. */
    uint64_t left;
};

/* Bytes of the file followed by a zero; NULL when they are not all there. */
static void *read_part(struct look *look, uint64_t offset, uint64_t bytes) {
    if (bytes > SECTION_MOST_BYTES || bytes > look->left ||
        offset > INT64_MAX - SECTION_MOST_BYTES) {
        return NULL;
    }
    look->left -= bytes;
    char *part = must_alloc(bytes + 1);
    if (!read_at(look->fd, part, bytes, offset)) {
        free(part);
        return NULL;
    }
    part[bytes] = '\0';
    return part;
}

static void read_sections(struct look *look) {
    const Elf64_Ehdr *header = &look->header;
    if (header->e_shentsize != sizeof(Elf64_Shdr) || header->e_shnum == 0) {
        return;
    }
    look->sections = read_part(look, header->e_shoff, header->e_shnum * sizeof(Elf64_Shdr));
    look->section_count = look->sections != NULL ? header->e_shnum : 0;
    if (header->e_shstrndx < look->section_count) {
        const Elf64_Shdr *names = &look->sections[header->e_shstrndx];
        look->names = read_part(look, names->sh_offset, names->sh_size);
        look->names_bytes = look->names != NULL ? names->sh_size : 0;
    }
}

static const char *section_name(const struct look *look, const Elf64_Shdr *section) {
    return section->sh_name < look->names_bytes ? look->names + section->sh_name : "";
}

/* The names of the libraries that the program needs. */
static void look_at_needed(struct look *look, const Elf64_Shdr *section) {
    if (section->sh_link >= look->section_count) {
        return;
    }
    const Elf64_Shdr *strings = &look->sections[section->sh_link];
    Elf64_Dyn *rows = read_part(look, section->sh_offset, section->sh_size);
    char *names = read_part(look, strings->sh_offset, strings->sh_size);
    size_t count = rows != NULL && names != NULL ? section->sh_size / sizeof *rows : 0;
    for (size_t i = 0; i < count; i++) {
        if (rows[i].d_tag != DT_NEEDED || rows[i].d_un.d_val >= strings->sh_size) {
            continue;
        }
        const char *name = names + rows[i].d_un.d_val;
        look->facts->needs_tally |= begins_with(name, "libtally.so");
        look->facts->needs_sanitizer |= begins_with(name, "libasan.so") ||
                                        begins_with(name, "libtsan.so") ||
                                        begins_with(name, "liblsan.so");
    }
    free(rows);
    free(names);
}

/* Where the bytes of a function are in the file; 0: nowhere. */
static uint64_t file_offset(const struct look *look, const Elf64_Sym *symbol) {
    if (symbol->st_shndx == 0 || symbol->st_shndx >= look->section_count) {
        return 0;
    }
    const Elf64_Shdr *section = &look->sections[symbol->st_shndx];
    if (section->sh_type != SHT_PROGBITS || symbol->st_value < section->sh_addr ||
        symbol->st_value - section->sh_addr >= section->sh_size) {
        return 0;
    }
    return section->sh_offset + (symbol->st_value - section->sh_addr);
}

/* push %rbp; mov %rsp,%rbp, perhaps after endbr64.  Only x86-64 is known here. */
static bool sets_up_frame(const uint8_t *code, size_t bytes) {
    static const uint8_t endbr64[] = {0xf3, 0x0f, 0x1e, 0xfa};
    static const uint8_t frame[][4] = {{0x55, 0x48, 0x89, 0xe5}, {0x55, 0x48, 0x8b, 0xec}};
    if (memcmp(code, endbr64, sizeof endbr64) == 0) {
        code += sizeof endbr64;
        bytes -= sizeof endbr64;
    }
    return bytes >= 4 && (memcmp(code, frame[0], 4) == 0 || memcmp(code, frame[1], 4) == 0);
}

/* Functions that end within a few bytes call nothing. */
static void look_at_function(struct look *look, const Elf64_Sym *symbol) {
    enum { LEAST_BYTES = 64, CODE_BYTES = 16 };
    uint8_t code[CODE_BYTES];
    uint64_t offset = file_offset(look, symbol);
    if (ELF64_ST_TYPE(symbol->st_info) != STT_FUNC || symbol->st_size < LEAST_BYTES ||
        offset == 0 || look->header.e_machine != EM_X86_64 ||
        !read_at(look->fd, code, sizeof code, offset)) {
        return;
    }
    look->facts->functions++;
    look->facts->with_frame += sets_up_frame(code, sizeof code);
}

static void look_at_symbols(struct look *look, const Elf64_Shdr *section, bool is_dynamic) {
    enum { FUNCTIONS_MOST = 20000 };
    if (section->sh_link >= look->section_count) {
        return;
    }
    const Elf64_Shdr *strings = &look->sections[section->sh_link];
    Elf64_Sym *symbols = read_part(look, section->sh_offset, section->sh_size);
    char *names = read_part(look, strings->sh_offset, strings->sh_size);
    size_t count = symbols != NULL && names != NULL ? section->sh_size / sizeof *symbols : 0;
    for (size_t i = 0; i < count; i++) {
        if (symbols[i].st_shndx == SHN_UNDEF || symbols[i].st_name >= strings->sh_size) {
            continue;
        }
        const char *name = names + symbols[i].st_name;
        look->facts->defines_malloc |= is_dynamic && strcmp(name, "malloc") == 0;
        look->facts->defines_tally |= strcmp(name, "tally_malloc") == 0;
        if (!is_dynamic && look->facts->functions < FUNCTIONS_MOST) {
            look_at_function(look, &symbols[i]);
        }
    }
    free(symbols);
    free(names);
}

static void look_at_note(struct look *look, const Elf64_Shdr *section) {
    Elf64_Nhdr note;
    uint8_t bytes[64];
    if (section->sh_size < sizeof note ||
        !read_at(look->fd, &note, sizeof note, section->sh_offset) ||
        note.n_type != NT_GNU_BUILD_ID || note.n_namesz != 4 || note.n_descsz > sizeof bytes ||
        !read_at(look->fd, bytes, note.n_descsz, section->sh_offset + sizeof note + 4)) {
        return;
    }
    for (size_t i = 0; i < note.n_descsz; i++) {
        snprintf(look->facts->build_id + 2 * i, 3, "%02x", bytes[i]);
    }
}

static void look_at_section(struct look *look, const Elf64_Shdr *section) {
    const char *name = section_name(look, section);
    switch (section->sh_type) {
    case SHT_DYNAMIC:
        look_at_needed(look, section);
        break;
    case SHT_DYNSYM:
    case SHT_SYMTAB:
        look->facts->has_symbols |= section->sh_type == SHT_SYMTAB;
        look_at_symbols(look, section, section->sh_type == SHT_DYNSYM);
        break;
    case SHT_NOTE:
        look_at_note(look, section);
        break;
    default:
        look->facts->has_debug_info |=
            strcmp(name, ".debug_info") == 0 || strcmp(name, ".zdebug_info") == 0;
    }
}

static void look_at_segments(struct look *look) {
    const Elf64_Ehdr *header = &look->header;
    if (header->e_phentsize != sizeof(Elf64_Phdr)) {
        return;
    }
    Elf64_Phdr *segments = read_part(look, header->e_phoff, header->e_phnum * sizeof *segments);
    for (size_t i = 0; segments != NULL && i < header->e_phnum; i++) {
        look->facts->is_dynamic |= segments[i].p_type == PT_INTERP;
    }
    free(segments);
}

static void look_at_script(struct look *look) {
    char line[ELF_NAME_BYTES] = "";
    ssize_t got = pread(look->fd, line, sizeof line - 1, 2);
    if (got <= 0) {
        return;
    }
    const char *begin = line + strspn(line, " \t");
    snprintf(look->facts->interpreter, sizeof look->facts->interpreter, "%.*s",
             (int)strcspn(begin, " \t\n"), begin);
}

static void look_at_file(struct look *look) {
    unsigned char mark[EI_NIDENT] = "";
    ssize_t got = pread(look->fd, mark, sizeof mark, 0);
    look->facts->is_script = got >= 2 && mark[0] == '#' && mark[1] == '!';
    if (look->facts->is_script) {
        look_at_script(look);
    }
    look->facts->is_elf = got == EI_NIDENT && memcmp(mark, ELFMAG, SELFMAG) == 0;
    look->facts->is_64_bit = look->facts->is_elf && mark[EI_CLASS] == ELFCLASS64;
    if (!look->facts->is_64_bit || mark[EI_DATA] != ELFDATA2LSB ||
        !read_at(look->fd, &look->header, sizeof look->header, 0)) {
        return;
    }
    look->facts->machine = look->header.e_machine;
    look_at_segments(look);
    read_sections(look);
    for (size_t i = 0; i < look->section_count; i++) {
        look_at_section(look, &look->sections[i]);
    }
    free(look->sections);
    free(look->names);
}

bool elf_look(const char *path, struct elf_facts *facts) {
    *facts = (struct elf_facts){.is_elf = false};
    struct look look = {.facts = facts, .left = (uint64_t)4 * SECTION_MOST_BYTES};
    look.fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (look.fd < 0) {
        return false;
    }
    struct stat status;
    bool is_file = fstat(look.fd, &status) == 0 && S_ISREG(status.st_mode);
    if (is_file) {
        look_at_file(&look);
    }
    close(look.fd);
    errno = is_file ? 0 : EINVAL;
    return is_file;
}

bool elf_find(const char *word, char path[ELF_PATH_BYTES]) {
    if (strchr(word, '/') != NULL) {
        snprintf(path, ELF_PATH_BYTES, "%s", word);
        return access(path, F_OK) == 0;
    }
    const char *folders = getenv("PATH");
    while (folders != NULL && *folders != '\0') {
        size_t length = strcspn(folders, ":");
        snprintf(path, ELF_PATH_BYTES, "%.*s/%s", (int)length, folders, word);
        if (access(path, X_OK) == 0) {
            return true;
        }
        folders += length + (folders[length] == ':');
    }
    return false;
}

static bool has_our_form(const struct elf_facts *facts, const char *library) {
    struct elf_facts own;
    return elf_look(library, &own) && own.is_elf && own.machine == facts->machine &&
           own.is_64_bit == facts->is_64_bit;
}

const char *elf_explain_absence(const char *word, const char *library) {
    static const char nothing[] = "the library was not loaded; `tally doctor` may know why";
    char path[ELF_PATH_BYTES];
    struct stat found;
    struct elf_facts facts;
    if (!elf_find(word, path) || stat(path, &found) != 0 || !elf_look(path, &facts)) {
        return nothing;
    }
    if (found.st_mode & (S_ISUID | S_ISGID)) {
        return "it is set-id, and the loader ignores LD_PRELOAD for those";
    }
    if (facts.is_script) { /* Its interpreter counts. */
        snprintf(path, sizeof path, "%s", facts.interpreter);
        path[strcspn(path, " \t")] = '\0';
        if (!elf_look(path, &facts)) {
            return nothing;
        }
    }
    if (facts.is_elf && !has_our_form(&facts, library)) {
        return "it is for another machine or word size than the library";
    }
    if (facts.is_elf && !facts.is_dynamic) {
        return "it is statically linked; link it with libtally.a instead";
    }
    return nothing;
}
