#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ridge/analyze/bottlenecks.h"
#include "ridge/profile/communication.h"
#include "ridge/profile/operator_table.h"
#include "ridge/profile/step_recorder.h"

namespace ridge {

// What a profile directory is made of.
struct ProfileContent {
  const StepRecorder& recorder;  // finished
  Session& session;
  const Record& record;
  std::optional<BottleneckReport> bottlenecks;
  std::optional<CommunicationReport> communication;  // of one rank of several
  RanksReport ranks;                                 // of all of them, if there is one
  GroupBy group_by = GroupBy::op;
  SortBy sort_by = SortBy::total;
  bool compress_traces = false;
};

struct ProfileListing {
  std::filesystem::path directory;
  std::vector<std::string> written;  // names within the directory
  std::vector<std::string>
      refused;  // why the system refused others; a full disk refuses a large one
};

// Writes the files of a profile into a directory, which exists: tables, traces, memory, curves.
// What this run does not have is removed if a run before left it: readers take the directory for
// one profile. performance_summary.json is written by the run itself. `tell` is told of each file
// that was cut.
ProfileListing write_profile(const std::filesystem::path& directory, const ProfileContent& content,
                             const std::function<void(const std::string&)>& tell);

}  // namespace ridge
