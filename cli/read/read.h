/* SPDX-License-Identifier: MIT
 *
 * read.h - files of profiles, recognised by their content.
 *
 * Input is hostile: readers check every offset and length, bound every loop, and on damage leave
 * only a sentence in `why`.  They read from memory, in a process without rights (read_worker.h).
 */
#pragma once

#include "profile/profile.h"

enum { READ_WHY_BYTES = 256, READ_MOST_BYTES = 1 << 30 };

/* Writes a sentence into `why`; returns false, for `return read_damage(...)`. */
bool read_damage(char why[READ_WHY_BYTES], const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* A regular file; "-" is the standard input.  -1 and a sentence: anything else might block. */
int read_open(const char *path, char why[READ_WHY_BYTES]);
/* All of it, and unpacked (gzip): at most 1 GiB.  NULL and a sentence. */
uint8_t *read_descriptor(int fd, size_t *length, char why[READ_WHY_BYTES]);

/* One moment of a recorded run.  There can be many, so only the last one's profile is made at once;
 * the others are NULL until read_moment() makes them. */
struct read_moment {
    uint64_t t_ns; /* since the program's start */
    struct profile *profile;
    struct read_payload *payload; /* what it is made from; read_tally.c */
};

/* A note of the program: armed, disarmed, a trigger. */
struct read_note {
    uint64_t t_ns;
    const char *text;
};

/* A point of the statistics series. */
struct read_point {
    uint64_t t_ns;
    uint64_t rss, live, held;  /* bytes: of the process, in use by it, taken by the heap */
    uint64_t allocated, freed; /* bytes so far */
};

/* What a leak check found.  Sums are exact; the samples of the profile, with the types leak_objects
 * and leak_space and a label "kind", are estimates where not everything is recorded. */
enum {
    READ_LEAK_DEFINITE,
    READ_LEAK_INDIRECT,
    READ_LEAK_POSSIBLE,
    READ_LEAK_REACHABLE,
    READ_LEAK_IGNORED,
    READ_LEAK_SUPPRESSED,
    READ_LEAK_SUMS
};
struct read_leak_sum {
    int64_t objects, bytes, requested; /* bytes at usable size; requested where known */
};
struct read_leaks {
    int64_t heap, roots;         /* bytes that were searched */
    int64_t threads, unanswered; /* and those that did not stop */
    int64_t pause_ns, total_ns;
    int64_t rate; /* mean bytes between samples; 1: all, 0: none */
    int64_t
        rounded; /* of the definite and indirect objects, those whose size is told at usable size */
    struct read_leak_sum sums[READ_LEAK_SUMS];
    const char *why; /* a remark about the check, or "" */
    struct profile *profile;
};

/* What a file holds: a single profile is a run of one moment. */
struct read_run {
    const char *format; /* "tally", "pprof", "jemalloc", "gperftools", "gperftools-cpu", "folded" */
    struct read_moment *moments; /* in order of time; the last is the end */
    uint32_t moment_count;
    struct profile *peak;    /* NULL: unknown, or the types peak_* of a moment have it */
    struct read_moment *cpu; /* the same moments, where the processor's time was recorded, too */
    uint32_t cpu_count;
    struct read_leaks *leaks; /* of the last check; NULL: there was none */
    struct read_point *points;
    uint32_t point_count;
    struct read_note *notes;
    uint32_t note_count;
    const char *program, *arguments, *host, *version; /* "" where unknown */
    uint64_t pid, start_wall_ns, rate;
    bool has_ended;            /* normally: a last frame says so */
    bool lacks_end;            /* the last moment is not the end: that was not, or badly, written */
    bool has_status;           /* that frame says how, too: */
    int status;                /* as of wait(2) */
    bool has_live_blocks;      /* that frame says how many, too: */
    uint64_t live_blocks;      /* held at the end, counted */
    uint64_t samples, dropped; /* taken, and lost for want of memory, at the end */
    uint64_t cpu_lost;         /* samples of the processor's time that were lost */
    uint64_t cpu_left_out;     /* threads whose time could not be sampled */
    uint64_t lost_bytes;       /* after the last whole frame; with --salvage also between frames */
    uint64_t unknown_frames;
    uint64_t file_bytes;        /* unpacked; 0: there was no file */
    struct read_worker *worker; /* which makes the moments; NULL: they are made here */
};

/* The name of a format as read_run has it, or NULL.  "leaks", the answer of a process, is read only
 * when it is named. */
const char *read_format(const char *name);

/* NULL and a sentence when it is no profile or damaged. */
struct read_run *read_run(const uint8_t *bytes, size_t length, char why[READ_WHY_BYTES]);
/* The same for bytes of this format; NULL: it is guessed. */
struct read_run *read_run_as(const char *format, const uint8_t *bytes, size_t length,
                             char why[READ_WHY_BYTES]);
/* A run without moments. */
struct read_run *read_run_new(const char *format, const char *program);
/* A run of one moment, which takes over the profile. */
struct read_run *read_run_of(struct profile *profile, const char *format);
void read_run_free(struct read_run *run);

/* The profile of a moment, of memory or of the processor's time; the run keeps it.  NULL and a sentence when
 * it is damaged. */
struct profile *read_moment(struct read_run *run, uint32_t moment, char why[READ_WHY_BYTES]);
struct profile *read_cpu_moment(struct read_run *run, uint32_t moment, char why[READ_WHY_BYTES]);

/* Until when the snapshots of a run reach, where they do not reach its end: then *t_ns is the time of
 * the last one, since the program's start, and the answer says why.  NULL: nothing is missing. */
const char *read_reach(const struct read_run *run, uint64_t *t_ns);

/* Does this metric count the processor's time?  NULL: there is no metric. */
bool read_is_cpu(const char *metric);

/* The highest point: run->peak, or made of the last moment's types peak_*, which become the inuse_*
 * of a new profile that belongs to the run.  NULL where it is unknown. */
struct profile *read_peak(struct read_run *run);

/* The readers, one per format; the first bytes show which one it is for. */
bool read_is_proto(const uint8_t *bytes, size_t length);
struct profile *read_proto(const uint8_t *bytes, size_t length, char why[READ_WHY_BYTES]);
bool read_is_jemalloc(const uint8_t *bytes, size_t length);
struct profile *read_jemalloc(const uint8_t *bytes, size_t length, char why[READ_WHY_BYTES]);
bool read_is_gperftools(const uint8_t *bytes, size_t length);
struct profile *read_gperftools(const uint8_t *bytes, size_t length, char why[READ_WHY_BYTES]);
bool read_is_gperftools_cpu(const uint8_t *bytes, size_t length);
struct profile *read_gperftools_cpu(const uint8_t *bytes, size_t length, char why[READ_WHY_BYTES]);
bool read_is_folded(const uint8_t *bytes, size_t length);
struct profile *read_folded(const uint8_t *bytes, size_t length, char why[READ_WHY_BYTES]);
bool read_is_tally(const uint8_t *bytes, size_t length);
struct read_run *read_tally(const uint8_t *bytes, size_t length, char why[READ_WHY_BYTES]);
struct profile *read_tally_payload(const struct read_payload *payload, char why[READ_WHY_BYTES]);

struct read_leaks *read_leaks(const uint8_t *bytes, size_t length, char why[READ_WHY_BYTES]);
void read_leaks_free(struct read_leaks *leaks);
/* Could read_leaks() have made it?  For one that comes from a process that may lie. */
bool read_leaks_are_sound(const struct read_leaks *leaks);

/* Unpacks zlib's kinds of streams: gzip, all members of it, or one zlib stream.  At most `most`
 * bytes, and beyond a MiB at most a hundred times the packed bytes; the caller frees the result.
 * NULL and a sentence. */
enum read_stream { READ_GZIP, READ_ZLIB };
uint8_t *read_inflate(enum read_stream kind, const uint8_t *bytes, size_t length, size_t most,
                      size_t *unpacked, char why[READ_WHY_BYTES]);
