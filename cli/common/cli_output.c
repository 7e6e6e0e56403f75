/* SPDX-License-Identifier: MIT
 *
 * cli_output.c - where results go.
 *
 * A result that goes into a file is written under a temporary name beside it and gets its own name when it
 * is complete; signals that end the command remove the temporary one.
 */
#define _GNU_SOURCE /* renameat2, mkostemp */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/cli.h"

static struct { const char *volatile temporary; /* what a signal removes */ } g;

static void remove_temporary(int number) {
    if (g.temporary != NULL) {
        unlink(g.temporary);
    }
    signal(number, SIG_DFL);
    raise(number);
}

/* Signals that are already handled or ignored stay as they are. */
static void guard_temporary(const char *temporary) {
    static const int signals[] = {SIGINT, SIGTERM, SIGHUP, SIGPIPE};
    g.temporary = temporary;
    for (size_t i = 0; i < sizeof signals / sizeof signals[0]; i++) {
        struct sigaction now;
        if (sigaction(signals[i], NULL, &now) == 0 && now.sa_handler == SIG_DFL) {
            now.sa_handler = remove_temporary;
            now.sa_flags = (int)SA_RESETHAND | SA_NODEFER;
            sigaction(signals[i], &now, NULL);
        }
    }
}

/* Terminals, pipes and /dev/null are written as they are. */
static bool is_special(const char *path) {
    struct stat status;
    return stat(path, &status) == 0 && (S_ISCHR(status.st_mode) || S_ISFIFO(status.st_mode));
}

/* The N of /dev/fd/N; -1 for other names. */
static int descriptor_of_name(const char *path) {
    static const char *const standard[] = {"/dev/stdin", "/dev/stdout", "/dev/stderr"};
    static const char *const folders[] = {"/dev/fd/", "/proc/self/fd/"};
    uint64_t number;
    for (int i = 0; i < 3; i++) {
        if (strcmp(path, standard[i]) == 0) {
            return i;
        }
    }
    for (int i = 0; i < 2; i++) {
        size_t length = strlen(folders[i]);
        if (strncmp(path, folders[i], length) == 0 && parse_count(path + length, &number)) {
            return number <= INT_MAX ? (int)number : INT_MAX;
        }
    }
    return -1;
}

static int copy_for_writing(int fd) {
    int flags = fcntl(fd, F_GETFL);
    if (flags >= 0 && (flags & O_ACCMODE) == O_RDONLY) {
        errno = EBADF;
        flags = -1;
    }
    return flags < 0 ? -1 : fcntl(fd, F_DUPFD_CLOEXEC, 3);
}

static int create_temporary(struct output *output) {
    size_t length = strlen(output->path) + sizeof ".XXXXXX";
    output->temporary = must_alloc(length);
    snprintf(output->temporary, length, "%s.XXXXXX", output->path);
    int fd = mkostemp(output->temporary, O_CLOEXEC); /* of mode 0600 */
    if (fd < 0) {
        free(output->temporary);
        output->temporary = NULL;
        return fd;
    }
    guard_temporary(output->temporary);
    return fd;
}

bool output_open(struct output *output, const char *path, bool overwrite) {
    *output = (struct output){.file = stdout};
    if (path == NULL || strcmp(path, "-") == 0) {
        return true;
    }
    output->path = path;
    output->overwrite = overwrite;
    int descriptor = descriptor_of_name(path);
    bool special = descriptor >= 0 || is_special(path);
    if (!special && !overwrite && faccessat(AT_FDCWD, path, F_OK, AT_SYMLINK_NOFOLLOW) == 0) {
        return decline("%s exists already; remove it or name another file with -o",
                       safe_text(path));
    }
    int fd = descriptor >= 0 ? copy_for_writing(descriptor)
             : special       ? open(path, O_WRONLY | O_CLOEXEC)
                             : create_temporary(output);
    output->file = fd < 0 ? NULL : fdopen(fd, "w");
    if (output->file == NULL) {
        return decline("cannot write %s: %s", safe_text(path), strerror(errno));
    }
    return true;
}

static void forget_temporary(struct output *output, bool is_there) {
    if (output->temporary != NULL && is_there) {
        unlink(output->temporary);
    }
    g.temporary = NULL;
    free(output->temporary);
    output->temporary = NULL;
}

/* The temporary file gets its name.  Without renameat2 a link does the same in two steps. */
static bool give_name(const struct output *output) {
    if (output->overwrite) {
        return rename(output->temporary, output->path) == 0;
    }
    if (renameat2(AT_FDCWD, output->temporary, AT_FDCWD, output->path, RENAME_NOREPLACE) == 0) {
        return true;
    }
    return (errno == EINVAL || errno == ENOSYS) && link(output->temporary, output->path) == 0 &&
           unlink(output->temporary) == 0;
}

bool output_close(struct output *output) {
    bool is_whole = fflush(output->file) == 0 && !ferror(output->file);
    int error = errno;
    if (output->path == NULL) {
        return is_whole || decline("cannot write the output: %s", strerror(error));
    }
    if (fclose(output->file) != 0 && is_whole) {
        is_whole = false;
        error = errno;
    }
    bool has_name = false;
    if (is_whole && output->temporary != NULL) {
        has_name = give_name(output);
        is_whole = has_name;
        error = errno;
    }
    if (!is_whole) {
        complain(EXIT_OWN_FAILURE, "cannot write %s: %s", safe_text(output->path), strerror(error));
    }
    forget_temporary(output, !has_name);
    return is_whole;
}

void output_discard(struct output *output) {
    if (output->path != NULL) {
        fclose(output->file);
    }
    forget_temporary(output, true);
}

/* To open a pipe or a device can have an effect, and hardly fails. */
bool output_judge(const char *path, bool overwrite) {
    struct output output;
    if (path != NULL && descriptor_of_name(path) < 0 && is_special(path)) {
        return true;
    }
    if (!output_open(&output, path, overwrite)) {
        return false;
    }
    output_discard(&output);
    return true;
}
