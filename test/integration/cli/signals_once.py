# SPDX-License-Identifier: MIT
"""A program under `tally run` gets each signal once, whether it was sent to tally or to the whole group.

    signals_once.py TALLY

The program writes a letter for each signal it gets.  tally handles signals one after the other, so when one
that was sent later has arrived, a copy of an earlier one would be there, too.
"""

import os
import signal
import subprocess
import sys
import time

ROUNDS = 20  # two of a kind that are pending at once are one, so a copy may stay unseen
PROGRAM = """
import signal, os
names = {signal.SIGUSR1: b"1", signal.SIGUSR2: b"2", signal.SIGTERM: b"t"}
signal.pthread_sigmask(signal.SIG_BLOCK, names)
os.write(1, b"r")
while True:
    number = signal.sigwait(names)
    os.write(1, names[number])
    if number == signal.SIGTERM:
        break
"""


def main():
    tally = subprocess.Popen([sys.argv[1], "run", "-q", "--report=none", sys.executable, "-S", "-c", PROGRAM],
                             stdout=subprocess.PIPE, start_new_session=True)
    got = b""

    def await_letter(letter):
        nonlocal got
        while not got.endswith(letter):
            byte = os.read(tally.stdout.fileno(), 1)
            if byte == b"":
                sys.exit(f"the program ended after {got}")
            got += byte

    await_letter(b"r")
    for _ in range(ROUNDS):
        os.killpg(tally.pid, signal.SIGUSR1)  # once, and not by tally
        await_letter(b"1")
        os.kill(tally.pid, signal.SIGUSR2)  # by tally alone
        await_letter(b"2")
    time.sleep(0.5)  # what was sent to all is forgotten by then
    os.kill(tally.pid, signal.SIGUSR1)
    await_letter(b"1")
    os.killpg(tally.pid, signal.SIGTERM)
    await_letter(b"t")
    got += tally.stdout.read()
    if got != b"r" + ROUNDS * b"12" + b"1t" or tally.wait() != 0:
        sys.exit(f"the program got {got}, and tally ended with {tally.wait()}")


main()
