/* SPDX-License-Identifier: MIT
 *
 * pager.h - long text on a terminal goes through a pager.
 *
 * Between begin and end standard output is kept.  What fits on the screen is then printed as it is, the rest
 * is shown by $TALLY_PAGER, $PAGER or less.  Nothing happens where standard output is no terminal, or with
 * --no-pager.
 */
#pragma once

void pager_begin(void);
void pager_end(void);
