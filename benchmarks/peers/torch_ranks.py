"""What processes of PyTorch need that answer on their output and, where a job has "ranks" above 1,
train as one: its "rank", and the file "meeting", not there yet, by which they find each other."""

import contextlib
import os


def own_output():
    """The standard output, for answers alone: what libraries print, NCCL not in Python, goes to the
    errors."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    return answers


def join(job):
    """Makes this process the job's rank, on a GPU of its own."""
    if job.get("ranks", 1) == 1:
        return
    import torch

    torch.cuda.set_device(job["rank"])
    torch.distributed.init_process_group(
        "nccl", init_method=f"file://{job['meeting']}", rank=job["rank"],
        world_size=job["ranks"], device_id=torch.device("cuda", job["rank"]))


def shared(model, job):
    """The model, whose gradients are then the means over all ranks."""
    if job.get("ranks", 1) == 1:
        return model
    from torch.nn.parallel import DistributedDataParallel

    return DistributedDataParallel(model, device_ids=[job["rank"]], gradient_as_bucket_view=True)


def leave(job):
    if job.get("ranks", 1) > 1:
        import torch

        with contextlib.suppress(RuntimeError):
            torch.distributed.destroy_process_group()
