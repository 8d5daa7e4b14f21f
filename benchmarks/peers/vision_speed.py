#!/usr/bin/env python3
"""Speed and memory of vision networks: compile modes of `ridge bench` against PyTorch and OpenVINO,
interleaved.

    benchmarks/peers/vision_speed.py --ridge build/bin/ridge
    benchmarks/peers/vision_speed.py --dtype bf16 --cases resnet50:1,resnet50:16
    benchmarks/peers/vision_speed.py --device cuda --dtype fp16 --json vision.json
    benchmarks/peers/vision_speed.py --device cuda --dtype bf16 --mode training
    benchmarks/peers/vision_speed.py --device cuda --dtype fp16 --starts 8 --budget 120

Each round runs the Ridge program once for each of its compile modes, and then some passes of each
other side, a process that stays alive and warm; a round's figure is the median of its passes. The
tables, in Markdown, have the medians over rounds and the median of the rounds' ratios, each with a
95 % bootstrap interval. Batches are random and lie in the device's memory. A pass of
inference is all layers, in Ridge's case with the loss; of training forward, loss, backward and SGD
with momentum, under autocast in PyTorch, in fp16 with a GradScaler.

Each case is printed when it is done. A side that fails, or takes longer than --budget to get ready
or for a round, has that in its row; the others go on. With --starts above 1 so many of PyTorch's
sides get ready at once, of all cases before any is measured: compiling takes processors, of which
there may be many; the device each has for itself, and waiting for it does not count as getting ready.

Ready after is what a side takes from its start to its first passes: building the network, passes
over the graph, tuning and compiling. Ridge's first round is the one that counts, later ones find
what was tuned in the cache. Memory is the peak resident set of the process on the CPU, and the most
bytes of tensors at once on the GPU, as either side's allocator counts them. All sides have the same
number of threads."""

import argparse
import contextlib
import json
import os
import queue
import re
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from train_speed import (ROOT, Fault, bootstrap_interval, list_of, machine, markdown_lines,
                         warn_if_busy, write_results)
from vision_peer import DTYPES, VARIANTS, WARMUP

HERE = Path(__file__).resolve().parent

# By device and mode: network:batch.
CASES = {
    ("cpu", "inference"): [f"{name}:{batch}" for name in
                           ("resnet50", "mobilenet_v2", "vit_b_16", "efficientnet_b0")
                           for batch in (1, 16)],
    ("cuda", "inference"): ["resnet50:1", "resnet50:32", "resnet50:256", "vit_b_16:64",
                            "efficientnet_b0:64", "mobilenet_v2:64", "densenet121:64", "swin_t:64"],
    ("cpu", "training"): ["resnet18:16"],
    ("cuda", "training"): ["resnet50:64"],
}
# A round takes some passes, and about so many seconds.
STEPS, SECONDS = range(3, 201), {"cpu": 2.0, "cuda": 0.4}
# Compile modes of Ridge that are compared unless others are asked for; and their arguments.
MODES = {"cpu": ["default", "max-autotune"], "cuda": ["reduce-overhead", "max-autotune"]}
COMPILE = {"none": [], "default": ["--compile"]} | {
    mode: ["--compile", "--compileContext", str({"mode": mode})]
    for mode in ("reduce-overhead", "max-autotune")}


class Row:
    """A side in one case: seconds of a pass in each round, and what else is known of it."""

    def __init__(self, title):
        self.title, self.rounds, self.state, self.fault = title, [], {}, None

    def steps(self, arguments):
        if arguments.steps:
            return arguments.steps
        guess = self.rounds[-1] if self.rounds else self.state.get("step_seconds")
        count = int(SECONDS[arguments.device] / guess) if guess else STEPS[0]
        return min(max(count, STEPS[0]), STEPS[-1])

    @contextlib.contextmanager
    def faults(self):
        try:
            yield
        except Fault as fault:
            self.rounds.clear()
            self.fault = str(fault)
            print(f"  {self.title}: {fault}", file=sys.stderr)


class Peer(Row):
    """vision_peer.py in a process."""

    def __init__(self, arguments, network, batch, variant):
        super().__init__(VARIANTS[variant]["title"])
        self.job = dict(network=network, batch=batch, variant=variant, dtype=arguments.dtype,
                        device=arguments.device, mode=arguments.mode, threads=arguments.threads,
                        lock=arguments.lock)
        self.arguments, self.process = arguments, None

    def start(self):
        environment = {"OMP_NUM_THREADS": str(self.arguments.threads),
                       "TORCHINDUCTOR_COMPILE_THREADS": str(min(8, self.arguments.threads))}
        self.errors = tempfile.TemporaryFile("w+", errors="replace")
        self.process = subprocess.Popen(
            [sys.executable, HERE / "vision_peer.py", json.dumps(self.job)], stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, stderr=self.errors, text=True, env=os.environ | environment)
        self.answers = queue.Queue()
        threading.Thread(target=self.listen, daemon=True).start()
        with self.faults():
            self.state = self.read()
            print(f"  {self.job['network']}, {self.job['batch']}: {self.title} is ready after "
                  f"{self.state['start']:.1f} s", file=sys.stderr)
        return self

    def listen(self):
        for line in self.process.stdout:
            self.answers.put(line)
        self.answers.put(None)

    def read(self):
        try:
            line = self.answers.get(timeout=self.arguments.budget)
        except queue.Empty:
            self.process.kill()
            raise Fault(f"no answer within {self.arguments.budget:g} s") from None
        if not line:
            raise Fault(self.last_words() or f"failed with exit code {self.process.wait()}")
        answer = json.loads(line)
        if isinstance(answer, dict) and "out_of_memory" in answer:
            raise Fault("out of memory")
        return answer

    def last_words(self):
        self.errors.seek(0)
        text = self.errors.read()
        if not self.arguments.quiet:
            print(text, file=sys.stderr)
        lines = [line.strip() for line in text.splitlines() if line.strip()]
        return lines[-1][:160] if lines else ""

    def run(self, arguments):
        if self.fault:
            return
        with self.faults():
            print("steps", self.steps(arguments), file=self.process.stdin, flush=True)
            self.rounds.append(statistics.median(self.read()))

    def close(self):
        with contextlib.suppress(OSError):
            self.process.stdin.close()
        try:
            self.process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self.process.kill()

    def memory(self):
        return self.state["memory"] or self.state["rss"]


class Ridge(Row):
    def __init__(self, network, batch, compile_mode):
        super().__init__(f"Ridge {compile_mode}")
        self.network, self.batch, self.mode = network, batch, compile_mode
        self.flags = COMPILE[compile_mode]

    def run(self, arguments):
        if self.fault:
            return
        with self.faults(), tempfile.TemporaryDirectory() as folder:
            found = Path(folder) / "bench.json"
            # The first round warms up for as long as the caches of a new file of code take.
            output, rss, seconds = run_watched(
                [arguments.ridge, "bench", f"--network={self.network}",
                 f"--batch-size={self.batch}", f"--iterations={self.steps(arguments)}",
                 f"--warmup={WARMUP}", f"--dtype={arguments.dtype}", f"--device={arguments.device}",
                 f"--threads={arguments.threads}", f"--export-json={found}",
                 *([f"--mode={arguments.mode}"] if arguments.mode != "inference" else []),
                 *self.flags], arguments.budget)
            if not found.exists():
                raise Fault(output.strip().splitlines()[-1] if output.strip() else "no result")
            record = json.loads(found.read_text())
            summary = record["performance_summary"]
            passes = summary["device_seconds"]
            self.rounds.append(statistics.median(passes[summary["steps_left_out_of_averages"]:]))
            self.state.setdefault("start", max(seconds - sum(passes), summary["compile_seconds"]))
            self.state |= {"rss": rss, "memory": summary["peak_memory_bytes"],
                           "version": f"Ridge {record['system_info']['ridge_version']}",
                           "device": arguments.device}

    def close(self):
        pass

    def memory(self):
        return self.state["memory" if self.state["device"] == "cuda" else "rss"]


def run_watched(command, budget):
    """Runs a program; its output, peak resident bytes and duration. Fault after so many seconds."""
    begin = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    watch = threading.Timer(budget, process.kill) if budget else None
    if watch:
        watch.start()
    output = process.stdout.read()
    _, status, usage = os.wait4(process.pid, 0)
    if watch:
        watch.cancel()
    process.returncode = os.waitstatus_to_exitcode(status)
    seconds = time.perf_counter() - begin
    if budget and seconds >= budget:
        raise Fault(f"no answer within {budget:g} s")
    return output, usage.ru_maxrss * 1024, seconds


# A comparison ------------------------------------------------------------------------------------

def peers_of(arguments, case):
    network, _, batch = case.partition(":")
    return [Peer(arguments, network, int(batch), variant) for variant in arguments.variants]


def run_case(arguments, case, theirs):
    """The rows of a case, Ridge's first."""
    network, _, batch = case.partition(":")
    ours = [Ridge(network, int(batch), mode) for mode in arguments.compile]
    for row in theirs:
        if not row.process:
            row.start()
    for number in range(arguments.rounds):
        for row in ours + theirs:
            row.run(arguments)
        times = ", ".join(f"{r.title} {r.rounds[-1] * 1e3:.2f}" for r in ours + theirs if r.rounds)
        print(f"  {case}, round {number + 1}: {times} ms", file=sys.stderr)
    for row in theirs:
        row.close()
    return ours, theirs


def fastest(rows):
    """Of the rows with figures, the one with the least median; None if there is none."""
    return min((r for r in rows if r.rounds), key=lambda r: statistics.median(r.rounds),
               default=None)


def best_of(case, ours, theirs):
    """A line that compares the fastest side of either party."""
    network, _, batch = case.partition(":")
    own, other = fastest(ours), fastest(theirs)
    cells = [f"{network}, {batch}"]
    for row in (own, other):
        cells.append(f"{row.title} {statistics.median(row.rounds) * 1e3:.2f} ms" if row else "none")
    cells.append(ratio_cell(own, other) if own and other else "")
    return "| " + " | ".join(cells) + " |"


def ratio_cell(ours, row):
    if isinstance(row, Ridge) or not ours.rounds or not row.rounds:
        return ""
    ratios = [a / b for a, b in zip(ours.rounds, row.rounds)]
    low, high = bootstrap_interval(ratios)
    return f"{statistics.median(ratios):.3f} ({low:.3f} to {high:.3f})"


def cells_of(case, ours, row):
    network, _, batch = case.partition(":")
    if not row.rounds:
        return [f"{network}, {batch}", row.title, str(row.fault), *[""] * (len(ours) + 3)]
    seconds = statistics.median(row.rounds)
    low, high = bootstrap_interval(row.rounds)
    cells = [f"{network}, {batch}", row.title,
             f"{seconds * 1e3:.2f} ms ({low * 1e3:.2f} to {high * 1e3:.2f})",
             *(ratio_cell(mode, row) for mode in ours), f"{int(batch) / seconds:,.1f}",
             f"{row.memory() / 2**20:,.0f} MiB", f"{row.state['start']:.1f} s"]
    return cells


def head(arguments):
    return ["Network, batch", "Side", "Time of a pass (95 %)",
            *(f"{mode} / this (95 %)" for mode in arguments.compile), "Images/s", "Memory",
            "Ready after"]


def json_of(ours, theirs):
    return [dict(title=r.title, fault=r.fault, rounds=r.rounds, state=r.state)
            for r in ours + theirs]


def parsed_arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--ridge", default=str(ROOT / "build/bin/ridge"))
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--mode", choices=["inference", "training"], default="inference")
    parser.add_argument("--dtype", choices=list(DTYPES), default="fp32")
    parser.add_argument("--cases", type=list_of, help="such as resnet50:1,resnet50:16")
    parser.add_argument("--compile", type=list_of,
                        help=f"modes of Ridge: {', '.join(COMPILE)}; empty: the others alone")
    parser.add_argument("--variants", type=list_of, help=f"of the others: {', '.join(VARIANTS)}")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--steps", type=int, help="passes per round and side; default: what takes "
                        f"{SECONDS['cpu']} s on the CPU and {SECONDS['cuda']} s on the GPU, within "
                        f"{STEPS[0]} and {STEPS[-1]}")
    parser.add_argument("--starts", type=int, default=1, metavar="N", help="get so many of the "
                        "others ready at once, before anything is measured")
    parser.add_argument("--budget", type=float, metavar="SECONDS", help="give up a side that takes "
                        "longer to get ready, or for a round")
    parser.add_argument("--quiet", action="store_true", help="without what sides that fail say")
    parser.add_argument("--json", type=Path, help="write a results file here, case by case")
    arguments = parser.parse_args()
    arguments.cases = arguments.cases or CASES[arguments.device, arguments.mode]
    if arguments.compile is None:
        arguments.compile = MODES[arguments.device]

    def runs_here(variant):
        known = VARIANTS[variant]
        return (arguments.device in known.get("devices", [arguments.device]) and
                arguments.mode in known.get("modes", [arguments.mode]))

    if arguments.variants is None:
        arguments.variants = [v for v in VARIANTS if runs_here(v) and
                              arguments.device in VARIANTS[v].get("usual", [arguments.device])]
    for name, known in {"variants": VARIANTS, "compile": COMPILE}.items():
        for word in set(getattr(arguments, name)) - set(known):
            parser.error(f"--{name}: there is no {word}; there are {', '.join(known)}")
    for variant in arguments.variants:
        if not runs_here(variant):
            parser.error(f"--variants: {variant} is not for {arguments.mode} on {arguments.device}")
    for case in arguments.cases:
        if not re.fullmatch(r"\w+:[1-9]\d*", case):
            parser.error(f"--cases: {case} is not a network and a batch size, as in resnet50:16")
    if arguments.dtype == "tf32" and arguments.device == "cpu":
        parser.error("--dtype tf32 is for --device cuda")
    return arguments


def main():
    arguments = parsed_arguments()
    warn_if_busy(arguments)
    table = {"columns": head(arguments), "rows": []}
    best, figures, versions, whole = [], {}, set(), True
    with tempfile.NamedTemporaryFile() as lock:
        arguments.lock = lock.name if arguments.starts > 1 else None
        peers = {case: peers_of(arguments, case) for case in arguments.cases}
        if arguments.starts > 1:
            with ThreadPoolExecutor(arguments.starts) as pool:
                list(pool.map(Peer.start, [peer for rows in peers.values() for peer in rows]))
        for case in arguments.cases:
            ours, theirs = run_case(arguments, case, peers[case])
            rows = [cells_of(case, ours, row) for row in ours + theirs]
            lines = markdown_lines({"columns": table["columns"], "rows": rows})
            print("\n".join(lines[2:] if table["rows"] else lines), flush=True)
            table["rows"] += rows
            best.append(best_of(case, ours, theirs))
            figures[case] = json_of(ours, theirs)
            versions |= {row.state["version"] for row in ours + theirs if row.rounds}
            whole &= all(row.fault in (None, "out of memory") for row in ours + theirs)
            if arguments.json:
                write_results(
                    arguments.json, "Vision networks",
                    f"{arguments.mode.capitalize()} against PyTorch, {arguments.device}, "
                    f"{arguments.dtype}", machine(arguments), [table],
                    {"dtype": arguments.dtype, "mode": arguments.mode, "cases": figures})
    if arguments.compile and arguments.variants:
        print("\n| Network, batch | Ridge's fastest | The others' fastest | Ridge's part of it |")
        print("|---|---:|---:|---:|")
        print("\n".join(best))
    print()
    print(f"{machine(arguments)}, {arguments.dtype}, {arguments.mode}; "
          f"{', '.join(sorted(versions))}; {arguments.rounds} rounds; load average at the end "
          f"{os.getloadavg()[0]:.1f}.")
    sys.exit(0 if whole else 1)


if __name__ == "__main__":
    main()
