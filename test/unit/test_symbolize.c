/* SPDX-License-Identifier: MIT
 *
 * test_symbolize.c - names for the addresses of this very program, and what must not go wrong.
 *
 * The program is its own module: it knows which of its lines called what.  The step between reading files
 * and looking at symbols is the test's, so that a worker can be watched and made to die.
 */
#define _GNU_SOURCE /* mkdtemp and pipe2 */
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/cli.h"
#include "profile/profile.h"
#include "names/sym_cache.h"
#include "names/sym_index.h"
#include "names/symbolize.h"
#include "test.h"

/* In memory that workers share. */
static struct shared {
    _Atomic unsigned starts, deaths_wanted;
    pid_t parent;
    _Atomic int open_errno, socket_errno, write_errno, kill_errno;
} * shared;

void __real_sym_index_resolve(const struct sym_files *files, const uint64_t *offsets, size_t count,
                              struct sym_builder *builder, _Atomic uint32_t *done);
void __wrap_sym_index_resolve(const struct sym_files *files, const uint64_t *offsets, size_t count,
                              struct sym_builder *builder, _Atomic uint32_t *done);

void __wrap_sym_index_resolve(const struct sym_files *files, const uint64_t *offsets, size_t count,
                              struct sym_builder *builder, _Atomic uint32_t *done) {
    if (shared != NULL) {
        shared->open_errno = open("/dev/null", O_RDONLY) < 0 ? errno : 0;
        shared->socket_errno = socket(AF_UNIX, SOCK_STREAM, 0) < 0 ? errno : 0;
        shared->write_errno = write(2, "x", 1) < 0 ? errno : 0;
        shared->kill_errno = kill(shared->parent, 0) < 0 ? errno : 0;
        if (++shared->starts <= shared->deaths_wanted) {
            __builtin_trap();
        }
    }
    __real_sym_index_resolve(files, offsets, count, builder, done);
}

/* What is looked for. */

static uintptr_t site;
static int inner_line, outer_line;

__attribute__((noinline)) static void record(void) {
    site = (uintptr_t)__builtin_return_address(0) - 1;
    __asm__ volatile("" : : : "memory");
}

__attribute__((always_inline)) static inline void inner(void) {
    inner_line = __LINE__ + 1;
    record();
    __asm__ volatile("" : : : "memory");
}

__attribute__((noinline)) static void outer(void) {
    outer_line = __LINE__ + 1;
    inner();
    __asm__ volatile("" : : : "memory");
}

/* The program as its own module. */

struct subject {
    struct profile *profile;
    struct profile_mapping mapping;
    uint32_t location;
};

static char own_path[4096], own_build_id[256];
static struct profile_mapping own_mapping;

static void find_own_mapping(void) {
    FILE *maps = fopen("/proc/self/maps", "r");
    static char line[8192];
    check(maps != NULL);
    while (fgets(line, sizeof line, maps) != NULL) {
        unsigned long long start, limit, offset;
        char rights[8];
        int path = 0;
        if (sscanf(line, "%llx-%llx %7s %llx %*s %*s %n", &start, &limit, rights, &offset, &path) ==
                4 &&
            site >= start && site < limit) {
            line[strcspn(line, "\n")] = '\0';
            strcpy(own_path, line + path);
            own_mapping = (struct profile_mapping){start, limit, offset, own_path, "", false};
        }
    }
    fclose(maps);
    check(own_path[0] == '/');
}

static int find_own_note(struct dl_phdr_info *info, size_t size, void *unused) {
    (void)size, (void)unused;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *header = &info->dlpi_phdr[i];
        const char *at = (const char *)(info->dlpi_addr + header->p_vaddr);
        const char *end = at + header->p_memsz;
        while (header->p_type == PT_NOTE && at + sizeof(ElfW(Nhdr)) < end) {
            const ElfW(Nhdr) *note = (const void *)at;
            const unsigned char *bytes =
                (const unsigned char *)(note + 1) + ((note->n_namesz + 3) & ~3U);
            if (note->n_type == NT_GNU_BUILD_ID && note->n_namesz == 4) {
                for (unsigned n = 0; n < note->n_descsz && n < 64; n++) {
                    sprintf(own_build_id + 2 * n, "%02x", bytes[n]);
                }
                return 1;
            }
            at = (const char *)bytes + ((note->n_descsz + 3) & ~3U);
        }
    }
    return 1; /* the program comes first, and nothing else is wanted */
}

static char home[] = "/tmp/tally-symbolize-XXXXXX";

static void set_up(void) {
    outer();
    find_own_mapping();
    dl_iterate_phdr(find_own_note, NULL);
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    check(shared != MAP_FAILED);
    shared->parent = getpid();
}
TEST_SETUP(set_up);

static void make_home(void) {
    check(mkdtemp(home) != NULL);
    setenv("XDG_CACHE_HOME", home, 1);
}

static void remove_home(void) {
    char command[128];
    snprintf(command, sizeof command, "rm -rf %s", home);
    check_eq(system(command), 0);
}

static const char *in_home(const char *name) {
    static char path[4096];
    snprintf(path, sizeof path, "%s/%s", home, name);
    return path;
}

/* Every profile of a test, which lives as long as its process. */
static struct profile *profiles[256];
static size_t profile_count;

static struct subject subject_of(const char *path, const char *build_id) {
    struct subject subject = {.profile = profile_new(), .mapping = own_mapping};
    check(profile_count < sizeof profiles / sizeof profiles[0]);
    profiles[profile_count++] = subject.profile;
    subject.mapping.path = profile_text(subject.profile, path, strlen(path));
    subject.mapping.build_id = profile_text(subject.profile, build_id, strlen(build_id));
    uint32_t mapping = profile_add_mapping(subject.profile, subject.mapping);
    subject.location = profile_add_location(subject.profile, site, mapping, NULL, 0);
    return subject;
}

static const struct symbolize_options no_cache = {.no_cache = true};

static uint32_t line_count(const struct subject *subject) {
    return subject->profile->locations[subject->location].line_count;
}

static const struct profile_function *function(const struct subject *subject, uint32_t frame) {
    const struct profile *profile = subject->profile;
    check(frame < line_count(subject));
    uint32_t line = profile->locations[subject->location].lines + frame;
    return &profile->functions[profile->lines[line].function];
}

static uint32_t line_number(const struct subject *subject, uint32_t frame) {
    const struct profile *profile = subject->profile;
    return profile->lines[profile->locations[subject->location].lines + frame].number;
}

static void check_named(const struct subject *subject) {
    check_eq(line_count(subject), 2);
    check_str(function(subject, 0)->name, "inner");
    check_str(function(subject, 1)->name, "outer");
    check_eq(line_number(subject, 0), inner_line);
    check_eq(line_number(subject, 1), outer_line);
    const char *file = strrchr(function(subject, 0)->file, '/');
    check(file != NULL);
    check_str(file, "/test_symbolize.c");
    check(function(subject, 0)->start_line != 0 &&
          function(subject, 0)->start_line <= (uint32_t)inner_line);
}

TEST(inlined_calls_have_names_and_lines) {
    struct subject subject = subject_of(own_path, "");
    struct symbolize_result result = symbolize(subject.profile, &no_cache);
    check_named(&subject);
    check_eq(result.addresses, 1);
    check_eq(result.named, 1);
    check_eq(result.with_line, 1);
    check_eq(result.modules, 1);
    check_eq(result.modules_missing, 0);
    check(subject.profile->mappings[0].has_functions);
}

TEST(without_inlined_calls_the_caller_is_all_there_is) {
    struct subject subject = subject_of(own_path, "");
    struct symbolize_options options = no_cache;
    options.no_inlines = true;
    symbolize(subject.profile, &options);
    check_eq(line_count(&subject), 1);
    check_str(function(&subject, 0)->name, "outer");
    check_eq(line_number(&subject, 0), outer_line);
}

TEST(locations_that_have_names_keep_them) {
    struct subject subject = subject_of(own_path, "");
    const char *name = profile_text(subject.profile, "mine", 4);
    const char *none = profile_text(subject.profile, "", 0);
    uint32_t number =
        profile_add_function(subject.profile, (struct profile_function){name, name, none, 0});
    profile_set_lines(subject.profile, subject.location, &(struct profile_line){number, 5}, 1);
    struct symbolize_result result = symbolize(subject.profile, &no_cache);
    check_eq(result.addresses, 0);
    check_str(function(&subject, 0)->name, "mine");
    check_eq(shared->starts, 0);
}

TEST(a_file_of_another_build_is_refused) {
    struct subject subject = subject_of(own_path, "0123456789abcdef0123456789abcdef01234567");
    struct symbolize_result result = symbolize(subject.profile, &no_cache);
    check_eq(line_count(&subject), 0);
    check_eq(result.named, 0);
    check_eq(result.modules_of_other_build, 1);
    check_eq(result.modules_missing, 1);
}

TEST(a_file_of_the_same_build_is_taken) {
    if (own_build_id[0] == '\0') {
        skip("this program has no build-id");
    }
    struct subject subject = subject_of(own_path, own_build_id);
    struct symbolize_result result = symbolize(subject.profile, &no_cache);
    check_named(&subject);
    check_eq(result.modules_of_other_build, 0);
}

TEST(a_file_that_is_not_there_leaves_the_address) {
    struct subject subject = subject_of("/nowhere/at/all", "");
    struct symbolize_result result = symbolize(subject.profile, &no_cache);
    check_eq(line_count(&subject), 0);
    check_eq(result.modules_missing, 1);
}

TEST(things_that_are_no_regular_files_are_not_read) {
    make_home();
    check(mkfifo(in_home("fifo"), 0600) == 0);
    static char fifo[4096];
    strcpy(fifo, in_home("fifo"));
    const char *const paths[] = {fifo, "/dev/zero", "/proc/self", "/", "//anon", "[vdso]", ""};
    for (size_t i = 0; i < sizeof paths / sizeof paths[0]; i++) {
        struct subject subject = subject_of(paths[i], "");
        symbolize(subject.profile, &no_cache);
        check_eq(line_count(&subject), 0);
    }
    remove_home();
}

TEST(files_are_found_below_a_sysroot_and_through_a_process) {
    make_home();
    char command[8192];
    snprintf(command, sizeof command,
             "mkdir -p %s/opt && cp '%s' %s/opt/app && ln -s /opt/app %s/link", home, own_path,
             home, home);
    check_eq(system(command), 0);
    struct symbolize_options options = no_cache;
    options.sysroot = home;
    struct subject subject = subject_of("/opt/app", "");
    symbolize(subject.profile, &options);
    check_named(&subject);
    subject = subject_of("/link", ""); /* which leads to /opt/app of the same root */
    symbolize(subject.profile, &options);
    check_named(&subject);
    options.sysroot = NULL;
    options.pid = getpid();
    subject = subject_of(own_path, "");
    symbolize(subject.profile, &options);
    check_named(&subject);
    remove_home();
}

/* A debug file in a folder of the sysroot that a link leads to. */
static uint32_t named_by_link(const char *link, const char *folder) {
    char command[16384];
    if (own_build_id[0] == '\0') {
        skip("this program has no build-id");
    }
    make_home();
    snprintf(
        command, sizeof command,
        "mkdir -p %s/root/usr/lib '%s/%s/.build-id/%.2s' && ln -s '%s%s' %s/root/usr/lib/debug && "
        "cp '%s' '%s/%s/.build-id/%.2s/%s.debug'",
        home, home, folder, own_build_id, link[0] == '+' ? home : "", link + (link[0] == '+'), home,
        own_path, home, folder, own_build_id, own_build_id + 2);
    check_eq(system(command), 0);
    struct symbolize_options options = no_cache;
    char root[4096];
    snprintf(root, sizeof root, "%s", in_home("root"));
    options.sysroot = root;
    struct subject subject = subject_of("/nowhere/at/all", own_build_id);
    uint32_t named = symbolize(subject.profile, &options).named;
    remove_home();
    return named;
}

TEST(links_of_a_sysroot_are_of_the_sysroot) {
    check_eq(named_by_link("/files", "root/files"), 1);
}

TEST(links_of_a_sysroot_do_not_leave_it) {
    check_eq(named_by_link("+/outside", "outside"), 0);
}

TEST(a_worker_has_no_rights_when_it_reads_symbols) {
    struct subject subject = subject_of(own_path, "");
    symbolize(subject.profile, &no_cache);
    check_named(&subject);
    check_eq(shared->starts, 1);
    check_eq(shared->open_errno, EPERM);
    check_eq(shared->socket_errno, EPERM);
    check_eq(shared->write_errno, EPERM);
    check_eq(shared->kill_errno, EPERM);
}

TEST(a_worker_that_dies_has_a_second_chance) {
    shared->deaths_wanted = 1;
    struct subject subject = subject_of(own_path, "");
    symbolize(subject.profile, &no_cache);
    check_named(&subject);
    check_eq(shared->starts, 2);
}

TEST(workers_that_keep_dying_cost_only_their_module) {
    make_home();
    shared->deaths_wanted = 2;
    char command[8192];
    snprintf(command, sizeof command, "cp '%s' %s/copy", own_path, home);
    check_eq(system(command), 0);
    struct subject subject = subject_of(own_path, "");
    const char *path = in_home("copy");
    struct profile_mapping mapping = subject.mapping;
    mapping.path = profile_text(subject.profile, path, strlen(path));
    uint32_t other = profile_add_mapping(subject.profile, mapping);
    uint32_t location = profile_add_location(subject.profile, site, other, NULL, 0);
    check(location != subject.location);
    struct symbolize_result result = symbolize(subject.profile, &no_cache);
    check_eq(result.modules, 2);
    uint32_t lines = line_count(&subject) + subject.profile->locations[location].line_count;
    check_eq(lines == 0 || lines == 2 || lines == 4, true);
    check(shared->starts >= 3);
    remove_home();
}

/* The cache. */

static struct symbolize_result name_cached(struct subject *subject, const char *path) {
    struct symbolize_options options = {0};
    *subject = subject_of(path, own_build_id);
    return symbolize(subject->profile, &options);
}

static void need_build_id(void) {
    if (own_build_id[0] == '\0') {
        skip("this program has no build-id");
    }
    make_home();
}

static const char *cached_file(void) {
    static char path[4096];
    snprintf(path, sizeof path, "%s/tally/sym/%s", home, own_build_id);
    return path;
}

TEST(names_are_kept_in_a_private_file) {
    need_build_id();
    struct subject subject;
    struct stat status;
    name_cached(&subject, own_path);
    check_named(&subject);
    check(stat(cached_file(), &status) == 0);
    check_eq(status.st_mode & 0777, 0600);
    check(stat(in_home("tally/sym"), &status) == 0);
    check_eq(status.st_mode & 0777, 0700);
    name_cached(&subject, "/nowhere/at/all"); /* the file is gone, its names are not */
    check_named(&subject);
    check_eq(shared->starts, 1);
    remove_home();
}

TEST(new_addresses_join_the_cached_ones) {
    need_build_id();
    struct subject subject;
    name_cached(&subject, own_path);
    uintptr_t first = site;
    site = (uintptr_t)outer;
    name_cached(&subject, own_path);
    check_str(function(&subject, 0)->name, "outer");
    check_eq(shared->starts, 2);
    site = first;
    name_cached(&subject, "/nowhere/at/all");
    check_named(&subject);
    site = (uintptr_t)outer;
    name_cached(&subject, "/nowhere/at/all");
    check_str(function(&subject, 0)->name, "outer");
    check_eq(shared->starts, 2);
    remove_home();
}

TEST(a_damaged_cache_is_made_again) {
    need_build_id();
    struct subject subject;
    name_cached(&subject, own_path);
    int file = open(cached_file(), O_RDWR);
    check(file >= 0 && pwrite(file, "x", 1, 60) == 1);
    close(file);
    name_cached(&subject, own_path);
    check_named(&subject);
    check_eq(shared->starts, 2);
    name_cached(&subject, own_path);
    check_eq(shared->starts, 2);
    check(truncate(cached_file(), 100) == 0);
    name_cached(&subject, own_path);
    check_eq(shared->starts, 3);
    remove_home();
}

TEST(a_cache_that_others_may_write_is_not_used) {
    need_build_id();
    struct subject subject;
    name_cached(&subject, own_path);
    check(chmod(cached_file(), 0644) == 0); /* one file */
    name_cached(&subject, own_path);
    check_eq(shared->starts, 2);
    check(chmod(in_home("tally/sym"), 0755) == 0); /* the folder */
    name_cached(&subject, own_path);
    check_named(&subject);
    check_eq(shared->starts, 3);
    remove_home();
}

TEST(symbolic_links_in_the_cache_are_not_followed) {
    need_build_id();
    struct subject subject;
    name_cached(&subject, own_path);
    char other[4096];
    snprintf(other, sizeof other, "%s", in_home("elsewhere"));
    check(rename(cached_file(), other) == 0);
    check(symlink(other, cached_file()) == 0);
    name_cached(&subject, own_path);
    check_named(&subject);
    check_eq(shared->starts, 2);
    remove_home();
}

TEST(a_cache_folder_that_is_a_link_is_not_used) {
    need_build_id();
    struct subject subject;
    char other[4096];
    snprintf(other, sizeof other, "%s", in_home("elsewhere"));
    check(mkdir(other, 0700) == 0);
    check(mkdir(in_home("tally"), 0700) == 0);
    check(symlink(other, in_home("tally/sym")) == 0);
    name_cached(&subject, own_path);
    check_named(&subject);
    check(rmdir(other) == 0); /* nothing was put there */
    remove_home();
}

TEST(build_ids_are_file_names_of_digits) {
    check(sym_is_build_id("ab"));
    check(!sym_is_build_id(""));
    check(!sym_is_build_id("abc"));
    check(!sym_is_build_id("../x"));
    check(!sym_is_build_id("AB"));
    char longest[200];
    memset(longest, 'a', sizeof longest);
    longest[128] = '\0';
    check(sym_is_build_id(longest));
    memset(longest, 'a', sizeof longest);
    longest[130] = '\0';
    check(!sym_is_build_id(longest));
}

/* Damaged files. */

static void name_bytes(const uint8_t *bytes, size_t length) {
    const char *path = in_home("damaged");
    int file = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    check(file >= 0 && write(file, bytes, length) == (ssize_t)length);
    close(file);
    struct subject subject = subject_of(path, "");
    for (uint64_t at = own_mapping.start; at < own_mapping.limit; at += 509) {
        profile_add_location(subject.profile, at, 0, NULL, 0);
    }
    struct symbolize_result result = symbolize(subject.profile, &no_cache);
    check(result.named <= result.addresses);
}

static uint8_t *read_own(size_t *length) {
    FILE *file = fopen(own_path, "rb");
    check(file != NULL && fseek(file, 0, SEEK_END) == 0);
    *length = (size_t)ftell(file);
    rewind(file);
    uint8_t *bytes = malloc(*length);
    check(fread(bytes, 1, *length, file) == *length);
    fclose(file);
    return bytes;
}

TEST(cut_files_are_survived) {
    make_home();
    size_t length;
    uint8_t *bytes = read_own(&length);
    for (size_t cut = 0; cut < length; cut += length / 23) {
        name_bytes(bytes, cut);
    }
    name_bytes(bytes, length - 1);
    free(bytes);
    remove_home();
}

TEST(mutated_files_are_survived) {
    make_home();
    size_t length;
    uint8_t *bytes = read_own(&length), *copy = malloc(length);
    uint64_t state = 88172645463325252;
    for (unsigned round = 0; round < 30; round++) {
        memcpy(copy, bytes, length);
        for (unsigned i = 0; i < 200; i++) {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            /* Every third at the beginning or the end, where headers are. */
            size_t at = state % length;
            at = i % 3 == 0 ? at % 1024 : i % 3 == 1 ? length - 1 - at % 4096 : at;
            if (at >= 4) { /* it stays an ELF file */
                copy[at] = (uint8_t)(state >> 40);
            }
        }
        name_bytes(copy, length);
    }
    free(bytes);
    free(copy);
    remove_home();
}
