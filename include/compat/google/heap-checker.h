/* SPDX-License-Identifier: MIT
 *
 * google/heap-checker.h - the old name of gperftools/heap-checker.h.
 */
#ifndef TALLY_COMPAT_GOOGLE_HEAP_CHECKER_H
#define TALLY_COMPAT_GOOGLE_HEAP_CHECKER_H

#include <gperftools/heap-checker.h>

#endif
