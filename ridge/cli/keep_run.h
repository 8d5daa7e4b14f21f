#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "ridge/cli/command.h"
#include "ridge/cli/terminal.h"
#include "ridge/session/record.h"
#include "ridge/study/run_row.h"

namespace ridge {

// What the flags of a command say of keeping its run in a store.
struct KeepRequest {
  std::string store;
  bool record = false;
  std::vector<std::string> tags;
  std::string study_turn;  // "VARIANT/ROUND/NAME": whose turn of which study the run is
};
// The value of the flag with which a study starts its measurements.
std::string study_turn_text(std::string_view study, StudyTurn turn);
inline constexpr std::string_view study_turn_flag = "--study-turn";
// Adds --store, --record and --tag.
void add_keep_flags(Command command, KeepRequest& request);

// Keeps one run in a store, if the user asked for that: by --record, or by naming a store, on the
// command line or by $RIDGE_STORE. A store that is only found above the working directory is not
// written without being asked.
class RunKeeper {
 public:
  // Before the run begins: now, and not after hours, is the time to learn that there is no store to
  // write. A store that is named and does not exist is made. A null request keeps nothing, whatever
  // $RIDGE_STORE says.
  RunKeeper(const KeepRequest* request, const Device& device);
  ~RunKeeper();
  RunKeeper(const RunKeeper&) = delete;
  RunKeeper& operator=(const RunKeeper&) = delete;

  // Tells those who look at the store (study/live_run.h) that the run begins, and of each step.
  void begin(const Session& session, std::int64_t last_step);
  void step(const StepReport& report, std::size_t peak_bytes);

  // After it, with the record as JSON. What `ridge report` draws of a profile directory that the
  // run wrote is kept too, so that it is there wherever the store goes. A turn of a study that was
  // interrupted is not kept: it will be taken again.
  void keep(const Session& session, const Record& record, const std::string& json,
            Terminal& terminal);

 private:
  struct Kept;
  std::unique_ptr<Kept> kept_;  // null: nobody asked
};

}  // namespace ridge
