/* SPDX-License-Identifier: MIT
 *
 * google/tcmalloc.h - the old name of gperftools/tcmalloc.h.
 */
#ifndef TALLY_COMPAT_GOOGLE_TCMALLOC_H
#define TALLY_COMPAT_GOOGLE_TCMALLOC_H

#include <gperftools/tcmalloc.h>

#endif
