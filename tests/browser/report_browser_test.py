#!/usr/bin/env python3
"""Looks at pages of `ridge report` in a headless Chromium.

    report_browser_test.py RIDGE_PROGRAM [unittest arguments]

Exits with 77, which CTest takes for "skipped", where there is no Chromium.
"""

import json
import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import unittest

import chromium
from hostile import HOSTILE

PROGRAM = None


def processor():
    """The name under which the machine's ceilings are found."""
    for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return "CPU"


MACHINE = {
    "format": "ridge machine ceilings", "measured_at": "2026-01-01T00:00:00Z", "host": "h",
    "hardware": processor(), "threads": 64,
    "compute": [{"instructions": "AVX2", "dtype": "f32", "one_core_flops_per_second": 1e11,
                 "all_cores_flops_per_second": 4e11}],
    "bandwidth": [{"level": level, "bytes": size, "cores_sharing": 1,
                   "one_core_bytes_per_second": rate, "all_cores_bytes_per_second": 2 * rate}
                  for level, size, rate in (("L1", 32768, 1e11), ("memory", 0, 1e10))]}

def value_of(figure):
    """1320 of "1.32 kB", for comparing cells."""
    match = re.match(r"([\d.,]+)\s*([nµmkMGT]?)(s|B|FLOP|$|B/s|FLOP/s|×|%)", figure)
    if not match:
        return 0.0  # a dash
    scale = {"n": 1e-9, "µ": 1e-6, "m": 1e-3, "": 1, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}
    return float(f"{float(match[1].replace(',', '')) * scale[match[2]]:.6g}")


class ReportTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.work = pathlib.Path(tempfile.mkdtemp(prefix="ridge-report-"))
        (cls.work / "cache/ridge").mkdir(parents=True)
        (cls.work / "cache/ridge/machine.json").write_text(json.dumps(MACHINE))
        cls.env = {**os.environ, "XDG_CACHE_HOME": str(cls.work / "cache")}
        cls.profile = cls.work / "profile"
        cls.train("--enable-all-profiling", "--profile-dir", str(cls.profile))
        cls.page = chromium.Page()

    @classmethod
    def tearDownClass(cls):
        cls.page.close()
        shutil.rmtree(cls.work)

    @classmethod
    def train(cls, *arguments):
        command = [pathlib.Path(PROGRAM).parent / "tiny_llama_v1", "--hidden-dim", "32",
                   "--n-layers", "2", "--n-heads", "4", "--n-kv-heads", "2", "--vocab-size", "80",
                   "--intermediate-dim", "48", "--seq-len", "16", "--batch-size", "2",
                   "--num-steps", "8", "--threads", "2", "--output-dir", cls.work / "output"]
        subprocess.run([*command, *arguments], check=True, env=cls.env, cwd=cls.work,
                       stdout=subprocess.DEVNULL)

    def report(self, profile, *arguments, **window):
        """Draws a profile and opens the page."""
        output = self.work / "report.html"
        subprocess.run([PROGRAM, "report", profile, "--output", output, *arguments], check=True,
                       env=self.env, cwd=self.work, stdout=subprocess.DEVNULL)
        self.page.complaints.clear()
        self.page.set_size(window.get("width", 1280), 900)
        self.page.set_dark(window.get("dark", False))
        self.page.mouse("mouseMoved", 1, 1)
        self.page.open(output)

    def tearDown(self):
        self.assertEqual(self.page.complaints, [])
        self.assertIsNone(self.page.run("window.pwned ?? null"))

    def read(self, name):
        return json.loads((self.profile / name).read_text())

    def changed_copy(self, name):
        """A copy of the profile, to be spoilt."""
        copy = self.work / name
        shutil.copytree(self.profile, copy)
        return copy

    def column(self, number):
        return self.page.run("[...document.querySelectorAll('#operators tbody tr')]"
                             f".map(row => row.children[{number}].textContent)")

    def texts(self, selector):
        return self.page.run(f"[...document.querySelectorAll({json.dumps(selector)})]"
                             ".map(element => element.textContent)")

    def tooltip(self):
        return self.page.run("document.getElementById('tooltip').hidden ? null : "
                             "document.getElementById('tooltip').textContent")

    def test_has_every_section(self):
        self.report(self.profile)
        titles = ["Findings", "Step times", "Operators", "Modules", "Memory", "System", "Roofline",
                  "Units", "Environment"]
        self.assertEqual([t for t in self.texts("section > h2") if t in titles], titles)
        self.assertEqual(self.texts("#contents a"), ["Summary", *titles])
        self.assertEqual(self.page.run("document.querySelectorAll('.missing').length"), 0)
        summary = self.read("performance_summary.json")["performance_summary"]
        self.assertIn(f"{summary['final_loss']:.4f}", "".join(self.texts(".card .value")))
        self.assertEqual(self.page.run(
            "document.querySelectorAll('#steps svg g rect').length"), 4 * 8)
        findings = self.read("bottlenecks.json")["findings"]
        self.assertEqual(self.texts("#findings h3")[:len(findings)], [f["name"] for f in findings])

    def test_speaks_of_its_workload(self):
        self.report(self.profile)
        subtitle = self.texts("#subtitle")[0]
        self.assertIn("Tiny LLaMA v1, ", subtitle)
        self.assertIn("training, batch 2 × 16 tokens, fp32", subtitle)
        throughput = self.texts(".cards .card:nth-child(2)")[0]
        self.assertIn("samples/s", throughput)
        self.assertIn("tokens/s", throughput)
        network = self.work / "network"
        subprocess.run([PROGRAM, "bench", "--network", "squeezenet1_1", "--image-size", "32",
                        "--batch-size", "2", "--iterations", "8", "--threads", "2",
                        "--enable-all-profiling", "--profile-dir", network], check=True,
                       env=self.env, cwd=self.work, stdout=subprocess.DEVNULL)
        self.report(network)
        self.assertIn("squeezenet1_1 none, ", self.texts("#subtitle")[0])
        self.assertIn("inference, batch 2 images, fp32", self.texts("#subtitle")[0])
        self.assertIn("samples/s", self.texts(".cards .card:nth-child(2)")[0])
        words = self.page.run("document.querySelector('main').innerText")
        self.assertIn("ridge bench --config", words)
        # The program printed 8 iterations, from 0; the last four were recorded.
        self.assertIn("steps 4 to 7 recorded", self.texts("#subtitle")[0])
        self.assertIn("at step 7", "".join(self.texts(".card .note")))
        ticks = self.texts("#steps .axis .tick text")
        self.assertIn("7", ticks)
        self.assertNotIn("13", ticks)
        for foreign in ("LLaMA", "token", "sequence"):
            self.assertNotIn(foreign, words)
        self.assertEqual(self.page.run("document.querySelectorAll('.missing').length"), 0)

    def test_sorts_the_table(self):
        self.report(self.profile)
        heads = self.texts("#operators th")
        operators = self.read("operators.json")["rows"]
        self.assertEqual(len(self.column(0)), len(operators))
        self.assertEqual(self.page.run(
            "document.querySelector('#operators th[aria-sort]').textContent"), "Time")
        for number, head in enumerate(heads):
            key = (lambda text: text) if number == 0 else value_of
            button = f"#operators th:nth-child({number + 1}) button"
            orders = []
            for _ in range(2):
                self.page.click(button)
                orders.append(self.page.run(
                    f"document.querySelector({json.dumps(button)}).parentNode.ariaSort"))
                cells = [key(cell) for cell in self.column(number)]
                down = orders[-1] == "descending"
                self.assertEqual(cells, sorted(cells, reverse=down), head)
            self.assertEqual(set(orders), {"ascending", "descending"}, head)
        calls = {row["name"]: row["total"]["calls"] for row in operators}
        shown = {name: int(value_of(cell)) for name, cell in zip(self.column(0), self.column(3))}
        self.assertEqual(shown, calls)

    def test_sorts_by_keyboard(self):
        self.report(self.profile)
        self.page.run("document.querySelector('#operators [data-column=calls]').focus()")
        self.page.key("Enter")
        calls = [value_of(cell) for cell in self.column(3)]
        self.assertEqual(calls, sorted(calls, reverse=True))

    def test_searches_and_groups_the_table(self):
        self.report(self.profile)
        self.page.click("#operators [data-value=node]")
        nodes = self.read("nodes.json")["nodes"]
        self.assertIn(f"{len(nodes)} rows", "".join(self.texts("#operators .count")))
        self.assertEqual(len(self.column(0)), 100)
        self.page.click("#operators .more")
        self.assertEqual(len(self.column(0)), len(nodes))
        self.page.click("#operators input")
        self.page.type("LAYERS.1 softmax")
        wanted = [n for n in nodes if "layers.1" in n["name"] and "softmax" in n["name"]]
        self.assertGreater(len(wanted), 0)
        self.assertEqual(set(self.column(0)), {f"#{n['node']} {n['name']}" for n in wanted})
        self.page.type(" nowhere")
        self.assertEqual(self.column(0), [])

    def test_hovers_the_timeline(self):
        self.report(self.profile)
        self.page.hover("#memory .chart", 0.31, 0.6)
        time = float(self.page.run("document.querySelector('#memory .cross').dataset.time"))
        timeline = self.read("memory_timeline.json")
        allocations, text = timeline["allocations"], self.tooltip()
        self.assertIn("alive", text)
        names = [re.sub(r" \S*\[.*| $", "", row) for row in self.texts(
            "#tooltip .rows:last-child span:nth-child(odd)")
            if row.strip()]
        self.assertEqual(len(names), 8)
        alive = [(allocations["bytes"][i], allocations["tensors"][t]["name"])
                 for i, t in enumerate(allocations["tensor"])
                 if allocations["begin_ns"][i] <= time < allocations["end_ns"][i]]
        largest = sorted((size for size, _ in alive), reverse=True)[:8]
        self.assertEqual([value_of(f) for f in self.texts(
            "#tooltip .rows:last-child > span:nth-child(even)")],
            [float(f"{size:.3g}") for size in largest])
        for size, name in alive:
            if size > largest[-1]:
                self.assertIn(name, names)
        self.assertLessEqual(set(names), {name for _, name in alive})
        self.page.mouse("mouseMoved", 2, 2)
        self.page.settle()
        self.assertIsNone(self.tooltip())

    def test_walks_the_timeline_by_keyboard(self):
        self.report(self.profile)
        self.page.run("document.querySelector('#memory .chart').focus()")
        times = []
        for _ in range(3):
            self.page.key("ArrowRight")
            times.append(float(self.page.run(
                "document.querySelector('#memory .cross').dataset.time")))
            self.assertIn("alive", self.tooltip())
        self.assertEqual(times, self.read("memory_timeline.json")["time_ns"][:3])

    def test_shows_one_step_of_the_timeline(self):
        self.report(self.profile)
        before = self.page.run("document.querySelector('#memory path.group').getAttribute('d')")
        self.page.run("(() => { const s = document.querySelector('#memory select'); s.value = '1';"
                      "s.dispatchEvent(new Event('change')); })()")
        after = self.page.run("document.querySelector('#memory path.group').getAttribute('d')")
        self.assertNotEqual(before, after)
        self.assertEqual(len(self.texts("#memory select option")),
                         1 + len(self.read("memory_timeline.json")["steps"]))

    def cells(self):
        return self.page.run("Object.fromEntries([...document.querySelectorAll('.icicle button')]"
                             ".map(c => [c.dataset.path, [+c.dataset.value, c.offsetHeight]]))")

    def test_switches_the_measure_of_the_icicle(self):
        self.report(self.profile)
        modules = self.read("modules.json")["modules"]
        peak = self.read("memory.json")["peak"]["bytes_by_module"]
        time = self.cells()
        self.page.click("#modules [data-value=flops]")
        flops = self.cells()
        self.page.click("#modules [data-value=memory]")
        memory = self.cells()
        for module in modules:
            path, work = module["path"], module["total"]["all"]
            if path in flops:
                self.assertEqual(flops[path][0], work["flops"], path)
            if path in time:
                self.assertAlmostEqual(time[path][0], work["time_ns"] * 1e-9, 12, path)
        self.assertIn("layers.0", flops)
        self.assertNotEqual({p: v[0] for p, v in time.items()}, {p: v[0] for p, v in flops.items()})
        self.assertEqual(memory[""][0], self.read("memory.json")["peak_bytes"])
        layer = sum(size for path, size in peak.items() if path.startswith("layers.0"))
        self.assertEqual(memory["layers.0"][0], layer)

    def test_zooms_the_icicle(self):
        self.report(self.profile)
        height = self.cells()[""][1]
        self.page.click(".icicle [data-path='layers.1']")
        self.page.wait_for("document.querySelector(`.icicle [data-path='layers.1']`)"
                           f".offsetHeight >= {height - 1}")
        self.assertEqual([t for t in self.texts(".crumbs button")], ["(model)", "layers", "1"])
        self.assertTrue(all(path.startswith("layers.1") for path in self.cells()))
        self.page.click(".crumbs button:first-child")
        self.assertIn("output", self.cells())
        self.page.hover(".icicle [data-path='output']")
        self.assertIn("parameters", self.tooltip())

    def test_names_points_of_the_roofline(self):
        self.report(self.profile)
        points = self.page.run("document.querySelectorAll('#roofline .point').length")
        rows = self.read("operators.json")["rows"]
        self.assertEqual(points, sum(row["total"]["flops"] > 0 for row in rows))
        self.page.hover("#roofline .point")
        self.assertIn("intensity", self.tooltip())
        self.assertGreaterEqual(
            self.page.run("document.querySelectorAll('#roofline .ceiling').length"), 3)

    def test_toggles_the_theme(self):
        def look():
            return self.page.run("[document.documentElement.dataset.theme, "
                                 "getComputedStyle(document.body).backgroundColor]")
        self.report(self.profile)
        light = look()
        self.page.click("#theme")
        dark = look()
        self.assertEqual((light[0], dark[0]), ("light", "dark"))
        self.assertNotEqual(light[1], dark[1])
        self.page.click("#theme")
        self.assertEqual(look(), light)
        self.report(self.profile, dark=True)
        self.assertEqual(look(), dark)

    def test_fits_a_narrow_window_and_paper(self):
        self.report(self.profile, width=400)
        self.assertEqual(self.page.run("document.documentElement.scrollWidth"), 400)
        self.assertGreater(len(self.page.send("Page.printToPDF")["data"]), 20_000)

    def test_stays_usable_with_many_operators(self):
        profile = self.changed_copy("many")
        nodes = json.loads((profile / "nodes.json").read_text())
        nodes["nodes"] = [{**nodes["nodes"][i % len(nodes["nodes"])], "operator": f"op_{i % 1500}",
                           "time_ns": 1000 + i} for i in range(6000)]
        (profile / "nodes.json").write_text(json.dumps(nodes))
        self.report(profile)
        self.assertIn("1,500 rows", "".join(self.texts("#operators .count")))
        self.assertEqual(len(self.column(0)), 100)
        for rows in (600, 1100, 1500):
            self.page.click("#operators .more")
            self.assertEqual(len(self.column(0)), rows)
        self.assertTrue(self.page.run("document.querySelector('#operators .more').hidden"))
        self.page.click("#operators th:first-child button")
        names = self.column(0)
        self.assertEqual(names, sorted(names, reverse=names[0] > names[-1]))

    def test_is_not_fooled_by_hostile_names(self):
        profile = self.changed_copy('p"><script>window.pwned=4<')

        def spoil(name, change):
            data = json.loads((profile / name).read_text())
            change(data, lambda i: HOSTILE[i % len(HOSTILE)])
            (profile / name).write_text(json.dumps(data))

        def nodes(data, hostile):
            for i, node in enumerate(data["nodes"]):
                node.update(name=hostile(i), operator=hostile(i), shape=hostile(i),
                            module=hostile(i), phase=hostile(i))

        def modules(data, hostile):
            for i, module in enumerate(data["modules"]):
                module.update(name=hostile(i), path=hostile(i))

        def timeline(data, hostile):
            for i, tensor in enumerate(data["allocations"]["tensors"]):
                tensor.update(name=hostile(i), type=hostile(i + 1), group=hostile(i + 2))

        def findings(data, hostile):
            for i, finding in enumerate(data["findings"]):
                finding.update(name=hostile(i), text=hostile(i))
            for i, part in enumerate(data["parts"]):
                part.update(name=hostile(i))
            data["notes"] = HOSTILE
            data["roof"]["levels"][0]["level"] = HOSTILE[0]
            data["questions"] = [{"question": h, "answer": h} for h in HOSTILE]

        def summary(data, hostile):
            for i, key in enumerate(("cpu", "host", "os", "compiler", "ridge_version")):
                data["system_info"][key] = hostile(i)
            data["version"] = data["timestamp"] = HOSTILE[1]

        def memory(data, hostile):
            data["peak"].update(phase=hostile(0), allocated=hostile(1))

        for name, change in (("nodes.json", nodes), ("modules.json", modules),
                             ("memory_timeline.json", timeline), ("bottlenecks.json", findings),
                             ("performance_summary.json", summary), ("memory.json", memory)):
            spoil(name, change)
        spoil("config.json", lambda data, hostile: data.update({h: h for h in HOSTILE}))
        self.report(profile)
        self.assertEqual(len(self.column(0)), len(HOSTILE))
        self.assertIn(HOSTILE[0], self.column(0))
        for grouping in ("shape", "module", "phase", "node"):
            self.page.click(f"#operators [data-value={grouping}]")
        self.page.hover("#memory .chart", 0.4, 0.6)
        self.assertIn("alive", self.tooltip())
        self.page.hover("#roofline .point")
        self.page.hover(".icicle button:nth-child(3)")
        self.page.click("#modules [data-value=flops]")
        self.page.click(".icicle button:nth-child(2)")
        self.assertEqual(self.page.run("document.images.length"), 0)
        self.assertEqual(self.page.run("document.documentElement.scrollWidth"), 1280)
        self.page.set_size(400, 900)
        self.page.settle()
        self.assertEqual(self.page.run("document.documentElement.scrollWidth"), 400)

    def test_says_what_is_missing(self):
        profile = self.changed_copy("bare")
        for name in ("bottlenecks", "nodes", "modules", "memory", "memory_timeline", "config",
                     "performance_summary"):
            (profile / f"{name}.json").unlink()
        machine = self.work / "cache/ridge/machine.json"
        self.env = {**self.env, "XDG_CACHE_HOME": str(self.work / "empty")}
        self.report(profile)
        said = "".join(self.texts(".missing"))
        self.assertIn("ridge roofline", said)
        self.assertIn("modules.json", said)
        self.assertEqual(len(self.texts(".missing")), 5)
        rows = self.read("operators.json")["rows"]
        self.assertEqual(len(self.column(0)), len(rows))
        self.report(profile, "--machine", machine)
        self.assertNotIn("ridge roofline", "".join(self.texts("#roofline .missing")))

    def test_draws_a_profile_of_memory_alone(self):
        profile = self.work / "memory"
        self.train("--profile-memory", "--profile-dir", str(profile))
        self.report(profile)
        self.assertEqual(self.page.run("document.querySelectorAll('.missing').length"), 0)
        self.assertGreater(self.page.run("document.querySelectorAll('#memory path.group').length"), 3)


if __name__ == "__main__":
    PROGRAM = chromium.program_to_test(__doc__)
    unittest.main(verbosity=2)
