"""Reads traces of any program, as `ridge trace` does, in this process.

They are JSON of PyTorch's profiler, of Ridge or of Chrome's kind, gzip or not; SQLite that Nsight Systems
exports; JSON or CSV of rocprofv3. A directory stands for all traces in it, one of each rank.
"""

import json
import os
from html import escape

from ridge import _ridge
from ridge._values import with_arrays

__all__ = ["Report", "diff", "report"]


class Report(dict):
    """The JSON of `ridge trace report --json` as a dict; a notebook shows the page of --html."""

    def __init__(self, made):
        super().__init__(with_arrays(json.loads(made.json())))
        self._made = made

    def page(self):
        """The page: the text of one HTML file that needs no other and no network."""
        return self._made.page()

    def _repr_html_(self):
        # A frame keeps the page's styles and names apart from those of the notebook.
        return (f'<iframe srcdoc="{escape(self.page())}" '
                'style="width: 100%; height: 700px; border: none"></iframe>')


def report(*paths, html=None):
    """Tells where the time went in traces, and what would help. `html`: also writes the page to this file.

    ValueError if no trace is named or found; RuntimeError for a file that cannot be read.
    """
    made = Report(_ridge.report([os.fspath(path) for path in paths]))
    if html is not None:
        _ridge.write_text(os.fspath(html), made.page())
    return made


def diff(before, after):
    """Tells what makes one trace slower than another, as `ridge trace diff --json` does.

    Takes two files, or two directories with a trace of each rank.
    """
    return with_arrays(json.loads(_ridge.diff(os.fspath(before), os.fspath(after))))
