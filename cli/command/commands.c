/* SPDX-License-Identifier: MIT
 *
 * commands.c - every command, in the order of help.
 */
#include "command/commands.h"

#include <stddef.h>

/* clang-format off */
const struct command *const commands[] = {
    &command_run,
    &command_ps,
    &command_stats,
    &command_top,
    &command_start,
    &command_stop,
    &command_dump,
    &command_set,
    &command_purge,
    &command_leak_check,
    &command_report,
    &command_diff,
    &command_check,
    &command_export,
    &command_import,
    &command_symbolize,
    &command_info,
    &command_doctor,
    &command_completion,
    &command_help,
    NULL,
};
/* clang-format on */
