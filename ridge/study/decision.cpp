#include "ridge/study/decision.h"

#include <algorithm>
#include <cmath>

namespace ridge {

std::string_view name_of(GateVerdict verdict) {
  constexpr std::string_view names[] = {"undecided", "fine", "regression"};
  return names[static_cast<int>(verdict)];
}

SequentialDecision::SequentialDecision(const DecisionRules& rules)
    : rules_(rules), next_look_(rules.first_pairs) {}

void SequentialDecision::add(double baseline, double candidate, double uncertainty) {
  log_ratios_.push_back(std::log(candidate / baseline));
  variances_.push_back(uncertainty * uncertainty);
}

Look SequentialDecision::look() {
  const auto number = static_cast<double>(++looks_);
  next_look_ = static_cast<std::size_t>(
      std::ceil(rules_.growth * static_cast<double>(std::max(next_look_, log_ratios_.size()))));
  const double share = 1 / (number * (number + 1));
  const Center center =
      center_of(log_ratios_, rules_.false_alarms * share, rules_.misses * share, variances_);
  p_value_ = std::min(p_value_, signed_rank_p_value(log_ratios_, variances_) / share);
  Look look;
  look.pairs = log_ratios_.size();
  look.change = std::expm1(center.value);
  if (!center.interval) return look;
  look.interval = Interval{std::expm1(center.interval->low), std::expm1(center.interval->high)};
  if (look.interval->low > 0 && look.change >= rules_.least_effect)
    look.verdict = GateVerdict::regression;
  else if (look.interval->high < rules_.least_effect)
    look.verdict = GateVerdict::fine;
  return look;
}

}  // namespace ridge
