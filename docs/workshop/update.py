#!/usr/bin/env python3
"""Keeps the outputs that the workshop and other pages show what the commands print.

    update.py [--bin build/bin] [PAGE...]           run the commands, rewrite the outputs
    update.py [--bin build/bin] --changed [PAGE...] rewrite only outputs that have another shape
    update.py [--bin build/bin] --check [PAGE...]   write nothing, fail if an output has another shape

The pages are Markdown. A comment before a fenced block, which no reader of the page sees, says what
the block is:

    <!-- run NAME -->            before a block of commands: they are run, and what they print is NAME
    <!-- show NAME CLAUSES -->   before a block of text: a part of what NAME printed; NAME+NAME is
                                 what both printed, one after the other
    <!-- keep FILE AS COPY -->   alone: a file that the commands wrote is kept beside the page

Clauses choose lines of the output, in the order they are given:

    from /A/ [to /B/]   the first line that matches A and those after it, up to the first that matches
                        B, or without B to an empty line
    only /R/            those of them that match R
    first N             the first N of them; " ..." stands for the rest
    exact               numbers are part of the shape: they depend on no machine
    measured            which lines there are, and in what order, was measured: the shape is the
                        first line, and the heading if the lines are a table

The shape of an output is its text without numbers, units and alignment. A check makes runs shorter
where that does not change the shape, and takes one processor, so that threads wait for nobody where
other tests run beside it. All commands of all pages run in one new directory, in the
order of the pages, with the root of the sources as $RIDGE_SOURCE, against ceilings of the machine
measured there; for a rewrite those that ridge roofline has kept for the user count too. A page may
use what one before it left (ceilings, a store): to check one alone can fail where all of them pass.
"""

import argparse
import difflib
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
PAGES = ["../../README.md", "README.md", "exercise-1.md", "exercise-2.md", "exercise-3.md",
         "version-2.md", "version-3.md", "version-4.md", "debugging.md",
         "inference-1.md", "inference-2.md", "inference-3.md", "inference-4.md", "inference-5.md",
         "inference-6.md", "inference-7.md",
         "../use/train.md", "../use/networks.md", "../use/profile.md", "../use/memory.md",
         "../use/compare.md", "../use/ranks.md", "../use/runs.md", "../use/gate.md",
         "../use/study.md", "../use/formats.md", "../use/traces.md", "../internals/correctness.md"]

DIRECTIVE = re.compile(r"<!-- (run|show|keep) (.*?) -->")
CLAUSE = re.compile(r"\s*(?:(from|to|only) /((?:[^/\\]|\\.)*)/|(first) (\d+)|(exact|measured))")
UNITS = r"(?:ns|µs|ms|s|seconds|[kMGT]i?B|B|[kMGT]|GB/s|[MGT]?FLOP/s|[MGT]?FLOPS|x|%)"
NUMBER = re.compile(r"[+-]?\d[\d,]*(?:\.\d+)?(?:e[+-]?\d+)?(?:\s?" + UNITS + r")?(?![\w])")


# What a check puts in place of parts of a command, to be quick. Steps 5 to 10 are profiled, and two
# after the first three are not. Of an image of 64 x 64 something is left at the end of any network.
QUICKER = [(re.compile(r"^( *)micro_benchmarking_pytorch\b", re.MULTILINE),
            r"\1micro_benchmarking_pytorch --image-size 64"),
           (re.compile(r"^( *rocprof.* micro_benchmarking_pytorch(?:\.py)?)(?= )", re.MULTILINE),
            r"\1 --image-size 64"),
           (re.compile(r"--batch-size 32\b"), "--batch-size 4"),
           (re.compile(r"--network resnet50 (.* --compare-modes)"), r"--network resnet18 \1"),
           (re.compile(r"--max-batch-for 500MB\b"), "--max-batch-for 250MB"),
           (re.compile(r"^launch_performance_study.sh small --num-steps \d+$", re.MULTILINE),
            "launch_performance_study.sh small --num-steps 2"),
           (re.compile(r"--num-steps \d+ (--rounds \d+ --(?:store|name))"), r"--num-steps 2 \1"),
           (re.compile(r"^(ridge study tiny) (--vary batch-size)", re.MULTILINE),
            r"\1 --seq-len 64 \2"),
           (re.compile(r"--num-steps \d+ (\\\n +--vary ranks)"), r"--num-steps 2 \1"),
           (re.compile(r"^(ridge gate --self-test --rounds) \d+", re.MULTILINE), r"\1 1"),
           (re.compile(r"^(ridge ablate .*)--rounds 6 --num-steps 12\b", re.MULTILINE),
            r"\1--rounds 3 --num-steps 4"),
           (re.compile(r"--input1-dim 16-1024-1024\b"), "--input1-dim 16-64-1024"),
           (re.compile(r"--num-steps (1[2-9]|[2-9]\d)\b"), "--num-steps 11"),
           (re.compile(r"^launch_performance_study.sh tiny$", re.MULTILINE),
            "launch_performance_study.sh tiny --num-steps 11"),
           (re.compile(r"^(ridge gate .*--budget) \d+\b", re.MULTILINE), r"\1 8"),
           (re.compile(r"^ridge roofline( --seconds 2)?\b(?= *(>|$))", re.MULTILINE),
            "ridge roofline --seconds 1"),
           (re.compile(r"^(ridge bench --network resnet50 --batch-size 4)\b", re.MULTILINE),
            r"\1 --image-size 96"),
           (re.compile(r"--num-steps 10 (--profile-memory)"), r"--num-steps 3 \1"),
           (re.compile(r"^(ridge exercise debug --stage [24] --fix) --num-steps 8\b", re.MULTILINE),
            r"\1 --num-steps 4"),
           (re.compile(r"^(ridge exercise debug)\b", re.MULTILINE), r"\1 --seq-len 32"),
           (re.compile(r"^(ridge gate --self-test .*--budget) \d+", re.MULTILINE), r"\1 3"),
           (re.compile(r"^(ridge study tiny small|launch_performance_study.sh small)\b",
                       re.MULTILINE), r"\1 --batch-size 2")]


class PageError(Exception):
    pass


def parse_clauses(text):
    clauses, at = [], 0
    while text[at:].strip():
        match = CLAUSE.match(text, at)
        if not match:
            raise PageError(f"cannot read the clause '{text[at:].strip()}'")
        word = match[1] or match[3] or match[5]
        clauses.append((word, match[2] if match[1] else match[4]))
        at = match.end()
    return clauses


def section(lines, begin, end):
    start = next((i for i, line in enumerate(lines) if re.search(begin, line)), None)
    if start is None:
        raise PageError(f"no line of the output matches /{begin}/")
    for i in range(start + 1, len(lines)):
        if end is None and not lines[i].strip():
            return lines[start:i]
        if end is not None and re.search(end, lines[i]):
            return lines[start : i + 1]
    if end is not None:
        raise PageError(f"no line of the output after /{begin}/ matches /{end}/")
    return lines[start:]


def select(output, clauses):
    lines = output.rstrip("\n").split("\n")
    for i, (word, value) in enumerate(clauses):
        if word == "from":
            end = clauses[i + 1][1] if i + 1 < len(clauses) and clauses[i + 1][0] == "to" else None
            lines = section(lines, value, end)
        elif word == "only":
            lines = [line for line in lines if re.search(value, line)]
            if not lines:
                raise PageError(f"no line of the output matches /{value}/")
        elif word == "first" and len(lines) > int(value):
            lines = lines[: int(value)] + [" ..."]
    return [line.rstrip() for line in lines]


def shape(lines, clauses):
    words = {word for word, _ in clauses}
    if "measured" in words:
        rule = next((i for i, line in enumerate(lines) if set(line) <= set("-|") and line), 0)
        lines = lines[:1] + (lines[rule - 1 : rule] if rule > 1 else [])
    # A directory is called after the time at which it was made.
    lines = [re.sub(r"\d{8}_\d{6}\b", "#", line) for line in lines]
    if "exact" not in words:
        lines = [NUMBER.sub("#", line) for line in lines]
    lines = [re.sub(r"[-=]{3,}", "---", line) for line in lines]
    # Fewer steps give no interval.
    lines = [re.sub(r"(Overhead of recording): .*", r"\1", line) for line in lines]
    # Another processor has another name.
    lines = [re.sub(r"\b(Device|CPU): .*, (\S+) threads?", r"\1: CPU, \2 threads", line) for line in lines]
    return [re.sub(r"\s+", " ", line).strip() for line in lines]


class Workplace:
    """A directory in which the commands of the pages run."""

    def __init__(self, directory, programs, cache, quicker):
        self.directory, self.outputs, self.quicker = Path(directory), {}, quicker
        self.environment = dict(
            os.environ,
            PATH=f"{programs}{os.pathsep}{os.environ['PATH']}",
            XDG_CACHE_HOME=str(cache),
            RIDGE_SOURCE=str(ROOT),
            COLUMNS="100",
            LC_ALL="C.UTF-8",
        )
        self.environment.pop("RIDGE_STORE", None)  # these are no runs of the user's

    def run(self, name, commands):
        if name in self.outputs:
            raise PageError(f"two commands are called {name}")
        print(f"  {name}: ", end="", flush=True)
        began = time.monotonic()
        for pattern, replacement in self.quicker:
            commands = pattern.sub(replacement, commands)
        result = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", commands],
            cwd=self.directory,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        print(f"{time.monotonic() - began:.1f} s", flush=True)
        if result.returncode != 0:
            raise PageError(f"{name} ended with {result.returncode}:\n{commands}{result.stdout}")
        self.outputs[name] = self.anonymous(result.stdout)

    def anonymous(self, output):
        """Where the scratch directory is and what the machine is called tell a reader nothing."""
        output = output.replace(self.environment["XDG_CACHE_HOME"], "~/.cache")
        host = re.escape(socket.gethostname())
        return re.sub(rf"(?<=[/.]){host}(?=[_.]\d)", "host", output)


class Page:
    """A page as it is, as it would be with what the commands print now, and where shapes differ."""

    def __init__(self, path, workplace, keep_files, only_changed):
        self.path, self.workplace, self.keep_files = path, workplace, keep_files
        self.only_changed = only_changed
        self.old = path.read_text(encoding="utf-8").split("\n")
        self.new, self.changes = [], []

    def refresh(self):
        at = 0
        while at < len(self.old):
            line = self.old[at]
            self.new.append(line)
            at += 1
            directive = DIRECTIVE.fullmatch(line.strip())
            if not directive:
                continue
            try:
                at = self.obey(directive[1], directive[2], at)
            except PageError as error:
                raise PageError(f"{self.path.name}:{at}: {error}") from None

    def obey(self, what, rest, at):
        if what == "keep":
            self.keep(*rest.split(" as "))
            return at
        if not self.old[at].startswith("```"):
            raise PageError("a fenced block has to follow")
        end = next(i for i in range(at + 1, len(self.old)) if self.old[i].startswith("```"))
        block = self.old[at + 1 : end]
        name, _, clauses = rest.partition(" ")
        if what == "run":
            self.workplace.run(name, "\n".join(block) + "\n")
        else:
            block = self.show(name, parse_clauses(clauses), block)
        self.new += [self.old[at], *block, self.old[end]]
        return end + 1

    def show(self, name, clauses, block):
        outputs = [self.workplace.outputs.get(part) for part in name.split("+")]
        if None in outputs:
            raise PageError(f"nothing called {name} has run before")
        now = select("".join(outputs), clauses)
        before, after = shape(block, clauses), shape(now, clauses)
        if before == after and self.only_changed:
            return block
        if before != after:
            label = f"{self.path.name}, {name}"
            self.changes += difflib.unified_diff(before, after, label, label + " now", lineterm="")
        return now

    def keep(self, source, copy):
        file = self.workplace.directory / source
        if not file.is_file() or file.stat().st_size == 0:
            raise PageError(f"the commands did not write {source}")
        if self.keep_files:
            shutil.copyfile(file, self.path.parent / copy)
        elif not (self.path.parent / copy).is_file():
            raise PageError(f"{copy} is missing: run update.py")


def users_machine_file():
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return Path(cache) / "ridge" / "machine.json"


def page_named(path):
    """A page as it was named, from here or as PAGES names it."""
    return path if path.exists() else HERE / path


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--bin", type=Path, default=ROOT / "build" / "bin", help="where ridge is")
    parser.add_argument("--changed", action="store_true", help="rewrite outputs of another shape")
    parser.add_argument("--check", action="store_true", help="write nothing, compare shapes")
    parser.add_argument("pages", nargs="*", type=Path, default=[HERE / page for page in PAGES])
    arguments = parser.parse_args()
    programs = arguments.bin.resolve()
    if not (programs / "ridge").exists():
        sys.exit(f"update.py: there is no ridge in {programs}: build it, or give --bin")

    busy = os.getloadavg()[0]
    if busy > 1 and not arguments.check:
        print(f"update.py: the load is {busy:.1f}: these will be figures of a busy machine")

    if arguments.check:
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    with tempfile.TemporaryDirectory() as directory:
        work, cache = Path(directory) / "work", Path(directory) / "cache"
        work.mkdir()
        (cache / "ridge").mkdir(parents=True)
        if not arguments.check and users_machine_file().exists():
            shutil.copyfile(users_machine_file(), cache / "ridge" / "machine.json")
        workplace = Workplace(work, programs, cache, QUICKER if arguments.check else [])
        changes = []
        try:
            for path in map(page_named, arguments.pages):
                print(path.name, flush=True)
                page = Page(path, workplace, not arguments.check, arguments.changed)
                page.refresh()
                changes += page.changes
                if not arguments.check:
                    path.write_text("\n".join(page.new), encoding="utf-8")
        except PageError as error:
            sys.exit(f"update.py: {error}")
    if arguments.check and changes:
        print("\n".join(changes))
        sys.exit("update.py: outputs have another shape: run docs/workshop/update.py, read the pages")


if __name__ == "__main__":
    main()
