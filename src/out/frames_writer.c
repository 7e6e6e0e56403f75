/* SPDX-License-Identifier: MIT
 *
 * frames_writer.c - appends frames to a file that is whole after each of them.
 *
 * A frame is made in memory of its own, with its sums, and written by one call.  The file is opened
 * for that call alone: a descriptor that we kept could be closed by the program and be another file's
 * the next moment.  So each time the file is looked at before it is written to: it must be the one that was
 * made here.  What a write leaves half done is cut off again; if the process is killed in the middle,
 * readers find that out by the sums.
 *
 * Cost        A snapshot of 20,000 stacks with 20 frames each: see docs/manual/run.md.
 * Read next   frames.h; control/recorder.c says when.
 */
#include "out/frames_writer.h"

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

/* Fills in the head of a frame whose payload lies behind room for it, and aligns its end.  `at` is where
 * the head is in the pile; false without memory. */
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

static bool is_ours(const struct frames *frames, const struct os_identity *found) {
    return found->device == frames->device && found->inode == frames->inode &&
           found->bytes >= frames->bytes;
}

/* Behind the last whole frame; what is there, if anything, is half of one. */
static int write_at_end(struct frames *frames, int fd, const struct pile *pile) {
    struct os_identity found;
    int error = os_identify(fd, &found);
    if (error != 0) {
        return error;
    }
    if (!is_ours(frames, &found)) {
        return -ESTALE;
    }
    if (found.bytes > frames->bytes) {
        error = os_truncate(fd, frames->bytes);
    }
    error = error != 0 ? error : os_check_room(fd, pile->length);
    error = error != 0 ? error : os_write_all(fd, pile->bytes, pile->length);
    if (error != 0) {
        (void)os_truncate(fd, frames->bytes);
        return error;
    }
    frames->bytes += pile->length;
    return 0;
}

static int append(struct frames *frames, const struct pile *pile) {
    int fd = os_append(frames->path);
    if (fd < 0) {
        return fd;
    }
    int error = write_at_end(frames, fd, pile);
    int closed = os_close(fd); /* Some file systems find out here that there is no room. */
    return error != 0 ? error : closed;
}

/* A frame of bytes that are there already. */
static int append_bytes(struct frames *frames, enum frame_type type, const void *bytes,
                        size_t length) {
    struct pile pile = {0};
    uint64_t t_ns = frames_now(frames);
    int error = put_head(&pile) && put(&pile, bytes, length) && seal(&pile, 0, type, t_ns)
                    ? append(frames, &pile)
                    : -ENOMEM;
    pile_release(&pile);
    return error;
}

uint64_t frames_now(const struct frames *frames) {
    return os_now_ns() - frames->start_ns;
}

/* ---------------------------------------------------------------- begin and end */

static int create(struct frames *frames, const char *path) {
    size_t length = strlen(path);
    if (length + sizeof(".part") > sizeof(frames->path)) {
        return -ENAMETOOLONG;
    }
    if (length == 0) {
        return -ENOENT;
    }
    if (os_exists(path)) {
        return -EEXIST; /* We would learn it at the end, too. */
    }
    fmt_text(frames->path, sizeof(frames->path), "%s.part", path);
    return os_create(frames->path);
}

static int begin(struct frames *frames, int fd, const struct pile *pile) {
    struct os_identity found;
    int error = os_identify(fd, &found);
    if (error != 0) {
        return error;
    }
    frames->device = found.device;
    frames->inode = found.inode;
    return write_at_end(frames, fd, pile);
}

int frames_begin(struct frames *frames, const char *path, const char *lines, size_t length) {
    struct pile pile = {0};
    *frames = (struct frames){.process = os_process_id(), .start_ns = os_now_ns()};
    int error = -ENOMEM;
    if (put_file_header(&pile, frames->start_ns) && put_head(&pile) && put(&pile, lines, length) &&
        seal(&pile, FRAMES_HEADER_BYTES, FRAME_HEAD, 0)) {
        int fd = create(frames, path);
        error = fd;
        if (fd >= 0) {
            error = begin(frames, fd, &pile);
            int closed = os_close(fd);
            error = error != 0 ? error : closed;
            if (error != 0) {
                os_remove(frames->path);
            }
        }
    }
    pile_release(&pile);
    return error;
}

int frames_end(struct frames *frames, const char *lines, size_t length) {
    char path[OUT_FILE_NAME_BYTES];
    int error = append_bytes(frames, FRAME_BYE, lines, length);
    if (error == 0) {
        size_t name = strlen(frames->path) - strlen(".part");
        memcpy(path, frames->path, name);
        path[name] = '\0';
        error = os_rename(frames->path, path);
    }
    return error;
}

/* ---------------------------------------------------------------- frames */

int frames_stat(struct frames *frames, const struct frames_point *points, unsigned count) {
    _Static_assert(sizeof(*points) == 6 * 8, "six words, as the format has them");
    return append_bytes(frames, FRAME_STAT, points, count * sizeof(*points));
}

int frames_note(struct frames *frames, const char *text) {
    return append_bytes(frames, FRAME_NOTE, text, strlen(text));
}

int frames_leaks(struct frames *frames, const char *text, size_t length) {
    return append_bytes(frames, FRAME_LEAK, text, length);
}

int frames_profile(struct frames *frames, enum frame_type type, uint64_t most,
                   int (*dump)(struct out_sink sink)) {
    struct pile pile = {0};
    uint64_t t_ns = frames_now(frames);
    int error = put_head(&pile) ? dump((struct out_sink){out_to_pile, &pile, false}) : -ENOMEM;
    if (error == 0 && pile.length > most) {
        error = -EMSGSIZE;
    }
    if (error == 0) {
        error = seal(&pile, 0, type, t_ns) ? append(frames, &pile) : -ENOMEM;
    }
    pile_release(&pile);
    return error;
}
