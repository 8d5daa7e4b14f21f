#!/usr/bin/env python3
"""Trains the same model on the same text in several dtypes and puts their losses side by side.

    benchmarks/loss_curves.py --ridge build/bin/ridge --dtypes bf16,fp8 --svg curves.svg -- \
        --data kjv.txt --device cuda --version v4 --num-steps 300

What follows the two dashes goes to `ridge train` as it is. Prints a Markdown table of the losses,
each the mean over the steps since the row before, and of the difference of every dtype to the first;
with --svg draws the curves, smoothed over as many steps.
"""

import argparse
import json
import pathlib
import subprocess
import tempfile

COLORS = ["#1f6fb4", "#d1495b", "#2a9d60", "#8a5fbf", "#b8860b"]
WIDTH, HEIGHT, LEFT, TOP, RIGHT, BOTTOM = 760, 420, 60, 20, 20, 46


def losses_of(ridge, dtype, options):
    with tempfile.TemporaryDirectory() as output:
        subprocess.run(
            [ridge, "train", *options, "--dtype", dtype, "--output-dir", output],
            check=True,
            stdout=subprocess.DEVNULL,
        )
        summary = json.loads(pathlib.Path(output, "performance_summary.json").read_text())
        return summary["performance_summary"]["losses"]


def means(losses, steps):
    return [sum(losses[i : i + steps]) / steps for i in range(0, len(losses) - steps + 1, steps)]


def print_table(curves, steps):
    first, *others = curves
    print("| Steps | " + " | ".join(curves) + "".join(f" | {o} - {first}" for o in others) + " |")
    print("|---:" * (1 + len(curves) + len(others)) + "|")
    rows = {dtype: means(losses, steps) for dtype, losses in curves.items()}
    for i in range(len(rows[first])):
        cells = [f"{i * steps + 1} to {(i + 1) * steps}"]
        cells += [f"{rows[dtype][i]:.4f}" for dtype in curves]
        cells += [f"{rows[o][i] - rows[first][i]:+.4f}" for o in others]
        print("| " + " | ".join(cells) + " |")


def smoothed(losses, steps):
    return [
        sum(losses[max(0, i - steps + 1) : i + 1]) / min(i + 1, steps) for i in range(len(losses))
    ]


def draw(curves, steps):
    series = {dtype: smoothed(losses, steps) for dtype, losses in curves.items()}
    count = max(map(len, series.values()))
    low = min(min(s) for s in series.values())
    high = max(max(s) for s in series.values())

    def x(i):
        return LEFT + (WIDTH - LEFT - RIGHT) * i / max(1, count - 1)

    def y(loss):
        return TOP + (HEIGHT - TOP - BOTTOM) * (high - loss) / max(1e-9, high - low)

    def text(at_x, at_y, anchor, content, color="#333"):
        return (
            f'<text x="{at_x:.1f}" y="{at_y:.1f}" text-anchor="{anchor}" fill="{color}">'
            f"{content}</text>"
        )

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
        'font-family="sans-serif" font-size="13">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#fff"/>',
    ]
    for tick in range(5):
        loss = low + (high - low) * tick / 4
        parts.append(
            f'<path d="M{LEFT} {y(loss):.1f}H{WIDTH - RIGHT}" stroke="#ddd" fill="none"/>'
        )
        parts.append(text(LEFT - 8, y(loss) + 4, "end", f"{loss:.2f}"))
        step = round((count - 1) * tick / 4)
        parts.append(text(x(step), HEIGHT - BOTTOM + 18, "middle", step + 1))
    parts.append(text((LEFT + WIDTH) / 2, HEIGHT - 8, "middle", "step; loss in nats per token"))
    for k, (dtype, losses) in enumerate(series.items()):
        points = " ".join(f"{x(i):.1f},{y(loss):.1f}" for i, loss in enumerate(losses))
        color = COLORS[k % len(COLORS)]
        dashes = "" if k == 0 else ' stroke-dasharray="6 4"'
        parts.append(
            f'<polyline points="{points}" fill="none" stroke="{color}" stroke-width="1.6"{dashes}/>'
        )
        parts.append(text(WIDTH - RIGHT - 8, TOP + 18 * (k + 1), "end", dtype, color))
    return "\n".join([*parts, "</svg>", ""])


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--ridge", default="build/bin/ridge")
    parser.add_argument("--dtypes", default="bf16,fp8", help="separated by commas")
    parser.add_argument("--every", type=int, default=25, help="steps to a row of the table")
    parser.add_argument("--svg", help="where to draw the curves")
    parser.add_argument("options", nargs="*", help="of ridge train")
    args = parser.parse_args()
    curves = {d: losses_of(args.ridge, d, args.options) for d in args.dtypes.split(",")}
    print_table(curves, args.every)
    if args.svg:
        pathlib.Path(args.svg).write_text(draw(curves, args.every))


if __name__ == "__main__":
    main()
