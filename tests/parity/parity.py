#!/usr/bin/env python3
"""Trains the same steps in Ridge and in PyTorch, from the same weights on the same batches, and
prints how far apart logits, losses and every parameter's gradient come to be.

    tests/parity/parity.py --ridge-parity build/bin/ridge_parity
    tests/parity/parity.py --device cuda --versions v1,v2,v3,v4 --dtypes fp32,tf32,bf16,fp16

Exits with 1 if anything is further apart than the limits below. Needs torch, numpy and safetensors
(benchmarks/peers/requirements.txt)."""

import argparse
import json
import math
import subprocess
import sys
import tempfile
from pathlib import Path

import torch
from safetensors.torch import load_file

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "benchmarks" / "peers"))
from tiny_llama import Config, TinyLlama, loss_of  # noqa: E402

LIMITS = {"logits": 1e-3, "loss": 1e-5, "gradient": 1e-6}
# Of losses, where both round products' operands, and not in the same places.
ROUNDED_LOSS_LIMITS = {"tf32": 0.01, "bf16": 0.05, "fp16": 0.01}
ROUNDED_TITLES = {"tf32": "tf32 against PyTorch's", "bf16": "bf16 against PyTorch's autocast",
                  "fp16": "fp16 against PyTorch's autocast and GradScaler"}
AUTOCAST = {"bf16": torch.bfloat16, "fp16": torch.float16}
STEPS = 10

# By Ridge's option names; what is not named has its default.
MODELS = {
    "default": {},
    "odd sizes": {
        "vocab-size": 977, "hidden-dim": 222, "n-layers": 3, "n-heads": 3, "n-kv-heads": 3,
        "intermediate-dim": 331, "seq-len": 67, "batch-size": 3,
    },
    "one key head": {"n-kv-heads": 1},
    "as many key heads as heads": {"n-kv-heads": 8},
    "tied embeddings": {"tie-embeddings": True},
    "accumulation, clipping, cosine": {
        "gradient-accumulation-steps": 2, "max-grad-norm": 0.5, "lr-schedule": "cosine",
        "lr-warmup-steps": 3, "min-learning-rate": 1e-5, "learning-rate": 1e-3,
    },
}


def learning_rate_at(o, step):
    """Linear warm-up, then constant or half a cosine; written apart from Ridge's."""
    base, warmup = o["learning-rate"], o["lr-warmup-steps"]
    if step <= warmup:
        return base * step / warmup
    if o["lr-schedule"] == "constant":
        return base
    progress = (step - warmup) / (o["num-steps"] - warmup)
    low = o["min-learning-rate"]
    return low + (base - low) * (1 + math.cos(math.pi * progress)) / 2


DEFAULTS = {
    "vocab-size": 1000, "hidden-dim": 256, "n-layers": 4, "n-heads": 8, "n-kv-heads": 4,
    "intermediate-dim": 512, "norm-eps": 1e-6, "rope-theta": 10000.0, "tie-embeddings": False,
    "batch-size": 8, "seq-len": 128, "num-steps": STEPS, "gradient-accumulation-steps": 1,
    "learning-rate": 1e-4, "lr-schedule": "constant", "lr-warmup-steps": 0,
    "min-learning-rate": 0.0, "weight-decay": 0.01, "beta1": 0.9, "beta2": 0.999,
    "adam-eps": 1e-8, "max-grad-norm": 0.0, "dtype": "fp32", "loss-scale": 65536.0,
    "loss-scale-growth-interval": 2000,
    "device": "cpu", "version": "v1", "disable-pass": "",
}


def ridge_record(program, options, threads):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "record.safetensors"
        text = json.dumps(options | {"threads": threads})
        subprocess.run([program, str(path), text], check=True)
        return load_file(path)


def group_of(name):
    """The kind of a parameter: its name without the layer's number."""
    return ".".join(part for part in name.split(".") if not part.isdigit())


class Difference:
    def __init__(self):
        self.largest = {}

    def add(self, group, ours, theirs):
        value = (ours.double() - theirs.detach().cpu().double()).abs().max().item()
        self.largest[group] = max(self.largest.get(group, 0.0), value)


class Twin:
    """PyTorch's side: the model and what a step is made of."""

    def __init__(self, o):
        self.options = o
        self.model = TinyLlama(Config(
            vocab_size=o["vocab-size"], hidden_dim=o["hidden-dim"], n_layers=o["n-layers"],
            n_heads=o["n-heads"], n_kv_heads=o["n-kv-heads"],
            intermediate_dim=o["intermediate-dim"], norm_eps=o["norm-eps"],
            rope_theta=o["rope-theta"], tie_embeddings=o["tie-embeddings"],
            max_seq_len=o["seq-len"])).to(o["device"])
        self.parameters = dict(self.model.named_parameters())

    def load(self, record, step):
        names = {k.split(".weight.", 1)[1] for k in record if k.startswith(f"{step}.weight.")}
        assert names == set(self.parameters), names ^ set(self.parameters)
        with torch.no_grad():
            for name, parameter in self.parameters.items():
                parameter.copy_(record[f"{step}.weight.{name}"])

    def gradients(self, record, step, scaled):
        """Leaves the gradients of scaled(loss) in the parameters; gives each batch's logits and
        loss."""
        accumulation = self.options["gradient-accumulation-steps"]
        results = []
        self.model.zero_grad()
        for i in range(accumulation):
            tokens, targets = (record[f"{step}.{i}.{kind}"].long().to(self.options["device"])
                               for kind in ("tokens", "targets"))
            dtype = AUTOCAST.get(self.options["dtype"])
            with torch.autocast(self.options["device"], dtype=dtype, enabled=dtype is not None):
                logits = self.model(tokens)
                loss = loss_of(logits, targets)
            scaled(loss / accumulation).backward()
            results.append((logits, loss))
        return results


def compare(program, options, threads):
    """The largest differences over all steps. "grad" is of gradients computed from the same
    weights, Ridge's before the step, and "free" of those where each has gone its own way."""
    o = DEFAULTS | options
    torch.set_float32_matmul_precision("high" if o["dtype"] == "tf32" else "highest")
    record = ridge_record(program, o, threads)
    difference = Difference()
    free, same = Twin(o), Twin(o)
    free.load(record, 1)
    optimizer = torch.optim.AdamW(
        free.model.parameters(), lr=o["learning-rate"], betas=(o["beta1"], o["beta2"]),
        eps=o["adam-eps"], weight_decay=o["weight-decay"])
    scaler = torch.amp.GradScaler(
        o["device"], init_scale=o["loss-scale"], growth_interval=o["loss-scale-growth-interval"],
        enabled=o["dtype"] == "fp16")
    for step in range(1, o["num-steps"] + 1):
        for i, (logits, loss) in enumerate(free.gradients(record, step, scaler.scale)):
            difference.add("logits", record[f"{step}.{i}.logits"], logits)
            difference.add("loss", record[f"{step}.{i}.loss"], loss)
        norm, scale, _ = record.get(f"{step}.loss_scale", torch.ones(3)).tolist()
        difference.add("loss scale", torch.tensor(scale), torch.tensor(scaler.get_scale()))
        scaler.unscale_(optimizer)
        same.load(record, step)
        same.gradients(record, step, lambda loss: loss * scale)
        for kind, twin in {"free": free, "grad": same}.items():
            if not math.isfinite(norm):
                break  # a step that Ridge skips has no gradients
            for name, parameter in twin.parameters.items():
                if kind == "grad":
                    parameter.grad /= scale
                difference.add(f"{kind}.{group_of(name)}", record[f"{step}.grad.{name}"],
                               parameter.grad)
        if o["max-grad-norm"] > 0:
            norm = torch.nn.utils.clip_grad_norm_(free.model.parameters(), o["max-grad-norm"])
            difference.add("gradient norm", record[f"{step}.grad_norm"], norm)
        for group in optimizer.param_groups:
            group["lr"] = learning_rate_at(o, step)
        scaler.step(optimizer)
        scaler.update()
    for name, parameter in free.parameters.items():
        last = record[f"{o['num-steps'] + 1}.weight.{name}"]
        difference.add("weights", last, parameter)
    first, last = record["1.0.loss"].item(), record[f"{o['num-steps']}.0.loss"].item()
    return difference.largest, first, last


def largest_of(kind, largest):
    return max(v for k, v in largest.items() if k.startswith(kind + "."))


def table(head, rows):
    print("| " + " | ".join(head) + " |")
    print("|" + "|".join("---" if i == 0 else "---:" for i in range(len(head))) + "|")
    for row in rows:
        print("| " + " | ".join(row) + " |")
    print()


def compare_all(arguments, version, dtype):
    """By configuration, of each what compare() gives."""
    same = {"device": arguments.device, "version": version, "dtype": dtype,
            "disable-pass": arguments.disable_pass}
    return {model: compare(arguments.ridge_parity, MODELS[model] | same, arguments.threads)
            for model in arguments.models.split(";")}


class Checks:
    def __init__(self):
        self.failures = []

    def __call__(self, model, what, value, limit):
        if not value <= limit:  # so that NaN fails too
            self.failures.append(f"{model}: {what} differ by {value:.2e}, over {limit:.0e}")


def report_exact(results, title, check):
    print(f"{title}: largest absolute difference over all steps and elements\n")
    rows = []
    for model, (largest, first, last) in results.items():
        gradient = largest_of("grad", largest)
        check(f"{model}, {title}", "logits", largest["logits"], LIMITS["logits"])
        check(f"{model}, {title}", "losses", largest["loss"], LIMITS["loss"])
        check(f"{model}, {title}", "gradients", gradient, LIMITS["gradient"])
        rows.append([model, f"{first:.4f} to {last:.4f}", f"{largest['logits']:.1e}",
                     f"{largest['loss']:.1e}", f"{gradient:.1e}",
                     f"{largest_of('free', largest):.1e}", f"{largest['weights']:.1e}"])
    rows.append(["limit", "", *(f"{LIMITS[k]:.0e}" for k in LIMITS), "", ""])
    table(["Configuration", "Loss", "Logits", "Losses", "Gradients", "Gradients, own weights",
           "Weights at the end"], rows)

    print("Gradients from the same weights by parameter, the largest over layers and steps\n")
    groups = sorted({k for largest, _, _ in results.values() for k in largest
                     if k.startswith("grad.")})
    rows = [[g[len("grad."):].removesuffix(".weight"),
             *(f"{largest[g]:.1e}" if g in largest else "tied"
               for largest, _, _ in results.values())]
            for g in groups]
    table(["Parameter", *results], rows)


def report_rounded(results, dtype, title, check):
    print(f"{title}: {ROUNDED_TITLES[dtype]}\n")
    limit = ROUNDED_LOSS_LIMITS[dtype]
    rows = []
    for model, (largest, first, last) in results.items():
        check(f"{model}, {title}", "losses", largest["loss"], limit)
        check(f"{model}, {title}", "loss scales", largest["loss scale"], 0)
        rows.append([model, f"{first:.4f} to {last:.4f}", f"{largest['loss']:.1e}",
                     f"{largest_of('grad', largest):.1e}"])
    rows.append(["limit", "", f"{limit}", ""])
    table(["Configuration", "Loss", "Losses", "Gradients"], rows)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--ridge-parity", default=str(ROOT / "build/bin/ridge_parity"))
    parser.add_argument("--threads", type=int, default=0, help="0: all")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu", help="of both sides")
    parser.add_argument("--versions", default="v1", help="of Ridge, separated by commas")
    parser.add_argument("--dtypes", default="fp32,bf16",
                        help="separated by commas; tf32: with --device cuda only")
    parser.add_argument("--models", default=";".join(MODELS), help="separated by semicolons")
    parser.add_argument("--disable-pass", default="", help="passes that Ridge is to leave out")
    arguments = parser.parse_args()
    if unknown := set(arguments.models.split(";")) - set(MODELS):
        parser.error(f"there is no model {', '.join(unknown)}: choose from {', '.join(MODELS)}")
    if arguments.threads:
        torch.set_num_threads(arguments.threads)

    check = Checks()
    for version in arguments.versions.split(","):
        for dtype in arguments.dtypes.split(","):
            results = compare_all(arguments, version, dtype)
            title = f"{version}, {dtype}, {STEPS} steps"
            if dtype == "fp32":
                report_exact(results, title, check)
            else:
                report_rounded(results, dtype, title, check)

    where = torch.cuda.get_device_name() if arguments.device == "cuda" else "CPU"
    print(f"PyTorch {torch.__version__}, {where}")
    for failure in check.failures:
        print(f"FAILED {failure}")
    sys.exit(1 if check.failures else 0)


if __name__ == "__main__":
    main()
