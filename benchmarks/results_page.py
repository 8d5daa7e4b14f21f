#!/usr/bin/env python3
"""Makes docs/results/README.md of the results files in docs/results/data.

    benchmarks/results_page.py            rewrite the page
    benchmarks/results_page.py --print    print what the page should be

To add or renew a measurement, let a benchmark write its file there (--json of train_speed.py and
vision_speed.py), give it a name, and run this. results_file.py has the format."""

import argparse
import json
import re
import textwrap
from pathlib import Path

from results_file import ROOT, SCHEMA, SECTIONS, markdown_lines

RESULTS = ROOT / "docs/results"
INTRODUCTION = """\
# Results

<!-- Made by benchmarks/results_page.py from docs/results/data. Do not edit. -->

This page has every measurement that Ridge reports, with its device, date, commit and command. A
script makes it from the files in [data](data): run `benchmarks/results_page.py` after adding one.

Sizes of the LLaMA: *tiny*, the default, is 256 wide with 4 layers; *readme* 512 wide with 8 layers
and 2,048 in the feed-forward; both train on 8 x 128 tokens. *Long* is readme with 512 tokens.
*Medium* is 1,024 wide, 12 layers, 16 and 8 heads, 4,096 in the feed-forward, 16 x 512 tokens.
*Large* is 2,048 wide, 16 layers, 16 and 8 heads, 8,192 in the feed-forward, 8 x 1,024 tokens.

A result that was measured "no later than" a date was copied from a page that no longer exists, and
that commit put it there: it holds for the code of that time. Its command is the one that the page
named or, where it named none, one that measures the same.
"""


class ResultsError(Exception):
    pass


def checked(path):
    """A results file; ResultsError if it has another form."""
    try:
        results = json.loads(path.read_text(encoding="utf-8"))
        if results["schema"] != SCHEMA:
            raise ResultsError(f"{path}: the schema is {results['schema']}, not {SCHEMA}")
        if results["section"] not in SECTIONS:
            raise ResultsError(f"{path}: there is no section {results['section']}; choose one of "
                               f"{', '.join(SECTIONS)}")
        measured = results["measured"]
        results["title"], measured["device"], measured["commit"]
        measured.get("date") or measured["no_later_than"]
        for table in results["tables"]:
            for row in table["rows"]:
                if len(row) != len(table["columns"]):
                    raise ResultsError(f"{path}: a row of {len(row)} cells in a table of "
                                       f"{len(table['columns'])} columns: {row}")
    except (KeyError, TypeError, json.JSONDecodeError) as error:
        raise ResultsError(f"{path} is no results file: {error!r}") from None
    return results


def wrapped(text):
    return textwrap.wrap(text, 100, break_long_words=False, break_on_hyphens=False)


def origin_lines(measured):
    when = measured.get("date") or f"no later than {measured['no_later_than']}"
    page = f", {measured['page']}" if "page" in measured else ""
    lines = wrapped(f"{measured['device']}. Measured {when} (commit {measured['commit']}{page}).")
    if "command" in measured:
        lines += ["", f"    {measured['command']}"]
    return lines


def lines_of(results):
    lines = [f"### {results['title']}", "", *origin_lines(results["measured"]), ""]
    for note in results.get("notes", []):
        lines += [*wrapped(note), ""]
    if "figure" in results:
        lines += [f"![{results['figure']['text']}]({results['figure']['file']})", ""]
    for table in results["tables"]:
        if "caption" in table:
            lines += [table["caption"], ""]
        lines += [*markdown_lines(table), ""]
    return lines


def anchor(title):
    """As GitHub makes it of a heading."""
    return re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")


def page():
    files = [checked(path) for path in sorted((RESULTS / "data").glob("*.json"))]
    files.sort(key=lambda results: results.get("order", 1000))
    lines = INTRODUCTION.split("\n")
    for section in SECTIONS:
        lines.append(f"- {section}")
        lines += [f"  - [{r['title']}](#{anchor(r['title'])})" for r in files
                  if r["section"] == section]
    for section in SECTIONS:
        lines += ["", f"## {section}", ""]
        for results in files:
            if results["section"] == section:
                lines += lines_of(results)
        lines.pop()
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--print", action="store_true", help="print the page, write nothing")
    arguments = parser.parse_args()
    try:
        text = page()
    except ResultsError as error:
        parser.exit(1, f"results_page.py: {error}\n")
    if arguments.print:
        print(text, end="")
    else:
        (RESULTS / "README.md").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
