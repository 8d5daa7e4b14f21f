#!/usr/bin/env python3
"""Traces of PyTorch with a trouble planted in each, healthy ones beside them, and what is found.

    recordings.py record DIR [--cards N] [--only NAME,..]    on a machine with NVIDIA GPUs
    recordings.py judge DIR --ridge build/bin/ridge

`record` writes DIR/NAME.json.gz, or a folder DIR/NAME with one trace for each of two ranks (NCCL on
two cards, gloo where there is one). `judge` runs `ridge trace report` on each and `ridge trace
diff` on the pair: a trouble has to be the first finding, and a healthy run may have none above 3 %
of its step. Prints a table; exit code 1 where a verdict is wrong."""

import argparse
import contextlib
import dataclasses
import json
import os
import pathlib
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "benchmarks" / "peers"))

# The rule that has to find the trouble first; None: healthy. "diff" is of the pair with
# llama_eager.
EXPECTED = {
    "llama_eager": None,
    "llama_compiled": None,
    "llama_captured": None,
    "llama_accumulated": None,
    "llama_modules": None,
    "llama_inference_compiled": None,
    "resnet50_loader": None,
    "resnet50_compiled": None,
    "vit_b_16_eager": None,
    "mlp_eager": None,
    "llama_ranks": None,
    "late_loader": "data-loader",
    "item_in_loop": "synchronization-item",
    "tiny_kernels": "launch-bound",
    "pageable_copy": "pageable-copies",
    "late_rank": "late-rank",
    "half_speed": "slow-operators",
    "float32_products": "float32-products",
    "no_overlap": "exposed-communication",
    "fragmentation": "fragmentation",
    "emptied_cache": "synchronization-allocator",
    "unfused_attention": "unfused-attention",
    "unfused_optimizer": "unfused-optimizer",
    "channels_first": "channels-last",
    "regression": "diff",
}
OF_RANKS = {"llama_ranks", "late_rank", "no_overlap"}
WAIT, WARMUP, ACTIVE = 2, 3, 4


class Language:
    """A LLaMA in bf16 whose steps keep a Hopper card busy, unless a scene says otherwise."""

    def __init__(self, batch=16, seq=1024, hidden=1024, layers=6, vocab=32000, sdpa=True,
                 fused=True, dtype="bfloat16", compile=False, capturable=False, **optimizer):
        import torch
        from tiny_llama import Config, TinyLlama, loss_of
        torch.manual_seed(0)
        self.batch, self.seq, self.vocab = batch, seq, vocab
        config = Config(vocab_size=vocab, hidden_dim=hidden, n_layers=layers, n_heads=hidden // 64,
                        n_kv_heads=hidden // 64, intermediate_dim=4 * hidden, max_seq_len=seq,
                        sdpa=sdpa)
        with torch.device("cuda"):
            self.model = TinyLlama(config)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-4, fused=fused,
                                           capturable=capturable, **optimizer)
        self.tokens = [torch.randint(0, vocab, (batch, seq + 1)).pin_memory() for _ in range(8)]
        self.dtype, self.done = getattr(torch, dtype), 0

        def forward(x, y):
            with torch.autocast("cuda", torch.bfloat16, enabled=self.dtype == torch.bfloat16,
                                cache_enabled=not capturable):
                return loss_of(self.model(x), y)
        self.forward = torch.compile(forward) if compile else forward

    def window(self):
        self.done += 1
        return self.tokens[self.done % len(self.tokens)].to("cuda", non_blocking=True)

    def loss(self, window=None):
        window = self.window() if window is None else window
        return self.forward(window[:, :-1].contiguous(), window[:, 1:].contiguous())

    def step(self):
        loss = self.loss()
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        return loss


def record(path, step, memory=False, stack=False):
    """Profiles steps after some that warm up, and writes the trace."""
    import torch
    from torch.profiler import ProfilerActivity, profile, schedule
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA], record_shapes=True,
                 profile_memory=memory, with_stack=stack,
                 schedule=schedule(wait=WAIT, warmup=WARMUP, active=ACTIVE, repeat=1)) as profiler:
        for _ in range(WAIT + WARMUP + ACTIVE):
            step()
            profiler.step()
    torch.cuda.synchronize()
    profiler.export_chrome_trace(str(path))


# ----- Language models


def llama_eager(path):
    record(path, Language().step, memory=True)


def llama_modules(path):
    record(path, Language(layers=3).step, stack=True)


def llama_compiled(path):
    record(path, Language(compile=True).step)


def llama_captured(path):
    import torch
    model = Language(compile=True, capturable=True)
    window = model.window()

    def step():
        loss = model.loss(window)
        loss.backward()
        model.optimizer.step()
        model.optimizer.zero_grad(set_to_none=True)
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(side)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()

    def replay():
        window.copy_(model.window(), non_blocking=True)
        graph.replay()
    record(path, replay)


def llama_accumulated(path):
    model = Language()

    def step():
        for _ in range(3):
            model.loss().backward()
        model.step()
    record(path, step)


def llama_inference_compiled(path):
    import torch
    model = Language(batch=32, compile=True)

    def step():
        with torch.inference_mode():
            model.loss()
    record(path, step)


def item_in_loop(path):
    model = Language(batch=8, hidden=2048, layers=4)

    def step():
        loss = model.loss()
        loss.backward()
        norms = [p.grad.norm().item() for p in model.model.parameters()]
        model.optimizer.step()
        model.optimizer.zero_grad(set_to_none=True)
        return loss.item(), norms
    record(path, step)


def tiny_kernels(path):
    record(path, Language(batch=2, seq=64, hidden=256, vocab=1000).step)


def half_speed(path):
    """The products with the vocabulary, whose rows are no multiple of 16 bytes."""
    record(path, Language(vocab=50257).step)


def float32_products(path):
    record(path, Language(batch=4, dtype="float32").step)


def unfused_attention(path):
    record(path, Language(sdpa=False).step)


def unfused_optimizer(path):
    record(path, Language(layers=12, fused=False, foreach=False).step)


def fragmentation(path):
    """Batches of other lengths each time, on a card with hardly more memory than they need."""
    import torch
    lengths = [700, 900, 1100, 800, 1300, 1000, 1500, 1200, 1700]
    model, state = Language(batch=8, seq=1792, hidden=2048), {"done": 0, "room": 1.05}

    def train(length):
        model.loss(model.window()[:, :length]).backward()
        model.optimizer.step()
        model.optimizer.zero_grad(set_to_none=True)
    for length in lengths[-3:]:
        train(length)
    needed = torch.cuda.max_memory_allocated()

    def limit():
        torch.cuda.set_per_process_memory_fraction(
            state["room"] * needed / torch.cuda.get_device_properties(0).total_memory)

    def step():
        length = lengths[state["done"] % len(lengths)]
        state["done"] += 1
        while True:
            try:
                return train(length)
            except torch.OutOfMemoryError:
                model.optimizer.zero_grad(set_to_none=True)
                state["room"] += 0.05
                limit()
    torch.cuda.empty_cache()
    limit()
    record(path, step, memory=True)


def emptied_cache(path):
    import torch
    model = Language()

    def step():
        model.loss().backward()
        torch.cuda.empty_cache()
        model.optimizer.step()
        model.optimizer.zero_grad(set_to_none=True)
        torch.cuda.empty_cache()
    record(path, step, memory=True)


def regression(path):
    """llama_eager with attention unfused in two of its layers."""
    model = Language()
    for layer in model.model.layers[:2]:
        layer.attention.config = dataclasses.replace(layer.attention.config, sdpa=False)
    record(path, model.step, memory=True)


# ----- Networks


class Images:
    """A data set of random bytes, with what a loader does for each image."""

    def __init__(self, seconds_each=0.0):
        import torch
        self.pool = torch.randint(0, 256, (64, 3, 224, 224), dtype=torch.uint8)
        self.seconds_each = seconds_each

    def __len__(self):
        return 1 << 20

    def __getitem__(self, i):
        end = time.perf_counter() + self.seconds_each
        while time.perf_counter() < end:
            sum(range(1000))
        return self.pool[i % 64], i % 1000


class Vision:
    def __init__(self, network, channels_last=True, compile=False):
        import torch
        import torchvision
        torch.manual_seed(0)
        torch.backends.cudnn.benchmark = True
        self.format = torch.channels_last if channels_last else torch.contiguous_format
        self.model = getattr(torchvision.models, network)().cuda().to(memory_format=self.format)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=1e-3, momentum=0.9,
                                         fused=True)

        def forward(x, y):
            x = (x.to(memory_format=self.format).float() - 118.0) / 58.0
            with torch.autocast("cuda", torch.bfloat16):
                return torch.nn.functional.cross_entropy(self.model(x), y)
        self.forward = torch.compile(forward) if compile else forward

    def step(self, x, y):
        self.forward(x, y).backward()
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)


def loaded(images, batch, workers):
    import torch
    loader = torch.utils.data.DataLoader(images, batch, num_workers=workers, pin_memory=True,
                                         prefetch_factor=6 if workers else None,
                                         persistent_workers=workers > 0)
    return iter(loader)


def resnet50_loader(path, batch=256, workers=8, seconds_each=0.0):
    network, batches = Vision("resnet50"), loaded(Images(seconds_each), batch, workers)

    def step():
        x, y = next(batches)
        network.step(x.to("cuda", non_blocking=True), y.to("cuda", non_blocking=True))
    record(path, step)


def late_loader(path):
    resnet50_loader(path, batch=64, workers=0, seconds_each=0.002)


def fixed_images(path, network, batch, **options):
    import torch
    network = Vision(network, **options)
    x = torch.randint(0, 256, (batch, 3, 224, 224), dtype=torch.uint8, device="cuda")
    y = torch.randint(0, 1000, (batch,), device="cuda")
    record(path, lambda: network.step(x, y))


def resnet50_compiled(path):
    fixed_images(path, "resnet50", 768, compile=True)


def channels_first(path):
    fixed_images(path, "resnet50", 256, channels_last=False)


def vit_b_16_eager(path):
    fixed_images(path, "vit_b_16", 192, channels_last=False)


def pageable_copy(path):
    import torch
    network = Vision("resnet50")
    batches = [torch.randn(256, 3, 224, 224) for _ in range(2)]
    y = torch.randint(0, 1000, (256,), device="cuda")
    state = {"done": 0}

    def step():
        state["done"] += 1
        network.step(batches[state["done"] % 2].to("cuda"), y)
    record(path, step)


def mlp_eager(path):
    import torch
    layers = [m for _ in range(6) for m in (torch.nn.Linear(8192, 8192), torch.nn.GELU())]
    model = torch.nn.Sequential(*layers).cuda().to(torch.bfloat16)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4, fused=True)
    x = torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16)

    def step():
        model(x).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
    record(path, step)


# ----- Two ranks


def of_rank(name, path, rank, meeting):
    import torch
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel
    several = torch.cuda.device_count() > 1
    torch.cuda.set_device(rank if several else 0)
    dist.init_process_group("nccl" if several else "gloo", init_method=f"file://{meeting}",
                            rank=rank, world_size=2)
    model = Language(batch=32 if several else 4)
    if name != "no_overlap":
        shared = DistributedDataParallel(model.model, device_ids=[torch.cuda.current_device()],
                                         gradient_as_bucket_view=True)
        model.model = shared
    late = name == "late_rank" and rank == 1

    def step():
        loss = model.loss()
        if late:
            torch.cuda._sleep(30_000_000)  # cycles, which a hotter card would lose
        loss.backward()
        if name == "no_overlap":
            for parameter in model.model.parameters():
                dist.all_reduce(parameter.grad)
                parameter.grad /= 2
        model.optimizer.step()
        model.optimizer.zero_grad(set_to_none=True)
    record(path / f"rank{rank}.json.gz", step)
    dist.barrier()
    dist.destroy_process_group()


# ----- Recording and judging


def record_one(name, folder, cards):
    """In processes of its own, on the cards named."""
    path = folder / (name if name in OF_RANKS else f"{name}.json.gz")
    environment = os.environ | {"CUDA_VISIBLE_DEVICES": ",".join(map(str, cards)),
                                "NCCL_NVLS_ENABLE": "0"}
    ranks = [()]
    if name in OF_RANKS:
        path.mkdir(exist_ok=True)
        meeting = path / "meeting"
        meeting.unlink(missing_ok=True)
        ranks = [(str(rank), str(meeting)) for rank in range(2)]
    return [subprocess.Popen([sys.executable, __file__, "scene", name, str(path), *rank],
                             env=environment, stdout=subprocess.DEVNULL,
                             stderr=open(folder / f"{name}.log", "a")) for rank in ranks]


def record_all(arguments):
    folder = pathlib.Path(arguments.folder).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    waiting = [n for n in EXPECTED if not arguments.only or n in arguments.only.split(",")]
    waiting.sort(key=lambda name: name not in OF_RANKS)
    free, running = list(range(arguments.cards)), {}
    while waiting or running:
        for name in list(waiting):
            needed = min(2, arguments.cards) if name in OF_RANKS else 1
            if len(free) < needed:
                continue
            cards, free = free[:needed], free[needed:]
            running[name] = (record_one(name, folder, cards), cards, time.time())
            waiting.remove(name)
        for name, (processes, cards, begun) in list(running.items()):
            if time.time() - begun > 150:
                for process in processes:
                    process.kill()
            if all(process.poll() is not None for process in processes):
                codes = [process.returncode for process in processes]
                print(f"{name}: {time.time() - begun:.0f} s"
                      + ("" if not any(codes) else f", ended with {codes}"), flush=True)
                free += cards
                del running[name]
        time.sleep(0.2)


def findings_of(ridge, path):
    report = json.loads(subprocess.run([ridge, "trace", "report", path, "--json"], check=True,
                                       capture_output=True).stdout)
    return max((rank["findings"] for rank in report["ranks"]),
               key=lambda found: found[0]["gain_part"] if found else 0)


def difference_of(ridge, before, after):
    diff = json.loads(subprocess.run([ridge, "trace", "diff", before, after, "--json"], check=True,
                                     capture_output=True).stdout)
    rows = diff["ranks"][0]["rows"]
    return ", ".join(f"{row['kind']} {row['path']}" for row in rows[:3]), rows


def judge(arguments):
    folder, wrong = pathlib.Path(arguments.folder), 0
    for name, rule in EXPECTED.items():
        path = folder / (name if name in OF_RANKS else f"{name}.json.gz")
        if not path.exists():
            print(f"{name:26} not recorded")
            continue
        if rule == "diff":
            words, rows = difference_of(arguments.ridge, folder / "llama_eager.json.gz", path)
            right = any("attention" in json.dumps(row) or "softmax" in json.dumps(row)
                        for row in rows[:3])
        else:
            found = findings_of(arguments.ridge, path)
            words = ", ".join(f"{f['rule']} {100 * f['gain_part']:.1f} %" for f in found[:4])
            right = (found and found[0]["rule"] == rule if rule else
                     all(f["gain_part"] <= 0.03 for f in found))
        wrong += not right
        print(f"{name:26} {'right' if right else 'WRONG':6} {words or 'no finding'}")
    return 1 if wrong else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    for command in ("record", "judge"):
        added = commands.add_parser(command)
        added.add_argument("folder")
        if command == "record":
            added.add_argument("--cards", type=int, default=1)
            added.add_argument("--only")
        else:
            added.add_argument("--ridge", default=str(ROOT / "build" / "bin" / "ridge"))
    scene = commands.add_parser("scene")
    scene.add_argument("name")
    scene.add_argument("path", type=pathlib.Path)
    scene.add_argument("rank", nargs="*")
    arguments = parser.parse_args()
    if arguments.command == "judge":
        return judge(arguments)
    if arguments.command == "record":
        return record_all(arguments)
    if arguments.rank:
        of_rank(arguments.name, arguments.path, int(arguments.rank[0]), arguments.rank[1])
    else:
        globals()[arguments.name](arguments.path)
    return 0


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        sys.exit(main())
