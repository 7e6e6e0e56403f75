/* SPDX-License-Identifier: MIT
 *
 * test_recorder.c - which processes record themselves, how often, and that it ends.
 *
 * The clock and the writer of frames are the test's own: the linker turns what recorder.c calls into the
 * functions below, which keep count.
 */
#include "control/recorder.h"
#include "out/container.h"

#include <errno.h>
#include <stdio.h>
#include <sys/prctl.h>

#include "opt/opt.h"
#include "base/os.h"
#include "control/control.h"
#include "prof/prof.h"
#include "unit.h"

enum { MIB = 1 << 20, DAY_MS = 24 * 3600 * 1000 };

static struct {
    _Atomic uint64_t now_ms;                           /* the background thread looks, too */
    unsigned begun, snaps, points, notes, ends, taken; /* so many names are taken */
    uint64_t snap_times[4096];
    uint64_t snap_bytes, snap_ms, most_bytes;
    int error;
    char path[OUT_FILE_NAME_BYTES], lines[8192], note[256], end[256];
    uint32_t process;
    bool wants_another; /* a trigger comes while a snapshot is written */
    unsigned arguments; /* of one letter, 0: those that there are */
} fake = {.now_ms = 1000000, .snap_bytes = 1000};

uint64_t __wrap_os_now_ms(void);
uint64_t __wrap_os_now_ms(void) {
    return fake.now_ms;
}
uint64_t __wrap_os_now_ns(void);
uint64_t __wrap_os_now_ns(void) {
    return fake.now_ms * 1000000;
}
uint32_t __real_os_process_id(void);
uint32_t __wrap_os_process_id(void);
uint32_t __wrap_os_process_id(void) {
    return fake.process != 0 ? fake.process : __real_os_process_id();
}

int __real_os_read_file(const char *path, char *text, size_t bytes);
int __wrap_os_read_file(const char *path, char *text, size_t bytes);
int __wrap_os_read_file(const char *path, char *text, size_t bytes) {
    if (fake.arguments == 0 || strcmp(path, "/proc/self/cmdline") != 0) {
        return __real_os_read_file(path, text, bytes);
    }
    size_t length = 2 * fake.arguments < bytes - 1 ? 2 * fake.arguments : bytes - 1;
    for (size_t i = 0; i <= length; i++) {
        text[i] = i % 2 == 0 ? 'x' : '\0';
    }
    text[length] = '\0';
    return (int)length;
}

int __wrap_container_begin(struct container *container, const char *path, const char *lines,
                           size_t length);
int __wrap_container_begin(struct container *container, const char *path, const char *lines,
                           size_t length) {
    snprintf(fake.path, sizeof fake.path, "%s", path);
    snprintf(fake.lines, sizeof fake.lines, "%.*s", (int)length, lines);
    if (fake.taken > 0) {
        fake.taken--;
        return -EEXIST;
    }
    *container = (struct container){.process = os_process_id(), .bytes = 64};
    fake.begun += fake.error == 0;
    return fake.error;
}

static int add(struct container *container, unsigned *count, uint64_t bytes) {
    if (fake.error == 0) {
        container->bytes += bytes;
        ++*count;
    }
    fake.most_bytes = container->bytes > fake.most_bytes ? container->bytes : fake.most_bytes;
    return fake.error;
}

int __wrap_container_profile(struct container *container, enum frame_type type, uint64_t most,
                             int (*dump)(struct out_sink sink));
int __wrap_container_profile(struct container *container, enum frame_type type, uint64_t most,
                             int (*dump)(struct out_sink sink)) {
    check_eq(type, FRAME_SNAP);
    check(dump != NULL);
    fake.now_ms += fake.snap_ms;
    if (fake.wants_another) {
        fake.wants_another = false;
        recorder_snap("lost?");
    }
    if (fake.snap_bytes > most) {
        return -EMSGSIZE;
    }
    check(fake.snaps < 4096);
    fake.snap_times[fake.snaps] = fake.now_ms;
    return add(container, &fake.snaps, fake.snap_bytes);
}

int __wrap_container_stat(struct container *container, const struct container_point *points,
                          unsigned count);
int __wrap_container_stat(struct container *container, const struct container_point *points,
                          unsigned count) {
    (void)points;
    fake.points += count;
    unsigned ignored = 0;
    return add(container, &ignored, 32 + 48 * count);
}

int __wrap_container_note(struct container *container, const char *text);
int __wrap_container_note(struct container *container, const char *text) {
    snprintf(fake.note, sizeof fake.note, "%s", text);
    return add(container, &fake.notes, 64);
}

int __wrap_container_end(struct container *container, const char *lines, size_t length);
int __wrap_container_end(struct container *container, const char *lines, size_t length) {
    snprintf(fake.end, sizeof fake.end, "%.*s", (int)length, lines);
    return add(container, &fake.ends, 64);
}

/* Time passes as a thread that waits would let it pass. */
static void run_for(uint64_t ms) {
    uint64_t end = fake.now_ms + ms;
    while (fake.now_ms < end) {
        uint64_t wait = recorder_tick();
        check(wait > 0);
        if (wait > end - fake.now_ms) {
            break;
        }
        fake.now_ms += wait;
    }
    fake.now_ms = fake.now_ms > end ? fake.now_ms : end;
}

/* ---------------------------------------------------------------- how often */

TEST(nothing_is_recorded_without_the_option) {
    start_heap();
    check(!recorder_is_on());
    check_eq(recorder_tick(), UINT64_MAX);
    recorder_snap("why");
    recorder_end();
    check_eq(fake.begun + fake.snaps + fake.ends, 0);
    check(!prof_was_armed());
}

TEST(snapshots_come_soon_and_then_each_second) {
    start_heap_with("run_file:/x/a.tally");
    uint64_t start = fake.now_ms;
    check_eq(fake.begun, 1);
    check_str(fake.path, "/x/a.tally");
    check(prof_is_active());
    run_for(5000);
    static const uint64_t times[] = {100, 300, 700, 1500, 2500, 3500, 4500};
    check_eq(fake.snaps, 7);
    for (unsigned i = 0; i < 7; i++) {
        check_eq(fake.snap_times[i] - start, times[i]);
    }
    check(fake.points >= 80 && fake.points <= 101);
}

TEST(a_week_has_some_thousand_snapshots_and_points) {
    start_heap_with("run_file:/x/a.tally");
    run_for(7 * (uint64_t)DAY_MS);
    check(fake.snaps > 2000 && fake.snaps < 3500);
    check(fake.points > 2000 && fake.points < 6500);
    uint64_t last = fake.snap_times[fake.snaps - 1] - fake.snap_times[fake.snaps - 2];
    check_eq(last % 1000, 0);
    check((last & (last - 1)) != 0 && last / 1000 >= 512);
}

TEST(large_snapshots_come_rarely_and_the_file_is_bounded) {
    fake.snap_bytes = 3 * MIB;
    start_heap_with("run_file:/x/a.tally");
    run_for(30 * (uint64_t)DAY_MS);
    check(fake.snaps >= 10);
    check(fake.most_bytes <= 64 * MIB);
    unsigned before = fake.snaps;
    recorder_end();
    check_eq(fake.snaps, before + 1);
    check_eq(fake.ends, 1);
    check(fake.most_bytes <= 68 * MIB);
}

TEST(the_last_snapshot_is_written_however_full_the_file_is) {
    fake.snap_bytes = 60 * MIB;
    start_heap_with("run_file:/x/a.tally");
    run_for(1000);
    check_eq(fake.snaps, 1);
    fake.snap_bytes = 300 * MIB;
    run_for(DAY_MS);
    check_eq(fake.snaps, 1);
    recorder_end();
    check_eq(fake.snaps, 2);
    check(strstr(fake.end, "\nend_snapshot=1\n") != NULL);
}

TEST(an_end_without_its_snapshot_says_so) {
    start_heap_with("run_file:/x/a.tally");
    run_for(1000);
    fake.snap_bytes = 2048 * (uint64_t)MIB;
    recorder_end();
    check_eq(fake.ends, 1);
    check(strstr(fake.end, "\nend_snapshot=0\n") != NULL);
}

TEST(a_snapshot_that_takes_long_takes_a_hundredth_of_the_time) {
    fake.snap_ms = 200;
    start_heap_with("run_file:/x/a.tally");
    run_for(100000);
    check(fake.snaps >= 3 && fake.snaps <= 6);
}

TEST(the_first_interval_is_an_option) {
    start_heap_with("run_file:/x/a.tally,run_every_ms:10");
    run_for(1000);
    check(fake.snaps >= 90 && fake.snaps <= 101);
}

TEST(a_trigger_makes_a_snapshot_with_a_note) {
    start_heap_with("run_file:/x/a.tally");
    run_for(10);
    recorder_snap("because");
    check_eq(fake.snaps, 1);
    check_str(fake.note, "because");
}

TEST(a_trigger_while_a_snapshot_is_written_makes_another) {
    start_heap_with("run_file:/x/a.tally,run_every_ms:100000");
    run_for(10);
    fake.wants_another = true;
    recorder_snap("because");
    check_eq(fake.snaps, 1);
    check(recorder_tick() <= 50);
    run_for(1);
    check_eq(fake.snaps, 2);
    check_eq(fake.notes, 2);
    run_for(50);
    check_eq(fake.snaps, 2);
}

TEST(triggers_that_find_no_room_do_not_make_snapshots_more_frequent) {
    fake.snap_bytes = 100 * MIB;
    start_heap_with("run_file:/x/a.tally");
    for (int i = 0; i < 200; i++) {
        recorder_snap("again");
    }
    check_eq(fake.snaps, 0);
    fake.snap_bytes = 1000;
    run_for(DAY_MS);
    check_eq(fake.snaps, 0);
}

TEST(a_note_is_written_where_there_is_a_file) {
    start_heap_with("run_file:/x/a.tally");
    check(recorder_note("here"));
    check_str(fake.note, "here");
    check_eq(fake.snaps, 0);
    recorder_end();
    check(!recorder_note("late"));
    check_eq(fake.notes, 1);
}

TEST(the_memory_of_the_process_makes_one_snapshot) {
    start_heap_with("run_file:/x/a.tally,run_rss:1");
    run_for(60);
    check_eq(fake.notes, 1);
    check_eq(fake.snaps, 1);
    run_for(1000);
    check_eq(fake.notes, 1);
}

/* ---------------------------------------------------------------- the end */

TEST(the_end_is_written_once) {
    start_heap_with("run_file:/x/a.tally");
    run_for(60);
    recorder_end();
    check_eq(fake.snaps, 1);
    check_eq(fake.ends, 1);
    check(fake.points >= 2);
    recorder_end();
    recorder_snap("late");
    check_eq(recorder_tick(), UINT64_MAX);
    check_eq(fake.ends, 1);
    check_eq(fake.snaps, 1);
}

TEST(a_full_disk_is_said_once_and_ends_the_recording) {
    start_heap_with("run_file:/x/a.tally");
    run_for(60);
    struct capture capture = capture_begin();
    fake.error = -ENOSPC;
    run_for(5000);
    recorder_end();
    const char *text = capture_end(capture);
    check(strstr(text, "the disk is full") != NULL);
    check_eq(count_lines(text), 1);
    check(!recorder_is_on());
    check_eq(fake.ends, 0);
}

TEST(a_program_without_descriptors_is_recorded_when_it_has_some) {
    start_heap_with("run_file:/x/a.tally");
    run_for(60);
    struct capture capture = capture_begin();
    fake.error = -EMFILE;
    run_for(5000);
    check_eq(fake.snaps, 0);
    check(recorder_is_on());
    fake.error = 0;
    run_for(5000);
    check(fake.snaps > 0);
    recorder_end();
    check_str(capture_end(capture), "");
    check_eq(fake.ends, 1);
}

TEST(a_program_that_hides_its_memory_is_recorded_no_further) {
    start_heap_with("run_file:/x/a.tally");
    run_for(200);
    check_eq(fake.snaps, 1);
    struct capture capture = capture_begin();
    check_eq(prctl(PR_SET_DUMPABLE, 0), 0);
    run_for(5000);
    recorder_end();
    check_eq(count_lines(capture_end(capture)), 1);
    check_eq(fake.snaps, 1);
    check(!recorder_is_on());
}

TEST(a_file_that_cannot_be_made_leaves_the_program_alone) {
    struct capture capture = capture_begin();
    fake.error = -EACCES;
    start_heap_with("run_file:/x/a.tally");
    const char *text = capture_end(capture);
    check(strstr(text, "cannot write /x/a.tally: permission denied") != NULL);
    check_eq(count_lines(text), 1);
    check(!recorder_is_on());
    check(!prof_is_active());
}

/* ---------------------------------------------------------------- names */

static const char *expect(const char *format) {
    static char text[256];
    snprintf(text, sizeof text, format, (unsigned)getpid());
    return text;
}

TEST(names_have_the_process_id_where_it_is_asked_for) {
    start_heap_with("run_file:/x/100%%.%p.y.tally");
    check_str(fake.path, expect("/x/100%%.%u.y.tally"));
}

TEST(names_that_are_taken_get_a_number) {
    fake.taken = 2;
    start_heap_with("run_file:/x/a.%p.tally");
    check_str(fake.path, expect("/x/a.%u.3.tally"));
}

TEST(a_relative_name_is_made_absolute) {
    check(chdir("/tmp") == 0);
    start_heap_with("run_file:b");
    check_str(fake.path, "/tmp/b");
}

TEST(the_first_frame_says_who_runs) {
    start_heap_with("run_file:/x/a,lg_prof_sample:16");
    check(strstr(fake.lines, "program=/") == fake.lines);
    check(strstr(fake.lines, expect("\npid=%u\n")) != NULL);
    check(strstr(fake.lines, "\nrate=65536\n") != NULL);
    check(strstr(fake.lines, "\nversion=") != NULL);
}

TEST(the_first_frame_says_who_runs_however_many_words_the_program_was_given) {
    fake.arguments = 100000;
    start_heap_with("run_file:/x/a,lg_prof_sample:16");
    check(strstr(fake.lines, expect("\npid=%u\n")) != NULL);
    check(strstr(fake.lines, "\nrate=65536\n") != NULL);
    check(strstr(fake.lines, "\nversion=") != NULL);
    check(strstr(fake.lines, "\nargument=x\nargument=x\n") != NULL);
}

/* ---------------------------------------------------------------- which processes */

TEST(a_descendant_of_the_one_that_was_started_is_quiet) {
    setenv("TALLY_ROOT", "1:1", 1);
    start_heap_with("run_file:/x/a.tally");
    check(!recorder_is_on());
    check(!recorder_is_meant());
    check(!prof_was_armed());
    check_eq(fake.begun, 0);
}

TEST(a_descendant_that_is_wanted_has_a_file_of_its_own) {
    setenv("TALLY_ROOT", "1:1", 1);
    start_heap_with("run_file:/x/a.tally,run_children:t?st*rec*der");
    check(recorder_is_on());
    check(recorder_is_meant());
    check_str(fake.path, expect("/x/a.%u.tally"));
}

TEST(a_descendant_with_options_of_its_own_is_meant_by_them) {
    setenv("TALLY_ROOT", "1:1", 1);
    start_heap();
    check(!recorder_is_on());
    check(recorder_is_meant());
}

TEST(a_descendant_of_another_name_is_quiet) {
    setenv("TALLY_ROOT", "1:1", 1);
    start_heap_with("run_file:/x/a.tally,run_children:*recorde");
    check(!recorder_is_on());
}

/* What the kernel says of this process, in another way than recorder.c reads it. */
TEST(the_one_that_was_started_is_recorded) {
    char text[1024], root[64], *word;
    FILE *stat = fopen("/proc/self/stat", "r");
    check(stat != NULL && fgets(text, sizeof text, stat) != NULL);
    fclose(stat);
    word = strtok(strrchr(text, ')') + 2, " ");
    for (int i = 3; i < 22; i++) {
        word = strtok(NULL, " ");
    }
    snprintf(root, sizeof root, "%d:%s", (int)getpid(), word);
    setenv("TALLY_ROOT", root, 1);
    start_heap_with("run_file:/x/a.tally");
    check(recorder_is_on());
    check_str(fake.path, "/x/a.tally");
}

TEST(a_forked_child_is_quiet) {
    start_heap_with("run_file:/x/a.tally");
    run_for(60);
    check(prof_is_active());
    recorder_forked();
    check(!recorder_is_on());
    check(!prof_is_active());
}

TEST(a_forked_child_that_is_wanted_begins_when_it_has_lived) {
    start_heap_with("run_file:/x/a.tally,run_children:*");
    run_for(60);
    fake.process = 77;
    recorder_forked();
    check(recorder_is_on());
    run_for(50);
    check_eq(fake.begun, 1);
    run_for(100);
    check_eq(fake.begun, 2);
    check_str(fake.path, "/x/a.77.tally");
    recorder_end();
    check_eq(fake.ends, 1);
}

TEST(a_child_that_ends_at_once_by_itself_is_recorded) {
    start_heap_with("run_file:/x/a.%p.tally,run_children:*");
    fake.process = 77;
    recorder_forked();
    recorder_end();
    check_eq(fake.begun, 2);
    check_eq(fake.snaps, 1);
    check_str(fake.path, "/x/a.77.tally");
}

/* As in vfork, or before the child has noticed that it is one. */
TEST(who_shares_the_memory_writes_nothing) {
    start_heap_with("run_file:/x/a.tally");
    run_for(60);
    fake.process = 77;
    unsigned points = fake.points;
    fake.now_ms += 10000;
    recorder_tick();
    recorder_snap("child");
    recorder_end();
    check_eq(fake.snaps + fake.notes + fake.ends, 0);
    check_eq(fake.points, points);
    fake.process = 0;
    recorder_end();
    check_eq(fake.ends, 1);
}
