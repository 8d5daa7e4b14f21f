"""Ridge: trains a small LLaMA, runs vision networks, reads traces, shows where time goes.

ridge.trace reads traces in this process. train, bench, compare and plan run the program that the package
has, which `ridge --help` describes: their keyword arguments are its flags, by their names with underscores.

    batch_size=8       --batch-size=8
    compile=True       --compile          (False: --compile=false; None: not given)
    batch_sizes=[1, 8] --batch-sizes=1,8

A command gives its JSON as dicts, in which lists of numbers are NumPy arrays. What the program calls a usage
error is a ValueError with its line, any other failure a RuntimeError. KeyboardInterrupt ends the program as
Ctrl-C would: a training writes what it has.

`show` is called with each line that the program prints, as it prints it: ridge.train(show=print).
"""

from ridge import trace
from ridge._program import run_command as _run_command
from ridge._ridge import commit
from ridge._ridge import version as __version__

__all__ = ["__version__", "bench", "commit", "compare", "plan", "trace", "train"]


def train(*, show=None, **flags):
    """`ridge train`: trains a model. Gives the record of the run, as performance_summary.json has it.

    run["performance_summary"] has the losses and the seconds of each step as arrays. Files go where the
    program puts them: output_dir="output".
    """
    return _run_command("train", flags, writes_json=True, show=show)


def bench(*, show=None, **flags):
    """`ridge bench`: times a network. Gives what --export-json writes, of one run or of a table."""
    return _run_command("bench", flags, writes_json=True, show=show)


def compare(*runs, show=None, **flags):
    """`ridge compare`: puts versions, compile modes, runs or profiles side by side."""
    return _run_command("compare", {"json": True, **flags}, runs, show=show)


def plan(*, show=None, **flags):
    """`ridge plan`: predicts the memory and time of a run, without running it."""
    return _run_command("plan", {"json": True, **flags}, show=show)
