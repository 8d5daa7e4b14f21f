#!/usr/bin/env python3
"""Trains on several ranks in Ridge and in PyTorch's DistributedDataParallel, from the same weights on
the same batches, and prints how far apart the losses of the whole batch come to be.

    tests/parity/ddp.py --bin build/bin --ranks 2

Exits with 1 if any loss is further apart than 1e-5. Both run on the CPU in fp32. Needs torch, numpy
and safetensors (benchmarks/peers/requirements.txt)."""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import torch
import torch.distributed as dist
import torch.multiprocessing as multiprocessing
from torch.nn.parallel import DistributedDataParallel

sys.path.insert(0, str(Path(__file__).resolve().parent))
from parity import DEFAULTS, MODELS, Twin, learning_rate_at, loss_of, ridge_record  # noqa: E402

LIMIT = 1e-5


def train_rank(rank, ranks, port, options, record, losses):
    """What torchrun starts: a rank's part of every batch; leaves the mean of the ranks' losses."""
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    torch.set_num_threads(max(1, os.cpu_count() // ranks))
    dist.init_process_group("gloo", rank=rank, world_size=ranks)
    twin = Twin(options)
    twin.load(record, 1)
    model = DistributedDataParallel(twin.model)
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=options["learning-rate"], betas=(options["beta1"], options["beta2"]),
        eps=options["adam-eps"], weight_decay=options["weight-decay"])
    accumulation = options["gradient-accumulation-steps"]
    for step in range(1, options["num-steps"] + 1):
        optimizer.zero_grad()
        mean = torch.zeros(())
        for i in range(accumulation):
            tokens, targets = (record[f"{step}.{i}.{kind}"].long().chunk(ranks)[rank]
                               for kind in ("tokens", "targets"))
            loss = loss_of(model(tokens), targets)
            (loss / accumulation).backward()
            mean += loss.detach() / accumulation
        if options["max-grad-norm"] > 0:
            torch.nn.utils.clip_grad_norm_(model.parameters(), options["max-grad-norm"])
        for group in optimizer.param_groups:
            group["lr"] = learning_rate_at(options, step)
        optimizer.step()
        dist.all_reduce(mean)
        losses[step - 1] = mean.item() / ranks
    dist.destroy_process_group()


def losses_of_ridge(program, options, ranks):
    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder) / "options.json"
        config.write_text(json.dumps(options | {"output-dir": folder, "ranks": ranks}))
        subprocess.run([program, "train", "--config", config], check=True,
                       stdout=subprocess.DEVNULL)
        record = json.loads((Path(folder) / "performance_summary.json").read_text())
    return record["performance_summary"]["losses"]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--bin", type=Path, default=Path("build/bin"), help="of the programs")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--versions", default="v1,v4", help="of Ridge, separated by commas")
    parser.add_argument("--port", type=int, default=29555, help="where PyTorch's ranks meet")
    arguments = parser.parse_args()
    ranks, wrong = arguments.ranks, 0
    print(f"Largest difference of losses to DistributedDataParallel on {ranks} ranks, "
          f"PyTorch {torch.__version__}\n")
    for model, of_model in MODELS.items():
        options = DEFAULTS | of_model
        options["batch-size"] = -(-options["batch-size"] // ranks) * ranks
        record = ridge_record(str(arguments.bin / "ridge_parity"), options, 0)
        theirs = multiprocessing.get_context("spawn").Manager().list([0.0] * options["num-steps"])
        multiprocessing.spawn(train_rank, (ranks, arguments.port, options, record, theirs), ranks)
        for version in arguments.versions.split(","):
            ours = losses_of_ridge(arguments.bin / "ridge", options | {"version": version}, ranks)
            apart = max(abs(a - b) for a, b in zip(ours, theirs, strict=True))
            wrong += not apart <= LIMIT
            print(f"{model}, {version}: {apart:.1e}, of losses from {ours[0]:.4f} to {ours[-1]:.4f}")
    print(f"limit {LIMIT:.0e}")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
