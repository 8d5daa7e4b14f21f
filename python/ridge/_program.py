"""Runs the program that the package has.

It runs in a process of its own: it starts processes of itself for --ranks, kernels that oneDNN generates do
not stand signal handlers of others on their stack, and memory that the system refuses it costs no notebook.
"""

import json
import os
import sys
import tempfile
from pathlib import Path

from ridge import _ridge
from ridge._values import with_arrays

PROGRAM = Path(__file__).with_name("bin") / "ridge"
USAGE_ERROR = 2


def main():
    """The command `ridge`."""
    os.execv(PROGRAM, [Path(sys.argv[0]).name, *sys.argv[1:]])


def words_of(flags):
    """Flags as the program takes them, from keyword arguments."""
    words = []
    for name, value in flags.items():
        flag = "--" + name.replace("_", "-")
        if value is True:
            words.append(flag)
        elif value is False:
            words.append(f"{flag}=false")
        elif isinstance(value, (list, tuple)):
            words.append(f"{flag}={','.join(map(str, value))}")
        elif value is not None:
            words.append(f"{flag}={value}")
    return words


def run_command(command, flags, arguments=(), *, writes_json=False, show=None):
    """The JSON of a command. `writes_json`: it writes it to --export-json, else it prints it."""
    with tempfile.TemporaryDirectory(prefix="ridge-") as directory:
        record = Path(flags.get("export_json") or Path(directory) / "record.json")
        if writes_json:
            flags = {**flags, "export_json": record}
        words = [command, *words_of(flags), *map(str, arguments)]
        output = run(words, Path(directory), show)
        text = record.read_text() if writes_json and record.exists() else output
        try:
            return with_arrays(json.loads(text))
        except json.JSONDecodeError:
            raise RuntimeError(f"ridge {command} gave no results: {last_line(output)}") from None


def run(words, directory, show):
    """Runs the program and returns its output. ValueError or RuntimeError, with its line, if it fails."""
    printed, complaints = directory / "output", directory / "errors"
    child = _ridge.Child([str(PROGRAM), *words], str(printed), str(complaints))
    with open(printed, encoding="utf-8", errors="replace") as lines:
        exit_code = follow(child, lines, show)
    if exit_code != 0:
        line = last_line(complaints.read_text(encoding="utf-8", errors="replace")).removeprefix("ridge: ")
        error = ValueError if exit_code == USAGE_ERROR else RuntimeError
        raise error(line or f"ridge {words[0]} ended with exit code {exit_code}")
    return printed.read_text(encoding="utf-8", errors="replace")


def follow(child, lines, show):
    """The exit code of a program, whose lines are shown as they come."""
    shown = ""

    def show_new():
        nonlocal shown
        if show is None:
            return
        *whole, shown = (shown + lines.read()).split("\n")
        for line in whole:
            show(line)

    try:
        while (exit_code := child.wait(0.1)) is None:
            show_new()
    except KeyboardInterrupt:
        child.interrupt()
        while child.wait(0.1) is None:  # a second Ctrl-C leaves at once, which ends the program
            show_new()
        raise
    show_new()
    return exit_code


def last_line(text):
    return text.rstrip("\n").rpartition("\n")[2]
