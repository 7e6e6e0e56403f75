/* SPDX-License-Identifier: MIT
 *
 * test_read_worker.c - a file is read by a child; what happens to the child is a sentence here.
 */
#define _GNU_SOURCE /* memfd_create */
#include "read/read_worker.h"

#include <errno.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
#include <zlib.h>

#include "common/cli.h"
#include "contract/frames.h"
#include "profiles.h"

static char path[64];

/* A file of these bytes, by name. */
static int file_of(const void *bytes, size_t length) {
    int fd = memfd_create("profile", MFD_CLOEXEC);
    check(fd >= 0 && write(fd, bytes, length) == (ssize_t)length);
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    return fd;
}

static const char heap[] = "heap_v2/1\n@ 0x10 0x20\n t*: 1: 8 [0: 0]\n";

TEST(a_file_becomes_a_run_and_no_process_stays) {
    char why[READ_WHY_BYTES] = "";
    file_of(heap, sizeof heap - 1);
    struct read_run *run = read_confined(path, NULL, why);
    check_str(why, "");
    check(run != NULL && run->worker != NULL);
    check_str(run->format, "jemalloc");
    check_eq(run->file_bytes, sizeof heap - 1);
    check_eq(total_of(run->moments[0].profile, "inuse_space"), 8);
    read_run_free(run);
    check(waitpid(-1, NULL, WNOHANG) < 0 && errno == ECHILD);
}

static void check_sentence(const char *format, const char *sentence) {
    char why[READ_WHY_BYTES] = "";
    check(read_confined(path, format, why) == NULL);
    check_str(why, sentence);
    check(waitpid(-1, NULL, WNOHANG) < 0 && errno == ECHILD);
}

TEST(what_is_no_profile_is_a_sentence) {
    file_of("hello world\n", 12);
    check_sentence(NULL, "it is no profile of a known format");
    file_of(heap, sizeof heap - 1);
    check_sentence("pprof", "it is no profile of the format pprof");
    snprintf(path, sizeof path, "/no/such/file");
    check_sentence(NULL, "No such file or directory");
}

TEST(a_bomb_is_a_sentence) {
    enum { BYTES = 64 << 20 };
    int fd = memfd_create("bomb", MFD_CLOEXEC);
    gzFile file = gzdopen(dup(fd), "wb9");
    static char zeros[1 << 20];
    for (unsigned i = 0; i < BYTES / sizeof zeros; i++) {
        check_eq(gzwrite(file, zeros, sizeof zeros), sizeof zeros);
    }
    check_eq(gzclose(file), Z_OK);
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    check_sentence(NULL, "it grows more than 100 times when it is unpacked");
}

TEST(what_takes_too_much_memory_is_a_sentence) {
    enum { STACKS = 20000 };
    char *text = malloc(STACKS * 32), *at = text;
    for (int i = 0; i < STACKS; i++) {
        at += sprintf(at, "main;function_%d 8\n", i);
    }
    file_of(text, (size_t)(at - text));
    free(text);
    cli_memory_limit = 1 << 20;
    char why[READ_WHY_BYTES] = "";
    check(read_confined(path, "folded", why) == NULL);
    check(strstr(why, "memory") != NULL);
}

/* ---------------------------------------------------------------- recordings */

static size_t put_frame(uint8_t *to, unsigned type, uint64_t t_ns, const void *payload,
                        size_t length) {
    uint32_t words[] = {(uint32_t)length, (uint32_t)length};
    uint16_t kind[] = {(uint16_t)type, 0};
    memset(to, 0, FRAME_HEAD_BYTES + length + 8);
    memcpy(to, FRAME_MAGIC, 4);
    memcpy(to + 4, kind, 4);
    memcpy(to + 8, words, 8);
    memcpy(to + 16, &t_ns, 8);
    uint32_t crc = (uint32_t)crc32_z(0, payload, length);
    memcpy(to + 24, &crc, 4);
    crc = (uint32_t)crc32_z(0, to, 28);
    memcpy(to + 28, &crc, 4);
    memcpy(to + FRAME_HEAD_BYTES, payload, length);
    return FRAME_HEAD_BYTES + (length + 7) / 8 * 8;
}

/* A profile with one type of this name and nothing in it. */
static size_t put_profile(uint8_t *to, unsigned type, uint64_t t_ns, char name) {
    uint8_t profile[] = "\x0a\x04\x08\x01\x10\x02\x32\x00\x32\x01?\x32\x01u";
    profile[10] = (uint8_t)name;
    return put_frame(to, type, t_ns, profile, sizeof profile - 1);
}

static const char leaks[] =
    "tally-leaks 1\nrate 1\ndefinite 3 3072 3000\ngroup definite 3 3072 3000 0 0x401010\nend\n";

/* Two snapshots, of types a and c, four of the processor's time, w to z, and leaks. */
static int recording(void) {
    static uint8_t bytes[1024];
    const uint16_t version[] = {FRAMES_MAJOR, FRAMES_MINOR};
    const uint32_t header = FRAMES_HEADER_BYTES;
    memcpy(bytes, FRAMES_MAGIC, 8);
    memcpy(bytes + 8, version, 4);
    memcpy(bytes + 12, &header, 4);
    size_t length = FRAMES_HEADER_BYTES;
    length += put_profile(bytes + length, FRAME_CPU, 500, 'w');
    length += put_profile(bytes + length, FRAME_SNAP, 1000, 'a');
    length += put_profile(bytes + length, FRAME_CPU, 1000, 'x');
    length += put_profile(bytes + length, FRAME_SNAP, 2000, 'c');
    length += put_profile(bytes + length, FRAME_CPU, 2000, 'y');
    length += put_profile(bytes + length, FRAME_CPU, 3000, 'z');
    length += put_frame(bytes + length, FRAME_LEAK, 3000, leaks, sizeof leaks - 1);
    return file_of(bytes, length);
}

TEST(moments_are_made_when_they_are_asked_for) {
    char why[READ_WHY_BYTES] = "";
    recording();
    struct read_run *run = read_confined(path, NULL, why);
    check_str(why, "");
    check(run != NULL && run->moment_count == 2);
    check(run->moments[0].profile == NULL && run->moments[1].profile != NULL);
    check_str(run->moments[1].profile->types[0].name, "c");
    struct profile *profile = read_moment(run, 0, why);
    check_str(why, "");
    check(profile != NULL && profile == read_moment(run, 0, why));
    check_str(profile->types[0].name, "a");
    check_str(profile->source, "tally");
    read_run_free(run);
}

/* The value of a line of the status of our only child. */
static void status_of_child(const char *key, char value[64]) {
    char name[64] = "", line[256];
    FILE *children = fopen("/proc/thread-self/children", "r");
    int pid;
    if (children == NULL) {
        skip("the kernel does not tell children of processes");
    }
    check_eq(fscanf(children, "%d", &pid), 1);
    fclose(children);
    snprintf(name, sizeof name, "/proc/%d/status", pid);
    FILE *status = fopen(name, "r");
    check(status != NULL);
    value[0] = '\0';
    while (fgets(line, sizeof line, status) != NULL) {
        if (strncmp(line, key, strlen(key)) == 0) {
            check_eq(sscanf(line + strlen(key), "%63s", value), 1);
        }
    }
    fclose(status);
}

/* test_confine.c has what it then cannot do. */
TEST(who_reads_has_given_up_its_rights) {
    char why[READ_WHY_BYTES] = "", value[64];
    recording();
    struct read_run *run = read_confined(path, NULL, why);
    check(run != NULL);
    status_of_child("Seccomp:", value);
    check_str(value, "2");
    status_of_child("NoNewPrivs:", value);
    check_str(value, "1");
    status_of_child("Uid:", value);
    check(geteuid() != 0 || strcmp(value, "65534") == 0);
    read_run_free(run);
}

TEST(moments_of_either_kind_are_asked_for_by_number) {
    char why[READ_WHY_BYTES] = "";
    recording();
    struct read_run *run = read_confined(path, NULL, why);
    check(run != NULL && run->cpu_count == 4);
    check(run->cpu[0].profile == NULL && run->cpu[2].profile == NULL);
    check_str(run->cpu[3].profile->types[0].name, "z");
    check_str(read_cpu_moment(run, 2, why)->types[0].name, "y");
    check_str(read_moment(run, 0, why)->types[0].name, "a");
    check_str(read_cpu_moment(run, 0, why)->types[0].name, "w");
    struct profile *profile = read_cpu_moment(run, 1, why);
    check_str(profile->types[0].name, "x");
    check(profile == read_cpu_moment(run, 1, why));
    check_str(why, "");
    read_run_free(run);
}

TEST(leaks_come_with_a_recording_or_alone) {
    char why[READ_WHY_BYTES] = "";
    for (int is_alone = 0; is_alone < 2; is_alone++) {
        if (is_alone) {
            file_of(leaks, sizeof leaks - 1);
        } else {
            recording();
        }
        struct read_run *run = read_confined(path, is_alone ? "leaks" : NULL, why);
        check_str(why, "");
        check(run != NULL && run->leaks != NULL);
        check_eq(run->moment_count, is_alone ? 0 : 2);
        check_eq(run->leaks->sums[READ_LEAK_DEFINITE].requested, 3000);
        check_eq(total_of(run->leaks->profile, "leak_objects"), 3);
        read_run_free(run);
    }
    file_of(heap, sizeof heap - 1);
    check_sentence("leaks", "it is no result of a leak check");
}

TEST(a_moment_that_is_not_there_is_a_sentence) {
    char why[READ_WHY_BYTES] = "";
    recording();
    struct read_run *run = read_confined(path, NULL, why);
    check(run != NULL);
    check(read_worker_moment(run->worker, false, 2, why) == NULL); /* there are two */
    check_str(why, "it has no such snapshot");
    why[0] = '\0';
    check(read_worker_moment(run->worker, true, 4, why) == NULL);
    check_str(why, "it has no such snapshot");
    why[0] = '\0';
    struct profile *profile = read_worker_moment(run->worker, true, 2, why); /* it works on */
    check(profile != NULL);
    check_str(profile->types[0].name, "y");
    profile_free(profile);
    read_run_free(run);
}

TEST(a_reader_that_dies_is_a_sentence) {
    char why[READ_WHY_BYTES] = "";
    recording();
    struct read_run *run = read_confined(path, NULL, why);
    check(run != NULL);
    char command[64];
    snprintf(command, sizeof command, "/proc/self/task/%d/children", (int)getpid());
    FILE *children = fopen(command, "r");
    int worker = 0;
    if (children == NULL || fscanf(children, "%d", &worker) != 1) {
        skip("the kernel does not tell a process's children");
    }
    fclose(children);
    check(kill(worker, SIGUSR1) == 0);
    siginfo_t info;
    check(waitid(P_PID, (id_t)worker, &info, WEXITED | WNOWAIT) == 0);
    check(read_moment(run, 0, why) == NULL);
    check_str(why, "its reader died by signal 10, which is a mistake of tally");
    check(read_moment(run, 0, why) == NULL);
    check(read_cpu_moment(run, 0, why) == NULL);
    read_run_free(run);
}
