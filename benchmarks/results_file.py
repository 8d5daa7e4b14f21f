"""A results file: the JSON that a benchmark writes and that results_page.py turns into a page.

    {"schema": "ridge-results-1",
     "section": "Vision networks",             one of SECTIONS
     "title": "Inference on a GPU, fp16",
     "order": 1,                               place within the section; later ones last
     "measured": {"date": "2026-11-23", "commit": "0123456789", "device": "NVIDIA H100; ...",
                  "command": "benchmarks/peers/vision_speed.py ..."},
     "notes": ["A paragraph."],
     "figure": {"file": "../figures/a.svg", "text": "What it shows"},
     "tables": [{"caption": "A line.", "columns": ["Network", ..], "rows": [["resnet50", ..], ..]}],
     "figures": ...}                           what the cells were made of; the page leaves it out

"order", "notes", "figure", a table's "caption" and "figures" may be missing. Figures that were
copied from a page have "no_later_than" in place of "date", the commit that put them there, and
"page"."""

import datetime
import json
import shlex
import subprocess
import sys
from pathlib import Path

SCHEMA = "ridge-results-1"
SECTIONS = ["Training a LLaMA", "Vision networks", "GPU kernels", "Correctness", "Profiling"]
ROOT = Path(__file__).resolve().parents[1]


def commit():
    """The commit of the sources, with a + if they have changes; "unknown" outside a checkout."""
    def git(*arguments):
        return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True,
                              check=True).stdout.strip()
    try:
        return git("rev-parse", "--short=10", "HEAD") + ("+" if git("status", "--short") else "")
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def write_results(path, section, title, device, tables, figures):
    """Writes the results of the program that is running, whose command line it notes."""
    if section not in SECTIONS:
        raise ValueError(f"there is no section {section}")
    program = Path(sys.argv[0]).resolve()
    program = program.relative_to(ROOT) if program.is_relative_to(ROOT) else program.name
    measured = {"date": datetime.date.today().isoformat(), "commit": commit(), "device": device,
                "command": shlex.join([str(program), *sys.argv[1:]])}
    path.write_text(json.dumps(
        {"schema": SCHEMA, "section": section, "title": title, "measured": measured,
         "tables": tables, "figures": figures}, indent=1, ensure_ascii=False) + "\n",
        encoding="utf-8")


def is_number(cell):
    return not cell or cell.strip("*`")[:1].isdigit() or cell[:1] in "+-("


def markdown_lines(table):
    """A table in Markdown, with columns of numbers aligned to the right."""
    columns, rows = table["columns"], table["rows"]
    numbers = [all(is_number(row[i]) for row in rows) for i in range(len(columns))]
    return ["| " + " | ".join(columns) + " |",
            "|" + "".join("---:|" if number else "---|" for number in numbers),
            *("| " + " | ".join(row) + " |" for row in rows)]
