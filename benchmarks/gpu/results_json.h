#pragma once

// A results file as benchmarks/results_file.py describes it, from a program.

#include <fmt/format.h>

#include <array>
#include <cstdio>
#include <ctime>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ridge/base/file.h"

namespace ridge {

struct ResultsTable {
  std::string caption;
  std::vector<std::string> columns;
  std::vector<std::vector<std::string>> rows = {};
  // By row: what its cells were made of, which the page leaves out.
  std::vector<std::vector<std::pair<std::string, std::vector<double>>>> figures = {};

  void add(std::vector<std::string> row,
           std::vector<std::pair<std::string, std::vector<double>>> made_of) {
    rows.push_back(std::move(row));
    figures.push_back(std::move(made_of));
  }
};

struct ResultsOrigin {
  std::string section, title, device, command;
  std::vector<std::string> notes = {};
};

// The first line that a command prints; empty if it fails.
inline std::string first_line_of(const char* command) {
  std::FILE* const pipe = ::popen(command, "r");
  if (!pipe) return {};
  std::array<char, 256> line{};
  const bool read = std::fgets(line.data(), line.size(), pipe) != nullptr;
  if (::pclose(pipe) != 0 || !read) return {};
  std::string text = line.data();
  while (!text.empty() && text.back() == '\n') text.pop_back();
  return text;
}

// The commit of the sources in the current directory, with a + if they have changes; "unknown"
// outside of a checkout.
inline std::string results_commit() {
  const std::string commit = first_line_of("git rev-parse --short=10 HEAD 2>/dev/null");
  if (commit.empty()) return "unknown";
  return commit + (first_line_of("git status --short 2>/dev/null").empty() ? "" : "+");
}

// A command as a shell takes it.
inline std::string results_command(std::string_view program, std::span<char* const> arguments) {
  std::string command(program);
  for (const std::string_view argument : arguments)
    command += argument.find_first_of(" '\"[]()") == std::string_view::npos
                   ? fmt::format(" {}", argument)
                   : fmt::format(" '{}'", argument);
  return command;
}

inline void write_results(const std::string& path, const ResultsOrigin& origin,
                          std::span<const ResultsTable> tables) {
  const std::time_t now = std::time(nullptr);
  std::array<char, 16> date{};
  std::strftime(date.data(), date.size(), "%Y-%m-%d", std::localtime(&now));
  nlohmann::ordered_json results{{"schema", "ridge-results-1"},
                                 {"section", origin.section},
                                 {"title", origin.title},
                                 {"measured",
                                  {{"date", date.data()},
                                   {"commit", results_commit()},
                                   {"device", origin.device},
                                   {"command", origin.command}}},
                                 {"notes", origin.notes}};
  for (const ResultsTable& table : tables) {
    if (table.rows.empty()) continue;
    results["tables"].push_back(
        {{"caption", table.caption}, {"columns", table.columns}, {"rows", table.rows}});
    for (std::size_t r = 0; r < table.rows.size(); ++r) {
      nlohmann::ordered_json row{{"row", table.rows[r]}};
      for (const auto& [name, values] : table.figures[r]) row[name] = values;
      results["figures"].push_back(std::move(row));
    }
  }
  write_text_file(path, results.dump(1) + "\n");
}

}  // namespace ridge
