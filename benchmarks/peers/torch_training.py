#!/usr/bin/env python3
"""The PyTorch side of train_speed.py: one training in a process that stays alive and warm.

    torch_training.py JOB_JSON

Answers every line of its input with a line of JSON: "steps N" with the seconds of N steps, "profile
N" with what the GPU did in N steps. The first line comes by itself, when the training is warm. A
step that finds too little memory on the GPU is answered with {"out_of_memory": ...}, the last."""

import json
import math
import sys
import tempfile
import time
from pathlib import Path

import torch_ranks
from device_activity import device_activity

# What each variant adds to plain modules and torch.optim.AdamW as it comes: PyTorch's fused
# attention, its fused AdamW, a mode of torch.compile, and one CUDA graph for the whole step.
VARIANTS = {
    "eager": dict(title="PyTorch eager"),
    "tuned": dict(title="PyTorch eager, fused attention and AdamW", sdpa=True, fused=True),
    "compile": dict(title="PyTorch torch.compile, fused AdamW", fused=True, compile="default"),
    "graphs": dict(title="PyTorch torch.compile (reduce-overhead)", sdpa=True, fused=True,
                   compile="reduce-overhead", device="cuda"),
    "max-autotune": dict(title="PyTorch torch.compile (max-autotune)", sdpa=True, fused=True,
                         compile="max-autotune", device="cuda"),
    "captured": dict(title="PyTorch torch.compile, step in one CUDA graph", sdpa=True, fused=True,
                     compile="default", capture=True, device="cuda"),
    "captured-max": dict(title="PyTorch torch.compile (max-autotune), step in one CUDA graph",
                         sdpa=True, fused=True, compile="max-autotune-no-cudagraphs",
                         capture=True, device="cuda"),
}
WARMUP = 5
BATCHES = 64


class TorchTraining:
    """A step takes the next batch of tokens, which lie in host memory, to the new weights."""

    def __init__(self, job):
        import torch
        from tiny_llama import Config, TinyLlama, loss_of

        size, variant, dtype, device = (job[k] for k in ("size", "variant", "dtype", "device"))
        self.torch, self.device, self.done = torch, device, 0
        options = VARIANTS[variant]
        torch.manual_seed(0)
        torch.set_float32_matmul_precision("high" if dtype == "tf32" else "highest")
        self.parts = size.get("gradient_accumulation_steps", 1)
        shape = {k: v for k, v in size.items() if k not in (
            "seq_len", "batch_size", "gradient_accumulation_steps")}
        # "compile" is of the baseline as it stands on the CPU, of PyTorch's best on the GPU.
        sdpa = options.get("sdpa", device == "cuda" and variant != "eager")
        config = Config(**shape, max_seq_len=size["seq_len"], sdpa=sdpa)
        with torch.device(device):
            self.model = TinyLlama(config)
        self.captures = options.get("capture", False)
        self.optimizer = torch.optim.AdamW(
            self.model.parameters(), lr=1e-4, weight_decay=0.01,
            fused=options.get("fused"), capturable=self.captures)
        torch.manual_seed(1 + job.get("rank", 0))
        self.tokens = torch.randint(
            0, config.vocab_size,
            (BATCHES, self.parts * size["batch_size"], size["seq_len"] + 1))
        if device == "cuda":
            self.tokens = self.tokens.pin_memory()
        self.graph = None

        class WithLoss(torch.nn.Module):
            def __init__(self, model):
                super().__init__()
                self.model = model

            def forward(self, x, y):
                # Casts kept from one step to the next would be those of old weights in a graph.
                with torch.autocast(device, torch.bfloat16, enabled=dtype == "bf16",
                                    cache_enabled=not captures):
                    return loss_of(self.model(x), y)

        captures = self.captures
        self.forward = WithLoss(self.model)
        self.marks_steps = options.get("compile") in ("reduce-overhead", "max-autotune")
        if "compile" in options:
            self.forward = torch.compile(self.forward, mode=options["compile"])
        self.forward = torch_ranks.shared(self.forward, job)  # faster so than compiled around

    def backpropagate(self, window):
        """Leaves the gradients of all parts of a batch; gives their mean loss, on the device."""
        self.optimizer.zero_grad()
        losses = []
        for part in window.chunk(self.parts):
            if self.marks_steps:
                self.torch.compiler.cudagraph_mark_step_begin()
            loss = self.forward(part[:, :-1], part[:, 1:]) / self.parts
            loss.backward()
            losses.append(loss.detach())
        return sum(losses)

    def next_batch(self):
        window = self.tokens[self.done % BATCHES]
        self.done += 1
        return window

    def cpu_step(self):
        begin = time.perf_counter()
        value = self.backpropagate(self.next_batch()).item()
        self.optimizer.step()
        assert math.isfinite(value)
        return time.perf_counter() - begin

    def capture(self):
        """Records a step that reads self.window; torch.cuda.graph asks for the side stream."""
        torch = self.torch
        self.window = self.next_batch().to("cuda")
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):
                self.backpropagate(self.window)
                self.optimizer.step()
        torch.cuda.current_stream().wait_stream(side)
        torch.cuda.synchronize()
        self.optimizer.zero_grad()
        torch.cuda.empty_cache()
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            self.loss = self.backpropagate(self.window)
            self.optimizer.step()

    def enqueue_step(self):
        if self.captures:
            if self.graph is None:
                self.capture()
            self.window.copy_(self.next_batch(), non_blocking=True)
            self.graph.replay()
            return self.loss
        loss = self.backpropagate(self.next_batch().to("cuda", non_blocking=True))
        self.optimizer.step()
        return loss

    def cuda_steps(self, count):
        """Steps enqueued without waiting, as far as each variant lets the host run ahead; a step
        lasts from its predecessor's end to its own, and its loss is copied to the host."""
        torch = self.torch
        losses = torch.full((count,), math.nan).pin_memory()
        marks = [torch.cuda.Event(enable_timing=True) for _ in range(count + 1)]
        marks[0].record()
        for i in range(count):
            losses[i].copy_(self.enqueue_step(), non_blocking=True)
            marks[i + 1].record()
        torch.cuda.synchronize()
        assert losses.isfinite().all(), losses
        return [a.elapsed_time(b) * 1e-3 for a, b in zip(marks, marks[1:])]

    def steps(self, count):
        if self.device == "cpu":
            return [self.cpu_step() for _ in range(count)]
        return self.cuda_steps(count)

    def release(self):
        """Gives back memory that would lie unused until the next round, for others to measure."""
        if self.device == "cuda":
            if self.graph is None:  # which writes into the gradients it has
                self.optimizer.zero_grad()
            self.torch.cuda.empty_cache()


def trace_of(recorded):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        recorded.export_chrome_trace(str(path))
        return json.loads(path.read_text())["traceEvents"]


def activity_of(training, steps):
    from torch.profiler import ProfilerActivity, profile

    training.steps(2)
    with profile(activities=[ProfilerActivity.CUDA]) as recorded:
        training.steps(steps)
    return device_activity(trace_of(recorded), steps)


def cpu_tensor_bytes(job):
    """The most bytes PyTorch's CPU allocator has handed out at once, over the model's life."""
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as recorded:
        training = TorchTraining(job | {"device": "cpu"})
        training.steps(3)
    memory = [(e["ts"], e["args"]["Bytes"]) for e in trace_of(recorded)
              if e.get("name") == "[memory]"]
    live = peak = 0
    for _, change in sorted(memory, key=lambda event: event[0]):
        live += change
        peak = max(peak, live)
    return peak


def status_bytes(key):
    for line in open("/proc/self/status"):
        if line.startswith(key + ":"):
            return int(line.split()[1]) * 1024


def state_of(torch, device, resident_before):
    state = {"torch": torch.__version__, "rss": status_bytes("VmHWM") - resident_before}
    if device == "cuda":
        state |= {"gpu": torch.cuda.get_device_name(),
                  "tensors": torch.cuda.max_memory_allocated(),
                  "reserved": torch.cuda.max_memory_reserved()}
    return state


def serve(job, reply):
    import torch

    torch.set_num_threads(job["threads"])
    if job["memory"]:
        reply(cpu_tensor_bytes(job))
        return
    torch.randn(64, 64) @ torch.randn(64, 64)  # its threads and library are not the model's
    before = status_bytes("VmRSS")
    begin = time.perf_counter()
    torch_ranks.join(job)
    training = TorchTraining(job)
    warm = training.steps(WARMUP)
    training.release()
    reply(state_of(torch, job["device"], before) | {
        "start": time.perf_counter() - begin, "step_seconds": min(warm)})
    for line in sys.stdin:
        command, count = line.split()
        answer = {"steps": training.steps,
                  "profile": lambda n: activity_of(training, n)}[command](int(count))
        training.release()
        reply(answer)
    torch_ranks.leave(job)


def main():
    answers = torch_ranks.own_output()

    def reply(value):
        print(json.dumps(value), file=answers, flush=True)

    try:
        serve(json.loads(sys.argv[1]), reply)
    except RuntimeError as error:
        if "out of memory" not in str(error):
            raise
        reply({"out_of_memory": str(error).splitlines()[0]})


if __name__ == "__main__":
    main()
