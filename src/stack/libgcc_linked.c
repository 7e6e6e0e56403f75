/* SPDX-License-Identifier: MIT
 *
 * libgcc_linked.c - libgcc as the linker finds it.
 */
#include "stack/libgcc.h"

libgcc_finder *libgcc_find(void) {
    return _Unwind_Find_FDE;
}
