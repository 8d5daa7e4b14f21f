#!/usr/bin/env python3
"""Kills ranks of training runs at random moments, and holds that the runs end as if nothing had been.

    scripts/kill_ranks.py --ridge build/bin/ridge --kills 200

Each run has as many ranks as --ranks says and starts again by --restarts from its last checkpoint. Some of
its processes are killed, one after another, until the run ends. Its last checkpoint has to be, byte by byte,
that of the same run that nobody disturbed, and its exit code 0; and whenever it starts again it has to say that a
rank was killed, not one that missed it. The exit code is 1 if a run ended otherwise.
"""

import argparse
import os
import pathlib
import random
import signal
import subprocess
import sys
import tempfile
import time

STEPS, EVERY = 300, 20


def command(ridge, ranks, output, flags):
    return [ridge, "train", "--device", "cpu", "--ranks", str(ranks), "--hidden-dim", "64", "--n-layers", "2",
            "--n-heads", "4", "--seq-len", "32", "--batch-size", str(4 * ranks), "--num-steps", str(STEPS),
            "--save-every", str(EVERY), "--log-interval", "50", "--restarts", "1000", "--output-dir", str(output),
            *flags.split()]


def children(parent):
    path = pathlib.Path(f"/proc/{parent}/task/{parent}/children")
    try:
        return [int(word) for word in path.read_text().split()]
    except OSError:  # it has ended
        return []


def disturbed(arguments, log, kills, rng):
    """Runs a command, killing a random child after random times; its exit code and the kills that it had."""
    done = 0
    with open(log, "w") as file:
        process = subprocess.Popen(arguments, stdout=file, stderr=file)
        while process.poll() is None:
            time.sleep(rng.uniform(0.02, 1.2))
            ranks = children(process.pid)
            if ranks and done < kills:
                try:
                    os.kill(rng.choice(ranks), signal.SIGKILL)
                    done += 1
                except ProcessLookupError:
                    pass
        return process.returncode, done


def misjudged(log):
    """The lines in which a run starts again for something else than a killed rank."""
    return [line for line in log.splitlines() if "starting again" in line and "ended by signal 9" not in line]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ridge", required=True, help="the program")
    parser.add_argument("--kills", type=int, default=200, help="of processes, in all (default: 200)")
    parser.add_argument("--kills-of-a-run", type=int, default=10, help="at most (default: 10)")
    parser.add_argument("--ranks", type=int, default=3)
    parser.add_argument("--flags", default="", help='of the runs, such as "--zero 3 --deterministic"')
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    rng = random.Random(options.seed)
    ridge = os.path.abspath(options.ridge)
    wrong = kills = runs = 0
    with tempfile.TemporaryDirectory() as name:
        directory = pathlib.Path(name)
        checkpoint = directory / "run" / "checkpoint.safetensors"
        arguments = command(ridge, options.ranks, "run", options.flags)
        os.chdir(directory)
        subprocess.run(arguments, check=True, stdout=subprocess.DEVNULL)
        expected = checkpoint.read_bytes()
        while kills < options.kills:
            checkpoint.unlink(missing_ok=True)
            limit = min(options.kills_of_a_run, options.kills - kills)
            exit_code, had = disturbed(arguments, directory / "log.txt", limit, rng)
            kills += had
            runs += 1
            log = (directory / "log.txt").read_text()
            right = (exit_code == 0 and checkpoint.is_file() and checkpoint.read_bytes() == expected
                     and not misjudged(log))
            wrong += not right
            if not right:
                print(f"run {runs}, killed {had} times: exit code {exit_code}", file=sys.stderr)
                print("\n".join(misjudged(log)) or log[-2000:], file=sys.stderr)
            if sys.stdout.isatty():
                print(f"\r{kills} of {options.kills} kills, {runs} runs, {wrong} wrong", end="", flush=True)
    print(f"\r{kills} kills in {runs} runs of {options.ranks} ranks: {wrong} ended otherwise than undisturbed")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
