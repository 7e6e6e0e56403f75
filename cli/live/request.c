/* SPDX-License-Identifier: MIT
 *
 * request.c - one connection, one message, one answer.
 *
 * The path of the socket comes from the page of statistics and is looked up below /proc/PID/root with
 * links kept inside of it.  connect() goes through the descriptor found, by /proc/self/fd, since names of
 * sockets are short.
 */
#define _GNU_SOURCE /* struct ucred */
#include "live/request.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

/* An O_PATH descriptor of the socket; -1 and errno. */
static int find_socket(const struct target *target, const char *path) {
    struct open_how how = {.flags = O_PATH | O_CLOEXEC | O_NOFOLLOW, .resolve = RESOLVE_IN_ROOT};
    if (target->socket != NULL) {
        return open(target->socket, O_PATH | O_CLOEXEC);
    }
    int root = open(target_proc_path(target->pid, "root"), O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (root < 0) {
        return -1;
    }
    int fd = (int)syscall(SYS_openat2, root, path, &how, sizeof how);
    if (fd < 0 && errno == ENOSYS) {
        fd = openat(root, path + strspn(path, "/"), O_PATH | O_CLOEXEC | O_NOFOLLOW);
    }
    int error = errno;
    close(root);
    errno = error;
    return fd;
}

static int connect_through(int socket_fd) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    snprintf(address.sun_path, sizeof address.sun_path, "/proc/self/fd/%d", socket_fd);
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd >= 0 && connect(fd, (struct sockaddr *)&address, sizeof address) != 0) {
        int error = errno;
        close(fd);
        errno = error;
        return -1;
    }
    return fd;
}

/* Is the listener the process that we mean, and is that still there? */
static bool is_answered_by(int connection, const struct target *target) {
    struct ucred peer = {.pid = 0};
    socklen_t length = sizeof peer;
    return getsockopt(connection, SOL_SOCKET, SO_PEERCRED, &peer, &length) == 0 &&
           peer.pid == target->pid && target_is_alive(target);
}

static enum exit_code explain_no_connection(const struct target *target, const char *path,
                                            int error) {
    if (error == EACCES || error == EPERM) {
        return complain(EXIT_REFUSED,
                        "the control socket of process %ld is another user's; ask as that user or "
                        "as root",
                        target->pid);
    }
    if (error == EAGAIN) {
        return complain(EXIT_REFUSED, "process %ld has too many requests waiting; try again",
                        target->pid);
    }
    return complain(EXIT_NO_TARGET,
                    "process %ld does not listen at %s: %s; tally doctor %ld may know why",
                    target->pid, safe_text(path), strerror(error), target->pid);
}

static enum exit_code open_connection(const struct target *target, int *connection) {
    struct target_page page = {.range_count = 0};
    const char *path = target->socket;
    if (path == NULL) {
        if (!target_read_page(target, &page)) {
            return EXIT_NO_TARGET;
        }
        path = page.words.socket_path;
        if (page.words.control == 0 || path[0] == '\0') {
            return complain(EXIT_REFUSED,
                            "control is off in process %ld; start it with tally run, or with "
                            "TALLY_CONF=control:write",
                            target->pid);
        }
    }
    int fd = find_socket(target, path);
    *connection = fd >= 0 ? connect_through(fd) : -1;
    int error = errno;
    if (fd >= 0) {
        close(fd);
    }
    if (*connection < 0) {
        return explain_no_connection(target, path, error);
    }
    if (!is_answered_by(*connection, target)) {
        close(*connection);
        return complain(EXIT_NO_TARGET, "somebody else answers at the socket of process %ld",
                        target->pid);
    }
    return EXIT_DONE;
}

/* Messages. */

static bool send_request(int connection, const char *bytes, size_t length, int output) {
    struct iovec part = {(void *)(uintptr_t)bytes, length};
    union {
        struct cmsghdr header;
        char bytes[CMSG_SPACE(sizeof(int))];
    } rights = {.bytes = ""};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
    if (output >= 0) {
        message.msg_control = &rights;
        message.msg_controllen = sizeof rights;
        rights.header.cmsg_level = SOL_SOCKET;
        rights.header.cmsg_type = SCM_RIGHTS;
        rights.header.cmsg_len = CMSG_LEN(sizeof(int));
        memcpy(CMSG_DATA(&rights.header), &output, sizeof output);
    }
    return sendmsg(connection, &message, MSG_NOSIGNAL) == (ssize_t)length;
}

static bool is_stopped(const struct target *target) {
    char state = target_state(target->pid);
    return state == 'T' || state == 't';
}

/* Waits for the answer or the process's end.  The answer's bytes; 0: hung up, -1: nothing came.  A process that
 * is found stopped twice is not waited for: an answer may take minutes, and nobody may let it go on. */
static ssize_t receive(int connection, const struct target *target, uint64_t wait_ns, char *bytes) {
    enum { LOOK_MS = 1000 };
    struct pollfd waiting[] = {{.fd = connection, .events = POLLIN},
                               {.fd = target->pidfd, .events = POLLIN}};
    uint64_t until = cli_now_ns() + wait_ns;
    bool was_stopped = false;
    for (;;) {
        uint64_t now = cli_now_ns();
        uint64_t left_ms = now < until ? (until - now) / 1000000 + 1 : 0;
        int ready = poll(waiting, 2, left_ms < LOOK_MS ? (int)left_ms : LOOK_MS);
        if (ready > 0 && waiting[0].revents != 0) {
            ssize_t got = recv(connection, bytes, WIRE_MOST_BYTES, MSG_TRUNC);
            return got < 0 || got > WIRE_MOST_BYTES ? 0 : got;
        }
        if (ready > 0 || (ready < 0 && errno != EINTR)) {
            return 0;
        }
        if (ready == 0 && (left_ms <= LOOK_MS || (is_stopped(target) && was_stopped))) {
            return -1;
        }
        was_stopped = is_stopped(target);
    }
}

static bool is_in_other_user_namespace(long pid) {
    char ours[64] = "", theirs[64] = "";
    return readlink("/proc/self/ns/user", ours, sizeof ours - 1) > 0 &&
           readlink(target_proc_path(pid, "ns/user"), theirs, sizeof theirs - 1) > 0 &&
           strcmp(ours, theirs) != 0;
}

static enum exit_code explain_denied(const struct target *target, const char *text) {
    if (is_in_other_user_namespace(target->pid)) {
        return complain(EXIT_REFUSED,
                        "process %ld does not know us in its user namespace; go there: nsenter "
                        "--preserve-credentials -U -t %ld tally ...",
                        target->pid, target->pid);
    }
    struct target_page page;
    if (target->page_fd >= 0 && target_read_page(target, &page) && page.words.control == 1) {
        return complain(EXIT_REFUSED,
                        "process %ld refuses: %s; it was started without the right to: "
                        "TALLY_CONF=control:write gives it",
                        target->pid, safe_text(text));
    }
    return complain(EXIT_REFUSED, "process %ld refuses: %s", target->pid, safe_text(text));
}

static enum exit_code explain_error(const struct target *target, const struct reply *reply) {
    const char *text = reply->message.text;
    switch (reply->message.code) {
    case WIRE_DENIED:
        return explain_denied(target, text);
    case WIRE_BUSY:
    case WIRE_LIMIT:
    case WIRE_DEADLINE:
        return complain(EXIT_REFUSED, "process %ld refuses for now: %s; try again later",
                        target->pid, safe_text(text));
    case WIRE_SYNTAX:
    case WIRE_UNKNOWN:
        return complain(EXIT_USAGE, "process %ld does not know this: %s", target->pid,
                        safe_text(text));
    case WIRE_IO:
        return complain(EXIT_OWN_FAILURE, "process %ld could not write its answer: %s", target->pid,
                        safe_text(text));
    default:
        return complain(EXIT_NO_TARGET, "process %ld cannot do this: %s", target->pid,
                        safe_text(text));
    }
}

static enum exit_code explain_silence(const struct target *target, uint64_t wait_ns) {
    if (!target_is_alive(target)) {
        return complain(EXIT_NO_TARGET, "process %ld has ended meanwhile", target->pid);
    }
    if (is_stopped(target)) {
        return complain(EXIT_NO_TARGET,
                        "process %ld is stopped and cannot answer; let it go on (kill -CONT %ld), "
                        "or look at it with tally stats, which works meanwhile",
                        target->pid, target->pid);
    }
    return complain(EXIT_NO_TARGET, "process %ld has not answered within %s", target->pid,
                    duration_text(wait_ns));
}

enum exit_code request_send(const struct target *target, struct wire_writer *request, int output,
                            uint64_t wait_ns, struct reply *reply) {
    int connection = -1;
    size_t length = wire_end(request);
    if (length == 0) {
        return complain(EXIT_USAGE, "the request is too long: at most %d bytes", WIRE_MOST_BYTES);
    }
    enum exit_code code = open_connection(target, &connection);
    if (code != EXIT_DONE) {
        return code;
    }
    ssize_t got = send_request(connection, request->bytes, length, output)
                      ? receive(connection, target, wait_ns, reply->bytes)
                      : 0;
    close(connection);
    if (got < 0 || (got == 0 && !target_is_alive(target))) {
        return explain_silence(target, wait_ns);
    }
    if (got == 0) {
        return complain(EXIT_REFUSED, "process %ld hung up: it refuses who we are, or too many ask",
                        target->pid);
    }
    if (!wire_read_reply(reply->bytes, (size_t)got, &reply->message)) {
        return complain(EXIT_NO_TARGET,
                        "process %ld answers in another language; its library may be of another "
                        "version",
                        target->pid);
    }
    return strcmp(reply->message.verb, "ok") == 0 ? EXIT_DONE : explain_error(target, reply);
}

uint64_t request_number(const struct reply *reply, const char *key) {
    const char *text = wire_find(&reply->message, key);
    uint64_t number = 0;
    return text != NULL && parse_count(text, &number) ? number : 0;
}
