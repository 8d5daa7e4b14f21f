#!/usr/bin/env python3
"""Writes profiles under conditions that no one wants, and checks that every file that is there under
a final name is whole, that there is one clear line for what went wrong, and that the results of the
run are not lost: hostile names, directories that cannot be written, full disks, kills.

    tests/profile/faults/faults.py build/bin/ridge build/bin/made_profile [--heavy]

--heavy adds ten million events and hundreds of kills, which take minutes and 2 GB of memory. What
the system does not allow, such as mounting, is said to be left out."""

import argparse
import csv
import gzip
import json
import os
import random
import resource
import signal
import struct
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree
from pathlib import Path

STEPS = 8
TRAIN = ["train", "--hidden-dim", "16", "--n-layers", "2", "--n-heads", "2", "--vocab-size", "32",
         "--seq-len", "8", "--batch-size", "2", "--threads", "1", "--num-steps", str(STEPS),
         "--save-every", "3", "--enable-all-profiling", "--compress-traces"]
TEMPORARY = ".ridge-tmp"


# Readers: each raises an exception if the file is not whole.

def read_json(data):
    def refuse(constant):
        raise ValueError(f"{constant} is no JSON")

    return json.loads(data.decode("utf-8", "strict"), parse_constant=refuse)


def read_csv(data):
    text = data.decode("utf-8", "surrogateescape")
    assert text.endswith("\n"), "the last line has no end"
    rows = list(csv.reader(text.splitlines(keepends=True), strict=True))
    assert len({len(row) for row in rows}) == 1, "rows of different lengths"
    return rows


def protobuf_fields(data):
    """The fields of a message: (number, value), where a value is an integer or bytes."""
    at = 0

    def varint():
        nonlocal at
        value = shift = 0
        while True:
            byte = data[at]
            at += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value

    while at < len(data):
        key = varint()
        kind = key & 7
        if kind == 0:
            yield key >> 3, varint()
            continue
        size = {1: 8, 2: None, 5: 4}[kind]
        if size is None:
            size = varint()
        assert at + size <= len(data), "a field beyond the end"
        yield key >> 3, data[at:at + size]
        at += size


def read_perfetto(data):
    """The names in it."""
    names, depth = [], {}
    for number, packet in protobuf_fields(data):
        assert number == 1, f"field {number}"
        for field, value in protobuf_fields(packet):
            if field == 11:  # track_event
                event = dict(protobuf_fields(value))
                names.append(event.get(23, b"").decode("utf-8", "strict"))
                depth[event[11]] = depth.get(event[11], 0) + {1: 1, 2: -1}.get(event[9], 0)
                assert depth[event[11]] >= 0, "a slice ends before it begins"
            elif field == 60:  # track_descriptor
                names.append(dict(protobuf_fields(value)).get(2, b"").decode("utf-8", "strict"))
    assert not any(depth.values()), "a slice has no end"
    return names


def read_events(data):
    at = count = 0
    while at < len(data):
        size, = struct.unpack_from("<Q", data, at)
        at += size + 16
        count += 1
    assert at == len(data), "half a record"
    return count


def read_safetensors(data):
    size, = struct.unpack_from("<Q", data)
    tensors = read_json(data[8:8 + size])
    tensors.pop("__metadata__", None)
    assert 8 + size + max(t["data_offsets"][1] for t in tensors.values()) == len(data), "cut short"
    return tensors


def read_html(data):
    assert data.rstrip().endswith(b"</html>"), "cut short"


READERS = {".json": read_json, ".json.gz": lambda data: read_json(gzip.decompress(data)),
           ".csv": read_csv, ".pftrace": read_perfetto, ".svg": xml.etree.ElementTree.fromstring,
           ".safetensors": read_safetensors, ".html": read_html, ".txt": lambda data: data}


def read(path):
    if path.name.startswith("events.out.tfevents."):
        return read_events(path.read_bytes())
    suffix = next(s for s in READERS if path.name.endswith(s))
    try:
        return READERS[suffix](path.read_bytes())
    except Exception as error:
        raise AssertionError(f"{path} does not parse: {error!r}") from error


def temporaries(directory):
    return [p for p in directory.glob(".*") if p.name.endswith(TEMPORARY)]


def read_all(directory):
    """Every file under a final name; there may be no others but temporaries."""
    names = []
    for path in sorted(directory.iterdir()) if directory.exists() else []:
        if path in temporaries(directory):
            continue
        read(path)
        names.append(path.name)
    return names


class Case:
    """What a test needs: the programs, and a directory of its own."""

    def __init__(self, program, maker, heavy, directory):
        self.program, self.maker, self.heavy, self.directory = program, maker, heavy, directory
        self.out, self.profiles = directory / "out", directory / "profiles"

    def command(self, *more, out=None, profiles=None):
        return [self.program, *TRAIN, "--output-dir", str(out or self.out),
                "--profile-dir", str(profiles or self.profiles), *more]

    def train(self, *more, limit=None, **directories):
        def set_limit():
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))

        return subprocess.run(self.command(*more, **directories), capture_output=True, text=True,
                              errors="replace", preexec_fn=set_limit if limit else None)


class Skipped(Exception):
    pass


def expect_refusal(run):
    """Exit code 1 and one line."""
    assert run.returncode == 1, (run.returncode, run.stderr)
    assert run.stderr.startswith("ridge: ") and run.stderr.count("\n") == 1, run.stderr


def expect_results(case, run):
    """That the run itself lost nothing, whatever became of the profile."""
    assert "Performance Summary:" in run.stdout, run.stdout
    summary = read(case.out / "performance_summary.json")
    assert len(summary["performance_summary"]["losses"]) == STEPS
    assert f"Saved {case.out}/checkpoint.safetensors at step {STEPS}\n" in run.stdout
    read(case.out / "checkpoint.safetensors")


def expect_listing(case, run, profiles):
    """That exactly the files which are there are listed."""
    listed = {Path(line[4:]).name for line in run.stdout.splitlines() if line.startswith("  - ")}
    found = set(read_all(profiles))
    assert listed == found, (sorted(listed), sorted(found))
    return found


def hostile_names(case):
    subprocess.run([case.maker, "names", case.directory], check=True)
    directories = list(case.directory.iterdir())
    for directory in directories:
        read_all(directory)
        raw = (directory / "expected.txt").read_bytes()
        trace = read(directory / "trace.json")
        assert trace == {**read(directory / "trace.json.gz"), "traceName": trace["traceName"]}
        by_module = [row[0] for row in read(directory / "by_module.csv")]
        try:
            name = raw.decode("utf-8", "strict")
        except UnicodeDecodeError:
            continue  # what replaces it is for the reader to choose
        owners = {event.get("args", {}).get("owner") for event in trace["traceEvents"]}
        assert f"{name}: scale" in owners and trace["device"] == name, name
        assert name in read(directory / "trace.pftrace"), name
        assert name in by_module or "\0" in name, (name, by_module)
        modules = [row["name"] for row in read(directory / "by_module.json")["rows"]]
        assert name in modules, (name, modules)
    return f"{len(directories)} names"


def many_events(case):
    if not case.heavy:
        raise Skipped("ten million events: with --heavy")
    text = subprocess.run([case.maker, "events", "10000000", case.directory], check=True,
                          capture_output=True, text=True).stdout
    found = []
    for line in text.splitlines():
        file = json.loads(line)
        growth, left_out = file["peak_growth"] / 2**20, file["left_out"]
        assert growth < 64, line
        path = case.directory / file["file"]
        found.append(f"{path.name} {path.stat().st_size / 1e6:.0f} MB, {left_out} left out, "
                     f"{growth:.1f} MiB of memory")
        if path.name == "trace.pftrace":
            assert f"cut here: {left_out} events left out".encode() in path.read_bytes()[-1000:]
            continue  # Python takes minutes for the rest
        content = read(path)
        if path.name.startswith("trace.json"):
            assert content["ridge"]["events_left_out"] == left_out > 0
            assert len(content["traceEvents"]) == content["ridge"]["events"]
        if path.name == "kernel_trace.csv":
            assert len(content) - 1 + left_out == 10_000_000
    return "; ".join(found)


def many_events_of_a_run(case):
    if not case.heavy:
        raise Skipped("a run of ten million events: with --heavy")
    log = case.directory / "log"
    with log.open("w") as file:
        child = subprocess.Popen(case.command("--num-steps", "40000", "--profile-steps", "40000",
                                              "--log-interval", "10000", "--save-every", "0"),
                                 stdout=file, stderr=file)
        _, child.returncode, usage = os.wait4(child.pid, 0)
    assert child.returncode == 0, log.read_text()
    cuts = [line for line in log.read_text().splitlines() if "left out beyond" in line]
    assert len(cuts) == 3, cuts
    for path in case.profiles.iterdir():
        if path.suffix not in (".gz", ".pftrace"):
            read(path)
    summary = read(case.out / "performance_summary.json")["performance_summary"]
    before, after = summary["peak_resident_bytes"] / 2**20, usage.ru_maxrss / 2**10
    assert after - before < 64, (before, after)
    return "; ".join(cuts) + f"; {before:.0f} MiB resident before writing, {after:.0f} at the peak"


def mount(directory, *arguments):
    directory.mkdir(exist_ok=True)
    if subprocess.run(["mount", *arguments, str(directory)], capture_output=True).returncode != 0:
        raise Skipped("mounting is not allowed here")


def expect_refusal_before_training(case, profiles):
    run = case.train(profiles=profiles)
    expect_refusal(run)
    assert str(profiles) in run.stderr, run.stderr
    assert "Starting training" not in run.stdout, run.stdout
    assert not (case.out / "performance_summary.json").exists()
    return run.stderr.strip()


def unwritable(case):
    (case.directory / "file").write_text("")
    taken = case.directory / "taken"
    (taken / "performance_summary.json").mkdir(parents=True)
    places = [case.directory / "file", case.directory / "file" / "below", taken,
              Path("/proc/ridge-profiles")]
    if os.geteuid() != 0:
        places.append(case.directory / "closed")
        places[-1].mkdir(mode=0o555)
    for place in places:
        expect_refusal_before_training(case, place)
    return f"{len(places)} places"


def read_only(case):
    place = case.directory / "mounted"
    mount(place, "-t", "tmpfs", "-o", "ro", "tmpfs")
    try:
        return expect_refusal_before_training(case, place)
    finally:
        subprocess.run(["umount", str(place)], check=True)


def full_disk(case):
    """Disks of all sizes on which the profile does not fit; the run has another."""
    place = case.directory / "mounted"
    whole = case.train()
    assert whole.returncode == 0, whole.stderr
    sizes = sorted({f.stat().st_size for f in case.profiles.iterdir()})
    fits = 2 * sum(sizes)
    counts = []
    for kibibytes in sorted({int(16 * (fits / 16384) ** (i / 5)) for i in range(6)}):
        mount(place, "-t", "tmpfs", "-o", f"size={kibibytes}k", "tmpfs")
        try:
            run = case.train(profiles=place)
            if run.returncode != 0:
                expect_refusal(run)
                assert "No space left on device" in run.stderr, run.stderr
            expect_results(case, run)
            counts.append(len(expect_listing(case, run, place)))
            assert not temporaries(place)
        finally:
            subprocess.run(["umount", str(place)], check=True)
    assert counts[0] < counts[-1] and run.returncode == 0, counts
    return f"{counts} files on larger and larger disks"


def full_from_the_start(case):
    place = case.directory / "mounted"
    mount(place, "-t", "tmpfs", "-o", "size=16k", "tmpfs")
    try:
        (place / "filling").write_bytes(bytes(16384))
        return expect_refusal_before_training(case, place)
    except OSError as error:
        raise Skipped(str(error)) from error
    finally:
        subprocess.run(["umount", str(place)], check=True)


def limited_files(case):
    """A limit on the size of a file, which needs no rights to set."""
    whole = case.train()
    assert whole.returncode == 0, whole.stderr
    everything = expect_listing(case, whole, case.profiles)
    counts = []
    sizes = sorted(f.stat().st_size for f in case.profiles.iterdir())
    checkpoint = (case.out / "checkpoint.safetensors").stat().st_size
    # The largest file is a trace, which has more counters of the machine where the run takes longer.
    largest = sizes[-1]
    for limit in (100, 20_000, checkpoint, (checkpoint + largest) // 2, (checkpoint + 3 * largest) // 4):
        for path in [*case.profiles.iterdir(), *case.out.iterdir()]:
            path.unlink()
        run = case.train(limit=limit)
        expect_refusal(run)
        assert "File too large" in run.stderr, run.stderr
        read_all(case.out)
        counts.append(len(expect_listing(case, run, case.profiles)))
        assert not temporaries(case.profiles) and not temporaries(case.out)
        if limit >= checkpoint:
            expect_results(case, run)
    assert counts[0] == 0 < counts[-1] < len(everything), counts
    return f"{counts} of {len(everything)} files within larger and larger limits"


def killed(case):
    """At random moments; every second time just when a file of the profile is being written."""
    start = time.monotonic()
    assert case.train().returncode == 0
    took = time.monotonic() - start
    left, kills = 0, 200 if case.heavy else 12
    chance = random.Random(1)
    for i in range(kills):
        child = subprocess.Popen(case.command(), stdout=subprocess.DEVNULL,
                                 stderr=subprocess.DEVNULL)
        if i % 2 == 0:
            time.sleep(chance.uniform(0, took))
        else:
            seen, enough = set(), chance.randint(2, 12)
            while len(seen) < enough and child.poll() is None:
                seen |= {p.name for p in temporaries(case.profiles)}
        child.send_signal(signal.SIGKILL)
        child.wait()
        left += len(temporaries(case.profiles)) + len(temporaries(case.out))
        assert "checkpoint.safetensors" in read_all(case.out)
        read_all(case.profiles)
    assert left > 0, "no kill met a writer"
    run = case.train()
    assert run.returncode == 0, run.stderr
    assert not temporaries(case.profiles) and not temporaries(case.out)
    read_all(case.profiles)
    return f"{kills} kills, which left {left} temporaries; the next run removed the last"


CASES = [hostile_names, many_events, many_events_of_a_run, unwritable, read_only, full_disk,
         full_from_the_start, limited_files, killed]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("ridge", type=Path)
    parser.add_argument("made_profile", type=Path)
    parser.add_argument("--heavy", action="store_true")
    parser.add_argument("--only", help="one of " + ", ".join(c.__name__ for c in CASES))
    arguments = parser.parse_args()
    csv.field_size_limit(1 << 24)
    failed = False
    for case in CASES:
        if arguments.only and case.__name__ != arguments.only:
            continue
        with tempfile.TemporaryDirectory(prefix="ridge-test-") as directory:
            try:
                verdict = "ok", case(Case(arguments.ridge.resolve(),
                                          arguments.made_profile.resolve(), arguments.heavy,
                                          Path(directory)))
            except Skipped as reason:
                verdict = "left out", reason
            except Exception as error:  # of any kind: the other cases are worth knowing too
                verdict, failed = ("FAILED", repr(error)), True
        print(f"{case.__name__}: {verdict[0]}: {verdict[1]}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
