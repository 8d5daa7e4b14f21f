#include "ridge/cli/keep_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "ridge/base/error.h"
#include "ridge/base/utf8.h"
#include "ridge/cli/command.h"
#include "ridge/cli/flags.h"
#include "ridge/report/report_page.h"
#include "ridge/study/fingerprint.h"
#include "ridge/study/live_run.h"
#include "ridge/study/store.h"
#include "ridge/study/store_file.h"
#include "ridge/study/store_schema.h"

namespace ridge {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

// Where a run is to be kept; empty if nobody asked for it.
fs::path store_to_write(const KeepRequest& request) {
  const auto found = find_store_file(request.store);
  const bool asked = request.record || (found && found->named);
  if (!asked) {
    if (!request.tags.empty())
      throw UsageError("--tag is for a run that is kept: give --record or --store FILE with it");
    return {};
  }
  if (found && found->named) {
    make_store(found->path);
    return found->path;
  }
  return existing_store_file(request.store);
}

struct Turn {
  std::string study;
  StudyTurn turn;
};

// Reads study_turn_text().
Turn turn_from(const std::string& text) {
  const std::size_t first = text.find('/'), second = text.find('/', first + 1);
  const auto number = [&](std::size_t from, std::size_t to) {
    std::int64_t value = -1;
    const char* const end = text.data() + std::min(to, text.size());
    const auto [stop, fault] = std::from_chars(text.data() + from, end, value);
    if (fault != std::errc() || stop != end || second == std::string::npos)
      throw UsageError("{} {}: it must be VARIANT/ROUND/NAME", study_turn_flag, shown(text));
    return value;
  };
  return {.study = second == std::string::npos ? "" : text.substr(second + 1),
          .turn = {.variant = number(0, first), .round = number(first + 1, second)}};
}

// The profile that a run has just written; null without one.
Json profile_of(const Record& record, Terminal& terminal) {
  const fs::path directory = record.options.profile_dir;
  std::error_code fault;
  if (!record.options.profiling() || record.recorded.empty() ||
      !fs::exists(directory / "operators.json", fault))
    return {};
  try {
    return kept_profile(directory);
  } catch (const Error& error) {  // a file that a full disk refused: the run is kept all the same
    terminal.line(fmt::format("The profile is not kept with the run: {}", error.what()));
    return {};
  }
}

}  // namespace

void add_keep_flags(Command command, KeepRequest& request) {
  add_value(command, "--store", request.store,
            "Keep the run in this store (default: $RIDGE_STORE); see ridge runs")
      .type_name("FILE")
      .group("Output");
  command
      .add_flag("--record", request.record,
                "Keep the run in the nearest store, .ridge/runs.db here or above")
      .group("Output");
  add_value(command, "--tag,--tags", request.tags, "Give the kept run these tags, with commas")
      .type_name("NAMES")
      .group("Output");
  // For the measurements of ridge study, and in no help.
  add_value(command, std::string(study_turn_flag), request.study_turn, "").group("");
}

std::string study_turn_text(std::string_view study, StudyTurn turn) {
  return fmt::format("{}/{}/{}", turn.variant, turn.round, study);
}

struct RunKeeper::Kept {
  Kept(const fs::path& file_to_write, const KeepRequest& request, const Device& device)
      : file(file_to_write), watch(device) {
    if (Store(file).read_only())
      throw IoError("cannot write {}: the file or its directory is read-only", file.string());
    for (const std::string& tag : request.tags) tags.push_back(checked_tag(tag));
    if (!request.study_turn.empty()) turn = turn_from(request.study_turn);
  }
  fs::path file;  // opened again when there is something to write
  ConditionsWatch watch;
  std::vector<std::string> tags;
  std::optional<Turn> turn;
  Uuid uuid = random_uuid();
  std::unique_ptr<LiveRun> live;
};

RunKeeper::RunKeeper(const KeepRequest* request, const Device& device) {
  const fs::path file = request ? store_to_write(*request) : fs::path();
  if (!file.empty()) kept_ = std::make_unique<Kept>(file, *request, device);
}

RunKeeper::~RunKeeper() = default;

void RunKeeper::begin(const Session& session, std::int64_t last_step) {
  if (!kept_) return;
  const RunOptions& options = session.options();
  const WorkloadInfo& workload = session.workload().info;
  kept_->live = std::make_unique<LiveRun>(kept_->file, kept_->uuid,
                                          Json{{"workload", workload.name},
                                               {"title", workload.title},
                                               {"mode", options.mode},
                                               {"version", options.version},
                                               {"dtype", options.dtype},
                                               {"batch_size", options.batch_size},
                                               {"hardware", session.device().hardware()},
                                               {"first_step", session.steps_done() + 1},
                                               {"last_step", last_step},
                                               {"tags", kept_->tags}});
}

void RunKeeper::step(const StepReport& report, std::size_t peak_bytes) {
  if (!kept_ || !kept_->live) return;
  kept_->live->step({.step = report.step,
                     .loss = report.loss,
                     .seconds = report.seconds,
                     .bytes = peak_bytes,
                     .power_w = kept_->live->is_due() ? kept_->watch.power_w() : std::nullopt});
}

void RunKeeper::keep(const Session& session, const Record& record, const std::string& json,
                     Terminal& terminal) {
  if (!kept_ || (kept_->turn && record.outcome == Outcome::interrupted)) return;
  Json context = context_json(session, kept_->watch);
  const Json profile = profile_of(record, terminal);
  if (profile.is_object()) context["operators"] = profile["operators"];
  RunDocument run{.uuid = kept_->uuid,
                  .tags = kept_->tags,
                  .record = json,
                  .context = context.dump(),
                  .profile = profile.is_object() ? profile.dump() : ""};
  if (kept_->turn) {
    run.study = kept_->turn->study;
    run.turn = kept_->turn->turn;
  }
  const std::int64_t id = Store(kept_->file).add(run);
  kept_->live.reset();  // after it is kept, so that nobody finds it in neither place
  terminal.line(fmt::format("Kept as run {} in {}", id, kept_->file.string()));
}

}  // namespace ridge
