/* SPDX-License-Identifier: MIT
 *
 * cmd_help.c - `tally help` and `tally completion`: the tables printed for people, man and shells.
 */
#include "args/args.h"
#include "common/cli.h"

static struct { bool wants_man, wants_names; } options;

static const struct arg_option help_options[] = {
    {"man", 0, ARG_SWITCH, NULL, NULL, false, &options.wants_man, "Print the man page, in mdoc"},
    {"names", 0, ARG_SWITCH, NULL, NULL, false, &options.wants_names,
     "Print the names of all commands, one per line"},
    {0},
};

static int run_help(int count, char **words) {
    if (options.wants_names) {
        for (size_t i = 0; commands[i] != NULL; i++) {
            puts(commands[i]->name);
        }
        return EXIT_DONE;
    }
    const struct command *command = count > 0 ? args_find_command(words[0]) : NULL;
    if (count > 0 && command == NULL) {
        return EXIT_USAGE;
    }
    if (options.wants_man) {
        args_print_man(command);
    } else {
        args_print_help(command);
    }
    return EXIT_DONE;
}

static int run_completion(int count, char **words) {
    (void)count;
    if (args_print_completion(words[0])) {
        return EXIT_DONE;
    }
    return complain(EXIT_USAGE, "no completion for '%s'; there are bash, zsh and fish",
                    safe_text(words[0]));
}

const struct command command_help = {
    .name = "help",
    .summary = "Explain a command, or print its man page",
    .usage = "[--man] [COMMAND]",
    .text = "Prints the same as tally COMMAND --help, or a man page:\n"
            "\n"
            "    tally help --man report | man -l -\n",
    .options = (const struct arg_option *const[]){help_options, NULL},
    .words = {0, 1},
    .run = run_help,
};

const struct command command_completion = {
    .name = "completion",
    .summary = "Print completions for a shell",
    .usage = "bash|zsh|fish",
    .text = "Prints a script that makes the shell complete commands, options, their values and the "
            "names of running programs.\n\n"
            "    tally completion bash >~/.local/share/bash-completion/completions/tally\n"
            "    tally completion zsh >~/.zfunc/_tally\n"
            "    tally completion fish >~/.config/fish/completions/tally.fish\n",
    .words = {1, 1},
    .run = run_completion,
};
