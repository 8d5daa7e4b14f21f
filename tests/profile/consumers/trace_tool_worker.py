"""Reads traces with the tools of one Python environment, for trace_tools.py.

    python trace_tool_worker.py            prints which tools this environment has, as JSON
    python trace_tool_worker.py TOOL       reads one trace for each line of standard input

A line of input is the path of a trace, alone in its folder; a line of output is what the tool did
with it. Each trace is read in a forked process, so that a tool is imported once and a trace that
hangs or kills it concerns that trace only."""

import contextlib
import importlib
import importlib.metadata
import io
import json
import logging
import os
import re
import select
import signal
import sys
import tempfile
import time
import warnings
from pathlib import Path

TIME_LIMIT = 120  # seconds that a tool may take for one trace

# What the check says of one tool has to hold for each of these analyses of it too.
HTA_ANALYSES = {
    "temporal_breakdown": lambda a: a.get_temporal_breakdown(visualize=False),
    "kernel_breakdown": lambda a: a.get_gpu_kernel_breakdown(visualize=False),
    "launch_stats": lambda a: a.get_cuda_kernel_launch_stats(ranks=list(a.t.traces),
                                                             visualize=False),
}


def import_hta():
    from hta.trace_analysis import TraceAnalysis

    def read(path):
        analysis = TraceAnalysis(trace_dir=str(path.parent))
        if not analysis.t.traces:
            raise ValueError("it has no trace after reading the folder")
        found = {"events": {rank: len(analysis.t.get_trace(rank)) for rank in analysis.t.traces}}
        for name, analyse in HTA_ANALYSES.items():
            try:
                result = analyse(analysis)
                found[name] = summary(result)
            except Exception as error:  # of any kind: it is the tool's
                found[name] = "FAILS: " + message(error)
        return found

    return read


def summary(result):
    """How many rows an analysis of HolisticTraceAnalysis has, and its first if it is one table."""
    if isinstance(result, dict):
        return {"rows": sum(len(table) for table in result.values())}
    if isinstance(result, tuple):
        return {"rows": [len(table) for table in result]}
    first = result.iloc[0] if len(result) else {}
    return {"rows": len(result), **{key: float(value) for key, value in first.items()}}


def import_tracelens():
    # Its package has a function of the module's name too.
    report = importlib.import_module("TraceLens.Reporting.generate_perf_report_pytorch")

    def read(path):
        with tempfile.TemporaryDirectory() as folder:
            sys.argv = ["TraceLens_generate_perf_report_pytorch", "--profile_json_path", str(path),
                        "--output_xlsx_path", str(Path(folder) / "report.xlsx")]
            try:
                report.main()
            except SystemExit as end:
                if end.code not in (None, 0):
                    raise RuntimeError(f"ends with {end.code}") from end
            return {"files": sorted(file.name for file in Path(folder).iterdir())}

    return read


def import_tb_profiler():
    from torch_tb_profiler.profiler.data import RunProfileData
    from torch_tb_profiler.profiler.run_generator import RunGenerator

    def read(path):
        with tempfile.TemporaryDirectory() as cache:
            data = RunProfileData.parse("worker", "1", str(path), cache)
        profile = RunGenerator("worker", "1", data).generate_run_profile()
        return {"views": [view.display_name for view in profile.views]}

    return read


# By the name that `ridge trace check --json` has for the tool: its packages, newest name first.
TOOLS = {
    "HolisticTraceAnalysis": (("traceinsight", "HolisticTraceAnalysis"), import_hta),
    "TraceLens": (("TraceLens",), import_tracelens),
    "torch-tb-profiler": (("torch-tb-profiler",), import_tb_profiler),
}


def version_of(tool):
    """Without the date of its build. HolisticTraceAnalysis is another with another pandas."""
    for package in TOOLS[tool][0]:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            version = re.sub(r"\.dev\d+", "", importlib.metadata.version(package))
            if tool != "HolisticTraceAnalysis":
                return version
            return f"{version} with pandas {importlib.metadata.version('pandas')}"
    return None


def message(error):
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text}"[:300]


def attempt(read, path):
    """What the tool did: {"refuses": bool, "message" or "found"}."""
    printed = io.StringIO()
    try:
        with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
            return {"refuses": False, "found": read(path)}
    except BaseException as error:  # of any kind: it is the tool's
        return {"refuses": True, "message": message(error)}


def attempt_apart(read, path):
    """As attempt(), in a process of its own that has TIME_LIMIT seconds."""
    receive, send = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(receive)
        os.setsid()
        with os.fdopen(send, "w") as pipe:
            json.dump(attempt(read, path), pipe)
        os._exit(0)
    os.close(send)
    text, end = b"", time.monotonic() + TIME_LIMIT
    while select.select([receive], [], [], max(0, end - time.monotonic()))[0]:
        piece = os.read(receive, 1 << 16)
        if not piece:
            break
        text += piece
    else:
        os.killpg(child, signal.SIGKILL)
    os.close(receive)
    os.waitpid(child, 0)
    try:
        return json.loads(text)
    except ValueError:
        return {"refuses": True, "message": f"ended without a result within {TIME_LIMIT} s"}


def main():
    warnings.simplefilter("ignore")
    if len(sys.argv) == 1:
        found = {tool: version_of(tool) for tool in TOOLS}
        print(json.dumps({tool: version for tool, version in found.items() if version}))
        return
    logging.disable(logging.CRITICAL)
    read = TOOLS[sys.argv[1]][1]()
    for line in sys.stdin:
        print(json.dumps(attempt_apart(read, Path(line.rstrip("\n")))), flush=True)


if __name__ == "__main__":
    main()
