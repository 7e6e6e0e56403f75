/* SPDX-License-Identifier: MIT
 *
 * os_call.h - a system call by hand, for the files that implement os.h and for nobody else.
 *
 * libc's wrappers would be cancellation points, would touch errno (free must leave it alone), and may be
 * replaced by a program or a library that allocates inside them.
 */
#pragma once

#if defined(__x86_64__)
static inline long raw_call(long number, long a, long b, long c, long d, long e, long f) {
    register long r10 __asm__("r10") = d;
    register long r8 __asm__("r8") = e;
    register long r9 __asm__("r9") = f;
    long result;
    __asm__ volatile("syscall"
                     : "=a"(result)
                     : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
                     : "rcx", "r11", "memory");
    return result;
}
#elif defined(__aarch64__)
static inline long raw_call(long number, long a, long b, long c, long d, long e, long f) {
    register long x8 __asm__("x8") = number;
    register long x0 __asm__("x0") = a;
    register long x1 __asm__("x1") = b;
    register long x2 __asm__("x2") = c;
    register long x3 __asm__("x3") = d;
    register long x4 __asm__("x4") = e;
    register long x5 __asm__("x5") = f;
    __asm__ volatile("svc 0"
                     : "+r"(x0)
                     : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4), "r"(x5)
                     : "memory");
    return x0;
}
#else
#error "tally knows the system calls of x86-64 and aarch64 only"
#endif

/* The kernel orders what a thread did before it unmapped an address and what another does after it got the
 * same one.  The thread sanitizer does not see that unless it is told. */
#ifdef __SANITIZE_THREAD__
#include <stdatomic.h>
extern _Atomic unsigned os_unmappings;
static inline void os_order_unmap(void) {
    atomic_fetch_add_explicit(&os_unmappings, 1, memory_order_release);
}
static inline void os_order_map(void) {
    (void)atomic_load_explicit(&os_unmappings, memory_order_acquire);
}
#else
static inline void os_order_unmap(void) {
}
static inline void os_order_map(void) {
}
#endif
