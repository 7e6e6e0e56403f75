/* SPDX-License-Identifier: MIT
 *
 * misuse_free_twice_fork.c - a block is freed before fork, and the child frees it again. The
 * parent ends as the child did.
 */
#include "misuse.h"

static void misuse(size_t size, int variant __attribute__((unused))) {
    void *p = malloc(size);
    size_t usable = malloc_usable_size(p);
    free(p);
    pid_t pid = fork();
    if (pid == 0) {
        expect_double_free("free", p, usable);
        free(launder(p));
        _exit(0);
    }
    int status = 0;
    waitpid(pid, &status, 0);
    if (WIFSIGNALED(status)) {
        signal(WTERMSIG(status), SIG_DFL);
        raise(WTERMSIG(status));
    }
}
