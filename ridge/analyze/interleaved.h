#pragma once

// Runs against each other in one process, of any workload: in turn, so that slow changes of the
// machine meet all of them alike.

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ridge/analyze/answers.h"
#include "ridge/analyze/plan.h"
#include "ridge/base/statistics.h"
#include "ridge/session/session.h"

namespace ridge {

// How often runs take turns.
struct Rounds {
  std::int64_t rounds = 16;
  std::int64_t steps = 3;   // timed of each run in a round, on the average
  std::int64_t warmup = 3;  // before the first round's, not timed; one before each other round's

  std::int64_t steps_in_all() const { return rounds * steps; }
};

// UsageError unless there is something to time. `steps_in_all` are shared out among the rounds, so
// that each has at least one.
Rounds rounds_of(std::int64_t rounds, std::int64_t steps_in_all, std::int64_t warmup);

// Calls `turn` for each of so many runs, in each round: every other one backwards, so that a drift
// within rounds cancels out.
void interleave(std::size_t runs, std::int64_t rounds,
                const std::function<void(std::size_t run, std::int64_t round)>& turn);

// One of the runs: a workload under other options.
struct Variant {
  std::string name;
  RunOptions options;        // resolved, unless it is refused
  std::string refusal = {};  // why it cannot run at all, where that is known before
};

struct TimedVariant {
  Variant variant;
  std::vector<std::vector<StepReport>> rounds;  // without the warm-up
  double loss = 0;                              // the last
  std::vector<float> logits;                    // after the first round, if they were to be kept
  std::vector<std::int64_t> logits_shape;
  std::size_t class_dim = 1;  // of the logits: Model::class_dim
  std::size_t peak_tensor_bytes = 0;
  double compile_seconds = 0;  // of the first time
  std::int64_t samples = 0;    // of a step
  std::string fault;           // why it was not measured; empty if it was

  // What the graph of a step says of it.
  TensorBytes at_peak;               // by use, as planned
  Cost work;                         // of a step
  std::int64_t kernels = 0;          // of a step
  std::optional<LeastTime> at_best;  // of a step, at the ceilings; none without TurnHooks::roof
  // The measured peak of the device, FLOP/s in the precision of its products; 0 without a roof.
  double peak_flops = 0;
  std::optional<ProfileAnswers> pass;    // of a step that was recorded; none if none was
  std::optional<double> second_compile;  // compile_seconds of a process that starts after this one

  bool measured() const { return !rounds.empty(); }
  // Seconds of all steps; and of each round the median over its steps. Steps of inference are timed
  // on the device, those of training with their data.
  std::vector<double> seconds() const;
  std::vector<double> by_round() const;
  double seconds_of(const StepReport& step) const;
  std::vector<StepReport> steps() const;
  double median_seconds() const { return percentile(seconds(), 0.5); }
  double samples_per_second() const;  // in the median time, which tables show beside it
  double samples_per_second_per_gb() const;
  double flops_per_second() const;  // in the median time
  double efficiency() const;        // of peak_flops; 0 without
};

struct TurnHooks {
  bool keep_logits = false;
  const Roof* roof = nullptr;  // the ceilings of the device, for `at_best` and `peak_flops`
  std::function<void(std::string_view work, std::size_t number, std::size_t of)> trying = {};
  std::function<void(std::int64_t done, std::int64_t all)> progress = {};  // steps
  std::function<bool()> stop = {};  // asked between steps; what was measured until then is kept
  // Called when a variant has had its steps in a round, which may make more of them.
  std::function<void(std::size_t variant, Session& session)> after = {};
};

// Times variants against each other in one process: in each round every variant has its turn, so
// that round i of one can be paired with round i of another. Those in training begin anew in each
// round; of those in inference as many stay on the device as leave half of its memory free. A
// variant that does not fit, or with a refusal, has a `fault`; any other error is thrown.
std::vector<TimedVariant> time_interleaved(const std::vector<Variant>& variants, Device& device,
                                           const Rounds& rounds, const TurnHooks& hooks = {});

// How many times as fast as the first a result is, with its interval. 0 where one is not measured.
Ratio speedup_over(const TimedVariant& first, const TimedVariant& result);

// What an interval says of a ratio of times.
enum class Change : std::uint8_t { faster, slower, unclear, unknown };
Change change_of(const Ratio& ratio);
// "faster", "slower", "no clear change", "too few rounds"
std::string_view name_of(Change change);

}  // namespace ridge
