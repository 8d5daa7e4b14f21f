#include "ridge/cli/rocm_profiler.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <array>

#include "ridge/base/error.h"
#include "ridge/base/system.h"
#include "ridge/base/text_table.h"

namespace ridge {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view rocprof = "rocprof", rocprofv2 = "rocprofv2", rocprofv3 = "rocprofv3",
                           rocprof_compute = "rocprof-compute";
constexpr char between_words = '\x1f';  // ASCII's unit separator

// The flags of a call as they were given.
struct Given {
  bool stats = false, kernels = false, runtime = false, summary = false, truncates = false;
  std::string file, directory, name, plugin;  // empty: not given
  std::vector<std::string> formats;
};

void on_or_off(const std::string& value, bool& field) {
  if (value != "on" && value != "off") throw UsageError("{} is neither on nor off", value);
  field = value == "on";
}

// A flag of a tool: its names with commas, the value that it takes, what it does.
struct FlagRow {
  std::string_view tool, names, value, help;
  void (*set)(Given& given, const std::string& value);

  bool has_name(std::string_view name) const {
    for (std::string_view rest = names; !rest.empty();) {
      const std::size_t end = std::min(rest.find(','), rest.size());
      if (rest.substr(0, end) == name) return true;
      rest.remove_prefix(std::min(end + 1, rest.size()));
    }
    return false;
  }
};

constexpr auto set_stats = [](Given& given, const std::string&) { given.stats = true; };
constexpr auto set_kernels = [](Given& given, const std::string&) { given.kernels = true; };
constexpr auto set_runtime = [](Given& given, const std::string&) { given.runtime = true; };
constexpr auto set_summary = [](Given& given, const std::string&) { given.summary = true; };
constexpr auto set_truncates = [](Given& given, const std::string&) { given.truncates = true; };
constexpr auto set_file = [](Given& given, const std::string& value) { given.file = value; };
constexpr auto set_directory = [](Given& given, const std::string& value) {
  given.directory = value;
};
constexpr auto ignore = [](Given&, const std::string&) {};

constexpr std::array flag_rows = {
    FlagRow{rocprof, "--stats", "", "Write kernels by time to NAME.stats.csv", set_stats},
    FlagRow{rocprof, "-o", "NAME.csv", "Write the calls of kernels there, not to results.csv",
            set_file},
    FlagRow{rocprof, "--hip-trace,--hsa-trace,--sys-trace", "",
            "Write NAME.json too, a Chrome trace", set_runtime},
    FlagRow{rocprof, "--basenames", "on|off", "Leave out template arguments and parameters",
            [](Given& given, const std::string& value) { on_or_off(value, given.truncates); }},
    FlagRow{rocprof, "--timestamp", "on|off", "Change nothing: calls always have their times",
            [](Given&, const std::string& value) {
              bool on = false;
              on_or_off(value, on);
            }},
    FlagRow{rocprofv2, "--kernel-trace", "", "Record the calls of kernels, as is always done",
            set_kernels},
    FlagRow{rocprofv2, "--hip-api,--hip-activity,--hip-trace,--hsa-trace,--sys-trace", "",
            "Record what the host does too, as is always done", set_runtime},
    FlagRow{rocprofv2, "-o", "FILE",
            "Write a Chrome trace (FILE.json), Perfetto's (FILE.pftrace) or a table (FILE.csv); "
            "unless given, results.csv",
            set_file},
    FlagRow{rocprofv2, "-d", "DIR", "Write it below this directory", set_directory},
    FlagRow{rocprofv2, "--plugin", "file|json|perfetto",
            "Choose the form of a FILE whose name has no ending",
            [](Given& given, const std::string& value) { given.plugin = value; }},
    FlagRow{rocprofv3, "--kernel-trace", "", "Record the calls of kernels", set_kernels},
    FlagRow{rocprofv3,
            "-r,--runtime-trace,-s,--sys-trace,--hip-trace,--hip-runtime-trace,--hsa-trace,"
            "--memory-copy-trace,--memory-allocation-trace,--scratch-memory-trace,"
            "--marker-trace,--rccl-trace",
            "", "Record all of a run; copies, calls and ranges are in the form pftrace alone",
            set_runtime},
    FlagRow{rocprofv3, "--stats", "", "Write and print kernels by time", set_stats},
    FlagRow{rocprofv3, "-S,--summary", "", "Print kernels by time", set_summary},
    FlagRow{rocprofv3, "-T,--truncate-kernels", "", "Leave out template arguments and parameters",
            set_truncates},
    FlagRow{rocprofv3, "-f,--output-format", "csv|pftrace ...",
            "Choose the forms of the files; unless given, csv",
            [](Given& given, const std::string& value) { given.formats.push_back(value); }},
    FlagRow{rocprofv3, "-o,--output-file", "NAME",
            "Call them NAME_*, not by the number of the process below the name of the host",
            set_file},
    FlagRow{rocprofv3, "-d,--output-directory", "DIR", "Write them below this directory",
            set_directory},
    FlagRow{rocprof_compute, "-w", "FILE", "Write the calls of kernels with their counters there",
            set_file},
    FlagRow{rocprof_compute, "-n,--name", "NAME",
            "Write them to workloads/NAME/pmc_perf.csv, where there is no -w",
            [](Given& given, const std::string& value) { given.name = value; }},
    FlagRow{rocprof_compute, "-p,--path", "DIR", "Write them to DIR/pmc_perf.csv", set_directory},
    FlagRow{rocprof_compute, "--no-roof", "", "Change nothing: ridge roofline measures ceilings",
            ignore}};

const FlagRow& row_of(std::string_view tool, std::string_view flag) {
  const auto row = std::ranges::find_if(
      flag_rows, [&](const FlagRow& one) { return one.tool == tool && one.has_name(flag); });
  if (row == flag_rows.end())
    throw UsageError("{} has no {} here: {} --help names the flags that are known", tool, flag,
                     tool);
  return *row;
}

bool is_flag(std::string_view word) { return word.starts_with('-'); }

// Reads a flag and its values, and returns the index of the word behind them.
std::size_t read_flag(std::span<const std::string> words, std::size_t at, Given& given) {
  const std::string& tool = words[0];
  const std::string& word = words[at++];
  const std::size_t equals = word.starts_with("--") ? word.find('=') : std::string::npos;
  const std::string flag = word.substr(0, equals);
  const FlagRow& row = row_of(tool, flag);
  if (row.value.empty() && equals != std::string::npos)
    throw UsageError("{} {} takes no value", tool, flag);
  try {
    if (row.value.empty()) {
      row.set(given, "");
    } else if (equals != std::string::npos) {
      row.set(given, word.substr(equals + 1));
    } else {
      if (at == words.size() || is_flag(words[at]))
        throw UsageError("a value is missing: {}", row.value);
      row.set(given, words[at++]);
      // A list ends at the next flag, which "--" is too.
      while (row.value.ends_with("...") && at < words.size() && !is_flag(words[at]))
        row.set(given, words[at++]);
    }
  } catch (const UsageError& error) {
    throw UsageError("{} {}: {}", tool, flag, error.what());
  }
  return at;
}

using Files = std::vector<RocmProfile::File>;

Files files_of_rocprof(const Given& given) {
  const fs::path calls = given.file.empty() ? "results.csv" : given.file;
  if (calls.extension() != ".csv")
    throw UsageError("rocprof -o {}: the name of the file must end in .csv", given.file);
  Files files{{calls, RocmForm::calls}};
  if (given.stats)
    files.push_back({fs::path(calls).replace_extension(".stats.csv"), RocmForm::stats});
  if (given.runtime)
    files.push_back({fs::path(calls).replace_extension(".json"), RocmForm::chrome});
  return files;
}

struct Ending {
  std::string_view plugin, ending;
  RocmForm form;
};
constexpr std::array endings = {Ending{"file", ".csv", RocmForm::dispatches},
                                Ending{"json", ".json", RocmForm::chrome},
                                Ending{"perfetto", ".pftrace", RocmForm::perfetto}};

Files files_of_rocprofv2(const Given& given) {
  const std::string plugin = given.plugin.empty() ? "file" : given.plugin;
  const auto chosen = std::ranges::find(endings, plugin, &Ending::plugin);
  if (chosen == endings.end())
    throw UsageError("rocprofv2 --plugin {}: it is file, json or perfetto here", plugin);
  fs::path file = given.file.empty() ? "results" : given.file;
  if (file.extension().empty()) file += chosen->ending;
  const auto form = std::ranges::find(endings, file.extension().string(), &Ending::ending);
  if (form == endings.end())
    throw UsageError("rocprofv2 -o {}: the name of the file must end in .csv, .json or .pftrace",
                     given.file);
  return {{fs::path(given.directory) / file, form->form}};
}

Files files_of_rocprofv3(const Given& given) {
  if (!given.kernels && !given.runtime)
    throw UsageError(
        "rocprofv3 records nothing unless told what: add --kernel-trace or "
        "--runtime-trace");
  const std::string begin =
      given.file.empty() ? fmt::format("{}/{}", host_name(), ::getpid()) : given.file;
  const auto file = [&](std::string_view end, RocmForm form) {
    return RocmProfile::File{fs::path(given.directory) / fmt::format("{}_{}", begin, end), form};
  };
  Files files;
  const std::vector<std::string> csv_alone{"csv"};
  for (const std::string& format : given.formats.empty() ? csv_alone : given.formats) {
    if (format == "pftrace") {
      files.push_back(file("results.pftrace", RocmForm::perfetto));
    } else if (format == "csv") {
      files.push_back(file("agent_info.csv", RocmForm::agent_info));
      files.push_back(file("kernel_trace.csv", RocmForm::kernel_trace));
      if (!given.stats) continue;
      files.push_back(file("kernel_stats.csv", RocmForm::kernel_stats));
      files.push_back(file("domain_stats.csv", RocmForm::domain_stats));
    } else {
      throw UsageError("rocprofv3 --output-format {}: it is csv or pftrace here", format);
    }
  }
  return files;
}

Files files_of_rocprof_compute(const Given& given) {
  if (!given.file.empty()) return {{given.file, RocmForm::counters}};
  if (given.name.empty() && given.directory.empty())
    throw UsageError("rocprof-compute profile: where to? name the file by -w FILE, or by -n NAME");
  const fs::path directory =
      given.directory.empty() ? fs::path("workloads") / given.name : fs::path(given.directory);
  return {{directory / "pmc_perf.csv", RocmForm::counters}};
}

RocmProfile profile_of(const std::string& tool, const Given& given) {
  RocmProfile profile{.tool = tool, .files = {}, .truncates = given.truncates};
  if (tool == rocprof) profile.files = files_of_rocprof(given);
  if (tool == rocprofv2) profile.files = files_of_rocprofv2(given);
  if (tool == rocprofv3) {
    profile.files = files_of_rocprofv3(given);
    profile.prints_table = given.stats || given.summary;
  }
  if (tool == rocprof_compute) {
    profile.files = files_of_rocprof_compute(given);
    profile.counts = true;
  }
  return profile;
}

struct ToolText {
  std::string_view tool, what, example;
};
constexpr std::array tool_texts = {
    ToolText{rocprof, "Lists every call of a kernel in a table, and kernels by time.",
             "rocprof --stats -o fp32.csv micro_benchmarking_pytorch --network resnet50"},
    ToolText{rocprofv2, "Writes a timeline of kernels.",
             "rocprofv2 --kernel-trace -o timeline.json micro_benchmarking_pytorch"},
    ToolText{rocprofv3, "Writes tables or a timeline of kernels.",
             "rocprofv3 --stats --kernel-trace --truncate-kernels -- tiny_llama_v3"},
    ToolText{rocprof_compute, "Counts in hardware what kernels do, and holds it against the peaks.",
             "rocprof-compute profile -w profile.csv micro_benchmarking_pytorch"}};

std::string help_of(const ToolText& tool) {
  std::string text = fmt::format(
      "Ridge under the name of {0}. Profiles a run of `ridge train` or `ridge bench`,\n"
      "in each of its steps. {1}\n\nUsage: {0}{2} [FLAGS] [--] PROGRAM [ITS FLAGS]\n\n",
      tool.tool, tool.what, tool.tool == rocprof_compute ? " profile" : "");
  for (const FlagRow& row : flag_rows) {
    if (row.tool != tool.tool) continue;
    std::string names(row.names);
    for (std::size_t at = 0; (at = names.find(',', at)) != std::string::npos; at += 2)
      names.replace(at, 1, ", ");
    text += wrapped(fmt::format("  {}{}{}", names, row.value.empty() ? "" : " ", row.value),
                    sentence_width, "  ") +
            "\n" + wrapped(fmt::format("      {}", row.help), sentence_width, "      ") + "\n";
  }
  text += fmt::format(
      "\nPROGRAM is one of the workshop's names for Ridge, such as micro_benchmarking_pytorch or\n"
      "tiny_llama_v3, or ridge itself; \"python3\" before it and \".py\" behind it change "
      "nothing.\n"
      "\nExample:\n  {}\n",
      tool.example);
  return text;
}

}  // namespace

bool is_rocm_profiler(std::string_view program) {
  return std::ranges::find(tool_texts, program, &ToolText::tool) != tool_texts.end();
}

RocmCall parse_rocm_call(std::span<const std::string> words) {
  const std::string& tool = words[0];
  std::size_t at = 1;
  if (tool == rocprof_compute) {
    if (words.size() < 2 || words[1] != "profile")
      throw UsageError(
          "rocprof-compute is rocprof-compute profile here: ridge report and ridge "
          "roofline analyze a profile");
    ++at;
  }
  Given given;
  while (at < words.size() && words[at] != "--" && is_flag(words[at]))
    at = read_flag(words, at, given);
  if (at < words.size() && words[at] == "--") ++at;
  return {profile_of(tool, given), at};
}

std::optional<std::string> rocm_help(std::string_view program,
                                     std::span<const std::string> arguments) {
  const auto tool = std::ranges::find(tool_texts, program, &ToolText::tool);
  if (tool == tool_texts.end()) return std::nullopt;
  for (const std::string& word : arguments) {
    if (word == "-h" || word == "--help") return help_of(*tool);
    if (!is_flag(word) && word != "profile") break;
  }
  return std::nullopt;
}

std::string rocm_flag_of(std::span<const std::string> words) {
  return fmt::format("{}={}", rocm_flag, fmt::join(words, std::string_view(&between_words, 1)));
}

void add_rocm_flag(Command command, std::string& words) {
  command.add_option(std::string(rocm_flag), words, "").take_last().group("");
}

RocmProfile rocm_profile(const std::string& words) {
  if (words.empty()) return {};
  std::vector<std::string> apart(1);
  for (const char c : words) {
    if (c == between_words)
      apart.emplace_back();
    else
      apart.back() += c;
  }
  return parse_rocm_call(apart).profile;
}

}  // namespace ridge
