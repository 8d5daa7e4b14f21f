"""What a GPU did, from a trace in Chrome's format as PyTorch's profiler and Ridge's write it."""

import re

# Calls that put work on the GPU's queue: a graph's replay is one, whatever is in it.
ENQUEUES = re.compile(r"cu(da)?(LaunchKernel|LaunchCooperativeKernel|GraphLaunch|Memcpy|Memset)")


def covered(intervals):
    """Length of the union of (begin, end)."""
    total, reached = 0.0, float("-inf")
    for begin, end in sorted(intervals):
        total += max(0.0, end - max(begin, reached))
        reached = max(reached, end)
    return total


def device_activity(events, steps):
    """Of `steps` steps, a step's mean: kernels, copies and fills on the GPU, calls that enqueued
    them, and seconds in which at least one kernel ran. None if no kernel did."""
    slices = [e for e in events if e.get("ph") == "X"]
    kernels = [e for e in slices if e.get("cat") == "kernel"]
    if not kernels:
        return None
    copies = sum(e.get("cat") in ("gpu_memcpy", "gpu_memset") for e in slices)
    launches = sum(e.get("cat") in ("cuda_runtime", "cuda_driver")
                   and ENQUEUES.match(e["name"]) is not None for e in slices)
    busy = covered((float(e["ts"]), float(e["ts"]) + float(e["dur"])) for e in kernels) * 1e-6
    return {"kernels": len(kernels) / steps, "copies": copies / steps,
            "launches": launches / steps, "busy": busy / steps}
