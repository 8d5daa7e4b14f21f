import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import ridge
from ridge._program import PROGRAM, words_of

COMMAND = Path(sys.executable).with_name("ridge")


def test_versions_are_those_of_the_program():
    about = subprocess.run([COMMAND, "--version"], check=True, capture_output=True, text=True).stdout
    assert about.startswith(f"ridge {ridge.__version__}\n")
    if ridge.commit:
        assert f"\nCommit: {ridge.commit}\n" in about


def test_the_command_is_the_program():
    direct = subprocess.run([PROGRAM, "train", "--help"], capture_output=True, text=True)
    command = subprocess.run([COMMAND, "train", "--help"], capture_output=True, text=True)
    assert command.stdout == direct.stdout and "--batch-size" in command.stdout
    wrong = subprocess.run([COMMAND, "trane"], capture_output=True, text=True)
    assert wrong.returncode == 2 and wrong.stderr.startswith("ridge: there is no command trane")


def test_keyword_arguments_are_flags():
    assert words_of({"batch_size": 8, "compile": True, "tie_embeddings": False, "data": None,
                     "batch_sizes": [1, 8], "learning_rate": 1e-4, "output_dir": Path("a b")}) == [
        "--batch-size=8", "--compile", "--tie-embeddings=false", "--batch-sizes=1,8",
        "--learning-rate=0.0001", "--output-dir=a b"]


def test_train_gives_its_record_and_writes_its_files(tiny):
    lines = []
    run = ridge.train(num_steps=4, show=lines.append, tie_embeddings=False, flops=True, **tiny)
    summary = run["performance_summary"]
    assert isinstance(summary["losses"], np.ndarray) and summary["losses"].shape == (4,)
    assert summary["step_seconds"].dtype == np.float64 and (summary["step_seconds"] > 0).all()
    written = json.loads(Path("output/performance_summary.json").read_text())
    assert written["performance_summary"]["losses"] == summary["losses"].tolist()
    assert run["options"]["tie-embeddings"] is False and run["options"]["flops"] is True
    assert [line[:8] for line in lines if line.startswith("Step ")] == [f"Step {i}/4" for i in (1, 2, 3, 4)]


def test_train_by_several_ranks(tiny):
    run = ridge.train(num_steps=2, ranks=2, **tiny)
    assert run["options"]["ranks"] == 2 and run["performance_summary"]["losses"].shape == (2,)


def test_train_prints_its_configuration(tiny):
    assert ridge.train(print_config=True, **tiny)["hidden-dim"] == 16


def test_bench_gives_a_run_or_a_table():
    network = {"network": "resnet18", "image_size": 32, "batch_size": 1, "iterations": 2, "threads": 1}
    run = ridge.bench(export_json="bench.json", **network)
    assert run["performance_summary"]["device_seconds"].size >= 2
    assert json.loads(Path("bench.json").read_text())["workload"] == run["workload"]
    del network["batch_size"]
    table = ridge.bench(batch_sizes=[1, 2], **network)
    assert [row["batch_size"] for row in table["rows"]] == [1, 2]


def test_compare_and_plan(tiny):
    comparison = ridge.compare("v1", "v4", num_steps=4, rounds=2, warmup_steps=1, **tiny)
    assert [run["name"] for run in comparison["runs"]] == ["v1", "v4"]
    plan = ridge.plan(**tiny)
    assert plan["peak_bytes"] > 0 and plan["batch_size"] == 2


def test_a_usage_error_is_a_value_error_with_its_line():
    with pytest.raises(ValueError, match=r"^there is no flag --batch-sise; did you mean --batch-size\?$"):
        ridge.train(batch_sise=8)
    with pytest.raises(ValueError, match="^compare which runs"):
        ridge.compare()


def test_a_failure_is_a_runtime_error_with_its_line(tiny):
    with pytest.raises(RuntimeError, match="nowhere.txt") as failure:
        ridge.train(data="nowhere.txt", **tiny)
    assert "\n" not in str(failure.value) and not str(failure.value).startswith("ridge: ")


ENDLESS = """
import sys, ridge
def show(line):
    print(line, flush=True)
try:
    ridge.train(num_steps=1_000_000, save_every=1_000_000, hidden_dim=16, n_layers=1, n_heads=2, seq_len=8,
                batch_size=2, device="cpu", threads=1, log_interval=1, show=show)
except KeyboardInterrupt:
    print("interrupted")
"""


def endless_training():
    child = subprocess.Popen([sys.executable, "-c", ENDLESS], stdout=subprocess.PIPE, text=True)
    for line in child.stdout:
        if line.startswith("Step "):
            return child
    raise AssertionError("it took no step")


def test_ctrl_c_ends_a_training_which_saves_itself():
    child = endless_training()
    child.send_signal(signal.SIGINT)
    output, _ = child.communicate(timeout=60)
    assert child.returncode == 0 and output.rstrip().endswith("interrupted")
    record = json.loads(Path("output/performance_summary.json").read_text())
    assert record["performance_summary"]["outcome"] == "interrupted"
    assert Path("output/checkpoint.safetensors").exists()


def test_a_killed_interpreter_leaves_no_program():
    child = endless_training()
    programs = Path(f"/proc/{child.pid}/task/{child.pid}/children").read_text().split()
    assert len(programs) == 1
    child.kill()
    child.communicate()
    for _ in range(100):
        state = re.search(r"State:\s+(\w)", status_of(programs[0]))
        if state is None or state[1] == "Z":
            return
        os.sched_yield()
        subprocess.run(["sleep", "0.1"], check=True)
    raise AssertionError("it still runs")


def status_of(process):
    try:
        return Path(f"/proc/{process}/status").read_text()
    except OSError:
        return ""
