/* SPDX-License-Identifier: MIT
 *
 * os_socket.c - sockets and private directories, on Linux.
 *
 * Names of sockets have room for 107 characters, and a path could be changed under us between a check and
 * its use.  So a directory is opened first, then looked at, and then used by its descriptor:
 * /proc/self/fd/N/name.
 */
#define _GNU_SOURCE /* O_PATH, struct ucred */
#include "base/os_socket.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <time.h>

#include "base/fmt.h"
#include "base/os.h"
#include "base/os_call.h"
#include "base/os_shared.h"

enum { PRIVATE_MODE = 0700, SOCKET_MODE = 0600, OTHERS = 077, BACKLOG = 16, PIPE_PIECE = 4096 };

uint32_t os_user(void) {
    return (uint32_t)raw_call(SYS_geteuid, 0, 0, 0, 0, 0, 0);
}

bool os_may_tell_user(void) {
    return !os_facts.secure && raw_call(SYS_getuid, 0, 0, 0, 0, 0, 0) == (long)os_user() &&
           raw_call(SYS_prctl, PR_GET_DUMPABLE, 0, 0, 0, 0, 0) == 1;
}

/* ---------------------------------------------------------------- directories */

static long look_at(int fd, struct stat *facts) {
    return raw_call(SYS_fstat, fd, (long)facts, 0, 0, 0, 0);
}

static int open_directory(const char *path) {
    return (int)raw_call(SYS_openat, AT_FDCWD, (long)path,
                         O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC, 0, 0, 0);
}

int os_open_private(const char *path) {
    struct stat facts;
    int fd = open_directory(path);
    if (fd < 0) {
        return fd;
    }
    long error = look_at(fd, &facts);
    if (error == 0 && (facts.st_uid != os_user() || (facts.st_mode & OTHERS) != 0)) {
        error = -EPERM;
    }
    if (error != 0) {
        os_close(fd);
        return (int)error;
    }
    return os_move_high(fd);
}

int os_make_private(const char *path) {
    int fd = os_open_private(path);
    if (fd == -ENOENT && raw_call(SYS_mkdirat, AT_FDCWD, (long)path, PRIVATE_MODE, 0, 0, 0) == 0) {
        fd = os_open_private(path);
    }
    return fd;
}

static long look_in(int directory, const char *name, struct stat *facts) {
    return raw_call(SYS_newfstatat, directory, (long)name, (long)facts, AT_SYMLINK_NOFOLLOW, 0, 0);
}

int os_remove_in(int directory, const char *name) {
    return (int)raw_call(SYS_unlinkat, directory, (long)name, 0, 0, 0, 0);
}

int os_remove_same(int directory, const char *name, uint64_t device, uint64_t inode) {
    struct stat facts;
    long error = look_in(directory, name, &facts);
    if (error != 0) {
        return (int)error;
    }
    bool is_same = facts.st_dev == device && facts.st_ino == inode;
    return is_same ? os_remove_in(directory, name) : -ESTALE;
}

/* ---------------------------------------------------------------- connections */

static long make_socket(void) {
    return raw_call(SYS_socket, AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, 0, 0, 0);
}

static struct sockaddr_un address_in(int directory, const char *name) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    fmt_text(address.sun_path, sizeof(address.sun_path), "/proc/self/fd/%d/%s", directory, name);
    return address;
}

static long bind_and_listen(int fd, int directory, const char *name, struct stat *facts) {
    struct sockaddr_un address = address_in(directory, name);
    long error = raw_call(SYS_bind, fd, (long)&address, sizeof(address), 0, 0, 0);
    if (error != 0) {
        return error;
    }
    error = raw_call(SYS_fchmodat, directory, (long)name, SOCKET_MODE, 0, 0, 0);
    if (error == 0) {
        error = look_in(directory, name, facts);
    }
    if (error == 0) {
        error = raw_call(SYS_listen, fd, BACKLOG, 0, 0, 0, 0);
    }
    if (error != 0) {
        os_remove_in(directory, name);
    }
    return error;
}

int os_listen(int directory, const char *name, uint64_t *device, uint64_t *inode) {
    struct stat facts = {0};
    long made = make_socket();
    int fd = made < 0 ? (int)made : os_move_high((int)made);
    if (fd < 0) {
        return fd;
    }
    long error = bind_and_listen(fd, directory, name, &facts);
    if (error != 0) {
        os_close(fd);
        return (int)error;
    }
    *device = facts.st_dev;
    *inode = facts.st_ino;
    return fd;
}

bool os_is_stale(int directory, const char *name) {
    struct stat facts;
    if (look_in(directory, name, &facts) != 0 || !S_ISSOCK(facts.st_mode) ||
        facts.st_uid != os_user()) {
        return false;
    }
    int fd = (int)make_socket();
    if (fd < 0) {
        return false;
    }
    struct sockaddr_un address = address_in(directory, name);
    long answer = raw_call(SYS_connect, fd, (long)&address, sizeof(address), 0, 0, 0);
    os_close(fd);
    return answer == -ECONNREFUSED;
}

int os_accept(int fd) {
    long accepted = raw_call(SYS_accept4, fd, 0, 0, SOCK_CLOEXEC | SOCK_NONBLOCK, 0, 0);
    return accepted < 0 ? (int)accepted : os_move_high((int)accepted);
}

bool os_peer(int fd, uint32_t *pid, uint32_t *user) {
    struct ucred peer;
    socklen_t length = sizeof(peer);
    if (raw_call(SYS_getsockopt, fd, SOL_SOCKET, SO_PEERCRED, (long)&peer, (long)&length, 0) != 0 ||
        length != sizeof(peer)) {
        return false;
    }
    *pid = (uint32_t)peer.pid;
    *user = peer.uid;
    return true;
}

void os_shut(int fd) {
    raw_call(SYS_shutdown, fd, SHUT_RDWR, 0, 0, 0, 0);
}

/* ---------------------------------------------------------------- messages */

/* Room for one descriptor and no more: the kernel closes others and says so. */
union control {
    struct cmsghdr head;
    char bytes[CMSG_SPACE(sizeof(int))];
};

/* The descriptor in a message, or -1; -EBADMSG when there is anything else. */
static int take_descriptor(struct msghdr *message) {
    int fd = -1;
    struct cmsghdr *head = CMSG_FIRSTHDR(message);
    if (head != NULL && head->cmsg_level == SOL_SOCKET && head->cmsg_type == SCM_RIGHTS &&
        head->cmsg_len == CMSG_LEN(sizeof(int))) {
        fd = *(int *)(void *)CMSG_DATA(head);
    }
    if (message->msg_flags & MSG_CTRUNC) {
        if (fd >= 0) {
            os_close(fd);
        }
        return -EBADMSG;
    }
    return fd;
}

static ssize_t receive(int fd, struct msghdr *message) {
    long length;
    do {
        length = raw_call(SYS_recvmsg, fd, (long)message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC, 0, 0, 0);
    } while (length == -EINTR);
    return length;
}

ssize_t os_receive(int fd, void *bytes, size_t capacity, int *passed) {
    union control control;
    struct iovec piece = {bytes, capacity};
    struct msghdr message = {.msg_iov = &piece,
                             .msg_iovlen = 1,
                             .msg_control = &control,
                             .msg_controllen = CMSG_LEN(sizeof(int))};
    *passed = -1;
    ssize_t length = receive(fd, &message);
    if (length < 0) {
        return length;
    }
    int descriptor = take_descriptor(&message);
    if (descriptor < -1) {
        return descriptor;
    }
    if (message.msg_flags & MSG_TRUNC) {
        length = -EMSGSIZE;
    }
    if (descriptor >= 0 && length > 0) {
        descriptor = os_move_high(descriptor);
        length = descriptor < 0 ? -EBADMSG : length;
    } else if (descriptor >= 0) {
        os_close(descriptor);
        descriptor = -1;
    }
    *passed = descriptor >= 0 ? descriptor : -1;
    return length;
}

int os_send(int fd, const void *bytes, size_t length) {
    long sent =
        raw_call(SYS_sendto, fd, (long)bytes, (long)length, MSG_NOSIGNAL | MSG_DONTWAIT, 0, 0);
    return sent < 0 ? (int)sent : 0;
}

/* ---------------------------------------------------------------- output */

int os_check_output(int fd) {
    struct stat facts;
    long error = look_at(fd, &facts);
    if (error != 0) {
        return (int)error;
    }
    if (!S_ISREG(facts.st_mode) && !S_ISFIFO(facts.st_mode)) {
        return -EINVAL;
    }
    long flags = raw_call(SYS_fcntl, fd, F_GETFL, 0, 0, 0, 0);
    if (flags < 0) {
        return (int)flags;
    }
    bool may_write = (flags & O_ACCMODE) == O_WRONLY || (flags & O_ACCMODE) == O_RDWR;
    return may_write && !(flags & O_PATH) ? 0 : -EBADF;
}

static long wait_for(struct pollfd *items, unsigned count, int64_t ms) {
    struct timespec time = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000};
    return raw_call(SYS_ppoll, (long)items, (long)count, ms < 0 ? 0 : (long)&time, 0, 0, 0);
}

/* A reader that has room is not too slow, however late it is: we may not have run for a while. */
static bool wait_for_room(int fd, uint64_t end_ms) {
    long ready = 0;
    uint64_t left_ms;
    do {
        uint64_t now_ms = os_now_ms();
        struct pollfd item = {.fd = fd, .events = POLLOUT};
        left_ms = end_ms > now_ms ? end_ms - now_ms : 0;
        ready = wait_for(&item, 1, (int64_t)left_ms);
    } while (ready == -EINTR || (ready == 0 && left_ms > 0));
    return ready != 0; /* If there is an error, writing will tell. */
}

/* A pipe that has room at all has room for a page. */
int os_write_before(int fd, const void *bytes, size_t length, uint64_t end_ms) {
    const char *next = bytes;
    while (length > 0) {
        size_t piece = min_size(length, PIPE_PIECE);
        if (!wait_for_room(fd, end_ms)) {
            return -ETIMEDOUT;
        }
        int error = os_write_all(fd, next, piece);
        if (error != 0 && error != -EAGAIN) {
            return error;
        }
        if (error == 0) {
            next += piece;
            length -= piece;
        }
    }
    return 0;
}

int os_wait_for_input(struct os_waited *waited, unsigned count, int ms) {
    struct pollfd items[OS_MOST_WAITED] = {0};
    count = (unsigned)min_size(count, OS_MOST_WAITED);
    for (unsigned i = 0; i < count; i++) {
        items[i] = (struct pollfd){.fd = waited[i].fd, .events = POLLIN};
    }
    long ready = wait_for(items, count, ms);
    for (unsigned i = 0; i < count; i++) {
        waited[i].is_ready = ready > 0 && items[i].revents != 0;
        waited[i].has_ended = ready > 0 && items[i].revents & (POLLHUP | POLLERR | POLLNVAL);
    }
    return ready < 0 && ready != -EINTR ? (int)ready : 0;
}
