#!/usr/bin/env python3
"""Training on several GPUs of one machine: Ridge against PyTorch's DistributedDataParallel.

    benchmarks/peers/ranks_speed.py --ridge build/bin/ridge --gpus 2
    benchmarks/peers/ranks_speed.py --gpus 4 --works medium,resnet50 --zero 1 --json ranks.json

Weak scaling: each GPU has the same part of a batch, whatever their number. Each round runs Ridge on
each GPU alone and on all, and then some steps of PyTorch on each and on all, of processes that stay
alive and warm; a round's figure is the median of its steps. PyTorch's side is torch.compile around
DistributedDataParallel, fused attention and AdamW (SGD for networks), under autocast.

The table has medians over rounds and, of efficiencies and ratios, the median of the rounds' own,
with a 95 % bootstrap interval. Efficiency: a step's time on the slowest GPU alone over that on all,
since GPUs of one kind differ by some percent where power limits their clocks."""

import argparse
import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from torch_training import WARMUP
from train_speed import SIZES, Fault, bootstrap_interval, list_of, machine, run_ridge, shape

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
from results_file import ROOT, markdown_lines, write_results  # noqa: E402

# Of one GPU: a model of train_speed.py's, or a network and its images.
WORKS = {
    "tiny": SIZES["tiny"],
    "medium": SIZES["medium"],
    "large": SIZES["large"],
    "wide": shape(768, 12, 12, 12, 3072, 1024, 16) | {"vocab_size": 32000},
    "resnet50": {"network": "resnet50", "batch": 64},
}
STEPS, SECONDS = range(10, 201), 0.5


class Side:
    """Seconds of a step in each round, on all GPUs or on one, by its number."""

    def __init__(self, arguments, work, title, gpu):
        self.arguments, self.work, self.gpu = arguments, WORKS[work], gpu
        self.gpus = arguments.gpus if gpu is None else 1
        self.title = f"{title}, {self.gpus} GPUs" if gpu is None else f"{title}, GPU {gpu} alone"
        self.rounds, self.memory = [], 0

    @contextlib.contextmanager
    def visible(self):
        """Processes that start meanwhile see this side's GPUs."""
        name = "CUDA_VISIBLE_DEVICES"
        before = os.environ.get(name)
        if self.gpu is not None:
            os.environ[name] = before.split(",")[self.gpu] if before else str(self.gpu)
        try:
            yield
        finally:
            os.environ.pop(name, None)
            if before is not None:
                os.environ[name] = before

    def is_network(self):
        return "network" in self.work

    def steps(self):
        guess = self.rounds[-1] if self.rounds else SECONDS / STEPS[0]
        return min(max(int(SECONDS / guess), STEPS[0]), STEPS[-1])


class Peer(Side):
    """PyTorch's processes, one for each GPU."""

    def __init__(self, arguments, work, gpu=None):
        super().__init__(arguments, work, "PyTorch", gpu)

    def start(self):
        self.folder = tempfile.TemporaryDirectory()
        program = "vision_peer.py" if self.is_network() else "torch_training.py"
        threads = max(1, self.arguments.threads // self.gpus)
        job = dict(variant="compile", dtype=self.arguments.dtype, device="cuda", threads=threads,
                   memory=False, ranks=self.gpus, meeting=f"{self.folder.name}/meeting")
        job |= self.work | {"mode": "training"} if self.is_network() else {"size": self.work}
        with self.visible():
            environment = os.environ | {"OMP_NUM_THREADS": str(threads),
                                        "TORCHINDUCTOR_COMPILE_THREADS": str(min(8, threads))}
        self.processes = [
            subprocess.Popen([sys.executable, HERE / program, json.dumps(job | {"rank": rank})],
                             stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                             env=environment)
            for rank in range(self.gpus)]

    def ready(self):
        self.memory = max(s.get("tensors") or s.get("memory") or 0 for s in self.answers())

    def answers(self):
        lines = [process.stdout.readline() for process in self.processes]
        if not all(lines):
            raise Fault(f"{self.title} failed")
        return [json.loads(line) for line in lines]

    def run(self):
        for process in self.processes:
            print("steps", self.steps(), file=process.stdin, flush=True)
        self.rounds.append(max(statistics.median(steps) for steps in self.answers()))

    def close(self):
        for process in self.processes:
            process.stdin.close()
        for process in self.processes:
            process.wait()
        self.folder.cleanup()


class Ridge(Side):
    def __init__(self, arguments, work, gpu=None, zero=0):
        super().__init__(arguments, work, "Ridge", gpu)
        self.title += f", --zero {zero}" if zero else ""
        self.flags = [f"--gpus={self.gpus}", f"--zero={zero}"] if gpu is None else []

    def run(self):
        with self.visible():
            summary = self.of_network() if self.is_network() else self.of_model()
        self.rounds.append(summary["median_batch_time"])
        self.memory = summary["peak_memory_bytes"]

    def of_model(self):
        size = self.work | {"batch_size": self.work["batch_size"] * self.gpus}
        return run_ridge(self.arguments, size, "v4", WARMUP, self.steps(), *self.flags)

    def of_network(self):
        with tempfile.TemporaryDirectory() as folder:
            found = Path(folder) / "bench.json"
            done = subprocess.run(
                [self.arguments.ridge, "bench", f"--network={self.work['network']}",
                 f"--batch-size={self.work['batch'] * self.gpus}", "--mode=training",
                 f"--iterations={self.steps()}", f"--warmup={WARMUP}", "--device=cuda",
                 f"--dtype={self.arguments.dtype}", "--compile",
                 "--compileContext={'mode': 'max-autotune'}", f"--export-json={found}",
                 *self.flags], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
            if not found.exists():
                raise Fault(done.stdout.strip().splitlines()[-1] if done.stdout else "no result")
            summary = json.loads(found.read_text())["performance_summary"]
        steps = summary["device_seconds"][summary["steps_left_out_of_averages"]:]
        return summary | {"median_batch_time": statistics.median(steps)}


def with_interval(values, form):
    low, high = bootstrap_interval(values)
    return f"{form(statistics.median(values))} ({form(low)} to {form(high)})"


def row_of(work, side, alone, other):
    """`alone`: the same side on each GPU alone; `other`: the other side on the same GPUs."""
    def milliseconds(x):
        return f"{x * 1e3:.2f}"

    cells = [work, side.title, with_interval(side.rounds, milliseconds) + " ms"]
    slowest = [max(times) for times in zip(*(one.rounds for one in alone))]
    cells.append("" if side in alone else with_interval(
        [a / b for a, b in zip(slowest, side.rounds)], lambda x: f"{x:.1%}"))
    cells.append("" if other is None else with_interval(
        [a / b for a, b in zip(side.rounds, other.rounds)], lambda x: f"{x:.3f}"))
    return [*cells, f"{side.memory / 2**20:,.0f} MiB"]


def run_work(arguments, work):
    """The table's rows of one work, and its sides."""
    each = [*range(arguments.gpus), None]
    peers = {gpu: Peer(arguments, work, gpu) for gpu in each}
    for peer in peers.values():
        peer.start()
    for peer in peers.values():
        peer.ready()
    ours = [*(Ridge(arguments, work, gpu) for gpu in each),
            *(Ridge(arguments, work, zero=zero) for zero in arguments.zero)]
    sides = [*ours, *peers.values()]
    for number in range(arguments.rounds):
        for side in sides:
            side.run()
        print(f"  {work}, round {number + 1}: " +
              ", ".join(f"{s.title} {s.rounds[-1] * 1e3:.2f}" for s in sides), file=sys.stderr)
    for peer in peers.values():
        peer.close()
    rows = [row_of(work, side, ours[:arguments.gpus], peers[side.gpu]) for side in ours]
    alone = list(peers.values())[:arguments.gpus]
    return rows + [row_of(work, peer, alone, None) for peer in peers.values()], sides


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--ridge", default=str(ROOT / "build/bin/ridge"))
    parser.add_argument("--gpus", type=int, default=2)
    parser.add_argument("--works", type=list_of, default=list(WORKS), help=",".join(WORKS))
    parser.add_argument("--zero", type=list_of, default=["1"], help="stages to measure as well")
    parser.add_argument("--dtype", choices=["fp32", "tf32", "bf16"], default="bf16")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--json", type=Path, help="write a results file here, work by work")
    arguments = parser.parse_args()
    arguments.device = "cuda"
    for work in set(arguments.works) - set(WORKS):
        parser.error(f"--works: there is no {work}; there are {', '.join(WORKS)}")
    table = {"columns": ["Work of a GPU", "Side", "Time per step (95 %)", "Efficiency (95 %)",
                         "This / PyTorch (95 %)", "Memory of a GPU"], "rows": []}
    figures, faults = {}, 0
    for work in arguments.works:
        try:
            rows, sides = run_work(arguments, work)
        except Fault as fault:
            print(f"{work}: {fault}", file=sys.stderr)
            faults += 1
            continue
        print("\n".join(markdown_lines({"columns": table["columns"], "rows": rows})), flush=True)
        table["rows"] += rows
        figures[work] = [dict(title=s.title, rounds=s.rounds, memory=s.memory) for s in sides]
        if arguments.json:
            write_results(arguments.json, "Training a LLaMA", f"Training on {arguments.gpus} GPUs",
                          machine(arguments), [table], figures)
    print(f"\n{machine(arguments)}, {arguments.gpus} GPUs, {arguments.dtype}; "
          f"{arguments.rounds} rounds.")
    sys.exit(1 if faults else 0)


if __name__ == "__main__":
    main()
