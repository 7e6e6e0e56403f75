/* SPDX-License-Identifier: MIT
 *
 * pager.h - long text on a terminal goes through a pager.
 *
 * Standard output between begin and end is kept.  If it fits on the screen it is then printed as it
 * is, otherwise $TALLY_PAGER, $PAGER or less shows it.  Nothing happens where standard output is no
 * terminal, or with --no-pager.
 */
#pragma once

void pager_begin(void);
void pager_end(void);
