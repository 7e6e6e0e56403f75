/* SPDX-License-Identifier: MIT
 *
 * frames.h - the container *.tally: what a run looked like over time, as frames appended to a file.
 *
 *      file    header frame*
 *      header  "TALLY\r\n\x1a"  u16 major  u16 minor  u32 header bytes  u64 wall ns  u64 monotonic ns      32 bytes
 *      frame   "TFRM"  u16 type  u16 flags  u32 stored bytes  u32 raw bytes  u64 t_ns  u32 crc of the payload
 *              u32 crc of the 28 bytes before it; the payload; zeros up to a multiple of 8
 *
 * Little-endian; crc is CRC-32 as in gzip; t_ns counts from the header's monotonic time.  A reader skips
 * types that it does not know, unless the flag says that it must not, and stops at the first frame whose
 * sums are wrong: so a file of a killed program is good up to its last whole frame.  A deflated payload is a
 * zlib stream (RFC 1950); its sum is that of the stored bytes.
 *
 * This header is shared with the command.
 */
#pragma once

#include <stdint.h>

#define FRAMES_MAGIC "TALLY\r\n\x1a"
#define FRAME_MAGIC "TFRM"

enum { FRAMES_MAJOR = 1, FRAMES_MINOR = 0, FRAMES_HEADER_BYTES = 32, FRAME_HEAD_BYTES = 32 };

enum frame_flag { FRAME_DEFLATED = 1, FRAME_MUST_BE_UNDERSTOOD = 2 };

enum frame_type {
    FRAME_HEAD =
        1, /* lines "key=value\n": program, pid, host, rate, version, argument (one line each) */
    FRAME_SNAP =
        2, /* a whole profile.proto (not gzipped) of this moment, with mappings and build ids; its
                       sample types are alloc_objects alloc_space inuse_objects inuse_space peak_objects
                       peak_space temp_objects slack_space pinned_space; labels as in lifetimes.h; values
                       unbiased; period is the rate.  Labels like inuse_space_grain: variance / value,
                       in thousandths */
    FRAME_STAT = 3, /* points of the series: u64 t_ns rss live held allocated freed, each */
    FRAME_NOTE = 4, /* text: a trigger, a mark, a reset */
    FRAME_LEAK = 7, /* the text of leak/leak.h: what a leak check found at this moment */
    FRAME_BYE =
        5, /* lines "key=value\n": samples, dropped, snapshots, live_blocks, end_snapshot (0: the last one
                       could not be written); a clean end */
    FRAME_CPU =
        6, /* a whole profile.proto of the processor's time since the start, with mappings; its
                       sample types are samples and cpu; period is nanoseconds of a sample; it comes before
                       the snapshot of the same moment */
};
