/* SPDX-License-Identifier: MIT
 *
 * test_container.c - containers are written as frames.h describes them, and what goes wrong leaves
 * whole frames.
 *
 * The reader here is the test's own, written from the description; its sums are made bit by bit.  The
 * linker turns the calls that write and cut into functions that can fail.
 */
#include "out/container.h"
#include "prof/prof.h"

#include <errno.h>
#include <stdio.h>
#include <sys/stat.h>

#include "base/os.h"
#include "contract/frames.h"
#include "unit.h"

static long writes_allowed = -1; /* so many bytes more; -1 all */
static bool cannot_cut;
static int last_fd; /* that was written to */

int __real_os_write_all(int fd, const void *bytes, size_t length);
int __wrap_os_write_all(int fd, const void *bytes, size_t length);
int __wrap_os_write_all(int fd, const void *bytes, size_t length) {
    last_fd = fd;
    if (writes_allowed < 0 || (size_t)writes_allowed >= length) {
        return __real_os_write_all(fd, bytes, length);
    }
    check_eq(__real_os_write_all(fd, bytes, (size_t)writes_allowed), 0);
    return -ENOSPC;
}

int __real_os_truncate(int fd, uint64_t bytes);
int __wrap_os_truncate(int fd, uint64_t bytes);
int __wrap_os_truncate(int fd, uint64_t bytes) {
    return cannot_cut ? -EIO : __real_os_truncate(fd, bytes);
}

/* ---------------------------------------------------------------- reading */

static uint32_t crc_of(const unsigned char *bytes, size_t length) {
    uint32_t crc = 0xffffffff;
    for (size_t i = 0; i < length; i++) {
        crc ^= bytes[i];
        for (int bit = 0; bit < 8; bit++) {
            crc = crc & 1 ? crc >> 1 ^ 0xedb88320 : crc >> 1;
        }
    }
    return ~crc;
}

static uint64_t number_at(const unsigned char *at, unsigned bytes) {
    uint64_t value = 0;
    for (unsigned i = bytes; i > 0; i--) {
        value = value << 8 | at[i - 1];
    }
    return value;
}

static unsigned char file[1 << 20];

static size_t load(const char *path) {
    int fd = open(path, O_RDONLY);
    check(fd >= 0);
    ssize_t length = read(fd, file, sizeof file);
    check(length >= 0 && (size_t)length < sizeof file);
    close(fd);
    return (size_t)length;
}

struct found {
    unsigned type;
    uint64_t t_ns;
    const unsigned char *payload;
    size_t bytes, end;
};

/* The whole frames of the first `length` bytes. */
static unsigned read_frames(size_t length, struct found *found) {
    unsigned count = 0;
    if (length < 32) {
        return 0;
    }
    check(memcmp(file, "TALLY\r\n\x1a", 8) == 0);
    check_eq(number_at(file + 8, 2), 1);
    check_eq(number_at(file + 12, 4), 32);
    for (size_t at = 32; at + 32 <= length;) {
        const unsigned char *head = file + at;
        size_t stored = number_at(head + 8, 4);
        size_t end = at + 32 + (stored + 7) / 8 * 8;
        if (memcmp(head, "TFRM", 4) != 0 || crc_of(head, 28) != number_at(head + 28, 4) ||
            end > length || crc_of(head + 32, stored) != number_at(head + 24, 4)) {
            break;
        }
        check_eq(number_at(head + 6, 2), 0);
        check_eq(number_at(head + 12, 4), stored);
        check(count < 16);
        found[count++] = (struct found){(unsigned)number_at(head + 4, 2), number_at(head + 16, 8),
                                        head + 32, stored, end};
        at = end;
    }
    return count;
}

/* ---------------------------------------------------------------- a place of its own */

static char folder[64], path[128], part[160];

static void start(void) {
    snprintf(folder, sizeof folder, "/tmp/tally-frames-XXXXXX");
    check(mkdtemp(folder) != NULL);
    snprintf(path, sizeof path, "%s/a.tally", folder);
    snprintf(part, sizeof part, "%s.part", path);
    start_heap_with("prof:true,lg_prof_sample:0");
}
TEST_SETUP(start);

static void clean(void) {
    unlink(path);
    unlink(part);
    check(rmdir(folder) == 0);
}

static struct container container;
static const char head[] = "program=/bin/x\npid=1\n";

static void begin(void) {
    check_eq(container_begin(&container, path, head, strlen(head)), 0);
}

static const struct container_point two_points[] = {{1, 2, 3, 4, 5, 6}, {7, 8, 9, 10, 11, 12}};

static int write_heap(struct out_sink sink) {
    return dump_to_sink(sink, DUMP_SNAPSHOT, DUMP_NOW);
}

/* One of each kind. */
static void write_all(void) {
    begin();
    check_eq(container_stat(&container, two_points, 2), 0);
    void *object = tally_malloc(100);
    check_eq(container_profile(&container, FRAME_SNAP, UINT64_MAX, write_heap), 0);
    tally_free(object);
    check_eq(container_note(&container, "why"), 0);
    check_eq(container_end(&container, "samples=1\n", 10), 0);
}

/* ---------------------------------------------------------------- tests */

TEST(the_file_is_written_under_a_number_that_programs_do_not_use) {
    begin();
    check_eq(container_note(&container, "why"), 0);
    check(last_fd >= 10);
    check_eq(fcntl(last_fd, F_GETFD), -1); /* and not for longer than it needs */
    clean();
}

TEST(a_container_has_the_frames_that_were_written) {
    struct found found[16];
    write_all();
    check_eq(access(part, F_OK), -1);
    size_t length = load(path);
    check_eq(read_frames(length, found), 5);
    check_eq(found[4].end, length);
    static const unsigned types[] = {FRAME_HEAD, FRAME_STAT, FRAME_SNAP, FRAME_NOTE, FRAME_BYE};
    for (unsigned i = 0; i < 5; i++) {
        check_eq(found[i].type, types[i]);
        check(i == 0 || found[i].t_ns >= found[i - 1].t_ns);
    }
    check_eq(found[0].bytes, strlen(head));
    check(memcmp(found[0].payload, head, strlen(head)) == 0);
    check_eq(found[1].bytes, 96);
    for (unsigned i = 0; i < 12; i++) {
        check_eq(number_at(found[1].payload + 8 * i, 8), i + 1);
    }
    check(memcmp(found[3].payload, "why", 3) == 0);
    clean();
}

/* A field of the outermost message; 0 at the end. */
static uint64_t next_field(const unsigned char **at, const unsigned char *end,
                           const unsigned char **value, size_t *bytes) {
    uint64_t words[2] = {0, 0};
    if (*at == end) {
        return 0;
    }
    for (int i = 0; i < 2; i++) {
        unsigned shift = 0;
        do {
            check(*at < end);
            words[i] |= (uint64_t)(**at & 127) << shift;
            shift += 7;
        } while (*(*at)++ & 128);
    }
    *value = *at;
    *bytes = words[0] & 7 ? words[1] : 0;
    *at += *bytes;
    check(*at <= end);
    return words[0] >> 3;
}

TEST(a_snapshot_has_nine_types) {
    static const char *const names[] = {"alloc_objects", "alloc_space",  "inuse_objects",
                                        "inuse_space",   "peak_objects", "peak_space",
                                        "temp_objects",  "slack_space",  "pinned_space"};
    struct found found[16];
    write_all();
    check_eq(read_frames(load(path), found), 5);
    const unsigned char *at = found[2].payload, *end = at + found[2].bytes, *value;
    unsigned types = 0, seen = 0;
    size_t bytes;
    for (uint64_t field; (field = next_field(&at, end, &value, &bytes)) != 0;) {
        types += field == 1;
        for (unsigned i = 0; field == 6 && i < 9; i++) {
            seen += bytes == strlen(names[i]) && memcmp(value, names[i], bytes) == 0;
        }
    }
    check_eq(types, 9);
    check_eq(seen, 9);
    clean();
}

TEST(every_prefix_has_the_frames_that_end_in_it) {
    struct found all[16], found[16];
    write_all();
    size_t length = load(path);
    unsigned count = read_frames(length, all);
    for (size_t cut = 0; cut <= length; cut++) {
        unsigned expected = 0;
        while (expected < count && all[expected].end <= cut) {
            expected++;
        }
        check_eq(read_frames(cut, found), expected);
    }
    clean();
}

TEST(a_full_disk_leaves_whole_frames) {
    struct found found[16];
    begin();
    check_eq(container_note(&container, "one"), 0);
    uint64_t before = container.bytes;
    for (writes_allowed = 0; writes_allowed < 40; writes_allowed++) {
        check_eq(container_note(&container, "two"), -ENOSPC);
        check_eq(load(part), before);
    }
    check_eq(container_note(&container, "two"), 0);
    check_eq(read_frames(load(part), found), 3);
    clean();
}

TEST(half_a_frame_that_could_not_be_cut_off_is_cut_off_later) {
    struct found found[16];
    begin();
    writes_allowed = 20;
    cannot_cut = true;
    check_eq(container_note(&container, "one"), -ENOSPC);
    check_eq(load(part), container.bytes + 20);
    check_eq(container_note(&container, "one"), -EIO);
    writes_allowed = -1;
    cannot_cut = false;
    check_eq(container_note(&container, "two"), 0);
    check_eq(read_frames(load(part), found), 2);
    check(memcmp(found[1].payload, "two", 3) == 0);
    check_eq(found[1].end, container.bytes);
    clean();
}

TEST(nothing_is_left_where_the_beginning_fails) {
    writes_allowed = 40;
    check_eq(container_begin(&container, path, head, strlen(head)), -ENOSPC);
    clean();
}

TEST(names_that_are_taken_stay_as_they_are) {
    int fd = open(path, O_CREAT | O_WRONLY, 0600);
    close(fd);
    check_eq(container_begin(&container, path, head, strlen(head)), -EEXIST);
    unlink(path);
    check(symlink("/nowhere", part) == 0);
    check_eq(container_begin(&container, path, head, strlen(head)), -EEXIST);
    unlink(part);
    begin();
    fd = open(path, O_CREAT | O_WRONLY, 0600);
    close(fd);
    check_eq(container_end(&container, "", 0), -EEXIST);
    check_eq(load(path), 0);
    check(load(part) > 0);
    clean();
}

/* As long as ours, and made before ours is gone, so that it has another number. */
TEST(another_file_of_that_name_is_not_written_to) {
    static const char theirs[1000] = "mine";
    char other[160];
    begin();
    snprintf(other, sizeof other, "%s.other", path);
    int fd = open(other, O_CREAT | O_WRONLY, 0600);
    check(write(fd, theirs, sizeof theirs) == sizeof theirs);
    close(fd);
    check(rename(other, part) == 0);
    check_eq(container_note(&container, "one"), -ESTALE);
    check_eq(load(part), sizeof theirs);
    check(memcmp(file, theirs, sizeof theirs) == 0);
    unlink(part);
    check(symlink(path, part) == 0);
    check(container_note(&container, "one") < 0);
    check_eq(access(path, F_OK), -1);
    clean();
}

TEST(a_snapshot_that_is_too_large_is_not_written) {
    struct found found[16];
    begin();
    check_eq(container_profile(&container, FRAME_SNAP, 100, write_heap), -EMSGSIZE);
    check_eq(container_profile(&container, FRAME_SNAP, UINT64_MAX, write_heap), 0);
    check_eq(read_frames(load(part), found), 2);
    clean();
}

static int dump_text(struct out_sink sink) {
    int error = sink.take(sink.target, "what is known ", 14);
    return error != 0 ? error : sink.take(sink.target, "of time", 7);
}

static int dump_nothing(struct out_sink sink) {
    (void)sink;
    return -ENOMEM;
}

TEST(time_on_the_processor_is_a_frame_of_what_its_profiler_writes) {
    struct found found[16];
    begin();
    check_eq(container_profile(&container, FRAME_CPU, UINT64_MAX, dump_text), 0);
    check_eq(container_profile(&container, FRAME_CPU, UINT64_MAX, dump_nothing), -ENOMEM);
    check_eq(container_profile(&container, FRAME_CPU, 32 + 20, dump_text), -EMSGSIZE);
    check_eq(read_frames(load(part), found), 2);
    check_eq(found[1].type, FRAME_CPU);
    check_eq(found[1].bytes, 21);
    check(memcmp(found[1].payload, "what is known of time", 21) == 0);
    clean();
}

TEST(the_file_is_the_owners_alone) {
    struct stat found;
    umask(0);
    begin();
    check(stat(part, &found) == 0);
    check_eq(found.st_mode & 0777, 0600);
    unlink(part);
    umask(0777);
    begin();
    check(stat(part, &found) == 0);
    check_eq(found.st_mode & 0777, 0600);
    check_eq(container_note(&container, "one"), 0);
    clean();
}
