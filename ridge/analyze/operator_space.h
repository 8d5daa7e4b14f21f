#pragma once

// The operators of many workloads, as their steps run them, held against their floors: which of
// them is slow for what it does, and where that costs the most.

#include <string>
#include <string_view>
#include <vector>

#include "ridge/analyze/bottlenecks.h"
#include "ridge/session/session.h"

namespace ridge {

// Everything that a workload does by one operator on operands of the same types.
struct SpaceRow {
  std::string workload;  // "resnet50, 32, inference"
  std::string op;        // "conv2d"
  std::string operands;  // "f16[32, 64, 56, 56] f16[64, 64, 3, 3]": the first ones
  Timed timed;           // per step
  double share = 0;      // of the step's time

  // The part of its time that its floor explains; more than 1 where operands stay in a cache.
  double of_floor() const { return timed.seconds > 0 ? timed.floor / timed.seconds : 0; }
  // The part of the step that would be gone if it took no longer than its floor.
  double lost() const {
    return timed.seconds > 0 ? share * timed.above_floor() / timed.seconds : 0;
  }
};

// Takes a few steps of a session, which are recorded, and returns their operators, the one first
// that loses most. The time of an operator is the mean of the steps.
std::vector<SpaceRow> operators_of_steps(Session& session, std::string_view workload,
                                         const Roof& roof);

// Most lost first.
void sort_by_loss(std::vector<SpaceRow>& rows);

// Whether a row is to be explained: it takes at least `share` of its step, and twice its floor.
bool is_slow(const SpaceRow& row, double share);

// The first `top` rows, all of them for 0, and how many are slow.
std::string operator_space_text(const std::vector<SpaceRow>& rows, std::size_t top, double share);
std::string operator_space_json(const std::vector<SpaceRow>& rows, double share);

}  // namespace ridge
