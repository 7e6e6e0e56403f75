/* SPDX-License-Identifier: MIT
 *
 * replay.c - main() for a fuzz target without libFuzzer: every file of a folder is one input.
 *
 *     fuzz_ops test/fuzz/corpus/ops [FILE ...]
 *
 * The files of a folder come in the order of their names, so that two runs do the same.  A folder
 * with no file in it is a failure, because nothing would be tested.  A file that ends the process
 * is the last one that was named.
 */
#define _GNU_SOURCE /* scandir and versionsort */
#include <dirent.h>
#include <string.h>
#include <sys/stat.h>

#include "fuzz.h"

static unsigned inputs;

static void replay_file(const char *path) {
    FILE *file = fopen(path, "rb");
    fuzz_check(file != NULL);
    static uint8_t data[1 << 20];
    size_t size = fread(data, 1, sizeof data, file);
    fuzz_check(!ferror(file) && feof(file));
    fclose(file);
    fprintf(stderr, "%s\n", path);
    uint8_t *exact = malloc(size + 1); /* of its own size, so that a sanitizer sees its end */
    fuzz_check(exact != NULL);
    memcpy(exact, data, size);
    LLVMFuzzerTestOneInput(exact, size);
    free(exact);
    inputs++;
}

static int is_visible(const struct dirent *entry) {
    return entry->d_name[0] != '.';
}

static void replay_folder(const char *path) {
    struct dirent **entries;
    int count = scandir(path, &entries, is_visible, alphasort);
    fuzz_check(count > 0);
    for (int i = 0; i < count; i++) {
        char name[4096];
        snprintf(name, sizeof name, "%s/%s", path, entries[i]->d_name);
        free(entries[i]);
        replay_file(name);
    }
    free(entries);
}

int main(int argc, char **argv) {
    fuzz_check(argc > 1);
    for (int i = 1; i < argc; i++) {
        struct stat status;
        fuzz_check(stat(argv[i], &status) == 0);
        if (S_ISDIR(status.st_mode)) {
            replay_folder(argv[i]);
        } else {
            replay_file(argv[i]);
        }
    }
    printf("%u inputs\n", inputs);
    return 0;
}
