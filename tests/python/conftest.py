"""The package as pip has installed it, in a folder of its own for each test."""

import os
from pathlib import Path

import pytest

SOURCE = Path(os.environ["RIDGE_SOURCE"])
TINY = {"hidden_dim": 16, "n_layers": 1, "n_heads": 2, "seq_len": 8, "batch_size": 2, "device": "cpu", "threads": 1}


@pytest.fixture(autouse=True)
def in_folder_of_its_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("RIDGE_STORE", raising=False)


@pytest.fixture
def trace():
    return SOURCE / "tests/trace/small_trace.json"


@pytest.fixture
def tiny():
    return dict(TINY)
