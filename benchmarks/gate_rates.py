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
a run that is stopped keeps what it had, and prints both rates with their 95 % intervals. --at-once 28
shares the rounds out to so many copies, each with --processors (2) of its own and a load of its own, as
on a machine that has no more; --cards 4 gives each a card in turn; --seconds ends them all in time.
"""

import argparse
import contextlib
import json
import multiprocessing
import os
import pathlib
import random
import signal
import subprocess
import sys
import tempfile
import time

LONGEST = 8.0  # seconds of one state of the load
LOOK_EVERY = 5.0  # seconds, at what copies side by side have written
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


def processors_of(place, count):
    """As many that this process may use, the place-th such group."""
    usable = sorted(os.sched_getaffinity(0))
    return usable[place * count:(place + 1) * count]


def run_at_once(arguments):
    """Runs copies of this script side by side, and adds up what they wrote."""
    rounds, folder = -(-arguments.rounds // arguments.at_once), tempfile.TemporaryDirectory()
    copies, parts = [], []
    for place in range(arguments.at_once):
        parts.append(pathlib.Path(folder.name, f"{place}.json"))
        mine = processors_of(place, arguments.processors)
        if len(mine) < arguments.processors:
            sys.exit(f"gate_rates.py: --at-once {arguments.at_once} needs"
                     f" {arguments.at_once * arguments.processors} processors")
        words = [sys.executable, __file__, "--ridge", arguments.ridge, "--rounds", str(rounds),
                 "--slowdown", arguments.slowdown, "--least-effect", arguments.least_effect,
                 "--budget", arguments.budget, "--chunk", str(arguments.chunk),
                 "--loads", str(min(arguments.loads, arguments.processors)),
                 "--seed", str(arguments.seed * 1000 + place), "--out", str(parts[-1]),
                 *["--slowed-alone"] * arguments.slowed_alone, "--", *arguments.command]
        environment = dict(os.environ)
        if arguments.cards:
            environment["CUDA_VISIBLE_DEVICES"] = str(place % arguments.cards)
        copies.append(subprocess.Popen(
            words, env=environment, stdout=subprocess.DEVNULL, start_new_session=True,
            preexec_fn=lambda mine=mine: os.sched_setaffinity(0, mine)))
    end = time.monotonic() + arguments.seconds
    while any(copy.poll() is None for copy in copies) and time.monotonic() < end:
        time.sleep(min(LOOK_EVERY, max(0.0, end - time.monotonic())))
        finish(sum_of(parts, arguments), arguments.out)
    for copy in copies:
        if copy.poll() is None:
            os.killpg(copy.pid, signal.SIGKILL)
            copy.wait()
    return sum_of(parts, arguments)


def sum_of(parts, arguments):
    """Of what the copies have written by now."""
    total = {"at_once": arguments.at_once}
    for part in parts:
        with contextlib.suppress(FileNotFoundError, json.JSONDecodeError):
            add(total, json.loads(part.read_text()))
    return total


def run_rounds(arguments):
    options = ["--slowdown", arguments.slowdown, "--least-effect", arguments.least_effect]
    options += ["--budget", arguments.budget] + ["--slowed-alone"] * arguments.slowed_alone
    burners = [
        multiprocessing.Process(target=burn, args=(arguments.seed * 1000 + i,), daemon=True)
        for i in range(arguments.loads)
    ]
    for burner in burners:
        burner.start()
    total = {"processors": len(os.sched_getaffinity(0)), "loads": arguments.loads}
    for done in range(0, arguments.rounds, arguments.chunk):
        rounds = min(arguments.chunk, arguments.rounds - done)
        seed = arguments.seed * 10_000_000 + 2 * done
        add(total, self_test(arguments.ridge, rounds, seed, options, arguments.command))
        counts = [
            f"{NAMES[kind]}: {total[kind]['errors']} of {total[kind]['rounds']},"
            f" {total[kind]['undecided']} undecided"
            for kind in finish(total, arguments.out)
        ]
        print("; ".join(counts), flush=True)
    for burner in burners:
        burner.terminate()
    return total


def finish(total, out):
    """Completes the sums by their intervals, writes and returns them."""
    for kind in NAMES:
        if kind in total:
            errors, count = total[kind]["errors"], total[kind]["rounds"]
            total[kind]["error_rate_interval"] = interval(errors, count)
    part = out.with_suffix(".part")
    part.write_text(json.dumps(total, indent=1) + "\n")
    part.replace(out)
    return [kind for kind in NAMES if kind in total]


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
    parser.add_argument("--at-once", type=int, default=1, help="copies side by side")
    parser.add_argument("--processors", type=int, default=2, help="of each such copy")
    parser.add_argument("--cards", type=int, default=0, help="that such copies have in turn")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="that such copies have")
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("gate_rates.json"))
    parser.add_argument("command", nargs="*", default=COMMAND)
    arguments = parser.parse_args()
    if arguments.at_once > 1:
        kinds = finish(total := run_at_once(arguments), arguments.out)
    else:
        kinds = finish(total := run_rounds(arguments), arguments.out)
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
