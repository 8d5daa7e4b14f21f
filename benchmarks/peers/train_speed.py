#!/usr/bin/env python3
"""Training speed and memory on the CPU: versions of Ridge against PyTorch, interleaved.

    benchmarks/peers/train_speed.py --ridge build/bin/ridge
    benchmarks/peers/train_speed.py --versions v1,v4 --dtype bf16 --sizes wide,long

Each round runs the Ridge program and then some steps of each PyTorch worker, a process that stays
alive and warm; a round's figure is the median of its steps. The table at the end, in Markdown, has
the medians over rounds and the median of the rounds' ratios with a 95 % bootstrap interval. Steps
include everything a training loop does: feeding tokens, forward, loss read back, backward, AdamW.

Memory of tensors is the most that was allocated at once: by Ridge's allocator, as it reports it,
and by PyTorch's CPU allocator, as torch.profiler records it. RSS is the growth of the process from
before its model is built to its peak; for Ridge it is the whole process, which includes it."""

import argparse
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

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]

SIZES = {
    "default": dict(hidden_dim=256, n_layers=4, n_heads=8, n_kv_heads=4, intermediate_dim=512,
                    seq_len=128, batch_size=8),
    "wide": dict(hidden_dim=512, n_layers=8, n_heads=8, n_kv_heads=4, intermediate_dim=2048,
                 seq_len=128, batch_size=8),
    "long": dict(hidden_dim=512, n_layers=8, n_heads=8, n_kv_heads=4, intermediate_dim=2048,
                 seq_len=512, batch_size=8),
}
VARIANTS = {
    "eager": "PyTorch eager",
    "tuned": "PyTorch eager, fused attention and AdamW",
    "compile": "PyTorch torch.compile, fused AdamW",
}
WARMUP = 5


# The PyTorch side, in a process of its own -------------------------------------------------------

def status_kib(key):
    for line in open("/proc/self/status"):
        if line.startswith(key + ":"):
            return int(line.split()[1])


class TorchTraining:
    def __init__(self, size, variant, dtype):
        import torch
        from tiny_llama import Config, TinyLlama, loss_of

        torch.manual_seed(0)
        shape = {k: v for k, v in size.items() if k not in ("seq_len", "batch_size")}
        config = Config(**shape, max_seq_len=size["seq_len"], sdpa=variant == "tuned")
        self.model = TinyLlama(config)
        self.optimizer = torch.optim.AdamW(
            self.model.parameters(), lr=1e-4, weight_decay=0.01, fused=variant != "eager" or None)
        self.tokens = torch.randint(
            0, config.vocab_size, (64, size["batch_size"], size["seq_len"] + 1))
        def forward(x, y):
            with torch.autocast("cpu", torch.bfloat16, enabled=dtype == "bf16"):
                return loss_of(self.model(x), y)

        self.forward = forward
        if variant == "compile":
            self.forward = torch.compile(self.forward)
        self.done = 0

    def step(self):
        begin = time.perf_counter()
        window = self.tokens[self.done % len(self.tokens)]
        self.optimizer.zero_grad()
        loss = self.forward(window[:, :-1], window[:, 1:])
        value = loss.item()
        loss.backward()
        self.optimizer.step()
        self.done += 1
        assert value == value
        return time.perf_counter() - begin


def torch_tensor_memory(size, variant, dtype):
    """The most bytes PyTorch's CPU allocator has handed out at once, over the model's life."""
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as recorded:
        training = TorchTraining(size, variant, dtype)
        for _ in range(3):
            training.step()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        recorded.export_chrome_trace(str(path))
        events = json.loads(path.read_text())["traceEvents"]
    memory = [(e["ts"], e["args"]["Bytes"]) for e in events if e.get("name") == "[memory]"]
    live = peak = 0
    for _, change in sorted(memory, key=lambda event: event[0]):
        live += change
        peak = max(peak, live)
    return peak


def worker(job):
    import torch

    torch.set_num_threads(job["threads"])
    if job["memory"]:
        print(json.dumps(torch_tensor_memory(job["size"], job["variant"], job["dtype"])),
              flush=True)
        return
    torch.randn(64, 64) @ torch.randn(64, 64)  # its threads and library are not the model's
    before = status_kib("VmRSS")
    training = TorchTraining(job["size"], job["variant"], job["dtype"])
    for _ in range(WARMUP):
        training.step()
    print(json.dumps({"rss": (status_kib("VmHWM") - before) * 1024, "torch": torch.__version__}),
          flush=True)
    for line in sys.stdin:
        print(json.dumps([training.step() for _ in range(int(line))]), flush=True)


class TorchWorker:
    def __init__(self, size, variant, dtype, threads, memory=False):
        job = dict(size=size, variant=variant, dtype=dtype, threads=threads, memory=memory)
        self.process = subprocess.Popen(
            [sys.executable, __file__, "--worker", json.dumps(job)], stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, text=True,
            env=os.environ | {"OMP_NUM_THREADS": str(threads)})
        self.first = self.read()

    def read(self):
        line = self.process.stdout.readline()
        if not line:
            sys.exit(f"the PyTorch worker failed (exit code {self.process.wait()})")
        return json.loads(line)

    def steps(self, count):
        self.process.stdin.write(f"{count}\n")
        self.process.stdin.flush()
        return self.read()

    def close(self):
        self.process.stdin.close()
        self.process.wait()


# The Ridge side ----------------------------------------------------------------------------------

def run_ridge(program, size, version, dtype, threads, warmup, steps):
    """Runs the program and returns its performance summary, its peak RSS and its duration."""
    with tempfile.TemporaryDirectory() as folder:
        flags = [f"--{key.replace('_', '-')}={value}" for key, value in size.items()]
        command = [program, "train", f"--version={version}", f"--dtype={dtype}", "--device=cpu",
                   f"--threads={threads}",
                   f"--num-steps={warmup + steps}", f"--warmup-steps={warmup}",
                   f"--output-dir={folder}", *flags]
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
            sys.exit(f"{' '.join(command)}\nfailed:\n{output}")
        summary = json.loads((Path(folder) / "performance_summary.json").read_text())
        return summary["performance_summary"], peak_kib * 1024, seconds


def time_to_first_step(program, size, threads, runs=10):
    """From the process's start to its end after one step: a bit more than to the step's end."""
    return [run_ridge(program, size, "v1", "fp32", threads, 0, 1)[2] for _ in range(runs)]


# Comparison --------------------------------------------------------------------------------------

def bootstrap_interval(values, resamples=10000):
    """95 % percentile interval of the median."""
    generator = random.Random(0)
    medians = sorted(
        statistics.median(generator.choices(values, k=len(values))) for _ in range(resamples))
    return medians[int(0.025 * resamples)], medians[int(0.975 * resamples)]


def measure(arguments, size):
    """A row for each version and each variant, with the ratios of every version to the variant."""
    variants, versions = arguments.variants.split(","), arguments.versions.split(",")
    tensor_bytes = {}
    for variant in variants:
        job = TorchWorker(size, variant, arguments.dtype, arguments.threads, memory=True)
        tensor_bytes[variant] = job.first
        job.close()
    workers = {v: TorchWorker(size, v, arguments.dtype, arguments.threads) for v in variants}
    ours, theirs, memory = {v: [] for v in versions}, {v: [] for v in variants}, {}
    for number in range(arguments.rounds):
        for version in versions:
            summary, rss, _ = run_ridge(arguments.ridge, size, version, arguments.dtype,
                                        arguments.threads, WARMUP, arguments.steps)
            ours[version].append(summary["median_batch_time"])
            memory[version] = summary["peak_memory_bytes"], rss
        for variant, process in workers.items():
            theirs[variant].append(statistics.median(process.steps(arguments.steps)))
        times = ", ".join(f"{v} {t[-1] * 1e3:.2f}" for v, t in (ours | theirs).items())
        print(f"  round {number + 1}: {times} ms", file=sys.stderr)
    for process in workers.values():
        process.close()

    rows = [(f"Ridge {v}", statistics.median(ours[v]), [""] * len(versions), *memory[v])
            for v in versions]
    for variant in variants:
        parts = []
        for version in versions:
            ratios = [a / b for a, b in zip(ours[version], theirs[variant])]
            low, high = bootstrap_interval(ratios)
            parts.append(f"{statistics.median(ratios):.3f} ({low:.3f} to {high:.3f})")
        rows.append((VARIANTS[variant], statistics.median(theirs[variant]), parts,
                     tensor_bytes[variant], workers[variant].first["rss"]))
    return rows, workers[variants[0]].first["torch"]


def cpu_model():
    names = re.findall(r"model name\s*:\s*(.*)", Path("/proc/cpuinfo").read_text())
    return names[0] if names else platform.processor()


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--ridge", default=str(ROOT / "build/bin/ridge"))
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--steps", type=int, default=20, help="per round and side")
    parser.add_argument("--variants", default=",".join(VARIANTS))
    parser.add_argument("--versions", default="v1,v4")
    parser.add_argument("--sizes", default=",".join(SIZES))
    parser.add_argument("--dtype", choices=["fp32", "bf16"], default="fp32",
                        help="bf16: PyTorch runs under autocast")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.worker:
        worker(json.loads(arguments.worker))
        return

    if os.getloadavg()[0] > 1:
        print(f"The machine is busy (load average {os.getloadavg()[0]:.1f}): threads that wait for "
              "each other suffer most, so the figures will not be good.", file=sys.stderr)
    parts = " | ".join(f"{v}'s part of it (95 %)" for v in arguments.versions.split(","))
    columns = arguments.versions.count(",") + 1
    lines = [f"| Size | | Time per step | {parts} | Tensors | RSS |",
             "|---|---|---:|" + "---:|" * columns + "---:|---:|"]
    for name in arguments.sizes.split(","):
        print(name, file=sys.stderr)
        rows, torch_version = measure(arguments, SIZES[name])
        for who, seconds, ratios, tensors, rss in rows:
            lines.append(f"| {name} | {who} | {seconds * 1e3:.2f} ms | {' | '.join(ratios)} | "
                         f"{tensors / 2**20:.1f} MiB | {rss / 2**20:.0f} MiB |")
    first = time_to_first_step(arguments.ridge, SIZES["default"], arguments.threads)
    load = os.getloadavg()[0]
    print("\n".join(lines))
    print()
    print(f"{cpu_model()}, {arguments.threads} threads, {arguments.dtype}; Linux {platform.release()}, PyTorch "
          f"{torch_version}, Python {platform.python_version()}; {arguments.rounds} rounds of "
          f"{arguments.steps} steps; load average at the end {load:.1f}.")
    print(f"Ridge's process from its start, over one step of the default size, to its end: median "
          f"{statistics.median(first) * 1e3:.0f} ms, slowest of {len(first)} "
          f"{max(first) * 1e3:.0f} ms.")


if __name__ == "__main__":
    main()
