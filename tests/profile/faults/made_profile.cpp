// Writes profiles of recordings that no training run makes, for faults.py to read.
//
//   made_profile names DIRECTORY          one profile for each hostile name: DIRECTORY/0, 1, ...
//   made_profile events COUNT DIRECTORY   the files that grow with the recording, and the memory
//                                         that writing each one took, as a line of JSON

#include <fmt/format.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "ridge/base/file.h"
#include "ridge/ops/unary.h"
#include "ridge/profile/chrome_trace.h"
#include "ridge/profile/flops_report.h"
#include "ridge/profile/kernel_stats.h"
#include "ridge/profile/memory_plot.h"
#include "ridge/profile/memory_report.h"
#include "ridge/profile/memory_timeline.h"
#include "ridge/profile/operator_table.h"
#include "ridge/profile/perfetto.h"

namespace ridge {
namespace {

namespace fs = std::filesystem;

// A node that runs again and again and a value that comes and goes, with one name for everything.
struct Made {
  Graph graph;
  Recording recording;

  Made(const std::string& name, std::int64_t runs) {
    const Value x = graph.input(name, {DType::f32, {4}});
    const Scope scope(graph, name);
    const Value y = scale(x, 2.0f);
    recording.graph = &graph;
    recording.device = "cpu";
    recording.device_description = name;
    recording.nodes.reserve(static_cast<std::size_t>(runs));
    recording.memory.reserve(static_cast<std::size_t>(runs));
    for (std::int64_t i = 0; i < runs; ++i) {
      recording.nodes.push_back({graph.info(y.id).producer, 1, 10 * i + 10, 10 * i + 15});
      const bool more = i % 2 == 0;
      recording.memory.push_back({.time_ns = 10 * i + 9,
                                  .step = 1,
                                  .phase = Phase::forward,
                                  .workspace = false,
                                  .owner = y.id,
                                  .address = 4096,
                                  .bytes = more ? 16 : -16,
                                  .live = more ? 64u : 0u,
                                  .reserved = 64});
    }
    recording.phases = {{Phase::forward, 1, 5, 10 * runs + 20}};
    recording.steps = {{1, 5, 10 * runs + 30, 1.0}};
  }
};

std::vector<std::string> hostile_names() {
  std::string controls;
  for (char c = 1; c < ' '; ++c) controls += c;
  return {R"("quotes" 'and' `ticks`)",
          "back\\slash \\u0041 \\",
          controls + "\x7f",
          std::string("nul\0inside", 10),
          "line\nline\r\nline\ttab",
          "comma, semicolon; =1+1",
          "</script><!-- & &amp; ]]>",
          "😀 👩‍👩‍👧 ünïcode \u202e\u2028",
          "\xff\xfe \xc3( \xed\xa0\x80 \xf4\x90\x80\x80 broken \xc3",
          "..\\../..",
          " ",
          std::string(10'000, 'x'),
          std::string(10'000, '"')};
}

void write_named(const fs::path& directory, const std::string& name) {
  const Made made(name, 4);
  const Recording& recording = made.recording;
  fs::create_directories(directory);
  const auto write = [&](const char* file, const std::string& text) {
    write_text_file(directory / file, text);
  };
  write("expected.txt", name);
  write_chrome_trace(directory / "trace.json", recording);
  write_chrome_trace(directory / "trace.json.gz", recording);
  write_perfetto(directory / "trace.pftrace", recording);
  for (const GroupBy by : {GroupBy::op, GroupBy::shape, GroupBy::module, GroupBy::phase}) {
    const OperatorTable table = operator_table(recording, by);
    write_text_file(directory / fmt::format("by_{}.json", name_of(by)), operator_table_json(table));
    write_text_file(directory / fmt::format("by_{}.csv", name_of(by)), operators_csv(table));
  }
  write("modules.json", modules_json(flops_report(recording)));
  write("kernel_stats.csv", kernel_stats_csv(recording));
  write_kernel_trace(recording, directory / "kernel_trace.csv");
  write("memory.json", memory_report_json(memory_report(recording)));
  write("memory_timeline.json", memory_timeline_json(recording));
  write("memory_timeline.svg", memory_timeline_svg(recording));
}

// A line "VmHWM:   1234 kB" of /proc/self/status, in bytes.
std::uint64_t status(const std::string& key) {
  std::ifstream file("/proc/self/status");
  for (std::string word; file >> word;)
    if (word == key + ":") {
      std::uint64_t kibibytes = 0;
      file >> kibibytes;
      return kibibytes << 10;
    }
  return 0;
}

template <class Write>
void measure(const fs::path& path, const Write& write) {
  std::ofstream("/proc/self/clear_refs") << "5";  // the peak starts again from here
  const std::uint64_t before = status("VmRSS");
  const std::uint64_t left_out = write(path);
  fmt::print(R"({{"file": "{}", "left_out": {}, "peak_growth": {}}})"
             "\n",
             path.filename().string(), left_out, status("VmHWM") - before);
}

void write_many(const fs::path& directory, std::int64_t events) {
  const Made made("layers.0", events);
  const Recording& recording = made.recording;
  const auto chrome = [&](const fs::path& path) {
    return write_chrome_trace(path, recording).left_out;
  };
  measure(directory / "trace.json", chrome);
  measure(directory / "trace.json.gz", chrome);
  measure(directory / "trace.pftrace",
          [&](const fs::path& path) { return write_perfetto(path, recording).left_out; });
  measure(directory / "kernel_trace.csv",
          [&](const fs::path& path) { return write_kernel_trace(recording, path); });
  const auto text = [&](const char* name, const auto& text_of) {
    measure(directory / name, [&](const fs::path& path) {
      write_text_file(path, text_of());
      return 0;
    });
  };
  text("operators.json", [&] { return operator_table_json(operator_table(recording)); });
  text("modules.json", [&] { return modules_json(flops_report(recording)); });
  text("kernel_stats.csv", [&] { return kernel_stats_csv(recording); });
  text("memory.json", [&] { return memory_report_json(memory_report(recording)); });
  text("memory_timeline.json", [&] { return memory_timeline_json(recording); });
  text("memory_timeline.svg", [&] { return memory_timeline_svg(recording); });
}

int run(const std::vector<std::string>& arguments) {
  if (arguments.size() == 2 && arguments[0] == "names") {
    int n = 0;
    for (const std::string& name : hostile_names())
      write_named(fs::path(arguments[1]) / std::to_string(n++), name);
    return 0;
  }
  if (arguments.size() == 3 && arguments[0] == "events") {
    write_many(arguments[2], std::stoll(arguments[1]));
    return 0;
  }
  fmt::print(stderr, "made_profile names DIRECTORY | events COUNT DIRECTORY\n");
  return 2;
}

}  // namespace
}  // namespace ridge

int main(int argc, char** argv) {
  try {
    return ridge::run(std::vector<std::string>(argv + 1, argv + argc));
  } catch (const std::exception& error) {
    fmt::print(stderr, "made_profile: {}\n", error.what());
    return 1;
  }
}
