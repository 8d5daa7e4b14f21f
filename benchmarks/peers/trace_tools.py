#!/usr/bin/env python3
"""Times `ridge trace report` beside HolisticTraceAnalysis and TraceLens, in turns.

    trace_tools.py RIDGE TRACE [--hta PYTHON] [--tracelens PYTHON] [--rounds N]

PYTHON is an interpreter that has the tool. Each program runs once a round, one after the other: the
whole report of ridge as text; HolisticTraceAnalysis loads the trace and makes its temporal breakdown;
TraceLens loads it, builds its tree and makes the timeline of the GPU. Prints the medians of wall time
and of peak memory, and how many times Ridge's the others are.
"""

import argparse
import os
import statistics
import subprocess
import sys
import time

HTA = """
import sys, logging; logging.disable(logging.CRITICAL)
from hta.trace_analysis import TraceAnalysis
t = TraceAnalysis(trace_files={0: sys.argv[1]}, trace_dir="", include_last_profiler_step=True)
t.get_temporal_breakdown(visualize=False)
"""
TRACELENS = """
import sys
from TraceLens import TreePerfAnalyzer
TreePerfAnalyzer.from_file(sys.argv[1]).get_df_gpu_timeline()
"""


def run(command):
    """Wall time in seconds and peak memory in MB of a program that has to end well."""
    begin = time.monotonic()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                               env={**os.environ, "HTA_DISABLE_NS_ROUNDING": "1"})
    _, status, usage = os.wait4(process.pid, 0)
    seconds = time.monotonic() - begin
    if status != 0:
        sys.exit(f"trace_tools: {command[0]} ended with status {status}")
    return seconds, usage.ru_maxrss / 1e3


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("ridge")
    parser.add_argument("trace")
    parser.add_argument("--hta", metavar="PYTHON")
    parser.add_argument("--tracelens", metavar="PYTHON")
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    programs = {"ridge trace report": [given.ridge, "trace", "report", given.trace]}
    if given.hta:
        programs["HolisticTraceAnalysis"] = [given.hta, "-c", HTA, given.trace]
    if given.tracelens:
        programs["TraceLens"] = [given.tracelens, "-c", TRACELENS, given.trace]
    seen = {name: [] for name in programs}
    for _ in range(given.rounds):
        for name, command in programs.items():
            seen[name].append(run(command))
    first = None
    print(f"{os.path.basename(given.trace)}, {os.path.getsize(given.trace) / 1e6:.0f} MB, "
          f"{given.rounds} rounds in turns, medians")
    for name, runs in seen.items():
        seconds = statistics.median(s for s, _ in runs)
        memory = statistics.median(m for _, m in runs)
        first = first or seconds
        print(f"  {name:24} {seconds:8.2f} s {memory:8.0f} MB {seconds / first:8.1f} x")


if __name__ == "__main__":
    main()
