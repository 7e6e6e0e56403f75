/* SPDX-License-Identifier: MIT
 *
 * test_read.c - files are recognised by their content, unpacked within bounds, and words name a moment.
 */
#define _GNU_SOURCE /* mkdtemp */
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include "common/cli.h"
#include "contract/frames.h"
#include "profiles.h"
#include "select/argument.h"

static char folder[] = "/tmp/tally-read-XXXXXX";

static void enter_folder(void) {
    check(mkdtemp(folder) != NULL && chdir(folder) == 0);
}

static void leave_folder(void) {
    check(chdir("/") == 0 && rmdir(folder) == 0);
}

static void write_file(const char *path, const void *bytes, size_t length) {
    FILE *file = fopen(path, "wb");
    check(file != NULL && fwrite(bytes, 1, length, file) == length && fclose(file) == 0);
}

static void write_gzip(const char *path, const char *mode, const void *bytes, size_t length) {
    gzFile file = gzopen(path, mode);
    check(file != NULL && gzwrite(file, bytes, (unsigned)length) == (int)length);
    check_eq(gzclose(file), Z_OK);
}

/* ---------------------------------------------------------------- files */

static uint8_t *read_named(const char *path, size_t *length, char why[READ_WHY_BYTES]) {
    int fd = read_open(path, why);
    uint8_t *bytes = fd >= 0 ? read_descriptor(fd, length, why) : NULL;
    if (fd >= 0) {
        close(fd);
    }
    return bytes;
}

TEST(a_file_is_read_whole_and_unpacked) {
    char why[READ_WHY_BYTES];
    size_t length;
    enter_folder();
    write_file("plain", "main 1\n", 7);
    uint8_t *bytes = read_named("plain", &length, why);
    check(bytes != NULL && length == 7 && memcmp(bytes, "main 1\n", 7) == 0);
    free(bytes);
    write_gzip("packed", "wb", "main 1\n", 7);
    write_gzip("packed", "ab", "main 2\n", 7); /* a second member */
    bytes = read_named("packed", &length, why);
    check(bytes != NULL && length == 14 && memcmp(bytes, "main 1\nmain 2\n", 14) == 0);
    free(bytes);
    unlink("plain");
    unlink("packed");
    leave_folder();
}

static void check_unreadable(const char *path, const char *sentence) {
    char why[READ_WHY_BYTES] = "";
    size_t length;
    check(read_named(path, &length, why) == NULL);
    check_str(why, sentence);
}

TEST(what_is_no_file_is_not_waited_for) {
    enter_folder();
    check(mkfifo("pipe", 0600) == 0);
    check_unreadable("pipe", "it is no regular file; what comes from a pipe is read as -");
    check_unreadable("/dev/zero", "it is no regular file; what comes from a pipe is read as -");
    check_unreadable(".", "it is a folder");
    check_unreadable("missing", "No such file or directory");
    unlink("pipe");
    leave_folder();
}

TEST(damaged_gzip_is_one_sentence) {
    static uint8_t bytes[1000];
    enter_folder();
    write_gzip("packed", "wb", "main 1\nmain 2\nmain 3\n", 21);
    FILE *file = fopen("packed", "rb");
    size_t length = fread(bytes, 1, sizeof bytes, file);
    fclose(file);
    write_file("cut", bytes, length - 9);
    check_unreadable("cut", "its compressed data were cut");
    memcpy(bytes + length, "junk", 4);
    write_file("more", bytes, length + 4);
    check_unreadable("more", "its compressed data are damaged");
    bytes[12] ^= 0xff;
    write_file("changed", bytes, length);
    check_unreadable("changed", "its compressed data are damaged");
    unlink("packed");
    unlink("cut");
    unlink("more");
    unlink("changed");
    leave_folder();
}

TEST(unpacking_stops_at_its_limit) {
    static uint8_t zeros[1 << 20], packed[1 << 16];
    char why[READ_WHY_BYTES] = "";
    uLongf length = sizeof packed;
    size_t unpacked;
    check_eq(compress(packed, &length, zeros, sizeof zeros), Z_OK);
    uint8_t *bytes = read_inflate(READ_ZLIB, packed, length, sizeof zeros, &unpacked, why);
    check(bytes != NULL && unpacked == sizeof zeros);
    free(bytes);
    check(read_inflate(READ_ZLIB, packed, length, sizeof zeros - 1, &unpacked, why) == NULL);
    check_str(why, "unpacked it has more than 1048575 bytes");
}

TEST(what_grows_a_hundred_times_is_a_bomb) {
    enum { ZEROS = 8 << 20 };
    static uint8_t packed[1 << 16];
    char why[READ_WHY_BYTES] = "";
    uint8_t *zeros = calloc(1, ZEROS);
    uLongf length = sizeof packed;
    size_t unpacked;
    check_eq(compress(packed, &length, zeros, ZEROS), Z_OK);
    free(zeros);
    check(read_inflate(READ_ZLIB, packed, length, READ_MOST_BYTES, &unpacked, why) == NULL);
    check_str(why, "it grows more than 100 times when it is unpacked");
}

/* ---------------------------------------------------------------- recognising */

TEST(formats_are_recognised_by_their_content) {
    static const struct {
        const char *format, *text;
    } rows[] = {
        {"jemalloc", "heap_v2/1\n@ 0x1\n t*: 1: 8 [0: 0]\n"},
        {"gperftools", "heap profile: 1: 8 [1: 8] @ heapprofile\n1: 8 [1: 8] @ 0x1\n"},
        {"folded", "main;f 8\n"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char why[READ_WHY_BYTES];
        const uint8_t *bytes = (const uint8_t *)rows[i].text;
        struct read_run *run = read_run(bytes, strlen(rows[i].text), why);
        check(run != NULL && run->moment_count == 1);
        check_str(run->format, rows[i].format);
        read_run_free(run);
        run = read_run_as(rows[i].format, bytes, strlen(rows[i].text), why);
        check(run != NULL);
        read_run_free(run);
        check(read_run_as("pprof", bytes, strlen(rows[i].text), why) == NULL);
        check_str(why, "it is no profile of the format pprof");
    }
}

TEST(what_is_no_profile_is_refused_with_a_sentence) {
    char why[READ_WHY_BYTES];
    check(read_run((const uint8_t *)"", 0, why) == NULL);
    check_str(why, "it is empty");
    check(read_run((const uint8_t *)"hello world\n", 12, why) == NULL);
    check_str(why, "it is no profile of a known format");
}

/* ---------------------------------------------------------------- words */

static void append(uint8_t *bytes, size_t *length, uint64_t value, unsigned count) {
    for (unsigned i = 0; i < count; i++) {
        bytes[(*length)++] = (uint8_t)(value >> 8 * i);
    }
}

/* Snapshots of 1, 2, 3 bytes at 1, 2, 3 seconds; the peak was 9. */
static void write_run(const char *path, unsigned snapshots) {
    static uint8_t bytes[4096];
    size_t length = 8;
    memcpy(bytes, FRAMES_MAGIC, 8);
    append(bytes, &length, FRAMES_MAJOR, 2);
    append(bytes, &length, FRAMES_MINOR, 2);
    append(bytes, &length, FRAMES_HEADER_BYTES, 4);
    append(bytes, &length, 0, 8);
    append(bytes, &length, 0, 8);
    for (unsigned i = 1; i <= snapshots; i++) {
        uint8_t profile[] = "\x0a\x02\x08\x01\x0a\x02\x08\x02\x0a\x02\x08\x03\x0a\x02\x08\x04"
                            "\x32\0\x32\x0dinuse_objects\x32\x0binuse_space\x32\x0cpeak_objects"
                            "\x32\x0apeak_space\x12\x06\x12\x04\x01?\x01\x09";
        profile[sizeof profile - 4] = (uint8_t)i;
        size_t head = length, stored = sizeof profile - 1;
        memcpy(bytes + length, FRAME_MAGIC, 4);
        length += 4;
        append(bytes, &length, FRAME_SNAP, 4);
        append(bytes, &length, stored, 4);
        append(bytes, &length, stored, 4);
        append(bytes, &length, i * UINT64_C(1000000000), 8);
        append(bytes, &length, crc32_z(0, profile, stored), 4);
        append(bytes, &length, crc32_z(0, bytes + head, 28), 4);
        memcpy(bytes + length, profile, stored);
        length += stored;
        append(bytes, &length, 0, (unsigned)(-length % 8));
    }
    write_file(path, bytes, length);
}

/* The bytes in use that a word stands for; minus the exit status where it stands for nothing. */
static int64_t bytes_of(const char *word) {
    int status = EXIT_DONE;
    struct profile *profile = read_argument(word, false, &status);
    if (profile == NULL) {
        check(status != EXIT_DONE);
        return -status;
    }
    int64_t bytes = total_of(profile, "inuse_space");
    profile_free(profile);
    return bytes;
}

TEST(a_word_names_a_moment_of_a_run) {
    enter_folder();
    cli_loudness = 0;
    write_run("a.tally", 3);
    check_eq(bytes_of("a.tally"), 3);
    check_eq(bytes_of("a.tally@end"), 3);
    check_eq(bytes_of("a.tally@peak"), 9);
    check_eq(bytes_of("a.tally#1"), 1);
    check_eq(bytes_of("a.tally#3"), 3);
    check_eq(bytes_of("a.tally@1s"), 1);
    check_eq(bytes_of("a.tally@2500ms"), 2);
    check_eq(bytes_of("a.tally@1h"), 3);
    check_eq(bytes_of("a.tally@0s"), 1);
    check(bytes_of("a.tally#0") == -EXIT_BAD_INPUT);
    check(bytes_of("a.tally#4") == -EXIT_BAD_INPUT);
    check(bytes_of("a.tally@soon") == -EXIT_USAGE);
    check(bytes_of("a.tally#") == -EXIT_USAGE);
    check(bytes_of("a.tally#1x") == -EXIT_USAGE);
    check(bytes_of("b.tally") == -EXIT_BAD_INPUT);
    write_run("b@1s", 2); /* a file may be called so */
    check_eq(bytes_of("b@1s"), 2);
    check_eq(bytes_of("b@1s#1"), 1);
    unlink("a.tally");
    unlink("b@1s");
    leave_folder();
}

TEST(a_word_without_a_moment_or_a_peak_is_bad_input) {
    enter_folder();
    cli_loudness = 0;
    write_run("a.tally", 0);
    check(bytes_of("a.tally") == -EXIT_BAD_INPUT);
    check(bytes_of("a.tally@peak") == -EXIT_BAD_INPUT);
    static const char heap[] = "heap profile: 1: 8 [1: 8] @ heapprofile\n1: 8 [1: 8] @ 0x1\n";
    write_file("a.heap", heap, strlen(heap));
    check(bytes_of("a.heap@peak") == -EXIT_BAD_INPUT);
    check_eq(bytes_of("a.heap@end"), 8);
    check_eq(bytes_of("a.heap#1"), 8);
    unlink("a.tally");
    unlink("a.heap");
    leave_folder();
}

TEST(a_dash_is_the_standard_input) {
    enter_folder();
    static const char heap[] = "heap profile: 1: 8 [1: 8] @ heapprofile\n1: 8 [1: 8] @ 0x1\n";
    write_file("a.heap", heap, strlen(heap));
    int fd = open("a.heap", O_RDONLY);
    check(fd >= 0 && dup2(fd, 0) == 0 && close(fd) == 0);
    check_eq(bytes_of("-"), 8);
    unlink("a.heap");
    leave_folder();
}
