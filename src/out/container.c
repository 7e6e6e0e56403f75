/* SPDX-License-Identifier: MIT
 *
 * container.c - appends frames to a file that is whole after each of them.
 *
 * A frame is made in memory of its own, with its sums, and written by one call.  The file is opened
 * for that call alone: a descriptor that we kept could be closed by the program and be another
 * file's the next moment.  So the file is checked before each write: it must be the one that was
 * created here.  What a write leaves half done is cut off again; if the process is killed in the
 * middle, readers find that out by the sums.
 *
 * Cost        A snapshot of 20,000 stacks with 20 frames each: see docs/manual/run.md.
 * Read next   contract/frames.h; control/recorder.c says when.
 */
#include "out/container.h"

#include <errno.h>
#include <string.h>

#include "base/fmt.h"
#include "base/os.h"
#include "out/gzip.h"

enum { CRC_AT = 28, ALIGNMENT = 8 };

/* ---------------------------------------------------------------- bytes */

static void put_little(char *to, uint64_t value, unsigned bytes) {
    for (unsigned i = 0; i < bytes; i++) {
        to[i] = (char)(value >> 8 * i);
    }
}

/* Fills in the head of a frame, for which there is room at `at` in the pile, before the payload,
 * and aligns the frame's end; false without memory. */
static bool seal(struct pile *pile, size_t at, enum frame_type type, uint64_t t_ns) {
    uint32_t table[256];
    size_t payload = pile->length - at - FRAME_HEAD_BYTES;
    size_t rest = align_up(pile->length, ALIGNMENT) - pile->length;
    if (!pile_grow(pile, rest)) {
        return false;
    }
    memset(pile->bytes + pile->length, 0, rest);
    pile->length += rest;
    gzip_make_crc_table(table);
    char *head = pile->bytes + at;
    memcpy(head, FRAME_MAGIC, 4);
    put_little(head + 4, type, 2);
    put_little(head + 6, 0, 2);
    put_little(head + 8, payload, 4);
    put_little(head + 12, payload, 4);
    put_little(head + 16, t_ns, 8);
    put_little(head + 24, gzip_crc(table, 0, head + FRAME_HEAD_BYTES, payload), 4);
    put_little(head + CRC_AT, gzip_crc(table, 0, head, CRC_AT), 4);
    return true;
}

static bool put(struct pile *pile, const void *bytes, size_t length) {
    return out_to_pile(pile, bytes, length) == 0;
}

/* Room for the head of a frame. */
static bool put_head(struct pile *pile) {
    static const char zeros[FRAME_HEAD_BYTES];
    return put(pile, zeros, sizeof(zeros));
}

static bool put_file_header(struct pile *pile, uint64_t start_ns) {
    char header[FRAMES_HEADER_BYTES];
    memcpy(header, FRAMES_MAGIC, 8);
    put_little(header + 8, FRAMES_MAJOR, 2);
    put_little(header + 10, FRAMES_MINOR, 2);
    put_little(header + 12, FRAMES_HEADER_BYTES, 4);
    put_little(header + 16, os_wall_ns(), 8);
    put_little(header + 24, start_ns, 8);
    return put(pile, header, sizeof(header));
}

/* ---------------------------------------------------------------- the file */

static bool is_ours(const struct container *container, const struct os_identity *found) {
    return found->device == container->device && found->inode == container->inode &&
           found->bytes >= container->bytes;
}

/* Writes behind the last whole frame; anything there is a part of an unfinished one. */
static int write_at_end(struct container *container, int fd, const struct pile *pile) {
    struct os_identity found;
    int error = os_identify(fd, &found);
    if (error != 0) {
        return error;
    }
    if (!is_ours(container, &found)) {
        return -ESTALE;
    }
    if (found.bytes > container->bytes) {
        error = os_truncate(fd, container->bytes);
    }
    error = error != 0 ? error : os_check_room(fd, pile->length);
    error = error != 0 ? error : os_write_all(fd, pile->bytes, pile->length);
    if (error != 0) {
        (void)os_truncate(fd, container->bytes);
        return error;
    }
    container->bytes += pile->length;
    return 0;
}

static int append(struct container *container, const struct pile *pile) {
    int fd = os_append(container->path);
    if (fd < 0) {
        return fd;
    }
    int error = write_at_end(container, fd, pile);
    int closed = os_close(fd); /* Some file systems notice only here that there is no room. */
    return error != 0 ? error : closed;
}

/* A frame whose bytes exist already. */
static int append_bytes(struct container *container, enum frame_type type, const void *bytes,
                        size_t length) {
    struct pile pile = {0};
    uint64_t t_ns = container_now(container);
    int error = put_head(&pile) && put(&pile, bytes, length) && seal(&pile, 0, type, t_ns)
                    ? append(container, &pile)
                    : -ENOMEM;
    pile_release(&pile);
    return error;
}

uint64_t container_now(const struct container *container) {
    return os_now_ns() - container->start_ns;
}

/* ---------------------------------------------------------------- begin and end */

static int create(struct container *container, const char *path) {
    size_t length = strlen(path);
    if (length + sizeof(".part") > sizeof(container->path)) {
        return -ENAMETOOLONG;
    }
    if (length == 0) {
        return -ENOENT;
    }
    if (os_exists(path)) {
        return -EEXIST; /* Better now than at the end. */
    }
    fmt_text(container->path, sizeof(container->path), "%s.part", path);
    return os_create(container->path);
}

static int begin(struct container *container, int fd, const struct pile *pile) {
    struct os_identity found;
    int error = os_identify(fd, &found);
    if (error != 0) {
        return error;
    }
    container->device = found.device;
    container->inode = found.inode;
    return write_at_end(container, fd, pile);
}

int container_begin(struct container *container, const char *path, const char *lines,
                    size_t length) {
    struct pile pile = {0};
    *container = (struct container){.process = os_process_id(), .start_ns = os_now_ns()};
    int error = -ENOMEM;
    if (put_file_header(&pile, container->start_ns) && put_head(&pile) &&
        put(&pile, lines, length) && seal(&pile, FRAMES_HEADER_BYTES, FRAME_HEAD, 0)) {
        int fd = create(container, path);
        error = fd;
        if (fd >= 0) {
            error = begin(container, fd, &pile);
            int closed = os_close(fd);
            error = error != 0 ? error : closed;
            if (error != 0) {
                os_remove(container->path);
            }
        }
    }
    pile_release(&pile);
    return error;
}

int container_end(struct container *container, const char *lines, size_t length) {
    char path[OUT_FILE_NAME_BYTES];
    int error = append_bytes(container, FRAME_BYE, lines, length);
    if (error == 0) {
        size_t name = strlen(container->path) - strlen(".part");
        memcpy(path, container->path, name);
        path[name] = '\0';
        error = os_rename(container->path, path);
    }
    return error;
}

/* ---------------------------------------------------------------- frames */

int container_stat(struct container *container, const struct container_point *points,
                   unsigned count) {
    _Static_assert(sizeof(*points) == 6 * 8, "six words, as the format has them");
    return append_bytes(container, FRAME_STAT, points, count * sizeof(*points));
}

int container_note(struct container *container, const char *text) {
    return append_bytes(container, FRAME_NOTE, text, strlen(text));
}

int container_leaks(struct container *container, const char *text, size_t length) {
    return append_bytes(container, FRAME_LEAK, text, length);
}

int container_profile(struct container *container, enum frame_type type, uint64_t most,
                      int (*dump)(struct out_sink sink)) {
    struct pile pile = {0};
    uint64_t t_ns = container_now(container);
    int error = put_head(&pile) ? dump((struct out_sink){out_to_pile, &pile, false}) : -ENOMEM;
    if (error == 0 && pile.length > most) {
        error = -EMSGSIZE;
    }
    if (error == 0) {
        error = seal(&pile, 0, type, t_ns) ? append(container, &pile) : -ENOMEM;
    }
    pile_release(&pile);
    return error;
}
