/* SPDX-License-Identifier: MIT
 *
 * maps.c - reads /proc/self/maps, and build ids out of the files as they are mapped.
 *
 *      7f10c0a00000-7f10c0a09000 r--p 00000000 fe:00 77    /usr/lib/libc.so.6    ELF header, notes
 *      7f10c0a09000-7f10c0aa0000 r-xp 00009000 fe:00 77    /usr/lib/libc.so.6    a module
 *
 * A library may be unloaded while it is looked at, so its memory is read through /proc/self/mem,
 * where what is gone is an error and not a fault.  Nothing read there is believed: every offset is
 * checked by the kernel, every length by us.
 */
#include "out/maps.h"

#include <elf.h>
#include <string.h>

#include "base/os.h"

/* ---------------------------------------------------------------- build ids */

enum { NOTE_BYTES = 1024, HEADERS_MOST = 64 };

/* True when all bytes could be read. */
static bool read_memory(int memory, uintptr_t address, void *bytes, size_t length) {
    return os_read_at(memory, bytes, length, address) == (ssize_t)length;
}

static void write_hex(char *text, const unsigned char *bytes, size_t length) {
    for (size_t i = 0; i < length; i++) {
        text[2 * i] = "0123456789abcdef"[bytes[i] >> 4];
        text[2 * i + 1] = "0123456789abcdef"[bytes[i] & 15];
    }
    text[2 * length] = '\0';
}

/* Searches the notes for the linker's build id. */
static bool find_build_id(const unsigned char *notes, size_t length, char *build_id) {
    Elf64_Nhdr note;
    for (size_t at = 0; at + sizeof(note) <= length;) {
        memcpy(&note, notes + at, sizeof(note));
        size_t name = at + sizeof(note);
        size_t content = name + align_up(note.n_namesz, 4);
        if (note.n_namesz > length || note.n_descsz > length || content + note.n_descsz > length) {
            return false;
        }
        if (note.n_type == NT_GNU_BUILD_ID && note.n_namesz == 4 &&
            memcmp(notes + name, "GNU", 4) == 0) {
            write_hex(build_id, notes + content, min_size(note.n_descsz, (MAPS_BUILD_ID - 1) / 2));
            return true;
        }
        at = content + align_up(note.n_descsz, 4);
    }
    return false;
}

static bool read_file_header(int memory, uintptr_t base, Elf64_Ehdr *file) {
    return read_memory(memory, base, file, sizeof(*file)) &&
           memcmp(file->e_ident, ELFMAG, SELFMAG) == 0 && file->e_ident[EI_CLASS] == ELFCLASS64 &&
           file->e_phentsize == sizeof(Elf64_Phdr);
}

/* The build id of the file whose beginning is mapped at `base`.  Notes lie behind the header, in
 * the part that is mapped there, as linkers order them. */
static void read_build_id(int memory, uintptr_t base, char *build_id) {
    unsigned char notes[NOTE_BYTES];
    Elf64_Ehdr file;
    if (!read_file_header(memory, base, &file)) {
        return;
    }
    uintptr_t first = 0; /* address of the beginning, as the file says */
    for (size_t i = 0; i < min_size(file.e_phnum, HEADERS_MOST); i++) {
        Elf64_Phdr header;
        if (!read_memory(memory, base + file.e_phoff + i * sizeof(header), &header,
                         sizeof(header))) {
            return;
        }
        size_t length = min_size(header.p_filesz, sizeof(notes));
        if (header.p_type == PT_LOAD && header.p_offset == 0) {
            first = header.p_vaddr;
        } else if (header.p_type == PT_NOTE &&
                   read_memory(memory, base + header.p_vaddr - first, notes, length) &&
                   find_build_id(notes, length, build_id)) {
            return;
        }
    }
}

/* ---------------------------------------------------------------- lines */

static const char *parse_hex(const char *text, const char *end, uint64_t *value) {
    for (*value = 0; text < end; text++) {
        bool is_digit = *text >= '0' && *text <= '9';
        if (!is_digit && !(*text >= 'a' && *text <= 'f')) {
            break;
        }
        *value = *value << 4 | (uint64_t)(is_digit ? *text - '0' : *text - 'a' + 10);
    }
    return text;
}

static const char *skip_word(const char *text, const char *end) {
    while (text < end && *text != ' ') {
        text++;
    }
    while (text < end && *text == ' ') {
        text++;
    }
    return text;
}

/* start-end rwxp offset device inode path.  A line that is cut short has no path. */
void maps_parse_line(const char *text, size_t length, struct maps_line *line) {
    static const char deleted[] = " (deleted)";
    const char *end = text + length - (length > 0 && text[length - 1] == '\n');
    uint64_t from = 0, to = 0;
    const char *next = parse_hex(text, end, &from);
    next = parse_hex(next < end ? next + 1 : end, end, &to);
    const char *rights = skip_word(next, end);
    next = parse_hex(skip_word(rights, end), end, &line->offset);
    next = skip_word(skip_word(skip_word(next, end), end), end);
    line->start = (uintptr_t)from;
    line->end = (uintptr_t)to;
    line->is_executable = end - rights > 2 && rights[2] == 'x';
    line->path = next;
    line->path_bytes = (size_t)(end - next);
    size_t tail = sizeof(deleted) - 1;
    if (line->path_bytes > tail && memcmp(end - tail, deleted, tail) == 0) {
        line->path_bytes -= tail;
    }
}

size_t maps_next_line(const struct maps *maps, size_t at) {
    size_t length = 0;
    while (at + length < maps->text.length) {
        length++;
        if (maps->text.bytes[at + length - 1] == '\n') {
            break;
        }
    }
    return length;
}

bool maps_line_is_executable(const char *text, size_t length) {
    struct maps_line line;
    maps_parse_line(text, length, &line);
    return line.is_executable;
}

/* ---------------------------------------------------------------- reading */

bool maps_read_text(struct pile *text) {
    enum { PART = 16 << 10 };
    int file = os_open("/proc/self/maps");
    if (file < 0) {
        return false;
    }
    ssize_t length = -1;
    while (pile_grow(text, PART)) {
        length = os_read(file, text->bytes + text->length, PART);
        if (length <= 0) {
            break;
        }
        text->length += (size_t)length;
    }
    os_close(file);
    return length == 0;
}

static bool add_module(struct maps *maps, const struct maps_line *line) {
    struct maps_module *module;
    if (!pile_grow(&maps->modules, sizeof(*module))) {
        return false;
    }
    module = (struct maps_module *)(void *)(maps->modules.bytes + maps->modules.length);
    *module = (struct maps_module){.start = line->start,
                                   .end = line->end,
                                   .offset = line->offset,
                                   .path = (uint32_t)(line->path - maps->text.bytes),
                                   .path_bytes = (uint32_t)line->path_bytes};
    maps->modules.length += sizeof(*module);
    maps->count++;
    return true;
}

static bool is_same_path(const struct maps_line *a, const struct maps_line *b) {
    return a->path_bytes == b->path_bytes && memcmp(a->path, b->path, a->path_bytes) == 0;
}

/* Makes modules of all lines that are executable and have a path. */
static bool read_modules(struct maps *maps, int memory) {
    struct maps_line first = {0}; /* the mapping of the beginning of a file that was seen last */
    size_t length;
    for (size_t at = 0; (length = maps_next_line(maps, at)) > 0; at += length) {
        struct maps_line line;
        maps_parse_line(maps->text.bytes + at, length, &line);
        if (line.path_bytes == 0) {
            continue;
        }
        if (line.offset == 0) {
            first = line;
        }
        if (!line.is_executable) {
            continue;
        }
        if (!add_module(maps, &line)) {
            return false;
        }
        if (memory >= 0 && first.path_bytes > 0 && is_same_path(&first, &line)) {
            struct maps_module *modules = (struct maps_module *)(void *)maps->modules.bytes;
            read_build_id(memory, first.start, modules[maps->count - 1].build_id);
        }
    }
    return true;
}

static size_t find_program(struct maps *maps) {
    enum { PATH_BYTES = 4096 };
    if (!pile_grow(&maps->text, PATH_BYTES)) {
        return maps->count;
    }
    char *path = maps->text.bytes + maps->text.length; /* room behind the text */
    int length = os_read_link("/proc/self/exe", path, PATH_BYTES);
    for (size_t i = 0; i < maps->count; i++) {
        const struct maps_module *module = maps_module(maps, i);
        if (length > 0 && module->path_bytes <= (size_t)length &&
            memcmp(maps->text.bytes + module->path, path, module->path_bytes) == 0 &&
            (module->path_bytes == (size_t)length || path[module->path_bytes] == ' ')) {
            return i;
        }
    }
    return maps->count;
}

void maps_read(struct maps *maps) {
    *maps = (struct maps){0};
    if (!maps_read_text(&maps->text)) {
        maps_release(maps);
        return;
    }
    int memory = os_open("/proc/self/mem");
    bool complete = read_modules(maps, memory);
    if (memory >= 0) {
        os_close(memory);
    }
    if (!complete) {
        maps_release(maps);
        return;
    }
    maps->program = find_program(maps);
}

void maps_release(struct maps *maps) {
    pile_release(&maps->text);
    pile_release(&maps->modules);
    maps->count = maps->program = 0;
}

const struct maps_module *maps_module(const struct maps *maps, size_t index) {
    return (const struct maps_module *)(const void *)maps->modules.bytes + index;
}

uintptr_t maps_tell(const struct maps *maps, size_t module, uintptr_t address) {
    enum { LG_DISTANCE = 36 }; /* longer than any module */
    if (!maps->hides) {
        return address;
    }
    if (module >= maps->count) {
        return 0;
    }
    return (((uintptr_t)module + 1) << LG_DISTANCE) + (address - maps_module(maps, module)->start);
}

size_t maps_find(const struct maps *maps, uintptr_t address) {
    size_t low = 0, high = maps->count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (maps_module(maps, middle)->end <= address) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low < maps->count && maps_module(maps, low)->start <= address ? low : maps->count;
}
