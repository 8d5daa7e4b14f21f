#!/usr/bin/env python3
"""Ridge against PyTorch at shapes drawn by chance, worst first: where is it slow that nobody tuned?

    benchmarks/peers/space.py --count 60 --seed 7 --device cuda --dtype bf16 --json space.json
    benchmarks/peers/space.py --of networks --count 60 --seed 7 --device cuda --dtype fp16
    benchmarks/peers/space.py --count 20 --seed 7 --rounds 5
    benchmarks/peers/space.py --count 60 --seed 7 --device cuda --list

A seed draws the same shapes everywhere. Each is trained by Ridge's v4 and by PyTorch's best, on the
GPU torch.compile with the whole step in one CUDA graph, in turns: the figure of a round is the
median of its steps, and the ratio is the median of the rounds' ratios. Networks take turns in the
same way, in inference or training, Ridge's fastest compile mode against PyTorch's fastest. A shape
is drawn again if a step would take more arithmetic or memory than a machine of the kind has.

For each shape the table says where Ridge's time goes: the operators that take most of a step, with
the shape of their first operand and the rate at which they compute or move data. "By floors" is what
Ridge's part would be if every operator took no longer than its bytes or products at the best rate of
this machine: no change of a kernel gets below it, only other operators do.

With --json the figures are written shape by shape, and a run that was stopped goes on where it was.
Of PyTorch's sides --starts get ready at once, before any of them is measured: compiling takes
processors, the device each has alone."""

import argparse
import contextlib
import json
import math
import os
import random
import statistics
import sys
import tempfile
from pathlib import Path

import train_speed
import vision_speed
from torch_training import WARMUP
from train_speed import Fault, TorchWorker, list_of, machine, markdown_lines, run_ridge

# What a shape may take. On the CPU a step is to last about a second at most.
LIMITS = {"cpu": dict(hidden=(64, 768), layers=(2, 8), seq=(16, 1024), vocab=(256, 50257),
                      flops=(2e8, 1.5e11), bytes=6e9, tokens=(32, 8192)),
          "cuda": dict(hidden=(192, 4096), layers=(2, 32), seq=(32, 16384), vocab=(256, 128256),
                       flops=(2e9, 6e13), bytes=50e9, tokens=(256, 65536))}
HEAD_WIDTHS = [32, 40, 48, 64, 72, 80, 96, 112, 128, 160, 192, 224, 256]
VOCABULARIES = [1000, 32000, 50257, 50304, 128256]  # of models that people train
# torch.compile as people call it on a CPU; on a card also fused attention and one captured step.
BEST = {"cpu": "compile", "cuda": "captured"}
BATCHES = {"cpu": (1, 16), "cuda": (1, 256)}


# Drawing -----------------------------------------------------------------------------------------

def log_uniform(generator, low, high):
    return round(math.exp(generator.uniform(math.log(low), math.log(high))))


def step_flops(size):
    """Forward and backward products of a step, all attention counted."""
    hidden, layers, seq = size["hidden_dim"], size["n_layers"], size["seq_len"]
    tokens = seq * size["batch_size"] * size["gradient_accumulation_steps"]
    kv = hidden // size["n_heads"] * size["n_kv_heads"]
    weights = layers * (2 * hidden * (hidden + kv) + 3 * hidden * size["intermediate_dim"])
    return 6 * tokens * (weights + hidden * size["vocab_size"] + 2 * layers * seq * hidden)


def step_bytes(size):
    """About what PyTorch holds: parameters, gradients and AdamW's state in f32; activations and
    logits of a batch in mixed precision."""
    hidden, layers = size["hidden_dim"], size["n_layers"]
    tokens = size["seq_len"] * size["batch_size"]
    weights = (layers * (4 * hidden * hidden + 3 * hidden * size["intermediate_dim"])
               + 2 * hidden * size["vocab_size"])
    activations = layers * (40 * hidden + 10 * size["intermediate_dim"])
    return 18 * weights + tokens * (activations + 12 * size["vocab_size"])


def draw_heads(generator, limits):
    while True:
        width = generator.choice(HEAD_WIDTHS)
        hidden = log_uniform(generator, *limits["hidden"])
        heads = max(1, round(hidden / width))
        if limits["hidden"][0] <= heads * width <= limits["hidden"][1]:
            return heads, width


def draw_llama(generator, limits):
    while True:
        heads, width = draw_heads(generator, limits)
        kv_heads = generator.choice([k for k in range(1, heads + 1) if heads % k == 0])
        intermediate = round(heads * width * generator.uniform(2, 5))
        if generator.random() < 0.8:
            intermediate = max(64, intermediate // 64 * 64)
        seq = log_uniform(generator, *limits["seq"])
        if generator.random() < 0.5:
            seq = 1 << max(5, round(math.log2(seq)))
        known = [v for v in VOCABULARIES if v <= limits["vocab"][1]]
        size = dict(
            hidden_dim=heads * width, n_layers=log_uniform(generator, *limits["layers"]),
            n_heads=heads, n_kv_heads=kv_heads, intermediate_dim=intermediate, seq_len=seq,
            batch_size=log_uniform(generator, 1, 64),
            vocab_size=(generator.choice(known) if generator.random() < 0.5
                        else log_uniform(generator, *limits["vocab"])),
            tie_embeddings=generator.random() < 0.3,
            gradient_accumulation_steps=(log_uniform(generator, 2, 64)
                                         if generator.random() < 0.2 else 1))
        low, high = limits["flops"]
        fewest, most = limits["tokens"]
        if (low <= step_flops(size) <= high and step_bytes(size) <= limits["bytes"]
                and fewest <= size["seq_len"] * size["batch_size"] <= most):
            return size


def networks_of(ridge):
    """The classification networks that both sides have."""
    import torchvision

    theirs = set(torchvision.models.list_models(module=torchvision.models))
    listed = vision_speed.run_watched([ridge, "bench", "--list"], 60)[0].splitlines()
    return sorted(theirs & {line.split("|")[0].strip() for line in listed})


def draw_network(generator, arguments):
    return dict(network=generator.choice(arguments.networks),
                batch=log_uniform(generator, *BATCHES[arguments.device]),
                mode=generator.choice(arguments.modes))


def draw(arguments):
    generator = random.Random(arguments.seed)
    if arguments.of == "networks":
        return [draw_network(generator, arguments) for _ in range(arguments.count)]
    limits = LIMITS[arguments.device]
    return [draw_llama(generator, limits) for _ in range(arguments.count)]


def name_of(shape):
    if "network" in shape:
        return f"{shape['network']}, {shape['batch']}, {shape['mode']}"
    heads = f"{shape['n_heads']}:{shape['n_kv_heads']}"
    parts = shape["gradient_accumulation_steps"]
    return (f"{shape['hidden_dim']} x {shape['n_layers']}, {heads} heads of "
            f"{shape['hidden_dim'] // shape['n_heads']}, inner {shape['intermediate_dim']}, vocabulary "
            f"{shape['vocab_size']}{' tied' if shape['tie_embeddings'] else ''}, "
            f"{shape['batch_size']} x {shape['seq_len']}{f' x {parts}' if parts > 1 else ''}")


# Measuring ---------------------------------------------------------------------------------------

def operators_of(arguments, *flags):
    """The longest operators of a step: share, name, operands, rates; and the least time of all, if each
    took no longer than its floor. Nothing if that fails."""
    with tempfile.TemporaryDirectory() as folder:
        found = Path(folder) / "operators.json"
        with contextlib.suppress(Fault):
            vision_speed.run_watched(
                [arguments.ridge, "ops", "--space", f"--dtype={arguments.dtype}",
                 f"--device={arguments.device}", f"--threads={arguments.threads}",
                 f"--export-json={found}", *flags], arguments.budget)
        rows = json.loads(found.read_text())["operators"] if found.exists() else []
    rows.sort(key=lambda row: -row["share_of_step"])
    longest = [dict(share=row["share_of_step"], operator=row["operator"], shape=row["operands"],
                    flops=row["flops_per_step"] / row["seconds_per_step"],
                    bytes=row["bytes_per_step"] / row["seconds_per_step"]) for row in rows[:4]]
    least = sum(min(row["floor_seconds_per_step"], row["seconds_per_step"]) for row in rows)
    return dict(operators=longest, least_seconds=least)


def ridge_flags(size):
    """The size as train_speed.py gives it to the program: a flag without value where it is true."""
    size = dict(size)
    return size, (["--tie-embeddings"] if size.pop("tie_embeddings") else [])


class Llama:
    """A shape of the LLaMA and both sides of it."""

    def __init__(self, arguments, shape):
        self.arguments, self.shape = arguments, shape
        self.worker, self.fault = None, None

    def start(self):
        self.worker = TorchWorker(self.arguments, self.shape, self.arguments.variant)

    def ready(self):
        try:
            self.worker.ready()
        except Fault as fault:
            self.fault = str(fault)

    def steps(self, seconds):
        wanted = 3.0 if self.arguments.device == "cpu" else 0.4
        return min(max(int(wanted / seconds), 3), 100)

    def measure(self):
        size, more = ridge_flags(self.shape)

        def run(steps):
            return run_ridge(self.arguments, size, self.arguments.version, WARMUP, steps, *more)

        ours, theirs, result = [], [], {"theirs_fault": self.fault, "ours_fault": None}
        try:
            first = run(3)
            for _ in range(self.arguments.rounds):
                summary = run(self.steps(first["median_batch_time"]))
                ours.append(summary["median_batch_time"])
                if not self.fault:
                    count = self.steps(self.worker.first["step_seconds"])
                    theirs.append(statistics.median(self.worker.ask("steps", count)))
            result |= dict(ours_bytes=first["peak_memory_bytes"], flops=first["flops_per_step"])
            result |= self.operators()
        except Fault as fault:
            result["ours_fault"] = str(fault)
        if not self.fault:
            result["theirs_bytes"] = self.worker.first.get("tensors")
        return result | dict(ours=ours, theirs=theirs)

    def operators(self):
        options = {key.replace("_", "-"): value for key, value in self.shape.items()}
        with tempfile.TemporaryDirectory() as folder:
            config = Path(folder) / "shape.json"
            config.write_text(json.dumps(options))
            return operators_of(self.arguments, f"--configs={config}", "--mode=training",
                                f"--version={self.arguments.version}")

    def close(self):
        if self.worker and self.worker.process.poll() is None:
            self.worker.close()


class Network:
    """A network, and the sides that vision_speed.py has."""

    def __init__(self, arguments, shape):
        self.arguments = argparse.Namespace(**vars(arguments) | dict(
            mode=shape["mode"], steps=None, budget=arguments.budget, quiet=True, lock=None))
        self.shape = shape
        variants = [v for v in ("max-autotune", "graph", "channels-last")
                    if arguments.device in vision_speed.VARIANTS[v].get("devices", ["cpu", "cuda"])]
        self.theirs = [vision_speed.Peer(self.arguments, shape["network"], shape["batch"], v)
                       for v in variants]
        self.ours = [vision_speed.Ridge(shape["network"], shape["batch"], m)
                     for m in vision_speed.MODES[arguments.device]]

    def start(self):
        pass

    def ready(self):
        for row in self.theirs:
            row.start()

    def measure(self):
        for _ in range(self.arguments.rounds):
            for row in self.ours + self.theirs:
                row.run(self.arguments)
        own, other = vision_speed.fastest(self.ours), vision_speed.fastest(self.theirs)
        operators = operators_of(
            self.arguments, f"--networks={self.shape['network']}", f"--mode={self.shape['mode']}",
            f"--batch-size={self.shape['batch']}", f"--version={own.mode}") if own else {}
        return dict(ours=own.rounds if own else [], theirs=other.rounds if other else [],
                    ours_fault=None if own else str(self.ours[0].fault),
                    theirs_fault=None if other else str(self.theirs[0].fault),
                    ours_bytes=own.memory() if own else None,
                    theirs_bytes=other.memory() if other else None,
                    sides=[r.title for r in (own, other) if r]) | operators

    def close(self):
        for row in self.theirs:
            if row.process:
                row.close()


def measure_all(arguments, shapes, done):
    """Adds to `done`, by the shape's name, what is not there yet; tells after each."""
    side = Network if arguments.of == "networks" else Llama
    left = [shape for shape in shapes if name_of(shape) not in done]
    for first in range(0, len(left), arguments.starts):
        group = [side(arguments, shape) for shape in left[first:first + arguments.starts]]
        for each in group:
            each.start()
        for each in group:
            each.ready()
        for each in group:
            done[name_of(each.shape)] = result = {"shape": each.shape} | each.measure()
            each.close()
            print(f"  {len(done)} of {len(shapes)}: {name_of(each.shape)}: {told(result)}",
                  file=sys.stderr, flush=True)
            yield


# Telling -----------------------------------------------------------------------------------------

def ratio(result):
    """Ridge's part of PyTorch's time; infinite where only PyTorch could, None where nobody tells."""
    if result["ours"] and result["theirs"]:
        return statistics.median(a / b for a, b in zip(result["ours"], result["theirs"]))
    return math.inf if result["theirs"] and result["ours_fault"] else None


def least_ratio(result):
    """What `ratio` would be if each of Ridge's operators took no longer than its floor."""
    least = result.get("least_seconds")
    return least / statistics.median(result["theirs"]) if least and result["theirs"] else None


def memory_ratio(result):
    ours, theirs = result.get("ours_bytes"), result.get("theirs_bytes")
    return ours / theirs if ours and theirs else None


def told(result):
    found = ratio(result)
    if found is None or math.isinf(found):
        return result["ours_fault"] or result["theirs_fault"] or "nothing"
    return f"{found:.3f} of PyTorch's {statistics.median(result['theirs']) * 1e3:.2f} ms"


def where(result):
    def rate(o):
        if o["flops"] > 30 * o["bytes"]:
            return f"{o['flops'] / 1e12:.3g} TFLOP/s"
        return f"{o['bytes'] / 1e9:.0f} GB/s"

    return "; ".join(f"{o['operator']} {o['shape']} {o['share']:.0%}, {rate(o)}"
                     for o in result.get("operators", []))


def table_of(results):
    def slowness(result):
        return -1 if ratio(result) is None else ratio(result)

    rows = []
    for result in sorted(results, key=slowness, reverse=True):
        def milliseconds(side):
            fault = result[f"{side}_fault"]
            return (f"{statistics.median(result[side]) * 1e3:.2f} ms" if result[side]
                    else fault or "")

        memory, part, least = memory_ratio(result), ratio(result), least_ratio(result)
        rows.append([name_of(result["shape"]), milliseconds("ours"), milliseconds("theirs"),
                     f"{part:.3f}" if part is not None else "",
                     f"{least:.3f}" if least else "", f"{memory:.2f}" if memory else "",
                     where(result)])
    return {"columns": ["Shape", "Ridge", "PyTorch", "Ridge's part", "by floors", "of its memory",
                        "Where Ridge's time goes"], "rows": rows}


def summary(results):
    parts = sorted(r for r in map(ratio, results) if r is not None)
    memory = [m for m in map(memory_ratio, results) if m]
    if not parts:
        return "Nothing could be compared."
    text = (f"{len(parts)} of {len(results)} compared: worst {parts[-1]:.2f}, median "
            f"{statistics.median(parts):.2f}, best {parts[0]:.2f}; "
            f"{sum(p > 1 for p in parts)} slower than PyTorch")
    if least := [p for p in map(least_ratio, results) if p]:
        text += f"; median by floors {statistics.median(least):.2f}"
    return text + (f"; memory at worst {max(memory):.2f} of PyTorch's." if memory else ".")


def parsed_arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--ridge", default=str(train_speed.ROOT / "build/bin/ridge"))
    parser.add_argument("--of", choices=["llama", "networks"], default="llama")
    parser.add_argument("--count", type=int, default=20, help="of shapes")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--dtype", choices=["fp32", "tf32", "bf16", "fp16"], default="fp32")
    parser.add_argument("--version", default="v4", help="of Ridge, for the LLaMA")
    parser.add_argument("--variant", help="of PyTorch; default: its best on the device")
    parser.add_argument("--modes", type=list_of, default=["inference", "training"])
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--starts", type=int, default=1, metavar="N",
                        help="get so many of PyTorch's sides ready at once")
    parser.add_argument("--budget", type=float, default=300, metavar="SECONDS",
                        help="give up a side of a network that takes longer to get ready")
    parser.add_argument("--only", type=list_of, help="of the shapes, those with these numbers")
    parser.add_argument("--list", action="store_true", help="print the shapes, and measure nothing")
    parser.add_argument("--json", type=Path, help="keep the figures here, and go on from them")
    arguments = parser.parse_args()
    arguments.variant = arguments.variant or BEST[arguments.device]
    if arguments.of == "networks":
        arguments.networks = networks_of(arguments.ridge)
    return arguments


def main():
    arguments = parsed_arguments()
    shapes = draw(arguments)
    if arguments.only:
        shapes = [shapes[int(number) - 1] for number in arguments.only]
    if arguments.list:
        for number, shape in enumerate(shapes, 1):
            print(f"{number:3}  {name_of(shape)}")
        return
    done = {}
    if arguments.json and arguments.json.exists():
        done = json.loads(arguments.json.read_text())["figures"]
    for _ in measure_all(arguments, shapes, done):
        results = [done[name_of(shape)] for shape in shapes if name_of(shape) in done]
        if arguments.json:
            train_speed.write_results(
                arguments.json,
                "Vision networks" if arguments.of == "networks" else "Training a LLaMA",
                f"{len(results)} shapes drawn by seed {arguments.seed}, {arguments.device}, "
                f"{arguments.dtype}", machine(arguments), [table_of(results)], done)
    results = [done[name_of(shape)] for shape in shapes]
    print("\n".join(markdown_lines(table_of(results))))
    print(f"\n{summary(results)}\n{machine(arguments)}, {arguments.dtype}, seed {arguments.seed}, "
          f"{arguments.rounds} rounds.")


if __name__ == "__main__":
    main()
