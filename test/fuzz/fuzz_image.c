/* SPDX-License-Identifier: MIT
 *
 * fuzz_image.c - what a reader's process sends: a sound run or nothing, whoever has taken the process over.
 */
#define _GNU_SOURCE /* memfd_create */
#include <sys/mman.h>
#include <unistd.h>

#include "cli.h"
#include "fuzz.h"
#include "read_image.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static struct image_pipe pipe;
    static int fd = -1;
    if (fd < 0) {
        fd = memfd_create("image", MFD_CLOEXEC);
    }
    fuzz_check(ftruncate(fd, 0) == 0 && pwrite(fd, data, size, 0) == (ssize_t)size);
    fuzz_check(lseek(fd, 0, SEEK_SET) == 0);
    pipe = (struct image_pipe){.fd = fd, .left = 1 << 20};
    cli_loudness = 0;
    struct read_run *run = image_take_run(&pipe);
    fuzz_check((run == NULL) == pipe.has_failed);
    if (run != NULL) {
        fuzz_check(run->format != NULL && run->program != NULL && run->arguments != NULL);
        const struct profile *last =
            run->moment_count > 0 ? run->moments[run->moment_count - 1].profile : NULL;
        fuzz_check(last == NULL || profile_verify(last));
        fuzz_check(run->moment_count == 0 || last != NULL);
        read_run_free(run);
    }
    return 0;
}
