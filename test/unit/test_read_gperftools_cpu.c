/* SPDX-License-Identifier: MIT
 *
 * test_read_gperftools_cpu.c - CPU profiles of gperftools with words of both sizes and orders.
 */
#include "profiles.h"

struct file {
    uint8_t bytes[4096];
    size_t length;
    unsigned word_bytes;
    bool is_big_endian;
};

static void put(struct file *file, uint64_t word) {
    for (unsigned i = 0; i < file->word_bytes; i++) {
        unsigned place = file->is_big_endian ? file->word_bytes - 1 - i : i;
        file->bytes[file->length++] = (uint8_t)(word >> 8 * place);
    }
}

static void put_all(struct file *file, const uint64_t *words, size_t count) {
    for (size_t i = 0; i < count; i++) {
        put(file, words[i]);
    }
}

static void put_text(struct file *file, const char *text) {
    memcpy(file->bytes + file->length, text, strlen(text));
    file->length += strlen(text);
}

static const char maps[] = "00400000-00402000 r-xp 00000000 08:01 131 /bin/demo\n";
static const uint64_t header[] = {0, 3, 0, 10000, 0};
static const uint64_t samples[] = {5, 3, 0x401136, 0x40118c, 0x4011b5, 2, 2, 0x401140, 0x4011b5};
static const uint64_t trailer[] = {0, 1, 0};

static struct file make_file(unsigned word_bytes, bool is_big_endian) {
    struct file file = {.word_bytes = word_bytes, .is_big_endian = is_big_endian};
    put_all(&file, header, 5);
    put_all(&file, samples, 9);
    put_all(&file, trailer, 3);
    put_text(&file, maps);
    return file;
}

static void check_profile(const struct profile *profile) {
    check_eq(profile->sample_count, 2);
    check_eq(total_of(profile, "samples"), 7);
    check_eq(total_of(profile, "cpu"), 70000000);
    check_str(stack_of(profile, 0), "401136 40118b 4011b4"); /* the first is exact */
    check_str(stack_of(profile, 1), "401140 4011b4");
    check_eq(profile->period, 10000000);
    check_str(profile->period_type.name, "cpu");
    check_str(profile->types[profile->default_type].name, "cpu");
    check_str(profile->source, "gperftools-cpu");
    check(profile->is_exact_leaf);
}

TEST(words_of_either_size_and_order_say_the_same) {
    for (unsigned kind = 0; kind < 4; kind++) {
        struct file file = make_file(kind < 2 ? 8 : 4, kind % 2 == 1);
        check(read_is_gperftools_cpu(file.bytes, file.length));
        struct profile *profile = profile_of(read_gperftools_cpu, file.bytes, file.length);
        check_profile(profile);
        check_str(module_of(profile, 0, 0), "/bin/demo");
        check_eq(profile->comment_count, 0);
        profile_free(profile);
    }
}

TEST(a_file_without_its_end_has_its_samples_and_says_so) {
    struct file file = {.word_bytes = 8};
    put_all(&file, header, 5);
    put_all(&file, samples, 9);
    struct profile *profile = profile_of(read_gperftools_cpu, file.bytes, file.length);
    check_profile(profile);
    check_str(profile->comments[0], "The end of the file is missing.");
    profile_free(profile);
}

TEST(a_first_address_that_is_told_twice_counts_once) {
    static const uint64_t twice[] = {1, 3, 0x401136, 0x401136, 0x4011b5};
    struct file file = {.word_bytes = 8};
    put_all(&file, header, 5);
    put_all(&file, twice, 5);
    put_all(&file, trailer, 3);
    struct profile *profile = profile_of(read_gperftools_cpu, file.bytes, file.length);
    check_str(stack_of(profile, 0), "401136 4011b4");
    profile_free(profile);
}

TEST(a_record_with_a_zero_address_ends_nothing) {
    static const uint64_t zero[] = {3, 1, 0, 2, 1, 0x401140};
    struct file file = {.word_bytes = 8};
    put_all(&file, header, 5);
    put_all(&file, zero, 6);
    put_all(&file, trailer, 3);
    struct profile *profile = profile_of(read_gperftools_cpu, file.bytes, file.length);
    check_eq(total_of(profile, "samples"), 5);
    profile_free(profile);
}

TEST(damage_is_one_sentence) {
    struct file file = make_file(8, false);
    check_refused(read_gperftools_cpu, file.bytes, 8 * 9, "it was cut inside of a sample");
    check_refused(read_gperftools_cpu, file.bytes, 8 * 6, "it was cut inside of a sample");
    check_refused(read_gperftools_cpu, file.bytes, 8 * 4, "the header makes no sense");
    static const uint64_t hostile[][2] = {{0, 7}, {1, 0}, {UINT64_MAX, 1}};
    for (int i = 0; i < 3; i++) {
        struct file bad = {.word_bytes = 8};
        put_all(&bad, header, 5);
        put_all(&bad, hostile[i], 2);
        put_all(&bad, samples, 9);
        check_refused(read_gperftools_cpu, bad.bytes, bad.length,
                      "the sample at byte 40 makes no sense");
    }
    struct file deep = {.word_bytes = 8};
    put_all(&deep, header, 5);
    put(&deep, 1);
    put(&deep, UINT64_MAX);
    check_refused(read_gperftools_cpu, deep.bytes, deep.length, "it was cut inside of a sample");
}

TEST(no_cut_and_no_changed_byte_does_harm) {
    for (unsigned kind = 0; kind < 4; kind++) {
        struct file file = make_file(kind < 2 ? 8 : 4, kind % 2 == 1);
        check_every_cut(read_gperftools_cpu, file.bytes, file.length);
        check_every_change(read_gperftools_cpu, file.bytes, file.length);
    }
}
