/* SPDX-License-Identifier: MIT
 *
 * os_confined.c - confinement, on Linux: no_new_privs and seccomp.
 *
 * Threads     The note is set before the kernel is asked, so no thread can miss it afterwards.  It
 *             stays when the kernel refuses: then we ask for less than we could.
 */
#include "base/os_confined.h"

#include <linux/seccomp.h>
#include <stdatomic.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#include "base/os_call.h"

static struct {
    _Atomic bool may_have_filter; /* the program has done what comes before a filter */
} g;

bool os_ask_confined(void) {
    return raw_call(SYS_prctl, PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0, 0) == 1 &&
           raw_call(SYS_prctl, PR_GET_SECCOMP, 0, 0, 0, 0, 0) != SECCOMP_MODE_DISABLED;
}

/* A library that leaves libc's names alone does not see prctl, and has to ask. */
bool os_is_confined(void) {
    return os_facts.confined ||
           (TALLY_OVERRIDE ? atomic_load_explicit(&g.may_have_filter, memory_order_relaxed)
                           : os_ask_confined());
}

long os_prctl_for_program(int option, const unsigned long arguments[4]) {
    if (option == PR_SET_NO_NEW_PRIVS || option == PR_SET_SECCOMP) {
        atomic_store_explicit(&g.may_have_filter, true, memory_order_seq_cst);
    }
    return raw_call(SYS_prctl, option, (long)arguments[0], (long)arguments[1], (long)arguments[2],
                    (long)arguments[3], 0);
}
