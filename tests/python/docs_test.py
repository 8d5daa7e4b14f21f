"""The examples of docs/use/python.md run, and print what the page shows."""

import contextlib
import io
import re
import shutil

from conftest import SOURCE

BLOCK = re.compile(r"^```(python|text)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
NUMBER = re.compile(r"\d[\d,]*(\.\d+)?(e[+-]?\d+)?")


def shape(text):
    """A text without its numbers and alignment, which depend on the machine."""
    return re.sub(r"\s+", " ", NUMBER.sub("#", text)).strip()


def test_examples_print_what_the_page_shows(trace):
    shutil.copy(trace, "trace.json")
    page = (SOURCE / "docs/use/python.md").read_text()
    names, output, runs = {}, "", 0
    for kind, text in BLOCK.findall(page):
        if kind == "python":
            with contextlib.redirect_stdout(io.StringIO()) as printed:
                exec(compile(text, "docs/use/python.md", "exec"), names)
            output, runs = printed.getvalue(), runs + 1
        else:
            assert shape(text) == shape(output), f"the page shows\n{text}\nwhere it prints\n{output}"
    assert runs > 2
