/* SPDX-License-Identifier: MIT
 *
 * google/malloc_extension.h - the old name of gperftools/malloc_extension.h.
 */
#ifndef TALLY_COMPAT_GOOGLE_MALLOC_EXTENSION_H
#define TALLY_COMPAT_GOOGLE_MALLOC_EXTENSION_H

#include <gperftools/malloc_extension.h>

#endif
