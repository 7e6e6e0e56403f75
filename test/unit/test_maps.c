/* SPDX-License-Identifier: MIT
 *
 * test_maps.c - modules are found with their addresses and build ids; where /proc is missing, strange
 * or only half there, there are fewer of them and nothing worse.
 */
#define _GNU_SOURCE /* dl_iterate_phdr, memfd_create */
#include "out/maps.h"

#include <elf.h>
#include <errno.h>
#include <link.h>
#include <stdio.h>
#include <sys/mman.h>

#include "base/os.h"
#include "unit.h"

/* ---------------------------------------------------------------- what is replaced */

static const char *maps_text;    /* instead of the kernel's; "" cannot be opened */
static bool memory_is_closed;    /* /proc/self/mem cannot be opened */
static const char *program_path; /* instead of the kernel's */
static long maps_allowed = -1;   /* so many requests of memory are served; -1 all */

int __real_os_open(const char *path);
int __wrap_os_open(const char *path);
int __wrap_os_open(const char *path) {
    bool is_maps = strcmp(path, "/proc/self/maps") == 0;
    if (!is_maps && memory_is_closed) {
        return -EACCES;
    }
    if (!is_maps || maps_text == NULL) {
        return __real_os_open(path);
    }
    return open_text(maps_text);
}

int __real_os_read_link(const char *path, char *text, size_t bytes);
int __wrap_os_read_link(const char *path, char *text, size_t bytes);
int __wrap_os_read_link(const char *path, char *text, size_t bytes) {
    if (program_path == NULL) {
        return __real_os_read_link(path, text, bytes);
    }
    memcpy(text, program_path, strlen(program_path));
    return *program_path != '\0' ? (int)strlen(program_path) : -ENOENT;
}

void *__real_os_map(size_t bytes);
void *__wrap_os_map(size_t bytes);
void *__wrap_os_map(size_t bytes) {
    if (maps_allowed == 0) {
        return NULL;
    }
    maps_allowed -= maps_allowed > 0;
    return __real_os_map(bytes);
}

TEST_SETUP(os_init);

/* ---------------------------------------------------------------- the truth, by the loader */

struct loaded {
    uintptr_t code;     /* an address in executable memory */
    char build_id[100]; /* in hexadecimal */
};

static struct loaded loaded[64];
static size_t loaded_count;

static void read_notes(struct loaded *one, const unsigned char *notes, size_t length) {
    for (size_t at = 0; at + 12 <= length;) {
        const ElfW(Nhdr) *note = (const void *)(notes + at);
        const unsigned char *content = notes + at + 12 + (note->n_namesz + 3) / 4 * 4;
        for (size_t i = 0; note->n_type == NT_GNU_BUILD_ID && i < note->n_descsz; i++) {
            sprintf(one->build_id + 2 * i, "%02x", content[i]);
        }
        at += 12 + (note->n_namesz + 3) / 4 * 4 + (note->n_descsz + 3) / 4 * 4;
    }
}

static int visit(struct dl_phdr_info *info, size_t size, void *context) {
    (void)size;
    (void)context;
    struct loaded *one = &loaded[loaded_count++];
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *header = &info->dlpi_phdr[i];
        uintptr_t at = info->dlpi_addr + header->p_vaddr;
        if (header->p_type == PT_LOAD && header->p_flags & PF_X) {
            one->code = at;
        } else if (header->p_type == PT_NOTE) {
            read_notes(one, (const void *)at, header->p_memsz);
        }
    }
    return 0;
}

TEST(modules_are_those_of_the_loader_with_their_build_ids) {
    struct maps maps;
    maps_read(&maps);
    dl_iterate_phdr(visit, NULL);
    check(loaded_count >= 3);
    size_t with_id = 0;
    for (size_t i = 0; i < loaded_count; i++) {
        size_t module = maps_find(&maps, loaded[i].code);
        check(module < maps.count);
        check_str(maps_module(&maps, module)->build_id, loaded[i].build_id);
        with_id += loaded[i].build_id[0] != '\0';
    }
    check(with_id >= 2);
    check_eq(maps_find(&maps, (uintptr_t)visit), maps.program);
    maps_release(&maps);
}

TEST(without_access_to_memory_there_are_no_build_ids) {
    memory_is_closed = true;
    struct maps maps;
    maps_read(&maps);
    check(maps.program < maps.count);
    check_str(maps_module(&maps, maps.program)->build_id, "");
    maps_release(&maps);
}

TEST(without_proc_there_are_no_modules) {
    maps_text = "";
    struct maps maps;
    maps_read(&maps);
    check_eq(maps.count, 0);
    check_eq(maps.text.length, 0);
    check_eq(maps_find(&maps, (uintptr_t)visit), 0);
    maps_release(&maps);
}

TEST(without_memory_there_are_no_modules) {
    for (long allowed = 0; allowed < 2; allowed++) {
        maps_allowed = allowed;
        struct maps maps;
        maps_read(&maps);
        check_eq(maps.count, 0);
        check_eq(maps.text.length, 0);
        maps_release(&maps);
    }
}

static void check_module(const struct maps *maps, size_t index, uintptr_t start, const char *path) {
    const struct maps_module *module = maps_module(maps, index);
    check_eq(module->start, start);
    check_eq(module->path_bytes, strlen(path));
    check(memcmp(maps->text.bytes + module->path, path, strlen(path)) == 0);
}

TEST(only_executable_files_are_modules) {
    maps_text = "00400000-00401000 r--p 00000000 08:01 131 /bin/demo\n"
                "00401000-00402000 r-xp 00001000 08:01 131 /bin/demo\n"
                "00402000-00403000 rw-p 00002000 08:01 131 /bin/demo\n"
                "00500000-00501000 rwxp 00000000 00:00 0 \n"
                "7f0000000000-7f0000001000 r-xp 00000000 08:01 7      /a path/lib x.so (deleted)\n"
                "7ffff7fc1000-7ffff7fc3000 r-xp 00000000 00:00 0                    [vdso]";
    program_path = "/bin/demo";
    struct maps maps;
    maps_read(&maps);
    check_eq(maps.count, 3);
    check_eq(maps.program, 0);
    check_module(&maps, 0, 0x401000, "/bin/demo");
    check_eq(maps_module(&maps, 0)->end, 0x402000);
    check_eq(maps_module(&maps, 0)->offset, 0x1000);
    check_module(&maps, 1, 0x7f0000000000, "/a path/lib x.so");
    check_module(&maps, 2, 0x7ffff7fc1000, "[vdso]");
    check_eq(maps_find(&maps, 0x400fff), 3);
    check_eq(maps_find(&maps, 0x401000), 0);
    check_eq(maps_find(&maps, 0x401fff), 0);
    check_eq(maps_find(&maps, 0x402000), 3);
    check_eq(maps_find(&maps, 0x7f0000000fff), 1);
    check_eq(maps_find(&maps, UINTPTR_MAX), 3);
    maps_release(&maps);
}

TEST(a_program_that_was_replaced_is_the_program_all_the_same) {
    maps_text = "00300000-00301000 r-xp 00001000 08:01 130 /bin/dem\n"
                "00401000-00402000 r-xp 00001000 08:01 131 /bin/demo (deleted)\n";
    program_path = "/bin/demo (deleted)";
    struct maps maps;
    maps_read(&maps);
    check_eq(maps.program, 1);
    maps_release(&maps);
    program_path = "";
    maps_read(&maps);
    check_eq(maps.program, 2);
    maps_release(&maps);
}

/* Whatever is mapped at the beginning of a file that calls itself one. */
TEST(files_that_are_no_programs_have_no_build_id) {
    static unsigned char page[4096] __attribute__((aligned(4096)));
    static char line[200];
    snprintf(line, sizeof(line), "%lx-%lx r-xp 00000000 08:01 7 /lib/x.so\n", (unsigned long)page,
             (unsigned long)page + 4096);
    maps_text = line;
    struct random random = {5};
    for (int round = 0; round < 3000; round++) {
        Elf64_Ehdr *file = (void *)page;
        for (size_t i = 0; i < sizeof(page); i++) {
            page[i] = (unsigned char)(random_below(&random, 3) == 0 ? random_next(&random) : 0);
        }
        memcpy(file->e_ident, ELFMAG, SELFMAG);
        file->e_ident[EI_CLASS] = ELFCLASS64;
        file->e_phentsize = sizeof(Elf64_Phdr);
        file->e_phnum = (Elf64_Half)random_below(&random, 100);
        file->e_phoff = round % 2 == 0 ? 64 : random_below(&random, 5000);
        Elf64_Phdr *header = (void *)(page + 64);
        header->p_type = PT_NOTE;
        header->p_vaddr = random_below(&random, 4200);
        header->p_filesz = random_next(&random) >> random_below(&random, 64);
        struct maps maps;
        maps_read(&maps);
        check_eq(maps.count, 1);
        check(strlen(maps_module(&maps, 0)->build_id) < MAPS_BUILD_ID);
        maps_release(&maps);
    }
}

TEST(lines_that_make_no_sense_do_no_harm) {
    static char hostile[3000];
    static const char letters[] = "0123456789abcdef- rwxp\n/[]().:";
    struct random random = {77};
    maps_text = hostile;
    for (int round = 0; round < 3000; round++) {
        size_t length = 1 + random_below(&random, sizeof(hostile) - 2);
        for (size_t i = 0; i < length; i++) {
            hostile[i] = letters[random_below(&random, sizeof(letters) - 1)];
        }
        hostile[length] = '\0';
        struct maps maps;
        maps_read(&maps);
        check_eq(maps.text.length, length);
        for (size_t i = 0; i < maps.count; i++) {
            const struct maps_module *module = maps_module(&maps, i);
            check(module->path + module->path_bytes <= length);
        }
        maps_find(&maps, 0x1234);
        maps_release(&maps);
    }
}
