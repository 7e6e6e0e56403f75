/* SPDX-License-Identifier: MIT
 *
 * source.c - finds and reads source files, as source.h says.
 */
#include "view/source.h"

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/cli.h"

enum { MOST_SOURCE_BYTES = 64 << 20 };

static char *read_regular(const char *path, size_t *length) {
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0) {
        return NULL;
    }
    struct stat status;
    char *text = NULL;
    if (fstat(fd, &status) == 0 && S_ISREG(status.st_mode) && status.st_size <= MOST_SOURCE_BYTES) {
        size_t size = (size_t)status.st_size, done = 0;
        ssize_t got = 1;
        text = must_alloc(size + 1);
        while (got > 0 && done < size) {
            got = read(fd, text + done, size - done);
            done += got > 0 ? (size_t)got : 0;
        }
        text[done] = '\0';
        *length = done;
    }
    close(fd);
    return text;
}

static char *read_below(const char *folder, const char *path, size_t *length) {
    for (const char *rest = path; rest != NULL; rest = strchr(rest, '/')) {
        while (*rest == '/') {
            rest++;
        }
        size_t bytes = strlen(folder) + strlen(rest) + 2;
        char *whole = must_alloc(bytes);
        snprintf(whole, bytes, "%s/%s", folder, rest);
        char *text = strstr(rest, "..") == NULL ? read_regular(whole, length) : NULL;
        free(whole);
        if (text != NULL) {
            return text;
        }
    }
    return NULL;
}

/* Where files may lie that no --source-path covers. */

static bool is_below(const char *path, const char *folder) {
    size_t length = strlen(folder);
    return length > 1 && strncmp(path, folder, length) == 0 && path[length] == '/';
}

static bool is_of_system(const char *path) {
    static const char *const folders[] = {"/usr/include",       "/usr/src",       "/usr/lib",
                                          "/usr/local/include", "/usr/local/src", "/usr/local/lib"};
    for (size_t i = 0; i < sizeof folders / sizeof folders[0]; i++) {
        if (is_below(path, folders[i])) {
            return true;
        }
    }
    return false;
}

/* The nearest folder above under version control, else the current one; "": it has no name. */
static void find_tree(char tree[PATH_MAX]) {
    static const char *const marks[] = {".git", ".hg", ".svn", ".jj"};
    char folder[PATH_MAX], mark[PATH_MAX + 8];
    if (getcwd(folder, sizeof folder) == NULL) {
        folder[0] = '\0';
    }
    strcpy(tree, folder);
    for (char *end; (end = strrchr(folder, '/')) != NULL && folder[1] != '\0'; *end = '\0') {
        for (size_t i = 0; i < sizeof marks / sizeof marks[0]; i++) {
            snprintf(mark, sizeof mark, "%s/%s", folder, marks[i]);
            if (access(mark, F_OK) == 0) {
                strcpy(tree, folder);
                return;
            }
        }
    }
}

static bool has_source_ending(const char *path) {
    static const char endings[] = " adb ads asm c c++ cc cpp cu cxx d def f f90 go h h++ hh hpp "
                                  "hxx inc inl ipp java jl js kt l "
                                  "lua m mm ml nim pas py pyx rb rs s scala sx swift tcc ts y zig ";
    const char *dot = strrchr(path, '.');
    char word[16];
    if (dot == NULL || strchr(dot, '/') != NULL || strlen(dot) > 8) {
        return false;
    }
    snprintf(word, sizeof word, " %s ", dot + 1);
    for (char *at = word; *at != '\0'; at++) {
        *at = (char)(*at >= 'A' && *at <= 'Z' ? *at + ('a' - 'A') : *at);
    }
    return strstr(endings, word) != NULL;
}

/* Whether the path, with links resolved, may be read. */
static bool is_allowed(const char *path) {
    char tree[PATH_MAX];
    find_tree(tree);
    return is_of_system(path) || (is_below(path, tree) && has_source_ending(path) &&
                                  strstr(path + strlen(tree), "/.") == NULL);
}

static void split_lines(struct source *source, size_t length) {
    uint32_t room = 0;
    for (char *line = source->text; line != NULL && line < source->text + length;) {
        source->lines = must_have_room(source->lines, source->count, &room, sizeof *source->lines);
        source->lines[source->count++] = line;
        char *end = memchr(line, '\n', (size_t)(source->text + length - line));
        if (end != NULL) {
            *end = '\0';
        }
        line = end != NULL ? end + 1 : NULL;
    }
}

struct source source_read(const struct arg_list *folders, const char *path) {
    struct source source = {0};
    size_t length = 0;
    char real[PATH_MAX];
    for (size_t i = 0; i < folders->count && source.text == NULL; i++) {
        source.text = read_below(folders->texts[i], path, &length);
    }
    if (source.text == NULL && path[0] != '\0' && realpath(path, real) != NULL) {
        source.is_refused = !is_allowed(real);
        source.text = source.is_refused ? NULL : read_regular(real, &length);
    }
    split_lines(&source, length);
    return source;
}

void source_free(struct source *source) {
    free(source->text);
    free(source->lines);
    *source = (struct source){0};
}
