/* SPDX-License-Identifier: MIT
 *
 * fuzz_image.c - what a reader's process sends: a sound run or nothing, whoever has taken the process over.
 *
 * What was received and is sent on arrives as the same image, so nothing of it is lost on the way.
 */
#define _GNU_SOURCE /* memfd_create */
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "common/cli.h"
#include "fuzz.h"
#include "read/read_image.h"

enum { MOST = 1 << 20 };

/* An empty file. */
static int scratch(int *fd) {
    if (*fd < 0) {
        *fd = memfd_create("image", MFD_CLOEXEC);
    }
    fuzz_check(ftruncate(*fd, 0) == 0 && lseek(*fd, 0, SEEK_SET) == 0);
    return *fd;
}

static struct read_run *receive(int fd, bool *has_failed) {
    static struct image_pipe pipe;
    fuzz_check(lseek(fd, 0, SEEK_SET) == 0);
    pipe = (struct image_pipe){.fd = fd, .left = MOST};
    struct read_run *run = image_take_run(&pipe);
    *has_failed = pipe.has_failed;
    return run;
}

/* Only the last moment comes with its profile. */
static void check_moments(const struct read_moment *moments, uint32_t count) {
    for (uint32_t i = 0; i < count; i++) {
        fuzz_check((moments[i].profile != NULL) == (i + 1 == count));
        fuzz_check(moments[i].payload == NULL);
    }
    fuzz_check(count == 0 || profile_verify(moments[count - 1].profile));
}

static void check_run(const struct read_run *run) {
    fuzz_check(run->format != NULL && run->program != NULL && run->arguments != NULL);
    check_moments(run->moments, run->moment_count);
    check_moments(run->cpu, run->cpu_count);
    if (run->leaks != NULL) {
        fuzz_check(run->leaks->why != NULL && profile_verify(run->leaks->profile));
        fuzz_check(read_leaks_are_sound(run->leaks));
    }
}

/* The image of a run; how long it is. */
static size_t image_of(const struct read_run *run, int fd, uint8_t *bytes) {
    static struct image_pipe pipe;
    pipe = (struct image_pipe){.fd = fd};
    image_put_run(&pipe, run);
    image_flush(&pipe);
    fuzz_check(!pipe.has_failed);
    off_t length = lseek(fd, 0, SEEK_CUR);
    fuzz_check(0 < length && length <= MOST && pread(fd, bytes, (size_t)length, 0) == length);
    return (size_t)length;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static int given = -1, sent = -1, sent_on = -1;
    static uint8_t first[MOST], second[MOST];
    bool has_failed;
    int fd = scratch(&given);
    fuzz_check(pwrite(fd, data, size, 0) == (ssize_t)size);
    cli_loudness = 0;
    struct read_run *run = receive(fd, &has_failed);
    fuzz_check((run == NULL) == has_failed);
    if (run == NULL) {
        return 0;
    }
    check_run(run);
    size_t length = image_of(run, scratch(&sent), first);
    struct read_run *twin = receive(sent, &has_failed);
    fuzz_check(twin != NULL);
    check_run(twin);
    fuzz_check(image_of(twin, scratch(&sent_on), second) == length);
    fuzz_check(memcmp(first, second, length) == 0);
    read_run_free(twin);
    read_run_free(run);
    return 0;
}
