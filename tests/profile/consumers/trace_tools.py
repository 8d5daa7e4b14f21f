#!/usr/bin/env python3
"""Holds the rules of `ridge trace check` against the tools of which it speaks.

    tests/profile/consumers/trace_tools.py --ridge build/bin/ridge \\
        --python hta-0.5/bin/python --python hta-0.6/bin/python --python tracelens/bin/python \\
        --answers answers.json TRACE_FOLDER

Applies every mutation of trace_mutations.py to every trace of the folder, asks each tool that one
of the Pythons has to read the result, and compares what the tool did with what the check says.
Prints a table of the tools and each disagreement; exits with 1 if there is one. The tools' answers
are kept in the file of --answers, so that only the check has to run again after a change of its
rules. A trace over --mutate-below bytes is read as it is, since a tool needs seconds for it.

HolisticTraceAnalysis 0.5.0 is that package on PyPI, 0.6.1 is `traceinsight`. TraceLens installs
from a copy of its repository. --viewer needs a Chromium, and torch-tb-profiler in the Python that runs
this."""

import argparse
import gzip
import hashlib
import importlib.metadata
import json
import subprocess
import sys
import tempfile
import zlib
from collections import Counter, defaultdict
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import trace_mutations

HERE = Path(__file__).resolve().parent
ENDINGS = (".json.gz", ".json")


class Tool:
    """One version of a tool, in a process that reads traces."""

    def __init__(self, python, name, version):
        self.name, self.version = name, version
        self.process = subprocess.Popen([python, str(HERE / "trace_tool_worker.py"), name],
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def __str__(self):
        return f"{self.name} {self.version}"

    def read(self, path):
        self.process.stdin.write(f"{path}\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())

    def close(self):
        self.process.stdin.close()
        self.process.wait()


class Viewer:
    """The viewer of chrome://tracing in a headless Chromium: torch-tb-profiler's copy."""

    name = "chrome://tracing"

    def __init__(self):
        import trace_viewer

        self.import_trace = trace_viewer.IMPORT
        self.page, place = trace_viewer.open_viewer()
        self.version = (f"of torch-tb-profiler {importlib.metadata.version('torch-tb-profiler')}"
                        if place.endswith("copy") else place)

    def __str__(self):
        return f"{self.name} {self.version}"

    def read(self, path):
        """A browser decodes what is no UTF-8 to signs of replacement, and unpacks by content."""
        try:
            text = unpacked(path).decode("utf-8", "replace")
            found = self.page.call(self.import_trace, text)
        except (RuntimeError, OSError, EOFError, zlib.error) as error:
            return {"refuses": True, "message": " ".join(str(error).split())[:300]}
        if found["slices"] + found["counters"] == 0:
            return {"refuses": True, "message": "shows nothing"}
        return {"refuses": False, "found": {"slices": found["slices"]}}

    def close(self):
        self.page.close()


def tools_of(pythons):
    tools = []
    for python in pythons:
        found = subprocess.run([python, str(HERE / "trace_tool_worker.py")], check=True,
                               stdout=subprocess.PIPE, text=True).stdout
        tools += [Tool(python, name, version) for name, version in json.loads(found).items()]
    return tools


def unpacked(path):
    data = path.read_bytes()
    return gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data


def mutants_of(path, below, wanted):
    """(name, bytes, ending of the file's name) of each mutation of the trace that changes it."""
    ending = next((e for e in ENDINGS if path.name.endswith(e)), path.suffix)
    yield "as recorded", path.read_bytes(), ending
    data = unpacked(path)
    if len(data) > below:
        return
    for name, mutate in trace_mutations.MUTATIONS.items():
        if wanted and name not in wanted:
            continue
        result, ending = mutate(json.loads(data)), ".json"
        if isinstance(result, tuple):
            result, ending = result
        if result is not None:
            written = result if isinstance(result, bytes) else trace_mutations.dump(result)
            yield name, written, ending


def verdicts_of(ridge, path):
    """What the check says of each tool, by name; None if it finds no trace that any tool reads."""
    run = subprocess.run([ridge, "trace", "check", "--json", str(path)], text=True,
                         stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    if run.returncode not in (0, 1):
        raise RuntimeError(f"{path}: exit {run.returncode}: {run.stderr}")
    if not run.stdout:
        return None
    return {verdict["tool"]: verdict for verdict in json.loads(run.stdout)["tools"]}


# The rules that say that an analysis of HolisticTraceAnalysis fails though it reads the trace.
FAILING = {"temporal_breakdown": {"hta-no-kernels", "hta-breakdown", "hta-kernel-name"},
           "kernel_breakdown": {"hta-kernel-name"},
           "launch_stats": set()}


# The rules that say that a tool may refuse a trace: after one of these either is as it said.
UNCERTAIN = {"tb-modules", "tb-numbers", "tracelens-operator", "tracelens-waits"}


def disagreement(verdict, version, answer):
    """In words, or None."""
    did = answer.get("message") or "reads it"
    if verdict is None:
        return None if answer["refuses"] else f"check finds no trace; tool: {did}"
    if version not in verdict["tried"]:
        return f"the rules were not held against this version, but against {verdict['tried']}"
    problems = [p for p in verdict["problems"] if version in p["versions"]]
    refusing = [p["rule"] for p in problems if p["severity"] == "refuses"]
    said = {p["rule"] for p in problems}
    if bool(refusing) != answer["refuses"] and not (answer["refuses"] and said & UNCERTAIN):
        return f"check: {', '.join(refusing) or 'accepts it'}; tool: {did}"
    for analysis, rules in FAILING.items():
        found = (answer.get("found") or {}).get(analysis)
        if found is not None and isinstance(found, str) != bool(rules & said):
            return f"check: {', '.join(rules & said) or 'nothing'} of {analysis}; tool: {found}"
    return None


def check_one(ask, tools, ridge, answers, label, data, ending, folder):
    """The disagreements of one file, by tool."""
    key = hashlib.sha256(data).hexdigest() + ending
    path = Path(folder) / key[:16] / ("worker.1.pt.trace" + ending)
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(data)
    result = {}
    said = verdicts_of(ridge, path) if ridge else None
    asked = [tool for tool in tools if key not in answers[str(tool)]]
    for tool, answer in zip(asked, ask.map(lambda tool: tool.read(path), asked)):
        answers[str(tool)][key] = {**answer, "label": label}
    for tool in tools:
        known = answers[str(tool)]
        if ridge:
            result[tool] = disagreement(said and said[tool.name], tool.version, known[key])
    path.unlink()
    path.parent.rmdir()
    return result


def print_table(totals, disagreements):
    print("| Tool | Traces | Refused | Disagreements |\n| --- | --- | --- | --- |")
    for tool, count in totals.items():
        print(f"| {tool} | {count['traces']} | {count['refused']} | {len(disagreements[tool])} |")
    for tool, found in disagreements.items():
        for label, text in found:
            print(f"{tool}: {label}: {text}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--ridge", help="compare with the check of this program; else only ask")
    parser.add_argument("--python", action="append", default=[], help="a Python that has tools")
    parser.add_argument("--viewer", action="store_true", help="ask chrome://tracing too")
    parser.add_argument("--answers", type=Path, help="the file that keeps the tools' answers")
    parser.add_argument("--mutate-below", type=int, default=4 << 20, help="bytes")
    parser.add_argument("--mutation", action="append", help="only these")
    arguments = parser.parse_args()
    tools = tools_of(arguments.python) + ([Viewer()] if arguments.viewer else [])
    answers = defaultdict(dict)
    if arguments.answers and arguments.answers.exists():
        answers.update(json.loads(arguments.answers.read_text()))
    for tool in tools:
        answers.setdefault(str(tool), {})
    totals, disagreements = {tool: Counter() for tool in tools}, {tool: [] for tool in tools}
    try:
        with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor() as ask:
            for path in sorted(arguments.folder.iterdir()):
                for name, data, ending in mutants_of(path, arguments.mutate_below,
                                                     arguments.mutation):
                    label = f"{path.name}: {name}"
                    found = check_one(ask, tools, arguments.ridge, answers, label, data, ending,
                                      folder)
                    for tool in tools:
                        key = hashlib.sha256(data).hexdigest() + ending
                        totals[tool]["traces"] += 1
                        totals[tool]["refused"] += answers[str(tool)][key]["refuses"]
                        if found.get(tool):
                            disagreements[tool].append((label, found[tool]))
                print(f"{path.name} done", file=sys.stderr, flush=True)
                if arguments.answers:
                    arguments.answers.write_text(json.dumps(answers))
    finally:
        if arguments.answers:
            arguments.answers.write_text(json.dumps(answers))
        for tool in tools:
            tool.close()
    print_table(totals, disagreements)
    return 1 if any(disagreements.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
