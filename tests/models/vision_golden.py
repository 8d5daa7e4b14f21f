#!/usr/bin/env python3
"""Writes tests/models/vision_golden.json: what torchvision's networks are and compute, for
vision_test.cpp to compare Ridge's with.

    tests/models/vision_golden.py [NAME..]

For each network its number of parameters, the multiply-accumulates of one image of the usual size
(half of what torch.utils.flop_counter counts), the shape of its output and some elements of it,
from weights and an image that a rule makes from names: none are stored. The image has "image_size"
rows and columns where that is not the usual size. Needs torch and torchvision, and for
regnet_y_128gf 6 GB of memory."""

import json
import sys
from pathlib import Path

import numpy as np
import torch
import torchvision
from torch.utils.flop_counter import FlopCounterMode

GOLDEN = Path(__file__).with_name("vision_golden.json")
SAMPLES = 16
SEGMENTERS = {"fcn_resnet50", "fcn_resnet101", "deeplabv3_resnet50", "deeplabv3_resnet101",
              "deeplabv3_mobilenet_v3_large", "lraspp_mobilenet_v3_large"}
NAMES = """
alexnet densenet121 densenet161 densenet169 densenet201 googlenet inception_v3
mnasnet0_5 mnasnet0_75 mnasnet1_0 mnasnet1_3 mobilenet_v2 mobilenet_v3_large mobilenet_v3_small
resnet18 resnet34 resnet50 resnet101 resnet152 resnext50_32x4d resnext101_32x8d
resnext101_64x4d wide_resnet50_2 wide_resnet101_2
shufflenet_v2_x0_5 shufflenet_v2_x1_0 shufflenet_v2_x1_5 shufflenet_v2_x2_0
squeezenet1_0 squeezenet1_1 vgg11 vgg13 vgg16 vgg19 vgg11_bn vgg13_bn vgg16_bn vgg19_bn
swin_t swin_s swin_b swin_v2_t swin_v2_s swin_v2_b vit_b_16 vit_b_32 vit_l_16 vit_l_32 vit_h_14
efficientnet_b0 efficientnet_b1 efficientnet_b2 efficientnet_b3 efficientnet_b4 efficientnet_b5
efficientnet_b6 efficientnet_b7 efficientnet_v2_s efficientnet_v2_m efficientnet_v2_l maxvit_t
regnet_x_400mf regnet_x_800mf regnet_x_1_6gf regnet_x_3_2gf regnet_x_8gf regnet_x_16gf regnet_x_32gf
regnet_y_400mf regnet_y_800mf regnet_y_1_6gf regnet_y_3_2gf regnet_y_8gf regnet_y_16gf regnet_y_32gf
regnet_y_128gf convnext_tiny convnext_small convnext_base convnext_large
fcn_resnet50 fcn_resnet101 deeplabv3_resnet50 deeplabv3_resnet101 deeplabv3_mobilenet_v3_large
lraspp_mobilenet_v3_large
""".split()
# Rows and columns of the image that a network is usually given.
SIZES = {"inception_v3": 299, "efficientnet_v2_s": 384, "efficientnet_v2_m": 480,
         "efficientnet_v2_l": 480}
SIZE = 224
# Families with many large networks, whose logits on small images say as much and cost a tenth.
SMALL_IMAGES = ("efficientnet_v2", "regnet", "convnext", "resnext101_64x4d")
SMALL_SIZE = 64


def uniform(name, count):
    """Numbers in [0, 1) from a tensor's name: the finalizer of SplitMix64 (Steele, Lea, Flood, 2014)
    over a counter that begins at the name's FNV-1a hash."""
    stream = 0xCBF29CE484222325
    for byte in name.encode():
        stream = ((stream ^ byte) * 0x100000001B3) & 0xFFFFFFFFFFFFFFFF
    z = np.uint64(stream) + np.arange(1, count + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    z = z ^ (z >> np.uint64(31))
    return (z >> np.uint64(40)).astype(np.float32) * np.float32(2.0**-24)


def by_rule(name, shape):
    """Weights that keep activations near 1 through a hundred layers. The same as in
    vision_test.cpp."""
    count = int(np.prod(shape))
    u = uniform(name, count)
    if name.endswith("running_var"):
        x = u + np.float32(0.5)
    elif name.endswith("running_mean") or name.endswith("bias"):
        x = (u - np.float32(0.5)) * np.float32(0.05)
    elif name.endswith("logit_scale"):
        x = u + np.float32(2)
    elif len(shape) == 1:
        x = u * np.float32(0.4) + np.float32(0.4)
    else:
        bound = np.float32(np.sqrt(6.0 / (count // shape[0])))
        x = (u - np.float32(0.5)) * np.float32(2) * bound
    return torch.from_numpy(x.reshape(shape))


def build(name):
    if name in SEGMENTERS:
        return getattr(torchvision.models.segmentation, name)(weights=None, weights_backbone=None)
    options = {"googlenet": dict(aux_logits=False, init_weights=False),
               "inception_v3": dict(aux_logits=False, init_weights=False)}.get(name, {})
    return getattr(torchvision.models, name)(weights=None, **options)


def without_weights(name, builder, *arguments):
    """The network on the meta device, or brought there if it is a RegNet, which finds its widths by
    the content of tensors."""
    with torch.device("cpu" if name.startswith("regnet") else "meta"):
        return builder(name, *arguments).to("meta")


def golden_of(name):
    model = without_weights(name, build).to_empty(device="cpu").eval()
    fresh = build_buffers(name, model)
    with torch.no_grad():
        for key, tensor in model.state_dict().items():
            if tensor.is_floating_point() and key not in fresh:
                tensor.copy_(by_rule(key, tuple(tensor.shape)))
        size = SMALL_SIZE if name.startswith(SMALL_IMAGES) else usual_size(name)
        image = torch.from_numpy((uniform("images", 3 * size * size) * np.float32(4) -
                                  np.float32(2)).reshape(1, 3, size, size))
        y = model(image)
    y = y["out"] if isinstance(y, dict) else y
    flat = y.reshape(-1).double()
    chosen = [int(i) for i in np.linspace(0, flat.numel() - 1, SAMPLES)]
    of_image = {} if size == usual_size(name) else {"image_size": size}
    return {"parameters": sum(p.numel() for p in model.parameters()), "macs": macs_of(name),
            "shape": list(y.shape), **of_image, "rms": float(flat.square().mean().sqrt()),
            "elements": chosen,
            "values": [float(f"{flat[i]:.8g}") for i in chosen]}


def usual_size(name):
    return SIZES.get(name, SIZE)


def macs_of(name):
    """Counted from shapes alone, on the device that computes nothing."""
    size = usual_size(name)
    model = without_weights(name, build).eval()
    with torch.no_grad(), FlopCounterMode(display=False) as flops:
        model(torch.empty(1, 3, size, size, device="meta"))
    return flops.get_total_flops() // 2


def build_buffers(name, model):
    """Constants, which a model on the meta device lacks, from one that is really built; their
    names."""
    constants = [k for k, _ in model.named_buffers() if "running_" not in k and "num_batches" not in k]
    if constants:
        real = dict(build(name).named_buffers())
        for key, tensor in model.named_buffers():
            if key in constants:
                tensor.copy_(real[key])
    return set(constants)


def main():
    torch.backends.mha.set_fastpath_enabled(False)  # which the counter does not see into
    if missing := set(torchvision.models.list_models(module=torchvision.models)) - set(NAMES):
        sys.exit(f"torchvision has {', '.join(sorted(missing))}, which NAMES lacks")
    names = sys.argv[1:] or NAMES
    golden = json.loads(GOLDEN.read_text()) if sys.argv[1:] and GOLDEN.exists() else {}
    for name in names:
        golden[name] = golden_of(name)
        print(f"{name:32} {golden[name]['parameters']:12,} parameters "
              f"{golden[name]['macs']:15,} MACs  rms {golden[name]['rms']:.3g}", flush=True)
    lines = [f"{json.dumps(name)}: {json.dumps(golden[name])}" for name in NAMES if name in golden]
    GOLDEN.write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    main()
