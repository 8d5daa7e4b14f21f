"""The viewer of chrome://tracing in a headless Chromium, over the DevTools protocol."""

import importlib.util
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "browser"))
import chromium  # noqa: E402

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


def is_viewer(page, url):
    """Whether the page at `url` is a trace viewer."""
    try:
        page.open_url(url)
    except RuntimeError:  # this browser has no such page
        return False
    return page.run("typeof tr !== 'undefined' && !!tr.importer && !!tr.Model")


def open_viewer():
    """A page with a viewer, which the caller closes, and in which program that is. ImportError
    without a Chromium, or if there is no viewer for it."""
    if not chromium.find():
        raise ImportError("no Chromium on the path")
    # chrome://tracing is one of the pages that have to be enabled by hand.
    page = chromium.Page(settings={"internal_only_uis_enabled": True})
    try:
        place = f"chrome://tracing of {page.version}"
        page.send("Page.addScriptToEvaluateOnNewDocument", source=COMPONENTS)
        if not is_viewer(page, "chrome://tracing"):
            package = importlib.util.find_spec("torch_tb_profiler")
            if not package:
                raise ImportError(f"{page.version} has no chrome://tracing, and "
                                  "torch-tb-profiler, which carries its viewer, is not installed")
            copy = Path(package.origin).parent / "static" / "trace_viewer_full.html"
            if not is_viewer(page, copy.as_uri()):
                raise RuntimeError(f"{copy} is no trace viewer")
            place = f"{page.version}, which has no chrome://tracing: torch-tb-profiler's copy"
    except BaseException:
        page.close()
        raise
    return page, place


def read_trace(text):
    """What the viewer found in a trace, and in which program. ImportError as of open_viewer()."""
    page, place = open_viewer()
    try:
        return page.call(IMPORT, text), place
    finally:
        page.close()
