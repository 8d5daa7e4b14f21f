"""The viewer of chrome://tracing in a headless Chromium, over the DevTools protocol."""

import importlib.util
import json
import os
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

# The viewer that packages carry is made of web components of version 0, which browsers have dropped
# since. Its model needs no more of them than that an element gets its prototype.
COMPONENTS = """
const prototypes = {}, create = document.createElement;
const upgrade = (element, prototype) => {
  Object.setPrototypeOf(element, prototype);
  if (element.createdCallback) element.createdCallback();
  return element;
};
document.createElement = (name, ...more) => {
  const element = create.call(document, name, ...more);
  return prototypes[name] ? upgrade(element, prototypes[name]) : element;
};
document.registerElement = (name, options) => {
  prototypes[name] = options.prototype;
  document.querySelectorAll(name).forEach(e => upgrade(e, options.prototype));
  return function() { return document.createElement(name); };
};
Object.defineProperty(document, "_currentScript", {get: () => document.currentScript});
window.HTMLImports = {whenReady() {}};
window.WebComponents = {};
window.CustomElements = {hasNative: false, upgrade() {}, upgradeAll() {}, takeRecords() {}};
"""

# What the viewer makes of a trace. Memory instants and counters are no slices.
IMPORT = """
function(text) {
  const model = new tr.Model();
  new tr.importer.Import(model).importTraces([text]);
  const found = {slices: 0, open: 0, threads: 0, counters: 0, depth: 0, names: {},
                 flows: model.flowEvents.length,
                 warnings: model.importWarnings.map(w => w.type + ": " + w.message)};
  const nest = (slice, depth) => {
    found.depth = Math.max(found.depth, depth);
    for (const inner of slice.subSlices) nest(inner, depth + 1);
  };
  for (const process of model.getAllProcesses()) {
    found.counters += Object.keys(process.counters).length;
    for (const thread of Object.values(process.threads)) {
      const slices = thread.sliceGroup.slices;
      if (slices.length === 0) continue;
      ++found.threads;
      found.slices += slices.length;
      for (const slice of slices) {
        if (slice.didNotFinish) ++found.open;
        found.names[slice.title] = (found.names[slice.title] || 0) + 1;
      }
      for (const slice of thread.sliceGroup.topLevelSlices) nest(slice, 0);
    }
  }
  return found;
}
"""


class Chromium:
    """A headless Chromium with one page. A context manager; ImportError if there is none."""

    def __init__(self):
        binary = next(filter(None, map(shutil.which, ("chromium", "chromium-browser",
                                                      "google-chrome"))), None)
        if not binary:
            raise ImportError("no Chromium on the path")
        self._home = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        # chrome://tracing is one of the pages that have to be enabled by hand.
        (Path(self._home.name) / "Local State").write_text('{"internal_only_uis_enabled": true}')
        commands, self._commands = os.pipe()
        self._replies, replies = os.pipe()
        command = [binary, "--headless=new", "--no-sandbox", "--disable-gpu",
                   "--remote-debugging-pipe", f"--user-data-dir={self._home.name}", "about:blank"]
        # It takes commands from descriptor 3 and answers on 4.
        self._process = subprocess.Popen(
            ["sh", "-c", f'exec "$@" 3<&{commands} 4>&{replies}', "sh", *command],
            pass_fds=(commands, replies), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        os.close(commands)
        os.close(replies)
        self._buffer, self._last, self._session = b"", 0, None
        self.version = self._call("Browser.getVersion")["product"]
        target = self._call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self._call("Target.attachToTarget", targetId=target, flatten=True)[
            "sessionId"]
        self._call("Page.enable")
        self._call("Page.addScriptToEvaluateOnNewDocument", source=COMPONENTS)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._process.terminate()
        self._process.wait()
        self._home.cleanup()

    def _call(self, method, **params):
        self._last += 1
        message = {"id": self._last, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        data = json.dumps(message).encode() + b"\0"
        while data:
            data = data[os.write(self._commands, data):]
        while True:  # whatever is no answer to this is an event, which nobody asked for
            while b"\0" not in self._buffer:
                more = os.read(self._replies, 1 << 16)
                if not more:
                    raise RuntimeError("Chromium has ended")
                self._buffer += more
            reply, self._buffer = self._buffer.split(b"\0", 1)
            reply = json.loads(reply)
            if reply.get("id") == self._last:
                if "error" in reply:
                    raise RuntimeError(f"{method}: {reply['error']['message']}")
                return reply["result"]

    def evaluate(self, function, *arguments):
        """The value of a JavaScript function."""
        window = self._call("Runtime.evaluate", expression="window")["result"]["objectId"]
        result = self._call("Runtime.callFunctionOn", functionDeclaration=function, objectId=window,
                            arguments=[{"value": a} for a in arguments], returnByValue=True)
        if "exceptionDetails" in result:
            raise RuntimeError(result["exceptionDetails"]["exception"]["description"])
        return result["result"].get("value")

    def open_viewer(self, url):
        """Whether the page at `url` is a trace viewer."""
        self._call("Page.navigate", url=url)
        for _ in range(100):
            time.sleep(0.1)
            if self.evaluate("() => document.readyState === 'complete'"):
                break
        return self.evaluate("() => typeof tr !== 'undefined' && !!tr.importer && !!tr.Model")


def read_trace(text):
    """What the viewer found in a trace, and in which program. ImportError without a Chromium, or if
    there is no viewer for it."""
    with Chromium() as browser:
        place = f"chrome://tracing of {browser.version}"
        if not browser.open_viewer("chrome://tracing"):
            package = importlib.util.find_spec("torch_tb_profiler")
            if not package:
                raise ImportError(f"{browser.version} has no chrome://tracing, and "
                                  "torch-tb-profiler, which carries its viewer, is not installed")
            page = Path(package.origin).parent / "static" / "trace_viewer_full.html"
            if not browser.open_viewer(page.as_uri()):
                raise RuntimeError(f"{page} is no trace viewer")
            place = f"{browser.version}, which has no chrome://tracing: torch-tb-profiler's copy"
        return browser.evaluate(IMPORT, text), place
