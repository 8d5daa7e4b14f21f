#!/usr/bin/env python3
"""Writes otava_golden.tsv: what Apache Otava finds in the series of series.h.

    python3 -m venv otava && otava/bin/pip install apache-otava==0.8.0
    otava/bin/python tests/study/otava_golden.py
"""

import pathlib
import warnings

from otava.analysis import compute_change_points

COUNT = 200


class Random:
    """The generator of series.h: it gives the same numbers there."""

    def __init__(self, seed):
        self.state = (seed * 2654435761 + 12345) % 2**64

    def below(self, limit):
        self.state = (self.state * 6364136223846793005 + 1442695040888963407) % 2**64
        return (self.state >> 33) % limit

    def normal(self):
        """About 65536 times a normal deviate: a sum of twelve uniform ones."""
        return sum(self.below(65536) for _ in range(12)) - 6 * 65536


def series_of(seed):
    """Steps, drifts, noise and outliers, as whole numbers, which no rounding changes."""
    random = Random(seed)
    size = (10, 30, 60, 100, 150, 200)[random.below(6)]
    level = 1 << (16 + random.below(8))
    noise = (0, 1, 10, 50, 200)[random.below(5)]  # in thousandths
    steps, drifts, outliers = (random.below(3) > 0, random.below(3) == 0, random.below(3) == 0)
    series = []
    for i in range(size):
        if steps and random.below(100) < 3:
            level = level * (80, 90, 102, 110, 150)[random.below(5)] // 100
        value = level + level * noise * random.normal() // (65536 * 1000)
        if drifts:
            value += level * i * 2 // 1000
        if outliers and random.below(100) < 5:
            value *= (2, 5)[random.below(2)]
        series.append(value)
    options = ((50, 30, 20)[random.below(3)], (0.001, 0.01, 0.05)[random.below(3)],
               (0.0, 0.05)[random.below(2)])
    return series, options


def main():
    warnings.simplefilter("ignore")
    lines = []
    for seed in range(COUNT):
        series, (window, p_value, magnitude) = series_of(seed)
        found, _ = compute_change_points([float(value) for value in series], window_len=window,
                                         max_pvalue=p_value, min_magnitude=magnitude)
        lines.append(f"{seed}\t{sum(series)}\t" + " ".join(str(c.index) for c in found))
    path = pathlib.Path(__file__).with_name("otava_golden.tsv")
    path.write_text("seed\tsum of values\tchanges\n" + "\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
