#!/usr/bin/env python3
"""Writes tests/models/vision_gradients.json: the loss of torchvision's networks in training, and the
gradients of their parameters, for vision_gradients_test.cpp to compare Ridge's with.

    tests/models/vision_gradients.py [NAME..]

A batch of four small images, weights and images by the rule of vision_golden.py, batch norm by the
batch's statistics, nothing dropped; in double precision. "rounding" is how far PyTorch's own
gradients in single precision are from these, the largest relative difference of the parameters
written down: a ReLU that rounding switches changes much. Sums in another order switch other ReLUs,
so a network that is written again, with ONEDNN_MAX_CPU_ISA=SSE41 in the environment or
ATEN_CPU_CAPABILITY=default, keeps the larger of both: for regnet_x_400mf the four are 0.003, 0.003,
0.018 and 0.024 on a processor with AVX2. "statistics" are how far the step moves
the running statistics of the first, the middle and the last batch norm. Needs torch and
torchvision."""

import json
import sys
from pathlib import Path

import numpy as np
import torch
import torchvision

from vision_golden import NAMES, SEGMENTERS, build_buffers, by_rule, uniform, without_weights

GOLDEN = Path(__file__).with_name("vision_gradients.json")
BATCH = 4
PARAMETERS = 10  # of a network, whose gradients are written down
# Rows and columns of the images: such that a channel keeps some pixels to the end.
SIZES = {"inception_v3": 107, "maxvit_t": 224}
SIZE = 64
# The larger ones of these families are made of the layers of the smallest.
SMALLEST = {"efficientnet_v2": "efficientnet_v2_s", "regnet_x": "regnet_x_400mf",
            "regnet_y": "regnet_y_400mf", "convnext": "convnext_tiny", "vit_l": "vit_b_16",
            "vit_h": "vit_b_16"}


def build(name, size):
    if name in SEGMENTERS:
        return getattr(torchvision.models.segmentation, name)(weights=None, weights_backbone=None)
    options = {"googlenet": dict(aux_logits=False, init_weights=False),
               "inception_v3": dict(aux_logits=False, init_weights=False)}.get(name, {})
    if name.startswith("vit"):
        options["image_size"] = size
    return getattr(torchvision.models, name)(weights=None, **options)


def network(name):
    """Its size of images, itself in training, and the images."""
    size = SIZES.get(name, SIZE)
    model = without_weights(name, build, size).to_empty(device="cpu").train()
    fresh = build_buffers(name, model)
    for module in model.modules():
        if isinstance(module, (torch.nn.Dropout, torchvision.ops.StochasticDepth)):
            module.p = 0.0
    with torch.no_grad():
        for key, tensor in model.state_dict().items():
            if tensor.is_floating_point() and key not in fresh:
                tensor.copy_(by_rule(key, tuple(tensor.shape)))
    images = torch.from_numpy((uniform("images", BATCH * 3 * size * size) * np.float32(4) -
                               np.float32(2)).reshape(BATCH, 3, size, size))
    return size, model, images


def has_gradients(name):
    return not any(name.startswith(family) and name != smallest
                   for family, smallest in SMALLEST.items())


def gradients_of(name):
    size, model, images = network(name)
    parameters = dict(model.named_parameters())
    names = list(parameters)
    chosen = [names[i] for i in sorted({int(i) for i in np.linspace(0, len(names) - 1, PARAMETERS)})]
    step(model, images)
    rounded = {key: parameters[key].grad.double() for key in chosen}
    model.zero_grad()  # whose memory is needed
    model.double()
    reset_statistics(model)
    loss = step(model, images.double())
    exact = {key: parameters[key].grad for key in chosen}
    norm = torch.sqrt(sum(p.grad.square().sum() for p in parameters.values()))
    # A bias before batch norm has no gradient but what rounding leaves.
    rounding = max(((rounded[key] - exact[key]).norm() / (exact[key].norm() + 1e-6 * norm)).item()
                   for key in chosen)
    result = {"size": size, "loss": float(f"{loss:.8g}"), "norm": float(f"{norm.item():.8g}"),
              "rounding": float(f"{rounding:.2g}"),
              "gradients": {key: checksum(grad) for key, grad in exact.items()}}
    if statistics := moved_statistics(model):
        result["statistics"] = statistics
    return result


def checksum(tensor):
    return [float(f"{x:.8g}") for x in (tensor.sum(), tensor.norm())]


def running(model):
    return {key: buffer for key, buffer in model.named_buffers() if "running_" in key}


def reset_statistics(model):
    for key, buffer in running(model).items():
        buffer.copy_(by_rule(key, tuple(buffer.shape)))


def moved_statistics(model):
    means = [key for key in running(model) if key.endswith("running_mean")]
    chosen = [means[i] for i in sorted({0, len(means) // 2, len(means) - 1})] if means else []
    moved = {}
    for key in chosen:
        for each in (key, key.replace("running_mean", "running_var")):
            buffer = model.get_buffer(each)
            moved[each] = checksum(buffer - by_rule(each, tuple(buffer.shape)))
    return moved


def step(model, images):
    """The loss; the gradients are left in the parameters."""
    model.zero_grad()
    y = model(images)
    y = y["out"] if isinstance(y, dict) else y
    targets = torch.arange(y.numel() // y.shape[1]) * 37 % y.shape[1]
    loss = torch.nn.functional.cross_entropy(y, targets.reshape(y.shape[:1] + y.shape[2:]))
    loss.backward()
    return loss.item()


def main():
    names = sys.argv[1:] or [name for name in NAMES if has_gradients(name)]
    golden = json.loads(GOLDEN.read_text()) if GOLDEN.exists() else {}
    for name in names:
        before = golden.get(name, {}).get("rounding", 0)
        golden[name] = gradients_of(name)
        golden[name]["rounding"] = max(golden[name]["rounding"], before)
        print(f"{name:32} loss {golden[name]['loss']:.6f}  norm {golden[name]['norm']:.6g}"
              f"  rounding {golden[name]['rounding']:.2g}",
              flush=True)
        write(golden)


def write(golden):
    lines = [f"{json.dumps(name)}: {json.dumps(golden[name])}" for name in NAMES if name in golden]
    GOLDEN.write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    main()
