#!/usr/bin/env python3
"""Writes scikit-learn's digits, 1797 images of 8 x 8 pixels, as a safetensors file that
`ridge bench --data` takes.

    pip install scikit-learn
    examples/digits.py digits.safetensors
    ridge bench --network resnet18 --mode training --data digits.safetensors --image-size 32 \\
        --batch-size 64 --iterations 100
"""

import json
import struct
import sys

import numpy as np
from sklearn.datasets import load_digits


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    digits = load_digits()
    tensors = {"images": ("U8", digits.images.astype(np.uint8)),
               "labels": ("U8", digits.target.astype(np.uint8))}
    header, data = {}, b""
    for name, (dtype, array) in tensors.items():
        header[name] = {"dtype": dtype, "shape": list(array.shape),
                        "data_offsets": [len(data), len(data) + array.nbytes]}
        data += array.tobytes()
    text = json.dumps(header).encode()
    with open(sys.argv[1], "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + data)


if __name__ == "__main__":
    main()
