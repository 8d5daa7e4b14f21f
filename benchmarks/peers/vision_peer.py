#!/usr/bin/env python3
"""The other side of vision_speed.py: one network of torchvision's in a process that stays warm.

    vision_peer.py JOB_JSON

Answers every line of its input, "steps N", with a line of JSON, the seconds of N passes. The first
line comes by itself, when the network is warm. If memory is too little on the GPU the answer is
{"out_of_memory": ...}, the last.

Where several such processes get ready at once, they share the job's "lock", a file: one at a time
runs its network for the first time, when cuDNN measures its algorithms, while others compile."""

import fcntl
import json
import sys
import time

import torch_ranks

# What each variant adds to torchvision's network as it comes: images in channels last, a mode of
# torch.compile (the latter two with CUDA graphs), one CUDA graph for the whole pass, or the whole
# step of training; or OpenVINO, which compiles the traced network. What is not `usual` on a device
# runs where it is asked for by name.
VARIANTS = {
    "eager": dict(title="PyTorch eager", usual=["cpu"]),
    "channels-last": dict(title="PyTorch eager, channels last", last=True),
    "compile": dict(title="PyTorch torch.compile", last=True, compile="default", usual=["cpu"]),
    "reduce-overhead": dict(title="PyTorch torch.compile (reduce-overhead)", last=True,
                            compile="reduce-overhead", devices=["cuda"]),
    "max-autotune": dict(title="PyTorch torch.compile (max-autotune)", last=True,
                         compile="max-autotune"),
    "graph": dict(title="PyTorch eager, channels last, in one CUDA graph", last=True, capture=True,
                  devices=["cuda"]),
    "openvino": dict(title="OpenVINO", devices=["cpu"], modes=["inference"]),
}
DTYPES = {"fp32": "float32", "tf32": "float32", "bf16": "bfloat16", "fp16": "float16"}
WARMUP = 3


class Turn:
    """Of several processes, to have the device alone."""

    def __init__(self, path):
        self.file, self.held, self.waited = open(path, "w") if path else None, False, 0.0

    def take(self):
        if self.file and not self.held:
            self.waited += timed(lambda: fcntl.flock(self.file, fcntl.LOCK_EX))
        self.held = True

    def give_back(self):
        if self.file and self.held:
            fcntl.flock(self.file, fcntl.LOCK_UN)
        self.held = False


class TorchNetwork:
    """Passes over one batch of random images that lies in the device's memory. Inference computes
    in the job's type throughout; training keeps fp32 weights under autocast, with SGD."""

    def __init__(self, job):
        import torch
        import torchvision

        self.torch, self.job, self.turn = torch, job, Turn(job.get("lock"))
        variant = VARIANTS[job["variant"]]
        device, self.training = job["device"], job["mode"] == "training"
        dtype = getattr(torch, DTYPES[job["dtype"]])
        torch.manual_seed(0)
        torch.set_num_threads(job["threads"])
        torch.set_float32_matmul_precision("high" if job["dtype"] == "tf32" else "highest")
        torch.backends.cudnn.allow_tf32 = job["dtype"] == "tf32"
        torch.backends.cudnn.benchmark = True
        layout = torch.channels_last if variant.get("last") else torch.contiguous_format
        options = {"aux_logits": False, "init_weights": False} if job["network"] in (
            "googlenet", "inception_v3") else {}
        model = torchvision.models.get_model(job["network"], weights=None, **options)
        model = model.to(device=device, memory_format=layout).train(self.training)
        extent = 299 if job["network"] == "inception_v3" else 224
        images = torch.randn(job["batch"], 3, extent, extent, device=device)
        images = images.to(memory_format=layout)
        if not self.training:
            model, images = model.to(dtype), images.to(dtype)
        self.model, self.images = model, images
        self.targets = torch.randint(0, 1000, (job["batch"],), device=device)
        if self.training:
            self.autocast = dict(device_type=device, dtype=dtype, enabled=job["dtype"] in (
                "bf16", "fp16"))
            self.optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9,
                                             fused=device == "cuda")
            self.scaler = torch.amp.GradScaler(device, enabled=job["dtype"] == "fp16")
        self.forward = self.with_loss() if self.training else model
        if "compile" in variant:
            self.forward = self.compiled(variant["compile"])
        else:
            self.turn.take()
        self.forward = torch_ranks.shared(self.forward, job)
        self.graph = None
        if variant.get("capture"):
            self.capture()

    def compiled(self, mode):
        """As torch.compile(mode=mode); waits for its turn between compiling and the first run."""
        from torch._inductor import list_mode_options
        from torch._inductor.compile_fx import compile_fx

        options = list_mode_options(mode)

        def backend(graph, inputs):
            result = compile_fx(graph, inputs, config_patches=options)
            self.turn.take()
            return result

        return self.torch.compile(self.forward, backend=backend)

    def with_loss(self):
        torch, autocast = self.torch, self.autocast

        class WithLoss(torch.nn.Module):
            def __init__(self, model):
                super().__init__()
                self.model = model

            def forward(self, images, targets):
                with torch.autocast(**autocast):
                    return torch.nn.functional.cross_entropy(self.model(images), targets)

        return WithLoss(self.model)

    def eager_pass(self):
        if self.training:
            return self.train_once()
        with self.torch.inference_mode():
            return self.model(self.images)

    def capture(self):
        torch = self.torch
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):
                self.eager_pass()
        torch.cuda.current_stream().wait_stream(side)
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            self.result = self.eager_pass()

    def train_once(self):
        self.optimizer.zero_grad(set_to_none=True)
        loss = self.forward(self.images, self.targets)
        self.scaler.scale(loss).backward()
        self.scaler.step(self.optimizer)
        self.scaler.update()
        return loss

    def pass_once(self):
        if self.graph:
            self.graph.replay()
        elif self.training:
            self.train_once()
        else:
            # inference_mode keeps torch.compile from using its graphs of no_grad.
            with self.torch.no_grad():
                self.forward(self.images)

    def steps(self, count):
        if self.job["device"] == "cpu":
            return [timed(self.pass_once) for _ in range(count)]
        torch = self.torch
        marks = [torch.cuda.Event(enable_timing=True) for _ in range(count + 1)]
        marks[0].record()
        for mark in marks[1:]:
            self.pass_once()
            mark.record()
        torch.cuda.synchronize()
        return [a.elapsed_time(b) * 1e-3 for a, b in zip(marks, marks[1:])]

    def memory(self):
        if self.job["device"] == "cuda":
            return self.torch.cuda.max_memory_allocated()
        return None

    def version(self):
        return f"PyTorch {self.torch.__version__}"


class OpenVinoNetwork:
    def __init__(self, job):
        import numpy
        import openvino
        import torch

        network = TorchNetwork(job | {"variant": "eager", "dtype": "fp32"})
        # One operator for a layer of attention, which cannot be traced twice alike.
        torch.backends.mha.set_fastpath_enabled(False)
        model = openvino.convert_model(network.model, example_input=network.images)
        hint = {"fp32": "f32", "bf16": "bf16", "fp16": "f16"}[job["dtype"]]
        compiled = openvino.Core().compile_model(model, "CPU", {
            "INFERENCE_NUM_THREADS": job["threads"], "PERFORMANCE_HINT": "LATENCY",
            "INFERENCE_PRECISION_HINT": hint})
        self.request, self.name = compiled.create_infer_request(), openvino.__version__
        self.images = numpy.ascontiguousarray(network.images.numpy())

    def steps(self, count):
        return [timed(lambda: self.request.infer({0: self.images}, share_inputs=True))
                for _ in range(count)]

    def memory(self):
        return None

    def version(self):
        return f"OpenVINO {self.name.split('-')[0]}"


def timed(action):
    begin = time.perf_counter()
    action()
    return time.perf_counter() - begin


def peak_rss():
    for line in open("/proc/self/status"):
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024


def main():
    job = json.loads(sys.argv[1])
    answers = torch_ranks.own_output()
    openvino = job["variant"] == "openvino"

    def answer(value):
        print(json.dumps(value), file=answers, flush=True)

    try:
        import torch  # noqa: F401  # not part of what making the network ready takes

        begin = time.perf_counter()
        torch_ranks.join(job)
        network = (OpenVinoNetwork if openvino else TorchNetwork)(job)
        seconds = network.steps(WARMUP)
        start = time.perf_counter() - begin
        if not openvino:
            start -= network.turn.waited
            network.turn.give_back()
        answer({"start": start, "step_seconds": seconds[-1],
                "version": network.version(), "memory": network.memory(), "rss": peak_rss()})
        for line in sys.stdin:
            answer(network.steps(int(line.split()[1])))
        torch_ranks.leave(job)
    except RuntimeError as error:
        if "out of memory" not in str(error):
            raise
        answer({"out_of_memory": str(error)})


if __name__ == "__main__":
    main()
