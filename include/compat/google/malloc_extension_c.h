/* SPDX-License-Identifier: MIT
 *
 * google/malloc_extension_c.h - the old name of gperftools/malloc_extension_c.h.
 */
#ifndef TALLY_COMPAT_GOOGLE_MALLOC_EXTENSION_C_H
#define TALLY_COMPAT_GOOGLE_MALLOC_EXTENSION_C_H

#include <gperftools/malloc_extension_c.h>

#endif
