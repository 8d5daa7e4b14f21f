#!/usr/bin/env python3
"""Looks at `ridge dashboard` in a headless Chromium.

    dashboard_browser_test.py RIDGE_PROGRAM [unittest arguments]

Exits with 77, which CTest takes for "skipped", where there is no Chromium.
"""

import copy
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import tempfile
import unittest
import uuid

import chromium
from hostile import HOSTILE

PROGRAM = None
TINY = ["--hidden-dim", "16", "--n-layers", "1", "--n-heads", "2", "--n-kv-heads", "1", "--vocab-size",
        "32", "--intermediate-dim", "24", "--seq-len", "8", "--batch-size", "2", "--threads", "1"]


def made_run(base, number, **change):
    """A run like one that was kept, made at another time, with other figures."""
    run = copy.deepcopy(base)
    record, summary = run["record"], run["record"]["performance_summary"]
    run["uuid"] = str(uuid.UUID(int=(number + 1) << 64 | 1 << 127))
    run["tags"], run["study"] = change.get("tags", []), change.get("study", "")
    record["timestamp"] = f"2026-{1 + number // 28 % 12:02}-{1 + number % 28:02}T12:00:00Z"
    record["version"] = record["options"]["version"] = change.get("version", "v1")
    batch = change.get("batch", 2)
    record["training_params"]["batch_size"] = record["options"]["batch-size"] = batch
    summary["median_batch_time"] = change.get("seconds", 0.01)
    summary["samples_per_second"] = batch / summary["median_batch_time"]
    run["context"]["program"]["commit"] = change.get("commit", f"{number:040x}")
    return run


class DashboardTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.work = pathlib.Path(tempfile.mkdtemp(prefix="ridge-dashboard-"))
        cls.env = {k: v for k, v in os.environ.items() if k != "RIDGE_STORE"}
        cls.env["XDG_CACHE_HOME"] = str(cls.work / "cache")
        cls.ridge("train", "--num-steps", "12", "--store", "base.db", "--profile-operators",
                  "--profile-dir", "profile", *TINY)
        base = json.loads(cls.ridge("runs", "export", "-", "--store", "base.db"))
        cls.profile = base.pop("profile")
        cls.base = base
        runs = [made_run(base, i, seconds=(0.010 if i < 40 else 0.013) * (1 + 0.004 * (i % 3)),
                         tags=["nightly"] + (["baseline"] if i == 0 else [])) for i in range(80)]
        runs += [made_run(base, 100 + 4 * b + k, study="batch scaling", batch=b, version="v4",
                          seconds=0.002 + 0.001 * b) for b in (1, 2, 4, 8) for k in range(3)]
        cls.keep("runs.db", runs)
        cls.page = chromium.Page()
        cls.servers = {}

    @classmethod
    def tearDownClass(cls):
        cls.page.close()
        for server, _ in cls.servers.values():
            server.send_signal(signal.SIGINT)
            server.wait(20)
            server.stdout.close()
        shutil.rmtree(cls.work)

    @classmethod
    def ridge(cls, *arguments):
        return subprocess.run([PROGRAM, *arguments], check=True, env=cls.env, cwd=cls.work,
                              stdout=subprocess.PIPE, text=True).stdout

    @classmethod
    def keep(cls, store, runs):
        (cls.work / "runs.jsonl").write_text("\n".join(json.dumps(run) for run in runs))
        cls.ridge("runs", "import", "runs.jsonl", "--store", store)

    def setUp(self):
        self.page.set_size(1280, 900)
        self.page.set_dark(False)

    def tearDown(self):
        asked = "asked the network for http://127.0.0.1:"  # its own server, which is no complaint
        self.assertEqual([c for c in self.page.complaints if not c.startswith(asked)], [])
        self.page.complaints.clear()
        self.assertIsNone(self.page.run("window.pwned ?? null"))

    def server(self, store="runs.db"):
        """The address of a server of a store, which runs until the end."""
        if store not in self.servers:
            server = subprocess.Popen([PROGRAM, "dashboard", "--port", "0", "--store", store],
                                      env=self.env, cwd=self.work, stdout=subprocess.PIPE, text=True)
            url = re.search(r"http://\S+", server.stdout.readline()).group()
            self.servers[store] = server, url
        return self.servers[store][1]

    def open(self, place="", store="runs.db", url=None):
        self.page.open_url("about:blank")
        self.page.open_url((url or self.server(store)) + place)
        self.ready()

    def ready(self):
        self.page.settle()
        self.page.wait_for("document.getElementById('view').getAttribute('aria-busy') === 'false'")
        self.page.settle()

    def go(self, place):
        self.page.run(f"location.hash = {json.dumps(place)}; 0")
        self.ready()

    def texts(self, selector):
        return self.page.run(f"[...document.querySelectorAll({json.dumps(selector)})]"
                             ".map(element => element.textContent.replaceAll('\u00a0', ' '))")

    def count(self, selector):
        return self.page.run(f"document.querySelectorAll({json.dumps(selector)}).length")

    def column(self, name):
        heads = self.texts("table.runs th")
        return [row[heads.index(name)] for row in self.page.run(
            "[...document.querySelectorAll('table.runs tbody tr')].map(r => [...r.children]"
            ".map(c => c.textContent.replaceAll('\u00a0', ' ')))")]

    def hash(self):
        return self.page.run("location.hash")

    def press(self, key):
        codes = {"Enter": 13, "Escape": 27, "ArrowRight": 39}
        text = {"text": "\r" if key == "Enter" else key} if key == "Enter" or len(key) == 1 else {}
        for kind in ("keyDown", "keyUp"):
            self.page.send("Input.dispatchKeyEvent", type=kind, key=key,
                           windowsVirtualKeyCode=codes.get(key, ord(key.upper()[0])),
                           **(text if kind == "keyDown" else {}))
        self.page.settle()

    def test_lists_sorts_and_pages_runs(self):
        self.open()
        self.assertEqual(self.count("table.runs tbody tr"), 50)
        self.assertEqual(self.texts(".controls .count"), ["92 runs"])
        created = self.column("Created (UTC)")
        self.assertEqual(created, sorted(created, reverse=True))
        self.page.click("table.runs [data-column=median_seconds]")
        self.ready()
        self.assertEqual(self.column("Step")[0], "13.1 ms")
        self.page.click("table.runs [data-column=median_seconds]")
        self.ready()
        self.assertEqual(self.column("Step")[0], "3.00 ms")
        self.assertIn("direction=ascending", self.hash())
        self.page.click(".pages button:last-child")
        self.ready()
        self.assertEqual(self.count("table.runs tbody tr"), 42)
        self.page.run("history.back()")
        self.page.wait_for("document.querySelectorAll('table.runs tbody tr').length === 50")

    def test_filters_and_searches(self):
        self.open()
        self.page.click("#filter")
        self.page.type("version=v4 and batch_size>=4")
        self.press("Enter")
        self.ready()
        self.assertEqual(self.texts(".controls .count"), ["6 runs"])
        self.assertIn("filter=version", self.hash())
        self.page.run("document.getElementById('filter').select()")
        self.page.type("version=")
        self.press("Enter")
        self.page.wait_for("document.querySelector('.fault').textContent.includes('filter')")
        # The refused question is the server's 400, of which the browser tells on its console.
        self.page.complaints[:] = [c for c in self.page.complaints if "status of 400" not in c]
        self.open("#runs?search=baseline")
        self.assertEqual(self.texts(".controls .count"), ["1 run"])
        self.open("#runs?search=it%27s")
        self.assertEqual(self.texts(".controls .count"), ["0 runs"])

    def test_chooses_columns(self):
        self.open()
        self.page.click(".chooser summary")
        self.page.click(".chooser [data-column=gpu]")
        self.ready()
        self.assertIn("GPU", self.texts("table.runs th"))
        self.page.click(".chooser [data-column=workload]")
        self.ready()
        self.assertNotIn("Workload", self.texts("table.runs th"))

    def test_shows_a_run(self):
        self.open("#run?run=baseline")
        self.assertEqual(self.texts("#title"), ["Run 1"])
        titles = self.texts("section > h2")
        for title in ("Step times", "Loss", "Operators", "Options", "Machine and program", "Record"):
            self.assertIn(title, titles)
        self.assertIn("10.0", self.texts(".card .value")[0])
        self.assertEqual(self.count("#steps svg g rect"), 4 * 12)
        operators = self.base["context"]["operators"]["rows"]
        self.assertEqual(self.count("#operators tbody tr"), len(operators))
        self.page.hover("#loss svg", 0.5, 0.5)
        for _ in range(3):
            self.page.run("document.querySelector('#loss .chart').focus()")
            self.press("ArrowRight")
        self.assertIn("Step", self.texts("#tooltip")[0])
        self.assertIn("oneDNN", self.texts("#machine")[0])

    def test_compares_runs(self):
        self.open("#runs?filter=batch_size%3D8")
        for row in (1, 2):
            self.page.click(f"table.runs tbody tr:nth-child({row}) input")
        self.page.click(".action")
        self.ready()
        self.assertTrue(self.hash().startswith("#compare?runs="))
        self.open("#compare?runs=1,92")
        self.assertIn("version", self.texts("#differences tbody th"))
        self.assertIn("batch-size", self.texts("#differences tbody th"))
        self.assertIn("1.000×", "".join(self.texts("#metrics td")))
        self.assertEqual(self.count("#distribution svg path.curve"), 2)
        self.assertEqual(self.count("#losses svg path.curve"), 2)
        self.assertGreater(self.count("#operators tbody tr"), 5)

    def test_marks_changes_of_a_trend(self):
        self.open("#trends?filter=version%3Dv1")
        self.assertEqual(self.count("svg line.change"), 1)
        cells = self.texts("#trend table td")
        self.assertRegex(cells[0], r"^\+(29|30)\.\d %$")
        self.assertIn("Run 40", cells[2])
        self.assertIn("Run 41", cells[3])
        line = self.page.run("(() => { const b = document.querySelector('line.change')"
                             ".getBoundingClientRect(); return [b.left, b.top + b.height / 2]; })()")
        self.page.mouse("mouseMoved", *line)
        self.page.settle()
        self.assertIn("first commit after", self.texts("#tooltip")[0])

    def test_shows_a_study(self):
        self.open("#studies")
        self.page.click("#studies tbody a")
        self.ready()
        self.assertEqual(self.count("#variants tbody tr"), 4)
        self.assertIn("batch-size 8", self.texts("#variants tbody a"))
        self.assertIn("2 + 1 x", self.texts("#laws code"))
        self.assertGreater(self.count("#answers dt"), 0)
        self.page.click("#laws [data-value=log]")
        self.ready()
        self.assertIn("axes=log", self.hash())
        curves = self.count("#laws svg path.curve")
        self.page.run("(() => { const select = document.querySelector('#laws select');"
                      "select.value = 'Peak memory by batch-size';"
                      "select.dispatchEvent(new Event('change')); })()")
        self.ready()
        self.assertIn("law=Peak", self.hash())
        self.assertGreater(curves, 1)  # the law, and the spread of each point

    def test_embeds_the_report_of_a_profile(self):
        document = json.loads(json.dumps(self.profile).replace("matmul", HOSTILE[1] + "matmul")
                              .replace("linear", HOSTILE[0] + "linear"))
        runs = [made_run(self.base, i) for i in range(2)]
        runs[0]["profile"], runs[1]["record"]["options"]["seed"] = document, 7
        self.keep("profiled.db", runs)
        self.open("#run?run=2", store="profiled.db")
        self.assertEqual(self.count("iframe"), 0)
        self.open("#run?run=1", store="profiled.db")
        self.page.box("iframe.report")  # which scrolls to it
        self.page.wait_for("performance.getEntriesByType('resource')"
                           ".some(entry => entry.name.endsWith('/profile?run=1'))")
        href = self.page.run("document.querySelector('#report a').href")
        self.assertEqual(self.page.run("document.querySelector('iframe').sandbox.value"), "allow-scripts")
        self.page.open_url(href)  # alone, it is a page of nobody
        self.assertIn("Run 1", self.texts("#title")[0])
        self.assertGreater(self.count("#operators tbody tr"), 5)
        self.assertEqual(self.page.run("window.origin"), "null")
        self.assertEqual(self.page.run(f"fetch('{self.server('profiled.db')}api/runs')"
                                       ".then(() => 'answered', () => 'refused')"), "refused")
        self.page.complaints[:] = [c for c in self.page.complaints if "Content Security Policy" not in c]
        self.ridge("dashboard", "--store", "profiled.db", "--export", "with reports")
        url = "file://" + str(self.work / "with reports" / "index.html")
        self.open("#run?run=2", url=url)
        self.assertEqual(self.count("iframe"), 0)
        self.open("#run?run=1", url=url)
        self.page.box("iframe.report")  # its policy lets the page show it, or the browser complains
        self.page.open_url(self.page.run("document.querySelector('#report a').href"))
        self.assertGreater(self.count("#operators tbody tr"), 5)

    def test_follows_a_run_in_progress(self):
        self.open("#live")
        self.page.wait_for("document.querySelector('[data-ready]') !== null")
        self.assertFalse(self.page.run("document.getElementById('idle').hidden"))

        def start(steps):
            return subprocess.Popen([PROGRAM, "train", "--num-steps", steps, "--store", "runs.db",
                                     *TINY], env=self.env, cwd=self.work, stdout=subprocess.DEVNULL)
        run = start("1000000")
        self.page.wait_for("document.querySelectorAll('.live svg').length === 2")
        before = self.texts(".live .value")[0]
        self.page.wait_for(f"document.querySelector('.live .value').textContent !== {json.dumps(before)}")
        self.assertIn("Running", self.texts(".live .state")[0])
        run.kill()
        run.wait()
        self.page.wait_for("document.querySelector('.live').dataset.state === 'died'")
        run = start("1000000")
        self.page.wait_for("document.querySelectorAll('.live').length === 2")
        self.page.wait_for("document.querySelector('.live').dataset.state === 'running'")
        run.send_signal(signal.SIGINT)
        run.wait()
        self.page.wait_for("document.querySelector('.live').dataset.state === 'ended'")
        self.assertIn("interrupted", self.texts(".live .state")[0])
        self.assertTrue(self.texts(".live .state a")[0].startswith("Run "))
        self.ridge("runs", "prune", "--store", "runs.db", "--filter", "outcome=interrupted", "--yes")
        shutil.rmtree(self.work / "runs.db-live", ignore_errors=True)

    def test_is_used_by_keyboard(self):
        self.open()
        self.press("j")
        self.press("j")
        second = self.column("Run")[1]
        self.assertEqual(self.page.run("document.activeElement.dataset.run"), second)
        self.press("k")
        self.press("x")
        self.press("j")
        self.press("x")
        self.assertEqual(self.texts(".action"), ["Compare 2"])
        self.press("Enter")
        self.ready()
        self.assertEqual(self.hash(), f"#run?run={second}")
        self.press("Escape")
        self.page.wait_for("location.hash.startsWith('#runs') || location.hash === ''")
        self.ready()
        self.press("/")
        self.assertEqual(self.page.run("document.activeElement.id"), "filter")
        self.press("?")
        self.assertFalse(self.page.run("document.getElementById('help').open"))
        self.page.run("document.activeElement.value = ''")
        self.press("Escape")
        self.press("?")
        self.assertTrue(self.page.run("document.getElementById('help').open"))
        self.press("Escape")
        self.assertFalse(self.page.run("document.getElementById('help').open"))
        self.press("2")
        self.ready()
        self.assertEqual(self.hash(), "#trends")

    def test_fits_a_narrow_window_the_dark_and_paper(self):
        for place in ("#runs", "#run?run=1", "#compare?runs=1,92,3,4", "#trends", "#studies",
                      "#studies?study=batch+scaling", "#live"):
            self.page.set_size(360, 800)
            self.page.set_dark(True)
            self.open(place)
            self.assertEqual(self.page.run("document.documentElement.scrollWidth"), 360, place)
            dark = self.page.run("getComputedStyle(document.body).backgroundColor")
            self.page.click("#theme")
            self.assertNotEqual(self.page.run("getComputedStyle(document.body).backgroundColor"), dark)
        self.open("#run?run=1")
        self.assertGreater(len(self.page.send("Page.printToPDF")["data"]), 20_000)

    def hostile_store(self):
        runs = []
        for i in range(200):
            name = HOSTILE[i % len(HOSTILE)] + ("" if i < len(HOSTILE) else f" {i}")
            run = made_run(self.base, i, tags=[name[:1000]], study=name, commit=name, version=name)
            record, context = run["record"], run["context"]
            record["workload"] = record["title"] = record["options"]["network"] = name
            record["options"][name] = name
            record["system_info"].update(host=name, os=name, cpu=name, device=name)
            record["training_params"].update(mode=name, dtype=name)
            context["machine"].update(cpu=name, gpu=name, gpu_uuid=name, driver=name,
                                      libraries={name: name})
            context["program"].update(compiler=name, binary=name)
            for row in context["operators"]["rows"]:
                row["name"] = name + row["name"]
            context["ceilings"] = {"levels": [{"level": name, "bytes_per_second": 1e9}]}
            record["performance_summary"].update(outcome=name)
            runs.append(run)
        if not (self.work / "hostile.db").exists():
            self.keep("hostile.db", runs)
        live = self.work / "hostile.db-live"
        live.mkdir(exist_ok=True)
        for i, name in enumerate(HOSTILE):
            key = str(uuid.UUID(int=i + 1 | 1 << 127))
            (live / f"{key}.json").write_text(json.dumps(
                {"schema": "ridge-live-1", "uuid": key, "step": [name], "loss": name, "last": name,
                 "about": {"workload": name, "hardware": name, "tags": [name], "mode": {"a": name}}}))
        return "hostile.db"

    def check_hostile(self, url):
        cols = "id,workload,mode,version,dtype,device,cpu,gpu,commit,study,outcome,driver,tags"
        self.open(f"#runs?cols={cols}&direction=ascending&sort=id", url=url)
        self.assertIn(HOSTILE[0], self.column("Workload"))
        for place in ("#run?run=1", "#run?run=2", "#run?run=7", "#compare?runs=1,2,3", "#trends",
                      "#studies", "#live"):
            self.open(place, url=url)
            self.page.run("for (const d of document.querySelectorAll('details')) d.open = true")
            if self.count(".chart svg"):
                self.page.hover(".chart svg", 0.5, 0.5)
            self.assertEqual(self.count("img, iframe, script:not([src]):not([id]):not(:last-of-type)"), 0)
            self.assertEqual(self.page.run("document.documentElement.scrollWidth"), 1280, place)
            self.assertIsNone(self.page.run("window.pwned ?? null"))
        self.open("#studies", url=url)
        self.page.click("#studies tbody tr:nth-child(3) a")
        self.ready()
        self.assertGreater(self.count("#variants tbody tr"), 0)

    def test_is_not_fooled_by_hostile_names(self):
        self.check_hostile(self.server(self.hostile_store()))

    def test_is_not_fooled_in_a_file(self):
        self.ridge("dashboard", "--store", self.hostile_store(), "--export", "hostile page")
        self.check_hostile("file://" + str(self.work / "hostile page" / "index.html"))

    def test_works_as_a_file(self):
        url = "file://" + str(self.work / "public" / "index.html")
        self.ridge("dashboard", "--store", "runs.db", "--export", "public", "--limit", "90")
        self.open(url=url)
        self.assertEqual(self.texts("#contents a"), ["Runs", "Trends", "Studies"])
        self.assertEqual(self.texts(".controls .count"), ["90 runs"])
        self.assertIn("newest 90 of 92", self.texts("#made")[0])
        self.page.click("table.runs [data-column=median_seconds]")
        self.ready()
        self.assertEqual(self.column("Step")[0], "13.1 ms")
        for place, selector in (("#run?run=92", "#operators tbody tr"), ("#trends", "svg line.change"),
                                ("#studies?study=batch+scaling", "#laws svg path.curve")):
            self.open(place, url=url)
            self.assertGreater(self.count(selector), 0, place)

    def test_compares_in_a_file_as_the_server_does(self):
        self.ridge("dashboard", "--store", "runs.db", "--export", "all")
        pages = []
        for url in (self.server(), "file://" + str(self.work / "all" / "index.html")):
            self.open("#compare?runs=1,92,50", url=url)
            pages.append([self.texts(f"#{part}") for part in ("what", "metrics", "differences",
                                                              "operators")]
                         + [self.page.run("[...document.querySelectorAll('path.curve')]"
                                          ".map(p => p.getAttribute('d'))")])
        self.assertEqual(*pages)

    def test_says_that_the_server_is_gone(self):
        self.keep("gone.db", [made_run(self.base, 1)])
        self.open(store="gone.db")
        server, _ = self.servers.pop("gone.db")
        server.send_signal(signal.SIGINT)
        self.assertEqual(server.wait(20), 0)
        server.stdout.close()
        self.page.run("location.hash = '#runs?filter=version%3Dv1'; 0")
        self.page.wait_for("document.querySelector('.fault').textContent.includes('still running')")
        self.page.complaints.clear()  # of the browser, that it got no answer


if __name__ == "__main__":
    PROGRAM = chromium.program_to_test(__doc__)
    unittest.main(verbosity=2)
