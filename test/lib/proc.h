/* SPDX-License-Identifier: MIT
 *
 * proc.h - what the kernel says about this process, for programs that have a main of their own.
 */
#ifndef TALLY_TEST_PROC_H
#define TALLY_TEST_PROC_H

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* A value of a file of /proc, in MiB; the kernel writes kB.  Ends the program where it is not there. */
static inline size_t proc_mebibytes(const char *path, const char *name) {
    static char text[1 << 14];
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd >= 0 ? read(fd, text, sizeof text - 1) : -1;
    if (fd >= 0) {
        close(fd);
    }
    text[n > 0 ? n : 0] = '\0';
    const char *line = strstr(text, name);
    if (line == NULL) {
        printf("failed: no %s in %s\n", name + 1, path);
        exit(1);
    }
    return strtoul(line + strlen(name), NULL, 10) / 1024;
}

#endif
