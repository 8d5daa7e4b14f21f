#!/usr/bin/env python3
"""Writes a folder of small PNG images to train on: discs, rings and squares, a folder for each class.

    examples/shapes.py shapes [--count 60] [--size 32]

Every image has its shape somewhere, in some size, on noise. Needs nothing but Python."""

import argparse
import random
import struct
import zlib
from pathlib import Path

INSIDE = {
    "disc": lambda x, y, r: x * x + y * y < r * r,
    "ring": lambda x, y, r: 0.4 * r * r < x * x + y * y < r * r,
    "square": lambda x, y, r: max(abs(x), abs(y)) < 0.8 * r,
}


def png(rows):
    """A grayscale image of 8 bits."""
    def chunk(kind, data):
        return (struct.pack(">I", len(data)) + kind + data +
                struct.pack(">I", zlib.crc32(kind + data)))
    header = struct.pack(">IIBBBBB", len(rows[0]), len(rows), 8, 0, 0, 0, 0)
    pixels = b"".join(b"\0" + bytes(row) for row in rows)
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) +
            chunk(b"IDAT", zlib.compress(pixels)) + chunk(b"IEND", b""))


def image(inside, size, draw):
    radius = draw.uniform(0.2, 0.4) * size
    x0, y0 = (draw.uniform(radius, size - radius) for _ in range(2))
    bright = draw.randint(120, 200)
    return [[draw.randint(0, 55) + bright * inside(x - x0, y - y0, radius) for x in range(size)]
            for y in range(size)]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--count", type=int, default=60, help="images of each class")
    parser.add_argument("--size", type=int, default=32, help="rows and columns")
    arguments = parser.parse_args()
    draw = random.Random(0)
    for name, inside in INSIDE.items():
        (arguments.folder / name).mkdir(parents=True, exist_ok=True)
        for i in range(arguments.count):
            rows = image(inside, arguments.size, draw)
            (arguments.folder / name / f"{i:03}.png").write_bytes(png(rows))


if __name__ == "__main__":
    main()
