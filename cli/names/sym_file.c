/* SPDX-License-Identifier: MIT
 *
 * sym_file.c - finds and reads the files of one module.
 *
 * A profile names a path and a build-id; the file at that path may now be another build, and may
 * name any place for its debug file.  Hence: a file counts only when its build-id is the right one,
 * names found in files open nothing outside the roots (the kernel resolves them beneath a folder),
 * and nothing is mapped that somebody else could truncate under us: regular files are read whole.
 *
 *      module       /proc/PID/map_files, below /proc/PID/root, below --sysroot, the path itself
 *      debug file   ROOT/.build-id/ab/cdef.debug, the .gnu_debuglink beside the module or below a root,
 *                   debuginfod when asked for
 *      dwz file     ROOT/.build-id, or the .gnu_debugaltlink below a root
 *
 * Roots: --debug-path, then usr/lib/debug below --sysroot, below the process's root, and here.
 */
#define _GNU_SOURCE /* O_PATH */
#include "names/sym_file.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <gelf.h>
#include <limits.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <zlib.h>

#include "common/cli.h"
#include "names/sym_cache.h"

static const off_t FILE_BYTES_MOST = (off_t)4 << 30;
static const uint64_t INFLATED_BYTES_MOST = 1 << 30;
enum { INFLATED_RATIO_MOST = 100, ROOTS_MOST = 4 };
static const int READ_FLAGS = O_RDONLY | O_NONBLOCK | O_CLOEXEC | O_NOCTTY;
static const char DEBUG_FOLDER[] = "usr/lib/debug";

/* A folder below which debug files lie. */
struct root {
    int folder;
    char path[PATH_MAX];
};

struct finder {
    struct sym_files *files;
    const struct sym_module *module;
    const struct symbolize_options *options;
    struct root roots[ROOTS_MOST];
    size_t root_count;
};

static bool climbs(const char *path) {
    for (const char *at = path; (at = strstr(at, "..")) != NULL; at += 2) {
        if ((at == path || at[-1] == '/') && (at[2] == '\0' || at[2] == '/')) {
            return true;
        }
    }
    return false;
}

/* Opens below a folder and never outside: `resolve` says what a leading slash and links do. */
static int open_below(int folder, const char *path, int flags, uint64_t resolve) {
    struct open_how how = {.flags = (unsigned)flags, .resolve = resolve};
    long file = syscall(SYS_openat2, folder, path, &how, sizeof how);
    bool is_unknown = file < 0 && (errno == ENOSYS || errno == EPERM);
    if (is_unknown && !climbs(path)) { /* a kernel before 5.6, or a filter that does not know it */
        return openat(folder, path + strspn(path, "/"), flags);
    }
    return (int)file;
}

static const int FOLDER_FLAGS = O_PATH | O_DIRECTORY | O_CLOEXEC;

static int open_folder(const char *path) {
    return open(path, FOLDER_FLAGS);
}

/* Sections. */

/* The unpacked size of a section; its own size where it is not packed. */
static uint64_t inflated_bytes(Elf_Scn *section, const GElf_Shdr *header) {
    GElf_Chdr packed;
    if ((header->sh_flags & SHF_COMPRESSED) == 0) {
        return header->sh_size;
    }
    return gelf_getchdr(section, &packed) == NULL ? UINT64_MAX : packed.ch_size;
}

static bool is_modest(Elf_Scn *section, const GElf_Shdr *header) {
    uint64_t bytes = inflated_bytes(section, header);
    return bytes <= INFLATED_BYTES_MOST && bytes / INFLATED_RATIO_MOST <= header->sh_size;
}

/* A section with bytes in the file, by name; NULL: there is none, or it unpacks to too much. */
static Elf_Scn *find_section(const struct sym_file *file, const char *name) {
    size_t names;
    if (file->elf == NULL || elf_getshdrstrndx(file->elf, &names) != 0) {
        return NULL;
    }
    for (Elf_Scn *section = NULL; (section = elf_nextscn(file->elf, section)) != NULL;) {
        GElf_Shdr header;
        if (gelf_getshdr(section, &header) == NULL || header.sh_type == SHT_NOBITS) {
            continue;
        }
        const char *its_name = elf_strptr(file->elf, names, header.sh_name);
        if (its_name != NULL && strcmp(its_name, name) == 0) {
            return is_modest(section, &header) ? section : NULL;
        }
    }
    return NULL;
}

/* libdw unpacks what it needs without asking, so a single bomb rules out all debug information. */
bool sym_file_has_debug(const struct sym_file *file) {
    if (find_section(file, ".debug_info") == NULL) {
        return false;
    }
    for (Elf_Scn *section = NULL; (section = elf_nextscn(file->elf, section)) != NULL;) {
        GElf_Shdr header;
        if (gelf_getshdr(section, &header) == NULL ||
            ((header.sh_flags & SHF_COMPRESSED) != 0 && !is_modest(section, &header))) {
            return false;
        }
    }
    return true;
}

static const char *section_bytes(const struct sym_file *file, const char *name, size_t *length) {
    Elf_Scn *section = find_section(file, name);
    Elf_Data *data = section == NULL ? NULL : elf_rawdata(section, NULL);
    if (data == NULL || data->d_buf == NULL) {
        return NULL;
    }
    *length = data->d_size;
    return data->d_buf;
}

static void write_hex(char text[SYM_BUILD_ID_CHARS], const uint8_t *bytes, size_t count) {
    text[0] = '\0';
    for (size_t i = 0; i < count && i < (SYM_BUILD_ID_CHARS - 1) / 2; i++) {
        snprintf(text + 2 * i, 3, "%02x", bytes[i]);
    }
}

static bool read_build_id(struct sym_file *file, Elf_Data *notes) {
    size_t at = 0, next, name, bytes;
    GElf_Nhdr note;
    while (notes != NULL && (next = gelf_getnote(notes, at, &note, &name, &bytes)) > 0) {
        if (note.n_type == NT_GNU_BUILD_ID && note.n_namesz == sizeof "GNU" &&
            memcmp((char *)notes->d_buf + name, "GNU", sizeof "GNU") == 0) {
            write_hex(file->build_id, (uint8_t *)notes->d_buf + bytes, note.n_descsz);
            return true;
        }
        at = next;
    }
    return false;
}

/* From the sections of notes, or, where a file has no sections, from the segments. */
static void find_build_id(struct sym_file *file) {
    for (Elf_Scn *section = NULL; (section = elf_nextscn(file->elf, section)) != NULL;) {
        GElf_Shdr header;
        if (gelf_getshdr(section, &header) != NULL && header.sh_type == SHT_NOTE &&
            read_build_id(file, elf_getdata(section, NULL))) {
            return;
        }
    }
    size_t count = 0;
    elf_getphdrnum(file->elf, &count);
    for (size_t i = 0; i < count; i++) {
        GElf_Phdr header;
        if (gelf_getphdr(file->elf, (int)i, &header) == NULL || header.p_type != PT_NOTE ||
            header.p_offset > file->length || header.p_filesz > file->length - header.p_offset) {
            continue;
        }
        Elf_Type type = header.p_align == 8 ? ELF_T_NHDR8 : ELF_T_NHDR;
        if (read_build_id(file, elf_getdata_rawchunk(file->elf, (int64_t)header.p_offset,
                                                     header.p_filesz, type))) {
            return;
        }
    }
}

/* Files. */

static void close_file(struct sym_file *file) {
    elf_end(file->elf);
    free(file->bytes);
    free(file->path);
    *file = (struct sym_file){0};
}

/* Changes whenever the file changes: for files without a build-id. */
static void write_identity(struct sym_file *file, const struct stat *status) {
    const unsigned long long numbers[] = {status->st_dev, status->st_ino,
                                          (unsigned long long)status->st_size,
                                          (unsigned long long)status->st_mtim.tv_sec * 1000000000U +
                                              (unsigned long long)status->st_mtim.tv_nsec,
                                          (unsigned long long)status->st_ctim.tv_sec * 1000000000U +
                                              (unsigned long long)status->st_ctim.tv_nsec};
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        snprintf(file->identity + 16 * i, 17, "%016llx", numbers[i]);
    }
}

static bool read_bytes(int descriptor, struct sym_file *file) {
    struct stat status;
    if (fstat(descriptor, &status) != 0 || !S_ISREG(status.st_mode) || status.st_size < EI_NIDENT ||
        status.st_size > FILE_BYTES_MOST) {
        return false;
    }
    write_identity(file, &status);
    file->length = (size_t)status.st_size;
    file->bytes = malloc(file->length);
    return file->bytes != NULL && read_at(descriptor, file->bytes, file->length, 0);
}

/* Takes over the descriptor.  False: the file cannot be used. */
static bool read_file_at(int descriptor, const char *path, struct sym_file *file) {
    *file = (struct sym_file){0};
    if (descriptor < 0) {
        return false;
    }
    bool is_read = read_bytes(descriptor, file);
    close(descriptor);
    if (is_read) {
        file->path = strdup(path);
        file->elf = file->path == NULL ? NULL : elf_memory((char *)file->bytes, file->length);
    }
    if (file->elf == NULL || elf_kind(file->elf) != ELF_K_ELF) {
        close_file(file);
        return false;
    }
    find_build_id(file);
    return true;
}

/* The same if it is the right build; another build is remembered. */
static bool take_file(struct finder *finder, int descriptor, const char *path, const char *build_id,
                      struct sym_file *file) {
    if (!read_file_at(descriptor, path, file)) {
        return false;
    }
    if (build_id[0] == '\0' || strcmp(file->build_id, build_id) == 0) {
        return true;
    }
    struct sym_files *files = finder->files;
    if (files->other_path == NULL) {
        files->other_path = strdup(path);
        memcpy(files->other_id, file->build_id, sizeof files->other_id);
    }
    close_file(file);
    return false;
}

/* The module. */

/* /proc/PID/maps marks unlinked files; the mark is no part of the name. */
static void copy_path(char path[PATH_MAX], const char *recorded) {
    static const char mark[] = " (deleted)";
    snprintf(path, PATH_MAX, "%s", recorded);
    if (ends_with(path, mark)) {
        path[strlen(path) - strlen(mark)] = '\0';
    }
}

/* The path as a process with this root sees it. */
static bool find_in_root(struct finder *finder, const char *root_path, const char *path) {
    int root = open_folder(root_path);
    bool is_found =
        root >= 0 && take_file(finder, open_below(root, path, READ_FLAGS, RESOLVE_IN_ROOT), path,
                               finder->module->build_id, &finder->files->module);
    if (root >= 0) {
        close(root);
    }
    return is_found;
}

static bool find_in_process(struct finder *finder, const char *path) {
    char text[PATH_MAX];
    const struct sym_module *module = finder->module;
    snprintf(text, sizeof text, "/proc/%ld/map_files/%llx-%llx", finder->options->pid,
             (unsigned long long)module->start, (unsigned long long)module->limit);
    if (take_file(finder, open(text, READ_FLAGS), path, module->build_id, &finder->files->module)) {
        return true;
    }
    snprintf(text, sizeof text, "/proc/%ld/root", finder->options->pid);
    return find_in_root(finder, text, path);
}

static void find_module(struct finder *finder) {
    char path[PATH_MAX];
    copy_path(path, finder->module->path);
    if (path[0] != '/') { /* [vdso], //anon and relative paths */
        return;
    }
    if ((finder->options->pid != 0 && find_in_process(finder, path)) ||
        (finder->options->sysroot != NULL &&
         find_in_root(finder, finder->options->sysroot, path))) {
        return;
    }
    take_file(finder, open(path, READ_FLAGS), path, finder->module->build_id,
              &finder->files->module);
}

/* Debug files. */

/* A link in another root is resolved in that root, not in ours. */
static void add_root(struct finder *finder, const char *below, const char *folder) {
    struct root *root = &finder->roots[finder->root_count];
    int length = snprintf(root->path, sizeof root->path, "%s%s%s", below,
                          below[0] == '\0' ? "" : "/", folder);
    if (length <= 0 || (size_t)length >= sizeof root->path) {
        return;
    }
    int start = below[0] != '\0' ? open_folder(below) : -1;
    root->folder = below[0] == '\0' ? open_folder(root->path)
                   : start >= 0     ? open_below(start, folder, FOLDER_FLAGS, RESOLVE_IN_ROOT)
                                    : -1;
    if (start >= 0) {
        close(start);
    }
    finder->root_count += root->folder >= 0;
}

static void open_roots(struct finder *finder) {
    const struct symbolize_options *options = finder->options;
    char process[64];
    if (options->debug_path != NULL) {
        add_root(finder, "", options->debug_path);
    }
    if (options->sysroot != NULL) {
        add_root(finder, options->sysroot, DEBUG_FOLDER);
    }
    if (options->pid != 0) {
        snprintf(process, sizeof process, "/proc/%ld/root", options->pid);
        add_root(finder, process, DEBUG_FOLDER);
    }
    add_root(finder, "/", DEBUG_FOLDER);
}

/* Below one root; `build_id` must fit. */
static bool take_below(struct finder *finder, const struct root *root, const char *name,
                       const char *build_id, struct sym_file *file) {
    char path[2 * PATH_MAX];
    name += strspn(name, "/");
    snprintf(path, sizeof path, "%s/%s", root->path, name);
    int descriptor =
        open_below(root->folder, name, READ_FLAGS, RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS);
    return take_file(finder, descriptor, path, build_id, file);
}

static bool find_by_build_id(struct finder *finder, const char *build_id, struct sym_file *file) {
    char name[SYM_BUILD_ID_CHARS + 32];
    if (!sym_is_build_id(build_id)) {
        return false;
    }
    snprintf(name, sizeof name, ".build-id/%.2s/%s.debug", build_id, build_id + 2);
    for (size_t i = 0; i < finder->root_count; i++) {
        if (take_below(finder, &finder->roots[i], name, build_id, file)) {
            return true;
        }
    }
    return false;
}

/* Where the module has no build-id the link has a checksum, which then must fit. */
static bool fits_link(struct sym_file *file, const char *build_id, uint32_t checksum) {
    if (build_id[0] != '\0' || (uint32_t)crc32_z(0, file->bytes, file->length) == checksum) {
        return true;
    }
    close_file(file);
    return false;
}

/* The link's file beside the module, which is as trusted as the module. */
static bool find_beside(struct finder *finder, const char *link, uint32_t checksum) {
    static const char *const folders[] = {"", ".debug/"};
    struct sym_files *files = finder->files;
    const char *slash = strrchr(files->module.path, '/');
    for (size_t i = 0; i < 2 && slash != NULL; i++) {
        char path[PATH_MAX + NAME_MAX + 16];
        snprintf(path, sizeof path, "%.*s%s%s", (int)(slash + 1 - files->module.path),
                 files->module.path, folders[i], link);
        if (finder->options->pid == 0 && finder->options->sysroot == NULL &&
            strcmp(path, files->module.path) != 0 &&
            take_file(finder, open(path, READ_FLAGS), path, files->module.build_id,
                      &files->debug) &&
            fits_link(&files->debug, files->module.build_id, checksum)) {
            return true;
        }
    }
    return false;
}

static bool find_below_roots(struct finder *finder, const char *link, uint32_t checksum) {
    struct sym_files *files = finder->files;
    const char *slash = strrchr(files->module.path, '/');
    int length = slash == NULL ? 0 : (int)(slash + 1 - files->module.path);
    for (size_t i = 0; i < 2 * finder->root_count; i++) {
        char name[PATH_MAX + NAME_MAX + 16]; /* with the module's folder, then without */
        snprintf(name, sizeof name, "%.*s%s", i % 2 == 0 ? length : 0, files->module.path, link);
        if (take_below(finder, &finder->roots[i / 2], name, files->module.build_id,
                       &files->debug) &&
            fits_link(&files->debug, files->module.build_id, checksum)) {
            return true;
        }
    }
    return false;
}

static bool find_by_link(struct finder *finder) {
    size_t length;
    const char *link = section_bytes(&finder->files->module, ".gnu_debuglink", &length);
    size_t name = link == NULL ? 0 : strnlen(link, length);
    size_t at = (name + 4) & ~(size_t)3; /* after the NUL, aligned */
    if (link == NULL || name == 0 || name > NAME_MAX || at + 4 > length ||
        memchr(link, '/', name) != NULL || strcmp(link, "..") == 0) {
        return false;
    }
    uint32_t checksum;
    memcpy(&checksum, link + at, sizeof checksum);
    return find_beside(finder, link, checksum) || find_below_roots(finder, link, checksum);
}

/* debuginfod. */

/* Only https, within limits; the variables are those of the library.  False: no server is left. */
static bool set_servers(void) {
    const char *all = getenv("DEBUGINFOD_URLS");
    if (all == NULL) {
        return false;
    }
    char *kept = must_alloc(strlen(all) + 1), *copy = strdup(all), *rest = copy;
    kept[0] = '\0';
    for (char *one; copy != NULL && (one = strsep(&rest, " \t\n")) != NULL;) {
        if (strncmp(one, "https://", 8) == 0) {
            strcat(kept, kept[0] == '\0' ? "" : " ");
            strcat(kept, one);
        }
    }
    bool is_any = kept[0] != '\0';
    setenv("DEBUGINFOD_URLS", kept, 1);
    setenv("DEBUGINFOD_TIMEOUT", "30", 0);
    setenv("DEBUGINFOD_MAXTIME", "120", 0);
    setenv("DEBUGINFOD_MAXSIZE", "4294967296", 0);
    free(copy);
    free(kept);
    return is_any;
}

static void find_by_debuginfod(struct finder *finder, const char *build_id) {
    if (!sym_is_build_id(build_id) || !set_servers()) {
        return;
    }
    void *library = dlopen("libdebuginfod.so.1", RTLD_NOW | RTLD_LOCAL);
    void *begin_symbol = library == NULL ? NULL : dlsym(library, "debuginfod_begin");
    void *find_symbol = library == NULL ? NULL : dlsym(library, "debuginfod_find_debuginfo");
    void *(*begin)(void);
    int (*find)(void *client, const unsigned char *id, int length, char **path);
    memcpy(&begin, &begin_symbol, sizeof begin);
    memcpy(&find, &find_symbol, sizeof find);
    void *client = begin == NULL || find == NULL ? NULL : begin();
    if (client == NULL) {
        finder->files->no_debuginfod = true;
        return;
    }
    int descriptor = find(client, (const unsigned char *)build_id, 0, NULL); /* 0: hexadecimal */
    take_file(finder, descriptor, "debuginfod", build_id, &finder->files->debug);
}

/* dwz. */

/* Names of dwz files are absolute, or relative to the file that names them. */
static bool find_alternative_by_name(struct finder *finder, const char *name, const char *build_id,
                                     const char *from) {
    struct sym_file *file = &finder->files->alternative;
    for (size_t i = 0; i < finder->root_count; i++) {
        const struct root *root = &finder->roots[i];
        size_t length = strlen(root->path);
        char path[2 * PATH_MAX];
        if (name[0] == '/') {
            snprintf(path, sizeof path, "%s", name);
        } else {
            const char *slash = strrchr(from, '/');
            snprintf(path, sizeof path, "%.*s/%s", slash == NULL ? 0 : (int)(slash - from), from,
                     name);
        }
        bool is_below = strncmp(path, root->path, length) == 0 && path[length] == '/';
        if (take_below(finder, root, is_below ? path + length : path, build_id, file)) {
            return true;
        }
    }
    return false;
}

static void find_alternative(struct finder *finder) {
    struct sym_files *files = finder->files;
    const struct sym_file *from = files->debug.elf != NULL ? &files->debug : &files->module;
    size_t length;
    const char *link = section_bytes(from, ".gnu_debugaltlink", &length);
    size_t name = link == NULL ? 0 : strnlen(link, length);
    char build_id[SYM_BUILD_ID_CHARS];
    if (link == NULL || name == 0 || name >= PATH_MAX || name + 2 > length) {
        return;
    }
    write_hex(build_id, (const uint8_t *)link + name + 1, length - name - 1);
    if (!find_by_build_id(finder, build_id, &files->alternative)) {
        find_alternative_by_name(finder, link, build_id, from->path);
    }
}

void sym_files_open(struct sym_files *files, const struct sym_module *module,
                    const struct symbolize_options *options) {
    struct finder *finder = must_alloc(sizeof *finder);
    *files = (struct sym_files){0};
    *finder = (struct finder){.files = files, .module = module, .options = options};
    elf_version(EV_CURRENT);
    open_roots(finder);
    find_module(finder);
    if (!sym_file_has_debug(&files->module)) {
        const char *build_id =
            module->build_id[0] != '\0' ? module->build_id : files->module.build_id;
        bool is_found = find_by_build_id(finder, build_id, &files->debug) ||
                        (files->module.elf != NULL && find_by_link(finder));
        if (!is_found && options->use_debuginfod) {
            find_by_debuginfod(finder, build_id);
        }
    }
    find_alternative(finder);
    for (size_t i = 0; i < finder->root_count; i++) {
        close(finder->roots[i].folder);
    }
    free(finder);
}
