/* SPDX-License-Identifier: MIT
 *
 * leak_plugin.c - a module whose data holds a pointer, for test_roots.c.
 */
extern void *held_by_plugin;
void *held_by_plugin;
