#!/usr/bin/env python3
"""Reads a profile directory of Ridge with the tools that it was written for, and prints which of
them accept it and what they found.

    ridge train --num-steps 12 --enable-all-profiling --profile-dir profiles
    python3 -m venv venv && venv/bin/pip install -r tests/profile/consumers/requirements.txt
    venv/bin/python tests/profile/consumers/read_profile.py profiles

Exits with 1 if one of them refuses a file. A consumer that is not there is said to be missing."""

import argparse
import gzip
import json
import logging
import math
import os
import shutil
import sys
import tempfile
import warnings
from collections import Counter
from pathlib import Path

# Else HTA takes begins up and ends down to whole microseconds, of kernels that take three.
os.environ["HTA_DISABLE_NS_ROUNDING"] = "1"


class Missing(Exception):
    """A consumer that is not there."""


def one(directory, pattern):
    found = sorted(directory.glob(pattern))
    if not found:
        raise FileNotFoundError(f"no {pattern} in {directory}")
    return found[0]


def read_json(directory):
    """Python's own JSON, strictly, and that slices of one track nest."""

    def refuse(constant):
        raise ValueError(f"{constant} is no JSON")

    path = one(directory, "trace_step_*.json*")
    data = path.read_bytes()
    if path.suffix == ".gz":
        data = gzip.decompress(data)
    trace = json.loads(data, parse_constant=refuse)
    slices = [e for e in trace["traceEvents"] if e["ph"] == "X"]
    tracks = {}
    for e in slices:
        begin = round(e["ts"] * 1000)
        tracks.setdefault((e["pid"], e["tid"]), []).append((begin, -begin - round(e["dur"] * 1000)))
    for track in tracks.values():
        ends = []
        for begin, minus_end in sorted(track):
            while ends and ends[-1] <= begin and -minus_end > ends[-1]:
                ends.pop()
            assert not ends or -minus_end <= ends[-1], f"slices cross at {begin} ns"
            ends.append(-minus_end)
    flows = Counter(e["ph"] for e in trace["traceEvents"] if e.get("cat") == "fwdbwd")
    assert flows["s"] == flows["f"] > 0, flows
    return f"{len(trace['traceEvents'])} events, {len(slices)} slices that nest, {flows['f']} flows"


def read_tensorboard(directory):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    # The pure Python reader of records, since the built-in one passes over damaged ones in silence.
    path = one(directory, "events.out.tfevents.*")
    accumulator = EventAccumulator(str(path))
    accumulator.Reload()
    tags = accumulator.Tags()["scalars"]
    assert tags, "no scalars"
    points = {tag: accumulator.Scalars(tag) for tag in tags}
    for tag, values in points.items():
        assert all(a.step < b.step for a, b in zip(values, values[1:])), tag
    loss = next((t for t in tags if "loss" in t), None)
    assert loss and all(math.isfinite(v.value) for v in points[loss]), "no loss"
    mfu = [v.value for v in points.get("throughput/mfu_percent", [])]
    assert all(0 < value <= 100 for value in mfu), mfu
    of_steps = {}
    for tag in sorted(tags):
        of_steps.setdefault(len(points[tag]), []).append(tag)
    return "; ".join(f"of {n} steps {', '.join(of_n)}" for n, of_n in sorted(of_steps.items()))


def read_tb_profiler(directory):
    """The plugin's own way from the file's name to the data of its pages."""
    from torch_tb_profiler import consts
    from torch_tb_profiler.profiler.data import RunProfileData
    from torch_tb_profiler.profiler.run_generator import RunGenerator

    path = one(directory, "*.pt.trace.json*")
    match = consts.WORKER_PATTERN.match(path.name)
    assert match, f"{path.name} is no worker's trace"
    with tempfile.TemporaryDirectory() as cache:
        data = RunProfileData.parse(match.group(1), match.group(2)[1:], str(path), cache)
    profile = RunGenerator(match.group(1), match.group(2), data).generate_run_profile()
    views = [view.display_name for view in profile.views]
    assert data.steps_names and {"Operator", "Memory", "Module"} <= set(views), views
    operators = {op.name for op in data.op_list_groupby_name}
    assert any(name.startswith("aten::") for name in operators), operators
    return (
        f"views {', '.join(views)}; steps {data.steps_names[0]} to {data.steps_names[-1]}, "
        f"{len(operators)} operators"
    )


def read_hta(directory):
    from hta.trace_analysis import TraceAnalysis

    with tempfile.TemporaryDirectory() as folder:
        # HTA takes every JSON file of a folder for a trace.
        shutil.copy(one(directory, "trace_step_*.json*"), folder)
        analysis = TraceAnalysis(trace_dir=folder, include_last_profiler_step=True)
    steps = analysis.get_profiler_steps()
    frame = analysis.t.get_trace(0)
    assert len(steps) > 1, steps
    on_gpu = "stream" in frame and bool((frame["stream"] >= 0).any())
    kinds, kernels = analysis.get_gpu_kernel_breakdown(visualize=False)
    try:
        row = analysis.get_temporal_breakdown(visualize=False).iloc[0]
        temporal = (f"idle {row['idle_time_pctg']} %, computing {row['compute_time_pctg']} %, "
                    f"other {row['non_compute_time_pctg']} %")
    except IndexError as error:  # what it raises if nothing ran on a GPU
        if on_gpu:
            raise
        temporal = f"none without kernels of a GPU (IndexError: {error})"
    return (f"steps {steps[0]} to {steps[-1]}, {len(frame)} events; temporal breakdown: {temporal};"
            f" kernel breakdown: {len(kinds)} types, {len(kernels)} kernels")


def read_hta_ranks(directory):
    """The overlap of communication and computation, of every rank, is what Ridge says it is."""
    from hta.trace_analysis import TraceAnalysis

    ranks = [directory, *sorted(directory.glob("rank-*"), key=lambda d: int(d.name[5:]))]
    if len(ranks) == 1:
        raise Missing("the profile is of one rank")
    files = {rank: str(one(d, "trace_step_*.json*")) for rank, d in enumerate(ranks)}
    analysis = TraceAnalysis(trace_files=files, trace_dir=str(directory),
                             include_last_profiler_step=True)
    found = dict(analysis.get_comm_comp_overlap(visualize=False).itertuples(index=False, name=None))
    own = {rank: 100 * json.loads((d / "communication.json").read_text())["hidden_fraction"]
           for rank, d in enumerate(ranks)}
    apart = max(abs(found[rank] - own[rank]) for rank in own)
    # A trace shows no kernel as shorter than a microsecond, and none that begins before another ends
    # on its track.
    assert apart < 0.5, f"overlap {found} %, and by Ridge {own} %"
    return f"overlap {', '.join(f'{found[r]} % (Ridge {own[r]:.2f} %)' for r in own)}"


def read_trace_viewer(directory):
    """The viewer of chrome://tracing: no warning, nothing left open, no event lost."""
    from trace_viewer import read_trace

    text = one(directory, "trace_step_*.json").read_text()
    found, place = read_trace(text)
    assert not found["warnings"], found["warnings"]
    assert not found["open"], f"{found['open']} slices without an end"
    # To the viewer, an instant of a thread is a slice without duration.
    given = Counter(e["name"] for e in json.loads(text)["traceEvents"]
                    if e["ph"] == "X" or (e["ph"] == "i" and e["s"] == "t"))
    assert found["names"] == given, given - Counter(found["names"])
    return (f"{found['slices']} slices of {found['threads']} threads, to depth {found['depth']}; "
            f"{found['flows']} flows, {found['counters']} counters, no warning ({place})")


def read_perfetto_messages(directory):
    """Perfetto's own message classes: every field must be one that they know."""
    from google.protobuf.unknown_fields import UnknownFieldSet
    from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace, TrackEvent

    trace = Trace()
    trace.ParseFromString(one(directory, "*.pftrace").read_bytes())
    types, tracks, depth = Counter(), set(), Counter()
    for packet in trace.packet:
        assert len(UnknownFieldSet(packet)) == 0, packet
        if packet.HasField("track_descriptor"):
            tracks.add(packet.track_descriptor.uuid)
            continue
        event = packet.track_event
        assert len(UnknownFieldSet(event)) == 0 and event.track_uuid in tracks, event
        types[TrackEvent.Type.Name(event.type)] += 1
        depth[event.track_uuid] += {1: 1, 2: -1}.get(event.type, 0)
        assert depth[event.track_uuid] >= 0, "a slice ends before it begins"
    assert not any(depth.values()), "a slice has no end"
    return f"{len(tracks)} tracks; " + ", ".join(f"{n} {t}" for t, n in sorted(types.items()))


def read_trace_processor(directory):
    binary = os.environ.get("TRACE_PROCESSOR") or shutil.which("trace_processor_shell")
    if not binary:
        raise Missing("no trace_processor_shell on the path or in TRACE_PROCESSOR")
    from perfetto.trace_processor import TraceProcessor, TraceProcessorConfig

    found = []
    for path in (one(directory, "*.pftrace"), one(directory, "trace_step_*.json*")):
        processor = TraceProcessor(
            trace=str(path), config=TraceProcessorConfig(bin_path=binary))
        count = next(iter(processor.query(
            "select count(1) as slices, max(depth) as depth, min(dur) as shortest from slice")))
        flows = next(iter(processor.query("select count(1) as n from flow"))).n
        errors = [f"{row.name} {row.value}" for row in processor.query(
            "select name, value from stats where severity = 'error' and value > 0")]
        processor.close()
        assert not errors and count.shortest >= 0, errors
        found.append(f"{path.suffix}: {count.slices} slices to depth {count.depth}, {flows} flows")
    return "; ".join(found)


CONSUMERS = {
    "JSON, strictly": read_json,
    "TensorBoard's event reader": read_tensorboard,
    "torch-tb-profiler": read_tb_profiler,
    "HolisticTraceAnalysis": read_hta,
    "HolisticTraceAnalysis, all ranks": read_hta_ranks,
    "chrome://tracing": read_trace_viewer,
    "Perfetto's messages": read_perfetto_messages,
    "Perfetto's trace processor": read_trace_processor,
}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("directory", type=Path)
    directory = parser.parse_args().directory
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    failed = False
    print("| Consumer | Accepts | Found |\n| --- | --- | --- |")
    for name, read in CONSUMERS.items():
        try:
            verdict, found = "yes", read(directory)
        except (ImportError, Missing) as error:
            verdict, found = "not run", error
        except Exception as error:  # of any kind: it is the consumer's
            verdict, found = "NO", f"{type(error).__name__}: {error}"
            failed = True
        print(f"| {name} | {verdict} | {found} |", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
