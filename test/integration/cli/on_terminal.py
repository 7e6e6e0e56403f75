#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""on_terminal.py - runs a command on a terminal of so many rows and prints what came out.

    on_terminal.py ROWS COMMAND [ARG...]
"""
import fcntl
import os
import pty
import struct
import sys
import termios


def main():
    rows, command = int(sys.argv[1]), sys.argv[2:]
    ready, go = os.pipe()
    pid, master = pty.fork()
    if pid == 0:
        os.close(go)
        os.read(ready, 1)  # the window has its size
        os.execvp(command[0], command)
    os.close(ready)
    fcntl.ioctl(master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, 100, 0, 0))
    os.close(go)
    seen = b""
    while True:
        try:
            some = os.read(master, 65536)
        except OSError:  # the other side is closed
            break
        if not some:
            break
        seen += some
    _, status = os.waitpid(pid, 0)
    sys.stdout.write(seen.decode().replace("\r", "").replace("\033", "ESC"))
    sys.exit(os.waitstatus_to_exitcode(status))


main()
