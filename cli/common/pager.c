/* SPDX-License-Identifier: MIT
 *
 * pager.c - keeps standard output in memory, then prints it or hands it to a pager.
 */
#define _GNU_SOURCE /* memfd_create */
#include "common/pager.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/cli.h"

static struct { int terminal, kept; /* descriptors; -1: standard output is itself */ } g = {-1, -1};

void pager_begin(void) {
    if (!cli_has_pager || !isatty(STDOUT_FILENO) || g.kept >= 0) {
        return;
    }
    fflush(stdout);
    g.terminal = fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 3);
    g.kept = memfd_create("tally-pager", MFD_CLOEXEC);
    if (g.terminal < 0 || g.kept < 0 || dup2(g.kept, STDOUT_FILENO) < 0) {
        close(g.terminal);
        close(g.kept);
        g.terminal = g.kept = -1;
    }
}

/* Rows that the text takes on the terminal: long lines take several. */
static size_t count_rows(const char *text, size_t length, unsigned columns) {
    size_t rows = 0, column = 0;
    for (size_t i = 0; i < length; i++) {
        if (text[i] == '\n') {
            rows += column > 0 ? (column - 1) / columns + 1 : 1;
            column = 0;
        } else {
            column += ((unsigned char)text[i] & 0xc0) != 0x80;
        }
    }
    return rows + (column > 0);
}

static bool fits_on_screen(const char *text, size_t length) {
    struct winsize size = {.ws_row = 0};
    if (ioctl(g.terminal, TIOCGWINSZ, &size) != 0 || size.ws_row == 0 || size.ws_col == 0) {
        return true;
    }
    return count_rows(text, length, size.ws_col) < size.ws_row;
}

/* The shell runs the pager, since PAGER may hold options.  False where it cannot. */
static bool run_pager(int text) {
    const char *pager = getenv("TALLY_PAGER") != NULL ? getenv("TALLY_PAGER") : getenv("PAGER");
    pager = pager != NULL && pager[0] != '\0' ? pager : "less";
    lseek(text, 0, SEEK_SET);
    pid_t child = fork();
    if (child == 0) {
        dup2(text, STDIN_FILENO);
        setenv("LESS", "FRX", 0); /* keep colours, clear nothing */
        execl("/bin/sh", "sh", "-c", pager, (char *)NULL);
        _exit(127);
    }
    struct sigaction ignore = {.sa_handler = SIG_IGN}, old;
    sigaction(SIGINT, &ignore, &old); /* Ctrl-C is the pager's */
    int status = 127 << 8;
    while (child > 0 && waitpid(child, &status, 0) < 0 && errno == EINTR) {
    }
    sigaction(SIGINT, &old, NULL);
    return !(WIFEXITED(status) && WEXITSTATUS(status) == 127);
}

static void print_kept(const char *text, size_t length) {
    fwrite(text, 1, length, stdout);
    fflush(stdout);
}

void pager_end(void) {
    if (g.kept < 0) {
        return;
    }
    fflush(stdout);
    dup2(g.terminal, STDOUT_FILENO);
    off_t end = lseek(g.kept, 0, SEEK_END);
    size_t length = end > 0 ? (size_t)end : 0;
    char *text = length > 0 ? mmap(NULL, length, PROT_READ, MAP_PRIVATE, g.kept, 0) : MAP_FAILED;
    if (text != MAP_FAILED) {
        if (fits_on_screen(text, length) || !run_pager(g.kept)) {
            print_kept(text, length);
        }
        munmap(text, length);
    }
    close(g.terminal);
    close(g.kept);
    g.terminal = g.kept = -1;
}
