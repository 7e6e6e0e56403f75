/* SPDX-License-Identifier: MIT
 *
 * usdt.c - two places in the code that agents can find and stop at.
 *
 * A probe is a nop, and a note in the library's file that says where it is, in which registers its
 * arguments are, and where its semaphore is: a 16-bit number that the kernel increases in the
 * memory of the process while somebody listens.  The form of the note is that of systemtap, version
 * 3, which bpftrace, perf, gdb and OpenTelemetry's profiler read; `readelf -n` prints it.
 *
 *      name size, description size, type 3, "stapsdt"
 *      address of the nop, link-time address of _.stapsdt.base, address of the semaphore
 *      provider, name, arguments, each with a NUL
 *
 * A reader compares the base with where the section .stapsdt.base is, and so learns by how much the
 * addresses were moved after linking.  The semaphores are in heap/bin.h, beside the word that every
 * slow call looks at anyway: an agent that attaches is noticed at the next slow call of any thread.
 *
 * Weight.  A sampled object of s bytes stands for s / p bytes, p = 1 - e^(-s/R).  Listeners expect
 * a multiple of R: the number of samples that a walk along the bytes would have taken.  The
 * multiple below or above s / p is drawn so that the mean is right.
 */
#include "prof/usdt.h"

#include <stddef.h>

#include "base/real.h"

_Static_assert(offsetof(struct bin_unusual_line, word) == 0 && BIN_ALLOC_AGENTS == 4 &&
                   BIN_FREE_AGENTS == 6,
               "the notes below name these places");

/* The section that notes are relative to.  One byte, once in every file it is linked into. */
__asm__(".pushsection .stapsdt.base,\"aG\",\"progbits\",.stapsdt.base,comdat\n"
        ".weak _.stapsdt.base\n"
        ".hidden _.stapsdt.base\n"
        "_.stapsdt.base: .space 1\n"
        ".size _.stapsdt.base, 1\n"
        ".popsection\n");

/* The note of the probe at label 990; the arguments are those of the asm statement around it. */
#define NOTE(name, semaphore, arguments)                                                           \
    "990: nop\n"                                                                                   \
    ".pushsection .note.stapsdt,\"\",\"note\"\n"                                                   \
    ".balign 4\n"                                                                                  \
    ".4byte 992f-991f, 994f-993f, 3\n"                                                             \
    "991: .asciz \"stapsdt\"\n"                                                                    \
    "992: .balign 4\n"                                                                             \
    "993: .8byte 990b, _.stapsdt.base, " semaphore "\n"                                            \
    ".asciz \"otel_memory\"\n"                                                                     \
    ".asciz \"" name "\"\n"                                                                        \
    ".asciz \"" arguments "\"\n"                                                                   \
    "994: .balign 4\n"                                                                             \
    ".popsection\n"

/* One site each.  clang does not clone, and does not know the attribute. */
#if __has_attribute(noclone)
#define SITE __attribute__((noinline, noclone))
#else
#define SITE __attribute__((noinline))
#endif

SITE void usdt_alloc(const void *object, size_t size, uint64_t weight) {
    __asm__ volatile(NOTE("alloc", "bin_unusual+4", "8@%0 8@%1 8@%2")
                     :
                     : "r"(object), "r"(size), "r"(weight)
                     : "memory");
}

SITE void usdt_free(const void *object) {
    __asm__ volatile(NOTE("free", "bin_unusual+6", "8@%0") : : "r"(object) : "memory");
}

uint64_t usdt_weight(size_t usable, uint64_t rate) {
    double interval = (double)max_size(rate, 1);
    double chance = rate > 1 ? real_one_minus_exp((double)usable / interval) : 1;
    double samples = (double)usable / (chance * interval) + track_random();
    const double most = 0x1p62 / interval;
    return (uint64_t)(samples < most ? samples : most) * max_size(rate, 1);
}

COLD void usdt_tell_sampled(const void *object, size_t size, size_t usable) {
    usdt_alloc(object, size, usdt_weight(usable, track_rate()));
}
