#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""measure.py - run a command, then print its seconds and its peak memory in KiB.

    measure.py OUTPUT LIBRARY.so|- COMMAND [ARGUMENT ...]

OUTPUT receives what the command prints; the library is preloaded into the command alone.  The
kernel's ru_maxrss of a child starts at the size of the process that started it, about 10 MiB here,
so this is for commands that need more; bench/bench_launch.c does it for small ones.
"""
import os
import sys
import time


def main():
    output, library, command = sys.argv[1], sys.argv[2], sys.argv[3:]
    environment = dict(os.environ)
    environment.pop("LD_PRELOAD", None)
    if library != "-":
        environment["LD_PRELOAD"] = os.path.abspath(library)
    to_output = [(os.POSIX_SPAWN_OPEN, 1, output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)]
    start = time.monotonic()
    child = os.posix_spawnp(command[0], command, environment, file_actions=to_output)
    _, status, usage = os.wait4(child, 0)
    seconds = time.monotonic() - start
    code = os.waitstatus_to_exitcode(status)
    if code != 0:
        reason = f"died of signal {-code}" if code < 0 else f"failed with status {code}"
        sys.exit(f"measure: {command[0]} {reason}")
    print(f"{seconds:.2f} {usage.ru_maxrss}")


if __name__ == "__main__":
    main()
