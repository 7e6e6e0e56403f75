/* SPDX-License-Identifier: MIT
 *
 * misuse_free_file_map.c - memory mapped from a file is freed.
 */
#include "misuse.h"

#include <sys/mman.h>

static void misuse(size_t size __attribute__((unused)), int variant __attribute__((unused))) {
    int fd = open("/proc/self/exe", O_RDONLY);
    void *p = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE, fd, 0);
    expect("free(%p): not memory of this heap", p);
    free(launder(p));
}
