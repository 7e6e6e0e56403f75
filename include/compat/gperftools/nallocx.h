/* SPDX-License-Identifier: MIT
 *
 * gperftools/nallocx.h - the usable size of a request under gperftools' names, served by tally.
 *
 * nallocx is in libtally.so, tc_nallocx in libtally-gperftools.so.
 */
#ifndef TALLY_COMPAT_GPERFTOOLS_NALLOCX_H
#define TALLY_COMPAT_GPERFTOOLS_NALLOCX_H

#include <stddef.h>

#ifndef MALLOCX_LG_ALIGN
#define MALLOCX_LG_ALIGN(lg_alignment) ((int)(lg_alignment))
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* Bytes that a request of this size has; flags are 0 or MALLOCX_LG_ALIGN(log2 of an alignment). */
size_t nallocx(size_t size, int flags);
size_t tc_nallocx(size_t size, int flags);

#ifdef __cplusplus
}
#endif

#endif
