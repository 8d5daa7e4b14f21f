"""Named ways to damage or change a trace, for trace_tools.py.

Each takes a trace as json.loads() gives it, may change it in place, and returns it, or its bytes,
or (bytes, ending of the file's name), or None if the trace has nothing to change. The same trace
gives the same bytes every time."""

import functools
import gzip
import json

DEVICE = ("kernel", "gpu_memcpy", "gpu_memset")
RUNTIME = ("cuda_runtime", "cuda_driver")
REMOVED = None  # in the place of a new value
ALL = slice(None)
MUTATIONS = {}


def mutation(function):
    MUTATIONS[function.__name__] = function
    return function


def dump(trace):
    return json.dumps(trace).encode()


def events(trace):
    return trace["traceEvents"]


def keep(trace, wanted):
    """Leaves the events that are wanted; None if these are all of them."""
    kept = [event for event in events(trace) if wanted(event)]
    if len(kept) == len(events(trace)):
        return None
    trace["traceEvents"] = kept
    return trace


def slices(trace, *categories):
    return [e for e in events(trace) if e.get("ph") == "X" and e.get("cat") in categories]


def middle(found):
    """One event of many, which is neither first nor last if there are three."""
    return found[len(found) // 2] if found else None


def set_member(object_, key, value):
    if value is REMOVED:
        object_.pop(key, None)
    else:
        object_[key] = value


def change(trace, found, **members):
    """Sets members of an event, if there is one."""
    if found is None:
        return None
    for key, value in members.items():
        set_member(found, key, value)
    return trace


def change_args(trace, found, key, value=REMOVED):
    """Sets one of args of all these events that have it."""
    found = [e for e in found if isinstance(e.get("args"), dict) and key in e["args"]]
    for event in found:
        set_member(event["args"], key, value)
    return trace if found else None


def is_flow(event, phase):
    return event.get("cat") == "ac2g" and event.get("ph") == phase


# Which member of the middle slice of a category becomes what.
CHANGED = {
    "short_kernel_alone": ("kernel", "dur", 0.25),
    "kernel_of_no_duration": ("kernel", "dur", 0),
    "kernel_without_args": ("kernel", "args", REMOVED),
    "kernel_without_duration": ("kernel", "dur", REMOVED),
    "kernel_without_begin": ("kernel", "ts", REMOVED),
    "kernel_without_thread": ("kernel", "tid", REMOVED),
    "slice_without_phase": ("cpu_op", "ph", REMOVED),
    "phase_is_number": ("cpu_op", "ph", 1),
    "phase_is_unknown": ("cpu_op", "ph", "?"),
    "slice_without_name": ("cpu_op", "name", REMOVED),
    "annotation_without_name": ("user_annotation", "name", REMOVED),
    "kernel_without_name": ("kernel", "name", REMOVED),
    "empty_name_of_operator": ("cpu_op", "name", ""),
    "empty_name_of_kernel": ("kernel", "name", ""),
    "name_is_number": ("cpu_op", "name", 3),
    "name_has_control_character": ("cpu_op", "name", "a\x01b"),
    "slice_without_category": ("cpu_op", "cat", REMOVED),
    "category_is_unknown": ("cpu_op", "cat", "my_own"),
    "slice_without_begin": ("cpu_op", "ts", REMOVED),
    "slice_without_duration": ("cpu_op", "dur", REMOVED),
    "negative_duration": ("cpu_op", "dur", -5),
    "negative_duration_of_kernel": ("kernel", "dur", -5),
    "begin_is_text": ("cpu_op", "ts", "12.5"),
    "duration_is_text": ("cpu_op", "dur", "12.5"),
    "begin_is_huge": ("cpu_op", "ts", 10**25),
    "args_are_list": ("cpu_op", "args", [1]),
    "slice_without_thread": ("cpu_op", "tid", REMOVED),
    "slice_without_process": ("cpu_op", "pid", REMOVED),
    "thread_is_text": ("cpu_op", "tid", "main"),
    "process_is_text": ("cpu_op", "pid", "main"),
    "not_a_number": ("cpu_op", "dur", float("nan")),
}

# An event that the trace gets besides.
ADDED = {
    "extra_event_without_phase": {"name": "note", "pid": 1, "tid": 1, "ts": 1},
    "instant_without_name": {"ph": "i", "cat": "mark", "s": "t", "pid": 1, "tid": 1, "ts": 1},
    "metadata_without_name": {"ph": "M", "pid": 1, "tid": 1, "args": {}},
    "instant_without_begin": {"ph": "i", "cat": "mark", "name": "m", "s": "t", "pid": 1, "tid": 1},
    "instant_with_null_args": {"ph": "i", "cat": "mark", "name": "m", "s": "t", "pid": 1, "tid": 1,
                               "ts": 1, "args": None},
    "metadata_is_unknown": {"ph": "M", "name": "my_own", "pid": 1, "tid": 1, "args": {}},
    "metadata_without_args": {"ph": "M", "name": "process_name", "pid": 1, "tid": 1},
    "metadata_without_process": {"ph": "M", "name": "process_name", "args": {"name": "p"}},
    "counters": {"ph": "C", "name": "memory", "pid": 1, "ts": 1, "args": {"bytes": 1}},
    "empty_event": {},
}

# Which of args becomes what, in events of these categories (none: in all), and in which of them.
ARGUMENTS = {
    "no_correlation_of_kernels": (DEVICE, ALL, "correlation", REMOVED),
    "no_correlation": ((), ALL, "correlation", REMOVED),
    "no_stream": (DEVICE, ALL, "stream", REMOVED),
    "no_stream_anywhere": ((), ALL, "stream", REMOVED),
    "stream_is_zero": (DEVICE, ALL, "stream", 0),
    "stream_is_text": (DEVICE, slice(0, 1), "stream", "seven"),
    "stream_of_one_kernel_missing": (DEVICE, slice(1, 2), "stream", REMOVED),
    "no_device": (DEVICE, ALL, "device", REMOVED),
    "device_is_text": (DEVICE, slice(0, 1), "device", "cuda:0"),
    "no_shapes": (("cpu_op",), ALL, "Input Dims", REMOVED),
    "no_sequence_numbers": (("cpu_op",), ALL, "Sequence number", REMOVED),
    "no_external_ids": ((), ALL, "External id", REMOVED),
}

# The events that the trace keeps.
KEPT = {
    "flows_without_begin": lambda e: not (is_flow(e, "s") and e.get("id", 0) % 2),
    "flows_without_end": lambda e: not (is_flow(e, "f") and e.get("id", 0) % 2),
    "no_flow_ends": lambda e: not is_flow(e, "f"),
    "no_flow_begins": lambda e: not is_flow(e, "s"),
    "no_flows": lambda e: e.get("cat") != "ac2g",
    "no_kernels": lambda e: e.get("cat") != "kernel",
    "nothing_of_a_gpu": lambda e: e.get("cat") not in DEVICE,
    "cpu_only": lambda e: e.get("cat") not in (*DEVICE, *RUNTIME, "ac2g",
                                                  "gpu_user_annotation"),
    "gpu_only": lambda e: e.get("cat") in DEVICE or e.get("ph") == "M",
    "no_steps": lambda e: not str(e.get("name", "")).startswith("ProfilerStep"),
    "no_metadata": lambda e: e.get("ph") != "M",
    "metadata_alone": lambda e: e.get("ph") == "M",
}


def of_table(name, trace):
    """Applies a mutation that is a row of a table."""
    if name in CHANGED:
        category, key, value = CHANGED[name]
        return change(trace, middle(slices(trace, category)), **{key: value})
    if name in ADDED:
        events(trace).append(dict(ADDED[name]))
        return trace
    if name in KEPT:
        return keep(trace, KEPT[name])
    categories, which, key, value = ARGUMENTS[name]
    found = slices(trace, *categories) if categories else events(trace)
    return change_args(trace, found[which], key, value)


for table in (CHANGED, ADDED, ARGUMENTS, KEPT):
    MUTATIONS.update((name, functools.partial(of_table, name)) for name in table)


@mutation
def unchanged(trace):
    return trace


@mutation
def flows_lead_elsewhere(trace):
    found = [e for e in events(trace) if e.get("cat") == "ac2g" and e.get("ph") == "f"]
    for event in found:
        event["tid"] = 12345
    return trace if found else None


@mutation
def one_kernel(trace):
    found = slices(trace, "kernel")
    if len(found) < 2:
        return None
    return keep(trace, lambda e: e.get("cat") not in DEVICE or e is found[0])


@mutation
def copies_alone(trace):
    return keep(trace, lambda e: e.get("cat") != "kernel") if slices(trace, "gpu_memcpy") else None


@mutation
def short_kernels(trace):
    found = slices(trace, "kernel")
    for event in found:
        event["dur"] = 0.4
    return trace if found else None


@mutation
def some_short_kernels(trace):
    found = slices(trace, "kernel")[::3]
    for event in found:
        event["dur"] = 0.4
    return trace if found else None


@mutation
def times_in_nanoseconds(trace):
    found = [e for e in events(trace) if isinstance(e.get("ts"), (int, float))]
    for event in found:
        event["ts"] = event["ts"] + 0.123
        if event.get("dur"):
            event["dur"] = event["dur"] + 0.456
    return trace if found else None


@mutation
def whole_microseconds(trace):
    for event in events(trace):
        for key in ("ts", "dur"):
            if isinstance(event.get(key), float):
                event[key] = int(event[key])
    return trace


@mutation
def pid_is_not_device(trace):
    found = slices(trace, *DEVICE)
    for event in found:
        event["pid"] = 4321
    return trace if found else None


@mutation
def kernels_without_args(trace):
    found = slices(trace, *DEVICE)
    for event in found:
        event.pop("args", None)
    return trace if found else None


@mutation
def driver_launches(trace):
    found = [e for e in slices(trace, "cuda_runtime") if e.get("name") == "cudaLaunchKernel"][::2]
    for event in found:
        event["name"], event["cat"] = "cuLaunchKernel", "cuda_driver"
    return trace if found else None


@mutation
def triton_operator(trace):
    found = middle(slices(trace, "cpu_op"))
    if found is None:
        return None
    found["name"] = "triton_poi_fused_add_0"
    found["args"] = {**(found.get("args") or {}), "stream": 7}
    return trace


@mutation
def one_graph_launch(trace):
    """All kernels are of one launch of a graph."""
    found = [e for e in slices(trace, "cuda_runtime") if e.get("name") == "cudaLaunchKernel"]
    if not found or not isinstance(found[0].get("args"), dict):
        return None
    found[0]["name"] = "cudaGraphLaunch"
    number = found[0]["args"].get("correlation")
    for event in slices(trace, "kernel"):
        event["args"]["correlation"] = number
    return keep(trace, lambda e: e.get("name") != "cudaLaunchKernel")


@mutation
def one_step(trace):
    names = sorted({e["name"] for e in events(trace)
                    if str(e.get("name", "")).startswith("ProfilerStep")})
    return keep(trace, lambda e: e.get("name") not in names[1:]) if len(names) > 1 else None


@mutation
def step_without_number(trace):
    found = [e for e in events(trace) if str(e.get("name", "")).startswith("ProfilerStep")]
    return change(trace, middle(found), name="ProfilerStep")


@mutation
def no_categories(trace):
    for event in events(trace):
        event.pop("cat", None)
    return trace


@mutation
def no_durations(trace):
    for event in events(trace):
        event.pop("dur", None)
    return trace


@mutation
def times_are_absolute(trace):
    for event in events(trace):
        if isinstance(event.get("ts"), (int, float)):
            event["ts"] = event["ts"] + 1.7e15
    return trace


@mutation
def correlation_is_huge(trace):
    found = [e for e in slices(trace, *RUNTIME) if "correlation" in (e.get("args") or {})]
    return change_args(trace, found[:1], "correlation", 2**63)


@mutation
def correlation_is_text(trace):
    found = [e for e in slices(trace, *RUNTIME) if "correlation" in (e.get("args") or {})]
    return change_args(trace, found[:1], "correlation", "first")


@mutation
def correlation_is_null(trace):
    found = [e for e in slices(trace, *RUNTIME) if "correlation" in (e.get("args") or {})]
    if found:
        found[0]["args"]["correlation"] = None
    return trace if found else None


@mutation
def stream_is_null(trace):
    found = [e for e in slices(trace, *DEVICE) if "stream" in (e.get("args") or {})]
    if found:
        found[0]["args"]["stream"] = None
    return trace if found else None


@mutation
def step_number_is_text(trace):
    found = [e for e in events(trace) if str(e.get("name", "")).startswith("ProfilerStep#")]
    return change(trace, middle(found), name="ProfilerStep#last")


@mutation
def flow_without_id(trace):
    return change(trace, middle([e for e in events(trace) if e.get("cat") == "ac2g"]), id=None)


@mutation
def slice_without_args(trace):
    return change(trace, middle([e for e in slices(trace, "cpu_op") if "args" in e]), args=None)


@mutation
def no_args(trace):
    for event in events(trace):
        event.pop("args", None)
    return trace


@mutation
def args_are_null(trace):
    found = middle(slices(trace, "cpu_op"))
    if found is None:
        return None
    found["args"] = None
    return trace


@mutation
def threads_are_text(trace):
    for event in slices(trace, "cpu_op", "user_annotation", *RUNTIME):
        event["tid"] = str(event.get("tid"))
    return trace


@mutation
def one_process(trace):
    """The GPU has the number of the process."""
    for event in events(trace):
        if "pid" in event:
            event["pid"] = 0
    return trace


@mutation
def begins_and_ends(trace):
    """A slice as a pair of events."""
    found = middle(slices(trace, "cpu_op"))
    if found is None:
        return None
    end = {**found, "ph": "E", "ts": found["ts"] + found.pop("dur")}
    end.pop("dur", None)
    found["ph"] = "B"
    events(trace).append(end)
    return trace


@mutation
def crossing_slices(trace):
    found = middle([e for e in slices(trace, "cpu_op") if e.get("dur", 0) > 2])
    if found is None:
        return None
    events(trace).append({**found, "name": "crossing", "ts": found["ts"] + found["dur"] / 2})
    return trace


@mutation
def not_in_order(trace):
    events(trace).sort(key=lambda e: str(e.get("name")))
    return trace


@mutation
def no_events_member(trace):
    del trace["traceEvents"]
    return trace


@mutation
def events_are_object(trace):
    trace["traceEvents"] = {"a": 1}
    return trace


@mutation
def no_events(trace):
    trace["traceEvents"] = []
    return trace


@mutation
def null_event(trace):
    events(trace).append(None)
    return trace


@mutation
def bare_list(trace):
    return dump(events(trace))


@mutation
def no_rank(trace):
    return trace if trace.pop("distributedInfo", None) else None


@mutation
def rank_is_three(trace):
    trace["distributedInfo"] = {"backend": "nccl", "rank": 3, "world_size": 8}
    return trace


@mutation
def rank_without_space(trace):
    trace["distributedInfo"] = {"rank": 0}
    return json.dumps(trace, separators=(",", ":")).encode()


@mutation
def no_device_properties(trace):
    return trace if trace.pop("deviceProperties", None) else None


@mutation
def no_base_time(trace):
    return trace if trace.pop("baseTimeNanoseconds", None) else None


@mutation
def events_alone(trace):
    return {"traceEvents": events(trace)}


@mutation
def truncated(trace):
    data = dump(trace)
    return data[: len(data) * 2 // 3]


@mutation
def trailing_comma(trace):
    return dump(trace)[:-1] + b",}"


@mutation
def infinite_argument(trace):
    found = middle([e for e in slices(trace, "cpu_op") if isinstance(e.get("args"), dict)])
    if found is None:
        return None
    found["args"]["loss"] = float("inf")
    return trace


@mutation
def not_utf8(trace):
    change(trace, middle(slices(trace, "cpu_op")), name="made of bytes")
    return dump(trace).replace(b"made of bytes", b"made of \xff bytes")


@mutation
def byte_order_mark(trace):
    return b"\xef\xbb\xbf" + dump(trace)


@mutation
def control_character_unescaped(trace):
    change(trace, middle(slices(trace, "cpu_op")), name="two lines")
    return dump(trace).replace(b"two lines", b"two\nlines")


@mutation
def key_twice(trace):
    change(trace, middle(slices(trace, "cpu_op")), name="named twice")
    return dump(trace).replace(b'"name": "named twice"', b'"name": "once", "name": "twice"')


@mutation
def empty_file(_):
    return b""


@mutation
def named_trace(trace):
    return dump(trace), ".trace"


@mutation
def named_txt(trace):
    return dump(trace), ".txt"


@mutation
def named_in_capitals(trace):
    return dump(trace), ".JSON"


@mutation
def compressed(trace):
    return gzip.compress(dump(trace), mtime=0), ".json.gz"


@mutation
def compressed_as_gz(trace):
    return gzip.compress(dump(trace), mtime=0), ".gz"


@mutation
def compressed_without_saying(trace):
    return gzip.compress(dump(trace), mtime=0), ".json"


@mutation
def said_to_be_compressed(trace):
    return dump(trace), ".json.gz"


@mutation
def compressed_and_truncated(trace):
    data = gzip.compress(dump(trace), mtime=0)
    return data[: len(data) // 2], ".json.gz"
