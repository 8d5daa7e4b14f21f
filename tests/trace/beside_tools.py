#!/usr/bin/env python3
"""Puts the figures of `ridge trace report` beside those of other tools, for the traces named.

    beside_tools.py RIDGE TRACE...

Run it by a Python that has HolisticTraceAnalysis or TraceLens. Prints each figure that both define,
and "differs" where they are more than a microsecond and a millionth apart. docs/use/traces.md says
for which reasons they may; the exit code is 0 whatever differs.
"""

import json
import logging
import os
import subprocess
import sys
import warnings

warnings.filterwarnings("ignore")
logging.disable(logging.CRITICAL)
os.environ["HTA_DISABLE_NS_ROUNDING"] = "1"


def by_hta(trace):
    """HolisticTraceAnalysis' temporal breakdown and overlap, of all steps."""
    from hta.trace_analysis import TraceAnalysis
    analysis = TraceAnalysis(trace_files={0: trace}, trace_dir="", include_last_profiler_step=True)
    times = analysis.get_temporal_breakdown(visualize=False).iloc[0]
    overlap = analysis.get_comm_comp_overlap(visualize=False).iloc[0]["comp_comm_overlap_pctg"]
    return {"span_us": times["kernel_time(us)"], "idle_us": times["idle_time(us)"],
            "compute_us": times["compute_time(us)"],
            "overlap of communication, %": None if overlap != overlap else overlap}


def by_tracelens(trace):
    """TraceLens' timeline of the GPU."""
    from TraceLens import TreePerfAnalyzer
    frame = TreePerfAnalyzer.from_file(trace).get_df_gpu_timeline()
    times = {row["type"]: row["time ms"] * 1e3 for _, row in frame.iterrows()}
    return {"span_us": times["total_time"], "busy_us": times["busy_time"],
            "idle_us": times["idle_time"], "compute_us": times["computation_time"],
            "communication_us": times["total_comm_time"],
            "exposed_communication_us": times["exposed_comm_time"],
            "copy_us": times["total_memcpy_time"]}


def by_ridge(ridge, trace):
    text = subprocess.run([ridge, "trace", "report", trace, "--json"], check=True,
                          capture_output=True).stdout
    report = json.loads(text)["ranks"][0]
    both = report["communication_us"] - report["exposed_communication_us"]
    report["overlap of communication, %"] = (
        round(100 * both / report["communication_us"], 2) if report["communication_us"] else None)
    return report


def differs(name, ours, theirs):
    if ours is None or theirs is None:
        return ours is not theirs
    return abs(ours - theirs) > (0.011 if "%" in name else 1 + 1e-6 * abs(theirs))


def main(ridge, traces):
    tools = []
    for name, module, read in (("HTA", "hta", by_hta), ("TraceLens", "TraceLens", by_tracelens)):
        try:
            __import__(module)
            tools.append((name, read))
        except ImportError:
            pass
    if not tools:
        sys.exit("beside_tools: this Python has neither HolisticTraceAnalysis nor TraceLens")
    for trace in traces:
        print(os.path.basename(trace))
        ours = by_ridge(ridge, trace)
        for tool, read in tools:
            try:
                theirs = read(trace)
            except BaseException as error:  # whatever a tool ends with
                print(f"  {tool:9} reads it not: {type(error).__name__}: {str(error)[:90]}")
                continue
            for name, figure in theirs.items():
                mark = "differs" if differs(name, ours[name], figure) else ""
                show = "{:>16}".format
                print(f"  {tool:9} {name:28}" + show("-" if figure is None else f"{figure:,.3f}") +
                      "   Ridge" + show("-" if ours[name] is None else f"{ours[name]:,.3f}") +
                      f"  {mark}".rstrip())


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    main(sys.argv[1], sys.argv[2:])
