/* SPDX-License-Identifier: MIT
 *
 * test_read_maps.c - mappings out of text: the kernel's lines, short ones, and those that are none.
 */
#include "profiles.h"
#include "read/read_text.h"

static struct profile *maps_of(struct read_maps *maps, const char *words) {
    struct profile *profile = profile_new();
    read_maps_take(maps, profile, (struct text){words, words + strlen(words)});
    check(profile_verify(profile));
    return profile;
}

static void check_mapping(const struct profile *profile, uint32_t index, const char *expected) {
    char text[300];
    check(index < profile->mapping_count);
    const struct profile_mapping *mapping = &profile->mappings[index];
    snprintf(text, sizeof text, "%" PRIx64 "-%" PRIx64 " %" PRIx64 " '%s' %s", mapping->start,
             mapping->limit, mapping->offset, mapping->path, mapping->build_id);
    check_str(text, expected);
}

TEST(only_code_is_kept_and_the_program_comes_first) {
    struct read_maps maps;
    struct profile *profile = maps_of(
        &maps, "10000-20000 r-xp 00000000 08:01 7                /lib/libc.so.6\n"
               "20000-30000 rw-p 00010000 08:01 7                /lib/libc.so.6\n"
               "30000-31000 r-xp 00000000 00:00 0                [vdso]\n"
               "55000-56000 r--p 00000000 08:01 9                /bin/my program\n"
               "56000-58000 r-xp 00001000 08:01 9                /bin/my program (deleted)\n"
               "60000-61000 rwxp 00000000 00:00 0 \n");
    check_eq(profile->mapping_count, 4);
    check_mapping(profile, 0, "56000-58000 1000 '/bin/my program' ");
    check_mapping(profile, 1, "10000-20000 0 '/lib/libc.so.6' ");
    check_mapping(profile, 2, "30000-31000 0 '[vdso]' ");
    check_mapping(profile, 3, "60000-61000 0 '' ");
    check_eq(read_maps_find(&maps, 0x10000), 1);
    check_eq(read_maps_find(&maps, 0x1ffff), 1);
    check_eq(read_maps_find(&maps, 0x20000), PROFILE_NONE);
    check_eq(read_maps_find(&maps, 0xffff), PROFILE_NONE);
    check_eq(read_maps_find(&maps, 0x57fff), 0);
    check_eq(read_maps_find(&maps, UINT64_MAX), PROFILE_NONE);
    read_maps_free(&maps);
    profile_free(profile);
}

TEST(neighbours_of_one_file_become_one) {
    struct read_maps maps;
    struct profile *profile = maps_of(&maps, "1000-2000 r-xp 00000000 08:01 7 /bin/a\n"
                                             "2000-3000 r-xp 00001000 08:01 7 /bin/a\n"
                                             "3000-4000 r-xp 00009000 08:01 7 /bin/a\n");
    check_eq(profile->mapping_count, 2);
    check_mapping(profile, 0, "1000-3000 0 '/bin/a' ");
    check_mapping(profile, 1, "3000-4000 9000 '/bin/a' ");
    read_maps_free(&maps);
    profile_free(profile);
}

TEST(short_lines_may_have_an_offset_and_a_build_id) {
    struct read_maps maps;
    struct profile *profile = maps_of(&maps, "1000-2000 /bin/a (@40) 0011aabbccddeeff\n"
                                             "2000-3000: /lib/b.so\n"
                                             "3000-4000 r-xp /lib/c.so (@80)\n"
                                             "4000-5000 r--p /lib/d.so\n");
    check_eq(profile->mapping_count, 3);
    check_mapping(profile, 0, "1000-2000 40 '/bin/a' 0011aabbccddeeff");
    check_mapping(profile, 1, "2000-3000 0 '/lib/b.so' ");
    check_mapping(profile, 2, "3000-4000 80 '/lib/c.so' ");
    read_maps_free(&maps);
    profile_free(profile);
}

TEST(a_path_may_start_with_a_word_that_was_explained) {
    struct read_maps maps;
    struct profile *profile = maps_of(&maps, "build=/home/me\n"
                                             "1000-2000 r-xp 00000000 08:01 7 $build/a\n"
                                             "2000-3000 r-xp 00000000 08:01 7 $other/a\n");
    check_mapping(profile, 0, "1000-2000 0 '/home/me/a' ");
    check_mapping(profile, 1, "2000-3000 0 '$other/a' ");
    read_maps_free(&maps);
    profile_free(profile);
}

TEST(other_lines_are_ignored) {
    struct read_maps maps;
    struct profile *profile = maps_of(&maps, "nothing\n"
                                             "1000\n"
                                             "1000-\n"
                                             "2000-1000 r-xp 00000000 08:01 7 /bin/a\n"
                                             "11112222333344445-2 r-xp 00000000 08:01 7 /bin/a\n"
                                             "=\n"
                                             "\n"
                                             "1000-2000 r-xp 0000");
    check_eq(profile->mapping_count, 1); /* the last: cut, but an address range with a name */
    read_maps_free(&maps);
    profile_free(profile);
}

TEST(the_section_is_found_at_the_start_of_a_line_only) {
    static const char words[] = "a MAPPED_LIBRARIES:\nb\nMAPPED_LIBRARIES: x\nc\n";
    struct text before = {words, words + strlen(words)};
    struct text behind = text_split_maps(&before);
    check_eq(before.end - before.at, 22);
    check_eq(behind.end - behind.at, 2);
    check_eq(*behind.at, 'c');
    static const char none[] = "a\nb\n";
    before = (struct text){none, none + strlen(none)};
    behind = text_split_maps(&before);
    check_eq(before.end - before.at, 4);
    check_eq(behind.end - behind.at, 0);
}
