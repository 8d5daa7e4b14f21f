#!/usr/bin/env python3
"""Measures how often `ridge gate` errs on this machine while its load changes.

    benchmarks/gate_rates.py --ridge build/bin/ridge --rounds 1000 --out gate_rates.json
    benchmarks/gate_rates.py --rounds 30 --slowdown 2% --least-effect time=1% --loads 0 -- \
        train --device cuda --version v4 --dtype bf16

Each round decides on a program against itself, and against itself slowed down; with --slowdown 0 against
itself alone, with --slowed-alone against the slowed one alone. What follows the two dashes is the
command that is run; without it the one of `ridge gate --self-test`, on the processors. Beside it burn
processes that come and go: --loads of them at most (default: as many as there are processors), each for
some seconds and then not, by a generator with a seed. Writes JSON after every --chunk of rounds, so that
a run that is stopped keeps what it had, and prints both rates with their 95 % intervals.
"""

import argparse
import json
import multiprocessing
import os
import pathlib
import random
import subprocess
import sys
import tempfile
import time

LONGEST = 8.0  # seconds of one state of the load
COMMAND = "train --device cpu --hidden-dim 128 --n-layers 2 --seq-len 32 --batch-size 4".split()
NAMES = {"same": "False alarms", "slowed": "Slowdowns not found"}


def burn(seed):
    """Works and sleeps in turns, for random times; a part of the work goes through memory."""
    state = random.Random(seed)
    block = bytearray(32 << 20)
    while True:
        until = time.monotonic() + state.uniform(0, LONGEST)
        touches_memory = state.random() < 0.5
        while time.monotonic() < until:
            if touches_memory:
                block[:] = bytes(len(block))
            else:
                sum(range(100_000))
        time.sleep(state.uniform(0, LONGEST))


def add(total, part):
    for key, value in part.items():
        if isinstance(value, dict):
            add(total.setdefault(key, {}), value)
        elif key in ("rounds", "fine", "regression", "undecided", "errors"):
            total[key] = total.get(key, 0) + value
        elif key == "seconds":
            total.setdefault(key, []).extend(value)
        elif key != "error_rate_interval":
            total[key] = value


def interval(errors, rounds, z=1.96):
    """Of Wilson (1927)."""
    share = errors / rounds
    middle = (share + z * z / (2 * rounds)) / (1 + z * z / rounds)
    half = z * (share * (1 - share) / rounds + z * z / (4 * rounds**2)) ** 0.5 / (1 + z * z / rounds)
    return [max(0.0, middle - half), min(1.0, middle + half)]


def self_test(ridge, rounds, seed, options, command):
    with tempfile.TemporaryDirectory() as directory:
        file = pathlib.Path(directory, "rates.json")
        words = [ridge, "gate", "--self-test", "--rounds", str(rounds), "--seed", str(seed)]
        words += [*options, "--json", str(file), "--", *command]
        result = subprocess.run(words, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        if not file.exists():
            sys.exit(f"gate_rates.py: {result.stderr.strip() or result.returncode}")
        return json.loads(file.read_text())


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--ridge", default="build/bin/ridge")
    parser.add_argument("--rounds", type=int, default=1000)
    parser.add_argument("--slowdown", default="5%")
    parser.add_argument("--least-effect", default="time=2%")
    parser.add_argument("--slowed-alone", action="store_true")
    parser.add_argument("--budget", default="120")
    parser.add_argument("--chunk", type=int, default=5, help="rounds of one call of the program")
    parser.add_argument("--loads", type=int, default=os.cpu_count())
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("gate_rates.json"))
    parser.add_argument("command", nargs="*", default=COMMAND)
    arguments = parser.parse_args()
    options = ["--slowdown", arguments.slowdown, "--least-effect", arguments.least_effect]
    options += ["--budget", arguments.budget] + ["--slowed-alone"] * arguments.slowed_alone
    burners = [
        multiprocessing.Process(target=burn, args=(arguments.seed * 1000 + i,), daemon=True)
        for i in range(arguments.loads)
    ]
    for burner in burners:
        burner.start()
    total = {}
    for done in range(0, arguments.rounds, arguments.chunk):
        rounds = min(arguments.chunk, arguments.rounds - done)
        seed = arguments.seed * 10_000_000 + 2 * done
        add(total, self_test(arguments.ridge, rounds, seed, options, arguments.command))
        total["processors"], total["loads"] = os.cpu_count(), arguments.loads
        kinds = [kind for kind in ("same", "slowed") if kind in total]
        for kind in kinds:
            errors, count = total[kind]["errors"], total[kind]["rounds"]
            total[kind]["error_rate_interval"] = interval(errors, count)
        arguments.out.write_text(json.dumps(total, indent=1) + "\n")
        counts = [
            f"{NAMES[kind]}: {total[kind]['errors']} of {total[kind]['rounds']},"
            f" {total[kind]['undecided']} undecided"
            for kind in kinds
        ]
        print("; ".join(counts), flush=True)
    for burner in burners:
        burner.terminate()
    for kind in kinds:
        low, high = total[kind]["error_rate_interval"]
        seconds = sorted(total[kind]["seconds"])
        print(
            f"{NAMES[kind]}: {total[kind]['errors']} of {total[kind]['rounds']}"
            f" [{100 * low:.2f} %, {100 * high:.2f} %]; a decision takes"
            f" {seconds[len(seconds) // 2]:.1f} s in the median, {seconds[-1]:.1f} s at most"
        )


if __name__ == "__main__":
    main()
