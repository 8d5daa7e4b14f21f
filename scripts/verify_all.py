#!/usr/bin/env python3
"""Runs all of `ridge verify` in several processes, spread over the cards of a machine.

    scripts/verify_all.py --ridge build/bin/ridge --out verify.jsonl
    scripts/verify_all.py --device cuda --cards 4 --processes 5 --seconds 500 --out verify.jsonl

Every model, precision, version, compile mode and pass, in training and inference: what `ridge
verify --list` lists. A job is one network in one precision, or a language model's in some of the
schedules. Each writes a line to --out when it ends, and what stands there is not run again, so a
run that was stopped, or that --seconds ended, goes on where it was. Prints a table; exit code 1 if
any run is wrong or a job failed, 3 if some were not run."""

import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
CHUNKS = 5  # of the schedules of language models, whose references are soon computed


def listed(arguments, family, mode):
    command = [arguments.ridge, "verify", f"--{family}", "--mode", mode, "--device",
               arguments.device, "--list", "--json"]
    return json.loads(subprocess.run(command, check=True, capture_output=True).stdout)


def jobs_of(arguments):
    """Those that take longest first: networks in training, the deep ones, which stand last."""
    jobs = []
    for family in ("vision", "language"):
        for mode in ("training", "inference"):
            models = listed(arguments, family, mode)
            common = ["--mode", mode, "--device", arguments.device]
            if family == "vision":
                jobs += [common + ["--network", model["network"], "--dtypes", dtype]
                         for model in reversed(models) for dtype in model["dtypes"]]
                continue
            schedules = models[0]["schedules"]
            dtypes = dict.fromkeys(dtype for model in models for dtype in model["dtypes"])
            jobs += [common + ["--language", "--dtypes", dtype, "--schedules",
                               ",".join(schedules[part::CHUNKS])]
                     for dtype in dtypes for part in range(CHUNKS)]
    return jobs


class Runner:
    """A place for one process at a time."""

    def __init__(self, arguments, card):
        self.arguments, self.process = arguments, None
        self.environment = dict(os.environ)
        if arguments.device == "cuda":
            self.environment["CUDA_VISIBLE_DEVICES"] = str(card)

    def begin(self, job):
        self.job, self.begun = job, time.monotonic()
        self.said, self.complained = tempfile.TemporaryFile(), tempfile.TemporaryFile()
        command = [self.arguments.ridge, "verify", *job, "--threads", str(self.arguments.threads),
                   "--json"]
        self.process = subprocess.Popen(command, env=self.environment, stdout=self.said,
                                        stderr=self.complained)

    def ended(self):
        """What its job gave, once it has ended."""
        if self.process is None:
            return None
        code = self.process.poll()
        if code is None and time.monotonic() - self.begun > self.arguments.job_seconds:
            self.process.kill()
            self.process.wait()
            code = 124
        if code is None:
            return None
        self.said.seek(0)
        self.complained.seek(0)
        self.process = None
        result = {"job": self.job, "exit_code": code,
                  "seconds": round(time.monotonic() - self.begun, 1)}
        try:
            verdicts = json.load(self.said)
        except json.JSONDecodeError:
            complaint = self.complained.read().decode().strip()[-500:]
            if code == 124:
                complaint = f"no end after {self.arguments.job_seconds:g} s"
            return result | {"runs": 0, "wrong": [], "complaint": complaint}
        return result | {"runs": len(verdicts),
                         "wrong": [v for v in verdicts if not v["right"]],
                         "worst_gradient": max((v["gradient_error"] or 0 for v in verdicts),
                                               default=0)}


def run(arguments, jobs, out):
    runners = [Runner(arguments, card) for _ in range(arguments.processes)
               for card in range(arguments.cards)]
    end = time.monotonic() + arguments.seconds
    waiting, total, done = list(jobs), len(jobs), 0
    while waiting or any(r.process for r in runners):
        late = time.monotonic() > end
        for runner in runners:
            result = runner.ended()
            if result is not None:
                done += 1
                out.write(json.dumps(result) + "\n")
                out.flush()
                if sys.stderr.isatty():
                    print(f"\r{done}/{total} jobs", end="", file=sys.stderr)
            if runner.process and late:
                runner.process.kill()
                runner.process.wait()
                runner.process = None
            if runner.process is None and waiting and not late:
                runner.begin(waiting.pop(0))
        if late:
            break
        time.sleep(0.1)


def report(jobs, results):
    """A line for each family, mode and precision, and each thing that is wrong."""
    by_job = {json.dumps(result["job"]): result for result in results}
    rows = {}
    for job in jobs:
        words = dict(zip(job, job[1:]))
        kind = "language" if "--language" in job else "vision"
        row = rows.setdefault((kind, words["--mode"], words["--dtypes"]),
                              {"jobs": 0, "left": 0, "runs": 0, "wrong": 0, "failed": 0})
        row["jobs"] += 1
        result = by_job.get(json.dumps(job))
        if result is None:
            row["left"] += 1
            continue
        row["runs"] += result["runs"]
        row["wrong"] += len(result["wrong"])
        row["failed"] += result["exit_code"] != 0 and not result["wrong"]
    names = ["jobs", "left", "runs", "wrong", "failed"]
    print(f"{'Models':10}{'Mode':11}{'dtype':7}" + "".join(f"{name:>8}" for name in names))
    for (kind, mode, dtype), row in rows.items():
        print(f"{kind:10}{mode:11}{dtype:7}" + "".join(f"{row[name]:8,}" for name in names))
    sums = {name: sum(row[name] for row in rows.values()) for name in names}
    print(f"{'All':28}" + "".join(f"{sums[name]:8,}" for name in names))
    for result in by_job.values():
        for verdict in result["wrong"]:
            print(f"WRONG  {verdict['schedule']} in {verdict['dtype']}: {verdict['failure']} "
                  f"({verdict['configuration']})")
        if result["exit_code"] != 0 and not result["wrong"]:
            print(f"FAILED with {result['exit_code']}: {' '.join(result['job'])}: "
                  f"{result.get('complaint', '')}")
    if sums["wrong"] or sums["failed"]:
        return 1
    return 3 if sums["left"] else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ridge", default=str(ROOT / "build" / "bin" / "ridge"))
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--cards", type=int, default=1, help="of this machine")
    parser.add_argument("--processes", type=int, default=1, help="for each card")
    parser.add_argument("--threads", type=int, default=2, help="of each process")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="then it stops")
    parser.add_argument("--job-seconds", type=float, default=float("inf"),
                        help="that a job has: then it failed")
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("verify.jsonl"))
    arguments = parser.parse_args()
    jobs = jobs_of(arguments)
    results = []
    if arguments.out.exists():
        results = [json.loads(line) for line in arguments.out.read_text().splitlines()]
    known = {json.dumps(result["job"]) for result in results if result["exit_code"] >= 0}
    with arguments.out.open("a") as out:
        run(arguments, [job for job in jobs if json.dumps(job) not in known], out)
    results = [json.loads(line) for line in arguments.out.read_text().splitlines()]
    return report(jobs, results)


if __name__ == "__main__":
    sys.exit(main())
