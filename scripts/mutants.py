#!/usr/bin/env python3
"""Puts the faults of tests/mutants.tsv into a copy of Ridge and says which the tests see.

A build for each fault would take days. So all are compiled at once into one program, each beside
what it replaces, and the environment variable RIDGE_MUTANT, a number of the table, chooses one:

    (ridge_mutant(17) ? (fault) : (original))

A test that never comes by a fault cannot see it. So the suite is run once without any, each test in
a process of its own that writes down which places it came by and how long it took; a fault is then
put to the tests that come by its place, the quickest first.

    scripts/mutants.py --work /tmp/mutants --check      # does every fault compile?
    scripts/mutants.py --work /tmp/mutants --jobs 4     # build once, test all
    scripts/mutants.py --work /tmp/mutants --continue   # go on after an interruption
    scripts/mutants.py --work /tmp/mutants --table tests/reviewed_mutants.tsv

The faults of tests/mutants.tsv were drawn before anyone looked at the tests. Those of
tests/reviewed_mutants.tsv are the ones that a review of an earlier state found no test for.

Exit code 0 if all was run, whatever survived; 1 if something failed; 2 for usage.
"""

import argparse
import concurrent.futures
import dataclasses
import hashlib
import json
import os
import pathlib
import re
import shlex
import shutil
import signal
import subprocess
import sys
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
TABLE = ROOT / "tests" / "mutants.tsv"
COLUMNS = ["number", "kind", "file", "form", "original", "mutant", "what"]
KINDS = ["results", "effects", "memory", "output"]
OUTCOME_COLUMNS = ["number", "outcome", "test", "seconds"]

# CTest's tests that write into the build folder, which all mutants share.
WRITES_TO_BUILD = {"package", "configure_without_program"}

# The programs of GoogleTest that a build for the CPU has.
GOOGLE_TESTS = ("ridge_tests", "ridge_library_tests", "ridge_kernel_tests")

HEADER = """#pragma once

#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>

// The number of the fault that this process has, 0 if none.
inline int ridge_chosen_mutant() {
  static const int chosen = [] {
    const char* const text = std::getenv("RIDGE_MUTANT");
    return text ? std::atoi(text) : 0;
  }();
  return chosen;
}

// Writes down that this process, or one that it started, comes by the place of a fault.
inline void ridge_note_mutant(int number) {
  static const char* const file = std::getenv("RIDGE_MUTANTS_REACHED");
  static std::atomic<bool> noted[1000];
  if (file == nullptr || noted[number].exchange(true)) return;
  const int descriptor = ::open(file, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  ::dprintf(descriptor, "%d\\n", number);
  ::close(descriptor);
}

inline bool ridge_mutant(int number) {
  ridge_note_mutant(number);
  return ridge_chosen_mutant() == number;
}
"""


class Failure(Exception):
    """Something that went wrong; exit code 1."""


class UsageFault(Exception):
    """Something that was asked for wrongly; exit code 2."""


@dataclasses.dataclass(frozen=True)
class Mutant:
    number: int
    kind: str
    file: str
    form: str
    original: str
    mutant: str
    what: str

    def wrapped(self):
        choice = f"ridge_mutant({self.number})"
        if self.form == "expression":
            return f"({choice} ? ({self.mutant}) : ({self.original}))"
        # In braces of its own, so that an else behind it does not become its own.
        return f"{{ if ({choice}) {{ {self.mutant} }} else {{ {self.original} }} }}"


@dataclasses.dataclass(frozen=True)
class Outcome:
    number: int
    outcome: str  # survived, killed or timeout
    test: str
    seconds: float

    def line(self):
        return f"{self.number}\t{self.outcome}\t{self.test}\t{self.seconds:.1f}\n"


# The table of mutants


def parsed(table, line, cells):
    """The mutant of one line of a table."""
    place = f"{table.name}:{line}"
    if len(cells) != len(COLUMNS):
        raise Failure(f"{place}: {len(cells)} columns in place of {len(COLUMNS)}")
    row = dict(zip(COLUMNS, cells))
    if not row["number"].isdigit() or row["number"] == "0":
        raise Failure(f"{place}: '{row['number']}' is no number of a mutant")
    if row["kind"] not in KINDS:
        raise Failure(f"{place}: '{row['kind']}' is none of {', '.join(KINDS)}")
    if row["form"] not in ("expression", "statement"):
        raise Failure(f"{place}: '{row['form']}' is neither expression nor statement")
    if not row["original"] or not row["mutant"] or row["original"] == row["mutant"]:
        raise Failure(f"{place}: original and mutant must differ, and neither be empty")
    return Mutant(int(row.pop("number")), **row)


def read_table(table):
    try:
        lines = table.read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise Failure(f"cannot read {table}: {error.strerror}") from error
    if not lines or lines[0].split("\t") != COLUMNS:
        raise Failure(f"{table.name}:1: the header is not {' '.join(COLUMNS)}")
    mutants = [parsed(table, n, line.split("\t")) for n, line in enumerate(lines[1:], 2)]
    seen = set()
    for mutant in mutants:
        if mutant.number in seen:
            raise Failure(f"{table.name}: number {mutant.number} is there twice")
        seen.add(mutant.number)
    return mutants


def chosen(mutants, only):
    if not only:
        return mutants
    numbers = set()
    for word in only.split(","):
        if not word.strip().isdigit():
            raise UsageFault(f"--only has '{word}': give numbers, such as 3,17,40")
        numbers.add(int(word))
    missing = numbers - {m.number for m in mutants}
    if missing:
        raise UsageFault(f"--only has {min(missing)}, which is no number of the table")
    return [m for m in mutants if m.number in numbers]


# The copy of the tree


def listed_files():
    """What git tracks, and what it neither tracks nor ignores."""
    command = ["git", "-C", str(ROOT), "ls-files", "-z", "--cached", "--others",
               "--exclude-standard"]
    done = subprocess.run(command, capture_output=True, check=False)
    if done.returncode != 0:
        raise Failure(f"git ls-files fails in {ROOT}: {done.stderr.decode().strip()}")
    names = {name for name in done.stdout.decode().split("\0") if name}
    return sorted(name for name in names if os.path.lexists(ROOT / name))


def digest_of(table):
    return hashlib.sha256(table.read_bytes()).hexdigest() + "\n"


def copy_tree(names, tree):
    for name in names:
        target = tree / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, target, follow_symlinks=False)


def by_file(mutants):
    files = {}
    for mutant in mutants:
        files.setdefault(mutant.file, []).append(mutant)
    return files


def rewritten(text, mutants, header):
    """The text of one file with the choices of its mutants in it."""
    places = []
    for m in mutants:
        count = text.count(m.original)
        if count != 1:
            raise Failure(f"mutant {m.number}: {m.file} has '{m.original}' {count} times, not once")
        begin = text.index(m.original)
        places.append((begin, begin + len(m.original), m))
    places.sort(key=lambda place: place[0])
    for before, after in zip(places, places[1:]):
        if after[0] < before[1]:
            raise Failure(f"mutants {before[2].number} and {after[2].number}: their originals in "
                          f"{after[2].file} overlap")
    for begin, end, m in reversed(places):
        text = text[:begin] + m.wrapped() + text[end:]
    return f'#include "{header}"\n{text}'


class MutatedTree:
    """The copy with all faults in it; without them again after restore()."""

    def __init__(self, work, names, mutants):
        self.tree = work / "tree"
        self.header = work / "ridge_mutant.h"
        self.originals = {}
        copy_tree(names, self.tree)
        # Beside the tree and not in it: tests of the house read every file of the tree.
        self.header.write_text(HEADER, encoding="utf-8")
        for file, of_file in by_file(mutants).items():
            self.rewrite(file, of_file)

    def rewrite(self, file, mutants):
        path = self.tree / file
        if not path.is_file():
            raise Failure(f"mutant {mutants[0].number}: there is no file {file}")
        text = path.read_text(encoding="utf-8")
        self.originals[file] = (text, path.stat())
        path.write_text(rewritten(text, mutants, self.header), encoding="utf-8")

    def restore(self):
        """Gives the sources back their text, for tests that read it, and their times, so that
        nothing is compiled again."""
        for file, (text, status) in self.originals.items():
            path = self.tree / file
            path.write_text(text, encoding="utf-8")
            os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


# --check


def flags_from_build():
    """By file: the flags that decide what compiles, from a build folder if there is one."""
    path = ROOT / "build-asan" / "compile_commands.json"
    try:
        entries = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return {os.path.relpath(entry["file"], ROOT): kept_flags(shlex.split(entry["command"]))
            for entry in entries}


def kept_flags(words):
    kept = []
    for word, value in zip(words, words[1:] + [""]):
        if word == "-isystem":
            kept += [word, value]
        elif word.startswith(("-I", "-D", "-march=", "-fopenmp", "-isystem")):
            kept.append(word)
    return kept


def check_compiles(mutated, mutants):
    flags = flags_from_build()
    own = f"-I{mutated.tree}"
    some = flags.get("ridge/plan/arena.cpp", [])
    faults = 0
    for file in by_file(mutants):
        words = ["g++", "-std=c++20", "-fsyntax-only", "-w", own]
        words += [word for word in flags.get(file, some) if word != f"-I{ROOT}"]
        words += ["-x", "c++", str(mutated.tree / file)]
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            faults += 1
            errors = [line for line in done.stderr.splitlines() if "error:" in line]
            print(f"{file}: {errors[0] if errors else done.stderr.strip()}", flush=True)
        else:
            print(f"{file}: compiles", flush=True)
    if faults:
        raise Failure(f"{faults} of {len(by_file(mutants))} files do not compile")
    print(f"All {len(mutants)} mutants are where they should be, and compile.")


# The build


def run_logged(command, folder, log):
    with open(log, "ab") as out:
        out.write((" ".join(command) + "\n").encode())
        out.flush()
        try:
            code = subprocess.run(command, cwd=folder, stdout=out, stderr=out, check=False)
        except OSError as error:
            raise Failure(f"cannot run {command[0]}: {error.strerror}") from error
    if code.returncode != 0:
        raise Failure(f"{' '.join(command[:3])} fails: see {log}")


def build(work, names, mutants, build_jobs, digest):
    """Copies, compiles and restores; the last file written says that all of it was done."""
    log = work / "build.log"
    log.unlink(missing_ok=True)
    mutated = MutatedTree(work, names, mutants)
    print(f"Building once, in {mutated.tree / 'build-cpu'}...", flush=True)
    run_logged(["cmake", "--preset", "cpu"], mutated.tree, log)
    run_logged(["cmake", "--build", "build-cpu", "--parallel", str(build_jobs)], mutated.tree, log)
    mutated.restore()
    (work / "built").write_text(digest, encoding="utf-8")


# Tests


@dataclasses.dataclass
class Test:
    """A process that fails if a fault is seen."""

    name: str
    command: list
    folder: str
    environment: dict = dataclasses.field(default_factory=dict)
    skip_code: int | None = None

    def passes(self, code):
        return code in (0, self.skip_code)


def google_names(program):
    """The names of the tests of one program of GoogleTest."""
    done = subprocess.run([program, "--gtest_list_tests"], capture_output=True, text=True,
                          check=False)
    if done.returncode != 0:
        raise Failure(f"{program} cannot list its tests: {done.stderr.strip()}")
    names, suite = [], ""
    for line in done.stdout.splitlines():
        word = line.split("  #")[0].rstrip()
        if line.startswith("  "):
            names.append(suite + word.strip())
        elif word.endswith("."):
            suite = word
    return names


def google_test(build_folder, program, names, filter_file):
    """The process that runs some tests of one program, which are too many for a command line."""
    filter_file.write_text("--gtest_filter=" + ":".join(names) + "\n", encoding="utf-8")
    return Test(program, [str(build_folder / "bin" / program), "--gtest_fail_fast",
                          f"--gtest_flagfile={filter_file}"], str(build_folder / "tests"))


def other_tests(build_folder):
    """CTest's tests but those of GoogleTest, which are run without it, many in one process."""
    done = subprocess.run(["ctest", "--show-only=json-v1"], cwd=build_folder, capture_output=True,
                          text=True, check=False)
    if done.returncode != 0:
        raise Failure(f"ctest cannot list its tests: {done.stderr.strip()}")
    found = []
    for test in json.loads(done.stdout)["tests"]:
        command = test.get("command", [])
        if not command or os.path.basename(command[0]) in GOOGLE_TESTS:
            continue
        values = {p["name"]: p["value"] for p in test.get("properties", [])}
        environment = dict(word.split("=", 1) for word in values.get("ENVIRONMENT", []))
        found.append(Test(test["name"], command, values.get("WORKING_DIRECTORY", str(build_folder)),
                          environment, values.get("SKIP_RETURN_CODE")))
    return found


class Running:
    """A test's process, in a group of its own so that what it starts ends with it."""

    def __init__(self, test, folder, settings):
        self.test = test
        self.log = folder / (re.sub(r"\W", "_", test.name) + ".log")
        scratch = folder / re.sub(r"\W", "_", test.name)
        for name in ("tmp", "cache"):
            (scratch / name).mkdir(parents=True, exist_ok=True)
        environment = dict(os.environ, **test.environment, **settings,
                           TMPDIR=str(scratch / "tmp"), XDG_CACHE_HOME=str(scratch / "cache"))
        with open(self.log, "wb") as out:
            self.process = subprocess.Popen(test.command, cwd=test.folder, env=environment,
                                            stdin=subprocess.DEVNULL, stdout=out,
                                            stderr=subprocess.STDOUT, start_new_session=True)

    def failed(self):
        code = self.process.poll()
        return code is not None and not self.test.passes(code)

    def end(self):
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.process.wait()

    def culprit(self):
        """Which test failed, or was running when the process died."""
        text = self.log.read_text(encoding="utf-8", errors="replace")
        failed = re.search(r"^\[  FAILED  \] ([^\s,]+)", text, re.MULTILINE)
        if failed:
            return failed.group(1)
        begun = re.findall(r"^\[ RUN      \] (\S+)", text, re.MULTILINE)
        return f"{begun[-1]} (crashed)" if begun else self.test.name


@dataclasses.dataclass(frozen=True)
class Passage:
    """A test that passes where there is no fault."""

    program: str  # of GoogleTest; empty: a test of CTest's alone
    name: str
    seconds: float
    mutants: tuple  # those that it comes by


class Suite:
    """All tests, and how one mutant is put to them."""

    def __init__(self, work, seconds):
        self.folder = work / "runs"
        self.build_folder = work / "tree" / "build-cpu"
        self.others = {test.name: test for test in other_tests(self.build_folder)}
        self.seconds = seconds
        self.stopped = threading.Event()
        self.build_lock = threading.Lock()
        self.passages = []

    # Without a fault

    def record(self, path, jobs):
        """Runs every test without a fault; what they come by is kept in a file."""
        if not path.is_file():
            wanted = [(program, name) for program in GOOGLE_TESTS
                      for name in google_names(self.build_folder / "bin" / program)]
            wanted += [("", name) for name in self.others]
            print(f"Running {len(wanted)} tests without a mutant...", flush=True)
            with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
                found = list(pool.map(lambda numbered: self.passage(*numbered), enumerate(wanted)))
            fields = [dataclasses.astuple(passage) for passage in found]
            path.write_text(json.dumps(fields), encoding="utf-8")
        self.passages = [Passage(*fields) for fields in json.loads(path.read_text())]

    def passage(self, number, wanted):
        program, name = wanted
        folder = self.folder / f"sound-{number}"
        folder.mkdir(parents=True, exist_ok=True)
        reached = folder / "reached"
        begin = time.monotonic()
        verdict, test = self.run_tests(program, [name], folder, begin + self.seconds,
                                       {"RIDGE_MUTANTS_REACHED": str(reached)})
        if verdict != "survived":
            raise Failure(f"without a mutant {test or name} fails already: see {folder}")
        text = reached.read_text(encoding="utf-8") if reached.is_file() else ""
        seconds = time.monotonic() - begin
        shutil.rmtree(folder, ignore_errors=True)
        return Passage(program, name, seconds, tuple(sorted({int(word) for word in text.split()})))

    # With one

    def outcome(self, number):
        """What becomes of a mutant. Kept for a reader: the output of what killed it."""
        begin = time.monotonic()
        folder = self.folder / str(number)
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        verdict, test = "survived", ""
        for program, names, seconds in self.helpings(number):
            deadline = time.monotonic() + 60 + 10 * seconds
            verdict, test = self.run_tests(program, names, folder, deadline,
                                           {"RIDGE_MUTANT": str(number)})
            if verdict != "survived":
                break
        else:
            if not any(number in passage.mutants for passage in self.passages):
                test = "no test comes by"
        for entry in folder.iterdir():
            if entry.is_dir():
                shutil.rmtree(entry, ignore_errors=True)
        return Outcome(number, verdict, test, time.monotonic() - begin)

    def helpings(self, number):
        """The tests that come by a mutant, the quickest first, in portions of one program each that
        become larger: a start costs time, and so do tests behind the one that fails."""
        passages = sorted((p for p in self.passages if number in p.mutants),
                          key=lambda passage: passage.seconds)
        portions = {}
        limit, total = 1.0, 0.0
        for p in passages:
            total += p.seconds
            while total > limit:
                limit *= 2
            key = (limit, p.program, p.name if not p.program else "")
            names, seconds = portions.get(key, ([], 0.0))
            portions[key] = (names + [p.name], seconds + p.seconds)
        return [(program, names, seconds)
                for (_, program, _), (names, seconds) in portions.items()]

    def run_tests(self, program, names, folder, deadline, settings):
        """Some tests of one program in one process, or one of CTest's."""
        if program:
            test = google_test(self.build_folder, program, names, folder / "filter")
        else:
            test = self.others[names[0]]
            if test.name in WRITES_TO_BUILD:
                waited = time.monotonic()
                with self.build_lock:
                    # Waiting for other mutants is no time of this one.
                    deadline += time.monotonic() - waited
                    return self.run_test(test, folder, deadline, settings)
        return self.run_test(test, folder, deadline, settings)

    def run_test(self, test, folder, deadline, settings):
        running = Running(test, folder, settings)
        try:
            while running.process.poll() is None:
                if self.stopped.is_set():
                    raise Failure("interrupted")
                if time.monotonic() > deadline:
                    return "timeout", running.culprit()
                time.sleep(0.01)
            return ("killed", running.culprit()) if running.failed() else ("survived", "")
        finally:
            running.end()


# Outcomes


def read_outcomes(path):
    outcomes = {}
    for line in path.read_text(encoding="utf-8").splitlines()[1:]:
        cells = line.split("\t")
        if len(cells) != len(OUTCOME_COLUMNS):
            continue  # cut off where the run was interrupted
        outcomes[int(cells[0])] = Outcome(int(cells[0]), cells[1], cells[2], float(cells[3]))
    return outcomes


class Ledger:
    """The file of outcomes, which grows as they come."""

    def __init__(self, path, goes_on):
        self.path = path
        self.outcomes = read_outcomes(path) if goes_on and path.is_file() else {}
        self.lock = threading.Lock()
        with open(path, "w", encoding="utf-8") as out:
            out.write("\t".join(OUTCOME_COLUMNS) + "\n")
            out.writelines(outcome.line() for outcome in self.outcomes.values())

    def add(self, outcome):
        with self.lock:
            self.outcomes[outcome.number] = outcome
            with open(self.path, "a", encoding="utf-8") as out:
                out.write(outcome.line())
            print(outcome.line().replace("\t", "  "), end="", flush=True)


def run_all(suite, mutants, ledger, jobs):
    left = [m.number for m in mutants if m.number not in ledger.outcomes]
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        try:
            waiting = [pool.submit(suite.outcome, number) for number in left]
            for done in concurrent.futures.as_completed(waiting):
                ledger.add(done.result())
        except BaseException:
            suite.stopped.set()
            pool.shutdown(cancel_futures=True)
            raise


def print_table(mutants, outcomes):
    print(f"\n{'kind':<10}{'drawn':>7}{'killed':>8}{'by time':>9}{'percent':>9}")
    run = [m for m in mutants if m.number in outcomes]
    for kind in KINDS + ["all"]:
        of_kind = [outcomes[m.number].outcome for m in run if kind in (m.kind, "all")]
        killed = sum(outcome != "survived" for outcome in of_kind)
        percent = f"{100 * killed / len(of_kind):.1f}" if of_kind else "-"
        print(f"{kind:<10}{len(of_kind):>7}{killed:>8}{of_kind.count('timeout'):>9}{percent:>9}")
    survivors = [m for m in run if outcomes[m.number].outcome == "survived"]
    print("\nSurvivors:" if survivors else "\nNone survived.")
    for m in survivors:
        why = outcomes[m.number].test
        print(f"  {m.number} {m.kind} {m.file}: {m.what}{' (' + why + ')' if why else ''}")


# The command


class Parser(argparse.ArgumentParser):
    def error(self, message):
        raise UsageFault(message)


def at_least_1(text):
    if not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"'{text}' is no integer of at least 1")
    return int(text)


def arguments():
    parser = Parser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", required=True, metavar="DIR",
                        help="where the copy, its build and the outcomes are")
    parser.add_argument("--table", type=pathlib.Path, default=TABLE, metavar="FILE",
                        help="the table of mutants (tests/mutants.tsv)")
    parser.add_argument("--seconds", type=at_least_1, default=900, metavar="N",
                        help="limit for each test without a mutant (900); with one it is ten times "
                             "what it takes without, and a minute")
    parser.add_argument("--jobs", type=at_least_1, default=1, metavar="N",
                        help="mutants, or tests without one, at a time (1)")
    parser.add_argument("--build-jobs", type=at_least_1, default=os.cpu_count(), metavar="N",
                        help="compilers at a time (all processors)")
    parser.add_argument("--only", default="", metavar="LIST", help="these alone, such as 3,17,40")
    parser.add_argument("--continue", dest="goes_on", action="store_true",
                        help="keep the copy, its build and the outcomes that are there")
    parser.add_argument("--check", action="store_true",
                        help="only see whether every mutant is in its place and compiles")
    given = parser.parse_args()
    if given.check and given.goes_on:
        raise UsageFault("--check and --continue exclude each other")
    return given


def prepare_work(path, goes_on):
    """The work folder, empty but for a build that is to be kept. Only what this script made is
    deleted: a folder without its mark is refused."""
    work = pathlib.Path(path).resolve()
    if work == ROOT or ROOT in work.parents:
        raise UsageFault(f"--work is {work}, within the tree that is copied")
    mark = work / "of-mutants-py"
    if work.is_dir() and any(work.iterdir()) and not mark.is_file():
        raise UsageFault(f"--work is {work}, which has something else in it")
    if goes_on and not (work / "built").is_file():
        raise UsageFault(f"--continue: {work} has no build to go on with")
    work.mkdir(parents=True, exist_ok=True)
    mark.touch()
    if not goes_on:
        (work / "built").unlink(missing_ok=True)
        (work / "passages.json").unlink(missing_ok=True)
        for name in ("tree", "runs"):
            shutil.rmtree(work / name, ignore_errors=True)
    return work


def run(given):
    mutants = read_table(given.table)
    wanted = chosen(mutants, given.only)
    work = prepare_work(given.work, given.goes_on)
    if given.check:
        check_compiles(MutatedTree(work, listed_files(), wanted), wanted)
        return
    if not given.goes_on:
        build(work, listed_files(), mutants, given.build_jobs, digest_of(given.table))
    elif (work / "built").read_text(encoding="utf-8") != digest_of(given.table):
        raise Failure(f"{given.table.name} has changed since the build: start anew, without --continue")
    ledger = Ledger(work / "outcomes.tsv", given.goes_on)
    suite = Suite(work, given.seconds)
    suite.record(work / "passages.json", given.jobs)
    run_all(suite, wanted, ledger, given.jobs)
    print_table(wanted, ledger.outcomes)
    print(f"Outcomes: {ledger.path}")


def main():
    try:
        run(arguments())
    except UsageFault as fault:
        print(f"mutants.py: {fault}", file=sys.stderr)
        return 2
    except (Failure, OSError) as fault:
        print(f"mutants.py: {fault}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("mutants.py: interrupted; go on with --continue", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
