import json
import subprocess
import sys
import threading
import time

import numpy as np
import pytest
import ridge
from ridge._program import PROGRAM


def printed(*words):
    return json.loads(subprocess.run([PROGRAM, *words], check=True, capture_output=True).stdout)


def plain(value):
    """The same with lists in place of arrays, as JSON has them."""
    return json.loads(json.dumps(value, default=lambda array: array.tolist()))


def long_trace(path, events=1_500_000):
    event = '{"ph":"X","cat":"cpu_op","name":"aten::add","pid":1,"tid":1,"ts":%d,"dur":1},\n'
    with open(path, "w") as file:
        file.write('{"traceEvents": [\n')
        for i in range(events):
            file.write(event % (2 * i))
        file.write('{"ph":"X","cat":"cpu_op","name":"aten::mul","pid":1,"tid":1,"ts":0,"dur":1}]}')


def test_report_is_what_the_program_prints(trace):
    assert plain(ridge.trace.report(trace)) == printed("trace", "report", trace, "--json")


def test_report_is_a_page_in_a_notebook(trace):
    report = ridge.trace.report(trace, html="page.html")
    page = open("page.html").read()
    assert page == report.page() and page.startswith("<!DOCTYPE html>")
    shown = report._repr_html_()
    assert shown.startswith("<iframe srcdoc=") and shown.endswith("</iframe>")
    assert "<script" not in shown, "a page in an attribute"


def test_diff_is_what_the_program_prints(trace):
    diff = ridge.trace.diff(trace, str(trace))
    assert plain(diff) == printed("trace", "diff", trace, trace, "--json")
    assert diff["schema"].startswith("ridge-trace-diff/")


def test_what_makes_no_sense_is_a_value_error(tmp_path):
    with pytest.raises(ValueError, match="^report which trace"):
        ridge.trace.report()
    with pytest.raises(ValueError, match="^there is no trace in "):
        ridge.trace.report(tmp_path)


def test_what_fails_is_a_runtime_error(tmp_path):
    with pytest.raises(RuntimeError, match="nowhere.json"):
        ridge.trace.report("nowhere.json")
    (tmp_path / "empty.json").write_text("{}")
    with pytest.raises(RuntimeError, match="no list of events") as failure:
        ridge.trace.diff("empty.json", "empty.json")
    assert "\n" not in str(failure.value)


def test_reading_leaves_the_interpreter_to_others():
    long_trace("long.json", 300_000)
    reading = threading.Thread(target=ridge.trace.report, args=["long.json"])
    reading.start()
    turns = 0
    while reading.is_alive():
        time.sleep(0.001)
        turns += 1
    assert turns > 20


def test_ctrl_c_ends_reading():
    long_trace("long.json")
    script = """
import os, signal, threading, time, ridge
threading.Timer(0.1, os.kill, [os.getpid(), signal.SIGINT]).start()
began = time.monotonic()
try:
    ridge.trace.report("long.json")
except KeyboardInterrupt:
    print("interrupted", time.monotonic() - began)
"""
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    word, seconds = result.stdout.split()
    assert word == "interrupted" and float(seconds) < 1, result.stdout


def test_lists_of_numbers_are_arrays():
    values = ridge._values.with_arrays({"a": [1, None, 2.5], "b": [{"c": [1, 2]}], "d": ["e"], "f": [], "g": [True]})
    np.testing.assert_array_equal(values["a"], [1, np.nan, 2.5])
    assert values["b"][0]["c"].dtype == np.int64
    assert (values["d"], values["f"], values["g"]) == (["e"], [], [True])
