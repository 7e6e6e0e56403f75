/* SPDX-License-Identifier: MIT
 *
 * commands.h - all commands; each is defined in the cmd_*.c that does its work.
 */
#pragma once

#include "args/args.h"

extern const struct command command_run;
extern const struct command command_ps;
extern const struct command command_stats;
extern const struct command command_top;
extern const struct command command_start;
extern const struct command command_stop;
extern const struct command command_dump;
extern const struct command command_set;
extern const struct command command_purge;
extern const struct command command_leak_check;
extern const struct command command_report;
extern const struct command command_diff;
extern const struct command command_check;
extern const struct command command_export;
extern const struct command command_import;
extern const struct command command_symbolize;
extern const struct command command_info;
extern const struct command command_doctor;
extern const struct command command_completion;
extern const struct command command_help;
