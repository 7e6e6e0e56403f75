/* SPDX-License-Identifier: MIT
 *
 * event.h - one sampled object and, if it was freed, its end: what prof_log and prof_recent consist of.
 */
#pragma once

#include "base/common.h"

struct prof_event {
    uint32_t stack, thread; /* numbers of prof.h */
    uint32_t freed_stack, freed_thread;
    uint64_t born_ns, freed_ns;
    size_t requested, usable;
    bool is_freed;
    bool end_is_known; /* where, by whom and when */
};
