/* SPDX-License-Identifier: MIT
 *
 * serve.c - one page over HTTP on a Unix socket.
 *
 * One client after the other, each with two seconds and 8 KiB for its request, of which only the
 * first letters matter: whatever it asks for, there is one page.
 */
#define _GNU_SOURCE /* accept4, struct ucred */
#include "live/serve.h"

#include <errno.h>
#include <libgen.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

enum { CLIENT_MS = 2000, LOOK_MS = 500, QUESTION_BYTES = 8192, WAITING_MOST = 8 };

static volatile sig_atomic_t is_interrupted;

static void interrupt(int number) {
    (void)number;
    is_interrupted = 1;
}

/* ---------------------------------------------------------------- the socket */

/* Whoever may write into the folder may replace our socket. */
static bool is_private_folder(const char *path) {
    struct stat status;
    char *copy = must_alloc(strlen(path) + 1);
    strcpy(copy, path);
    bool is_there = stat(dirname(copy), &status) == 0;
    free(copy);
    return is_there && (status.st_uid == geteuid() || status.st_uid == 0) &&
           ((status.st_mode & (S_IWGRP | S_IWOTH)) == 0 || (status.st_mode & S_ISVTX) != 0);
}

/* A socket of ours that nobody serves any more. */
static bool is_abandoned(int fd, const struct sockaddr_un *address) {
    struct stat status;
    return lstat(address->sun_path, &status) == 0 && S_ISSOCK(status.st_mode) &&
           status.st_uid == geteuid() &&
           connect(fd, (const struct sockaddr *)address, sizeof *address) != 0 &&
           errno == ECONNREFUSED;
}

static bool bind_private(int fd, const struct sockaddr_un *address) {
    mode_t before = umask(0177);
    bool is_bound = bind(fd, (const struct sockaddr *)address, sizeof *address) == 0;
    int error = errno;
    if (!is_bound && error == EADDRINUSE && is_abandoned(fd, address)) {
        is_bound = unlink(address->sun_path) == 0 &&
                   bind(fd, (const struct sockaddr *)address, sizeof *address) == 0;
        error = errno;
    }
    umask(before);
    errno = error;
    return is_bound;
}

/* -1 after a sentence. */
static int listen_at(const char *path, enum exit_code *code) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    if (strlen(path) >= sizeof address.sun_path) {
        *code = complain(EXIT_USAGE, "%s: the path of a socket has at most %zu bytes",
                         safe_text(path), sizeof address.sun_path - 1);
        return -1;
    }
    strcpy(address.sun_path, path);
    if (!is_private_folder(path)) {
        *code = complain(EXIT_REFUSED,
                         "%s: its folder must be there, and others must not be able to write to it",
                         safe_text(path));
        return -1;
    }
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0 || !bind_private(fd, &address) || listen(fd, WAITING_MOST) != 0) {
        *code = complain(EXIT_OWN_FAILURE, "cannot serve at %s: %s", safe_text(path),
                         errno == EADDRINUSE ? "it exists already" : strerror(errno));
        if (fd >= 0) {
            close(fd);
        }
        return -1;
    }
    return fd;
}

/* ---------------------------------------------------------------- a client */

static bool is_allowed(int fd) {
    struct ucred peer;
    socklen_t length = sizeof peer;
    return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &length) == 0 &&
           (peer.uid == geteuid() || peer.uid == 0);
}

static bool wait_for(int fd, short events, uint64_t until) {
    uint64_t now = cli_now_ns();
    struct pollfd wait = {.fd = fd, .events = events};
    return now < until && poll(&wait, 1, (int)((until - now) / 1000000) + 1) == 1;
}

/* The whole head of a request, which ends with an empty line. */
static bool read_question(int fd, char question[QUESTION_BYTES], uint64_t until) {
    size_t length = 0;
    while (length < QUESTION_BYTES - 1 && wait_for(fd, POLLIN, until)) {
        ssize_t n = recv(fd, question + length, QUESTION_BYTES - 1 - length, 0);
        if (n <= 0) {
            return false;
        }
        length += (size_t)n;
        question[length] = '\0';
        if (strstr(question, "\r\n\r\n") != NULL || strstr(question, "\n\n") != NULL) {
            return true;
        }
    }
    return false;
}

static void send_all(int fd, const char *bytes, size_t length, uint64_t until) {
    while (length > 0 && wait_for(fd, POLLOUT, until)) {
        ssize_t n = send(fd, bytes, length, MSG_NOSIGNAL);
        if (n <= 0) {
            return;
        }
        bytes += n;
        length -= (size_t)n;
    }
}

/* False: there is nothing to show any more. */
static bool answer(int fd, const struct serve_page *page) {
    char question[QUESTION_BYTES], *text = NULL, head[256];
    size_t length = 0;
    uint64_t until = cli_now_ns() + CLIENT_MS * UINT64_C(1000000);
    if (!is_allowed(fd) || !read_question(fd, question, until)) {
        return true;
    }
    if (strncmp(question, "GET ", 4) != 0) {
        const char refusal[] = "HTTP/1.1 405 Method Not Allowed\r\nAllow: GET\r\n"
                               "Content-Length: 0\r\nConnection: close\r\n\r\n";
        send_all(fd, refusal, sizeof refusal - 1, until);
        return true;
    }
    FILE *file = open_memstream(&text, &length);
    bool goes_on = file != NULL && page->print(file, page->object);
    if (file != NULL && fclose(file) == 0 && goes_on) {
        int size = snprintf(head, sizeof head,
                            "HTTP/1.1 200 OK\r\nContent-Type: %s\r\nContent-Length: %zu\r\n"
                            "Connection: close\r\n\r\n",
                            page->type, length);
        send_all(fd, head, (size_t)size, until);
        send_all(fd, text, length, until);
    }
    free(text);
    return goes_on;
}

enum exit_code serve(const char *path, const struct serve_page *page) {
    static const int signals[] = {SIGINT, SIGTERM, SIGHUP};
    struct sigaction action = {.sa_handler = interrupt};
    enum exit_code code = EXIT_DONE;
    int fd = listen_at(path, &code);
    if (fd < 0) {
        return code;
    }
    for (size_t i = 0; i < sizeof signals / sizeof signals[0]; i++) {
        sigaction(signals[i], &action, NULL);
    }
    note("serving at %s; Ctrl-C ends it", safe_text(path));
    bool goes_on = true;
    while (goes_on && !is_interrupted && !page->is_over(page->object)) {
        struct pollfd wait = {.fd = fd, .events = POLLIN};
        int client = poll(&wait, 1, LOOK_MS) == 1
                         ? accept4(fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK)
                         : -1;
        if (client >= 0) {
            goes_on = answer(client, page);
            close(client);
        }
    }
    unlink(path);
    close(fd);
    return EXIT_DONE;
}
