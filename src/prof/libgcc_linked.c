/* SPDX-License-Identifier: MIT
 *
 * libgcc_linked.c - libgcc's unwinder as the linker finds it.
 */
#include "prof/libgcc.h"

bool libgcc_find(struct libgcc *libgcc) {
    *libgcc = (struct libgcc){
        .table = _Unwind_Find_FDE,
        .backtrace = _Unwind_Backtrace,
        .address = _Unwind_GetIPInfo,
        .reg = _Unwind_GetGR,
        .stack = _Unwind_GetCFA,
    };
    return true;
}
