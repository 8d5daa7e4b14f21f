// The module ridge._ridge: the functions of the library that Python calls. The package around it,
// python/ridge, makes dicts and arrays of the JSON that they return.

#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <exception>
#include <future>
#include <optional>
#include <string>
#include <vector>

#include "ridge/base/child_process.h"
#include "ridge/base/error.h"
#include "ridge/base/file.h"
#include "ridge/base/version.h"
#include "ridge/report/trace/read_report.h"
#include "ridge/trace/diff.h"
#include "ridge/trace/named_traces.h"

namespace nb = nanobind;

namespace ridge {
namespace {

using namespace std::chrono_literals;

// Thrown within a reading to stop it.
struct Stopped {};

// Computes on a thread of its own and without the interpreter's lock, while this thread hears of
// signals: KeyboardInterrupt stops the reading of traces, and is thrown when the computation has
// ended. `compute` takes the progress of its reading.
template <class Compute>
auto interruptible(const Compute& compute) {
  std::atomic<bool> stops = false;
  const auto progress = [&stops](std::int64_t, std::int64_t) {
    if (stops) throw Stopped();
  };
  const nb::gil_scoped_release unlocked;
  auto result = std::async(std::launch::async, [&] { return compute(progress); });
  while (result.wait_for(50ms) != std::future_status::ready) {
    const nb::gil_scoped_acquire locked;
    if (PyErr_CheckSignals() == 0) continue;
    const nb::python_error interrupt;  // takes what the signal's handler has thrown
    stops = true;
    {
      const nb::gil_scoped_release again;
      result.wait();
    }
    throw interrupt;
  }
  return result.get();
}

TraceReport report(const std::vector<std::string>& paths) {
  return interruptible([&](const auto& progress) { return read_report(paths, true, progress); });
}

std::string diff(const std::string& before, const std::string& after) {
  return interruptible([&](const auto& progress) {
    return trace::diff_json(trace::diff_named(before, after, progress));
  });
}

// The exit code of a program, or 128 and the number of the signal that ended it, as a shell has it.
std::optional<int> wait(ChildProcess& program, double seconds) {
  const std::optional<ChildEnd> end =
      program.wait_for(std::chrono::duration_cast<std::chrono::milliseconds>(
          std::chrono::duration<double>(seconds)));
  if (!end) return std::nullopt;
  return end->signal == 0 ? end->exit_code : 128 + end->signal;
}

}  // namespace
}  // namespace ridge

NB_MODULE(_ridge, module) {
  using namespace ridge;
  // Other errors are std::runtime_error, which is RuntimeError.
  nb::register_exception_translator([](const std::exception_ptr& thrown, void*) {
    try {
      std::rethrow_exception(thrown);
    } catch (const UsageError& error) {
      PyErr_SetString(PyExc_ValueError, error.what());
    }
  });

  module.attr("version") = std::string(version());
  module.attr("commit") = std::string(commit());

  const auto unlocked = nb::call_guard<nb::gil_scoped_release>();
  nb::class_<TraceReport>(module, "TraceReport", "The report of ridge trace report.")
      .def(
          "json", [](const TraceReport& self) { return trace::report_json(self.run); }, unlocked,
          "The JSON of ridge trace report --json.")
      .def("page", &TraceReport::page, unlocked, "The page of ridge trace report --html.");
  module.def("report", &report, nb::arg("paths"),
             "Reads traces, or directories with one of each rank.");
  module.def("diff", &diff, nb::arg("before"), nb::arg("after"),
             "The JSON of ridge trace diff --json.");
  module.def(
      "write_text",
      [](const std::string& path, const std::string& text) { write_text_file(path, text); },
      nb::arg("path"), nb::arg("text"), unlocked, "Writes a file whole or not at all.");

  nb::class_<ChildProcess>(module, "Child",
                           "A program that runs until it ends, or the thread that started it does. "
                           "Ctrl-C does not reach it.")
      .def(
          "__init__",
          [](ChildProcess* self, std::vector<std::string> words, const std::string& output,
             const std::string& errors) {
            new (self)
                ChildProcess({.words = std::move(words), .output = output, .errors = errors});
          },
          nb::arg("words"), nb::arg("output"), nb::arg("errors"),
          "Starts a program, whose two outputs go to these files.")
      .def("wait", &wait, nb::arg("seconds"), unlocked,
           "Waits so long at most: the exit code, or None if the program still runs.")
      .def(
          "interrupt", [](const ChildProcess& self) { self.send(SIGINT); },
          "Sends what Ctrl-C sends.");
}
