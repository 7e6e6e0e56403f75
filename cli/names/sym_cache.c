/* SPDX-License-Identifier: MIT
 *
 * sym_cache.c - images kept in files.
 *
 * Names end up in reports, so nobody else may put them there: the folder is ours and closed to
 * others, no symbolic link is followed, a file must be regular, ours, closed to others, and pass
 * the check that a worker's answer passes.  Under sudo another user's home fails the first of
 * these, and there is no cache.
 */
#include "names/sym_cache.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/cli.h"
#include "names/sym_image.h"

bool sym_is_build_id(const char *text) {
    size_t length = strspn(text, "0123456789abcdef");
    return text[length] == '\0' && length >= 2 && length < SYM_BUILD_ID_CHARS && length % 2 == 0;
}

static bool is_ours(int file, mode_t kind, mode_t forbidden) {
    struct stat status;
    return fstat(file, &status) == 0 && (status.st_mode & S_IFMT) == kind &&
           status.st_uid == geteuid() && (status.st_mode & forbidden) == 0;
}

/* A folder inside another that is ours; closes the other. */
static int enter(int folder, const char *name, mode_t forbidden) {
    if (folder < 0) {
        return -1;
    }
    if (mkdirat(folder, name, 0700) != 0 && errno != EEXIST) {
        close(folder);
        return -1;
    }
    int inner = openat(folder, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    close(folder);
    if (inner >= 0 && !is_ours(inner, S_IFDIR, forbidden)) {
        close(inner);
        return -1;
    }
    return inner;
}

static int open_home(void) {
    const char *cache = getenv("XDG_CACHE_HOME");
    if (cache != NULL && cache[0] == '/') {
        mkdir(cache, 0700);
        return open(cache, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    }
    const char *home = getenv("HOME");
    if (home == NULL || home[0] != '/') {
        return -1;
    }
    return enter(open(home, O_RDONLY | O_DIRECTORY | O_CLOEXEC), ".cache", S_IWGRP | S_IWOTH);
}

int sym_cache_open(void) {
    int folder = enter(open_home(), "tally", S_IWGRP | S_IWOTH);
    return enter(folder, "sym", S_IRWXG | S_IRWXO);
}

/* Does not check the content. */
static void *read_whole(int file, size_t *length) {
    struct stat status;
    if (!is_ours(file, S_IFREG, S_IRWXG | S_IRWXO) || fstat(file, &status) != 0 ||
        status.st_size < (off_t)sizeof(struct sym_header) ||
        status.st_size > SYM_IMAGE_BYTES_MOST) {
        return NULL;
    }
    *length = (size_t)status.st_size;
    void *bytes = malloc(*length);
    if (bytes != NULL && !read_at(file, bytes, *length, 0)) {
        free(bytes);
        return NULL;
    }
    return bytes;
}

void *sym_cache_read(int folder, const char *build_id, size_t *length) {
    if (folder < 0 || !sym_is_build_id(build_id)) {
        return NULL;
    }
    int file = openat(folder, build_id, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (file < 0) {
        return NULL;
    }
    void *image = read_whole(file, length);
    close(file);
    if (image != NULL &&
        (!sym_image_check(image, *length) ||
         strcmp(sym_image_text(image, sym_image_header(image)->build_id), build_id) != 0)) {
        free(image);
        return NULL;
    }
    return image;
}

void sym_cache_write(int folder, const char *build_id, const void *image, size_t length) {
    if (folder < 0 || !sym_is_build_id(build_id)) {
        return;
    }
    char temporary[SYM_BUILD_ID_CHARS + 32];
    snprintf(temporary, sizeof temporary, ".%s.%ld", build_id, (long)getpid());
    int file =
        openat(folder, temporary, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (file < 0) {
        return;
    }
    bool is_whole = write_all(file, image, length);
    is_whole &= close(file) == 0;
    if (!is_whole || renameat(folder, temporary, folder, build_id) != 0) {
        unlinkat(folder, temporary, 0);
    }
}
