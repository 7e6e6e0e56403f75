/* SPDX-License-Identifier: MIT
 *
 * test_read_image.c - what was read arrives as it was sent, and a sender that lies is not believed.
 */
#define _GNU_SOURCE /* memfd_create */
#include "read_image.h"

#include <sys/mman.h>
#include <unistd.h>

#include "cli.h"
#include "made_profile.h"
#include "profiles.h"

static struct image_pipe out, in;

/* A run with one of everything. */
static struct read_run *made_run(void) {
    static struct read_moment moments[2] = {{.t_ns = 10}, {.t_ns = 20}};
    static struct read_point points[] = {{1, 2, 3, 4, 5, 6}, {7, 8, 9, 10, 11, 12}};
    static struct read_note notes[] = {{5, "armed"}};
    static struct read_run run = {.format = "tally",
                                  .moments = moments,
                                  .moment_count = 2,
                                  .points = points,
                                  .point_count = 2,
                                  .notes = notes,
                                  .note_count = 1,
                                  .program = "/bin/demo",
                                  .arguments = "--port 80",
                                  .host = "here",
                                  .version = "0.1.0",
                                  .pid = 4711,
                                  .start_wall_ns = 99,
                                  .rate = 65536,
                                  .has_ended = true,
                                  .has_status = true,
                                  .status = 256,
                                  .samples = 1,
                                  .dropped = 2,
                                  .lost_bytes = 3,
                                  .unknown_frames = 4,
                                  .file_bytes = 5};
    struct profile *profile = make_profile();
    make_sample(profile, "main:4;work:10+copy:20;malloc", (int64_t[]){1, 64, 1, 64});
    make_sample(profile, "main:5;work:10+copy:20", (int64_t[]){-7, INT64_MAX, INT64_MIN, 0});
    struct profile_label labels[] = {
        {.key = made_text(profile, "thread"), .text = made_text(profile, "worker")},
        {.key = made_text(profile, "bytes"), .number = -3, .unit = made_text(profile, "B")}};
    uint32_t place = profile_add_location(profile, 0x1234, PROFILE_NONE, NULL, 0);
    profile_add_sample(profile, &place, 1, (int64_t[]){1, 2, 3, 4}, labels, 2);
    profile_add_mapping(profile, (struct profile_mapping){1, 2, 3, made_text(profile, "/bin/x"),
                                                          made_text(profile, "abcd"), true});
    place = profile_add_location(profile, 1, profile->mapping_count - 1, NULL, 0);
    profile_add_sample(profile, &place, 1, (int64_t[]){0, 0, 0, 1}, NULL, 0);
    profile_add_comment(profile, made_text(profile, "a comment"));
    profile->time_ns = -1;
    profile->is_exact_leaf = true;
    moments[1].profile = profile;
    return &run;
}

/* The image of it; its length. */
static size_t send_run(int fd) {
    out = (struct image_pipe){.fd = fd};
    image_put_run(&out, made_run());
    image_flush(&out);
    check(!out.has_failed);
    return (size_t)lseek(fd, 0, SEEK_CUR);
}

static struct read_run *receive(int fd, uint64_t most) {
    check(lseek(fd, 0, SEEK_SET) == 0);
    in = (struct image_pipe){.fd = fd, .left = most};
    return image_take_run(&in);
}

static int scratch(void) {
    int fd = memfd_create("image", MFD_CLOEXEC);
    check(fd >= 0);
    return fd;
}

static void check_same_profile(const struct profile *a, const struct profile *b) {
    check(profile_verify(a));
    check_eq(a->sample_count, b->sample_count);
    check_eq(a->type_count, b->type_count);
    check_eq(a->default_type, b->default_type);
    check_eq(a->location_count, b->location_count);
    check_eq(a->function_count, b->function_count);
    check_eq(a->mapping_count, b->mapping_count);
    check_eq(a->is_exact_leaf, b->is_exact_leaf);
    check_eq(a->time_ns, b->time_ns);
    check_eq(a->period, b->period);
    check_str(a->source, b->source);
    check_str(a->comments[0], b->comments[0]);
    check(memcmp(a->values, b->values, a->sample_count * a->type_count * sizeof *a->values) == 0);
    check(memcmp(a->stacks, b->stacks, a->stack_count * sizeof *a->stacks) == 0);
    check(memcmp(a->lines, b->lines, a->line_count * sizeof *a->lines) == 0);
    for (uint32_t i = 0; i < a->function_count; i++) {
        check_str(a->functions[i].name, b->functions[i].name);
        check_str(a->functions[i].file, b->functions[i].file);
    }
    for (uint32_t i = 0; i < a->location_count; i++) {
        check_eq(a->locations[i].address, b->locations[i].address);
        check_eq(a->locations[i].mapping, b->locations[i].mapping);
    }
    check_eq(a->label_count, 2);
    check_str(a->labels[0].text, "worker");
    check(a->labels[1].text == NULL && a->labels[1].number == -3);
    check_str(a->labels[1].unit, "B");
    check_str(a->mappings[a->mapping_count - 1].build_id, "abcd");
    check(a->mappings[a->mapping_count - 1].has_functions);
}

TEST(a_run_arrives_as_it_was_sent) {
    int fd = scratch();
    const struct read_run *sent = made_run();
    send_run(fd);
    struct read_run *run = receive(fd, 1 << 20);
    check(run != NULL);
    check_str(run->format, "tally");
    check_str(run->program, "/bin/demo");
    check_str(run->arguments, "--port 80");
    check_str(run->host, "here");
    check_str(run->version, "0.1.0");
    check_eq(run->pid, 4711);
    check_eq(run->start_wall_ns, 99);
    check_eq(run->rate, 65536);
    check(run->has_ended && run->has_status);
    check_eq(run->status, 256);
    check_eq(run->samples, 1);
    check_eq(run->dropped, 2);
    check_eq(run->lost_bytes, 3);
    check_eq(run->unknown_frames, 4);
    check_eq(run->file_bytes, 5);
    check_eq(run->point_count, 2);
    check(memcmp(run->points, sent->points, 2 * sizeof run->points[0]) == 0);
    check_eq(run->note_count, 1);
    check_eq(run->notes[0].t_ns, 5);
    check_str(run->notes[0].text, "armed");
    check_eq(run->moment_count, 2);
    check_eq(run->moments[0].t_ns, 10);
    check(run->moments[0].profile == NULL);
    check_same_profile(run->moments[1].profile, sent->moments[1].profile);
    read_run_free(run);
    close(fd);
}

TEST(an_image_that_was_cut_is_none) {
    int fd = scratch();
    for (size_t length = send_run(fd); length > 0; length--) {
        check(ftruncate(fd, (off_t)length - 1) == 0);
        check(receive(fd, 1 << 20) == NULL);
    }
    close(fd);
}

TEST(more_than_was_agreed_to_is_none) {
    int fd = scratch();
    size_t length = send_run(fd);
    struct read_run *run = receive(fd, length);
    check(run != NULL);
    read_run_free(run);
    check(receive(fd, length - 1) == NULL);
    close(fd);
}

/* Each word in turn becomes one that no count, index or length can be. */
TEST(what_leads_nowhere_is_not_followed) {
    static const uint64_t lies[] = {UINT64_MAX, PROFILE_NONE, (uint64_t)1 << 31, 77};
    static uint8_t image[1 << 16];
    int fd = scratch();
    size_t length = send_run(fd);
    check(length < sizeof image && pread(fd, image, length, 0) == (ssize_t)length);
    unsigned refused = 0;
    for (size_t at = 0; at + 8 <= length; at++) {
        for (size_t i = 0; i < sizeof lies / sizeof lies[0]; i++) {
            check(pwrite(fd, &lies[i], 8, (off_t)at) == 8);
            struct read_run *run = receive(fd, 1 << 20);
            check(run == NULL || run->moment_count == 0 ||
                  profile_verify(run->moments[run->moment_count - 1].profile));
            refused += run == NULL;
            read_run_free(run);
        }
        check(pwrite(fd, image + at, 8, (off_t)at) == 8);
    }
    check(refused > 0);
    close(fd);
}
