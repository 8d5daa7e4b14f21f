#pragma once

// A run whose steps another process asks for, a few at a time. Two such runs can take turns, so
// that whatever the machine does meanwhile it does to both (study/paced_run.h).
//
// The other process leaves the number of a connected socket in $RIDGE_PACE, with a factor by which
// steps are to take longer: "7" or "7:1.05". The run writes the line of `pace_greeting` when it is
// ready. It then reads lines "TIMED UNTIMED", numbers of steps: it takes the untimed ones first,
// then the timed ones, and answers with a line "SECONDS FORWARD BACKWARD OPTIMIZER LOSS": medians
// over the timed steps, "-" for the phases of a step that has none, and the last loss. Between an
// answer and the next request it sleeps. When the socket is closed the run ends as if the step
// before had been its last one.

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "ridge/session/session.h"

namespace ridge {

constexpr const char* pace_variable = "RIDGE_PACE";
constexpr std::string_view pace_greeting = "ridge-pace-1";

// What a run answers.
struct PacedTurn {
  double seconds = 0;                               // of a step, in the median
  double forward = 0, backward = 0, optimizer = 0;  // 0 where a step has no phases
  double loss = 0;
  bool operator==(const PacedTurn&) const = default;
};
std::string to_line(const PacedTurn& turn);        // without its end
PacedTurn paced_turn_from(std::string_view line);  // FormatError for any other line

// The side of the run that is paced. The loop calls it on its own thread.
class Pace {
 public:
  // The pace that $RIDGE_PACE asks for; null without that variable. UsageError if its value is none
  // or names no socket. The variable is removed: programs that this one starts are not paced.
  static std::unique_ptr<Pace> open();
  Pace(int socket, double slowdown);
  ~Pace();
  Pace(const Pace&) = delete;
  Pace& operator=(const Pace&) = delete;

  // Answers if a turn is complete, then waits until a step is asked for; false if there will be
  // none any more.
  bool wait();
  // Right before and right after a step, which is complete on the device then.
  void begin_step();
  void end_step(const StepReport& report);

 private:
  bool read_request();
  void answer();
  bool write_line(std::string_view line);

  int socket_;
  double slowdown_;
  std::int64_t untimed_ = 0, timed_ = 0;  // steps that are still to be taken of this turn
  bool ended_ = false;
  double loss_ = 0;
  std::string received_;
  std::chrono::steady_clock::time_point begin_;
  std::vector<double> seconds_, forward_, backward_, optimizer_;  // of this turn's timed steps
};

}  // namespace ridge
