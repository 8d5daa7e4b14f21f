#pragma once

// Whether the figures of a run may be believed: what is known of it is held against limits.

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ridge/session/record.h"

namespace ridge {

// One thing that was looked at. `value` and `limit` are in the unit that `finding` names.
struct BeliefCheck {
  enum class Verdict : std::uint8_t { good, doubtful, unknown };
  std::string_view name;  // "steady", a key of JSON
  Verdict verdict = Verdict::unknown;
  std::optional<double> value, limit;
  std::string finding;  // a sentence with the value and the limit
};
std::string_view name_of(BeliefCheck::Verdict verdict);

struct Belief {
  std::vector<BeliefCheck> checks;

  bool is_doubtful() const;
};

// Looks at the spread of the times, at the warm-up, at other programs, at the time that the
// ceilings allow, and at the losses. No checks for a run without steps. `summary` is the record's.
Belief belief_of(const Record& record, const Summary& summary);

// "Is this run to be believed? Yes" and a line for each check; empty without checks.
std::string belief_text(const Belief& belief);
nlohmann::ordered_json json_of(const Belief& belief);

}  // namespace ridge
