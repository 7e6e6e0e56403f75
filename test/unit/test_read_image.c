/* SPDX-License-Identifier: MIT
 *
 * test_read_image.c - what was read arrives as it was sent, and a sender that lies is not believed.
 */
#define _GNU_SOURCE /* memfd_create */
#include "read/read_image.h"

#include <sys/mman.h>
#include <unistd.h>

#include "common/cli.h"
#include "made_profile.h"
#include "profiles.h"

static struct image_pipe out, in;

/* Of the processor's time, which says so itself. */
static struct profile *made_time(void) {
    struct profile *profile = made_keep(profile_new());
    profile_add_type(profile, made_text(profile, "samples"), made_text(profile, "count"));
    profile_add_type(profile, made_text(profile, "cpu"), made_text(profile, "nanoseconds"));
    profile->source = made_text(profile, "tally");
    make_sample(profile, "main:4;spin:7", (int64_t[]){3, 30000000});
    return profile;
}

/* The last number of each field tells it from others. */
static struct read_leaks *made_leaks(void) {
    static struct read_leaks leaks = {.heap = 101,
                                      .roots = 102,
                                      .threads = 103,
                                      .unanswered = 104,
                                      .pause_ns = 105,
                                      .total_ns = 106,
                                      .rate = 107,
                                      .rounded = 108,
                                      .why = "one did not answer"};
    for (int i = 0; i < READ_LEAK_SUMS; i++) {
        leaks.sums[i] = (struct read_leak_sum){200 + i, 300 + i, 400 + i};
    }
    struct profile *profile = made_keep(profile_new());
    profile_add_type(profile, made_text(profile, "leak_objects"), made_text(profile, "count"));
    profile_add_type(profile, made_text(profile, "leak_space"), made_text(profile, "bytes"));
    profile_add_type(profile, made_text(profile, "leak_below_objects"),
                     made_text(profile, "count"));
    profile_add_type(profile, made_text(profile, "leak_below_space"), made_text(profile, "bytes"));
    profile->source = made_text(profile, "leaks");
    struct profile_label kind = {.key = made_text(profile, "kind"),
                                 .text = made_text(profile, "indirect")};
    make_labelled(profile, "main:4;lose:7", (int64_t[]){2, 64, 3, 65}, &kind, 1);
    leaks.profile = profile;
    return &leaks;
}

/* A run with one of everything. */
static struct read_run *made_run(void) {
    static struct read_moment moments[2] = {{.t_ns = 10}, {.t_ns = 20}};
    static struct read_moment cpu[3] = {{.t_ns = 9}, {.t_ns = 19}, {.t_ns = 21}};
    static struct read_point points[] = {{1, 2, 3, 4, 5, 6}, {7, 8, 9, 10, 11, 12}};
    static struct read_note notes[] = {{5, "armed"}};
    static struct read_run run = {.format = "tally",
                                  .moments = moments,
                                  .moment_count = 2,
                                  .cpu = cpu,
                                  .cpu_count = 3,
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
                                  .lacks_end = true,
                                  .has_live_blocks = true,
                                  .live_blocks = 11,
                                  .has_status = true,
                                  .status = 256,
                                  .samples = 1,
                                  .dropped = 2,
                                  .cpu_lost = 6,
                                  .cpu_left_out = 9,
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
    cpu[2].profile = made_time();
    run.leaks = made_leaks();
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
    check(run->has_ended && run->lacks_end && run->has_status);
    check_eq(run->status, 256);
    check_eq(run->samples, 1);
    check_eq(run->dropped, 2);
    check_eq(run->cpu_lost, 6);
    check(run->has_live_blocks);
    check_eq(run->live_blocks, 11);
    check_eq(run->cpu_left_out, 9);
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
    check_eq(run->cpu_count, 3);
    check_eq(run->cpu[0].t_ns, 9);
    check_eq(run->cpu[2].t_ns, 21);
    check(run->cpu[0].profile == NULL && run->cpu[1].profile == NULL);
    check(profile_verify(run->cpu[2].profile));
    check_eq(total_of(run->cpu[2].profile, "cpu"), 30000000);
    read_run_free(run);
    close(fd);
}

TEST(leaks_arrive_as_they_were_sent) {
    int fd = scratch();
    send_run(fd);
    struct read_run *run = receive(fd, 1 << 20);
    check(run != NULL && run->leaks != NULL);
    const struct read_leaks *leaks = run->leaks;
    check_eq(leaks->heap, 101);
    check_eq(leaks->roots, 102);
    check_eq(leaks->threads, 103);
    check_eq(leaks->unanswered, 104);
    check_eq(leaks->pause_ns, 105);
    check_eq(leaks->total_ns, 106);
    check_eq(leaks->rate, 107);
    check_eq(leaks->rounded, 108);
    check_eq(leaks->sums[READ_LEAK_DEFINITE].objects, 200);
    check_eq(leaks->sums[READ_LEAK_INDIRECT].bytes, 301);
    check_eq(leaks->sums[READ_LEAK_SUPPRESSED].requested, 405);
    check_str(leaks->why, "one did not answer");
    check(profile_verify(leaks->profile));
    check_eq(total_of(leaks->profile, "leak_space"), 64);
    check_str(leaks->profile->labels[0].text, "indirect");
    read_run_free(run);
    close(fd);
}

/* Sends what `change` has made of the leaks; do they arrive? */
static bool arrives(void (*change)(struct read_leaks *leaks)) {
    int fd = scratch();
    struct read_run sent = *made_run();
    struct read_leaks leaks = *sent.leaks;
    sent.leaks = &leaks;
    change(&leaks);
    out = (struct image_pipe){.fd = fd};
    image_put_run(&out, &sent);
    image_flush(&out);
    struct read_run *run = receive(fd, 1 << 20);
    bool has_arrived = run != NULL;
    read_run_free(run);
    close(fd);
    return has_arrived;
}

static void change_nothing(struct read_leaks *leaks) {
    (void)leaks;
}

static void lie_below_zero(struct read_leaks *leaks) {
    leaks->sums[READ_LEAK_INDIRECT].requested = -1;
}

static void lie_about_threads(struct read_leaks *leaks) {
    leaks->threads = INT64_MAX;
}

static void lie_in_sums(struct read_leaks *leaks) {
    leaks->sums[READ_LEAK_DEFINITE].objects = (INT64_C(1) << 60) + 1;
}

static void lie_in_values(struct read_leaks *leaks) {
    leaks->profile->values[0] = -1;
}

static void lie_in_many_values(struct read_leaks *leaks) {
    for (int i = 0; i < 4; i++) {
        make_sample(leaks->profile, "main:4",
                    (int64_t[]){INT64_C(1) << 60, INT64_C(1) << 60, 0, 0});
    }
}

static void lie_about_types(struct read_leaks *leaks) {
    leaks->profile->types[1].name = "inuse_space";
}

static void leave_types_out(struct read_leaks *leaks) {
    leaks->profile = made_keep(profile_new());
    leaks->profile->source = "";
    leaks->profile->period_type = (struct profile_type){"", ""};
}

TEST(leaks_that_cannot_be_are_none) {
    check(arrives(change_nothing));
    check(!arrives(lie_below_zero));
    check(!arrives(lie_about_threads));
    check(!arrives(lie_in_sums));
    check(!arrives(lie_in_values));
    check(!arrives(lie_in_many_values));
    check(!arrives(lie_about_types));
    check(!arrives(leave_types_out));
}

/* Memory may have been recorded without time, and time without memory. */
TEST(a_run_of_either_kind_of_moment_arrives) {
    int fd = scratch();
    for (int kind = 0; kind < 3; kind++) {
        struct read_run sent = *made_run();
        sent.leaks = NULL;
        sent.moment_count = kind == 1 ? 2 : 0;
        sent.cpu_count = kind == 2 ? 3 : 0;
        check(ftruncate(fd, 0) == 0 && lseek(fd, 0, SEEK_SET) == 0);
        out = (struct image_pipe){.fd = fd};
        image_put_run(&out, &sent);
        image_flush(&out);
        struct read_run *run = receive(fd, 1 << 20);
        check(run != NULL);
        check_eq(run->moment_count, sent.moment_count);
        check_eq(run->cpu_count, sent.cpu_count);
        check(kind != 1 || run->moments[1].profile != NULL);
        check(kind != 2 || run->cpu[2].profile != NULL);
        check(run->leaks == NULL);
        read_run_free(run);
    }
    close(fd);
}

/* A run that was received is sound. */
static bool is_sound(const struct read_run *run) {
    return (run->moment_count == 0 ||
            profile_verify(run->moments[run->moment_count - 1].profile)) &&
           (run->cpu_count == 0 || profile_verify(run->cpu[run->cpu_count - 1].profile)) &&
           (run->leaks == NULL ||
            (profile_verify(run->leaks->profile) && read_leaks_are_sound(run->leaks)));
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
            check(run == NULL || is_sound(run));
            refused += run == NULL;
            read_run_free(run);
        }
        check(pwrite(fd, image + at, 8, (off_t)at) == 8);
    }
    check(refused > 0);
    close(fd);
}
