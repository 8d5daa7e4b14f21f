#pragma once

// Runs as files, which carry them from store to store: JSON lines, one whole run a line.
//
//   {"schema":"ridge-run-1","uuid":"...","study":"...","tags":["..."],
//    "context":{...},"record":{...},"profile":{...}}
//
// without a "profile" where the run was not profiled.

#include <cstdint>
#include <filesystem>
#include <functional>
#include <istream>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ridge/study/run_row.h"
#include "ridge/study/store.h"

namespace ridge {

// A run as a line, without its end.
std::string run_line(const RunDocument& run);
// FormatError for a line that is none.
RunDocument run_from_line(std::string_view line);

// Writes the runs of a filter, the oldest first: how many there are.
std::int64_t export_runs(Store& store, std::string_view filter,
                         const std::function<void(std::string_view line)>& write);

struct Imported {
  std::int64_t read = 0, added = 0;  // others were there already
  struct Damage {
    std::int64_t line = 0;  // from 1 on
    std::string reason;
  };
  std::vector<Damage> damaged;  // lines that were left out
};
// Adds the runs of a file to a store; those that it has already, by their uuid, are left alone, so
// that a second import changes nothing. Lines that are no runs are left out and named. Others may
// use the store meanwhile.
Imported import_runs(Store& store, std::istream& file);

// A row under the names of its columns, in one line: {"id":12,...,"tags":["baseline"]}.
std::string row_json(const RunRow& row);
// Names of the columns, and a row, as lines of CSV (RFC 4180) without their ends.
std::string csv_heading();
std::string row_csv(const RunRow& row);

}  // namespace ridge
