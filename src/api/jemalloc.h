/* SPDX-License-Identifier: MIT
 *
 * jemalloc.h - what the start of the library needs of jemalloc's variables.
 */
#pragma once

/* From now on all that the library says goes through the program's malloc_message, if it sets one. */
void jemalloc_init(void);

/* The program's je_malloc_conf and je_malloc_conf_2_conf_harder, or what the prefix makes of these
 * names; NULL where it has none. */
const char *jemalloc_conf(void);
const char *jemalloc_conf_harder(void);
