/* SPDX-License-Identifier: MIT
 *
 * main.c - the `tally` command: reads the first word and dispatches.
 *
 * The command stands beside the library and does not run under it.  Exit status: 0 done, 2 the
 * command line was not understood.  Output that somebody asked for goes to stdout and a failure to
 * write it is reported, so `tally --version >/dev/full` does not claim success.
 */
#include <stdio.h>
#include <string.h>

enum { EXIT_DONE = 0, EXIT_FAILED = 1, EXIT_USAGE = 2 };

static const char usage_text[] =
    "Usage: tally --help | --version\n"
    "\n"
    "tally is a memory allocator for Linux.  To run a program under it:\n"
    "\n"
    "    LD_PRELOAD=/path/to/libtally.so program\n"
    "\n"
    "  -h, --help     print this text\n"
    "  -V, --version  print the version\n";

/* Write what stdio still holds.  The exit status says whether all of it arrived. */
static int finish_output(void) {
    if (fflush(stdout) != 0 || ferror(stdout)) {
        perror("tally: cannot write");
        return EXIT_FAILED;
    }
    return EXIT_DONE;
}

static int print_help(void) {
    fputs(usage_text, stdout);
    return finish_output();
}

static int print_version(void) {
    printf("tally %s\n", TALLY_VERSION_TEXT);
    return finish_output();
}

/* One row per first word; the short form may be NULL. */
static const struct command {
    const char *name;
    const char *short_name;
    int (*run)(void);
} commands[] = {
    {"--help", "-h", print_help},
    {"--version", "-V", print_version},
};

static const struct command *find_command(const char *word) {
    for (size_t i = 0; i < sizeof commands / sizeof commands[0]; i++) {
        const struct command *command = &commands[i];
        if (strcmp(word, command->name) == 0 ||
            (command->short_name != NULL && strcmp(word, command->short_name) == 0)) {
            return command;
        }
    }
    return NULL;
}

int main(int argc, char **argv) {
    if (argc < 2) {
        fputs(usage_text, stderr);
        return EXIT_USAGE;
    }
    const struct command *command = find_command(argv[1]);
    if (command == NULL) {
        fprintf(stderr, "tally: unknown word '%s'; try tally --help\n", argv[1]);
        return EXIT_USAGE;
    }
    if (argc > 2) {
        fprintf(stderr, "tally: %s takes no arguments\n", command->name);
        return EXIT_USAGE;
    }
    return command->run();
}
