"""Drives a headless Chromium over its debugging pipe, with Python's standard library alone."""

import json
import os
import select
import shutil
import subprocess
import sys
import tempfile
import time


def find():
    """The path of a Chromium or Chrome, or None."""
    for name in ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable"):
        if path := shutil.which(name):
            return path
    return None


def program_to_test(usage):
    """The program that the command line of a test names. Ends the test with what CTest takes for
    "skipped" where there is no Chromium."""
    if len(sys.argv) < 2:
        sys.exit(usage)
    program = os.path.abspath(sys.argv.pop(1))
    if not find():
        print("skipped: there is no Chromium here; scripts/install-deps.sh browser installs it")
        sys.exit(77)
    return program


class Page:
    """One tab. Everything it complains about is in `complaints`. `settings` are the browser's, as it
    keeps them in its file "Local State"."""

    def __init__(self, width=1280, height=900, dark=False, settings=None):
        self._profile = tempfile.mkdtemp(prefix="ridge-chromium-")
        if settings:
            with open(os.path.join(self._profile, "Local State"), "w") as file:
                json.dump(settings, file)
        to_browser, self._out = os.pipe()
        self._in, from_browser = os.pipe()

        def pipes():  # the browser reads 3 and writes 4; mind that either may be in the way
            reading = os.dup2(to_browser, 70)
            writing = os.dup2(from_browser, 71)
            os.dup2(reading, 3)
            os.dup2(writing, 4)

        self._process = subprocess.Popen(
            [find(), "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
             "--hide-scrollbars", "--remote-debugging-pipe", "--no-first-run",
             "--user-data-dir=" + self._profile, "about:blank"],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            preexec_fn=pipes, close_fds=False, env={**os.environ, "HOME": self._profile})
        os.close(to_browser)
        os.close(from_browser)
        self._buffer = b""
        self._count = 0
        self._session = None
        self._events = []
        self.complaints = []
        self.version = self.send("Browser.getVersion")["product"]
        targets = self.send("Target.getTargets")["targetInfos"]
        target = next(t["targetId"] for t in targets if t["type"] == "page")
        self._session = self.send("Target.attachToTarget", targetId=target,
                                  flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.send(domain + ".enable")
        self.set_size(width, height)
        self.set_dark(dark)

    def close(self):
        try:
            self._session = None
            self.send("Browser.close")
        except (OSError, RuntimeError):
            self._process.kill()
        self._process.wait(30)
        os.close(self._out)
        os.close(self._in)
        shutil.rmtree(self._profile, ignore_errors=True)

    def send(self, method, **parameters):
        """Calls a method of the protocol and returns its result."""
        self._count += 1
        message = {"id": self._count, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        data = json.dumps(message).encode() + b"\0"
        while data:
            data = data[os.write(self._out, data):]
        while True:
            reply = self._read()
            if reply.get("id") == self._count:
                if "error" in reply:
                    raise RuntimeError(f"{method}: {reply['error']}")
                return reply["result"]

    def _read(self, patience=60):
        while b"\0" not in self._buffer:
            if not select.select([self._in], [], [], patience)[0]:
                raise RuntimeError("Chromium has been silent for a minute")
            part = os.read(self._in, 1 << 20)
            if not part:
                raise RuntimeError("Chromium has ended")
            self._buffer += part
        text, self._buffer = self._buffer.split(b"\0", 1)
        message = json.loads(text)
        self._note(message)
        return message

    def _note(self, message):
        method, details = message.get("method"), message.get("params", {})
        self._events.append(method)
        if method == "Runtime.exceptionThrown":
            self.complaints.append(json.dumps(details["exceptionDetails"])[:2000])
        elif method == "Runtime.consoleAPICalled" and details["type"] in ("error", "warning"):
            self.complaints.append("console: " + json.dumps(details["args"])[:2000])
        elif method == "Log.entryAdded" and details["entry"]["level"] in ("error", "warning"):
            self.complaints.append("log: " + json.dumps(details["entry"])[:2000])
        elif method == "Network.requestWillBeSent":
            url = details["request"]["url"]
            if not url.startswith(("file:", "data:", "about:")):
                self.complaints.append("asked the network for " + url)
        elif method == "Page.javascriptDialogOpening":
            self.complaints.append("a dialog opened: " + details["message"])

    def open(self, path):
        self.open_url("file://" + os.path.abspath(path))

    def open_url(self, url):
        self._events.clear()
        self.send("Page.navigate", url=url)
        while "Page.loadEventFired" not in self._events:
            self._read()
        self.settle()

    def settle(self):
        """Lets two frames pass, in which observers of sizes have run."""
        self.run("new Promise(r => requestAnimationFrame(() => requestAnimationFrame(r)))")

    def run(self, expression):
        """The value of a JavaScript expression, awaited."""
        result = self.send("Runtime.evaluate", expression=expression, awaitPromise=True,
                           returnByValue=True)
        if "exceptionDetails" in result:
            raise RuntimeError(f"{expression}: {json.dumps(result['exceptionDetails'])[:1000]}")
        return result["result"].get("value")

    def call(self, function, *arguments):
        """The value of a JavaScript function of these arguments, in the page's global scope."""
        window = self.send("Runtime.evaluate", expression="window")["result"]["objectId"]
        result = self.send("Runtime.callFunctionOn", functionDeclaration=function, objectId=window,
                           arguments=[{"value": a} for a in arguments], returnByValue=True)
        if "exceptionDetails" in result:
            raise RuntimeError(result["exceptionDetails"]["exception"]["description"])
        return result["result"].get("value")

    def wait_for(self, expression, seconds=20):
        deadline = time.monotonic() + seconds
        while not self.run(expression):
            if time.monotonic() > deadline:
                raise RuntimeError("never became true: " + expression)
            time.sleep(0.05)

    def set_size(self, width, height):
        self.send("Emulation.setDeviceMetricsOverride", width=width, height=height,
                  deviceScaleFactor=1, mobile=False)

    def set_dark(self, dark):
        self.send("Emulation.setEmulatedMedia", features=[
            {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}])

    def box(self, selector):
        """Of an element, after scrolling to it: left, top, width, height in the window."""
        return self.run(f"""(() => {{
            const element = document.querySelector({json.dumps(selector)});
            element.scrollIntoView({{block: 'center', behavior: 'instant'}});
            const box = element.getBoundingClientRect();
            return [box.left, box.top, box.width, box.height];
        }})()""")

    def mouse(self, kind, x, y):
        extra = {"button": "left", "clickCount": 1} if kind != "mouseMoved" else {}
        self.send("Input.dispatchMouseEvent", type=kind, x=x, y=y, **extra)

    def hover(self, selector, across=0.5, down=0.5):
        left, top, width, height = self.box(selector)
        self.mouse("mouseMoved", left + across * width, top + down * height)
        self.settle()

    def click(self, selector):
        left, top, width, height = self.box(selector)
        for kind in ("mouseMoved", "mousePressed", "mouseReleased"):
            self.mouse(kind, left + width / 2, top + height / 2)
        self.settle()

    def type(self, text):
        self.send("Input.insertText", text=text)
        self.settle()

    def key(self, key):
        for kind in ("keyDown", "keyUp"):
            extra = {"text": "\r"} if key == "Enter" and kind == "keyDown" else {}
            self.send("Input.dispatchKeyEvent", type=kind, key=key, code=key, **extra,
                      windowsVirtualKeyCode={"Enter": 13, "ArrowRight": 39, "ArrowLeft": 37, "Home": 36,
                                             "Tab": 9}[key])
        self.settle()

    def screenshot(self, path, whole=True):
        import base64
        data = self.send("Page.captureScreenshot", captureBeyondViewport=whole, **(
            {"clip": {**dict(zip(("x", "y", "width", "height"), self.run(
                "[0, 0, document.documentElement.scrollWidth, "
                "document.documentElement.scrollHeight]"))), "scale": 1}} if whole else {}))["data"]
        with open(path, "wb") as file:
            file.write(base64.b64decode(data))
