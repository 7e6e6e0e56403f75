/* SPDX-License-Identifier: MIT
 *
 * main.c - the `tally` command: global options, then the command that the first word names.
 *
 * Global options may stand before the command's name or among its own options; those of TALLY_OPTS
 * are read first, then those of --config=FILE.  Results go to stdout and a failure to write them is
 * reported, so `tally --version >/dev/full` does not claim success.
 *
 * Read next   commands.c, the list of commands; args.h, what a command is.
 */
#include <stdlib.h>

#include "args/args.h"
#include "command/commands.h"
#include "common/cli.h"
#include "common/pager.h"

static int run_command(int count, char **words) {
    const struct command *command = args_find_command(words[0]);
    if (command == NULL) {
        return EXIT_USAGE;
    }
    const char *variable = getenv("TALLY_OPTS");
    count--;
    words++;
    if ((variable != NULL && !args_parse_variable(command, "TALLY_OPTS", variable)) ||
        !args_parse_config(command) ||
        (args_wants_help == 0 && !args_parse(command, &count, words))) {
        return EXIT_USAGE;
    }
    if (args_has_late_config()) {
        return complain(EXIT_USAGE, "--config stands before the command's name, and in no file");
    }
    if (args_wants_help > 0) {
        args_print_help(command);
        return EXIT_DONE;
    }
    args_settle(command);
    return command->run(count, words);
}

static int run(int count, char **words) {
    if (!args_parse(&args_tally, &count, words)) {
        return EXIT_USAGE;
    }
    if (args_wants_version > 0) {
        printf("tally %s\n", TALLY_VERSION_TEXT);
        return EXIT_DONE;
    }
    if (count > 0 && words[0][0] != '-') {
        return run_command(count, words);
    }
    if (args_wants_help == 0) {
        return complain(EXIT_USAGE, "no command; tally --help lists them");
    }
    args_print_help(NULL);
    return EXIT_DONE;
}

int main(int argc, char **argv) {
    int code = run(argc - 1, argv + 1);
    pager_end();
    bool is_written = cli_finish();
    return is_written || code != EXIT_DONE ? code : EXIT_OWN_FAILURE;
}
