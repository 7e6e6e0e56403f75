/* SPDX-License-Identifier: MIT
 *
 * test_read_tally.c - the container: frames in order, frames of the future, and files whose program was
 * killed while it wrote.
 */
#define _GNU_SOURCE /* memmem */
#include <zlib.h>

#include "common/cli.h"
#include "contract/frames.h"
#include "profiles.h"

/* ---------------------------------------------------------------- making files */

struct file {
    uint8_t bytes[1 << 17];
    size_t length;
};

static void put(struct file *file, uint64_t value, unsigned bytes) {
    for (unsigned i = 0; i < bytes; i++) {
        file->bytes[file->length++] = (uint8_t)(value >> 8 * i);
    }
}

static void begin(struct file *file) {
    file->length = 0;
    memcpy(file->bytes, FRAMES_MAGIC, 8);
    file->length = 8;
    put(file, FRAMES_MAJOR, 2);
    put(file, FRAMES_MINOR, 2);
    put(file, FRAMES_HEADER_BYTES, 4);
    put(file, 1700000000000000000, 8);
    put(file, 5, 8);
}

struct frame {
    unsigned type, flags;
    uint64_t t_ns;
    uint32_t raw_bytes; /* 0: as many as are stored */
};

static void put_frame(struct file *file, struct frame frame, const void *payload, size_t length) {
    size_t head = file->length;
    memcpy(file->bytes + head, FRAME_MAGIC, 4);
    file->length += 4;
    put(file, frame.type, 2);
    put(file, frame.flags, 2);
    put(file, length, 4);
    put(file, frame.raw_bytes != 0 ? frame.raw_bytes : length, 4);
    put(file, frame.t_ns, 8);
    put(file, crc32_z(0, payload, length), 4);
    put(file, crc32_z(0, file->bytes + head, 28), 4);
    memcpy(file->bytes + file->length, payload, length);
    file->length += length;
    while (file->length % 8 != 0) {
        file->bytes[file->length++] = 0;
    }
}

static void put_text(struct file *file, unsigned type, uint64_t t_ns, const char *text) {
    put_frame(file, (struct frame){.type = type, .t_ns = t_ns}, text, strlen(text));
}

/* One sample: so many bytes in use, so many at the peak. */
static size_t make_profile(uint8_t *bytes, unsigned inuse, unsigned peak) {
    static const char words[] = "\x0a\x02\x08\x01\x0a\x02\x08\x02\x0a\x02\x08\x03\x0a\x02\x08\x04"
                                "\x32\0\x32\x0dinuse_objects\x32\x0binuse_space\x32\x0cpeak_objects"
                                "\x32\x0apeak_space\x12\x06\x12\x04";
    memcpy(bytes, words, sizeof words - 1);
    bytes[sizeof words - 1] = 1;
    bytes[sizeof words] = (uint8_t)inuse;
    bytes[sizeof words + 1] = 2;
    bytes[sizeof words + 2] = (uint8_t)peak;
    return sizeof words + 3;
}

static void put_snapshot(struct file *file, uint64_t t_ns, unsigned inuse, unsigned peak) {
    uint8_t profile[200];
    size_t length = make_profile(profile, inuse, peak);
    put_frame(file, (struct frame){.type = FRAME_SNAP, .t_ns = t_ns}, profile, length);
}

static void put_deflated_snapshot(struct file *file, uint64_t t_ns, unsigned inuse, unsigned more) {
    uint8_t profile[200], packed[400];
    size_t length = make_profile(profile, inuse, 0);
    uLongf packed_length = sizeof packed;
    check_eq(compress(packed, &packed_length, profile, length), Z_OK);
    put_frame(file,
              (struct frame){.type = FRAME_SNAP,
                             .flags = FRAME_DEFLATED,
                             .t_ns = t_ns,
                             .raw_bytes = (uint32_t)(length + more)},
              packed, packed_length);
}

/* A whole run: two snapshots, a series, a note, an end. */
static void make_run(struct file *file) {
    begin(file);
    put_text(file, FRAME_HEAD, 0,
             "program=/bin/demo\nargument=--port\nargument=80 80\npid=4711\nhost=here\nrate=65536\n"
             "version=0.1.0\nfuture=x\n");
    put_snapshot(file, 1000, 10, 20);
    struct file points = {.length = 0};
    for (unsigned i = 0; i < 12; i++) {
        put(&points, 100 + i, 8);
    }
    put_frame(file, (struct frame){.type = FRAME_STAT, .t_ns = 1500}, points.bytes, points.length);
    put_text(file, FRAME_NOTE, 1700, "armed\n");
    put_snapshot(file, 2000, 30, 40);
    put_text(file, FRAME_BYE, 2500, "status=256\nsamples=99\ndropped=3\n");
}

static struct read_run *run_of(const struct file *file, size_t length) {
    char why[READ_WHY_BYTES] = "";
    uint8_t *copy = exact_copy(file->bytes, length);
    struct read_run *run = read_run(copy, length, why);
    free(copy); /* the run keeps nothing of it */
    check_str(why, "");
    return run;
}

static int64_t bytes_at(struct read_run *run, uint32_t moment) {
    char why[READ_WHY_BYTES];
    struct profile *profile = read_moment(run, moment, why);
    check(profile != NULL && profile_verify(profile));
    return total_of(profile, "inuse_space");
}

static struct file file;

/* ---------------------------------------------------------------- what is there */

TEST(a_run_has_what_its_frames_say) {
    make_run(&file);
    struct read_run *run = run_of(&file, file.length);
    check_str(run->format, "tally");
    check_str(run->program, "/bin/demo");
    check_str(run->arguments, "--port 80 80");
    check_str(run->host, "here");
    check_str(run->version, "0.1.0");
    check_eq(run->pid, 4711);
    check_eq(run->rate, 65536);
    check_eq(run->start_wall_ns, 1700000000000000000);
    check_eq(run->moment_count, 2);
    check_eq(run->moments[0].t_ns, 1000);
    check(run->moments[0].profile == NULL && run->moments[1].profile != NULL);
    check_eq(bytes_at(run, 0), 10);
    check_eq(bytes_at(run, 1), 30);
    check_eq(run->moments[1].profile->time_ns, 1700000000000002000);
    check_str(run->moments[1].profile->source, "tally");
    check_eq(run->point_count, 2);
    check_eq(run->points[0].t_ns, 100);
    check_eq(run->points[1].rss, 107);
    check_eq(run->points[1].freed, 111);
    check_eq(run->note_count, 1);
    check_str(run->notes[0].text, "armed");
    check(run->has_ended);
    check(run->has_status);
    check_eq(run->status, 256);
    check_eq(run->samples, 99);
    check_eq(run->dropped, 3);
    check_eq(run->lost_bytes, 0);
    check_eq(run->unknown_frames, 0);
    read_run_free(run);
}

TEST(the_peak_is_made_of_the_last_snapshot) {
    make_run(&file);
    struct read_run *run = run_of(&file, file.length);
    struct profile *peak = read_peak(run);
    check_eq(total_of(peak, "inuse_space"), 40);
    check_eq(total_of(peak, "inuse_objects"), 2);
    check_eq(read_peak(run), peak);
    check_eq(bytes_at(run, 1), 30);
    read_run_free(run);
}

TEST(deflated_frames_are_unpacked) {
    uint8_t packed[400];
    static const char pairs[] = "program=/bin/packed\n";
    uLongf length = sizeof packed;
    begin(&file);
    check_eq(compress(packed, &length, (const Bytef *)pairs, sizeof pairs - 1), Z_OK);
    put_frame(
        &file,
        (struct frame){.type = FRAME_HEAD, .flags = FRAME_DEFLATED, .raw_bytes = sizeof pairs - 1},
        packed, length);
    put_deflated_snapshot(&file, 7, 50, 0);
    struct read_run *run = run_of(&file, file.length);
    check_str(run->program, "/bin/packed");
    check_eq(bytes_at(run, 0), 50);
    check_eq(run->lost_bytes, 0);
    read_run_free(run);
}

/* A run whose first snapshot is damaged at a byte; how many moments are left. */
static uint32_t moments_with_damage(size_t at, bool salvage) {
    make_run(&file);
    file.bytes[at] ^= 0x40;
    cli_salvage = salvage;
    struct read_run *run = run_of(&file, file.length);
    cli_salvage = false;
    uint32_t count = run->moment_count;
    check(run->lost_bytes > 0);
    check_eq(run->has_ended, salvage);
    check(!salvage || bytes_at(run, count - 1) == 30);
    read_run_free(run);
    return count;
}

/* The processor's time is one snapshot's profile each, apart from memory. */
static void put_cpu(struct file *to, uint64_t t_ns, unsigned value) {
    uint8_t profile[200];
    size_t length = make_profile(profile, value, 0);
    put_frame(to, (struct frame){.type = FRAME_CPU, .t_ns = t_ns}, profile, length);
}

TEST(time_on_the_processor_is_kept_beside_memory) {
    char why[READ_WHY_BYTES];
    begin(&file);
    put_cpu(&file, 900, 5);
    put_snapshot(&file, 1000, 10, 20);
    put_cpu(&file, 1900, 7);
    put_snapshot(&file, 2000, 30, 40);
    put_text(&file, FRAME_BYE, 2500, "cpu_lost=4\ncpu_left_out=2\n");
    struct read_run *run = run_of(&file, file.length);
    check_eq(run->moment_count, 2);
    check_eq(run->cpu_count, 2);
    check_eq(run->unknown_frames, 0);
    check_eq(run->cpu_lost, 4);
    check_eq(run->cpu_left_out, 2);
    check_eq(run->cpu[0].t_ns, 900);
    check_eq(profile_value(read_cpu_moment(run, 0, why), 0, 1), 5);
    check_eq(profile_value(read_cpu_moment(run, 1, why), 0, 1), 7);
    check_eq(profile_value(read_moment(run, 1, why), 0, 1), 30);
    read_run_free(run);
}

TEST(leaks_that_cannot_be_read_cost_nothing_behind_them) {
    begin(&file);
    put_snapshot(&file, 1000, 10, 20);
    put_text(&file, FRAME_LEAK, 1500, "no leaks of ours");
    put_snapshot(&file, 2000, 30, 40);
    put_text(&file, FRAME_BYE, 2500, "status=0\n");
    struct read_run *run = run_of(&file, file.length);
    check(run->leaks == NULL);
    check_eq(run->moment_count, 2);
    check(run->has_ended);
    read_run_free(run);
}

TEST(damaged_time_costs_no_memory) {
    begin(&file);
    put_cpu(&file, 900, 5);
    put_text(&file, FRAME_CPU, 950, "no profile");
    put_snapshot(&file, 1000, 10, 20);
    struct read_run *run = run_of(&file, file.length);
    check_eq(run->cpu_count, 1);
    check_eq(run->moment_count, 1);
    check_eq(run->lost_bytes, strlen("no profile"));
    read_run_free(run);
}

TEST(salvage_reads_on_behind_damage) {
    make_run(&file);
    const uint8_t *head = memmem(file.bytes, file.length, "TFRM\2", 5);
    check(head != NULL);
    size_t at = (size_t)(head - file.bytes);
    for (size_t i = at; i < at + FRAME_HEAD_BYTES + 8; i++) { /* head and payload */
        check_eq(moments_with_damage(i, false), 0);
        check_eq(moments_with_damage(i, true), 1);
    }
}

TEST(salvage_does_not_pass_what_must_be_understood) {
    begin(&file);
    put_snapshot(&file, 1, 10, 0);
    put_frame(&file, (struct frame){.type = 99, .flags = FRAME_MUST_BE_UNDERSTOOD}, "x", 1);
    put_snapshot(&file, 2, 20, 0);
    cli_salvage = true;
    struct read_run *run = run_of(&file, file.length);
    cli_salvage = false;
    check_eq(run->moment_count, 1);
    check(run->lost_bytes > 0);
    read_run_free(run);
}

TEST(frames_of_the_future_are_skipped_and_counted) {
    begin(&file);
    put_text(&file, 77, 0, "whatever");
    put_snapshot(&file, 1, 10, 0);
    put_text(&file, 78, 0, "");
    struct read_run *run = run_of(&file, file.length);
    check_eq(run->unknown_frames, 2);
    check_eq(run->moment_count, 1);
    check_eq(run->lost_bytes, 0);
    read_run_free(run);
}

TEST(a_frame_that_must_be_understood_ends_the_file) {
    begin(&file);
    put_snapshot(&file, 1, 10, 0);
    size_t good = file.length;
    put_frame(&file, (struct frame){.type = 77, .flags = FRAME_MUST_BE_UNDERSTOOD}, "x", 1);
    put_snapshot(&file, 2, 20, 0);
    struct read_run *run = run_of(&file, file.length);
    check_eq(run->moment_count, 1);
    check_eq(run->lost_bytes, file.length - good);
    read_run_free(run);
}

/* ---------------------------------------------------------------- killed and damaged */

TEST(a_file_cut_anywhere_is_good_up_to_its_last_whole_frame) {
    make_run(&file);
    size_t whole[8], frames = 0;
    uint32_t moments = 0;
    for (size_t at = FRAMES_HEADER_BYTES; at < file.length; frames++) {
        uint32_t stored;
        memcpy(&stored, file.bytes + at + 8, sizeof stored);
        at += FRAME_HEAD_BYTES + (stored + 7) / 8 * 8;
        whole[frames] = at;
    }
    check_eq(frames, 6);
    for (size_t cut = FRAMES_HEADER_BYTES; cut <= file.length; cut++) {
        size_t good = FRAMES_HEADER_BYTES;
        for (size_t i = 0; i < frames && whole[i] <= cut; i++) {
            good = whole[i];
        }
        struct read_run *run = run_of(&file, cut);
        check(run != NULL && run->moment_count >= moments);
        moments = run->moment_count;
        check(run->has_ended == (cut >= whole[4] + FRAME_HEAD_BYTES + 32));
        /* Zeros at the end of a frame may be missing. */
        check(run->lost_bytes == cut - good || (run->lost_bytes == 0 && cut > good));
        read_run_free(run);
    }
    check_eq(moments, 2);
}

TEST(a_changed_byte_costs_its_frame_and_all_behind_it) {
    make_run(&file);
    size_t head = FRAMES_HEADER_BYTES;
    for (size_t i = head; i < head + FRAME_HEAD_BYTES + 4; i++) {
        file.bytes[i] ^= 0x10;
        struct read_run *run = run_of(&file, file.length);
        check_eq(run->moment_count, 0);
        check_eq(run->lost_bytes, file.length - head);
        read_run_free(run);
        file.bytes[i] ^= 0x10;
    }
}

TEST(a_snapshot_with_right_sums_and_wrong_content_is_as_good_as_lost) {
    begin(&file);
    put_snapshot(&file, 1, 10, 0);
    put_text(&file, FRAME_SNAP, 2, "this is no profile");
    put_deflated_snapshot(&file, 3, 50, 1); /* which says that it is longer */
    struct read_run *run = run_of(&file, file.length);
    check_eq(run->moment_count, 1);
    check_eq(bytes_at(run, 0), 10);
    check(run->lost_bytes > 0);
    read_run_free(run);
}

TEST(not_every_one_of_many_damaged_snapshots_is_tried) {
    begin(&file);
    put_snapshot(&file, 1, 10, 0);
    for (int i = 0; i < 7; i++) {
        put_text(&file, FRAME_SNAP, 2, "this is no profile");
    }
    struct read_run *run = run_of(&file, file.length);
    check_eq(run->moment_count, 1);
    read_run_free(run);
    put_text(&file, FRAME_SNAP, 2, "this is no profile");
    run = run_of(&file, file.length);
    check_eq(run->moment_count, 0);
    read_run_free(run);
}

TEST(arguments_are_cut_where_they_are_too_many) {
    static char argument[30100];
    begin(&file);
    memset(argument, 'x', sizeof argument - 1);
    memcpy(argument, "argument=", 9);
    put_text(&file, FRAME_HEAD, 0, argument);
    put_text(&file, FRAME_HEAD, 0, argument);
    put_text(&file, FRAME_HEAD, 0, argument);
    put_text(&file, FRAME_HEAD, 0, "argument=y");
    struct read_run *run = run_of(&file, file.length);
    size_t one = sizeof argument - 1 - 9;
    check_eq(strlen(run->arguments), one + 1 + one + 1 + 1);
    read_run_free(run);
}

TEST(sizes_that_cannot_be_true_are_not_believed) {
    begin(&file);
    put_frame(&file,
              (struct frame){.type = FRAME_HEAD, .flags = FRAME_DEFLATED, .raw_bytes = UINT32_MAX},
              "x", 1);
    struct read_run *run = run_of(&file, file.length);
    check_eq(run->lost_bytes, file.length - FRAMES_HEADER_BYTES);
    read_run_free(run);
    begin(&file);
    put_frame(&file,
              (struct frame){.type = FRAME_SNAP, .flags = FRAME_DEFLATED, .raw_bytes = UINT32_MAX},
              "x", 1);
    run = run_of(&file, file.length);
    check_eq(run->moment_count, 0);
    check_eq(run->lost_bytes, file.length - FRAMES_HEADER_BYTES);
    read_run_free(run);
}

static void check_run_refused(size_t length, const char *sentence) {
    char why[READ_WHY_BYTES] = "";
    check(read_tally(file.bytes, length, why) == NULL);
    check_str(why, sentence);
}

TEST(a_bad_header_is_one_sentence) {
    begin(&file);
    check(read_is_tally(file.bytes, file.length));
    check(!read_is_tally(file.bytes, 7));
    check_run_refused(31, "it was cut inside of its header");
    file.bytes[12] = 31;
    check_run_refused(32, "its header is damaged");
    file.bytes[12] = 33;
    check_run_refused(32, "its header is damaged");
    file.bytes[8] = 2;
    file.bytes[10] = 5;
    check_run_refused(32, "it is of version 2.5, which this tally does not know");
}

TEST(a_longer_header_is_passed_over) {
    begin(&file);
    file.bytes[12] = 40;
    file.length = 40;
    put_snapshot(&file, 1, 10, 0);
    struct read_run *run = run_of(&file, file.length);
    check_eq(run->moment_count, 1);
    read_run_free(run);
}
