/* SPDX-License-Identifier: MIT
 *
 * program_late_host.c - a C program that opens the plugin named by its argument and calls it.
 * Started by test_late_cxx.sh. The C++ runtime must come with the plugin and not before: the
 * program looks, so that the test cannot pass for the wrong reason.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>

int main(int argc, char **argv) {
    if (argc != 2) {
        fputs("usage: program_late_host PLUGIN\n", stderr);
        return 2;
    }
    if (dlsym(RTLD_DEFAULT, "_ZSt17__throw_bad_allocv") != NULL) {
        fputs("the C++ runtime is there before the plugin\n", stderr);
        return 2;
    }
    void *plugin = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
    if (plugin == NULL) {
        fprintf(stderr, "%s\n", dlerror());
        return 2;
    }
    const char *(*find_fault)(void) = (const char *(*)(void))dlsym(plugin, "find_fault");
    const char *fault = find_fault != NULL ? find_fault() : "the plugin has no find_fault";
    puts(fault != NULL ? fault : "all as the standard says");
    return fault != NULL;
}
