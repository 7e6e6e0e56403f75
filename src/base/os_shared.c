/* SPDX-License-Identifier: MIT
 *
 * os_shared.c - memory with a name, by memfd_create.
 *
 * The order matters: the seal against writing does not concern mappings that exist, so we map first.
 */
#define _GNU_SOURCE /* F_ADD_SEALS */
#include "base/os_shared.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include "base/os.h"
#include "base/os_call.h"

/* As the kernel counts, for older headers. */
enum { MEMFD_CLOEXEC = 1, MEMFD_ALLOW_SEALING = 2, MEMFD_NOEXEC_SEAL = 8 };
enum { SEAL_SEAL = 1, SEAL_SHRINK = 2, SEAL_GROW = 4, SEAL_FUTURE_WRITE = 16 };

int os_copy_high(int fd) {
    static const int least[] = {512, 128, 32, 10, 3};
    long moved = -EMFILE;
    for (size_t i = 0; moved < 0 && i < sizeof(least) / sizeof(least[0]); i++) {
        moved = raw_call(SYS_fcntl, fd, F_DUPFD_CLOEXEC, least[i], 0, 0, 0);
    }
    return (int)moved;
}

int os_move_high(int fd) {
    int moved = os_copy_high(fd);
    os_close(fd);
    return moved;
}

bool os_inode_of(int fd, uint64_t *device, uint64_t *inode) {
    struct stat facts;
    if (raw_call(SYS_fstat, fd, (long)&facts, 0, 0, 0, 0) != 0) {
        return false;
    }
    *device = facts.st_dev;
    *inode = facts.st_ino;
    return true;
}

/* Some systems allow only what cannot be executed, and older kernels do not know how to say that. */
static int make_file(const char *name) {
    long fd = raw_call(SYS_memfd_create, (long)name, MEMFD_CLOEXEC | MEMFD_NOEXEC_SEAL, 0, 0, 0, 0);
    if (fd == -EINVAL) {
        fd =
            raw_call(SYS_memfd_create, (long)name, MEMFD_CLOEXEC | MEMFD_ALLOW_SEALING, 0, 0, 0, 0);
    }
    return fd < 0 ? (int)fd : os_move_high((int)fd);
}

static int seal(int fd) {
    int seals = SEAL_SEAL | SEAL_SHRINK | SEAL_GROW;
    long error = raw_call(SYS_fcntl, fd, F_ADD_SEALS, seals | SEAL_FUTURE_WRITE, 0, 0, 0);
    if (error == -EINVAL) {
        error = raw_call(SYS_fcntl, fd, F_ADD_SEALS, seals, 0, 0, 0);
    }
    return (int)error;
}

/* A file that is made longer than the limit for files allows would be a signal that ends the program. */
static bool limit_allows(size_t bytes) {
    struct rlimit limit = {0};
    long error = raw_call(SYS_prlimit64, 0, RLIMIT_FSIZE, 0, (long)&limit, 0, 0);
    return error == 0 && limit.rlim_cur >= bytes;
}

static int map_and_seal(struct os_shared *made) {
    if (!limit_allows(made->bytes)) {
        return -EFBIG;
    }
    long error = raw_call(SYS_ftruncate, made->fd, (long)made->bytes, 0, 0, 0, 0);
    if (error != 0) {
        return (int)error;
    }
    long start =
        raw_call(SYS_mmap, 0, (long)made->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, made->fd, 0);
    if (os_is_error(start)) {
        return (int)start;
    }
    os_order_map();
    made->start = (void *)start;
    return os_inode_of(made->fd, &made->device, &made->inode) ? seal(made->fd) : -EBADF;
}

int os_shared_make(struct os_shared *made, const char *name, size_t bytes) {
    *made = (struct os_shared){.bytes = bytes, .fd = make_file(name)};
    if (made->fd < 0) {
        return made->fd;
    }
    int error = map_and_seal(made);
    if (error != 0) {
        if (made->start != NULL) {
            os_unmap(made->start, bytes);
        }
        os_close(made->fd);
        *made = (struct os_shared){.fd = -1};
    }
    return error;
}

void os_shared_leave(struct os_shared *shared) {
    uint64_t device, inode;
    if (shared->start == NULL) {
        return;
    }
    os_unmap(shared->start, shared->bytes);
    if (os_inode_of(shared->fd, &device, &inode) && device == shared->device &&
        inode == shared->inode) {
        os_close(shared->fd);
    }
    *shared = (struct os_shared){.fd = -1};
}
