/* SPDX-License-Identifier: MIT
 *
 * test_cli.c - numbers as text and back, hostile names, and output files that are complete or not there.
 */
#include "common/cli.h"

#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "test.h"

TEST(sizes_have_a_unit_and_few_digits) {
    check_str(size_text(0), "0 B");
    check_str(size_text(512), "512 B");
    check_str(size_text(1023), "1023 B");
    check_str(size_text(1024), "1 KiB");
    check_str(size_text(64 << 10), "64 KiB");
    check_str(size_text(10854), "10.6 KiB");
    check_str(size_text(500 << 10 | 1), "500 KiB");
    check_str(size_text((1 << 20) - 1), "1.0 MiB");
    check_str(size_text(-(3 << 20)), "-3.0 MiB");
    check_str(size_text(123941683), "118.2 MiB");
    check_str(size_text((int64_t)1299227607), "1.2 GiB");
    check_str(size_text(INT64_MAX), "8.0 EiB");
    check_str(size_text(INT64_MIN), "-8.0 EiB");
}

TEST(counts_and_durations_read_well) {
    check_str(count_text(999), "999");
    check_str(count_text(412345), "412 k");
    check_str(count_text(9200000), "9.2 M");
    check_str(count_text(-1500), "-1.5 k");
    check_str(grouped_text(8204113), "8,204,113");
    check_str(grouped_text(-1000), "-1,000");
    check_str(grouped_text(-100), "-100");
    check_str(grouped_text(0), "0");
    check_str(duration_text(310000000), "310 ms");
    check_str(duration_text(42300000000), "42.3 s");
    check_str(duration_text(UINT64_C(76) * 3600 * 1000000000), "3 d 4 h");
    check_str(duration_text(999900000), "1.0 s");
}

TEST(the_last_eight_texts_stay) {
    const char *texts[8];
    char expected[16];
    for (int i = 0; i < 8; i++) {
        texts[i] = size_text(i);
    }
    for (int i = 0; i < 8; i++) {
        snprintf(expected, sizeof expected, "%d B", i);
        check_str(texts[i], expected);
    }
}

TEST(sizes_are_read_with_and_without_a_unit) {
    static const struct {
        const char *text;
        uint64_t bytes;
    } good[] = {
        {"0", 0},
        {"512", 512},
        {"512B", 512},
        {"64K", 64 << 10},
        {"64KiB", 64 << 10},
        {"1.5M", 3 << 19},
        {"2G", UINT64_C(2) << 30},
        {"1T", UINT64_C(1) << 40},
        {"18446744073709551615", UINT64_MAX},
    };
    static const char *const bad[] = {
        "",     "-1",  "K",    "1KB",          "1k",
        "0x10", "1e3", "nan",  "1.5.5",        " 1",
        "1 ",   "1%",  "9e30", "99999999999T", "18446744073709551616K"};
    uint64_t bytes = 0;
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        check(parse_size(good[i].text, &bytes));
        check_eq(bytes, good[i].bytes);
    }
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        check(!parse_size(bad[i], &bytes));
    }
}

TEST(durations_and_shares_are_read) {
    uint64_t ns = 0;
    double share = 0;
    check(parse_duration("10ms", &ns) && ns == 10000000);
    check(parse_duration("1.5s", &ns) && ns == 1500000000);
    check(parse_duration("2m", &ns) && ns == UINT64_C(120000000000));
    check(parse_duration("3", &ns) && ns == UINT64_C(3000000000));
    check(!parse_duration("5q", &ns) && !parse_duration("", &ns) && !parse_duration("-1s", &ns));
    check(!parse_duration("1e9h", &ns) && !parse_duration("999999999999h", &ns));
    check(parse_share("10%", &share) && share > 0.0999 && share < 0.1001);
    check(parse_share("0.5", &share) && share == 0.5);
    check(!parse_share("2", &share) && !parse_share("101%", &share) && !parse_share("x", &share));
}

TEST(names_cannot_steer_a_terminal) {
    check_str(safe_text("plain"), "plain");
    check_str(safe_text("\033[31mred\a"), "\\x1b[31mred\\x07");
    check_str(safe_text("a\nb\tc\x7f"), "a\\x0ab\\x09c\\x7f");
    check_str(safe_text("caf\xc3\xa9"), "caf\xc3\xa9");
    check_str(safe_text("x\xe2\x80\xaey"), "x\\u202ey");          /* right to left */
    check_str(safe_text("x\xe2\x80\x8by"), "x\\u200by");          /* without a width */
    check_str(safe_text("x\xc2\x9by"), "x\\u009by");              /* C1 */
    check_str(safe_text("x\xffy"), "x\xef\xbf\xbdy");             /* no UTF-8 */
    check_str(safe_text("\xc0\x80"), "\xef\xbf\xbd\xef\xbf\xbd"); /* too long a form */
    check_str(safe_text("\xed\xa0\x80"), "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd"); /* a surrogate */
    check_str(safe_text("\xe2\x82"), "\xef\xbf\xbd\xef\xbf\xbd");                 /* cut */
}

TEST(names_of_more_than_four_kilobytes_are_cut) {
    char name[6000];
    memset(name, '\a', sizeof name - 1);
    name[sizeof name - 1] = '\0';
    const char *text = safe_text(name);
    check_eq(strlen(text), 4096 * 4 + 3);
    check_str(text + 4096 * 4, "\xe2\x80\xa6");
}

static char folder[] = "/tmp/tally-test-cli.XXXXXX";

static void enter_folder(void) {
    check(mkdtemp(folder) != NULL && chdir(folder) == 0);
}

static void leave_folder(void) {
    check_eq(rmdir(folder), 0); /* nothing was left in it */
}

TEST(an_output_file_has_its_name_when_it_is_complete) {
    struct output output;
    struct stat status;
    enter_folder();
    check(output_open(&output, "result", false));
    fputs("text", output.file);
    check(access("result", F_OK) != 0);
    check(output_close(&output));
    check(stat("result", &status) == 0);
    check_eq(status.st_size, 4);
    check_eq(status.st_mode & 0777, 0600);
    check_eq(unlink("result"), 0);
    leave_folder();
}

TEST(an_output_file_replaces_nothing_unless_told_to) {
    struct output output;
    enter_folder();
    close(open("result", O_CREAT | O_WRONLY, 0600));
    check(!output_open(&output, "result", false));
    check(output_open(&output, "result", true));
    check(output_close(&output));
    check_eq(unlink("result"), 0);
    check(output_open(&output, "result", false));
    close(open("result", O_CREAT | O_WRONLY, 0600)); /* somebody was faster */
    check(!output_close(&output));
    check_eq(unlink("result"), 0);
    leave_folder();
}

TEST(an_output_is_judged_before_there_is_one) {
    enter_folder();
    check(output_judge("result", false));
    check(access("result", F_OK) != 0);
    close(open("result", O_CREAT | O_WRONLY, 0600));
    check(!output_judge("result", false));
    check(output_judge("result", true));
    check_eq(unlink("result"), 0);
    check(!output_judge("nowhere/result", false));
    check(output_judge("/dev/null", false));
    check(output_judge("-", false));
    check(output_judge(NULL, false));
    leave_folder();
}

TEST(an_output_goes_to_a_descriptor) {
    struct output output;
    char name[32], text[8] = "";
    enter_folder();
    int fd = open("result", O_CREAT | O_RDWR | O_CLOEXEC, 0600);
    snprintf(name, sizeof name, "/dev/fd/%d", fd);
    check(output_judge(name, false));
    check(output_open(&output, name, false));
    fputs("text", output.file);
    check(output_close(&output));
    check_eq(pread(fd, text, sizeof text, 0), 4);
    check_str(text, "text");
    close(fd);
    check(!output_judge(name, false));
    check_eq(unlink("result"), 0);
    leave_folder();
}

TEST(a_discarded_output_file_leaves_nothing) {
    struct output output;
    enter_folder();
    check(output_open(&output, "result", false));
    output_discard(&output);
    leave_folder();
}

TEST(an_interrupted_command_leaves_no_output_file) {
    enter_folder();
    check_dies(
        {
            struct output output;
            output_open(&output, "result", false);
            raise(SIGINT);
        },
        "", SIGINT);
    leave_folder();
}

TEST(output_that_does_not_arrive_is_noticed) {
    struct output output;
    check(output_open(&output, "/dev/full", false));
    fputs("text", output.file);
    check(!output_close(&output));
}
