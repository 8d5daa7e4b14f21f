#!/usr/bin/env python3
"""Training speed and memory: versions of Ridge against PyTorch, interleaved.

    benchmarks/peers/train_speed.py --ridge build/bin/ridge
    benchmarks/peers/train_speed.py --versions v1,v4 --dtype bf16 --sizes readme,long
    benchmarks/peers/train_speed.py --device cuda --dtype bf16 --json speed.json
    benchmarks/peers/train_speed.py --device cuda --versions= --variants eager,graphs,captured

Each round runs the Ridge program and then some steps of each PyTorch worker, a process that stays
alive and warm; a round's figure is the median of its steps. The table at the end, in Markdown, has
the medians over rounds and the median of the rounds' ratios, each with a 95 % bootstrap interval.
Steps include everything a training loop does: feeding tokens, forward, loss read back, backward,
AdamW.

On the CPU, memory of tensors is the most that was allocated at once: by Ridge's allocator, as it
reports it, and by PyTorch's, as torch.profiler records it. RSS is the growth of the process from
before its model is built to its peak; for Ridge it is the whole process, which includes it.

On the GPU, PyTorch's is torch.cuda.max_memory_allocated. MFU is the arithmetic of v1's graph, with
half of the causal attention counted, over the step's time and the dense peak of an H100 SXM.
Kernels, copies and fills, and the calls that enqueue them, are counted in a profile of some steps
after the rounds; the share of time with no kernel running is 1 - (their time in the profile) /
(the step's time without one)."""

import argparse
import contextlib
import json
import os
import platform
import random
import re
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from device_activity import device_activity
from torch_training import VARIANTS, WARMUP

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
from results_file import ROOT, markdown_lines, write_results  # noqa: E402


def shape(hidden, layers, heads, kv_heads, intermediate, seq, batch):
    return dict(hidden_dim=hidden, n_layers=layers, n_heads=heads, n_kv_heads=kv_heads,
                intermediate_dim=intermediate, seq_len=seq, batch_size=batch)


SIZES = {
    "tiny": shape(256, 4, 8, 4, 512, 128, 8),  # Ridge's default
    "readme": shape(512, 8, 8, 4, 2048, 128, 8),
    "long": shape(512, 8, 8, 4, 2048, 512, 8),
    "medium": shape(1024, 12, 16, 8, 4096, 512, 16),
    "large": shape(2048, 16, 16, 8, 8192, 1024, 8),
}
# Steps of a round: on the CPU as many for all, on the GPU what takes some tenths of a second.
CPU_STEPS = 20
CUDA_STEPS, CUDA_SECONDS = range(8, 201), 0.4
# Its workers hold most of a card's memory and start when all others have ended.
LAST = "large"
DEFAULTS = {
    "cpu": dict(sizes="tiny,readme,long", variants="eager,tuned,compile", versions="v1,v4",
                rounds=15),
    "cuda": dict(sizes="tiny,readme,medium,large", variants="eager,captured",
                 versions="v1,v2,v3,v4", rounds=3),
}
# FLOP/s of an H100 SXM without sparsity (NVIDIA's datasheet).
CUDA_PEAKS = {"fp32": 66.9e12, "tf32": 494.7e12, "bf16": 989.4e12}
PROFILED_STEPS = 3


# The PyTorch side --------------------------------------------------------------------------------

class Fault(Exception):
    """Why a side has no figure."""


class TorchWorker:
    """torch_training.py in a process. ready() waits until it is warm."""

    def __init__(self, arguments, size, variant, memory=False):
        self.job = dict(size=size, variant=variant, dtype=arguments.dtype, device=arguments.device,
                        threads=arguments.threads, memory=memory)
        # Compiling takes processes of its own; as many as cores, of each worker, would be too many.
        environment = {"OMP_NUM_THREADS": str(arguments.threads),
                       "TORCHINDUCTOR_COMPILE_THREADS": str(min(8, arguments.threads))}
        self.process = subprocess.Popen(
            [sys.executable, HERE / "torch_training.py", json.dumps(self.job)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=os.environ | environment)
        self.first, self.begin = None, time.perf_counter()

    def ready(self):
        if not self.first:
            self.first = self.read()
            if not self.job["memory"]:
                since_start = time.perf_counter() - self.begin
                print(f"  {self.job['variant']} is warm after {since_start:.1f} s, "
                      f"{self.first['start']:.1f} s of them for the model, compiling and "
                      f"{WARMUP} steps", file=sys.stderr)
        return self

    def read(self):
        line = self.process.stdout.readline()
        if not line:
            raise Fault(f"failed with exit code {self.process.wait()}")
        answer = json.loads(line)
        if isinstance(answer, dict) and "out_of_memory" in answer:
            self.close()
            raise Fault("out of memory")
        return answer

    def ask(self, command, count):
        self.process.stdin.write(f"{command} {count}\n")
        self.process.stdin.flush()
        return self.read()

    def close(self):
        self.process.stdin.close()
        self.process.wait()


# The Ridge side ----------------------------------------------------------------------------------

def run_ridge(arguments, size, version, warmup, steps, *more):
    """Runs the program in a directory of its own, and returns its performance summary with its peak
    RSS as "rss", its duration as "duration", and the events of its trace if it wrote one."""
    with tempfile.TemporaryDirectory() as folder:
        flags = [f"--{key.replace('_', '-')}={value}" for key, value in size.items()]
        command = [arguments.ridge, "train", f"--version={version}", f"--dtype={arguments.dtype}",
                   f"--device={arguments.device}", f"--threads={arguments.threads}",
                   f"--num-steps={warmup + steps}", f"--warmup-steps={warmup}",
                   f"--output-dir={folder}", f"--profile-dir={folder}/profile", *flags, *more]
        begin = time.perf_counter()
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        # The kernel keeps the peak; the last look is a few milliseconds before the end.
        peak_kib = 0
        while process.poll() is None:
            try:
                text = Path(f"/proc/{process.pid}/status").read_text()
            except OSError:
                break
            found = re.search(r"VmHWM:\s+(\d+)", text)
            peak_kib = int(found[1]) if found else peak_kib
            time.sleep(0.005)
        output = process.communicate()[0].decode(errors="replace")
        seconds = time.perf_counter() - begin
        if process.returncode != 0:
            print(f"{' '.join(command)}\n{output}", file=sys.stderr)
            raise Fault(output.strip().splitlines()[-1] if output.strip() else
                        f"failed with exit code {process.returncode}")
        summary = json.loads((Path(folder) / "performance_summary.json").read_text())
        traces = list(Path(folder).glob("profile/trace_step_*.json"))
        events = json.loads(traces[0].read_text())["traceEvents"] if traces else None
        return summary["performance_summary"] | {
            "rss": peak_kib * 1024, "duration": seconds, "events": events}


def ridge_activity(arguments, size, version):
    profile = run_ridge(arguments, size, version, WARMUP, PROFILED_STEPS, "--profile",
                        f"--profile-steps={PROFILED_STEPS}")
    events = profile["events"] or []
    steps = {e["name"] for e in events if e["name"].startswith("ProfilerStep#")}
    return device_activity(events, len(steps))


def time_to_first_step(arguments, size, runs=10):
    """From the process's start to its end after one step: a bit more than to the step's end."""
    return [run_ridge(arguments, size, "v1", 0, 1)["duration"] for _ in range(runs)]


# Comparison --------------------------------------------------------------------------------------

def bootstrap_interval(values, resamples=10000):
    """95 % percentile interval of the median."""
    generator = random.Random(0)
    medians = sorted(
        statistics.median(generator.choices(values, k=len(values))) for _ in range(resamples))
    return medians[int(0.025 * resamples)], medians[int(0.975 * resamples)]


def is_compiled(variant):
    return "compile" in VARIANTS[variant]


class Row:
    """A version or a variant at one size: seconds of a step in each round, and what else is known.
    `group` says whose rounds they are, for only those of one group took turns."""

    def __init__(self, title, group):
        self.title, self.group = title, group
        self.rounds, self.state, self.activity, self.fault = [], {}, None, None

    def idle_share(self):
        return max(0.0, 1 - self.activity["busy"] / statistics.median(self.rounds))

    def json(self):
        return dict(title=self.title, fault=self.fault, rounds=self.rounds, state=self.state,
                    activity=self.activity)


class Comparison:
    """All of one size."""

    def __init__(self, arguments, name, workers):
        self.arguments, self.name, self.size = arguments, name, SIZES[name]
        self.workers = workers
        self.ours, self.theirs, self.flops = {}, {}, None

    def run(self):
        arguments = self.arguments
        for version in arguments.versions:
            self.ours[version] = Row(f"Ridge {version}", 0)
        for variant in arguments.variants:
            self.theirs[variant] = Row(VARIANTS[variant]["title"], 0)
            if arguments.device == "cpu":
                self.tensor_memory(variant)
        self.take_turns(arguments.variants, arguments.versions, group=0)
        # What found too little memory beside the others has another try alone.
        for variant, row in self.theirs.items():
            if row.fault == "out of memory":
                row.group, row.fault = variant, None
                self.take_turns([variant], [], group=variant)
        if arguments.device == "cuda":
            for version in [v for v, row in self.ours.items() if not row.fault]:
                with self.faults_of(self.ours[version]):
                    self.ours[version].activity = ridge_activity(arguments, self.size, version)

    def tensor_memory(self, variant):
        row = self.theirs[variant]
        with self.faults_of(row):
            job = TorchWorker(self.arguments, self.size, variant, memory=True).ready()
            row.state["tensors"] = job.first
            job.close()

    @contextlib.contextmanager
    def faults_of(self, row):
        try:
            yield
        except Fault as fault:
            row.rounds.clear()
            row.fault = str(fault)
            print(f"  {self.name}, {row.title}: {fault}", file=sys.stderr)

    def take_turns(self, variants, versions, group):
        workers = {}
        for variant in variants:
            with self.faults_of(self.theirs[variant]):
                workers[variant] = (self.workers.pop(variant, None) or
                                    TorchWorker(self.arguments, self.size, variant)).ready()
                self.theirs[variant].state |= workers[variant].first
        for number in range(self.arguments.rounds):
            for version in versions:
                self.run_version(version)
            for variant, worker in workers.items():
                self.run_variant(variant, worker)
            rows = [row for row in (self.ours | self.theirs).values()
                    if row.group == group and row.rounds]
            times = ", ".join(f"{row.title} {row.rounds[-1] * 1e3:.2f}" for row in rows)
            print(f"  {self.name}, round {number + 1}: {times} ms", file=sys.stderr)
        for variant, worker in workers.items():
            with self.faults_of(self.theirs[variant]):
                if self.arguments.device == "cuda" and not self.theirs[variant].fault:
                    self.theirs[variant].activity = worker.ask("profile", PROFILED_STEPS)
            worker.close()

    def steps_of(self, row):
        """Steps of a round, by the last round's time of one, or a first guess from the warm-up."""
        if self.arguments.steps or self.arguments.device == "cpu":
            return self.arguments.steps or CPU_STEPS
        seconds = row.rounds[-1] if row.rounds else row.state.get("step_seconds", CUDA_SECONDS)
        return min(max(int(CUDA_SECONDS / seconds), CUDA_STEPS[0]), CUDA_STEPS[-1])

    def run_variant(self, variant, worker):
        row = self.theirs[variant]
        if row.fault:
            return
        with self.faults_of(row):
            row.rounds.append(statistics.median(worker.ask("steps", self.steps_of(row))))

    def run_version(self, version):
        row = self.ours[version]
        if row.fault:
            return
        with self.faults_of(row):
            summary = run_ridge(self.arguments, self.size, version, WARMUP, self.steps_of(row))
            row.rounds.append(summary["median_batch_time"])
            row.state = {"tensors": summary["peak_memory_bytes"], "rss": summary["rss"]}
            if version == "v1" or self.flops is None:
                self.flops = summary["flops_per_step"]["total_causal"]
            # Steps that are only enqueued would seem to take no time.
            if sum(summary["step_seconds"]) < 0.5 * summary["total_seconds"]:
                print(f"  {row.title}: its steps add up to {sum(summary['step_seconds']):.3f} s "
                      f"of the run's {summary['total_seconds']:.3f} s", file=sys.stderr)

    def json(self):
        return {"shape": self.size, "flops_per_step": self.flops,
                "rows": {k: row.json() for k, row in (self.ours | self.theirs).items()}}

    def ratio(self, version, row):
        ours = self.ours[version]
        if row in self.ours.values() or not ours.rounds:
            return ""
        if row.group != ours.group:
            return f"{statistics.median(ours.rounds) / statistics.median(row.rounds):.3f}"
        ratios = [a / b for a, b in zip(ours.rounds, row.rounds)]
        low, high = bootstrap_interval(ratios)
        return f"{statistics.median(ratios):.3f} ({low:.3f} to {high:.3f})"

    def cells(self, row):
        if not row.rounds:
            return [self.name, row.title, row.fault]
        seconds = statistics.median(row.rounds)
        low, high = bootstrap_interval(row.rounds)
        cells = [self.name, row.title,
                 f"{seconds * 1e3:.2f} ms ({low * 1e3:.2f} to {high * 1e3:.2f})",
                 *(self.ratio(version, row) for version in self.ours),
                 f"{row.state['tensors'] / 2**20:,.1f} MiB"]
        if self.arguments.device == "cpu":
            return [*cells, f"{row.state['rss'] / 2**20:.0f} MiB"]
        mfu = self.flops and self.flops / seconds / CUDA_PEAKS[self.arguments.dtype]
        done = row.activity
        return [*cells, f"{self.size['batch_size'] * self.size['seq_len'] / seconds:,.0f}",
                f"{mfu:.1%}" if mfu else "",
                *((f"{done['kernels']:.0f}", f"{done['copies']:.0f}", f"{done['launches']:.0f}",
                   f"{row.idle_share():.1%}") if done else ())]

    def table_rows(self, columns):
        """As many cells each as there are columns."""
        rows = [self.cells(row) for row in [*self.ours.values(), *self.theirs.values()]]
        return [cells + [""] * (columns - len(cells)) for cells in rows]


def head(arguments):
    columns = ["Size", "Side", "Time per step (95 %)",
               *(f"{v} / this (95 %)" for v in arguments.versions), "Tensors"]
    if arguments.device == "cpu":
        columns.append("RSS")
    else:
        columns += ["Tokens/s", "MFU", "Kernels", "Copies", "Launches", "No kernel"]
    return columns


def compiled_workers(arguments, sizes):
    """Compiles for all sizes at once, before anything is timed; by size and variant."""
    workers = {name: {variant: TorchWorker(arguments, SIZES[name], variant)
                      for variant in arguments.variants if is_compiled(variant)}
               for name in sizes}
    for of_size in workers.values():
        for variant, worker in list(of_size.items()):
            try:
                worker.ready()
            except Fault:  # it has another try where it is measured
                del of_size[variant]
    return workers


def compare(arguments):
    """The comparisons, one after the other, each when it is done."""
    early = [n for n in arguments.sizes if n != LAST]
    for sizes in (early, [n for n in arguments.sizes if n == LAST]):
        workers = compiled_workers(arguments, sizes) if arguments.device == "cuda" else {}
        for name in sizes:
            comparison = Comparison(arguments, name, workers.get(name, {}))
            comparison.run()
            yield comparison


# What the table says of the machine --------------------------------------------------------------

def cpu_model():
    names = re.findall(r"model name\s*:\s*(.*)", Path("/proc/cpuinfo").read_text())
    return names[0] if names else platform.processor()


def gpu_state():
    fields = "name,driver_version,power.limit,clocks.max.sm"
    try:
        done = subprocess.run(["nvidia-smi", f"--query-gpu={fields}", "--format=csv,noheader"],
                              capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return "GPU unknown"
    return done.stdout.splitlines()[0]


def machine(arguments):
    if arguments.device == "cuda":
        return f"{gpu_state()}; {cpu_model()}, {arguments.threads} threads"
    return f"{cpu_model()}, {arguments.threads} threads"


def list_of(text):
    return [part for part in text.split(",") if part]


def parsed_arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--ridge", default=str(ROOT / "build/bin/ridge"))
    parser.add_argument("--device", choices=list(DEFAULTS), default="cpu")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--steps", type=int, help=f"per round and side; default: {CPU_STEPS}, "
                        f"or on the GPU what takes {CUDA_SECONDS} s, within "
                        f"{CUDA_STEPS[0]} and {CUDA_STEPS[-1]}")
    parser.add_argument("--variants", type=list_of, help=", ".join(VARIANTS))
    parser.add_argument("--versions", type=list_of, help="of Ridge; empty: PyTorch alone")
    parser.add_argument("--sizes", type=list_of, help=", ".join(SIZES))
    parser.add_argument("--dtype", choices=list(CUDA_PEAKS), default="fp32",
                        help="bf16: PyTorch runs under autocast; tf32: on the GPU only")
    parser.add_argument("--json", type=Path, help="write a results file here, size by size")
    arguments = parser.parse_args()
    for name, value in DEFAULTS[arguments.device].items():
        if getattr(arguments, name) is None:
            setattr(arguments, name, list_of(value) if isinstance(value, str) else value)
    for name, known in {"variants": VARIANTS, "sizes": SIZES}.items():
        for word in set(getattr(arguments, name)) - set(known):
            parser.error(f"--{name}: there is no {word}; there are {', '.join(known)}")
    for variant in arguments.variants:
        if VARIANTS[variant].get("device", arguments.device) != arguments.device:
            parser.error(f"--variants: {variant} is for --device {VARIANTS[variant]['device']}")
    if arguments.device == "cpu" and arguments.dtype == "tf32":
        parser.error("--dtype tf32 is for --device cuda")
    return arguments


def warn_if_busy(arguments):
    if arguments.device == "cpu" and os.getloadavg()[0] > 1:
        print(f"The machine is busy (load average {os.getloadavg()[0]:.1f}): threads that wait for "
              "each other suffer most, so the figures will not be good.", file=sys.stderr)


def main():
    arguments = parsed_arguments()
    warn_if_busy(arguments)
    table = {"columns": head(arguments), "rows": []}
    figures, versions_of_torch, whole = {}, set(), True
    for comparison in compare(arguments):
        table["rows"] += comparison.table_rows(len(table["columns"]))
        figures[comparison.name] = comparison.json()
        versions_of_torch |= {r.state["torch"] for r in comparison.theirs.values() if r.rounds}
        whole &= all(r.fault in (None, "out of memory")
                     for r in (comparison.ours | comparison.theirs).values())
        if arguments.json:
            write_results(
                arguments.json, "Training a LLaMA",
                f"A training step against PyTorch, {arguments.device}, {arguments.dtype}",
                machine(arguments), [table], {"dtype": arguments.dtype, "sizes": figures})
    first = time_to_first_step(arguments, SIZES["tiny"]) if arguments.versions and whole else None
    print("\n".join(markdown_lines(table)))
    print()
    print(f"{machine(arguments)}, {arguments.dtype}; Linux {platform.release()}, PyTorch "
          f"{', '.join(versions_of_torch)}, Python {platform.python_version()}; {arguments.rounds} "
          f"rounds; load average at the end {os.getloadavg()[0]:.1f}.")
    if first:
        print(f"Ridge's process from its start, over one step of the tiny size, to its end: median "
              f"{statistics.median(first) * 1e3:.0f} ms, slowest of {len(first)} "
              f"{max(first) * 1e3:.0f} ms.")
    sys.exit(0 if whole else 1)


if __name__ == "__main__":
    main()
