/* SPDX-License-Identifier: MIT
 *
 * read_tally.c - the container *.tally, as contract/frames.h has it.
 *
 * Frames are taken from the front until one is not whole: what follows is lost and counted.  That
 * is how the file of a killed program ends, so it is no error.  With --salvage the search goes on
 * after it, for files that a disk or a transfer has damaged in the middle.  Snapshots stay as
 * stored until they are needed, because a run of a week has thousands.
 */
#define _GNU_SOURCE /* memmem */
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "common/cli.h"
#include "contract/frames.h"
#include "read/read_text.h"

enum {
    SMALL_MOST = 16 << 20, /* bytes of a frame that is no snapshot */
    POINT_BYTES = 6 * 8,
    POINTS_MOST = 1 << 20,
    ARGUMENT_BYTES_MOST = 1 << 16,
    DAMAGED_SNAPSHOTS_MOST = 8,
    NOTES_MOST = 1 << 16,
};

/* A snapshot as it is stored. */
struct read_payload {
    bool is_deflated;
    uint32_t raw_bytes;
    size_t length;
    uint8_t bytes[];
};

struct frame {
    uint32_t type, flags, stored_bytes, raw_bytes, payload_crc;
    uint64_t t_ns;
    const uint8_t *payload;
};

struct tally {
    struct read_run *run;
    const uint8_t *at, *end;
    uint32_t moment_room, cpu_room, point_room, note_room;
    uint64_t unpacked_bytes; /* of small frames so far */
};

static uint64_t little(const uint8_t *bytes, unsigned count) {
    uint64_t value = 0;
    for (unsigned i = 0; i < count; i++) {
        value |= (uint64_t)bytes[i] << 8 * i;
    }
    return value;
}

static uint32_t crc_of(const uint8_t *bytes, size_t length) {
    return (uint32_t)crc32_z(0, bytes, length);
}

bool read_is_tally(const uint8_t *bytes, size_t length) {
    return length >= 8 && memcmp(bytes, FRAMES_MAGIC, 8) == 0;
}

/* ---------------------------------------------------------------- frames */

/* The head of a frame with room for its payload; false: there is none. */
static bool read_head(const struct tally *tally, struct frame *frame) {
    const uint8_t *head = tally->at;
    size_t left = (size_t)(tally->end - head);
    if (left < FRAME_HEAD_BYTES || memcmp(head, FRAME_MAGIC, 4) != 0 ||
        little(head + 28, 4) != crc_of(head, 28)) {
        return false;
    }
    frame->type = (uint32_t)little(head + 4, 2);
    frame->flags = (uint32_t)little(head + 6, 2);
    frame->stored_bytes = (uint32_t)little(head + 8, 4);
    frame->raw_bytes = (uint32_t)little(head + 12, 4);
    frame->t_ns = little(head + 16, 8);
    frame->payload_crc = (uint32_t)little(head + 24, 4);
    frame->payload = head + FRAME_HEAD_BYTES;
    return frame->stored_bytes <= left - FRAME_HEAD_BYTES;
}

/* Takes the next frame; false: it is not whole. */
static bool next_frame(struct tally *tally, struct frame *frame) {
    if (!read_head(tally, frame)) {
        return false;
    }
    size_t left = (size_t)(tally->end - frame->payload);
    size_t padded = ((size_t)frame->stored_bytes + 7) / 8 * 8;
    tally->at = frame->payload + (padded < left ? padded : left);
    return frame->payload_crc == crc_of(frame->payload, frame->stored_bytes);
}

/* Where the next head may be; the end where there is none. */
static const uint8_t *find_magic(const uint8_t *at, const uint8_t *end) {
    const uint8_t *found = memmem(at, (size_t)(end - at), FRAME_MAGIC, 4);
    return found != NULL ? found : end;
}

/* The content of a small frame, to be freed; NULL: it is damaged. */
static uint8_t *unpack(const struct frame *frame, size_t *length) {
    char why[READ_WHY_BYTES];
    if (frame->flags & FRAME_DEFLATED) {
        uint8_t *raw = read_inflate(READ_ZLIB, frame->payload, frame->stored_bytes,
                                    frame->raw_bytes, length, why);
        if (raw != NULL && *length != frame->raw_bytes) {
            free(raw);
            return NULL;
        }
        return raw;
    }
    *length = frame->stored_bytes;
    uint8_t *raw = must_alloc(*length + 1);
    memcpy(raw, frame->payload, *length);
    return raw;
}

/* ---------------------------------------------------------------- contents */

static char *copy_text(struct text text) {
    size_t length = (size_t)(text.end - text.at);
    char *copy = must_alloc(length + 1);
    memcpy(copy, text.at, length);
    copy[length] = '\0';
    return copy;
}

static void set_text(const char **place, struct text text) {
    free((void *)*place);
    *place = copy_text(text);
}

/* Appends to the earlier arguments, with a blank between. */
static void append_argument(struct read_run *run, struct text argument) {
    size_t before = strlen(run->arguments), length = (size_t)(argument.end - argument.at);
    if (before + length > ARGUMENT_BYTES_MOST) {
        return;
    }
    char *all = must_alloc(before + 1 + length + 1);
    memcpy(all, run->arguments, before);
    all[before] = ' ';
    size_t at = before + (before > 0);
    memcpy(all + at, argument.at, length);
    all[at + length] = '\0';
    free((void *)run->arguments);
    run->arguments = all;
}

static void set_number(uint64_t *place, struct text text) {
    int64_t number;
    if (text_take_decimal(&text, &number) && number >= 0) {
        *place = (uint64_t)number;
    }
}

/* "key=value" of HEAD and BYE; unknown keys are skipped. */
static void take_pair(struct read_run *run, struct text line, bool is_end) {
    struct text value = line;
    uint64_t status = 0, has_snapshot = 1;
    if (!is_end && text_take(&value, "program=")) {
        set_text(&run->program, value);
    } else if (!is_end && text_take(&value, "argument=")) {
        append_argument(run, value);
    } else if (!is_end && text_take(&value, "host=")) {
        set_text(&run->host, value);
    } else if (!is_end && text_take(&value, "version=")) {
        set_text(&run->version, value);
    } else if (!is_end && text_take(&value, "pid=")) {
        set_number(&run->pid, value);
    } else if (!is_end && text_take(&value, "rate=")) {
        set_number(&run->rate, value);
    } else if (is_end && text_take(&value, "status=")) {
        set_number(&status, value);
        run->status = (int)(status & 0xffff);
        run->has_status = true;
    } else if (is_end && text_take(&value, "samples=")) {
        set_number(&run->samples, value);
    } else if (is_end && text_take(&value, "dropped=")) {
        set_number(&run->dropped, value);
    } else if (is_end && text_take(&value, "end_snapshot=")) {
        set_number(&has_snapshot, value);
        run->lacks_end = has_snapshot == 0;
    } else if (is_end && text_take(&value, "live_blocks=")) {
        set_number(&run->live_blocks, value);
        run->has_live_blocks = true;
    } else if (is_end && text_take(&value, "cpu_lost=")) {
        set_number(&run->cpu_lost, value);
    } else if (is_end && text_take(&value, "cpu_left_out=")) {
        set_number(&run->cpu_left_out, value);
    }
}

static void take_pairs(struct read_run *run, const uint8_t *bytes, size_t length, bool is_end) {
    enum { ARGUMENTS_MOST = 4096 };
    struct text_lines lines = {{(const char *)bytes, (const char *)bytes + length}, 0};
    struct text line;
    while (text_next_line(&lines, &line) && lines.number < ARGUMENTS_MOST) {
        take_pair(run, line, is_end);
    }
    run->has_ended |= is_end;
}

static void take_points(struct tally *tally, const uint8_t *bytes, size_t length) {
    struct read_run *run = tally->run;
    for (; length >= POINT_BYTES && run->point_count < POINTS_MOST;
         bytes += POINT_BYTES, length -= POINT_BYTES) {
        run->points =
            must_have_room(run->points, run->point_count, &tally->point_room, sizeof *run->points);
        run->points[run->point_count++] = (struct read_point){
            .t_ns = little(bytes, 8),
            .rss = little(bytes + 8, 8),
            .live = little(bytes + 16, 8),
            .held = little(bytes + 24, 8),
            .allocated = little(bytes + 32, 8),
            .freed = little(bytes + 40, 8),
        };
    }
}

static void take_note(struct tally *tally, uint64_t t_ns, const uint8_t *bytes, size_t length) {
    struct read_run *run = tally->run;
    struct text text = {(const char *)bytes, (const char *)bytes + length};
    if (run->note_count == NOTES_MOST) {
        return;
    }
    while (!text_is_empty(&text) && text.end[-1] == '\n') {
        text.end--;
    }
    run->notes = must_have_room(run->notes, run->note_count, &tally->note_room, sizeof *run->notes);
    run->notes[run->note_count++] = (struct read_note){t_ns, copy_text(text)};
}

/* A later check replaces an earlier one. */
static void take_leaks(struct tally *tally, const uint8_t *bytes, size_t length) {
    char why[READ_WHY_BYTES];
    struct read_leaks *leaks = read_leaks(bytes, length, why);
    if (leaks != NULL) {
        read_leaks_free(tally->run->leaks);
        tally->run->leaks = leaks;
    }
}

/* Appends a moment; each kind of profile has a list of its own. */
static struct read_moment *take_moment(const struct frame *frame, struct read_moment *moments,
                                       uint32_t *count, uint32_t *room) {
    moments = must_have_room(moments, *count, room, sizeof *moments);
    struct read_payload *payload = must_alloc(sizeof *payload + frame->stored_bytes);
    payload->is_deflated = frame->flags & FRAME_DEFLATED;
    payload->raw_bytes = frame->raw_bytes;
    payload->length = frame->stored_bytes;
    memcpy(payload->bytes, frame->payload, frame->stored_bytes);
    uint64_t before = *count > 0 ? moments[*count - 1].t_ns : 0;
    moments[(*count)++] =
        (struct read_moment){frame->t_ns > before ? frame->t_ns : before, NULL, payload};
    return moments;
}

struct profile *read_tally_payload(const struct read_payload *payload, char why[READ_WHY_BYTES]) {
    struct profile *profile = NULL;
    if (payload->is_deflated) {
        size_t length;
        uint8_t *raw = read_inflate(READ_ZLIB, payload->bytes, payload->length, payload->raw_bytes,
                                    &length, why);
        if (raw != NULL && length == payload->raw_bytes) {
            profile = read_proto(raw, length, why);
        } else if (raw != NULL) {
            read_damage(why, "a snapshot is shorter than it says");
        }
        free(raw);
    } else {
        profile = read_proto(payload->bytes, payload->length, why);
    }
    if (profile != NULL) {
        profile->source = profile_text(profile, "tally", 5);
    }
    return profile;
}

/* ---------------------------------------------------------------- the file */

/* False: this frame is damaged inside, or must not be skipped. */
static bool take_frame(struct tally *tally, const struct frame *frame) {
    struct read_run *run = tally->run;
    bool is_profile = frame->type == FRAME_SNAP || frame->type == FRAME_CPU;
    if (is_profile && frame->raw_bytes > READ_MOST_BYTES) {
        return false;
    }
    if (frame->type == FRAME_SNAP) {
        run->moments = take_moment(frame, run->moments, &run->moment_count, &tally->moment_room);
        return true;
    }
    if (frame->type == FRAME_CPU) {
        run->cpu = take_moment(frame, run->cpu, &run->cpu_count, &tally->cpu_room);
        return true;
    }
    bool is_known = frame->type == FRAME_HEAD || frame->type == FRAME_STAT ||
                    frame->type == FRAME_NOTE || frame->type == FRAME_BYE ||
                    frame->type == FRAME_LEAK;
    if (!is_known) {
        run->unknown_frames++;
        return (frame->flags & FRAME_MUST_BE_UNDERSTOOD) == 0;
    }
    size_t length = 0;
    uint8_t *bytes = NULL;
    tally->unpacked_bytes += frame->raw_bytes;
    if (frame->raw_bytes <= SMALL_MOST && frame->stored_bytes <= SMALL_MOST &&
        tally->unpacked_bytes <= READ_MOST_BYTES) {
        bytes = unpack(frame, &length);
    }
    if (bytes == NULL) {
        return frame->type == FRAME_LEAK; /* What follows is worth more. */
    }
    if (frame->type == FRAME_STAT) {
        take_points(tally, bytes, length);
    } else if (frame->type == FRAME_NOTE) {
        take_note(tally, frame->t_ns, bytes, length);
    } else if (frame->type == FRAME_LEAK) {
        take_leaks(tally, bytes, length);
    } else {
        take_pairs(run, bytes, length, frame->type == FRAME_BYE);
    }
    free(bytes);
    return true;
}

/* A frame that must be understood ends the file for us even where damage does not. */
static void take_frames(struct tally *tally) {
    struct read_run *run = tally->run;
    bool reads_on = true;
    while (reads_on && tally->at < tally->end) {
        struct frame frame = {0};
        const uint8_t *start = tally->at;
        bool is_whole = next_frame(tally, &frame);
        if (is_whole && take_frame(tally, &frame)) {
            continue;
        }
        reads_on = cli_salvage && !(is_whole && (frame.flags & FRAME_MUST_BE_UNDERSTOOD) != 0);
        if (tally->at == start) {
            tally->at = find_magic(start + 1, tally->end);
        }
        run->lost_bytes += (uint64_t)((reads_on ? tally->at : tally->end) - start);
    }
}

/* Makes the last one now; if it turns out damaged it is lost, and the one before it is the last.
 * Where too many are damaged all are lost.  Returns how many are left. */
static uint32_t make_last(struct read_run *run, const struct read_moment *moments, uint32_t count,
                          struct profile *(*read)(struct read_run *, uint32_t, char *)) {
    char why[READ_WHY_BYTES];
    for (uint32_t tries = 0;
         count > 0 && (tries >= DAMAGED_SNAPSHOTS_MOST || read(run, count - 1, why) == NULL);
         tries++) {
        struct read_payload *payload = moments[--count].payload;
        run->lost_bytes += payload->length;
        free(payload);
    }
    return count;
}

struct read_run *read_tally(const uint8_t *bytes, size_t length, char why[READ_WHY_BYTES]) {
    if (length < FRAMES_HEADER_BYTES) {
        read_damage(why, "it was cut inside of its header");
        return NULL;
    }
    unsigned major = (unsigned)little(bytes + 8, 2), minor = (unsigned)little(bytes + 10, 2);
    uint64_t header_bytes = little(bytes + 12, 4);
    if (major != FRAMES_MAJOR) {
        read_damage(why, "it is of version %u.%u, which this tally does not know", major, minor);
        return NULL;
    }
    if (header_bytes < FRAMES_HEADER_BYTES || header_bytes > length) {
        read_damage(why, "its header is damaged");
        return NULL;
    }
    struct tally tally = {
        .run = read_run_new("tally", ""), .at = bytes + header_bytes, .end = bytes + length};
    tally.run->start_wall_ns = little(bytes + 16, 8);
    take_frames(&tally);
    struct read_run *run = tally.run;
    uint32_t stored = run->moment_count;
    run->moment_count = make_last(run, run->moments, run->moment_count, read_moment);
    run->lacks_end |= run->moment_count < stored;
    run->cpu_count = make_last(run, run->cpu, run->cpu_count, read_cpu_moment);
    return run;
}
