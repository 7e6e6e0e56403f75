/* SPDX-License-Identifier: MIT
 *
 * symbolize_options.c - the options of every command that shows names.
 */
#include "names/symbolize.h"

struct symbolize_options args_symbolize;

const struct arg_option args_symbolize_options[] = {
    {"demangle", 0, ARG_CHOICE, "HOW", "short|full|none", false, &args_symbolize.names,
     "How much of C++ and Rust names is shown"},
    {"sysroot", 0, ARG_TEXT, "DIR", NULL, false, &args_symbolize.sysroot,
     "Look for the recorded programs and libraries below this folder"},
    {"debug-path", 0, ARG_TEXT, "DIR", NULL, false, &args_symbolize.debug_path,
     "Look for separate debug files here first"},
    {"debuginfod", 0, ARG_SWITCH, NULL, NULL, false, &args_symbolize.use_debuginfod,
     "Ask the servers of DEBUGINFOD_URLS for missing debug files"},
    {0}};
