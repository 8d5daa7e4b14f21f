#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "ridge/study/signed_rank.h"

namespace ridge {

enum class GateVerdict : std::uint8_t {
  undecided,   // measure on
  fine,        // no slowdown as large as the least effect
  regression,  // slower, and by at least as much
};
std::string_view name_of(GateVerdict verdict);

struct DecisionRules {
  double least_effect = 0.02;    // a relative change that matters
  double false_alarms = 0.01;    // the share of regressions found where there is none, at most
  double misses = 0.05;          // the share of slowdowns by the least effect called fine, at most
  std::size_t first_pairs = 12;  // how many pairs there are at the first look
  double growth = 1.4;           // by which factor their number grows from one look to the next
};

// What is known at one look. `change` is relative: 0.05 where the candidate takes 5 % longer. The
// lower end of the interval is too high in a share false_alarms of cases at most, over all looks;
// the upper end is too low in a share `misses`.
struct Look {
  std::size_t pairs = 0;
  GateVerdict verdict = GateVerdict::undecided;
  double change = 0;
  std::optional<Interval> interval;
};

// Decides between two programs from measurements of both that were made in pairs, as soon as the
// pairs allow it.
//
// It looks at the differences of logarithms, whose center lies at 0 where both are the same, if
// which of a pair was measured first was decided by the toss of a coin: whatever the machine did
// meanwhile, it did to the one as likely as to the other. A pair that was measured while the
// machine was busy says less than others, and counts less, by the square of its uncertainty.
// Look number j may err in a share false_alarms / (j (j + 1)) of cases, so that all looks together
// err in at most false_alarms, however many there are; and the same of misses.
class SequentialDecision {
 public:
  explicit SequentialDecision(const DecisionRules& rules = {});

  // Both positive, such as seconds a step. `uncertainty` is how far the logarithm of their ratio
  // may be off, against that of other pairs; it is to be the same if both are exchanged.
  void add(double baseline, double candidate, double uncertainty = 1);
  bool look_is_due() const { return log_ratios_.size() >= next_look_; }
  // Call it where one is due, and once at the end.
  Look look();
  std::size_t pairs() const { return log_ratios_.size(); }
  // The least share of false alarms at which a slowdown would have been found at one of the looks
  // so far, however small it is: a p-value that holds whenever one stops. 1 before the first look.
  double p_value() const { return p_value_; }

 private:
  DecisionRules rules_;
  std::vector<double> log_ratios_, variances_;
  std::size_t next_look_;
  std::size_t looks_ = 0;
  double p_value_ = 1;
};

}  // namespace ridge
