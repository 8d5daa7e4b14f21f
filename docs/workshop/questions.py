#!/usr/bin/env python3
"""Makes questions.md: each question of the workshop, the command that answers it, and its answer.

    questions.py [--bin build/bin]   run the commands of tests/cli/questions_*.tsv, write the page
    questions.py --gpu               run those marked gpu, write their answers to questions_gpu.json
    questions.py --check             run nothing, fail if the page has other rows than the tables

The tables are those that tests/cli/questions_test.cpp reads, which says what their fields are. Commands
run at the small sizes of that test, and are shown at those of a learner. The part of what they print
that matches the row's regular expression is the answer. All commands of a table run in one new
directory. Rows that are marked gpu need a card: --gpu runs them there, at the sizes that are shown.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
PAGE = HERE / "questions.md"
GPU_ANSWERS = HERE / "questions_gpu.json"  # {"card": its name, "answers": {number: answer}}
LONGEST = 220  # characters of an answer

HEAD = """# The workshop's questions and their answers

What a learner asks in the workshop, and the command that answers it outright. A test runs each
command at a small size and finds the answer in what it prints. The answers below are of those small
sizes: at the sizes of the commands the figures are larger, and the lines the same. Answers that need a
GPU are of an {card}, at the sizes of the commands. This
page is written by [questions.py](questions.py) from the tables in [tests/cli](../../tests/cli). The
commands need the ceilings of the machine, which `ridge roofline` measures once.

"""


class Table:
    """The rows of one file: (number, mark, question, commands, answer), and its names."""

    def __init__(self, path):
        self.names, self.small, self.rows = {}, {}, []
        for line in path.read_text(encoding="utf-8").splitlines():
            if not line or line.startswith("#"):
                continue
            fields = line.split("\t")
            if line.startswith("@"):
                self.small[fields[0][1:]], self.names[fields[0][1:]] = fields[1:3]
            elif len(fields) != 5:
                sys.exit(f"{path}: not five fields: {line}")
            else:
                self.rows.append((int(fields[0]), *fields[1:]))

    def is_command(self, name):
        return " " in self.names[name] and not self.names[name].startswith("-")

    def expanded(self, text, names, shown=False):
        """With names replaced; those that stand for whole commands stay where it is shown."""
        def replace(match):
            name = match[1]
            return name if shown and self.is_command(name) else self.expanded(names[name], names, shown)
        return re.sub(r"\s+", " ", re.sub(r"\$([A-Z]+)", replace, text)).strip()


def tables():
    found = [Table(path) for path in sorted((ROOT / "tests" / "cli").glob("questions_*.tsv"))]
    return sorted(found, key=lambda table: table.rows[0][0])


def cell(text):
    return text.replace("|", "\\|").replace("\n", "<br>")


def answer_in(output, pattern, row):
    match = re.search(pattern, output)
    if not match:
        raise LookupError(f"{row}: nothing that is printed matches /{pattern}/:\n{output[-1000:]}")
    begin = output.rfind("\n", 0, match.start()) + 1
    end = output.find("\n", match.end())
    lines = [re.sub(r"\s+", " ", line).strip() for line in output[begin:end].split("\n")]
    lines = [line for line in lines if line.strip("-| ")]
    if len(lines) > 3:
        lines = [lines[0], "..", lines[-1]]
    return "\n".join(line if len(line) <= LONGEST else line[:LONGEST] + " .." for line in lines)


def names_text(table):
    rows = [(name, table.expanded(text, table.names)) for name, text in table.names.items()
            if table.is_command(name)]
    if not rows:
        return ""
    lines = [f"| {name} | `{cell(text)}` |" for name, text in rows]
    return "\n".join(["| Short | Command |", "| --- | --- |", *lines]) + "\n\n"


def row_text(table, row, answer):
    number, mark, question, commands, why = row
    if mark == "none":
        return f"| {number} | {cell(question)} | | {cell(why)} |"
    command = f"`{cell(table.expanded(commands, table.names, shown=True))}`"
    return f"| {number} | {cell(question)} | {command} | {answer} |"


class Runner:
    def __init__(self, programs, directory):
        self.directory, self.outputs = Path(directory) / "work", {}
        self.directory.mkdir()
        self.environment = dict(os.environ, XDG_CACHE_HOME=str(Path(directory) / "cache"),
                                PATH=f"{programs}{os.pathsep}{os.environ['PATH']}", COLUMNS="100",
                                LC_ALL="C.UTF-8")
        self.environment.pop("RIDGE_STORE", None)
        self.run("ridge roofline --seconds 0.1 --threads 1")

    def run(self, command):
        if command not in self.outputs:
            print(f"  {command}", flush=True)
            result = subprocess.run(command.split(), cwd=self.directory, env=self.environment,
                                    stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            if result.returncode == 2 or result.returncode < 0 or not result.stdout:
                sys.exit(f"questions.py: {command} ended with {result.returncode}: {result.stderr}")
            output = result.stdout.replace(self.environment["XDG_CACHE_HOME"], "~/.cache")
            self.outputs[command] = output.replace(str(self.directory), "~/workshop")
        return self.outputs[command]


def gpu_answers():
    answers = json.loads(GPU_ANSWERS.read_text(encoding="utf-8"))
    return answers["card"], {int(number): text for number, text in answers["answers"].items()}


def formatted(answer):
    return f"<code>{cell(answer)}</code>"


def write_gpu(programs):
    answers, missing = {}, []
    for table in tables():
        with tempfile.TemporaryDirectory() as directory:
            runner = Runner(programs, directory)
            for number, mark, _, commands, pattern in table.rows:
                if mark != "gpu":
                    continue
                for command in table.expanded(commands, table.names).split(" && "):
                    output = runner.run(command)
                try:
                    answers[number] = answer_in(output, pattern, number)
                except LookupError as error:
                    missing.append(str(error))
            doctor = runner.run("ridge doctor")
    if missing:
        sys.exit("questions.py: " + "\n".join(missing))
    card = re.search(r"Card 0 +(.*?),", doctor)[1]
    GPU_ANSWERS.write_text(json.dumps({"card": card, "answers": answers}, indent=1) + "\n",
                           encoding="utf-8")


def write(programs):
    card, of_gpu = gpu_answers()
    text, missing = HEAD.format(card=card), []
    for table in tables():
        text += names_text(table) + "| # | Question | Command | Answer |\n| ---: | --- | --- | --- |\n"
        with tempfile.TemporaryDirectory() as directory:
            runner = Runner(programs, directory)
            for row in table.rows:
                answer = formatted(of_gpu[row[0]]) if row[1] == "gpu" else ""
                if not row[1]:
                    for command in table.expanded(row[3], table.small).split(" && "):
                        output = runner.run(command)
                    try:
                        answer = formatted(answer_in(output, row[4], row[0]))
                    except LookupError as error:
                        missing.append(str(error))
                text += row_text(table, row, answer) + "\n"
        text += "\n"
    if missing:
        sys.exit("questions.py: " + "\n".join(missing))
    PAGE.write_text(text.rstrip("\n") + "\n", encoding="utf-8")


def check():
    page = PAGE.read_text(encoding="utf-8")
    missing = []
    for table in tables():
        if names_text(table) not in page:
            missing.append(names_text(table))
        for row in table.rows:
            begin = row_text(table, row, "\0").split("\0")[0]
            if begin not in page:
                missing.append(begin)
    if missing:
        sys.exit("questions.py: questions.md lacks these, run docs/workshop/questions.py:\n"
                 + "\n".join(missing))


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--bin", type=Path, default=ROOT / "build" / "bin", help="where ridge is")
    parser.add_argument("--gpu", action="store_true", help="answer what needs a GPU, here")
    parser.add_argument("--check", action="store_true", help="compare the page with the tables")
    arguments = parser.parse_args()
    if arguments.check:
        check()
    elif arguments.gpu:
        write_gpu(arguments.bin.resolve())
    else:
        write(arguments.bin.resolve())


if __name__ == "__main__":
    main()
