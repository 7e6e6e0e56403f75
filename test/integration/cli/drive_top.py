#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""drive_top.py - runs `tally top` on a terminal of its own and leaves it in every way there is.

    drive_top.py TALLY FAKE_TARGET FOLDER

Each way must restore the screen: the sequence that leaves the alternate one comes last, and the terminal
echoes again.  Prints one line per way; what goes wrong is an exception.
"""
import fcntl
import os
import pty
import select
import signal
import struct
import subprocess
import sys
import termios
import time

ENTER, LEAVE = b"\033[?1049h", b"\033[?1049l"
tally, fake, folder = sys.argv[1:4]


class Top:
    """One run: the master side of its terminal and everything that came out."""

    def __init__(self, pid):
        self.pid, self.master = pty.fork()
        if self.pid == 0:
            os.execve(tally, [tally, "top", "--every=50ms", str(pid)], {"TERM": "xterm"})
        self.seen = b""

    def read_until(self, wanted, count=1):
        """Reads until the bytes were seen so often."""
        end = time.monotonic() + 30
        while self.seen.count(wanted) < count:
            if time.monotonic() > end:
                raise SystemExit(f"FAILED: {wanted!r} did not come; seen: {self.seen[-500:]!r}")
            if select.select([self.master], [], [], 1)[0]:
                try:
                    self.seen += os.read(self.master, 65536)
                except OSError:  # the other side is closed
                    if self.seen.count(wanted) < count:
                        raise SystemExit(f"FAILED: ended without {wanted!r}: {self.seen[-500:]!r}")

    def echoes(self):
        return bool(termios.tcgetattr(self.master)[3] & termios.ECHO)

    def finish(self):
        """The rest of the output, and the status."""
        self.read_until(LEAVE)
        _, status = os.waitpid(self.pid, 0)
        try:
            while select.select([self.master], [], [], 0)[0]:
                self.seen += os.read(self.master, 65536)
        except OSError:
            pass
        if self.seen.rfind(LEAVE) < self.seen.rfind(ENTER):
            raise SystemExit("FAILED: the screen was not given back")
        return status


def start_target():
    target = subprocess.Popen([fake, folder], stdout=subprocess.PIPE)
    if target.stdout.readline() != b"ready\n":
        raise SystemExit("FAILED: the target did not start")
    return target


def check(condition, sentence):
    if not condition:
        raise SystemExit(f"FAILED: {sentence}")


def main():
    target = start_target()
    try:
        top = Top(target.pid)
        top.read_until(b"heap, resident", 2)
        check(not top.echoes(), "the terminal echoes keys")
        os.write(top.master, b"+")
        top.read_until(b"every 100 ms")
        os.write(top.master, b"q")
        check(top.finish() == 0, "q is no clean end")
        print("q")

        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGSEGV):
            top = Top(target.pid)
            top.read_until(b"heap, resident")
            os.kill(top.pid, number)
            status = top.finish()
            wanted = 0 if number == signal.SIGINT else number
            check((status & 0x7f) == wanted, f"{number!r} ended it with status {status}")
            print(signal.Signals(number).name)

        top = Top(target.pid)
        top.read_until(b"heap, resident")
        os.kill(top.pid, signal.SIGTSTP)
        top.read_until(LEAVE)
        _, status = os.waitpid(top.pid, os.WUNTRACED)
        check(os.WIFSTOPPED(status), "it did not stop")
        check(top.echoes(), "a stopped top keeps the terminal")
        os.kill(top.pid, signal.SIGCONT)
        top.read_until(ENTER, 2)
        top.read_until(b"heap, resident", 2)
        print("stopped and continued")
        drawn = top.seen.count(b"pid ")
        fcntl.ioctl(top.master, termios.TIOCSWINSZ, struct.pack("HHHH", 10, 20, 0, 0))
        top.read_until(b"pid ", drawn + 2)
        lines = top.seen[top.seen.rfind(b"\033[H"):].split(b"\r\n")
        check(len(lines) <= 10, "more lines than the window has")
        print("resized")
        target.kill()
        target.wait()
        top.seen = top.seen.replace(LEAVE, b"")
        check(top.finish() == 0, "the end of the target is no clean end")
        check(b"has ended" in top.seen, "nobody says that the target has ended")
        print("the target ended")
    finally:
        target.kill()
        target.wait()


main()
