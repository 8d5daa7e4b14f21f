#!/usr/bin/env python3
"""Looks at pages of `ridge trace report --html` in a headless Chromium.

    trace_browser_test.py RIDGE_PROGRAM [unittest arguments]

Exits with 77, which CTest takes for "skipped", where there is no Chromium.
"""

import json
import pathlib
import shutil
import subprocess
import tempfile
import time
import unittest

import chromium
from hostile import HOSTILE

PROGRAM = None
HERE = pathlib.Path(__file__).resolve().parent


def slice_of(category, name, begin, duration, process=100, thread=100, **args):
    return {"ph": "X", "cat": category, "name": name, "pid": process, "tid": thread, "ts": begin,
            "dur": duration, "args": args}


def launched(number, name, begin, duration, stream=7, category="kernel"):
    """A kernel, what launched it and the operator around that."""
    return [slice_of("cpu_op", f"aten::op{number % 50}", begin - 8, 6, **{"Input Dims": [[number % 7, 4]]}),
            slice_of("cuda_runtime", "cudaLaunchKernel", begin - 7, 3, correlation=number + 1),
            slice_of(category, name, begin, duration, 0, stream, device=0, stream=stream,
                     correlation=number + 1)]


class TraceTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.work = pathlib.Path(tempfile.mkdtemp(prefix="ridge-trace-"))
        cls.page = chromium.Page()

    @classmethod
    def tearDownClass(cls):
        cls.page.close()
        shutil.rmtree(cls.work)

    def tearDown(self):
        self.assertEqual(self.page.complaints, [])
        self.assertIsNone(self.page.run("window.pwned ?? null"))

    def report(self, *traces, width=1280):
        output = self.work / "trace.html"
        subprocess.run([PROGRAM, "trace", "report", *traces, "--html", output], check=True,
                       stdout=subprocess.DEVNULL)
        self.page.complaints.clear()
        self.page.set_size(width, 900)
        self.page.set_dark(False)
        self.page.mouse("mouseMoved", 1, 1)
        self.page.open(output)

    def write(self, events, name="made.json", **members):
        path = self.work / name
        path.write_text(json.dumps({**members, "traceEvents": events}))
        return path

    def texts(self, selector):
        return self.page.run(f"[...document.querySelectorAll({json.dumps(selector)})]"
                             ".map(element => element.textContent)")

    def stretch(self):
        return self.page.run("[Number(document.querySelector('.lanes').dataset.begin), "
                             "Number(document.querySelector('.lanes').dataset.end)]")

    def test_has_every_section(self):
        self.report(HERE.parent / "trace" / "small_trace.json")
        self.assertEqual(self.texts("#contents a"),
                         ["Overview", "What would help", "Where the time went", "Timeline",
                          "Critical path", "Idle time", "Kernels", "Operators", "Copies, launches, memory"])
        self.assertIn("A card", self.texts("#subtitle")[0])
        self.assertTrue(any("data loader" in text for text in self.texts("#findings h3")))
        self.assertEqual(self.texts("#kernels tbody td:first-child")[0][:10], "vectorized")
        self.assertIn("aten::addmm [[64],[8,32],[32,64],[],[]]", self.texts("#operators tbody td:first-child"))

    def test_zooms_and_moves_the_timeline(self):
        self.report(HERE.parent / "trace" / "small_trace.json")
        begin, end = self.stretch()
        self.assertEqual(begin, 0)
        self.page.click("#timeline [aria-label='Zoom in']")
        self.assertAlmostEqual(self.stretch()[1] - self.stretch()[0], 0.6 * end, delta=1)
        self.page.run("document.querySelector('.lanes canvas').focus()")
        before = self.stretch()
        self.page.key("ArrowRight")
        self.page.settle()
        self.assertGreater(self.stretch()[0], before[0])
        self.page.key("Home")
        self.page.settle()
        self.assertEqual(self.stretch(), [0, end])
        # The lane of the first stream stands below the ruler, the critical path and the track's name.
        left, top, width, _ = self.page.box(".lanes canvas")
        for part in range(200):
            self.page.mouse("mouseMoved", left + width * part / 200, top + 22 + 4 + 2 * 16 + 20 + 10 + 5)
            tip = self.page.run("document.getElementById('tooltip').hidden ? '' : "
                                "document.getElementById('tooltip').textContent")
            if tip:
                break
        self.assertIn("card 0, stream 7", tip)

    def test_draws_the_critical_path(self):
        events = [slice_of("user_annotation", "load the data", 0, 400)]
        for i in range(20):
            events += launched(i, "gemm", 500 + 60 * i, 50)
        self.report(self.write(events))
        self.assertIn("Critical path", self.texts("#contents a"))
        text = " ".join(self.texts("#path tbody td:first-child"))
        self.assertIn("twice as fast: gemm", text)
        self.assertIn("launches free", text)
        # The lane of the path is the first of the timeline; a kernel on it tells what it waited for.
        left, top, width, _ = self.page.box(".lanes canvas")
        tips = set()
        for part in range(300):
            self.page.mouse("mouseMoved", left + width * part / 300, top + 22 + 4 + 16 + 5)
            tips.add(self.page.run("document.getElementById('tooltip').hidden ? '' : "
                                   "document.getElementById('tooltip').textContent"))
        self.assertTrue(any("waited for" in tip and "cudaLaunchKernel" in tip for tip in tips), tips)
        with_path = self.picture()
        self.page.click("#timeline input[type=checkbox]")
        self.page.settle()
        self.assertNotEqual(self.picture(), with_path)
        self.page.click("#path td button")
        self.page.settle()
        begin, end = self.stretch()
        self.assertLess(end - begin, 500_000)

    def picture(self):
        return self.page.run("document.querySelector('.lanes canvas').toDataURL()")

    def test_shows_hostile_names_as_text(self):
        events = []
        for i, name in enumerate(HOSTILE):
            events += launched(i, name, 100 + 50 * i, 20)
            events.append(slice_of("user_annotation", name, 40 + 50 * i, 45))
            events.append({"ph": "M", "name": "thread_name", "pid": 100, "tid": 100, "ts": 0,
                           "args": {"name": name}})
        self.report(self.write(events, deviceProperties=[{"id": 0, "name": HOSTILE[0]}]))
        self.assertEqual(len(self.texts("#kernels tbody tr")), len(HOSTILE))

    def test_shows_each_rank(self):
        paths = []
        for rank in range(3):
            events = []
            for i in range(20):
                begin = 1000 * i + 100 * rank
                events += launched(2 * i, "gemm", begin + 50, 300)
                events += launched(2 * i + 1, "ncclDevKernel_AllReduce", begin + 400,
                                   500 - 100 * rank, 20)
            paths.append(self.write(events, f"rank{rank}.json", distributedInfo={"rank": rank}))
        self.report(*paths)
        self.assertEqual(self.texts("#ranks tbody td:first-child")[0], "rank 2")
        self.assertTrue(any("This rank waits" in text for text in self.texts("#findings h3")))
        self.page.run("(() => { const s = document.querySelector('.title select'); s.value = 2; "
                      "s.dispatchEvent(new Event('change')); })()")
        self.assertTrue(any("This rank comes last" in text for text in self.texts("#findings h3")))
        self.assertIn("The page has the timeline of rank 0.", self.texts("#timeline .missing"))

    def test_large_traces_stay_usable(self):
        events = [slice_of("user_annotation", f"ProfilerStep#{step}", 500_000 * step, 499_000)
                  for step in range(4)]
        for i in range(100_000):
            events += launched(i, f"kernel_{i % 4000}", 20 * i + 10, 12, 7 + i % 3)
        path = self.write(events)
        self.report(path)
        self.assertLess((self.work / "trace.html").stat().st_size, 16e6)
        self.assertTrue(any("stand together" in text for text in self.texts("#timeline .says")))
        for selector in ("#kernels [data-column=name]", "#operators [data-column=count]"):
            begin = time.monotonic()
            self.page.click(selector)
            self.assertLess(time.monotonic() - begin, 1.5, "generous: other tests run beside it")
        self.page.click("#kernels input")
        self.page.type("kernel_3999")
        self.assertEqual(self.texts("#kernels tbody td:first-child"), ["kernel_3999"])

    def test_fits_a_narrow_window(self):
        self.report(HERE.parent / "trace" / "small_trace.json", width=380)
        self.assertLessEqual(self.page.run("document.documentElement.scrollWidth"), 380)


if __name__ == "__main__":
    PROGRAM = chromium.program_to_test(__doc__)
    unittest.main()
