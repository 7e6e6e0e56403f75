/* SPDX-License-Identifier: MIT
 *
 * jemalloc.h - the variables of jemalloc's interface, as the start of the library needs them.
 */
#pragma once

/* From now on everything the library prints goes through malloc_message, if the program sets it. */
void jemalloc_init(void);

/* The program's je_malloc_conf and je_malloc_conf_2_conf_harder, under whatever prefix the library
 * has; NULL where the program sets none. */
const char *jemalloc_conf(void);
const char *jemalloc_conf_harder(void);
