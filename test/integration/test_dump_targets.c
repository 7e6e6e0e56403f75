/* SPDX-License-Identifier: MIT
 *
 * test_dump_targets.c - profiles go where the program says: into new files, into files of its own that are there,
 * to /dev/null and to descriptors of its own; what is anybody else's, or a link, is refused and stays as it is.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <gperftools/profiler.h>
#include <jemalloc/jemalloc.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <tally/tally.h>
#include <unistd.h>

#include "test.h"

TEST_SETUP(require_tally);

enum { TEXT_BYTES = 1 << 20 };

static char text[TEXT_BYTES];
static char folder[] = "/tmp/tally-targets.XXXXXX";
static void *volatile kept;

static void begin(void) {
    check(mkdtemp(folder) != NULL && chdir(folder) == 0);
    check_eq(tally_profile_start(1), 0);
    kept = malloc(1000);
}

static void end(void) {
    check_eq(chdir("/"), 0);
    check_eq(rmdir(folder), 0); /* nothing else was left */
}

static int dump(const char *path) {
    return mallctl("prof.dump", NULL, NULL, &path, sizeof path);
}

/* A file as programs make one whose name is nobody's guess. */
static int make_file(char name[], const char *content) {
    int fd = mkstemp(name);
    check(fd >= 0);
    check_eq(write(fd, content, strlen(content)), (long)strlen(content));
    return fd;
}

static const char *read_whole(int fd) {
    ssize_t length = pread(fd, text, sizeof text - 1, 0);
    check(length >= 0 && length < TEXT_BYTES - 1);
    text[length] = '\0';
    return text;
}

/* Begins and ends as a profile, with one beginning. */
static void check_profile(const char *profile) {
    check(strncmp(profile, "heap_v2/1\n", 10) == 0);
    check(strstr(profile, "MAPPED_LIBRARIES:\n") != NULL);
    check(strstr(profile + 1, "heap_v2/") == NULL);
    check(strstr(profile, "precious") == NULL);
}

/* ---------------------------------------------------------------- files */

TEST(a_temporary_file_takes_a_profile_and_whoever_has_it_open_reads_it) {
    char name[] = "fileXXXXXX";
    begin();
    int fd = make_file(name, "");
    check_eq(dump(name), 0);
    check_profile(read_whole(fd));
    check_eq(dump(name), 0); /* and again */
    check_profile(read_whole(fd));
    check_eq(unlink(name), 0);
    end();
}

TEST(a_longer_file_keeps_nothing_of_what_was_in_it) {
    char name[] = "fileXXXXXX";
    begin();
    int fd = make_file(name, "");
    for (int i = 0; i < 20000; i++) {
        check_eq(write(fd, "precious\n", 9), 9);
    }
    check_eq(fchmod(fd, 0640), 0);
    check_eq(tally_profile_dump(name), 0); /* profile.proto, which is shorter */
    struct stat now;
    check_eq(fstat(fd, &now), 0);
    check_eq(now.st_mode, S_IFREG | 0640);
    read_whole(fd);
    check(now.st_size > 0 && now.st_size < 20000 && memcmp(text, "\x1f\x8b", 2) == 0);
    check_eq(dump(name), 0);
    check_profile(read_whole(fd));
    check_eq(unlink(name), 0);
    end();
}

/* SIGXFSZ would end the test. */
TEST(a_file_that_cannot_be_written_completely_is_empty_afterwards) {
    char name[] = "fileXXXXXX";
    struct rlimit limit = {1000, RLIM_INFINITY};
    begin();
    int fd = make_file(name, "precious");
    check_eq(setrlimit(RLIMIT_FSIZE, &limit), 0);
    check_eq(dump(name), EFAULT);
    check_str(read_whole(fd), "");
    check_eq(unlink(name), 0);
    end();
}

static void *dump_again_and_again(void *name) {
    for (int i = 0; i < 50; i++) {
        check_eq(dump(name), 0);
    }
    return NULL;
}

TEST(threads_that_write_one_file_leave_one_profile) {
    char name[] = "fileXXXXXX";
    pthread_t threads[4];
    begin();
    int fd = make_file(name, "");
    for (int i = 0; i < 4; i++) {
        check_eq(pthread_create(&threads[i], NULL, dump_again_and_again, name), 0);
    }
    for (int i = 0; i < 4; i++) {
        check_eq(pthread_join(threads[i], NULL), 0);
    }
    check_profile(read_whole(fd));
    check_eq(unlink(name), 0);
    end();
}

/* ---------------------------------------------------------------- what is left alone */

TEST(links_are_not_followed) {
    char name[] = "fileXXXXXX";
    begin();
    int fd = make_file(name, "precious");
    check_eq(symlink(name, "symbolic"), 0);
    check_eq(dump("symbolic"), EFAULT);
    check_eq(tally_profile_dump("symbolic"), EEXIST);
    check_eq(link(name, "hard"), 0);
    check_eq(dump("hard"), EFAULT);
    check_eq(dump(name), EFAULT);
    check_str(read_whole(fd), "precious");
    check(unlink("symbolic") == 0 && unlink("hard") == 0 && unlink(name) == 0);
    end();
}

TEST(directories_pipes_and_devices_are_no_files) {
    begin();
    check_eq(mkdir("directory", 0700), 0);
    check_eq(dump("directory"), EFAULT);
    check_eq(mkfifo("pipe", 0600), 0);
    check_eq(dump("pipe"), EFAULT); /* nobody reads it, and nobody is waited for */
    check_eq(dump("/dev/zero"), EFAULT);
    check(rmdir("directory") == 0 && unlink("pipe") == 0);
    end();
}

TEST(files_of_others_are_left_alone) {
    char name[] = "fileXXXXXX";
    if (geteuid() != 0) {
        skip("only root can make a file of another user");
    }
    begin();
    int fd = make_file(name, "precious");
    check(fchmod(fd, 0666) == 0 && fchown(fd, 65534, 65534) == 0);
    check_eq(dump(name), EFAULT);
    check_str(read_whole(fd), "precious");
    check_eq(unlink(name), 0);
    end();
}

/* ---------------------------------------------------------------- descriptors */

TEST(the_null_device_takes_a_profile) {
    begin();
    check_eq(dump("/dev/null"), 0);
    check_eq(tally_profile_dump("/dev/null"), 0);
    end();
}

TEST(a_descriptor_of_the_process_takes_a_profile_where_it_stands) {
    char name[40];
    begin();
    int fd = memfd_create("profile", MFD_CLOEXEC);
    check_eq(write(fd, "before\n", 7), 7);
    snprintf(name, sizeof name, "/dev/fd/%d", fd);
    check_eq(dump(name), 0);
    check_eq(write(fd, "after\n", 6), 6);
    check(strncmp(read_whole(fd), "before\n", 7) == 0);
    check(strcmp(text + strlen(text) - 6, "after\n") == 0);
    text[strlen(text) - 6] = '\0';
    check_profile(text + 7);
    snprintf(name, sizeof name, "/proc/self/fd/%d", fd);
    check_eq(ftruncate(fd, 0), 0);
    check_eq(lseek(fd, 0, SEEK_SET), 0);
    check_eq(dump(name), 0);
    check_profile(read_whole(fd));
    end();
}

TEST(a_descriptor_that_is_not_open_for_writing_is_refused) {
    char name[40];
    begin();
    int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    snprintf(name, sizeof name, "/dev/fd/%d", fd);
    check_eq(dump(name), EFAULT);
    close(fd);
    check_eq(dump(name), EFAULT);
    check_eq(tally_profile_dump(name), EBADF);
    check_eq(dump("/dev/fd/99999999999999999999"), EFAULT);
    check_eq(dump("/dev/fd/"), EFAULT);
    end();
}

/* ---------------------------------------------------------------- logs */

static int start_log(const char *path) {
    return mallctl("prof.log_start", NULL, NULL, &path, sizeof path);
}

static int stop_log(void) {
    return mallctl("prof.log_stop", NULL, NULL, NULL, 0);
}

TEST(a_log_goes_into_a_file_that_is_there) {
    char name[] = "fileXXXXXX";
    begin();
    int fd = make_file(name, "precious");
    check_eq(start_log(name), 0);
    check_str(read_whole(fd), "precious"); /* until there is something to write */
    free(malloc(5000));
    check_eq(stop_log(), 0);
    check(strncmp(read_whole(fd), "{\"info\":", 8) == 0);
    check(strstr(text, "\"usize\":5120") != NULL);
    check_eq(unlink(name), 0);
    end();
}

TEST(a_name_that_takes_no_log_is_refused_before_the_log_begins) {
    begin();
    check_eq(start_log("no/such/directory"), EFAULT);
    check_eq(symlink("elsewhere", "link"), 0);
    check_eq(start_log("link"), EFAULT);
    check_eq(stop_log(), EFAULT); /* none was begun */
    check_eq(start_log("log"), 0);
    check_eq(access("log", F_OK), -1);
    check_eq(stop_log(), 0);
    check(unlink("log") == 0 && unlink("link") == 0);
    end();
}

/* ---------------------------------------------------------------- time */

static void check_cpu_profile(int fd) {
    uint64_t words[5] = {1};
    check_eq(pread(fd, words, sizeof words, 0), (long)sizeof words);
    check(words[0] == 0 && words[1] == 3 && words[2] == 0);
}

TEST(a_cpu_profile_goes_into_a_file_that_is_there) {
    char name[] = "fileXXXXXX";
    begin();
    int fd = make_file(name, "");
    check(ProfilerStart(name) != 0);
    ProfilerStop();
    check_cpu_profile(fd);
    check_eq(unlink(name), 0);
    char old[] = "fileXXXXXX";
    close(make_file(old, "something that is no profile"));
    check(ProfilerStart(old) != 0);
    ProfilerStop();
    check_cpu_profile(open(old, O_RDONLY | O_CLOEXEC));
    check_eq(unlink(old), 0);
    end();
}

TEST(a_cpu_profile_goes_once_to_a_descriptor) {
    char name[40];
    begin();
    check(ProfilerStart("/dev/null") != 0);
    ProfilerStop();
    int fd = memfd_create("profile", MFD_CLOEXEC);
    snprintf(name, sizeof name, "/dev/fd/%d", fd);
    check(ProfilerStart(name) != 0);
    ProfilerFlush();
    struct stat now;
    check(fstat(fd, &now) == 0 && now.st_size == 0);
    ProfilerStop();
    check_cpu_profile(fd);
    end();
}
