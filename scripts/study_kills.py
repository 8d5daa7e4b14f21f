#!/usr/bin/env python3
"""Kills a study at random moments, lets it go on, and checks that nothing is missing or measured twice.

    scripts/study_kills.py --kills 20 --work /tmp/kills -- tiny small medium --vary version=v1,v2,v3,v4 \\
        --rounds 3 --num-steps 6 --device cuda

What follows the two dashes is the study. It is started, killed by SIGKILL after a random time, and
started again with the same command line, as often as --kills says; then it may end. Every variant has
to have one measurement in every round, of one run each, and the store has to be sound. The tests have a
smaller one on the CPU.
"""

import argparse
import collections
import os
import pathlib
import random
import signal
import sqlite3
import subprocess
import sys
import time


def measurements(store, name):
    """How often each variant was measured in each round, and how many runs the store has."""
    if not store.exists():
        return collections.Counter(), 0
    with sqlite3.connect(f"file:{store}?mode=ro", uri=True) as connection:
        rows = connection.execute(
            "SELECT variant, round FROM study_runs JOIN studies ON studies.id = study_id"
            " WHERE name = ? AND run_id IS NOT NULL", (name,)).fetchall()
        runs = connection.execute("SELECT count(*) FROM runs WHERE study = ?", (name,)).fetchone()[0]
    return collections.Counter(rows), runs


def kill_after(command, seconds):
    """Whether the study was still running then. Its children are killed with it, as by a power cut."""
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                               start_new_session=True)
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        return True
    if process.returncode != 0:
        sys.exit(f"study_kills.py: the study failed: {process.stderr.read().decode().strip()}")
    return False


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--ridge", default="build/bin/ridge")
    parser.add_argument("--work", type=pathlib.Path, required=True, help="a directory for its files")
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--longest", type=float, default=10, help="seconds before a kill, at most")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("study", nargs="+")
    arguments = parser.parse_args()
    arguments.work.mkdir(parents=True, exist_ok=True)
    ridge, name = str(pathlib.Path(arguments.ridge).resolve()), "kills"
    os.chdir(arguments.work)
    store = pathlib.Path("runs.db")
    command = [ridge, "study", *arguments.study, "--store", str(store), "--name", name]
    moments, kills = random.Random(arguments.seed), 0
    begin = time.monotonic()
    while kills < arguments.kills:
        seconds = moments.uniform(0.2, arguments.longest)
        if not kill_after(command, seconds):
            break
        kills += 1
        print(f"killed after {seconds:.1f} s; {sum(measurements(store, name)[0].values())}"
              " measurements are kept", flush=True)
    result = subprocess.run(command, capture_output=True, text=True)
    if result.returncode != 0:
        sys.exit(f"study_kills.py: the study failed: {result.stderr.strip()}")
    check = subprocess.run([ridge, "store", "check", "--store", str(store)], capture_output=True,
                           text=True)
    found, runs = measurements(store, name)
    variants = 1 + max(variant for variant, _ in found)
    rounds = max(number for _, number in found)
    expected = {(v, r) for v in range(variants) for r in range(1, rounds + 1)}
    faults = [f"{missing} is missing" for missing in expected - set(found)]
    faults += [f"{which} was measured {count} times" for which, count in found.items() if count > 1]
    if runs != len(expected):
        faults.append(f"the store has {runs} runs of the study, not {len(expected)}")
    if check.returncode != 0:
        faults.append(check.stdout + check.stderr)
    print(f"{kills} kills in {time.monotonic() - begin:.0f} s: {variants} variants in {rounds} rounds,"
          f" {runs} runs; {'; '.join(faults) or 'complete, nothing twice, the store is sound'}")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
