#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""end_summary.py TALLY PROGRAM: a summary can be ended by a signal, as any other program.

Standard error is a pipe that is full, so `tally run` stays in its summary until somebody reads it or a
signal comes.  Signals that come before the program has ended are the program's, so several are sent.
"""
import fcntl
import os
import signal
import subprocess
import sys

reader, writer = os.pipe()
os.set_blocking(writer, False)
fcntl.fcntl(writer, fcntl.F_SETPIPE_SZ, 4096)
try:
    while True:
        os.write(writer, b"x")
except BlockingIOError:
    os.set_blocking(writer, True)

run = subprocess.Popen([sys.argv[1], "run", sys.argv[2]], stdout=subprocess.DEVNULL, stderr=writer)
status = None
for _ in range(100):
    try:
        status = run.wait(0.2)
        break
    except subprocess.TimeoutExpired:
        run.send_signal(signal.SIGINT)
if status is None:
    run.kill()
    run.wait()
if status != -signal.SIGINT:
    sys.exit(f"tally run ended with {status} instead of by SIGINT")
